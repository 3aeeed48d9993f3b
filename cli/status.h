/*
 * cli/status.h: the socket by which a running sandbox is found and asked.
 *
 * Each sandbox has one in a folder of its user's, named after its id, the
 * launcher's pid. It belongs to the launcher: the sentry, which guests attack, has
 * no socket and needs no call for one. Who connects gets the answer at once, lines
 * of "name value" (cli/instances.c prints them), and is hung up on; nothing that he
 * sends is read. Only the user and root are answered.
 *
 * The figures come from the sentry: a signal asks it, it writes one struct
 * kernel_stats to a pipe, which is believed in nothing but its numbers. While nobody
 * asks, neither side does anything.
 *
 *	status_init -> fork -> status_sentry in the child, status_launcher in the parent
 *	-> status_wait until the sentry is dead or has reported its end -> status_end
 */
#ifndef MINISENTRY_CLI_STATUS_H
#define MINISENTRY_CLI_STATUS_H

#include "sentry/kernel/config.h"
#include "sentry/kernel/stats.h"
#include <signal.h>
#include <sys/un.h>

/* Who waits for the sentry's answer; the others wait in the socket's queue. */
#define STATUS_CLIENTS 16

struct status_socket {
	const struct run_config *config;
	pid_t sentry;
	int pipe[2];   /* figures, from the sentry; -1 */
	int listen_fd; /* -1: none (yet) */
	int signal_fd;
	bool tried;	  /* to make the socket */
	bool writer_gone; /* of the pipe */
	bool ended;	  /* the sentry has reported its end, with `code` */
	int code;
	u64 started_ns;		/* CLOCK_MONOTONIC */
	u64 asked_ns, since_ns; /* the sentry: last time, and for the clients that wait now */
	struct sockaddr_un address;
	int client[STATUS_CLIENTS];
	int client_count;
	struct kernel_stats stats; /* the last that came */
	u64 stats_ns;
};

#define STATUS_END_MAGIC 0x646e652d78626e73UL
struct status_end_message {
	u64 magic;
	s64 code;
};

/* In the sentry, to the launcher's pipe: it has nothing left to do but to die. */
void status_report_end(int fd, int code);

void status_init(struct status_socket *c, struct run_config *config);
void status_sentry(struct status_socket *c);
void status_launcher(struct status_socket *c, pid_t sentry);
/*
 * sigwaitinfo, while it serves those who ask. The signals of set are blocked. A signal's number, -1
 * when interrupted, or STATUS_ENDED with the sandbox's exit code.
 */
#define STATUS_ENDED 0
int status_wait(struct status_socket *c, const sigset_t *set, siginfo_t *ret, int *ret_code);
void status_end(struct status_socket *c);

/*
 * The folders that may hold the user's sockets: i from 0 on, best first. False: no more, or it does
 * not exist and `make` could not make it, or is not the user's alone; *ret is "" in the latter
 * cases.
 */
#define STATUS_DIRS 3
void status_dir(int i, bool make, char *ret, size_t size);

/* The figures of struct kernel_stats by name, in the order in which they are shown. */
enum status_unit { STATUS_COUNT, STATUS_BYTES };
struct status_figure {
	const char *name, *label;
	enum status_unit unit;
	size_t offset;
};
extern const struct status_figure status_figures[];
extern const size_t status_figure_count;

#endif
