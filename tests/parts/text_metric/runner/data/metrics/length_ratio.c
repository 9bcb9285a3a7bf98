/* length_ratio.c -- length of the decoded sentences over that of the references: a template of a
 * text metric. */
#include "rd/metric.h"
#include <inttypes.h>
#include <stdio.h>

enum { DECODED, REFERENCE };

static void length_ratio_add(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp,
                             const rd_tokens *ref)
{
    counts[DECODED] += hyp->n;
    counts[REFERENCE] += ref->n;
}

static int length_ratio_figures(const int64_t counts[RD_METRIC_COUNTS],
                                rd_figure out[RD_METRIC_FIGURES])
{
    const double n = counts[REFERENCE] > 0 ? (double)counts[REFERENCE] : 1.0;
    out[0] = (rd_figure){"length_ratio", (double)counts[DECODED] / n, true};
    return 1;
}

static void length_ratio_line(const int64_t counts[RD_METRIC_COUNTS], char *out, size_t n)
{
    snprintf(out, n, "length ratio: %" PRId64 " of %" PRId64 " tokens", counts[DECODED],
             counts[REFERENCE]);
}

RD_METRIC(length_ratio) = {.name = "length_ratio",
                           .about = "length of the decoded sentences over that of the references",
                           .add = length_ratio_add,
                           .figures = length_ratio_figures,
                           .line = length_ratio_line};
