/* copies_emulated.cc -- the second stream of the emulated GPU, which uploads arrays ahead of their
 * turn.
 *
 * A GPU may be late with either stream. So this stream does nothing before something waits for it:
 * the ops' stream for an event, or the host. The ops' stream does its work at once. If it reads a
 * range of device memory, the file remembers the read until this stream has waited for an event
 * behind the read. A read or write without the needed wait ends the process with a line that
 * reports it. */
#include "device_emulated.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct queued {
    queued *next;
    void *to;
    const void *from; /* nullptr: the event is recorded */
    size_t bytes;
    int event;
};

/* a range that this stream has written at some time */
struct room {
    room *next;
    const char *at;
    size_t bytes;
    /* number of the last read by the ops' stream; 0: no read since the range was written */
    uint64_t read;
};

struct rd_emulated_copies {
    queued *first;
    room *rooms;
    /* reads by the ops' stream; number of these reads for which this stream has waited */
    uint64_t reads, waited_for;
    /* number of reads when the ops' stream recorded the event */
    uint64_t event[RD_AHEAD_EVENTS];
};

static void wrong(const char *what, const void *p)
{
    fprintf(stderr, "emulated GPU: device memory at %p %s\n", p, what);
    abort();
}

static void *some(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) abort();
    return p;
}

static bool overlap(const void *a, size_t n, const void *b, size_t m)
{
    return (const char *)a < (const char *)b + m && (const char *)b < (const char *)a + n;
}

static void append(rd_emulated_copies *q, const queued &item)
{
    queued **end = &q->first;
    while (*end) end = &(*end)->next;
    *end = (queued *)some(sizeof item);
    **end = item;
}

/* Does all work up to the last item that `last` selects. */
template <typename condition> static void finish(rd_emulated_copies *q, condition last)
{
    int n = 0, upto = 0;
    for (const queued *k = q->first; k; k = k->next) {
        n++;
        if (last(*k)) upto = n;
    }
    rd_emulated_access access;
    for (; upto > 0; upto--) {
        queued *k = q->first;
        if (k->from) memcpy(k->to, k->from, k->bytes);
        q->first = k->next;
        free(k);
    }
}

extern "C" {

rd_emulated_copies *rd_emulated_copies_new(void)
{
    return (rd_emulated_copies *)some(sizeof(rd_emulated_copies));
}

void rd_emulated_copies_free(rd_emulated_copies *q)
{
    if (!q) return;
    while (q->first) {
        queued *k = q->first;
        q->first = k->next;
        free(k);
    }
    while (q->rooms) {
        room *r = q->rooms;
        q->rooms = r->next;
        free(r);
    }
    free(q);
}

void rd_emulated_copies_up(rd_emulated_copies *q, void *to, const void *from, size_t bytes)
{
    room *r = q->rooms;
    if (!rd_emulated_is_device(to, bytes)) wrong("is to be written, and is none", to);
    for (room *k = q->rooms; k; k = k->next)
        if (k->read > q->waited_for && overlap(k->at, k->bytes, to, bytes))
            wrong("is written, and the ops that read it were not waited for", to);
    while (r && r->at != to) r = r->next;
    if (!r) {
        r = (room *)some(sizeof *r);
        *r = {q->rooms, (const char *)to, bytes, 0};
        q->rooms = r;
    }
    r->bytes = bytes;
    r->read = 0;
    append(q, {nullptr, to, from, bytes, -1});
}

void rd_emulated_copies_read(rd_emulated_copies *q, const void *from, size_t bytes)
{
    q->reads++;
    for (const queued *k = q->first; k; k = k->next)
        if (k->from && overlap(k->to, k->bytes, from, bytes))
            wrong("is read, and what is on its way there was not waited for", from);
    for (room *r = q->rooms; r; r = r->next)
        if (overlap(r->at, r->bytes, from, bytes)) r->read = q->reads;
}

void rd_emulated_copies_record(rd_emulated_copies *q, rd_gpu_queue stream, int event)
{
    if (stream == RD_QUEUE_COPIES)
        append(q, {nullptr, nullptr, nullptr, 0, event});
    else
        q->event[event] = q->reads;
}

void rd_emulated_copies_wait(rd_emulated_copies *q, rd_gpu_queue stream, int event)
{
    if (stream == RD_QUEUE_OPS)
        finish(q, [event](const queued &k) { return !k.from && k.event == event; });
    else if (q->event[event] > q->waited_for)
        q->waited_for = q->event[event];
}

void rd_emulated_copies_finish(rd_emulated_copies *q, const void *from, size_t bytes)
{
    finish(q, [from, bytes](const queued &k) {
        return !from || (k.from && overlap(k.from, k.bytes, from, bytes));
    });
}

void rd_emulated_copies_forget(rd_emulated_copies *q, const void *to, size_t bytes)
{
    for (const queued *k = q->first; k; k = k->next)
        if (k->from && overlap(k->to, k->bytes, to, bytes))
            wrong("is given back, and what is on its way there was not waited for", to);
    for (room **at = &q->rooms; *at;) {
        room *r = *at;
        if (!overlap(r->at, r->bytes, to, bytes)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(r);
    }
}

} // extern "C"
