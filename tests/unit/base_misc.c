/* base_misc.c -- crc32c against RFC 3720 (appendix B.4), byte strings, clocks. */
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/strbuf.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

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

static void test_clock(void **state)
{
    (void)state;
    struct timespec from, to;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &from), 0);
    const int64_t a = rd_now_ns();
    const struct timespec nap = {.tv_nsec = 20000000};
    nanosleep(&nap, NULL);
    const int64_t d = rd_now_ns() - a;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &to), 0);
    assert_true(d >= 20000000 &&
                d <= (to.tv_sec - from.tv_sec) * INT64_C(1000000000) + to.tv_nsec - from.tv_nsec);
    const double before = (double)time(NULL), w = rd_wall_s();
    assert_true(w > before - 1.5 && w < (double)time(NULL) + 1.5);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_crc32c),
        cmocka_unit_test(test_strbuf),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests_name("base_misc", t, NULL, NULL) != 0;
}
