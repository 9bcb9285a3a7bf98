/* xent_block.h -- how many bytes the logits of one block of softmax_xent take. */
#ifndef RD_XENT_BLOCK_H
#define RD_XENT_BLOCK_H

#include "rd/backend.h"

RD_C_BEGIN

/* Rows of V logits that take at most `own` bytes, in multiples of 64 and at least so many. */
static inline int64_t rd_xent_block_rows(const rd_backend *be, size_t own, int64_t V)
{
    const int64_t rows = (int64_t)(rd_backend_block_bytes(be, own) / sizeof(float)) / V / 64 * 64;
    return rows < 64 ? 64 : rows;
}

RD_C_END
#endif
