/* image_cuda.cu -- see image_cuda.h. All of it is bound by memory: each tensor is read once and written once. */
#include "image_cuda.h"
#include "../../engine/cuda/philox_device.h"
#include "rows_grid.h"

/* ---- elementwise: y = f(a, b, y) ---- */
struct relu_of {
    enum { TWO = 0, OLD = 0 }; /* b is read; y is read */
    static __device__ float of(float a, float, float) { return a < 0.0f ? 0.0f : a; }
};
struct sum_of {
    enum { TWO = 1, OLD = 0 };
    static __device__ float of(float a, float b, float) { return a + b; }
};
struct relu_sum_of {
    enum { TWO = 1, OLD = 0 };
    static __device__ float of(float a, float b, float) { return relu_of::of(a + b, 0.0f, 0.0f); }
};
struct mask_of {
    enum { TWO = 0, OLD = 1 };
    static __device__ float of(float a, float, float y) { return a > 0.0f ? y : 0.0f; }
};
struct masked_of {
    enum { TWO = 1, OLD = 0 };
    static __device__ float of(float a, float b, float) { return a > 0.0f ? b : 0.0f; }
};
struct masked_add_of {
    enum { TWO = 1, OLD = 1 };
    static __device__ float of(float a, float b, float y) { return y + (a > 0.0f ? b : 0.0f); }
};
struct copy_of {
    enum { TWO = 0, OLD = 0 };
    static __device__ float of(float a, float, float) { return a; }
};
struct add_of {
    enum { TWO = 0, OLD = 1 };
    static __device__ float of(float a, float, float y) { return y + a; }
};

template <class F> static __device__ inline void one(int64_t i, const float *a, const float *b, float *y)
{
    y[i] = F::of(a[i], F::TWO ? b[i] : 0.0f, F::OLD ? y[i] : 0.0f);
}

template <class F> static __global__ void elements(int64_t n, const float *a, const float *b, float *y)
{
    for (RD_EACH(i, n)) one<F>(i, a, b, y);
}

/* Four at a time; the first threads see to the last n % 4. */
template <class F> static __global__ void elements_4(int64_t n, const float *a, const float *b, float *y)
{
    const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (RD_EACH(i, n / 4)) {
        const float4 p = reinterpret_cast<const float4 *>(a)[i];
        const float4 q = F::TWO ? reinterpret_cast<const float4 *>(b)[i] : none;
        const float4 old = F::OLD ? reinterpret_cast<const float4 *>(y)[i] : none;
        reinterpret_cast<float4 *>(y)[i] =
            make_float4(F::of(p.x, q.x, old.x), F::of(p.y, q.y, old.y), F::of(p.z, q.z, old.z), F::of(p.w, q.w, old.w));
    }
    for (RD_EACH(i, n % 4)) one<F>(n / 4 * 4 + i, a, b, y);
}

template <class F>
static rd_code each(rd_gpu *gpu, int64_t n, const float *a, const float *b, float *y, rd_status *st)
{
    if (rd_by_four(a) && rd_by_four(b) && rd_by_four(y))
        return RD_LAUNCH(gpu, st, elements_4<F>, rd_grid((n + 3) / 4), RD_BLOCK, 0, n, a, b, y);
    return RD_LAUNCH(gpu, st, elements<F>, rd_grid(n), RD_BLOCK, 0, n, a, b, y);
}

extern "C" rd_code rd_cuda_relu(rd_gpu *gpu, int64_t n, const float *x, float *y, rd_status *st)
{
    return each<relu_of>(gpu, n, x, NULL, y, st);
}

extern "C" rd_code rd_cuda_sum(rd_gpu *gpu, int64_t n, const float *a, const float *b, bool relu, float *y, rd_status *st)
{
    return relu ? each<relu_sum_of>(gpu, n, a, b, y, st) : each<sum_of>(gpu, n, a, b, y, st);
}

extern "C" rd_code rd_cuda_mask(rd_gpu *gpu, int64_t n, const float *y, float *g, rd_status *st)
{
    return each<mask_of>(gpu, n, y, NULL, g, st);
}

extern "C" rd_code rd_cuda_masked(rd_gpu *gpu, int64_t n, const float *y, const float *g, float *out, bool add, rd_status *st)
{
    return add ? each<masked_add_of>(gpu, n, y, g, out, st) : each<masked_of>(gpu, n, y, g, out, st);
}

extern "C" rd_code rd_cuda_copy(rd_gpu *gpu, int64_t n, const float *x, float *out, bool add, rd_status *st)
{
    return add ? each<add_of>(gpu, n, x, NULL, out, st) : each<copy_of>(gpu, n, x, NULL, out, st);
}

/* ---- mean over pixels ---- */
/* In the order of the pixels. Eight loads are on their way at a time. */
static __global__ void mean(int64_t n, int64_t P, int64_t C, const float *__restrict__ x, float *__restrict__ y)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(c, C)) {
            const float *from = x + i * P * C + c;
            float sum = 0.0f;
#pragma unroll 8
            for (int64_t p = 0; p < P; p++) sum += from[p * C];
            y[i * C + c] = sum / (float)P;
        }
}

template <bool ADD>
static __global__ void mean_back(int64_t pixels, int64_t P, int64_t C, float scale, const float *__restrict__ dy,
                                 float *__restrict__ dx)
{
    for (RD_EACH_ROW(p, pixels)) {
        const int64_t i = p / P;
        for (RD_EACH_COLUMN(c, C)) {
            const float d = dy[i * C + c] * scale;
            dx[p * C + c] = ADD ? dx[p * C + c] + d : d;
        }
    }
}

extern "C" rd_code rd_cuda_mean(rd_gpu *gpu, int64_t n, int64_t pixels, int64_t channels, const float *x, float *y, rd_status *st)
{
    return RD_LAUNCH(gpu, st, mean, rd_rows_grid(n, channels), rd_rows_block(channels), 0, n, pixels, channels, x, y);
}

extern "C" rd_code rd_cuda_mean_back(rd_gpu *gpu, int64_t n, int64_t pixels, int64_t channels, const float *dy, float *dx, bool add,
                                     rd_status *st)
{
    const dim3 grid = rd_rows_grid(n * pixels, channels), block = rd_rows_block(channels);
    const float scale = 1.0f / (float)pixels;
    if (add) return RD_LAUNCH(gpu, st, mean_back<true>, grid, block, 0, n * pixels, pixels, channels, scale, dy, dx);
    return RD_LAUNCH(gpu, st, mean_back<false>, grid, block, 0, n * pixels, pixels, channels, scale, dy, dx);
}

/* ---- shortcut ---- */
static __global__ void shortcut(rd_shortcut s, const float *__restrict__ x, float *__restrict__ y)
{
    for (RD_EACH_ROW(r, s.n * s.oh * s.ow)) {
        const int64_t q = r % s.ow, p = r / s.ow % s.oh, i = r / s.ow / s.oh;
        const float *from = x + ((i * s.h + p * s.stride) * s.w + q * s.stride) * s.c;
        for (RD_EACH_COLUMN(d, s.co)) {
            const int64_t c = d - s.before;
            y[r * s.co + d] = c >= 0 && c < s.c ? from[c] : 0.0f;
        }
    }
}

template <bool ADD> static __global__ void shortcut_back(rd_shortcut s, const float *__restrict__ dy, float *__restrict__ dx)
{
    for (RD_EACH_ROW(r, s.n * s.h * s.w)) {
        const int64_t b = r % s.w, a = r / s.w % s.h, i = r / s.w / s.h;
        const bool used = a % s.stride == 0 && b % s.stride == 0;
        if (ADD && !used) continue;
        const float *from = dy + ((i * s.oh + a / s.stride) * s.ow + b / s.stride) * s.co + s.before;
        for (RD_EACH_COLUMN(c, s.c)) {
            const float d = used ? from[c] : 0.0f;
            dx[r * s.c + c] = ADD ? dx[r * s.c + c] + d : d;
        }
    }
}

extern "C" rd_code rd_cuda_shortcut(rd_gpu *gpu, const rd_shortcut *s, const float *x, float *y, rd_status *st)
{
    const rd_shortcut k = *s;
    return RD_LAUNCH(gpu, st, shortcut, rd_rows_grid(k.n * k.oh * k.ow, k.co), rd_rows_block(k.co), 0, k, x, y);
}

extern "C" rd_code rd_cuda_shortcut_back(rd_gpu *gpu, const rd_shortcut *s, const float *dy, float *dx, bool add, rd_status *st)
{
    const rd_shortcut k = *s;
    const dim3 grid = rd_rows_grid(k.n * k.h * k.w, k.c), block = rd_rows_block(k.c);
    if (add) return RD_LAUNCH(gpu, st, shortcut_back<true>, grid, block, 0, k, dy, dx);
    return RD_LAUNCH(gpu, st, shortcut_back<false>, grid, block, 0, k, dy, dx);
}

/* ---- dropout ---- */
/* A thread has the eight elements of a row that one block of philox decides, a byte of the mask. */
struct dropped {
    rd_key key;
    uint32_t limit;
    float scale;
    int64_t n, width;
    const int64_t *sample;
    const float *x;
    float *y;
    uint8_t *mask;
    bool add;
};

static __device__ inline float4 dropped_4(const dropped &d, float4 x, float4 old, uint32_t keep)
{
    float4 y = make_float4(keep & 1 ? x.x * d.scale : 0.0f, keep & 2 ? x.y * d.scale : 0.0f, keep & 4 ? x.z * d.scale : 0.0f,
                           keep & 8 ? x.w * d.scale : 0.0f);
    if (d.add) y = make_float4(old.x + y.x, old.y + y.y, old.z + y.z, old.w + y.w);
    return y;
}

/* DRAW: the mask is made, else it is there. FOUR: rows are whole float4. */
template <bool DRAW, bool FOUR> static __device__ inline void drop(const dropped &d)
{
    const int64_t blocks = (d.width + 7) / 8;
    for (RD_EACH_ROW(i, d.n)) {
        const uint64_t sample = DRAW ? (uint64_t)d.sample[i] : 0;
        for (RD_EACH_COLUMN(b, blocks)) {
            uint32_t keep = 0;
            if (DRAW) {
                uint32_t word[4];
                rd_philox_block(d.key, sample, 0, (uint32_t)b, word);
#pragma unroll
                for (int j = 0; j < 8; j++) keep |= rd_philox_kept(word, j, d.limit) << j;
                d.mask[i * blocks + b] = (uint8_t)keep;
            } else {
                keep = d.mask[i * blocks + b];
            }
            const int64_t at = i * d.width + 8 * b, left = d.width - 8 * b;
            const float *x = d.x + at;
            float *y = d.y + at;
            if (FOUR) {
                const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                const bool two = left > 4;
                const float4 *from = reinterpret_cast<const float4 *>(x);
                float4 *to = reinterpret_cast<float4 *>(y);
                const float4 p = from[0], q = two ? from[1] : none;
                const float4 old_p = d.add ? to[0] : none, old_q = d.add && two ? to[1] : none;
                to[0] = dropped_4(d, p, old_p, keep);
                if (two) to[1] = dropped_4(d, q, old_q, keep >> 4);
            } else {
                for (int j = 0; j < 8 && j < left; j++) {
                    const float v = keep >> j & 1 ? x[j] * d.scale : 0.0f;
                    y[j] = d.add ? y[j] + v : v;
                }
            }
        }
    }
}

static __global__ void dropout_4(dropped d) { drop<true, true>(d); }
static __global__ void dropout(dropped d) { drop<true, false>(d); }
static __global__ void dropout_back_4(dropped d) { drop<false, true>(d); }
static __global__ void dropout_back(dropped d) { drop<false, false>(d); }

static bool whole(const dropped &d) { return d.width % 4 == 0 && rd_by_four(d.x) && rd_by_four(d.y); }

extern "C" rd_code rd_cuda_image_dropout(rd_gpu *gpu, rd_key key, float keep, int64_t n, int64_t width, const int64_t *sample,
                                   const float *x, float *y, uint8_t *mask, rd_status *st)
{
    const dropped d = {key, rd_philox_limit(keep), 1.0f / keep, n, width, sample, x, y, mask, false};
    const dim3 grid = rd_rows_grid(n, (width + 7) / 8), block = rd_rows_block((width + 7) / 8);
    return whole(d) ? RD_LAUNCH(gpu, st, dropout_4, grid, block, 0, d) : RD_LAUNCH(gpu, st, dropout, grid, block, 0, d);
}

extern "C" rd_code rd_cuda_image_dropout_back(rd_gpu *gpu, float keep, int64_t n, int64_t width, const uint8_t *mask, const float *dy,
                                        float *dx, bool add, rd_status *st)
{
    const dropped d = {{{0, 0}}, 0, 1.0f / keep, n, width, NULL, dy, dx, const_cast<uint8_t *>(mask), add};
    const dim3 grid = rd_rows_grid(n, (width + 7) / 8), block = rd_rows_block((width + 7) / 8);
    return whole(d) ? RD_LAUNCH(gpu, st, dropout_back_4, grid, block, 0, d) : RD_LAUNCH(gpu, st, dropout_back, grid, block, 0, d);
}
