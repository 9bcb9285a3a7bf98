/* subword.c -- the calls of all subword schemes, words and characters. */
#include "rd/file.h"
#include "rd/hash.h"
#include "rd/printable.h"
#include "scratch_dir.h"
#include "subword_lines.h"
#include "test.h"

#define BYTES(s) (s), sizeof(s) - 1
#define BLOCK "\xE2\x96\x81"

/* joined: NULL: the line itself. */
static struct row {
    const char *name, *kind, *line;
    size_t n;
    const char *pieces, *joined;
} rows[] = {
    {"words", "none", BYTES("a  b c "), "a b c", "a b c"},
    {"words: other spaces stay inside", "none", BYTES("a\xC2\xA0z\tb c"), "a\xC2\xA0z\tb c", NULL},
    {"words: none", "none", BYTES("   "), "", ""},
    {"words: bytes that are not UTF-8", "none", BYTES("a\xFF b"), "a\xFF b", "a\xEF\xBF\xBD b"},
    {"words: a cut character is one U+FFFD", "none", BYTES("\xF0\x9F\x98 \xE2\x82\xE2\x82\xAC"),
     "\xF0\x9F\x98 \xE2\x82\xE2\x82\xAC", "\xEF\xBF\xBD \xEF\xBF\xBD\xE2\x82\xAC"},
    {"characters", "char", BYTES("na\xC3\xAFve \xF0\x9F\x98\x80"),
     "n a \xC3\xAF v e " BLOCK " \xF0\x9F\x98\x80", NULL},
    {"characters: nothing", "char", BYTES(""), "", NULL},
    {"characters: spaces stay", "char", BYTES(" a  "), BLOCK " a " BLOCK " " BLOCK, NULL},
    {"characters: escapes", "char", BYTES("\n\r\t\\n\0" BLOCK), "\\n \\r \\t \\ n \\0 \\" BLOCK,
     NULL},
    {"characters: bytes that are not UTF-8", "char", BYTES("a\xC3(\xED\xA0\x80"),
     "a \\xc3 ( \\xed \\xa0 \\x80", "a\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
};

static void check_row(void **state)
{
    const struct row *r = *state;
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf b = {0};
    must_do(rd_subword_open(r->kind, NULL, &s, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    assert_string_equal(segmented(s, w, r->line, r->n, &b), r->pieces);
    same_after_join(s, w, r->line, r->n, r->joined ? r->joined : r->line,
                    r->joined ? strlen(r->joined) : r->n);
    assert_int_equal(rd_subword_size(s), 0);
    assert_int_equal(rd_subword_find(s, "a", 1), -1);
    assert_string_equal(rd_subword_kind(s), r->kind);
    rd_strbuf_release(&b);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

/* All strings of up to two bytes, and long ones of random bytes: what is valid UTF-8 comes back. */
static void test_char_is_total(void **state)
{
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_strbuf pieces = {0}, text = {0};
    int n_valid = 0;
    (void)state;
    must_do(rd_subword_open("char", NULL, &s, &st), &st);
    rd_subword_scratch *w = NULL;
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    for (int i = 0; i < 65536 + 256 + 10000; i++) {
        char line[64];
        size_t n = i < 65536 ? 2 : i < 65536 + 256 ? 1 : 0;
        line[0] = (char)i;
        line[1] = (char)(i >> 8);
        if (n == 0) {
            n = 3 + (size_t)(i % 60);
            for (size_t k = 0; k < n; k++) line[k] = (char)(rd_splitmix64((uint64_t)i * 64 + k));
        }
        rd_strbuf_reset(&pieces);
        rd_strbuf_reset(&text);
        rd_subword_segment(s, w, line, n, &pieces);
        rd_subword_join(s, pieces.s, pieces.n, &text);
        assert_true(rd_utf8_valid(text.s, text.n));
        assert_true(rd_utf8_valid(pieces.s, pieces.n));
        assert_null(memchr(pieces.s, '\n', pieces.n));
        if (!rd_utf8_valid(line, n)) continue;
        n_valid++;
        assert_int_equal(text.n, n);
        assert_memory_equal(text.s, line, n);
    }
    assert_true(n_valid > 128 * 128 + 1920);
    rd_strbuf_release(&pieces);
    rd_strbuf_release(&text);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

/* "abracadabra \xE2\x82\xAC" LF "Cab\t" LF and a broken byte. */
static const char text[] = "abracadabra \xE2\x82\xAC\nCab\t\n\xFF" BLOCK "\n";

static void test_char_model(void **state)
{
    char path[800], other[800], *file;
    size_t n;
    rd_status st = {0};
    rd_subword *s = NULL, *again = NULL;
    rd_subword_scratch *w = NULL;
    rd_subword_ids ids = {0};
    rd_strbuf b = {0};
    (void)state;
    (void)snprintf(path, sizeof path, "%s", in_dir("chars"));
    (void)snprintf(other, sizeof other, "%s", in_dir("again"));
    must_do(train_text("char", text, sizeof text - 1, (rd_subword_training){0}, path, &st), &st);
    must_do(rd_file_read(path, RD_EDATA, &file, &n, &st), &st);
    assert_string_equal(file, "#run_dist characters 1\n\\t\n\\n\n" BLOCK
                              "\nC\na\nb\nc\nd\nr\n\xE2\x82\xAC\n\\" BLOCK "\n\\xff\n");
    free(file);
    must_do(rd_subword_open("char", path, &s, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    assert_int_equal(rd_subword_size(s), 12);
    rd_subword_encode(s, w, BYTES("ab \xE2\x82\xAC\n\tz\xFF"), &ids);
    const int32_t want[] = {4, 5, 2, 9, 1, 0, -1, 11};
    assert_int_equal(ids.n, 8);
    assert_memory_equal(ids.at, want, sizeof want);
    for (int32_t id = 0; id < 12; id++) {
        rd_strbuf_reset(&b);
        rd_subword_piece(s, id, &b);
        assert_int_equal(rd_subword_find(s, b.s, b.n), id);
    }
    rd_strbuf_reset(&b);
    rd_subword_piece(s, 12, &b);
    rd_subword_piece(s, -1, &b);
    assert_int_equal(b.n, 0);
    assert_int_equal(rd_subword_find(s, BYTES("ab")), -1);
    assert_int_equal(rd_subword_find(s, BYTES("")), -1);
    must_do(rd_subword_write(s, other, &st), &st);
    must_do(rd_subword_open("char", other, &again, &st), &st);
    assert_true(rd_subword_hash(s) == rd_subword_hash(again));
    rd_subword_free(again);
    /* The two most frequent characters (LF ends three lines), then those that occur three times. */
    must_do(train_text("char", text, sizeof text - 1, (rd_subword_training){.size = 2}, other, &st),
            &st);
    must_do(rd_file_read(other, RD_EDATA, &file, &n, &st), &st);
    assert_string_equal(file, "#run_dist characters 1\n\\n\na\n");
    free(file);
    must_do(train_text("char", text, sizeof text - 1, (rd_subword_training){.min_count = 3}, other,
                       &st),
            &st);
    must_do(rd_subword_open("char", other, &again, &st), &st);
    assert_int_equal(rd_subword_size(again), 3);
    assert_true(rd_subword_hash(s) != rd_subword_hash(again));
    rd_subword_free(again);
    free(ids.at);
    rd_strbuf_release(&b);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

/* Models that are none: the bytes of the file, and what the message says. */
static const struct bad {
    const char *name, *bytes;
    size_t n;
    const char *message;
} bad[] = {
    {"char: an empty file", BYTES(""), "is no list of characters"},
    {"char: another file", BYTES("a\nb\n"), "does not begin with '#run_dist characters 1'"},
    {"char: no character", BYTES("#run_dist characters 1\n"), "has no character"},
    {"char: two characters", BYTES("#run_dist characters 1\na\nbc\n"), ":3: not one character"},
    {"char: an empty line", BYTES("#run_dist characters 1\na\n\nb\n"), ":3: not one character"},
    {"char: not escaped", BYTES("#run_dist characters 1\na\n\t\n"), ":3: not one character"},
    {"char: not UTF-8", BYTES("#run_dist characters 1\na\n\xFF\n"), ":3: not one character"},
    {"char: an escape of nothing", BYTES("#run_dist characters 1\n\\q\n"), ":2: not one character"},
    {"char: an upper-case escape", BYTES("#run_dist characters 1\n\\xFF\n"), ":2: not one"},
    {"char: an escape of UTF-8", BYTES("#run_dist characters 1\n\\x41\n"), ":2: not one"},
    {"char: twice", BYTES("#run_dist characters 1\na\na\n"), ":3: the characters are not sorted"},
    {"char: not sorted", BYTES("#run_dist characters 1\nb\na\n"), ":3: the characters are not"},
    {"char: any order, twice", BYTES("#run_dist characters 2\nb\na\nb\n"),
     ":4: the character of line 2 again"},
    {"char: version 3", BYTES("#run_dist characters 3\na\n"), "does not begin with"},
    {"bpe: an empty file", BYTES(""), "is empty"},
    {"bpe: another file", BYTES("a b\n"), "does not begin with '#version: 0.2'"},
    {"bpe: version 0.1", BYTES("#version: 0.1\na b\n"), "does not begin with '#version: 0.2'"},
    {"bpe: one symbol", BYTES("#version: 0.2\na b\nab\n"), ":3: not two symbols"},
    {"bpe: three symbols", BYTES("#version: 0.2\na b c\n"), ":2: not two symbols"},
    {"bpe: two spaces", BYTES("#version: 0.2\na  b\n"), ":2: not two symbols"},
    {"bpe: an empty line", BYTES("#version: 0.2\n\na b\n"), ":2: not two symbols"},
    {"bpe: no left symbol", BYTES("#version: 0.2\n b\n"), ":2: not two symbols"},
    {"bpe: not UTF-8", BYTES("#version: 0.2\na b\nc \xFF\n"), ":3: invalid UTF-8"},
};

static void check_bad(void **state)
{
    const struct bad *r = *state;
    char kind[32];
    const char *path = in_dir("bad");
    rd_status st = {0};
    rd_subword *s = NULL;
    const int n_kind = (int)(strchr(r->name, ':') - r->name);
    (void)snprintf(kind, sizeof kind, "%.*s", n_kind, r->name);
    must_do(rd_file_write_atomic(path, r->bytes, r->n, &st), &st);
    assert_int_equal(rd_subword_open(kind, path, &s, &st), RD_EDATA);
    assert_null(s);
    if (!strstr(st.msg, r->message) || !strstr(st.msg, path))
        fail_msg("the message is: %s", st.msg);
}

static void test_refused(void **state)
{
    rd_subword *s = NULL;
    rd_status st = {0};
    (void)state;
    assert_int_equal(rd_subword_open("bytes", NULL, &s, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "no subword scheme is called 'bytes'; there are "));
    st = (rd_status){0};
    assert_int_equal(rd_subword_open("none", "model", &s, &st), RD_EUSAGE);
    st = (rd_status){0};
    assert_int_equal(rd_subword_open("char", "/nonexistent", &s, &st), RD_EDATA);
    st = (rd_status){0};
    assert_int_equal(train_text("none", "a", 1, (rd_subword_training){0}, "/nonexistent", &st),
                     RD_EUSAGE);
    st = (rd_status){0};
    assert_int_equal(train_text("char", "", 0, (rd_subword_training){0}, "/nonexistent", &st),
                     RD_EDATA);
    st = (rd_status){0};
    assert_int_equal(train_text("char", "a", 1, (rd_subword_training){0}, "/nonexistent/x", &st),
                     RD_EENV);
    assert_null(rd_subword_about("bytes"));
    for (int i = 0; rd_subword_kinds[i]; i++)
        assert_non_null(rd_subword_about(rd_subword_kinds[i]));
    assert_false(rd_subword_needs_model("char"));
}

RD_TESTS_WITH("subword", make_dir, remove_dir, TEST(test_char_is_total), TEST_ROWS(check_row, rows),
              TEST_ROWS(check_bad, bad), TEST(test_char_model), TEST(test_refused))
