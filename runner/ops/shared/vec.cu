/* vec.cu -- copies and sums of vectors and rows on a GPU. Memory bounds the speed of all of them.
 * They move four floats at a time if addresses and widths allow. */
#include "operand.h"
#include "rd/vec.h"
#include "../../engine/gpu/rounded_device.h"
#include "../../engine/gpu/rows_grid.h"

static __device__ inline float plus(float a, float b)
{
    return a + b;
}
static __device__ inline float4 plus(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static bool vec_by_four(int64_t width, const void *a, const void *b)
{
    return width % 4 == 0 && rd_by_four(a) && rd_by_four(b);
}

/* V: float, or float4; widths and leading dimensions are then counted in float4. */
template <typename V> static __global__ void vec_sum(int64_t n, const V *a, const V *b, V *y)
{
    for (RD_EACH(i, n)) y[i] = plus(a[i], b[i]);
}

static rd_code launch_vec_sum(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                              rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    if (n <= 0) return RD_OK;
    if (vec_by_four(n, a, b) && rd_by_four(y))
        return RD_LAUNCH(g, st, vec_sum<float4>, rd_grid(n / 4), RD_BLOCK, 0, n / 4,
                         (const float4 *)a, (const float4 *)b, (float4 *)y);
    return RD_LAUNCH(g, st, vec_sum<float>, rd_grid(n), RD_BLOCK, 0, n, a, b, y);
}

static rd_code launch_vec_add(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st)
{
    return launch_vec_sum(be, n, y, x, y, st);
}

static __global__ void vec_softcap(int64_t n, float c, float *x)
{
    for (RD_EACH(i, n)) x[i] = c * tanhf(x[i] / c);
}

static rd_code launch_vec_softcap(rd_backend *be, int64_t n, float c, float *x, rd_status *st)
{
    return RD_LAUNCH(rd_gpu_of(be), st, vec_softcap, rd_grid(n), RD_BLOCK, 0, n, c, x);
}

/* V: number of columns that a thread copies at once. */
template <int V>
static __global__ void rows_copy(int64_t rows, int64_t width, const float *from, int64_t ld_from,
                                 float *to, int64_t ld_to, bool add, rd_rounded_copy copy)
{
    for (RD_EACH_ROW(i, rows))
        for (RD_EACH_COLUMN(j, width / V)) {
            const int64_t at = i * ld_to + j * V;
            rd_lanes<V> x = rd_lanes_get<V>(from + i * ld_from + j * V);
            if (add) {
                const rd_lanes<V> old = rd_lanes_get<V>(to + at);
                for (int l = 0; l < V; l++) x.at[l] += old.at[l];
            }
            rd_lanes_put<V>(to + at, x);
            rd_rounded_put<V>(copy, at, x);
        }
}

static rd_code launch_rows_copy(rd_backend *be, int64_t rows, int64_t width, const float *from,
                                int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    const rd_rounded_copy copy = rd_rounded_copy_of(g, to);
    if (vec_by_four(width, from, to) && ld_from % 4 == 0 && ld_to % 4 == 0)
        return RD_LAUNCH(g, st, rows_copy<4>, rd_rows_grid(rows, width / 4),
                         rd_rows_block(width / 4), 0, rows, width, from, ld_from, to, ld_to, add,
                         copy);
    return RD_LAUNCH(g, st, rows_copy<1>, rd_rows_grid(rows, width), rd_rows_block(width), 0, rows,
                     width, from, ld_from, to, ld_to, add, copy);
}

/* V: number of columns that a thread computes at once. */
template <int V, typename T>
static __global__ void add_bias(int64_t N, int64_t width, const float *__restrict__ b,
                                T *__restrict__ y)
{
    for (RD_EACH_COLUMN(j, width / V)) {
        const rd_lanes<V> x = rd_lanes_get<V>(b + j * V);
        for (RD_EACH_ROW(i, N)) {
            T *to = y + i * width + j * V;
            rd_lanes<V> v = rd_lanes_get<V>(to);
            for (int l = 0; l < V; l++) v.at[l] += x.at[l];
            rd_lanes_put<V>(to, v);
        }
    }
}

template <typename T>
static rd_code add_bias_of(rd_gpu *g, int64_t N, int64_t width, const float *b, void *y,
                           rd_status *st)
{
    enum { V = 16 / sizeof(T) };
    T *to = static_cast<T *>(y);
    if (width % V == 0 && rd_by_four(b) && rd_by_four(y))
        return RD_LAUNCH(g, st, (add_bias<V, T>), rd_rows_grid(N, width / V),
                         rd_rows_block(width / V), 0, N, width, b, to);
    return RD_LAUNCH(g, st, (add_bias<1, T>), rd_rows_grid(N, width), rd_rows_block(width), 0, N,
                     width, b, to);
}

static rd_code launch_add_bias(rd_backend *be, int64_t N, int64_t width, const float *b, void *y,
                               rd_element type, rd_status *st)
{
    RD_BY_ELEMENT(type, (add_bias_of<T>(rd_gpu_of(be), N, width, b, y, st)));
    return RD_OK;
}

static rd_code launch_add_columns(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width,
                                  const void *dz, rd_element type, int64_t ld, float *sum,
                                  rd_status *st)
{
    return rd_operand_add_columns(rd_gpu_of(be), scratch, N, width, rd_operand_at(dz, type, 0, ld),
                                  sum, st);
}

const rd_vec_kernels rd_cuda_vec = {launch_vec_add,   launch_vec_sum,  launch_vec_softcap,
                                    launch_rows_copy, launch_add_bias, launch_add_columns};
