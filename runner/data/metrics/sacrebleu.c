/* sacrebleu.c -- BLEU as sacreBLEU 2 computes it by default.
 *
 * Tokenizer 13a splits both sides, so hypotheses and references are texts as people write them. An
 * order without a match is smoothed (exp: half of one match, then a quarter, ...); an order without
 * n-grams makes the score 0. With several references an n-gram may match in any of them, and the
 * length of the closest one counts. */
#include "../metric_text.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ORDER = 4, MATCH = 0, TOTAL = 4, HYP_LEN = 8, REF_LEN = 9, LOST = 10, REFS = 11 };

/* Returns the length nearest to that of the hypothesis, of two the shorter one. */
static int64_t sacrebleu_ref_len(int64_t hyp, const rd_tokens *refs, int64_t n_refs)
{
    int64_t best = 0, least = -1;
    for (int64_t r = 0; r < n_refs; r++) {
        const int64_t d = refs[r].n > hyp ? refs[r].n - hyp : hyp - refs[r].n;
        if (least < 0 || d < least || (d == least && refs[r].n < best)) {
            best = refs[r].n;
            least = d;
        }
    }
    return best;
}

static void sacrebleu_add_words(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp,
                                const rd_tokens *refs, int64_t n_refs)
{
    int64_t match[ORDER];
    if (!metric_match_words(hyp, refs, n_refs, ORDER, match)) {
        counts[LOST]++;
        return;
    }
    for (int k = 0; k < ORDER; k++) {
        counts[MATCH + k] += match[k];
        counts[TOTAL + k] += hyp->n > k ? hyp->n - k : 0;
    }
    counts[HYP_LEN] += hyp->n;
    counts[REF_LEN] += sacrebleu_ref_len(hyp->n, refs, n_refs);
    metric_refs_add(counts + REFS, n_refs);
}

static void sacrebleu_add_refs(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp,
                               const rd_tokens *refs, int64_t n_refs)
{
    metric_words h, *w = calloc((size_t)n_refs + 1, sizeof *w);
    rd_tokens *tokens = malloc(((size_t)n_refs + 1) * sizeof *tokens);
    bool ok = metric_words_13a(hyp, &h) && w && tokens;
    for (int64_t r = 0; ok && r < n_refs; r++) {
        ok = metric_words_13a(&refs[r], &w[r]);
        tokens[r] = w[r].tokens;
    }
    if (ok)
        sacrebleu_add_words(counts, &h.tokens, tokens, n_refs);
    else
        counts[LOST]++; /* out of memory for one sentence: the line reports it */
    metric_words_free(&h);
    for (int64_t r = 0; w && r < n_refs; r++) metric_words_free(&w[r]);
    free(w);
    free(tokens);
}

static void sacrebleu_add(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp,
                          const rd_tokens *ref)
{
    sacrebleu_add_refs(counts, hyp, ref, 1);
}

typedef struct sacrebleu_score {
    double score, bp, precision[ORDER]; /* score and precisions in percent */
} sacrebleu_score;

static sacrebleu_score sacrebleu_compute(const int64_t *c)
{
    sacrebleu_score s = {.bp = 1.0};
    double smooth = 1.0, sum = 0.0;
    int64_t any = 0;
    if (c[HYP_LEN] < c[REF_LEN])
        s.bp = c[HYP_LEN] > 0 ? exp(1.0 - (double)c[REF_LEN] / (double)c[HYP_LEN]) : 0.0;
    for (int k = 0; k < ORDER; k++) any |= c[MATCH + k];
    if (any == 0) return s;
    for (int k = 0; k < ORDER && c[TOTAL + k] > 0; k++) {
        if (c[MATCH + k] == 0) smooth *= 2.0;
        s.precision[k] = c[MATCH + k] > 0 ? 100.0 * (double)c[MATCH + k] / (double)c[TOTAL + k]
                                          : 100.0 / (smooth * (double)c[TOTAL + k]);
    }
    for (int k = 0; k < ORDER; k++) {
        if (s.precision[k] <= 0.0) return s;
        sum += log(s.precision[k]);
    }
    s.score = s.bp * exp(sum / ORDER);
    return s;
}

static int sacrebleu_figures(const int64_t counts[RD_METRIC_COUNTS],
                             rd_figure out[RD_METRIC_FIGURES])
{
    out[0] = (rd_figure){"sacreBLEU", sacrebleu_compute(counts).score, true};
    return 1;
}

static void sacrebleu_line(const int64_t counts[RD_METRIC_COUNTS], char *out, size_t n)
{
    const int64_t *c = counts;
    const sacrebleu_score s = sacrebleu_compute(c);
    char refs[24], lost[64] = "";
    if (c[LOST] > 0)
        (void)snprintf(lost, sizeof lost, "; %" PRId64 " sentences not scored: out of memory",
                       c[LOST]);
    (void)snprintf(out, n,
                   "sacreBLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %" PRId64
                   " ref_len = %" PRId64 ") "
                   "[nrefs:%s|case:mixed|eff:no|tok:13a|smooth:exp|version:" METRIC_VERSION "]%s",
                   s.score, s.precision[0], s.precision[1], s.precision[2], s.precision[3], s.bp,
                   c[REF_LEN] > 0 ? (double)c[HYP_LEN] / (double)c[REF_LEN] : 0.0, c[HYP_LEN],
                   c[REF_LEN], metric_refs_word(c + REFS, refs), lost);
}

RD_METRIC(sacrebleu) = {
    .name = "sacrebleu",
    .about = "BLEU of sacreBLEU: tokenizer 13a, smoothing exp; for text that is not tokenised",
    .add = sacrebleu_add,
    .add_refs = sacrebleu_add_refs,
    .figures = sacrebleu_figures,
    .line = sacrebleu_line,
};
