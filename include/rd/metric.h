/* metric.h -- scores of decoded sequences, one file each in runner/data/metrics. class_metric.h has
 * those of image models.
 *
 * A metric turns pairs (hypothesis, reference) into integer counts, and counts into figures. Ranks
 * add up their counts, so the figures are the same for every number of ranks. */
#ifndef RD_METRIC_H
#define RD_METRIC_H
#include "rd/arena.h"
#include "rd/options.h"
#include <stdint.h>
RD_C_BEGIN

enum { RD_METRIC_COUNTS = 24, RD_METRIC_FIGURES = 4 };

typedef struct rd_figure {
    char name[32]; /* "BLEU", "phoneme_error_rate" */
    double value;
    bool higher_is_better;
} rd_figure;

/* One sentence: its tokens as byte strings. */
typedef struct rd_tokens {
    int64_t n;
    const char *const *at; /* [n] */
    const int32_t *len;    /* [n] in bytes */
} rd_tokens;

typedef struct rd_metric_def {
    const char *name; /* value of the key "metric" */
    const char *about;
    const rd_option_group *group; /* keys that it reads and other metrics may read, too; or NULL */
    const rd_option_group *own;   /* keys that only this metric reads; or NULL */

    /* Adds one sentence to the counts. */
    void (*add)(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp, const rd_tokens *ref);

    /* The same for several references of one sentence. NULL: of them the one counts whose first
     * figure is best. */
    void (*add_refs)(int64_t counts[RD_METRIC_COUNTS], const rd_tokens *hyp, const rd_tokens *refs,
                     int64_t n_refs);

    /* Computes the figures and returns their number. The first figure decides which checkpoint is
     * the best. */
    int (*figures)(const int64_t counts[RD_METRIC_COUNTS], rd_figure out[RD_METRIC_FIGURES]);

    /* Name of a figure that is another form of the first one: TensorBoard does not get it. NULL:
     * none. */
    const char *repeats;

    /* Writes one line for people, with the signature of the metric. */
    void (*line)(const int64_t counts[RD_METRIC_COUNTS], char *out, size_t n);
} rd_metric_def;

/* Begins the definition of a metric: RD_METRIC(id) = {...}; in a file of runner/data/metrics. make
 * finds it, also as RD_METRIC_...(id, ...), and writes the registry. */
#define RD_METRIC(id) const rd_metric_def rd_metric_##id

/* Splits a text at ASCII white space. bpe: subwords are joined (rd_tokens_bpe). The tokens borrow
 * the text where nothing is joined; other memory comes from the arena. */
rd_code rd_tokens_split(const char *text, size_t n, bool bpe, rd_arena *a, rd_tokens *out,
                        rd_status *st);

/* Joins subwords: a token that ends in "@@" and the next one become one token, as if every "@@ " of
 * the line were deleted. A mark on the last token stays. Memory comes from the arena; *out borrows
 * the tokens of `in`. */
rd_code rd_tokens_bpe(const rd_tokens *in, rd_arena *a, rd_tokens *out, rd_status *st);

/* Returns the metric of that name, NULL if there is none. */
const rd_metric_def *rd_metric_find(const char *name);

/* Returns all metrics, sorted by name. */
const rd_metric_def *const *rd_metric_defs(int *n);

RD_C_END
#endif
