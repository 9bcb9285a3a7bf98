/* per_wer.c -- error rates of spelling to sound, in percent.
 *
 * Phoneme error rate: insertions, deletions and substitutions of the best alignment (Levenshtein),
 * summed over all words, per phoneme of the references. Word error rate: the share of words that
 * are not exactly right. */
#include "rd/metric.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EDITS = 0, PHONEMES = 1, WRONG = 2, WORDS = 3, LOST = 15, STACK_TOKENS = 256 };

static bool per_wer_same(const rd_tokens *a, int64_t i, const rd_tokens *b, int64_t k)
{
    return a->len[i] == b->len[k] && memcmp(a->at[i], b->at[k], (size_t)a->len[i]) == 0;
}

/* Returns the edit distance. row: capacity b->n + 1. */
static int64_t per_wer_distance(const rd_tokens *a, const rd_tokens *b, int64_t *row)
{
    row[0] = 0;
    for (int64_t k = 1; k <= b->n; k++) row[k] = k;
    for (int64_t i = 0; i < a->n; i++) {
        int64_t diagonal = row[0];
        row[0] = i + 1;
        for (int64_t k = 0; k < b->n; k++) {
            int64_t best = diagonal + !per_wer_same(a, i, b, k);
            if (row[k] + 1 < best) best = row[k] + 1;
            if (row[k + 1] + 1 < best) best = row[k + 1] + 1;
            diagonal = row[k + 1];
            row[k + 1] = best;
        }
    }
    return row[b->n];
}

static void per_wer_add(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp,
                        const rd_tokens *ref)
{
    int64_t small[STACK_TOKENS], *row = small;
    if (ref->n >= STACK_TOKENS) row = malloc((size_t)(ref->n + 1) * sizeof *row);
    if (!row) {
        counts[LOST]++; /* out of memory for one word: the line reports it */
        return;
    }
    const int64_t d = per_wer_distance(hyp, ref, row);
    if (row != small) free(row);
    counts[EDITS] += d;
    counts[PHONEMES] += ref->n;
    counts[WRONG] += d > 0;
    counts[WORDS]++;
}

static double per_wer_percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static int per_wer_figures(const int64_t counts[RD_METRIC_COUNTS], rd_figure out[RD_METRIC_FIGURES])
{
    out[0] = (rd_figure){"phoneme_error_rate", per_wer_percent(counts[EDITS], counts[PHONEMES]),
                         false};
    out[1] = (rd_figure){"word_error_rate", per_wer_percent(counts[WRONG], counts[WORDS]), false};
    return 2;
}

static void per_wer_line(const int64_t counts[RD_METRIC_COUNTS], char *out, size_t n)
{
    char lost[64] = "";
    if (counts[LOST] > 0)
        snprintf(lost, sizeof lost, "; %" PRId64 " words not scored: out of memory", counts[LOST]);
    snprintf(out, n,
             "phoneme error %.2f %% (%" PRId64 " edits, %" PRId64
             " phonemes), word error %.2f %% (%" PRId64 " of %" PRId64
             " words) [Levenshtein, refs:1]%s",
             per_wer_percent(counts[EDITS], counts[PHONEMES]), counts[EDITS], counts[PHONEMES],
             per_wer_percent(counts[WRONG], counts[WORDS]), counts[WRONG], counts[WORDS], lost);
}

RD_METRIC(per_wer) = {
    .name = "per_wer",
    .about = "phoneme and word error rate, for spelling to sound",
    .add = per_wer_add,
    .figures = per_wer_figures,
    .line = per_wer_line,
};
