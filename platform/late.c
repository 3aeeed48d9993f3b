/*
 * Mappings that wait for their guest thread: one that faulted, or has asked for memory, needs them
 * before its next instruction and not sooner. So they are left until it goes on; then the mapper
 * makes them and gives it the turn, and the sentry's thread has nothing to wait for but its next
 * stop. That they are made is no evidence of anything until the mapper has reported it.
 */
#include "platform/internal.h"

#include <string.h>

int platform_as_map_late(struct platform_as *as, const struct platform_op *ops, size_t count)
{
	struct platform_context *ctx = context_current();
	u32 have;

	/* What was deferred before would come after it. */
	if (!ctx || ctx->as != as || ctx->dead || !ctx->platform->late || ctx->deferred_count)
		return -EOPNOTSUPP;
	MUTEX_GUARD(&as->lock);
	as_try_settle_locked(as);
	if (as->failed) /* the next batch is to say so */
		return -EOPNOTSUPP;
	have = atomic_load(&as->late_count);
	if (have + count > LATE_MAX)
		return -ENOSPC;
	for (size_t i = 0; i < count; i++)
		if ((ops[i].kind != PLATFORM_OP_MAP && ops[i].kind != PLATFORM_OP_MAP_ZERO) ||
		    as_encode(as, &ops[i], &as->late[have + i]) < 0)
			return -EOPNOTSUPP;
	as->clean = false;
	atomic_store(&as->late_count, have + (u32)count);
	return 0;
}

u32 late_take_locked(struct platform_as *as)
{
	u32 count = atomic_load(&as->late_count);

	mutex_assert_held(&as->lock);
	memcpy(as->cmd->ops, as->late, count * sizeof(as->late[0]));
	return count;
}

bool platform_as_settled(struct platform_as *as)
{
	MUTEX_GUARD(&as->lock);
	return atomic_load(&as->dead) ||
	       (as_try_settle_locked(as) && !as->failed && !atomic_load(&as->late_count));
}

bool late_begin(struct platform_context *ctx)
{
	struct platform_as *as = ctx->as;
	u32 count, old, turn;
	bool wake;

	MUTEX_GUARD(&as->lock);
	as_settle_locked(as);
	count = late_take_locked(as);
	if (!count)
		return false;
	atomic_store(&as->late_count, 0);
	as->cmd->slot = ctx->stub_addr;
	/* A stub that sleeps would have to be woken to wake the mapper, and one on another CPU
	 * gains nothing by it. Or it is about to say that it sleeps. */
	old = atomic_load(&ctx->shared->word);
	wake = old & TURN_STUB_SLEEPS || !ctx->bound || ctx->bound != as->mapper_bound;
	turn = TURN_MAPPER | TURN_WAKE_MAPPER | (as->seq + 1) << TURN_SEQ_SHIFT;
	as->cmd->ring = 0;
	if (wake || !atomic_compare_exchange_strong(&ctx->shared->word, &old, turn)) {
		wake = true;
		old = atomic_exchange(&ctx->shared->word, TURN_MAPPER);
		if (old & TURN_STUB_SLEEPS) {
			as->cmd->ring = stub_bell(ctx->slot);
			atomic_fetch_add(control_bell(&as->platform->control, ctx->slot), 1);
		}
	}
	ring_if_asked(as->platform, old);
	as->pending = as_begin_locked(as, CMD_KIND_RESUME, count, wake);
	return true;
}
