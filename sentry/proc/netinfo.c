/* /proc/net: the loopback network and the sockets in it. */
#include "base/sort.h"
#include "sentry/proc/internal.h"
#include "sentry/fd/fdtable.h"
#include "sentry/net/socket.h"
#include <stdlib.h>
#include <string.h>

#define SOCKETS_SHOWN 65536 /* a longer table is cut */

static const char if_inet6[] = "00000000000000000000000000000001 01 80 10 80       lo\n";

static const char dev_text[] =
	"Inter-|   Receive                                                |  Transmit\n"
	" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs "
	"drop fifo colls "
	"carrier compressed\n"
	"    lo:       0       0    0    0    0     0          0         0        0       0    0   "
	" 0    0     0 "
	"      0          0\n";

static const char route_text[] =
	"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT       "
	"            "
	"                                    \n";

static const char inet_header[] = "  sl  local_address rem_address   st tx_queue rx_queue tr "
				  "tm->when retrnsmt   uid  timeout inode      "
				  "                                               \n";
static const char udp_header[] = "   sl  local_address rem_address   st tx_queue rx_queue tr "
				 "tm->when retrnsmt   uid  timeout inode ref "
				 "pointer drops             \n";
static const char inet6_header[] = "  sl  local_address                         remote_address     "
				   "                   st tx_queue rx_queue tr "
				   "tm->when retrnsmt   uid  timeout inode\n";
static const char udp6_header[] = "   sl  local_address                         remote_address     "
				  "                   st tx_queue rx_queue "
				  "tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n";
static const char unix_header[] = "Num       RefCount Protocol Flags    Type St Inode Path\n";

static const char sockstat[] =
	"sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 0 mem 0\n"
	"UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n";

/* ---- the sockets: all that some process has open ---- */

struct socket_list {
	struct file **files; /* references */
	size_t count, cap;
};

static bool list_add(struct socket_list *l, struct file *f)
{
	if (l->count == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		struct file **more =
			cap > SOCKETS_SHOWN ? NULL : realloc(l->files, cap * sizeof(*more));

		if (!more)
			return false;
		l->files = more;
		l->cap = cap;
	}
	l->files[l->count++] = file_get(f);
	return true;
}

static void add_table(struct socket_list *l, struct fd_table *fds, int family, int type)
{
	for (int fd = fd_next(fds, 0); fd >= 0; fd = fd_next(fds, fd + 1)) {
		struct file *f = fd_get(fds, fd);
		struct socket *s = f ? socket_of_file(f) : NULL;
		bool full =
			s && s->family == family && (!type || s->type == type) && !list_add(l, f);

		file_put(f);
		if (full)
			return;
	}
}

static int by_inode(const void *a, const void *b)
{
	u64 x = (*(struct file *const *)a)->inode->ino, y = (*(struct file *const *)b)->inode->ino;

	return x < y ? -1 : x > y;
}

/* Sorted by inode; the same socket may occur more than once. type 0: any. */
static void collect(struct kernel *k, int family, int type, struct socket_list *l)
{
	for (int pid = thread_group_next(k, 0); pid; pid = thread_group_next(k, pid)) {
		struct thread_group *tg = thread_group_find(k, pid);
		struct task *t = tg ? thread_group_any_task(tg) : NULL;
		struct fd_table *fds = t ? task_get_fds(t) : NULL;

		if (fds)
			add_table(l, fds, family, type);
		fd_table_put(fds);
		task_put(t);
		thread_group_put(tg);
	}
	if (l->count)
		sort(l->files, l->count, sizeof(l->files[0]), by_inode);
}

static void list_free(struct socket_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		file_put(l->files[i]);
	free(l->files);
}

static bool seen_before(const struct socket_list *l, size_t i)
{
	return i && l->files[i]->inode == l->files[i - 1]->inode;
}

/* ---- tcp and udp ---- */

static void put_address(struct textbuf *out, const struct sockaddr_storage *ss, int family)
{
	const struct sockaddr_in *in = (const void *)ss;
	const struct sockaddr_in6 *in6 = (const void *)ss;
	u32 word[4];

	/* addresses as words of the machine's byte order, ports as numbers */
	if (family == AF_INET) {
		textbuf_printf(out, " %08X:%04X", in->sin_addr.s_addr, ntohs(in->sin_port));
		return;
	}
	memcpy(word, &in6->sin6_addr, sizeof(word));
	textbuf_printf(out, " %08X%08X%08X%08X:%04X", word[0], word[1], word[2], word[3],
		       ntohs(in6->sin6_port));
}

static int inet_state(struct socket *s)
{
	enum { ESTABLISHED = 1, SYN_SENT = 2, CLOSE = 7, LISTEN = 10 };

	switch (atomic_load(&s->state)) {
	case SOCK_CONNECTED: return ESTABLISHED;
	case SOCK_CONNECTING: return SYN_SENT;
	case SOCK_LISTENING: return LISTEN;
	default: return CLOSE;
	}
}

static void put_inet(struct textbuf *out, int number, struct file *f)
{
	struct socket *s = socket_of_file(f);
	struct sockaddr_storage local = { 0 }, remote = { 0 };
	size_t start = out->len;

	if (s->ops->name(s, false, &local) < 0)
		local = (struct sockaddr_storage){ 0 };
	if (s->ops->name(s, true, &remote) < 0)
		remote = (struct sockaddr_storage){ 0 };
	textbuf_printf(out, "%4d:", number);
	put_address(out, &local, s->family);
	put_address(out, &remote, s->family);
	textbuf_printf(out,
		       " %02X %08lX:%08lX 00:00000000 00000000 %5u        0 %lu 1 0000000000000000",
		       inet_state(s), socket_outq(s), socket_inq(s), f->inode->uid, f->inode->ino);
	if (s->type == SOCK_STREAM)
		textbuf_printf(out, " 100 0 0 10 0");
	else
		textbuf_printf(out, " 0");
	while (out->len - start < 149 && !out->failed)
		textbuf_write(out, " ", 1);
	textbuf_write(out, "\n", 1);
}

struct inet_table {
	const char *header;
	int family, type;
};

static const struct inet_table inet_tables[] = {
	{ inet_header, AF_INET, SOCK_STREAM },
	{ inet6_header, AF_INET6, SOCK_STREAM },
	{ udp_header, AF_INET, SOCK_DGRAM },
	{ udp6_header, AF_INET6, SOCK_DGRAM },
};

/* Index: of inet_tables. */
static int show_inet(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	const struct inet_table *table = &inet_tables[c->entry->index];
	struct socket_list l = { 0 };
	int number = 0;

	textbuf_printf(out, "%s", table->header);
	collect(c->kernel, table->family, table->type, &l);
	for (size_t i = 0; i < l.count; i++) {
		struct socket *s = socket_of_file(l.files[i]);

		/* closed TCP sockets and unbound UDP ones are not in Linux's tables either */
		if (seen_before(&l, i) ||
		    (table->type == SOCK_STREAM && atomic_load(&s->state) == SOCK_CLOSED))
			continue;
		put_inet(out, number++, l.files[i]);
	}
	list_free(&l);
	return 0;
}

/* ---- unix ---- */

static void put_unix(struct textbuf *out, struct file *f)
{
	struct socket *s = socket_of_file(f);
	struct sockaddr_storage name = { 0 };
	const struct sockaddr_un *un = (const void *)&name;
	int len = s->ops->name(s, false, &name), state = atomic_load(&s->state);
	int path_len = len - (int)offsetof(struct sockaddr_un, sun_path);

	textbuf_printf(out, "0000000000000000: %08X 00000000 %08X %04X %02X %5lu", 2,
		       state == SOCK_LISTENING ? 0x10000 : 0, s->type,
		       state == SOCK_CONNECTED ? 3 : 1, f->inode->ino);
	if (path_len > 0) {
		textbuf_write(out, " ", 1);
		for (int i = 0; i < path_len; i++) {
			char ch = un->sun_path[i] ? un->sun_path[i] : '@';

			if (!un->sun_path[i] && un->sun_path[0])
				break; /* the end of a path; an abstract name shows its zeros as @
					*/
			textbuf_write(out, &ch, 1);
		}
	}
	textbuf_write(out, "\n", 1);
}

static int show_unix(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct socket_list l = { 0 };

	textbuf_printf(out, "%s", unix_header);
	collect(c->kernel, AF_UNIX, 0, &l);
	for (size_t i = 0; i < l.count; i++) {
		if (!seen_before(&l, i))
			put_unix(out, l.files[i]);
	}
	list_free(&l);
	return 0;
}

#define INET(name_, index_)                                                                        \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | 0444, .show = show_inet, .index = (index_)      \
	}

const struct proc_entry proc_net_entries[] = {
	PROC_TEXT(
		"arp",
		"IP address       HW type     Flags       HW address            Mask     Device\n"),
	PROC_TEXT("dev", dev_text),
	PROC_TEXT("if_inet6", if_inet6),
	PROC_TEXT("ipv6_route", ""),
	PROC_TEXT("netlink", "sk               Eth Pid        Groups   Rmem     Wmem     Dump  "
			     "Locks    Drops    Inode\n"),
	PROC_TEXT("packet", "sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n"),
	PROC_TEXT("protocols", ""),
	PROC_TEXT("raw", inet_header),
	PROC_TEXT("route", route_text),
	PROC_TEXT("sockstat", sockstat),
	INET("tcp", 0),
	INET("tcp6", 1),
	INET("udp", 2),
	INET("udp6", 3),
	PROC_FILE("unix", 0444, show_unix),
	{ 0 },
};
