/*
 * Guest I/O vectors: importing them, and moving bytes between pinned guest
 * memory and a file operation, piece by piece.
 *
 * A piece is bounded in bytes and in host segments, so that a huge buffer
 * neither pins (and so commits) more than the operation can use at once, nor
 * needs an unbounded array. A piece is never smaller than what atomic writes
 * (PIPE_BUF) need.
 *
 * What is small goes through a buffer instead: a copy costs less than a pin.
 */
#include "base/log.h"
#include "sentry/sys/syscall.h"

#include <limits.h>
#include <stdlib.h>

#define GUEST_ADDR_END 0x7ffffffff000UL
/* The first piece of a read is small: most large buffers are filled only in part. */
#define PIECE_FIRST_READ (256UL << 10)
#define PIECE_FIRST_WRITE (1UL << 20)
#define PIECE_MAX (4UL << 20)
#define PIECE_SEGS_MAX 4096

static bool range_ok(u64 addr, u64 len)
{
	return len <= GUEST_ADDR_END && addr <= GUEST_ADDR_END - len;
}

int sys_iov_single(struct task *t, uaddr buf, u64 len, struct sys_iov *ret)
{
	/* An empty transfer is to a user's address, too. */
	if (!range_ok(buf.v, len))
		return -EFAULT;
	ret->inline_seg[0] = (struct iovec){ (void *)buf.v, MIN(len, MAX_RW_COUNT) };
	ret->guest = ret->inline_seg;
	ret->guest_count = 1;
	ret->total = ret->inline_seg[0].iov_len;
	return 0;
}

/* Checks lengths and addresses, clips the sum; a single segment before its end is looked at. */
static int iov_validate(struct sys_iov *iov)
{
	size_t total = 0;

	for (int i = 0; i < iov->guest_count; i++) {
		if ((ssize_t)iov->guest[i].iov_len < 0)
			return -EINVAL;
	}
	for (int i = 0; i < iov->guest_count; i++) {
		struct iovec *s = &iov->guest[i];

		if (iov->guest_count == 1)
			s->iov_len = MIN(s->iov_len, MAX_RW_COUNT);
		if (!range_ok((u64)s->iov_base, s->iov_len))
			return -EFAULT;
		s->iov_len = MIN(s->iov_len, MAX_RW_COUNT - total);
		total += s->iov_len;
	}
	iov->total = total;
	return 0;
}

int sys_iov_import(struct task *t, uaddr iov, u64 vlen, struct sys_iov *ret)
{
	u32 count = (u32)vlen; /* Linux drops the rest on the way */
	int r;

	if (count > IOV_MAX)
		return -EINVAL;
	ret->guest = ret->inline_seg;
	if (count > ARRAY_SIZE(ret->inline_seg)) {
		ret->guest = malloc(count * sizeof(struct iovec));
		if (!ret->guest)
			return -ENOMEM;
	}
	ret->guest_count = (int)count;
	ret->total = 0;
	r = count ? copy_in(t, ret->guest, iov, count * sizeof(struct iovec)) : 0;
	if (r == 0)
		r = iov_validate(ret);
	if (r < 0)
		sys_iov_free(ret);
	return r;
}

void sys_iov_free(struct sys_iov *iov)
{
	if (iov->guest && iov->guest != iov->inline_seg)
		free(iov->guest);
	iov->guest = NULL;
	iov->guest_count = 0;
}

/* Where a transfer stands in the guest's segments. */
struct cursor {
	int seg;
	size_t off;
};

static void cursor_advance(const struct sys_iov *iov, struct cursor *c, size_t n)
{
	while (c->seg < iov->guest_count) {
		size_t left = iov->guest[c->seg].iov_len - c->off;

		if (n < left) {
			c->off += n;
			return;
		}
		n -= left;
		c->seg++;
		c->off = 0;
	}
}

struct piece {
	struct iovec *seg;
	struct mm_pin *pins;
	int cap, count;
	size_t len;
};

/* Pins from c on: up to `want` bytes. 0, or -EFAULT when not one byte could be pinned. */
static int piece_pin(struct task *t, const struct sys_iov *iov, struct cursor c, size_t want,
		     bool to_guest, struct piece *p)
{
	p->count = 0;
	p->len = 0;
	while (p->len < want && c.seg < iov->guest_count && p->count < p->cap) {
		const struct iovec *g = &iov->guest[c.seg];
		size_t n = MIN(g->iov_len - c.off, want - p->len);
		int got = 0;
		ssize_t r;

		if (n == 0) {
			c.seg++;
			c.off = 0;
			continue;
		}
		r = mm_pin(t->mm, ua((u64)g->iov_base + c.off), n, to_guest, p->seg + p->count,
			   p->pins + p->count, p->cap - p->count, &got);
		if (r <= 0)
			return p->len ? 0 : (r < 0 ? (int)r : -EFAULT);
		p->count += got;
		p->len += (size_t)r;
		cursor_advance(iov, &c, (size_t)r);
		if ((size_t)r < n)
			break; /* a hole, or out of segments */
	}
	return 0;
}

static size_t piece_limit(size_t done, bool to_guest)
{
	size_t first = to_guest ? PIECE_FIRST_READ : PIECE_FIRST_WRITE;

	return MIN(MAX(first, done * 2), PIECE_MAX);
}

/* Up to here a second copy is cheaper than pinning. */
#define SMALL_MAX 4096

static ssize_t write_small(struct task *t, uaddr addr, size_t len, bool whole, char *buf,
			   ssize_t (*op)(void *arg, struct kiov *k), void *arg)
{
	ssize_t got = mm_copy_in_partial(t->mm, buf, addr, len);
	struct iovec seg;
	struct kiov k;

	if (got < 0 || (whole && (size_t)got < len))
		return -EFAULT;
	kiov_init_buf(&k, &seg, buf, (size_t)got);
	return op(arg, &k);
}

/* The guest's buffer was made ready: only a thread that takes it away meanwhile loses data. */
static ssize_t read_small(struct task *t, uaddr addr, size_t len, char *buf,
			  ssize_t (*op)(void *arg, struct kiov *k), void *arg)
{
	struct iovec seg;
	struct kiov k;
	ssize_t r;

	kiov_init_buf(&k, &seg, buf, len);
	r = op(arg, &k);
	/* Not r: a datagram may have been longer than what went into the buffer. */
	if (r > 0 && k.seg_off && copy_out(t, addr, buf, k.seg_off) < 0)
		return -EFAULT;
	return r;
}

/* True when it was done here. */
static bool transfer_small(struct task *t, const struct sys_iov *iov, size_t skip, bool to_guest,
			   bool whole, ssize_t (*op)(void *arg, struct kiov *k), void *arg,
			   ssize_t *ret)
{
	char buf[SMALL_MAX];
	size_t len = iov->total - MIN(skip, iov->total);
	uaddr addr = ua((u64)iov->guest[0].iov_base + skip);

	if (iov->guest_count != 1 || !len || len > SMALL_MAX)
		return false;
	if (to_guest && !mm_prepare_write(t->mm, addr, len))
		return false;
	*ret = to_guest ? read_small(t, addr, len, buf, op, arg)
			: write_small(t, addr, len, whole, buf, op, arg);
	return true;
}

/* Piece by piece, pinned. */
static ssize_t transfer_pinned(struct task *t, const struct sys_iov *iov, size_t skip,
			       bool to_guest, bool whole, ssize_t (*op)(void *arg, struct kiov *k),
			       void *arg)
{
	struct iovec small_seg[SYS_IOV_SEGS];
	struct mm_pin small_pins[SYS_IOV_SEGS];
	struct piece p = { small_seg, small_pins, SYS_IOV_SEGS, 0, 0 };
	size_t total = iov->total - MIN(skip, iov->total), done = 0, segs;
	struct cursor c = { 0, 0 };
	void *mem = NULL;
	ssize_t r = 0;

	if (whole && total > SYS_IOV_WHOLE_MAX) {
		if (!to_guest)
			return -EMSGSIZE;
		total = SYS_IOV_WHOLE_MAX; /* a reader's buffer is only room */
	}
	segs = MIN(total, PIECE_MAX) / PAGE_SIZE + 2 * (size_t)iov->guest_count + 2;
	segs = MIN(segs, PIECE_SEGS_MAX);
	if (segs > SYS_IOV_SEGS) {
		mem = malloc(segs * (sizeof(struct iovec) + sizeof(struct mm_pin)));
		if (mem)
			p = (struct piece){ mem, (struct mm_pin *)((struct iovec *)mem + segs),
					    (int)segs, 0, 0 };
		else if (whole)
			return -ENOMEM;
	}
	cursor_advance(iov, &c, skip);
	do {
		size_t want = whole ? total : MIN(total - done, piece_limit(done, to_guest));
		struct kiov k;

		r = piece_pin(t, iov, c, want, to_guest, &p);
		if (r == 0 && whole && p.len < want)
			r = -EFAULT;
		if (r == 0) {
			kiov_init(&k, p.seg, p.count);
			r = op(arg, &k);
		}
		mm_unpin(p.pins, p.count);
		if (r <= 0)
			break;
		ASSERT((size_t)r <= p.len || whole); /* MSG_TRUNC reports more than it moves */
		done += (size_t)r;
		if (whole || (size_t)r < p.len)
			break;
		cursor_advance(iov, &c, (size_t)r);
	} while (done < total);
	free(mem);
	return done ? (ssize_t)done : r;
}

ssize_t sys_iov_transfer(struct task *t, const struct sys_iov *iov, size_t skip, bool to_guest,
			 bool whole, ssize_t (*op)(void *arg, struct kiov *k), void *arg)
{
	ssize_t n;

	if (transfer_small(t, iov, skip, to_guest, whole, op, arg, &n))
		return n;
	return transfer_pinned(t, iov, skip, to_guest, whole, op, arg);
}
