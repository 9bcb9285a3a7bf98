/* siphash.c -- SipHash-2-4, see siphash.h. */
#include "rd/siphash.h"
#include <string.h>

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t little64(const unsigned char *p)
{
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

static void sip_rounds(uint64_t v[4], int n)
{
    for (int i = 0; i < n; i++) {
        v[0] += v[1];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[0] = rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
}

uint64_t rd_siphash(const unsigned char key[RD_SIPHASH_KEY_BYTES], const void *p, size_t n)
{
    const unsigned char *at = p;
    const uint64_t k0 = little64(key), k1 = little64(key + 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
                     k1 ^ 0x7465646279746573u};
    unsigned char last[8] = {0};
    const size_t whole = n & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) sip_word(v, little64(at + i));
    if (n > whole) memcpy(last, at + whole, n - whole);
    last[7] = (unsigned char)n; /* the last word ends with the length, modulo 256 */
    sip_word(v, little64(last));
    v[2] ^= 0xFF;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
