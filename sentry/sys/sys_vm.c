/* Other tasks' memory: process_vm_readv and process_vm_writev, process_madvise, process_mrelease.
 */
#include "sentry/fd/pidfd.h"
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <limits.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/mman.h>

#define VM_BOUNCE (64UL << 10)

/* The address space of another task, with a reference, as Linux's mm_access: -ESRCH without one,
 * -EACCES by ptrace(2)'s check, PTRACE_MODE_ATTACH_REALCREDS. */
static int other_mm(struct task *t, struct task *other, struct mm **ret)
{
	const struct cred *mine = t->cred, *theirs;
	struct mm *mm = task_get_mm(other);
	bool same;

	if (!mm)
		return -ESRCH;
	*ret = mm;
	if (mm == t->mm || other->tg == t->tg)
		return 0;
	theirs = task_get_cred(other);
	same = mine->uid == theirs->uid && mine->uid == theirs->euid && mine->uid == theirs->suid &&
	       mine->gid == theirs->gid && mine->gid == theirs->egid && mine->gid == theirs->sgid &&
	       !(theirs->cap_permitted & ~mine->cap_permitted);
	cred_put(theirs);
	if (cred_capable(mine, CAP_SYS_PTRACE) || (same && mm_dumpable(mm) == 1))
		return 0;
	*ret = NULL;
	mm_put(mm);
	return -EACCES;
}

/* Segments of the remote process: lengths checked, addresses only when used. */
static int remote_import(struct task *t, u64 vec, u64 count, struct iovec **ret, size_t *ret_total)
{
	struct iovec *iov;
	size_t total = 0;

	if (count > IOV_MAX)
		return -EINVAL;
	iov = calloc(MAX(count, 1u), sizeof(*iov));
	if (!iov)
		return -ENOMEM;
	if (count && copy_in(t, iov, ua(vec), count * sizeof(*iov)) < 0) {
		free(iov);
		return -EFAULT;
	}
	for (u64 i = 0; i < count; i++) {
		if ((ssize_t)iov[i].iov_len < 0) {
			free(iov);
			return -EINVAL;
		}
		iov[i].iov_len = MIN(iov[i].iov_len, MAX_RW_COUNT - total);
		total += iov[i].iov_len;
	}
	*ret = iov;
	*ret_total = total;
	return 0;
}

struct vm_copy {
	struct task *t;
	struct mm *remote;
	const struct sys_iov *local;
	int seg; /* where the local side stands */
	size_t seg_off;
	char *buf;
	u64 readable_start, readable_end; /* remote */
};

/* Between buf and the local segments; bytes moved. */
static size_t local_move(struct vm_copy *c, size_t len, bool to_local)
{
	size_t done = 0;

	while (done < len && c->seg < c->local->guest_count) {
		const struct iovec *s = &c->local->guest[c->seg];
		size_t n = MIN(len - done, s->iov_len - c->seg_off);
		uaddr at = ua((u64)s->iov_base + c->seg_off);
		ssize_t r = 0;

		if (n)
			r = to_local ? mm_copy_out_partial(c->t->mm, at, c->buf + done, n)
				     : mm_copy_in_partial(c->t->mm, c->buf + done, at, n);
		if (r < 0)
			break;
		done += (size_t)r;
		c->seg_off += (size_t)r;
		if ((size_t)r < n)
			break;
		if (c->seg_off == s->iov_len) {
			c->seg++;
			c->seg_off = 0;
		}
	}
	return done;
}

/*
 * How much of [addr, addr + len) the remote process may read, by the word of its mappings: the
 * processor lets it read what is only to be written or executed, but Linux looks at the vma here.
 */
static size_t readable(struct vm_copy *c, u64 addr, size_t len)
{
	struct mm_vma_info *v;
	u64 at = addr;

	if (addr >= c->readable_start && addr < c->readable_end)
		return MIN(len, c->readable_end - addr);
	v = malloc(sizeof(*v));
	while (v && at - addr < len && mm_vma_at_or_after(c->remote, at, false, v) &&
	       v->start <= at && (v->prot & PROT_READ))
		at = v->end;
	free(v);
	c->readable_start = addr;
	c->readable_end = at;
	return MIN(len, at - addr);
}

/* One piece at the remote address; bytes moved, or -EFAULT. */
static ssize_t vm_piece(struct vm_copy *c, u64 addr, size_t len, bool write)
{
	ssize_t n;

	if (write) {
		len = local_move(c, len, false);
		return len ? mm_copy_out_partial(c->remote, ua(addr), c->buf, len) : -EFAULT;
	}
	n = (ssize_t)readable(c, addr, len);
	if (n > 0)
		n = mm_copy_in_partial(c->remote, c->buf, ua(addr), (size_t)n);
	if (n <= 0)
		return -EFAULT;
	len = local_move(c, (size_t)n, true);
	return len ? (ssize_t)len : -EFAULT;
}

static s64 vm_transfer(struct vm_copy *c, const struct iovec *iov, u64 count, bool write)
{
	size_t left = c->local->total, done = 0;

	for (u64 i = 0; i < count; i++) {
		for (size_t off = 0; off < iov[i].iov_len && left;) {
			size_t n = MIN(MIN(iov[i].iov_len - off, left), VM_BOUNCE);
			ssize_t r = vm_piece(c, (u64)iov[i].iov_base + off, n, write);

			if (r < 0)
				return done ? (s64)done : r;
			done += (size_t)r;
			off += (size_t)r;
			left -= (size_t)r;
			if ((size_t)r < n)
				return (s64)done;
		}
	}
	return (s64)done;
}

static s64 process_vm(struct task *t, const u64 a[6], bool write)
{
	struct vm_copy c = { .t = t };
	struct iovec *remote = NULL;
	struct task *other = NULL;
	struct sys_iov local;
	size_t total = 0;
	s64 r;

	if (a[5])
		return -EINVAL;
	r = sys_iov_import(t, ua(a[1]), a[2], &local);
	if (r < 0)
		return r;
	c.local = &local;
	/* What has nothing to move does not look any further. */
	if (local.total)
		r = remote_import(t, a[3], a[4], &remote, &total);
	if (r < 0 || !local.total || !total)
		goto out;
	r = -ESRCH;
	other = task_find(t->kernel, (int)a[0]);
	if (!other)
		goto out;
	r = other_mm(t, other, &c.remote);
	if (r == -EACCES)
		r = -EPERM;
	if (r < 0)
		goto out;
	r = -ENOMEM;
	c.buf = malloc(MIN(VM_BOUNCE, local.total));
	if (c.buf)
		r = vm_transfer(&c, remote, a[4], write);
	free(c.buf);
	mm_put(c.remote);
out:
	task_put(other);
	free(remote);
	sys_iov_free(&local);
	return r;
}

s64 sys_process_vm_readv(struct task *t, const u64 a[6])
{
	return process_vm(t, a, false);
}

s64 sys_process_vm_writev(struct task *t, const u64 a[6])
{
	return process_vm(t, a, true);
}

/* ---- process_madvise ---- */

/* Advice that changes no content is allowed on others; the rest only on oneself. */
static bool advice_for_others(int advice)
{
	return advice == MADV_COLD || advice == MADV_PAGEOUT || advice == MADV_WILLNEED ||
	       advice == 25 /* MADV_COLLAPSE */;
}

static s64 advise_all(struct mm *mm, const struct sys_iov *iov, int advice,
		      const struct mm_limits *limits)
{
	s64 done = 0;

	for (int i = 0; i < iov->guest_count && (size_t)done < iov->total; i++) {
		const struct iovec *s = &iov->guest[i];
		int err = mm_madvise(mm, (u64)s->iov_base, s->iov_len, advice, limits);

		if (err < 0)
			return done ? done : err;
		done += (s64)s->iov_len;
	}
	return done;
}

s64 sys_process_madvise(struct task *t, const u64 a[6])
{
	struct task *other = NULL;
	struct thread_group *tg;
	struct mm_limits limits;
	struct mm *mm = NULL;
	struct sys_iov iov;
	struct file *f = NULL;
	s64 r;

	if ((u32)a[4])
		return -EINVAL;
	r = sys_iov_import(t, ua(a[1]), a[2], &iov);
	if (r < 0)
		return r;
	r = sys_pidfd_arg(t, (int)a[0], &f, &tg);
	if (r < 0)
		goto out;
	other = thread_group_any_task(tg);
	r = other ? other_mm(t, other, &mm) : -ESRCH;
	if (r < 0)
		goto out;
	r = -EINVAL;
	if (mm != t->mm && !advice_for_others((int)a[3]))
		goto out;
	r = -EPERM;
	if (mm != t->mm && !cred_capable(t->cred, CAP_SYS_NICE))
		goto out;
	task_mm_limits(t, &limits);
	r = advise_all(mm, &iov, (int)a[3], &limits);
out:
	mm_put(mm);
	task_put(other);
	file_put(f);
	sys_iov_free(&iov);
	return r;
}

/* ---- process_mrelease ---- */

struct sharers {
	const struct mm *mm;
	bool alive; /* a process that does not die uses mm */
};

static void look_for_sharer(struct thread_group *tg, void *arg)
{
	struct sharers *s = arg;
	struct task *t;
	bool uses = false;

	list_for_each (t, &tg->tasks, group_node) {
		MUTEX_GUARD(&t->lock);
		uses |= t->mm == s->mm;
	}
	if (uses) {
		MUTEX_GUARD(&tg->sighand->lock);
		s->alive |= !tg->group_exiting;
	}
}

s64 sys_process_mrelease(struct task *t, const u64 a[6])
{
	struct sharers s = { 0 };
	struct task *other = NULL;
	struct mm *mm = NULL;
	struct thread_group *tg;
	struct file *f = NULL;
	s64 r;

	if ((u32)a[1])
		return -EINVAL;
	r = sys_pidfd_arg(t, (int)a[0], &f, &tg);
	if (r < 0)
		goto out;
	other = thread_group_any_task(tg);
	mm = other ? task_get_mm(other) : NULL;
	r = -ESRCH;
	if (!mm)
		goto out;
	s.mm = mm;
	thread_group_for_each(t->kernel, look_for_sharer, &s);
	r = s.alive ? -EINVAL : mm_release(mm);
out:
	mm_put(mm);
	task_put(other);
	file_put(f);
	return r;
}
