/*
 * proxy.c: a proxy process that answers rounds, at times late, at times not at all, and kills itself somewhere.
 *
 * Usage: proxy DESCRIPTOR FIRST COUNT SEED. It dies by SIGKILL in a random round of the first COUNT, before its claim,
 * after it, between two halves of the copy, or after the release; or it is killed from outside, or ends well.
 */
#define _GNU_SOURCE
#include "hostflag.h"
#include "rounds.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BEFORE_CLAIM, AFTER_CLAIM, WITHIN_COPY, AFTER_RELEASE, POINTS };

#define LIMIT_NS INT64_C(5000000000)

/* One round in so many is late by up to LONGEST_DELAY_NS, which is beyond the watchdog's deadline of 1 ms. */
enum { LATE_ONE_IN = 2000, SKIPPED_ONE_IN = 20000, LONGEST_DELAY_NS = 2000000 };

static void die(void)
{
    kill(getpid(), SIGKILL);
}

static void answer(char *page, uint32_t round, int death)
{
    uint32_t src[WORDS];
    for (int word = 0; word < WORDS; word++)
        src[word] = tag_of(round);
    if (death == BEFORE_CLAIM)
        die();
    if (death == AFTER_CLAIM || death == WITHIN_COPY) {
        if (!dsv41_hf_claim(page + CLAIMED, round))
            return;
        if (death == WITHIN_COPY)
            memcpy(page + REPLY, src, sizeof src / 2);
        die();
    }
    dsv41_hf_publish(page + CLAIMED, page + RELEASED, round, page + REPLY, src, sizeof src);
    if (death == AFTER_RELEASE)
        die();
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 5)
        return 2;
    char *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(arguments[1]), 0);
    uint32_t first = (uint32_t)strtoul(arguments[2], NULL, 10);
    uint32_t count = (uint32_t)strtoul(arguments[3], NULL, 10);
    uint32_t random = (uint32_t)strtoul(arguments[4], NULL, 10) * 2654435761u + 1;
    /* Half of them are meant to live through their rounds. */
    uint32_t last = next_random(&random) % (2 * count);
    int point = (int)(next_random(&random) % POINTS);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t round = first + i;
        if (dsv41_hf_wait_geq(page + GATHERED, round, LIMIT_NS, 200000, 20000) != 0)
            return 1;
        if (next_random(&random) % SKIPPED_ONE_IN == 0)
            continue;
        if (next_random(&random) % LATE_ONE_IN == 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)(next_random(&random) % LONGEST_DELAY_NS)}, NULL);
        answer(page, round, i == last ? point : -1);
    }
    return 0;
}
