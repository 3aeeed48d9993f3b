#include "sentry/sys/strace.h"

#include "base/host_file.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STRING_SHOWN 48

/* glibc's names; restart codes are not errno values of user space. */
const char *errno_name(int e)
{
	switch (e) {
	case ERESTARTSYS: return "ERESTARTSYS";
	case ERESTARTNOINTR: return "ERESTARTNOINTR";
	case ERESTARTNOHAND: return "ERESTARTNOHAND";
	case ERESTART_RESTARTBLOCK: return "ERESTART_RESTARTBLOCK";
	}
	return strerrorname_np(e);
}

const char *signal_name(int sig)
{
	static __thread char text[16];
	const char *abbrev = sig > 0 && sig < 32 ? sigabbrev_np(sig) : NULL;

	if (abbrev)
		snprintf(text, sizeof(text), "SIG%s", abbrev);
	else if (sig >= 32 && sig <= SIGNAL_COUNT)
		snprintf(text, sizeof(text), "SIGRT_%d", sig - 32);
	else
		return NULL;
	return text;
}

bool strace_wanted(struct kernel *k, u64 nr)
{
	const char *name = sys_name(nr);
	const char *p = k->strace_filter;
	size_t n;

	if (!k->strace)
		return false;
	if (!p || !*p)
		return true;
	if (!name)
		return false;
	n = strlen(name);
	for (; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, name, n) == 0 && (p[n] == 0 || p[n] == ','))
			return true;
	}
	return false;
}

static void __attribute__((format(printf, 2, 3))) add(struct strace_line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->len = MIN(l->len + (size_t)n, sizeof(l->text) - 1);
}

static void add_string(struct task *t, struct strace_line *l, u64 addr)
{
	char buf[STRING_SHOWN + 1];
	ssize_t n;

	if (!addr) {
		add(l, "NULL");
		return;
	}
	n = mm_copy_in_partial(t->mm, buf, ua(addr), sizeof(buf));
	if (n <= 0) {
		add(l, "%#llx", (unsigned long long)addr);
		return;
	}
	add(l, "\"");
	for (ssize_t i = 0; i < n && i < STRING_SHOWN && buf[i]; i++) {
		unsigned char c = (unsigned char)buf[i];

		if (c == '"' || c == '\\')
			add(l, "\\%c", c);
		else if (c == '\n')
			add(l, "\\n");
		else if (c < 32 || c > 126)
			add(l, "\\%o", c);
		else
			add(l, "%c", c);
	}
	add(l, "\"%s", n > STRING_SHOWN && !memchr(buf, 0, STRING_SHOWN) ? "..." : "");
}

static void add_timespec(struct task *t, struct strace_line *l, u64 addr)
{
	struct timespec ts;

	if (!addr)
		add(l, "NULL");
	else if (copy_in(t, &ts, ua(addr), sizeof(ts)) < 0)
		add(l, "%#llx", (unsigned long long)addr);
	else
		add(l, "{tv_sec=%lld, tv_nsec=%ld}", (long long)ts.tv_sec, ts.tv_nsec);
}

static void add_signal(struct strace_line *l, int sig)
{
	const char *name = signal_name(sig);

	if (name)
		add(l, "%s", name);
	else
		add(l, "%d", sig);
}

static void add_arg(struct task *t, struct strace_line *l, char kind, u64 v)
{
	switch (kind) {
	case 'd': add(l, "%d", (int)v); break;
	case 'u': add(l, "%u", (unsigned)v); break;
	case 'l': add(l, "%lld", (long long)v); break;
	case 'z': add(l, "%llu", (unsigned long long)v); break;
	case 'o': add(l, v ? "0%o" : "%o", (unsigned)v); break;
	case 'f':
		if ((int)v == AT_FDCWD)
			add(l, "AT_FDCWD");
		else
			add(l, "%d", (int)v);
		break;
	case 'S': add_signal(l, (int)v); break;
	case 's': add_string(t, l, v); break;
	case 't': add_timespec(t, l, v); break;
	case 'p':
		if (!v) {
			add(l, "NULL");
			break;
		}
		/* fall through */
	default: add(l, "%#llx", (unsigned long long)v);
	}
}

void strace_enter(struct task *t, u64 nr, const u64 a[6], struct strace_line *line)
{
	const struct sys_entry *e = nr < SYS_TABLE_SIZE ? &sys_table[nr] : NULL;
	const char *args = e && e->name ? e->args : "xxxxxx";

	line->len = 0;
	if (sys_name(nr))
		add(line, "%d %s(", t->tid, sys_name(nr));
	else
		add(line, "%d syscall_%llu(", t->tid, (unsigned long long)nr);
	for (int i = 0; i < 6 && args[i]; i++) {
		if (i)
			add(line, ", ");
		add_arg(t, line, args[i], a[i]);
	}
	add(line, ")");
}

void strace_leave(struct task *t, struct strace_line *line, s64 ret)
{
	const char *name = ret < 0 && ret >= -4095 ? errno_name((int)-ret) : NULL;
	/* The end of the line matters more than the end of the arguments. */
	const size_t room = 96;

	if (line->len > sizeof(line->text) - room)
		line->len = sizeof(line->text) - room;
	if (t->exiting)
		add(line, " = ?\n");
	else if (name && -ret >= ERESTARTSYS && -ret <= ERESTART_RESTARTBLOCK)
		add(line, " = ? %s (To be restarted if SA_RESTART is set)\n", name);
	else if (name)
		add(line, " = -1 %s (%s)\n", name, strerrordesc_np((int)-ret));
	else if (ret > 0xffffffffLL || ret < 0)
		add(line, " = %#llx\n", (unsigned long long)ret);
	else
		add(line, " = %lld\n", (long long)ret);
	host_writev(t->kernel->strace_fd, &(struct iovec){ line->text, line->len }, 1);
}
