/* cuda_convert.cu -- see cuda_convert.h.
 *
 * All these kernels mostly move memory. A thread moves 16 bytes with each access if the strides
 * allow it. */
#include "cuda_convert.h"
#include "element_device.h"
#include <stdio.h>

/* Computes i / by and i % by. The 64-bit division is several times slower, so it is used only for
 * large numbers. */
static __device__ inline void split(int64_t i, int64_t by, int64_t *quotient, int64_t *rest)
{
    if (((uint64_t)i | (uint64_t)by) >> 32) {
        *quotient = i / by;
        *rest = i % by;
    } else {
        *quotient = (uint32_t)i / (uint32_t)by;
        *rest = (uint32_t)i % (uint32_t)by;
    }
}

/* ---- 16 bits ---- */

template <int to> static __device__ inline unsigned narrow(float x)
{
    return to == RD_NARROW_BF16 ? rd_bf16_of(x) : rd_f16_of<to == RD_NARROW_WIRE16>(x);
}
template <int from> static __device__ inline float cuda_convert_widen(unsigned h)
{
    return from == RD_NARROW_BF16 ? rd_float_of_bf16(h) : rd_float_of_f16(h);
}

/* Converts eight elements of a row in each turn. first: number of turns of job a. */
template <int to>
static __global__ void narrow_rows(rd_narrow_job a, rd_narrow_job b, int64_t first, int64_t n)
{
    for (RD_EACH(i, n)) {
        const rd_narrow_job j = i < first ? a : b;
        int64_t row = 0, chunk = i < first ? i : i - first, batch = 0;
        if (j.rows * j.batch > 1) split(chunk, (j.cols + 7) / 8, &row, &chunk);
        if (j.batch > 1) split(row, j.rows, &batch, &row);
        const float *x = j.x + batch * j.stride_x + row * j.ld_x + chunk * 8;
        const int64_t left = j.cols - chunk * 8;
        float v[8];
        if (left >= 8 && (uintptr_t)x % 16 == 0) {
            const float4 p = reinterpret_cast<const float4 *>(x)[0],
                         q = reinterpret_cast<const float4 *>(x)[1];
            v[0] = p.x, v[1] = p.y, v[2] = p.z, v[3] = p.w;
            v[4] = q.x, v[5] = q.y, v[6] = q.z, v[7] = q.w;
        } else {
#pragma unroll
            for (int k = 0; k < 8; k++) v[k] = k < left ? x[k] : 0.0f;
        }
        uint4 out;
        out.x = narrow<to>(v[0]) | narrow<to>(v[1]) << 16;
        out.y = narrow<to>(v[2]) | narrow<to>(v[3]) << 16;
        out.z = narrow<to>(v[4]) | narrow<to>(v[5]) << 16;
        out.w = narrow<to>(v[6]) | narrow<to>(v[7]) << 16;
        *reinterpret_cast<uint4 *>(j.y + batch * j.stride_y + row * j.ld_y + chunk * 8) = out;
    }
}

extern "C" rd_code rd_convert_narrow(rd_gpu *g, rd_narrow to, const rd_narrow_job *job, int n_jobs,
                                     rd_status *st)
{
    rd_narrow_job j[2] = {};
    int64_t turns[2] = {0, 0};
    for (int i = 0; i < n_jobs; i++) {
        j[i] = job[i];
        const bool dense = j[i].ld_x == j[i].cols && j[i].ld_y == j[i].cols &&
                           (j[i].batch == 1 || (j[i].stride_x == j[i].rows * j[i].cols &&
                                                j[i].stride_y == j[i].stride_x));
        if (dense) { /* the job is one long row */
            j[i].cols *= j[i].rows * j[i].batch;
            j[i].rows = j[i].batch = 1;
        }
        turns[i] = j[i].batch * j[i].rows * ((j[i].cols + 7) / 8);
    }
    const int64_t n = turns[0] + turns[1];
    if (n == 0) return st->code;
    if (to == RD_NARROW_BF16)
        RD_TRY_OR_RETURN(RD_LAUNCH(g, st, narrow_rows<RD_NARROW_BF16>, rd_grid(n), RD_BLOCK, 0,
                                   j[0], j[1], turns[0], n));
    else if (to == RD_NARROW_HALF16)
        RD_TRY_OR_RETURN(RD_LAUNCH(g, st, narrow_rows<RD_NARROW_HALF16>, rd_grid(n), RD_BLOCK, 0,
                                   j[0], j[1], turns[0], n));
    else
        RD_TRY_OR_RETURN(RD_LAUNCH(g, st, narrow_rows<RD_NARROW_WIRE16>, rd_grid(n), RD_BLOCK, 0,
                                   j[0], j[1], turns[0], n));
    return st->code;
}

template <int from>
static __global__ void widen_row(const uint16_t *x, int64_t n, float *y, bool aligned)
{
    for (RD_EACH(i, (n + 7) / 8)) {
        const int64_t left = n - i * 8;
        if (left >= 8 && aligned) {
            const uint4 h = *reinterpret_cast<const uint4 *>(x + i * 8);
            float4 p, q;
            p.x = cuda_convert_widen<from>(h.x & 0xffffu),
            p.y = cuda_convert_widen<from>(h.x >> 16);
            p.z = cuda_convert_widen<from>(h.y & 0xffffu),
            p.w = cuda_convert_widen<from>(h.y >> 16);
            q.x = cuda_convert_widen<from>(h.z & 0xffffu),
            q.y = cuda_convert_widen<from>(h.z >> 16);
            q.z = cuda_convert_widen<from>(h.w & 0xffffu),
            q.w = cuda_convert_widen<from>(h.w >> 16);
            reinterpret_cast<float4 *>(y + i * 8)[0] = p;
            reinterpret_cast<float4 *>(y + i * 8)[1] = q;
        } else {
            for (int64_t k = i * 8; k < n && k < i * 8 + 8; k++)
                y[k] = cuda_convert_widen<from>(x[k]);
        }
    }
}

extern "C" rd_code rd_convert_widen(rd_gpu *g, rd_narrow from, const uint16_t *x, int64_t n,
                                    float *y, rd_status *st)
{
    const unsigned grid = rd_grid((n + 7) / 8);
    const bool aligned = (uintptr_t)x % 16 == 0 && (uintptr_t)y % 16 == 0;
    if (from == RD_NARROW_BF16)
        RD_TRY_OR_RETURN(RD_LAUNCH(g, st, widen_row<RD_NARROW_BF16>, grid, RD_BLOCK, 0, x, n, y,
                                   aligned));
    else
        RD_TRY_OR_RETURN(RD_LAUNCH(g, st, widen_row<RD_NARROW_HALF16>, grid, RD_BLOCK, 0, x, n, y,
                                   aligned));
    return st->code;
}

static __global__ void scale_rows(int64_t n, int64_t rows, int64_t cols, float beta, float *C,
                                  int64_t ld, int64_t stride)
{
    for (RD_EACH(i, n)) {
        int64_t row, col, batch;
        split(i, cols, &row, &col);
        split(row, rows, &batch, &row);
        float *c = C + batch * stride + row * ld + col;
        *c = beta == 0.0f ? 0.0f : beta * *c;
    }
}

extern "C" rd_code rd_convert_scale(rd_gpu *g, int64_t batch, int64_t rows, int64_t cols,
                                    float beta, float *C, int64_t ld, int64_t stride, rd_status *st)
{
    const int64_t n = batch * rows * cols;
    return RD_LAUNCH(g, st, scale_rows, rd_grid(n), RD_BLOCK, 0, n, rows, cols, beta, C, ld,
                     stride);
}

/* ---- filters ---- */

/* Tiles of 32 x 32 in shared memory, so both sides are read and written along their rows. One extra
 * column spreads the 32 threads of a warp over 32 banks. */
enum { TILE = 32, LINES = 8 };

/* Computes y[c stride_y + r] (+)= x[r stride_x + c] for a matrix of rows x cols. */
template <bool add, typename From, typename To>
static __device__ inline void transpose_tile(const From *x, int64_t stride_x, To *y,
                                             int64_t stride_y, int64_t rows, int64_t cols)
{
    __shared__ float tile[TILE][TILE + 1];
    const int64_t r0 = (int64_t)blockIdx.x * TILE, c0 = (int64_t)blockIdx.y * TILE;
    for (int i = threadIdx.y; i < TILE; i += LINES) {
        const int64_t r = r0 + i, c = c0 + threadIdx.x;
        if (r < rows && c < cols) tile[i][threadIdx.x] = rd_get(x + r * stride_x + c);
    }
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += LINES) {
        const int64_t c = c0 + i, r = r0 + threadIdx.x;
        if (r >= rows || c >= cols) continue;
        To *p = y + c * stride_y + r;
        rd_put(p, add ? rd_get(p) + tile[threadIdx.x][i] : tile[threadIdx.x][i]);
    }
}

template <typename T>
static __global__ void filters_out(int64_t taps, int64_t ci, int64_t co, const float *W, T *out)
{
    const int64_t t = blockIdx.z;
    transpose_tile<false>(W + t * ci * co, co, out + t * ci, taps * ci, ci, co);
}

template <typename T>
static __global__ void filters_back(int64_t taps, int64_t ci, int64_t co, const T *from, float *dW)
{
    const int64_t t = blockIdx.z;
    transpose_tile<true>(from + t * ci, taps * ci, dW + t * ci * co, co, co, ci);
}

static dim3 cuda_convert_tiles(int64_t rows, int64_t cols, int64_t taps)
{
    return dim3((unsigned)((rows + TILE - 1) / TILE), (unsigned)((cols + TILE - 1) / TILE),
                (unsigned)taps);
}

extern "C" rd_code rd_convert_filters(rd_gpu *g, int64_t taps, int64_t ci, int64_t co,
                                      const float *W, rd_element type, void *out, rd_status *st)
{
    RD_BY_ELEMENT(type, RD_LAUNCH(g, st, filters_out<T>, cuda_convert_tiles(ci, co, taps),
                                  dim3(TILE, LINES), 0, taps, ci, co, W, static_cast<T *>(out)));
    return st->code;
}

extern "C" rd_code rd_convert_filters_add(rd_gpu *g, int64_t taps, int64_t ci, int64_t co,
                                          const void *from, rd_element type, float *dW,
                                          rd_status *st)
{
    RD_BY_ELEMENT(type,
                  RD_LAUNCH(g, st, filters_back<T>, cuda_convert_tiles(co, ci, taps),
                            dim3(TILE, LINES), 0, taps, ci, co, static_cast<const T *>(from), dW));
    return st->code;
}

/* ---- borders ---- */

/* V elements in each turn; b.c counts vectors. Each turn writes one vector of the wide image. */
template <int V, typename T>
static __global__ void pad_images(rd_borders b, int64_t n, const T *x, T *out)
{
    for (RD_EACH(i, n)) {
        int64_t pixel, c, row, q, p;
        split(i, b.c, &pixel, &c);
        split(pixel, b.w + b.left + b.right, &row, &q);
        split(row, b.h + b.top + b.bottom, &row, &p);
        p -= b.top;
        q -= b.left;
        rd_lanes<V> v = {};
        if (p >= 0 && p < b.h && q >= 0 && q < b.w)
            v = rd_lanes_get<V>(x + (((row * b.h + p) * b.w + q) * b.c + c) * V);
        rd_lanes_put<V>(out + i * V, v);
    }
}

/* Each turn writes one vector of the narrow image. */
template <int V, typename T>
static __global__ void crop_images(rd_borders b, int64_t n, const T *x, bool add, T *y)
{
    for (RD_EACH(i, n)) {
        int64_t pixel, c, image, p, q;
        split(i, b.c, &pixel, &c);
        split(pixel, b.w, &p, &q);
        split(p, b.h, &image, &p);
        const int64_t wide = b.w + b.left + b.right, high = b.h + b.top + b.bottom;
        rd_lanes<V> v =
            rd_lanes_get<V>(x + (((image * high + p + b.top) * wide + q + b.left) * b.c + c) * V);
        if (add) {
            const rd_lanes<V> old = rd_lanes_get<V>(y + i * V);
            for (int l = 0; l < V; l++) v.at[l] = old.at[l] + v.at[l];
        }
        rd_lanes_put<V>(y + i * V, v);
    }
}

/* Returns whether rows of channels can be moved 16 bytes at a time. */
template <typename T> static bool in_vectors(const rd_borders *b, const void *x, const void *y)
{
    return b->c % (int64_t)(16 / sizeof(T)) == 0 && (uintptr_t)x % 16 == 0 &&
           (uintptr_t)y % 16 == 0;
}

template <int V, typename T>
static rd_code pad_by(rd_gpu *g, rd_borders b, const void *x, void *out, rd_status *st)
{
    b.c /= V;
    const int64_t n = b.n * (b.h + b.top + b.bottom) * (b.w + b.left + b.right) * b.c;
    return RD_LAUNCH(g, st, (pad_images<V, T>), rd_grid(n), RD_BLOCK, 0, b, n,
                     static_cast<const T *>(x), static_cast<T *>(out));
}

template <typename T>
static rd_code cuda_convert_pad_of(rd_gpu *g, const rd_borders *b, const void *x, void *out,
                                   rd_status *st)
{
    return in_vectors<T>(b, x, out) ? pad_by<16 / sizeof(T), T>(g, *b, x, out, st)
                                    : pad_by<1, T>(g, *b, x, out, st);
}

extern "C" rd_code rd_convert_pad(rd_gpu *g, const rd_borders *b, rd_element type, const void *x,
                                  void *out, rd_status *st)
{
    RD_BY_ELEMENT(type, cuda_convert_pad_of<T>(g, b, x, out, st));
    return st->code;
}

template <int V, typename T>
static rd_code crop_by(rd_gpu *g, rd_borders b, const void *x, bool add, void *y, rd_status *st)
{
    b.c /= V;
    const int64_t n = b.n * b.h * b.w * b.c;
    return RD_LAUNCH(g, st, (crop_images<V, T>), rd_grid(n), RD_BLOCK, 0, b, n,
                     static_cast<const T *>(x), add, static_cast<T *>(y));
}

template <typename T>
static rd_code crop_of(rd_gpu *g, const rd_borders *b, const void *x, bool add, void *y,
                       rd_status *st)
{
    return in_vectors<T>(b, x, y) ? crop_by<16 / sizeof(T), T>(g, *b, x, add, y, st)
                                  : crop_by<1, T>(g, *b, x, add, y, st);
}

extern "C" rd_code rd_convert_crop(rd_gpu *g, const rd_borders *b, rd_element type, const void *x,
                                   bool add, void *y, rd_status *st)
{
    RD_BY_ELEMENT(type, crop_of<T>(g, b, x, add, y, st));
    return st->code;
}

/* ---- what the program was built for ---- */

#ifdef __CUDA_ARCH_LIST__
extern "C" int rd_convert_probe(void)
{
    cudaFuncAttributes a;
    return (int)cudaFuncGetAttributes(&a, scale_rows);
}
#endif
