/*
 * libcuda.c: a stand-in for the CUDA driver library, as far as the self-test calls it. Streams are threads.
 *
 * It is as strict as it can be: a device address is not the host's, flags must be 0, a page must be registered with the
 * flags that the hand-off needs, and what was not registered or allocated is an error.
 *
 * STANDIN_FAULTS: words that say what is wrong with this device; see the names in main order below.
 * STANDIN_DEVICES: how many devices (default 1). STANDIN_LOG: a file that every call's name is appended to.
 * Compiled with V1_ONLY it has the old memory operations alone; with OLD_UUID no cuDeviceGetUuid_v2.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    STUB_LIBRARY = 34,
    NO_DEVICE = 100,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
    UNKNOWN = 999,
};

#define NS_PER_MS INT64_C(1000000)

/* How far a device's addresses lie from the host's. */
#define DEVICE_OFFSET UINT64_C(0x100000000000)

/* When a device with the fault "late" sees a store: after the self-test has given the round up, before its rescue. */
#define LATE_NS (2500 * NS_PER_MS)

static bool has_fault(const char *name)
{
    const char *faults = getenv("STANDIN_FAULTS");
    size_t length = strlen(name);
    for (const char *word = faults; word != NULL && *word != '\0';) {
        const char *end = strchrnul(word, ' ');
        if ((size_t)(end - word) == length && strncmp(word, name, length) == 0)
            return true;
        word = *end == ' ' ? end + 1 : end;
    }
    return false;
}

static void note_call(const char *name)
{
    const char *path = getenv("STANDIN_LOG");
    if (path == NULL)
        return;
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char line[128];
    int length = snprintf(line, sizeof line, "%s\n", name);
    if (write(log, line, (size_t)length) != length)
        abort();
    close(log);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void nap_ns(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

/* ---- memory ---- */

enum { MOST_RANGES = 256 };

static struct range {
    char *start;
    size_t size;
    bool is_host;
} ranges[MOST_RANGES];
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static void add_range(void *start, size_t size, bool is_host)
{
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < MOST_RANGES; i++)
        if (ranges[i].start == NULL) {
            ranges[i] = (struct range){start, size, is_host};
            break;
        }
    pthread_mutex_unlock(&ranges_lock);
}

static bool remove_range(void *start)
{
    bool is_found = false;
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < MOST_RANGES; i++)
        if (ranges[i].start == start && start != NULL) {
            ranges[i].start = NULL;
            is_found = true;
        }
    pthread_mutex_unlock(&ranges_lock);
    return is_found;
}

static bool is_known(const void *address, size_t size)
{
    bool is_found = false;
    const char *start = address;
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < MOST_RANGES; i++)
        if (ranges[i].start != NULL && start >= ranges[i].start && start + size <= ranges[i].start + ranges[i].size)
            is_found = true;
    pthread_mutex_unlock(&ranges_lock);
    return is_found;
}

static void *host_address(CUdeviceptr address)
{
    return (void *)(uintptr_t)(address - DEVICE_OFFSET);
}

/* ---- streams ---- */

enum kind { WRITE, WAIT, COPY, RECORD };

struct operation {
    enum kind kind;
    void *target;
    const void *source;
    size_t size;
    uint32_t value;
};

enum { MOST_OPERATIONS = 1024 };

struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct operation operations[MOST_OPERATIONS];
    unsigned queued, done;
    _Atomic CUresult error;
    bool is_ending;
};

/* A device keeps a time of its own: the host's, a day off. */
struct event {
    _Atomic int64_t passed_ns;
};

#define DEVICE_CLOCK_NS (INT64_C(86400) * 1000 * NS_PER_MS)

static bool is_reached(uint32_t seen, uint32_t value)
{
    return has_fault("unsigned-compare") ? seen >= value : (int32_t)(seen - value) >= 0;
}

static void wait_value(struct stream *stream, const struct operation *operation)
{
    int64_t seen_ns = 0;
    int64_t start_ns = now_ns();
    if (has_fault("no-wait"))
        return;
    for (;;) {
        uint32_t seen = atomic_load_explicit((_Atomic uint32_t *)operation->target, memory_order_acquire);
        if (!has_fault("stuck") && is_reached(seen, operation->value)) {
            if (seen_ns == 0)
                seen_ns = now_ns();
            if (!has_fault("late") || now_ns() - seen_ns >= LATE_NS)
                break;
        }
        nap_ns(now_ns() - start_ns < NS_PER_MS ? 20000 : NS_PER_MS / 2);
    }
    if (has_fault("stream-error"))
        atomic_store(&stream->error, ILLEGAL_ADDRESS);
}

static void perform(struct stream *stream, const struct operation *operation)
{
    if (has_fault("slow"))
        nap_ns(2 * NS_PER_MS);
    switch (operation->kind) {
    case WRITE:
        if (!has_fault("no-write"))
            atomic_store_explicit((_Atomic uint32_t *)operation->target, operation->value, memory_order_release);
        break;
    case WAIT:
        wait_value(stream, operation);
        break;
    case COPY:
        memcpy(operation->target, operation->source, operation->size);
        break;
    case RECORD:
        atomic_store(&((struct event *)operation->target)->passed_ns, now_ns() + DEVICE_CLOCK_NS);
        break;
    }
}

static void *stream_main(void *argument)
{
    struct stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->done == stream->queued && !stream->is_ending)
            pthread_cond_wait(&stream->changed, &stream->lock);
        if (stream->done == stream->queued)
            break;
        struct operation operation = stream->operations[stream->done % MOST_OPERATIONS];
        pthread_mutex_unlock(&stream->lock);
        if (atomic_load(&stream->error) == SUCCESS)
            perform(stream, &operation);
        pthread_mutex_lock(&stream->lock);
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static CUresult enqueue(struct stream *stream, struct operation operation)
{
    if (has_fault("queue-error"))
        return NOT_SUPPORTED;
    if (!is_known(operation.target, operation.size) ||
        (operation.source != NULL && !is_known(operation.source, operation.size)))
        return INVALID_VALUE;
    if (has_fault("stale-reply") && operation.kind == COPY) {
        void *snapshot = malloc(operation.size);
        operation.source = memcpy(snapshot, operation.source, operation.size);
    }
    pthread_mutex_lock(&stream->lock);
    while (stream->queued - stream->done == MOST_OPERATIONS)
        pthread_cond_wait(&stream->changed, &stream->lock);
    stream->operations[stream->queued++ % MOST_OPERATIONS] = operation;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return SUCCESS;
}

/* ---- the driver's calls ---- */

static void hang(void)
{
    for (;;)
        pause();
}

__attribute__((constructor)) static void load(void)
{
    if (has_fault("hang-in-load"))
        hang();
}

#define CALL(name) note_call(#name)

CUresult cuInit(unsigned flags)
{
    CALL(cuInit);
    if (has_fault("noisy")) {
        printf("standard output of the driver\n");
        fflush(stdout);
        fprintf(stderr, "standard error of the driver\n");
    }
    if (has_fault("hang-in-init"))
        hang();
    if (has_fault("crash-in-init"))
        abort();
    if (has_fault("init-error"))
        return UNKNOWN;
    if (has_fault("stub"))
        return STUB_LIBRARY;
    return has_fault("no-device") ? NO_DEVICE : flags != 0 ? INVALID_VALUE : SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = 12040;
    return SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    static const struct {
        CUresult error;
        const char *name;
    } names[] = {{STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"}, {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"}, {UNKNOWN, "CUDA_ERROR_UNKNOWN"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error) {
            *name = names[i].name;
            return SUCCESS;
        }
    *name = NULL;
    return INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
    const char *devices = getenv("STANDIN_DEVICES");
    *count = devices != NULL ? atoi(devices) : 1;
    return SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal + 100;
    return SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    snprintf(name, (size_t)length, "Stand-in %d%s", device - 100, has_fault("mig") ? " MIG 1g.10gb" : "");
    return SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *address, int length, CUdevice device)
{
    snprintf(address, (size_t)length, "0000:%02X:00.0", 0xA0 + device - 100);
    return SUCCESS;
}

CUresult cuDeviceGetUuid(char *uuid, CUdevice device)
{
    memset(uuid, 0x10 + device - 100, 16);
    return SUCCESS;
}

#ifndef OLD_UUID
CUresult cuDeviceGetUuid_v2(char *uuid, CUdevice device)
{
    memset(uuid, 0x20 + device - 100, 16);
    return SUCCESS;
}
#endif

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    *value = has_fault("attributes-say-no") ? 0 : 1;
    return attribute == 98 ? INVALID_VALUE : SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice device)
{
    CALL(cuDevicePrimaryCtxRetain);
    *context = (void *)(uintptr_t)device;
    return has_fault("context-error") ? UNKNOWN : SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CALL(cuDevicePrimaryCtxRelease_v2);
    return device >= 100 ? SUCCESS : INVALID_VALUE;
}

CUresult cuCtxSetCurrent(void *context)
{
    return context != NULL ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemHostRegister_v2(void *start, size_t size, unsigned flags)
{
    CALL(cuMemHostRegister_v2);
    if (has_fault("register-error"))
        return NOT_SUPPORTED;
    if (flags != 3 || (uintptr_t)start % 4096 != 0)
        return INVALID_VALUE;
    add_range(start, size, true);
    return SUCCESS;
}

CUresult cuMemHostUnregister(void *start)
{
    CALL(cuMemHostUnregister);
    /* The page must still be there: a driver unpins it. */
    *(volatile char *)start;
    return remove_range(start) ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags)
{
    *address = (CUdeviceptr)(uintptr_t)host + DEVICE_OFFSET;
    return is_known(host, 1) && flags == 0 ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    CALL(cuMemAlloc_v2);
    if (has_fault("memory-error"))
        return 2;
    void *memory = malloc(size);
    add_range(memory, size, false);
    *address = (CUdeviceptr)(uintptr_t)memory + DEVICE_OFFSET;
    return SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CALL(cuMemFree_v2);
    if (!remove_range(host_address(address)))
        return INVALID_VALUE;
    free(host_address(address));
    return SUCCESS;
}

CUresult cuMemAllocHost_v2(void **address, size_t size)
{
    CALL(cuMemAllocHost_v2);
    *address = malloc(size);
    add_range(*address, size, true);
    return SUCCESS;
}

CUresult cuMemFreeHost(void *address)
{
    CALL(cuMemFreeHost);
    if (!remove_range(address))
        return INVALID_VALUE;
    free(address);
    return SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, struct stream *stream)
{
    return enqueue(stream, (struct operation){COPY, host_address(target), source, size, 0});
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, struct stream *stream)
{
    return enqueue(stream, (struct operation){COPY, target, host_address(source), size, 0});
}

CUresult cuStreamCreate(struct stream **stream, unsigned flags)
{
    CALL(cuStreamCreate);
    if (flags != 1)
        return INVALID_VALUE;
    *stream = calloc(1, sizeof **stream);
    pthread_mutex_init(&(*stream)->lock, NULL);
    pthread_cond_init(&(*stream)->changed, NULL);
    pthread_create(&(*stream)->thread, NULL, stream_main, *stream);
    return SUCCESS;
}

/* As the driver's: waits for what is queued, for ever if that is parked. */
CUresult cuStreamDestroy_v2(struct stream *stream)
{
    CALL(cuStreamDestroy_v2);
    pthread_mutex_lock(&stream->lock);
    stream->is_ending = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    return SUCCESS;
}

CUresult cuStreamQuery(struct stream *stream)
{
    CUresult error = atomic_load(&stream->error);
    if (error != SUCCESS)
        return error;
    if (has_fault("hang-in-query"))
        hang();
    pthread_mutex_lock(&stream->lock);
    /* As under tools that let one call at a time into the driver, or that make every call wait for the stream. */
    while (has_fault("blocking-query") && stream->done != stream->queued)
        pthread_cond_wait(&stream->changed, &stream->lock);
    bool is_done = stream->done == stream->queued;
    pthread_mutex_unlock(&stream->lock);
    return is_done ? SUCCESS : NOT_READY;
}

static CUresult memory_operation(struct stream *stream, enum kind kind, CUdeviceptr address, uint32_t value,
                                 unsigned flags)
{
    if (flags != 0)
        return NOT_SUPPORTED;
    return enqueue(stream, (struct operation){kind, host_address(address), NULL, sizeof value, value});
}

CUresult cuEventCreate(struct event **event, unsigned flags)
{
    if (has_fault("no-events"))
        return NOT_SUPPORTED;
    *event = calloc(1, sizeof **event);
    add_range(*event, sizeof **event, false);
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

CUresult cuEventDestroy_v2(struct event *event)
{
    if (!remove_range(event))
        return INVALID_VALUE;
    free(event);
    return SUCCESS;
}

CUresult cuEventRecord(struct event *event, struct stream *stream)
{
    atomic_store(&event->passed_ns, 0);
    return enqueue(stream, (struct operation){RECORD, event, NULL, sizeof *event, 0});
}

CUresult cuEventElapsedTime(float *elapsed_ms, struct event *start, struct event *end)
{
    int64_t start_ns = atomic_load(&start->passed_ns), end_ns = atomic_load(&end->passed_ns);
    *elapsed_ms = (float)(end_ns - start_ns) / (float)NS_PER_MS;
    return start_ns != 0 && end_ns != 0 ? SUCCESS : NOT_READY;
}

#ifdef V1_ONLY
#define cuStreamWaitValue32_v2 cuStreamWaitValue32
#define cuStreamWriteValue32_v2 cuStreamWriteValue32
#endif

CUresult cuStreamWaitValue32_v2(struct stream *stream, CUdeviceptr address, uint32_t value, unsigned flags)
{
    return memory_operation(stream, WAIT, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(struct stream *stream, CUdeviceptr address, uint32_t value, unsigned flags)
{
    return memory_operation(stream, WRITE, address, value, flags);
}
