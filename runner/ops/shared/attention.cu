/* attention.cu -- the attention of attention.h on a GPU.
 *
 * In a step, a block computes one row. Its warps share the positions of the sums over the width
 * (the scores). Its threads share the columns of the sums over the positions. So keys and memory
 * are read once, in whole cache lines. After the loop, a block computes a tile of columns and
 * positions of one sequence; its sums over time stay in registers. */
#include "attention_kernels.h"
#include "operand.h"
#include "../../engine/gpu/rounded_device.h"

enum { MAX_THREADS = 512 }; /* of a block that computes a row */
enum {
    TILE = 64,          /* positions of a tile */
    WARPS = 8,          /* warps of a tile */
    EACH = TILE / WARPS /* most positions of a warp */
};
enum { STEPS = 32 }; /* steps whose weights are in shared memory at a time */

/* ---- V neighbouring floats in one access ---- */
template <int V> struct pack {
    float x[V];
};
template <int V> static __device__ inline pack<V> attention_load(const float *p)
{
    pack<V> r;
    if constexpr (V == 4) {
        const float4 f = *reinterpret_cast<const float4 *>(p);
        r.x[0] = f.x, r.x[1] = f.y, r.x[2] = f.z, r.x[3] = f.w;
    } else {
        r.x[0] = *p;
    }
    return r;
}
template <int V> static __device__ inline void attention_store(float *p, const pack<V> &r)
{
    if constexpr (V == 4)
        *reinterpret_cast<float4 *>(p) = make_float4(r.x[0], r.x[1], r.x[2], r.x[3]);
    else
        *p = r.x[0];
}

/* ---- a step ---- */
typedef struct rows {
    int64_t A, M;
    const float *memory, *keys, *ve, *gain; /* gain NULL: 1 */
    const int64_t *first, *len, *place;
    int64_t max_len;
} rows;

static rows attention_rows_of(const rd_attention *at)
{
    rows r = {at->A,      at->M,   at->memory,
              at->keys,   at->ve,  at->kind == RD_ATT_LUONG_SCALED ? at->g->v : NULL,
              at->first,  at->len, at->place,
              at->max_len};
    return r;
}

static bool attention_by_four(const rd_attention *at)
{
    return at->A % 4 == 0 && at->M % 4 == 0;
}

/* Returns a number of threads at which each has some loads, at most MAX_THREADS. */
static unsigned threads_of(const rd_attention *at)
{
    const int64_t loads = at->max_len * (at->A > at->M ? at->A : at->M) /
                          (attention_by_four(at) ? 4 : 1);
    unsigned n = 32;
    while (n < MAX_THREADS && n * 4 < loads) n *= 2;
    return n;
}

static __device__ inline float *weights_of(const rows &r, int64_t i, int64_t t, float *al)
{
    return al + (r.place ? r.place[i] + t * r.len[i] : i * r.max_len);
}

/* Computes out[s] = sum over columns c of term(position s, c), s < S. A warp computes two positions
 * at a time, so that enough loads are under way. */
template <int V, typename Term>
static __device__ inline void over_width(int64_t width, int64_t S, const float *m, float *out,
                                         Term term)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    for (int64_t s = 2 * warp; s < S; s += 2 * n_warps) {
        const float *m0 = m + s * width, *m1 = s + 1 < S ? m0 + width : m0;
        float s0 = 0.0f, s1 = 0.0f;
#pragma unroll 4
        for (int64_t c = lane * V; c < width; c += 32 * V) {
            const pack<V> x0 = attention_load<V>(m0 + c), x1 = attention_load<V>(m1 + c);
            term(x0, x1, c, s0, s1);
        }
        s0 = rd_warp_sum(s0);
        s1 = rd_warp_sum(s1);
        if (lane == 0) {
            out[s] = s0;
            if (s + 1 < S) out[s + 1] = s1;
        }
    }
}

/* Calls done(sum over positions s of term(s, c), c) for all columns c. If there are more threads
 * than columns, groups of threads share the positions, and their sums are added in order. part:
 * [MAX_THREADS * V] in shared memory. */
template <int V, typename Term, typename Done>
static __device__ inline void over_positions(int64_t width, int64_t S, float *part, Term term,
                                             Done done)
{
    const int64_t packs = width / V;
    const int cols = packs < blockDim.x ? (int)packs : (int)blockDim.x, groups = blockDim.x / cols;
    const int col = threadIdx.x % cols, group = threadIdx.x / cols;
    for (int64_t c0 = 0; c0 < packs; c0 += cols) {
        const int64_t c = (c0 + col) * V;
        const bool mine = group < groups && c < width;
        pack<V> sum = {};
        if (mine) {
#pragma unroll 4
            for (int64_t s = group; s < S; s += groups) term(sum, s, c);
        }
        /* With several groups there is only one pass. */
        if (groups > 1) {
            attention_store<V>(part + threadIdx.x * V, sum);
            __syncthreads();
            for (int k = 1; mine && group == 0 && k < groups; k++) {
                const pack<V> more = attention_load<V>(part + (k * cols + col) * V);
                for (int v = 0; v < V; v++) sum.x[v] += more.x[v];
            }
        }
        if (mine && group == 0) done(sum, c);
    }
}

static __device__ inline float attention_fed(const rd_attention_feed &f, int64_t i, int64_t c,
                                             float x)
{
    return !f.mask ? x : f.mask[i * f.ld_mask + c] ? x * (1.0f / f.keep) : 0.0f;
}

/* With one block a multiprocessor the limit is 128 registers a thread. This kernel and attend_back
 * need up to 108. Without the number ptxas aims at 64 or at 40, and spills on sm_100. */
template <int V, typename T>
static __global__ void __launch_bounds__(MAX_THREADS, 1)
    attend(rows r, int64_t t, const float *q, float *qp, const float *b, float *al, float *ctx,
           rd_attention_feed feed, rd_rounded_copy copy)
{
    __shared__ __align__(16) float part[MAX_THREADS * V];
    const int64_t i = blockIdx.x, S = r.len[i], A = r.A, M = r.M;
    const float *keys = r.keys + r.first[i] * A, *memory = r.memory + r.first[i] * M;
    float *w = weights_of(r, i, t, al);
    if (r.ve) {
        float *x = qp + i * A;
        if (b) {
            for (int64_t c = threadIdx.x; c < A; c += blockDim.x) x[c] += b[c];
            __syncthreads();
        }
        over_width<V>(A, S, keys, w,
                      [=](const pack<V> &k0, const pack<V> &k1, int64_t c, float &s0, float &s1) {
                          const pack<V> y = attention_load<V>(x + c),
                                        v = attention_load<V>(r.ve + c);
                          for (int j = 0; j < V; j++) {
                              s0 += v.x[j] * tanhf(k0.x[j] + y.x[j]);
                              s1 += v.x[j] * tanhf(k1.x[j] + y.x[j]);
                          }
                      });
    } else {
        const float *x = q + i * A;
        over_width<V>(A, S, keys, w,
                      [=](const pack<V> &k0, const pack<V> &k1, int64_t c, float &s0, float &s1) {
                          const pack<V> y = attention_load<V>(x + c);
                          for (int j = 0; j < V; j++) {
                              s0 += y.x[j] * k0.x[j];
                              s1 += y.x[j] * k1.x[j];
                          }
                      });
    }
    __syncthreads();
    const float gain = r.gain ? *r.gain : 1.0f;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t s = threadIdx.x; s < S; s += blockDim.x) {
        w[s] *= gain;
        top = w[s] > top ? w[s] : top;
    }
    top = rd_block_max(top);
    for (int64_t s = threadIdx.x; s < S; s += blockDim.x) sum += w[s] = expf(w[s] - top);
    sum = rd_block_sum(sum);
    for (int64_t s = threadIdx.x; s < S; s += blockDim.x) w[s] /= sum;
    __syncthreads();
    over_positions<V>(
        M, S, part,
        [=](pack<V> &to, int64_t s, int64_t c) {
            const pack<V> m = attention_load<V>(memory + s * M + c);
            for (int j = 0; j < V; j++) to.x[j] += w[s] * m.x[j];
        },
        [=](const pack<V> &y, int64_t c) {
            attention_store<V>(ctx + i * M + c, y);
            for (int j = 0; i < feed.n && j < V; j++) {
                const float x = attention_fed(feed, i, c + j, y.x[j]);
                rd_put(static_cast<T *>(feed.rows) + i * feed.ld + c + j, x);
                rd_rounded_put(copy, i * feed.ld + c + j, x);
            }
        });
}

rd_code rd_cuda_attention_step(const rd_attention *at, int64_t n, int64_t t, const float *q,
                               float *qp, float *al, float *ctx, const rd_attention_feed *feed,
                               rd_status *st)
{
    rd_gpu *g = rd_gpu_of(at->be);
    const rows r = attention_rows_of(at);
    const float *b = at->b ? at->b->v : NULL;
    rd_rounded_copy copy = {};
    if (feed->type == RD_FLOAT32) copy = rd_rounded_copy_of(g, static_cast<float *>(feed->rows));
    if (attention_by_four(at))
        RD_BY_ELEMENT(feed->type, RD_LAUNCH(g, st, (attend<4, T>), (unsigned)n, threads_of(at), 0,
                                            r, t, q, qp, b, al, ctx, *feed, copy));
    else
        RD_BY_ELEMENT(feed->type, RD_LAUNCH(g, st, (attend<1, T>), (unsigned)n, threads_of(at), 0,
                                            r, t, q, qp, b, al, ctx, *feed, copy));
    return st->code;
}

static rd_code launch_step(const rd_attention *at, int64_t n, int64_t t, const float *q, float *qp,
                           float *al, float *ctx, float *feed, int64_t ld_feed, int64_t n_feed,
                           rd_status *st)
{
    rd_attention_feed f = {};
    f.rows = feed;
    f.ld = ld_feed;
    f.n = n_feed;
    return rd_cuda_attention_step(at, n, t, q, qp, al, ctx, &f, st);
}

typedef struct step_back {
    const float *x; /* queries: qp, or q (luong) */
    const float *al, *dctx;
    rd_attention_feed carry;
    const int64_t *slot0;
    float *ds, *dctx_all, *x_all;
    rd_gpu_operand dqp;
    rd_rounded_copy copy; /* of dqp */
    float *dq;            /* luong */
    float *dg;            /* NULL: not wanted */
} step_back;

/* T: type of dqp. */
template <int V, typename T>
static __global__ void __launch_bounds__(MAX_THREADS, 1) attend_back(rows r, int64_t t, step_back b)
{
    __shared__ __align__(16) float part[MAX_THREADS * V];
    const int64_t i = blockIdx.x, S = r.len[i], A = r.A, M = r.M, slot = b.slot0[i] + t;
    const float *keys = r.keys + r.first[i] * A, *memory = r.memory + r.first[i] * M,
                *x = b.x + i * A;
    const float *w = weights_of(r, i, t, const_cast<float *>(b.al));
    const float *carry = static_cast<const float *>(b.carry.rows);
    float *ds = weights_of(r, i, t, b.ds), *dctx = b.dctx_all + slot * M;
    for (int64_t c = threadIdx.x; c < M; c += blockDim.x)
        dctx[c] = b.dctx[i * M + c] +
                  (i < b.carry.n ? attention_fed(b.carry, i, c, carry[i * b.carry.ld + c]) : 0.0f);
    for (int64_t c = threadIdx.x; c < A; c += blockDim.x) b.x_all[slot * A + c] = x[c];
    __syncthreads();
    over_width<V>(M, S, memory, ds,
                  [=](const pack<V> &m0, const pack<V> &m1, int64_t c, float &s0, float &s1) {
                      const pack<V> d = attention_load<V>(dctx + c);
                      for (int j = 0; j < V; j++) {
                          s0 += d.x[j] * m0.x[j];
                          s1 += d.x[j] * m1.x[j];
                      }
                  });
    __syncthreads();
    float mean = 0.0f;
    for (int64_t s = threadIdx.x; s < S; s += blockDim.x) mean += w[s] * ds[s];
    mean = rd_block_sum(mean);
    for (int64_t s = threadIdx.x; s < S; s += blockDim.x) ds[s] = w[s] * (ds[s] - mean);
    __syncthreads();
    if (r.ve) {
        over_positions<V>(
            A, S, part,
            [=](pack<V> &to, int64_t s, int64_t c) {
                const pack<V> k = attention_load<V>(keys + s * A + c), y = attention_load<V>(x + c);
                for (int j = 0; j < V; j++) {
                    const float u = tanhf(k.x[j] + y.x[j]);
                    to.x[j] += ds[s] * (1.0f - u * u);
                }
            },
            [=](const pack<V> &sum, int64_t c) {
                const pack<V> v = attention_load<V>(r.ve + c);
                rd_lanes<V> d;
                for (int j = 0; j < V; j++) d.at[j] = sum.x[j] * v.x[j];
                rd_lanes_put<V>(static_cast<T *>(b.dqp.at) + i * b.dqp.ld + c, d);
                rd_rounded_put<V>(b.copy, i * b.dqp.ld + c, d);
            });
        return;
    }
    const float gain = r.gain ? *r.gain : 1.0f;
    float dg = 0.0f; /* sum over positions of ds_s q . K_s */
    over_positions<V>(
        A, S, part,
        [=](pack<V> &to, int64_t s, int64_t c) {
            const pack<V> k = attention_load<V>(keys + s * A + c);
            for (int j = 0; j < V; j++) to.x[j] += ds[s] * k.x[j];
        },
        [=, &dg](const pack<V> &sum, int64_t c) {
            const pack<V> y = attention_load<V>(x + c);
            pack<V> d = attention_load<V>(b.dq + i * A + c);
            for (int j = 0; j < V; j++) {
                d.x[j] += gain * sum.x[j];
                dg += y.x[j] * sum.x[j];
            }
            attention_store<V>(b.dq + i * A + c, d);
        });
    if (!b.dg) return;
    dg = rd_block_sum(dg);
    if (threadIdx.x == 0) b.dg[i] += dg;
}

rd_code rd_cuda_attention_step_back(const rd_attention *at, const rd_attention_back *b, int64_t n,
                                    int64_t t, const float *q, const float *qp, const float *al,
                                    const float *dctx, const rd_attention_feed *carry,
                                    const rd_gpu_operand *dqp, float *dq, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(at->be);
    const rows r = attention_rows_of(at);
    rd_rounded_copy copy = {};
    if (dqp->type == RD_FLOAT32) copy = rd_rounded_copy_of(g, static_cast<float *>(dqp->at));
    const step_back s = {at->ve ? qp : q,
                         al,
                         dctx,
                         *carry,
                         b->slot0,
                         b->ds,
                         b->dctx,
                         b->q,
                         *dqp,
                         copy,
                         dq,
                         at->kind == RD_ATT_LUONG_SCALED ? b->dg_rows : NULL};
    if (attention_by_four(at))
        RD_BY_ELEMENT(dqp->type, RD_LAUNCH(g, st, (attend_back<4, T>), (unsigned)n, threads_of(at),
                                           0, r, t, s));
    else
        RD_BY_ELEMENT(dqp->type, RD_LAUNCH(g, st, (attend_back<1, T>), (unsigned)n, threads_of(at),
                                           0, r, t, s));
    return st->code;
}

static rd_code launch_step_back(const rd_attention *at, const rd_attention_back *b, int64_t n,
                                int64_t t, const float *q, const float *qp, const float *al,
                                const float *dctx, const float *carry, int64_t ld_carry,
                                int64_t n_carry, float *dqp, float *dq, rd_status *st)
{
    const rd_gpu_operand to = rd_operand_at(dqp, RD_FLOAT32, 0, at->A);
    rd_attention_feed f = {};
    f.rows = const_cast<float *>(carry);
    f.ld = ld_carry;
    f.n = n_carry;
    return rd_cuda_attention_step_back(at, b, n, t, q, qp, al, dctx, &f, &to, dq, st);
}

/* ---- after the loop ---- */
/* The positions of a tile. The warps divide them into runs. */
typedef struct tile {
    int64_t S, base; /* positions of the sequence, first position of the tile */
    int64_t steps;   /* steps of the sequence */
    int here;        /* positions of the tile */
    int each;        /* positions of a run */
    int mine;        /* positions of this warp */
} tile;

static __device__ inline tile tile_of(const rows &r, int64_t i, const int64_t *slot0)
{
    tile k;
    const int warp = threadIdx.x / 32;
    k.S = r.len[i];
    k.base = (int64_t)blockIdx.z * TILE;
    k.steps = slot0[i + 1] - slot0[i];
    k.here = k.S - k.base < TILE ? (int)(k.S - k.base) : TILE;
    k.each = (k.here + WARPS - 1) / WARPS;
    k.mine = k.here - warp * k.each;
    k.mine = k.mine < 0 ? 0 : k.mine < k.each ? k.mine : k.each;
    return k;
}

/* Loads the weights of steps t0 .. t0 + STEPS - 1 into to[step][EACH warp + e]; zeros if there is
 * no such step or position. */
static __device__ inline void attention_fill(const tile &k, const float *w, int64_t t0,
                                             float (*to)[TILE])
{
    __syncthreads();
    for (int n = threadIdx.x; n < STEPS * TILE; n += blockDim.x) {
        const int step = n / TILE, e = n % EACH, j = n % TILE / EACH * k.each + e;
        to[step][n % TILE] = t0 + step < k.steps && e < k.each && j < k.here
                                 ? w[(t0 + step) * k.S + k.base + j]
                                 : 0.0f;
    }
    __syncthreads();
}

/* Computes out_j += gain sum_t w_tj x_t. */
template <int V>
static __global__ void __launch_bounds__(32 * WARPS, 4)
    over_time(rows r, const int64_t *slot0, const float *al, const float *x, int64_t width,
              const float *gain_at, float *out)
{
    __shared__ __align__(16) float w[STEPS][TILE];
    const int64_t i = blockIdx.x, c = ((int64_t)blockIdx.y * 32 + threadIdx.x % 32) * V;
    if ((int64_t)blockIdx.z * TILE >= r.len[i]) return;
    const tile k = tile_of(r, i, slot0);
    const int warp = threadIdx.x / 32;
    const float gain = gain_at ? *gain_at : 1.0f;
    float sum[EACH][V] = {};
    for (int64_t t0 = 0; t0 < k.steps; t0 += STEPS) {
        attention_fill(k, al + r.place[i], t0, w);
        const int n = k.steps - t0 < STEPS ? (int)(k.steps - t0) : STEPS;
        for (int t = 0; c < width && t < n; t++) {
            const pack<V> y = attention_load<V>(x + (slot0[i] + t0 + t) * width + c);
#pragma unroll
            for (int e = 0; e < EACH; e += 4) {
                const pack<4> a = attention_load<4>(&w[t][EACH * warp + e]);
                for (int f = 0; f < 4; f++)
                    for (int v = 0; v < V; v++) sum[e + f][v] += a.x[f] * y.x[v];
            }
        }
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (e >= k.mine || c >= width) continue;
        float *to = out + (r.first[i] + k.base + warp * k.each + e) * width + c;
        pack<V> y = attention_load<V>(to);
        for (int v = 0; v < V; v++) y.x[v] += gain * sum[e][v];
        attention_store<V>(to, y);
    }
}

static int64_t tiles_of(const rd_attention *at)
{
    return (at->max_len + TILE - 1) / TILE;
}

/* Returns the grid: sequences, tiles of columns, tiles of positions. The last tiles of a shorter
 * sequence are empty. */
static dim3 tiles_grid(const rd_attention *at, int64_t n_seq, int64_t width, int v)
{
    return dim3((unsigned)n_seq, (unsigned)((width + 32 * v - 1) / (32 * v)),
                (unsigned)tiles_of(at));
}

static rd_code sums_over_time(rd_gpu *g, const rd_attention *at, int64_t n_seq,
                              const int64_t *slot0, const float *w, const float *x, int64_t width,
                              const float *gain, float *out, rd_status *st)
{
    const rows r = attention_rows_of(at);
    return width % 4 == 0 ? RD_LAUNCH(g, st, over_time<4>, tiles_grid(at, n_seq, width, 4),
                                      32 * WARPS, 0, r, slot0, w, x, width, gain, out)
                          : RD_LAUNCH(g, st, over_time<1>, tiles_grid(at, n_seq, width, 1),
                                      32 * WARPS, 0, r, slot0, w, x, width, gain, out);
}

static rd_code launch_memory_back(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                                  const float *al, float *dmemory, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(at->be);
    const float *gain = attention_rows_of(at).gain;
    if (dmemory)
        RD_TRY_OR_RETURN(sums_over_time(g, at, n_seq, b->slot0, al, b->dctx, at->M, NULL, dmemory,
                                        st));
    if (!at->ve && b->dkeys)
        RD_TRY_OR_RETURN(sums_over_time(g, at, n_seq, b->slot0, b->ds, b->q, at->A, gain, b->dkeys,
                                        st));
    return RD_OK;
}

/* Computes, with u = tanh(K_j + qp_t):
 *   dkeys_j += ve sum_t ds_tj (1 - u^2),  dv = sum_tj ds_tj u
 * A lane computes one column, because tanh takes most of the time. */
static __global__ void __launch_bounds__(32 * WARPS)
    keys_back(rows r, const int64_t *slot0, const float *ds, const float *qp, float *dkeys,
              float *dv)
{
    __shared__ __align__(16) float w[STEPS][TILE];
    __shared__ float part[WARPS][32];
    const int64_t i = blockIdx.x, c = (int64_t)blockIdx.y * 32 + threadIdx.x % 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *share = dv + (i * gridDim.z + blockIdx.z) * r.A + c;
    if ((int64_t)blockIdx.z * TILE >= r.len[i]) {
        if (warp == 0 && c < r.A) *share = 0.0f;
        return;
    }
    const tile k = tile_of(r, i, slot0);
    const int64_t at = (r.first[i] + k.base + warp * k.each) * r.A + c;
    float key[EACH], sum[EACH] = {}, along = 0.0f;
#pragma unroll
    for (int e = 0; e < EACH; e++) key[e] = e < k.mine && c < r.A ? r.keys[at + e * r.A] : 0.0f;
    for (int64_t t0 = 0; t0 < k.steps; t0 += STEPS) {
        attention_fill(k, ds + r.place[i], t0, w);
        const int n = k.steps - t0 < STEPS ? (int)(k.steps - t0) : STEPS;
        for (int t = 0; c < r.A && t < n; t++) {
            const float y = qp[(slot0[i] + t0 + t) * r.A + c];
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                if (e >= k.mine) continue;
                const float u = tanhf(key[e] + y), d = w[t][EACH * warp + e];
                sum[e] += d * (1.0f - u * u);
                along += d * u;
            }
        }
    }
    part[warp][lane] = along;
    __syncthreads();
    if (c >= r.A) return;
    if (warp == 0) {
        for (int n = 1; n < WARPS; n++) along += part[n][lane];
        *share = along;
    }
    const float v = r.ve[c];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (dkeys && e < k.mine) dkeys[at + e * r.A] += v * sum[e];
}

static rd_code launch_keys_back(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                                float *dv, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(at->be);
    const rows r = attention_rows_of(at);
    return RD_LAUNCH(g, st, keys_back, tiles_grid(at, n_seq, at->A, 1), 32 * WARPS, 0, r, b->slot0,
                     b->ds, b->q, b->dkeys, dv);
}

/* ---- the norm of v, in one block ---- */
static __device__ inline double square_sum(int64_t n, const float *x)
{
    double s = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += (double)x[i] * (double)x[i];
    return rd_block_sum(s);
}

static __global__ void attention_normalise(int64_t A, const float *v, const float *g, float *ve)
{
    const float scale = (float)((double)*g / sqrt(square_sum(A, v)));
    for (int64_t c = threadIdx.x; c < A; c += blockDim.x) ve[c] = v[c] * scale;
}

static rd_code launch_norm(const rd_attention *at, float *ve, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(at->be);
    return RD_LAUNCH(g, st, attention_normalise, 1, RD_BLOCK, 0, at->A, at->v->v, at->g->v, ve);
}

static __global__ void normalise_back(int64_t A, const float *dve, const float *v, const float *g,
                                      float *dv, float *dg)
{
    const double len = sqrt(square_sum(A, v)), f = (double)*g / len;
    double along = 0.0;
    for (int64_t c = threadIdx.x; c < A; c += blockDim.x)
        along += (double)dve[c] * (double)v[c] / len;
    along = rd_block_sum(along);
    for (int64_t c = threadIdx.x; c < A; c += blockDim.x)
        dv[c] += (float)(f * ((double)dve[c] - along * (double)v[c] / len));
    if (threadIdx.x == 0) *dg += (float)along;
}

static rd_code launch_norm_back(const rd_attention *at, const float *dve, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(at->be);
    return RD_LAUNCH(g, st, normalise_back, 1, RD_BLOCK, 0, at->A, dve, at->v->v, at->g->v,
                     at->v->g, at->g->g);
}

static float launch_gain(const rd_attention *)
{
    return 1.0f; /* kernels read g */
}

static rd_code launch_gather(const rd_attention *at, int64_t, int64_t n_slots, rd_attention_back *b,
                             rd_status *st)
{
    return rd_rows_get(at->scratch, n_slots, at->A, &b->q, st);
}

static rd_code launch_sums(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                           const float *al, float *dmemory, const float **dv, int64_t *n_dv,
                           rd_status *st)
{
    float *shares;
    *dv = NULL;
    *n_dv = 0;
    RD_TRY_OR_RETURN(launch_memory_back(at, b, n_seq, al, dmemory, st));
    if (!at->ve) return RD_OK;
    *n_dv = n_seq * tiles_of(at);
    RD_TRY_OR_RETURN(rd_rows_get(at->scratch, *n_dv, at->A, &shares, st));
    *dv = shares;
    return launch_keys_back(at, b, n_seq, shares, st);
}

const rd_attention_kernels rd_cuda_attention = {launch_gain, launch_norm,      launch_norm_back,
                                                launch_step, launch_step_back, launch_gather,
                                                launch_sums};
