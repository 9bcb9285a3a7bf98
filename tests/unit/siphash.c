/* siphash.c -- tests SipHash-2-4 against the vectors that its authors publish: the key 00 .. 0f and
 * the message 00, 01, 02 ... of each length, bytes in little-endian order. `openssl mac -macopt
 * size:8 -macopt hexkey:000102030405060708090a0b0c0d0e0f SIPHASH` prints the same. */
#include "rd/siphash.h"
#include "test.h"
#include <string.h>

static void test_vectors(void **state)
{
    static const struct {
        size_t n;
        unsigned char hash[8];
    } t[] = {
        {0, {0x31, 0x0E, 0x0E, 0xDD, 0x47, 0xDB, 0x6F, 0x72}},
        {1, {0xFD, 0x67, 0xDC, 0x93, 0xC5, 0x39, 0xF8, 0x74}},
        {7, {0x37, 0xD1, 0x01, 0x8B, 0xF5, 0x00, 0x02, 0xAB}},
        {8, {0x62, 0x24, 0x93, 0x9A, 0x79, 0xF5, 0xF5, 0x93}},
        {15, {0xE5, 0x45, 0xBE, 0x49, 0x61, 0xCA, 0x29, 0xA1}}, /* the paper's example */
        {63, {0x72, 0x45, 0x06, 0xEB, 0x4C, 0x32, 0x8A, 0x95}},
    };
    unsigned char key[16], text[65];
    (void)state;
    for (int i = 0; i < 16; i++) key[i] = (unsigned char)i;
    for (int i = 0; i < 65; i++) text[i] = (unsigned char)(i - 1);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const uint64_t h = rd_siphash(key, text + 1, t[i].n); /* text + 1 is not aligned */
        for (int b = 0; b < 8; b++) assert_int_equal((h >> 8 * b) & 0xFF, t[i].hash[b]);
    }
}

RD_TESTS("siphash", TEST(test_vectors))
