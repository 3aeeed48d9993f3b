#include "platform/platform.h"
#include "base/host_mem.h"
#include "base/host_proc.h"
#include "base/host_spawn.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "base/tsc.h"
#include "platform/arch/x86_64/stub_image.h"
#include "platform/internal.h"
#include "platform/patch.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define HWCAP2_FSGSBASE_BIT 2
#define DEFAULT_MIN_ADDR 65536
#define SPIN_PROBE_ROUNDS 32
#define SPIN_PROBES 4
/* siginfo, ucontext, red zone and alignment around the extended state in a signal frame. */
#define FRAME_OVERHEAD 2048

bool platform_test_no_dispatch;

struct patcher *platform_patcher(struct platform *p)
{
	return p->patcher;
}

const char *platform_name(enum platform_kind kind)
{
	switch (kind) {
	case PLATFORM_SECCOMP: return "seccomp";
	case PLATFORM_PTRACE: return "ptrace";
	default: return "auto";
	}
}

int platform_kind_parse(const char *name, enum platform_kind *ret)
{
	for (enum platform_kind k = PLATFORM_AUTO; k <= PLATFORM_PTRACE; k++) {
		if (strcmp(name, platform_name(k)) == 0) {
			*ret = k;
			return 0;
		}
	}
	return -EINVAL;
}

static u64 min_addr(void)
{
	char text[32];
	u64 v = DEFAULT_MIN_ADDR;

	if (host_read_text("/proc/sys/vm/mmap_min_addr", text, sizeof(text)) > 0)
		v = strtoull(text, NULL, 10);
	return MAX(page_up_nofail(v), (u64)DEFAULT_MIN_ADDR);
}

/* A stub has no clock that is cheap: it counts its own loop, whose speed is the processor's. */
static void measure_spin(struct spin_limits *ret)
{
	u64 best = UINT64_MAX, began;

	/* The fastest of some: the host may take the CPU away in between. */
	for (int i = 0; i < SPIN_PROBES; i++) {
		began = tsc_now();
		for (int k = 0; k < SPIN_PROBE_ROUNDS; k++)
			__builtin_ia32_pause();
		best = MIN(best, tsc_now() - began);
	}
	ret->pause_tsc = (u32)MAX(best / SPIN_PROBE_ROUNDS, 1UL);
	spin_limits_adapt(ret, 0);
}

_Static_assert(CONFIG_XINIT + PLATFORM_XSTATE_MAX <= STUB_SLOT_SIZE,
	       "the processor reads all of it");

static void config_write(struct platform *p)
{
	struct stub_config *config = control_slot(&p->control, 0);
	static const int unblocked[] = {
		SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, STUB_INTERRUPT_SIGNAL
	};

	config->ptrace = p->kind == PLATFORM_PTRACE;
	config->fsgsbase = p->fsgsbase;
	config->sentry_pid = (u64)host_getpid();
	config->sigmask = ~0ULL;
	for (size_t i = 0; i < ARRAY_SIZE(unblocked); i++)
		config->sigmask &= ~(1ULL << (unblocked[i] - 1));
	config->dispatch = p->dispatch;
	config->patch = p->patch;
	config->xfeatures = p->xstate.features;
	platform_init_xstate((u8 *)config + CONFIG_XINIT, PLATFORM_XSTATE_MAX);
	filters_write(config, &p->stub);
}

static void platform_destroy(struct platform *p)
{
	pool_close(p);
	reaper_stop(p);
	zygote_stop(p);
	patcher_free(p->patcher);
	control_destroy(&p->control);
	mutex_destroy(&p->pool.lock);
	mutex_destroy(&p->lock);
	free(p);
}

void platform_host_features(enum platform_kind kind, bool *ret_fsgsbase, bool *ret_dispatch)
{
	*ret_fsgsbase = getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE_BIT;
	*ret_dispatch = kind == PLATFORM_SECCOMP && host_has_syscall_dispatch() &&
			!platform_test_no_dispatch;
}

/* Everything but the proof that guest code runs. */
static int platform_setup(enum platform_kind kind, const struct platform_config *config,
			  struct platform **ret, char *reason, size_t reason_size)
{
	struct host_cpus all;
	struct platform *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->kind = kind;
	p->ops = kind == PLATFORM_PTRACE ? ptrace_ops() : seccomp_ops();
	platform_host_features(kind, &p->fsgsbase, &p->dispatch);
	host_cpus(&all);
	p->cpus = host_cpu_count();
	p->spin = config->spin && p->cpus > 1;
	/* Trampolines are found by GS, which must be ours to set. */
	p->patch = config->patch && kind == PLATFORM_SECCOMP && p->fsgsbase;
	measure_spin(&p->spin_limits);
	if (p->spin && config->pairs)
		pairs_init(p);
	p->guest_min = min_addr();
	if (p->patch)
		p->guest_min = MAX(p->guest_min, (u64)STUB_LOW_ZONE + STUB_LOW_ZONE_SIZE);
	p->reaper_epoll = -1;
	memcpy(&p->stub, stub_image_blob, sizeof(p->stub));
	ASSERT(p->stub.magic == STUB_MAGIC);
	mutex_init(&p->lock, RANK_PLATFORM_GLOBAL, "platform");
	p->reuse = config->reuse;
	p->late = config->late && kind == PLATFORM_SECCOMP;
	pool_init(p);
	list_init(&p->spaces);
	err = xstate_probe(&p->xstate);
	if (err < 0) {
		snprintf(reason, reason_size, "signal frames have no XSAVE state");
		goto fail;
	}
	err = control_init(&p->control, p->xstate.extended_size + FRAME_OVERHEAD);
	if (err < 0) {
		snprintf(reason, reason_size, "no control memory: %s", strerror(-err));
		goto fail;
	}
	err = control_alloc(&p->control);
	ASSERT(err <= 0); /* the first slot is number 0 */
	if (err == 0 && p->patch)
		err = patcher_new(control_zone(&p->control, CONTROL_ZONE),
				  control_zone(&p->control, CONTROL_LOW_ZONE), p->stub.call_entry,
				  &p->patcher);
	if (err == 0) {
		config_write(p);
		err = zygote_start(p, config, reason, reason_size);
	}
	if (err == 0)
		vdso_find_functions(&p->vdso,
				    ((struct stub_config *)control_slot(&p->control, 0))->vdso);
	if (err < 0) {
		patcher_free(p->patcher);
		control_destroy(&p->control);
		goto fail;
	}
	*ret = p;
	return 0;
fail:
	mutex_destroy(&p->lock);
	free(p);
	return err;
}

/*
 * Proof: a context is made and stops at an interrupt and at an unmapped
 * instruction pointer with an exec fault.
 */
static int platform_prove(struct platform *p, char *reason, size_t reason_size)
{
	struct platform_as *as;
	struct platform_context *ctx;
	struct user_regs_struct regs = { .rip = p->guest_min, .rsp = p->guest_min };
	struct platform_stop stop;
	int ret;

	ret = platform_as_new(p, &as);
	if (ret < 0) {
		snprintf(reason, reason_size, "no stub process: %s", strerror(-ret));
		return ret;
	}
	ret = platform_context_new(as, &ctx);
	if (ret < 0) {
		snprintf(reason, reason_size, "no guest thread: %s", strerror(-ret));
		platform_as_put(as);
		return ret;
	}
	do
		platform_switch(ctx, &regs, &stop);
	while (stop.reason == PLATFORM_STOP_INTERRUPTED);
	if (stop.reason != PLATFORM_STOP_FAULT || stop.fault_addr != p->guest_min ||
	    !stop.access_exec) {
		snprintf(reason, reason_size,
			 "a guest thread stops for the wrong reason (%d, signal %d)", stop.reason,
			 stop.signo);
		ret = -EOPNOTSUPP;
	}
	platform_context_free(ctx);
	platform_as_put(as);
	return ret;
}

static int platform_try(enum platform_kind kind, const struct platform_config *config,
			struct platform **ret, char *reason, size_t reason_size)
{
	struct platform *p;
	int err;

	snprintf(reason, reason_size, "failed");
	err = platform_setup(kind, config, &p, reason, reason_size);
	if (err < 0)
		return err;
	err = platform_prove(p, reason, reason_size);
	if (err < 0) {
		platform_destroy(p);
		return err;
	}
	*ret = p;
	return 0;
}

int platform_new(const struct platform_config *config, struct platform **ret)
{
	static const enum platform_kind order[] = { PLATFORM_SECCOMP, PLATFORM_PTRACE };
	char reason[160], line[256];
	int err = -EINVAL;

	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		if (config->kind != PLATFORM_AUTO && config->kind != order[i])
			continue;
		err = platform_try(order[i], config, ret, reason, sizeof(reason));
		if (err == 0)
			return 0;
		snprintf(line, sizeof(line), "platform %s refused: %s%s", platform_name(order[i]),
			 reason, config->kind == PLATFORM_AUTO && i == 0 ? "; trying ptrace" : "");
		if (config->explain)
			config->explain(line);
		else
			log_warn("%s", line);
	}
	return err;
}

int platform_start(struct platform *p)
{
	return reaper_start(p);
}

void platform_free(struct platform *p)
{
	if (p)
		platform_destroy(p);
}

enum platform_kind platform_kind_of(const struct platform *p)
{
	return p->kind;
}

bool platform_contexts_bound(const struct platform *p)
{
	return p->kind == PLATFORM_PTRACE;
}

int platform_probe(enum platform_kind kind, char *reason, size_t reason_size)
{
	struct platform_config config = { .kind = kind };
	struct platform *p;
	int ret;

	if (kind == PLATFORM_AUTO)
		return -EINVAL;
	ret = platform_try(kind, &config, &p, reason, reason_size);
	if (ret == 0) {
		snprintf(reason, reason_size, "works");
		platform_destroy(p);
	}
	return ret;
}

void platform_guest_limits(const struct platform *p, u64 *ret_min, u64 *ret_max)
{
	*ret_min = p->guest_min;
	*ret_max = STUB_AREA;
}

void platform_get_vdso(const struct platform *p, struct platform_vdso *ret)
{
	*ret = p->vdso;
}

u64 platform_xstate_features(const struct platform *p)
{
	return p->xstate.features;
}

size_t platform_xstate_size(const struct platform *p)
{
	return p->xstate.size;
}

bool platform_cpus_to_spare(const struct platform *p)
{
	return p->spin && atomic_load_explicit(&p->active, memory_order_relaxed) * 2 <= p->cpus;
}
