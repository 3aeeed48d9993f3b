/*
 * test/random/lib/random.h: what the random tests share.
 *
 * A program here plays random operations from several processes and compares what it
 * sees with a model. It runs natively first and then as a guest:
 *
 *	NAME [--seed N] [--ops N] [--processes N] [--dir DIR]
 *
 * It prints `ok NAME...` or, for a difference, `not ok NAME: seed ..., operation ...: what`,
 * and ends with 0 or 1. A player is one stream of operations: what it does follows from its
 * seed, what the others do meanwhile does not.
 */
#ifndef MINISENTRY_TEST_RANDOM_H
#define MINISENTRY_TEST_RANDOM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#define PAGE 4096UL

struct random_options {
	uint64_t seed, ops;
	unsigned processes;
	const char *dir;
};

struct random_stream {
	uint64_t state, seed;
	uint64_t op;	   /* operations so far */
	const char *doing; /* of the operation under way */
	unsigned process;
};

/* Defaults are what *ret_options holds; ends the program when the arguments are wrong. */
void random_options(int argc, char **argv, const char *name, struct random_options *ret_options);
void random_seed(struct random_stream *r, uint64_t seed, unsigned process);
/* 0 to n - 1 */
uint64_t random_below(struct random_stream *r, uint64_t n);
/* A difference: says where, sets *random_stop (for the other processes), and exits with 1. */
_Noreturn void random_fail(const struct random_stream *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* In memory that all processes share; set up by random_options(). */
extern _Atomic bool *random_stop;
extern bool random_in_sandbox;
/* A line of /proc/meminfo, in kB. */
uint64_t random_meminfo(const char *key);
/* Memory that is shared with later children, zeroed. */
void *random_shared(size_t size);

#define EXPECT(r, cond)                                                                            \
	do {                                                                                       \
		if (!(cond))                                                                       \
			random_fail(r, "%s:%d: %s", __FILE__, __LINE__, #cond);                    \
	} while (0)
#define EXPECT_EQ(r, a, b)                                                                         \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_)                                                                      \
			random_fail(r, "%s:%d: %s is %lld, not %lld", __FILE__, __LINE__, #a, a_,  \
				    b_);                                                           \
	} while (0)

#endif
