/* stream.c: the stream's side of the process stress, for ctypes. */
#define _GNU_SOURCE
#include "hostflag.h"
#include "rounds.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#define LIMIT_NS INT64_C(20000000000)

/* Half of what a failing caller waits for the consumer: a stream that took longer may have been written over. */
#define SLOW_COPY_NS INT64_C(5000000)

#define FAR_AHEAD (UINT32_C(1) << 29)

/* What a run of rounds came to; the driver adds them up. */
struct stress_result {
    uint64_t rounds;
    uint64_t failed;
    uint64_t slow;
    uint64_t is_failed_ahead;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool is_failed(const uint32_t *reply, int32_t status)
{
    for (int word = 1; word < WORDS; word++)
        if (reply[word] != 0)
            return false;
    return reply[0] == (uint32_t)status;
}

static bool is_answer(const uint32_t *reply, uint32_t round)
{
    for (int word = 0; word < WORDS; word++)
        if (reply[word] != tag_of(round))
            return false;
    return true;
}

/*
 * Plays rounds from first, at most count; ends after_failure rounds after everything was failed ahead.
 * Returns NULL, or the violation that it met.
 */
const char *stress_stream(char *page, uint32_t first, uint32_t count, uint32_t after_failure, int32_t status,
                          struct stress_result *result)
{
    uint32_t released = dsv41_hf_load(page + RELEASED);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t round = first + i;
        uint32_t reply[WORDS], later[WORDS];
        dsv41_hf_store(page + GATHERED, round);
        if (dsv41_hf_wait_geq(page + RELEASED, round, LIMIT_NS, 200000, 20000) != 0)
            return "the stream stayed parked";
        int64_t seen_ns = now_ns();
        uint32_t new_released = dsv41_hf_load(page + RELEASED);
        memcpy(reply, page + REPLY, sizeof reply);
        bool is_slow = now_ns() - seen_ns > SLOW_COPY_NS;
        dsv41_hf_store(page + CONSUMED, round);
        if (new_released - released >= UINT32_C(0x80000000))
            return "released moved back";
        released = new_released;
        if (is_slow)
            result->slow++;
        else if (!is_answer(reply, round) && !is_failed(reply, status))
            return "a reply is torn or of another round";
        result->failed += is_failed(reply, status);
        result->rounds++;
        if (released - round >= FAR_AHEAD) {
            result->is_failed_ahead = 1;
            if (after_failure-- == 0)
                return NULL;
            continue;
        }
        /* Nobody answers the next round yet: whoever writes now is late. A failing caller may. */
        memcpy(later, page + REPLY, sizeof later);
        if (!is_slow && memcmp(later, reply, sizeof later) != 0 && !is_failed(later, status) &&
            dsv41_hf_load(page + CLAIMED) - round < FAR_AHEAD)
            return "late bytes came into a reply that was consumed";
    }
    return NULL;
}
