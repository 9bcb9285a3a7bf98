/* cpu_int8.c -- products with int8 weights; see cpu_int8.h.
 *
 * W is stored in strips of columns. In a strip the numbers that one instruction multiplies stand
 * side by side: 4 rows of a column for VNNI, 2 rows for the others. A kernel computes up to ROWS
 * rows of X with one strip. */
#include "cpu_int8.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define AVX2 __attribute__((target("avx2")))
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ROWS = 6, WIDE = 64, NARROW = 16, OFFSET = 128, MOST_K = 131072 };

struct rd_int8 {
    rd_int8_kind kind;
    int64_t k, n;
    int64_t strip;   /* columns of a strip */
    int64_t group;   /* rows that stand side by side */
    int64_t k_up;    /* k, rounded up to a multiple of group */
    void *w;         /* [strips][k_up / group][strip][group] int8_t for VNNI, else int16_t */
    float *scale;    /* [strips * strip] of each column */
    int32_t *offset; /* [strips * strip] what OFFSET adds to a sum */
};

bool rd_int8_can(rd_int8_kind kind)
{
#if defined(__x86_64__)
    if (kind == RD_INT8_AVX2) return __builtin_cpu_supports("avx2") != 0;
    if (kind == RD_INT8_VNNI)
        return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
#endif
    return kind == RD_INT8_PLAIN;
}

rd_int8_kind rd_int8_best(void)
{
    return rd_int8_can(RD_INT8_VNNI)   ? RD_INT8_VNNI
           : rd_int8_can(RD_INT8_AVX2) ? RD_INT8_AVX2
                                       : RD_INT8_PLAIN;
}

bool rd_int8_fits(int64_t k)
{
    return k <= MOST_K; /* 127 * 127 * MOST_K < 2^31 */
}

/* ---- quantisation ---- */

/* Returns the bits of |x|. They have the order of the numbers, and NaN is the largest. */
ALWAYS_INLINE int32_t int8_magnitude(float x)
{
    int32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffff;
}

/* Returns the nearest integer of |x| < 2^21, ties to even. */
ALWAYS_INLINE int32_t int8_round(float x)
{
    const float y = x + 12582912.0f; /* 1.5 * 2^23: the last bit counts ones */
    int32_t u;
    memcpy(&u, &y, sizeof u);
    return u - 0x4b400000;
}

/* Returns the scale of numbers whose largest magnitude has these bits, and in *inverse what they
 * are multiplied by. Numbers that are not finite: NaN and 0. */
static float int8_scale(int32_t top, float *inverse)
{
    float x;
    memcpy(&x, &top, sizeof x);
    *inverse = 0.0f;
    if (top >= 0x7f800000) return NAN;
    if (x < 1e-30f) return 0.0f; /* 127 / x would overflow */
    *inverse = 127.0f / x;
    return x / 127.0f;
}

/* Returns the bits of the largest magnitude of k numbers. */
static int32_t int8_top(int64_t k, const float *x)
{
    int32_t top = 0;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < k; i++) {
        const int32_t u = int8_magnitude(x[i]);
        top = u > top ? u : top;
    }
    return top;
}

float rd_int8_row(int64_t k, const float *x, int8_t *out)
{
    float inverse;
    const float scale = int8_scale(int8_top(k, x), &inverse);
    memset(out, 0, (size_t)k);
    if (inverse == 0.0f) return scale;
#pragma omp simd
    for (int64_t i = 0; i < k; i++) out[i] = (int8_t)int8_round(x[i] * inverse);
    return scale;
}

/* Quantises k numbers. inverse 0: all integers are 0, also those of NaN. */
static void int8_row_bytes(int64_t k, const float *x, float inverse, uint8_t *out)
{
    if (inverse == 0.0f) {
        memset(out, OFFSET, (size_t)k);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < k; i++) out[i] = (uint8_t)(int8_round(x[i] * inverse) + OFFSET);
}

static void int8_row_shorts(int64_t k, const float *x, float inverse, int16_t *out)
{
    if (inverse == 0.0f) {
        memset(out, 0, (size_t)k * sizeof *out);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < k; i++) out[i] = (int16_t)int8_round(x[i] * inverse);
}

/* Stores column j of W, whose k numbers stand in `column`. */
static void int8_store_column(rd_int8 *q, int64_t j, const float *column)
{
    int32_t sum = 0;
    float inverse;
    q->scale[j] = int8_scale(int8_top(q->k, column), &inverse);
    const int64_t first = j / q->strip * q->strip * q->k_up + j % q->strip * q->group;
    for (int64_t i = 0; i < q->k && inverse != 0.0f; i++) {
        const int64_t at = first + i / q->group * q->strip * q->group + i % q->group;
        const int32_t v = int8_round(column[i] * inverse);
        if (q->kind == RD_INT8_VNNI)
            ((int8_t *)q->w)[at] = (int8_t)v;
        else
            ((int16_t *)q->w)[at] = (int16_t)v;
        sum += v;
    }
    q->offset[j] = q->kind == RD_INT8_VNNI ? OFFSET * sum : 0;
}

static void *int8_zeros(size_t bytes)
{
    const size_t up = (bytes + 127) / 64 * 64;
    void *p = aligned_alloc(64, up);
    if (p) memset(p, 0, up);
    return p;
}

rd_code rd_int8_new(rd_int8_kind kind, int64_t k, int64_t n, const float *w, int64_t step_k,
                    int64_t step_n, rd_int8 **out, rd_status *st)
{
    float *column = NULL;
    rd_int8 *q = *out = calloc(1, sizeof *q);
    if (!q) return rd_fail(st, RD_EENV, "out of memory for int8 weights");
    const bool bytes = kind == RD_INT8_VNNI;
    *q = (rd_int8){
        .kind = kind, .k = k, .n = n, .strip = bytes ? WIDE : NARROW, .group = bytes ? 4 : 2};
    q->k_up = (k + q->group - 1) / q->group * q->group;
    const int64_t n_up = (n + q->strip - 1) / q->strip * q->strip;
    q->w = int8_zeros((size_t)(n_up * q->k_up) * (bytes ? 1 : 2));
    q->scale = int8_zeros((size_t)n_up * sizeof *q->scale);
    q->offset = int8_zeros((size_t)n_up * sizeof *q->offset);
    column = malloc((size_t)(k + 1) * sizeof *column);
    if (!q->w || !q->scale || !q->offset || !column) {
        rd_fail(st, RD_EENV, "out of memory for int8 weights of %" PRId64 " x %" PRId64, k, n);
        goto done;
    }
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < k; i++) column[i] = w[i * step_k + j * step_n];
        int8_store_column(q, j, column);
    }
done:
    free(column);
    if (st->code != RD_OK) {
        rd_int8_free(q);
        *out = NULL;
    }
    return st->code;
}

void rd_int8_free(rd_int8 *q)
{
    if (!q) return;
    free(q->w);
    free(q->scale);
    free(q->offset);
    free(q);
}

/* ---- products ---- */

typedef struct int8_job {
    const rd_int8 *q;
    int64_t m;
    const float *X;
    void *x;      /* [m, k_up] the integers of X: uint8_t for VNNI, else int16_t */
    float *scale; /* [m] */
    float *Y;
    bool add;
} int8_job;

/* Quantises rows [lo, hi). */
static void int8_rows(void *ctx, int64_t lo, int64_t hi)
{
    const int8_job *j = ctx;
    const int64_t k = j->q->k, k_up = j->q->k_up;
    for (int64_t i = lo; i < hi; i++) {
        const float *x = j->X + i * k;
        float inverse;
        j->scale[i] = int8_scale(int8_top(k, x), &inverse);
        if (j->q->kind == RD_INT8_VNNI) {
            uint8_t *to = (uint8_t *)j->x + i * k_up;
            int8_row_bytes(k, x, inverse, to);
            memset(to + k, 0, (size_t)(k_up - k));
        } else {
            int16_t *to = (int16_t *)j->x + i * k_up;
            int8_row_shorts(k, x, inverse, to);
            memset(to + k, 0, (size_t)(k_up - k) * sizeof *to);
        }
    }
}

/* Writes columns [c0, c0 + strip) of row i from their sums. */
ALWAYS_INLINE void int8_write(const int8_job *j, int64_t i, int64_t c0, const int32_t *sum)
{
    const rd_int8 *q = j->q;
    const int64_t n = q->n - c0 < q->strip ? q->n - c0 : q->strip;
    const float row = j->scale[i], *scale = q->scale + c0;
    const int32_t *offset = q->offset + c0;
    float *y = j->Y + i * q->n + c0;
    /* The sums of VNNI may have wrapped. The difference is right. */
    if (j->add) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++)
            y[c] += (float)(int32_t)((uint32_t)sum[c] - (uint32_t)offset[c]) * (row * scale[c]);
    } else {
#pragma omp simd
        for (int64_t c = 0; c < n; c++)
            y[c] = (float)(int32_t)((uint32_t)sum[c] - (uint32_t)offset[c]) * (row * scale[c]);
    }
}

/* Computes rows [i, i + rows) of the strip with first column c0. */
static void int8_plain(const int8_job *j, int64_t i, int rows, int64_t c0)
{
    const rd_int8 *q = j->q;
    const int16_t *w = (const int16_t *)q->w + c0 * q->k_up;
    for (int r = 0; r < rows; r++) {
        const int16_t *x = (const int16_t *)j->x + (i + r) * q->k_up;
        int32_t sum[NARROW] = {0};
        for (int64_t k = 0; k < q->k_up; k += 2)
            for (int c = 0; c < NARROW; c++)
                sum[c] += x[k] * w[k * NARROW + 2 * c] + x[k + 1] * w[k * NARROW + 2 * c + 1];
        int8_write(j, i + r, c0, sum);
    }
}

#if defined(__x86_64__)
ALWAYS_INLINE AVX2 void int8_avx2_rows(const int8_job *j, int64_t i, const int rows, int64_t c0)
{
    const rd_int8 *q = j->q;
    const int16_t *w = (const int16_t *)q->w + c0 * q->k_up,
                  *x = (const int16_t *)j->x + i * q->k_up;
    __m256i sum[ROWS][2];
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    for (int64_t k = 0; k < q->k_up; k += 2) {
        const __m256i *at = (const __m256i *)(const void *)(w + k * NARROW);
        const __m256i w0 = _mm256_load_si256(at), w1 = _mm256_load_si256(at + 1);
        for (int r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, x + r * q->k_up + k, sizeof two);
            const __m256i v = _mm256_set1_epi32(two);
            sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(v, w0));
            sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(v, w1));
        }
    }
    for (int r = 0; r < rows; r++) {
        int32_t out[NARROW] __attribute__((aligned(64)));
        _mm256_store_si256((__m256i *)(void *)out, sum[r][0]);
        _mm256_store_si256((__m256i *)(void *)(out + 8), sum[r][1]);
        int8_write(j, i + r, c0, out);
    }
}

/* Adds the products of bytes of u and w. GCC 12 compiles the intrinsic to copies of the sums in
 * memory, which halves the speed. */
ALWAYS_INLINE VNNI __m512i int8_dot(__m512i sum, __m512i u, __m512i w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(w));
    return sum;
}

ALWAYS_INLINE VNNI void int8_vnni_rows(const int8_job *j, int64_t i, const int rows, int64_t c0)
{
    const rd_int8 *q = j->q;
    const int8_t *w = (const int8_t *)q->w + c0 * q->k_up;
    const uint8_t *x = (const uint8_t *)j->x + i * q->k_up;
    __m512i sum[ROWS][4];
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < 4; s++) sum[r][s] = _mm512_setzero_si512();
    for (int64_t k = 0; k < q->k_up; k += 4) {
        __m512i v[4];
        for (int s = 0; s < 4; s++) v[s] = _mm512_load_si512(w + k * WIDE + s * 64);
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * q->k_up + k, sizeof four);
            const __m512i u = _mm512_set1_epi32(four);
            for (int s = 0; s < 4; s++) sum[r][s] = int8_dot(sum[r][s], u, v[s]);
        }
    }
    for (int r = 0; r < rows; r++) {
        int32_t out[WIDE] __attribute__((aligned(64)));
        for (int s = 0; s < 4; s++) _mm512_store_si512(out + s * 16, sum[r][s]);
        int8_write(j, i + r, c0, out);
    }
}

/* Each number of rows is a function whose sums are registers. */
#define EACH_ROWS(rows_of, j, i, rows, c0) \
    switch (rows) {                        \
    case 1:                                \
        rows_of(j, i, 1, c0);              \
        break;                             \
    case 2:                                \
        rows_of(j, i, 2, c0);              \
        break;                             \
    case 3:                                \
        rows_of(j, i, 3, c0);              \
        break;                             \
    case 4:                                \
        rows_of(j, i, 4, c0);              \
        break;                             \
    case 5:                                \
        rows_of(j, i, 5, c0);              \
        break;                             \
    default:                               \
        rows_of(j, i, ROWS, c0);           \
        break;                             \
    }

AVX2 static void int8_avx2(const int8_job *j, int64_t i, int rows,
                           int64_t c0){EACH_ROWS(int8_avx2_rows, j, i, rows, c0)}

VNNI static void int8_vnni(const int8_job *j, int64_t i, int rows, int64_t c0)
{
    EACH_ROWS(int8_vnni_rows, j, i, rows, c0)
}
#else
#define int8_avx2 int8_plain
#define int8_vnni int8_plain
#endif

/* Computes strips [lo, hi). */
static void int8_strips(void *ctx, int64_t lo, int64_t hi)
{
    static void (*const kernels[])(const int8_job *, int64_t, int, int64_t) = {
        [RD_INT8_PLAIN] = int8_plain, [RD_INT8_AVX2] = int8_avx2, [RD_INT8_VNNI] = int8_vnni};
    const int8_job *j = ctx;
    for (int64_t s = lo; s < hi; s++)
        for (int64_t i = 0; i < j->m; i += ROWS)
            kernels[j->q->kind](j, i, j->m - i < ROWS ? (int)(j->m - i) : ROWS, s * j->q->strip);
}

rd_code rd_int8_mul(rd_cpu *b, const rd_int8 *q, int64_t m, const float *X, float *Y, bool add,
                    rd_status *st)
{
    enum { ENOUGH = 1 << 19 }; /* multiply-adds that are worth a thread */
    if (m <= 0 || q->n <= 0) return RD_OK;
    const size_t bytes = (size_t)(m * q->k_up) * (q->kind == RD_INT8_VNNI ? 1 : 2),
                 before = (bytes + 63) / 64 * 64;
    RD_TRY(rd_cpu_buffer_reserve(&b->int8_rows, before + (size_t)m * sizeof(float), st));
    int8_job j = {.q = q, .m = m, .X = X, .x = b->int8_rows.p, .Y = Y, .add = add};
    j.scale = (float *)(void *)((char *)b->int8_rows.p + before);
    rd_parallel(&b->base, m, ENOUGH / (16 * (q->k + 1)) + 1, int8_rows, &j);
    rd_parallel(&b->base, (q->n + q->strip - 1) / q->strip, ENOUGH / (m * q->k * q->strip + 1) + 1,
                int8_strips, &j);
done:
    return st->code;
}

/* ---- parameters ---- */

struct rd_int8_param {
    const rd_param *w;
    int64_t row0, rows;
    bool transposed;
    uint64_t version;
    rd_int8 *q;
    rd_int8_param *next;
};

const rd_int8 *rd_int8_of(rd_cpu *b, const rd_params *ps, const rd_leaf_rows *w, bool transposed,
                          rd_status *st)
{
    const uint64_t now = rd_params_version(ps);
    rd_int8_param *p = b->int8_list;
    while (p && !(p->w == w->param && p->row0 == w->row0 && p->rows == w->rows &&
                  p->transposed == transposed))
        p = p->next;
    if (p && p->q && p->version == now) return p->q;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) {
            rd_fail(st, RD_EENV, "out of memory for int8 weights");
            return NULL;
        }
        *p = (rd_int8_param){w->param, w->row0, w->rows, transposed, 0, NULL, b->int8_list};
        b->int8_list = p;
    }
    const float *from = w->values + w->row0 * w->cols;
    const int64_t k = transposed ? w->cols : w->rows, n = transposed ? w->rows : w->cols;
    rd_int8_free(p->q);
    p->version = now;
    (void)rd_int8_new(rd_int8_best(), k, n, from, transposed ? 1 : w->cols,
                      transposed ? w->cols : 1, &p->q, st);
    return p->q;
}

void rd_int8_free_all(rd_int8_param *list)
{
    while (list) {
        rd_int8_param *next = list->next;
        rd_int8_free(list->q);
        free(list);
        list = next;
    }
}
