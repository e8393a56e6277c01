/*
 * hostflag_platform.h: every primitive hostflag.c runs on. The deterministic-schedule test replaces this file
 * (HOSTFLAG_PLATFORM_HEADER) by one whose primitives are steps of a scheduler.
 *
 * Words are only ever touched through typed 32-bit atomics with the order on the operation itself: stand-alone
 * fences would be invisible to ThreadSanitizer.
 */
#ifndef DSV41_HOSTFLAG_PLATFORM_H
#define DSV41_HOSTFLAG_PLATFORM_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && sizeof(_Atomic uint32_t) == 4,
               "a word is shared with a device: it must be a bare lock-free 32-bit value");

static inline uint32_t hf_load_acquire(void *word)
{
    return atomic_load_explicit((_Atomic uint32_t *)word, memory_order_acquire);
}

static inline uint32_t hf_load_relaxed(void *word)
{
    return atomic_load_explicit((_Atomic uint32_t *)word, memory_order_relaxed);
}

static inline void hf_store_release(void *word, uint32_t v)
{
    atomic_store_explicit((_Atomic uint32_t *)word, v, memory_order_release);
}

/* Moves the word from *expected to v; on failure *expected is what it is now. */
static inline bool hf_exchange_if(void *word, uint32_t *expected, uint32_t v)
{
    return atomic_compare_exchange_strong_explicit((_Atomic uint32_t *)word, expected, v, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static inline void hf_copy_reply(void *reply, const void *src, size_t n)
{
    memcpy(reply, src, n);
}

static inline void hf_zero_reply(void *reply, size_t n)
{
    memset(reply, 0, n);
}

static inline int64_t hf_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A signal may end the nap early: every caller looks again and naps on. */
static inline void hf_nap(int64_t ns)
{
    struct timespec nap = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
}

static inline void hf_yield(void)
{
    sched_yield();
}

/* Tells the core that this is a spin loop: leaves the pipeline and the sibling thread some room. */
static inline void hf_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    /* yield is a no-op on cores without SMT; isb stalls for some tens of cycles, as pause does. */
    __asm__ __volatile__("isb" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

#endif
