/* hash.c -- the hashes against published test vectors and, where they are the project's own,
 * against values that tests/support/make_hash_golden.py computed. Checkpoints and agreements
 * between ranks hold hashes: a value that changes is an error, even if the new hash is as good. */
#include "rd/hash.h"
#include "rd/philox.h"
#include "test.h"
#include "hash_golden.inc"

enum { SAMPLE_BYTES = 100 };

static void hash_sample(unsigned char p[SAMPLE_BYTES])
{
    for (int k = 0; k < SAMPLE_BYTES; k++) p[k] = (unsigned char)(37 * k + 11);
}

/* The authors' test vectors (test_fnv.c, FNV-1a of 64 bits), without the closing NUL. */
static void test_fnv(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {
        {"", 0xcbf29ce484222325u},   {"a", 0xaf63dc4c8601ec8cu},   {"b", 0xaf63df4c8601f1a5u},
        {"fo", 0x08985907b541d342u}, {"foo", 0xdcb27518fed9d577u}, {"foobar", 0x85944171f73967e8u},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        assert_true(rd_fnv(RD_FNV_START, cases[k].text, strlen(cases[k].text)) == cases[k].want);
}

static void test_fnv_continues(void **state)
{
    (void)state;
    unsigned char p[SAMPLE_BYTES];
    hash_sample(p);
    const uint64_t whole = rd_fnv(RD_FNV_START, p, SAMPLE_BYTES);
    for (size_t n = 0; n <= SAMPLE_BYTES; n++) {
        const uint64_t first = rd_fnv(RD_FNV_START, p, n);
        assert_true(rd_fnv(first, p + n, SAMPLE_BYTES - n) == whole);
    }
    assert_true(rd_fnv_step(RD_FNV_START, 'a') == rd_fnv(RD_FNV_START, "a", 1));
}

static void test_fnv_mix(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof mix_cases / sizeof *mix_cases; k++)
        assert_true(rd_fnv_mix(mix_cases[k].h, mix_cases[k].number, mix_cases[k].shift) ==
                    mix_cases[k].want);
}

/* The reference generator's first numbers from seed 1234567. */
static void test_splitmix64(void **state)
{
    (void)state;
    static const uint64_t want[] = {6457827717110365317u, 3203168211198807973u,
                                    9817491932198370423u, 4593380528125082431u,
                                    16408922859458223821u};
    uint64_t x = 1234567;
    for (size_t k = 0; k < sizeof want / sizeof *want; k++, x += RD_GOLDEN64) {
        assert_true(rd_splitmix64(x) == want[k]);
        assert_true(rd_mix64(x + RD_GOLDEN64) == want[k]);
    }
    assert_true(rd_mix64(0) == 0);
}

static void test_numbers(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof numbers_cases / sizeof *numbers_cases; k++) {
        const uint64_t *n = numbers_cases[k].number, want = numbers_cases[k].want;
        assert_true(rd_hash_numbers(n[0], n[1], n[2], n[3]) == want);
        if (n[1] > UINT32_MAX) continue; /* a purpose has 32 bits */
        const rd_key key = rd_key_make(n[0], (uint32_t)n[1], n[2], n[3]);
        assert_true(((uint64_t)key.k[1] << 32 | key.k[0]) == want);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    unsigned char p[SAMPLE_BYTES + 1];
    for (int odd = 0; odd < 2; odd++) { /* the address need not be aligned */
        hash_sample(p + odd);
        for (size_t k = 0; k < sizeof bytes_cases / sizeof *bytes_cases; k++)
            assert_true(rd_hash(bytes_cases[k].seed, p + odd, bytes_cases[k].n) ==
                        bytes_cases[k].want);
    }
    assert_true(rd_hash(7, NULL, 0) == rd_hash(7, p, 0));
}

RD_TESTS("hash", TEST(test_fnv), TEST(test_fnv_continues), TEST(test_fnv_mix),
         TEST(test_splitmix64), TEST(test_numbers), TEST(test_bytes))
