#include "sentry/kernel/supervise.h"
#include "base/host_proc.h"
#include "base/log.h"
#include "sentry/kernel/stats.h"
#include "sentry/signal/signal.h"
#include "sentry/tty/host_tty.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* From the launcher: somebody asks for figures. Ignored by default, so it may come at any time. */
#define STATS_SIGNAL SIGURG
/* SIGUSR2 from a waitq callback to the main thread means: look at init. */
#define WAKE_SIGNAL SIGUSR2

static void forwarded_set(sigset_t *set)
{
	static const int signals[] = { SIGTERM, SIGINT,	 SIGHUP,  SIGQUIT,     SIGWINCH,
				       SIGUSR1, SIGCONT, SIGALRM, WAKE_SIGNAL, STATS_SIGNAL };

	sigemptyset(set);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaddset(set, signals[i]);
}

void supervise_block_signals(void)
{
	sigset_t set;

	forwarded_set(&set);
	sigaddset(&set, SIGPIPE);
	sigaddset(&set, SIGTTOU);
	sigaddset(&set, SIGTTIN);
	sigaddset(&set, SIGTSTP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void on_init_exit(struct waiter *w, u32 events)
{
	(void)events;
	/* Not pthread_kill: after confine_fork's bare clone, libc's idea of the main thread's id is
	 * the parent's. */
	host_tgkill(getpid(), *(int *)w->arg, WAKE_SIGNAL);
}

static void forward(struct kernel *k, struct host_tty *tty, int sig)
{
	siginfo_t si;

	if (sig == SIGWINCH && tty) {
		host_tty_resize(tty);
		return;
	}
	if (sig == SIGCONT && tty) {
		host_tty_resume(tty);
		return;
	}
	if (sig == STATS_SIGNAL) {
		kernel_stats_report(k);
		return;
	}
	if (sig == WAKE_SIGNAL || !k->init)
		return;
	siginfo_kernel(&si, sig, SI_USER);
	log_info("forwarding signal %d to the guest", sig);
	signal_send_group(k->init, &si);
}

int supervise(struct kernel *k, struct host_tty *tty)
{
	int self = gettid();
	struct waiter w = { .events = EPOLLIN, .fn = on_init_exit, .arg = &self };
	sigset_t set;
	siginfo_t info;

	forwarded_set(&set);
	waitq_add(&k->init_exit, &w);
	while (!atomic_load(&k->shutting_down)) {
		int sig = sigwaitinfo(&set, &info);
		if (sig > 0)
			forward(k, tty, sig);
	}
	waitq_remove(&w);
	return k->init_status;
}
