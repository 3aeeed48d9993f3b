/* System V shared memory calls, over sentry/ipc/shm.h. */
#include "sentry/ipc/shm.h"
#include "sentry/sys/handlers.h"

#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>

#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15
#endif

/* The kernel's table, made on first use; NULL: no memory. */
static struct shm_table *table(struct task *t)
{
	struct shm_table *old = atomic_load(&t->kernel->shm), *made;

	if (old)
		return old;
	made = shm_table_new();
	if (!made || atomic_compare_exchange_strong(&t->kernel->shm, &old, made))
		return made;
	shm_table_free(made);
	return old;
}

s64 sys_shmget(struct task *t, const u64 a[6])
{
	int flags = (int)a[2];

	if (!table(t))
		return -ENOMEM;
	if (flags & SHM_HUGETLB) /* as a machine whose huge page pool is empty */
		return -ENOMEM;
	return shm_get(table(t), t->kernel->internal_tmpfs, (int)a[0], a[1], flags, t->cred, t->tg->tgid);
}

s64 sys_shmat(struct task *t, const u64 a[6])
{
	int flags = (int)a[2];
	bool read_only = flags & SHM_RDONLY;
	struct mm_mmap_args m = { .flags = MAP_SHARED, .prot = PROT_READ };
	struct shm_segment *s;
	char name[40];
	s64 r;

	m.addr = a[1];
	if (!table(t))
		return -ENOMEM;
	if (m.addr && !page_aligned(m.addr)) {
		if (!(flags & SHM_RND))
			return -EINVAL;
		m.addr = page_down(m.addr);
	}
	if ((flags & SHM_REMAP) && !m.addr)
		return -EINVAL;
	r = shm_find(table(t), (int)a[0], t->cred, !read_only, &s);
	if (r < 0)
		return r;
	if (m.addr)
		m.flags |= flags & SHM_REMAP ? MAP_FIXED : MAP_FIXED | MAP_FIXED_NOREPLACE;
	m.prot |= (read_only ? 0 : PROT_WRITE) | (flags & SHM_EXEC ? PROT_EXEC : 0);
	m.max_prot = PROT_READ | PROT_EXEC | (read_only ? 0 : PROT_WRITE);
	m.len = page_up_nofail(shm_size(s));
	m.mappable = shm_mappable(s);
	snprintf(name, sizeof(name), "/SYSV%08x (deleted)", (u32)shm_key(s));
	m.name = name;
	task_mm_limits(t, &m.limits);
	r = mm_mmap(t->mm, &m);
	if (r == -EEXIST)
		r = -EINVAL;
	if (r >= 0)
		shm_touched(s, t->tg->tgid, true);
	shm_put(s);
	return r;
}

/* The vma is a piece of the segment attached at `base`. */
static bool attached_at(const struct mm_vma_info *v, u64 base)
{
	return !strncmp(v->name, "/SYSV", 5) && v->start - v->offset == base;
}

s64 sys_shmdt(struct task *t, const u64 a[6])
{
	struct mm_vma_info v;
	struct shm_segment *s = NULL;
	u64 addr = a[0], end;
	s64 r = -EINVAL;

	if (!page_aligned(addr) || !table(t))
		return -EINVAL;
	if (!mm_vma_at_or_after(t->mm, addr, false, &v) || v.start < addr || !attached_at(&v, addr))
		return -EINVAL;
	if (shm_find(table(t), (int)v.ino, t->cred, false, &s) == 0) {
		end = addr + page_up_nofail(shm_size(s));
	} else {
		s = NULL; /* marked for removal and not ours to look up: the pieces tell */
		end = UINT64_MAX;
	}
	for (u64 at = v.start; at < end && mm_vma_at_or_after(t->mm, at, false, &v); at = v.end) {
		u64 start = MAX(v.start, at);

		if (start >= end || !attached_at(&v, addr)) {
			if (end == UINT64_MAX || start >= end)
				break;
			continue;
		}
		r = mm_munmap(t->mm, v.start, v.end - v.start);
		if (r < 0)
			break;
	}
	if (s && !r)
		shm_touched(s, t->tg->tgid, false);
	shm_put(s);
	return r;
}

static s64 limits_out(struct task *t, uaddr buf)
{
	struct shminfo info = { .shmmax = INT64_MAX - PAGE_SIZE * 2,
				.shmmin = 1,
				.shmmni = SHM_SEGMENTS_MAX,
				.shmseg = SHM_SEGMENTS_MAX,
				.shmall = INT64_MAX >> PAGE_SHIFT };
	struct shm_info totals;
	int highest = shm_totals(table(t), &totals);

	return copy_out(t, buf, &info, sizeof(info)) < 0 ? -EFAULT : highest;
}

s64 sys_shmctl(struct task *t, const u64 a[6])
{
	int id = (int)a[0], cmd = (int)a[1] & ~0x100 /* IPC_64 */;
	struct shm_info totals;
	struct shmid_ds ds;
	s64 r;

	if (!table(t))
		return -ENOMEM;
	switch (cmd) {
	case IPC_RMID: return shm_remove(table(t), id, t->cred);
	case IPC_SET:
		if (copy_in(t, &ds, ua(a[2]), sizeof(ds)) < 0)
			return -EFAULT;
		return shm_set(table(t), id, t->cred, &ds);
	case IPC_STAT:
	case SHM_STAT:
	case SHM_STAT_ANY:
		r = shm_stat(table(t), id, cmd != IPC_STAT, cmd == SHM_STAT_ANY, t->cred, &ds);
		if (r >= 0 && copy_out(t, ua(a[2]), &ds, sizeof(ds)) < 0)
			r = -EFAULT;
		return r;
	case IPC_INFO: return limits_out(t, ua(a[2]));
	case SHM_INFO:
		r = shm_totals(table(t), &totals);
		return copy_out(t, ua(a[2]), &totals, sizeof(totals)) < 0 ? -EFAULT : r;
	case SHM_LOCK:
	case SHM_UNLOCK:
		/* Guest memory is never swapped by us: only the id and the right to ask are checked. */
		return shm_stat(table(t), id, false, false, t->cred, &ds);
	default: return -EINVAL;
	}
}
