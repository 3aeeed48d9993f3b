/*
 * sendfile, splice, tee, vmsplice, copy_file_range: bytes from file to file.
 *
 * Between pipes they move inside the sentry's rings. Everything else goes through a
 * bounded sentry buffer; a source is only advanced by what its target took.
 */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"
#include "vfs/pipe.h"

#include <stdlib.h>

#define BOUNCE_SIZE (256UL << 10)
#define SPLICE_KNOWN (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

static ssize_t read_at(struct file *f, void *buf, size_t len, const u64 *offset)
{
	struct iovec one;
	struct kiov k;

	kiov_init_buf(&k, &one, buf, len);
	return vfs_read(f, &k, offset, 0);
}

/* An optional guest offset: fetched before, written back after. */
struct offset_arg {
	uaddr addr;
	u64 value;
	bool given;
};

static int offset_in(struct task *t, u64 addr, struct offset_arg *ret)
{
	*ret = (struct offset_arg){ .addr = ua(addr), .given = addr != 0 };
	if (!addr)
		return 0;
	return copy_in(t, &ret->value, ret->addr, sizeof(ret->value)) < 0 ? -EFAULT : 0;
}

/* Linux's rw_verify_area: all of it has offsets. A stream's is 0. */
static int verify_area(u64 offset, u64 len)
{
	return (s64)len < 0 || (s64)offset < 0 || (s64)(offset + len) < 0 ? -EINVAL : 0;
}

/* Whether pread works. */
static bool has_offsets(const struct file *f)
{
	return f->ops->seek || inode_is_dir(f->inode);
}

/* Takes the position of f when the guest gave no offset. */
static int offset_begin(struct offset_arg *o, struct file *f)
{
	return o->given ? 0 : vfs_pos(f, &o->value);
}

static int offset_end(struct task *t, struct offset_arg *o, struct file *f)
{
	if (o->given)
		return copy_out(t, o->addr, &o->value, sizeof(o->value));
	vfs_set_pos(f, o->value);
	return 0;
}

/*
 * Copies up to len bytes from a seekable file to anything. in_pos is advanced by
 * what was written; out_pos NULL: out's own position. Bytes or -errno.
 */
static s64 copy_loop(struct task *t, struct file *in, u64 *in_pos, struct file *out, u64 *out_pos,
		     u64 len, bool nonblock)
{
	u64 done = 0;
	s64 n = 0;
	char *buf = malloc(MIN(len, BOUNCE_SIZE));

	if (!buf)
		return -ENOMEM;
	while (done < len) {
		size_t want = MIN(len - done, BOUNCE_SIZE);
		ssize_t got = read_at(in, buf, want, in_pos);

		if (got <= 0) {
			n = got;
			break;
		}
		n = sys_write_buf(t, out, buf, (size_t)got, out_pos, nonblock);
		if (n <= 0)
			break;
		*in_pos += (u64)n;
		done += (u64)n;
		if (n < got || task_signal_pending(t))
			break;
	}
	free(buf);
	return done ? (s64)done : n;
}

/* What is in the file from pos on, at most len; the copy itself may make it longer. */
static s64 length_to_end(struct file *f, u64 pos, u64 len)
{
	struct kstat st;
	int err = inode_getattr(f->inode, &st);

	if (err < 0)
		return err;
	return (s64)(pos < st.size ? MIN(len, st.size - pos) : 0);
}

s64 sys_copy_file_range(struct task *t, const u64 a[6])
{
	struct file *in = fd_get(t->fds, (int)a[0]), *out = fd_get(t->fds, (int)a[2]);
	struct offset_arg from = { 0 }, to = { 0 };
	u64 len = a[4], limit = MIN(task_rlimit(t, RLIMIT_FSIZE), INT64_MAX);
	s64 n = -EBADF;

	if (!in || !out)
		goto out;
	n = offset_in(t, a[1], &from);
	if (!n)
		n = offset_in(t, a[3], &to);
	if (!n && (u32)a[5])
		n = -EINVAL;
	if (!n && (inode_is_dir(in->inode) || inode_is_dir(out->inode)))
		n = -EISDIR;
	if (!n && (!inode_is_reg(in->inode) || !inode_is_reg(out->inode)))
		n = -EINVAL;
	if (!n && (!file_readable(in) || !file_writable(out) || (file_flags(out) & O_APPEND)))
		n = -EBADF;
	if (!n && in->inode->sb != out->inode->sb)
		n = -EXDEV;
	if (n < 0)
		goto out;
	n = offset_begin(&from, in);
	if (!n)
		n = offset_begin(&to, out);
	if (n < 0)
		goto out;
	n = -EOVERFLOW;
	if (from.value + len < from.value || to.value + len < to.value)
		goto out;
	n = -EINVAL;
	if ((s64)from.value < 0 || (s64)to.value < 0)
		goto out;
	n = length_to_end(in, from.value, MIN(len, MAX_RW_COUNT));
	if (n < 0)
		goto out;
	/* Up to the limit it is a short copy, without the signal. */
	len = to.value < limit ? MIN((u64)n, limit - to.value) : (u64)n;
	n = -EINVAL;
	if (in->inode == out->inode && from.value < to.value + len && to.value < from.value + len)
		goto out;
	n = len ? copy_loop(t, in, &from.value, out, &to.value, len, false) : 0;
	if (n > 0 && (offset_end(t, &from, in) < 0 || offset_end(t, &to, out) < 0))
		n = -EFAULT;
out:
	file_put(in);
	file_put(out);
	return n;
}

/* ---- splice ---- */

static bool has_input(struct file *f)
{
	return vfs_poll(f) & (EPOLLIN | EPOLLHUP | EPOLLERR);
}

static bool pipe_has_room(struct file *f)
{
	return vfs_poll(f) & (EPOLLOUT | EPOLLERR);
}

static s64 pipe_to_pipe(struct task *t, struct file *in, struct file *out, u64 len, bool nonblock,
			bool tee)
{
	s64 n;

	if (pipe_same(in, out))
		return -EINVAL;
	nonblock = nonblock || ((file_flags(in) | file_flags(out)) & O_NONBLOCK);
	while ((n = pipe_splice_pipe(in, out, len, tee)) == -EAGAIN && !nonblock) {
		int err = pipe_bytes(in) ? sys_wait_file(t, out, POLL_OUT_EVENTS, pipe_has_room)
					 : sys_wait_file(t, in, POLL_IN_EVENTS, has_input);

		if (err < 0)
			return err;
	}
	return n;
}

/* The pipe is only emptied of what the other side has taken. */
static s64 pipe_to_file(struct task *t, struct file *in, struct file *out, u64 *out_pos, u64 len,
			bool nonblock)
{
	char *buf = malloc(MIN(len, BOUNCE_SIZE));
	ssize_t got;
	u64 pos;
	s64 n;

	if (!buf)
		return -ENOMEM;
	while ((got = pipe_peek(in, buf, MIN(len, BOUNCE_SIZE), &pos)) == -EAGAIN) {
		n = nonblock || (file_flags(in) & O_NONBLOCK)
			    ? -EAGAIN
			    : sys_wait_file(t, in, POLL_IN_EVENTS, has_input);
		if (n < 0) {
			free(buf);
			return n;
		}
	}
	n = got;
	if (got > 0) {
		n = sys_write_buf(t, out, buf, (size_t)got, out_pos, false);
		if (n > 0)
			pipe_consume(in, pos, (size_t)n);
	}
	free(buf);
	return n;
}

static s64 file_to_pipe(struct task *t, struct file *in, u64 *in_pos, struct file *out, u64 len,
			bool nonblock)
{
	size_t room;
	char *buf;
	s64 n = 0;

	nonblock = nonblock || (file_flags(out) & O_NONBLOCK);
	while (!pipe_has_room(out)) {
		n = nonblock ? -EAGAIN : sys_wait_file(t, out, POLL_OUT_EVENTS, pipe_has_room);
		if (n < 0)
			return n;
	}
	room = pipe_room(out); /* another writer may have filled it again */
	len = MIN(len, MIN(BOUNCE_SIZE, MAX(room, 1u)));
	buf = malloc(len);
	if (!buf)
		return -ENOMEM;
	while ((n = read_at(in, buf, len, in_pos)) == -EAGAIN) {
		n = nonblock || (file_flags(in) & O_NONBLOCK) || !vfs_waitq(in)
			    ? -EAGAIN
			    : sys_wait_file(t, in, POLL_IN_EVENTS, has_input);
		if (n < 0)
			break;
	}
	if (n > 0) {
		/* A stream's bytes cannot go back: wait for room rather than lose them. */
		n = sys_write_buf(t, out, buf, (size_t)n, NULL, nonblock && in_pos);
		if (n > 0 && in_pos)
			*in_pos += (u64)n;
	}
	free(buf);
	return n;
}

static s64 send_file(struct task *t, struct file *in, struct offset_arg *off, int out_fd, u64 count)
{
	struct file *out;
	s64 n;

	if (!file_readable(in))
		return -EBADF;
	if (off->given && !has_offsets(in))
		return -ESPIPE;
	n = in->ops->seek ? offset_begin(off, in) : 0;
	if (!n)
		n = verify_area(off->value, count);
	if (n < 0)
		return n;
	count = MIN(count, MAX_RW_COUNT);
	out = fd_get(t->fds, out_fd);
	n = -EINVAL;
	if (!out || !file_writable(out))
		n = -EBADF;
	else if (!count && (file_is_pipe(out) || has_offsets(in)))
		n = file_flags(out) & O_APPEND ? n : 0;
	else if (!(file_flags(out) & O_APPEND) && in->ops->read && in->ops->seek &&
		 !inode_is_dir(in->inode) && count)
		n = copy_loop(t, in, &off->value, out, NULL, count, false);
	else if (S_ISSOCK(in->inode->type) && file_is_pipe(out))
		n = file_to_pipe(t, in, NULL, out, count, false);
	file_put(out);
	/* An offset of the guest's is stored even when nothing was moved. */
	if ((n > 0 || (n == 0 && off->given)) && offset_end(t, off, in) < 0)
		n = -EFAULT;
	return n;
}

s64 sys_sendfile(struct task *t, const u64 a[6])
{
	struct offset_arg off;
	struct file *in;
	s64 n = offset_in(t, a[2], &off);

	if (n < 0)
		return n;
	in = fd_get(t->fds, (int)a[1]);
	if (!in)
		return -EBADF;
	n = send_file(t, in, &off, (int)a[0], a[3]);
	file_put(in);
	return n;
}

/* What Linux has a splice_read or splice_write for; not eventfds, inotify and their like, though
 * one can read or write them. */
static bool can_splice(const struct file *f)
{
	u32 type = f->inode->type;

	return S_ISREG(type) || S_ISCHR(type) || S_ISSOCK(type) || S_ISDIR(type);
}

/* Offsets belong to the side that is not a pipe; a stream has none. */
static s64 splice_files(struct task *t, struct file *in, struct offset_arg *in_off,
			struct file *out, struct offset_arg *out_off, u64 len, u32 flags)
{
	bool from_pipe = file_is_pipe(in), to_pipe = file_is_pipe(out),
	     nonblock = flags & SPLICE_F_NONBLOCK;
	struct offset_arg *off = from_pipe ? out_off : in_off;
	struct file *other = from_pipe ? out : in;
	u64 *pos = other->ops->seek ? &off->value : NULL;
	s64 n;

	if (from_pipe && to_pipe)
		return in_off->given || out_off->given
			       ? -ESPIPE
			       : pipe_to_pipe(t, in, out, len, nonblock, false);
	if (!from_pipe && !to_pipe)
		return -EINVAL;
	if ((from_pipe && in_off->given) || (to_pipe && out_off->given))
		return -ESPIPE;
	if (off->given && !other->ops->seek)
		return -EINVAL;
	if (from_pipe && (file_flags(out) & O_APPEND))
		return -EINVAL;
	n = pos ? offset_begin(off, other) : 0;
	if (!n)
		n = verify_area(pos ? *pos : 0, len);
	if (n < 0)
		return n;
	if (!can_splice(other) || (from_pipe ? !out->ops->write : !in->ops->read))
		return -EINVAL;
	if (inode_is_dir(other->inode))
		return -EINVAL;
	len = MIN(len, MAX_RW_COUNT);
	n = from_pipe ? pipe_to_file(t, in, out, pos, len, nonblock)
		      : file_to_pipe(t, in, pos, out, len, nonblock);
	if (n > 0 && pos && offset_end(t, off, other) < 0)
		return -EFAULT;
	return n;
}

s64 sys_splice(struct task *t, const u64 a[6])
{
	struct offset_arg in_off = { 0 }, out_off = { 0 };
	struct file *in = NULL, *out = NULL;
	s64 n = 0;

	if (!a[4])
		return 0;
	if ((u32)a[5] & ~SPLICE_KNOWN)
		return -EINVAL;
	in = fd_get(t->fds, (int)a[0]);
	out = fd_get(t->fds, (int)a[2]);
	if (!in || !out)
		n = -EBADF;
	else if ((a[1] && file_is_pipe(in)) || (a[3] && file_is_pipe(out)))
		n = -ESPIPE;
	if (!n)
		n = offset_in(t, a[3], &out_off);
	if (!n)
		n = offset_in(t, a[1], &in_off);
	if (!n && (!file_readable(in) || !file_writable(out)))
		n = -EBADF;
	if (!n)
		n = splice_files(t, in, &in_off, out, &out_off, a[4], (u32)a[5]);
	if (n == -EPIPE)
		sys_write_failed(t, n);
	file_put(in);
	file_put(out);
	return n;
}

s64 sys_tee(struct task *t, const u64 a[6])
{
	struct file *in, *out;
	s64 n;

	if ((u32)a[3] & ~SPLICE_KNOWN)
		return -EINVAL;
	if (!a[2])
		return 0;
	in = fd_get(t->fds, (int)a[0]);
	out = fd_get(t->fds, (int)a[1]);
	if (!in || !out || !file_readable(in) || !file_writable(out))
		n = -EBADF;
	else if (!file_is_pipe(in) || !file_is_pipe(out))
		n = -EINVAL;
	else
		n = pipe_to_pipe(t, in, out, MIN(a[2], MAX_RW_COUNT), a[3] & SPLICE_F_NONBLOCK,
				 true);
	if (n == -EPIPE)
		sys_write_failed(t, n);
	file_put(in);
	file_put(out);
	return n;
}

s64 sys_vmsplice(struct task *t, const u64 a[6])
{
	struct sys_rw rw = { .nonblock = a[3] & SPLICE_F_NONBLOCK, .some = true };
	struct sys_iov iov;
	struct file *f;
	s64 n;

	if ((u32)a[3] & ~SPLICE_KNOWN)
		return -EINVAL;
	f = fd_get(t->fds, (int)a[0]);
	if (!f)
		return -EBADF;
	rw.write = file_writable(f);
	n = sys_iov_import(t, ua(a[1]), a[2], &iov);
	if (!n) {
		if (iov.total)
			n = file_is_pipe(f) ? sys_rw_iov(t, f, &iov, &rw) : -EBADF;
		sys_iov_free(&iov);
	}
	file_put(f);
	return n;
}
