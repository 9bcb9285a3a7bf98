/* gpu_ahead.c -- see gpu_ahead.h. */
#include "gpu_ahead.h"
#include <stdlib.h>

struct rd_ahead {
    rd_gpu *gpu;
    const rd_ahead_device *device;
    rd_ahead_slot slot[RD_AHEAD_SLOTS];
    rd_gpu_ahead_counts count;
};

static int sent_event(int slot)
{
    return 2 * slot;
}
static int taken_event(int slot)
{
    return 2 * slot + 1;
}

int rd_ahead_place(const rd_ahead_slot slot[RD_AHEAD_SLOTS], size_t bytes)
{
    int best = -1;
    for (int i = 0; i < RD_AHEAD_SLOTS; i++) {
        if (slot[i].host) continue;
        const bool fits = slot[i].bytes >= bytes,
                   best_fits = best >= 0 && slot[best].bytes >= bytes;
        if (best < 0 || (fits ? !best_fits || slot[i].bytes < slot[best].bytes
                              : !best_fits && slot[i].bytes > slot[best].bytes))
            best = i;
    }
    return best;
}

int rd_ahead_find(const rd_ahead_slot slot[RD_AHEAD_SLOTS], const void *host, size_t bytes)
{
    for (int i = 0; i < RD_AHEAD_SLOTS; i++)
        if (host && slot[i].host == host && bytes <= slot[i].sent) return i;
    return -1;
}

rd_code rd_ahead_new(rd_gpu *g, const rd_ahead_device *d, rd_ahead **out, rd_status *st)
{
    rd_ahead *a = *out = calloc(1, sizeof *a);
    if (!a)
        return rd_fail(st, RD_EENV, "out of memory for the list of arrays on their way to a GPU");
    a->gpu = g;
    a->device = d;
    return st->code;
}

void rd_ahead_free(rd_ahead *a)
{
    if (!a) return;
    for (int i = 0; i < RD_AHEAD_SLOTS; i++) a->device->put(a->gpu, a->slot[i].at);
    free(a);
}

/* Grows the device memory of a slot. False: the device has no memory for it, now and later. */
static bool gpu_ahead_grow(rd_ahead *a, rd_ahead_slot *r, size_t bytes)
{
    if (r->bytes >= bytes) return true;
    a->device->put(a->gpu, r->at);
    a->count.bytes -= r->bytes;
    *r = (rd_ahead_slot){.at = a->device->get(a->gpu, bytes)};
    a->count.is_short = !r->at;
    if (r->at) r->bytes = bytes;
    a->count.bytes += r->bytes;
    return r->at != NULL;
}

rd_code rd_ahead_send(rd_ahead *a, const void *host, size_t bytes, rd_status *st)
{
    rd_ahead_forget(a, host, bytes);
    const int i = rd_ahead_place(a->slot, bytes);
    if (i < 0 || a->count.is_short || !gpu_ahead_grow(a, &a->slot[i], bytes)) return st->code;
    RD_TRY(a->device->wait(a->gpu, RD_QUEUE_COPIES, taken_event(i), st));
    RD_TRY(a->device->up(a->gpu, a->slot[i].at, host, bytes, st));
    RD_TRY(a->device->record(a->gpu, RD_QUEUE_COPIES, sent_event(i), st));
    a->slot[i].host = host;
    a->slot[i].sent = bytes;
    a->count.sent++;
done:
    return st->code;
}

bool rd_ahead_take(rd_ahead *a, void *device, const void *host, size_t bytes, rd_status *st)
{
    const int i = rd_ahead_find(a->slot, host, bytes);
    if (i < 0) return false;
    a->slot[i].host = NULL;
    RD_TRY(a->device->wait(a->gpu, RD_QUEUE_OPS, sent_event(i), st));
    RD_TRY(a->device->copy(a->gpu, device, a->slot[i].at, bytes, st));
    RD_TRY(a->device->record(a->gpu, RD_QUEUE_OPS, taken_event(i), st));
    a->count.taken++;
done:
    return true;
}

void rd_ahead_forget(rd_ahead *a, const void *host, size_t bytes)
{
    const unsigned char *from = host;
    for (int i = 0; i < RD_AHEAD_SLOTS; i++) {
        rd_ahead_slot *r = &a->slot[i];
        const unsigned char *at = r->host;
        if (at && at < from + bytes && from < at + r->sent) r->host = NULL;
    }
}

void rd_ahead_late(rd_ahead *a)
{
    a->count.late++;
}

void rd_ahead_count(const rd_ahead *a, rd_gpu_ahead_counts *out)
{
    *out = a->count;
}
