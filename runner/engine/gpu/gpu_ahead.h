/* gpu_ahead.h -- arrays of the host that go up to a GPU ahead of their turn, on a stream of their own, while the ops'
 * stream still computes what was queued before.
 *
 *     copies   wait for TAKEN | host -> room | SENT
 *     ops      ... the step before ...                | wait for SENT | room -> the ops' array | TAKEN | the step ...
 *
 * A room is memory of the device. The copy from there is one within the device, fifteen times as fast as the one from
 * the host: so the ops find the array at the address where it would be without all this, which is the same in every
 * step, as graphs and plans of libraries want it; and the room is free for the next array as soon as a step has begun.
 *
 * The host's memory must not change before its owner has waited for it, and may do so after: what was sent from there
 * is then forgotten, taken or not.
 *
 * No type of CUDA here: what a stream is, its device knows. Not thread-safe. */
#ifndef RD_GPU_AHEAD_H
#define RD_GPU_AHEAD_H

#include "rd/gpu.h"

RD_C_BEGIN

enum { RD_AHEAD_ROOMS = 4, RD_AHEAD_EVENTS = 2 * RD_AHEAD_ROOMS };

typedef enum rd_gpu_queue { RD_QUEUE_OPS, RD_QUEUE_COPIES, RD_QUEUES } rd_gpu_queue;

typedef struct rd_ahead_device {
    void *(*get)(rd_gpu *g,
                 size_t bytes); /* device memory; NULL: there is not enough, which is no failure */
    void (*put)(rd_gpu *g, void *p); /* waits for both streams; NULL is fine */
    /* On the copies' stream, and on the ops', within the device. */
    rd_code (*up)(rd_gpu *g, void *to, const void *host, size_t bytes, rd_status *st);
    rd_code (*copy)(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st);
    /* The event is when all is done that was queued on the stream so far, and no longer what it was before. */
    rd_code (*record)(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st);
    /* What is queued on the stream from here on comes after the event as it is now; one never recorded is over. */
    rd_code (*wait)(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st);
} rd_ahead_device;

typedef struct rd_ahead_room {
    void *at; /* NULL: no memory yet */
    size_t bytes;
    const void *
        host; /* the array that was sent there, and neither taken nor forgotten; NULL: the room is free */
    size_t sent;
} rd_ahead_room;

/* The room for an array: of the free ones the smallest that is large enough, else the largest, which has to grow; -1:
 * none is free. */
int rd_ahead_place(const rd_ahead_room room[RD_AHEAD_ROOMS], size_t bytes);
/* The room to which the array was sent, of which the first bytes are wanted; -1: none. */
int rd_ahead_find(const rd_ahead_room room[RD_AHEAD_ROOMS], const void *host, size_t bytes);

typedef struct rd_ahead rd_ahead;
/* g and d are borrowed. The caller owns *out. */
rd_code rd_ahead_new(rd_gpu *g, const rd_ahead_device *d, rd_ahead **out, rd_status *st);
void rd_ahead_free(rd_ahead *a); /* NULL is fine; waits */
/* Nothing happens where no room is free or can be had. */
rd_code rd_ahead_send(rd_ahead *a, const void *host, size_t bytes, rd_status *st);
/* True: the array goes from its room to `device`, or that failed. False: it was not sent. The work before it was
 * queued. */
bool rd_ahead_take(rd_ahead *a, void *device, const void *host, size_t bytes, rd_status *st);
void rd_ahead_forget(rd_ahead *a, const void *host, size_t bytes); /* the arrays that lie there */
void rd_ahead_late(rd_ahead *a); /* counts an array that might have been sent and was not */
void rd_ahead_count(const rd_ahead *a, rd_gpu_ahead_counts *out);

RD_C_END
#endif
