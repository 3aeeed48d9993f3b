/*
 * Random data operations on a set of tmpfs files, from several processes, against a model.
 *
 * The model is in shared memory: of each file its bytes, its size and what is known of each
 * page's backing. An operation holds the locks of its files, so what it must see is exact. Half
 * of the files are never mapped: of those the allocated pages are known exactly (st_blocks,
 * SEEK_DATA, SEEK_HOLE). The file system is too small for all files at their largest: writes,
 * fallocate and stores through mappings also meet its end. When all is done, nothing is left
 * allocated.
 */
#include "test/random/lib/random.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 8
#define NEVER_MAPPED 4 /* the first ones */
#define PAGES 64UL
#define MAX_SIZE (PAGES * PAGE)
#define FS_SIZE "1500k"
#define MAX_PROCESSES 64
#define CLAIM 32 /* operations that a process claims at a time */

/* What backs a page. MAYBE: a load through a mapping may have allocated it. ALLOCATED: by fallocate
 * and not written, which SEEK_DATA may take for either. */
enum backing { HOLE, MAYBE, ALLOCATED, DATA };

struct model {
	pthread_mutex_t lock;
	size_t size;
	unsigned char backing[PAGES];
	unsigned char data[MAX_SIZE]; /* zero from size on */
};

struct shared {
	_Atomic uint64_t claimed;
	uint64_t ops;
	struct model file[FILES];
};

struct open_file {
	int fd;
	unsigned char *map; /* shared, of MAX_SIZE; NULL: never mapped */
};

static struct shared *shared;
static struct open_file files[FILES];
static char dir[256];
static bool own_mount; /* else the file system is not full and others allocate there */
static struct random_stream rs;
static unsigned char buffer[MAX_SIZE];
static sigjmp_buf fault_return;
static unsigned char *volatile fault_address;

/* ---- model ---- */

static size_t page_of(size_t offset)
{
	return offset / PAGE;
}

static size_t page_end(size_t offset)
{
	return (offset + PAGE - 1) / PAGE;
}

static void set_backing(struct model *m, size_t off, size_t len, enum backing b)
{
	if (len)
		memset(m->backing + page_of(off), b, page_end(off + len) - page_of(off));
}

static void model_written(struct model *m, size_t off, const unsigned char *from, size_t len)
{
	if (!len)
		return;
	memcpy(m->data + off, from, len);
	set_backing(m, off, len, DATA);
	if (off + len > m->size)
		m->size = off + len;
}

static void model_truncated(struct model *m, size_t size)
{
	size_t first = page_end(size);

	if (size < m->size)
		memset(m->data + size, 0, m->size - size);
	if (size <= m->size)
		memset(m->backing + first, HOLE, PAGES - first);
	m->size = size;
}

static void model_punched(struct model *m, size_t off, size_t len)
{
	size_t first = page_end(off), last = page_of(off + len);

	memset(m->data + off, 0, len);
	if (first < last)
		memset(m->backing + first, HOLE, last - first);
}

static void model_allocated(struct model *m, size_t off, size_t len, bool keep_size)
{
	for (size_t i = page_of(off); i < page_end(off + len); i++)
		if (m->backing[i] < ALLOCATED)
			m->backing[i] = ALLOCATED;
	if (!keep_size && off + len > m->size)
		m->size = off + len;
}

static void compare(const unsigned char *got, const struct model *m, size_t off, size_t len,
		    const char *by)
{
	if (!memcmp(got, m->data + off, len))
		return;
	for (size_t i = 0; i < len; i++)
		if (got[i] != m->data[off + i])
			random_fail(&rs, "%s, %zu bytes at %#zx: byte %#zx is %#x, not %#x", by,
				    len, off, off + i, got[i], m->data[off + i]);
}

/* ---- operations; the file is locked ---- */

static void fill(unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t word = random_below(&rs, UINT64_MAX);

		memcpy(p + i, &word, n - i < 8 ? n - i : 8);
	}
}

static void pick_range(size_t *off, size_t *len)
{
	*off = random_below(&rs, MAX_SIZE);
	*len = 1 + random_below(&rs, random_below(&rs, 4) ? 3000 : 50000);
	if (!random_below(&rs, 4))
		*off &= ~(PAGE - 1);
	if (!random_below(&rs, 4))
		*len = (*len + PAGE - 1) & ~(PAGE - 1);
	if (*len > MAX_SIZE - *off)
		*len = MAX_SIZE - *off;
}

/* Did the file system's end allow for a result below `len`? */
static size_t done_of(ssize_t n, size_t len)
{
	if (n == (ssize_t)len)
		return len;
	if (n < 0)
		EXPECT_EQ(&rs, errno, ENOSPC);
	if (!own_mount || n > (ssize_t)len)
		random_fail(&rs, "result %zd, not %zu", n, len);
	return n < 0 ? 0 : (size_t)n;
}

static void op_write(const struct open_file *f, struct model *m)
{
	size_t off, len;

	rs.doing = "write";
	pick_range(&off, &len);
	fill(buffer, len);
	model_written(m, off, buffer, done_of(pwrite(f->fd, buffer, len, (off_t)off), len));
}

static void op_write_pieces(const struct open_file *f, struct model *m)
{
	struct iovec iov[3];
	size_t off, len;

	rs.doing = "pwritev";
	pick_range(&off, &len);
	fill(buffer, len);
	iov[0] = (struct iovec){ buffer, len / 3 };
	iov[1] = (struct iovec){ buffer + len / 3, 0 };
	iov[2] = (struct iovec){ buffer + len / 3, len - len / 3 };
	model_written(m, off, buffer, done_of(pwritev(f->fd, iov, 3, (off_t)off), len));
}

static void op_append(const struct open_file *f, struct model *m)
{
	size_t off, len;

	rs.doing = "append";
	pick_range(&off, &len);
	if (len > MAX_SIZE - m->size)
		len = MAX_SIZE - m->size;
	fill(buffer, len);
	EXPECT_EQ(&rs, lseek(f->fd, 0, SEEK_END), m->size);
	model_written(m, m->size, buffer, done_of(write(f->fd, buffer, len), len));
}

static void check_bytes(const struct open_file *f, struct model *m, size_t off, size_t len)
{
	size_t there = off < m->size ? m->size - off : 0;

	if (there > len)
		there = len;
	EXPECT_EQ(&rs, pread(f->fd, buffer, len, (off_t)off), there);
	compare(buffer, m, off, there, "read");
}

static void op_read(const struct open_file *f, struct model *m)
{
	size_t off, len;

	rs.doing = "read";
	pick_range(&off, &len);
	check_bytes(f, m, off, len);
}

static void op_truncate(const struct open_file *f, struct model *m)
{
	size_t off, len;

	rs.doing = "truncate";
	pick_range(&off, &len);
	if (!random_below(&rs, 8))
		off = 0;
	EXPECT_EQ(&rs, ftruncate(f->fd, (off_t)off), 0);
	model_truncated(m, off);
}

static void op_open_truncate(struct model *m)
{
	char name[300];
	int fd;

	rs.doing = "O_TRUNC";
	snprintf(name, sizeof(name), "%s/%zu", dir, (size_t)(m - shared->file));
	fd = open(name, O_RDWR | O_TRUNC | O_CLOEXEC);
	EXPECT(&rs, fd >= 0);
	EXPECT_EQ(&rs, close(fd), 0);
	model_truncated(m, 0);
}

static void op_fallocate(const struct open_file *f, struct model *m)
{
	bool keep = random_below(&rs, 2);
	size_t off, len;

	rs.doing = keep ? "fallocate KEEP_SIZE" : "fallocate";
	pick_range(&off, &len);
	if (fallocate(f->fd, keep ? FALLOC_FL_KEEP_SIZE : 0, (off_t)off, (off_t)len) == 0) {
		model_allocated(m, off, len, keep);
	} else {
		EXPECT_EQ(&rs, errno, ENOSPC);
		EXPECT(&rs, own_mount);
	}
}

static void op_punch(const struct open_file *f, struct model *m)
{
	size_t off, len;

	rs.doing = "punch";
	pick_range(&off, &len);
	EXPECT_EQ(&rs,
		  fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
			    (off_t)len),
		  0);
	model_punched(m, off, len);
}

static void check_data_at(const struct open_file *f, struct model *m, size_t off)
{
	off_t at = lseek(f->fd, (off_t)off, SEEK_DATA);
	size_t until = at < 0 ? page_end(m->size) : page_of((size_t)at);
	bool exact = !f->map;

	if (at < 0)
		EXPECT_EQ(&rs, errno, ENXIO);
	else
		EXPECT(&rs, at == (off_t)off || (at % (off_t)PAGE == 0 && at > (off_t)off));
	EXPECT(&rs, at < (off_t)m->size);
	for (size_t i = page_of(off); off < m->size && i < until; i++)
		if (m->backing[i] == DATA)
			random_fail(&rs, "SEEK_DATA from %#zx gives %#llx: page %zu has data", off,
				    (unsigned long long)at, i);
	if (at >= 0 && exact && m->backing[page_of((size_t)at)] == HOLE)
		random_fail(&rs, "SEEK_DATA from %#zx gives %#llx: a hole", off,
			    (unsigned long long)at);
}

static void check_hole_at(const struct open_file *f, struct model *m, size_t off)
{
	off_t at = lseek(f->fd, (off_t)off, SEEK_HOLE);
	bool exact = !f->map;

	if (off >= m->size) {
		EXPECT(&rs, at < 0 && errno == ENXIO);
		return;
	}
	EXPECT(&rs, at >= (off_t)off && at <= (off_t)m->size);
	for (size_t i = page_of(off); exact && i < page_of((size_t)at); i++)
		if (m->backing[i] == HOLE)
			random_fail(&rs, "SEEK_HOLE from %#zx gives %#llx: page %zu is a hole", off,
				    (unsigned long long)at, i);
	if (at < (off_t)m->size && m->backing[page_of((size_t)at)] == DATA)
		random_fail(&rs, "SEEK_HOLE from %#zx gives %#llx: data", off,
			    (unsigned long long)at);
}

static void op_seek(const struct open_file *f, struct model *m)
{
	size_t off, len;

	rs.doing = "seek";
	pick_range(&off, &len);
	check_data_at(f, m, off);
	check_hole_at(f, m, off);
}

static void op_stat(const struct open_file *f, struct model *m)
{
	size_t least = 0, most = 0;
	struct stat st;

	rs.doing = "stat";
	EXPECT_EQ(&rs, fstat(f->fd, &st), 0);
	EXPECT_EQ(&rs, st.st_size, m->size);
	for (size_t i = 0; i < PAGES; i++) {
		least += m->backing[i] >= ALLOCATED ? PAGE / 512 : 0;
		most += f->map || m->backing[i] != HOLE ? PAGE / 512 : 0;
	}
	if ((size_t)st.st_blocks < least || (size_t)st.st_blocks > most)
		random_fail(&rs, "%llu blocks, expected %zu to %zu",
			    (unsigned long long)st.st_blocks, least, most);
}

/* ---- mappings ---- */

static void on_fault(int sig, siginfo_t *si, void *context)
{
	fault_address = si->si_addr;
	siglongjmp(fault_return, sig);
}

/* Copies within one page of a mapping; 0 or the signal that it raised. */
static int copy_page(unsigned char *to, const unsigned char *from, size_t len)
{
	int sig = sigsetjmp(fault_return, 0);

	if (!sig)
		memcpy(to, from, len);
	return sig;
}

/* At the end of the file system a page that has no backing yet raises SIGBUS. */
static bool bus_expected(const struct model *m, size_t off, int sig)
{
	size_t at = (size_t)((uintptr_t)fault_address & ~(PAGE - 1)), page = page_of(off);

	EXPECT_EQ(&rs, sig, SIGBUS);
	EXPECT(&rs, at == (size_t)((uintptr_t)files[m - shared->file].map + page * PAGE));
	if (off >= m->size && page >= page_end(m->size))
		return true;
	return own_mount && m->backing[page] < ALLOCATED;
}

/* Loads or stores [off, off + len) through the mapping, a page at a time. */
static void through_mapping(const struct open_file *f, struct model *m, size_t off, size_t len,
			    bool store)
{
	while (len) {
		size_t n = PAGE - off % PAGE, page = page_of(off);
		int sig;

		if (n > len)
			n = len;
		if (store)
			sig = copy_page(f->map + off, buffer + off, n);
		else
			sig = copy_page(buffer + off, f->map + off, n);
		if (sig)
			EXPECT(&rs, bus_expected(m, off, sig));
		else if (page >= page_end(m->size))
			random_fail(&rs, "access at %#zx, size %#zx: no SIGBUS", off, m->size);
		else if (store)
			model_written(m, off, buffer + off, n);
		else
			compare(buffer + off, m, off, n, "load");
		if (!sig && m->backing[page] == HOLE)
			m->backing[page] = MAYBE;
		off += n;
		len -= n;
	}
}

static void op_mapped(const struct open_file *f, struct model *m)
{
	bool store = random_below(&rs, 2);
	size_t off, len;

	rs.doing = store ? "store" : "load";
	pick_range(&off, &len);
	/* In the last page, behind the end, a store's effect is the kernel's choice. */
	if (off < m->size && len > m->size - off)
		len = m->size - off;
	if (off >= m->size && off < page_end(m->size) * PAGE)
		return;
	if (len > 8 * PAGE)
		len = 8 * PAGE;
	if (store)
		fill(buffer + off, len);
	through_mapping(f, m, off, len, store);
}

/* A private mapping shows the file, and what is stored there does not reach it. */
static void op_private(const struct open_file *f, struct model *m)
{
	size_t off, len, pages = page_end(m->size);
	unsigned char *map;

	rs.doing = "private mapping";
	if (!pages)
		return;
	pick_range(&off, &len);
	off %= m->size;
	if (len > m->size - off)
		len = m->size - off;
	map = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, f->fd, 0);
	EXPECT(&rs, map != MAP_FAILED);
	for (size_t at = off, n; at < off + len; at += n) {
		n = PAGE - at % PAGE;
		if (n > off + len - at)
			n = off + len - at;
		if (m->backing[page_of(at)] == HOLE)
			m->backing[page_of(at)] = MAYBE;
		if (copy_page(buffer, map + at, n)) {
			EXPECT(&rs, own_mount && m->backing[page_of(at)] < ALLOCATED);
			continue;
		}
		compare(buffer, m, at, n, "private load");
		map[at] = (unsigned char)~m->data[at];
		EXPECT_EQ(&rs, map[at], (unsigned char)~m->data[at]);
	}
	check_bytes(f, m, off, len);
	EXPECT_EQ(&rs, munmap(map, pages * PAGE), 0);
}

static void map_file(struct open_file *f)
{
	f->map = mmap(NULL, MAX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	EXPECT(&rs, f->map != MAP_FAILED);
}

static void op_map_again(struct open_file *f)
{
	unsigned char *old = f->map;

	rs.doing = "mmap";
	map_file(f);
	EXPECT_EQ(&rs, munmap(old, MAX_SIZE), 0);
}

/* ---- two files ---- */

static void op_copy(const struct open_file *from, struct model *mf, const struct open_file *to,
		    struct model *mt)
{
	size_t off, len, dest = random_below(&rs, MAX_SIZE), there;
	loff_t in, out;
	ssize_t n;

	rs.doing = from == to ? "copy_file_range within a file" : "copy_file_range";
	pick_range(&off, &len);
	if (len > MAX_SIZE - dest)
		len = MAX_SIZE - dest;
	there = off < mf->size ? mf->size - off : 0;
	if (there > len)
		there = len;
	in = (loff_t)off;
	out = (loff_t)dest;
	n = copy_file_range(from->fd, &in, to->fd, &out, len, 0);
	if (from == to && off < dest + there && dest < off + there) {
		EXPECT(&rs, n < 0 && errno == EINVAL);
		return;
	}
	there = done_of(n, there);
	EXPECT(&rs, in == (loff_t)(off + there) && out == (loff_t)(dest + there));
	memmove(buffer, mf->data + off, there);
	model_written(mt, dest, buffer, there);
}

/* ---- the file system as a whole ---- */

static uint64_t used_blocks(void)
{
	struct statfs fs;

	EXPECT_EQ(&rs, statfs(dir, &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * ((uint64_t)fs.f_bsize / 512);
}

static void op_check_space(void)
{
	uint64_t sum = 0;
	struct stat st;

	rs.doing = "statfs";
	for (size_t i = 0; i < FILES; i++)
		pthread_mutex_lock(&shared->file[i].lock);
	for (size_t i = 0; i < FILES; i++) {
		EXPECT_EQ(&rs, fstat(files[i].fd, &st), 0);
		sum += (uint64_t)st.st_blocks;
	}
	if (own_mount)
		EXPECT_EQ(&rs, used_blocks(), sum);
	for (size_t i = 0; i < FILES; i++)
		pthread_mutex_unlock(&shared->file[i].lock);
}

static void one_file(struct open_file *f, struct model *m)
{
	switch (random_below(&rs, f->map ? 26 : 18)) {
	case 0:
	case 1:
	case 2: op_write(f, m); break;
	case 3: op_write_pieces(f, m); break;
	case 4: op_append(f, m); break;
	case 5: op_truncate(f, m); break;
	case 6:
	case 7:
	case 8: op_fallocate(f, m); break;
	case 9:
	case 10: op_punch(f, m); break;
	case 11: op_stat(f, m); break;
	case 12: op_seek(f, m); break;
	case 13: random_below(&rs, 8) ? op_seek(f, m) : op_open_truncate(m); break;
	case 14:
	case 15:
	case 16:
	case 17: op_read(f, m); break;
	case 18: op_private(f, m); break;
	case 19: random_below(&rs, 4) ? op_mapped(f, m) : op_map_again(f); break;
	default: op_mapped(f, m);
	}
}

static void one_operation(void)
{
	size_t a = random_below(&rs, FILES), b = random_below(&rs, FILES);
	bool copy = !random_below(&rs, 16);

	if (!random_below(&rs, 1000)) {
		op_check_space();
		return;
	}
	if (!copy)
		b = a;
	pthread_mutex_lock(&shared->file[a < b ? a : b].lock);
	if (a != b)
		pthread_mutex_lock(&shared->file[a < b ? b : a].lock);
	if (copy)
		op_copy(&files[a], &shared->file[a], &files[b], &shared->file[b]);
	else
		one_file(&files[a], &shared->file[a]);
	if (a != b)
		pthread_mutex_unlock(&shared->file[b].lock);
	pthread_mutex_unlock(&shared->file[a].lock);
}

/* ---- processes ---- */

static void open_files(int flags)
{
	char name[300];

	for (size_t i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "%s/%zu", dir, i);
		files[i].fd = open(name, O_RDWR | O_CLOEXEC | flags, 0600);
		EXPECT(&rs, files[i].fd >= 0);
		if (i >= NEVER_MAPPED)
			map_file(&files[i]);
	}
}

static void play(uint64_t seed, unsigned process)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	random_seed(&rs, seed, process);
	open_files(0);
	while (!*random_stop) {
		uint64_t claimed = shared->claimed += CLAIM;

		if (claimed > shared->ops + CLAIM - 1)
			break;
		for (unsigned i = 0; i < CLAIM; i++, rs.op++)
			one_operation();
	}
	_exit(0);
}

/* A small file system of our own, else a folder in /dev/shm. */
static void make_dir(const char *given)
{
	snprintf(dir, sizeof(dir), "%s/random-files.XXXXXX", given);
	if (!mkdtemp(dir)) {
		perror(dir);
		exit(2);
	}
	own_mount = unshare(CLONE_NEWNS) == 0 &&
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		    mount("random", dir, "tmpfs", 0, "size=" FS_SIZE) == 0;
}

static void remove_files(void)
{
	char name[300];
	struct stat st;

	rs.doing = "removal";
	for (size_t i = 0; i < FILES; i++) {
		check_bytes(&files[i], &shared->file[i], 0, MAX_SIZE);
		op_stat(&files[i], &shared->file[i]);
		if (i % 2) {
			EXPECT_EQ(&rs, ftruncate(files[i].fd, 0), 0);
			EXPECT_EQ(&rs, fstat(files[i].fd, &st), 0);
			EXPECT_EQ(&rs, st.st_blocks, 0);
		}
		snprintf(name, sizeof(name), "%s/%zu", dir, i);
		EXPECT_EQ(&rs, unlink(name), 0);
		if (files[i].map)
			EXPECT_EQ(&rs, munmap(files[i].map, MAX_SIZE), 0);
		EXPECT_EQ(&rs, close(files[i].fd), 0);
	}
	if (own_mount) {
		EXPECT_EQ(&rs, used_blocks(), 0);
		EXPECT_EQ(&rs, umount(dir), 0);
	}
	EXPECT_EQ(&rs, rmdir(dir), 0);
}

static void set_up_model(uint64_t ops)
{
	pthread_mutexattr_t attr;

	shared = random_shared(sizeof(*shared));
	memset(shared, 0, sizeof(*shared)); /* all of it is there: Shmem below compares */
	memset(shared->file, 1, sizeof(shared->file));
	memset(shared->file, 0, sizeof(shared->file));
	shared->ops = ops;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (size_t i = 0; i < FILES; i++)
		pthread_mutex_init(&shared->file[i].lock, &attr);
}

int main(int argc, char **argv)
{
	struct random_options o = { .seed = 1, .ops = 40000, .processes = 4, .dir = "/dev/shm" };
	pid_t pids[MAX_PROCESSES];
	uint64_t shmem;
	int status, bad = 0;

	random_options(argc, argv, "files", &o);
	if (o.processes < 1 || o.processes > MAX_PROCESSES)
		o.processes = 4;
	random_seed(&rs, o.seed, 0);
	set_up_model(o.ops);
	make_dir(o.dir);
	shmem = random_meminfo("Shmem");
	open_files(O_CREAT | O_EXCL);
	for (unsigned i = 1; i <= o.processes; i++)
		if ((pids[i - 1] = fork()) == 0)
			play(o.seed + i * 0x9e3779b97f4a7c15, i);
	while (wait(&status) > 0) {
		/* The others may wait for a lock of the one that failed. */
		for (unsigned i = 0; status && i < o.processes; i++)
			kill(pids[i], SIGKILL);
		bad |= bad ? 0 : status;
	}
	if (bad) {
		printf("not ok files: a process ended with status %#x, seed %llu\n", bad,
		       (unsigned long long)o.seed);
		return 1;
	}
	remove_files();
	if (random_in_sandbox)
		EXPECT_EQ(&rs, random_meminfo("Shmem"), shmem);
	printf("ok files\n");
	return 0;
}
