#include "base/host_mem.h"
#include "base/log.h"
#include "platform/internal.h"
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int control_init(struct control *c, size_t frame_size)
{
	void *base = NULL;
	int ret;

	c->frame_size = page_up_nofail(frame_size);
	ASSERT(2 * c->frame_size + PAGE_SIZE <= STUB_SLOT_SIZE);
	mutex_init(&c->lock, RANK_LEAF, "control");
	c->used = c->free_count = 0;
	c->free = malloc(CONTROL_SLOTS * sizeof(*c->free));
	if (!c->free)
		return -ENOMEM;
	c->fd = host_memfd_create("minisentry-control");
	if (c->fd < 0) {
		free(c->free);
		return c->fd;
	}
	ret = host_mem_truncate(c->fd, CONTROL_END);
	if (ret == 0)
		ret = host_mmap(NULL, CONTROL_END, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_NORESERVE, c->fd, 0, &base);
	if (ret < 0) {
		host_mem_close(c->fd);
		free(c->free);
		return ret;
	}
	c->base = base;
	return 0;
}

void control_destroy(struct control *c)
{
	host_munmap(c->base, CONTROL_END);
	host_mem_close(c->fd);
	free(c->free);
	mutex_destroy(&c->lock);
}

#define BELLS_PER_PAGE (PAGE_SIZE / sizeof(u32))

static int commit_bells(struct control *c, u32 slot)
{
	return host_mem_fallocate(c->fd, FALLOC_FL_KEEP_SIZE,
				  CONTROL_BELLS + page_down(slot * sizeof(u32)), PAGE_SIZE);
}

int control_alloc(struct control *c)
{
	u64 offset;
	u32 slot;
	int ret;

	{
		MUTEX_GUARD(&c->lock);
		if (c->free_count > 0)
			slot = c->free[--c->free_count];
		else if (c->used < CONTROL_SLOTS)
			slot = c->used++;
		else
			return -ENOMEM;
	}
	/* A page of bells for every PAGE_SIZE / 4 slots. */
	ret = slot % BELLS_PER_PAGE ? 0 : commit_bells(c, slot);
	/* Committed now, so that no access of the sentry can raise SIGBUS later. */
	offset = (u64)slot * STUB_SLOT_SIZE;
	if (ret == 0)
		ret = host_mem_fallocate(c->fd, FALLOC_FL_KEEP_SIZE, offset, PAGE_SIZE);
	if (ret == 0)
		ret = host_mem_fallocate(c->fd, FALLOC_FL_KEEP_SIZE,
					 offset + STUB_SLOT_SIZE - 2 * c->frame_size,
					 2 * c->frame_size);
	if (ret < 0) {
		control_free(c, slot);
		return -ENOMEM;
	}
	return (int)slot;
}

void control_free(struct control *c, u32 slot)
{
	int ret = host_mem_punch(c->fd, (u64)slot * STUB_SLOT_SIZE, STUB_SLOT_SIZE);

	/* Another guest may get the slot: it must not read what this one left. */
	if (ret < 0)
		memset(control_slot(c, slot), 0, STUB_SLOT_SIZE);
	MUTEX_GUARD(&c->lock);
	c->free[c->free_count++] = slot;
}
