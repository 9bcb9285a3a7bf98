/* cpu_int8.h -- products with int8 weights, for decoding on a CPU.
 *
 *     Y[m, n] = X[m, k] W[k, n] (+ Y)
 *
 * Each column of W and each row of X has a scale, its largest magnitude / 127. Both are rounded to
 * integers in [-127, 127]. Sums have 32 bits and are exact, so a row of Y depends on its row of X
 * alone, and every kind of kernel returns the same bytes. */
#ifndef RD_CPU_INT8_H
#define RD_CPU_INT8_H

#include "cpu_impl.h"

RD_C_BEGIN

typedef enum rd_int8_kind {
    RD_INT8_PLAIN, /* every CPU */
    RD_INT8_AVX2,  /* products of 16 bits: no sum saturates */
    RD_INT8_VNNI,  /* AVX-512 VNNI: the integers of X are stored as x + 128 */
    RD_INT8_KINDS
} rd_int8_kind;

/* A quantised matrix. */
typedef struct rd_int8 rd_int8;

/* Returns whether the CPU has the instructions of a kind. */
bool rd_int8_can(rd_int8_kind kind);
/* Returns the fastest kind of this CPU. */
rd_int8_kind rd_int8_best(void);
/* Returns whether sums of k products fit into 32 bits. */
bool rd_int8_fits(int64_t k);
/* Quantises W [k, n], whose element (i, j) is w[i * step_k + j * step_n]. The caller owns *out. A
 * column with a number that is not finite gives columns of NaN. */
rd_code rd_int8_new(rd_int8_kind kind, int64_t k, int64_t n, const float *w, int64_t step_k,
                    int64_t step_n, rd_int8 **out, rd_status *st);
/* Frees q. NULL is allowed. */
void rd_int8_free(rd_int8 *q);
/* Computes the product of m rows. A row of X with a number that is not finite gives NaN. */
rd_code rd_int8_mul(rd_cpu *b, const rd_int8 *q, int64_t m, const float *X, float *Y, bool add,
                    rd_status *st);

/* Returns the quantised rows of a parameter, or their transpose, made at their first use and again
 * when the parameters have changed. The backend owns them. NULL after a failure. */
const rd_int8 *rd_int8_of(rd_cpu *b, const rd_params *ps, const rd_leaf_rows *w, bool transposed,
                          rd_status *st);
/* Frees all matrices of a list. */
void rd_int8_free_all(rd_int8_param *list);

RD_C_END
#endif
