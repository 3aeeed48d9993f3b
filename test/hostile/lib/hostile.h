/*
 * test/hostile/lib/hostile.h: the frame of a hostile program.
 *
 * A program holds named attacks; `PROGRAM list` lists them, `PROGRAM NAME` runs
 * one in this sandbox and prints one line: `ok NAME`, `not ok NAME: why`,
 * `skip NAME: why`.
 *
 * An attack runs in a child with its own process group, and may die of it: what
 * counts is that nothing it must not do has succeeded (it says so by breach()),
 * that it could be ended (kill -9 works, whatever it did), and that a bystander,
 * a process of the same sandbox that began before it, works on afterwards: its
 * memory is as it left it, it forks, maps and writes files, and its vector
 * registers are its own. The host's side of it is test/hostile/run.
 */
#ifndef MINISENTRY_TEST_HOSTILE_H
#define MINISENTRY_TEST_HOSTILE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __clang__ /* what CATCH catches changes no variable that is used afterwards */
#pragma GCC diagnostic ignored "-Wclobbered"
#endif

struct attack {
	const char *name;
	void (*fn)(void);
};

#define ATTACK(name_)                                                                              \
	static void attack_##name_(void);                                                          \
	static const struct attack attack_entry_##name_                                            \
		__attribute__((section("attacks"), used)) = { #name_, attack_##name_ };            \
	static void attack_##name_(void)
extern const struct attack __start_attacks[], __stop_attacks[];
int hostile_main(int argc, char **argv, const struct attack *begin, const struct attack *end);
#define HOSTILE_MAIN                                                                               \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return hostile_main(argc, argv, __start_attacks, __stop_attacks);                  \
	}

/* The attack has done what it must not be able to do. From any process of it. */
_Noreturn void breach(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

uint64_t rnd(void); /* pseudo-random; seeded by rnd_seed, $SEED or 1 */
void rnd_seed(uint64_t seed);
uint64_t now_ms(void);
/* Under `make fuzz` ($HOSTILE_FULL) attacks last longer and leave out nothing. */
bool full(void);

/* Memory that all processes of the attack share. Zeroed. */
void *shared_memory(size_t size);
/* Runs fn(arg) in a child; its wait status. Killed after limit_ms; then ret_late says so (may be
 * NULL). */
int in_child(void (*fn)(void *), void *arg, int limit_ms, bool *ret_late);
/* The same for a child that shares no memory, as verdicts do: the sentry treats who does
 * differently in some ways. */
int in_child_unshared(void (*fn)(void *), void *arg, int limit_ms, bool *ret_late);
/* The child is gone by SIGKILL within 20 s, or the attack has succeeded in staying. */
void must_die(pid_t pid);

/* A context page, which a guest finds at GS and may write: its 64-bit words, and what its first two
 * 32-bit words say (platform/stub/abi.h). */
#define CTX_RAX 1
#define CTX_RIP 8
#define CTX_RSP 9
#define STOP_CALL 1
#define STOP_SAVED 2
#define RESUME_SAVE 2
#define TURN_STUB 1
#define TURN_SENTRY 2
#define TURN_EXIT 3
#define TURN_MASK 0xff

/*
 * A system call from the stub's own code, by a jump to where it makes deferred ones. No result:
 * look for its effect. (What its filter refuses is the sentry's to answer, as any call of a guest.)
 */
void stub_call(uint64_t nr, uint64_t a, uint64_t b, uint64_t c);
/* The calling thread ends by the kernel's exit, and the sentry is not told. After a stub_call. */
_Noreturn void stub_exit(void);
/* A control: what a guest thread may do to its own memory that way does happen. */
bool stub_calls_work(void);

/* Faults in `code` come back: true when it ended by itself. Signals: SEGV BUS ILL FPE TRAP SYS
 * ALRM. */
extern __thread sigjmp_buf catch_env;
extern __thread volatile int catch_armed, catch_signal;
void catch_setup(void); /* once a thread */
#define CATCH(...)                                                                                 \
	({                                                                                         \
		bool whole_ = sigsetjmp(catch_env, 1) == 0;                                        \
		if (whole_) {                                                                      \
			catch_armed = 1;                                                           \
			__VA_ARGS__;                                                               \
		}                                                                                  \
		catch_armed = 0;                                                                   \
		whole_;                                                                            \
	})

/* The stub's parts, see platform/stub/abi.h. */
#define STUB_AREA 0x7fffe0000000UL
#define STUB_TEXT_END 0x7fffe0010000UL
#define STUB_SLOTS 0x7fffe0080000UL
#define STUB_SLOT_SIZE 0x8000UL
#define STUB_SLOT_MAX 8192UL

#endif
