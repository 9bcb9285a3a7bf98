/* numbers_emulated.cc -- numbers of 16 bits on the host, for builds without a GPU. */
#include "device_emulated.h"
#include <math.h>
#include <string.h>

extern "C" {

float rd_emulated_bfloat16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        u = (u | 0x400000u) & 0xffff0000u; /* NaN stays NaN */
    else
        u = (u + 0x7fffu + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

float rd_emulated_float16(float x)
{
    const float size = __builtin_fabsf(x);
    if (!(size < __builtin_inff())) return x;
    if (size >= 65520.0f) return __builtin_copysignf(__builtin_inff(), x);
    /* Adding a number whose last bit is the last bit of float16 here rounds to float16. */
    int e;
    __builtin_frexpf(size, &e);
    const float big = __builtin_ldexpf(1.5f, (e < -13 ? -13 : e) + 12);
    volatile float sum = size + big;
    return __builtin_copysignf(sum - big, x);
}

float rd_emulated_get(rd_element type, const void *p, int64_t i)
{
    if (type == RD_FLOAT32) return ((const float *)p)[i];
    const uint16_t h = ((const uint16_t *)p)[i];
    if (type == RD_BFLOAT16) {
        const uint32_t u = (uint32_t)h << 16;
        float x;
        memcpy(&x, &u, sizeof x);
        return x;
    }
    const int e = h >> 10 & 31, m = h & 1023;
    const float size = e == 31 ? (m ? NAN : INFINITY)
                       : e     ? ldexpf((float)(1024 + m), e - 25)
                               : ldexpf((float)m, -24);
    return h & 0x8000 ? -size : size;
}

void rd_emulated_put(rd_element type, void *p, int64_t i, float x)
{
    if (type == RD_FLOAT32) {
        ((float *)p)[i] = x;
        return;
    }
    const float r = type == RD_BFLOAT16 ? rd_emulated_bfloat16(x) : rd_emulated_float16(x);
    uint32_t u;
    uint16_t h;
    memcpy(&u, &r, sizeof u);
    if (type == RD_BFLOAT16) {
        h = (uint16_t)(u >> 16);
    } else {
        int e;
        const float f = frexpf(fabsf(r), &e); /* in [1/2, 1) */
        if (isnan(r))
            h = 0x7e00;
        else if (isinf(r))
            h = 0x7c00;
        else if (r == 0.0f)
            h = 0;
        else if (e < -13)
            h = (uint16_t)ldexpf(fabsf(r), 24);
        else
            h = (uint16_t)((e + 14) << 10 | ((int)(f * 2048.0f) - 1024));
        h = (uint16_t)(h | (signbit(r) ? 0x8000 : 0));
    }
    ((uint16_t *)p)[i] = h;
}

} // extern "C"
