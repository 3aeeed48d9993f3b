/* read, write and their vectored and positioned forms; lseek. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <limits.h>
#include <linux/fs.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
#define RWF_KNOWN (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND)

static void signal_self(struct task *t, int sig)
{
	siginfo_t info;

	siginfo_user(&info, sig, SI_USER, t);
	signal_send_task(t, &info);
}

s64 sys_write_failed(struct task *t, s64 err)
{
	if (err == -EPIPE)
		signal_self(t, SIGPIPE);
	else if (err == -EFBIG && task_rlimit(t, RLIMIT_FSIZE) < INT64_MAX)
		signal_self(t, SIGXFSZ);
	return err;
}

int sys_check_fsize(struct task *t, struct inode *inode, u64 size)
{
	struct kstat st;
	int err;

	if (size <= task_rlimit(t, RLIMIT_FSIZE))
		return 0;
	err = inode_getattr(inode, &st);
	if (err < 0 || size <= st.size)
		return err;
	signal_self(t, SIGXFSZ);
	return -EFBIG;
}

struct transfer {
	struct task *t;
	struct file *f;
	const struct sys_iov *iov;
	bool write, positioned, whole;
	int flags;
	u64 offset;
	u64 limit;
	size_t done;
};

static ssize_t transfer_piece(void *arg, struct kiov *k)
{
	struct transfer *x = arg;
	const u64 *offset = x->positioned ? &x->offset : NULL;
	ssize_t n = x->write ? vfs_write(x->f, k, offset, x->flags, x->limit)
			     : vfs_read(x->f, k, offset, x->flags);

	if (n > 0)
		x->offset += (u64)n;
	return n;
}

static s64 transfer_try(void *arg)
{
	struct transfer *x = arg;

	return sys_iov_transfer(x->t, x->iov, x->done, !x->write, x->whole, transfer_piece, x);
}

/* Whether a blocking write goes on until everything is written. */
static bool writes_all(struct file *f)
{
	u32 type = f->inode->type;

	return S_ISFIFO(type) || S_ISSOCK(type) || (S_ISCHR(type) && f->ops->waitq);
}

s64 sys_rw_iov(struct task *t, struct file *f, const struct sys_iov *iov, const struct sys_rw *rw)
{
	bool nonblock = rw->nonblock || (rw->flags & RWF_NOWAIT) || (file_flags(f) & O_NONBLOCK);
	struct transfer x = { .t = t,
			      .f = f,
			      .iov = iov,
			      .write = rw->write,
			      .positioned = rw->offset,
			      .whole = f->ops->whole_io && f->ops->whole_io(f),
			      .flags = rw->flags,
			      .offset = rw->offset ? *rw->offset : 0,
			      .limit = rw->write ? task_rlimit(t, RLIMIT_FSIZE) : 0 };
	u32 events = rw->write ? POLL_OUT_EVENTS : POLL_IN_EVENTS;
	u64 timeout = f->ops->io_timeout ? f->ops->io_timeout(f, rw->write) : 0;
	u64 deadline = timeout ? clock_monotonic_ns() + timeout : NO_DEADLINE;
	s64 n;

	for (;;) {
		n = task_block_on(t, vfs_waitq(f), events, nonblock, deadline, transfer_try, &x);
		if (n == -ERESTARTSYS && timeout)
			n = -EINTR;
		if (n <= 0)
			break;
		x.done += (size_t)n;
		if (!rw->write || rw->some || x.done >= iov->total || !writes_all(f))
			break;
	}
	if (n < 0 && rw->write)
		n = x.done && n != -EPIPE ? n : sys_write_failed(t, n);
	return x.done ? (s64)x.done : n;
}

struct buffer_write {
	struct file *f;
	char *buf;
	size_t len, done;
	u64 *io_offset;
	u64 limit;
};

static s64 buffer_write_try(void *arg)
{
	struct buffer_write *b = arg;
	struct iovec one;
	struct kiov k;
	ssize_t n;

	kiov_init_buf(&k, &one, b->buf + b->done, b->len - b->done);
	n = vfs_write(b->f, &k, b->io_offset, 0, b->limit);
	if (n > 0 && b->io_offset)
		*b->io_offset += (u64)n;
	return n;
}

s64 sys_write_buf(struct task *t, struct file *f, void *buf, size_t len, u64 *io_offset,
		  bool nonblock)
{
	struct buffer_write b = { .f = f,
				  .buf = buf,
				  .len = len,
				  .io_offset = io_offset,
				  .limit = task_rlimit(t, RLIMIT_FSIZE) };
	s64 n = 0;

	nonblock = nonblock || (file_flags(f) & O_NONBLOCK);
	while (b.done < len) {
		n = task_block_on(t, vfs_waitq(f), POLL_OUT_EVENTS, nonblock, NO_DEADLINE,
				  buffer_write_try, &b);
		if (n <= 0)
			break;
		b.done += (size_t)n;
	}
	if (n == -EFBIG || (n < 0 && !b.done))
		sys_write_failed(t, n);
	return b.done ? (s64)b.done : n;
}

struct ready_wait {
	struct file *f;
	bool (*ready)(struct file *f);
};

static s64 ready_try(void *arg)
{
	struct ready_wait *w = arg;

	return w->ready(w->f) ? 0 : -EAGAIN;
}

int sys_wait_file(struct task *t, struct file *f, u32 events, bool (*ready)(struct file *f))
{
	struct ready_wait w = { f, ready };

	return (int)task_block_on(t, vfs_waitq(f), events, false, NO_DEADLINE, ready_try, &w);
}

/* ---- the calls ---- */

/* What file it is, then the access mode, come before the arguments, as in Linux. */
static int check_file(struct file *f, const struct sys_rw *rw)
{
	if (rw->offset && !f->ops->seek && !inode_is_dir(f->inode))
		return -ESPIPE;
	return (rw->write ? file_writable(f) : file_readable(f)) ? 0 : -EBADF;
}

static int check_flags(int flags)
{
	if (flags & ~RWF_KNOWN)
		return -EOPNOTSUPP;
	return (flags & RWF_APPEND) && (flags & RWF_NOAPPEND) ? -EINVAL : 0;
}

/* Longer transfers would keep others out of the address space for too long. */
#define DIRECT_MAX (64UL << 10)

struct direct {
	struct vfs_direct d;
	struct mm *mm;
	uaddr addr;
	bool to_guest;
};

static void *direct_begin(struct vfs_direct *d)
{
	struct direct *x = container_of(d, struct direct, d);
	void *p;

	return mm_direct_begin(x->mm, x->addr, d->len, x->to_guest, &p) ? p : NULL;
}

static void direct_end(struct vfs_direct *d)
{
	mm_direct_end(container_of(d, struct direct, d)->mm);
}

/* Between a file that is memory and guest memory at hand, without pinning it. False: not so. */
static bool rw_direct(struct task *t, struct file *f, const struct sys_iov *iov,
		      const struct sys_rw *rw, s64 *ret)
{
	struct direct x = { .d = { direct_begin, direct_end, iov->total },
			    .mm = t->mm,
			    .addr = ua((u64)iov->guest[0].iov_base),
			    .to_guest = !rw->write };
	ssize_t n;

	if (!f->ops->direct || !iov->total || iov->total > DIRECT_MAX)
		return false;
	if (rw->write ? !vfs_write_direct(f, &x.d, rw->offset, task_rlimit(t, RLIMIT_FSIZE), &n)
		      : !vfs_read_direct(f, &x.d, rw->offset, &n))
		return false;
	*ret = n;
	return true;
}

static s64 rw_single(struct task *t, int fd, u64 buf, u64 len, const struct sys_rw *rw)
{
	struct fd_ref f = fd_ref(t->fds, fd);
	struct sys_iov iov;
	s64 n;

	if (!f.file)
		return -EBADF;
	n = check_file(f.file, rw);
	if (!n)
		n = sys_iov_single(t, ua(buf), len, &iov);
	if (!n && !rw_direct(t, f.file, &iov, rw, &n))
		n = sys_rw_iov(t, f.file, &iov, rw);
	fd_ref_put(f);
	return n;
}

static s64 rw_vector(struct task *t, int fd, u64 vec, u64 count, const struct sys_rw *rw)
{
	struct fd_ref f = fd_ref(t->fds, fd);
	struct sys_iov iov;
	s64 n;

	if (!f.file)
		return -EBADF;
	n = check_file(f.file, rw);
	if (!n)
		n = sys_iov_import(t, ua(vec), count, &iov);
	if (!n) {
		/* Nothing at all is no transfer: no zero-length datagram either. */
		if (iov.total)
			n = check_flags(rw->flags);
		if (iov.total && !n)
			n = sys_rw_iov(t, f.file, &iov, rw);
		sys_iov_free(&iov);
	}
	fd_ref_put(f);
	return n;
}

s64 sys_read(struct task *t, const u64 a[6])
{
	return rw_single(t, (int)a[0], a[1], a[2], &(struct sys_rw){ 0 });
}

s64 sys_write(struct task *t, const u64 a[6])
{
	return rw_single(t, (int)a[0], a[1], a[2], &(struct sys_rw){ .write = true });
}

s64 sys_pread64(struct task *t, const u64 a[6])
{
	if ((s64)a[3] < 0)
		return -EINVAL;
	return rw_single(t, (int)a[0], a[1], a[2], &(struct sys_rw){ .offset = &a[3] });
}

s64 sys_pwrite64(struct task *t, const u64 a[6])
{
	if ((s64)a[3] < 0)
		return -EINVAL;
	return rw_single(t, (int)a[0], a[1], a[2],
			 &(struct sys_rw){ .write = true, .offset = &a[3] });
}

s64 sys_readv(struct task *t, const u64 a[6])
{
	return rw_vector(t, (int)a[0], a[1], a[2], &(struct sys_rw){ 0 });
}

s64 sys_writev(struct task *t, const u64 a[6])
{
	return rw_vector(t, (int)a[0], a[1], a[2], &(struct sys_rw){ .write = true });
}

s64 sys_preadv(struct task *t, const u64 a[6])
{
	if ((s64)a[3] < 0)
		return -EINVAL;
	return rw_vector(t, (int)a[0], a[1], a[2], &(struct sys_rw){ .offset = &a[3] });
}

s64 sys_pwritev(struct task *t, const u64 a[6])
{
	if ((s64)a[3] < 0)
		return -EINVAL;
	return rw_vector(t, (int)a[0], a[1], a[2],
			 &(struct sys_rw){ .write = true, .offset = &a[3] });
}

/* The offset is a[3] (a[4] is its unused high half); -1 means the file's position. */
static s64 rw_vector2(struct task *t, const u64 a[6], bool write)
{
	struct sys_rw rw = { .write = write, .flags = (int)a[5] };

	if ((s64)a[3] < -1)
		return -EINVAL;
	if ((s64)a[3] != -1)
		rw.offset = &a[3];
	return rw_vector(t, (int)a[0], a[1], a[2], &rw);
}

s64 sys_preadv2(struct task *t, const u64 a[6])
{
	return rw_vector2(t, a, false);
}

s64 sys_pwritev2(struct task *t, const u64 a[6])
{
	return rw_vector2(t, a, true);
}

s64 sys_lseek(struct task *t, const u64 a[6])
{
	struct fd_ref f = fd_ref(t->fds, (int)a[0]);
	s64 r;

	if (!f.file)
		return -EBADF;
	r = vfs_lseek(f.file, (s64)a[1], (int)a[2]);
	fd_ref_put(f);
	return r;
}
