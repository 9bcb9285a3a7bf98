/* cross_wire.c -- numbers as they travel between hosts: float32, or rounded to 16 bits, to nearest,
 * ties to even.
 *
 * bfloat16 has the range of float32. float16 ends at 65504. Larger finite numbers become 65504: a
 * gradient that is cut off is a clipped gradient, while infinity would skip the step. An infinity
 * or NaN stays, and skips the step.
 *
 * The loops have no branches, so that the compiler makes vector code. For float16 it does not find
 * the CPU's own instructions, which give the same bytes, so this file calls them. */
#include "cross_wire.h"
#if defined __AVX2__ && defined __F16C__
#include <immintrin.h>
#endif
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint16_t to_bf16(float x)
{
    const uint32_t u = bits_of(x), rounded = u + 0x7fffu + (u >> 16 & 1u);
    return (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : rounded) >> 16);
}

static float from_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

static uint16_t to_f16(float x)
{
    const uint32_t all = bits_of(x), u = all & 0x7fffffffu;
    const uint32_t normal = (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13;
    /* Adding 0.5 rounds a number below 2^-14 to a multiple of 2^-24, which is
     * float16's smallest number. */
    const uint32_t tiny = bits_of(float_of(u) + 0.5f) - 0x3f000000u;
    uint32_t h = u < 0x38800000u ? tiny : normal;
    h = u >= 0x477fe000u ? 0x7bffu : h;
    h = u == 0x7f800000u ? 0x7c00u : h;
    h = u > 0x7f800000u ? 0x7e00u : h;
    return (uint16_t)(h | (all >> 16 & 0x8000u));
}

static float from_f16(uint16_t h)
{
    const uint32_t low = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t normal = (low << 13) + 0x38000000u, special = (low << 13) + 0x70000000u;
    const uint32_t tiny = bits_of((float)low * 0x1p-24f);
    uint32_t u = low < 0x400u ? tiny : normal;
    u = low >= 0x7c00u ? special : u;
    return float_of(u | sign);
}

#if defined __AVX2__ && defined __F16C__
enum { LANES = 8 };

static __m128i lanes_to_f16(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), infinite = _mm256_set1_ps(__builtin_inff());
    const __m256 u = _mm256_andnot_ps(sign, x);
    const __m256 most = _mm256_min_ps(u, _mm256_set1_ps(65504.0f));
    const __m256 finite = _mm256_cmp_ps(u, infinite, _CMP_LT_OQ),
                 none = _mm256_cmp_ps(u, u, _CMP_UNORD_Q);
    __m256 y = _mm256_blendv_ps(u, most, finite);
    y = _mm256_blendv_ps(y, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), none);
    return _mm256_cvtps_ph(_mm256_or_ps(y, _mm256_and_ps(sign, x)), _MM_FROUND_TO_NEAREST_INT);
}

/* The functions below convert the numbers in whole vectors of LANES, and
 * return how many that are. */
static int64_t narrow_lanes(const float *x, int64_t n, uint16_t *h)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm_storeu_si128((__m128i *)(void *)(h + i), lanes_to_f16(_mm256_loadu_ps(x + i)));
    return i;
}

static int64_t widen_lanes(const uint16_t *h, int64_t n, float *x)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(x + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(h + i))));
    return i;
}

static int64_t round_lanes(float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(lanes_to_f16(_mm256_loadu_ps(x + i))));
    return i;
}
#else
static int64_t narrow_lanes(const float *x, int64_t n, uint16_t *h)
{
    return (void)x, (void)n, (void)h, 0;
}
static int64_t widen_lanes(const uint16_t *h, int64_t n, float *x)
{
    return (void)x, (void)n, (void)h, 0;
}
static int64_t round_lanes(float *x, int64_t n)
{
    return (void)x, (void)n, 0;
}
#endif

size_t rd_wire_bytes(rd_wire w)
{
    return w == RD_WIRE_F32 ? 4 : 2;
}

void rd_wire_narrow(rd_wire w, const float *restrict x, int64_t n, void *restrict out)
{
    uint16_t *restrict h = out;
    if (w == RD_WIRE_F32)
        memcpy(out, x, (size_t)n * sizeof *x);
    else if (w == RD_WIRE_BF16)
        for (int64_t i = 0; i < n; i++) h[i] = to_bf16(x[i]);
    else
        for (int64_t i = narrow_lanes(x, n, h); i < n; i++) h[i] = to_f16(x[i]);
}

void rd_wire_widen(rd_wire w, const void *restrict in, int64_t n, float *restrict x)
{
    const uint16_t *restrict h = in;
    if (w == RD_WIRE_F32)
        memcpy(x, in, (size_t)n * sizeof *x);
    else if (w == RD_WIRE_BF16)
        for (int64_t i = 0; i < n; i++) x[i] = from_bf16(h[i]);
    else
        for (int64_t i = widen_lanes(h, n, x); i < n; i++) x[i] = from_f16(h[i]);
}

void rd_wire_round(rd_wire w, float *x, int64_t n)
{
    if (w == RD_WIRE_BF16)
        for (int64_t i = 0; i < n; i++) x[i] = from_bf16(to_bf16(x[i]));
    else if (w == RD_WIRE_F16)
        for (int64_t i = round_lanes(x, n); i < n; i++) x[i] = from_f16(to_f16(x[i]));
}
