#include "pgalloc/recycle.h"

bool recycle_add(struct recycle *x, struct mem_range r)
{
	u64 len = mem_range_len(r);

	if (len > RECYCLE_BYTES - x->bytes)
		return false;
	for (u32 i = 0; i < x->count; i++) {
		struct mem_range *o = &x->ranges[i];

		if (o->end != r.start && r.end != o->start)
			continue;
		o->start = MIN(o->start, r.start);
		o->end = MAX(o->end, r.end);
		x->bytes += len;
		return true;
	}
	if (x->count == RECYCLE_COUNT)
		return false;
	x->ranges[x->count++] = r;
	x->bytes += len;
	return true;
}

static void cut(struct recycle *x, u32 i, u64 len, struct mem_range *ret)
{
	struct mem_range *o = &x->ranges[i];

	*ret = (struct mem_range){ o->start, o->start + len };
	o->start += len;
	x->bytes -= len;
	if (o->start == o->end)
		*o = x->ranges[--x->count];
}

bool recycle_take(struct recycle *x, u64 len, u64 hint, struct mem_range *ret)
{
	u32 best = RECYCLE_COUNT;

	for (u32 i = 0; i < x->count; i++) {
		if (mem_range_len(x->ranges[i]) < len)
			continue;
		best = i;
		if (x->ranges[i].start == hint)
			break;
	}
	if (best == RECYCLE_COUNT)
		return false;
	cut(x, best, len, ret);
	return true;
}
