#include "bench/driver/gnuplot.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NO_PROGRAM 127
#define EXIT_NO_START 126

enum stream { STREAM_SCRIPT, STREAM_PICTURE, STREAM_ERRORS, STREAM_COUNT };

static int write_all(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static int read_all(int fd, char **ret_data, size_t *ret_size)
{
	struct stat st;
	char *data;
	size_t size = 0;

	if (fstat(fd, &st) != 0)
		return -errno;
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return -ENOMEM;
	while (size < (size_t)st.st_size) {
		ssize_t n = pread(fd, data + size, (size_t)st.st_size - size, (off_t)size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		size += (size_t)n;
	}
	data[size] = '\0';
	*ret_data = data;
	*ret_size = size;
	return 0;
}

/* In the child. */
_Noreturn static void exec_gnuplot(const int fds[STREAM_COUNT])
{
	for (int i = 0; i < STREAM_COUNT; i++)
		if (dup2(fds[i], i) < 0)
			_exit(EXIT_NO_START);
	/* What the user's DISPLAY or GNUTERM say is no matter of ours: the script sets it all. */
	execlp("gnuplot", "gnuplot", "--default-settings", "-", (char *)NULL);
	_exit(errno == ENOENT ? EXIT_NO_PROGRAM : EXIT_NO_START);
}

static int run_child(const int fds[STREAM_COUNT], int *ret_status)
{
	pid_t pid = fork();

	if (pid == 0)
		exec_gnuplot(fds);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, ret_status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* What gnuplot said of its failure; the caret line that it draws under a column is left out. */
static void report_failure(const char *what, int status, int errors_fd)
{
	char *text = NULL, *line = NULL, *save = NULL, *last = NULL;
	size_t size;

	if (read_all(errors_fd, &text, &size) == 0)
		for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
			if (line[strspn(line, " \t^")] != '\0')
				last = line;
	if (WIFSIGNALED(status))
		fprintf(stderr, "bench: %s: gnuplot was ended by signal %d (%s)\n", what,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "bench: %s: gnuplot could not draw it: %s\n", what,
			last ? last + strspn(last, " \t") : "it does not say why");
	free(text);
}

int gnuplot_run(const char *what, const char *script, size_t script_size, char **ret_data,
		size_t *ret_size)
{
	/* Files in memory instead of pipes: neither side can block on the other. */
	int fds[STREAM_COUNT] = { -1, -1, -1 };
	int status = 0, err = 0;

	for (int i = 0; i < STREAM_COUNT && !err; i++) {
		fds[i] = memfd_create("gnuplot", MFD_CLOEXEC);
		/* Above the numbers that they take in the child, which dup2 closes. */
		if (fds[i] >= 0 && fds[i] < STREAM_COUNT) {
			int low = fds[i];

			fds[i] = fcntl(low, F_DUPFD_CLOEXEC, STREAM_COUNT);
			close(low);
		}
		if (fds[i] < 0)
			err = -errno;
	}
	if (!err)
		err = write_all(fds[STREAM_SCRIPT], script, script_size);
	if (!err && lseek(fds[STREAM_SCRIPT], 0, SEEK_SET) != 0)
		err = -errno;
	if (!err)
		err = run_child(fds, &status);
	if (err) {
		fprintf(stderr, "bench: %s: cannot run gnuplot: %s\n", what, strerror(-err));
	} else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_PROGRAM) {
		err = -ENOENT;
	} else if (status != 0) {
		report_failure(what, status, fds[STREAM_ERRORS]);
		err = -EIO;
	} else {
		err = read_all(fds[STREAM_PICTURE], ret_data, ret_size);
		if (err)
			fprintf(stderr, "bench: %s: cannot read what gnuplot drew: %s\n", what,
				strerror(-err));
	}
	for (int i = 0; i < STREAM_COUNT; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return err;
}

void gnuplot_string(FILE *script, const char *text)
{
	putc('\'', script);
	for (; *text; text++) {
		if (*text == '\'')
			fputs("''", script);
		else
			putc((unsigned char)*text < ' ' ? ' ' : *text, script);
	}
	putc('\'', script);
}
