#include "bench/driver/report.h"
#include "bench/driver/html.h"
#include "bench/driver/plot.h"
#include "bench/driver/report_table.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_SIZE 4096

enum { PLOT_LOOKS = 2 }; /* light and dark */

struct picture {
	struct plot plot;
	char *svg[PLOT_LOOKS]; /* NULL: not drawn */
};

struct report {
	const struct results *r;
	struct picture pictures[PLOTS_MAX];
	size_t picture_count;
	bool no_gnuplot, failed;
};

/* ---- the pictures ---- */

static void draw_picture(struct report *report, struct picture *picture, const char *dir)
{
	int err = 0;

	for (int look = 0; look < PLOT_LOOKS && !err; look++)
		err = plot_svg(report->r, &picture->plot, (enum plot_look)look,
			       &picture->svg[look]);
	if (!err)
		err = plot_png(report->r, &picture->plot, dir);
	report->no_gnuplot |= err == -ENOENT;
	report->failed |= err != 0;
}

static void draw_pictures(struct report *report, const char *dir)
{
	struct plot plots[PLOTS_MAX];

	report->picture_count = plot_list(report->r, plots);
	for (size_t i = 0; i < report->picture_count && !report->no_gnuplot; i++) {
		report->pictures[i].plot = plots[i];
		draw_picture(report, &report->pictures[i], dir);
	}
	if (report->no_gnuplot)
		fprintf(stderr,
			"bench: the report has no plots: gnuplot is not installed; try: apt-get "
			"install gnuplot-nox\n");
}

static void put_picture(FILE *out, const struct picture *picture)
{
	const struct plot *plot = &picture->plot;

	if (!picture->svg[PLOT_LIGHT] || !picture->svg[PLOT_DARK])
		return;
	fputs("<figure>\n<figcaption><b>", out);
	html_text(out, plot->title);
	fputs("</b><br><span class=\"muted\">", out);
	html_text(out, plot->caption);
	fprintf(out,
		"</span> <a href=\"%s.png\">PNG</a></figcaption>\n<div class=\"scroll\">\n%s\n%s\n"
		"</div>\n</figure>\n",
		plot->name, picture->svg[PLOT_LIGHT], picture->svg[PLOT_DARK]);
}

/* ---- the head of the page ---- */

static void put_fact(FILE *out, const char *name, const char *text)
{
	fputs("<dt>", out);
	html_text(out, name);
	fputs("</dt><dd>", out);
	html_text(out, text);
	fputs("</dd>\n", out);
}

static void put_facts(FILE *out, const struct results *r)
{
	char text[100];

	fputs("<dl>\n", out);
	snprintf(text, sizeof(text), "%d of %d, in %.0f min %02.0f s", r->rounds_done, r->rounds,
		 floor(r->seconds / 60), floor(fmod(r->seconds, 60)));
	put_fact(out, "rounds", text);
	for (int i = 0; i < r->fact_count; i++)
		put_fact(out, r->facts[i].name, r->facts[i].text);
	put_fact(out, "memory growth by", r->memory_method[0] ? r->memory_method : "not measured");
	fputs("</dl>\n", out);
}

static void put_runtimes(FILE *out, const struct results *r)
{
	fputs("<dl>\n", out);
	for (int k = 0; k < r->runtime_count; k++) {
		const struct runtime *runtime = &r->runtimes[k];

		fputs("<dt style=\"color:inherit\">", out);
		report_runtime(out, r, k);
		fputs("</dt><dd>", out);
		html_text(out, runtime->version);
		if (runtime->kind == RUNTIME_PEER && runtime->prefix) {
			fputs(" <code>", out);
			html_text(out, runtime->prefix);
			fputs("</code>", out);
		}
		if (runtime->why[0]) {
			fputs(" <b style=\"color:var(--bad)\">left out, it does not work here: ",
			      out);
			html_text(out, runtime->why);
			fputs("</b>", out);
		}
		fputs("</dd>\n", out);
	}
	fputs("</dl>\n", out);
}

/* Every cell with a lying clock by name, as its time and all that follows from it are wrong. */
static void put_lies(FILE *out, const struct results *r)
{
	int count = 0;

	for (int i = 0; i < r->row_count; i++) {
		for (int k = 0; k < r->runtime_count; k++) {
			char clocks[100];

			if (r->runtimes[k].why[0] || !results_cell(r, i, k)->clock_lies)
				continue;
			if (count++ == 0)
				fputs("<div class=\"bad box\" role=\"alert\"><p><b>\u26a0 A "
				      "guest's clock "
				      "disagrees with the host's.</b> The times of these cells are "
				      "wrong, and so are the means of their suites:</p>\n<ul>\n",
				      out);
			report_clocks(clocks, sizeof(clocks), r, i, k);
			fprintf(out, "<li><a href=\"#row-%d\">", i);
			html_text(out, r->rows[i]->name);
			fputs("</a> in ", out);
			html_text(out, r->runtimes[k].name);
			fprintf(out, ": %s</li>\n", clocks);
		}
	}
	if (count > 0)
		fputs("</ul></div>\n", out);
}

static void put_gaps(FILE *out, const struct results *r)
{
	int failed = 0, skipped = 0;

	if (r->interrupted)
		fprintf(out,
			"<div class=\"warn box\"><p><b>The run was interrupted</b> after %d of %d "
			"rounds: what is here is from these.</p></div>\n",
			r->rounds_done, r->rounds);
	for (int i = 0; i < r->row_count; i++) {
		for (int k = 0; k < r->runtime_count; k++) {
			const struct cell *cell = results_cell(r, i, k);

			if (r->runtimes[k].why[0]) /* it says so itself, once */
				continue;
			failed += cell->why[0] != '\0' && !cell->skipped;
			skipped += cell->skipped;
		}
	}
	if (failed + skipped > 0)
		fprintf(out,
			"<div class=\"warn box\"><p>%d cell%s failed and %d %s skipped; the tables "
			"say "
			"why. A mean covers the rows that have a value.</p></div>\n",
			failed, failed == 1 ? "" : "s", skipped, skipped == 1 ? "was" : "were");
}

static void put_reading(FILE *out)
{
	static const struct {
		const char *class, *text;
	} costs[] = { { "f2", "\u2264 0.5" }, { "f1", "\u2264 0.9" }, { "n", "about native" },
		      { "s1", "> 1.1" },      { "s2", "> 2" },	      { "s3", "> 5" },
		      { "s4", "> 20" } };

	fputs("<p><b>How to read it:</b> \u00d7 native is a row's value divided by native's of the "
	      "same round, with its 95 % interval: 1\u00d7 is native, less is better, except for "
	      "rows "
	      "with \u2191, where more is better. The colour is the cost, which counts those the "
	      "other "
	      "way round (1 / ratio), as plots and means do:</p>\n<div class=\"key\">",
	      out);
	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
		fprintf(out, "<span class=\"%s\">", costs[i].class);
		html_text(out, costs[i].text);
		fputs("</span>", out);
	}
	fputs("</div>\n", out);
}

static void put_header(FILE *out, const struct report *report)
{
	const struct results *r = report->r;

	fputs("<header>\n<h1>minisentry bench</h1>\n"
	      "<p class=\"muted\">The same workloads natively and in each sandbox, in interleaved "
	      "rounds.</p>\n",
	      out);
	put_lies(out, r);
	put_gaps(out, r);
	if (report->no_gnuplot)
		fputs("<div class=\"warn box\"><p>This page has no plots: gnuplot was not "
		      "installed. "
		      "Try: <code>apt-get install gnuplot-nox</code></p></div>\n",
		      out);
	else if (report->failed)
		fputs("<div class=\"warn box\"><p>Some plots are missing: they could not be drawn."
		      "</p></div>\n",
		      out);
	fputs("<pre>", out);
	html_text(out, r->command ? r->command : "minisentry bench");
	fputs("</pre>\n", out);
	put_facts(out, r);
	fputs("<h3>Runtimes</h3>\n", out);
	put_runtimes(out, r);
	fputs("<h3>Geometric mean of costs, \u00d7 native</h3>\n", out);
	report_overview(out, r);
	put_reading(out);
	fputs("</header>\n", out);
}

/* ---- the page ---- */

static void put_suite(FILE *out, const struct report *report, int suite)
{
	fprintf(out, "<section id=\"%s\">\n<h2>%s</h2>\n<p>", suites[suite].name,
		suites[suite].name);
	html_text(out, suites[suite].text);
	fputs("</p>\n", out);
	for (size_t i = 0; i < report->picture_count; i++)
		if (report->pictures[i].plot.suite == suite)
			put_picture(out, &report->pictures[i]);
	report_table(out, report->r, suite);
	fputs("</section>\n", out);
}

static int write_page(const struct report *report, const char *dir)
{
	char path[PATH_SIZE];
	FILE *out;
	int err = 0;

	snprintf(path, sizeof(path), "%s/index.html", dir);
	out = fopen(path, "we");
	if (!out) {
		fprintf(stderr, "bench: cannot create %s: %s\n", path, strerror(errno));
		return -1;
	}
	html_begin(out, "minisentry bench");
	put_header(out, report);
	for (int suite = 0; suite < (int)suite_count; suite++)
		if (report_has_suite(report->r, suite))
			put_suite(out, report, suite);
	html_end(out);
	if (fflush(out) != 0)
		err = errno;
	err = ferror(out) && !err ? EIO : err;
	if (fclose(out) != 0 && !err)
		err = errno;
	if (err)
		fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(err));
	return err ? -1 : 0;
}

/* As mkdir -p: 0, or -1 after a message. */
static int make_folders(const char *dir)
{
	char path[PATH_SIZE];
	struct stat st;

	if (dir[0] == '\0' || strlen(dir) >= sizeof(path) - 64) {
		fprintf(stderr, "bench: not the name of a folder for the report: \"%.100s\"\n",
			dir);
		return -1;
	}
	strcpy(path, dir);
	for (char *at = path + 1; at; at = *at ? at + 1 : NULL) {
		char kept;

		at += strcspn(at, "/");
		kept = *at;
		*at = '\0';
		if (mkdir(path, 0777) != 0 && errno != EEXIST) {
			fprintf(stderr, "bench: cannot create the folder %s: %s\n", path,
				strerror(errno));
			return -1;
		}
		*at = kept;
	}
	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
		fprintf(stderr, "bench: cannot write a report to %s: %s\n", path,
			strerror(ENOTDIR));
		return -1;
	}
	return 0;
}

int report_write(const struct results *r, const char *dir)
{
	struct report *report;
	int result;

	if (make_folders(dir) != 0)
		return -1;
	report = calloc(1, sizeof(*report));
	if (!report) {
		fprintf(stderr, "bench: cannot make the report %s: %s\n", dir, strerror(ENOMEM));
		return -1;
	}
	report->r = r;
	draw_pictures(report, dir);
	result = write_page(report, dir);
	if (report->failed)
		result = -1;
	for (size_t i = 0; i < report->picture_count; i++)
		for (int look = 0; look < PLOT_LOOKS; look++)
			free(report->pictures[i].svg[look]);
	free(report);
	return result;
}
