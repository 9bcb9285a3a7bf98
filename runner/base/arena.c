/* arena.c -- memory by lifetime, see arena.h. An arena is a list of chunks, newest last. Rewinding
 * keeps the chunks for the next step.
 *
 * Under AddressSanitizer the free part of each chunk is poisoned, and so are the bytes between the
 * slack of an allocation and the next one. A read of memory that was rewound ends the program. */
#include "rd/arena.h"
#include "poison.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct arena_chunk {
    struct arena_chunk *prev, *next;
    size_t cap, used; /* bytes after the header */
    unsigned char *mem;
} arena_chunk;

struct rd_arena {
    arena_chunk *first, *cur;
    size_t chunk_bytes, used, peak, align;
    const rd_arena_source *source; /* NULL: the memory of the process */
};

enum { ALIGN = 64, SOURCE_ALIGN = 256, SLACK = 64 };
/* Chunks of several huge pages are made of huge pages: a step touches all of their memory. */
static const size_t HUGE_PAGE = (size_t)2 << 20, HUGE_CHUNK = (size_t)8 << 20;

rd_code rd_arena_new(size_t chunk_bytes, rd_arena **out, rd_status *st)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return rd_fail(st, RD_EENV, "out of memory for an arena");
    (*out)->chunk_bytes = chunk_bytes < 4096 ? 4096 : chunk_bytes;
    (*out)->align = ALIGN;
    return RD_OK;
}

rd_code rd_arena_new_from(const rd_arena_source *source, size_t chunk_bytes, rd_arena **out,
                          rd_status *st)
{
    if (rd_arena_new(chunk_bytes, out, st) == RD_OK) {
        (*out)->source = source;
        (*out)->align = SOURCE_ALIGN;
    }
    return st->code;
}

/* Poisons the bytes of the chunk from `from` on. Memory of a source is left alone, because a device
 * may read it. */
static void poison_free(const rd_arena *a, arena_chunk *c, size_t from)
{
    if (!a->source) ASAN_POISON_MEMORY_REGION(c->mem + from, c->cap - from);
}

static void free_chunks(const rd_arena *a, arena_chunk *c)
{
    while (c) {
        arena_chunk *next = c->next;
        if (a->source) {
            a->source->put(a->source->ctx, c->mem);
        } else {
            ASAN_UNPOISON_MEMORY_REGION(c->mem, c->cap);
            free(c->mem);
        }
        free(c);
        c = next;
    }
}

void rd_arena_free(rd_arena *a)
{
    if (!a) return;
    free_chunks(a, a->first);
    free(a);
}

static void *host_memory(size_t cap)
{
    if (cap < HUGE_CHUNK) return aligned_alloc(ALIGN, cap);
    void *p = aligned_alloc(HUGE_PAGE, (cap + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (p) (void)madvise(p, cap, MADV_HUGEPAGE);
    return p;
}

static arena_chunk *new_chunk(const rd_arena *a, size_t cap, rd_status *st)
{
    arena_chunk *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->cap = (cap + a->align - 1) / a->align * a->align;
    c->mem = a->source ? a->source->get(a->source->ctx, c->cap, st) : host_memory(c->cap);
    if (!c->mem) {
        free(c);
        return NULL;
    }
    poison_free(a, c, 0);
    return c;
}

size_t rd_arena_bytes(const rd_arena *a, size_t bytes)
{
    return (bytes + SLACK + a->align - 1) / a->align * a->align;
}

rd_code rd_arena_get(rd_arena *a, size_t bytes, void *out, rd_status *st)
{
    void *null = NULL;
    memcpy(out, &null, sizeof null);
    if (bytes > SIZE_MAX / 2)
        return rd_fail(st, RD_EENV, "an array of %zu bytes does not fit in memory", bytes);
    const size_t need = rd_arena_bytes(a, bytes);
    while (!a->cur || a->cur->cap - a->cur->used < need) {
        arena_chunk *next = a->cur ? a->cur->next : a->first;
        if (!next || next->cap < need) { /* insert a new chunk between cur and next */
            arena_chunk *c = new_chunk(a, need > a->chunk_bytes ? need : a->chunk_bytes, st);
            if (!c)
                return rd_fail(
                    st, RD_EENV,
                    "out of memory: %zu bytes asked for with %zu in use; make batch_size smaller",
                    bytes, a->used);
            c->prev = a->cur;
            c->next = next;
            if (next) next->prev = c;
            if (a->cur)
                a->cur->next = c;
            else
                a->first = c;
            next = c;
        }
        next->used = 0;
        a->cur = next;
    }
    void *p = a->cur->mem + a->cur->used;
    if (!a->source) ASAN_UNPOISON_MEMORY_REGION(p, bytes + SLACK);
    a->cur->used += need;
    a->used += need;
    rd_assert(a->cur->used <= a->cur->cap && (uintptr_t)p % ALIGN == 0);
    if (a->used > a->peak) a->peak = a->used;
    memcpy(out, &p, sizeof p);
    return RD_OK;
}

rd_code rd_arena_zero(rd_arena *a, size_t bytes, void *out, rd_status *st)
{
    if (rd_arena_get(a, bytes, out, st) != RD_OK) return st->code;
    void *p;
    memcpy(&p, out, sizeof p);
    if (a->source) return a->source->zero(a->source->ctx, p, bytes, st);
    memset(p, 0, bytes);
    return RD_OK;
}

rd_mark rd_arena_mark(const rd_arena *a)
{
    return (rd_mark){.chunk = a->cur, .used = a->cur ? a->cur->used : 0};
}

void rd_arena_rewind(rd_arena *a, rd_mark m)
{
    while (a->cur && a->cur != m.chunk) {
        a->used -= a->cur->used;
        a->cur->used = 0;
        poison_free(a, a->cur, 0);
        a->cur = a->cur->prev;
    }
    rd_assert(a->cur ==
              m.chunk); /* the mark belongs to this arena and is newer than its last reset */
    if (a->cur) {
        rd_assert(m.used <= a->cur->used); /* the newest mark is rewound first */
        a->used -= a->cur->used - m.used;
        a->cur->used = m.used;
        poison_free(a, a->cur, m.used);
    }
}

rd_code rd_arena_settle(rd_arena *a, rd_status *st)
{
    for (const arena_chunk *c = a->first; c && a->source && a->source->settle; c = c->next)
        RD_TRY(a->source->settle(a->source->ctx, c->mem, st));
done:
    return st->code;
}

void rd_arena_reset(rd_arena *a)
{
    /* The last step needed several chunks: the next one gets a single chunk as large as the peak.
     * Memory of the process has a quarter more, which takes no page before a larger step uses it:
     * sentences differ in length, and each new chunk costs a page fault for every page. */
    if (a->first && a->first->next) {
        rd_status own = {0};
        free_chunks(a, a->first);
        /* NULL: the next rd_arena_get tries again and reports the failure. */
        a->first = new_chunk(a, a->peak + (a->source ? 0 : a->peak / 4) + a->chunk_bytes, &own);
    }
    if (a->first) {
        a->first->used = 0;
        poison_free(a, a->first, 0);
    }
    a->cur = a->first;
    a->used = 0;
}

size_t rd_arena_used(const rd_arena *a)
{
    return a->used;
}
size_t rd_arena_peak(const rd_arena *a)
{
    return a->peak;
}
