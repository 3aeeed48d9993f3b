/* Huge pages: advice about them is kept and shown, and no report claims any that there are not. */
#include "conf.h"
#include <sys/prctl.h>

#define PG 4096UL
#define HUGE (2UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* In kB. */
static long row(const char *p, const char *name)
{
	return strtol(conf_smaps_row(p, name), NULL, 10);
}
static bool has_flag(const char *p, const char *flag)
{
	return strstr(conf_smaps_row(p, "VmFlags:"), flag);
}
static char *map(size_t size)
{
	char *p = mmap(NULL, size, RW, PRIVATE, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

CASE(large_maps_are_aligned)
{
	char *old = map(PG);
	for (size_t size = HUGE; size <= 64 * HUGE; size *= 4) {
		char *p = map(size);
		/* Linux since 6.7 */
		CHECK_EQ((uintptr_t)p & (HUGE - 1), 0);
		p[size - 1] = 1;
		map(PG); /* the next is not aligned by accident */
	}
	OK(munmap(old, PG));
	/* Who wants a place gets it. */
	char *p = map(8 * HUGE);
	OK(munmap(p, 8 * HUGE));
	CHECK(mmap(p + PG, HUGE, RW, PRIVATE, -1, 0) == p + PG);
}
CASE(advice_is_kept)
{
	char *p = map(4 * HUGE);
	if (madvise(p, HUGE, MADV_HUGEPAGE) < 0 && errno == EINVAL)
		SKIP("no transparent huge pages");
	CHECK(has_flag(p, " hg"));
	CHECK(!has_flag(p + HUGE, " hg"));
	OK(madvise(p + 2 * HUGE, HUGE, MADV_NOHUGEPAGE));
	CHECK(has_flag(p + 2 * HUGE, " nh"));
	CHECK(!has_flag(p + 3 * HUGE, " nh"));
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(has_flag(p, " hg") && has_flag(p + 2 * HUGE, " nh"));
		_exit(0);
	}
	conf_join(pid);
	OK(madvise(p, 4 * HUGE, MADV_NOHUGEPAGE));
	CHECK(has_flag(p, " nh") && !has_flag(p, " hg") && has_flag(p + 3 * HUGE, " nh"));
	OK(madvise(p, 4 * HUGE, MADV_HUGEPAGE));
	CHECK(has_flag(p, " hg") && !has_flag(p, " nh"));
}
CASE(advice_elsewhere)
{
	int fd = OK(memfd_create("m", 0));
	OK(ftruncate(fd, HUGE));
	char *s = mmap(NULL, HUGE, RW, MAP_SHARED, fd, 0),
	     *f = mmap(NULL, HUGE, RW, MAP_PRIVATE, fd, 0);
	CHECK(s != MAP_FAILED && f != MAP_FAILED);
	OK(madvise(s, HUGE, MADV_HUGEPAGE));
	OK(madvise(f, HUGE, MADV_HUGEPAGE));
	OK(madvise(s, HUGE, MADV_NOHUGEPAGE));
	CHECK_ERR(madvise(s + 1, HUGE, MADV_HUGEPAGE), EINVAL);
	char *p = map(3 * PG);
	OK(munmap(p + PG, PG));
	CHECK_ERR(madvise(p, 3 * PG, MADV_HUGEPAGE), ENOMEM);
	CHECK(has_flag(p, " hg") && has_flag(p + 2 * PG, " hg"));
}
CASE(reports_claim_no_more_than_there_is)
{
	char *p = map(8 * HUGE);
	OK(madvise(p, 8 * HUGE, MADV_HUGEPAGE));
	memset(p, 1, 3 * HUGE);
	long huge = row(p, "AnonHugePages:"), rss = row(p, "Rss:"), anon = row(p, "Anonymous:");
	CHECK(huge >= 0 && huge <= rss && huge <= anon);
	CHECK_EQ(huge % (HUGE >> 10), 0);
	CHECK(rss >= 3 * (long)(HUGE >> 10));
	if (conf_in_sandbox()) { /* what the host does below is not the guest's */
		CHECK_EQ(huge, 0);
		CHECK_EQ(rss, 3 * (HUGE >> 10));
	}
	CHECK_EQ(row(p, "FilePmdMapped:"), 0);
	char *s = mmap(NULL, 2 * HUGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(s != MAP_FAILED);
	memset(s, 1, HUGE);
	CHECK(row(s, "ShmemPmdMapped:") <= row(s, "Rss:"));
	CHECK_EQ(row(s, "AnonHugePages:"), 0);
	/* Page by page it is given back. */
	OK(madvise(p + PG, PG, MADV_DONTNEED));
	CHECK_EQ(p[PG], 0);
	CHECK_EQ(p[0], 1);
	CHECK_EQ(p[2 * PG], 1);
}
CASE(collapse_keeps_contents)
{
	char *p = map(4 * HUGE), *a = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
	for (size_t i = 0; i < HUGE; i += PG)
		*(size_t *)(a + i) = i;
	if (madvise(a, HUGE, MADV_COLLAPSE) < 0)
		CHECK(errno == EINVAL || errno == ENOMEM || errno == EAGAIN || errno == EBUSY);
	else
		CHECK(row(a, "AnonHugePages:") >= (long)(HUGE >> 10));
	for (size_t i = 0; i < HUGE; i += PG)
		CHECK_EQ(*(size_t *)(a + i), i);
	OK(madvise(a, HUGE, MADV_NOHUGEPAGE));
	CHECK_ERR(madvise(a, HUGE, MADV_COLLAPSE), EINVAL);
}
/* Row THP_enabled of status follows prctl where there are huge pages at all. */
CASE(disabled_for_a_process)
{
	OK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	CHECK_EQ(atoi(conf_row("/proc/self/status", "THP_enabled:")), 0);
	char *p = map(4 * HUGE);
	OK(madvise(p, 4 * HUGE, MADV_HUGEPAGE));
	memset(p, 1, 4 * HUGE);
	CHECK_EQ(row(p, "AnonHugePages:"), 0);
	CHECK_EQ(row(p, "THPeligible:"), 0);
}
CONF_MAIN
