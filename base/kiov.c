#include "base/kiov.h"
#include "base/safecopy.h"

void kiov_init(struct kiov *k, struct iovec *seg, int count)
{
	*k = (struct kiov){ .seg = seg, .count = count };
	for (int i = 0; i < count; i++)
		k->remaining += seg[i].iov_len;
}

void kiov_init_buf(struct kiov *k, struct iovec *one, void *buf, size_t len)
{
	*one = (struct iovec){ buf, len };
	kiov_init(k, one, 1);
}

bool kiov_peek(const struct kiov *k, struct iovec *ret)
{
	int i = k->index;
	size_t off = k->seg_off;

	if (k->remaining == 0)
		return false;
	while (off == k->seg[i].iov_len) {
		i++;
		off = 0;
	}
	ret->iov_base = (char *)k->seg[i].iov_base + off;
	ret->iov_len = MIN(k->seg[i].iov_len - off, k->remaining);
	return true;
}

void kiov_advance(struct kiov *k, size_t n)
{
	n = MIN(n, k->remaining);
	k->remaining -= n;
	while (n > 0) {
		size_t step = MIN(n, k->seg[k->index].iov_len - k->seg_off);
		k->seg_off += step;
		n -= step;
		if (k->seg_off == k->seg[k->index].iov_len && n > 0) {
			k->index++;
			k->seg_off = 0;
		}
	}
}

void kiov_truncate(struct kiov *k, size_t n)
{
	k->remaining = MIN(k->remaining, n);
}

enum move { MOVE_PUT, MOVE_GET, MOVE_ZERO };

static ssize_t move_bytes(struct kiov *k, char *buf, size_t n, enum move how)
{
	size_t done = 0;
	struct iovec v;

	while (done < n && kiov_peek(k, &v)) {
		size_t want = MIN(v.iov_len, n - done), left;
		if (how == MOVE_PUT)
			left = safe_memcpy(v.iov_base, buf + done, want);
		else if (how == MOVE_GET)
			left = safe_memcpy(buf + done, v.iov_base, want);
		else
			left = safe_memzero(v.iov_base, want);
		kiov_advance(k, want - left);
		done += want - left;
		if (left)
			return done ? (ssize_t)done : -EFAULT;
	}
	return (ssize_t)done;
}

ssize_t kiov_put(struct kiov *k, const void *src, size_t n)
{
	return move_bytes(k, (char *)src, n, MOVE_PUT);
}

ssize_t kiov_get(struct kiov *k, void *dst, size_t n)
{
	return move_bytes(k, dst, n, MOVE_GET);
}

ssize_t kiov_zero(struct kiov *k, size_t n)
{
	return move_bytes(k, NULL, n, MOVE_ZERO);
}
