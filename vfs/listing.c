#include "vfs/listing.h"
#include <stdatomic.h>

static _Atomic long total;

bool listing_charge(size_t *charged, size_t bytes)
{
	long more = (long)bytes - (long)*charged;

	if (atomic_fetch_add(&total, more) + more > LISTING_TOTAL_MAX && more > 0) {
		atomic_fetch_sub(&total, more);
		return false;
	}
	*charged = bytes;
	return true;
}
