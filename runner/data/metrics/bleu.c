/* bleu.c -- BLEU with one reference.
 *
 * n-grams have up to 4 tokens. Clipped matches and totals are summed over all sentences; the
 * brevity penalty is that of the corpus. The number is that of multi-bleu.perl and of sacreBLEU
 * with tokenize=none, smooth=none. Tokens are compared as bytes, with case.
 *
 * The second figure is the one that OpenSeq2Seq's evaluation logged: NLTK's corpus_bleu with
 * emulate_multibleu, 0 to 1, 4 decimals. It has one difference: a hypothesis shorter than n adds 1,
 * not 0, to the total of n-grams. */
#include "rd/metric.h"
#include "rd/hash.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER = 4, MATCH = 0, TOTAL = 4, NLTK_TOTAL = 8, HYP_LEN = 12, REF_LEN = 13, LOST = 15 };

/* n-grams are counted exactly, without comparing them: every token gets a number, and an n-gram is
 * the pair (number of its first n - 1 tokens, number of its last token). The pairs are keys of one
 * table, and a slot is the number of an n-gram. */
typedef struct gram {
    uint64_t pair; /* 0: empty; numbers start at 1 */
    int32_t hyp, ref;
} gram;

typedef struct bleu_table {
    gram *slot;
    uint32_t mask;
} bleu_table;

static uint32_t gram_at(const bleu_table *t, uint32_t before, uint32_t token)
{
    const uint64_t pair = (uint64_t)before << 32 | token;
    uint32_t i = (uint32_t)((pair * RD_GOLDEN64) >> 32) & t->mask;
    while (t->slot[i].pair != 0 && t->slot[i].pair != pair) i = (i + 1) & t->mask;
    t->slot[i].pair = pair;
    return i;
}

/* An entry of the table that numbers the tokens of both sides, from 1. */
typedef struct bleu_head {
    const char *at; /* NULL: empty */
    int32_t len;
    uint32_t number;
} bleu_head;

static uint32_t bleu_number_of(bleu_head *heads, uint32_t mask, const char *at, int32_t len,
                               uint32_t *n)
{
    const uint64_t h = rd_fnv(RD_FNV_START, at, (size_t)len);
    uint32_t k = (uint32_t)(h ^ h >> 32) & mask;
    while (heads[k].at && !(heads[k].len == len && memcmp(heads[k].at, at, (size_t)len) == 0))
        k = (k + 1) & mask;
    if (!heads[k].at) heads[k] = (bleu_head){at, len, ++*n};
    return heads[k].number;
}

static void count_grams(const bleu_table *t, const uint32_t *token, int64_t n, bool hyp)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t before = 0;
        for (int64_t k = i; k < n && k < i + ORDER; k++) {
            const uint32_t at = gram_at(t, before, token[k]);
            if (hyp)
                t->slot[at].hyp++;
            else
                t->slot[at].ref++;
            before = at + 1;
        }
    }
}

/* Adds the clipped matches: each distinct n-gram of the hypothesis counts once. */
static void sum_matches(const bleu_table *t, const uint32_t *token, int64_t n,
                        int64_t counts[RD_METRIC_COUNTS])
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t before = 0;
        for (int k = 0; k < ORDER && i + k < n; k++) {
            const uint32_t at = gram_at(t, before, token[i + k]);
            gram *g = &t->slot[at];
            counts[MATCH + k] += g->hyp < g->ref ? g->hyp : g->ref;
            g->hyp = 0;
            before = at + 1;
        }
    }
}

static void bleu_add(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp, const rd_tokens *ref)
{
    const int64_t both = hyp->n + ref->n;
    uint64_t slots = 64;
    while (slots < (uint64_t)both * ORDER * 2) slots *= 2;
    gram *grams = calloc(slots, sizeof *grams);
    bleu_head *heads = calloc(slots, sizeof *heads);
    uint32_t *token = malloc((size_t)(both + 1) * sizeof *token), n = 0;
    if (grams && heads && token && slots <= UINT32_MAX) {
        const bleu_table t = {grams, (uint32_t)(slots - 1)};
        for (int64_t i = 0; i < hyp->n; i++)
            token[i] = bleu_number_of(heads, t.mask, hyp->at[i], hyp->len[i], &n);
        for (int64_t i = 0; i < ref->n; i++)
            token[hyp->n + i] = bleu_number_of(heads, t.mask, ref->at[i], ref->len[i], &n);
        count_grams(&t, token, hyp->n, true);
        count_grams(&t, token + hyp->n, ref->n, false);
        sum_matches(&t, token, hyp->n, counts);
        for (int k = 0; k < ORDER; k++) {
            counts[TOTAL + k] += hyp->n > k ? hyp->n - k : 0;
            counts[NLTK_TOTAL + k] += hyp->n > k + 1 ? hyp->n - k : 1;
        }
        counts[HYP_LEN] += hyp->n;
        counts[REF_LEN] += ref->n;
    } else {
        counts[LOST]++; /* out of memory for one sentence: the line reports it */
    }
    free(grams);
    free(heads);
    free(token);
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
    .line = bleu_line,
};
