#include "bench/guest/groups.h"
#include "bench/guest/program.h"

#define REPETITIONS 3

/* Fills 64 MiB, so that every page is there when it forks; each child writes to one. */
#define PYTHON_FORKS                                                                               \
	"import os\n"                                                                              \
	"heap = bytearray(b'x') * (64 << 20)\n"                                                    \
	"for i in range(20):\n"                                                                    \
	"    pid = os.fork()\n"                                                                    \
	"    if pid == 0:\n"                                                                       \
	"        heap[i * 4096] = 1\n"                                                             \
	"        os._exit(0)\n"                                                                    \
	"    assert os.waitpid(pid, 0)[1] == 0\n"

static const struct program {
	char *argv[4];
	const char *package;
} programs[] = {
	{ { "bash", "-c", "for i in {1..100}; do ( : ) || exit 1; done; exit 0" }, "bash" },
	{ { "bash", "-c", "for i in {1..100}; do /bin/true || exit 1; done; exit 0" }, "bash" },
	{ { "/usr/bin/python3", "-c", "pass" }, "python3" },
	{ { "/usr/bin/python3", "-c",
	    "import subprocess\nfor i in range(20): subprocess.run(['/bin/true'], check=True)" },
	  "python3" },
	{ { "/usr/bin/python3", "-c", PYTHON_FORKS }, "python3" },
	{ { "node", "-e", "0" }, "nodejs" },
	{ { "ruby", "-e", "nil" }, "ruby" },
};

/* The median of three runs, from spawning the program until it is reaped. */
static void time_program(const struct bench_row *row)
{
	const struct program *program = &programs[row->arg];
	uint64_t ops;
	double ms;

	if (!program_found(row->name, program->argv[0], program->package))
		return;
	ms = program_time(row->name, program->argv, REPETITIONS, &ops);
	if (ms >= 0)
		bench_end(row->name, ms, ops);
}

static const struct bench_row rows[] = {
	{ "bash_100_subshells", time_program, 0 },
	{ "bash_100_true", time_program, 1 },
	{ "python3_pass", time_program, 2 },
	{ "python3_20_subprocess", time_program, 3 },
	{ "python3_20_forks_64M", time_program, 4 },
	{ "node_e0", time_program, 5 },
	{ "ruby_noop", time_program, 6 },
};
BENCH_GROUP(programs, rows);
