/*
 * The results of a run in memory: runtimes x rows x rounds. The scheduler fills them in, and the
 * outputs (table, JSON, CSV, report, comparison) read them, also when Ctrl-C ended the run early.
 */
#ifndef BENCH_DRIVER_RESULTS_H
#define BENCH_DRIVER_RESULTS_H

#include "bench/driver/catalog.h"
#include "bench/driver/stats.h"
#include <stdint.h>
#include <time.h>

#define RUNTIMES_MAX 16
#define WHY_MAX 200

enum runtime_kind { RUNTIME_NATIVE, RUNTIME_SENTRY, RUNTIME_PEER };

struct runtime {
	enum runtime_kind kind;
	const char *name;   /* "native", a platform, a peer's name */
	const char *prefix; /* RUNTIME_PEER: shell words before the guest's command */
	char version[128];  /* "" when it did not tell */
	char why[WHY_MAX];  /* not empty: it does not work at all, and this is why */
};

/* One round's measurement; NAN where there is none. */
struct sample {
	double value;		  /* in the row's unit */
	double cpu_ns;		  /* host CPU time of all processes of the runtime, per operation */
	double growth;		  /* bytes of non-reclaimable memory more at the end of the phase */
	double guest_ns, host_ns; /* the phase by the guest's clock and by the host's */
};

struct cell {
	struct sample *samples; /* [results.rounds] */
	char why[WHY_MAX];	/* not empty: what failed or is missing */
	bool skipped;		/* the workload itself said that something is missing */
	bool clock_lies;	/* in some round the guest's clock and the host's disagreed */
};

/* One line of the header: "kernel", "6.1.0". */
struct fact {
	char name[24];
	char text[160];
};

#define FACTS_MAX 24

struct results {
	time_t started;
	double seconds; /* that the run took */
	bool interrupted;
	char *command; /* as the user typed it */
	struct fact facts[FACTS_MAX];
	int fact_count;
	char memory_method[200];	       /* how growth was measured, in words */
	struct runtime runtimes[RUNTIMES_MAX]; /* [0] is native */
	int runtime_count;
	const struct row **rows; /* asked for, in the catalog's order */
	int row_count;
	int rounds;	    /* asked for; all samples[] are that long */
	int rounds_done;    /* complete ones */
	struct cell *cells; /* [row_count][runtime_count] */
};

/* What the outputs show of a cell. */
struct summary {
	size_t count; /* of samples with a value */
	double median, min, max;
	struct ratio ratio; /* of values to native's, round by round */
	double cost; /* ratio of cost: ratio.value, or its inverse for ROW_HIGHER. > 1 is slower */
	double cpu_ns, cpu_ratio; /* median per operation, and its ratio to native */
	double growth;		  /* median, bytes */
};

/* Room for all cells; every sample NAN. Ends the program when there is no memory. */
void results_init(struct results *r, int rounds);
void results_free(struct results *r);
struct cell *results_cell(const struct results *r, int row, int runtime);
/* The values of a cell's rounds; the result is good until the next call with the same `which`. */
struct summary results_summary(const struct results *r, int row, int runtime);
/* Geometric mean of the costs of a suite's rows for a runtime; NAN when there are none. */
double results_geomean(const struct results *r, int suite, int runtime, int *ret_rows);
void results_fact(struct results *r, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Whether every asked-for row has a value from every runtime, and no clock lied. */
bool results_complete(const struct results *r);

/* Replaces what is not printable UTF-8: text of other programs, or cut off within a letter. */
void clean_text(char *text);

/* "1.23 ms" with three significant digits; "-" for NAN. Bytes scale to KiB, MiB. */
void format_value(char *buf, size_t size, double value, const char *unit);
void format_number(char *buf, size_t size, double value);
void format_ns(char *buf, size_t size, double ns);
void format_bytes(char *buf, size_t size, double bytes);

#endif
