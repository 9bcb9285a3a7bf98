/* metric.h -- scores of decoded sequences, one file each in runner/data/metrics. A metric turns (hypothesis, reference)
 * pairs into integer counts, which are summed over ranks, and counts into figures: the same for every number of ranks.
 */
#ifndef RD_METRIC_H
#define RD_METRIC_H
#include "rd/arena.h"
#include "rd/options.h"
#include <stdint.h>
RD_C_BEGIN

enum { RD_METRIC_COUNTS = 16, RD_METRIC_FIGURES = 4 };

typedef struct rd_figure {
    char name[32]; /* "BLEU", "phoneme_error_rate" */
    double value;
    bool higher_is_better;
} rd_figure;

/* One sentence: tokens as byte strings. */
typedef struct rd_tokens {
    int64_t n;
    const char *const *at;
    const int32_t *len;
} rd_tokens;

typedef struct rd_metric_def {
    const char *name, *about; /* value of the key "metric" */
    /* The keys that it reads, which other metrics may read too, and keys that it alone reads. NULL: none. */
    const rd_option_group *group, *own;
    /* Adds one sentence to the counts. */
    void (*add)(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp, const rd_tokens *ref);
    int (*figures)(const int64_t counts[RD_METRIC_COUNTS],
                   rd_figure out[RD_METRIC_FIGURES]); /* first one decides "best" */
    /* One line for people, with the signature. */
    void (*line)(const int64_t counts[RD_METRIC_COUNTS], char *out, size_t n);
} rd_metric_def;

/* Begins the definition of a metric: RD_METRIC(id) = {...}; in a file of runner/data/metrics. make
 * finds it, also as RD_METRIC_...(id, ...), and writes the registry. */
#define RD_METRIC(id) const rd_metric_def rd_metric_##id

/* The tokens of a text: split at ASCII white space. bpe: as rd_tokens_bpe. The text is borrowed where no join is
 * needed. */
rd_code rd_tokens_split(const char *text, size_t n, bool bpe, rd_arena *a, rd_tokens *out,
                        rd_status *st);
/* Joins subwords: a token that ends in "@@" is joined to the next one, as if every "@@ " of the line were deleted. A
 * mark on the last token stays. Memory of the arena; borrows the tokens of `in`. */
rd_code rd_tokens_bpe(const rd_tokens *in, rd_arena *a, rd_tokens *out, rd_status *st);

const rd_metric_def *rd_metric_find(const char *name); /* NULL: unknown */
const rd_metric_def *const *rd_metric_defs(int *n);

RD_C_END
#endif
