/* gpu_ahead.h -- uploads host arrays to a GPU ahead of their turn. The uploads have their own
 * stream, while the ops' stream still computes the work that was queued before.
 *
 *     copies   wait for TAKEN | host -> slot | SENT
 *     ops      ... the step before | wait for SENT | slot -> the ops' array | TAKEN | the step ...
 *
 * A slot is device memory. The second copy stays on the device and is fifteen times as fast as the
 * copy from the host. So the ops find the array at its usual address, which is the same in every
 * step; graphs and plans of libraries need this. The slot is free for the next array as soon as a
 * step has begun.
 *
 * The host array must not change before its owner has waited for it. After that it may change: the
 * slot then forgets the array, whether it was taken or not.
 *
 * No type of CUDA appears here: the device knows what a stream is. Not thread-safe. */
#ifndef RD_GPU_AHEAD_H
#define RD_GPU_AHEAD_H

#include "rd/gpu.h"

RD_C_BEGIN

enum { RD_AHEAD_SLOTS = 4, RD_AHEAD_EVENTS = 2 * RD_AHEAD_SLOTS };

typedef enum rd_gpu_queue { RD_QUEUE_OPS, RD_QUEUE_COPIES, RD_QUEUES } rd_gpu_queue;

typedef struct rd_ahead_device {
    /* Allocates device memory. NULL: there is not enough, which is no failure. */
    void *(*get)(rd_gpu *g, size_t bytes);
    /* Frees device memory. Waits for both streams. NULL is allowed. */
    void (*put)(rd_gpu *g, void *p);
    /* Copies from the host on the copies' stream; copies within the device on the ops' stream. */
    rd_code (*up)(rd_gpu *g, void *to, const void *host, size_t bytes, rd_status *st);
    rd_code (*copy)(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st);
    /* Records an event. It passes when all work queued on the stream so far is done. An older
     * recording of the event no longer counts. */
    rd_code (*record)(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st);
    /* Makes work that is queued on the stream from here on wait for the last recording of the
     * event. An event that was never recorded has passed. */
    rd_code (*wait)(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st);
} rd_ahead_device;

typedef struct rd_ahead_slot {
    void *at; /* NULL: no memory yet */
    size_t bytes;
    /* the array that was sent there, and neither taken nor forgotten; NULL: the slot is free */
    const void *host;
    size_t sent;
} rd_ahead_slot;

/* Returns the slot for an array: the smallest free slot that is large enough, else the largest free
 * slot, which must grow. -1: no slot is free. */
int rd_ahead_place(const rd_ahead_slot slot[RD_AHEAD_SLOTS], size_t bytes);
/* Returns the slot to which the array was sent; the caller needs its first `bytes` bytes. -1:
 * none. */
int rd_ahead_find(const rd_ahead_slot slot[RD_AHEAD_SLOTS], const void *host, size_t bytes);

typedef struct rd_ahead rd_ahead;
/* Creates the state. g and d are borrowed. The caller owns *out. */
rd_code rd_ahead_new(rd_gpu *g, const rd_ahead_device *d, rd_ahead **out, rd_status *st);
/* Frees a. NULL is allowed. Waits. */
void rd_ahead_free(rd_ahead *a);
/* Sends an array. Nothing happens if no slot is free and none can be allocated. */
rd_code rd_ahead_send(rd_ahead *a, const void *host, size_t bytes, rd_status *st);
/* Copies an array from its slot to `device`. True: the copy was queued or has failed. False: the
 * array was not sent. The work before it was queued. */
bool rd_ahead_take(rd_ahead *a, void *device, const void *host, size_t bytes, rd_status *st);
/* Forgets the arrays in this host memory. */
void rd_ahead_forget(rd_ahead *a, const void *host, size_t bytes);
/* Counts an array that could have been sent and was not. */
void rd_ahead_late(rd_ahead *a);
/* Writes the counts so far to *out. */
void rd_ahead_count(const rd_ahead *a, rd_gpu_ahead_counts *out);

RD_C_END
#endif
