/* strips.h -- cuts blocks of channels into strips of up to three.
 *
 * Twelve vectors in registers hold three blocks for four rows. If one block would remain, the strip
 * before it gives it one of its blocks: 2 + 2 instead of 3 + 1. */
#ifndef RD_STRIPS_H
#define RD_STRIPS_H

#include <stdint.h>

enum { RD_STRIP = 3 };

/* Returns the number of strips. */
static inline int64_t rd_strips(int64_t blocks)
{
    return (blocks + RD_STRIP - 1) / RD_STRIP;
}
/* Returns the first block of strip i of n. */
static inline int64_t rd_strip_start(int64_t blocks, int64_t i, int64_t n)
{
    return blocks % RD_STRIP == 1 && blocks > 1 && i == n - 1 ? blocks - 2 : i * RD_STRIP;
}
/* Returns the strip that contains a block. */
static inline int64_t rd_strip_of(int64_t blocks, int64_t block)
{
    const int64_t n = rd_strips(blocks);
    return block >= rd_strip_start(blocks, n - 1, n) ? n - 1 : block / RD_STRIP;
}

#endif
