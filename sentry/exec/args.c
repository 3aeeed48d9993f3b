/* argv and envp of an exec, packed; see exec.h. */
#include "sentry/exec/exec_impl.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 8192
#define FIRST_STRINGS 256
#define POINTER_CHUNK 128

void exec_args_init(struct exec_args *a, u64 stack_rlimit)
{
	u64 limit = MIN(EXEC_ARGS_MAX, stack_rlimit / 4);

	*a = (struct exec_args){ .limit = MAX(limit, EXEC_ARGS_MIN) };
}

void exec_args_destroy(struct exec_args *a)
{
	free(a->data);
	free(a->lens);
	*a = (struct exec_args){ 0 };
}

/* Bytes that one more string may have, its NUL included. */
static size_t room_for_string(const struct exec_args *a)
{
	size_t taken = a->used + ((size_t)a->count + 1) * sizeof(u64);

	return taken < a->limit ? a->limit - taken : 0;
}

/* Room for `strings` more strings of size bytes together, within the limit. */
static int reserve(struct exec_args *a, size_t size, u32 strings)
{
	if (a->used + size + ((size_t)a->count + strings) * sizeof(u64) > a->limit)
		return -E2BIG;
	if (a->used + size > a->capacity) {
		size_t capacity = MAX(MAX(2 * a->capacity, (size_t)FIRST_CAPACITY), a->used + size);
		char *data = realloc(a->data, capacity);

		if (data == NULL)
			return -ENOMEM;
		a->data = data;
		a->capacity = capacity;
	}
	if (a->count + strings > a->lens_capacity) {
		u32 capacity = MAX(2 * a->lens_capacity, FIRST_STRINGS) + strings;
		u32 *lens = realloc(a->lens, capacity * sizeof(*lens));

		if (lens == NULL)
			return -ENOMEM;
		a->lens = lens;
		a->lens_capacity = capacity;
	}
	return 0;
}

static void append(struct exec_args *a, bool is_env, size_t size)
{
	a->used += size;
	a->lens[a->count++] = (u32)size;
	if (!is_env)
		a->argc++;
}

int exec_args_add(struct exec_args *a, bool is_env, const char *s, size_t len)
{
	int r;

	if (len >= EXEC_STRING_MAX)
		return -E2BIG;
	r = reserve(a, len + 1, 1);
	if (r < 0)
		return r;
	memcpy(a->data + a->used, s, len);
	a->data[a->used + len] = '\0';
	append(a, is_env, len + 1);
	return 0;
}

int exec_args_add_arrays(struct exec_args *a, char *const argv[], char *const envp[])
{
	int r = 0;

	for (size_t i = 0; r == 0 && argv[i]; i++)
		r = exec_args_add(a, false, argv[i], strlen(argv[i]));
	for (size_t i = 0; r == 0 && envp && envp[i]; i++)
		r = exec_args_add(a, true, envp[i], strlen(envp[i]));
	return r;
}

/* One string from the guest, straight into the packed block. */
static int add_guest_string(struct task *t, struct exec_args *a, bool is_env, u64 addr)
{
	static const size_t sizes[] = { 256, 8192, EXEC_STRING_MAX };
	size_t room = room_for_string(a);

	for (size_t i = 0; i < ARRAY_SIZE(sizes) && room > 0; i++) {
		size_t want = MIN(sizes[i], room);
		int r = reserve(a, want, 1);
		ssize_t n;

		if (r < 0)
			return r;
		n = mm_copy_in_str(t->mm, a->data + a->used, want, ua(addr));
		if (n >= 0) {
			append(a, is_env, (size_t)n + 1);
			return 0;
		}
		if (n != -ENAMETOOLONG)
			return (int)n;
		if (want == room)
			break;
	}
	return -E2BIG;
}

static int add_guest_array(struct task *t, struct exec_args *a, bool is_env, uaddr array)
{
	u64 chunk[POINTER_CHUNK];

	if (array.v == 0)
		return 0;
	for (;;) {
		/* The array may end just before unmapped memory: read up to the page's end, not
		 * past it. */
		size_t in_page = PAGE_SIZE - (array.v & (PAGE_SIZE - 1));
		size_t bytes = MIN(sizeof(chunk), MAX(in_page & ~7UL, sizeof(u64)));
		int r = copy_in(t, chunk, array, bytes);

		if (r < 0)
			return r;
		for (size_t i = 0; i < bytes / sizeof(u64); i++) {
			if (chunk[i] == 0)
				return 0;
			r = add_guest_string(t, a, is_env, chunk[i]);
			if (r < 0)
				return r;
		}
		array = ua_add(array, bytes);
		if (atomic_load_explicit(&t->killed, memory_order_relaxed))
			return -EINTR;
	}
}

int exec_args_copy_in(struct task *t, struct exec_args *a, uaddr argv, uaddr envp)
{
	int r = add_guest_array(t, a, false, argv);

	/* Programs trust argv[0] to exist (Linux since 5.18). */
	if (r == 0 && a->argc == 0)
		r = exec_args_add(a, false, "", 0);
	if (r == 0)
		r = add_guest_array(t, a, true, envp);
	return r;
}

int exec_args_replace_first(struct exec_args *a, const char *const *strings, size_t count)
{
	size_t old = a->argc > 0 ? a->lens[0] : 0, added = 0;
	u32 gone = a->argc > 0;
	int r;

	for (size_t i = 0; i < count; i++)
		added += strlen(strings[i]) + 1;
	r = reserve(a, added, (u32)count);
	if (r < 0)
		return r;
	memmove(a->data + added, a->data + old, a->used - old);
	memmove(a->lens + count, a->lens + gone, (a->count - gone) * sizeof(*a->lens));
	a->used = a->used - old + added;
	a->count = a->count - gone + (u32)count;
	a->argc = a->argc - gone + (u32)count;
	added = 0;
	for (size_t i = 0; i < count; i++) {
		size_t size = strlen(strings[i]) + 1;

		memcpy(a->data + added, strings[i], size);
		a->lens[i] = (u32)size;
		added += size;
	}
	return 0;
}
