#include "bench/driver/report_table.h"
#include "bench/driver/html.h"
#include "bench/driver/plot.h"
#include <math.h>
#include <string.h>

/* A suite's table: its runtimes, and how many columns each has. */
struct table {
	FILE *out;
	const struct results *r;
	int suite;
	int shown[RUNTIMES_MAX];
	int shown_count;
	bool growth, goals; /* whether some row has them */
};

static void table_init(struct table *t, FILE *out, const struct results *r, int suite)
{
	*t = (struct table){ .out = out, .r = r, .suite = suite };
	for (int k = 0; k < r->runtime_count; k++)
		if (r->runtimes[k].why[0] == '\0')
			t->shown[t->shown_count++] = k;
	for (int i = 0; i < r->row_count; i++) {
		if (suite >= 0 && row_suite(r->rows[i]) != suite)
			continue;
		t->growth |= (r->rows[i]->flags & ROW_GROWTH) != 0;
		t->goals |= r->rows[i]->goal > 0;
	}
}

/* Value, ratio, CPU, growth. Native has no ratios, and its growth is below its CPU time instead. */
static int runtime_columns(const struct table *t, int runtime)
{
	return runtime > 0 ? 3 + t->growth : 2;
}

const char *cost_class(double cost)
{
	static const struct {
		double most;
		const char *name;
	} classes[] = { { 0.5, "f2" }, { 0.9, "f1" }, { 1.1, "n" },
			{ 2, "s1" },   { 5, "s2" },   { 20, "s3" } };

	if (!isfinite(cost))
		return "n";
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (cost <= classes[i].most)
			return classes[i].name;
	return "s4";
}

void report_runtime(FILE *out, const struct results *r, int runtime)
{
	fprintf(out, "<span class=\"mark onlight\" style=\"--l:%s;--d:%s\">%s</span>",
		plot_colour(PLOT_LIGHT, runtime), plot_colour(PLOT_DARK, runtime),
		plot_mark(runtime));
	html_text(out, r->runtimes[runtime].name);
}

bool report_has_suite(const struct results *r, int suite)
{
	for (int i = 0; i < r->row_count; i++)
		if (row_suite(r->rows[i]) == suite)
			return true;
	return false;
}

void report_clocks(char *buf, size_t size, const struct results *r, int row, int runtime)
{
	const struct cell *cell = results_cell(r, row, runtime);
	char guest[40] = "?", host[40] = "?";
	double worst = -1;

	for (int i = 0; i < r->rounds; i++) {
		const struct sample *s = &cell->samples[i];
		double apart = fabs(s->guest_ns - s->host_ns) / fmax(s->host_ns, 1);

		if (!(apart > worst)) /* a NAN is not */
			continue;
		worst = apart;
		format_ns(guest, sizeof(guest), s->guest_ns);
		format_ns(host, sizeof(host), s->host_ns);
	}
	snprintf(buf, size, "guest %s, host %s", guest, host);
}

/* ---- the head ---- */

static void put_head(const struct table *t)
{
	FILE *out = t->out;

	fputs("<thead>\n<tr><th class=\"row\"></th>", out);
	for (int i = 0; i < t->shown_count; i++) {
		fprintf(out, "<th class=\"runtime first\" colspan=\"%d\" scope=\"colgroup\">",
			runtime_columns(t, t->shown[i]));
		report_runtime(out, t->r, t->shown[i]);
		fputs("</th>", out);
	}
	fprintf(out, "</tr>\n<tr><th class=\"row\">row<br>unit%s</th>", t->goals ? ", goal" : "");
	for (int i = 0; i < t->shown_count; i++) {
		fputs("<th class=\"first\">median<br>[min\u2013max]</th>", out);
		if (t->shown[i] == 0)
			fprintf(out, "<th>CPU/op%s</th>", t->growth ? "<br>growth" : "");
		else
			fprintf(out,
				"<th>\u00d7 native<br>[95 %%]</th><th>CPU/op<br>\u00d7 "
				"native</th>%s",
				t->growth ? "<th>memory<br>growth</th>" : "");
	}
	fputs("</tr>\n</thead>\n", out);
}

/* ---- cells ---- */

/* format_number, with three digits of small numbers too: ratios of fork are thousandths. */
static void number_text(char *buf, size_t size, double value)
{
	if (value > 0 && value < 0.0995 && value >= 1e-9)
		snprintf(buf, size, "%.*f", 2 - (int)floor(log10(value)), value);
	else
		format_number(buf, size, value);
}

/* "1.23" above "[1.2-1.3]"; an interval that is not there is left out. */
static void put_range(FILE *out, double value, const char *suffix, double low, double high)
{
	char text[40];

	number_text(text, sizeof(text), value);
	html_text(out, text);
	fputs(suffix, out);
	if (!isfinite(low) || !isfinite(high))
		return;
	number_text(text, sizeof(text), low);
	fprintf(out, "<small>[%s\u2013", text);
	number_text(text, sizeof(text), high);
	fprintf(out, "%s]</small>", text);
}

static void put_value(const struct table *t, const struct summary *s)
{
	fputs("<td class=\"first\">", t->out);
	if (s->count > 0)
		put_range(t->out, s->median, "", s->count > 1 ? s->min : NAN, s->max);
	fputs("</td>", t->out);
}

static void put_ratio(const struct table *t, const struct row *row, const struct summary *s)
{
	bool is_cost = !(row->flags & ROW_COUNT);

	fprintf(t->out, "<td class=\"ratio %s\">", is_cost ? cost_class(s->cost) : "n");
	if (isfinite(s->ratio.value))
		put_range(t->out, s->ratio.value, "\u00d7", s->ratio.low, s->ratio.high);
	fputs("</td>", t->out);
}

static void put_cpu(const struct table *t, const struct row *row, const struct summary *s)
{
	char text[40];

	if (row->flags & ROW_VALUE || !isfinite(s->cpu_ns))
		return;
	format_ns(text, sizeof(text), s->cpu_ns);
	html_text(t->out, text);
}

static void put_cpu_ratio(const struct table *t, const struct row *row, const struct summary *s)
{
	char text[40];

	if (row->flags & ROW_VALUE || !isfinite(s->cpu_ratio))
		return;
	number_text(text, sizeof(text), s->cpu_ratio);
	fprintf(t->out, "<small>%s\u00d7</small>", text);
}

static void put_growth(const struct table *t, const struct row *row, const struct summary *s)
{
	char text[40];

	if (!(row->flags & ROW_GROWTH) || !isfinite(s->growth))
		return;
	format_bytes(text, sizeof(text), s->growth);
	html_text(t->out, text);
}

static void put_native_cost(const struct table *t, const struct row *row, const struct summary *s)
{
	fputs("<td>", t->out);
	put_cpu(t, row, s);
	fputs("<small>", t->out);
	put_growth(t, row, s);
	fputs("</small></td>", t->out);
}

static void put_cost(const struct table *t, const struct row *row, const struct summary *s)
{
	fputs("<td>", t->out);
	put_cpu(t, row, s);
	put_cpu_ratio(t, row, s);
	fputs("</td>", t->out);
	if (!t->growth)
		return;
	fputs("<td>", t->out);
	put_growth(t, row, s);
	fputs("</td>", t->out);
}

/* A time that cannot be believed is shown struck out, over all of the runtime's columns. */
static void put_lie(const struct table *t, int row, int runtime, const struct summary *s)
{
	char text[100];

	fprintf(t->out, "<td class=\"lie first\" colspan=\"%d\"><b>\u26a0 clock lies</b> ",
		runtime_columns(t, runtime));
	format_value(text, sizeof(text), s->median, t->r->rows[row]->unit);
	fputs("<s>", t->out);
	html_text(t->out, text);
	fputs("</s><small>", t->out);
	report_clocks(text, sizeof(text), t->r, row, runtime);
	html_text(t->out, text);
	fputs("</small></td>", t->out);
}

static void put_why(const struct table *t, int runtime, const struct cell *cell)
{
	fprintf(t->out, "<td class=\"text %s first\" colspan=\"%d\">",
		cell->skipped ? "skip" : "fail", runtime_columns(t, runtime));
	fputs(cell->skipped  ? "skipped: "
	      : cell->why[0] ? "<b>failed:</b> "
			     : "not measured",
	      t->out);
	html_text(t->out, cell->why);
	fputs("</td>", t->out);
}

static void put_cell(const struct table *t, int row, int runtime)
{
	const struct cell *cell = results_cell(t->r, row, runtime);
	struct summary s = results_summary(t->r, row, runtime);

	if (cell->clock_lies) {
		put_lie(t, row, runtime, &s);
		return;
	}
	if (s.count == 0) {
		put_why(t, runtime, cell);
		return;
	}
	put_value(t, &s);
	if (runtime == 0) {
		put_native_cost(t, t->r->rows[row], &s);
	} else {
		put_ratio(t, t->r->rows[row], &s);
		put_cost(t, t->r->rows[row], &s);
	}
}

/* A runtime that has values, but not from every round. */
static void put_partial(const struct table *t, int row)
{
	for (int i = 0; i < t->shown_count; i++) {
		const struct cell *cell = results_cell(t->r, row, t->shown[i]);
		struct summary s = results_summary(t->r, row, t->shown[i]);

		if (s.count == 0 || (cell->why[0] == '\0' && (int)s.count >= t->r->rounds_done))
			continue;
		fputs("<small class=\"why\">", t->out);
		html_text(t->out, t->r->runtimes[t->shown[i]].name);
		fprintf(t->out, ": %zu of %d rounds", s.count, t->r->rounds);
		fputs(cell->why[0] ? ": " : "", t->out);
		html_text(t->out, cell->why);
		fputs("</small>", t->out);
	}
}

/* A long name breaks where a word of it ends. */
static void put_name(FILE *out, const char *name)
{
	for (char last = '\0'; *name; last = *name++) {
		char text[2] = { *name, '\0' };

		if ((last >= 'a' && last <= 'z' && *name >= 'A' && *name <= 'Z') || last == '/' ||
		    last == '_')
			fputs("<wbr>", out);
		html_text(out, text);
	}
}

static void put_row(const struct table *t, int number)
{
	const struct row *row = t->r->rows[number];

	fprintf(t->out, "<tr><th scope=\"row\" id=\"row-%d\">", number);
	put_name(t->out, row->name);
	fputs("<small>", t->out);
	html_text(t->out, row->unit);
	if (row->flags & ROW_HIGHER)
		fputs(" <span title=\"more is better\">\u2191</span>", t->out);
	if (row->goal > 0)
		fprintf(t->out, ", %s\u00a0%g\u00d7", row->flags & ROW_HIGHER ? "\u2265" : "\u2264",
			row->goal);
	fputs("</small>", t->out);
	put_partial(t, number);
	fputs("</th>", t->out);
	for (int i = 0; i < t->shown_count; i++)
		put_cell(t, number, t->shown[i]);
	fputs("</tr>\n", t->out);
}

/* ---- the foot ---- */

/* The cells of a foot's row: one text a runtime, in its column of ratios. */
static void put_foot_cell(const struct table *t, int runtime, const char *text, const char *class)
{
	int rest = runtime_columns(t, runtime) - 2;

	if (runtime == 0)
		fprintf(t->out, "<td class=\"first\" colspan=\"%d\"></td>", runtime_columns(t, 0));
	else
		fprintf(t->out,
			"<td class=\"first\"></td><td class=\"ratio %s\">%s</td>"
			"<td colspan=\"%d\"></td>",
			class, text, rest);
}

static void put_mean(const struct table *t)
{
	fprintf(t->out, "<tr><th scope=\"row\">geometric mean of costs</th>");
	for (int i = 0; i < t->shown_count; i++) {
		char number[40], text[120];
		int rows = 0;
		double mean = results_geomean(t->r, t->suite, t->shown[i], &rows);

		number_text(number, sizeof(number), mean);
		snprintf(text, sizeof(text), "%s\u00d7<small>of %d row%s</small>", number, rows,
			 rows == 1 ? "" : "s");
		put_foot_cell(t, t->shown[i], isfinite(mean) ? text : "", cost_class(mean));
	}
	fputs("</tr>\n", t->out);
}

static bool goal_met(const struct results *r, int row, int runtime, bool *ret_met)
{
	const struct row *what = r->rows[row];
	struct summary s = results_summary(r, row, runtime);

	if (what->goal <= 0 || !isfinite(s.ratio.value))
		return false;
	*ret_met = !results_cell(r, row, runtime)->clock_lies &&
		   (what->flags & ROW_HIGHER ? s.ratio.value >= what->goal
					     : s.ratio.value <= what->goal);
	return true;
}

static void put_goals(const struct table *t)
{
	fprintf(t->out, "<tr><th scope=\"row\">goals met</th>");
	for (int i = 0; i < t->shown_count; i++) {
		int met = 0, all = 0;
		char text[60];

		for (int row = 0; row < t->r->row_count; row++) {
			bool this_met;

			if (row_suite(t->r->rows[row]) != t->suite ||
			    !goal_met(t->r, row, t->shown[i], &this_met))
				continue;
			all++;
			met += this_met;
		}
		snprintf(text, sizeof(text), "%d of %d", met, all);
		put_foot_cell(t, t->shown[i], all > 0 ? text : "", "n");
	}
	fputs("</tr>\n", t->out);
}

static void put_body(const struct table *t)
{
	int group = -1, columns = 1;

	for (int i = 0; i < t->shown_count; i++)
		columns += runtime_columns(t, t->shown[i]);
	for (int i = 0; i < t->r->row_count; i++) {
		const struct row *row = t->r->rows[i];

		if (row_suite(row) != t->suite)
			continue;
		if (row->group != group) {
			fprintf(t->out, "<tr class=\"part\"><th colspan=\"%d\">", columns);
			html_text(t->out, groups[row->group].name);
			fputs("</th></tr>\n", t->out);
		}
		group = row->group;
		put_row(t, i);
	}
}

void report_table(FILE *out, const struct results *r, int suite)
{
	struct table t;

	table_init(&t, out, r, suite);
	/* Up to four runtimes fit on a screen; then the head can stay in sight. */
	fprintf(out, "<div class=\"scroll%s\"><table>\n", t.shown_count <= 4 ? " fits" : "");
	put_head(&t);
	fputs("<tbody>\n", out);
	put_body(&t);
	fputs("</tbody>\n<tfoot>\n", out);
	put_mean(&t);
	if (t.goals)
		put_goals(&t);
	fputs("</tfoot>\n</table></div>\n", out);
}

void report_overview(FILE *out, const struct results *r)
{
	struct table t;

	table_init(&t, out, r, -1);
	fputs("<div class=\"scroll\"><table>\n<thead><tr><th class=\"row\">suite</th>", out);
	for (int i = 0; i < t.shown_count; i++) {
		if (t.shown[i] == 0)
			continue;
		fputs("<th class=\"runtime\">", out);
		report_runtime(out, r, t.shown[i]);
		fputs("</th>", out);
	}
	fputs("</tr></thead>\n<tbody>\n", out);
	for (int suite = 0; suite < (int)suite_count; suite++) {
		if (!report_has_suite(r, suite))
			continue;
		fprintf(out, "<tr><th scope=\"row\"><a href=\"#%s\">%s</a></th>",
			suites[suite].name, suites[suite].name);
		for (int i = 0; i < t.shown_count; i++) {
			int rows = 0;
			double mean = results_geomean(r, suite, t.shown[i], &rows);
			char text[40];

			if (t.shown[i] == 0)
				continue;
			number_text(text, sizeof(text), mean);
			fprintf(out, "<td class=\"ratio %s\">%s%s</td>", cost_class(mean), text,
				isfinite(mean) ? "\u00d7" : "");
		}
		fputs("</tr>\n", out);
	}
	fputs("</tbody></table></div>\n", out);
}
