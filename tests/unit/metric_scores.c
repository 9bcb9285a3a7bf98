/* metric_scores.c -- tests BLEU and error rates against other programs (metric_golden.inc lists
 * them), and the tokens that they read. */
#include "../../runner/data/data_impl.h"
#include "../../runner/data/metric_text.h"
#include "test.h"
#include "metric_golden.inc"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static rd_arena *arena;

static rd_tokens tokens(const char *text, bool bpe)
{
    rd_status st = {0};
    rd_tokens t;
    assert_int_equal(rd_tokens_split(text, strlen(text), bpe, arena, &t, &st), RD_OK);
    return t;
}

static void count(const struct golden *g, const rd_metric_def *m, int64_t counts[RD_METRIC_COUNTS])
{
    memset(counts, 0, RD_METRIC_COUNTS * sizeof *counts);
    for (int i = 0; i < g->n; i++) {
        const rd_tokens hyp = tokens(g->pairs[i][0], false), ref = tokens(g->pairs[i][1], false);
        m->add(counts, &hyp, &ref);
    }
}

static void check_bleu(void **state)
{
    const struct golden *g = *state;
    const rd_metric_def *m = rd_metric_find("bleu");
    assert_non_null(m);
    int64_t c[RD_METRIC_COUNTS];
    count(g, m, c);
    rd_figure f[RD_METRIC_FIGURES];
    assert_int_equal(m->figures(c, f), 2);
    assert_string_equal(f[0].name, "BLEU");
    assert_true(f[0].higher_is_better);
    assert_float_equal(f[0].value, g->bleu, 1e-8);
    assert_string_equal(f[1].name, "Eval_BLEU_Score");
    assert_float_equal(f[1].value, g->eval_bleu_score, 1e-9);
    char line[512], want[512], percent[4][32];
    for (int k = 0; k < 4; k++)
        snprintf(percent[k], sizeof percent[k], "%.1f",
                 g->total[k] ? 100.0 * (double)g->match[k] / (double)g->total[k] : 0.0);
    snprintf(want, sizeof want,
             "BLEU = %.2f, %s/%s/%s/%s (BP=%.3f, ratio=%.3f, hyp_len=%lld, ref_len=%lld) "
             "[multi-bleu, tok:none, "
             "smooth:none, case:mixed, refs:1] Eval_BLEU_Score = %.4f",
             g->bleu, percent[0], percent[1], percent[2], percent[3], g->bp,
             g->ref_len ? (double)g->hyp_len / (double)g->ref_len : 0.0, (long long)g->hyp_len,
             (long long)g->ref_len, g->eval_bleu_score);
    m->line(c, line, sizeof line);
    assert_string_equal(line, want);
}

static void check_error_rates(void **state)
{
    const struct golden *g = *state;
    const rd_metric_def *m = rd_metric_find("per_wer");
    assert_non_null(m);
    int64_t c[RD_METRIC_COUNTS];
    count(g, m, c);
    rd_figure f[RD_METRIC_FIGURES];
    assert_int_equal(m->figures(c, f), 2);
    assert_string_equal(f[0].name, "phoneme_error_rate");
    assert_string_equal(f[1].name, "word_error_rate");
    assert_false(f[0].higher_is_better);
    assert_float_equal(f[0].value, 100.0 * (double)g->edits / (double)g->ref_len, 1e-9);
    assert_float_equal(f[1].value, 100.0 * (double)g->wrong / g->n, 1e-9);
    char line[256], want[256];
    snprintf(want, sizeof want,
             "(%lld edits, %lld phonemes), word error %.2f %% (%lld of %d words)",
             (long long)g->edits, (long long)g->ref_len, 100.0 * (double)g->wrong / g->n,
             (long long)g->wrong, g->n);
    m->line(c, line, sizeof line);
    if (!strstr(line, want)) fail_msg("'%s' is not in '%s'", want, line);
}

/* ---- sacreBLEU's defaults ---- */

enum { MOST_REFS = 8 };

static void count_texts(const struct golden_text *g, const rd_metric_def *m,
                        int64_t counts[RD_METRIC_COUNTS])
{
    memset(counts, 0, RD_METRIC_COUNTS * sizeof *counts);
    for (int i = 0; i < g->n; i++) {
        const char *const *row = g->text + (ptrdiff_t)i * g->stride;
        const rd_tokens hyp = tokens(row[0], false);
        rd_tokens refs[MOST_REFS];
        int n = 0;
        for (; row[n + 1]; n++) refs[n] = tokens(row[n + 1], false);
        if (n == 1)
            m->add(counts, &hyp, refs);
        else
            m->add_refs(counts, &hyp, refs, n);
    }
}

static void check_texts(const struct golden_text *g, const char *metric, const char *figure,
                        double value, const char *want)
{
    const rd_metric_def *m = rd_metric_find(metric);
    assert_non_null(m);
    int64_t c[RD_METRIC_COUNTS];
    count_texts(g, m, c);
    rd_figure f[RD_METRIC_FIGURES];
    assert_int_equal(m->figures(c, f), 1);
    assert_string_equal(f[0].name, figure);
    assert_true(f[0].higher_is_better);
    assert_float_equal(f[0].value, value, 1e-9);
    char line[512];
    m->line(c, line, sizeof line);
    assert_string_equal(line, want);
}

static void check_sacrebleu(void **state)
{
    const struct golden_text *g = *state;
    char want[512];
    snprintf(want, sizeof want, "sacreBLEU = %s [%s|version:%s-run_dist]", g->form,
             g->bleu_signature, golden_sacrebleu);
    check_texts(g, "sacrebleu", "sacreBLEU", g->bleu, want);
}

static void check_chrf(void **state)
{
    const struct golden_text *g = *state;
    char want[512];
    snprintf(want, sizeof want, "chrF2 = %.2f [%s|version:%s-run_dist]", g->chrf, g->chrf_signature,
             golden_sacrebleu);
    check_texts(g, "chrf", "chrF2", g->chrf, want);
}

static void test_13a(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_words / sizeof golden_words[0]; i++) {
        const rd_tokens in = tokens(golden_words[i][0], false);
        metric_words w;
        assert_true(metric_words_13a(&in, &w));
        char got[2048];
        size_t n = 0;
        got[0] = '\0';
        for (int64_t k = 0; k < w.tokens.n; k++)
            n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", k ? " " : "", w.tokens.len[k],
                                  w.tokens.at[k]);
        assert_string_equal(got, golden_words[i][1]);
        metric_words_free(&w);
    }
}

/* A line of a million characters has exact counts, in time that does not grow with its square. */
static void test_long_line(void **state)
{
    (void)state;
    enum { WORDS = 200000 };
    char *text = malloc(WORDS * 6 + 1);
    rd_arena *big = NULL;
    rd_status st = {0};
    rd_tokens hyp, ref;
    assert_non_null(text);
    for (int i = 0; i < WORDS; i++) snprintf(text + (ptrdiff_t)i * 6, 7, "%05d ", i % 99991);
    assert_int_equal(rd_arena_new(1 << 20, &big, &st), RD_OK);
    assert_int_equal(rd_tokens_split(text, (size_t)WORDS * 6, false, big, &hyp, &st), RD_OK);
    ref = hyp;
    ref.n--;
    int64_t c[RD_METRIC_COUNTS] = {0};
    rd_figure f[RD_METRIC_FIGURES];
    const rd_metric_def *m = rd_metric_find("sacrebleu");
    m->add(c, &hyp, &ref);
    (void)m->figures(c, f);
    double want = 1.0;
    for (int k = 0; k < 4; k++) want *= (double)(WORDS - k - 1) / (WORDS - k);
    assert_float_equal(f[0].value, 100.0 * pow(want, 0.25), 1e-9);
    memset(c, 0, sizeof c);
    m = rd_metric_find("chrf");
    m->add(c, &hyp, &ref);
    (void)m->figures(c, f);
    double precision = 0.0; /* recall is 1 */
    for (int k = 0; k < 6; k++) precision += (WORDS * 5.0 - 5.0 - k) / (WORDS * 5.0 - k) / 6.0;
    assert_float_equal(f[0].value, 100.0 * 5.0 * precision / (4.0 * precision + 1.0), 1e-9);
    rd_arena_free(big);
    free(text);
}

/* Each reference of a sentence counts once, whatever its order. */
static void test_refs_order(void **state)
{
    (void)state;
    const rd_tokens hyp = tokens("a b c d e f g h", false),
                    refs[] = {tokens("a b c d x", false), tokens("e f g h y", false),
                              tokens("h", false)},
                    back[] = {refs[2], refs[1], refs[0]};
    static const char *const names[] = {"sacrebleu", "chrf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const rd_metric_def *m = rd_metric_find(names[i]);
        int64_t c[RD_METRIC_COUNTS] = {0}, d[RD_METRIC_COUNTS] = {0};
        m->add_refs(c, &hyp, refs, 3);
        m->add_refs(d, &hyp, back, 3);
        assert_memory_equal(c, d, sizeof c);
    }
}

/* For every metric the counts of parts add up to the counts of the whole, so ranks may share the
 * work in any way. */
static void test_counts_add(void **state)
{
    (void)state;
    int n;
    const rd_metric_def *const *all = rd_metric_defs(&n);
    assert_true(n >= 2);
    for (int i = 0; i < n; i++) {
        int64_t sum[RD_METRIC_COUNTS] = {0}, joint[RD_METRIC_COUNTS] = {0};
        for (size_t k = 0; k < sizeof golden / sizeof golden[0]; k++) {
            int64_t part[RD_METRIC_COUNTS];
            count(&golden[k], all[i], part);
            for (int j = 0; j < RD_METRIC_COUNTS; j++) sum[j] += part[j];
            for (int j = 0; j < golden[k].n; j++) {
                const rd_tokens hyp = tokens(golden[k].pairs[j][0], false),
                                ref = tokens(golden[k].pairs[j][1], false);
                all[i]->add(joint, &hyp, &ref);
            }
        }
        assert_memory_equal(sum, joint, sizeof sum);
        rd_figure f[RD_METRIC_FIGURES];
        const int64_t none[RD_METRIC_COUNTS] = {0};
        const int m = all[i]->figures(none, f); /* no sentence at all: numbers, not NaN */
        for (int j = 0; j < m; j++) assert_true(isfinite(f[j].value));
    }
    assert_null(rd_metric_find("rouge"));
}

static struct split_row {
    const char *text;
    bool bpe;
    const char *want;
} split_rows[] = {
    {"a b c", false, "a|b|c"},
    {"  a \t b\r\n", false, "a|b"},
    {"", false, ""},
    {"   ", false, ""},
    {"a@@ b c@@", false, "a@@|b|c@@"},
    {"a@@ b c", true, "ab|c"},
    {"a@@ b@@ c d", true, "abc|d"},
    {"a b c@@", true, "a|b|c@@"},
    {"a@@ @@ b", true, "ab"},
    {"x@@@ y", true, "x@y"},
    {"@@ a", true, "a"},
    {"a@@", true, "a@@"},
    {"", true, ""},
    {"a\xC2\xA0"
     "b c",
     false,
     "a\xC2\xA0"
     "b|c"},
};

static const char *joined(const rd_tokens *t)
{
    static char out[256];
    size_t n = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < t->n; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", i ? "|" : "", t->len[i], t->at[i]);
    return out;
}

static void test_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof split_rows / sizeof split_rows[0]; i++) {
        const rd_tokens t = tokens(split_rows[i].text, split_rows[i].bpe);
        assert_string_equal(joined(&t), split_rows[i].want);
    }
}

static void test_vocab_tokens(void **state)
{
    (void)state;
    static const char words[] = "he@@\nllo\nworld\n\n";
    static const int32_t ids[] = {RD_SOS, 4, RD_UNK, 5, 7, 6, RD_PAD, 200, -3, RD_EOS, 6};
    static const struct {
        bool unk, bpe;
        const char *want;
    } cases[] = {{false, false, "he@@|llo|world"},
                 {true, false, "he@@|<UNK>|llo|world"},
                 {false, true, "hello|world"},
                 {true, true, "he<UNK>|llo|world"}};
    rd_status st = {0};
    rd_vocab *v = NULL;
    assert_int_equal(rd_vocab_new_mem("words", words, sizeof words - 1, false, &v, &st), RD_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rd_tokens t;
        assert_int_equal(rd_vocab_tokens(v, ids, sizeof ids / sizeof ids[0], cases[i].unk,
                                         cases[i].bpe, arena, &t, &st),
                         RD_OK);
        assert_string_equal(joined(&t), cases[i].want);
    }
    rd_vocab_free(v);
}

static int set_up(void **state)
{
    (void)state;
    rd_status st = {0};
    return rd_arena_new(1 << 20, &arena, &st) != RD_OK;
}

static int tear_down(void **state)
{
    (void)state;
    rd_arena_free(arena);
    return 0;
}

RD_TESTS_WITH("metric_scores", set_up, tear_down, TEST(test_counts_add), TEST(test_split),
              TEST(test_vocab_tokens), TEST(test_13a), TEST(test_long_line), TEST(test_refs_order),
              TEST_ROWS(check_bleu, golden), TEST_ROWS(check_error_rates, golden),
              TEST_ROWS(check_sacrebleu, golden_texts), TEST_ROWS(check_chrf, golden_texts))
