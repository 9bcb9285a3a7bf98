/* gpu_rnn.cu -- see gpu_rnn.h: copies rows and weights from our order to cuDNN's, and back. */
#include "gpu_rnn.h"
#include "rows_grid.h"
#include "narrow_device.h"

template <int type> static __device__ inline float gpu_rnn_load(const void *p, int64_t i)
{
    if (type == RD_RNN_F32) return static_cast<const float *>(p)[i];
    const unsigned h = static_cast<const uint16_t *>(p)[i];
    return type == RD_RNN_BF16 ? rd_float_of_bf16(h) : rd_float_of_f16(h);
}

template <int type> static __device__ inline void gpu_rnn_store(void *p, int64_t i, float x)
{
    if (type == RD_RNN_F32)
        static_cast<float *>(p)[i] = x;
    else
        static_cast<uint16_t *>(p)[i] = (uint16_t)(type == RD_RNN_BF16 ? rd_bf16_of(x)
                                                                       : rd_f16_of<false>(x));
}

/* Returns the packed row for row `i` of the padded batch; -1 if its sequence has ended. */
static __device__ inline int64_t packed_row(const rd_rnn_rows &r, int64_t i)
{
    if (!r.off) return i;
    const unsigned t = (unsigned)i / (unsigned)r.n_seq, s = (unsigned)i - t * (unsigned)r.n_seq;
    const int64_t row = r.off[t] + s;
    return row < r.off[t + 1] ? row : -1;
}

template <int type>
static __global__ void rows_in(rd_rnn_rows r, const float *x, const float *a, void *to)
{
    const int64_t width = r.in + r.extra;
    for (RD_EACH_ROW(i, r.n_steps * r.n_seq)) {
        const int64_t row = packed_row(r, i);
        for (RD_EACH_COLUMN(k, width))
            gpu_rnn_store<type>(to, i * width + k,
                                row < 0    ? 0.0f
                                : k < r.in ? x[row * r.in + k]
                                           : a[row * r.extra + k - r.in]);
    }
}

template <int type>
static __global__ void rows_out(rd_rnn_rows r, const void *from, float *x, bool add_x, float *a)
{
    const int64_t width = r.in + r.extra;
    for (RD_EACH_ROW(i, r.n_steps * r.n_seq)) {
        const int64_t row = packed_row(r, i);
        if (row < 0) continue;
        for (RD_EACH_COLUMN(k, width)) {
            float *p = k < r.in ? x ? &x[row * r.in + k] : nullptr
                       : a      ? &a[row * r.extra + k - r.in]
                                : nullptr;
            if (!p) continue;
            const float v = gpu_rnn_load<type>(from, i * width + k);
            *p = k < r.in && !add_x ? v : *p + v;
        }
    }
}

/* Tiles of 32 x 32 in shared memory, so both sides are read and written along their rows. */
enum { TILE = 32, TILE_ROWS = 8 };

static __device__ inline int64_t our_row(const rd_rnn_matrix &m, int64_t k)
{
    return k < m.split ? k : k + m.gap;
}

template <int type> static __global__ void weights_in(rd_rnn_weights w, void *space)
{
    __shared__ float tile[TILE][TILE + 1];
    const rd_rnn_matrix m = w.m[blockIdx.z];
    const int64_t k0 = (int64_t)blockIdx.x * TILE, h0 = (int64_t)blockIdx.y * TILE;
    if (k0 >= m.cols) return; /* true for all threads of the block */
    for (int y = threadIdx.y; y < TILE; y += TILE_ROWS) {
        const int64_t k = k0 + y, h = h0 + threadIdx.x;
        if (k < m.cols && h < w.H)
            tile[y][threadIdx.x] = (m.from ? m.from[our_row(m, k) * w.ld + h] : 0.0f) + m.plus;
    }
    __syncthreads();
    for (int y = threadIdx.y; y < TILE; y += TILE_ROWS) {
        const int64_t h = h0 + y, k = k0 + threadIdx.x;
        if (k < m.cols && h < w.H)
            gpu_rnn_store<type>(space, m.at + h * m.cols + k, tile[threadIdx.x][y]);
    }
}

template <int type> static __global__ void weights_out(rd_rnn_weights w, const void *space)
{
    __shared__ float tile[TILE][TILE + 1];
    const rd_rnn_matrix m = w.m[blockIdx.z];
    const int64_t k0 = (int64_t)blockIdx.x * TILE, h0 = (int64_t)blockIdx.y * TILE;
    if (k0 >= m.cols || !m.to) return;
    for (int y = threadIdx.y; y < TILE; y += TILE_ROWS) {
        const int64_t h = h0 + y, k = k0 + threadIdx.x;
        if (k < m.cols && h < w.H)
            tile[y][threadIdx.x] = gpu_rnn_load<type>(space, m.at + h * m.cols + k);
    }
    __syncthreads();
    for (int y = threadIdx.y; y < TILE; y += TILE_ROWS) {
        const int64_t k = k0 + y, h = h0 + threadIdx.x;
        if (k < m.cols && h < w.H) m.to[our_row(m, k) * w.ld + h] += tile[threadIdx.x][y];
    }
}

#define BY_TYPE(kernel, grid, block, ...)                                                       \
    (type == RD_RNN_F32 ? RD_LAUNCH(g, st, kernel<RD_RNN_F32>, (grid), (block), 0, __VA_ARGS__) \
     : type == RD_RNN_BF16                                                                      \
         ? RD_LAUNCH(g, st, kernel<RD_RNN_BF16>, (grid), (block), 0, __VA_ARGS__)               \
         : RD_LAUNCH(g, st, kernel<RD_RNN_F16>, (grid), (block), 0, __VA_ARGS__))

extern "C" rd_code rd_cuda_rnn_rows_in(rd_gpu *g, rd_rnn_type type, const rd_rnn_rows *r,
                                       const float *x, const float *a, void *to, rd_status *st)
{
    const int64_t width = r->in + r->extra;
    return BY_TYPE(rows_in, rd_rows_grid(r->n_steps * r->n_seq, width), rd_rows_block(width), *r, x,
                   a, to);
}

extern "C" rd_code rd_cuda_rnn_rows_out(rd_gpu *g, rd_rnn_type type, const rd_rnn_rows *r,
                                        const void *from, float *x, bool add_x, float *a,
                                        rd_status *st)
{
    const int64_t width = r->in + r->extra;
    return BY_TYPE(rows_out, rd_rows_grid(r->n_steps * r->n_seq, width), rd_rows_block(width), *r,
                   from, x, add_x, a);
}

static dim3 gpu_rnn_tiles(const rd_rnn_weights *w)
{
    return dim3((unsigned)((w->most_cols + TILE - 1) / TILE), (unsigned)((w->H + TILE - 1) / TILE),
                RD_RNN_MATRICES);
}

extern "C" rd_code rd_cuda_rnn_weights_in(rd_gpu *g, rd_rnn_type type, const rd_rnn_weights *w,
                                          void *space, rd_status *st)
{
    return BY_TYPE(weights_in, gpu_rnn_tiles(w), dim3(TILE, TILE_ROWS), *w, space);
}

extern "C" rd_code rd_cuda_rnn_weights_out(rd_gpu *g, rd_rnn_type type, const rd_rnn_weights *w,
                                           const void *space, rd_status *st)
{
    return BY_TYPE(weights_out, gpu_rnn_tiles(w), dim3(TILE, TILE_ROWS), *w, space);
}
