/* softmax_row.h -- for kernels that read a row of logits of any length once and get its largest
 * logit and the sum of its exponentials. */
#ifndef RD_SOFTMAX_ROW_H
#define RD_SOFTMAX_ROW_H

#include "kernel.h"

struct rd_softmax_row {
    float top;        /* largest logit of the row; -INFINITY if no logit is a number */
    float sum;        /* sum over the row of exp((l - top) inv) */
    float own;        /* largest logit of this thread */
    int64_t own_best; /* lowest index of that logit; INT32_MAX: none */
};

/* Reads l [V] with a block of THREADS threads. The sum of each thread is relative to its largest
 * logit so far, which rarely changes. */
template <int THREADS>
static __device__ inline rd_softmax_row rd_softmax_of_row(const float *l, int64_t V, float inv)
{
    enum { PER = 8 };
    float top = -INFINITY, sum = 0.0f;
    int64_t best = INT32_MAX;
    for (int64_t v0 = threadIdx.x; v0 < V; v0 += THREADS * PER) {
        float x[PER], high = -INFINITY;
#pragma unroll
        for (int k = 0; k < PER; k++) x[k] = v0 + k * THREADS < V ? l[v0 + k * THREADS] : -INFINITY;
#pragma unroll
        for (int k = 0; k < PER; k++) high = fmaxf(high, x[k]);
        if (high > top) {
#pragma unroll
            for (int k = PER - 1; k >= 0; k--) best = x[k] == high ? v0 + k * THREADS : best;
            sum *= expf((top - high) * inv);
            top = high;
        }
#pragma unroll
        for (int k = 0; k < PER; k++)
            if (x[k] != -INFINITY) sum += expf((x[k] - top) * inv);
    }
    rd_softmax_row r;
    r.own = top;
    r.own_best = best;
    r.top = rd_block_max(top);
    r.sum = rd_block_sum(top == -INFINITY ? sum : sum * expf((top - r.top) * inv));
    return r;
}

#endif
