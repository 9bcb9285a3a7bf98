/* hash.c -- hashes of bytes and numbers: see hash.h. */
#include "rd/hash.h"

uint64_t rd_fnv(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) h = rd_fnv_step(h, b[i]);
    return h;
}

uint64_t rd_hash_numbers(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t h = rd_splitmix64(a);
    h = rd_splitmix64(h ^ b);
    h = rd_splitmix64(h ^ c);
    return rd_splitmix64(h ^ d);
}

uint64_t rd_hash(uint64_t seed, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = seed ^ (n * RD_GOLDEN64), a = 0, b = 0;
    size_t left = n;
    for (; left > 16; left -= 16, p += 16) h = rd_fold(rd_load64(p) ^ RD_WY0, rd_load64(p + 8) ^ h);
    if (left >= 8) {
        a = rd_load64(p);
        b = rd_load64(p + left - 8);
    } else if (left >= 4) {
        a = rd_load32(p);
        b = rd_load32(p + left - 4);
    } else if (left > 0) {
        a = ((uint64_t)p[0] << 16) | ((uint64_t)p[left / 2] << 8) | p[left - 1];
    }
    return rd_fold(rd_fold(a ^ RD_WY1, b ^ h), RD_WY2 ^ n);
}
