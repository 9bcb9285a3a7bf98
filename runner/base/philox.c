/* philox.c -- counter-based random numbers, see philox.h.
 *
 * The function exists in two forms: one block at a time, and LANES blocks at a time. The second
 * keeps equal words side by side in arrays, which the compiler turns into vector code. It makes the
 * dropout masks, and so runs for every element of every layer with dropout in every step. */
#include "rd/philox.h"
#include "rd/hash.h"
#include <math.h>
#include <string.h>
#if defined(__AVX512BW__) && defined(__BMI2__)
#include <immintrin.h>
#endif

enum { LANES = 16, ROUNDS = 10 };

/* The paper's multipliers for 4x32. */
static const uint32_t mul0 = 0xD2511F53u, mul1 = 0xCD9E8D57u;
/* The key schedule: golden ratio, and sqrt(3) - 1. */
static const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "rd_philox_keep packs flags in little-endian order");

rd_key rd_key_make(uint64_t seed, uint32_t purpose, uint64_t a, uint64_t b)
{
    const uint64_t h = rd_hash_numbers(seed, purpose, a, b);
    return (rd_key){.k = {(uint32_t)h, (uint32_t)(h >> 32)}};
}

void rd_philox(const uint32_t ctr[4], rd_key key, uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key.k[0], k1 = key.k[1];
    for (int r = 0; r < ROUNDS; r++) {
        const uint64_t p0 = (uint64_t)mul0 * c0, p1 = (uint64_t)mul1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += weyl0;
        k1 += weyl1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

typedef struct lanes {
    uint32_t w[4][LANES]; /* w[j][i]: word j of block i */
} lanes;

/* Replaces the counters in *x by random words. The simd pragma keeps gcc from unrolling these short
 * loops before it vectorises them. With AVX2 an element of a mask takes 1.0 ns with the pragma and
 * 2.3 ns without. */
static inline void philox_lanes(lanes *restrict x, rd_key key)
{
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int r = 0; r < ROUNDS; r++) {
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            const uint64_t p0 = (uint64_t)mul0 * x->w[0][i], p1 = (uint64_t)mul1 * x->w[2][i];
            x->w[0][i] = (uint32_t)(p1 >> 32) ^ x->w[1][i] ^ k0;
            x->w[2][i] = (uint32_t)(p0 >> 32) ^ x->w[3][i] ^ k1;
            x->w[1][i] = (uint32_t)p1;
            x->w[3][i] = (uint32_t)p0;
        }
        k0 += weyl0;
        k1 += weyl1;
    }
}

void rd_philox_uniform(rd_key key, uint64_t hi, int64_t n, float *out)
{
    const uint32_t h0 = (uint32_t)hi, h1 = (uint32_t)(hi >> 32);
    for (int64_t at = 0; at < n; at += 4 * LANES) {
        lanes x;
        float u[4 * LANES];
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            const uint64_t block = (uint64_t)at / 4 + (uint64_t)i;
            x.w[0][i] = h0;
            x.w[1][i] = h1;
            x.w[2][i] = (uint32_t)block;
            x.w[3][i] = (uint32_t)(block >> 32);
        }
        philox_lanes(&x, key);
        for (int i = 0; i < LANES; i++)
            for (int j = 0; j < 4; j++) u[4 * i + j] = (float)(x.w[j][i] >> 8) * 0x1p-24f;
        const int64_t left = n - at;
        memcpy(out + at, u, sizeof(float) * (size_t)(left < 4 * LANES ? left : 4 * LANES));
    }
}

/* An element with the 16 bits b is kept if b < limit: all at p = 1, none at p = 0 or NaN. */
static uint32_t keep_limit(float p)
{
    return p >= 1.0f ? 65536u : p > 0.0f ? (uint32_t)lrintf(p * 65536.0f) : 0u;
}

void rd_philox_keep(rd_key key, uint64_t sample, uint32_t t, float p, int64_t n, uint8_t *keep)
{
    const uint32_t s0 = (uint32_t)sample, s1 = (uint32_t)(sample >> 32);
    rd_assert(n >= 0);
    const uint32_t limit = keep_limit(p);
    for (int64_t at = 0; at < n; at += 8 * LANES) {
        lanes x;
        uint32_t flags[2 * LANES]; /* one byte per element; block i: flags[2i], flags[2i + 1] */
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            x.w[0][i] = s0;
            x.w[1][i] = s1;
            x.w[2][i] = t;
            x.w[3][i] = (uint32_t)(at / 8) + (uint32_t)i;
        }
        philox_lanes(&x, key);
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            for (int j = 0; j < 2; j++) {
                const uint32_t a = x.w[2 * j][i], b = x.w[2 * j + 1][i];
                flags[2 * i + j] = (uint32_t)((a & 0xFFFFu) < limit) |
                                   (uint32_t)((a >> 16) < limit) << 8 |
                                   (uint32_t)((b & 0xFFFFu) < limit) << 16 |
                                   (uint32_t)((b >> 16) < limit) << 24;
            }
        }
        const int64_t left = n - at;
        if (left >= 8 * LANES)
            memcpy(keep + at, flags, 8 * LANES);
        else
            memcpy(keep + at, flags, (size_t)left);
    }
}

/* Where the next LANES blocks are: lane i has block[i] of row[i]. */
typedef struct bit_walk {
    uint64_t row[LANES], block[LANES], at[LANES]; /* at: the byte of the block's bits */
    int64_t rows, per_row, ld;
} bit_walk;

/* Lanes behind the last row compute blocks that nobody reads. */
static bit_walk bits_begin(int64_t rows, int64_t per_row, int64_t ld)
{
    bit_walk w = {.rows = rows, .per_row = per_row, .ld = ld};
    uint64_t row = 0, block = 0;
    for (int i = 0; i < LANES; i++) {
        w.row[i] = row;
        w.block[i] = block;
        w.at[i] = row * (uint64_t)ld + block;
        if (++block == (uint64_t)per_row) block = 0, row++;
    }
    return w;
}

static void bits_next(bit_walk *restrict w)
{
    const uint64_t n = (uint64_t)w->per_row, down = (uint64_t)(LANES / w->per_row),
                   on = (uint64_t)(LANES % w->per_row), ld = (uint64_t)w->ld;
#pragma omp simd
    for (int i = 0; i < LANES; i++) {
        const uint64_t block = w->block[i] + on, wraps = block >= n;
        w->block[i] = block - (wraps ? n : 0);
        w->row[i] += down + wraps;
        w->at[i] = w->row[i] * ld + w->block[i];
    }
}

/* Stores one byte for each lane. */
static void bits_store(const bit_walk *w, const uint8_t *flags, uint8_t *bits)
{
    if (w->block[0] + LANES <= (uint64_t)w->per_row) { /* all lanes have the same row */
        memcpy(bits + w->at[0], flags, LANES);
        return;
    }
    for (int i = 0; i < LANES && w->row[i] < (uint64_t)w->rows; i++) bits[w->at[i]] = flags[i];
}

/* flags[i]: the bits of lane i; most: the largest 16 bits that are kept. */
static inline void bits_draw(rd_key key, uint64_t sample, uint32_t t0, const bit_walk *w,
                             uint32_t most, uint8_t *flags)
{
#if defined(__AVX512BW__) && defined(__BMI2__)
    /* Each 64-bit lane holds a word in its lower half; the upper half has no meaning. */
    enum { WIDE = 8, GROUPS = LANES / WIDE };
    const __m512i m0 = _mm512_set1_epi64(mul0), m1 = _mm512_set1_epi64(mul1),
                  limit = _mm512_set1_epi16((short)most);
    __m512i x[4][GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        x[0][g] = _mm512_set1_epi64((long long)sample);
        x[1][g] = _mm512_set1_epi64((long long)(sample >> 32));
        x[2][g] = _mm512_add_epi64(_mm512_loadu_si512(w->row + g * WIDE), _mm512_set1_epi64(t0));
        x[3][g] = _mm512_loadu_si512(w->block + g * WIDE);
    }
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int r = 0; r < ROUNDS; r++) {
        const __m512i a = _mm512_set1_epi64(k0), b = _mm512_set1_epi64(k1);
        for (int g = 0; g < GROUPS; g++) {
            const __m512i p0 = _mm512_mul_epu32(m0, x[0][g]), p1 = _mm512_mul_epu32(m1, x[2][g]);
            x[0][g] = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), x[1][g]), a);
            x[2][g] = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), x[3][g]), b);
            x[1][g] = p1;
            x[3][g] = p0;
        }
        k0 += weyl0;
        k1 += weyl1;
    }
    for (int g = 0; g < GROUPS; g++) {
        const __m512i lo = _mm512_mask_blend_epi32(0xaaaa, x[0][g], _mm512_slli_epi64(x[1][g], 32)),
                      hi = _mm512_mask_blend_epi32(0xaaaa, x[2][g], _mm512_slli_epi64(x[3][g], 32));
        const uint64_t f =
            _pdep_u64(_mm512_cmple_epu16_mask(lo, limit), UINT64_C(0x0f0f0f0f0f0f0f0f)) |
            _pdep_u64(_mm512_cmple_epu16_mask(hi, limit), UINT64_C(0xf0f0f0f0f0f0f0f0));
        memcpy(flags + g * WIDE, &f, sizeof f);
    }
#else
    lanes x;
    uint32_t wide[LANES];
    for (int i = 0; i < LANES; i++) {
        x.w[0][i] = (uint32_t)sample;
        x.w[1][i] = (uint32_t)(sample >> 32);
        x.w[2][i] = t0 + (uint32_t)w->row[i];
        x.w[3][i] = (uint32_t)w->block[i];
    }
    philox_lanes(&x, key);
#pragma omp simd
    for (int i = 0; i < LANES; i++) {
        uint32_t f = 0;
        for (int j = 0; j < 4; j++)
            f |= (uint32_t)((x.w[j][i] & 0xFFFFu) <= most) << 2 * j |
                 (uint32_t)((x.w[j][i] >> 16) <= most) << (2 * j + 1);
        wide[i] = f;
    }
    for (int i = 0; i < LANES; i++) flags[i] = (uint8_t)wide[i];
#endif
}

void rd_philox_keep_bits(rd_key key, uint64_t sample, uint32_t t0, int64_t rows, float p, int64_t n,
                         uint8_t *bits, int64_t ld)
{
    const uint32_t limit = keep_limit(p);
    const int64_t per_row = (n + 7) / 8;
    rd_assert(n >= 0 && rows >= 0 && ld >= per_row);
    if (per_row == 0) return;
    bit_walk w = bits_begin(rows, per_row, ld);
    for (; w.row[0] < (uint64_t)rows; bits_next(&w)) {
        uint8_t flags[LANES] = {0};
        if (limit > 0) bits_draw(key, sample, t0, &w, limit - 1, flags);
        bits_store(&w, flags, bits);
    }
}

/* A number is split into a left part of l bits and a right part of r bits; l + r is the width
 * of n - 1. Each round changes one part by a hash of the other. For any hash that is a
 * permutation of 0 .. 2^(l+r) - 1. A result outside 0..n-1 goes through the rounds again, less
 * than twice on average. */
uint64_t rd_permute(rd_key key, uint64_t n, uint64_t i)
{
    if (n < 2) return 0;
    rd_assert(i < n);
    const int bits = 64 - __builtin_clzll(n - 1), l = bits / 2, r = bits - l;
    /* r is at most 32. */
    const uint64_t lmask = ((uint64_t)1 << l) - 1, rmask = ((uint64_t)1 << r) - 1;
    const uint64_t k = (uint64_t)key.k[1] << 32 | key.k[0];
    const uint64_t n_rounds = bits < 10 ? 24 : 8; /* parts of one or two bits mix slowly */
    uint64_t x = i;
    do {
        uint64_t left = x >> r, right = x & rmask;
        for (uint64_t round = 0; round < n_rounds; round += 2) {
            left ^= rd_mix64(right + k + round * RD_GOLDEN64) & lmask;
            right ^= rd_mix64((left ^ ~k) + (round + 1) * RD_GOLDEN64) & rmask;
        }
        x = left << r | right;
    } while (x >= n);
    return x;
}
