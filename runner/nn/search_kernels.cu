/* search_kernels.cu -- the functions of search_kernels.h for a GPU.
 *
 * A block of threads computes one row of logits. The best tokens of its threads give a bound that
 * the n best tokens of the row reach, and few others. The tokens that reach it are listed in shared
 * memory. Then each listed token counts how many are better. If a row lists too many tokens (wide
 * beams), bisection narrows the bound. So a row is read twice, the second time from the cache. */
#include "search_kernels.h"
#include "../engine/gpu/rows_grid.h"
#include "../engine/gpu/softmax_row.h"

enum { LISTED = 2 * RD_SEARCH_WIDEST };

struct best_rows {
    int64_t V;      /* number of logits of a row */
    int64_t n;      /* number of tokens to find in a row */
    int64_t first;  /* first row of the results */
    const float *l; /* [rows, V] logits */
    int32_t *id;
    float *logp, *end_logp;
    float inv; /* 1 / temperature */
    int32_t end;
    int32_t barred[RD_MOST_BARRED]; /* tokens that are left out, as the end token is */
};

static __device__ inline bool left_out(const best_rows &r, int64_t v)
{
    bool found = v == r.end;
#pragma unroll
    for (int i = 0; i < RD_MOST_BARRED; i++) found = found || v == r.barred[i];
    return found;
}

/* A token and its log probability as one number. A better token has a greater number. Of equal log
 * probabilities the lower id has the greater number. The number is never 0. */
typedef unsigned long long merit;
static __device__ inline merit merit_of(float logp, int64_t v)
{
    const unsigned bits = __float_as_uint(logp + 0.0f); /* -0 is 0 */
    return (merit)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (0xffffffffu - (unsigned)v);
}
static __device__ inline int32_t token_of(merit m)
{
    return (int32_t)(0xffffffffu - (unsigned)m);
}
static __device__ inline float logp_of(merit m)
{
    const unsigned up = (unsigned)(m >> 32);
    return __uint_as_float(up >> 31 ? up & 0x7fffffffu : ~up);
}

static __device__ inline float log_probability(float l, float inv, float lse)
{
    /* An explicit fused multiply-add, so all callers compute the same number. */
    const float x = __fmaf_rn(l, inv, -lse);
    return isnan(x) ? -INFINITY : x;
}

/* Returns the number of tokens that reach `least`, and writes up to LISTED of them to list[]. */
template <int THREADS>
static __device__ inline int search_kernels_gather(const best_rows &r, const float *l, float lse,
                                                   merit least, merit *list, int *count)
{
    enum { PER = 8 };
    __syncthreads();
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    for (int64_t v0 = threadIdx.x; v0 < r.V; v0 += THREADS * PER) {
        float x[PER];
#pragma unroll
        for (int k = 0; k < PER; k++) x[k] = v0 + k * THREADS < r.V ? l[v0 + k * THREADS] : 0.0f;
#pragma unroll
        for (int k = 0; k < PER; k++) {
            const int64_t v = v0 + k * THREADS;
            const merit m = merit_of(log_probability(x[k], r.inv, lse), v);
            if (v >= r.V || m < least || left_out(r, v)) continue;
            const int at = atomicAdd(count, 1);
            if (at < LISTED) list[at] = m;
        }
    }
    __syncthreads();
    return *count;
}

/* Returns a bound that at least n tokens reach: the n-th best of the best tokens of groups of
 * threads. There are at least 4 n groups if the block has that many threads. 0: fewer than n
 * groups have a token. */
template <int THREADS>
static __device__ inline merit bound_of(int64_t n, merit own, merit *list, merit *bound)
{
    const int t = (int)threadIdx.x;
    int width = 32, better = 0;
    while (width > 1 && THREADS / width < 4 * n) width /= 2;
    for (int d = 1; d < width; d *= 2) {
        const merit other = __shfl_xor_sync(0xffffffffu, own, d);
        own = other > own ? other : own;
    }
    if (t == 0) *bound = 0;
    if (t % width == 0) list[t / width] = own;
    __syncthreads();
    if (t < THREADS / width) {
        const merit mine = list[t];
        for (int k = 0; k < THREADS / width; k++) better += list[k] > mine;
        if (mine > 0 && better == n - 1) *bound = mine;
    }
    __syncthreads();
    return *bound;
}

template <int THREADS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS) search_best(best_rows r)
{
    __shared__ merit list[LISTED], bound;
    __shared__ int count;
    const int64_t row = r.first + blockIdx.x;
    const float *l = r.l + blockIdx.x * r.V;
    const rd_softmax_row of = rd_softmax_of_row<THREADS>(l, r.V, r.inv);
    const float lse = __fmaf_rn(of.top, r.inv, logf(of.sum));
    if (threadIdx.x == 0) r.end_logp[row] = log_probability(l[r.end], r.inv, lse);
    const bool has_token = of.own_best < r.V && !left_out(r, of.own_best);
    const merit own = has_token ? merit_of(log_probability(of.own, r.inv, lse), of.own_best) : 0;
    merit low = bound_of<THREADS>(r.n, own, list, &bound), high = ~(merit)0, at = low;
    int n;
    /* Too many tokens reach low, too few reach high. All numbers differ, so a bound between them
     * lists a number of tokens that fits. */
    while (n = search_kernels_gather<THREADS>(r, l, lse, at, list, &count), n > LISTED || n < r.n) {
        if (n > LISTED)
            low = at;
        else
            high = at;
        at = low + (high - low) / 2;
    }
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const merit mine = list[i];
        int better = 0;
        for (int k = 0; k < n; k++) better += list[k] > mine;
        if (better >= r.n) continue;
        r.id[row * r.n + better] = token_of(mine);
        r.logp[row * r.n + better] = logp_of(mine);
    }
}

static rd_code launch_best(rd_backend *be, const rd_search_best *out, int64_t first, int64_t n,
                           int64_t V, float temperature, float *logits, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    if (out->draw)
        return rd_fail(st, RD_EUSAGE,
                       "decoder_type sampling works on CPUs; set \"device\": \"cpu\"");
    best_rows r = {};
    r.V = V;
    r.n = out->n;
    r.first = first;
    r.l = logits;
    r.id = out->id;
    r.logp = out->logp;
    r.end_logp = out->end_logp;
    r.inv = 1.0f / temperature;
    r.end = out->end;
    for (int i = 0; i < RD_MOST_BARRED; i++)
        r.barred[i] = i < out->n_barred ? out->barred[i] : out->end;
    const unsigned blocks = (unsigned)n;
    if (out->n > 100) return RD_LAUNCH(g, st, search_best<1024>, blocks, 1024, 0, r);
    if (V > 4096) return RD_LAUNCH(g, st, search_best<512>, blocks, 512, 0, r);
    return RD_LAUNCH(g, st, search_best<128>, blocks, 128, 0, r);
}

/* Copies the rows of array blockIdx.z. T: float4 if all arrays allow it, else float. */
template <typename T>
static __global__ void search_kernels_follow(rd_states s, int64_t n,
                                             const int32_t *__restrict__ parent)
{
    const T *from = reinterpret_cast<const T *>(s.from[blockIdx.z]);
    T *to = reinterpret_cast<T *>(s.to[blockIdx.z]);
    const int64_t width = s.width[blockIdx.z] / (int64_t)(sizeof(T) / sizeof(float));
    for (RD_EACH_ROW(i, n)) {
        const T *x = from + parent[i] * width;
        for (RD_EACH_COLUMN(j, width)) to[i * width + j] = x[j];
    }
}

static rd_code launch_follow(rd_backend *be, const rd_states *states, int64_t n,
                             const int32_t *parent, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    const rd_states s = *states;
    int64_t widest = 0;
    bool four = true;
    for (int k = 0; k < s.n_arrays; k++) {
        widest = s.width[k] > widest ? s.width[k] : widest;
        four = four && s.width[k] % 4 == 0 && rd_by_four(s.from[k]) && rd_by_four(s.to[k]);
    }
    const int64_t columns = four ? widest / 4 : widest;
    dim3 grid = rd_rows_grid(n, columns);
    grid.z = (unsigned)s.n_arrays;
    return four ? RD_LAUNCH(g, st, search_kernels_follow<float4>, grid, rd_rows_block(columns), 0,
                            s, n, parent)
                : RD_LAUNCH(g, st, search_kernels_follow<float>, grid, rd_rows_block(columns), 0, s,
                            n, parent);
}

const rd_search_kernels rd_cuda_search = {(size_t)256 << 20, RD_SEARCH_WIDEST, launch_follow,
                                          launch_best};
