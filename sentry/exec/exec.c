/* Opening programs: permission, #! lines, headers; then the new address space. See exec.h. */
#include "sentry/exec/exec_impl.h"
#include "base/host_time.h"
#include "base/log.h"
#include "sentry/kernel/kernel.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#define FIRST_READ 4096
#define EFLAGS_START 0x202
#define USER_CS 0x33
#define USER_SS 0x2b

/* ---- executables keep writers out ---- */

void exec_exe_get(void *file)
{
	struct file *f = file;

	file_get(f);
	if (inode_deny_write(f->inode) < 0)
		PANIC("a running program is open for writing");
}

void exec_exe_put(void *file)
{
	struct file *f = file;

	inode_allow_write(f->inode);
	file_put(f);
}

/* ---- opening ---- */

/* Opens an executable: execute permission is enough, so the opening itself is done as root. */
static int open_path(const struct path *p, const struct cred *cred, struct file **ret)
{
	struct inode *inode = path_inode(p);
	struct cred *root;
	int r;

	if (!inode_is_reg(inode) || (p->mnt && (mount_flags(p->mnt) & MS_NOEXEC)))
		return -EACCES;
	r = vfs_access(p, cred, MAY_EXEC);
	if (r < 0)
		return r;
	root = cred_new(0, 0, UINT64_MAX);
	if (root == NULL)
		return -ENOMEM;
	r = vfs_open_path(p, O_RDONLY | O_LARGEFILE, root, ret);
	cred_put(root);
	return r;
}

static int open_program(const struct walk_context *w, const char *path, u32 walk_flags,
			struct file **ret)
{
	struct path p;
	struct file *f;
	int r = vfs_walk(w, path, walk_flags, &p);

	if (r < 0)
		return r;
	if (!(walk_flags & WALK_FOLLOW) && S_ISLNK(path_inode(&p)->type))
		r = -ELOOP;
	if (r == 0)
		r = open_path(&p, w->cred, &f);
	path_put(&p);
	if (r)
		return r;
	r = inode_deny_write(f->inode);
	if (r < 0) {
		file_put(f);
		return r;
	}
	*ret = f;
	return 0;
}

static void set_comm(char comm[TASK_COMM_LEN], const char *path)
{
	const char *slash = strrchr(path, '/');

	snprintf(comm, TASK_COMM_LEN, "%s", slash ? slash + 1 : path);
}

/* With a descriptor for a path, the name is the file's own. */
static void comm_of_file(struct exec *e)
{
	char *text = malloc(PATH_MAX);

	if (text && path_text(&e->main.file->path, &e->req.walk->root, text, PATH_MAX) >= 0)
		set_comm(e->comm, text);
	free(text);
}

/* ---- headers ---- */

/* Reads header and program headers; `first` holds the file's first bytes. */
static int read_image(struct elf_image *image, const u8 *first, size_t len)
{
	size_t size;
	int r = elf_check_header(first, len, &image->header);

	if (r < 0)
		return r;
	size = image->header.e_phnum * sizeof(Elf64_Phdr);
	image->phdrs = malloc(size);
	if (image->phdrs == NULL)
		return -ENOMEM;
	if (image->header.e_phoff <= len && size <= len - image->header.e_phoff) {
		memcpy(image->phdrs, first + image->header.e_phoff, size);
		return 0;
	}
	if (vfs_read_buf(image->file, image->phdrs, size, image->header.e_phoff) != (ssize_t)size)
		return -ENOEXEC;
	return 0;
}

static int load_interpreter(struct exec *e, const u8 *first, size_t len)
{
	const struct walk_context *w = e->req.interp_walk ? e->req.interp_walk : e->req.walk;
	const Elf64_Phdr *ph;
	char name[PATH_MAX];
	u8 buf[FIRST_READ];
	ssize_t n;
	int r = elf_find_interp(&e->main.header, e->main.phdrs, &ph);

	if (r < 0 || ph == NULL)
		return r;
	if (ph->p_offset <= len && ph->p_filesz <= len - ph->p_offset)
		memcpy(name, first + ph->p_offset, ph->p_filesz);
	else if (vfs_read_buf(e->main.file, name, ph->p_filesz, ph->p_offset) !=
		 (ssize_t)ph->p_filesz)
		return -EIO;
	if (name[ph->p_filesz - 1] != '\0')
		return -ENOEXEC;
	r = open_program(w, name, WALK_FOLLOW, &e->interp.file);
	if (r < 0)
		return r;
	n = vfs_read_buf(e->interp.file, buf, sizeof(buf), 0);
	if (n < 0)
		return (int)n;
	if ((size_t)n < sizeof(Elf64_Ehdr))
		return -EIO;
	r = read_image(&e->interp, buf, (size_t)n);
	return r == -ENOEXEC ? -ELIBBAD : r;
}

/* ---- #! ---- */

/*
 * The line in buf names an interpreter: it becomes the program, the script's name its argument.
 * *script: the name under which the present file was found; replaced. Owned.
 */
static int follow_script(struct exec *e, u8 *buf, size_t len, char **script)
{
	const struct walk_context *w = e->req.interp_walk ? e->req.interp_walk : e->req.walk;
	char line[EXEC_SCRIPT_LINE + 1] = { 0 };
	const char *strings[3];
	struct script_line s;
	size_t count = 0;
	char *name;
	int r;

	memcpy(line, buf, MIN(len, (size_t)EXEC_SCRIPT_LINE));
	r = script_parse(line, EXEC_SCRIPT_LINE, &s); /* zeros after a short file */
	if (r < 0)
		return r;
	strings[count++] = s.interpreter;
	if (s.argument)
		strings[count++] = s.argument;
	strings[count++] = *script;
	r = exec_args_replace_first(e->req.args, strings, count);
	if (r < 0)
		return r;
	name = strdup(s.interpreter);
	if (name == NULL)
		return -ENOMEM;
	free(*script);
	*script = name;
	exec_exe_put(e->main.file);
	e->main.file = NULL;
	return open_program(w, name, WALK_FOLLOW, &e->main.file);
}

/* Opens the program and goes through scripts until it is an ELF file. */
static int find_program(struct exec *e)
{
	const struct exec_request *req = &e->req;
	u32 flags = (req->no_follow ? 0 : WALK_FOLLOW) | (req->at_empty ? WALK_EMPTY : 0);
	char *script = strdup(e->name);
	u8 buf[FIRST_READ];
	ssize_t n = 0;
	int r;

	if (script == NULL)
		return -ENOMEM;
	r = open_program(req->walk, req->path, flags, &e->main.file);
	if (r == 0 && req->at_empty && req->path[0] == '\0')
		comm_of_file(e);
	for (int depth = 0; r == 0; depth++) {
		n = vfs_read_buf(e->main.file, buf, sizeof(buf), 0);
		if (n < 0)
			r = (int)n;
		if (r < 0 || n < 2 || buf[0] != '#' || buf[1] != '!')
			break;
		if (depth == 0 && req->fd_cloexec)
			r = -ENOENT; /* the interpreter could not open /dev/fd/N any more */
		else
			r = follow_script(e, buf, (size_t)n, &script);
		if (r == 0 && depth >= EXEC_SCRIPT_DEPTH)
			r = -ELOOP;
	}
	free(script);
	if (r == 0)
		r = read_image(&e->main, buf, (size_t)n);
	if (r == 0)
		r = load_interpreter(e, buf, (size_t)n);
	return r;
}

/* ---- the two halves ---- */

static void put_image(struct elf_image *image)
{
	if (image->file)
		exec_exe_put(image->file);
	free(image->phdrs);
}

void exec_free(struct exec *e)
{
	if (e == NULL)
		return;
	put_image(&e->main);
	put_image(&e->interp);
	cred_put(e->cred);
	mm_put(e->mm);
	free(e->name);
	free(e);
}

/* Whether others may trace or dump it: not with borrowed identity, nor when its file is unreadable.
 */
static bool is_private(const struct exec *e)
{
	return e->cred->euid != e->cred->uid || e->cred->egid != e->cred->gid ||
	       vfs_access(&e->main.file->path, e->req.cred, MAY_READ) < 0;
}

int exec_prepare(const struct exec_request *req, struct exec **ret)
{
	struct mm_config mc = { .platform = req->kernel->platform,
				.memory = req->kernel->memory,
				.acct_id = MEMORY_OF_SPACES,
				.text = req->kernel->text,
				.totals = &req->kernel->mm_totals,
				.fork_wait = req->kernel->fork_wait,
				.fork_reuse = req->kernel->fork_reuse };
	const char *name = req->display_name ? req->display_name : req->path;
	struct exec *e = calloc(1, sizeof(*e));
	int r;

	if (e == NULL)
		return -ENOMEM;
	e->req = *req;
	e->name = strdup(name);
	r = e->name ? 0 : -ENOMEM;
	if (r == 0) {
		set_comm(e->comm, name);
		r = find_program(e);
	}
	if (r == 0)
		r = exec_creds(req, e->main.file, &e->req.personality, &e->cred, &e->secure);
	if (r == 0) {
		e->not_dumpable = is_private(e);
		r = host_getrandom(e->random, sizeof(e->random), 0);
	}
	if (r == 0)
		r = mm_new(&mc, &e->mm);
	if (r < 0) {
		exec_free(e);
		return r;
	}
	mm_set_policy(e->mm, req->mm_policy);
	*ret = e;
	return 0;
}

int exec_map(struct exec *e, struct exec_result *ret)
{
	struct exec_layout l = { 0 };
	u64 sp;
	int r = exec_map_images(e, &l);

	if (r == 0)
		r = exec_build_stack(e, &l, &sp);
	if (r < 0)
		return r;
	mm_map_ahead(e->mm);
	mm_set_marks(e->mm, &l.marks);
	mm_set_dumpable(e->mm, e->not_dumpable ? 0 : 1);
	mm_set_exe(e->mm, e->main.file, exec_exe_put);
	e->main.file = NULL;
	*ret = (struct exec_result){
		.mm = e->mm,
		.cred = e->cred,
		.regs = { .rip = l.entry,
			  .rsp = sp,
			  .eflags = EFLAGS_START,
			  .cs = USER_CS,
			  .ss = USER_SS,
			  .orig_rax = UINT64_MAX },
		.secure = e->secure,
		.personality = e->req.personality,
	};
	memcpy(ret->comm, e->comm, sizeof(ret->comm));
	e->mm = NULL;
	e->cred = NULL;
	return 0;
}

int exec_load(const struct exec_request *req, struct exec_result *ret)
{
	struct exec *e;
	int r = exec_prepare(req, &e);

	if (r < 0)
		return r;
	r = exec_map(e, ret);
	exec_free(e);
	return r;
}
