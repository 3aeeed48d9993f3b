#include "bench/driver/names.h"
#include "bench/driver/catalog.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LENGTH 100
#define SHOWN 3

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

size_t names_distance(const char *a, const char *b)
{
	size_t m = strnlen(a, NAME_MAX_LENGTH), n = strnlen(b, NAME_MAX_LENGTH);
	size_t row[NAME_MAX_LENGTH + 1];

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; i <= m; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t above = row[j];
			bool differ = tolower((unsigned char)a[i - 1]) !=
				      tolower((unsigned char)b[j - 1]);

			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + differ);
			diagonal = above;
		}
	}
	return row[n];
}

struct near {
	const char *name;
	size_t distance;
};

/* What was typed as a part of a name is nearer than any mistyped name of the same length. */
static void consider(struct near best[SHOWN], const char *typed, const char *name)
{
	size_t d = strcasestr(name, typed) ? 1 : names_distance(typed, name);

	for (int i = 0; i < SHOWN; i++)
		if (!best[i].name || d < best[i].distance) {
			memmove(best + i + 1, best + i, (size_t)(SHOWN - 1 - i) * sizeof(*best));
			best[i] = (struct near){ name, d };
			return;
		}
}

void names_nearest(const char *name, char *buf, size_t size)
{
	struct near best[SHOWN] = {};
	size_t at = 0;

	for (size_t i = 0; i < suite_count; i++)
		consider(best, name, suites[i].name);
	for (size_t i = 0; i < group_count; i++)
		if (strcmp(groups[i].name, suites[groups[i].suite].name) != 0)
			consider(best, name, groups[i].name);
	for (size_t i = 0; i < row_count; i++)
		consider(best, name, rows[i].name);
	buf[0] = '\0';
	for (int i = 0; i < SHOWN && best[i].name && at < size; i++)
		at += (size_t)snprintf(buf + at, size - at, "%s%s",
				       i == 0		? ""
				       : i == SHOWN - 1 ? " or "
							: ", ",
				       best[i].name);
}
