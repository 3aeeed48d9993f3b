/* Debian's sqlite3 command, fed with SQL over its standard input. */
#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include "bench/guest/program.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define ROWS 20000
#define ROWS_PER_TRANSACTION 1000
#define QUERIES 300
#define REPETITIONS 3

/* 20 transactions, which sync a journal each, and an index. `quantity` is a permutation of 0..n-1.
 */
static void write_inserts(FILE *f)
{
	fputs("CREATE TABLE item (id INTEGER PRIMARY KEY, quantity INTEGER, name TEXT);\n", f);
	for (int i = 0; i < ROWS; i++) {
		if (i % ROWS_PER_TRANSACTION == 0)
			fputs("BEGIN;\n", f);
		fprintf(f, "INSERT INTO item VALUES (%d, %d, 'item number %d of the shelf');\n", i,
			(int)((uint64_t)i * 7919 % ROWS), i);
		if (i % ROWS_PER_TRANSACTION == ROWS_PER_TRANSACTION - 1)
			fputs("COMMIT;\n", f);
	}
	fputs("CREATE INDEX item_quantity ON item (quantity);\n", f);
	fprintf(f, "SELECT 'rows', count(*) FROM item WHERE quantity < %d;\n", ROWS);
}

/* Ranges over the index, point look-ups, scans with grouping and sorting. */
static void write_selects(FILE *f)
{
	for (int i = 0; i < QUERIES; i++) {
		int at = i * 61 % ROWS;

		fprintf(f,
			"SELECT sum(length(name)) FROM item WHERE quantity BETWEEN %d AND %d;\n"
			"SELECT name FROM item WHERE id = %d;\n",
			at, at + 100, at);
	}
	for (int i = 0; i < 5; i++)
		fprintf(f,
			"SELECT quantity %% 10, max(name) FROM item WHERE id > %d GROUP BY 1;\n"
			"SELECT id FROM item ORDER BY name DESC LIMIT 5;\n",
			i);
	fprintf(f, "SELECT 'rows', count(DISTINCT quantity) FROM item;\n");
}

static int write_script(const char *path, void (*write_sql)(FILE *f))
{
	FILE *f = fopen(path, "w");

	if (!f)
		return -1;
	write_sql(f);
	return (ferror(f) | fclose(f)) ? -1 : 0;
}

/* Runs a script over the database; its last line shall say that all rows are there. */
static int run_sql(const char *script, char *database)
{
	char *const argv[] = { "sqlite3", "-batch", "-bail", database, NULL };
	static char out[256 * KIB];
	int fd = open(script, O_RDONLY | O_CLOEXEC);
	int code = fd < 0 ? -1 : program_run(argv, fd, STDOUT_FILENO, out, sizeof(out));
	char expected[32];

	if (fd >= 0)
		close(fd);
	snprintf(expected, sizeof(expected), "rows|%d\n", ROWS);
	return code == 0 && strstr(out, expected) ? 0 : -1;
}

/* The median of three runs; inserts begin with no database each time. */
static void measure(const char *row, const char *script, char *database, bool insert)
{
	double samples[REPETITIONS];

	bench_begin(row);
	for (int i = 0; i < REPETITIONS; i++) {
		uint64_t start;

		if (insert && unlink(database)) {
			bench_fail(row, "cannot remove %s", database);
			return;
		}
		start = bench_now();
		if (run_sql(script, database)) {
			bench_fail(row, "sqlite3 gives other results");
			return;
		}
		samples[i] = (double)(bench_now() - start) / 1e6;
	}
	bench_end(row, bench_median(samples, REPETITIONS), REPETITIONS);
}

static void benchmark(const struct bench_row *row)
{
	char inserts[PATH_MAX], selects[PATH_MAX], database[PATH_MAX];
	bool insert = row->arg;
	struct scratch scratch;

	if (!program_found(row->name, "sqlite3", "sqlite3") ||
	    scratch_make(&scratch, row->name, "tmpfs"))
		return;
	strcpy(inserts, scratch_path(&scratch, "inserts.sql"));
	strcpy(selects, scratch_path(&scratch, "selects.sql"));
	strcpy(database, scratch_path(&scratch, "database"));
	if (write_script(inserts, write_inserts) || write_script(selects, write_selects) ||
	    run_sql(inserts, database) || run_sql(selects, database))
		bench_fail(row->name, "sqlite3 gives other results in the warm-up");
	else
		measure(row->name, insert ? inserts : selects, database, insert);
	scratch_remove(&scratch);
}

static const struct bench_row rows[] = {
	{ "sqlite_insert", benchmark, true },
	{ "sqlite_select", benchmark, false },
};
BENCH_GROUP(sqlite, rows);
