/* System V shared memory, process_vm_readv and process_vm_writev, sealed memfds. */
#include "conf.h"
#include <linux/memfd.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/uio.h>

#define PG 4096UL
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#define MFD_EXEC 0x0010U
#endif
#define SEAL_EXEC 0x0020

static int segment(size_t size)
{
	return OK(shmget(IPC_PRIVATE, size, IPC_CREAT | 0600));
}

CASE(shm_shared_with_child)
{
	int id = segment(3 * PG);
	char *p = OK(shmat(id, NULL, 0));
	struct shmid_ds ds;

	CHECK_EQ(p[0], 0);
	if (!fork()) {
		strcpy(p + PG, "from the child");
		_exit(0);
	}
	wait(NULL);
	CHECK_STR(p + PG, "from the child");
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_segsz, 3 * PG);
	CHECK_EQ(ds.shm_nattch, 1);
	CHECK_EQ(ds.shm_cpid, getpid());
	OK(shmdt(p));
	OK(shmctl(id, IPC_RMID, NULL));
}
CASE(shm_counts_attaches)
{
	int id = segment(PG);
	char *a = OK(shmat(id, NULL, 0)), *b = OK(shmat(id, NULL, SHM_RDONLY));
	struct shmid_ds ds;
	pid_t pid;
	int go[2];
	char c;

	a[0] = 'x';
	CHECK_EQ(b[0], 'x');
	OK(pipe(go));
	pid = fork();
	if (!pid) {
		close(go[1]);
		_exit(read(go[0], &c, 1) == 0 ? 0 : 1);
	}
	close(go[0]);
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_nattch, 4);
	close(go[1]);
	conf_join(pid);
	OK(shmdt(b));
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_nattch, 1);
	OK(shmdt(a));
	OK(shmctl(id, IPC_RMID, NULL));
}
static long attaches(int id)
{
	struct shmid_ds ds;

	OK(shmctl(id, IPC_STAT, &ds));
	return (long)ds.shm_nattch;
}
/* What counts is vmas, and those of a segment are not joined again. */
CASE(shm_counts_vmas)
{
	char *to = OK(mmap(NULL, 2 * PG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	int id = segment(8 * PG);
	char *p = OK(shmat(id, NULL, 0));
	pid_t pid;

	CHECK_EQ(attaches(id), 1);
	OK(munmap(p + 2 * PG, PG));
	CHECK_EQ(attaches(id), 2);
	OK(mprotect(p + 4 * PG, PG, PROT_READ));
	CHECK_EQ(attaches(id), 4);
	OK(mprotect(p + 4 * PG, PG, PROT_READ | PROT_WRITE));
	CHECK_EQ(attaches(id), 4);
	OK(madvise(p + 6 * PG, PG, MADV_DONTFORK));
	CHECK_EQ(attaches(id), 6);
	pid = OK(fork());
	if (!pid) {
		CHECK_EQ(attaches(id), 11);
		_exit(0);
	}
	conf_join(pid);
	OK(madvise(p + 6 * PG, PG, MADV_DOFORK));
	CHECK_EQ(attaches(id), 6);
	OK(mremap(p + 7 * PG, PG, PG, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	CHECK_EQ(attaches(id), 6);
	OK(mremap(to, 0, PG, MREMAP_MAYMOVE | MREMAP_FIXED, to + PG));
	CHECK_EQ(attaches(id), 7);
	OK(shmctl(id, IPC_RMID, NULL));
	OK(shmdt(p));
	CHECK_EQ(attaches(id), 2);
	OK(munmap(to, PG));
	CHECK_EQ(attaches(id), 1);
	OK(munmap(to + PG, PG));
	CHECK_ERR(shmctl(id, IPC_STAT, &(struct shmid_ds){ 0 }), EINVAL);
}
CASE(shm_lives_until_last_detach)
{
	int id = segment(PG);
	char *p = OK(shmat(id, NULL, 0));
	struct shmid_ds ds;

	OK(shmctl(id, IPC_RMID, NULL));
	p[0] = 1;
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_perm.mode & 01000, 01000);
	OK(shmdt(p));
	CHECK_ERR(shmctl(id, IPC_STAT, &ds), EINVAL);
}
CASE(shm_keys)
{
	key_t key = 0x4d530000 | (getpid() & 0xffff);
	int id;

	CHECK_ERR(shmget(key, PG, 0), ENOENT);
	id = OK(shmget(key, PG, IPC_CREAT | 0600));
	CHECK_EQ(shmget(key, PG, IPC_CREAT | 0600), id);
	CHECK_EQ(shmget(key, 0, 0), id);
	CHECK_ERR(shmget(key, PG, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
	CHECK_ERR(shmget(key, 2 * PG, 0), EINVAL);
	OK(shmctl(id, IPC_RMID, NULL));
	CHECK_ERR(shmget(key, PG, 0), ENOENT);
	CHECK_ERR(shmget(key, 0, IPC_CREAT | 0600), EINVAL);
}
CASE(shm_errors)
{
	int id = segment(PG);
	char *p;

	CHECK_ERR((long)shmat(-1, NULL, 0), EINVAL);
	CHECK_ERR((long)shmat(id, (void *)1, 0), EINVAL);
	CHECK_ERR(shmdt((void *)PG), EINVAL);
	CHECK_ERR(shmctl(id, 9999, NULL), EINVAL);
	CHECK_ERR(shmctl(id, IPC_STAT, (void *)1), EFAULT);
	p = OK(shmat(id, NULL, SHM_RDONLY));
	CHECK_ERR(mprotect(p, PG, PROT_READ | PROT_WRITE), EACCES);
	CHECK_ERR(shmdt(p + 1), EINVAL);
	OK(shmdt(p));
	CHECK_ERR(shmdt(p), EINVAL);
	OK(shmctl(id, IPC_RMID, NULL));
}
/* What /proc/sysvipc/shm says of a segment: its size and what of it is resident. */
static bool listed(int id, unsigned long *ret_size, unsigned long *ret_resident, unsigned *ret_mode)
{
	FILE *f = fopen("/proc/sysvipc/shm", "re");
	bool found = false;
	char line[300];
	int got;

	CHECK(f);
	CHECK(fgets(line, sizeof(line), f) && strstr(line, " shmid "));
	while (!found && fgets(line, sizeof(line), f)) {
		CHECK_EQ(sscanf(line, "%*d %d %o %lu %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %lu",
				&got, ret_mode, ret_size, ret_resident),
			 4);
		found = got == id;
	}
	fclose(f);
	return found;
}
CASE(shm_is_listed)
{
	int id = OK(shmget(IPC_PRIVATE, 3 * 4096 - 5, IPC_CREAT | 0640));
	unsigned long size, resident;
	unsigned mode;
	char *p = OK(shmat(id, NULL, 0));

	CHECK(listed(id, &size, &resident, &mode));
	CHECK_EQ(size, 3 * 4096 - 5);
	CHECK_EQ(resident, 0);
	CHECK_EQ(mode, 0640);
	p[4096] = 1;
	CHECK(listed(id, &size, &resident, &mode));
	CHECK_EQ(resident, 4096);
	OK(shmctl(id, IPC_RMID, NULL));
	CHECK(listed(id, &size, &resident, &mode));
	CHECK_EQ(mode, 01640);
	OK(shmdt(p));
	CHECK(!listed(id, &size, &resident, &mode));
}
CASE(shm_lock_shows)
{
	int id = OK(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600));
	struct shmid_ds ds;

	OK(shmctl(id, SHM_LOCK, NULL));
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_perm.mode, 0600 | SHM_LOCKED);
	OK(shmctl(id, SHM_UNLOCK, NULL));
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_perm.mode, 0600);
	OK(shmctl(id, IPC_RMID, NULL));
}
CASE(shm_detach_after_partial_unmap)
{
	int id = segment(4 * PG);
	char *p = OK(shmat(id, NULL, 0));

	OK(munmap(p + PG, PG));
	OK(shmdt(p));
	CHECK_ERR(msync(p, PG, MS_ASYNC), ENOMEM);
	CHECK_ERR(msync(p + 2 * PG, PG, MS_ASYNC), ENOMEM);
	OK(shmctl(id, IPC_RMID, NULL));
}
CASE(shm_detach_of_what_is_left)
{
	int id = segment(3 * PG), other = segment(PG);
	char *p = OK(shmat(id, NULL, 0));
	struct shmid_ds ds;

	/* Without its beginning. */
	OK(munmap(p, PG));
	CHECK_ERR(shmdt(p + PG), EINVAL);
	OK(shmdt(p));
	CHECK_ERR(msync(p + 2 * PG, PG, MS_ASYNC), ENOMEM);
	/* With others in its middle: these stay. */
	p = OK(shmat(id, NULL, 0));
	OK(mmap(p + PG, PG, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	OK(shmat(other, p, SHM_REMAP));
	OK(shmdt(p));
	CHECK_ERR(msync(p, PG, MS_ASYNC), ENOMEM);
	OK(msync(p + PG, PG, MS_ASYNC));
	OK(shmctl(other, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_nattch, 0);
	OK(shmdt(p));
	CHECK_ERR(msync(p + 2 * PG, PG, MS_ASYNC), ENOMEM);
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_nattch, 0);
	CHECK_ERR(shmdt(p), EINVAL);
	OK(munmap(p, 3 * PG));
	OK(shmctl(id, IPC_RMID, NULL));
	OK(shmctl(other, IPC_RMID, NULL));
}
CASE(shm_detach_spares_files)
{
	int fd;
	char *p;

	if (geteuid() != 0)
		SKIP("needs root for chroot");
	OK(chroot(conf_tmpdir()));
	fd = OK(open("/SYSV00000000", O_RDWR | O_CREAT, 0600));
	OK(ftruncate(fd, PG));
	p = OK(mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	CHECK_ERR(shmdt(p), EINVAL);
	OK(msync(p, PG, MS_SYNC));
	OK(unlink("/SYSV00000000"));
}
CASE(shm_last_process)
{
	int id = segment(PG);
	char *p = OK(shmat(id, NULL, 0));
	struct shmid_ds ds;
	pid_t pid;
	int go[2];
	char c;

	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_lpid, getpid());
	CHECK(ds.shm_atime && !ds.shm_dtime);
	OK(pipe(go));
	pid = OK(fork());
	if (!pid)
		_exit(read(go[0], &c, 1) == 1 ? 0 : 1);
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_lpid, getpid());
	CHECK_EQ(write(go[1], "x", 1), 1);
	conf_join(pid);
	/* Its exit is a detach. */
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_lpid, pid);
	CHECK(ds.shm_dtime);
	OK(munmap(p, PG));
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_lpid, getpid());
	OK(shmctl(id, IPC_RMID, NULL));
}
CASE(shm_get_arguments)
{
	key_t key = 0x4d540000 | (getpid() & 0xffff);
	const int huge = SHM_HUGETLB | 0600, odd = 5 << 26 /* pages of 32 bytes */;
	unsigned long size = conf_bytes(conf_row("/proc/meminfo", "MemTotal:")) / 3 * 2;
	int id;

	CHECK_ERR(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
	CHECK_ERR(shmget(IPC_PRIVATE, -1UL, 0600), EINVAL);
	CHECK_ERR(shmget(IPC_PRIVATE, 1UL << 63, 0600), EINVAL);
	CHECK_ERR(shmget(IPC_PRIVATE, INT64_MAX, 0600), ENOMEM);
	CHECK_ERR(shmget(key, PG, huge), ENOENT);
	CHECK_ERR(shmget(key, PG, huge | IPC_CREAT | odd), EINVAL);
	/* What exists needs no room again, nor huge pages. */
	id = OK(shmget(key, size, IPC_CREAT | SHM_NORESERVE | 0600));
	CHECK_EQ(shmget(key, size, IPC_CREAT | 0600), id);
	CHECK_EQ(shmget(key, PG, IPC_CREAT | odd | huge), id);
	CHECK_ERR(shmget(key, -1UL, IPC_CREAT | IPC_EXCL), EEXIST);
	CHECK_ERR(shmget(key, -1UL, IPC_CREAT), EINVAL);
	OK(shmctl(id, IPC_RMID, NULL));
}
CASE(shm_attach_arguments)
{
	int id = segment(3 * PG);
	char *p = OK(shmat(id, NULL, 0));

	CHECK_ERR((long)shmat(id, NULL, SHM_REMAP), EINVAL);
	CHECK_ERR((long)shmat(id, (void *)1, SHM_REMAP | SHM_RND), EINVAL);
	CHECK_ERR((long)shmat(id, p, 0), EINVAL);
	CHECK_ERR((long)shmat(id, p - 2 * PG, 0), EINVAL);
	CHECK_EQ((long)shmat(id, p + 1, SHM_RND | SHM_REMAP), (long)p);
	/* Over the end of all addresses, and of the user's. */
	CHECK_ERR((long)shmat(id, (void *)-PG, 0), EINVAL);
	CHECK_ERR((long)shmat(id, (void *)-PG, SHM_REMAP), ENOMEM);
	CHECK_ERR((long)shmat(id, (void *)0x7ffffffff000UL, 0), ENOMEM);
	OK(shmdt(p));
	OK(shmctl(id, IPC_RMID, NULL));
}
CASE(shm_control_arguments)
{
	int gone = segment(PG), id;
	struct shmid_ds ds;

	/* The next one in that slot has another sequence number. */
	OK(shmctl(gone, IPC_RMID, NULL));
	id = segment(PG);
	CHECK(id != gone);
	CHECK_EQ(shmctl(id & 0x7fff, SHM_STAT, &ds), id);
	CHECK_EQ(shmctl(id, SHM_STAT, &ds), id);
	CHECK_ERR(shmctl(0x7fff, SHM_STAT, &ds), EINVAL);
	CHECK_ERR(shmctl(-1, SHM_STAT, &ds), EINVAL);
	CHECK_ERR(shmctl(-1, IPC_INFO, &ds), EINVAL);
	CHECK_ERR(shmctl(-1, SHM_INFO, &ds), EINVAL);
	CHECK_ERR(shmctl(-1, IPC_SET, (void *)1), EINVAL);
	CHECK_ERR(shmctl(gone, IPC_SET, (void *)1), EFAULT);
	OK(shmctl(id, IPC_STAT, &ds));
	ds.shm_perm.uid = (uid_t)-1;
	CHECK_ERR(shmctl(id, IPC_SET, &ds), EINVAL);
	ds.shm_perm.uid = geteuid();
	ds.shm_perm.mode = 07640;
	OK(shmctl(id, IPC_SET, &ds));
	OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_perm.mode, 0640);
	OK(shmctl(id, IPC_RMID, NULL));
}
static void become(uid_t uid)
{
	OK(setresgid(uid, uid, uid));
	OK(setresuid(uid, uid, uid));
}
static void attach_as_other(void *arg)
{
	int id = *(int *)arg;

	become(65534);
	CHECK((long)shmat(id, NULL, 0) != -1);
	CHECK_ERR((long)shmat(id, NULL, SHM_EXEC), EACCES);
	CHECK_ERR((long)shmat(id, NULL, SHM_EXEC | SHM_RDONLY), EACCES);
	CHECK_ERR(shmctl(id, SHM_LOCK, NULL), EPERM);
	CHECK_ERR(shmctl(id, IPC_RMID, NULL), EPERM);
}
static void lock_as_owner(void *arg)
{
	struct rlimit limit = { 2 * PG, 2 * PG };
	struct shmid_ds ds;
	int id, more;

	become(65533);
	id = OK(shmget(IPC_PRIVATE, 2 * PG, 0));
	more = OK(shmget(IPC_PRIVATE, 1, 0600));
	CHECK_ERR((long)shmat(id, NULL, SHM_RDONLY), EACCES);
	OK(setrlimit(RLIMIT_MEMLOCK, &limit));
	OK(shmctl(id, SHM_LOCK, NULL));
	OK(shmctl(id, SHM_LOCK, NULL));
	CHECK_ERR(shmctl(more, SHM_LOCK, NULL), ENOMEM);
	OK(shmctl(id, SHM_UNLOCK, NULL));
	OK(shmctl(more, SHM_LOCK, NULL));
	OK(shmctl(more, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_perm.mode, 0600 | SHM_LOCKED);
	limit.rlim_cur = 0;
	OK(setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK_ERR(shmctl(id, SHM_LOCK, NULL), EPERM);
	OK(shmctl(more, SHM_UNLOCK, NULL));
	OK(shmctl(more, IPC_RMID, NULL));
	OK(shmctl(id, IPC_RMID, NULL));
}
CASE(shm_of_others)
{
	int id;

	if (geteuid() != 0)
		SKIP("needs root to become another user");
	id = OK(shmget(IPC_PRIVATE, PG, 0666));
	conf_join(conf_fork(attach_as_other, &id));
	conf_join(conf_fork(lock_as_owner, NULL));
	OK(shmctl(id, IPC_RMID, NULL));
}

/* ---- other processes' memory ---- */

static char remote_text[64];

CASE(process_vm_read_and_write)
{
	int ready[2], go[2];
	char buf[64] = "", c;
	struct iovec local = { buf, 6 }, remote = { remote_text, 6 };
	pid_t pid;

	OK(pipe(ready));
	OK(pipe(go));
	pid = OK(fork());
	if (!pid) {
		strcpy(remote_text, "child");
		if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 1)
			_exit(1);
		_exit(strcmp(remote_text, "PARENT") ? 2 : 0);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1);
	CHECK_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), 6);
	CHECK_STR(buf, "child");
	strcpy(buf, "PARENT");
	local.iov_len = remote.iov_len = 7;
	CHECK_EQ(process_vm_writev(pid, &local, 1, &remote, 1, 0), 7);
	CHECK_EQ(write(go[1], "x", 1), 1);
	conf_join(pid);
	CHECK_STR(remote_text, "");
}
CASE(process_vm_partial_and_errors)
{
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char buf[2 * PG];
	struct iovec local = { buf, 2 * PG }, remote = { p, 2 * PG };

	OK(munmap(p + PG, PG));
	memset(p, 'a', PG);
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), PG);
	CHECK_EQ(buf[PG - 1], 'a');
	remote.iov_base = p + PG;
	CHECK_ERR(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), EFAULT);
	CHECK_ERR(process_vm_readv(getpid(), &local, 1, &remote, 1, 1), EINVAL);
	CHECK_ERR(process_vm_readv(0x7ffffff0, &local, 1, &remote, 1, 0), ESRCH);
	CHECK_ERR(process_vm_readv(getpid(), &local, 2000, &remote, 1, 0), EINVAL);
	local.iov_len = 0;
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), 0);
	OK(mprotect(p, PG, PROT_READ));
	local = (struct iovec){ buf, 1 };
	remote = (struct iovec){ p, 1 };
	CHECK_ERR(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), EFAULT);
}
CASE(process_vm_needs_permission)
{
	struct iovec local = { remote_text, 1 }, remote = local;
	pid_t parent = getpid(), pid;

	if (geteuid() != 0)
		SKIP("needs root to become another user");
	pid = OK(fork());
	if (!pid) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(3);
		if (process_vm_readv(parent, &local, 1, &remote, 1, 0) != -1)
			_exit(1);
		_exit(errno == EPERM ? 0 : 2);
	}
	conf_join(pid);
}
CASE(process_vm_without_anything_to_move)
{
	struct iovec local = { remote_text, 0 }, remote = { (void *)1, 0 },
		     some = { remote_text, 1 };
	const struct iovec *bad = (void *)1;
	const pid_t nobody = 0x7ffffff0;

	/* The remote side is not looked at, ... */
	CHECK_EQ(process_vm_readv(nobody, &local, 1, bad, 1, 0), 0);
	CHECK_EQ(process_vm_readv(nobody, NULL, 0, bad, 2000, 0), 0);
	/* ... nor the process. */
	CHECK_EQ(process_vm_readv(nobody, &some, 1, &remote, 1, 0), 0);
	CHECK_EQ(process_vm_readv(nobody, &some, 1, NULL, 0, 0), 0);
	CHECK_ERR(process_vm_readv(nobody, &some, 1, bad, 1, 0), EFAULT);
	local.iov_base = (void *)-PG;
	CHECK_ERR(process_vm_readv(nobody, &local, 1, bad, 1, 0), EFAULT);
}
CASE(process_vm_reads_what_may_be_read)
{
	char *p = mmap(NULL, 3 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char buf[3 * PG];
	struct iovec local = { buf, sizeof(buf) }, remote = { p, 3 * PG };

	memset(p, 'a', 3 * PG);
	OK(mprotect(p + PG, PG, PROT_READ)); /* another vma, and more than one */
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), 3 * PG);
	CHECK_EQ(buf[3 * PG - 1], 'a');
	OK(mprotect(p + PG, PG, PROT_WRITE));
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), PG);
	remote = (struct iovec){ p + PG, 1 };
	CHECK_ERR(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), EFAULT);
	CHECK_EQ(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), 1);
	OK(mprotect(p + PG, PG, PROT_EXEC));
	CHECK_ERR(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), EFAULT);
}

static long advise(int pidfd, void *addr, size_t len, size_t count, int advice)
{
	struct iovec v[2] = { { addr, len }, { addr, len } };

	return syscall(SYS_process_madvise, pidfd, v, count, advice, 0);
}
static void advise_parent(void *arg)
{
	const int *pidfd = arg;

	become(65534);
	CHECK_ERR(advise(*pidfd, remote_text, 0, 1, MADV_COLD), EACCES);
	CHECK_ERR(advise(*pidfd, remote_text, 0, 1, MADV_DONTNEED), EACCES);
}
CASE(process_madvise_arguments)
{
	int self = (int)OK(syscall(SYS_pidfd_open, getpid(), 0));
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK_EQ(advise(self, p, PG, 1, MADV_COLD), PG);
	CHECK_EQ(advise(self, p, PG, 2, MADV_COLD), 2 * PG);
	CHECK_ERR(advise(self, p + 1, PG, 1, MADV_COLD), EINVAL);
	CHECK_ERR(advise(self, p, PG, 1, 999), EINVAL);
	CHECK_ERR(advise(self, (void *)-PG, PG, 1, MADV_COLD), EFAULT);
	CHECK_ERR(advise(self, p, PG, 2000, MADV_COLD), EINVAL);
	CHECK_ERR(advise(-1, p, PG, 1, MADV_COLD), EBADF);
	CHECK_ERR(advise(-1, (void *)-PG, PG, 1, MADV_COLD), EFAULT);
	/* Nothing to advise on: not even the advice is looked at. */
	CHECK_EQ(advise(self, p + 1, 0, 2, 999), 0);
	if (geteuid() == 0)
		conf_join(conf_fork(advise_parent, &self));
}

/* ---- memfd ---- */

CASE(memfd_seals_and_mappings)
{
	int fd = OK(memfd_create("m", MFD_ALLOW_SEALING));
	char *shared, *private;

	OK(ftruncate(fd, PG));
	shared = OK(mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	shared[0] = 's';
	CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	OK(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	shared[1] = 't'; /* the old mapping goes on */
	CHECK_ERR(pwrite(fd, "x", 1, 0), EPERM);
	CHECK_ERR((long)mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EPERM);
	OK(munmap(shared, PG));
	OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	shared = OK(mmap(NULL, PG, PROT_READ, MAP_SHARED, fd, 0));
	CHECK_EQ(shared[1], 't');
	CHECK_ERR(mprotect(shared, PG, PROT_READ | PROT_WRITE), EACCES);
	private = OK(mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
	private[0] = 'p';
	CHECK_EQ(shared[0], 's');
	OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), EPERM);
}
CASE(memfd_flags_and_names)
{
	char name[300], link[64], text[300];
	struct stat st;
	int fd;

	CHECK_ERR(memfd_create("x", 0x100), EINVAL);
	memset(name, 'n', sizeof(name));
	name[250] = 0;
	CHECK_ERR(memfd_create(name, 0), EINVAL);
	name[249] = 0;
	close(OK(memfd_create(name, 0)));
	CHECK_ERR(memfd_create((char *)1, 0), EFAULT);
	fd = OK(memfd_create("a name", MFD_CLOEXEC));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL);
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_mode, S_IFREG | 0777);
	CHECK_EQ(st.st_nlink, 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	memset(text, 0, sizeof(text));
	OK(readlink(link, text, sizeof(text) - 1));
	CHECK_STR(text, "/memfd:a name (deleted)");
	/* A reopened memfd is another open file of the same data. */
	CHECK_EQ(write(fd, "data", 4), 4);
	int again = OK(open(link, O_RDONLY));
	CHECK_EQ(read(again, text, 10), 4);
	CHECK_ERR(write(again, "x", 1), EBADF);
}
CASE(memfd_exec_seal)
{
	int fd = memfd_create("x", MFD_NOEXEC_SEAL);
	struct stat st;

	if (fd < 0 && errno == EINVAL)
		SKIP("kernel without MFD_NOEXEC_SEAL");
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_mode & 07777, 0666);
	CHECK_EQ(fcntl(fd, F_GET_SEALS), SEAL_EXEC);
	CHECK_ERR(fchmod(fd, 0777), EPERM);
	OK(fchmod(fd, 0600));
	CHECK_ERR(memfd_create("x", MFD_NOEXEC_SEAL | MFD_EXEC), EINVAL);
	fd = OK(memfd_create("x", MFD_EXEC | MFD_ALLOW_SEALING));
	OK(fcntl(fd, F_ADD_SEALS, SEAL_EXEC));
	/* An executable that must stay one cannot change any more either. */
	CHECK_EQ(fcntl(fd, F_GET_SEALS),
		 SEAL_EXEC | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}
CASE(memfd_executes)
{
	char link[64], *argv[] = { "true", NULL }, *envp[] = { NULL };
	int fd = OK(memfd_create("prog", 0)), src = OK(open("/bin/true", O_RDONLY));
	char buf[65536];
	ssize_t n;
	pid_t pid;

	while ((n = read(src, buf, sizeof(buf))) > 0)
		CHECK_EQ(write(fd, buf, n), n);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	/* Nobody may hold it open for writing. */
	int ro = OK(open(link, O_RDONLY | O_CLOEXEC));
	close(fd);
	pid = OK(fork());
	if (!pid) {
		fexecve(ro, argv, envp);
		_exit(100 + errno % 28);
	}
	conf_join(pid);
}
CONF_MAIN
