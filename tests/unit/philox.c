/* philox.c -- tests the generator against the known answers of its authors (Random123,
 * tests/kat_vectors), its vector forms against the single block, and the permutation. */
#include "rd/philox.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct kat {
    const char *name;
    uint32_t ctr[4], key[2], want[4];
} kats[] = {
    {"zeros", {0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {"ones", {~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {"digits of pi",
     {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void test_known_answer(void **state)
{
    const struct kat *k = *state;
    uint32_t out[4];
    rd_philox(k->ctr, (rd_key){.k = {k->key[0], k->key[1]}}, out);
    for (int i = 0; i < 4; i++) assert_int_equal(out[i], k->want[i]);
}

/* Lengths around the width of the vector form (16 blocks: 128 flags, 64 numbers). */
static const int64_t lengths[] = {0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 1000, 4099};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static void test_keep_equals_single_blocks(void **state)
{
    (void)state;
    const float ps[] = {0.0f, 0.2f, 0.5f, 0.8f, 1.0f};
    const rd_key key = rd_key_make(7, RD_RNG_DROPOUT, 3, 11);
    const uint64_t sample = 0x123456789abcdef0u;
    uint8_t keep[4200];
    for (int l = 0; l < N_LENGTHS; l++) {
        for (int j = 0; j < 5; j++) {
            const int64_t n = lengths[l];
            memset(keep, 77, sizeof keep);
            rd_philox_keep(key, sample, 5, ps[j], n, keep);
            for (int64_t i = 0; i < n; i++) {
                uint32_t out[4];
                rd_philox((uint32_t[4]){(uint32_t)sample, (uint32_t)(sample >> 32), 5,
                                        (uint32_t)(i / 8)},
                          key, out);
                const uint32_t bits = out[i % 8 / 2] >> (i % 2 * 16) & 0xFFFF;
                assert_int_equal(keep[i], bits < lrintf(ps[j] * 65536.0f));
            }
            assert_int_equal(keep[n], 77); /* nothing behind the end */
        }
    }
}

static void test_uniform_equals_single_blocks(void **state)
{
    (void)state;
    const rd_key key = rd_key_make(7, RD_RNG_INIT, 1, 2);
    const uint64_t hi = 0xfedcba9876543210u;
    float u[4200];
    for (int l = 0; l < N_LENGTHS; l++) {
        const int64_t n = lengths[l];
        u[n] = -1.0f;
        rd_philox_uniform(key, hi, n, u);
        for (int64_t i = 0; i < n; i++) {
            uint32_t out[4];
            rd_philox((uint32_t[4]){(uint32_t)hi, (uint32_t)(hi >> 32), (uint32_t)(i / 4), 0}, key,
                      out);
            assert_true(u[i] == (float)(out[i % 4] >> 8) / 16777216.0f);
            assert_true(u[i] >= 0.0f && u[i] < 1.0f);
        }
        assert_true(u[n] == -1.0f);
    }
}

static void test_keep_limit(void **state)
{
    (void)state;
    for (uint64_t s = 0; s < 100; s++) {
        for (int i = 0; i < 8; i++) {
            uint32_t out[4];
            uint8_t keep[8];
            const rd_key key = rd_key_make(1, RD_RNG_TEST, s, 0);
            rd_philox((uint32_t[4]){9, 0, 3, 0}, key, out);
            const uint32_t bits = out[i / 2] >> (i % 2 * 16) & 0xFFFF;
            rd_philox_keep(key, 9, 3, (float)bits / 65536.0f, 8, keep);
            assert_int_equal(keep[i], 0);
            rd_philox_keep(key, 9, 3, (float)(bits + 1) / 65536.0f, 8, keep);
            assert_int_equal(keep[i], 1);
        }
    }
}

/* The bits of several rows are those of rd_philox_keep, row by row. */
static void test_keep_bits(void **state)
{
    static const int64_t widths[] = {0, 1, 7, 8, 9, 63, 64, 65, 300}, heights[] = {0, 1, 3, 17};
    static const float probabilities[] = {0.0f, 0.1f, 0.9f, 1.0f, NAN};
    enum { LD = 40, MOST = 17 };
    (void)state;
    for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
        for (size_t h = 0; h < sizeof heights / sizeof *heights; h++)
            for (size_t j = 0; j < sizeof probabilities / sizeof *probabilities; j++) {
                const int64_t n = widths[k], rows = heights[h];
                const uint64_t sample = UINT64_C(0x123456789) + k;
                const rd_key key = rd_key_make(3, RD_RNG_TEST, h, j);
                uint8_t bits[(MOST + 1) * LD], keep[304];
                memset(bits, 77, sizeof bits);
                rd_philox_keep_bits(key, sample, 5, rows, probabilities[j], n, bits, LD);
                for (int64_t r = 0; r < rows; r++) {
                    rd_philox_keep(key, sample, 5 + (uint32_t)r, probabilities[j], n, keep);
                    for (int64_t i = 0; i < n; i++)
                        assert_int_equal(bits[r * LD + i / 8] >> i % 8 & 1, keep[i]);
                    assert_int_equal(bits[r * LD + (n + 7) / 8], 77); /* nothing behind the row */
                }
                assert_int_equal(bits[rows * LD], 77);
            }
}

static void test_keep_rate(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    uint8_t *keep = malloc(N);
    assert_non_null(keep);
    for (int j = 1; j < 10; j++) {
        const double p = j / 10.0;
        rd_philox_keep(rd_key_make((uint64_t)j, RD_RNG_TEST, 0, 0), 1, 2, (float)p, N, keep);
        int64_t kept = 0;
        for (int i = 0; i < N; i++) kept += keep[i];
        assert_true(fabs((double)kept - p * N) <
                    5.0 * sqrt(N * p * (1 - p))); /* five standard deviations */
    }
    rd_philox_keep(rd_key_make(1, RD_RNG_TEST, 0, 0), 1, 2, NAN, 100, keep);
    for (int i = 0; i < 100; i++) assert_int_equal(keep[i], 0);
    free(keep);
}

static void test_keys_differ(void **state)
{
    (void)state;
    const rd_key k[] = {rd_key_make(1, 2, 3, 4), rd_key_make(2, 2, 3, 4), rd_key_make(1, 3, 3, 4),
                        rd_key_make(1, 2, 4, 3), rd_key_make(1, 2, 3, 5), rd_key_make(0, 0, 0, 0),
                        rd_key_make(0, 0, 0, 1)};
    enum { N = sizeof k / sizeof *k };
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) assert_true(k[i].k[0] != k[j].k[0] && k[i].k[1] != k[j].k[1]);
}

static void test_permute(void **state)
{
    (void)state;
    const uint64_t ns[] = {1, 2, 3, 4, 5, 7, 8, 9, 100, 127, 128, 129, 65536, 65537, 300001};
    for (size_t k = 0; k < sizeof ns / sizeof *ns; k++) {
        uint8_t *seen = calloc(ns[k], 1);
        assert_non_null(seen);
        for (uint64_t i = 0; i < ns[k]; i++) {
            const uint64_t j = rd_permute(rd_key_make(5, RD_RNG_ORDER, k, 0), ns[k], i);
            assert_true(j < ns[k]);
            assert_int_equal(seen[j], 0);
            seen[j] = 1;
        }
        free(seen);
    }
    const uint64_t huge[] = {UINT64_MAX, (uint64_t)1 << 63, ((uint64_t)1 << 32) + 1,
                             (uint64_t)1 << 32};
    for (int k = 0; k < 4; k++) /* no number twice among a few */
        for (uint64_t i = 0; i < 50; i++)
            for (uint64_t j = 0; j < i; j++)
                assert_true(rd_permute(rd_key_make(1, 2, 3, 4), huge[k], huge[k] - 1 - i) !=
                            rd_permute(rd_key_make(1, 2, 3, 4), huge[k], huge[k] - 1 - j));
}

/* Over many keys every number gets to every place about equally often: chi squared with (n-1)^2
 * degrees of freedom. */
static void test_permute_is_even(void **state)
{
    (void)state;
    enum { KEYS = 20000, MOST = 13 };
    for (uint64_t n = 2; n <= MOST; n++) {
        int64_t at[MOST][MOST] = {{0}};
        for (uint64_t k = 0; k < KEYS; k++)
            for (uint64_t i = 0; i < n; i++)
                at[i][rd_permute(rd_key_make(k, RD_RNG_ORDER, 0, n), n, i)]++;
        double chi = 0;
        const double want = (double)KEYS / (double)n, free_n = (double)((n - 1) * (n - 1));
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < n; j++)
                chi += ((double)at[i][j] - want) * ((double)at[i][j] - want) / want;
        assert_true(chi < free_n + 5.0 * sqrt(2.0 * free_n) + 10.0);
    }
}

/* Neighbours before are not neighbours after: successive differences look like those of a random
 * order. */
static void test_permute_spreads(void **state)
{
    (void)state;
    const uint64_t n = 100000;
    const rd_key key = rd_key_make(3, RD_RNG_ORDER, 0, 0);
    double sum = 0;
    int close = 0;
    for (uint64_t i = 0; i + 1 < n; i++) {
        const double d = fabs((double)rd_permute(key, n, i + 1) - (double)rd_permute(key, n, i));
        sum += d;
        close += d < 10;
    }
    assert_true(fabs(sum / (double)n / ((double)n / 3.0) - 1.0) <
                0.01);       /* mean distance of two random places: n / 3 */
    assert_true(close < 60); /* 18 expected */
}

RD_TESTS("philox", TEST_ROWS(test_known_answer, kats), TEST(test_keep_equals_single_blocks),
         TEST(test_uniform_equals_single_blocks), TEST(test_keep_limit), TEST(test_keep_bits),
         TEST(test_keep_rate), TEST(test_keys_differ), TEST(test_permute),
         TEST(test_permute_is_even), TEST(test_permute_spreads))
