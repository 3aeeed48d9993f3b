#include "bench/driver/json.h"
#include "bench/driver/options.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "minisentry-bench/1"
#define DIGITS 9

/* JSON has no NAN. */
static json_t *number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* What the user typed, which need not be UTF-8. */
static json_t *text(const char *typed)
{
	json_t *string = json_string(typed);
	char *copy = string ? NULL : strdup(typed);

	if (copy) {
		clean_text(copy);
		string = json_string(copy);
	}
	free(copy);
	return string ?: json_null();
}

static void set_summary(json_t *cell, const struct summary *s, bool native)
{
	json_object_set_new(cell, "median", number(s->median));
	json_object_set_new(cell, "min", number(s->min));
	json_object_set_new(cell, "max", number(s->max));
	json_object_set_new(cell, "cpu_ns_per_op", number(s->cpu_ns));
	json_object_set_new(cell, "growth_bytes", number(s->growth));
	if (native)
		return;
	json_object_set_new(cell, "ratio", number(s->ratio.value));
	json_object_set_new(cell, "ratio_low", number(s->ratio.low));
	json_object_set_new(cell, "ratio_high", number(s->ratio.high));
	json_object_set_new(cell, "cpu_ratio", number(s->cpu_ratio));
}

static json_t *samples(const struct cell *cell, int rounds)
{
	json_t *list = json_array();

	for (int i = 0; i < rounds; i++) {
		const struct sample *s = &cell->samples[i];
		json_t *o = json_object();

		json_object_set_new(o, "value", number(s->value));
		json_object_set_new(o, "cpu_ns_per_op", number(s->cpu_ns));
		json_object_set_new(o, "growth_bytes", number(s->growth));
		json_object_set_new(o, "guest_ns", number(s->guest_ns));
		json_object_set_new(o, "host_ns", number(s->host_ns));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *row_object(const struct results *r, int row)
{
	const struct row *info = r->rows[row];
	json_t *o = json_object(), *cells = json_object();

	json_object_set_new(o, "suite", json_string(suites[row_suite(info)].name));
	json_object_set_new(o, "group", json_string(groups[info->group].name));
	json_object_set_new(o, "name", json_string(info->name));
	json_object_set_new(o, "unit", json_string(info->unit));
	json_object_set_new(o, "better",
			    json_string(info->flags & ROW_HIGHER ? "higher" : "lower"));
	if (info->goal > 0)
		json_object_set_new(o, "goal_ratio", json_real(info->goal));
	for (int k = 0; k < r->runtime_count; k++) {
		const struct cell *cell = results_cell(r, row, k);
		struct summary s = results_summary(r, row, k);
		json_t *c = json_object();

		set_summary(c, &s, k == 0);
		json_object_set_new(c, "clock_lies", json_boolean(cell->clock_lies));
		if (*cell->why)
			json_object_set_new(c, "why", json_string(cell->why));
		json_object_set_new(c, "samples", samples(cell, r->rounds));
		json_object_set_new(cells, r->runtimes[k].name, c);
	}
	json_object_set_new(o, "cells", cells);
	return o;
}

static json_t *runtime_object(const struct runtime *rt)
{
	static const char *const kinds[] = { [RUNTIME_NATIVE] = "native",
					     [RUNTIME_SENTRY] = "minisentry",
					     [RUNTIME_PEER] = "peer" };
	json_t *o = json_object();

	json_object_set_new(o, "name", json_string(rt->name));
	json_object_set_new(o, "kind", json_string(kinds[rt->kind]));
	if (rt->prefix)
		json_object_set_new(o, "command", text(rt->prefix));
	json_object_set_new(o, "version", json_string(rt->version));
	if (*rt->why)
		json_object_set_new(o, "why", json_string(rt->why));
	return o;
}

static json_t *suite_means(const struct results *r)
{
	json_t *all = json_object();

	for (size_t s = 0; s < suite_count; s++) {
		json_t *means = json_object();

		for (int k = 1; k < r->runtime_count; k++) {
			double mean = results_geomean(r, (int)s, k, NULL);

			if (!isnan(mean))
				json_object_set_new(means, r->runtimes[k].name, number(mean));
		}
		if (json_object_size(means))
			json_object_set_new(all, suites[s].name, means);
		else
			json_decref(means);
	}
	return all;
}

static json_t *run_object(const struct results *r)
{
	json_t *o = json_object(), *host = json_object(), *list;

	json_object_set_new(o, "format", json_string(FORMAT));
	json_object_set_new(o, "command", text(r->command));
	json_object_set_new(o, "started", json_integer(r->started));
	json_object_set_new(o, "seconds", number(r->seconds));
	json_object_set_new(o, "rounds", json_integer(r->rounds));
	json_object_set_new(o, "rounds_done", json_integer(r->rounds_done));
	json_object_set_new(o, "interrupted", json_boolean(r->interrupted));
	json_object_set_new(o, "memory_method", json_string(r->memory_method));
	for (int i = 0; i < r->fact_count; i++)
		json_object_set_new(host, r->facts[i].name, text(r->facts[i].text));
	json_object_set_new(o, "host", host);
	list = json_array();
	for (int k = 0; k < r->runtime_count; k++)
		json_array_append_new(list, runtime_object(&r->runtimes[k]));
	json_object_set_new(o, "runtimes", list);
	list = json_array();
	for (int i = 0; i < r->row_count; i++)
		json_array_append_new(list, row_object(r, i));
	json_object_set_new(o, "rows", list);
	json_object_set_new(o, "cost_geomean", suite_means(r));
	return o;
}

int json_write(const struct results *r, const char *path)
{
	json_t *o = run_object(r);
	int failed = json_dump_file(o, path, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));

	json_decref(o);
	if (failed)
		bench_error(NULL, "cannot write %s: %m", path);
	return failed ? -1 : 0;
}

struct json_run {
	json_t *root;
};

struct json_run *json_read(const char *path)
{
	static const char hint[] = "a file that minisentry bench --json wrote";
	struct json_run *run = calloc(1, sizeof(*run));
	json_error_t error;
	const char *format;

	if (!run)
		return NULL;
	run->root = json_load_file(path, 0, &error);
	if (!run->root) {
		bench_error(hint, "cannot read %s: %s", path, error.text);
		free(run);
		return NULL;
	}
	format = json_string_value(json_object_get(run->root, "format"));
	if (!format || strcmp(format, FORMAT) != 0 ||
	    !json_is_array(json_object_get(run->root, "rows"))) {
		bench_error(hint, "%s has format \"%s\", not \"%s\"", path,
			    format ? format : "none", FORMAT);
		json_free(run);
		return NULL;
	}
	return run;
}

void json_free(struct json_run *run)
{
	if (run)
		json_decref(run->root);
	free(run);
}

double *json_values(const struct json_run *run, const char *row, const char *runtime,
		    size_t *ret_rounds)
{
	json_t *rows = json_object_get(run->root, "rows"), *o, *list = NULL, *sample;
	double *values;
	size_t i;

	*ret_rounds = 0;
	json_array_foreach(rows, i, o)
	{
		const char *name = json_string_value(json_object_get(o, "name"));

		if (name && strcmp(name, row) == 0)
			list = json_object_get(
				json_object_get(json_object_get(o, "cells"), runtime), "samples");
	}
	if (!json_array_size(list))
		return NULL;
	values = calloc(json_array_size(list), sizeof(*values));
	if (!values)
		return NULL;
	json_array_foreach(list, i, sample)
	{
		json_t *value = json_object_get(sample, "value");

		values[i] = json_is_number(value) ? json_number_value(value) : NAN;
	}
	*ret_rounds = json_array_size(list);
	return values;
}
