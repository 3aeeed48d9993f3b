#include "bench/guest/server.h"
#include "bench/guest/bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_NS (20 * 1000000000UL)

uint16_t server_free_port(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t length = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint16_t port = 0;

	if (fd < 0)
		return 0;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&addr, &length) == 0)
		port = ntohs(addr.sin_port);
	close(fd);
	return port;
}

static int connect_to(const struct server_options *options)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(options->port) };
	struct sockaddr *addr = options->socket_path ? (void *)&un : (void *)&in;
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (options->socket_path)
		snprintf(un.sun_path, sizeof(un.sun_path), "%s", options->socket_path);
	if (fd >= 0 && connect(fd, addr, options->socket_path ? sizeof(un) : sizeof(in))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Whether the server takes a connection and gives the expected answer. */
static bool answers(const struct server_options *options)
{
	size_t length = strlen(options->request), want = strlen(options->answer), got = 0;
	int fd = connect_to(options);
	char answer[64] = "";

	if (fd < 0)
		return false;
	if (send(fd, options->request, length, MSG_NOSIGNAL) == (ssize_t)length) {
		while (got < want) {
			struct pollfd p = { .fd = fd, .events = POLLIN };
			ssize_t n = poll(&p, 1, 5000) == 1 ? read(fd, answer + got, want - got) : 0;

			if (n <= 0)
				break;
			got += (size_t)n;
		}
	}
	close(fd);
	return got == want && memcmp(answer, options->answer, want) == 0;
}

/* Reports the last line that the server has written, which is most often why it gave up. */
static void report_output(const char *row, const char *program, int fd)
{
	char text[4096] = "";
	char *line;
	ssize_t n = read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	line = strrchr(text, '\n');
	errno = 0;
	bench_fail(row, "%s does not answer; it says: %s", program, line ? line + 1 : text);
}

int server_start(const char *row, struct server *server, const struct server_options *options)
{
	uint64_t begun = bench_now();
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[2];
	bool ended = false;

	if (null < 0 || pipe2(fds, O_CLOEXEC)) {
		bench_fail(row, "no pipe for %s", options->argv[0]);
		return -1;
	}
	server->pid = program_spawn(options->argv, null, fds[1], fds[1]);
	server->output = fds[0];
	close(fds[1]);
	close(null);
	if (server->pid < 0) {
		bench_fail(row, "cannot start %s", options->argv[0]);
		close(server->output);
		return -1;
	}
	/* Not readable yet, or already full of messages: only the hang-up at its end counts. */
	while (!ended && bench_now() - begun < ANSWER_TIMEOUT_NS) {
		struct pollfd p = { .fd = server->output };

		if (answers(options)) {
			errno = 0;
			return 0;
		}
		ended = poll(&p, 1, 1) == 1;
	}
	if (!ended)
		kill(server->pid, SIGTERM);
	program_wait(server->pid);
	report_output(row, options->argv[0], server->output);
	close(server->output);
	return -1;
}

void server_stop(struct server *server)
{
	kill(server->pid, SIGTERM);
	program_wait(server->pid);
	close(server->output);
}

/* ---- nginx ---- */

/* Debian's defaults where they matter (sendfile), in a folder of its own; one worker. */
static const char nginx_config[] = "%s"
				   "daemon off;\n"
				   "worker_processes 1;\n"
				   "pid %s/pid;\n"
				   "events { worker_connections 512; }\n"
				   "http {\n"
				   "	access_log off;\n"
				   "	sendfile on;\n"
				   "	tcp_nopush on;\n"
				   "	keepalive_requests 1000000000;\n"
				   "	client_body_temp_path %s/body;\n"
				   "	proxy_temp_path %s/proxy;\n"
				   "	fastcgi_temp_path %s/fastcgi;\n"
				   "	uwsgi_temp_path %s/uwsgi;\n"
				   "	scgi_temp_path %s/scgi;\n"
				   "	server { listen 127.0.0.1:%u; root %s; }\n"
				   "}\n";

static int __attribute__((format(printf, 2, 3))) write_file(const char *path, const char *fmt, ...)
{
	FILE *f = fopen(path, "w");
	va_list ap;

	if (!f)
		return -1;
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	return (ferror(f) | fclose(f)) ? -1 : 0;
}

int server_start_nginx(const char *row, const char *dir, uint16_t *ret_port, struct server *server)
{
	char index[PATH_MAX], config[PATH_MAX];
	char *const argv[] = { "nginx", "-e", "stderr", "-p", (char *)dir, "-c", config, NULL };
	uint16_t port = server_free_port();
	struct server_options options = { .argv = argv,
					  .port = port,
					  .request = "GET / HTTP/1.0\r\n\r\n",
					  .answer = "HTTP/1.1 200" };
	/* Its worker would be nobody, who may not read a folder of root's. */
	const char *user = geteuid() == 0 ? "user root;\n" : "";

	snprintf(index, sizeof(index), "%s/index.html", dir);
	snprintf(config, sizeof(config), "%s/nginx.conf", dir);
	if (!port || write_file(index, "nginx is up\n") ||
	    write_file(config, nginx_config, user, dir, dir, dir, dir, dir, dir, port, dir)) {
		bench_fail(row, "cannot configure nginx in %s", dir);
		return -1;
	}
	*ret_port = port;
	return server_start(row, server, &options);
}
