/* ioctl: what every file answers; the rest belongs to the file's kind. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"
#include "vfs/pipe.h"

#include <asm/ioctls.h>
#include <linux/fs.h>

static void change_flag(struct file *f, u32 bit, bool on)
{
	u32 old = file_flags(f), want;

	do {
		want = on ? old | bit : old & ~bit;
		if (f->ops->set_flags && f->ops->set_flags(f, want) < 0)
			return;
	} while (!atomic_compare_exchange_weak(&f->flags, &old, want));
}

static s64 set_flag(struct task *t, struct file *f, u32 bit, u64 arg)
{
	int on;

	if (copy_in(t, &on, ua(arg), sizeof(on)) < 0)
		return -EFAULT;
	change_flag(f, bit, on);
	return 0;
}

/* Bytes that can be read now, of a regular file or a pipe. */
static s64 bytes_ready(struct task *t, struct file *f, u64 arg)
{
	struct kstat st;
	u64 pos;
	s64 n;
	int v, err;

	if (file_is_pipe(f)) {
		n = (s64)pipe_bytes(f);
	} else {
		err = sys_file_getattr(f, &st);
		if (err < 0)
			return err;
		err = vfs_pos(f, &pos);
		if (err < 0)
			return err;
		n = (s64)(st.size - pos);
	}
	v = (int)n;
	return copy_out(t, ua(arg), &v, sizeof(v));
}

s64 sys_ioctl(struct task *t, const u64 a[6])
{
	int fd = (int)a[0];
	struct file *f = fd_get(t->fds, fd);
	u32 cmd = (u32)a[1];
	s64 r = -ENOTTY;

	if (!f)
		return -EBADF;
	switch (cmd) {
	case FIOCLEX: r = fd_set_cloexec(t->fds, fd, true); break;
	case FIONCLEX: r = fd_set_cloexec(t->fds, fd, false); break;
	case FIONBIO: r = set_flag(t, f, O_NONBLOCK, a[2]); break;
	case FIOASYNC: r = set_flag(t, f, O_ASYNC, a[2]); break;
	case FIONREAD:
		if (file_is_pipe(f) || (inode_is_reg(f->inode) && f->ops->seek)) {
			r = bytes_ready(t, f, a[2]);
			break;
		}
		/* fall through */
	default:
		if (f->ops->ioctl)
			r = f->ops->ioctl(f, cmd, a[2]);
	}
	file_put(f);
	return r;
}
