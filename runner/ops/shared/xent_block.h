/* xent_block.h -- the size of a block of logits in softmax_xent. */
#ifndef RD_XENT_BLOCK_H
#define RD_XENT_BLOCK_H

#include "rd/backend.h"

RD_C_BEGIN

/* Returns the number of rows of V logits that take at most `own` bytes: a multiple of 64, and at
 * least 64. */
static inline int64_t rd_xent_block_rows(const rd_backend *be, size_t own, int64_t V)
{
    const int64_t rows = (int64_t)(rd_backend_block_bytes(be, own) / sizeof(float)) / V / 64 * 64;
    return rows < 64 ? 64 : rows;
}

RD_C_END
#endif
