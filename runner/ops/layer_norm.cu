/* layer_norm.cu -- layer_norm on a GPU: the formulas of layer_norm.c. A warp has a row. T is the
 * type of the result and its gradient. */
#include "../engine/gpu/element_device.h"
#include "layer_norm.h"

enum { WARPS = 8, LANES = 32 };

template <typename T> struct norm_rows {
    int64_t N, d, chunk;
    float eps;
    bool rms;
    const float *x, *gain, *bias;
    const T *dy;
    T *y;
    float *dx;
    double *mean; /* forward: NULL if not kept */
    float *r;
};

/* The rows of this warp, with all lanes. */
#define EACH_WARP_ROW(i, n)                                     \
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; \
    i < (n);                                                    \
    i += (int64_t)gridDim.x * WARPS

/* A row without its mean. */
struct centred {
    float m, m_rest;
    __device__ explicit centred(double mean) : m((float)mean), m_rest((float)(mean - (double)m)) {}
    __device__ float of(float x) const { return (x - m) - m_rest; }
};

template <typename T> static __global__ void layer_norm_fwd(norm_rows<T> n)
{
    const int lane = threadIdx.x % 32;
    for (EACH_WARP_ROW(i, n.N)) {
        const float *x = n.x + i * n.d;
        T *y = n.y + i * n.d;
        double mean = 0.0;
        if (!n.rms) {
            for (int64_t k = lane; k < n.d; k += 32) mean += (double)x[k];
            mean = rd_warp_sum(mean) / (double)n.d;
        }
        const centred c(mean);
        float sum = 0.0f;
        for (int64_t k = lane; k < n.d; k += 32) sum += c.of(x[k]) * c.of(x[k]);
        const float r = 1.0f / sqrtf(rd_warp_sum(sum) / (float)n.d + n.eps);
        for (int64_t k = lane; k < n.d; k += 32)
            rd_put(y + k, c.of(x[k]) * r * n.gain[k] + (n.bias ? n.bias[k] : 0.0f));
        if (!n.mean || lane > 0) continue;
        n.mean[i] = mean;
        n.r[i] = r;
    }
}

template <typename T> static __global__ void layer_norm_dx(norm_rows<T> n)
{
    const int lane = threadIdx.x % 32;
    for (EACH_WARP_ROW(i, n.N)) {
        const float *x = n.x + i * n.d;
        const T *dy = n.dy + i * n.d;
        float *dx = n.dx + i * n.d;
        const centred c(n.mean[i]);
        const float r = n.r[i];
        float g_sum = 0.0f, gh_sum = 0.0f;
        for (int64_t k = lane; k < n.d; k += 32) {
            const float g = rd_get(dy + k) * n.gain[k];
            g_sum += g;
            gh_sum += g * (c.of(x[k]) * r);
        }
        const float g_mean = n.rms ? 0.0f : rd_warp_sum(g_sum) / (float)n.d,
                    gh_mean = rd_warp_sum(gh_sum) / (float)n.d;
        for (int64_t k = lane; k < n.d; k += 32)
            dx[k] += r * (rd_get(dy + k) * n.gain[k] - g_mean - c.of(x[k]) * r * gh_mean);
    }
}

/* Sums of a chunk of rows: part[chunk][0][d] of dgain, part[chunk][1][d] of dbias. */
template <typename T> static __global__ void layer_norm_chunks(norm_rows<T> n, float *part)
{
    __shared__ float gain_part[WARPS][LANES], bias_part[WARPS][LANES];
    const int64_t k = (int64_t)blockIdx.x * LANES + threadIdx.x, lo = (int64_t)blockIdx.y * n.chunk,
                  hi = lo + n.chunk < n.N ? lo + n.chunk : n.N;
    float gain = 0.0f, bias = 0.0f;
    for (int64_t i = lo + threadIdx.y; k < n.d && i < hi; i += WARPS) {
        const float dy = rd_get(n.dy + i * n.d + k);
        gain += dy * (centred(n.mean[i]).of(n.x[i * n.d + k]) * n.r[i]);
        bias += dy;
    }
    gain_part[threadIdx.y][threadIdx.x] = gain;
    bias_part[threadIdx.y][threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.y > 0 || k >= n.d) return;
    for (int w = 1; w < WARPS; w++) {
        gain += gain_part[w][threadIdx.x];
        bias += bias_part[w][threadIdx.x];
    }
    part[(int64_t)blockIdx.y * 2 * n.d + k] = gain;
    part[(int64_t)blockIdx.y * 2 * n.d + n.d + k] = bias;
}

static __global__ void layer_norm_sums(int64_t chunks, int64_t d, const float *part, float *dgain,
                                       float *dbias)
{
    for (RD_EACH(k, 2 * d)) {
        float *to = k < d ? dgain : dbias, sum = 0.0f;
        if (!to) continue;
        for (int64_t c = 0; c < chunks; c++) sum += part[c * 2 * d + k];
        to[k % d] += sum;
    }
}

template <typename T> static norm_rows<T> norm_rows_of(const rd_call *c)
{
    const rd_layer_norm *a = static_cast<const rd_layer_norm *>(c->attr);
    norm_rows<T> n = {};
    n.N = c->in[0]->rows;
    n.d = c->in[0]->cols;
    n.chunk = rd_layer_norm_chunk(n.N);
    n.eps = a->eps;
    n.rms = a->rms;
    n.x = c->in[0]->v;
    n.gain = c->in[1]->v;
    n.bias = c->in[2] ? c->in[2]->v : NULL;
    return n;
}

template <typename T> static rd_code layer_norm_forward(rd_call *c, rd_status *st)
{
    norm_rows<T> n = norm_rows_of<T>(c);
    n.y = static_cast<T *>(c->out[0]->values);
    if (c->keep && !c->saved) {
        rd_layer_norm_saved *s;
        RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *s, &s, st));
        RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(n.N + 1) * sizeof *s->mean, &s->mean,
                                      st));
        RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(n.N + 1) * sizeof *s->r, &s->r, st));
        c->saved = s;
        n.mean = s->mean;
        n.r = s->r;
    }
    return RD_LAUNCH(rd_gpu_of(c->be), st, layer_norm_fwd<T>, rd_grid(n.N, WARPS), 32 * WARPS, 0,
                     n);
}

template <typename T> static rd_code layer_norm_backward(rd_call *c, rd_status *st)
{
    const rd_layer_norm_saved *s = static_cast<const rd_layer_norm_saved *>(c->saved);
    rd_gpu *gpu = rd_gpu_of(c->be);
    norm_rows<T> n = norm_rows_of<T>(c);
    const int64_t chunks = (n.N + n.chunk - 1) / n.chunk;
    for (int i = 0; i < c->n_in; i++) RD_TRY_OR_RETURN(rd_call_zero_grad(c, i, st));
    float *dgain = c->in[1]->g, *dbias = c->in[2] ? c->in[2]->g : NULL, *part;
    n.mean = s->mean;
    n.r = s->r;
    n.dy = static_cast<const T *>(c->out[0]->grads);
    n.dx = c->in[0]->g;
    if (n.dx)
        RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, layer_norm_dx<T>, rd_grid(n.N, WARPS), 32 * WARPS, 0,
                                   n));
    if ((!dgain && !dbias) || chunks == 0) return RD_OK;
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(chunks * 2 * n.d) * sizeof *part,
                                  &part, st));
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, layer_norm_chunks<T>,
                               dim3((unsigned)((n.d + LANES - 1) / LANES), (unsigned)chunks),
                               dim3(LANES, WARPS), 0, n, part));
    return RD_LAUNCH(gpu, st, layer_norm_sums, rd_grid(2 * n.d), RD_BLOCK, 0, chunks, n.d, part,
                     dgain, dbias);
}

extern "C" rd_code rd_cuda_layer_norm_forward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->out[0]->type, (layer_norm_forward<T>(c, st)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_layer_norm_backward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->out[0]->type, (layer_norm_backward<T>(c, st)));
    return RD_OK;
}
