/* image_cuda.cu -- see image_cuda.h. All of it is bound by memory: each tensor is read once and written once. */
#include "image_cuda.h"
#include "../../engine/gpu/element_device.h"
#include "../../engine/gpu/philox_device.h"
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

template <class F, typename T>
static __device__ inline void one(int64_t i, const T *a, const T *b, T *y)
{
    rd_put(y + i,
           F::of(rd_get(a + i), F::TWO ? rd_get(b + i) : 0.0f, F::OLD ? rd_get(y + i) : 0.0f));
}

template <class F, typename T>
static __global__ void elements(int64_t n, const T *a, const T *b, T *y)
{
    for (RD_EACH(i, n)) one<F>(i, a, b, y);
}

/* 16 bytes at a time, V elements; the first threads see to the last n % V. */
template <class F, int V, typename T>
static __global__ void elements_by(int64_t n, const T *a, const T *b, T *y)
{
    for (RD_EACH(i, n / V)) {
        const rd_lanes<V> p = rd_lanes_get<V>(a + i * V);
        rd_lanes<V> q = {}, old = {};
        if (F::TWO) q = rd_lanes_get<V>(b + i * V);
        if (F::OLD) old = rd_lanes_get<V>(y + i * V);
        for (int l = 0; l < V; l++) old.at[l] = F::of(p.at[l], q.at[l], old.at[l]);
        rd_lanes_put<V>(y + i * V, old);
    }
    for (RD_EACH(i, n % V)) one<F>(n / V * V + i, a, b, y);
}

template <class F, typename T>
static rd_code each_of(rd_gpu *gpu, int64_t n, const void *a, const void *b, void *y, rd_status *st)
{
    enum { V = 16 / sizeof(T) };
    const T *p = static_cast<const T *>(a), *q = static_cast<const T *>(b);
    T *to = static_cast<T *>(y);
    if (rd_by_four(a) && rd_by_four(b) && rd_by_four(y))
        return RD_LAUNCH(gpu, st, (elements_by<F, V, T>), rd_grid((n + V - 1) / V), RD_BLOCK, 0, n,
                         p, q, to);
    return RD_LAUNCH(gpu, st, (elements<F, T>), rd_grid(n), RD_BLOCK, 0, n, p, q, to);
}

template <class F>
static rd_code each(rd_gpu *gpu, rd_element type, int64_t n, const void *a, const void *b, void *y,
                    rd_status *st)
{
    RD_BY_ELEMENT(type, (each_of<F, T>(gpu, n, a, b, y, st)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_relu(rd_gpu *gpu, rd_element type, int64_t n, const void *x, void *y,
                                rd_status *st)
{
    return each<relu_of>(gpu, type, n, x, NULL, y, st);
}

extern "C" rd_code rd_cuda_sum(rd_gpu *gpu, rd_element type, int64_t n, const void *a,
                               const void *b, bool relu, void *y, rd_status *st)
{
    return relu ? each<relu_sum_of>(gpu, type, n, a, b, y, st)
                : each<sum_of>(gpu, type, n, a, b, y, st);
}

extern "C" rd_code rd_cuda_mask(rd_gpu *gpu, rd_element type, int64_t n, const void *y, void *g,
                                rd_status *st)
{
    return each<mask_of>(gpu, type, n, y, NULL, g, st);
}

extern "C" rd_code rd_cuda_masked(rd_gpu *gpu, rd_element type, int64_t n, const void *y,
                                  const void *g, void *out, bool add, rd_status *st)
{
    return add ? each<masked_add_of>(gpu, type, n, y, g, out, st)
               : each<masked_of>(gpu, type, n, y, g, out, st);
}

extern "C" rd_code rd_cuda_copy(rd_gpu *gpu, rd_element type, int64_t n, const void *x, void *out,
                                bool add, rd_status *st)
{
    return add ? each<add_of>(gpu, type, n, x, NULL, out, st)
               : each<copy_of>(gpu, type, n, x, NULL, out, st);
}

/* ---- mean over pixels ---- */
/* In the order of the pixels. Eight loads are on their way at a time. */
template <typename T>
static __global__ void mean(int64_t n, int64_t P, int64_t C, const T *__restrict__ x,
                            T *__restrict__ y)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(c, C)) {
            const T *from = x + i * P * C + c;
            float sum = 0.0f;
#pragma unroll 8
            for (int64_t p = 0; p < P; p++) sum += rd_get(from + p * C);
            rd_put(y + i * C + c, sum / (float)P);
        }
}

template <bool ADD, typename T>
static __global__ void image_cuda_mean_back(int64_t pixels, int64_t P, int64_t C, float scale,
                                            const T *__restrict__ dy, T *__restrict__ dx)
{
    for (RD_EACH_ROW(p, pixels)) {
        const int64_t i = p / P;
        for (RD_EACH_COLUMN(c, C)) {
            const float d = rd_get(dy + i * C + c) * scale;
            rd_put(dx + p * C + c, ADD ? rd_get(dx + p * C + c) + d : d);
        }
    }
}

template <typename T>
static rd_code image_cuda_mean_of(rd_gpu *gpu, int64_t n, int64_t pixels, int64_t channels,
                                  const void *x, void *y, rd_status *st)
{
    return RD_LAUNCH(gpu, st, mean<T>, rd_rows_grid(n, channels), rd_rows_block(channels), 0, n,
                     pixels, channels, static_cast<const T *>(x), static_cast<T *>(y));
}

extern "C" rd_code rd_cuda_mean(rd_gpu *gpu, rd_element type, int64_t n, int64_t pixels,
                                int64_t channels, const void *x, void *y, rd_status *st)
{
    RD_BY_ELEMENT(type, image_cuda_mean_of<T>(gpu, n, pixels, channels, x, y, st));
    return RD_OK;
}

template <typename T>
static rd_code mean_back_of(rd_gpu *gpu, int64_t n, int64_t pixels, int64_t channels,
                            const void *dy, void *dx, bool add, rd_status *st)
{
    const dim3 grid = rd_rows_grid(n * pixels, channels), block = rd_rows_block(channels);
    const float scale = 1.0f / (float)pixels;
    const T *d = static_cast<const T *>(dy);
    T *to = static_cast<T *>(dx);
    if (add)
        return RD_LAUNCH(gpu, st, (image_cuda_mean_back<true, T>), grid, block, 0, n * pixels,
                         pixels, channels, scale, d, to);
    return RD_LAUNCH(gpu, st, (image_cuda_mean_back<false, T>), grid, block, 0, n * pixels, pixels,
                     channels, scale, d, to);
}

extern "C" rd_code rd_cuda_mean_back(rd_gpu *gpu, rd_element type, int64_t n, int64_t pixels,
                                     int64_t channels, const void *dy, void *dx, bool add,
                                     rd_status *st)
{
    RD_BY_ELEMENT(type, mean_back_of<T>(gpu, n, pixels, channels, dy, dx, add, st));
    return RD_OK;
}

/* ---- shortcut ---- */
template <typename T>
static __global__ void shortcut(rd_shortcut s, const T *__restrict__ x, T *__restrict__ y)
{
    for (RD_EACH_ROW(r, s.n * s.oh * s.ow)) {
        const int64_t q = r % s.ow, p = r / s.ow % s.oh, i = r / s.ow / s.oh;
        const T *from = x + ((i * s.h + p * s.stride) * s.w + q * s.stride) * s.c;
        for (RD_EACH_COLUMN(d, s.co)) {
            const int64_t c = d - s.before;
            rd_put(y + r * s.co + d, c >= 0 && c < s.c ? rd_get(from + c) : 0.0f);
        }
    }
}

template <bool ADD, typename T>
static __global__ void shortcut_back(rd_shortcut s, const T *__restrict__ dy, T *__restrict__ dx)
{
    for (RD_EACH_ROW(r, s.n * s.h * s.w)) {
        const int64_t b = r % s.w, a = r / s.w % s.h, i = r / s.w / s.h;
        const bool used = a % s.stride == 0 && b % s.stride == 0;
        if (ADD && !used) continue;
        const T *from = dy + ((i * s.oh + a / s.stride) * s.ow + b / s.stride) * s.co + s.before;
        for (RD_EACH_COLUMN(c, s.c)) {
            const float d = used ? rd_get(from + c) : 0.0f;
            rd_put(dx + r * s.c + c, ADD ? rd_get(dx + r * s.c + c) + d : d);
        }
    }
}

template <typename T>
static rd_code shortcut_of(rd_gpu *gpu, const rd_shortcut &k, const void *x, void *y, rd_status *st)
{
    return RD_LAUNCH(gpu, st, shortcut<T>, rd_rows_grid(k.n * k.oh * k.ow, k.co),
                     rd_rows_block(k.co), 0, k, static_cast<const T *>(x), static_cast<T *>(y));
}

extern "C" rd_code rd_cuda_shortcut(rd_gpu *gpu, rd_element type, const rd_shortcut *s,
                                    const void *x, void *y, rd_status *st)
{
    RD_BY_ELEMENT(type, shortcut_of<T>(gpu, *s, x, y, st));
    return RD_OK;
}

template <typename T>
static rd_code shortcut_back_of(rd_gpu *gpu, const rd_shortcut &k, const void *dy, void *dx,
                                bool add, rd_status *st)
{
    const dim3 grid = rd_rows_grid(k.n * k.h * k.w, k.c), block = rd_rows_block(k.c);
    const T *d = static_cast<const T *>(dy);
    T *to = static_cast<T *>(dx);
    if (add) return RD_LAUNCH(gpu, st, (shortcut_back<true, T>), grid, block, 0, k, d, to);
    return RD_LAUNCH(gpu, st, (shortcut_back<false, T>), grid, block, 0, k, d, to);
}

extern "C" rd_code rd_cuda_shortcut_back(rd_gpu *gpu, rd_element type, const rd_shortcut *s,
                                         const void *dy, void *dx, bool add, rd_status *st)
{
    RD_BY_ELEMENT(type, shortcut_back_of<T>(gpu, *s, dy, dx, add, st));
    return RD_OK;
}

/* ---- dropout ---- */
/* A thread has the eight elements of a row that one block of philox decides, a byte of the mask. */
template <typename T> struct dropped {
    rd_key key;
    uint32_t limit;
    float scale;
    int64_t n, width;
    const int64_t *sample;
    const T *x;
    T *y;
    uint8_t *mask;
    bool add;
};

/* V elements, whose mask begins at bit 0 of keep. */
template <int V, typename T>
static __device__ inline void dropped_some(const dropped<T> &d, const T *x, T *y, uint32_t keep)
{
    rd_lanes<V> v = rd_lanes_get<V>(x), old = {};
    if (d.add) old = rd_lanes_get<V>(y);
    for (int l = 0; l < V; l++) {
        const float w = keep >> l & 1 ? v.at[l] * d.scale : 0.0f;
        v.at[l] = d.add ? old.at[l] + w : w;
    }
    rd_lanes_put<V>(y, v);
}

/* DRAW: the mask is made, else it is there. FOUR: rows are whole vectors of four. */
template <bool DRAW, bool FOUR, typename T> static __global__ void image_cuda_drop(dropped<T> d)
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
            if (FOUR) {
                dropped_some<4>(d, d.x + at, d.y + at, keep);
                if (left > 4) dropped_some<4>(d, d.x + at + 4, d.y + at + 4, keep >> 4);
            } else {
                for (int j = 0; j < 8 && j < left; j++)
                    dropped_some<1>(d, d.x + at + j, d.y + at + j, keep >> j);
            }
        }
    }
}

template <bool DRAW, typename T>
static rd_code drop_of(rd_gpu *gpu, const dropped<T> &d, rd_status *st)
{
    const dim3 grid = rd_rows_grid(d.n, (d.width + 7) / 8),
               block = rd_rows_block((d.width + 7) / 8);
    if (d.width % 4 == 0 && rd_by_four(d.x) && rd_by_four(d.y))
        return RD_LAUNCH(gpu, st, (image_cuda_drop<DRAW, true, T>), grid, block, 0, d);
    return RD_LAUNCH(gpu, st, (image_cuda_drop<DRAW, false, T>), grid, block, 0, d);
}

extern "C" rd_code rd_cuda_image_dropout(rd_gpu *gpu, rd_element type, rd_key key, float keep,
                                         int64_t n, int64_t width, const int64_t *sample,
                                         const void *x, void *y, uint8_t *mask, rd_status *st)
{
    RD_BY_ELEMENT(type,
                  (drop_of<true, T>(gpu,
                                    {key, rd_philox_limit(keep), 1.0f / keep, n, width, sample,
                                     static_cast<const T *>(x), static_cast<T *>(y), mask, false},
                                    st)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_image_dropout_back(rd_gpu *gpu, rd_element type, float keep, int64_t n,
                                              int64_t width, const uint8_t *mask, const void *dy,
                                              void *dx, bool add, rd_status *st)
{
    RD_BY_ELEMENT(type, (drop_of<false, T>(gpu,
                                           {{{0, 0}},
                                            0,
                                            1.0f / keep,
                                            n,
                                            width,
                                            NULL,
                                            static_cast<const T *>(dy),
                                            static_cast<T *>(dx),
                                            const_cast<uint8_t *>(mask),
                                            add},
                                           st)));
    return RD_OK;
}
