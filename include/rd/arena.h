/* arena.h -- memory by lifetime: the run, the step, scratch.
 *
 * An arena grows in chunks and is emptied at once. After the first steps it no longer allocates. It
 * is not thread-safe: one arena belongs to one thread. */
#ifndef RD_ARENA_H
#define RD_ARENA_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef struct rd_arena rd_arena;
/* A position in an arena, for rd_arena_rewind. */
typedef struct rd_mark {
    void *chunk;
    size_t used; /* bytes of the chunk that were in use */
} rd_mark;

/* Makes an arena in the memory of the process. chunk_bytes: the smallest block that it allocates.
 * The caller owns *out. */
rd_code rd_arena_new(size_t chunk_bytes, rd_arena **out, rd_status *st);

/* Another kind of memory: a device's memory, or host memory that a device reads by itself. */
typedef struct rd_arena_source {
    void *ctx; /* borrowed; the first argument of all functions */
    /* Returns `bytes` of memory, aligned to 256 bytes; NULL after a failure, which is in *st. */
    void *(*get)(void *ctx, size_t bytes, rd_status *st);
    /* Frees memory that `get` returned. */
    void (*put)(void *ctx, void *p);
    /* Fills the memory with zeros, in the order of the device's other work. */
    rd_code (*zero)(void *ctx, void *p, size_t bytes, rd_status *st);
    /* Waits until the memory at p, which `get` returned, may be overwritten: the device has read
     * all that it was asked to read. NULL: there is nothing to wait for. */
    rd_code (*settle)(void *ctx, void *p, rd_status *st);
} rd_arena_source;
/* Makes an arena in another kind of memory. source is borrowed and outlives the arena. The caller
 * owns *out. */
rd_code rd_arena_new_from(const rd_arena_source *source, size_t chunk_bytes, rd_arena **out,
                          rd_status *st);
void rd_arena_free(rd_arena *a); /* NULL is fine */

/* Allocates `bytes` and stores their address in *out; out is the address of any object pointer. The
 * memory is aligned to 64 bytes (256 from a source) and its contents are undefined. At least 64
 * bytes of slack follow, which may be read and written: kernels may touch whole vectors. Out of
 * memory: RD_EENV with the bytes requested and the bytes in use. */
rd_code rd_arena_get(rd_arena *a, size_t bytes, void *out, rd_status *st);
/* Returns the bytes that rd_arena_get takes for an array of `bytes`: slack and alignment
 * included. */
size_t rd_arena_bytes(const rd_arena *a, size_t bytes);
/* Allocates like rd_arena_get and fills the memory with zeros. */
rd_code rd_arena_zero(rd_arena *a, size_t bytes, void *out, rd_status *st);

/* Returns the present position. */
rd_mark rd_arena_mark(const rd_arena *a);
/* Frees everything that was allocated after the mark. */
void rd_arena_rewind(rd_arena *a, rd_mark m);
/* Waits until all memory of the arena may be overwritten, see rd_arena_source.settle. */
rd_code rd_arena_settle(rd_arena *a, rd_status *st);
/* Frees everything that was allocated. Keeps the chunks; several chunks become one large one. */
void rd_arena_reset(rd_arena *a);
/* Returns the bytes in use, or the highest number of bytes in use since the arena was made. */
size_t rd_arena_used(const rd_arena *a);
size_t rd_arena_peak(const rd_arena *a);

RD_C_END
#endif
