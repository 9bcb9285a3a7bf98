/* confusion.c -- the confusion matrix of an image model: which class was predicted for which label,
 * as a picture for TensorBoard and as a table of the most frequent mistakes. */
#include "rd/class_metric.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 100 }; /* largest side of the matrix */

/* A row for each label, a column for each predicted class. */
static int64_t confusion_n_counts(int64_t n_classes)
{
    return n_classes <= MOST_CLASSES ? n_classes * n_classes : 0;
}

static void confusion_add(const rd_class_counts *c, const rd_class_sample *s)
{
    const int64_t n = c->n_classes;
    if (s->label < 0 || s->label >= n || s->predicted < 0 || s->predicted >= n) return;
    c->at[s->label * n + s->predicted]++;
}

typedef struct confused {
    int64_t count, label, taken_for;
} confused;

static int most_first(const void *a, const void *b)
{
    const confused *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return x->taken_for < y->taken_for ? -1 : x->taken_for > y->taken_for;
}

/* Writes a table of the most frequent confusions. */
static void confusion_table(const rd_class_counts *c, const rd_dataset *d, rd_events *e,
                            int64_t step, rd_status *st)
{
    enum { MOST = 20 };
    const int64_t n = c->n_classes;
    confused *all = malloc((size_t)(n * n) * sizeof *all);
    rd_strbuf md = {0};
    int64_t m = 0;
    if (!all) return;
    for (int64_t i = 0; i < n * n; i++)
        if (c->at[i] > 0 && i / n != i % n) all[m++] = (confused){c->at[i], i / n, i % n};
    qsort(all, (size_t)m, sizeof *all, most_first);
    rd_strbuf_puts(&md, "| samples | label | taken for |\n|---|---|---|\n");
    for (int64_t i = 0; i < m && i < MOST; i++) {
        rd_strbuf_printf(&md, "| %" PRId64 " | ", all[i].count);
        rd_dataset_class_cell(d, (int32_t)all[i].label, &md);
        rd_strbuf_puts(&md, " | ");
        rd_dataset_class_cell(d, (int32_t)all[i].taken_for, &md);
        rd_strbuf_puts(&md, " |\n");
    }
    if (m > 0) (void)rd_events_text(e, step, "confusion_matrix/names", rd_strbuf_str(&md), st);
    rd_strbuf_release(&md);
    free(all);
}

/* Fills a square of an RGB picture that is `wide` pixels wide. */
static void confusion_cell(uint8_t *at, int64_t wide, int64_t x, int64_t y, int64_t side,
                           const uint8_t colour[3])
{
    for (int64_t j = y; j < y + side; j++)
        for (int64_t i = x; i < x + side; i++) memcpy(at + (j * wide + i) * 3, colour, 3);
}

static void confusion_draw(const rd_class_counts *c, const rd_dataset *d, rd_events *e,
                           int64_t step, rd_status *st)
{
    enum { SIDE = 256, SMALLEST = 3, LARGEST = 32, GAP = 1 };
    const int64_t n = c->n_classes, fit = n > 0 ? SIDE / n : 0,
                  cell = fit < SMALLEST  ? SMALLEST
                         : fit > LARGEST ? LARGEST
                                         : fit,
                  wide = n * cell + GAP;
    uint8_t *at = n > 0 ? malloc((size_t)(wide * wide * 3)) : NULL;
    if (!at) return;
    memset(at, 255, (size_t)(wide * wide * 3));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = 0;
        for (int64_t j = 0; j < n; j++) row += c->at[i * n + j];
        for (int64_t j = 0; j < n; j++) {
            /* The square root makes a mistake in a hundred visible. */
            const double share = row > 0 ? sqrt((double)c->at[i * n + j] / (double)row) : 0.0;
            const uint8_t pale = (uint8_t)(240.0 - 240.0 * share),
                          full = (uint8_t)(240.0 - 90.0 * share);
            const uint8_t colour[3] = {i == j ? pale : full, i == j ? full : pale, pale};
            confusion_cell(at, wide, j * cell + GAP, i * cell + GAP, cell - GAP, colour);
        }
    }
    (void)rd_events_image(e, step, "confusion_matrix", (int)wide, (int)wide, 3, at, st);
    free(at);
    confusion_table(c, d, e, step, st);
}

RD_CLASS_METRIC(confusion) = {.name = "confusion",
                              .about = "confusion matrix of at most 100 classes, for TensorBoard",
                              .n_counts = confusion_n_counts,
                              .add = confusion_add,
                              .draw = confusion_draw};
