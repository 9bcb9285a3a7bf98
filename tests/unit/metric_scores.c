/* metric_scores.c -- tests BLEU and error rates against other programs (metric_golden.inc lists
 * them), and the tokens that they read. */
#include "../../runner/data/data_impl.h"
#include "test.h"
#include "metric_golden.inc"
#include <math.h>
#include <stdio.h>

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
              TEST(test_vocab_tokens), TEST_ROWS(check_bleu, golden),
              TEST_ROWS(check_error_rates, golden))
