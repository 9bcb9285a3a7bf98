/* printable.c -- tests which characters may be shown, and what stands for the others. */
#include "rd/printable.h"
#include "test.h"
#include <string.h>

typedef struct row {
    const char *name, *text, *shown;
} row;

static const row rows[] = {
    {"ascii", "name-1 ~\\", "name-1 ~\\"},
    {"letters of other scripts", "\xc3\xa9 \xd7\x90 \xe6\x97\xa5 \xf0\x9f\x98\x80",
     "\xc3\xa9 \xd7\x90 \xe6\x97\xa5 \xf0\x9f\x98\x80"},
    {"newlines and tabs", "a\nb\rc\td", "a\\nb\\rc\\td"},
    {"first and last of C0", "\x01\x1f\x20", "\\u0001\\u001f "},
    {"escape sequence", "\x1b[31m", "\\u001b[31m"},
    {"DEL", "\x7e\x7f", "~\\u007f"},
    {"first and last of C1", "\xc2\x80\xc2\x9f\xc2\xa0", "\\u0080\\u009f\xc2\xa0"},
    {"separators of lines", "\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9", "\xe2\x80\xa7\\u2028\\u2029"},
    {"direction, first range", "\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf",
     "\\u202a\\u202e\xe2\x80\xaf"},
    {"direction, second range", "\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa",
     "\xe2\x81\xa5\\u2066\\u2069\xe2\x81\xaa"},
    {"a byte that begins nothing",
     "a\xff"
     "b",
     "a\\xffb"},
    {"a lone C1 byte",
     "\x9b"
     "2J",
     "\\x9b2J"},
    {"cut characters", "\xc3", "\\xc3"},
    {"a cut character before a letter", "\xe6\x97z", "\\xe6\\x97z"},
    {"an overlong newline", "\xc0\x8a", "\\xc0\\x8a"},
    {"an overlong escape", "\xe0\x80\x9b", "\\xe0\\x80\\x9b"},
    {"a surrogate", "\xed\xa0\x80", "\\xed\\xa0\\x80"},
    {"past the last character", "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
};

static void check_row(void **state)
{
    const row *r = *state;
    char out[200];
    rd_strbuf b = {0}, again = {0};
    rd_printable_add(&b, r->text, strlen(r->text));
    assert_string_equal(rd_strbuf_str(&b), r->shown);
    rd_printable_add(&again, rd_strbuf_str(&b), b.n);
    assert_string_equal(rd_strbuf_str(&again), r->shown);
    assert_string_equal(rd_printable(r->text, strlen(r->text), false, out, sizeof out), r->shown);
    assert_true(rd_utf8_valid(out, strlen(out)));
    rd_strbuf_release(&b);
    rd_strbuf_release(&again);
}

/* A text that does not fit ends before a character or an escape, never inside. */
static void test_cut(void **state)
{
    static const char text[] = "ab\x1b\xe6\x97\xa5z";
    static const char *const want[] = {"",
                                       "a",
                                       "ab",
                                       "ab",
                                       "ab",
                                       "ab",
                                       "ab",
                                       "ab",
                                       "ab\\u001b",
                                       "ab\\u001b",
                                       "ab\\u001b",
                                       "ab\\u001b\xe6\x97\xa5",
                                       "ab\\u001b\xe6\x97\xa5z"};
    (void)state;
    for (size_t cap = 1; cap <= 13; cap++) {
        char out[16];
        memset(out, 'X', sizeof out);
        assert_string_equal(rd_printable(text, strlen(text), false, out, cap), want[cap - 1]);
        assert_int_equal(out[cap], 'X');
    }
}

static void test_bytes_with_nul(void **state)
{
    char out[64];
    (void)state;
    assert_string_equal(rd_printable("a\0b", 3, false, out, sizeof out), "a\\u0000b");
    assert_string_equal(rd_printable("a\nb\x1b", 4, true, out, sizeof out), "a\nb\\u001b");
    assert_int_equal(rd_printable_bytes("", 0), 0);
    assert_int_equal(rd_printable_bytes("\xc3\xa9", 1), 0);
    assert_int_equal(rd_printable_bytes("\xc3\xa9", 2), 2);
}

static void test_cell(void **state)
{
    rd_strbuf b = {0};
    (void)state;
    rd_printable_cell(&b, "a|b\n|\x1b|", 7);
    assert_string_equal(rd_strbuf_str(&b), "a\\|b\\n\\|\\u001b\\|");
    rd_strbuf_release(&b);
}

static void test_csv(void **state)
{
    static const struct {
        const char *text, *lines, *terminal;
    } t[] = {
        {"", "", ""},
        {"loss/train", "loss/train", "loss/train"},
        {"a,b", "\"a,b\"", "\"a,b\""},
        {"say \"hi\"", "\"say \"\"hi\"\"\"", "\"say \"\"hi\"\"\""},
        {"\"", "\"\"\"\"", "\"\"\"\""},
        {"a\nb", "\"a\nb\"", "a\\nb"},
        {"a\r\n,", "\"a\r\n,\"", "\"a\\r\\n,\""},
        {"\x1b[2J", "\\u001b[2J", "\\u001b[2J"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        rd_strbuf a = {0}, b = {0};
        rd_printable_csv(&a, t[i].text, true);
        rd_printable_csv(&b, t[i].text, false);
        assert_string_equal(rd_strbuf_str(&a), t[i].lines);
        assert_string_equal(rd_strbuf_str(&b), t[i].terminal);
        rd_strbuf_release(&a);
        rd_strbuf_release(&b);
    }
}

RD_TESTS("printable", TEST(test_cell), TEST(test_csv), TEST_ROWS(check_row, rows), TEST(test_cut),
         TEST(test_bytes_with_nul))
