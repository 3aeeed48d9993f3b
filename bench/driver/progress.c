#include "bench/driver/progress.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 24
#define REDRAW_S 0.2

struct progress {
	bool quiet, terminal;
	int groups, runtimes, rounds, steps_done;
	int round, group, runtime; /* under way */
	char group_name[40], runtime_name[40], row[80];
	double step_began, drawn;
	/* Seconds that a step took last time; negative: not known yet. [groups * runtimes] */
	double *took;
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

struct progress *progress_new(bool quiet, int groups, int runtimes, int rounds)
{
	struct progress *p = calloc(1, sizeof(*p));

	if (!p || !(p->took = calloc((size_t)(groups * runtimes) + 1, sizeof(*p->took)))) {
		fputs("minisentry bench: out of memory\n", stderr);
		exit(125);
	}
	for (int i = 0; i < groups * runtimes; i++)
		p->took[i] = -1;
	p->quiet = quiet;
	p->terminal = isatty(STDERR_FILENO);
	p->groups = groups;
	p->runtimes = runtimes;
	p->rounds = rounds;
	return p;
}

/* Seconds of the steps of one round: a step not seen yet takes as long as those seen on average. */
static double round_seconds(const struct progress *p)
{
	double known = 0;
	int count = 0, all = p->groups * p->runtimes;

	for (int i = 0; i < all; i++)
		if (p->took[i] >= 0) {
			known += p->took[i];
			count++;
		}
	return count ? known / count * all : -1;
}

static double seconds_left(const struct progress *p)
{
	double round = round_seconds(p), each;
	int all = p->groups * p->runtimes * p->rounds;

	if (round < 0)
		return -1;
	each = round / (p->groups * p->runtimes);
	return each * (all - p->steps_done) - (now_s() - p->step_began);
}

static void format_left(char *buf, size_t size, double seconds)
{
	if (seconds < 0)
		snprintf(buf, size, "...");
	else if (seconds < 60)
		snprintf(buf, size, "%.0f s left", seconds);
	else
		snprintf(buf, size, "%.0f min left", seconds / 60 + 0.5);
}

static void draw(struct progress *p)
{
	int all = p->groups * p->runtimes * p->rounds;
	int filled = all ? BAR_WIDTH * p->steps_done / all : BAR_WIDTH;
	char bar[BAR_WIDTH + 1], left[32], line[256];
	struct winsize w = { .ws_col = 80 };

	memset(bar, '-', BAR_WIDTH);
	memset(bar, '#', (size_t)filled);
	bar[BAR_WIDTH] = '\0';
	format_left(left, sizeof(left), seconds_left(p));
	snprintf(line, sizeof(line), "[%s] round %d/%d, %s, %s: %s", bar, p->round + 1, p->rounds,
		 left, p->runtime_name, *p->row ? p->row : p->group_name);
	ioctl(STDERR_FILENO, TIOCGWINSZ, &w);
	if (w.ws_col > 1 && w.ws_col < sizeof(line))
		line[w.ws_col - 1] = '\0';
	fprintf(stderr, "\r%s\033[K", line);
	p->drawn = now_s();
}

void progress_step(struct progress *p, int round, int group, const char *group_name, int runtime,
		   const char *runtime_name)
{
	p->round = round;
	p->group = group;
	p->runtime = runtime;
	snprintf(p->group_name, sizeof(p->group_name), "%s", group_name);
	snprintf(p->runtime_name, sizeof(p->runtime_name), "%s", runtime_name);
	p->row[0] = '\0';
	p->step_began = now_s();
	if (!p->quiet && p->terminal)
		draw(p);
}

void progress_done(struct progress *p)
{
	double took = now_s() - p->step_began;

	p->took[p->group * p->runtimes + p->runtime] = took;
	p->steps_done++;
	if (!p->quiet && !p->terminal) {
		bool first = p->steps_done % p->runtimes == 1 || p->runtimes == 1;

		if (first)
			fprintf(stderr, "round %d/%d %s:", p->round + 1, p->rounds, p->group_name);
		fprintf(stderr, "%s %s %.1f s%s", first ? "" : ",", p->runtime_name, took,
			p->steps_done % p->runtimes == 0 ? "\n" : "");
	}
}

void progress_row(void *progress, const char *row)
{
	struct progress *p = progress;

	if (row)
		snprintf(p->row, sizeof(p->row), "%s", row);
	if (!p->quiet && p->terminal && now_s() - p->drawn > REDRAW_S)
		draw(p);
}

void progress_free(struct progress *p)
{
	if (!p->quiet && p->terminal)
		fputs("\r\033[K", stderr);
	else if (!p->quiet && p->steps_done % p->runtimes != 0)
		fputc('\n', stderr);
	free(p->took);
	free(p);
}
