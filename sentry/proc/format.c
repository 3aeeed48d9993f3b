/* Pieces of text that several entries share. */
#include "sentry/proc/internal.h"
#include <string.h>

void proc_put_escaped(struct textbuf *b, const char *s, const char *escape)
{
	for (; *s; s++) {
		if (strchr(escape, *s))
			textbuf_printf(b, "\\%03o", (unsigned char)*s);
		else
			textbuf_write(b, s, 1);
	}
}

static bool mask_bit(const u64 *mask, int bit)
{
	return mask[bit / 64] >> (bit % 64) & 1;
}

void proc_put_mask(struct textbuf *b, const u64 *mask, int bits)
{
	int words = (bits + 31) / 32;

	for (int w = words - 1; w >= 0; w--) {
		u32 v = (u32)(mask[w / 2] >> (w % 2 * 32));
		int width = w == words - 1 ? (bits - w * 32 + 3) / 4 : 8;

		textbuf_printf(b, "%0*x%s", width, v, w ? "," : "");
	}
}

void proc_put_mask_list(struct textbuf *b, const u64 *mask, int bits)
{
	const char *comma = "";

	for (int i = 0; i < bits; i++) {
		int end = i;

		if (!mask_bit(mask, i))
			continue;
		while (end + 1 < bits && mask_bit(mask, end + 1))
			end++;
		textbuf_printf(b, end > i ? "%s%d-%d" : "%s%d", comma, i, end);
		comma = ",";
		i = end;
	}
}

bool proc_cpu_present(struct kernel *k, int cpu)
{
	return cpu >= 0 && cpu < 1024 && mask_bit(k->cpu_mask, cpu);
}

int proc_cpu_bits(struct kernel *k)
{
	int bits = 1024;

	while (bits > 1 && !mask_bit(k->cpu_mask, bits - 1))
		bits--;
	return bits;
}

int proc_parse_value(const char *data, size_t len, s64 *ret)
{
	u64 n = 0;
	bool minus = false, digits = false;
	size_t i = 0;

	while (i < len && (data[i] == ' ' || data[i] == '\t'))
		i++;
	if (i < len && data[i] == '-') {
		minus = true;
		i++;
	}
	for (; i < len && data[i] >= '0' && data[i] <= '9'; i++) {
		digits = true;
		n = n * 10 + (u64)(data[i] - '0');
		if (n > INT64_MAX)
			return -EINVAL;
	}
	while (i < len && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || !data[i]))
		i++;
	if (!digits || i < len)
		return -EINVAL;
	*ret = minus ? -(s64)n : (s64)n;
	return 0;
}

u64 proc_uptime_ns(struct kernel *k)
{
	return clock_monotonic_ns() - k->boot_monotonic_ns;
}
