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
	table = shm_table_new(k->memory_limit / PAGE_SIZE);
	if (table == NULL || atomic_compare_exchange_strong(&k->shm, &none, table))
		return table;
	shm_table_free(table);
	return none;
}

s64 sys_shmget(struct task *t, const u64 a[6])
{
	struct shm_table *table = table_of(t->kernel);

	if (table == NULL)
		return -ENOMEM;
	return shm_get(table, t->kernel->internal_tmpfs, (int)a[0], a[1], (int)a[2], t->cred);
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
		r = shm_find(table, (int)a[0], t->cred,
			     flags & SHM_RDONLY ? (flags & SHM_EXEC ? 5 : 4)
						: (flags & SHM_EXEC ? 7 : 6),
			     &s);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), NAME_PREFIX "%08x (deleted)", (u32)shm_key(s));
	args.len = shm_size(s);
	args.mappable = shm_mappable(s);
	args.name = name;
	task_mm_limits(t, &args.limits);
	if (!(flags & SHM_REMAP) && args.addr + args.len < args.addr)
		r = -EINVAL;
	else
		r = mm_mmap(t->mm, &args);
	shm_put(s);
	return r == -EEXIST ? -EINVAL : r;
}

/* By its name and, for a guest may call its files the same, the device of unnamed memory. */
static bool is_attach(const struct task *t, const struct mm_vma_info *v)
{
	const struct superblock *sb = t->kernel->internal_tmpfs;

	return v->shared && strncmp(v->name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0 &&
	       v->dev_major == sb->dev_major && v->dev_minor == sb->dev_minor;
}

/* Is v what is left of a segment that was attached at addr? */
static bool part_of_attach(const struct task *t, const struct mm_vma_info *v, u64 addr)
{
	return is_attach(t, v) && v->start >= addr && v->start - addr == v->offset;
}

/*
 * As Linux: the first part of an attach that begins at addr says of which segment, even if others
 * lie before it; then all parts as far as that could reach.
 */
s64 sys_shmdt(struct task *t, const u64 a[6])
{
	struct shm_table *table = table_of(t->kernel);
	u64 addr = a[0], at = addr, end = UINT64_MAX, ino = 0;
	struct mm_vma_info *v;
	struct shmid_ds ds;
	s64 r = -EINVAL;

	if (table == NULL || !page_aligned(addr))
		return -EINVAL;
	v = malloc(sizeof(*v));
	if (v == NULL)
		return -ENOMEM;
	for (; mm_vma_at_or_after(t->mm, at, false, v) && v->end <= end; at = v->end) {
		if (!part_of_attach(t, v, addr) || (r == 0 && v->ino != ino))
			continue;
		if (r < 0) {
			r = shm_stat(table, (int)v->ino, false, true, t->cred, &ds);
			if (r < 0)
				break;
			ino = v->ino;
			end = addr + page_up_nofail(ds.shm_segsz);
		}
		/* What is sealed stays, and Linux says nothing. */
		(void)mm_munmap(t->mm, v->start, v->end - v->start);
	}
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
		ends = v->start == addr && v->end - addr == len && is_attach(t, v) &&
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
	struct shmid_ds ds;
	int r;

	if (cmd < 0 || id < 0)
		return -EINVAL;
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
	case SHM_LOCK: return shm_lock(table, id, t->cred, task_rlimit(t, RLIMIT_MEMLOCK));
	case SHM_UNLOCK: return shm_unlock(table, id, t->cred);
	default: return -EINVAL;
	}
}
