/* SysV shared memory: shmget, shmat, shmdt, shmctl over sentry/ipc. */
#include "sentry/ipc/shm.h"
#include "sentry/sys/handlers.h"
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SHM_STAT_ANY_CMD 15
#define NAME_PREFIX "/SYSV"

static struct shm_table *table_of(struct kernel *k)
{
	struct shm_table *table = atomic_load(&k->shm), *none = NULL;

	if (table)
		return table;
	table = shm_table_new();
	if (table == NULL || atomic_compare_exchange_strong(&k->shm, &none, table))
		return table;
	shm_table_free(table);
	return none;
}

s64 sys_shmget(struct task *t, const u64 a[6])
{
	struct shm_table *table = table_of(t->kernel);
	struct shm_info use;

	if (table == NULL)
		return -ENOMEM;
	if ((int)a[2] & SHM_HUGETLB)
		return -ENOMEM; /* no huge pages */
	/* Segments stay without a process: together they are held to the guest's memory. */
	shm_totals(table, &use);
	if (((int)a[2] & IPC_CREAT || (int)a[0] == IPC_PRIVATE) && a[1] <= INT64_MAX &&
	    use.shm_tot + a[1] / PAGE_SIZE > t->kernel->memory_limit / PAGE_SIZE)
		return a[1] > t->kernel->memory_limit ? -ENOMEM : -ENOSPC;
	return shm_get(table, t->kernel->internal_tmpfs, (int)a[0], a[1], (int)a[2], t->cred,
		       t->tg->tgid);
}

static int attach_args(u64 addr, int flags, struct mm_mmap_args *args)
{
	args->prot = PROT_READ | (flags & SHM_RDONLY ? 0 : PROT_WRITE) |
		     (flags & SHM_EXEC ? PROT_EXEC : 0);
	args->max_prot = (u8)(PROT_READ | PROT_EXEC | (flags & SHM_RDONLY ? 0 : PROT_WRITE));
	args->flags = MAP_SHARED;
	if (addr == 0)
		return flags & SHM_REMAP ? -EINVAL : 0;
	if (!page_aligned(addr)) {
		if (!(flags & SHM_RND))
			return -EINVAL;
		addr = page_down(addr);
		if (addr == 0 && (flags & SHM_REMAP))
			return -EINVAL;
	}
	args->addr = addr;
	args->flags |= flags & SHM_REMAP ? MAP_FIXED : MAP_FIXED_NOREPLACE;
	return 0;
}

s64 sys_shmat(struct task *t, const u64 a[6])
{
	struct shm_table *table = table_of(t->kernel);
	struct mm_mmap_args args = { 0 };
	struct shm_segment *s;
	int flags = (int)a[2];
	char name[32];
	s64 r;

	if (table == NULL)
		return -ENOMEM;
	r = attach_args(a[1], flags, &args);
	if (r == 0)
		r = shm_find(table, (int)a[0], t->cred, !(flags & SHM_RDONLY), &s);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), NAME_PREFIX "%08x (deleted)", (u32)shm_key(s));
	args.len = shm_size(s);
	args.mappable = shm_mappable(s);
	args.name = name;
	task_mm_limits(t, &args.limits);
	r = mm_mmap(t->mm, &args);
	if (r >= 0)
		shm_touched(s, t->tg->tgid, true);
	shm_put(s);
	return r == -EEXIST ? -EINVAL : r;
}

static bool is_attach(const struct mm_vma_info *v)
{
	return strncmp(v->name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0 && v->shared;
}

/* Is v a part of the segment that was attached at start? */
static bool part_of_attach(const struct mm_vma_info *v, u64 start, const struct mm_vma_info *first)
{
	return is_attach(v) && v->start >= start && v->start - start == v->offset &&
	       v->ino == first->ino && v->dev_minor == first->dev_minor;
}

s64 sys_shmdt(struct task *t, const u64 a[6])
{
	struct shm_table *table = table_of(t->kernel);
	struct mm_vma_info *v, *first;
	struct shm_segment *s;
	u64 start = a[0];
	s64 r = -EINVAL;

	if (table == NULL || !page_aligned(start))
		return -EINVAL;
	v = malloc(2 * sizeof(*v));
	if (v == NULL)
		return -ENOMEM;
	first = v + 1;
	if (!mm_vma_at_or_after(t->mm, start, false, first) || first->start != start ||
	    !part_of_attach(first, start, first))
		goto out;
	r = 0;
	/* What splits have left of the mapping, as far as it reaches. */
	*v = *first;
	while (r == 0 && part_of_attach(v, start, first)) {
		if (shm_find(table, (int)first->ino, t->cred, false, &s) == 0) {
			shm_touched(s, t->tg->tgid, false);
			shm_put(s);
		}
		r = mm_munmap(t->mm, v->start, v->end - v->start);
		if (r == -EPERM)
			r = 0; /* it is sealed, stays, and Linux says nothing */
		if (!mm_vma_at_or_after(t->mm, v->end, false, v))
			break;
	}
out:
	free(v);
	return r;
}

bool sys_shm_ends(struct task *t, u64 addr, u64 len)
{
	struct shm_table *table = atomic_load(&t->kernel->shm);
	struct mm_vma_info *v = table && len ? malloc(sizeof(*v)) : NULL;
	struct shmid_ds ds;
	bool ends = false;

	if (v && mm_vma_at_or_after(t->mm, addr, false, v))
		ends = v->start == addr && v->end - addr == len && is_attach(v) &&
		       shm_stat(table, (int)v->ino, false, true, t->cred, &ds) >= 0 &&
		       (ds.shm_perm.mode & SHM_DEST) && ds.shm_nattch == 1;
	free(v);
	return ends;
}

static s64 stat_out(struct task *t, struct shm_table *table, int id, int cmd, uaddr buf)
{
	struct shmid_ds ds;
	int r = shm_stat(table, id, cmd != IPC_STAT, cmd == SHM_STAT_ANY_CMD, t->cred, &ds);

	if (r >= 0 && copy_out(t, buf, &ds, sizeof(ds)) < 0)
		return -EFAULT;
	return r;
}

static s64 info_out(struct task *t, struct shm_table *table, int cmd, uaddr buf)
{
	struct shminfo limits = { .shmmax = SHM_BYTES_MAX,
				  .shmmin = 1,
				  .shmmni = SHM_SEGMENTS_MAX,
				  .shmseg = SHM_SEGMENTS_MAX,
				  .shmall = SHM_BYTES_MAX };
	struct shm_info use;
	int highest = shm_totals(table, &use), r;

	r = cmd == IPC_INFO ? copy_out(t, buf, &limits, sizeof(limits))
			    : copy_out(t, buf, &use, sizeof(use));
	return r < 0 ? r : highest;
}

s64 sys_shmctl(struct task *t, const u64 a[6])
{
	struct shm_table *table = table_of(t->kernel);
	int id = (int)a[0], cmd = (int)a[1];
	struct shm_segment *s;
	struct shmid_ds ds;
	int r;

	if (table == NULL)
		return -ENOMEM;
	switch (cmd) {
	case IPC_STAT:
	case SHM_STAT:
	case SHM_STAT_ANY_CMD: return stat_out(t, table, id, cmd, ua(a[2]));
	case IPC_INFO:
	case SHM_INFO: return info_out(t, table, cmd, ua(a[2]));
	case IPC_SET:
		r = copy_in(t, &ds, ua(a[2]), sizeof(ds));
		return r < 0 ? r : shm_set(table, id, t->cred, &ds);
	case IPC_RMID: return shm_remove(table, id, t->cred);
	case SHM_LOCK:
	case SHM_UNLOCK:
		r = shm_find(table, id, t->cred, false, &s);
		if (r < 0)
			return r == -EACCES ? -EPERM : r;
		r = cred_capable(t->cred, CAP_IPC_LOCK) ? 0 : -EPERM;
		if (r == 0)
			shm_set_locked(s, cmd == SHM_LOCK);
		shm_put(s);
		return r;
	default: return -EINVAL;
	}
}
