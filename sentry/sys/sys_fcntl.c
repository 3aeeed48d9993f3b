/* fcntl and flock: descriptor flags, file flags, locks, owners, pipe sizes, seals. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"
#include "vfs/locks.h"
#include "vfs/pipe.h"

#include <linux/capability.h>
#include <sys/file.h>

#define SETFL_MASK (O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME)
/* Bits of open(2) that F_GETFL does not show. */
#define GETFL_HIDDEN (O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC)

/* Newer than this system's headers. */
#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY 1027
#endif
#ifndef F_GET_RW_HINT
#define F_GET_RW_HINT 1035
#define F_SET_RW_HINT 1036
#define F_GET_FILE_RW_HINT 1037
#define F_SET_FILE_RW_HINT 1038
#endif
#define RW_HINT_MAX 5

/* ---- record locks ---- */

static int lock_range(struct file *f, const struct flock *fl, s64 *ret_start, s64 *ret_end)
{
	s64 start = 0, end;
	struct kstat st;
	u64 pos;
	int err;

	switch (fl->l_whence) {
	case SEEK_SET: break;
	case SEEK_CUR:
		err = vfs_pos(f, &pos);
		if (err < 0)
			return err;
		start = (s64)pos;
		break;
	case SEEK_END:
		err = sys_file_getattr(f, &st);
		if (err < 0)
			return err;
		start = (s64)st.size;
		break;
	default: return -EINVAL;
	}
	if (fl->l_start > INT64_MAX - start)
		return -EOVERFLOW;
	start += fl->l_start;
	if (start < 0)
		return -EINVAL;
	end = INT64_MAX;
	if (fl->l_len > 0) {
		if (fl->l_len - 1 > INT64_MAX - start)
			return -EOVERFLOW;
		end = start + (fl->l_len - 1);
	} else if (fl->l_len < 0) {
		if (start + fl->l_len < 0)
			return -EINVAL;
		end = start - 1;
		start += fl->l_len;
	}
	*ret_start = start;
	*ret_end = end;
	return 0;
}

struct lock_call {
	struct inode *inode;
	struct lock_owner owner;
	int type;
	s64 start, end;
};

static s64 posix_lock_try(void *arg)
{
	struct lock_call *c = arg;

	return vfs_posix_lock(c->inode, &c->owner, c->type, c->start, c->end);
}

/* Waits for the lock; a POSIX wait that would close a cycle fails. */
static s64 posix_lock_wait(struct task *t, struct lock_call *c, bool ofd)
{
	s64 r = 0;

	if (!ofd)
		r = vfs_posix_wait_begin(c->inode, &c->owner, c->type, c->start, c->end);
	if (r < 0)
		return r;
	r = task_block_on(t, vfs_locks_waitq(c->inode), ~0u, false, NO_DEADLINE, posix_lock_try, c);
	if (!ofd)
		vfs_posix_wait_end(&c->owner);
	return r;
}

static s64 set_lock(struct task *t, int fd, struct file *f, struct lock_call *c, bool wait,
		    bool ofd)
{
	struct file *now;
	s64 r;

	if (c->type == F_RDLCK && !file_readable(f))
		return -EBADF;
	if (c->type == F_WRLCK && !file_writable(f))
		return -EBADF;
	r = posix_lock_try(c);
	if (r == -EAGAIN && wait)
		r = posix_lock_wait(t, c, ofd);
	if (r < 0 || ofd || c->type == F_UNLCK)
		return r;
	/* A close that ran meanwhile has dropped the process's locks, but not this one. */
	now = fd_get(t->fds, fd);
	file_put(now);
	if (now == f)
		return 0;
	vfs_posix_lock(c->inode, &c->owner, F_UNLCK, c->start, c->end);
	return -EBADF;
}

static s64 get_lock(struct task *t, struct lock_call *c, struct flock *fl, uaddr arg)
{
	int type, pid = 0;
	s64 start, end;

	if (c->type == F_UNLCK)
		return -EINVAL;
	vfs_posix_getlk(c->inode, &c->owner, c->type, c->start, c->end, &type, &start, &end, &pid);
	fl->l_type = (short)type;
	if (type != F_UNLCK) {
		fl->l_whence = SEEK_SET;
		fl->l_start = start;
		fl->l_len = end == INT64_MAX ? 0 : end - start + 1;
		fl->l_pid = pid;
	}
	return copy_out(t, arg, fl, sizeof(*fl));
}

static s64 record_lock(struct task *t, int fd, struct file *f, int cmd, uaddr arg)
{
	bool ofd = cmd == F_OFD_GETLK || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;
	struct lock_call c = { .inode = f->inode };
	struct flock fl;
	int err;

	if (copy_in(t, &fl, arg, sizeof(fl)) < 0)
		return -EFAULT;
	if (fl.l_type != F_RDLCK && fl.l_type != F_WRLCK && fl.l_type != F_UNLCK)
		return -EINVAL;
	if (ofd && fl.l_pid)
		return -EINVAL;
	err = lock_range(f, &fl, &c.start, &c.end);
	if (err < 0)
		return err;
	c.type = fl.l_type;
	c.owner.id = ofd ? (const void *)f : (const void *)t->fds;
	c.owner.pid = ofd ? -1 : t->tg->tgid;
	if (cmd == F_GETLK || cmd == F_OFD_GETLK)
		return get_lock(t, &c, &fl, arg);
	return set_lock(t, fd, f, &c, cmd == F_SETLKW || cmd == F_OFD_SETLKW, ofd);
}

struct flock_call {
	struct inode *inode;
	struct lock_owner owner;
	int op;
};

static s64 flock_try(void *arg)
{
	struct flock_call *c = arg;

	return vfs_flock(c->inode, &c->owner, c->op);
}

s64 sys_flock(struct task *t, const u64 a[6])
{
	int op = (int)a[1] & ~LOCK_NB;
	struct flock_call c = { .op = op };
	struct file *f;
	s64 r;

	if (a[1] & LOCK_MAND)
		return 0; /* Linux grants it, and does nothing */
	if (op != LOCK_SH && op != LOCK_EX && op != LOCK_UN)
		return -EINVAL;
	f = fd_get(t->fds, (int)a[0]);
	if (!f)
		return -EBADF;
	c.inode = f->inode;
	c.owner = (struct lock_owner){ .id = f, .pid = t->tg->tgid };
	r = flock_try(&c);
	if (r == -EAGAIN && !(a[1] & LOCK_NB))
		r = task_block_on(t, vfs_locks_waitq(f->inode), ~0u, false, NO_DEADLINE, flock_try,
				  &c);
	file_put(f);
	return r;
}

/* ---- flags and owners ---- */

static s64 set_flags(struct task *t, struct file *f, u32 arg)
{
	u32 old = file_flags(f), want;
	struct kstat st;
	int err;

	if ((arg & O_NOATIME) && !(old & O_NOATIME)) {
		err = sys_file_getattr(f, &st);
		if (err < 0)
			return err;
		if (st.uid != t->cred->fsuid && !cred_capable(t->cred, CAP_FOWNER))
			return -EPERM;
	}
	do {
		want = (old & ~(u32)SETFL_MASK) | (arg & SETFL_MASK);
		err = f->ops->set_flags ? f->ops->set_flags(f, want) : 0;
		if (err < 0)
			return err;
	} while (!atomic_compare_exchange_weak(&f->flags, &old, want));
	return 0;
}

static bool owner_exists(struct task *t, int owner)
{
	if (owner > 0) {
		struct task *other = task_find(t->kernel, owner);

		task_put(other);
		return other;
	}
	if (owner < 0) {
		struct process_group *pg = process_group_find(t->kernel, -owner);

		process_group_put(pg);
		return pg;
	}
	return true;
}

static s64 set_owner(struct task *t, struct file *f, s64 owner)
{
	if (owner == INT32_MIN)
		return -EINVAL;
	if (!owner_exists(t, (int)owner))
		return -ESRCH;
	f->owner_pid = (int)owner;
	return 0;
}

static s64 owner_ex(struct task *t, struct file *f, int cmd, uaddr arg)
{
	struct f_owner_ex ex = { .type = F_OWNER_PID };

	if (cmd == F_GETOWN_EX) {
		int owner = f->owner_pid;

		ex.type = owner < 0 ? F_OWNER_PGRP : F_OWNER_PID;
		ex.pid = owner < 0 ? -owner : owner;
		return copy_out(t, arg, &ex, sizeof(ex));
	}
	if (copy_in(t, &ex, arg, sizeof(ex)) < 0)
		return -EFAULT;
	if (ex.type != F_OWNER_TID && ex.type != F_OWNER_PID && ex.type != F_OWNER_PGRP)
		return -EINVAL;
	if (ex.pid < 0)
		return -EINVAL;
	return set_owner(t, f, ex.type == F_OWNER_PGRP ? -ex.pid : ex.pid);
}

/* Hints are accepted and forgotten: nothing here depends on them. */
static s64 rw_hint(struct task *t, int cmd, uaddr arg)
{
	u64 hint = 0;

	if (cmd == F_GET_RW_HINT || cmd == F_GET_FILE_RW_HINT)
		return copy_out(t, arg, &hint, sizeof(hint));
	if (copy_in(t, &hint, arg, sizeof(hint)) < 0)
		return -EFAULT;
	return hint > RW_HINT_MAX ? -EINVAL : 0;
}

/* Leases need a break protocol that nothing here has: refused as a file system without them does.
 */
static s64 set_lease(struct task *t, struct file *f, int type)
{
	if (f->inode->uid != t->cred->fsuid && !cred_capable(t->cred, CAP_LEASE))
		return -EACCES;
	if (!inode_is_reg(f->inode))
		return -EINVAL;
	if (type == F_UNLCK)
		return -EAGAIN;
	return -EINVAL;
}

static s64 pipe_size(struct task *t, struct file *f, int cmd, u32 arg)
{
	if (!file_is_pipe(f))
		return -EBADF;
	if (cmd == F_SETPIPE_SZ && arg > PIPE_MAX_SIZE && arg <= 1u << 31 &&
	    !cred_capable(t->cred, CAP_SYS_RESOURCE))
		return -EPERM;
	return f->ops->fcntl(f, cmd, arg);
}

/* ---- fcntl ---- */

static s64 duplicate(struct task *t, struct file *f, u64 min, bool cloexec)
{
	s64 fd;

	if (min > INT32_MAX || min >= task_rlimit(t, RLIMIT_NOFILE))
		return -EINVAL;
	file_get(f);
	fd = fd_install(t->fds, f, (int)min, cloexec, task_rlimit(t, RLIMIT_NOFILE));
	if (fd < 0)
		file_put(f);
	return fd;
}

/* The commands that an O_PATH descriptor allows; -EBADF for the rest. */
static s64 fcntl_any(struct task *t, int fd, struct file *f, int cmd, u64 arg)
{
	struct file *other;
	bool same;

	switch (cmd) {
	case F_DUPFD: return duplicate(t, f, (u32)arg, false);
	case F_DUPFD_CLOEXEC: return duplicate(t, f, (u32)arg, true);
	case F_DUPFD_QUERY:
		other = fd_get_any(t->fds, (int)arg);
		if (!other)
			return -EBADF;
		same = other == f;
		file_put(other);
		return same;
	case F_GETFD: return fd_get_cloexec(t->fds, fd);
	case F_SETFD: return fd_set_cloexec(t->fds, fd, arg & FD_CLOEXEC);
	case F_GETFL: return file_flags(f) & ~(u32)GETFL_HIDDEN;
	default: return -EBADF;
	}
}

static s64 fcntl_file(struct task *t, int fd, struct file *f, int cmd, u64 arg)
{
	switch (cmd) {
	case F_SETFL: return set_flags(t, f, (u32)arg);
	case F_GETLK:
	case F_SETLK:
	case F_SETLKW:
	case F_OFD_GETLK:
	case F_OFD_SETLK:
	case F_OFD_SETLKW: return record_lock(t, fd, f, cmd, ua(arg));
	case F_SETOWN: return set_owner(t, f, (s32)arg);
	case F_GETOWN: return f->owner_pid;
	case F_SETOWN_EX:
	case F_GETOWN_EX: return owner_ex(t, f, cmd, ua(arg));
	case F_GETSIG: return f->owner_sig;
	case F_SETSIG:
		if (arg > SIGNAL_COUNT)
			return -EINVAL;
		f->owner_sig = (int)arg;
		return 0;
	case F_GETLEASE: return F_UNLCK;
	case F_SETLEASE: return set_lease(t, f, (int)arg);
	case F_NOTIFY: return inode_is_dir(f->inode) ? -EINVAL : -ENOTDIR;
	case F_GETPIPE_SZ:
	case F_SETPIPE_SZ: return pipe_size(t, f, cmd, (u32)arg);
	case F_ADD_SEALS:
		if (!file_writable(f))
			return -EPERM;
		return f->ops->fcntl ? f->ops->fcntl(f, cmd, (u32)arg) : -EINVAL;
	case F_GET_SEALS: return f->ops->fcntl ? f->ops->fcntl(f, cmd, (u32)arg) : -EINVAL;
	case F_GET_RW_HINT:
	case F_SET_RW_HINT:
	case F_GET_FILE_RW_HINT:
	case F_SET_FILE_RW_HINT: return rw_hint(t, cmd, ua(arg));
	default: return -EINVAL;
	}
}

s64 sys_fcntl(struct task *t, const u64 a[6])
{
	int fd = (int)a[0], cmd = (int)a[1];
	struct file *f = fd_get_any(t->fds, fd);
	s64 r;

	if (!f)
		return -EBADF;
	r = fcntl_any(t, fd, f, cmd, a[2]);
	if (r == -EBADF && cmd != F_DUPFD_QUERY && !(file_flags(f) & O_PATH))
		r = fcntl_file(t, fd, f, cmd, a[2]);
	file_put(f);
	return r;
}
