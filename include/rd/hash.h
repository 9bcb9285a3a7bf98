/* hash.h -- the hashes of the program, each once: FNV-1a, SplitMix64, and a hash of bytes in the
 * manner of wyhash.
 *
 * None of them resists an attacker. Their values are part of file formats: checkpoints,
 * fingerprints of data and the agreement between ranks hold them. A change of a value makes old
 * files unreadable, so tests/unit/hash.c holds them against published test vectors and an
 * independent program.
 *
 * Which one to take: rd_hash for bytes, rd_hash_numbers for a few numbers, rd_fnv for a short
 * text. */
#ifndef RD_HASH_H
#define RD_HASH_H

#include "rd/status.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

RD_C_BEGIN

/* ---- FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv) ---- */

#define RD_FNV_START UINT64_C(14695981039346656037) /* the hash of nothing */
#define RD_FNV_PRIME UINT64_C(1099511628211)

/* Returns the hash of n bytes behind those that gave h. Begin with RD_FNV_START. */
uint64_t rd_fnv(uint64_t h, const void *p, size_t n);

/* Returns the hash with one more number: FNV-1a's step, with a number in the place of a byte. */
static inline uint64_t rd_fnv_step(uint64_t h, uint64_t number)
{
    return (h ^ number) * RD_FNV_PRIME;
}

/* Does the same, and then h ^= h >> shift. The product carries a change upwards only; the shift
 * brings it down to the low bits, which the next step and the slots of a table depend on. */
static inline uint64_t rd_fnv_mix(uint64_t h, uint64_t number, int shift)
{
    h = rd_fnv_step(h, number);
    return h ^ h >> shift;
}

/* ---- SplitMix64 (Steele, Lea, Flood 2014) ---- */

#define RD_GOLDEN64 UINT64_C(0x9E3779B97F4A7C15) /* 2^64 / golden ratio: SplitMix64's increment */

/* Returns a number in which every bit depends on every bit of z: a permutation of all 64-bit
 * numbers. 0 stays 0. */
static inline uint64_t rd_mix64(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Returns what the generator SplitMix64 puts out in state x. Its next state is x + RD_GOLDEN64. */
static inline uint64_t rd_splitmix64(uint64_t x)
{
    return rd_mix64(x + RD_GOLDEN64);
}

/* Returns a hash of four numbers, in this order: rd_splitmix64 of the first, then of each next one
 * ^ the hash so far. */
uint64_t rd_hash_numbers(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* ---- bytes: folded products of 64 x 64 bits, as in wyhash (Wang Yi); own steps ---- */

#define RD_WY0 UINT64_C(0xa0761d6478bd642f) /* the first three of wyhash's secret numbers */
#define RD_WY1 UINT64_C(0xe7037ed1a0b428db)
#define RD_WY2 UINT64_C(0x8ebc6af09c88c6e3)

/* Returns a hash of n bytes: the inner loop of the program's tables. A different seed gives an
 * independent hash. */
uint64_t rd_hash(uint64_t seed, const void *bytes, size_t n);

#ifndef __CUDACC__ /* older versions of nvcc have no __int128 */
/* Returns the upper half of a * b xor its lower half. */
static inline uint64_t rd_fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    const wide m = (wide)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}
#endif

/* Returns the 8 bytes at p, which need not be aligned. */
static inline uint64_t rd_load64(const void *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Returns the 4 bytes at p, which need not be aligned. */
static inline uint32_t rd_load32(const void *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

RD_C_END
#endif
