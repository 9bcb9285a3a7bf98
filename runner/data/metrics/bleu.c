/* bleu.c -- BLEU with one reference.
 *
 * n-grams have up to 4 tokens. Clipped matches and totals are summed over all sentences; the
 * brevity penalty is that of the corpus. The number is that of multi-bleu.perl and of sacreBLEU
 * with tokenize=none, smooth=none. Tokens are compared as bytes, with case.
 *
 * The second figure is the one that OpenSeq2Seq's evaluation logged: NLTK's corpus_bleu with
 * emulate_multibleu, 0 to 1, 4 decimals. It has one difference: a hypothesis shorter than n adds 1,
 * not 0, to the total of n-grams. */
#include "../metric_text.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { ORDER = 4, MATCH = 0, TOTAL = 4, NLTK_TOTAL = 8, HYP_LEN = 12, REF_LEN = 13, LOST = 15 };

static void bleu_add(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp, const rd_tokens *ref)
{
    int64_t match[ORDER];
    if (!metric_match_words(hyp, ref, 1, ORDER, match)) {
        counts[LOST]++; /* out of memory for one sentence: the line reports it */
        return;
    }
    for (int k = 0; k < ORDER; k++) {
        counts[MATCH + k] += match[k];
        counts[TOTAL + k] += hyp->n > k ? hyp->n - k : 0;
        counts[NLTK_TOTAL + k] += hyp->n > k + 1 ? hyp->n - k : 1;
    }
    counts[HYP_LEN] += hyp->n;
    counts[REF_LEN] += ref->n;
}

static double brevity(const int64_t *c)
{
    if (c[HYP_LEN] >= c[REF_LEN]) return c[HYP_LEN] > 0 ? 1.0 : 0.0;
    return c[HYP_LEN] > 0 ? exp(1.0 - (double)c[REF_LEN] / (double)c[HYP_LEN]) : 0.0;
}

/* Returns the score, 0 to 1. total: TOTAL or NLTK_TOTAL. */
static double bleu_score(const int64_t *c, int total)
{
    double sum = 0.0;
    for (int k = 0; k < ORDER; k++) {
        if (c[MATCH + k] == 0 || c[total + k] == 0) return 0.0;
        sum += log((double)c[MATCH + k] / (double)c[total + k]);
    }
    return brevity(c) * exp(sum / ORDER);
}

static int bleu_figures(const int64_t counts[RD_METRIC_COUNTS], rd_figure out[RD_METRIC_FIGURES])
{
    out[0] = (rd_figure){"BLEU", 100.0 * bleu_score(counts, TOTAL), true};
    out[1] = (rd_figure){"Eval_BLEU_Score", round(bleu_score(counts, NLTK_TOTAL) * 1e4) / 1e4,
                         true};
    return 2;
}

static double bleu_percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void bleu_line(const int64_t counts[RD_METRIC_COUNTS], char *out, size_t n)
{
    const int64_t *c = counts;
    char lost[64] = "";
    if (c[LOST] > 0)
        snprintf(lost, sizeof lost, "; %" PRId64 " sentences not scored: out of memory", c[LOST]);
    snprintf(out, n,
             "BLEU = %.2f, %.1f/%.1f/%.1f/%.1f (BP=%.3f, ratio=%.3f, hyp_len=%" PRId64
             ", ref_len=%" PRId64 ") "
             "[multi-bleu, tok:none, smooth:none, case:mixed, refs:1] Eval_BLEU_Score = %.4f%s",
             100.0 * bleu_score(c, TOTAL), bleu_percent(c[MATCH], c[TOTAL]),
             bleu_percent(c[MATCH + 1], c[TOTAL + 1]), bleu_percent(c[MATCH + 2], c[TOTAL + 2]),
             bleu_percent(c[MATCH + 3], c[TOTAL + 3]), brevity(c),
             c[REF_LEN] > 0 ? (double)c[HYP_LEN] / (double)c[REF_LEN] : 0.0, c[HYP_LEN], c[REF_LEN],
             bleu_score(c, NLTK_TOTAL), lost);
}

RD_METRIC(bleu) = {
    .name = "bleu",
    .about = "BLEU of multi-bleu.perl, and the 0..1 score of OpenSeq2Seq",
    .add = bleu_add,
    .figures = bleu_figures,
    .repeats = "Eval_BLEU_Score",
    .line = bleu_line,
};
