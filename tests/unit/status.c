/* status.c -- the first failure wins, and no message leaves half a character. */
#include "rd/status.h"
#include "test.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void test_first_wins(void **state)
{
    (void)state;
    rd_status st = {0};
    assert_int_equal(rd_fail(&st, RD_EDATA, "line %d of '%s'", 7, "x"), RD_EDATA);
    assert_int_equal(rd_fail(&st, RD_EBUG, "later"), RD_EDATA);
    assert_int_equal(st.code, RD_EDATA);
    assert_string_equal(st.msg, "line 7 of 'x'");
    assert_non_null(strstr(st.where, "status.c:"));
    assert_null(strchr(st.where, '/'));
}

static void test_prefix(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_status_prefix(&st, "unused");
    assert_string_equal(st.msg, "");
    rd_fail(&st, RD_EUSAGE, "wrong type");
    rd_status_prefix(&st, "%s:%d", "c.json", 3);
    assert_string_equal(st.msg, "c.json:3: wrong type");
}

static void test_cut_at_character(void **state)
{
    (void)state;
    const char *const chars[] = {"a", "\xC3\xA9", "\xE2\x82\xAC",
                                 "\xF0\x9F\x98\x80"}; /* 1 to 4 bytes */
    for (size_t w = 1; w <= 4; w++) {
        for (size_t shift = 0; shift < w; shift++) {
            char text[3000] = "";
            rd_status st = {0};
            size_t n = 0;
            for (; n < shift; n++) text[n] = '-';
            for (; n < 2000; n += w) memcpy(text + n, chars[w - 1], w);
            rd_fail(&st, RD_EDATA, "%s", text);
            const size_t len = strlen(st.msg);
            assert_true(len < RD_MSG_BYTES && len + 2 * w + 1 > RD_MSG_BYTES);
            assert_int_equal((len - shift) % w, 0);
            assert_memory_equal(st.msg, text, len);
        }
    }
}

static void run_try(rd_status *st, int *reached)
{
    *reached = 1;
    RD_TRY(rd_fail(st, RD_EENV, "stop"));
    *reached = 2;
done:
    *reached += 10;
}

static void test_try(void **state)
{
    (void)state;
    rd_status st = {0};
    int reached;
    run_try(&st, &reached);
    assert_int_equal(reached, 11);
}

static void assert_two(void *times)
{
    const bool two = ++*(int *)times == 2;
    rd_assert(two);
}

static void assert_counts(void *times)
{
    rd_assert(++*(int *)times > 0);
}

/* An assertion ends the program in builds that have it, and is not evaluated in the others. */
static void test_assert(void **state)
{
    (void)state;
    char said[1024];
    int times = 0;
    assert_counts(&times);
#ifdef RD_DEBUG
    assert_int_equal(times, 1);
    assert_two(&times);
    times = 7;
    assert_int_equal(run_in_child(assert_two, &times, said, sizeof said), SIGABRT);
    assert_non_null(strstr(said, "an invariant does not hold: two;"));
#else
    assert_int_equal(times, 0);
    assert_int_equal(run_in_child(assert_two, &times, said, sizeof said), 0);
    assert_string_equal(said, "");
#endif
}

RD_TESTS("status", TEST(test_first_wins), TEST(test_prefix), TEST(test_cut_at_character),
         TEST(test_try), TEST(test_assert))
