#include "bench/driver/canvas.h"
#include "bench/driver/gnuplot.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static struct plot *add_plot(struct plot *plots, size_t *count, int suite, int chart)
{
	struct plot *plot = &plots[(*count)++];

	*plot = (struct plot){ .suite = suite, .chart = chart };
	return plot;
}

static void add_costs(const struct results *r, int suite, struct plot *plots, size_t *count)
{
	struct plot *plot;

	if (*count == PLOTS_MAX || !costs_wanted(r, suite))
		return;
	plot = add_plot(plots, count, suite, PLOT_COSTS);
	plot->caption = "Marks are ratios of cost to native in the same round, whiskers their 95 % "
			"intervals.";
	snprintf(plot->name, sizeof(plot->name), "ratio-%s", suites[suite].name);
	snprintf(plot->title, sizeof(plot->title), "%s: cost relative to native",
		 suites[suite].name);
}

static void add_sizes(const struct results *r, int suite, struct plot *plots, size_t *count)
{
	for (int i = 0; i < (int)sizes_count() && *count < PLOTS_MAX; i++) {
		struct chart_text text;
		struct plot *plot;
		int of_suite;

		if (!sizes_wanted(r, i, &of_suite, &text) || of_suite != suite)
			continue;
		plot = add_plot(plots, count, suite, i);
		plot->caption = text.caption;
		snprintf(plot->name, sizeof(plot->name), "%s", text.name);
		snprintf(plot->title, sizeof(plot->title), "%s", text.title);
	}
}

size_t plot_list(const struct results *r, struct plot plots[PLOTS_MAX])
{
	size_t count = 0;

	for (int suite = 0; suite < (int)suite_count; suite++) {
		add_costs(r, suite, plots, &count);
		add_sizes(r, suite, plots, &count);
	}
	return count;
}

/* ---- drawing ---- */

static int draw(const struct results *r, const struct plot *plot, enum plot_look look,
		char **ret_data, size_t *ret_size, int *ret_width)
{
	struct canvas c = { .r = r, .plot = plot, .look = look, .palette = canvas_palette(look) };
	char *script = NULL;
	size_t size = 0;
	int err;

	c.out = open_memstream(&script, &size);
	if (!c.out)
		return -ENOMEM;
	err = plot->chart == PLOT_COSTS ? costs_put(&c) : sizes_put(&c);
	if (fclose(c.out) != 0 && !err)
		err = -ENOMEM;
	if (!err)
		err = gnuplot_run(plot->name, script, size, ret_data, ret_size);
	free(script);
	*ret_width = c.width;
	return err;
}

/* gnuplot numbers the shapes it defines alike in every picture: here they get the picture's name.
 */
static int make_unique(const char *svg, const struct plot *plot, const char *look, int width,
		       char **ret_svg)
{
	static const char *const places[] = { "id='gp", "href='#gp", "id=\"gnuplot", "id='textbox",
					      "id='greybox" };
	size_t size;
	FILE *out = open_memstream(ret_svg, &size);

	if (!out)
		return -ENOMEM;
	fprintf(out, "<svg class=\"%s\" style=\"max-width:%dpx\" role=\"img\" aria-label=\"%s\"",
		look, width, plot->title);
	while (*svg) {
		size_t i = 0, length;

		while (i < sizeof(places) / sizeof(places[0]) &&
		       strncmp(svg, places[i], strlen(places[i])) != 0)
			i++;
		if (i == sizeof(places) / sizeof(places[0])) {
			putc(*svg++, out);
			continue;
		}
		length = strcspn(places[i], "gt");
		fwrite(svg, 1, length, out);
		fprintf(out, "%s-%s-", plot->name, look);
		svg += length;
		fwrite(svg, 1, strlen(places[i]) - length, out);
		svg += strlen(places[i]) - length;
	}
	return fclose(out) == 0 ? 0 : -ENOMEM;
}

int plot_svg(const struct results *r, const struct plot *plot, enum plot_look look, char **ret_svg)
{
	char *data, *start, *end, *skip;
	size_t size;
	int width, err = draw(r, plot, look, &data, &size, &width);

	if (err)
		return err;
	start = strstr(data, "<svg");
	skip = strstr(data, "<title>"); /* it would pop up over the whole picture */
	end = strstr(data, "</desc>");
	if (!start || !skip || !end || skip < start || end < skip) {
		fprintf(stderr, "bench: %s: what gnuplot drew is not the SVG that was expected\n",
			plot->name);
		err = -EIO;
	} else {
		memmove(skip, end + strlen("</desc>"), strlen(end + strlen("</desc>")) + 1);
		err = make_unique(start + strlen("<svg"), plot,
				  look == PLOT_DARK ? "dark" : "light", width, ret_svg);
	}
	free(data);
	return err;
}

int plot_png(const struct results *r, const struct plot *plot, const char *dir)
{
	char path[4096], *data;
	size_t size;
	FILE *file;
	int width, err = draw(r, plot, PLOT_PNG, &data, &size, &width);

	if (err)
		return err;
	snprintf(path, sizeof(path), "%s/%s.png", dir, plot->name);
	file = fopen(path, "we");
	if (!file) {
		err = -errno;
	} else {
		if (fwrite(data, 1, size, file) != size)
			err = -errno;
		if (fclose(file) != 0 && !err)
			err = -errno;
	}
	if (err)
		fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(-err));
	free(data);
	return err;
}
