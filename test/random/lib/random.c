#include "test/random/lib/random.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Atomic bool *random_stop;
bool random_in_sandbox;
static const char *program;

static _Noreturn void usage(void)
{
	fprintf(stderr, "Usage: %s [--seed N] [--ops N] [--processes N] [--dir DIR]\n", program);
	exit(2);
}

void random_options(int argc, char **argv, const char *name, struct random_options *ret_options)
{
	program = name;
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			usage();
		if (!strcmp(argv[i], "--seed"))
			ret_options->seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--ops"))
			ret_options->ops = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--processes"))
			ret_options->processes = (unsigned)atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--dir"))
			ret_options->dir = argv[i + 1];
		else
			usage();
	}
	random_in_sandbox = getenv("MINISENTRY_CONF") != NULL;
	random_stop = random_shared(PAGE);
	*random_stop = false; /* it is there: what is compared with the beginning includes it */
}

void random_seed(struct random_stream *r, uint64_t seed, unsigned process)
{
	*r = (struct random_stream){ .state = seed, .seed = seed, .process = process };
	random_below(r, 1);
}

/* splitmix64 */
uint64_t random_below(struct random_stream *r, uint64_t n)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (z ^ (z >> 31)) % n;
}

_Noreturn void random_fail(const struct random_stream *r, const char *fmt, ...)
{
	int err = errno;
	char text[600];
	va_list ap;
	int n;

	*random_stop = true;
	n = snprintf(text, sizeof(text),
		     "not ok %s: seed %#llx, process %u, operation %llu (%s), errno %d: ", program,
		     (unsigned long long)r->seed, r->process, (unsigned long long)r->op,
		     r->doing ? r->doing : "-", err);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	strcat(text, "\n");
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		perror(program);
	_exit(1);
}

uint64_t random_meminfo(const char *key)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char name[64];
	unsigned long long kb, found = 0;

	while (f && fscanf(f, "%63[^:]: %llu kB\n", name, &kb) == 2) {
		if (!strcmp(name, key))
			found = kb;
	}
	if (f)
		fclose(f);
	return found;
}

void *random_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return p;
}
