/* probe.c: the measured loops of the self-test and the benchmark. Contracts: probe.h. */
#define _GNU_SOURCE

#include "probe.h"

#include "hostflag_platform.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Offsets of the page: hostflag.h. */
enum { GATHERED = 0, RELEASED = 128, CLAIMED = 256, CONSUMED = 384, REPLY = 4096 };

/* The bare ping-pong's words, each alone on its line. */
enum { PING = 0, PONG = 128 };

/* Looks at a word between two looks at the clock in the bare loops: some us. */
enum { LOOKS_PER_CLOCK = 4096 };

static void rest(uint32_t ns)
{
    if (ns != 0)
        hf_nap(ns);
}

static inline bool is_geq(uint32_t a, uint32_t b)
{
    return a - b < UINT32_C(0x80000000);
}

int64_t hf_probe_stream(const struct hf_probe_calls *calls, void *page, const struct hf_probe_rounds *rounds,
                        void *copy, int64_t *sent_ns, int64_t *done_ns)
{
    char *base = page;
    int64_t end_ns = INT64_MAX;
    for (uint32_t i = 0; i < rounds->count; i++) {
        uint32_t round = rounds->first + i;
        rest(rounds->pause_ns);
        sent_ns[i] = hf_now_ns();
        if (sent_ns[i] >= end_ns) {
            calls->store(base + GATHERED, rounds->first + rounds->count - 1);
            return i;
        }
        calls->store(base + GATHERED, round);
        if (calls->wait_geq(base + RELEASED, round, rounds->limit_ns, rounds->spin_ns, rounds->nap_ns) != 0)
            return -1;
        done_ns[i] = hf_now_ns();
        if (i == 0)
            end_ns = done_ns[i] + rounds->budget_ns;
        if (copy != NULL)
            memcpy(copy, base + REPLY, rounds->reply_bytes);
        calls->store(base + CONSUMED, round);
    }
    return rounds->count;
}

int64_t hf_probe_proxy(const struct hf_probe_calls *calls, void *page, const struct hf_probe_rounds *rounds,
                       const void *src, int64_t *seen_ns)
{
    char *base = page;
    for (uint32_t i = 0; i < rounds->count; i++) {
        uint32_t round = rounds->first + i;
        if (calls->wait_geq(base + GATHERED, round, rounds->limit_ns, rounds->spin_ns, rounds->nap_ns) != 0)
            return -1;
        if (seen_ns != NULL)
            seen_ns[i] = hf_now_ns();
        calls->publish(base + CLAIMED, base + RELEASED, round, base + REPLY, src, rounds->reply_bytes);
    }
    return rounds->count;
}

/* Spins, with nothing but loads, until the word is >= v; after spin_ns it yields between looks. */
static bool spin_until(void *word, uint32_t v, const struct hf_probe_rounds *rounds)
{
    int64_t start_ns = 0;
    for (;;) {
        for (int look = 0; look < LOOKS_PER_CLOCK; look++)
            if (is_geq(hf_load_acquire(word), v))
                return true;
        int64_t now_ns = hf_now_ns();
        if (start_ns == 0)
            start_ns = now_ns;
        if (now_ns - start_ns >= rounds->limit_ns)
            return false;
        if (now_ns - start_ns >= rounds->spin_ns)
            hf_yield();
    }
}

static void bare_store(void *word, uint32_t v)
{
    hf_store_release(word, v);
}

static void futex_store(void *word, uint32_t v)
{
    hf_store_release(word, v);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static bool futex_wait(void *word, uint32_t v, const struct hf_probe_rounds *rounds)
{
    struct timespec limit = {.tv_sec = rounds->limit_ns / 1000000000, .tv_nsec = rounds->limit_ns % 1000000000};
    uint32_t seen = hf_load_acquire(word);
    while (!is_geq(seen, v)) {
        if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0) != 0 && errno == ETIMEDOUT)
            return false;
        seen = hf_load_acquire(word);
    }
    return true;
}

typedef void (*store_function)(void *word, uint32_t v);
typedef bool (*wait_function)(void *word, uint32_t v, const struct hf_probe_rounds *rounds);

/* Inlined into each caller, so that the two functions are direct calls there. */
static inline __attribute__((always_inline)) int64_t ping(store_function store, wait_function wait, char *base,
                                                          const struct hf_probe_rounds *rounds, int64_t *round_trip_ns)
{
    int64_t end_ns = INT64_MAX;
    for (uint32_t i = 0; i < rounds->count; i++) {
        int64_t sent_ns = hf_now_ns();
        if (sent_ns >= end_ns) {
            store(base + PING, rounds->first + rounds->count - 1);
            return i;
        }
        store(base + PING, rounds->first + i);
        if (!wait(base + PONG, rounds->first + i, rounds))
            return -1;
        round_trip_ns[i] = hf_now_ns() - sent_ns;
        if (i == 0)
            end_ns = sent_ns + round_trip_ns[i] + rounds->budget_ns;
    }
    return rounds->count;
}

static inline __attribute__((always_inline)) int64_t pong(store_function store, wait_function wait, char *base,
                                                          const struct hf_probe_rounds *rounds)
{
    for (uint32_t i = 0; i < rounds->count; i++) {
        if (!wait(base + PING, rounds->first + i, rounds))
            return -1;
        store(base + PONG, rounds->first + i);
    }
    return rounds->count;
}

int64_t hf_probe_bare_ping(void *area, const struct hf_probe_rounds *rounds, int64_t *round_trip_ns)
{
    return ping(bare_store, spin_until, area, rounds, round_trip_ns);
}

int64_t hf_probe_bare_pong(void *area, const struct hf_probe_rounds *rounds)
{
    return pong(bare_store, spin_until, area, rounds);
}

int64_t hf_probe_futex_ping(void *area, const struct hf_probe_rounds *rounds, int64_t *round_trip_ns)
{
    return ping(futex_store, futex_wait, area, rounds, round_trip_ns);
}

int64_t hf_probe_futex_pong(void *area, const struct hf_probe_rounds *rounds)
{
    return pong(futex_store, futex_wait, area, rounds);
}

/* What goes through a descriptor: the last one tells the other side to end after its answer. An eventfd adds up what
 * is written to it, but each token is taken before the next is sent. */
enum { TOKEN = 1, LAST_TOKEN = 2 };

static bool send_token(int out, uint64_t token)
{
    return write(out, &token, sizeof token) == (ssize_t)sizeof token;
}

static bool receive_token(int in, uint64_t *token)
{
    return read(in, token, sizeof *token) == (ssize_t)sizeof *token;
}

int64_t hf_probe_fd_ping(int out, int in, const struct hf_probe_rounds *rounds, int64_t *round_trip_ns)
{
    int64_t end_ns = INT64_MAX;
    for (uint32_t i = 0; i < rounds->count; i++) {
        uint64_t answer;
        int64_t sent_ns = hf_now_ns();
        bool is_last = i + 1 == rounds->count || sent_ns >= end_ns;
        if (!send_token(out, is_last ? LAST_TOKEN : TOKEN) || !receive_token(in, &answer))
            return -1;
        round_trip_ns[i] = hf_now_ns() - sent_ns;
        if (is_last)
            return i + 1;
        if (i == 0)
            end_ns = sent_ns + round_trip_ns[i] + rounds->budget_ns;
    }
    return rounds->count;
}

int64_t hf_probe_fd_pong(int in, int out)
{
    for (int64_t i = 1;; i++) {
        uint64_t token;
        if (!receive_token(in, &token) || !send_token(out, TOKEN))
            return -1;
        if (token == LAST_TOKEN)
            return i;
    }
}

void hf_probe_publish_cost(const struct hf_probe_calls *calls, void *page, uint32_t first, uint32_t batches,
                           uint32_t batch, const void *src, size_t n, double *cost_ns)
{
    char *base = page;
    uint32_t round = first;
    for (uint32_t i = 0; i < batches; i++) {
        int64_t start_ns = hf_now_ns();
        for (uint32_t j = 0; j < batch; j++)
            calls->publish(base + CLAIMED, base + RELEASED, round++, base + REPLY, src, n);
        cost_ns[i] = (double)(hf_now_ns() - start_ns) / batch;
    }
}

void hf_probe_copy_cost(void *page, uint32_t batches, uint32_t batch, const void *src, size_t n, double *cost_ns)
{
    char *base = page;
    uint32_t round = 0;
    for (uint32_t i = 0; i < batches; i++) {
        int64_t start_ns = hf_now_ns();
        for (uint32_t j = 0; j < batch; j++) {
            memcpy(base + REPLY, src, n);
            hf_store_release(base + RELEASED, round++);
        }
        cost_ns[i] = (double)(hf_now_ns() - start_ns) / batch;
    }
}

void hf_probe_naps(int64_t duration_ns, int64_t nap_ns)
{
    int64_t end_ns = hf_now_ns() + duration_ns;
    while (hf_now_ns() < end_ns)
        hf_nap(nap_ns);
}
