/* unit: platform base */
#include "platform/internal.h"
#include "platform/patch.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PROGRAM 0x400000UL

static u8 *zone(size_t size)
{
	u8 *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(m, MAP_FAILED);
	return m;
}

static struct patcher *new_patcher(void)
{
	struct patcher *p;

	assert_int_equal(
		patcher_new(zone(STUB_ZONE_SIZE), zone(STUB_LOW_ZONE_SIZE), STUB_TEXT + 0x1000, &p),
		0);
	return p;
}

/* before: the instruction in front of `syscall`, all of it; behind: what follows. */
static int patch(struct patcher *p, u64 addr, const void *before, size_t before_len,
		 const void *behind, size_t behind_len, struct patch_edit *ret)
{
	u8 code[64];
	struct patch_site site = {
		.addr = addr,
		.code = code + before_len,
		.size = 2 + behind_len,
		.before = before_len,
		.prev_len = before_len,
	};

	memcpy(code, before, before_len);
	memcpy(code + before_len, "\x0f\x05", 2);
	memcpy(code + before_len + 2, behind, behind_len);
	return patch_site(p, &site, ret);
}

#define MOV "\xb8\x79\x00\x00\x00" /* mov $121, %eax */
#define MOV_REG "\x89\xd8"	   /* mov %ebx, %eax */
#define CMP "\x48\x3d\x01\xf0\xff\xff"
#define RET "\xc3"

/* What is given back is found again, in both halves of a zone. */
static void test_room_is_given_back(void **state)
{
	struct patcher *p = new_patcher();
	size_t count = 0, most = STUB_LOW_ZONE_SIZE / 32;
	u64 *entries = calloc(most, sizeof(*entries));
	struct patch_edit e;

	assert_non_null(entries);
	for (int round = 0; round < 3; round++) {
		size_t n = 0;

		while (patch(p, PROGRAM + n * 16, MOV, 5, RET, 1, &e) == 0)
			entries[n++] = e.entry;
		assert_true(n > most / 4);
		assert_true(round == 0 || n == count);
		count = n;
		assert_int_equal(patch(p, PROGRAM, MOV, 5, RET, 1, &e), -ENOSPC);
		for (size_t i = 0; i < n; i++) {
			assert_true(patch_show(p, entries[i]) == PROGRAM + i * 16 - 5);
			patch_forget(p, entries[i]);
			assert_true(patch_show(p, entries[i]) == entries[i]);
		}
	}
	for (int round = 0; round < 3; round++) {
		size_t n = 0;

		while (n < 100 && patch(p, PROGRAM + n * 16, MOV_REG, 2, CMP RET, 7, &e) == 0)
			entries[n++] = e.entry;
		assert_int_equal(n, 100);
		for (size_t i = 0; i < n; i++)
			patch_forget(p, entries[i]);
	}
	free(entries);
	patcher_free(p);
}

static void test_flags(void **state)
{
	static const struct {
		const char *code;
		size_t len;
		bool reads;
	} behind[] = {
		{ RET, 1, false },
		{ CMP "\x77\x01" RET RET, 10, false },		      /* cmp; ja */
		{ "\x72\x01" RET RET, 4, true },		      /* jc */
		{ "\x9c" RET, 2, true },			      /* pushf */
		{ "\x9f" RET, 2, true },			      /* lahf */
		{ "\x89\xc3\x0f\x90\xc3" RET, 6, true },	      /* mov; seto */
		{ "\xff\xc1\x72\x01" RET RET, 6, true },	      /* inc; jc */
		{ "\xff\xc1\x74\x01" RET RET, 6, false },	      /* inc; jz */
		{ "\xd3\xe0\x72\x01" RET RET, 6, true },	      /* shl %cl; jc */
		{ "\x85\xc0\x74\x01" RET RET, 6, false },	      /* test; jz */
		{ "\xeb\x01\xc3\x72\x01" RET RET, 7, true },	      /* jmp; jc */
		{ "\xe3\x01\xc3\x72\x01" RET RET, 7, true },	      /* jrcxz; jc */
		{ "\xeb\x7f", 2, false },			      /* out of sight */
		{ "\xeb\xfe", 2, false },			      /* for ever */
		{ "\xe8\x00\x00\x00\x00\x72\x01" RET RET, 9, false }, /* call */
		{ "\x0f\x05\x72\x01" RET RET, 6, true },	      /* syscall; jc */
		{ "\x15\x01\x00\x00\x00" RET, 6, true },	      /* adc */
		{ "\x06", 1, false },				      /* no instruction */
	};
	struct patcher *p = new_patcher();
	struct patch_edit e;

	for (size_t i = 0; i < ARRAY_SIZE(behind); i++) {
		int err = patch(p, PROGRAM, MOV, 5, behind[i].code, behind[i].len, &e);

		if (err != (behind[i].reads ? -ENOTSUP : 0))
			fail_msg("case %zu: %d", i, err);
	}
	patcher_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_room_is_given_back),
		cmocka_unit_test(test_flags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
