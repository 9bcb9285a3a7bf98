/* narrow_device.h -- for kernels: float32 to 16 bits and back.
 *
 * The formulas are those of comm_wire.c, so the numbers equal those of a CPU, bit for bit. */
#ifndef RD_NARROW_DEVICE_H
#define RD_NARROW_DEVICE_H

#include <stdint.h>

static __device__ inline unsigned rd_bf16_of(float x)
{
    const uint32_t u = __float_as_uint(x), rounded = u + 0x7fffu + (u >> 16 & 1u);
    return ((u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : rounded) >> 16;
}

template <bool saturate> static __device__ inline unsigned rd_f16_of(float x)
{
    const uint32_t all = __float_as_uint(x), u = all & 0x7fffffffu;
    const uint32_t normal = (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13;
    /* Adding one half rounds a number below 2^-14 to a multiple of 2^-24, the smallest number of
     * float16. */
    const uint32_t tiny = __float_as_uint(__uint_as_float(u) + 0.5f) - 0x3f000000u;
    uint32_t h = u < 0x38800000u ? tiny : normal;
    if (saturate)
        h = u >= 0x477fe000u ? 0x7bffu : h;
    else
        h = u >= 0x477ff000u ? 0x7c00u : h; /* from 65520 on, infinity is nearer */
    h = u == 0x7f800000u ? 0x7c00u : h;
    h = u > 0x7f800000u ? 0x7e00u : h;
    return h | (all >> 16 & 0x8000u);
}

static __device__ inline float rd_float_of_bf16(unsigned h)
{
    return __uint_as_float(h << 16);
}

static __device__ inline float rd_float_of_f16(unsigned h)
{
    const uint32_t low = h & 0x7fffu, sign = (h & 0x8000u) << 16;
    const uint32_t normal = (low << 13) + 0x38000000u, special = (low << 13) + 0x70000000u;
    const uint32_t tiny = __float_as_uint((float)low * 0x1p-24f);
    uint32_t u = low < 0x400u ? tiny : normal;
    u = low >= 0x7c00u ? special : u;
    return __uint_as_float(u | sign);
}

#endif
