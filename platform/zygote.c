/*
 * The sentry's side of the zygote: starting it, asking it for stubs, and the
 * thread that learns of deaths.
 */
#include "base/host_mem.h"
#include "base/host_proc.h"
#include "base/host_spawn.h"
#include "base/host_sync.h"
#include "base/log.h"
#include "platform/arch/x86_64/stub_image.h"
#include "platform/internal.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define START_ATTEMPTS 16
#define REPLY_TIMEOUT_NS (10 * NSEC_PER_SEC)

/* [vvar*] and [vdso] of a process, from its maps, sorted. 0 or -errno. */
static int find_vdso(int pid, struct stub_boot *boot, struct platform_vdso *vdso)
{
	char path[64], *text, *line, *save = NULL;
	ssize_t n;

	memset(boot, 0, sizeof(*boot));
	memset(vdso, 0, sizeof(*vdso));
	text = malloc(65536);
	if (!text)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	n = host_read_text(path, text, 65536);
	if (n < 0) {
		free(text);
		return (int)n;
	}
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned long start, end;
		bool is_vdso = strstr(line, "[vdso]");

		if (!is_vdso && !strstr(line, "[vvar"))
			continue;
		if (sscanf(line, "%lx-%lx", &start, &end) != 2 || boot->count == BOOT_MAX_MAPS)
			break;
		boot->map[boot->count].start = boot->map[boot->count].to = start;
		boot->map[boot->count++].end = end;
		if (!vdso->start)
			vdso->start = start;
		vdso->end = end;
		if (is_vdso) {
			vdso->ehdr = start;
			vdso->vdso_end = end;
		}
	}
	free(text);
	return 0;
}

/* Plans the move of the vdso into STUB_AREA. */
static void plan_move(struct stub_boot *boot, struct platform_vdso *vdso)
{
	u64 shift = STUB_VDSO - vdso->start;

	if (boot->count == 0 || vdso->end - vdso->start > STUB_VDSO_MAX)
		return;
	for (u64 i = 0; i < boot->count; i++)
		boot->map[i].to += shift;
	vdso->start += shift;
	vdso->end += shift;
	vdso->vdso_end += shift;
	vdso->ehdr += shift;
}

static int zygote_spawn(struct platform *p, const struct platform_config *config)
{
	int fds[STUB_FD_END], sock[2], image, ret;

	image = host_image_memfd("stub", stub_image_zygote,
				 (size_t)(stub_image_zygote_end - stub_image_zygote));
	if (image < 0)
		return image;
	ret = host_socketpair(sock);
	if (ret < 0) {
		host_mem_close(image);
		return ret;
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = -1;
	fds[STUB_FD_SOCKET] = sock[1];
	fds[STUB_FD_CONTROL] = p->control.fd;
	ret = 0;
	for (int i = 0; i < config->file_count && ret >= 0; i++) {
		const struct memfile *f = config->files[i];

		fds[STUB_FD_FILES + i] = f->host_fd;
		ret = f->read_fd > 0 ? f->read_fd : host_mem_open_read_only(f->host_fd);
		fds[STUB_FD_FILES_READ + i] = ret;
	}
	if (ret >= 0)
		ret = host_spawn_image(image, fds, ARRAY_SIZE(fds));
	for (int i = 0; i < config->file_count; i++)
		if (fds[STUB_FD_FILES_READ + i] >= 0 && config->files[i]->read_fd <= 0)
			host_mem_close(fds[STUB_FD_FILES_READ + i]);
	host_mem_close(image);
	host_mem_close(sock[1]);
	if (ret < 0) {
		host_mem_close(sock[0]);
		return ret;
	}
	p->zygote_pid = ret;
	p->zygote_socket = sock[0];
	return 0;
}

static void zygote_kill(struct platform *p)
{
	host_kill(p->zygote_pid, SIGKILL);
	host_reap(p->zygote_pid);
	host_mem_close(p->zygote_socket);
	p->zygote_pid = 0;
}

/* One attempt. -EAGAIN: the vdso was in the way; -EPERM: it cannot be moved. */
static int zygote_attempt(struct platform *p, const struct platform_config *config, bool move,
			  const char **ret_what)
{
	u64 hello = 0;
	struct stub_boot boot;
	struct stub_reply reply = { 0 };
	struct platform_vdso vdso;
	int ret;

	*ret_what = "execute its stub from a memfd";
	ret = zygote_spawn(p, config);
	if (ret < 0)
		return ret;
	ret = host_recv_msg(p->zygote_socket, &hello, sizeof(hello), REPLY_TIMEOUT_NS);
	if (ret < 0 || hello != STUB_MAGIC) {
		ret = ret < 0 && ret != -EPIPE ? ret : -EACCES;
		goto fail;
	}
	*ret_what = "read /proc/PID/maps of its stub";
	ret = find_vdso(p->zygote_pid, &boot, &vdso);
	if (ret < 0)
		goto fail;
	ret = -EAGAIN;
	if (vdso.start < STUB_ZONE + STUB_ZONE_SIZE && vdso.end > STUB_AREA)
		goto fail;
	if (move)
		plan_move(&boot, &vdso);
	*ret_what = "set up its stub";
	ret = host_send_msg(p->zygote_socket, &hello, sizeof(hello), -1);
	if (ret == 0)
		ret = host_send_msg(p->zygote_socket, &boot, sizeof(boot), -1);
	if (ret == 0)
		ret = host_recv_msg(p->zygote_socket, &reply, sizeof(reply), REPLY_TIMEOUT_NS);
	if (ret == 0 && reply.result < 0)
		ret = move ? -EPERM : (int)reply.result;
	if (ret < 0)
		goto fail;
	p->vdso = vdso;
	return 0;
fail:
	zygote_kill(p);
	return ret;
}

int zygote_start(struct platform *p, const struct platform_config *config, char *reason,
		 size_t reason_size)
{
	const char *what = "start";
	bool move = true;
	int ret = -EAGAIN;

	for (int i = 0; i < START_ATTEMPTS && ret < 0; i++) {
		ret = zygote_attempt(p, config, move, &what);
		if (ret == -EPERM && move)
			move = false; /* sealed system mappings: they stay where they are */
		else if (ret < 0 && ret != -EAGAIN)
			break;
	}
	if (ret == -ECONNRESET || ret == -EPIPE) { /* it could not move, and ended */
		snprintf(reason, reason_size,
			 "the stub's addresses are not free here (minisentry within minisentry?)");
		return -EOPNOTSUPP;
	}
	if (ret < 0) {
		snprintf(reason, reason_size, "cannot %s: %s", what, strerror(-ret));
		return ret;
	}
	p->zygote_pidfd = host_pidfd_open(p->zygote_pid);
	if (p->zygote_pidfd < 0) {
		snprintf(reason, reason_size, "no pidfd_open: %s", strerror(-p->zygote_pidfd));
		ret = p->zygote_pidfd;
		zygote_kill(p);
		return ret;
	}
	return 0;
}

void zygote_stop(struct platform *p)
{
	if (p->zygote_pid <= 0)
		return;
	host_mem_close(p->zygote_pidfd);
	zygote_kill(p);
}

int zygote_fork(struct platform *p, u32 slot, int done_fd)
{
	struct stub_fork request = { .slot = slot };
	struct stub_reply reply = { 0 };
	int ret;

	MUTEX_GUARD(&p->lock);
	if (atomic_load(&p->zygote_dead))
		return -EAGAIN;
	ret = host_send_msg(p->zygote_socket, &request, sizeof(request), done_fd);
	if (ret == 0)
		ret = host_recv_msg(p->zygote_socket, &reply, sizeof(reply), REPLY_TIMEOUT_NS);
	if (ret < 0) {
		/* An answer may still come, for a question that nobody remembers. */
		if (!atomic_load(&p->ending))
			log_error("platform: the zygote does not answer: %s", strerror(-ret));
		atomic_store(&p->zygote_dead, true);
		host_kill(p->zygote_pid, SIGKILL);
		return -EAGAIN;
	}
	if (reply.result <= 0)
		return reply.result == -ENOMEM ? -ENOMEM : -EAGAIN;
	return (int)reply.result;
}

/* ---- the reaper: deaths nobody asked for ---- */

static struct platform_as *find_space(struct platform *p, u64 pid)
{
	struct platform_as *as;

	MUTEX_GUARD(&p->lock);
	list_for_each (as, &p->spaces, node) {
		if ((u64)as->pid != pid)
			continue;
		if (refs_tryget(&as->refs))
			return as;
		/* In the pool: whoever takes it looks. Or on its way out. */
		atomic_store(&as->dead, true);
		break;
	}
	return NULL;
}

static void *reaper_main(void *arg)
{
	struct platform *p = arg;
	struct platform_as *as;
	u64 pid;
	int n;

	for (;;) {
		n = host_epoll_wait_one(p->reaper_epoll, &pid);
		if (n == 0)
			continue;
		if (n < 0 || pid == 0)
			return NULL;
		if (pid == (u64)p->zygote_pid) {
			if (!atomic_load(&p->ending))
				log_error("platform: the zygote died; no new processes are "
					  "possible");
			atomic_store(&p->zygote_dead, true);
			continue;
		}
		as = find_space(p, pid);
		if (as) {
			as_note_death(as);
			platform_as_put(as);
		}
	}
}

static int watch(struct platform *p, struct platform_as *as)
{
	return host_epoll_add(p->reaper_epoll, as->pidfd, EPOLLIN | EPOLLONESHOT, (u64)as->pid);
}

/* Those from before the reaper. */
static int add_spaces(struct platform *p)
{
	struct platform_as *as;
	int ret;

	MUTEX_GUARD(&p->lock);
	list_for_each (as, &p->spaces, node) {
		ret = watch(p, as);
		if (ret < 0)
			return ret;
	}
	return 0;
}

int reaper_start(struct platform *p)
{
	sigset_t all, old;
	int ret;

	p->reaper_epoll = host_epoll_create();
	if (p->reaper_epoll < 0)
		return p->reaper_epoll;
	p->reaper_event = host_eventfd();
	if (p->reaper_event < 0) {
		ret = p->reaper_event;
		goto fail_epoll;
	}
	ret = host_epoll_add(p->reaper_epoll, p->reaper_event, EPOLLIN, 0);
	if (ret == 0)
		ret = host_epoll_add(p->reaper_epoll, p->zygote_pidfd, EPOLLIN | EPOLLONESHOT,
				     (u64)p->zygote_pid);
	if (ret == 0)
		ret = add_spaces(p);
	if (ret < 0)
		goto fail;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = -pthread_create(&p->reaper, NULL, reaper_main, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret < 0)
		goto fail;
	p->reaper_started = true;
	return 0;
fail:
	host_mem_close(p->reaper_event);
fail_epoll:
	host_mem_close(p->reaper_epoll);
	p->reaper_epoll = -1;
	return ret;
}

void reaper_stop(struct platform *p)
{
	if (!p->reaper_started)
		return;
	host_eventfd_write(p->reaper_event, 1);
	pthread_join(p->reaper, NULL);
	host_mem_close(p->reaper_event);
	host_mem_close(p->reaper_epoll);
	p->reaper_started = false;
}

int reaper_add(struct platform *p, struct platform_as *as)
{
	{
		MUTEX_GUARD(&p->lock);
		list_push_back(&p->spaces, &as->node);
	}
	if (!p->reaper_started)
		return 0;
	return watch(p, as);
}

void reaper_remove(struct platform *p, struct platform_as *as)
{
	{
		MUTEX_GUARD(&p->lock);
		list_del(&as->node);
	}
	if (p->reaper_started)
		host_epoll_del(p->reaper_epoll, as->pidfd);
}
