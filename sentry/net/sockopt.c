/* SOL_SOCKET options, common to all families; see socket.h. */
#include "sentry/net/socket.h"
#include <asm/socket.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/time.h>

static int int_of(const void *val, u32 len, int *ret)
{
	if (len < sizeof(int))
		return -EINVAL;
	memcpy(ret, val, sizeof(int));
	return 0;
}

static int set_timeout(_Atomic u64 *dst, const void *val, u32 len)
{
	struct timeval tv;

	if (len < sizeof(tv))
		return -EINVAL;
	memcpy(&tv, val, sizeof(tv));
	if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
		return -EDOM;
	if (tv.tv_sec < 0)
		*dst = 1; /* Linux: expires at once */
	else if ((u64)tv.tv_sec > INT32_MAX)
		*dst = 0;
	else
		*dst = (u64)tv.tv_sec * 1000000000ULL + (u64)tv.tv_usec * 1000;
	return 0;
}

static int set_linger(struct socket *s, const void *val, u32 len)
{
	struct linger l;

	if (len < sizeof(l))
		return -EINVAL;
	memcpy(&l, val, sizeof(l));
	s->linger_s = l.l_linger;
	s->linger_on = l.l_onoff != 0;
	return 0;
}

static void set_buf(_Atomic u32 *dst, int v)
{
	u32 size = v < 0 || v > SOCK_BUF_DEFAULT ? SOCK_BUF_DEFAULT : (u32)v;

	*dst = MAX(size * 2, (u32)SOCK_BUF_MIN);
}

static void set_buf_force(_Atomic u32 *dst, int v)
{
	u32 size = v < 0 ? 0 : MIN((u32)v, (u32)SOCK_BUF_MAX / 2);

	*dst = MAX(size * 2, (u32)SOCK_BUF_MIN);
}

static int set_int(struct socket *s, struct task *t, int opt, int v)
{
	bool admin = cred_capable(t->cred, CAP_NET_ADMIN);

	switch (opt) {
	case SO_DEBUG: return v && !admin ? -EACCES : 0;
	case SO_REUSEADDR: s->reuse_addr = v != 0; return 0;
	case SO_REUSEPORT:
		if (s->family == AF_UNIX || s->family == AF_NETLINK)
			return v ? -EOPNOTSUPP : 0;
		s->in.reuse_port = v != 0;
		return 0;
	case SO_TYPE:
	case SO_PROTOCOL:
	case SO_DOMAIN:
	case SO_ERROR:
	case SO_ACCEPTCONN:
	case SO_PEERCRED: return -ENOPROTOOPT;
	case SO_DONTROUTE: s->dontroute = v != 0; return 0;
	case SO_BROADCAST: s->broadcast = v != 0; return 0;
	case SO_SNDBUF:
		set_buf(&s->sndbuf, v);
		socket_wake(s, EPOLLOUT | EPOLLWRNORM | EPOLL_ROOM);
		return 0;
	case SO_RCVBUF: set_buf(&s->rcvbuf, v); return 0;
	case SO_SNDBUFFORCE:
	case SO_RCVBUFFORCE:
		if (!admin)
			return -EPERM;
		set_buf_force(opt == SO_SNDBUFFORCE ? &s->sndbuf : &s->rcvbuf, v);
		return 0;
	case SO_KEEPALIVE: s->keepalive = v != 0; return 0;
	case SO_OOBINLINE: s->oobinline = v != 0; return 0;
	case SO_PRIORITY:
		if ((v < 0 || v > 6) && !admin)
			return -EPERM;
		s->priority = v;
		return 0;
	case SO_MARK:
		if (!admin)
			return -EPERM;
		s->mark = v;
		return 0;
	case SO_RCVLOWAT: s->rcvlowat = v < 0 ? INT32_MAX : (v ? v : 1); return 0;
	case SO_PASSCRED:
		if (s->family != AF_UNIX && s->family != AF_NETLINK)
			return -EOPNOTSUPP;
		s->passcred = v != 0;
		return 0;
	case SO_TIMESTAMP:
	case SO_TIMESTAMPNS:
	case SO_PASSSEC:
	case SO_NO_CHECK:
	case SO_LOCK_FILTER:
	case SO_INCOMING_CPU:
	case SO_MAX_PACING_RATE:
	case SO_BUSY_POLL: return 0;
	default: return -ENOPROTOOPT;
	}
}

int socket_setsockopt(struct socket *s, struct task *t, int level, int opt, const void *val,
		      u32 len)
{
	int v, ret;

	if (level != SOL_SOCKET)
		return s->ops->setsockopt(s, t, level, opt, val, len);
	switch (opt) {
	case SO_LINGER: return set_linger(s, val, len);
	case SO_RCVTIMEO_OLD:
	case SO_RCVTIMEO_NEW: return set_timeout(&s->rcv_timeout_ns, val, len);
	case SO_SNDTIMEO_OLD:
	case SO_SNDTIMEO_NEW: return set_timeout(&s->snd_timeout_ns, val, len);
	case SO_BINDTODEVICE:
		if (len && memcmp(val, "lo", MIN(len, 3U)) != 0 && *(const char *)val)
			return -ENODEV;
		return 0;
	case SO_ATTACH_FILTER:
	case SO_ATTACH_BPF: return -EPERM;
	case SO_DETACH_FILTER: return -ENOENT;
	case SO_ZEROCOPY: return -EOPNOTSUPP;
	}
	ret = int_of(val, len, &v);
	return ret < 0 ? ret : set_int(s, t, opt, v);
}

static void put_out(void *val, u32 *len, const void *src, u32 size)
{
	*len = MIN(*len, size);
	memcpy(val, src, *len);
}

static int get_timeout(u64 ns, void *val, u32 *len)
{
	struct timeval tv = { (time_t)(ns / 1000000000ULL),
			      (suseconds_t)(ns % 1000000000ULL / 1000) };

	put_out(val, len, &tv, sizeof(tv));
	return 0;
}

static int get_peercred(struct socket *s, void *val, u32 *len)
{
	struct ucred c = { 0, (uid_t)-1, (gid_t)-1 };

	if (s->family != AF_UNIX && s->family != AF_NETLINK)
		c = (struct ucred){ 0, (uid_t)-1, (gid_t)-1 };
	mutex_lock(&s->lock);
	if (s->has_peer_cred)
		c = (struct ucred){ s->peer_cred.pid, s->peer_cred.uid, s->peer_cred.gid };
	mutex_unlock(&s->lock);
	put_out(val, len, &c, sizeof(c));
	return 0;
}

static int get_int(struct socket *s, int opt, int *v)
{
	switch (opt) {
	case SO_DEBUG: *v = 0; return 0;
	case SO_REUSEADDR: *v = s->reuse_addr; return 0;
	case SO_REUSEPORT:
		*v = s->family != AF_UNIX && s->family != AF_NETLINK && s->in.reuse_port;
		return 0;
	case SO_TYPE: *v = s->type; return 0;
	case SO_DOMAIN: *v = s->family; return 0;
	case SO_PROTOCOL: *v = s->protocol; return 0;
	case SO_ACCEPTCONN: *v = s->state == SOCK_LISTENING; return 0;
	case SO_ERROR: *v = socket_take_error(s); return 0;
	case SO_DONTROUTE: *v = s->dontroute; return 0;
	case SO_BROADCAST: *v = s->broadcast; return 0;
	case SO_SNDBUF: *v = (int)s->sndbuf; return 0;
	case SO_RCVBUF: *v = (int)s->rcvbuf; return 0;
	case SO_KEEPALIVE: *v = s->keepalive; return 0;
	case SO_OOBINLINE: *v = s->oobinline; return 0;
	case SO_PRIORITY: *v = s->priority; return 0;
	case SO_MARK: *v = s->mark; return 0;
	case SO_RCVLOWAT: *v = s->rcvlowat; return 0;
	case SO_SNDLOWAT: *v = 1; return 0;
	case SO_PASSCRED: *v = s->passcred; return 0;
	case SO_TIMESTAMP:
	case SO_TIMESTAMPNS:
	case SO_PASSSEC:
	case SO_NO_CHECK:
	case SO_LOCK_FILTER:
	case SO_BUSY_POLL:
	case SO_ZEROCOPY: *v = 0; return 0;
	case SO_INCOMING_CPU: *v = 0; return 0;
	case SO_PEEK_OFF: *v = -1; return 0;
	default: return -ENOPROTOOPT;
	}
}

int socket_getsockopt(struct socket *s, struct task *t, int level, int opt, void *val, u32 *len)
{
	struct linger l;
	int v, ret;

	if (level != SOL_SOCKET)
		return s->ops->getsockopt(s, t, level, opt, val, len);
	switch (opt) {
	case SO_LINGER:
		l = (struct linger){ s->linger_on, s->linger_s };
		put_out(val, len, &l, sizeof(l));
		return 0;
	case SO_RCVTIMEO_OLD:
	case SO_RCVTIMEO_NEW: return get_timeout(s->rcv_timeout_ns, val, len);
	case SO_SNDTIMEO_OLD:
	case SO_SNDTIMEO_NEW: return get_timeout(s->snd_timeout_ns, val, len);
	case SO_PEERCRED: return get_peercred(s, val, len);
	case SO_PEERGROUPS: return -ENODATA;
	case SO_COOKIE:
		if (*len < sizeof(s->cookie))
			return -EINVAL;
		put_out(val, len, &s->cookie, sizeof(s->cookie));
		return 0;
	case SO_PEERSEC: return -ENOPROTOOPT;
	case SO_BINDTODEVICE: *len = 0; return 0;
	}
	ret = get_int(s, opt, &v);
	if (ret < 0)
		return ret;
	put_out(val, len, &v, sizeof(v));
	return 0;
}
