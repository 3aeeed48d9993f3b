/* Life of an address space. */
#include "mm/mm_impl.h"
#include "base/host_sync.h"
#include "pgalloc/promise.h"

#include <stdlib.h>

void mm_op_begin(struct mm *mm, struct mm_op *op)
{
	*op = (struct mm_op){ .mm = mm };
	rwlock_wrlock(&mm->map_lock);
	mutex_lock(&mm->active_lock);
}

void mm_op_end(struct mm_op *op)
{
	struct mm *mm = op->mm;
	struct vma *v, *next;

	mm_promise_settle(mm, op->promised);
	mutex_unlock(&mm->active_lock);
	for (v = op->dead; v; v = v->dead_next)
		vma_reg_release(v->reg);
	rwlock_unlock(&mm->map_lock);
	for (v = op->dead; v; v = next) {
		next = v->dead_next;
		vma_put(v);
	}
}

int mm_promise(struct mm_op *op, const struct mm_limits *l, u64 bytes)
{
	struct mm *mm = op->mm;
	int err = promise_take(pgalloc_promise(mm->memory), bytes, mm->total, l->admin);

	if (err == 0)
		op->promised += bytes;
	return err;
}

void mm_promise_settle(struct mm *mm, u64 taken)
{
	s64 more = (s64)(mm->accounted - mm->promised - taken);

	if (more)
		promise_add(pgalloc_promise(mm->memory), more);
	mm->promised = mm->accounted;
}

int mm_promise_child(struct mm *child, const struct mm *parent)
{
	struct promise *p = pgalloc_promise(child->memory);
	struct vma *v;
	u64 taken = 0;
	int err;

	switch (atomic_load(&p->mode)) {
	case PROMISE_NEVER:
		err = promise_take(p, child->accounted, parent->total, parent->limits.admin);
		if (err < 0)
			return err;
		taken = child->accounted;
		break;
	case PROMISE_GUESS:
		/* Each vma is a request of its own; they may have been merged since. */
		v = child->accounted > p->total ? vma_set_first(&child->vmas) : NULL;
		for (; v; v = vma_next(&child->vmas, v))
			if ((v->flags & VMA_ACCOUNT) && vma_len(v) > p->total)
				return -ENOMEM;
		break;
	}
	mm_promise_settle(child, taken);
	return 0;
}

u64 mm_space(struct mm *mm)
{
	return __atomic_load_n(&mm->total, __ATOMIC_RELAXED);
}

/* Where there is no room for another one, those that lie idle (legacy.c) go. */
static int new_stub(const struct mm_config *config, struct platform_as **ret)
{
	int err = platform_as_new(config->platform, ret);

	if (err == 0)
		return 0;
	pgalloc_drain(config->memory);
	return platform_as_new(config->platform, ret);
}

int mm_new_in(const struct mm_config *config, struct platform_as *as, struct mm **ret)
{
	static struct mm_totals nobodys;
	struct mm *mm = calloc(1, sizeof(*mm));
	int err;

	if (!mm)
		return -ENOMEM;
	pma_set_init(&mm->pmas);
	err = pma_set_reserve(&mm->pmas, 2 * PMA_RESERVE);
	mm->as = as;
	if (err == 0 && !as)
		err = new_stub(config, &mm->as);
	if (err < 0) {
		pma_set_destroy(&mm->pmas);
		free(mm);
		return err;
	}
	refs_init(&mm->refs, "mm");
	mm->users = 1;
	mm->platform = config->platform;
	mm->memory = config->memory;
	mm->memfile = pgalloc_file(config->memory);
	mm->acct_id = config->acct_id;
	mm->totals = config->totals ? config->totals : &nobodys;
	mm->fork_wait = config->fork_wait;
	mm->fork_reuse = config->fork_reuse;
	text_mm_init(mm, config->text);
	platform_guest_limits(config->platform, &mm->min, &mm->max);
	mm->mmap_base = mm->max;
	rwlock_init(&mm->map_lock, RANK_MM_MAP, "mm map");
	mutex_init(&mm->active_lock, RANK_MM_ACTIVE, "mm active");
	mutex_init(&mm->exe_lock, RANK_LEAF, "mm exe");
	vma_set_init(&mm->vmas);
	mm->limits = (struct mm_limits){
		.as = RLIM_INFINITY,
		.data = RLIM_INFINITY,
		.stack = RLIM_INFINITY,
		.memlock = RLIM_INFINITY,
	};
	mm->dumpable = 1;
	keep_init(mm);
	MM_COUNT(mm, spaces);
	*ret = mm;
	return 0;
}

int mm_new(const struct mm_config *config, struct mm **ret)
{
	return mm_new_in(config, NULL, ret);
}

struct mm *mm_get(struct mm *mm)
{
	refs_get(&mm->refs);
	return mm;
}

void mm_empty_locked(struct mm *mm)
{
	mutex_assert_held(&mm->active_lock);
	if (mm->pmas.mapped || mm->kept.count || mm->held_count)
		stub_drop_all(mm);
	held_give_back(mm);
	if (backing_drop(mm, 0, UINT64_MAX & PAGE_MASK, false) < 0)
		PANIC("mm: no memory to release an address space");
	pgalloc_account_kept(mm->memory, -(s64)mm->leftover_bytes);
	mm->leftover_bytes = 0;
	atomic_store(&mm->leftover, false);
	fork_watch_gone(mm);
	home_child_gone(mm);
	legacy_left(mm);
}

/* Memory that nobody misses for a while. */
#define LEFTOVER_SHARE 64

static bool shared_writable(const struct vma *v)
{
	return (v->flags & VMA_SHARED) && (v->max_prot & PROT_WRITE);
}

/* One by one that takes the host long: with more of them all goes at once. */
#define SHARED_MAX 64

static bool many_shared(struct mm *mm, const struct vma *first)
{
	u32 count = 0;

	for (const struct vma *v = first; v && count <= SHARED_MAX;
	     v = vma_set_marked(&mm->vmas, v->end, VMA_MARK_FILE))
		count += shared_writable(v);
	return count > SHARED_MAX;
}

static void unmap_all_of(struct mm *mm, const struct vma *v, struct stub_batch *b)
{
	struct pma *p = pma_set_seek(&mm->pmas, v->start);

	for (; p && p->start < v->end; p = pma_next(p)) {
		if (!p->host_map)
			continue;
		stub_batch_unmap(b, p->start, p->end);
		pma_set_host(&mm->pmas, p, PMA_UNMAPPED, PROT_NONE);
	}
}

/* A file may promise somebody that nobody can write to it any more, as soon as its vmas have gone.
 * False: not done. */
static bool drop_shared(struct mm *mm)
{
	struct vma *v, *first = vma_set_marked(&mm->vmas, 0, VMA_MARK_FILE);
	struct stub_batch b;

	if (many_shared(mm, first))
		return false;
	stub_batch_begin(mm, &b);
	for (v = first; v; v = vma_set_marked(&mm->vmas, v->end, VMA_MARK_FILE))
		if (shared_writable(v))
			unmap_all_of(mm, v, &b);
	stub_batch_end(&b);
	for (v = first; v; v = vma_set_marked(&mm->vmas, v->end, VMA_MARK_FILE))
		if (shared_writable(v) && backing_drop(mm, v->start, v->end, false) < 0)
			return false;
	return true;
}

/* Whether mm_finish may do the work of emptying, when others have been told of the end. Not with
 * much memory. */
static bool may_wait(struct mm *mm)
{
	u64 own = 0;
	struct pma *p;

	if (!drop_shared(mm))
		return false;
	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p))
		if (p->owned && !p->cow)
			own += p->end - p->start;
	if (own > pgalloc_room(mm->memory) / LEFTOVER_SHARE)
		return false;
	mm->leftover_bytes = own;
	pgalloc_account_kept(mm->memory, (s64)own);
	legacy_expect(mm, own);
	return true;
}

/* Who does not live so long has not used much of its parent's memory. */
#define USED_NS 4000000UL

static bool used_its_memory(const struct mm *mm)
{
	return !mm->executed && host_clock_ns(CLOCK_MONOTONIC) - mm->born_ns >= USED_NS;
}

void mm_executes(struct mm *mm)
{
	MUTEX_GUARD(&mm->active_lock);
	mm->executed = true;
}

/* Everything goes at once: one unmap of the stub, then the memory; that may be left to mm_finish.
 */
static void tear_down(struct mm *mm)
{
	struct mm_op op;

	mm_op_begin(mm, &op);
	atomic_store(&mm->leftover, true);
	if (!may_wait(mm))
		mm_empty_locked(mm);
	op.dead = vma_leave_all(mm);
	mm->torn_down = true;
	if (mm->born_ns)
		hot_child_ended(mm->hot_set, used_its_memory(mm));
	mm_op_end(&op);
	mm_set_exe(mm, NULL, NULL);
}

static void empty(struct mm *mm)
{
	if (!atomic_load(&mm->leftover))
		return;
	MUTEX_GUARD(&mm->active_lock);
	mm_empty_locked(mm);
}

void mm_finish(struct mm *mm)
{
	if (mm && !legacy_wanted(mm))
		empty(mm);
	mm_put(mm);
}

void mm_put(struct mm *mm)
{
	if (!mm || !refs_put(&mm->refs))
		return;
	if (!mm->torn_down)
		tear_down(mm);
	if (legacy_wanted(mm))
		legacy_leave(mm);
	empty(mm);
	text_mm_gone(mm);
	platform_as_put(home_forget(mm));
	platform_as_put(mm->as);
	ASSERT(!mm->write_pins);
	pma_set_destroy(&mm->pmas);
	keep_destroy(mm);
	hot_put(mm->hot_set);
	fork_watch_end(mm);
	legacy_end(mm);
	atomic_fetch_sub_explicit(&mm->totals->spaces, 1, memory_order_relaxed);
	rwlock_destroy(&mm->map_lock);
	mutex_destroy(&mm->active_lock);
	mutex_destroy(&mm->exe_lock);
	free(mm);
}

struct platform_as *mm_as(struct mm *mm)
{
	return mm->as;
}

void mm_settle(struct mm *mm)
{
	if (platform_as_settle(mm->as) == 0)
		return;
	MUTEX_GUARD(&mm->active_lock);
	stub_drop_all(mm);
}

void mm_user_get(struct mm *mm)
{
	atomic_fetch_add(&mm->users, 1);
}

void mm_user_put(struct mm *mm)
{
	u32 before = atomic_fetch_sub(&mm->users, 1);

	ASSERT(before > 0);
	if (before == 1)
		tear_down(mm);
}

bool mm_take_starved(struct mm *mm)
{
	return atomic_load_explicit(&mm->starved, memory_order_relaxed) &&
	       atomic_exchange(&mm->starved, false);
}

bool mm_emptied(struct mm *mm)
{
	bool gone;

	rwlock_rdlock(&mm->map_lock);
	gone = mm->torn_down;
	rwlock_unlock(&mm->map_lock);
	return gone;
}

int mm_reserve(struct mm *mm, u64 start, u64 end, int prot, const char *name)
{
	struct vma *v = vma_new(), *next;
	struct mm_op op;
	int err = 0;

	if (!v || !(v->name = vma_name_new(name))) {
		vma_put(v);
		return -ENOMEM;
	}
	v->start = start;
	v->end = end;
	v->prot = v->max_prot = (u8)prot;
	v->flags = VMA_RESERVED;
	mm_op_begin(mm, &op);
	next = vma_set_seek(&mm->vmas, start);
	if (start >= end || (next && next->start < end))
		err = -EEXIST;
	else
		err = vma_set_own(&mm->vmas, start, end);
	if (err == 0)
		vma_enter(mm, v);
	mm_op_end(&op);
	if (err < 0)
		vma_put(v);
	return err;
}

void mm_set_layout(struct mm *mm, u64 mmap_base)
{
	struct mm_op op;

	mm_op_begin(mm, &op);
	mm->mmap_base = MIN(page_down(mmap_base), mm->max);
	mm_op_end(&op);
}

void mm_set_limits(struct mm *mm, const struct mm_limits *limits)
{
	struct mm_op op;

	mm_op_begin(mm, &op);
	mm->limits = *limits;
	mm_op_end(&op);
}

/* ---- what upper layers hang on an mm ---- */

void mm_set_exe(struct mm *mm, void *exe_file, void (*put)(void *))
{
	void *old;
	void (*old_put)(void *);

	mutex_lock(&mm->exe_lock);
	old = mm->exe;
	old_put = mm->exe_put;
	mm->exe = exe_file;
	mm->exe_put = put;
	mutex_unlock(&mm->exe_lock);
	if (old)
		old_put(old);
}

void *mm_get_exe(struct mm *mm, void (*get)(void *))
{
	void *exe;

	mutex_lock(&mm->exe_lock);
	exe = mm->exe;
	if (exe)
		get(exe);
	mutex_unlock(&mm->exe_lock);
	return exe;
}

u32 mm_policy(struct mm *mm)
{
	return mm->policy;
}

void mm_set_policy(struct mm *mm, u32 policy)
{
	mm->policy = policy;
}

u32 mm_policy_inherited(struct mm *mm)
{
	u32 policy = mm->policy;

	return policy & MM_MDWE_NO_INHERIT ? policy & ~(u32)MM_MDWE : policy;
}

int mm_dumpable(struct mm *mm)
{
	return mm->dumpable;
}

void mm_set_dumpable(struct mm *mm, int v)
{
	bool changed = atomic_exchange(&mm->dumpable, v) != v;

	if (changed)
		mm_trust_changed(mm);
}

void mm_get_marks(struct mm *mm, struct mm_marks *ret)
{
	rwlock_rdlock(&mm->map_lock);
	*ret = mm->marks;
	rwlock_unlock(&mm->map_lock);
}

void mm_set_marks(struct mm *mm, const struct mm_marks *marks)
{
	struct mm_op op;

	mm_op_begin(mm, &op);
	mm->marks = *marks;
	mm_op_end(&op);
}
