/* Sockets: making, naming, connecting, options. */
#include "sentry/sys/fdpair.h"
#include "sentry/sys/handlers.h"
#include "sentry/sys/sockmsg.h"
#include <stdlib.h>
#include <string.h>

#define TYPE_MASK 0xf

int sock_from_fd(struct task *t, int fd, struct file **ret_file, struct socket **ret)
{
	struct file *f = fd_get(t->fds, fd);

	if (!f)
		return -EBADF;
	*ret = socket_of_file(f);
	if (!*ret) {
		file_put(f);
		return -ENOTSOCK;
	}
	*ret_file = f;
	return 0;
}

int sock_addr_in(struct task *t, uaddr addr, u64 len, struct sockaddr_storage *ret)
{
	if ((int)len < 0 || (u32)len > sizeof(*ret))
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	return (u32)len ? copy_in(t, ret, addr, (u32)len) : 0;
}

int sock_addr_out(struct task *t, uaddr addr, uaddr len, const struct sockaddr_storage *ss,
		  u32 real)
{
	int room;

	if (copy_in(t, &room, len, sizeof(room)) < 0)
		return -EFAULT;
	if (room < 0)
		return -EINVAL;
	if (room && real && copy_out(t, addr, ss, MIN((u32)room, real)) < 0)
		return -EFAULT;
	return copy_out(t, len, &real, sizeof(real));
}

u64 sock_deadline(u64 timeout_ns)
{
	return timeout_ns ? clock_monotonic_ns() + timeout_ns : NO_DEADLINE;
}

s64 sock_intr(s64 ret, u64 timeout_ns)
{
	return ret == -ERESTARTSYS && timeout_ns ? -EINTR : ret;
}

static s64 install(struct task *t, struct file *f, int type_flags)
{
	int fd = fd_install(t->fds, f, 0, type_flags & SOCK_CLOEXEC, task_rlimit(t, RLIMIT_NOFILE));

	if (fd < 0)
		file_put(f);
	return fd;
}

s64 sys_socket(struct task *t, const u64 a[6])
{
	int type = (int)a[1], flags = type & ~TYPE_MASK;
	struct socket *s;
	struct file *f;
	int ret;

	if (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK))
		return -EINVAL;
	ret = socket_create(t, (int)a[0], type & TYPE_MASK, (int)a[2], &s);
	if (ret < 0)
		return ret;
	ret = socket_file_new(t, s, (u32)flags & SOCK_NONBLOCK, &f);
	return ret < 0 ? ret : install(t, f, flags);
}

s64 sys_install_pair(struct task *t, struct file *f[2], bool cloexec, uaddr out)
{
	u64 limit = task_rlimit(t, RLIMIT_NOFILE);
	int fd[2] = { -1, -1 }, ret;

	for (int i = 0; i < 2; i++) {
		fd[i] = fd_reserve(t->fds, 0, limit);
		if (fd[i] < 0) {
			ret = fd[i];
			goto fail;
		}
	}
	ret = copy_out(t, out, fd, sizeof(fd));
	if (ret < 0)
		goto fail;
	for (int i = 0; i < 2; i++)
		fd_install_reserved(t->fds, fd[i], f[i], cloexec);
	return 0;
fail:
	for (int i = 0; i < 2; i++) {
		if (fd[i] >= 0)
			fd_release_reserved(t->fds, fd[i]);
		file_put(f[i]);
	}
	return ret;
}

s64 sys_socketpair(struct task *t, const u64 a[6])
{
	int type = (int)a[1], flags = type & ~TYPE_MASK, ret;
	struct socket *s[2];
	struct file *f[2];

	if (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK))
		return -EINVAL;
	if ((int)a[0] == AF_INET || (int)a[0] == AF_INET6) { /* what cannot be made fails so */
		ret = socket_create(t, (int)a[0], type & TYPE_MASK, (int)a[2], &s[0]);
		if (ret < 0)
			return ret;
		s[0]->ops->release(s[0]);
		socket_put(s[0]);
		return -EOPNOTSUPP;
	}
	if ((int)a[0] != AF_UNIX)
		return -EAFNOSUPPORT;
	if ((int)a[2] && (int)a[2] != PF_UNIX)
		return -EPROTONOSUPPORT;
	ret = unix_pair(t, type & TYPE_MASK, s);
	if (ret < 0)
		return ret;
	ret = socket_file_new(t, s[0], (u32)flags & SOCK_NONBLOCK, &f[0]);
	if (ret < 0) {
		s[1]->ops->release(s[1]);
		socket_put(s[1]);
		return ret;
	}
	ret = socket_file_new(t, s[1], (u32)flags & SOCK_NONBLOCK, &f[1]);
	if (ret < 0) {
		file_put(f[0]);
		return ret;
	}
	return sys_install_pair(t, f, flags & SOCK_CLOEXEC, ua(a[3]));
}

s64 sys_bind(struct task *t, const u64 a[6])
{
	struct sockaddr_storage ss;
	struct socket *s;
	struct file *f;
	int ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	ret = sock_addr_in(t, ua(a[1]), a[2], &ss);
	if (ret == 0)
		ret = s->ops->bind(s, t, &ss, (u32)a[2]);
	file_put(f);
	return ret;
}

s64 sys_listen(struct task *t, const u64 a[6])
{
	struct socket *s;
	struct file *f;
	int ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	ret = s->ops->listen ? s->ops->listen(s, t, (int)a[1]) : -EOPNOTSUPP;
	file_put(f);
	return ret;
}

s64 sys_connect(struct task *t, const u64 a[6])
{
	struct sockaddr_storage ss;
	struct socket *s;
	struct file *f;
	int ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	ret = sock_addr_in(t, ua(a[1]), a[2], &ss);
	if (ret == 0)
		ret = s->ops->connect(s, t, &ss, (u32)a[2], file_flags(f) & O_NONBLOCK);
	file_put(f);
	return ret;
}

struct accept_try {
	struct socket *s, *got;
};

static s64 try_accept(void *arg)
{
	struct accept_try *x = arg;

	return stream_accept(x->s, &x->got);
}

static s64 accept_on(struct task *t, struct file *f, struct socket *s, uaddr addr, uaddr len,
		     int flags)
{
	struct accept_try x = { .s = s };
	u64 timeout = s->rcv_timeout_ns;
	struct file *nf;
	s64 ret;
	int fd;

	if (s->ops->records && s->type != SOCK_SEQPACKET)
		return -EOPNOTSUPP;
	fd = fd_reserve(t->fds, 0, task_rlimit(t, RLIMIT_NOFILE));
	if (fd < 0)
		return fd;
	ret = task_block_on(t, &s->waitq, EPOLLIN | EPOLLRDHUP, file_flags(f) & O_NONBLOCK,
			    sock_deadline(timeout), try_accept, &x);
	if (ret < 0) {
		fd_release_reserved(t->fds, fd);
		return sock_intr(ret, timeout);
	}
	ret = socket_file_new(t, x.got, (u32)flags & SOCK_NONBLOCK, &nf);
	if (ret < 0) {
		fd_release_reserved(t->fds, fd);
		return ret;
	}
	if (addr.v) {
		struct sockaddr_storage ss;
		int n = x.got->ops->name(x.got, true, &ss);

		ret = n < 0 ? -ECONNABORTED : sock_addr_out(t, addr, len, &ss, (u32)n);
		if (ret < 0) {
			fd_release_reserved(t->fds, fd);
			file_put(nf);
			return ret;
		}
	}
	fd_install_reserved(t->fds, fd, nf, flags & SOCK_CLOEXEC);
	return fd;
}

static s64 do_accept(struct task *t, int fd, uaddr addr, uaddr len, int flags)
{
	struct socket *s;
	struct file *f;
	s64 ret;

	if (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK))
		return -EINVAL;
	ret = sock_from_fd(t, fd, &f, &s);
	if (ret < 0)
		return ret;
	ret = accept_on(t, f, s, addr, len, flags);
	file_put(f);
	return ret;
}

s64 sys_accept(struct task *t, const u64 a[6])
{
	return do_accept(t, (int)a[0], ua(a[1]), ua(a[2]), 0);
}

s64 sys_accept4(struct task *t, const u64 a[6])
{
	return do_accept(t, (int)a[0], ua(a[1]), ua(a[2]), (int)a[3]);
}

static s64 get_name(struct task *t, const u64 a[6], bool peer)
{
	struct sockaddr_storage ss;
	struct socket *s;
	struct file *f;
	int ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	ret = s->ops->name(s, peer, &ss);
	if (ret >= 0)
		ret = sock_addr_out(t, ua(a[1]), ua(a[2]), &ss, (u32)ret);
	file_put(f);
	return ret;
}

s64 sys_getsockname(struct task *t, const u64 a[6])
{
	return get_name(t, a, false);
}

s64 sys_getpeername(struct task *t, const u64 a[6])
{
	return get_name(t, a, true);
}

s64 sys_shutdown(struct task *t, const u64 a[6])
{
	struct socket *s;
	struct file *f;
	u32 how = (u32)a[1];
	int ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	if (how > SHUT_RDWR)
		ret = -EINVAL;
	else
		ret = s->ops->shutdown(
			s, (int)how + 1); /* SHUT_RD, SHUT_WR, SHUT_RDWR -> SHUT_RCV | SHUT_SND */
	file_put(f);
	return ret;
}

s64 sys_setsockopt(struct task *t, const u64 a[6])
{
	u8 buf[256] = { 0 };
	u32 len = (u32)a[4];
	struct socket *s;
	struct file *f;
	int ret;

	if ((int)len < 0)
		return -EINVAL;
	ret = sock_from_fd(t, (int)a[0], &f, &s);
	if (ret < 0)
		return ret;
	/* Longer values are cut: no option that we know is longer. */
	len = MIN(len, (u32)sizeof(buf));
	if (len)
		ret = copy_in(t, buf, ua(a[3]), len);
	if (ret == 0)
		ret = socket_setsockopt(s, t, (int)a[1], (int)a[2], buf, len);
	file_put(f);
	return ret;
}

s64 sys_getsockopt(struct task *t, const u64 a[6])
{
	u8 buf[SOCK_OPT_MAX];
	struct socket *s;
	struct file *f;
	int room, ret = sock_from_fd(t, (int)a[0], &f, &s);
	u32 len;

	if (ret < 0)
		return ret;
	ret = copy_in(t, &room, ua(a[4]), sizeof(room));
	if (ret == 0 && room < 0)
		ret = -EINVAL;
	if (ret == 0) {
		len = MIN((u32)room, (u32)sizeof(buf));
		ret = socket_getsockopt(s, t, (int)a[1], (int)a[2], buf, &len);
	}
	if (ret == 0 && len)
		ret = copy_out(t, ua(a[3]), buf, len);
	if (ret == 0)
		ret = copy_out(t, ua(a[4]), &len, sizeof(len));
	file_put(f);
	return ret;
}
