/* shortlist.c -- lexicon files: what each line may be, and the target words of sentences. */
#include "../../runner/data/data_impl.h"
#include "rd/shortlist.h"
#include "test.h"
#include <string.h>

/* Source words a b c: ids 4 5 6. Target words x y z w: ids 4 5 6 7. */
static void make_vocabs(rd_vocab **source, rd_vocab **target)
{
    rd_status st = {0};
    must_do(rd_vocab_new_mem("source", "a\nb\nc\n", 6, false, source, &st), &st);
    must_do(rd_vocab_new_mem("target", "x\ny\nz\nw\n", 8, false, target, &st), &st);
}

typedef struct row {
    const char *name, *text;
    int64_t k;
    const char *source; /* words of a sentence */
    const char *want;   /* target ids of the sentence, the special ones left out */
    int64_t pairs, unknown;
    const char *error;
} row;

static const row rows[] = {
    {"probabilities", "a\tx\t0.5\nb\ty\t0.25\nb\tz\t1\n", 9, "ab", "456", 3, 0, NULL},
    {"logarithms", "a\tx\t-0.5\nb\ty\t-2\nb\tz\t-1e-3\n", 1, "b", "6", 2, 0, NULL},
    {"0 is a logarithm or a probability", "a\tx\t0\nb\ty\t-2\n", 1, "ab", "45", 2, 0, NULL},
    {"the k best", "a\tx\t0.1\na\ty\t0.3\na\tz\t0.2\na\tw\t0.05\n", 2, "a", "56", 2, 0, NULL},
    {"of equal ones the lower ids", "a\tw\t0.1\na\tz\t0.1\na\ty\t0.1\n", 2, "a", "56", 2, 0, NULL},
    {"a repeated pair counts once", "a\tx\t0.1\na\ty\t0.05\na\tx\t0.3\n", 2, "a", "45", 2, 0, NULL},
    {"a union, ascending", "a\tz\t0.1\nb\tx\t0.1\nc\tz\t0.3\n", 2, "cab", "46", 3, 0, NULL},
    {"other words of the sentence", "a\tz\t0.1\n", 2, "bb", "", 1, 0, NULL},
    {"unknown words", "a\tx\t0.1\nq\tx\t0.1\na\tq\t0.1\n<eps>\tx\t0.2\n", 2, "a", "4", 1, 3, NULL},
    {"empty lines and CR LF", "\na\tx\t0.1\r\n\r\nb\ty\t0.2\r\n", 2, "ab", "45", 2, 0, NULL},
    {"blanks before the number", "a\tx\t  0.1\n", 2, "a", "4", 1, 0, NULL},
    {"two fields", "a\tx\t0.1\na\tx\n", 2, "", "", 0, 0, "lex:2: a lexicon's line is: source word"},
    {"blanks for TABs", "a x 0.1\n", 2, "", "", 0, 0, "lex:1: a lexicon's line is"},
    {"a word for a number", "a\tx\tmany\n", 2, "", "", 0, 0, "lex:1: 'many' is no probability"},
    {"no number", "a\tx\t\n", 2, "", "", 0, 0, "lex:1: a lexicon's line is"},
    {"more than a number", "a\tx\t0.1 2\n", 2, "", "", 0, 0, "lex:1: '0.1 2' is no probability"},
    {"above 1", "a\tx\t1.5\n", 2, "", "", 0, 0, "lex:1: '1.5' is no probability"},
    {"not a number", "a\tx\tnan\n", 2, "", "", 0, 0, "lex:1: 'nan' is no probability"},
    {"infinite", "a\tx\t-inf\n", 2, "", "", 0, 0, "lex:1: '-inf' is no probability"},
    {"a fourth field", "a\tx\t0.1\t3\n", 2, "", "", 0, 0, "is no probability"},
    {"both kinds", "a\tx\t0.5\nb\ty\t-1\n", 2, "", "", 0, 0,
     "lex:2: a logarithm, but line 1 has a probability"},
    {"both kinds, the other order", "a\tx\t-1\nb\ty\t0\nb\ty\t0.5\n", 2, "", "", 0, 0,
     "lex:3: a probability, but line 1 has a logarithm"},
    {"no known word", "q\tx\t0.1\n", 2, "", "", 0, 0,
     "'lex' has no pair of words of the two vocabularies, but 1 others"},
    {"nothing", "", 2, "", "", 0, 0, "'lex' has no pair of words"},
    {"invalid UTF-8", "a\tx\t0.1\na\xff\tx\t0.1\n", 2, "", "", 0, 0, "lex:2:2: invalid UTF-8"},
};

static void test_rows(void **state)
{
    const row *r = *state;
    rd_status st = {0};
    rd_vocab *source, *target;
    rd_shortlist *s = NULL;
    make_vocabs(&source, &target);
    (void)rd_shortlist_new_mem("lex", r->text, strlen(r->text), source, target, r->k, &s, &st);
    if (r->error) {
        assert_int_equal(st.code, RD_EDATA);
        assert_null(s);
        if (!strstr(st.msg, r->error)) fail_msg("'%s' is not in: %s", r->error, st.msg);
    } else {
        rd_arena *a;
        int64_t *at, off[3] = {0, 1, (int64_t)strlen(r->source) + 1};
        int32_t *id, src[8] = {99}; /* a sentence of a token that no vocabulary has comes first */
        must(&st);
        assert_int_equal(rd_shortlist_pairs(s), r->pairs);
        assert_int_equal(rd_shortlist_unknown(s), r->unknown);
        for (size_t i = 0; r->source[i]; i++) src[i + 1] = 4 + r->source[i] - 'a';
        must_do(rd_arena_new(4096, &a, &st), &st);
        must_do(rd_shortlist_sets(s, 2, src, off, a, &at, &id, &st), &st);
        assert_int_equal(at[0], 0);
        assert_int_equal(at[1], RD_N_SPECIAL);
        assert_int_equal(at[2] - at[1], RD_N_SPECIAL + (int64_t)strlen(r->want));
        for (int64_t k = 0; k < at[2] - at[1]; k++)
            assert_int_equal(id[at[1] + k], k < RD_N_SPECIAL ? k : r->want[k - RD_N_SPECIAL] - '0');
        rd_arena_free(a);
    }
    rd_shortlist_free(s);
    rd_vocab_free(source);
    rd_vocab_free(target);
}

static void test_files(void **state)
{
    rd_status st = {0};
    rd_vocab *source, *target;
    rd_shortlist *s;
    (void)state;
    make_vocabs(&source, &target);
    assert_int_equal(rd_shortlist_new("/nowhere/lex", source, target, 2, &s, &st), RD_EDATA);
    assert_null(s);
    assert_non_null(strstr(st.msg, "/nowhere/lex"));
    rd_vocab_free(source);
    rd_vocab_free(target);
}

RD_TESTS("shortlist", TEST_ROWS(test_rows, rows), TEST(test_files))
