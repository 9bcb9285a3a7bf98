/* operand.h -- rows as operands of products, on a GPU. In mixed these have 16 bits: a number is
 * rounded once, and all products of the operand read the result. */
#ifndef RD_OPERAND_H
#define RD_OPERAND_H

#include "rd/arena.h"
#include "rd/gpu.h"

RD_C_BEGIN

/* Returns the distance of the rows of an operand of n columns: they begin at 16 bytes if they have
 * 16 bits. */
static inline int64_t rd_operand_ld(int64_t n)
{
    return (n + 7) / 8 * 8;
}

/* Returns the operand that begins at element `at` of x, with rows ld elements apart. */
static inline rd_gpu_operand rd_operand_at(const void *x, rd_element type, int64_t at, int64_t ld)
{
    rd_gpu_operand o;
    o.at = (char *)(uintptr_t)x + (size_t)at * rd_element_bytes(type);
    o.type = type;
    o.ld = ld;
    return o;
}

/* Writes x [rows, width], after its dropout, to the first columns of an operand. mask NULL: no
 * dropout; else its rows are ld_mask bytes apart. */
rd_code rd_operand_rows(rd_gpu *g, int64_t rows, int64_t width, const float *x, const uint8_t *mask,
                        int64_t ld_mask, float keep, rd_gpu_operand to, rd_status *st);
/* Adds the sums of the columns of z [rows, width] to sum [width], in a fixed order. scratch: memory
 * of the GPU. */
rd_code rd_operand_add_columns(rd_gpu *g, rd_arena *scratch, int64_t rows, int64_t width,
                               rd_gpu_operand z, float *sum, rd_status *st);

RD_C_END
#endif
