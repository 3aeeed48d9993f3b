#include "cli/audit/collect.h"
#include "audit.skel.h"
#include "platform/stub_calls.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
	struct audit_bpf *bpf; /* immutable between start and stop */
	u64 start_ns;
	char warning[160]; /* libbpf's last; start and probe only */
} collect;

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

/* libbpf says much; its first warning is kept as the reason. */
__attribute__((format(printf, 2, 0))) static int keep_warning(enum libbpf_print_level level,
							      const char *fmt, va_list ap)
{
	if (level != LIBBPF_WARN || collect.warning[0])
		return 0;
	vsnprintf(collect.warning, sizeof(collect.warning), fmt, ap);
	collect.warning[strcspn(collect.warning, "\n")] = '\0';
	return 0;
}

static bool has_cap(cap_t caps, cap_value_t cap)
{
	cap_flag_value_t on = CAP_CLEAR;

	return cap_get_flag(caps, cap, CAP_EFFECTIVE, &on) == 0 && on == CAP_SET;
}

static bool permitted(void)
{
	cap_t caps = cap_get_proc();
	bool ok = caps && (has_cap(caps, CAP_SYS_ADMIN) ||
			   (has_cap(caps, CAP_BPF) && has_cap(caps, CAP_PERFMON)));

	cap_free(caps);
	return ok;
}

static int load(char *reason, size_t reason_size)
{
	struct stub_sections s;
	int err;

	if (!permitted()) {
		snprintf(reason, reason_size, "needs root, or CAP_BPF and CAP_PERFMON");
		return -EPERM;
	}
	collect.warning[0] = '\0';
	libbpf_set_print(keep_warning);
	collect.bpf = audit_bpf__open();
	if (!collect.bpf) {
		err = -ENOMEM; /* it reads what is linked in: nothing else can fail */
		goto fail;
	}
	platform_stub_sections(&s);
	collect.bpf->rodata->stub_text = s.text;
	collect.bpf->rodata->stub_end = s.end;
	collect.bpf->rodata->mapper_start = s.mapper_start;
	collect.bpf->rodata->mapper_end = s.mapper_end;
	collect.bpf->rodata->guest_start = s.guest_start;
	collect.bpf->rodata->guest_end = s.guest_end;
	err = audit_bpf__load(collect.bpf);
	if (err == 0)
		return 0;
fail:
	snprintf(reason, reason_size, "cannot load the BPF programs: %s%s%s", strerror(-err),
		 collect.warning[0] ? ": " : "", collect.warning);
	audit_collect_stop();
	return err;
}

int audit_probe(char *reason, size_t reason_size)
{
	int err = load(reason, reason_size);

	audit_collect_stop();
	return err;
}

/* The first of the followed threads; the programs add those that it creates. */
static int follow(pid_t sentry)
{
	struct audit_thread first = {
		.role = AUDIT_SENTRY_START,
		/* It sleeps in a read(2) whose entry nobody saw. */
		.call_state = AUDIT_BORN,
	};
	int pidfd = (int)syscall(SYS_pidfd_open, sentry, 0), err;

	if (pidfd < 0)
		return -errno;
	err = bpf_map_update_elem(bpf_map__fd(collect.bpf->maps.followed), &pidfd, &first, BPF_ANY);
	close(pidfd);
	return err;
}

int audit_collect_start(pid_t sentry, char *reason, size_t reason_size)
{
	int err = load(reason, reason_size);

	if (err)
		return err;
	err = follow(sentry);
	if (err == 0)
		err = audit_bpf__attach(collect.bpf);
	if (err < 0) {
		snprintf(reason, reason_size, "cannot attach the BPF programs: %s%s%s",
			 strerror(-err), collect.warning[0] ? ": " : "", collect.warning);
		audit_collect_stop();
		return err;
	}
	collect.start_ns = now_ns();
	return 0;
}

int audit_collect_read(struct audit_snapshot *ret)
{
	int stats = bpf_map__fd(collect.bpf->maps.stats),
	    roles = bpf_map__fd(collect.bpf->maps.roles);
	int err = 0;

	for (u32 role = 0; err == 0 && role < AUDIT_ROLES; role++) {
		err = bpf_map_lookup_elem(roles, &role, &ret->roles[role]);
		for (u32 nr = 0; err == 0 && nr < AUDIT_NRS; nr++) {
			u32 key = role * AUDIT_NRS + nr;

			err = bpf_map_lookup_elem(stats, &key, &ret->stats[role][nr]);
		}
	}
	ret->lost = collect.bpf->bss->lost;
	ret->sentry_killed = collect.bpf->bss->sentry_killed;
	ret->elapsed_ns = now_ns() - collect.start_ns;
	return err;
}

void audit_collect_stop(void)
{
	audit_bpf__destroy(collect.bpf);
	collect.bpf = NULL;
}
