/*
 * probe.h: the measured loops of the self-test and the benchmark. Not part of the hand-off; engines do not load it.
 *
 * Each exchange has two sides that run at the same time, in two threads or two processes that map the same memory:
 * the caller pins them to their CPUs. Times are CLOCK_MONOTONIC in ns. A side that waits longer than limit_ns for one
 * step gives up and returns -1; else the result is how many rounds it did. The side that starts a round also ends
 * budget_ns after the first was answered, with the rounds so far: it then jumps to the last round, so that the other
 * side's waits all pass.
 */
#ifndef HOSTFLAG_PROBE_H
#define HOSTFLAG_PROBE_H

#include <stddef.h>
#include <stdint.h>

/* The hand-off functions under measurement, as found in the library that is loaded. */
struct hf_probe_calls {
    void (*store)(void *word, uint32_t v);
    int (*wait_geq)(void *word, uint32_t v, int64_t timeout_ns, int64_t spin_ns, int64_t nap_ns);
    int (*publish)(void *claimed, void *released, uint32_t v, void *reply, const void *src, size_t n);
};

/* What both sides of a hand-off agree on. */
struct hf_probe_rounds {
    uint32_t first;      /* number of the first round; the words stand at first - 1 */
    uint32_t count;      /* rounds */
    uint32_t reply_bytes;
    uint32_t pause_ns;   /* how long the stream rests before each round: to measure waking from naps */
    int64_t spin_ns;     /* then the hand-off naps or yields, and the bare ping-pong yields */
    int64_t nap_ns;
    int64_t limit_ns;
    int64_t budget_ns;
};

/*
 * The stream's half: gather, wait for the release, copy the reply into copy (if not NULL), consume.
 * sent_ns[i]: just before gathering; done_ns[i]: once released was seen.
 */
int64_t hf_probe_stream(const struct hf_probe_calls *calls, void *page, const struct hf_probe_rounds *rounds,
                        void *copy, int64_t *sent_ns, int64_t *done_ns);

/* The proxy's half: wait for gathered, publish src. seen_ns[i]: once gathered was seen; may be NULL. */
int64_t hf_probe_proxy(const struct hf_probe_calls *calls, void *page, const struct hf_probe_rounds *rounds,
                       const void *src, int64_t *seen_ns);

/* The limit: two words on two cache lines and nothing else. ping's round trips go to round_trip_ns. */
int64_t hf_probe_bare_ping(void *area, const struct hf_probe_rounds *rounds, int64_t *round_trip_ns);
int64_t hf_probe_bare_pong(void *area, const struct hf_probe_rounds *rounds);

/* The same through two futexes on the area's words. */
int64_t hf_probe_futex_ping(void *area, const struct hf_probe_rounds *rounds, int64_t *round_trip_ns);
int64_t hf_probe_futex_pong(void *area, const struct hf_probe_rounds *rounds);

/*
 * The same through descriptors (eventfd or pipe): 8 bytes out, 8 bytes in. Only count and budget_ns of the rounds are
 * used, and there is no limit: reads block until the other side answers. pong ends when ping says so, and also returns
 * how many it answered.
 */
int64_t hf_probe_fd_ping(int out, int in, const struct hf_probe_rounds *rounds, int64_t *round_trip_ns);
int64_t hf_probe_fd_pong(int in, int out);

/* One publish of n bytes on a page of its own, timed batch rounds at a time: cost_ns[i] is the mean of a batch. */
void hf_probe_publish_cost(const struct hf_probe_calls *calls, void *page, uint32_t first, uint32_t batches,
                           uint32_t batch, const void *src, size_t n, double *cost_ns);

/* Its limit: memcpy of n bytes and one release store. */
void hf_probe_copy_cost(void *page, uint32_t batches, uint32_t batch, const void *src, size_t n, double *cost_ns);

/* The limit of a wait that naps: naps nap_ns at a time for duration_ns, and looks at nothing but the clock. */
void hf_probe_naps(int64_t duration_ns, int64_t nap_ns);

#endif
