/*
 * /proc/1: the sandbox's reaper of orphans (PID_REAPER). No task stands behind it, but ppid fields
 * name it, and pstree, ps and others want to look it up.
 */
#include "sentry/proc/internal.h"

static const struct proc_entry empty[] = { { 0 } };

static const char stat_line[] =
	"1 (init) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0 18446744073709551615 "
	"0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

static const char status_text[] =
	"Name:\tinit\nUmask:\t0022\nState:\tS "
	"(sleeping)\nTgid:\t1\nNgid:\t0\nPid:\t1\nPPid:\t0\nTracerPid:\t0\n"
	"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t\nNStgid:\t1\nNSpid:\t1\nNSpgid:"
	"\t1\nNSsid:\t1\n"
	"Threads:\t1\nSigQ:\t0/0\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n"
	"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n"
	"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
	"CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t0\n"
	"voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n";

#define REAPER_FILES                                                                               \
	PROC_TEXT("cgroup", "0::/\n"), PROC_TEXT("cmdline", ""), PROC_TEXT("comm", "init\n"),      \
		PROC_DIR("fd", empty), PROC_TEXT("maps", ""), PROC_TEXT("oom_score", "0\n"),       \
		PROC_TEXT("oom_score_adj", "0\n"), PROC_TEXT("smaps", ""),                         \
		PROC_TEXT("stat", stat_line), PROC_TEXT("statm", "0 0 0 0 0 0 0\n"),               \
		PROC_TEXT("status", status_text), PROC_TEXT("wchan", "0")

static const struct proc_entry task_entries[] = { REAPER_FILES, { 0 } };

static const struct proc_entry task_list[] = {
	PROC_DIR("1", task_entries),
	{ 0 },
};

static const struct proc_entry reaper_entries[] = {
	REAPER_FILES,
	PROC_DIR("task", task_list),
	{ 0 },
};

const struct proc_entry proc_reaper_entry = PROC_DIR("1", reaper_entries);
