/* base_misc.c -- crc32c against RFC 3720 (appendix B.4), byte strings, clocks. */
#include "rd/clock.h"
#include "rd/cpu_needs.h"
#include "rd/file.h"
#include "rd/strbuf.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef uint32_t crc_fn(uint32_t crc, const void *p, size_t n);

static void check_crc(crc_fn *crc)
{
    unsigned char b[32];
    assert_int_equal(crc(0, "", 0), 0);
    assert_int_equal(crc(0, "123456789", 9), 0xE3069283);
    memset(b, 0, sizeof b);
    assert_int_equal(crc(0, b, 32), 0x8A9136AA);
    memset(b, 255, sizeof b);
    assert_int_equal(crc(0, b, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++) b[i] = (unsigned char)i;
    assert_int_equal(crc(0, b, 32), 0x46DD794E);
    for (int i = 0; i < 32; i++) b[i] = (unsigned char)(31 - i);
    assert_int_equal(crc(0, b, 32), 0x113FDB5C);
    for (size_t cut = 0; cut <= 32; cut++)
        assert_int_equal(crc(crc(0, b, cut), b + cut, 32 - cut), 0x113FDB5C);
}

/* This program runs here, so its CPU lacks nothing. */
static void test_cpu_needs(void **state)
{
    (void)state;
    assert_null(rd_cpu_lacks(NULL));
    assert_null(rd_cpu_lacks("a feature that no build needs"));
#ifdef __AVX2__
    assert_string_equal(rd_cpu_lacks("AVX2"), "AVX2");
#endif
#ifdef __AVX512F__
    assert_string_equal(rd_cpu_lacks("AVX-512F"), "AVX-512F");
#endif
}

static void test_crc32c(void **state)
{
    (void)state;
    check_crc(rd_crc32c);
    check_crc(rd_crc32c_table);
    unsigned char b[300];
    for (int i = 0; i < 300; i++) b[i] = (unsigned char)(i * 151 >> 2);
    for (size_t from = 0; from < 9; from++)
        for (size_t n = 0; n + from < 300; n++)
            assert_int_equal(rd_crc32c((uint32_t)n, b + from, n),
                             rd_crc32c_table((uint32_t)n, b + from, n));
}

static void test_strbuf(void **state)
{
    (void)state;
    rd_strbuf b = {0};
    assert_string_equal(rd_strbuf_str(&b), "");
    rd_strbuf_add(&b, NULL, 0);
    rd_strbuf_puts(&b, "ab");
    rd_strbuf_add(&b, "c\0d", 3);
    assert_int_equal(b.n, 5);
    assert_memory_equal(b.s, "abc\0d", 6);
    rd_strbuf_reset(&b);
    assert_string_equal(rd_strbuf_str(&b), "");
    char want[4000] = "";
    for (int i = 0; i < 500; i++) {
        rd_strbuf_printf(&b, "%d,", i);
        char one[16];
        snprintf(one, sizeof one, "%d,", i);
        strcat(want, one);
        assert_true(b.cap > b.n);
    }
    assert_string_equal(rd_strbuf_str(&b), want);
    assert_int_equal(b.n, strlen(want));
    assert_false(b.failed);
    rd_strbuf_add(&b, want, SIZE_MAX - 10); /* cannot be; sticks */
    assert_true(b.failed);
    rd_strbuf_puts(&b, "dropped");
    assert_string_equal(rd_strbuf_str(&b), want);
    rd_strbuf_reset(&b);
    assert_false(b.failed);
    rd_strbuf_release(&b);
    rd_strbuf_release(&b);
    assert_null(b.s);
}

static void test_utc_text(void **state)
{
    (void)state;
    char text[24] = "before", small[8] = "before";
    rd_utc_text(1e9 + 0.9, text, sizeof text);
    assert_string_equal(text, "2001-09-09T01:46:40Z");
    rd_utc_text(NAN, text, sizeof text);
    assert_string_equal(text, "");
    rd_utc_text(1e9, small, sizeof small);
    assert_string_equal(small, "");
}

static int64_t monotonic_ns(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void test_clock(void **state)
{
    (void)state;
    const int64_t before_a = monotonic_ns(), a = rd_now_ns(), after_a = monotonic_ns();
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    const int64_t before_b = monotonic_ns(), b = rd_now_ns(), after_b = monotonic_ns();
    assert_true(b - a >= before_b - after_a && b - a <= after_b - before_a);
    const double before = (double)time(NULL), w = rd_wall_s();
    assert_true(w > before - 1.5 && w < (double)time(NULL) + 1.5);
}

RD_TESTS("base_misc", TEST(test_cpu_needs), TEST(test_crc32c), TEST(test_strbuf),
         TEST(test_utc_text), TEST(test_clock))
