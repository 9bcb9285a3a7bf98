/* subword_bpe.c -- byte pair encoding as subword-nmt has it: codes and pieces are the same byte for
 * byte. The files of tests/unit/bpe and tests/unit/subword are subword-nmt's
 * (tests/support/make_subword_golden.py). Merging is compared with a plain program for random
 * merges, too. */
#include "../../runner/text/merge.h"
#include "rd/file.h"
#include "rd/hash.h"
#include "scratch_dir.h"
#include "subword_lines.h"
#include "test.h"
#include <time.h>

static char *file_text(const char *path, size_t *n)
{
    rd_status st = {0};
    char *text = NULL;
    must_do(rd_file_read(path, RD_EDATA, &text, n, &st), &st);
    return text;
}

static const struct golden {
    const char *name, *text, *codes, *pieces;
    int64_t n_merges;
    const char *vocab, *glossaries; /* NULL: none */
} golden[] = {
    {"words", "tests/unit/bpe/text.txt", "tests/unit/bpe/codes.txt", "tests/unit/bpe/pieces.txt",
     120, NULL, NULL},
    {"odd text", "tests/unit/subword/odd.txt", "tests/unit/subword/odd.codes",
     "tests/unit/subword/odd.pieces", 150, NULL, NULL},
};

static const struct golden limited[] = {
    {"a vocabulary of pieces", "tests/unit/subword/odd.txt", "tests/unit/subword/odd.codes",
     "tests/unit/subword/odd.limited", 150, "tests/unit/subword/odd.vocab", NULL},
    {"glossaries", "tests/unit/subword/odd.txt", "tests/unit/subword/odd.codes",
     "tests/unit/subword/odd.glossed", 150, NULL, "tests/unit/subword/odd.glossaries"},
    {"both", "tests/unit/subword/odd.txt", "tests/unit/subword/odd.codes",
     "tests/unit/subword/odd.both", 150, "tests/unit/subword/odd.vocab",
     "tests/unit/subword/odd.glossaries"},
    {"a piece that two merges make", "tests/unit/subword/twice.txt",
     "tests/unit/subword/twice.codes", "tests/unit/subword/twice.both", 6,
     "tests/unit/subword/twice.vocab", "tests/unit/subword/twice.glossaries"},
};

static void check_learned(void **state)
{
    const struct golden *g = *state;
    rd_status st = {0};
    rd_strbuf codes = {0};
    size_t n, n_want;
    char *text = file_text(g->text, &n), *want = file_text(g->codes, &n_want);
    text_lines t = {text, n};
    const rd_subword_lines lines = {&t, text_lines_next, 0};
    const rd_subword_training how = {.size = g->n_merges};
    must_do(rd_subword_train_to("bpe", &lines, &how, &codes, &st), &st);
    assert_string_equal(rd_strbuf_str(&codes), want);
    rd_strbuf_release(&codes);
    free(text);
    free(want);
}

/* Strips what subword-nmt leaves outside of the pieces. */
static size_t inner(const char **line, size_t n)
{
    while (n > 0 && memchr(" \r\n", (*line)[n - 1], 3)) n--;
    while (n > 0 && memchr(" \r\n", **line, 3)) {
        ++*line;
        n--;
    }
    return n;
}

/* Deletes all but one of several spaces. Returns the new length. */
static size_t single_spaces(const char *s, size_t n, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' || (i > 0 && s[i - 1] != ' ')) out[m++] = s[i];
    return m;
}

static void limit(rd_subword *s, const struct golden *g)
{
    rd_status st = {0};
    rd_subword_limits l = {0};
    const uint64_t before = rd_subword_hash(s);
    char *pieces = g->vocab ? file_text(g->vocab, &l.n_pieces) : NULL,
         *glossaries = g->glossaries ? file_text(g->glossaries, &l.n_glossaries) : NULL;
    l.pieces = pieces;
    l.glossaries = glossaries;
    must_do(rd_subword_limit(s, &l, &st), &st);
    assert_true(rd_subword_hash(s) != before);
    free(pieces);
    free(glossaries);
}

static void check_segmented(void **state)
{
    const struct golden *g = *state;
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf b = {0};
    size_t n, n_want;
    char *text = file_text(g->text, &n), *pieces = file_text(g->pieces, &n_want), plain[4096];
    must_do(rd_subword_open("bpe", g->codes, &s, &st), &st);
    if (g->vocab || g->glossaries) limit(s, g);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    for (int again = 0; again < 2; again++) { /* then from the cache */
        text_lines t = {text, n}, p = {pieces, n_want};
        int n_lines = 0;
        for (const char *line, *want; text_lines_next(&t, &line, &n, &st) == RD_OK && line;) {
            size_t n_line = n;
            (void)text_lines_next(&p, &want, &n, &st);
            size_t n_pieces = inner(&want, n);
            const char *got = segmented(s, w, line, n_line, &b);
            assert_int_equal(strlen(got), n_pieces);
            assert_memory_equal(got, want, n_pieces);
            n_line = inner(&line, n_line);
            /* A text that has the mark itself does not come back. */
            if (!memmem(line, n_line, "@@", 2)) {
                assert_true(n_line < sizeof plain);
                same_after_join(s, w, line, n_line, plain, single_spaces(line, n_line, plain));
            }
            n_lines++;
        }
        assert_true(n_lines > 30 && p.left == 0);
        n = (size_t)(t.at - text);
    }
    assert_int_equal(rd_subword_size(s), 0);
    rd_strbuf_release(&b);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
    free(text);
    free(pieces);
}

/* Lines may end in CR LF, and there may be empty ones. */
static void test_limits_lines(void **state)
{
    static const char pieces[] = "l@@ 3\r\n\r\no@@ 3\r\nw 3", patterns[] = "\r\nwi\r\n\n\r\nde";
    const rd_subword_limits l = {pieces, sizeof pieces - 1, patterns, sizeof patterns - 1};
    rd_status st = {0};
    rd_subword *s;
    rd_subword_scratch *w;
    rd_strbuf b = {0};
    (void)state;
    must_do(rd_subword_open("bpe", golden[0].codes, &s, &st), &st);
    must_do(rd_subword_limit(s, &l, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    assert_string_equal(segmented(s, w, "low wide wi de", 14, &b), "l@@ o@@ w wi@@ de wi de");
    rd_strbuf_release(&b);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

/* Limits that are wrong, and schemes that have none. */
static void test_limits_refused(void **state)
{
    static const struct {
        const char *pieces, *glossaries, *message;
        rd_code code;
    } row[] = {
        {"a\n", "", "a line of the pieces is not 'piece count'", RD_EDATA},
        {" 3\n", "", "a line of the pieces is not 'piece count'", RD_EDATA},
        {"", "a(b\n", "the glossary 'a(b' is no regular expression: missing closing", RD_EUSAGE},
        {"", "ab\na(b)\n", "the glossary 'a(b)' has a group that captures", RD_EUSAGE},
        {"", "x*\n", "the glossary 'x*' matches an empty text", RD_EUSAGE},
    };
    rd_subword *s;
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        rd_status st = {0};
        const rd_subword_limits l = {row[i].pieces, strlen(row[i].pieces), row[i].glossaries,
                                     strlen(row[i].glossaries)};
        must_do(rd_subword_open("bpe", golden[0].codes, &s, &st), &st);
        assert_int_equal(rd_subword_limit(s, &l, &st), row[i].code);
        if (!strstr(st.msg, row[i].message)) fail_msg("%s", st.msg);
        rd_subword_free(s);
    }
    rd_status st = {0};
    must_do(rd_subword_open("char", NULL, &s, &st), &st);
    assert_int_equal(rd_subword_limit(s, &(rd_subword_limits){.n_pieces = 0}, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "subword 'char' has no limits of pieces and no glossaries"));
    rd_subword_free(s);
}

static void test_papers_example(void **state)
{
    static const char text[] = "low low low low low lower lower newest newest newest newest newest "
                               "newest widest widest widest\n";
    rd_status st = {0};
    rd_strbuf codes = {0};
    text_lines t = {text, sizeof text - 1};
    const rd_subword_lines lines = {&t, text_lines_next, 0};
    (void)state;
    must_do(rd_subword_train_to("bpe", &lines, &(rd_subword_training){.size = 10}, &codes, &st),
            &st);
    assert_string_equal(rd_strbuf_str(&codes),
                        "#version: 0.2\ns t</w>\ne st</w>\nl o\nw est</w>\nn e\nne west</w>\n"
                        "lo w</w>\nw i\nwi d\nwid est</w>\n");
    rd_strbuf_release(&codes);
}

static void test_join(void **state)
{
    static const struct {
        const char *pieces, *text;
    } row[] = {{"a@@ b c@@ d@@ e", "ab cde"},
               {"a@@", "a"},
               {"@@", ""},
               {"a@@@ b", "a@b"},
               {"a@@b @@ c", "a@@b c"},
               {"<unk>@@ b", "<unk>b"},
               {"", ""}};
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_strbuf b = {0};
    (void)state;
    must_do(rd_subword_open("bpe", "tests/unit/bpe/codes.txt", &s, &st), &st);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        rd_strbuf_reset(&b);
        rd_subword_join(s, row[i].pieces, strlen(row[i].pieces), &b);
        assert_string_equal(rd_strbuf_str(&b), row[i].text);
    }
    rd_strbuf_release(&b);
    rd_subword_free(s);
}

/* Every string of up to two bytes, and random ones, has pieces whose bytes are the string's. */
static void test_bytes(void **state)
{
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf b = {0};
    (void)state;
    must_do(rd_subword_open("bpe", "tests/unit/subword/odd.codes", &s, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    for (int i = 0; i < 65536 + 256 + 2000; i++) {
        char line[200], plain[200];
        size_t n = i < 65536 ? 2 : i < 65536 + 256 ? 1 : 3 + (size_t)(i % 190);
        line[0] = (char)i;
        line[1] = (char)(i >> 8);
        for (size_t k = 0; n > 2 && k < n; k++)
            line[k] = (char)(rd_splitmix64((uint64_t)i * 256 + k) % 5
                                 ? 'a' + rd_splitmix64((uint64_t)i + k * 7) % 3
                                 : rd_splitmix64(k + (uint64_t)i));
        rd_strbuf_reset(&b);
        rd_subword_segment(s, w, line, n, &b);
        const char *in = line;
        n = inner(&in, n);
        const size_t m = single_spaces(in, n, plain);
        size_t k = 0;
        for (size_t j = 0; j < b.n; j++) {
            if (j + 2 < b.n && memcmp(b.s + j, "@@ ", 3) == 0) {
                j += 2;
                continue;
            }
            assert_true(k < m && b.s[j] == plain[k]);
            k++;
        }
        assert_int_equal(k, m);
    }
    rd_strbuf_release(&b);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

/* ---- merging, against the definition ---- */

enum { SYMBOLS = 5, MOST = 400 };

static int32_t rank_now(const rd_merges *m, const int32_t *s, size_t n, size_t i)
{
    const rd_merge *f = i + 1 < n ? rd_merges_find(m, s[i], s[i + 1]) : NULL;
    return f ? f->rank : INT32_MAX;
}

/* Merges as the definition has it. Returns the new length. */
static size_t merge_plainly(const rd_merges *m, int32_t *s, uint32_t *end, size_t n)
{
    for (;;) {
        size_t best = 0, k = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (rank_now(m, s, n, i) < rank_now(m, s, n, best)) best = i;
        if (rank_now(m, s, n, best) == INT32_MAX) return n;
        const int32_t left = s[best], right = s[best + 1];
        const int32_t to = rd_merges_find(m, left, right)->to;
        for (size_t i = 0; i < n; i++, k++) {
            const bool here = i + 1 < n && s[i] == left && s[i + 1] == right &&
                              (m->whole_pair || i == best);
            s[k] = here ? to : s[i];
            end[k] = here ? end[i + 1] : end[i];
            i += here;
        }
        n = k;
    }
}

static void check_merging(bool whole_pair)
{
    int64_t n_merged = 0, n_words = 0;
    for (uint64_t round = 0; round < 300; round++) {
        rd_merges m = {.whole_pair = whole_pair};
        /* Any pair of symbols, in any order of ranks: a merge may make a pair of lower rank. */
        int32_t n_symbols = SYMBOLS;
        for (uint64_t k = 0; k < 30; k++, n_symbols++) {
            const uint64_t x = rd_splitmix64(round * 1000 + k);
            const uint64_t of = (uint64_t)(k < 15 ? SYMBOLS : n_symbols);
            assert_true(rd_merges_add(&m, (int32_t)(x % of), (int32_t)((x >> 20) % of), n_symbols,
                                      (int32_t)(x >> 40 & 0xFFFFF) * 32 + (int32_t)k));
        }
        rd_merge_word w = {0};
        for (uint64_t k = 0; k < 20; k++) {
            int32_t want[MOST];
            uint32_t end[MOST];
            size_t n = 1 + rd_splitmix64(round * 77 + k) % (k < 10 ? 64 : MOST - 1);
            assert_true(rd_merge_room(&w, n));
            for (size_t i = 0; i < n; i++) {
                want[i] = (int32_t)(rd_splitmix64(k * MOST + i + round) % SYMBOLS);
                if (want[i] == SYMBOLS - 1 && i % 3 == 0) want[i] = -1; /* has no merge */
                w.symbol[i] = want[i];
                w.end[i] = end[i] = (uint32_t)i + 1;
            }
            w.n = n;
            const size_t m_want = merge_plainly(&m, want, end, n);
            assert_true(rd_merge_apply(&m, &w));
            assert_int_equal(w.n, m_want);
            assert_memory_equal(w.symbol, want, m_want * sizeof *want);
            assert_memory_equal(w.end, end, m_want * sizeof *end);
            n_merged += (int64_t)(n - m_want);
            n_words++;
        }
        rd_merge_release(&w);
        rd_merges_release(&m);
    }
    assert_true(n_merged > 20 * n_words);
}

static void test_merging_pairs(void **state)
{
    (void)state;
    check_merging(true);
}

static void test_merging_places(void **state)
{
    (void)state;
    check_merging(false);
}

/* A word of a megabyte: no time of order n squared. */
static void test_long_word(void **state)
{
    enum { LONG = 1 << 20 };
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf b = {0};
    (void)state;
    static const char codes[] = "#version: 0.2\na a\naa aa\naaaa aaaa\n";
    must_do(rd_file_write_atomic(in_dir("codes"), codes, sizeof codes - 1, &st), &st);
    must_do(rd_subword_open("bpe", in_dir("codes"), &s, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    char *line = malloc(LONG);
    assert_non_null(line);
    memset(line, 'a', LONG);
    const clock_t start = clock();
    rd_subword_segment(s, w, line, LONG, &b);
    /* The last "a" is "a</w>", which has no merge. */
    assert_int_equal(b.n, LONG + (LONG / 8 - 1 + 3) * 3);
    assert_string_equal(b.s + b.n - 33, "aaaaaaaa@@ aaaaaaaa@@ aaaa@@ aa@@ a@@ a" + 6);
    if (counts_seconds()) assert_true(clock() - start < CLOCKS_PER_SEC);
    rd_strbuf_release(&b);
    free(line);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

RD_TESTS_WITH("subword_bpe", make_dir, remove_dir, TEST_ROWS(check_learned, golden),
              TEST_ROWS(check_segmented, golden), TEST_ROWS(check_segmented, limited),
              TEST(test_limits_lines), TEST(test_limits_refused), TEST(test_papers_example),
              TEST(test_join), TEST(test_bytes), TEST(test_merging_pairs),
              TEST(test_merging_places), TEST(test_long_word))
