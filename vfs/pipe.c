/*
 * Pipes and FIFOs: a byte ring with one lock for each side.
 *
 * Readers move `head` under rlock, writers move `tail` under wlock, so one reader
 * and one writer copy at the same time, without touching each other's bytes.
 * Whoever changes the ring itself holds both, wlock first; the holder of an rlock
 * takes nothing further, which keeps splice between any two pipes free of
 * deadlock. The ring's memory grows with what is written (a pipe that was never
 * written has none).
 */
#include "vfs/pipe.h"
#include "base/log.h"
#include <limits.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

#define PIPE_MIN_SIZE PAGE_SIZE
/* Rings are the sentry's memory, so even a guest's root meets a limit: for one pipe, and for all.
 */
#define PIPE_HARD_MAX (32UL << 20)
#define PIPE_TOTAL_MAX (512UL << 20)
/* As Linux's pipe-user-pages-soft: beyond this many bytes of capacity new pipes are small. */
#define PIPE_TOTAL_SOFT (64UL << 20)
#define PIPE_SMALL_SIZE (2 * PAGE_SIZE)

struct packet {
	u64 start, end; /* positions as head and tail count them */
};

struct pipe {
	struct mutex wlock, rlock; /* RANK_PIPE; both: wlock first */
	struct waitq waitq;
	_Atomic u64 head;     /* bytes ever read; changed under rlock */
	_Atomic u64 tail;     /* bytes ever written; changed under wlock */
	_Atomic u64 capacity; /* power of two; changed under both locks */
	u8 *ring;	      /* both locks to change, either to use */
	u64 ring_size;	      /* likewise: power of two, <= capacity, 0 while there is none */
	_Atomic u32 readers, writers;
	_Atomic u32 reader_opens, writer_opens; /* ever; for FIFO opens that wait */
	bool unnamed; /* immutable: from pipe(2); opening it again (/proc/PID/fd) never waits */
	int files;    /* protected by fifo_lock */
	struct inode *inode; /* borrowed: every open file holds it */
	/* packets not yet read, oldest first: [packet_first, packet_last) modulo the slots */
	struct mutex packet_lock; /* RANK_LEAF */
	struct packet *packets;	  /* protected by packet_lock, as the rest */
	u32 packet_slots;
	_Atomic u32 packet_first, packet_last;
};

/* One open file's view. */
struct pipe_end {
	struct pipe *pipe;
	u32 opens_seen; /* the other side's count when this end was opened */
	bool reads, writes;
};

/* Protects inode->fifo and pipe.files. Never held with another lock. */
static struct mutex fifo_lock = MUTEX_INIT(RANK_PIPE, "fifo");
static _Atomic u64 total_capacity;

static const struct file_ops pipe_file_ops;

static struct pipe_end *end_of(struct file *f)
{
	return f->private;
}

static u64 pipe_used(struct pipe *p)
{
	u64 head = p->head, used = p->tail - head;

	/* Both sides may have moved between the two reads. */
	return MIN(used, p->capacity);
}

static bool packets_full(struct pipe *p)
{
	return p->packet_last - p->packet_first >= MAX(1u, (u32)(p->capacity >> PAGE_SHIFT));
}

/* ---- life ---- */

static struct pipe *pipe_new(struct inode *inode, const struct cred *cred)
{
	struct pipe *p = calloc(1, sizeof(*p));
	u64 size = PIPE_DEFAULT_SIZE, total = total_capacity;

	if (!p)
		return NULL;
	if (total > PIPE_TOTAL_MAX / 2 ||
	    (total > PIPE_TOTAL_SOFT && !cred_capable(cred, CAP_SYS_RESOURCE)))
		size = PIPE_SMALL_SIZE;
	if (total > PIPE_TOTAL_MAX) {
		free(p);
		return NULL;
	}
	mutex_init(&p->wlock, RANK_PIPE, "pipe.wlock");
	mutex_init(&p->rlock, RANK_PIPE, "pipe.rlock");
	mutex_init(&p->packet_lock, RANK_LEAF, "pipe.packet_lock");
	waitq_init(&p->waitq);
	p->capacity = size;
	p->inode = inode;
	total_capacity += size;
	return p;
}

static void pipe_free(struct pipe *p)
{
	total_capacity -= p->capacity;
	waitq_destroy(&p->waitq);
	mutex_destroy(&p->wlock);
	mutex_destroy(&p->rlock);
	mutex_destroy(&p->packet_lock);
	free(p->packets);
	free(p->ring);
	free(p);
}

static void pipe_drop_file(struct pipe *p)
{
	bool last;

	mutex_lock(&fifo_lock);
	last = --p->files == 0;
	if (last)
		atomic_store(&p->inode->fifo, NULL);
	mutex_unlock(&fifo_lock);
	if (last)
		pipe_free(p);
}

/* Counts an end of p in; the file's reference on p is counted already. */
static void end_open(struct pipe_end *e, struct pipe *p, u32 flags)
{
	u32 acc = flags & O_ACCMODE;

	e->pipe = p;
	e->reads = acc == O_RDONLY || acc == O_RDWR;
	e->writes = acc == O_WRONLY || acc == O_RDWR;
	e->opens_seen = e->reads ? p->writer_opens : p->reader_opens;
	if (e->reads) {
		p->readers++;
		p->reader_opens++;
	}
	if (e->writes) {
		p->writers++;
		p->writer_opens++;
	}
	waitq_wake(&p->waitq, EPOLLIN | EPOLLOUT);
}

int pipe_create(u32 flags, const struct cred *cred, struct file **ret_read, struct file **ret_write)
{
	struct pipe_end *ends[2] = { calloc(1, sizeof(*ends[0])), calloc(1, sizeof(*ends[1])) };
	struct file *files[2] = { NULL, NULL };
	u32 kept = flags & (O_NONBLOCK | O_DIRECT);
	struct path path = { 0 };
	struct inode *inode = NULL;
	struct pipe *p = NULL;
	int err = -ENOMEM;

	if (!ends[0] || !ends[1])
		goto fail;
	err = vfs_anon_inode("pipe", S_IFIFO | 0600, cred, &inode);
	if (err < 0)
		goto fail;
	err = dentry_new_root(inode, &path.dentry);
	if (!err)
		err = file_new(inode, &path, O_RDONLY | kept, cred, &pipe_file_ops, ends[0],
			       &files[0]);
	if (!err)
		err = file_new(inode, &path, O_WRONLY | kept, cred, &pipe_file_ops, ends[1],
			       &files[1]);
	if (err < 0)
		goto fail;
	err = -ENOMEM;
	p = pipe_new(inode, cred);
	if (!p)
		goto fail;
	p->unnamed = true;
	p->files = 2;
	atomic_store(&inode->fifo, p);
	end_open(ends[0], p, O_RDONLY);
	end_open(ends[1], p, O_WRONLY);
	path_put(&path);
	inode_put(inode);
	*ret_read = files[0];
	*ret_write = files[1];
	return 0;
fail:
	for (int i = 0; i < 2; i++) {
		if (files[i])
			file_discard(files[i]);
		free(ends[i]);
	}
	path_put(&path);
	inode_put(inode);
	return err;
}

int fifo_open(struct inode *inode, struct file *file)
{
	struct pipe_end *e = calloc(1, sizeof(*e));
	u32 flags = file_flags(file);
	struct pipe *p;

	if (!e)
		return -ENOMEM;
	mutex_lock(&fifo_lock);
	p = atomic_load(&inode->fifo);
	if (!p) {
		p = pipe_new(inode, file->cred);
		if (!p) {
			mutex_unlock(&fifo_lock);
			free(e);
			return -ENOMEM;
		}
		atomic_store(&inode->fifo, p);
	}
	p->files++;
	mutex_unlock(&fifo_lock);
	if ((flags & O_ACCMODE) == O_WRONLY && (flags & O_NONBLOCK) && !p->readers && !p->unnamed) {
		pipe_drop_file(p);
		free(e);
		return -ENXIO;
	}
	end_open(e, p, flags);
	file->ops = &pipe_file_ops;
	file->private = e;
	return fifo_open_ready(file) ? 0 : -EAGAIN;
}

bool fifo_open_ready(struct file *file)
{
	struct pipe_end *e = end_of(file);
	struct pipe *p = e->pipe;

	if (p->unnamed || (e->reads && e->writes) || (file_flags(file) & O_NONBLOCK))
		return true;
	if (e->reads)
		return p->writers || p->writer_opens != e->opens_seen;
	return p->readers || p->reader_opens != e->opens_seen;
}

bool file_is_pipe(struct file *f)
{
	return f->ops == &pipe_file_ops;
}

/* Open files keep the inode, so an inode that goes has no pipe. */
void fifo_inode_free(struct inode *inode)
{
	ASSERT(!atomic_load(&inode->fifo));
}

static void pipe_release(struct file *f)
{
	struct pipe_end *e = end_of(f);
	struct pipe *p = e->pipe;

	if (e->reads && --p->readers == 0)
		waitq_wake(&p->waitq, EPOLLOUT | EPOLLERR);
	if (e->writes && --p->writers == 0)
		waitq_wake(&p->waitq, EPOLLIN | EPOLLHUP);
	free(e);
	pipe_drop_file(p);
}

/* ---- the ring ---- */

/* Makes room for `need` queued bytes if the capacity allows it. wlock held. */
static void ring_grow(struct pipe *p, u64 need)
{
	u64 size = MAX(p->ring_size, PIPE_MIN_SIZE);
	u8 *ring;

	mutex_assert_held(&p->wlock);
	while (size < need && size < p->capacity)
		size *= 2;
	if (size <= p->ring_size)
		return;
	ring = malloc(size);
	if (!ring)
		return;
	mutex_lock_nested(&p->rlock);
	for (u64 pos = p->head, n; pos < p->tail; pos += n) {
		u64 from = pos & (p->ring_size - 1), to = pos & (size - 1);

		n = MIN(p->tail - pos, MIN(p->ring_size - from, size - to));
		memcpy(ring + to, p->ring + from, n);
	}
	free(p->ring);
	p->ring = ring;
	p->ring_size = size;
	mutex_unlock(&p->rlock);
}

/* Copies up to n bytes at position pos out of the ring. Bytes, or -EFAULT when none. */
static ssize_t ring_out(struct pipe *p, u64 pos, u64 n, struct kiov *dst)
{
	u64 done = 0;

	while (done < n) {
		u64 at = (pos + done) & (p->ring_size - 1),
		    chunk = MIN(n - done, p->ring_size - at);
		ssize_t r = kiov_put(dst, p->ring + at, chunk);

		if (r < 0 && !done)
			return r;
		done += r > 0 ? (u64)r : 0;
		if (r < (ssize_t)chunk)
			break;
	}
	return (ssize_t)done;
}

static ssize_t ring_in(struct pipe *p, u64 pos, u64 n, struct kiov *src)
{
	u64 done = 0;

	while (done < n) {
		u64 at = (pos + done) & (p->ring_size - 1),
		    chunk = MIN(n - done, p->ring_size - at);
		ssize_t r = kiov_get(src, p->ring + at, chunk);

		if (r < 0 && !done)
			return r;
		done += r > 0 ? (u64)r : 0;
		if (r < (ssize_t)chunk)
			break;
	}
	return (ssize_t)done;
}

/* ---- packets ---- */

static bool packet_push(struct pipe *p, u64 start, u64 end)
{
	MUTEX_GUARD(&p->packet_lock);
	if (!p->packets) {
		p->packet_slots = (u32)MAX(p->capacity >> PAGE_SHIFT, 1u);
		p->packets = calloc(p->packet_slots, sizeof(*p->packets));
		if (!p->packets)
			return false;
	}
	if (p->packet_last - p->packet_first >= p->packet_slots)
		return false;
	p->packets[p->packet_last++ % p->packet_slots] = (struct packet){ start, end };
	return true;
}

/*
 * What a read at `head` may take: up to the next packet, or (true) exactly the
 * packet that begins there. rlock held.
 */
static bool packet_at(struct pipe *p, u64 head, u64 tail, u64 *ret_end)
{
	struct packet k;

	*ret_end = tail;
	if (p->packet_first == p->packet_last)
		return false;
	MUTEX_GUARD(&p->packet_lock);
	if (p->packet_first == p->packet_last)
		return false;
	k = p->packets[p->packet_first % p->packet_slots];
	*ret_end = MIN(tail, k.start == head ? k.end : k.start);
	return k.start == head;
}

/* Bytes up to `head` are gone: forgets packets before it. rlock held. */
static void packets_consumed(struct pipe *p, u64 head)
{
	if (p->packet_first == p->packet_last)
		return;
	MUTEX_GUARD(&p->packet_lock);
	while (p->packet_first != p->packet_last &&
	       p->packets[p->packet_first % p->packet_slots].end <= head)
		p->packet_first++;
}

/* ---- reading and writing ---- */

static void wake_writers(struct pipe *p)
{
	if (p->capacity - pipe_used(p) >= PIPE_BUF)
		waitq_wake(&p->waitq, EPOLLOUT | EPOLLWRNORM);
}

static ssize_t pipe_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct pipe *p = end_of(f)->pipe;
	bool writers, packet;
	u64 head, tail, end;
	ssize_t n;

	if (!dst->remaining)
		return 0;
	mutex_lock(&p->rlock);
	/* In this order: bytes written before the last writer left are seen. */
	writers = p->writers;
	head = p->head;
	tail = p->tail;
	if (head == tail) {
		mutex_unlock(&p->rlock);
		return writers ? -EAGAIN : 0;
	}
	packet = packet_at(p, head, tail, &end);
	n = ring_out(p, head, MIN(end - head, dst->remaining), dst);
	if (n > 0) {
		head = packet ? end : head + (u64)n;
		p->head = head;
		packets_consumed(p, head);
	}
	mutex_unlock(&p->rlock);
	if (n > 0)
		wake_writers(p);
	return n;
}

/* Writes of up to PIPE_BUF bytes go in whole or not at all. wlock held. */
static ssize_t write_locked(struct pipe *p, struct kiov *src, bool packet)
{
	u64 want = src->remaining, tail = p->tail, room;
	ssize_t n;

	if (packet)
		want = MIN(want, (u64)PIPE_BUF);
	room = p->capacity - (tail - p->head);
	if (room < MIN(want, (u64)PIPE_BUF) && (src->remaining <= PIPE_BUF || packet || !room))
		return -EAGAIN;
	if (packet && packets_full(p))
		return -EAGAIN;
	want = MIN(want, room);
	ring_grow(p, tail - p->head + want);
	room = p->ring_size - (tail - p->head);
	if (room < want && (!room || src->remaining <= PIPE_BUF || packet))
		return -ENOMEM;
	n = ring_in(p, tail, MIN(want, room), src);
	if (n <= 0)
		return n;
	if (packet && !packet_push(p, tail, tail + (u64)n))
		return -ENOMEM;
	p->tail = tail + (u64)n;
	return n;
}

static ssize_t pipe_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct pipe *p = end_of(f)->pipe;
	bool packet = file_flags(f) & O_DIRECT;
	ssize_t n = 0, done = 0;

	if (!src->remaining)
		return 0;
	if (!p->readers)
		return -EPIPE;
	mutex_lock(&p->wlock);
	do {
		n = write_locked(p, src, packet);
		done += MAX(n, 0);
	} while (packet && n > 0 && src->remaining);
	mutex_unlock(&p->wlock);
	if (done)
		waitq_wake(&p->waitq, EPOLLIN | EPOLLRDNORM);
	return done ? done : n;
}

static u32 pipe_poll(struct file *f)
{
	struct pipe_end *e = end_of(f);
	struct pipe *p = e->pipe;
	u32 mask = 0;

	if (e->reads) {
		/* A FIFO that has had no writer yet is not hung up. */
		if (!p->writers && p->writer_opens != e->opens_seen)
			mask |= EPOLLHUP;
		if (pipe_used(p))
			mask |= EPOLLIN | EPOLLRDNORM;
	}
	if (e->writes) {
		if (p->capacity - pipe_used(p) >= PIPE_BUF && !packets_full(p))
			mask |= EPOLLOUT | EPOLLWRNORM;
		if (!p->readers)
			mask |= EPOLLERR;
	}
	return mask;
}

static struct waitq *pipe_waitq(struct file *f)
{
	return &end_of(f)->pipe->waitq;
}

size_t pipe_bytes(struct file *f)
{
	return pipe_used(end_of(f)->pipe);
}

size_t pipe_room(struct file *f)
{
	struct pipe *p = end_of(f)->pipe;

	return p->capacity - pipe_used(p);
}

bool pipe_same(struct file *a, struct file *b)
{
	return end_of(a)->pipe == end_of(b)->pipe;
}

/* ---- size ---- */

static s64 set_size(struct pipe *p, u64 arg)
{
	u64 size = PIPE_MIN_SIZE, used;
	u8 *ring = NULL;
	s64 ret;

	if (arg > 1UL << 31)
		return -EINVAL;
	while (size < arg)
		size *= 2;
	if (size > PIPE_HARD_MAX || (size > p->capacity && total_capacity > PIPE_TOTAL_MAX / 2))
		return -ENOMEM;
	mutex_lock(&p->wlock);
	mutex_lock_nested(&p->rlock);
	used = p->tail - p->head;
	ret = -EBUSY;
	if (used > size || p->packet_first != p->packet_last)
		goto out;
	if (p->ring_size > size) {
		ret = -ENOMEM;
		ring = malloc(size);
		if (!ring)
			goto out;
		for (u64 i = 0; i < used; i++)
			ring[(p->head + i) & (size - 1)] =
				p->ring[(p->head + i) & (p->ring_size - 1)];
		free(p->ring);
		p->ring = ring;
		p->ring_size = size;
	}
	total_capacity += size - p->capacity;
	p->capacity = size;
	free(p->packets);
	p->packets = NULL;
	ret = (s64)size;
out:
	mutex_unlock(&p->rlock);
	mutex_unlock(&p->wlock);
	if (ret > 0)
		wake_writers(p);
	return ret;
}

/* The limit for unprivileged callers is the system call layer's matter: it knows who calls. */
static s64 pipe_fcntl(struct file *f, int cmd, u64 arg)
{
	struct pipe *p = end_of(f)->pipe;

	switch (cmd) {
	case F_GETPIPE_SZ: return (s64)p->capacity;
	case F_SETPIPE_SZ: return set_size(p, arg);
	default: return -EINVAL;
	}
}

/* ---- splice ---- */

ssize_t pipe_splice_pipe(struct file *in, struct file *out, size_t len, bool tee)
{
	struct pipe *from = end_of(in)->pipe, *to = end_of(out)->pipe;
	u64 head, tail, end, at, done = 0;
	bool writers, packet = false;
	ssize_t n = 0;

	if (from == to)
		return -EINVAL;
	if (!len)
		return 0;
	if (!to->readers)
		return -EPIPE;
	mutex_lock(&to->wlock);
	/* Room first: growing takes the rlock of `to`, and whoever holds an rlock takes no other.
	 */
	len = MIN(len, MIN(to->capacity - pipe_used(to), MAX(pipe_used(from), 1u)));
	if (len)
		ring_grow(to, pipe_used(to) + len);
	len = MIN(len, to->ring_size - MIN(to->ring_size, pipe_used(to)));
	mutex_lock_nested(&from->rlock);
	writers = from->writers;
	head = from->head;
	tail = from->tail;
	if (head == tail) {
		n = writers ? -EAGAIN : 0;
		goto out;
	}
	packet = packet_at(from, head, tail, &end);
	end = MIN(end, head + len);
	n = len ? 0 : -EAGAIN;
	for (at = head; at < end; at += (u64)n) {
		u64 off = at & (from->ring_size - 1), chunk = MIN(end - at, from->ring_size - off);
		struct iovec one;
		struct kiov k;

		kiov_init_buf(&k, &one, from->ring + off, chunk);
		n = write_locked(to, &k, packet);
		if (n <= 0)
			break;
		done += (u64)n;
	}
	if (done && !tee) {
		from->head = packet ? MAX(end, head + done) : head + done;
		packets_consumed(from, from->head);
	}
out:
	mutex_unlock(&from->rlock);
	mutex_unlock(&to->wlock);
	if (done) {
		waitq_wake(&to->waitq, EPOLLIN | EPOLLRDNORM);
		if (!tee)
			wake_writers(from);
	}
	return done ? (ssize_t)done : n;
}

ssize_t pipe_peek(struct file *f, void *dst, size_t len, u64 *ret_pos)
{
	struct pipe *p = end_of(f)->pipe;
	u64 head, tail, end;
	struct iovec one;
	struct kiov k;
	bool writers;
	ssize_t n;

	kiov_init_buf(&k, &one, dst, len);
	mutex_lock(&p->rlock);
	writers = p->writers;
	head = p->head;
	tail = p->tail;
	if (head == tail) {
		n = writers ? -EAGAIN : 0;
	} else {
		packet_at(p, head, tail, &end);
		n = ring_out(p, head, MIN(end - head, len), &k);
		*ret_pos = head;
	}
	mutex_unlock(&p->rlock);
	return n;
}

void pipe_consume(struct file *f, u64 pos, size_t len)
{
	struct pipe *p = end_of(f)->pipe;
	u64 end;

	mutex_lock(&p->rlock);
	if (p->head == pos) {
		if (!packet_at(p, pos, p->tail, &end))
			end = pos + len;
		p->head = MIN(end, p->tail);
		packets_consumed(p, p->head);
	}
	mutex_unlock(&p->rlock);
	wake_writers(p);
}

static const struct file_ops pipe_file_ops = {
	.kind = "pipe",
	.release = pipe_release,
	.read = pipe_read,
	.write = pipe_write,
	.poll = pipe_poll,
	.waitq = pipe_waitq,
	.fcntl = pipe_fcntl,
};
