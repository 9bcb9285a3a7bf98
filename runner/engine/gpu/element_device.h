/* element_device.h -- for kernels that are written once for all types of elements.
 *
 * T is float, rd_bf16 or rd_f16. Kernels compute in float32. Stores round to T, to nearest, ties to
 * even. */
#ifndef RD_ELEMENT_DEVICE_H
#define RD_ELEMENT_DEVICE_H

#include "kernel.h"
#include "narrow_device.h"
#ifndef RD_EMULATED
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

struct rd_bf16 {
    uint16_t bits;
};
struct rd_f16 {
    uint16_t bits;
};

/* Returns the largest positive number that is rounded to 0. */
template <typename T> static __device__ inline float rd_rounds_to_zero();
template <> __device__ inline float rd_rounds_to_zero<float>()
{
    return 0.0f;
}
template <> __device__ inline float rd_rounds_to_zero<rd_bf16>()
{
    return 0x1p-134f;
}
template <> __device__ inline float rd_rounds_to_zero<rd_f16>()
{
    return 0x1p-25f;
}

/* Return the 16-bit number in the low or the high half of a word. */
template <typename T> static __device__ inline float rd_low_of(uint32_t word);
template <typename T> static __device__ inline float rd_high_of(uint32_t word);
template <> __device__ inline float rd_low_of<rd_bf16>(uint32_t word)
{
    return __uint_as_float(word << 16);
}
template <> __device__ inline float rd_high_of<rd_bf16>(uint32_t word)
{
    return __uint_as_float(word & 0xffff0000u);
}
template <> __device__ inline float rd_low_of<rd_f16>(uint32_t word)
{
#ifdef RD_EMULATED
    return rd_float_of_f16(word & 0xffffu);
#else
    return __half2float(__ushort_as_half((unsigned short)(word & 0xffffu)));
#endif
}
template <> __device__ inline float rd_high_of<rd_f16>(uint32_t word)
{
    return rd_low_of<rd_f16>(word >> 16);
}

/* Packs two numbers into a word: a in the low half, b in the high half. The GPU's instructions give
 * the numbers of narrow_device.h; a NaN may have other bits. */
template <typename T> static __device__ inline uint32_t rd_pair_of(float a, float b);
template <> __device__ inline uint32_t rd_pair_of<rd_bf16>(float a, float b)
{
#ifdef RD_EMULATED
    return rd_bf16_of(a) | rd_bf16_of(b) << 16;
#else
    const __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return (uint32_t)__bfloat16_as_ushort(p.x) | (uint32_t)__bfloat16_as_ushort(p.y) << 16;
#endif
}
template <> __device__ inline uint32_t rd_pair_of<rd_f16>(float a, float b)
{
#ifdef RD_EMULATED
    return rd_f16_of<false>(a) | rd_f16_of<false>(b) << 16;
#else
    const __half2 p = __floats2half2_rn(a, b);
    return (uint32_t)__half_as_ushort(p.x) | (uint32_t)__half_as_ushort(p.y) << 16;
#endif
}

/* V numbers that are loaded and stored at once. x is aligned to V elements, at most to 16 bytes:
 * what callers promise. With more, a compiler could use loads of 32 bytes. */
template <int V> struct alignas(V < 4 ? 4 * V : 16) rd_lanes {
    float at[V];
};
template <int V> struct alignas(V < 8 ? 2 * V : 16) rd_words {
    uint32_t at[V / 2];
};

template <int V> static __device__ inline rd_lanes<V> rd_lanes_get(const float *x)
{
    return *reinterpret_cast<const rd_lanes<V> *>(x);
}
template <int V> static __device__ inline void rd_lanes_put(float *x, const rd_lanes<V> &v)
{
    *reinterpret_cast<rd_lanes<V> *>(x) = v;
}
template <int V, typename T> static __device__ inline rd_lanes<V> rd_lanes_get(const T *x)
{
    rd_lanes<V> v;
    if constexpr (V == 1) {
        v.at[0] = rd_low_of<T>(x->bits);
    } else {
        const rd_words<V> w = *reinterpret_cast<const rd_words<V> *>(x);
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            v.at[2 * i] = rd_low_of<T>(w.at[i]);
            v.at[2 * i + 1] = rd_high_of<T>(w.at[i]);
        }
    }
    return v;
}
template <int V, typename T> static __device__ inline void rd_lanes_put(T *x, const rd_lanes<V> &v)
{
    if constexpr (V == 1) {
        x->bits = (uint16_t)rd_pair_of<T>(v.at[0], 0.0f);
    } else {
        rd_words<V> w;
#pragma unroll
        for (int i = 0; i < V / 2; i++) w.at[i] = rd_pair_of<T>(v.at[2 * i], v.at[2 * i + 1]);
        *reinterpret_cast<rd_words<V> *>(x) = w;
    }
}

template <typename T> static __device__ inline float rd_get(const T *x)
{
    return rd_lanes_get<1>(x).at[0];
}
template <typename T> static __device__ inline void rd_put(T *x, float v)
{
    rd_lanes<1> one;
    one.at[0] = v;
    rd_lanes_put<1>(x, one);
}

/* RD_BY_ELEMENT(type, launch) runs `launch`, an expression that uses T, with the T of an
 * rd_element. */
#define RD_BY_ELEMENT(type, ...)            \
    do {                                    \
        if ((type) == RD_FLOAT32) {         \
            using T = float;                \
            RD_TRY_OR_RETURN(__VA_ARGS__);  \
        } else if ((type) == RD_BFLOAT16) { \
            using T = rd_bf16;              \
            RD_TRY_OR_RETURN(__VA_ARGS__);  \
        } else {                            \
            using T = rd_f16;               \
            RD_TRY_OR_RETURN(__VA_ARGS__);  \
        }                                   \
    } while (0)

#endif
