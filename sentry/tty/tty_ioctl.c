/* ioctl(2) on terminals (ioctl_tty(2)); termios calls are in termios_ioctl.c. */
#include "sentry/tty/internal.h"
#include "sentry/fd/fdtable.h"
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

static s64 put_int(u64 arg, s32 v)
{
	return copy_out(current_task, ua(arg), &v, sizeof(v));
}

static int get_int(u64 arg, s32 *ret)
{
	return copy_in(current_task, ret, ua(arg), sizeof(*ret));
}

static bool is_admin(void)
{
	return cred_capable(current_task->cred, CAP_SYS_ADMIN);
}

void tty_resize(struct tty *t, const struct winsize *ws)
{
	tty_lock(t);
	if (memcmp(&t->winsize, ws, sizeof(*ws)) != 0) {
		t->winsize = *ws;
		t->pending_signals |= sigbit(SIGWINCH);
	}
	tty_unlock(t);
}

static s64 window_ioctl(struct tty *t, u32 cmd, u64 arg)
{
	struct winsize ws;

	if (cmd == TIOCGWINSZ) {
		tty_lock(t);
		ws = t->winsize;
		tty_unlock(t);
		return copy_out(current_task, ua(arg), &ws, sizeof(ws));
	}
	if (copy_in(current_task, &ws, ua(arg), sizeof(ws)))
		return -EFAULT;
	tty_resize(t, &ws);
	return 0;
}

static s64 flow_control(struct tty *t, bool master, u64 arg)
{
	s64 ret = tty_check_change(t, SIGTTOU);

	if (ret)
		return ret;
	if (arg > TCION)
		return -EINVAL;
	if (master)
		return 0; /* the master's own output knows no flow control */
	tty_lock(t);
	switch (arg) {
	case TCOOFF:
		ldisc_stop_output(t);
		t->stopped_by_call = true;
		break;
	case TCOON:
		if (t->stopped_by_call)
			ldisc_start_output(t);
		break;
	default: echo_verbatim(t, t->termios.c_cc[arg == TCIOFF ? VSTOP : VSTART]);
	}
	tty_unlock(t);
	return 0;
}

static s64 flush(struct tty *t, bool master, u64 arg)
{
	s64 ret = tty_check_change(t, SIGTTOU);
	bool in = arg == TCIFLUSH || arg == TCIOFLUSH, out = arg == TCOFLUSH || arg == TCIOFLUSH;

	if (ret)
		return ret;
	if (!in && !out)
		return -EINVAL;
	tty_lock(t);
	/* what is input to one side is the other's output */
	if (master ? out : in)
		ldisc_flush_input(t);
	if (master ? in : out)
		ldisc_flush_output(t);
	tty_unlock(t);
	return 0;
}

static s64 input_count(struct tty *t, bool master, u64 arg)
{
	u32 n;

	tty_lock(t);
	n = master ? ring_count(&t->output) + ring_count(&t->echo_hold) : ldisc_input_bytes(t);
	tty_unlock(t);
	return put_int(arg, (s32)n);
}

/* TIOCGPTPEER: the slave, through the guest's /dev/pts when that is where it is. */
static s64 open_peer(struct tty *t, u64 flags)
{
	struct task *cur = current_task;
	struct fs_context *fs = task_get_fs(cur);
	struct walk_context w = { .cred = cur->cred };
	struct path root = { 0 }, p = { 0 };
	struct inode *inode;
	struct file *file = NULL;
	char name[32];
	s64 ret = -ENOENT;

	tty_lock(t);
	inode = t->inode ? inode_get(t->inode) : NULL;
	tty_unlock(t);
	if (!inode) {
		fs_context_put(fs);
		return -EIO;
	}
	mutex_lock(&fs->lock);
	root = fs->root;
	path_get(&root);
	mutex_unlock(&fs->lock);
	w.root = w.cwd = root;
	snprintf(name, sizeof(name), "/dev/pts/%d", t->index);
	if (!vfs_walk(&w, name, 0, &p) && path_inode(&p) == inode)
		ret = vfs_open_path(&p, (u32)flags & ~O_CLOEXEC, cur->cred, &file);
	if (ret) {
		ret = file_new(inode, NULL, (u32)flags & ~O_CLOEXEC, cur->cred, NULL, NULL, &file);
		if (!ret) {
			ret = tty_slave_open(t, file);
			if (ret)
				file_discard(file);
		}
	}
	path_put(&p);
	path_put(&root);
	fs_context_put(fs);
	inode_put(inode);
	if (ret)
		return ret;
	ret = fd_install(cur->fds, file, 0, flags & O_CLOEXEC, task_rlimit(cur, RLIMIT_NOFILE));
	if (ret < 0)
		file_put(file);
	return ret;
}

static s64 send_signal(struct tty *t, u64 sig)
{
	if (sig < 1 || sig > SIGNAL_COUNT)
		return -EINVAL;
	tty_signal_foreground(t, sigbit((int)sig));
	return 0;
}

/* Calls that only the master has. */
static s64 master_ioctl(struct tty *t, u32 cmd, u64 arg)
{
	s32 v = 0;
	s64 ret = 0;

	switch (cmd) {
	case TIOCGPTN: return put_int(arg, t->index);
	case TIOCGPTPEER: return open_peer(t, arg);
	case TIOCSIG: return send_signal(t, arg);
	case TIOCSPTLCK:
	case TIOCPKT:
		if (get_int(arg, &v))
			return -EFAULT;
		tty_lock(t);
		if (cmd == TIOCSPTLCK)
			t->locked = v;
		else if (!t->packet || !v)
			t->packet_status = 0, t->packet = v;
		tty_unlock(t);
		return 0;
	case TIOCGPTLCK:
	case TIOCGPKT:
		tty_lock(t);
		v = cmd == TIOCGPTLCK ? t->locked : t->packet;
		tty_unlock(t);
		ret = put_int(arg, v);
		return ret;
	default: return -ENOIOCTLCMD;
	}
}

static s64 break_ioctl(struct tty *t, u32 cmd)
{
	s64 ret = tty_check_change(t, SIGTTOU);

	/* a pty has no line to break, and what was written is already at the other side */
	return ret;
}

static s64 exclusive_ioctl(struct tty *t, u32 cmd, u64 arg)
{
	bool on;

	tty_lock(t);
	if (cmd == TIOCEXCL)
		t->exclusive = true;
	else if (cmd == TIOCNXCL)
		t->exclusive = false;
	on = t->exclusive;
	tty_unlock(t);
	return cmd == TIOCGEXCL ? put_int(arg, on) : 0;
}

static s64 line_ioctl(struct tty *t, u32 cmd, u64 arg)
{
	s32 v;
	s64 ret;

	switch (cmd) {
	case TIOCGETD: return put_int(arg, 0); /* N_TTY */
	case TIOCSETD:
		ret = tty_check_change(t, SIGTTOU);
		if (ret)
			return ret;
		if (get_int(arg, &v))
			return -EFAULT;
		return v ? -EINVAL : 0;
	case TIOCGDEV:
		return put_int(arg, (s32)((t->index & 0xff) | TTY_SLAVE_MAJOR << 8 |
					  (t->index & ~0xff) << 12));
	case TIOCVHANGUP:
		if (!is_admin())
			return -EPERM;
		tty_vhangup(t);
		return 0;
	case TIOCSTI: /* refused, as with dev.tty.legacy_tiocsti=0 */ return -EIO;
	default: return -ENOIOCTLCMD;
	}
}

s64 tty_ioctl(struct file *f, u32 cmd, u64 arg)
{
	struct tty_file *tf = f->private;
	struct tty *t = tf->tty;
	bool hung;
	s64 ret;

	tty_lock(t);
	hung = tty_slave_hung_up(tf);
	tty_unlock(t);
	if (hung)
		return cmd == TIOCSPGRP ? -ENOTTY : -EIO;
	switch (cmd) {
	case TIOCGWINSZ:
	case TIOCSWINSZ: return window_ioctl(t, cmd, arg);
	case TIOCGPGRP: return tty_ioctl_get_pgrp(t, tf->master, arg);
	case TIOCSPGRP: return tty_ioctl_set_pgrp(t, arg);
	case TIOCGSID: return tty_ioctl_get_sid(t, tf->master, arg);
	case TIOCSCTTY: return tty_ioctl_set_controlling(t, f, arg);
	case TIOCNOTTY: return tty_ioctl_detach(t);
	case TIOCEXCL:
	case TIOCNXCL:
	case TIOCGEXCL: return exclusive_ioctl(t, cmd, arg);
	case TIOCINQ: /* FIONREAD */ return input_count(t, tf->master, arg);
	case TIOCOUTQ: return put_int(arg, 0);
	case TCXONC: return flow_control(t, tf->master, arg);
	case TCFLSH: return flush(t, tf->master, arg);
	case TCSBRK:
	case TCSBRKP:
	case TIOCSBRK:
	case TIOCCBRK: return break_ioctl(t, cmd);
	}
	ret = line_ioctl(t, cmd, arg);
	if (ret == -ENOIOCTLCMD)
		ret = tty_termios_ioctl(t, tf->master, cmd, arg);
	if (ret == -ENOIOCTLCMD && tf->master)
		ret = master_ioctl(t, cmd, arg);
	return ret == -ENOIOCTLCMD ? -ENOTTY : ret;
}
