/* Processor time and identity: /proc/{stat,loadavg,cpuinfo}. */
#include "sentry/proc/internal.h"
#include <cpuid.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPUINFO_MAX (1UL << 20)

static int cpuinfo_fd = -1;	/* set once at boot */
static _Atomic(char *) cpuinfo; /* set once, never freed */

void procfs_set_host_cpuinfo(int fd)
{
	cpuinfo_fd = fd;
}

static const char *host_cpuinfo(void)
{
	char *text = atomic_load(&cpuinfo), *expected = NULL;
	size_t len = 0;
	ssize_t n;

	if (text || cpuinfo_fd < 0)
		return text;
	text = malloc(CPUINFO_MAX);
	if (!text)
		return NULL;
	while (len < CPUINFO_MAX - 1 &&
	       (n = pread(cpuinfo_fd, text + len, CPUINFO_MAX - 1 - len, (off_t)len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	if (atomic_compare_exchange_strong(&cpuinfo, &expected, text))
		return text;
	free(text);
	return expected;
}

/* ---- time ---- */

struct totals {
	u64 user, system;
	int tasks, running, last_pid;
};

static void add_group(struct kernel *k, struct thread_group *tg, struct totals *sum)
{
	struct task *t;
	u64 user, system;

	thread_group_cpu_times(tg, &user, &system);
	sum->user += user;
	sum->system += system;
	mutex_lock(&k->tasklist_lock);
	/* children that were waited for; their own children are in theirs */
	sum->user += tg->child_utime_ns;
	sum->system += tg->child_stime_ns;
	list_for_each (t, &tg->tasks, group_node) {
		enum task_state state = atomic_load(&t->state);

		sum->tasks += state < TASK_ZOMBIE;
		sum->running += state <= TASK_RUNNING;
		sum->last_pid = MAX(sum->last_pid, t->tid);
	}
	mutex_unlock(&k->tasklist_lock);
}

static void add_all(struct kernel *k, struct totals *sum)
{
	*sum = (struct totals){ 0 };
	for (int pid = thread_group_next(k, 0); pid; pid = thread_group_next(k, pid)) {
		struct thread_group *tg = thread_group_find(k, pid);

		if (!tg)
			continue;
		add_group(k, tg, sum);
		thread_group_put(tg);
	}
}

/* What nobody waited for is lost from the sum, so the highest value seen counts. */
static void never_less(const struct proc_ctx *c, struct totals *sum)
{
	struct proc_sb *p = proc_sb_of(c);

	MUTEX_GUARD(&p->lock);
	sum->user = p->seen_user_ns = MAX(p->seen_user_ns, sum->user);
	sum->system = p->seen_system_ns = MAX(p->seen_system_ns, sum->system);
}

void proc_total_cpu(const struct proc_ctx *c, u64 *ret_user_ns, u64 *ret_system_ns)
{
	struct totals sum;

	add_all(c->kernel, &sum);
	never_less(c, &sum);
	*ret_user_ns = sum.user;
	*ret_system_ns = sum.system;
}

int proc_show_system_stat(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct kernel *k = c->kernel;
	u64 n = (u64)k->cpu_count, up = proc_uptime_ns(k);
	struct totals sum;
	u64 idle;

	add_all(k, &sum);
	never_less(c, &sum);
	idle = up * n > sum.user + sum.system ? up * n - sum.user - sum.system : 0;
	textbuf_printf(out, "cpu  %lu 0 %lu %lu 0 0 0 0 0 0\n", sum.user / NS_PER_TICK,
		       sum.system / NS_PER_TICK, idle / NS_PER_TICK);
	for (int i = 0; i < proc_cpu_bits(k); i++) {
		/* which processor a guest thread ran on is not kept: an equal share each */
		if (proc_cpu_present(k, i))
			textbuf_printf(out, "cpu%d %lu 0 %lu %lu 0 0 0 0 0 0\n", i,
				       sum.user / n / NS_PER_TICK, sum.system / n / NS_PER_TICK,
				       idle / n / NS_PER_TICK);
	}
	textbuf_printf(
		out,
		"intr %lu\nctxt %lu\nbtime %lu\nprocesses %lu\nprocs_running %d\nprocs_blocked 0\n",
		atomic_load(&k->interrupts), atomic_load(&k->context_switches),
		(clock_realtime_ns() - up) / 1000000000, atomic_load(&k->forks),
		MAX(sum.running, 1));
	textbuf_printf(out, "softirq 0 0 0 0 0 0 0 0 0 0 0\n");
	return 0;
}

/* e^-x for x >= 0. */
static double decay(double x)
{
	double y = 1 - x / 1024;

	if (x > 512)
		return 0;
	for (int i = 0; i < 10; i++)
		y *= y;
	return y;
}

/*
 * Linux samples the number of running tasks every five seconds. Here nobody samples: the average
 * number since the last reading follows from the processor time used.
 */
int proc_show_loadavg(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	static const double period_s[3] = { 60, 300, 900 };
	struct proc_sb *p = proc_sb_of(c);
	struct totals sum;
	double load[3], seconds, rate;
	u64 now = proc_uptime_ns(c->kernel), cpu;

	add_all(c->kernel, &sum);
	never_less(c, &sum);
	cpu = sum.user + sum.system;
	mutex_lock(&p->lock);
	if (now > p->load_time_ns + 100000000) {
		seconds = (double)(now - p->load_time_ns) / 1e9;
		rate = (double)(cpu - MIN(p->load_cpu_ns, cpu)) / 1e9 / seconds;
		for (int i = 0; i < 3; i++) {
			double keep = decay(seconds / period_s[i]);

			p->load[i] = p->load[i] * keep + rate * (1 - keep);
		}
		p->load_time_ns = now;
		p->load_cpu_ns = cpu;
	}
	memcpy(load, p->load, sizeof(load));
	mutex_unlock(&p->lock);
	textbuf_printf(out, "%.2f %.2f %.2f %d/%d %d\n", load[0], load[1], load[2],
		       MAX(sum.running, 1), sum.tasks, sum.last_pid);
	return 0;
}

/* ---- identity ---- */

static void put_brand(struct textbuf *out)
{
	u32 r[12];

	for (u32 i = 0; i < 3; i++) {
		if (!__get_cpuid(0x80000002 + i, &r[i * 4], &r[i * 4 + 1], &r[i * 4 + 2],
				 &r[i * 4 + 3])) {
			textbuf_printf(out, "unknown");
			return;
		}
	}
	textbuf_write(out, r, strnlen((char *)r, sizeof(r)));
}

/* Without a text from the host: what cpuid tells. */
static void put_minimal(struct textbuf *out, int cpu)
{
	u32 a = 0, b = 0, c = 0, d = 0, family, model;
	char vendor[13] = "";

	__get_cpuid(0, &a, &b, &c, &d);
	memcpy(vendor, &b, 4);
	memcpy(vendor + 4, &d, 4);
	memcpy(vendor + 8, &c, 4);
	__get_cpuid(1, &a, &b, &c, &d);
	family = (a >> 8 & 15) == 15 ? 15 + (a >> 20 & 255) : a >> 8 & 15;
	model = (a >> 4 & 15) | (a >> 16 & 15) << 4;
	textbuf_printf(
		out,
		"processor\t: %d\nvendor_id\t: %s\ncpu family\t: %u\nmodel\t\t: %u\nmodel name\t: ",
		cpu, vendor, family, model);
	put_brand(out);
	textbuf_printf(out,
		       "\nstepping\t: %u\nphysical id\t: 0\nsiblings\t: 1\ncore id\t\t: %d\n"
		       "cpu cores\t: 1\nfpu\t\t: yes\nfpu_exception\t: yes\n"
		       "flags\t\t: fpu tsc cx8 cmov mmx fxsr sse sse2 syscall nx lm\n\n",
		       a & 15, cpu);
}

/* Copies the paragraph of a processor that the guest has. */
static void put_paragraph(const struct proc_ctx *c, struct textbuf *out, const char *at, size_t len)
{
	static const char key[] = "processor\t: ";

	if (len > sizeof(key) && !memcmp(at, key, sizeof(key) - 1) &&
	    proc_cpu_present(c->kernel, atoi(at + sizeof(key) - 1)))
		textbuf_write(out, at, len);
}

int proc_show_cpuinfo(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	const char *at = host_cpuinfo();

	while (at && *at) {
		const char *end = strstr(at, "\n\n");
		size_t len = end ? (size_t)(end + 2 - at) : strlen(at);

		put_paragraph(c, out, at, len);
		at += len;
	}
	if (out->len)
		return 0;
	for (int i = 0; i < proc_cpu_bits(c->kernel); i++) {
		if (proc_cpu_present(c->kernel, i))
			put_minimal(out, i);
	}
	return 0;
}
