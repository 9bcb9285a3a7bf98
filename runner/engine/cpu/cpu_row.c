/* cpu_row.c -- products of one row with packed weights; see cpu_row.h.
 *
 * A model that writes one text reads all its weights for each token, and computes little. oneDNN's
 * products round one row up to RD_SLACK_ROWS, so they wait for the arithmetic. This kernel waits
 * for the memory. It reads the copy that those products have made: one array from begin to end.
 *
 * Each number of the result is a chain of fused multiply-adds from 0 over rising k. Beyond MOST_K
 * a chain has CHUNK numbers, and the chains are added in order. oneDNN 2.6 has the same chains
 * up to MOST_K in all products of few rows, and mostly beyond. So a text does not depend on the
 * number of texts that are written beside it. */
#include "cpu_row.h"
#ifdef __AVX512F__
#include <immintrin.h>

enum { LANES = 16, MOST_K = 1024, CHUNK = 384, GRAIN = 1 << 16, AHEAD = 1024 };

typedef struct row_job {
    const float *x, *w;
    float *y;
    int64_t k, n, strip;
    bool add;
} row_job;

/* sum[v] = the chains of k numbers for a strip of V vectors. */
static inline __attribute__((always_inline)) void row_chains(int V, int64_t k, const float *w,
                                                             const float *x, __m512 *sum)
{
    for (int v = 0; v < V; v++) sum[v] = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i++) {
        const __m512 xi = _mm512_set1_ps(x[i]);
        const float *at = w + i * V * LANES;
        for (int v = 0; v < V; v++) {
            /* behind the end of a page the CPU does not read ahead by itself */
            _mm_prefetch((const char *)at + v * 64 + AHEAD * sizeof(float), _MM_HINT_T0);
            sum[v] = _mm512_fmadd_ps(xi, _mm512_loadu_ps(at + v * LANES), sum[v]);
        }
    }
}

/* One strip, of n real columns. */
static inline __attribute__((always_inline)) void row_strip(const row_job *j, int V, int64_t n,
                                                            const float *w, float *y)
{
    const int64_t chunk = j->k > MOST_K ? CHUNK : j->k;
    __m512 sum[4], more[4];
    row_chains(V, chunk, w, j->x, sum);
    for (int64_t k = chunk; k < j->k; k += chunk) {
        row_chains(V, j->k - k < chunk ? j->k - k : chunk, w + k * V * LANES, j->x + k, more);
        for (int v = 0; v < V; v++) sum[v] = _mm512_add_ps(sum[v], more[v]);
    }
    for (int v = 0; v < V && v * LANES < n; v++) {
        const int64_t left = n - v * LANES;
        const __mmask16 m = (__mmask16)(left < LANES ? (1u << left) - 1 : 0xffffu);
        if (j->add) sum[v] = _mm512_add_ps(_mm512_maskz_loadu_ps(m, y + v * LANES), sum[v]);
        _mm512_mask_storeu_ps(y + v * LANES, m, sum[v]);
    }
}

/* Strips [lo, hi). */
static void row_part(void *ctx, int64_t lo, int64_t hi)
{
    const row_job *j = ctx;
    for (int64_t s = lo; s < hi; s++) {
        const float *w = j->w + s * j->strip * j->k;
        float *y = j->y + s * j->strip;
        const int64_t n = j->n - s * j->strip;
        if (j->strip == 4 * LANES)
            row_strip(j, 4, n, w, y);
        else if (j->strip == 3 * LANES)
            row_strip(j, 3, n, w, y);
        else if (j->strip == 2 * LANES)
            row_strip(j, 2, n, w, y);
        else
            row_strip(j, 1, n, w, y);
    }
}

bool rd_cpu_row_can(int64_t strip)
{
    return strip > 0 && strip <= 4 * LANES && strip % LANES == 0;
}

void rd_cpu_row_mul(rd_cpu *b, int64_t k, int64_t n, int64_t strip, const float *w, const float *x,
                    float *y, bool add)
{
    row_job j = {.x = x, .w = w, .y = y, .k = k, .n = n, .strip = strip, .add = add};
    rd_parallel(&b->base, (n + strip - 1) / strip, GRAIN / (k * strip) + 1, row_part, &j);
}

#else

bool rd_cpu_row_can(int64_t strip)
{
    (void)strip;
    return false;
}

void rd_cpu_row_mul(rd_cpu *b, int64_t k, int64_t n, int64_t strip, const float *w, const float *x,
                    float *y, bool add)
{
    (void)b, (void)k, (void)n, (void)strip, (void)w, (void)x, (void)y, (void)add;
}

#endif
