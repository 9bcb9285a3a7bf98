/* crc32c.c -- CRC-32C (Castagnoli, reflected polynomial 0x82F63B78).
 *
 * It uses the CPU's instruction, or a table and one byte at a time. The table is linear in its
 * index, so eight constants give all 256 rows at compile time. */
#include "rd/file.h"
#include <string.h>

#define BIT(n, b, x) ((n) & (b) ? (x) : 0u)
#define ROW(n)                                                                      \
    (BIT(n, 128, 0x82F63B78u) ^ BIT(n, 64, 0x417B1DBCu) ^ BIT(n, 32, 0x20BD8EDEu) ^ \
     BIT(n, 16, 0x105EC76Fu) ^ BIT(n, 8, 0x8AD958CFu) ^ BIT(n, 4, 0xC79A971Fu) ^    \
     BIT(n, 2, 0xE13B70F7u) ^ BIT(n, 1, 0xF26B8303u))
#define ROWS4(n) ROW(n), ROW((n) + 1), ROW((n) + 2), ROW((n) + 3)
#define ROWS16(n) ROWS4(n), ROWS4((n) + 4), ROWS4((n) + 8), ROWS4((n) + 12)
#define ROWS64(n) ROWS16(n), ROWS16((n) + 16), ROWS16((n) + 32), ROWS16((n) + 48)
static const uint32_t table[256] = {ROWS64(0), ROWS64(64), ROWS64(128), ROWS64(192)};

static uint32_t crc32c_by_table(uint32_t c, const unsigned char *p, size_t n)
{
    while (n--) c = c >> 8 ^ table[(c ^ *p++) & 255];
    return c;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(
    uint32_t c, const unsigned char *p, size_t n)
{
    uint64_t c64 = c;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        c64 = _mm_crc32_u64(c64, x);
    }
    c = (uint32_t)c64;
    while (n--) c = _mm_crc32_u8(c, *p++);
    return c;
}
static bool crc32c_has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t crc32c_by_instruction(uint32_t c, const unsigned char *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        c = __crc32cd(c, x);
    }
    while (n--) c = __crc32cb(c, *p++);
    return c;
}
static bool crc32c_has_instruction(void)
{
    return true;
}
#else
static uint32_t crc32c_by_instruction(uint32_t c, const unsigned char *p, size_t n)
{
    return crc32c_by_table(c, p, n);
}
static bool crc32c_has_instruction(void)
{
    return false;
}
#endif

uint32_t rd_crc32c_table(uint32_t crc, const void *p, size_t n)
{
    return ~crc32c_by_table(~crc, p, n);
}

uint32_t rd_crc32c(uint32_t crc, const void *p, size_t n)
{
    return crc32c_has_instruction() ? ~crc32c_by_instruction(~crc, p, n)
                                    : rd_crc32c_table(crc, p, n);
}
