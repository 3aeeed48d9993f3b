/* Control messages of sockets: SCM_RIGHTS, SCM_CREDENTIALS. */
#include "sentry/sys/sockmsg.h"
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

static int rights_in(struct task *t, const u8 *data, size_t len, struct sock_msg *m)
{
	size_t count = len / sizeof(int), had = m->fds ? (size_t)m->fds->count : 0;
	struct scm_fds *fds;

	if (count == 0)
		return 0;
	if (had + count > SOCK_SCM_MAX_FD)
		return -EINVAL;
	fds = realloc(m->fds, sizeof(*fds) + (had + count) * sizeof(fds->file[0]));
	if (!fds)
		return -ENOMEM;
	m->fds = fds;
	fds->count = (int)had;
	for (size_t i = 0; i < count; i++) {
		int fd;

		memcpy(&fd, data + i * sizeof(fd), sizeof(fd));
		fds->file[fds->count] = fd_get_any(t->fds, fd);
		if (!fds->file[fds->count])
			return -EBADF;
		fds->count++;
	}
	return 0;
}

static int creds_in(struct task *t, const u8 *data, size_t len, struct sock_msg *m)
{
	const struct cred *c = t->cred;
	struct ucred u;

	if (len != sizeof(u))
		return -EINVAL;
	memcpy(&u, data, sizeof(u));
	if (u.pid != t->tg->tgid) {
		struct thread_group *tg;

		if (!cred_capable(c, CAP_SYS_ADMIN))
			return -EPERM;
		tg = thread_group_find(t->kernel, u.pid);
		if (!tg)
			return -ESRCH;
		thread_group_put(tg);
	}
	if (u.uid != c->uid && u.uid != c->euid && u.uid != c->suid && !cred_capable(c, CAP_SETUID))
		return -EPERM;
	if (u.gid != c->gid && u.gid != c->egid && u.gid != c->sgid && !cred_capable(c, CAP_SETGID))
		return -EPERM;
	if (u.uid == (u32)-1 || u.gid == (u32)-1)
		return -EINVAL;
	m->cred = (struct sock_cred){ u.pid, u.uid, u.gid };
	return 0;
}

static int parse(struct task *t, struct socket *s, const u8 *buf, size_t len, struct sock_msg *m)
{
	size_t pos = 0;

	while (len - pos >= sizeof(struct cmsghdr)) {
		struct cmsghdr h;
		const u8 *data = buf + pos + CMSG_LEN(0);
		size_t n;
		int ret = 0;

		memcpy(&h, buf + pos, sizeof(h));
		if (h.cmsg_len < sizeof(h) || h.cmsg_len > len - pos)
			return -EINVAL;
		n = h.cmsg_len - sizeof(h);
		if (h.cmsg_level == SOL_SOCKET && s->family == AF_UNIX) {
			if (h.cmsg_type == SCM_RIGHTS)
				ret = rights_in(t, data, n, m);
			else if (h.cmsg_type == SCM_CREDENTIALS)
				ret = creds_in(t, data, n, m);
			else
				ret = -EINVAL;
		}
		if (ret < 0)
			return ret;
		if (CMSG_ALIGN(h.cmsg_len) >= len - pos)
			break;
		pos += CMSG_ALIGN(h.cmsg_len);
	}
	return 0;
}

int sock_control_in(struct task *t, struct socket *s, uaddr control, u64 len, struct sock_msg *m)
{
	u8 *buf;
	int ret;

	if (len > SOCK_CONTROL_MAX)
		return -ENOBUFS;
	if (len < sizeof(struct cmsghdr))
		return 0;
	buf = malloc(len);
	if (!buf)
		return -ENOBUFS;
	ret = copy_in(t, buf, control, len);
	if (ret == 0)
		ret = parse(t, s, buf, len, m);
	free(buf);
	return ret;
}

/* ---- out ---- */

struct control_out {
	uaddr at;
	u64 room, used;
};

static int put_cmsg(struct task *t, struct control_out *c, int type, const void *data, size_t len,
		    struct sock_msg *m)
{
	struct cmsghdr h = { .cmsg_len = CMSG_LEN(len),
			     .cmsg_level = SOL_SOCKET,
			     .cmsg_type = type };

	if (c->room - c->used < sizeof(h)) {
		m->out_flags |= MSG_CTRUNC;
		return 0;
	}
	if (c->room - c->used < h.cmsg_len) {
		m->out_flags |= MSG_CTRUNC;
		h.cmsg_len = c->room - c->used;
		len = h.cmsg_len - sizeof(h);
	}
	if (copy_out(t, ua_add(c->at, c->used), &h, sizeof(h)) < 0 ||
	    copy_out(t, ua_add(c->at, c->used + sizeof(h)), data, len) < 0)
		return -EFAULT;
	c->used += MIN(CMSG_SPACE(len), c->room - c->used);
	return 0;
}

/* Installs as many files as fit; the rest is dropped with MSG_CTRUNC. */
static int put_rights(struct task *t, struct control_out *c, struct sock_msg *m)
{
	struct cmsghdr h = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	u64 room = c->room - c->used;
	int max = room > sizeof(h)
			  ? (int)MIN((room - sizeof(h)) / sizeof(int), (u64)SOCK_SCM_MAX_FD)
			  : 0;
	bool cloexec = m->flags & MSG_CMSG_CLOEXEC;
	uaddr data = ua_add(c->at, c->used + sizeof(h));
	int n = 0;

	for (; n < max && n < m->fds->count; n++) {
		int fd = fd_reserve(t->fds, 0, task_rlimit(t, RLIMIT_NOFILE));

		if (fd < 0)
			break;
		if (copy_out(t, ua_add(data, (u64)n * sizeof(int)), &fd, sizeof(fd)) < 0) {
			fd_release_reserved(t->fds, fd);
			break;
		}
		fd_install_reserved(t->fds, fd, file_get(m->fds->file[n]), cloexec);
	}
	if (n < m->fds->count)
		m->out_flags |= MSG_CTRUNC;
	if (n == 0)
		return 0;
	h.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	if (copy_out(t, ua_add(c->at, c->used), &h, sizeof(h)) < 0)
		return -EFAULT;
	c->used += MIN(CMSG_SPACE((size_t)n * sizeof(int)), room);
	return 0;
}

s64 sock_control_out(struct task *t, struct socket *s, uaddr control, u64 len, struct sock_msg *m)
{
	struct control_out c = { .at = control, .room = control.v ? MIN(len, (u64)INT32_MAX) : 0 };
	int ret = 0;

	if (s->passcred && (s->family == AF_UNIX || s->family == AF_NETLINK)) {
		struct ucred u = { 0, 65534, 65534 };

		if (m->has_cred)
			u = (struct ucred){ m->cred.pid, m->cred.uid, m->cred.gid };
		ret = put_cmsg(t, &c, SCM_CREDENTIALS, &u, sizeof(u), m);
	}
	if (ret == 0 && m->fds)
		ret = put_rights(t, &c, m);
	return ret < 0 ? ret : (s64)c.used;
}
