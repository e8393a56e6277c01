/*
 * threads.c: two proxies and the native watchdog race for every round of a stream, all threads of one process, for the
 * sanitizers. Both proxies publish each round after a random delay around the watchdog's deadline, or not at all.
 *
 * Usage: threads ROUNDS SEED FIRST. Exit 0: no violation; prints how often each won. Exit 1: prints the violation.
 */
#define _GNU_SOURCE
#include "hostflag.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE_BYTES = 65536, GATHERED = 0, RELEASED = 128, CLAIMED = 256, CONSUMED = 384, REPLY = 4096 };
/* No tag is a multiple of 4, as the status is. */
enum { WORDS = 64, REPLY_BYTES = WORDS * 4, STATUS = -4, PROXIES = 2 };

#define DEADLINE_NS 100000
#define POLL_NS 50000
#define LIMIT_NS INT64_C(20000000000)

static char *page;
static uint32_t first_round;
static uint32_t round_count;
static uint32_t seed;
static uint64_t wins[PROXIES];
static _Atomic bool is_over;

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void delay(uint32_t ns)
{
    struct timespec nap = {.tv_nsec = (long)ns};
    nanosleep(&nap, NULL);
}

static uint32_t tag_of(uint32_t round, unsigned proxy)
{
    return round * 4 + 1 + proxy;
}

static void *proxy_main(void *argument)
{
    unsigned me = (unsigned)(size_t)argument;
    uint32_t random = seed * 31 + me + 1;
    for (uint32_t i = 0; i < round_count; i++) {
        uint32_t round = first_round + i;
        if (dsv41_hf_wait_geq(page + GATHERED, round, LIMIT_NS, 20000, 20000) != 0)
            break;
        uint32_t what = next_random(&random) % 64;
        if (what == 0)
            continue;
        if (what < 4)
            delay(next_random(&random) % (2 * DEADLINE_NS));
        uint32_t src[WORDS];
        for (int word = 0; word < WORDS; word++)
            src[word] = tag_of(round, me);
        wins[me] += (uint64_t)dsv41_hf_publish(page + CLAIMED, page + RELEASED, round, page + REPLY, src, sizeof src);
    }
    return NULL;
}

/* Reads a running watchdog's stats all the while, as a metrics thread does. */
static void *reader_main(void *watchdog)
{
    uint64_t stats[3] = {0};
    while (!atomic_load(&is_over)) {
        dsv41_hf_watchdog_stats(watchdog, stats);
        delay(100000);
    }
    return NULL;
}

static bool is_reply_of(const uint32_t *reply, uint32_t round)
{
    uint32_t head = reply[0];
    bool is_failed = head == (uint32_t)STATUS;
    if (!is_failed && head != tag_of(round, 0) && head != tag_of(round, 1))
        return false;
    for (int word = 1; word < WORDS; word++)
        if (reply[word] != (is_failed ? 0 : head))
            return false;
    return true;
}

static const char *stream(uint64_t *failed)
{
    for (uint32_t i = 0; i < round_count; i++) {
        uint32_t round = first_round + i;
        uint32_t reply[WORDS];
        dsv41_hf_store(page + GATHERED, round);
        if (dsv41_hf_wait_geq(page + RELEASED, round, LIMIT_NS, 20000, 20000) != 0)
            return "the stream stayed parked";
        memcpy(reply, page + REPLY, sizeof reply);
        if (!is_reply_of(reply, round))
            return "a reply is torn or of another round";
        if (dsv41_hf_load(page + RELEASED) != round)
            return "released is not at the round";
        *failed += reply[0] == (uint32_t)STATUS;
        dsv41_hf_store(page + CONSUMED, round);
    }
    return NULL;
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 4)
        return 2;
    round_count = (uint32_t)strtoul(arguments[1], NULL, 10);
    seed = (uint32_t)strtoul(arguments[2], NULL, 10);
    first_round = (uint32_t)strtoul(arguments[3], NULL, 10);
    page = dsv41_hf_alloc(PAGE_BYTES);
    for (int word = GATHERED; word <= CONSUMED; word += RELEASED)
        dsv41_hf_set(page + word, first_round - 1);
    void *watchdog = dsv41_hf_watchdog_start(page + GATHERED, page + RELEASED, page + CLAIMED, page + REPLY,
                                             REPLY_BYTES, STATUS, DEADLINE_NS, POLL_NS);
    pthread_t threads[PROXIES + 1];
    for (size_t i = 0; i < PROXIES; i++)
        pthread_create(&threads[i], NULL, proxy_main, (void *)i);
    pthread_create(&threads[PROXIES], NULL, reader_main, watchdog);
    uint64_t failed = 0;
    const char *violation = stream(&failed);
    if (violation != NULL) {
        printf("%s\n", violation);
        return 1;
    }
    atomic_store(&is_over, true);
    for (int i = 0; i <= PROXIES; i++)
        pthread_join(threads[i], NULL);
    uint64_t stats[3];
    dsv41_hf_watchdog_stats(watchdog, stats);
    dsv41_hf_watchdog_stop(watchdog);
    dsv41_hf_free(page);
    printf("published %llu %llu failed %llu\n", (unsigned long long)wins[0], (unsigned long long)wins[1],
           (unsigned long long)failed);
    if (stats[0] != failed || wins[0] + wins[1] + failed != round_count) {
        printf("a round has not exactly one winner\n");
        return 1;
    }
    return 0;
}
