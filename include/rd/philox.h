/* philox.h -- counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011, "Parallel random
 * numbers: as easy as 1, 2, 3"). A number is a function of (key, counter). There is no state to
 * save, and the order of drawing does not matter.
 *
 * Every use in the program is keyed by position. The key holds the run's seed and the purpose of
 * the number (RD_RNG_*, a layer, an epoch). The counter holds the sample and the element. */
#ifndef RD_PHILOX_H
#define RD_PHILOX_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef struct rd_key {
    uint32_t k[2];
} rd_key;

enum {
    RD_RNG_INIT = 1,
    RD_RNG_ORDER = 2,
    RD_RNG_DROPOUT = 3,
    RD_RNG_AUGMENT = 4,
    RD_RNG_TEST = 5,
    RD_RNG_SAMPLE = 6
};

/* Returns the key of one stream: a hash (SplitMix64) of the seed, the purpose and two more numbers,
 * for example the site and the epoch. */
rd_key rd_key_make(uint64_t seed, uint32_t purpose, uint64_t a, uint64_t b);

/* Computes out[0..3] = philox4x32-10(ctr, key). Known answers: tests/unit/philox.c, from the
 * authors' kat_vectors. */
void rd_philox(const uint32_t ctr[4], rd_key key, uint32_t out[4]);

/* Writes n numbers to out, uniform in [0, 1) with 24 bits. Element i comes from the block with
 * counter (hi, i / 4). */
void rd_philox_uniform(rd_key key, uint64_t hi, int64_t n, float *out);

/* Draws the mask of inverted dropout for one row of n elements: keep[i] = 1 with probability p, in
 * steps of 1/65536, else 0. Element i comes from 16 bits of the block with counter (low half of
 * sample, high half of sample, t, i / 8). The mask is equal for any number of ranks. */
void rd_philox_keep(rd_key key, uint64_t sample, uint32_t t, float p, int64_t n, uint8_t *keep);

/* Draws the masks of rd_philox_keep for rows t0 .. t0 + rows - 1 of n elements, as bits: element i
 * of row r is bit i % 8 of bits[r * ld + i / 8]. ld: bytes from row to row, at least (n + 7) / 8.
 * Short rows cost no more per element than long ones. */
void rd_philox_keep_bits(rd_key key, uint64_t sample, uint32_t t0, int64_t rows, float p, int64_t n,
                         uint8_t *bits, int64_t ld);

/* Returns the image of i under a keyed permutation of 0..n-1 that needs no memory: a Feistel
 * network with cycle walking (Black and Rogaway 2002). */
uint64_t rd_permute(rd_key key, uint64_t n, uint64_t i);

RD_C_END
#endif
