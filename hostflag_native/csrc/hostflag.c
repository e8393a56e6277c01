/* hostflag.c: the words, the reply and the watchdog. Contracts: hostflag.h. */
#define _GNU_SOURCE

#include "hostflag.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef HOSTFLAG_PLATFORM_HEADER
#define HOSTFLAG_PLATFORM_HEADER "hostflag_platform.h"
#endif
#include HOSTFLAG_PLATFORM_HEADER

enum { INTERFACE_VERSION = 2 };

#define HALF_RANGE UINT32_C(0x80000000)

/* How long a fail_release waits for the previous claimant, in ns: a copy of 60 KiB takes some us, so a claimant
 * that needs longer than 10 ms is dead or off the CPU, and a parked stream must not wait for it. */
#define CLAIMANT_GRACE_NS INT64_C(10000000)

/* Nap while waiting for it, in ns: shorter than any deadline, long enough to let it have the CPU. */
#define CLAIMANT_NAP_NS INT64_C(20000)

/* Looks at the word between two looks at the clock: 100 ns of them to 1 us, as long as the pause takes, so that the
 * clock costs little and spin_ns is kept well. */
enum { LOOKS_PER_CLOCK = 16 };

static inline bool is_geq(uint32_t a, uint32_t b)
{
    return a - b < HALF_RANGE;
}

/* At a distance of exactly 2^31 neither is ahead of the other. */
static inline bool is_ahead(uint32_t v, uint32_t w)
{
    uint32_t distance = v - w;
    return distance != 0 && distance < HALF_RANGE;
}

/* ---- memory ---- */

/* The page in front of every allocation, read-only once written: how much to unmap. */
struct mapping_front {
    size_t total_bytes;
};

int dsv41_hf_version(void)
{
    return INTERFACE_VERSION;
}

void *dsv41_hf_alloc(size_t size)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (size == 0 || size > SIZE_MAX - 2 * page_bytes)
        return NULL;
    size_t total_bytes = page_bytes + (size + page_bytes - 1) / page_bytes * page_bytes;
    void *base = mmap(NULL, total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    struct mapping_front *front = base;
    front->total_bytes = total_bytes;
    mprotect(base, page_bytes, PROT_READ);
    return (char *)base + page_bytes;
}

void dsv41_hf_free(void *page)
{
    if (page == NULL)
        return;
    char *base = (char *)page - (size_t)sysconf(_SC_PAGESIZE);
    munmap(base, ((struct mapping_front *)base)->total_bytes);
}

int dsv41_hf_lock(void *page, size_t size)
{
    return mlock(page, size) == 0 ? 0 : errno;
}

/* ---- words ---- */

uint32_t dsv41_hf_load(void *word)
{
    return hf_load_acquire(word);
}

/* Moves the word ahead to v: true, with what it was before in *was; false if v is not ahead of it. */
static bool advance(void *word, uint32_t v, uint32_t *was)
{
    uint32_t seen = hf_load_relaxed(word);
    while (is_ahead(v, seen)) {
        if (hf_exchange_if(word, &seen, v)) {
            *was = seen;
            return true;
        }
    }
    return false;
}

void dsv41_hf_release_max(void *word, uint32_t v)
{
    uint32_t was;
    advance(word, v, &was);
}

void dsv41_hf_store(void *word, uint32_t v)
{
    hf_store_release(word, v);
}

void dsv41_hf_set(void *word, uint32_t v)
{
    hf_store_release(word, v);
}

int dsv41_hf_claim(void *claimed, uint32_t v)
{
    uint32_t was;
    return advance(claimed, v, &was);
}

int dsv41_hf_publish(void *claimed, void *released, uint32_t v, void *reply, const void *src, size_t n)
{
    uint32_t was;
    if (!advance(claimed, v, &was))
        return 0;
    if (n != 0)
        hf_copy_reply(reply, src, n);
    advance(released, v, &was);
    return 1;
}

int dsv41_hf_wait_geq(void *word, uint32_t v, int64_t timeout_ns, int64_t spin_ns, int64_t nap_ns)
{
    if (is_geq(hf_load_acquire(word), v))
        return 0;
    if (timeout_ns <= 0)
        return ETIMEDOUT;
    int64_t start_ns = hf_now_ns();
    int64_t waited_ns = 0;
    for (;;) {
        if (waited_ns < spin_ns) {
            for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
                hf_pause();
                if (is_geq(hf_load_acquire(word), v))
                    return 0;
            }
        } else {
            int64_t left_ns = timeout_ns - waited_ns;
            if (nap_ns > 0)
                hf_nap(nap_ns < left_ns ? nap_ns : left_ns);
            else
                hf_yield();
            if (is_geq(hf_load_acquire(word), v))
                return 0;
        }
        waited_ns = hf_now_ns() - start_ns;
        if (waited_ns >= timeout_ns)
            return is_geq(hf_load_acquire(word), v) ? 0 : ETIMEDOUT;
    }
}

/* ---- failing ---- */

static void write_failed_reply(void *reply, size_t n, int32_t status)
{
    hf_zero_reply(reply, n);
    hf_copy_reply(reply, &status, n < sizeof status ? n : sizeof status);
}

/*
 * 1. Claim v, moving claimed from w: from here on no new writer can start.
 * 2. Wait for w's release: whoever claimed w may be copying its reply.
 * 3. Write the failed reply.
 *
 * True if this call decided the round; the caller then releases it.
 */
static bool claim_failed(void *claimed, void *released, uint32_t v, void *reply, size_t n, int32_t status)
{
    uint32_t was;
    if (!advance(claimed, v, &was))
        return false;
    dsv41_hf_wait_geq(released, was, CLAIMANT_GRACE_NS, 0, CLAIMANT_NAP_NS);
    write_failed_reply(reply, n, status);
    return true;
}

int dsv41_hf_fail_release(void *claimed, void *released, uint32_t v, void *reply, size_t n, int32_t status)
{
    if (!claim_failed(claimed, released, v, reply, n, status))
        return 0;
    dsv41_hf_release_max(released, v);
    return 1;
}

/* ---- watchdog ---- */

struct watchdog {
    void *gathered;
    void *released;
    void *claimed;
    void *reply;
    size_t reply_bytes;
    int32_t status;
    int64_t deadline_ns;
    int64_t poll_ns;

    /* Of the thread alone: the oldest round it waits for, and the newest it saw gathered, each with when. */
    bool is_tracking;
    uint32_t tracked;
    int64_t tracked_since_ns;
    uint32_t newest;
    int64_t newest_since_ns;

    _Atomic bool is_stopping;
    _Atomic uint64_t fires;
    _Atomic uint64_t last_failed_round;
    _Atomic uint64_t max_late_ns;
    pthread_t thread;
};

/* Notes which rounds wait for a release and since when; false when none does. */
static bool sees_waiting_round(struct watchdog *wd, int64_t now_ns)
{
    /* gathered first: a released read after it is at least as new, so a round that is done is not taken for waiting. */
    uint32_t gathered = hf_load_acquire(wd->gathered);
    uint32_t released = hf_load_acquire(wd->released);
    if (!is_ahead(gathered, released)) {
        wd->is_tracking = false;
        return false;
    }
    if (!wd->is_tracking || wd->newest != gathered) {
        wd->newest = gathered;
        wd->newest_since_ns = now_ns;
    }
    bool is_still_waiting = wd->is_tracking && is_ahead(wd->tracked, released) && is_geq(gathered, wd->tracked);
    if (!is_still_waiting) {
        wd->tracked = wd->newest;
        wd->tracked_since_ns = wd->newest_since_ns;
        wd->is_tracking = true;
    }
    return true;
}

/* Before the round is released: whoever sees it released finds it counted. */
static void note_failed_round(struct watchdog *wd, uint64_t late_ns)
{
    atomic_store_explicit(&wd->last_failed_round, wd->tracked, memory_order_relaxed);
    if (late_ns > atomic_load_explicit(&wd->max_late_ns, memory_order_relaxed))
        atomic_store_explicit(&wd->max_late_ns, late_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&wd->fires, 1, memory_order_release);
}

/* One look; returns how long to nap until the next, in ns. */
static int64_t watchdog_look(struct watchdog *wd)
{
    int64_t now_ns = hf_now_ns();
    if (!sees_waiting_round(wd, now_ns))
        return wd->poll_ns;
    int64_t left_ns = wd->deadline_ns - (now_ns - wd->tracked_since_ns);
    if (left_ns > 0)
        return left_ns < wd->poll_ns ? left_ns : wd->poll_ns;
    if (claim_failed(wd->claimed, wd->released, wd->tracked, wd->reply, wd->reply_bytes, wd->status)) {
        note_failed_round(wd, (uint64_t)-left_ns);
        dsv41_hf_release_max(wd->released, wd->tracked);
    }
    return wd->poll_ns;
}

static void *watchdog_main(void *argument)
{
    struct watchdog *wd = argument;
    prctl(PR_SET_NAME, "hostflag-watch", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    while (!atomic_load_explicit(&wd->is_stopping, memory_order_acquire))
        hf_nap(watchdog_look(wd));
    return NULL;
}

void *dsv41_hf_watchdog_start(void *gathered, void *released, void *claimed, void *reply, size_t n, int32_t status,
                              int64_t deadline_ns, int64_t poll_ns)
{
    if (gathered == NULL || released == NULL || claimed == NULL || reply == NULL || deadline_ns <= 0 || poll_ns <= 0)
        return NULL;
    struct watchdog *wd = calloc(1, sizeof *wd);
    if (wd == NULL)
        return NULL;
    wd->gathered = gathered;
    wd->released = released;
    wd->claimed = claimed;
    wd->reply = reply;
    wd->reply_bytes = n;
    wd->status = status;
    wd->deadline_ns = deadline_ns;
    wd->poll_ns = poll_ns;

    sigset_t all_signals;
    sigset_t caller_signals;
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &caller_signals);
    int error = pthread_create(&wd->thread, NULL, watchdog_main, wd);
    pthread_sigmask(SIG_SETMASK, &caller_signals, NULL);
    if (error != 0) {
        free(wd);
        return NULL;
    }
    return wd;
}

void dsv41_hf_watchdog_stats(void *wd, uint64_t out[3])
{
    struct watchdog *dog = wd;
    if (dog == NULL) {
        memset(out, 0, 3 * sizeof out[0]);
        return;
    }
    out[0] = atomic_load_explicit(&dog->fires, memory_order_acquire);
    out[1] = atomic_load_explicit(&dog->last_failed_round, memory_order_relaxed);
    out[2] = atomic_load_explicit(&dog->max_late_ns, memory_order_relaxed);
}

int dsv41_hf_watchdog_stop(void *wd)
{
    struct watchdog *dog = wd;
    if (dog == NULL)
        return 0;
    atomic_store_explicit(&dog->is_stopping, true, memory_order_release);
    int error = pthread_join(dog->thread, NULL);
    if (error == 0)
        free(dog);
    return error;
}
