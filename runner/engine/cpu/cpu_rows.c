/* cpu_rows.c -- products with packed weights in which each row is computed by itself; see
 * cpu_rows.h.
 *
 * A kernel computes some rows with some vectors of columns. All their sums are registers. The
 * number of rows of a call does not change the chain of any number. A model that writes one text
 * reads all its weights for each token, and computes little: then the kernel waits for the memory
 * alone, and reads the strips as one array from begin to end. */
#include "cpu_rows.h"
#include <inttypes.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define AVX512 __attribute__((target("avx512f")))
#define BF16 __attribute__((target("avx512f,avx512bf16")))
#define AVX2 __attribute__((target("avx2,fma")))
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    WIDE = 16,  /* lanes of AVX-512 */
    NARROW = 8, /* lanes of the others */
    MOST_COLUMNS = 64,
    BLOCK = 48,     /* most rows whose sums are in memory */
    MOST_K = 1024,  /* longest chain of a whole sum */
    CHUNK = 384,    /* length of a chain otherwise; even */
    AHEAD = 4096,   /* bytes: behind the end of a page the CPU does not read ahead by itself */
    GRAIN = 1 << 16 /* multiply-adds that are worth a thread */
};

/* One chain for each number of some rows and columns. */
typedef struct rows_task {
    const void *x; /* float, or pairs of bfloat16 */
    int64_t ldx;   /* numbers or pairs from row to row */
    const void *w;
    int64_t at;   /* numbers from vector to vector of W; AVX-512: known */
    int64_t step; /* numbers from row to row of W */
    int64_t k;    /* length of the chain, in numbers or pairs */
    /* Sums of several chains, [rows][MOST_COLUMNS]: the first chain sets them, the last reads them
     * and writes y. */
    float *sum;
    bool first, last;
    float *y;       /* rows that are ldy apart, with n columns */
    int64_t ldy, n; /* n may be less than the vectors hold */
    bool add;
    /* What is read ahead: `gap` bytes more for each step and vector. */
    const char *ahead;
    int64_t gap;
} rows_task;

/* ---- kernels: R rows, V vectors ---- */

typedef float rows_vector __attribute__((vector_size(NARROW * sizeof(float)), aligned(4)));

/* Ends a narrow kernel: adds its sums [R][3 * NARROW] to those before, or writes them. */
static void rows_narrow_end(const rows_task *t, int R, int V, const float *sums)
{
    for (int r = 0; r < R; r++) {
        const float *from = sums + (int64_t)r * 3 * NARROW;
        float *to = t->sum + (int64_t)r * MOST_COLUMNS, *y = t->y + r * t->ldy;
        const int64_t width = (int64_t)V * NARROW, n = t->n < width ? t->n : width;
        for (int64_t c = 0; c < width; c++) to[c] = t->first ? from[c] : to[c] + from[c];
        if (!t->last) continue;
        for (int64_t c = 0; c < n; c++) y[c] = t->add ? y[c] + to[c] : to[c];
    }
}

ALWAYS_INLINE void rows_plain_kernel(const rows_task *t, const int R, const int V)
{
    rows_vector sum[4][3];
    const float *x = t->x, *w = t->w;
    const int64_t k = t->k, step = t->step, ldx = t->ldx, at = t->at;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) sum[r][v] = (rows_vector){0};
    for (int64_t i = 0; i < k; i++, w += step) {
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 12
            for (int v = 0; v < V; v++)
                sum[r][v] += x[r * ldx + i] * *(const rows_vector *)(const void *)(w + v * at);
    }
    rows_vector out[4 * 3];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) out[r * 3 + v] = sum[r][v];
    rows_narrow_end(t, R, V, (const float *)(const void *)out);
}

#if defined(__x86_64__)
ALWAYS_INLINE AVX2 void rows_avx2_kernel(const rows_task *t, const int R, const int V)
{
    __m256 sum[4][3];
    const float *x = t->x, *w = t->w;
    const int64_t k = t->k, step = t->step, ldx = t->ldx, at = t->at;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) sum[r][v] = _mm256_setzero_ps();
    for (int64_t i = 0; i < k; i++, w += step) {
        __m256 wi[3];
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) {
            _mm_prefetch((const char *)(w + v * at) + AHEAD, _MM_HINT_T0);
            wi[v] = _mm256_loadu_ps(w + v * at);
            /* else each use reads the memory again */
            __asm__("" : "+x"(wi[v]));
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const __m256 xi = _mm256_broadcast_ss(x + r * ldx + i);
#pragma GCC unroll 12
            for (int v = 0; v < V; v++) sum[r][v] = _mm256_fmadd_ps(xi, wi[v], sum[r][v]);
        }
    }
    __m256 out[4 * 3];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) out[r * 3 + v] = sum[r][v];
    rows_narrow_end(t, R, V, (const float *)(const void *)out);
}

/* Ends a wide kernel: adds its sums [R][4] to those before, or writes them. */
AVX512 static void rows_wide_end(const rows_task *t, int R, int V, const __m512 *sums)
{
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            float *to = t->sum + r * MOST_COLUMNS + v * WIDE, *y = t->y + r * t->ldy + v * WIDE;
            const int64_t left = t->n - v * WIDE;
            const __mmask16 m = left >= WIDE ? 0xffffu : left > 0 ? (1u << left) - 1 : 0;
            __m512 sum = sums[r * 4 + v];
            if (!t->first) sum = _mm512_add_ps(_mm512_loadu_ps(to), sum);
            if (!t->last) {
                _mm512_storeu_ps(to, sum);
                continue;
            }
            if (t->add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(m, y), sum);
            _mm512_mask_storeu_ps(y, m, sum);
        }
}

ALWAYS_INLINE AVX512 void rows_avx512_kernel(const rows_task *t, const int R, const int V)
{
    __m512 sum[12][4];
    const float *x[4], *w = t->w;
    const char *ahead = t->ahead;
    const int64_t k = t->k, step = t->step, ldx = t->ldx, gap = t->gap;
#pragma GCC unroll 4
    for (int q = 0; q < (R + 2) / 3; q++) x[q] = (const float *)t->x + 3 * q * ldx;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) sum[r][v] = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i++, w += step) {
        __m512 wi[4];
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) {
            _mm_prefetch(ahead, _MM_HINT_T0);
            ahead += gap;
            wi[v] = _mm512_loadu_ps(w + v * WIDE);
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const __m512 xi = _mm512_set1_ps(x[r / 3][r % 3 * ldx]);
#pragma GCC unroll 12
            for (int v = 0; v < V; v++) sum[r][v] = _mm512_fmadd_ps(xi, wi[v], sum[r][v]);
        }
#pragma GCC unroll 4
        for (int q = 0; q < (R + 2) / 3; q++) {
            x[q]++;
            /* else the compiler has a pointer to each row, and too few registers */
            __asm__("" : "+r"(x[q]));
        }
    }
    __m512 out[12 * 4];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) out[r * 4 + v] = sum[r][v];
    rows_wide_end(t, R, V, out);
}

/* Adds the products of pairs. By hand: see int8_dot of cpu_int8.c. */
ALWAYS_INLINE BF16 __m512 rows_pair(__m512 sum, __m512i x, __m512i w)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}

ALWAYS_INLINE BF16 void rows_bf16_kernel(const rows_task *t, const int R, const int V)
{
    __m512 sum[12][4];
    const int32_t *x[4], *w = t->w;
    const char *ahead = t->ahead;
    const int64_t k = t->k, step = t->step, ldx = t->ldx, gap = t->gap;
#pragma GCC unroll 4
    for (int q = 0; q < (R + 2) / 3; q++) x[q] = (const int32_t *)t->x + 3 * q * ldx;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) sum[r][v] = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i++, w += step) {
        __m512i wi[4];
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) {
            _mm_prefetch(ahead, _MM_HINT_T0);
            ahead += gap;
            wi[v] = _mm512_loadu_si512(w + v * WIDE);
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const __m512i xi = _mm512_set1_epi32(x[r / 3][r % 3 * ldx]);
#pragma GCC unroll 12
            for (int v = 0; v < V; v++) sum[r][v] = rows_pair(sum[r][v], xi, wi[v]);
        }
#pragma GCC unroll 4
        for (int q = 0; q < (R + 2) / 3; q++) {
            x[q]++;
            /* else the compiler has a pointer to each row, and too few registers */
            __asm__("" : "+r"(x[q]));
        }
    }
    __m512 out[12 * 4];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 12
        for (int v = 0; v < V; v++) out[r * 4 + v] = sum[r][v];
    rows_wide_end(t, R, V, out);
}
#endif

/* Each number of rows and vectors is a case whose sums are registers. */
#define CASE(kernel, R, V) \
    case (V)*16 + (R):     \
        kernel(t, R, V);   \
        break;
#define CASES_4(kernel, V) \
    CASE(kernel, 1, V) CASE(kernel, 2, V) CASE(kernel, 3, V) CASE(kernel, 4, V)
#define CASES_6(kernel, V) CASES_4(kernel, V) CASE(kernel, 5, V) CASE(kernel, 6, V)
#define CASES_8(kernel, V) CASES_6(kernel, V) CASE(kernel, 7, V) CASE(kernel, 8, V)
#define CASES_12(kernel, V) \
    CASES_8(kernel, V)      \
    CASE(kernel, 9, V) CASE(kernel, 10, V) CASE(kernel, 11, V) CASE(kernel, 12, V)
#define NARROW_KERNELS(kernel)                                                    \
    switch (V * 16 + R) {                                                         \
        CASES_4(kernel, 1) CASES_4(kernel, 2) CASES_4(kernel, 3) default : break; \
    }
#define WIDE_KERNELS(kernel)                                                       \
    switch (V * 16 + R) {                                                          \
        CASES_6(kernel, 1)                                                         \
        CASES_12(kernel, 2) CASES_8(kernel, 3) CASES_6(kernel, 4) default : break; \
    }

static void rows_plain(const rows_task *t, int R, int V){NARROW_KERNELS(rows_plain_kernel)}

#if defined(__x86_64__)
AVX2 static void rows_avx2(const rows_task *t, int R, int V){NARROW_KERNELS(rows_avx2_kernel)}

AVX512 static void rows_avx512(const rows_task *t, int R, int V){WIDE_KERNELS(rows_avx512_kernel)}

BF16 static void rows_bf16(const rows_task *t, int R, int V){WIDE_KERNELS(rows_bf16_kernel)}
#else
#define rows_avx2 rows_plain
#define rows_avx512 rows_plain
#define rows_bf16 rows_plain
#endif

rd_cpu_rows_kind rd_cpu_rows_best(void)
{
#if defined(__x86_64__)
    const int isa = (int)dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core &&
        __builtin_cpu_supports("avx512f"))
        return RD_ROWS_AVX512;
    if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return RD_ROWS_AVX2;
#endif
    return RD_ROWS_PLAIN;
}

/* ---- weights ---- */

static int64_t rows_lanes(const rd_cpu *b)
{
    return b->rows_kind == RD_ROWS_AVX512 ? WIDE : NARROW;
}

bool rd_cpu_rows_can(const rd_cpu *b, int64_t strip, bool half)
{
    const int64_t lanes = rows_lanes(b);
    return strip > 0 && strip % lanes == 0 && strip <= (lanes == WIDE ? 4 : 3) * lanes &&
           (!half || b->bf16_hw);
}

rd_code rd_cpu_rows_pack(const rd_cpu *b, int64_t k, int64_t n, const float *w, int64_t step_k,
                         int64_t step_n, bool half, rd_cpu_strips *s, rd_status *st)
{
    const int64_t strip = 3 * rows_lanes(b), up = half ? (k + 1) / 2 * 2 : k,
                  n_strips = (n + strip - 1) / strip;
    const size_t size = half ? sizeof(uint16_t) : sizeof(float),
                 bytes = ((size_t)(n_strips * strip * up) * size + 127) / 64 * 64;
    void *to = aligned_alloc(64, bytes);
    if (!to) return rd_fail(st, RD_EENV, "out of memory for packed weights (%zu bytes)", bytes);
    memset(to, 0, bytes);
    for (int64_t j = 0; j < n; j++) {
        const int64_t first = j / strip * strip * up, c = j % strip;
        for (int64_t i = 0; i < k; i++) {
            const float *from = w + i * step_k + j * step_n;
            if (half)
                rd_to_half(from, (uint16_t *)to + first + (i / 2 * strip + c) * 2 + i % 2, 1);
            else
                ((float *)to)[first + i * strip + c] = *from;
        }
    }
    *s = (rd_cpu_strips){
        .w = to, .k = k, .n = n, .strip = strip, .length = strip * up, .half = half};
    return RD_OK;
}

/* ---- products ---- */

typedef struct rows_job {
    const rd_cpu_strips *s;
    void (*kernel)(const rows_task *t, int R, int V);
    int64_t lanes, m, n_blocks;
    int64_t group; /* strips of one vector each that a kernel takes at once; else 1 */
    const void *X;
    int64_t ldx; /* numbers or pairs */
    float *Y;
    bool add;
} rows_job;

/* Returns where part i of `parts` equal ones begins. */
static int64_t rows_cut(int64_t n, int64_t i, int64_t parts)
{
    return n * i / parts;
}

/* Returns the most rows for which a kernel has registers. */
static int64_t rows_most(int64_t lanes, int64_t V)
{
    return lanes == NARROW ? 4 : V == 3 ? 8 : V == 2 ? 12 : 6;
}

/* Returns what pass q over the weights begins to read ahead. A single pass reads what it needs
 * itself a little later. Each of several passes reads a part of what follows these weights. */
static const char *rows_ahead(const float *w, int64_t strip, int64_t steps, int64_t q,
                              int64_t passes)
{
    if (passes == 1) return (const char *)w + AHEAD;
    return (const char *)(w + steps * strip) + q * (steps * strip * 4 / passes);
}

/* Computes rows [lo, hi) of the columns of a group of strips. */
static void rows_block(const rows_job *j, int64_t group, int64_t lo, int64_t hi)
{
    const rd_cpu_strips *s = j->s;
    const int64_t width = j->group * s->strip, c0 = group * width,
                  n = s->n - c0 < width ? s->n - c0 : width, pair = s->half ? 2 : 1,
                  strips = (n + s->strip - 1) / s->strip, k = (s->k + pair - 1) / pair,
                  chunk = s->k > MOST_K ? CHUNK / pair : k, m = hi - lo;
    const int64_t vectors = strips * s->strip / j->lanes;
    /* Many rows read four vectors as two and two: a kernel has registers for more rows then. */
    const int64_t n_v = vectors == 4 && m > rows_most(j->lanes, 4) ? 2 : 1, V = vectors / n_v,
                  most = rows_most(j->lanes, V), parts = (m + most - 1) / most;
    float sum[BLOCK * MOST_COLUMNS] __attribute__((aligned(64)));
    /* A number of float, a pair of bfloat16: four bytes each. */
    const float *x = (const float *)j->X + lo * j->ldx,
                *w = (const float *)s->w + group * j->group * s->length / pair;
    for (int64_t i = 0; i < k; i += chunk)
        for (int64_t q = 0; q < n_v * parts; q++) {
            const int64_t v = q / parts * V * j->lanes, p = q % parts, r = rows_cut(m, p, parts),
                          end = rows_cut(m, p + 1, parts);
            const float *at = w + i * s->strip;
            const int64_t steps = k - i < chunk ? k - i : chunk;
            const rows_task t = {.x = x + r * j->ldx + i,
                                 .ldx = j->ldx,
                                 .w = at + v,
                                 .at = j->group > 1 ? s->length / pair : j->lanes,
                                 .step = s->strip,
                                 .k = steps,
                                 .sum = sum + r * MOST_COLUMNS + v,
                                 .first = i == 0,
                                 .last = i + steps == k,
                                 .y = j->Y + (lo + r) * s->n + c0 + v,
                                 .ldy = s->n,
                                 .n = n - v,
                                 .add = j->add,
                                 .ahead = rows_ahead(at, s->strip, steps, q, n_v * parts),
                                 .gap = 64 / parts};
            j->kernel(&t, (int)(end - r), (int)V);
        }
}

/* Computes blocks of rows of groups of strips, [lo, hi). */
static void rows_part(void *ctx, int64_t lo, int64_t hi)
{
    const rows_job *j = ctx;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t block = i % j->n_blocks;
        rows_block(j, i / j->n_blocks, rows_cut(j->m, block, j->n_blocks),
                   rows_cut(j->m, block + 1, j->n_blocks));
    }
}

/* Rows that are a multiple of 4,096 bytes apart would share a set of the CPU's cache: they are
 * copied with gaps. */
static rd_code rows_spread(rd_cpu *b, rows_job *j, rd_status *st)
{
    const int64_t k = j->ldx;
    if (k * 4 % 4096 != 0 || j->m < 8 || j->s->n < 64) return st->code;
    RD_TRY(rd_cpu_buffer_reserve(&b->spread, (size_t)(j->m * (k + 16)) * 4, st));
    float *to = b->spread.p;
    for (int64_t i = 0; i < j->m; i++)
        memcpy(to + i * (k + 16), (const float *)j->X + i * k, (size_t)k * 4);
    j->X = to;
    j->ldx = k + 16;
done:
    return st->code;
}

rd_code rd_cpu_rows_mul(rd_cpu *b, const rd_cpu_strips *s, int64_t m, const void *X, float *Y,
                        bool add, rd_status *st)
{
    static void (*const kernels[])(const rows_task *, int, int) = {
        [RD_ROWS_PLAIN] = rows_plain, [RD_ROWS_AVX2] = rows_avx2, [RD_ROWS_AVX512] = rows_avx512};
    if (m <= 0 || s->n <= 0) return st->code;
    rows_job j = {.s = s,
                  .kernel = s->half ? rows_bf16 : kernels[b->rows_kind],
                  .lanes = rows_lanes(b),
                  .m = m,
                  .n_blocks = (m + BLOCK - 1) / BLOCK,
                  .group = s->strip == NARROW ? 3 : 1,
                  .X = X,
                  .ldx = s->half ? (s->k + 1) / 2 : s->k,
                  .Y = Y,
                  .add = add};
    const int64_t width = j.group * s->strip, rows = m < BLOCK ? m : BLOCK;
    RD_TRY(rows_spread(b, &j, st));
    rd_parallel(&b->base, (s->n + width - 1) / width * j.n_blocks,
                GRAIN / (s->k * width * rows + 1) + 1, rows_part, &j);
done:
    return st->code;
}
