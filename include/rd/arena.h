/* arena.h -- memory by lifetime: the run, the step, scratch. An arena grows in chunks and is wound back at once;
 * after the first steps it asks the system for nothing. Not thread-safe: one arena belongs to one thread. */
#ifndef RD_ARENA_H
#define RD_ARENA_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef struct rd_arena rd_arena;
typedef struct rd_mark {
    void *chunk;
    size_t used;
} rd_mark;

/* The caller owns *out. chunk_bytes: the smallest piece asked from the system. */
rd_code rd_arena_new(size_t chunk_bytes, rd_arena **out, rd_status *st);
/* Memory of another kind, a device's or that which a device reads by itself: get returns it 256-byte aligned, NULL after a failure
 * that it has written into st; zero fills it in the order of the device's other work. settle (NULL: nothing to wait for) returns when
 * what lies at p, as get gave it, may be written again: the device has read what it was told to. Borrowed, outlives the arena. */
typedef struct rd_arena_source {
    void *ctx;
    void *(*get)(void *ctx, size_t bytes, rd_status *st);
    void (*put)(void *ctx, void *p);
    rd_code (*zero)(void *ctx, void *p, size_t bytes, rd_status *st);
    rd_code (*settle)(void *ctx, void *p, rd_status *st);
} rd_arena_source;
rd_code rd_arena_new_from(const rd_arena_source *source, size_t chunk_bytes, rd_arena **out,
                          rd_status *st);
void rd_arena_free(rd_arena *a); /* NULL is fine */

/* 64-byte aligned (256 from a source), contents undefined; at least 64 readable and writable slack bytes follow (kernels may touch whole
 * vectors). Out of memory: RD_EENV with the number of bytes asked for and in use. */
rd_code rd_arena_get(rd_arena *a, size_t bytes, void *out,
                     rd_status *st); /* out: address of any object pointer */
rd_code rd_arena_zero(rd_arena *a, size_t bytes, void *out,
                      rd_status *st); /* the same, filled with zero bytes */

rd_mark rd_arena_mark(const rd_arena *a);
void rd_arena_rewind(rd_arena *a, rd_mark m); /* all that was handed out after the mark is gone */
rd_code rd_arena_settle(rd_arena *a,
                        rd_status *st); /* waits until all of it may be written again */
void rd_arena_reset(
    rd_arena *a); /* all is gone; the chunks are kept, joined into one when it helps */
size_t rd_arena_used(const rd_arena *a); /* bytes handed out now */
size_t rd_arena_peak(const rd_arena *a); /* highest value of used since the arena was made */

RD_C_END
#endif
