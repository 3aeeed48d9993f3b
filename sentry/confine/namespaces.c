#include "sentry/confine/confine.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A sentry in a user namespace sees the files of unmapped owners as this id. */
static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -EPERM;
}

/* The caller's own ids, and nothing else, are mapped one to one: needs no privilege. */
static int map_ids(pid_t child, u32 uid, u32 gid)
{
	char path[64], text[64];
	int ret;

	snprintf(path, sizeof(path), "/proc/%d/setgroups", child);
	ret = write_file(path, "deny");
	if (ret < 0 && ret != -ENOENT)
		return ret;
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	ret = write_file(path, text);
	if (ret < 0)
		return ret;
	snprintf(path, sizeof(path), "/proc/%d/gid_map", child);
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	return write_file(path, text);
}

static pid_t clone_with(unsigned long flags)
{
	return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
}

/*
 * One attempt. The child waits until its ids are mapped; when that fails it is
 * ended, and the attempt has failed.
 */
static pid_t try_flags(unsigned long flags)
{
	int go[2];
	char ok = 0;
	pid_t pid;
	u32 uid = geteuid(), gid = getegid();

	if (pipe2(go, O_CLOEXEC) < 0)
		return -errno;
	pid = clone_with(flags);
	if (pid == 0) {
		close(go[1]);
		if (read(go[0], &ok, 1) != 1)
			_exit(125);
		close(go[0]);
		return 0;
	}
	if (pid < 0) {
		int err = errno;
		close(go[0]);
		close(go[1]);
		return -err;
	}
	close(go[0]);
	int ret = flags & CLONE_NEWUSER ? map_ids(pid, uid, gid) : 0;
	if (ret == 0 && write(go[1], "x", 1) != 1)
		ret = -EPIPE;
	close(go[1]);
	if (ret < 0) {
		kill(pid, SIGKILL);
		return ret;
	}
	return pid;
}

static void note_flags(struct confine_state *s, unsigned long flags)
{
	s->user_ns = flags & CLONE_NEWUSER;
	s->mount_ns = flags & CLONE_NEWNS;
	s->pid_ns = flags & CLONE_NEWPID;
	s->ipc_ns = flags & CLONE_NEWIPC;
}

pid_t confine_fork(bool no_namespaces, struct confine_state *ret)
{
	const unsigned long all = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
	/* Best first: with privilege no user namespace is needed; without, one grants the rest. */
	const unsigned long tries[] = { all, all | CLONE_NEWUSER,
					CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, CLONE_NEWUSER };
	pid_t pid = -EPERM;

	if (no_namespaces) {
		snprintf(ret->ns_reason, sizeof(ret->ns_reason), "switched off");
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
			if (i == 0 && geteuid() != 0)
				continue;
			note_flags(ret, tries[i]);
			pid = try_flags(tries[i]);
			if (pid >= 0)
				return pid;
		}
		snprintf(ret->ns_reason, sizeof(ret->ns_reason), "clone(CLONE_NEWUSER|...): %s",
			 strerror(-pid));
	}
	note_flags(ret, 0);
	return try_flags(0);
}

int confine_network(struct confine_state *state)
{
	if (unshare(CLONE_NEWNET) < 0)
		return -errno;
	state->net_ns = true;
	return 0;
}
