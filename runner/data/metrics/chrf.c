/* chrf.c -- chrF2 (Popovic 2015) as sacreBLEU 2 computes it by default.
 *
 * It compares character n-grams of up to 6 characters, without white space, summed over all
 * sentences. Precision and recall are means over the orders that both sides have; recall weighs
 * twice as much. Of several references the one with the best score of its sentence counts. */
#include "../metric_text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER = 6, BETA = 2, STATS = 3 * ORDER, LOST = STATS, REFS = STATS + 1 };
enum { HYP = 0, REF = ORDER, MATCH = 2 * ORDER }; /* offsets in the counts, ORDER numbers each */

static double chrf_score(const int64_t *c)
{
    double precision = 0.0, recall = 0.0;
    int orders = 0;
    for (int k = 0; k < ORDER; k++) {
        if (c[HYP + k] == 0 || c[REF + k] == 0) continue;
        precision += (double)c[MATCH + k] / (double)c[HYP + k];
        recall += (double)c[MATCH + k] / (double)c[REF + k];
        orders++;
    }
    if (precision + recall <= 0.0) return 0.0;
    precision /= orders;
    recall /= orders;
    const double factor = BETA * BETA;
    return 100.0 * ((1.0 + factor) * precision * recall / (factor * precision + recall));
}

/* Counts one pair. The hypothesis has no n-grams of an order that the reference lacks. */
static bool chrf_pair(const metric_text *hyp, const rd_tokens *ref, int64_t stats[STATS])
{
    uint32_t *at = NULL;
    metric_text r = {0};
    bool ok = metric_chars(ref, &at, &r.n);
    r.at = at;
    ok = ok && metric_match(hyp, &r, 1, ORDER, stats + MATCH);
    free(at);
    for (int k = 0; k < ORDER; k++) {
        stats[REF + k] = r.n > k ? r.n - k : 0;
        stats[HYP + k] = hyp->n > k && r.n > k ? hyp->n - k : 0;
    }
    return ok;
}

static void chrf_add_refs(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp,
                          const rd_tokens *refs, int64_t n_refs)
{
    int64_t stats[STATS], best[STATS] = {0};
    double best_score = -1.0;
    uint32_t *at = NULL;
    metric_text h = {0};
    bool ok = metric_chars(hyp, &at, &h.n);
    h.at = at;
    for (int64_t r = 0; ok && r < n_refs; r++) {
        ok = chrf_pair(&h, &refs[r], stats);
        if (!ok || chrf_score(stats) <= best_score) continue;
        best_score = chrf_score(stats);
        memcpy(best, stats, sizeof best);
    }
    free(at);
    if (!ok) {
        counts[LOST]++; /* out of memory for one sentence: the line reports it */
        return;
    }
    for (int i = 0; i < STATS; i++) counts[i] += best[i];
    metric_refs_add(counts + REFS, n_refs);
}

static void chrf_add(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp, const rd_tokens *ref)
{
    chrf_add_refs(counts, hyp, ref, 1);
}

static int chrf_figures(const int64_t counts[RD_METRIC_COUNTS], rd_figure out[RD_METRIC_FIGURES])
{
    out[0] = (rd_figure){"chrF2", chrf_score(counts), true};
    return 1;
}

static void chrf_line(const int64_t counts[RD_METRIC_COUNTS], char *out, size_t n)
{
    char refs[24], lost[64] = "";
    if (counts[LOST] > 0)
        (void)snprintf(lost, sizeof lost, "; %" PRId64 " sentences not scored: out of memory",
                       counts[LOST]);
    (void)snprintf(out, n,
                   "chrF2 = %.2f "
                   "[nrefs:%s|case:mixed|eff:yes|nc:6|nw:0|space:no|version:" METRIC_VERSION "]%s",
                   chrf_score(counts), metric_refs_word(counts + REFS, refs), lost);
}

RD_METRIC(chrf) = {
    .name = "chrf",
    .about = "chrF2 of sacreBLEU: n-grams of up to 6 characters, without white space",
    .add = chrf_add,
    .add_refs = chrf_add_refs,
    .figures = chrf_figures,
    .line = chrf_line,
};
