/* philox_device.h -- the dropout masks of rd/philox.h in kernels, with the same bits. */
#ifndef RD_PHILOX_DEVICE_H
#define RD_PHILOX_DEVICE_H

#include "rd/philox.h"
#include <math.h>

/* Returns the limit for 16-bit draws, like rd_philox_keep: a draw below it keeps the element. Host
 * code. */
static inline uint32_t rd_philox_limit(float p)
{
    return p >= 1.0f ? 65536u : p > 0.0f ? (uint32_t)lrintf(p * 65536.0f) : 0u;
}

/* Computes one block of eight 16-bit draws, for elements 8 block .. 8 block + 7 of the row (sample,
 * t). */
static __device__ inline void rd_philox_block(rd_key key, uint64_t sample, uint32_t t,
                                              uint32_t block, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)sample, c1 = (uint32_t)(sample >> 32), c2 = t, c3 = block,
             k0 = key.k[0], k1 = key.k[1];
    for (int r = 0; r < 10; r++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Returns 1 if element j (0 .. 7) of the block is kept. */
static __device__ inline uint32_t rd_philox_kept(const uint32_t out[4], int j, uint32_t limit)
{
    return (uint32_t)((out[j / 2] >> (j % 2 ? 16 : 0) & 0xFFFFu) < limit);
}

#endif
