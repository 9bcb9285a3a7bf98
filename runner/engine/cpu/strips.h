/* strips.h -- blocks of channels in strips of up to three: what twelve vectors in registers hold for four rows. A
 * single last block borrows from its neighbour: 3 + 1 = 2 + 2. */
#ifndef RD_STRIPS_H
#define RD_STRIPS_H

#include <stdint.h>

enum { RD_STRIP = 3 };

static inline int64_t rd_strips(int64_t blocks)
{
    return (blocks + RD_STRIP - 1) / RD_STRIP;
}
/* First block of strip i of n. */
static inline int64_t rd_strip_start(int64_t blocks, int64_t i, int64_t n)
{
    return blocks % RD_STRIP == 1 && blocks > 1 && i == n - 1 ? blocks - 2 : i * RD_STRIP;
}
/* The strip that a block is in. */
static inline int64_t rd_strip_of(int64_t blocks, int64_t block)
{
    const int64_t n = rd_strips(blocks);
    return block >= rd_strip_start(blocks, n - 1, n) ? n - 1 : block / RD_STRIP;
}

#endif
