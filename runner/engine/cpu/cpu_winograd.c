/* cpu_winograd.c -- 3x3 convolutions with stride 1 by minimal filtering, F(2x2, 3x3).
 *
 * Lavin and Gray 2015, arXiv:1509.09308: tiles of 4x4 pixels give 2x2 results. A pair of
 * channels needs 16 multiplications instead of 36.
 *
 *   U = G g G^T
 *   V = B^T d B
 *   M = U V       a product over channels at each of the 16 places
 *   y = A^T M A
 *
 * oneDNN has this method for AVX-512 only, and uses it only on request. This file takes 0.6 to
 * 0.7 of the direct convolution's time. All numbers are float32. A sum has one term per channel.
 * A result differs from the direct one by a few units in the last place of its largest term.
 *
 * A chunk of tiles is transformed, multiplied and transformed back while it is in the L2 cache.
 * Chunks and results do not depend on the number of threads. The gradient of the data is the
 * same convolution with the kernel turned by 180 degrees and its channels exchanged. */
#include "cpu_winograd.h"
#include "strips.h"
#if defined __AVX512F__ || (defined __AVX2__ && defined __FMA__)
#include <immintrin.h>
#endif

enum {
    BLOCKS = RD_STRIP,
    CHUNK_BYTES = 384 << 10,
    MIN_TILES = 36,
    MAX_TILES = 252,
    STEP_TILES = 12,
    MIN_SUMMED_TILES = 144
};

typedef struct cpu_winograd_job {
    /* th, tw: rows and columns of tiles. tiles: number of tiles of all samples. */
    int64_t n, h, w, oh, ow, top, left, th, tw, tiles;
    /* Blocks of channels of input and result, strips of the result. */
    int64_t in_K, out_K, n_strips;
    /* Tiles of a chunk. */
    int64_t T;
    /* Floats from one of the 16 places to the next. No multiple of 4 KiB: such places would share
     * the same sets of the L1 cache. */
    int64_t in_step, out_step;
    /* Floats of a thread's memory, number of threads. */
    int64_t slot, n_slots;
    const float *x, *U, *bias;
    float *y, *buffer;
    bool relu, add;
} cpu_winograd_job;

typedef struct weights_job {
    int64_t ci, co, in_K, out_K, n_strips;
    const float *W;
    float *U;
    bool flip;
} weights_job;

typedef struct gradient_job {
    /* Sizes of images and tiles of the forward convolution. */
    cpu_winograd_job x;
    const float *dy;
    /* V, D: the tiles of a chunk. S: sums [16][strips][C][BLOCKS][B]. */
    float *V, *D, *S;
    /* NULL: not wanted. */
    float *bias;
    float *dW;
    int64_t ci, co, block;
    /* Tiles t0 .. t1 - 1 are the chunk. */
    int64_t t0, t1;
} gradient_job;

/* Keeps v in a register. Otherwise the compiler loads a vector of U again for each of the tiles. */
#define IN_REGISTER(v) __asm__("" : "+x"(v))

/* R tiles by N vectors of results: m[t] = sum over c of v[t][c] u[c]. */
#define TILE(name, vec, B, R, N, load, store, broadcast, fma, zero)                  \
    static void name(const float *v, int64_t C, const float *u, float *m, int64_t D) \
    {                                                                                \
        vec s[R][N];                                                                 \
        for (int t = 0; t < (R); t++)                                                \
            for (int b = 0; b < (N); b++) s[t][b] = zero();                          \
        for (int64_t c = 0; c < C; c++, u += BLOCKS * (B)) {                         \
            vec w[N];                                                                \
            for (int b = 0; b < (N); b++) {                                          \
                w[b] = load(u + b * (B));                                            \
                IN_REGISTER(w[b]);                                                   \
            }                                                                        \
            for (int t = 0; t < (R); t++) {                                          \
                const vec a = broadcast(v[t * C + c]);                               \
                for (int b = 0; b < (N); b++) s[t][b] = fma(a, w[b], s[t][b]);       \
            }                                                                        \
        }                                                                            \
        for (int t = 0; t < (R); t++)                                                \
            for (int b = 0; b < (N); b++) store(m + t * D + b * (B), s[t][b]);       \
    }

/* Four input channels by N vectors of results: sum[r] += sum over tiles of v[t][r] d[t]. */
#define SUM(name, vec, B, N, load, store, broadcast, fma)                                         \
    static void name(const float *v, int64_t C, const float *d, int64_t D, int64_t n, float *sum) \
    {                                                                                             \
        vec s[4][N];                                                                              \
        for (int r = 0; r < 4; r++)                                                               \
            for (int b = 0; b < (N); b++) s[r][b] = load(sum + (r * BLOCKS + b) * (B));           \
        for (int64_t t = 0; t < n; t++, v += C, d += D) {                                         \
            vec w[N];                                                                             \
            for (int b = 0; b < (N); b++) {                                                       \
                w[b] = load(d + b * (B));                                                         \
                IN_REGISTER(w[b]);                                                                \
            }                                                                                     \
            for (int r = 0; r < 4; r++) {                                                         \
                const vec a = broadcast(v[r]);                                                    \
                for (int b = 0; b < (N); b++) s[r][b] = fma(a, w[b], s[r][b]);                    \
            }                                                                                     \
        }                                                                                         \
        for (int r = 0; r < 4; r++)                                                               \
            for (int b = 0; b < (N); b++) store(sum + (r * BLOCKS + b) * (B), s[r][b]);           \
    }

#if defined __AVX2__ && defined __FMA__
TILE(tile1_8, __m256, 8, 6, 1, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps,
     _mm256_setzero_ps)
TILE(tile2_8, __m256, 8, 6, 2, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps,
     _mm256_setzero_ps)
TILE(tile3_8, __m256, 8, 4, 3, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps,
     _mm256_setzero_ps)
SUM(sum1_8, __m256, 8, 1, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps)
SUM(sum2_8, __m256, 8, 2, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps)
SUM(sum3_8, __m256, 8, 3, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps)
typedef int32_t mask_8 __attribute__((vector_size(32)));
#define LANES 8
#define NAME(x) x##_8
#include "winograd_lanes.h"
#undef LANES
#undef NAME
#define HAVE_8 true
#else
#define HAVE_8 false
static void chunks_8(const cpu_winograd_job *j, int64_t slot)
{
    (void)j;
    (void)slot;
}
static void weights_8(const weights_job *j, int64_t lo, int64_t hi)
{
    (void)j;
    (void)lo;
    (void)hi;
}
static void in_tiles_8(const cpu_winograd_job *j, int64_t t0, int64_t t1, float *V)
{
    (void)j;
    (void)t0;
    (void)t1;
    (void)V;
}
static void result_tiles_8(const gradient_job *g, int64_t t0, int64_t t1, int64_t first)
{
    (void)g;
    (void)t0;
    (void)t1;
    (void)first;
}
static void gradient_sums_8(const gradient_job *g, int64_t n, int64_t lo, int64_t hi)
{
    (void)g;
    (void)n;
    (void)lo;
    (void)hi;
}
static void fold_8(const gradient_job *g, int64_t lo, int64_t hi)
{
    (void)g;
    (void)lo;
    (void)hi;
}
#endif
#if defined __AVX512F__
TILE(tile1_16, __m512, 16, 6, 1, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps,
     _mm512_setzero_ps)
TILE(tile2_16, __m512, 16, 6, 2, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps,
     _mm512_setzero_ps)
TILE(tile3_16, __m512, 16, 4, 3, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps,
     _mm512_setzero_ps)
SUM(sum1_16, __m512, 16, 1, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps)
SUM(sum2_16, __m512, 16, 2, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps)
SUM(sum3_16, __m512, 16, 3, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps)
typedef int32_t mask_16 __attribute__((vector_size(64)));
#define LANES 16
#define NAME(x) x##_16
#include "winograd_lanes.h"
#undef LANES
#undef NAME
#define HAVE_16 true
#else
#define HAVE_16 false
static void chunks_16(const cpu_winograd_job *j, int64_t slot)
{
    (void)j;
    (void)slot;
}
static void weights_16(const weights_job *j, int64_t lo, int64_t hi)
{
    (void)j;
    (void)lo;
    (void)hi;
}
static void in_tiles_16(const cpu_winograd_job *j, int64_t t0, int64_t t1, float *V)
{
    (void)j;
    (void)t0;
    (void)t1;
    (void)V;
}
static void result_tiles_16(const gradient_job *g, int64_t t0, int64_t t1, int64_t first)
{
    (void)g;
    (void)t0;
    (void)t1;
    (void)first;
}
static void gradient_sums_16(const gradient_job *g, int64_t n, int64_t lo, int64_t hi)
{
    (void)g;
    (void)n;
    (void)lo;
    (void)hi;
}
static void fold_16(const gradient_job *g, int64_t lo, int64_t hi)
{
    (void)g;
    (void)lo;
    (void)hi;
}
#endif

bool rd_winograd_of(const rd_conv_shape *s, int64_t block, bool data, rd_winograd *out)
{
    if (s->kh != 3 || s->kw != 3 || s->stride != 1 || s->block != block || s->top > 2 ||
        s->left > 2 || !((block == 8 && HAVE_8) || (block == 16 && HAVE_16)) || s->ci < 16 ||
        s->co < 16)
        return false;
    const int64_t oh = s->h + s->top + s->bottom - 2, ow = s->w + s->left + s->right - 2;
    *out = (rd_winograd){.n = s->n,
                         .h = s->h,
                         .w = s->w,
                         .oh = oh,
                         .ow = ow,
                         .top = s->top,
                         .left = s->left,
                         .ci = s->ci,
                         .co = s->co,
                         .block = block,
                         .relu = s->relu};
    if (data)
        *out = (rd_winograd){.n = s->n,
                             .h = oh,
                             .w = ow,
                             .oh = s->h,
                             .ow = s->w,
                             .top = 2 - s->top,
                             .left = 2 - s->left,
                             .ci = s->ci,
                             .co = s->co,
                             .block = block,
                             .flip = true};
    /* Tiles at the border also compute results outside the image. A tile costs 16 multiplications,
     * a pixel of the direct convolution 9. */
    return 16 * ((out->oh + 1) / 2) * ((out->ow + 1) / 2) * 3 <= 2 * 9 * out->oh * out->ow;
}

static int64_t blocks_in(const rd_winograd *g)
{
    return ((g->flip ? g->co : g->ci) + g->block - 1) / g->block;
}
static int64_t blocks_out(const rd_winograd *g)
{
    return ((g->flip ? g->ci : g->co) + g->block - 1) / g->block;
}

size_t rd_winograd_weight_bytes(const rd_winograd *g)
{
    return 16 * (size_t)(rd_strips(blocks_out(g)) * blocks_in(g) * g->block * BLOCKS * g->block) *
           sizeof(float);
}

static void weights_range_8(void *ctx, int64_t lo, int64_t hi)
{
    weights_8(ctx, lo, hi);
}
static void weights_range_16(void *ctx, int64_t lo, int64_t hi)
{
    weights_16(ctx, lo, hi);
}

void rd_winograd_weights(rd_cpu *b, const rd_winograd *g, const float *W, float *U)
{
    weights_job j = {g->ci, g->co, blocks_in(g), blocks_out(g), rd_strips(blocks_out(g)),
                     W,     U,     g->flip};
    if (g->ci % g->block || g->co % g->block) memset(U, 0, rd_winograd_weight_bytes(g));
    rd_parallel(&b->base, g->ci, 4, g->block == 8 ? weights_range_8 : weights_range_16, &j);
}

static void slots_8(void *ctx, int64_t lo, int64_t hi)
{
    for (int64_t k = lo; k < hi; k++) chunks_8(ctx, k);
}
static void slots_16(void *ctx, int64_t lo, int64_t hi)
{
    for (int64_t k = lo; k < hi; k++) chunks_16(ctx, k);
}

/* ---- the gradient of the weights ---- */
static void tiles_range(void *ctx, int64_t lo, int64_t hi)
{
    const gradient_job *g = ctx;
    const int64_t t0 = g->t0 + lo, t1 = g->t0 + hi, C = g->x.in_K * g->block;
    if (g->block == 8) {
        in_tiles_8(&g->x, t0, t1, g->V + lo * C);
        result_tiles_8(g, t0, t1, g->t0);
    } else {
        in_tiles_16(&g->x, t0, t1, g->V + lo * C);
        result_tiles_16(g, t0, t1, g->t0);
    }
}
static void sums_range(void *ctx, int64_t lo, int64_t hi)
{
    const gradient_job *g = ctx;
    if (g->block == 8)
        gradient_sums_8(g, g->t1 - g->t0, lo, hi);
    else
        gradient_sums_16(g, g->t1 - g->t0, lo, hi);
}
static void fold_range(void *ctx, int64_t lo, int64_t hi)
{
    const gradient_job *g = ctx;
    if (g->block == 8)
        fold_8(g, lo, hi);
    else
        fold_16(g, lo, hi);
}

static cpu_winograd_job cpu_winograd_job_of(const rd_winograd *g)
{
    cpu_winograd_job j = {.n = g->n,
                          .h = g->h,
                          .w = g->w,
                          .oh = g->oh,
                          .ow = g->ow,
                          .top = g->top,
                          .left = g->left,
                          .in_K = blocks_in(g),
                          .out_K = blocks_out(g),
                          .relu = g->relu,
                          .add = g->add};
    j.th = (g->oh + 1) / 2;
    j.tw = (g->ow + 1) / 2;
    j.tiles = g->n * j.th * j.tw;
    j.n_strips = rd_strips(j.out_K);
    return j;
}

static void cpu_winograd_chunk(cpu_winograd_job *j, int64_t block, int64_t min_tiles)
{
    j->T = CHUNK_BYTES / (16 * (j->in_K + j->out_K) * block * (int64_t)sizeof(float)) / STEP_TILES *
           STEP_TILES;
    j->T = j->T < min_tiles ? min_tiles : j->T > MAX_TILES ? MAX_TILES : j->T;
    j->in_step = j->T * j->in_K * block + 16;
    j->out_step = j->T * j->out_K * block + 16;
}

rd_code rd_winograd_gradient(rd_cpu *b, const rd_winograd *w, const float *x, const float *dy,
                             rd_cpu_buffer *buffer, float *dW, float *dbias, rd_status *st)
{
    gradient_job g = {.x = cpu_winograd_job_of(w),
                      .dy = dy,
                      .dW = dW,
                      .ci = w->ci,
                      .co = w->co,
                      .block = w->block};
    cpu_winograd_job *j = &g.x;
    j->x = x;
    cpu_winograd_chunk(j, w->block, MIN_SUMMED_TILES);
    const int64_t D = j->out_K * w->block,
                  sums = 16 * j->n_strips * j->in_K * w->block * BLOCKS * w->block;
    RD_TRY(rd_cpu_buffer_reserve(
        buffer, (size_t)(sums + D + 16 * (j->in_step + j->out_step)) * sizeof(float), st));
    g.S = buffer->p;
    float *const bias = g.S + sums;
    g.V = bias + D;
    g.D = g.V + 16 * j->in_step;
    g.bias = dbias ? bias : NULL;
    memset(g.S, 0, (size_t)(sums + D) * sizeof(float));
    for (g.t0 = 0; g.t0 < j->tiles; g.t0 = g.t1) {
        g.t1 = j->tiles - g.t0 < j->T ? j->tiles : g.t0 + j->T;
        rd_parallel(&b->base, g.t1 - g.t0, 4, tiles_range, &g);
        rd_parallel(&b->base, 16 * j->n_strips, 1, sums_range, &g);
    }
    rd_parallel(&b->base, w->ci, 4, fold_range, &g);
    for (int64_t o = 0; o < w->co && dbias; o++) dbias[o] += bias[o];
done:
    return st->code;
}

rd_code rd_winograd_run(rd_cpu *b, const rd_winograd *g, const float *x, const float *U,
                        const float *bias, float *y, rd_cpu_buffer *buffer, rd_status *st)
{
    cpu_winograd_job j = cpu_winograd_job_of(g);
    j.x = x;
    j.U = U;
    j.y = y;
    cpu_winograd_chunk(&j, g->block, MIN_TILES);
    j.slot = 16 * (j.in_step + j.out_step);
    const int64_t chunks = (j.tiles + j.T - 1) / j.T;
    j.n_slots = b->base.n_threads < chunks ? b->base.n_threads : chunks;
    const int64_t D = j.out_K * g->block;
    RD_TRY(rd_cpu_buffer_reserve(buffer, (size_t)(j.n_slots * j.slot + D) * sizeof(float), st));
    j.buffer = (float *)buffer->p + D;
    /* The kernel reads whole blocks. */
    if (bias) {
        float *padded = buffer->p;
        memset(padded, 0, (size_t)D * sizeof *padded);
        memcpy(padded, bias, (size_t)g->co * sizeof *padded);
        j.bias = padded;
    }
    rd_parallel(&b->base, j.n_slots, 1, g->block == 8 ? slots_8 : slots_16, &j);
done:
    return st->code;
}
