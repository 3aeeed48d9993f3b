/* The calling task's own address space: mmap and what follows it, memfd_create. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"
#include "pgalloc/promise.h"
#include "sentry/dev/dev.h"
#include "tmpfs/tmpfs.h"

#include <limits.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>

/* Flags that MAP_SHARED_VALIDATE knows; MAP_SYNC needs a DAX file system, which there is not. */
#define MAP_KNOWN                                                                                  \
	(MAP_TYPE | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_ANONYMOUS | MAP_DENYWRITE |              \
	 MAP_EXECUTABLE | MAP_GROWSDOWN | MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE |              \
	 MAP_NONBLOCK | MAP_STACK | MAP_HUGETLB | MAP_32BIT | (int)(0x3fU << MAP_HUGE_SHIFT))
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
#define PROT_UNKNOWN 0x40000000 /* stands for all that an int has no room for */
#define MEMFD_NAME_SIZE 250
#define MINCORE_STEP 4096 /* pages at a time */

/* ---- mmap ---- */

/* What a shared mapping of a sealed memfd may become; PROT_WRITE leaves max_prot. */
static int apply_seals(struct file *f, int prot, u8 *max_prot)
{
	s64 seals = f->ops->fcntl ? f->ops->fcntl(f, F_GET_SEALS, 0) : 0;

	if (seals <= 0 || !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return 0;
	if (prot & PROT_WRITE)
		return -EPERM;
	*max_prot &= (u8)~PROT_WRITE;
	return 0;
}

/* Linux's checks of a file mapping; fills max_prot. */
static int check_file(struct file *f, int prot, int type, int flags, u8 *max_prot)
{
	bool noexec = f->path.mnt && (mount_flags(f->path.mnt) & MS_NOEXEC);

	*max_prot = PROT_READ | PROT_WRITE | PROT_EXEC;
	if (type == MAP_SHARED_VALIDATE && (flags & ~MAP_KNOWN))
		return -EOPNOTSUPP;
	if (type != MAP_PRIVATE && (prot & PROT_WRITE) && !file_writable(f))
		return -EACCES;
	if (!file_readable(f))
		return -EACCES;
	if (noexec && (prot & PROT_EXEC))
		return -EPERM;
	if (noexec)
		*max_prot &= (u8)~PROT_EXEC;
	if (type == MAP_PRIVATE)
		return f->ops->mappable ? 0 : -ENODEV;
	if (!file_writable(f))
		*max_prot &= (u8)~PROT_WRITE;
	if (!f->ops->mappable)
		return -ENODEV;
	return apply_seals(f, prot, max_prot);
}

static s64 map_shared_anonymous(struct task *t, struct mm_mmap_args *m)
{
	struct promise *promise = pgalloc_promise(t->kernel->memory);
	struct shmem_opts opts = {
		.reserve = !(m->flags & MAP_NORESERVE) || promise->mode == PROMISE_NEVER,
		.admin = m->limits.admin,
		.space = mm_space(t->mm),
	};
	s64 r;

	if (!page_up(m->len, &opts.len) || !opts.len)
		return m->len ? -ENOMEM : -EINVAL;
	r = shmem_new(t->kernel->internal_tmpfs, &opts, &m->mappable);
	if (r < 0)
		return r == -ENOSPC ? -ENOMEM : r;
	m->offset = 0;
	m->name = "/dev/zero (deleted)";
	r = mm_mmap(t->mm, m);
	m->mappable->ops->put(m->mappable);
	return r;
}

static s64 map_file(struct task *t, struct file *f, int type, struct mm_mmap_args *m)
{
	struct path root;
	ssize_t n;
	s64 r;

	/* No page may lie beyond what an offset can say. */
	if (inode_is_reg(f->inode) && m->len <= INT64_MAX / 2 &&
	    m->offset >> PAGE_SHIFT > (INT64_MAX - page_up_nofail(m->len)) >> PAGE_SHIFT)
		return -EOVERFLOW;
	r = check_file(f, m->prot, type, m->flags, &m->max_prot);
	if (r < 0)
		return r;
	m->flags = (m->flags & ~MAP_TYPE) | (type == MAP_PRIVATE ? MAP_PRIVATE : MAP_SHARED);
	if (file_is_dev_zero(f)) {
		m->flags |= MAP_ANONYMOUS;
		return type == MAP_PRIVATE ? mm_mmap(t->mm, m) : map_shared_anonymous(t, m);
	}
	r = f->ops->mappable(f, &m->mappable);
	if (r < 0)
		return r;
	mutex_lock(&t->fs->lock);
	root = t->fs->root;
	path_get(&root);
	mutex_unlock(&t->fs->lock);
	n = file_text(f, &root, t->scratch_path, PATH_MAX);
	path_put(&root);
	m->name = n > 0 ? t->scratch_path : NULL;
	r = mm_mmap(t->mm, m);
	m->mappable->ops->put(m->mappable);
	return r;
}

s64 sys_mmap(struct task *t, const u64 a[6])
{
	struct mm_mmap_args m = { .addr = a[0],
				  .len = a[1],
				  .prot = (int)a[2],
				  .flags = (int)a[3],
				  .offset = a[5],
				  .max_prot = PROT_READ | PROT_WRITE | PROT_EXEC };
	int type = (int)a[3] & MAP_TYPE;
	struct file *f;
	s64 r;

	if (!page_aligned(a[5]))
		return -EINVAL;
	task_mm_limits(t, &m.limits);
	if (m.flags & MAP_ANONYMOUS) {
		if (type != MAP_SHARED && type != MAP_PRIVATE && type != MAP_DROPPABLE)
			return -EINVAL;
		return type == MAP_SHARED && !(m.flags & MAP_HUGETLB) ? map_shared_anonymous(t, &m)
								      : mm_mmap(t->mm, &m);
	}
	f = fd_get(t->fds, (int)a[4]);
	if (!f)
		return -EBADF;
	if (!a[1] || (m.flags & MAP_HUGETLB) || !type)
		r = -EINVAL;
	else if (type != MAP_SHARED && type != MAP_PRIVATE && type != MAP_SHARED_VALIDATE)
		r = -EINVAL;
	else
		r = map_file(t, f, type, &m);
	file_put(f);
	return r;
}

/* ---- changing mappings ---- */

s64 sys_munmap(struct task *t, const u64 a[6])
{
	return mm_munmap(t->mm, a[0], a[1]);
}

static s64 protect(struct task *t, u64 addr, u64 len, u64 prot)
{
	struct mm_limits limits;

	if (prot >> 32)
		prot |= PROT_UNKNOWN;
	task_mm_limits(t, &limits);
	return mm_mprotect(t->mm, addr, len, (int)prot, &limits);
}

s64 sys_mprotect(struct task *t, const u64 a[6])
{
	return protect(t, a[0], a[1], a[2]);
}

/* As on a processor without protection keys. */
s64 sys_pkey_mprotect(struct task *t, const u64 a[6])
{
	return (int)a[3] == -1 ? protect(t, a[0], a[1], a[2]) : -EINVAL;
}

s64 sys_pkey_alloc(struct task *t, const u64 a[6])
{
	return a[0] || (a[1] & ~(u64)(PKEY_DISABLE_ACCESS | PKEY_DISABLE_WRITE)) ? -EINVAL
										 : -ENOSPC;
}

s64 sys_pkey_free(struct task *t, const u64 a[6])
{
	return -EINVAL;
}

s64 sys_mseal(struct task *t, const u64 a[6])
{
	return a[2] ? -EINVAL : mm_mseal(t->mm, a[0], a[1]);
}

s64 sys_mremap(struct task *t, const u64 a[6])
{
	struct mm_limits limits;

	if (a[3] >> 32)
		return -EINVAL;
	task_mm_limits(t, &limits);
	return mm_mremap(t->mm, a[0], a[1], a[2], (int)a[3], a[4], &limits);
}

s64 sys_remap_file_pages(struct task *t, const u64 a[6])
{
	struct mm_limits limits;

	if (a[2])
		return -EINVAL;
	if (sys_shm_ends(t, page_down(a[0]), page_down(a[1]))) {
		int err = mm_munmap(t->mm, page_down(a[0]), page_down(a[1]));

		return err < 0 ? err : -EINVAL;
	}
	task_mm_limits(t, &limits);
	return mm_remap_file_pages(t->mm, a[0], a[1], a[3], &limits);
}

s64 sys_brk(struct task *t, const u64 a[6])
{
	struct mm_limits limits;

	task_mm_limits(t, &limits);
	return (s64)mm_brk(t->mm, a[0], &limits);
}

s64 sys_madvise(struct task *t, const u64 a[6])
{
	struct mm_limits limits;

	task_mm_limits(t, &limits);
	return mm_madvise(t->mm, a[0], a[1], (int)a[2], &limits);
}

s64 sys_msync(struct task *t, const u64 a[6])
{
	/* As with locks, a length that overflows is none. */
	return mm_msync(t->mm, a[0], page_down(a[1] + PAGE_SIZE - 1), (int)a[2]);
}

s64 sys_mincore(struct task *t, const u64 a[6])
{
	u64 pages, len;
	u8 vec[MINCORE_STEP];

	if (!page_aligned(a[0]))
		return -EINVAL;
	if (!page_up(a[1], &len) || a[0] + len < a[0])
		return -ENOMEM;
	pages = len >> PAGE_SHIFT;
	for (u64 done = 0; done < pages;) {
		u64 n = MIN(pages - done, MINCORE_STEP);
		int err = mm_mincore(t->mm, a[0] + (done << PAGE_SHIFT), n << PAGE_SHIFT, vec);

		if (err < 0)
			return err;
		if (copy_out(t, ua(a[2] + done), vec, n) < 0)
			return -EFAULT;
		done += n;
	}
	return 0;
}

/* ---- locking ---- */

/* The length from the page of addr on, where Linux lets what overflows be no pages at all. */
static u64 lock_len(u64 addr, u64 len)
{
	return page_down(len + (addr - page_down(addr)) + PAGE_SIZE - 1);
}

static s64 lock_range(struct task *t, u64 addr, u64 len, bool onfault)
{
	struct mm_limits limits;

	task_mm_limits(t, &limits);
	return mm_mlock(t->mm, page_down(addr), lock_len(addr, len), onfault, &limits);
}

s64 sys_mlock(struct task *t, const u64 a[6])
{
	return lock_range(t, a[0], a[1], false);
}

s64 sys_mlock2(struct task *t, const u64 a[6])
{
	return (int)a[2] & ~MLOCK_ONFAULT ? -EINVAL
					  : lock_range(t, a[0], a[1], a[2] & MLOCK_ONFAULT);
}

s64 sys_munlock(struct task *t, const u64 a[6])
{
	return mm_munlock(t->mm, page_down(a[0]), lock_len(a[0], a[1]));
}

s64 sys_mlockall(struct task *t, const u64 a[6])
{
	struct mm_limits limits;

	if (!a[0] || ((int)a[0] & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) ||
	    (int)a[0] == MCL_ONFAULT)
		return -EINVAL;
	task_mm_limits(t, &limits);
	return mm_mlockall(t->mm, (int)a[0], &limits);
}

s64 sys_munlockall(struct task *t, const u64 a[6])
{
	return mm_munlockall(t->mm);
}

/* ---- memfd ---- */

s64 sys_memfd_create(struct task *t, const u64 a[6])
{
	char name[MEMFD_NAME_SIZE];
	struct file *f;
	ssize_t n;
	s64 r;

	/* Linux checks the flags before it looks at the name. */
	if ((u32)a[1] & ~(u32)(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 0x18 |
			       ((u32)MFD_HUGE_MASK << MFD_HUGE_SHIFT)))
		return -EINVAL;
	n = mm_copy_in_str(t->mm, name, sizeof(name), ua(a[0]));
	if (n < 0)
		return n == -ENAMETOOLONG ? -EINVAL : n;
	r = memfd_create_file(t->kernel->internal_tmpfs, name, (u32)a[1], t->cred, &f);
	if (r < 0)
		return r;
	r = fd_install(t->fds, f, 0, a[1] & MFD_CLOEXEC, task_rlimit(t, RLIMIT_NOFILE));
	if (r < 0)
		file_put(f);
	return r;
}
