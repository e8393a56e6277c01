/*
 * hostflag.h: the host side of an asynchronous hand-off between a device stream and a host proxy.
 *
 * One 65,536-byte page holds four 32-bit words, each alone on 128 bytes, and the reply:
 *
 *     offset  word      written by                      meaning
 *     0       gathered  the stream                      round t's input is in place
 *     128     released  proxy, watchdog, fail-all       the stream may go on with round t
 *     256     claimed   proxy, watchdog, fail-all       who writes round t's reply is decided
 *     384     consumed  the stream                      round t's reply was copied out
 *     4096    reply     whoever claimed the round       61,440 bytes
 *
 * Round numbers are counted modulo 2^32 and compared cyclically: a >= b means (a - b) mod 2^32 < 2^31,
 * v is ahead of w when 0 < (v - w) mod 2^32 < 2^31.
 *
 * Conventions for every function here:
 *   - int results of lock and wait_geq are 0 or an errno value; int results of claim, publish and fail_release
 *     are 1 (this call decided the round) or 0 (it did not, and wrote nothing);
 *   - pointers to words are 4-byte aligned; durations are nanoseconds;
 *   - unless it says otherwise, a function may be called by any thread of any process that maps the page;
 *   - nothing prints, exits, takes a lock or sets errno as its result, and nothing allocates except alloc and
 *     watchdog_start.
 */
#ifndef DSV41_HOSTFLAG_H
#define DSV41_HOSTFLAG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: 2. A binding refuses any other. */
int dsv41_hf_version(void);

/*
 * Maps size bytes of zeroed memory, page-aligned and MAP_SHARED: after a fork both processes keep the same
 * physical pages, so no copy-on-write moves one away from a device's mapping. A read-only page lies in front.
 * Returns NULL when size is 0 or the mapping fails. Free with dsv41_hf_free.
 */
void *dsv41_hf_alloc(size_t size);

/* Unmaps what dsv41_hf_alloc returned, in the calling process only; NULL is fine. No thread may still use it. */
void dsv41_hf_free(void *page);

/* mlock(2) of size bytes at page. Returns 0 or errno (RLIMIT_MEMLOCK: ENOMEM, EPERM or EAGAIN). */
int dsv41_hf_lock(void *page, size_t size);

/* The word's value. Acquire; partner: the release of whoever wrote the value. */
uint32_t dsv41_hf_load(void *word);

/*
 * The word becomes v if v is ahead of it; else it stays. So it never moves back, whoever races.
 * Release where it moves the word; partner: dsv41_hf_load, dsv41_hf_wait_geq, the device's wait on the word. A call
 * that leaves the word orders nothing.
 */
void dsv41_hf_release_max(void *word, uint32_t v);

/* The word becomes v. Release; partner as above. For the word's only writer (gathered, consumed). */
void dsv41_hf_store(void *word, uint32_t v);

/* The word becomes v, for set-up only: no other thread, process or device may use the page meanwhile. Release. */
void dsv41_hf_set(void *word, uint32_t v);

/*
 * Decides who writes round v's reply: 1 if this call moved claimed ahead to v, else 0. Of any number of callers
 * with the same v exactly one gets 1. Acquire and release where it returns 1; partner: every other such claim. A call
 * that returns 0 orders nothing.
 */
int dsv41_hf_claim(void *claimed, uint32_t v);

/*
 * Claims round v; if that succeeds copies n bytes from src into reply, then moves released ahead to v, and returns
 * 1. Else touches nothing and returns 0. The caller has seen round v gathered and the reply before it consumed.
 * n may be 0 (src is not read then); reply and src do not overlap. Release on released; partner: the stream's wait.
 */
int dsv41_hf_publish(void *claimed, void *released, uint32_t v, void *reply, const void *src, size_t n);

/*
 * Claims round v, moving claimed from w; if that succeeds waits until released >= w, at most 10 ms (whoever claimed
 * w may still be copying), writes the failed reply (n bytes of zero, the first int32 = status; with n < 4 the first
 * n bytes of status), moves released ahead to v and returns 1. Else touches nothing and returns 0.
 * After the 10 ms the claimant of w is taken for dead: only call this with a claimant that is stopped if it is ended.
 * Acquire on released; partner: the release of w's claimant. Release on released; partner: the stream's wait.
 */
int dsv41_hf_fail_release(void *claimed, void *released, uint32_t v, void *reply, size_t n, int32_t status);

/*
 * Waits until the word is >= v: 0 then, ETIMEDOUT after timeout_ns. Looks at least once; a timeout_ns <= 0 looks
 * once only. Spins for spin_ns, then naps nap_ns at a time; with nap_ns <= 0 it yields the CPU instead.
 * The nap is stretched by the calling thread's timer slack (50 us unless set). Acquire; partner: the word's writer.
 */
int dsv41_hf_wait_geq(void *word, uint32_t v, int64_t timeout_ns, int64_t spin_ns, int64_t nap_ns);

/*
 * Starts a native thread that fails the round that is gathered and not released deadline_ns after it first saw it,
 * with fail_release as above; never earlier. It looks every poll_ns (sooner when a deadline is due), has all signals
 * blocked and a timer slack of 1 ns, and needs the page until dsv41_hf_watchdog_stop returns. A round that someone
 * else has claimed is left to its claimant. A stop takes as long as a poll: keep poll_ns short.
 *
 * The thread inherits the calling thread's CPUs and scheduling policy. Start it before that thread is pinned to a core
 * on which something spins, above all at real-time priority: there the watchdog would never run.
 *
 * Returns NULL when a pointer is NULL, a duration is not positive, or memory or a thread cannot be had.
 */
void *dsv41_hf_watchdog_start(void *gathered, void *released, void *claimed, void *reply, size_t n, int32_t status,
                              int64_t deadline_ns, int64_t poll_ns);

/*
 * out[0] = rounds failed so far, out[1] = the last of them, out[2] = the largest lateness in ns (time of failing
 * minus first seen minus deadline). Three separate reads: out[1] and out[2] are at least as new as out[0]. A round is
 * counted before it is released. Zeros where wd is NULL. Not beside dsv41_hf_watchdog_stop.
 */
void dsv41_hf_watchdog_stats(void *wd, uint64_t out[3]);

/*
 * Stops the thread, joins it and frees wd. Takes at most one poll, plus the 10 ms of a fail_release under way that
 * waits for an earlier claimant. Returns 0 or the errno of the join (wd is kept then). NULL is fine.
 * Only in the process that started it, once.
 */
int dsv41_hf_watchdog_stop(void *wd);

#ifdef __cplusplus
}
#endif

#endif
