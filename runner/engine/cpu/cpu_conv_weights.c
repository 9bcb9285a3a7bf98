/* cpu_conv_weights.c -- the gradient of a convolution's weights in float32, for shapes at which
 * oneDNN is slow.
 *
 * For 3x3 oneDNN's AVX2 kernel reaches 55 to 70 % of a matrix product's speed, this file 95 to
 * 110 %. With 1 or 3 channels oneDNN pads them to 8.
 *
 *   dW[r, s, c, o] += sum over i, p, q of
 *                     x[i, p stride + r - top, q stride + s - left, c] dy[i, p, q, o]
 *
 * A tile is four taps (r, s, c) by up to three blocks of channels o: twelve vectors. They stay in
 * registers during the loop over the pixels of a chunk. A pixel costs three loads, four broadcasts
 * and twelve multiply-adds. A chunk is a number of rows (of samples, if images are small). Its size
 * is such that dy for three blocks and x for one block fit in the L1 cache. They stay there while
 * the loop runs over all tiles that need them.
 *
 * Blocked images: the four taps are channels of one block. NHWC (the first layer): the four taps
 * are consecutive in HWIO, and x is a copy that contains the padding.
 *
 * One thread computes a tile, and its sums have a fixed order. So the number of threads does not
 * change results. */
#include "cpu_impl.h"
#include "cpu_conv_weights.h"
#include "strips.h"
#include <stdlib.h>
#if defined __AVX512F__ || (defined __AVX2__ && defined __FMA__)
#include <immintrin.h>
#endif

enum { TAPS = 4, BLOCKS = RD_STRIP, CHUNK_BYTES = 32 << 10 };

typedef struct geometry {
    int64_t n, oh, ow, co, stride;
    /* Blocks of channels of the result. */
    int64_t K;
    /* x, and its elements from one row, pixel, sample or block to the next. */
    const float *x;
    int64_t row, pixel, sample, block;
    int64_t dy_sample, dy_block;
    const float *dy;
    /* Groups of four taps. */
    int64_t n_groups;
} geometry;

typedef struct tap {
    /* Offset in x from the first pixel of a window to the tap. Taps that the last group lacks have
     * the offset of the last tap. */
    int64_t at[TAPS];
    /* Row of HWIO; -1: none. */
    int64_t to[TAPS];
    /* Pixels of the result for which the tap is inside the image. */
    int64_t p0, p1, q0, q1;
} tap;

typedef struct cpu_conv_weights_job {
    geometry g;
    const tap *taps;
    /* [strips][groups][TAPS][BLOCKS][B] */
    float *sum;
    /* [K B], or NULL. */
    float *bias;
    /* Of a chunk. */
    int64_t rows, samples;
    int64_t n_strips;
} cpu_conv_weights_job;

typedef struct cpu_conv_weights_walk {
    const float *x, *dy;
    int64_t samples, rows, cols;
    int64_t x_sample, x_row, x_pixel, dy_sample, dy_row, dy_block;
} cpu_conv_weights_walk;

/* Keeps v in a register. Otherwise the compiler loads dy again for each of the four taps, and the
 * loop waits for the loads. */
#define IN_REGISTER(v) __asm__("" : "+x"(v))

#define TILE(name, vec, B, N, load, store, broadcast, fma)                                      \
    static void name(const cpu_conv_weights_walk *w, const int64_t at[TAPS], float *sum)        \
    {                                                                                           \
        vec s[TAPS][N];                                                                         \
        for (int t = 0; t < TAPS; t++)                                                          \
            for (int b = 0; b < (N); b++) s[t][b] = load(sum + (t * BLOCKS + b) * (B));         \
        for (int64_t i = 0; i < w->samples; i++)                                                \
            for (int64_t p = 0; p < w->rows; p++) {                                             \
                const float *x = w->x + i * w->x_sample + p * w->x_row,                         \
                            *d = w->dy + i * w->dy_sample + p * w->dy_row;                      \
                const float *x0 = x + at[0], *x1 = x + at[1], *x2 = x + at[2], *x3 = x + at[3]; \
                for (int64_t q = 0; q < w->cols; q++) {                                         \
                    vec v[N];                                                                   \
                    for (int b = 0; b < (N); b++) {                                             \
                        v[b] = load(d + b * w->dy_block);                                       \
                        IN_REGISTER(v[b]);                                                      \
                    }                                                                           \
                    const vec a0 = broadcast(*x0);                                              \
                    for (int b = 0; b < (N); b++) s[0][b] = fma(a0, v[b], s[0][b]);             \
                    const vec a1 = broadcast(*x1);                                              \
                    for (int b = 0; b < (N); b++) s[1][b] = fma(a1, v[b], s[1][b]);             \
                    const vec a2 = broadcast(*x2);                                              \
                    for (int b = 0; b < (N); b++) s[2][b] = fma(a2, v[b], s[2][b]);             \
                    const vec a3 = broadcast(*x3);                                              \
                    for (int b = 0; b < (N); b++) s[3][b] = fma(a3, v[b], s[3][b]);             \
                    x0 += w->x_pixel;                                                           \
                    x1 += w->x_pixel;                                                           \
                    x2 += w->x_pixel;                                                           \
                    x3 += w->x_pixel;                                                           \
                    d += (B);                                                                   \
                }                                                                               \
            }                                                                                   \
        for (int t = 0; t < TAPS; t++)                                                          \
            for (int b = 0; b < (N); b++) store(sum + (t * BLOCKS + b) * (B), s[t][b]);         \
    }

typedef void tile_fn(const cpu_conv_weights_walk *w, const int64_t at[TAPS], float *sum);
#if defined __AVX2__ && defined __FMA__
TILE(tile8_1, __m256, 8, 1, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps)
TILE(tile8_2, __m256, 8, 2, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps)
TILE(tile8_3, __m256, 8, 3, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps)
static tile_fn *const tiles8[] = {NULL, tile8_1, tile8_2, tile8_3};
#else
static tile_fn *const tiles8[BLOCKS + 1] = {NULL};
#endif
#if defined __AVX512F__
TILE(tile16_1, __m512, 16, 1, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps)
TILE(tile16_2, __m512, 16, 2, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps)
TILE(tile16_3, __m512, 16, 3, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps)
static tile_fn *const tiles16[] = {NULL, tile16_1, tile16_2, tile16_3};
#else
static tile_fn *const tiles16[BLOCKS + 1] = {NULL};
#endif

bool rd_conv_weights_can(const rd_conv_shape *s, int64_t block)
{
    /* 1x1 is a matrix product, which the library computes as fast. */
    if (s->block && (s->block != block || s->kh * s->kw == 1)) return false;
    return (block == 8 && tiles8[1]) || (block == 16 && tiles16[1]);
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline __attribute__((always_inline)) void bias_sums(const cpu_conv_weights_job *j,
                                                            int64_t i0, int64_t i1, int64_t p0,
                                                            int64_t p1, int64_t b0, int64_t n_b,
                                                            const int64_t B)
{
    const geometry *g = &j->g;
    const int64_t n = (p1 - p0) * g->ow;
    for (int64_t b = b0; b < b0 + n_b; b++)
        for (int64_t i = i0; i < i1; i++) {
            const float *d = g->dy + i * g->dy_sample + b * g->dy_block + p0 * g->ow * B;
            float s[4][16] = {{0}};
            int64_t q = 0;
            for (; q + 4 <= n; q += 4, d += 4 * B)
                for (int64_t u = 0; u < 4; u++)
                    for (int64_t l = 0; l < B; l++) s[u][l] += d[u * B + l];
            for (; q < n; q++, d += B)
                for (int64_t l = 0; l < B; l++) s[0][l] += d[l];
            for (int64_t l = 0; l < B; l++)
                j->bias[b * B + l] += (s[0][l] + s[1][l]) + (s[2][l] + s[3][l]);
        }
}

/* Computes units lo .. hi - 1. A unit is one strip (up to three blocks of the result) by one
 * group of taps. */
static inline __attribute__((always_inline)) void units(const cpu_conv_weights_job *j, int64_t lo,
                                                        int64_t hi, const int64_t B)
{
    const geometry *g = &j->g;
    tile_fn *const *tiles = B == 8 ? tiles8 : tiles16;
    for (int64_t i0 = 0; i0 < g->n; i0 += j->samples) {
        const int64_t i1 = min_i64(g->n, i0 + j->samples);
        for (int64_t r0 = 0; r0 < g->oh; r0 += j->rows) {
            const int64_t r1 = min_i64(g->oh, r0 + j->rows);
            int64_t last_strip = -1;
            for (int64_t u = lo; u < hi; u++) {
                const int64_t strip = u / g->n_groups, group = u % g->n_groups;
                const int64_t b0 = rd_strip_start(g->K, strip, j->n_strips),
                              b1 = strip + 1 < j->n_strips
                                       ? rd_strip_start(g->K, strip + 1, j->n_strips)
                                       : g->K;
                const tap *t = &j->taps[group];
                const int64_t p0 = max_i64(r0, t->p0), p1 = min_i64(r1, t->p1);
                if (j->bias && group == 0 && strip != last_strip)
                    bias_sums(j, i0, i1, r0, r1, b0, b1 - b0, B);
                last_strip = strip;
                if (p0 >= p1 || t->q0 >= t->q1) continue;
                const cpu_conv_weights_walk w = {
                    .x = g->x + i0 * g->sample + p0 * g->stride * g->row +
                         t->q0 * g->stride * g->pixel,
                    .dy = g->dy + i0 * g->dy_sample + b0 * g->dy_block + (p0 * g->ow + t->q0) * B,
                    .samples = i1 - i0,
                    .rows = p1 - p0,
                    .cols = t->q1 - t->q0,
                    .x_sample = g->sample,
                    .x_row = g->stride * g->row,
                    .x_pixel = g->stride * g->pixel,
                    .dy_sample = g->dy_sample,
                    .dy_row = g->ow * B,
                    .dy_block = g->dy_block,
                };
                tiles[b1 - b0](&w, t->at, j->sum + u * TAPS * BLOCKS * B);
            }
        }
    }
}

static void units_range(void *ctx, int64_t lo, int64_t hi)
{
    const cpu_conv_weights_job *j = ctx;
    if (j->g.dy_block == j->g.oh * j->g.ow * 8)
        units(j, lo, hi, 8);
    else
        units(j, lo, hi, 16);
}

/* Sets [*k0, *k1) to the result pixels k with 0 <= k stride + offset < size. */
static void inside(int64_t offset, int64_t size, int64_t stride, int64_t n, int64_t *k0,
                   int64_t *k1)
{
    *k0 = offset < 0 ? (-offset + stride - 1) / stride : 0;
    *k1 = size - 1 - offset < 0 ? 0 : min_i64(n, (size - 1 - offset) / stride + 1);
}

static void taps_of_blocks(const rd_conv_shape *s, const geometry *g, tap *t)
{
    const int64_t B = s->block, K = (s->ci + B - 1) / B;
    for (int64_t k = 0; k < K; k++)
        for (int64_t r = 0; r < s->kh; r++)
            for (int64_t c = 0; c < s->kw; c++)
                for (int64_t l = 0; l < B; l += TAPS, t++) {
                    inside(r - s->top, s->h, s->stride, g->oh, &t->p0, &t->p1);
                    inside(c - s->left, s->w, s->stride, g->ow, &t->q0, &t->q1);
                    for (int64_t m = 0; m < TAPS; m++) {
                        const int64_t channel = k * B + l + m;
                        t->at[m] = k * g->block + (r - s->top) * g->row + (c - s->left) * g->pixel +
                                   l + m;
                        t->to[m] = channel < s->ci ? (r * s->kw + c) * s->ci + channel : -1;
                    }
                }
}

static void taps_of_nhwc(const rd_conv_shape *s, const geometry *g, tap *t)
{
    const int64_t n = s->kh * s->kw * s->ci;
    for (int64_t k = 0; k < n; k += TAPS, t++) {
        *t = (tap){.p1 = g->oh, .q1 = g->ow};
        for (int64_t m = 0; m < TAPS; m++) {
            const int64_t e = min_i64(k + m, n - 1), c = e % s->ci, col = e / s->ci % s->kw,
                          r = e / s->ci / s->kw;
            t->at[m] = r * g->row + col * g->pixel + c;
            t->to[m] = k + m < n ? e : -1;
        }
    }
}

/* Copies an NHWC image with its padding to out. */
static void pad_nhwc(const rd_conv_shape *s, const float *x, int64_t height, int64_t width,
                     float *out)
{
    memset(out, 0, (size_t)(s->n * height * width * s->ci) * sizeof *out);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t h = 0; h < s->h && h + s->top < height; h++) {
            const int64_t cols = min_i64(s->w, width - s->left);
            if (cols > 0)
                memcpy(out + ((i * height + h + s->top) * width + s->left) * s->ci,
                       x + (i * s->h + h) * s->w * s->ci, (size_t)(cols * s->ci) * sizeof *out);
        }
}

rd_code rd_conv_weights(rd_cpu *b, const rd_conv_shape *s, int64_t block, int64_t oh, int64_t ow,
                        const float *x, const float *dy, rd_cpu_buffer *buffer, float *dW,
                        float *dbias, rd_status *st)
{
    const int64_t B = block, n_taps = s->kh * s->kw * s->ci;
    geometry g = {.n = s->n,
                  .oh = oh,
                  .ow = ow,
                  .co = s->co,
                  .stride = s->stride,
                  .K = (s->co + B - 1) / B,
                  .dy = dy};
    g.dy_block = oh * ow * B;
    g.dy_sample = g.K * g.dy_block;
    g.n_groups = s->block ? (s->ci + B - 1) / B * s->kh * s->kw * (B / TAPS)
                          : (n_taps + TAPS - 1) / TAPS;
    const int64_t n_strips = rd_strips(g.K);
    const int64_t height = (oh - 1) * s->stride + s->kh, width = (ow - 1) * s->stride + s->kw;
    const bool copy = !s->block && (s->top || s->left || height > s->h || width > s->w);
    const size_t sums = (size_t)(n_strips * g.n_groups * TAPS * BLOCKS * B),
                 taps = (size_t)g.n_groups;
    const size_t padded = copy ? (size_t)(s->n * height * width * s->ci) : 0,
                 bias = (size_t)(g.K * B);
    RD_TRY(rd_cpu_buffer_reserve(
        buffer, (sums + padded + bias) * sizeof(float) + taps * sizeof(tap) + 256, st));
    float *const sum = buffer->p, *const image = sum + (sums + 15) / 16 * 16,
                 *const bias_sum = image + padded;
    void *const after = (unsigned char *)buffer->p +
                        ((sums + 15) / 16 * 16 + padded + bias) * sizeof(float);
    tap *const t = (tap *)(((uintptr_t)after + 63) / 64 * 64);
    g.x = x;
    if (s->block) {
        g.pixel = B;
        g.row = s->w * B;
        g.block = s->h * g.row;
        g.sample = (s->ci + B - 1) / B * g.block;
        taps_of_blocks(s, &g, t);
    } else {
        g.pixel = s->ci;
        g.row = (copy ? width : s->w) * s->ci;
        g.sample = (copy ? height : s->h) * g.row;
        if (copy) {
            pad_nhwc(s, x, height, width, image);
            g.x = image;
        }
        taps_of_nhwc(s, &g, t);
    }
    memset(sum, 0, sums * sizeof(float));
    memset(bias_sum, 0, bias * sizeof(float));
    const int64_t row_bytes = (BLOCKS * ow * B + s->stride * g.row) * (int64_t)sizeof(float);
    const int64_t rows = max_i64(1, CHUNK_BYTES / row_bytes);
    cpu_conv_weights_job j = {.g = g,
                              .taps = t,
                              .sum = sum,
                              .bias = dbias ? bias_sum : NULL,
                              .rows = min_i64(rows, oh),
                              .samples = 1,
                              .n_strips = n_strips};
    if (rows >= oh) j.samples = max_i64(1, rows / oh);
    rd_parallel(&b->base, n_strips * g.n_groups, 1, units_range, &j);
    for (int64_t strip = 0; strip < n_strips; strip++) {
        const int64_t b0 = rd_strip_start(g.K, strip, n_strips),
                      b1 = strip + 1 < n_strips ? rd_strip_start(g.K, strip + 1, n_strips) : g.K;
        const int64_t lanes = min_i64(s->co, b1 * B) - b0 * B;
        for (int64_t k = 0; k < g.n_groups; k++)
            for (int64_t m = 0; m < TAPS; m++) {
                if (t[k].to[m] < 0) continue;
                const float *restrict from = sum +
                                             ((strip * g.n_groups + k) * TAPS + m) * BLOCKS * B;
                float *restrict to = dW + t[k].to[m] * s->co + b0 * B;
                for (int64_t l = 0; l < lanes; l++) to[l] += from[l];
            }
    }
    for (int64_t o = 0; o < s->co && dbias; o++) dbias[o] += bias_sum[o];
done:
    return st->code;
}
