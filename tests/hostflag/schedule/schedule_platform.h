/*
 * schedule_platform.h: stands in for hostflag_platform.h. Every primitive is a step: it first lets the scheduler choose
 * who goes next, then does its work whole. Time stands still while anyone can go on.
 */
#ifndef SCHEDULE_PLATFORM_H
#define SCHEDULE_PLATFORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void schedule_step(void);           /* lets the scheduler choose */
void schedule_nap(int64_t ns);      /* not chosen again until a word is written, or, if nobody can go on, for ns */
int64_t schedule_now_ns(void);
void schedule_wrote_word(void *word, uint32_t before, uint32_t after);

static inline uint32_t hf_load_acquire(void *word)
{
    schedule_step();
    return *(volatile uint32_t *)word;
}

static inline uint32_t hf_load_relaxed(void *word)
{
    return hf_load_acquire(word);
}

static inline void hf_store_release(void *word, uint32_t v)
{
    schedule_step();
    schedule_wrote_word(word, *(uint32_t *)word, v);
    *(volatile uint32_t *)word = v;
}

static inline bool hf_exchange_if(void *word, uint32_t *expected, uint32_t v)
{
    schedule_step();
#ifdef SPLIT_EXCHANGE /* the fault that the test must find: compare and store in two steps */
    bool is_expected = *(volatile uint32_t *)word == *expected;
    schedule_step();
    if (is_expected) {
        schedule_wrote_word(word, *(uint32_t *)word, v);
        *(volatile uint32_t *)word = v;
        return true;
    }
#else
    if (*(volatile uint32_t *)word == *expected) {
        schedule_wrote_word(word, *expected, v);
        *(volatile uint32_t *)word = v;
        return true;
    }
#endif
    *expected = *(volatile uint32_t *)word;
    return false;
}

/* Two steps, so that half a copy shows; a failed reply's zeros and its status are two anyway. */
static inline void hf_copy_reply(void *reply, const void *src, size_t n)
{
    schedule_step();
    memcpy(reply, src, n / 2);
    if (n > sizeof(int32_t))
        schedule_step();
    memcpy((char *)reply + n / 2, (const char *)src + n / 2, n - n / 2);
}

static inline void hf_zero_reply(void *reply, size_t n)
{
    schedule_step();
    memset(reply, 0, n);
}

static inline int64_t hf_now_ns(void)
{
    return schedule_now_ns();
}

static inline void hf_nap(int64_t ns)
{
    schedule_nap(ns);
}

static inline void hf_yield(void)
{
    schedule_nap(1);
}

static inline void hf_pause(void)
{
    schedule_nap(1);
}

#endif
