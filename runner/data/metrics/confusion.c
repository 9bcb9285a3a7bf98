/* confusion.c -- the confusion matrix of an image model: which class was predicted for which label,
 * as a picture with names and counts for TensorBoard, as a table of all counts, and as a table of
 * the most frequent mistakes. */
#include "rd/class_metric.h"
#include "rd/confusion_png.h"
#include <inttypes.h>
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
    if (m > 0) (void)rd_events_text(e, step, "mistakes/confusions", rd_strbuf_str(&md), st);
    rd_strbuf_release(&md);
    free(all);
}

/* Writes all counts with the names of the classes as a table. */
static void confusion_counts(const rd_class_counts *c, const rd_dataset *d, rd_events *e,
                             int64_t step, rd_status *st)
{
    const int64_t n = c->n_classes;
    rd_strbuf md = {0};
    rd_strbuf_puts(&md, "| label, then predicted |");
    for (int64_t j = 0; j < n; j++) {
        rd_strbuf_puts(&md, " ");
        rd_dataset_class_cell(d, (int32_t)j, &md);
        rd_strbuf_puts(&md, " |");
    }
    rd_strbuf_puts(&md, "\n|---|");
    for (int64_t j = 0; j < n; j++) rd_strbuf_puts(&md, "---|");
    for (int64_t i = 0; i < n; i++) {
        rd_strbuf_puts(&md, "\n| ");
        rd_dataset_class_cell(d, (int32_t)i, &md);
        rd_strbuf_puts(&md, " |");
        for (int64_t j = 0; j < n; j++) rd_strbuf_printf(&md, " %" PRId64 " |", c->at[i * n + j]);
    }
    rd_strbuf_puts(&md, "\n");
    (void)rd_events_text(e, step, "mistakes/confusion_counts", rd_strbuf_str(&md), st);
    rd_strbuf_release(&md);
}

/* Writes the matrix as a picture. names: [n] of the classes. */
static void confusion_picture(const rd_class_counts *c, const char *const *names, rd_events *e,
                              int64_t step, rd_status *st)
{
    const rd_confusion matrix = {c->n_classes, c->at, names};
    rd_status own = {0};
    rd_picture p;
    if (rd_confusion_draw(&matrix, &p, &own) != RD_OK) return;
    (void)rd_events_image(e, step, "mistakes/confusion_matrix", (int)p.w, (int)p.h, 3, p.rgb, st);
    rd_picture_release(&p);
}

static void confusion_draw(const rd_class_counts *c, const rd_dataset *d, rd_events *e,
                           int64_t step, rd_status *st)
{
    const int64_t n = c->n_classes;
    rd_strbuf *text = calloc((size_t)n + 1, sizeof *text);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    for (int64_t i = 0; text && names && i < n; i++) {
        rd_dataset_class_text(d, (int32_t)i, &text[i]);
        names[i] = rd_strbuf_str(&text[i]);
    }
    if (text && names) confusion_picture(c, names, e, step, st);
    for (int64_t i = 0; text && i < n; i++) rd_strbuf_release(&text[i]);
    free(text);
    free((void *)names);
    confusion_counts(c, d, e, step, st);
    confusion_table(c, d, e, step, st);
}

RD_CLASS_METRIC(confusion) = {.name = "confusion",
                              .about = "confusion matrix of at most 100 classes, for TensorBoard",
                              .n_counts = confusion_n_counts,
                              .add = confusion_add,
                              .draw = confusion_draw};
