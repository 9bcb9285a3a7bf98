/* xent_block.h -- the size of a block of logits in softmax_xent. */
#ifndef RD_XENT_BLOCK_H
#define RD_XENT_BLOCK_H

#include "rd/backend.h"

RD_C_BEGIN

enum { RD_XENT_PART = 32 };
/* Returns the bytes that the logits of a block may take on a GPU with this number of bytes of
 * memory: one of RD_XENT_PART equal parts of them, rounded down to a power of two, so that drivers
 * which reserve more or less of it do not differ. memory 0, unknown: as for 8 GiB. */
static inline size_t rd_xent_block_bytes(uint64_t memory)
{
    const uint64_t most = (memory ? memory : (uint64_t)8 << 30) / RD_XENT_PART;
    uint64_t bytes = 1;
    while (2 * bytes <= most) bytes *= 2;
    return (size_t)bytes;
}

/* Returns the number of rows of V logits that take at most `own` bytes: a multiple of 64, and at
 * least 64. */
static inline int64_t rd_xent_block_rows(const rd_backend *be, size_t own, int64_t V)
{
    const int64_t rows = (int64_t)(rd_backend_block_bytes(be, own) / sizeof(float)) / V / 64 * 64;
    return rows < 64 ? 64 : rows;
}

RD_C_END
#endif
