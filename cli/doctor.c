/* `minisentry doctor`: each mechanism and each layer of protection: works, or why not. */
#include "cli/cli.h"
#ifdef MINISENTRY_HAVE_AUDIT
#include "cli/audit/collect.h"
#endif
#include "sentry/confine/confine.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int problems;

static void row(const char *name, bool ok, const char *text)
{
	printf("%-22s %-4s %s\n", name, ok ? "yes" : "no", text);
}

static void check_platform(enum platform_kind kind, const char *what)
{
	char reason[256] = "";
	int err = platform_probe(kind, reason, sizeof(reason));
	char name[32];

	snprintf(name, sizeof(name), "platform %s", platform_name(kind));
	row(name, err == 0, err == 0 ? what : reason);
	if (err < 0)
		problems++;
}

/* In a child: takes every confinement step that a run would take, and reports the layers. */
static void report_layers(void)
{
	static struct run_config config;
	struct confine_state s = { 0 };
	int status = 0;
	pid_t pid;

	config.caller_cwd = getcwd(NULL, 0);
	fflush(stdout);
	pid = confine_fork(false, &s);
	if (pid < 0) {
		row("fork", false, strerror(-pid));
		return;
	}
	if (pid > 0) {
		waitpid(pid, &status, 0);
		return;
	}
	int err;
	const char *why = s.ns_reason[0] ? s.ns_reason : "not granted together with the others";
	row("user namespace", s.user_ns || s.mount_ns,
	    s.user_ns	 ? "own ids only"
	    : s.mount_ns ? "not needed: the caller is privileged"
			 : why);
	row("mount namespace", s.mount_ns, s.mount_ns ? "" : why);
	row("PID namespace", s.pid_ns, s.pid_ns ? "" : why);
	err = confine_network(&s);
	row("network namespace", s.net_ns, s.net_ns ? "no host network" : strerror(-err));
	row("IPC namespace", s.ipc_ns, s.ipc_ns ? "" : why);
	int root = -1;
	if (confine_root_view(&config, &s) < 0)
		row("root view", false, s.root_view_reason);
	else if ((err = confine_leave_host_root()) < 0)
		row("root view", false, strerror(-err));
	else
		row("root view", true, "pivot_root into a read-only view of the system folders");
	/* What works on the view, if there is one: it has taken the place of the host's folders. */
	root = open("/", O_PATH | O_DIRECTORY);
	struct confine_path path = { root, false };
	if (confine_landlock(&path, 1, &s) < 0)
		row("Landlock", false, s.landlock_reason);
	else
		printf("%-22s yes  ABI %d\n", "Landlock", s.landlock_abi);
	err = confine_drop_caps(&s);
	row("no capabilities", err == 0, err == 0 ? "all dropped, no_new_privs" : strerror(-err));
	err = confine_load_filter(PLATFORM_PTRACE, &s);
	row("sentry seccomp filter", err == 0,
	    err == 0 ? "allowlist, kill on violation" : strerror(-err));
	fflush(stdout);
	_exit(0);
}

static void report_audit(void)
{
#ifdef MINISENTRY_HAVE_AUDIT
	char reason[256];
	bool bpf = audit_probe(reason, sizeof(reason)) == 0;

	row("audit (BPF)", bpf, bpf ? "raw system call tracepoints" : reason);
#else
	row("audit (BPF)", false, "left out of this build: libbpf, clang or bpftool was missing");
#endif
}

int cli_doctor(int argc, char **argv)
{
	if (argc > 1) {
		bool help = strcmp(argv[1], "--help") == 0;
		fputs("Usage: minisentry doctor\nReports what works on this machine; exit code 1 "
		      "when no platform does.\n",
		      help ? stdout : stderr);
		return help ? 0 : 125;
	}
	check_platform(PLATFORM_SECCOMP, "system calls trapped by SIGSYS; the fast one, default");
	check_platform(PLATFORM_PTRACE, "system calls trapped by PTRACE_SYSEMU");
	report_layers();
	report_audit();
	return problems >= 2 ? 1 : 0;
}
