/* predictions.c -- what an evaluation of an image model says of each image and of each class, see
 * predictions.h.
 *
 * A class has a recall (the share of its samples that are found: its accuracy), a precision (the
 * share of its predictions that are right), and F1 = 2 precision recall / (precision + recall). */
#include "predictions.h"
#include "predict_format.h"
#include "rd/confusion_png.h"
#include "rd/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORST = 10, MOST_SHOWN = 20 /* classes on the console */ };

void predictions_release(predictions *p)
{
    free(p->at);
    *p = (predictions){0};
}

static rd_code predictions_reserve(predictions *p, int64_t n, rd_status *st)
{
    if (p->n + n <= p->capacity) return RD_OK;
    const int64_t capacity = 2 * p->capacity + n + 64;
    prediction *more = realloc(p->at, (size_t)capacity * sizeof *more);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " predictions", capacity);
    p->at = more;
    p->capacity = capacity;
    return RD_OK;
}

/* Returns the probability of class k; NAN if a logit is not finite. */
static double share_of(const float *logits, int64_t V, int64_t k)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t v = 0; v < V; v++) {
        if (!isfinite(logits[v])) return NAN;
        top = fmax(top, (double)logits[v]);
    }
    for (int64_t v = 0; v < V; v++) sum += exp((double)logits[v] - top);
    return exp((double)logits[k] - top) / sum;
}

rd_code predictions_add(predictions *p, rd_run *r, const rd_batch *b, const rd_loss_out *out,
                        rd_status *st)
{
    const rd_field *f = rd_batch_field(b, "label");
    const int64_t V = r->spec.n_classes;
    float *logits;
    if (!f || f->dtype != RD_I32 || !out->argmax || !out->logits) return RD_OK;
    RD_TRY(predictions_reserve(p, b->n, st));
    RD_TRY(rd_arena_get(rd_tape_arena(r->tape), (size_t)(b->n * V) * sizeof *logits, &logits, st));
    RD_TRY(rd_tape_read(r->tape, out->logits, false, logits, st));
    for (int64_t i = 0; i < b->n; i++) {
        const int32_t label = ((const int32_t *)f->data)[f->off ? f->off[i] : i];
        const float *row = logits + i * V;
        p->at[p->n++] = (prediction){.id = b->sample[i],
                                     .label = label,
                                     .predicted = out->argmax[i],
                                     .rank = out->rank[i],
                                     .probability = (float)share_of(row, V, out->argmax[i]),
                                     .label_probability = (float)share_of(row, V, label)};
    }
done:
    return st->code;
}

static int prediction_by_id(const void *a, const void *b)
{
    const prediction *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

rd_code predictions_gather(predictions *p, rd_run *r, rd_status *st)
{
    char *all = NULL;
    int64_t *lens = NULL, bytes = 0;
    RD_TRY(rd_comm_gather(r->comm, p->at, p->n * (int64_t)sizeof *p->at, &all, &lens, st));
    p->n = 0;
    if (r->world->rank == 0) {
        for (int i = 0; i < r->world->size; i++) bytes += lens[i];
        const int64_t n = bytes / (int64_t)sizeof *p->at;
        if (predictions_reserve(p, n, st) == RD_OK) {
            if (bytes > 0) memcpy(p->at, all, (size_t)bytes);
            p->n = n;
            qsort(p->at, (size_t)n, sizeof *p->at, prediction_by_id);
        }
    }
    (void)run_agree(r, st);
done:
    free(all);
    free(lens);
    return st->code;
}

/* ---- names ---- */

/* Appends a text of the dataset as a field. */
static void add_name(rd_strbuf *out, const rd_run *r, int32_t k)
{
    rd_strbuf name = {0};
    rd_dataset_class_text(r->eval_data, k, &name);
    predict_field(out, rd_strbuf_str(&name), false);
    out->failed = out->failed || name.failed;
    rd_strbuf_release(&name);
}

static void add_sample(rd_strbuf *out, const rd_run *r, int64_t id, bool shown)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    const int32_t k = (int32_t)id;
    rd_strbuf name = {0};
    if (def->text && id <= INT32_MAX)
        def->text(rd_dataset_self(r->eval_data), 0, &k, 1, false, &name);
    else
        rd_strbuf_printf(&name, "image %" PRId64, id);
    predict_field(out, rd_strbuf_str(&name), shown);
    out->failed = out->failed || name.failed;
    rd_strbuf_release(&name);
}

/* ---- figures of classes ---- */

typedef struct class_row {
    int32_t id;
    int64_t samples, predicted, right;
} class_row;

static double class_recall(const class_row *c)
{
    return c->samples > 0 ? (double)c->right / (double)c->samples : NAN;
}

static double class_precision(const class_row *c)
{
    return c->predicted > 0 ? (double)c->right / (double)c->predicted : NAN;
}

static bool prediction_fits(const prediction *x, int64_t V)
{
    return x->label >= 0 && x->label < V && x->predicted >= 0 && x->predicted < V;
}

static rd_code count_classes(const predictions *p, int64_t V, class_row **out, rd_status *st)
{
    class_row *c = calloc((size_t)V + 1, sizeof *c);
    *out = c;
    if (!c) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " classes", V);
    for (int64_t k = 0; k < V; k++) c[k].id = (int32_t)k;
    for (int64_t i = 0; i < p->n; i++) {
        const prediction *x = &p->at[i];
        if (!prediction_fits(x, V)) continue;
        c[x->label].samples++;
        c[x->predicted].predicted++;
        c[x->label].right += x->label == x->predicted;
    }
    return RD_OK;
}

/* ---- files ---- */

static rd_code write_text_file(const char *dir, const char *name, const rd_strbuf *text,
                               rd_status *st)
{
    char path[4300];
    if (text->failed) return rd_fail(st, RD_EENV, "out of memory for %s", name);
    (void)snprintf(path, sizeof path, "%.4200s/%.60s", dir, name);
    return rd_file_write_atomic(path, rd_strbuf_str(text), text->n, st);
}

/* Appends a number with four digits, or nothing for a NaN. */
static void add_share(rd_strbuf *out, double v)
{
    if (isfinite(v)) rd_strbuf_printf(out, "%.4f", v);
}

static rd_code write_predictions(const predictions *p, const rd_run *r, const char *dir,
                                 rd_status *st)
{
    rd_strbuf out = {0};
    rd_strbuf_puts(&out, "path\tlabel\tprediction\tprobability\tlabel_probability\tlabel_rank\n");
    for (int64_t i = 0; i < p->n; i++) {
        const prediction *x = &p->at[i];
        add_sample(&out, r, x->id, false);
        rd_strbuf_puts(&out, "\t");
        add_name(&out, r, x->label);
        rd_strbuf_puts(&out, "\t");
        add_name(&out, r, x->predicted);
        rd_strbuf_puts(&out, "\t");
        add_share(&out, (double)x->probability);
        rd_strbuf_puts(&out, "\t");
        add_share(&out, (double)x->label_probability);
        rd_strbuf_printf(&out, "\t%" PRId32 "\n", x->rank + 1);
    }
    (void)write_text_file(dir, "predictions.tsv", &out, st);
    rd_strbuf_release(&out);
    return st->code;
}

static rd_code write_classes(const class_row *c, const rd_run *r, const char *dir, rd_status *st)
{
    rd_strbuf out = {0};
    rd_strbuf_puts(&out, "class\tsamples\tright\tpredicted\taccuracy\tprecision\tf1\n");
    for (int64_t k = 0; k < r->spec.n_classes; k++) {
        const double recall = class_recall(&c[k]), precision = class_precision(&c[k]);
        add_name(&out, r, c[k].id);
        rd_strbuf_printf(&out, "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t", c[k].samples,
                         c[k].right, c[k].predicted);
        add_share(&out, recall);
        rd_strbuf_puts(&out, "\t");
        add_share(&out, precision);
        rd_strbuf_puts(&out, "\t");
        if (c[k].samples + c[k].predicted > 0)
            add_share(&out, 2.0 * (double)c[k].right / (double)(c[k].samples + c[k].predicted));
        rd_strbuf_puts(&out, "\n");
    }
    (void)write_text_file(dir, "classes.tsv", &out, st);
    rd_strbuf_release(&out);
    return st->code;
}

static rd_code write_matrix_text(const int64_t *at, const rd_run *r, const char *dir, rd_status *st)
{
    const int64_t V = r->spec.n_classes;
    rd_strbuf out = {0};
    rd_strbuf_puts(&out, "label");
    for (int64_t k = 0; k < V; k++) {
        rd_strbuf_puts(&out, "\t");
        add_name(&out, r, (int32_t)k);
    }
    for (int64_t i = 0; i < V; i++) {
        rd_strbuf_puts(&out, "\n");
        add_name(&out, r, (int32_t)i);
        for (int64_t k = 0; k < V; k++) rd_strbuf_printf(&out, "\t%" PRId64, at[i * V + k]);
    }
    rd_strbuf_puts(&out, "\n");
    (void)write_text_file(dir, "confusion.tsv", &out, st);
    rd_strbuf_release(&out);
    return st->code;
}

static rd_code write_matrix(const predictions *p, const rd_run *r, const char *dir, rd_status *st)
{
    const int64_t V = r->spec.n_classes;
    int64_t *at = calloc((size_t)(V * V) + 1, sizeof *at);
    rd_picture picture = {0};
    rd_strbuf png = {0};
    if (!at) return rd_fail(st, RD_EENV, "out of memory for a matrix of %" PRId64 " classes", V);
    for (int64_t i = 0; i < p->n; i++)
        if (prediction_fits(&p->at[i], V)) at[p->at[i].label * V + p->at[i].predicted]++;
    const rd_confusion c = {V, at, r->spec.class_names};
    RD_TRY(write_matrix_text(at, r, dir, st));
    RD_TRY(rd_confusion_draw(&c, &picture, st));
    RD_TRY(rd_picture_png(&picture, &png, st));
    RD_TRY(write_text_file(dir, "confusion.png", &png, st));
done:
    rd_picture_release(&picture);
    rd_strbuf_release(&png);
    free(at);
    return st->code;
}

rd_code predictions_write(const predictions *p, const rd_run *r, const char *dir, rd_status *st)
{
    class_row *c = NULL;
    RD_TRY(count_classes(p, r->spec.n_classes, &c, st));
    RD_TRY(write_predictions(p, r, dir, st));
    RD_TRY(write_classes(c, r, dir, st));
    if (r->spec.n_classes <= RD_CONFUSION_MOST)
        RD_TRY(write_matrix(p, r, dir, st));
    else
        rd_info(r->log, "no confusion matrix is written: %" PRId64 " classes are more than %d",
                r->spec.n_classes, RD_CONFUSION_MOST);
done:
    free(c);
    return st->code;
}

/* ---- console ---- */

static int lowest_recall_first(const void *a, const void *b)
{
    const class_row *x = a, *y = b;
    const bool none_x = x->samples == 0, none_y = y->samples == 0;
    if (none_x != none_y) return none_x ? 1 : -1;
    if (!none_x && class_recall(x) != class_recall(y))
        return class_recall(x) < class_recall(y) ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Returns the number of characters of UTF-8. */
static int columns_of(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static rd_code print_classes(const class_row *all, const rd_run *r, rd_status *st)
{
    const int64_t V = r->spec.n_classes;
    class_row *c = malloc((size_t)(V + 1) * sizeof *c);
    int64_t n = 0, shown;
    int wide = 5;
    rd_strbuf name = {0};
    if (!c) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " classes", V);
    for (int64_t k = 0; k < V; k++)
        if (all[k].samples > 0) c[n++] = all[k];
    if (n > MOST_SHOWN) qsort(c, (size_t)n, sizeof *c, lowest_recall_first);
    shown = n > MOST_SHOWN ? WORST : n;
    for (int64_t k = 0; k < shown; k++) {
        rd_strbuf_reset(&name);
        rd_dataset_class_text(r->eval_data, c[k].id, &name);
        const int w = columns_of(rd_strbuf_str(&name));
        wide = w > wide ? w : wide;
    }
    wide = wide > 30 ? 30 : wide;
    rd_info(r->log, "accuracy by class%s:", n > MOST_SHOWN ? ", the ten lowest" : "");
    for (int64_t k = 0; k < shown; k++) {
        rd_strbuf_reset(&name);
        rd_dataset_class_text(r->eval_data, c[k].id, &name);
        const char *s = rd_strbuf_str(&name);
        rd_info(r->log, "  %s%*s  %6.2f %%  %" PRId64 " of %" PRId64, s,
                columns_of(s) < wide ? wide - columns_of(s) : 0, "", 100.0 * class_recall(&c[k]),
                c[k].right, c[k].samples);
    }
    rd_strbuf_release(&name);
    free(c);
    return st->code;
}

static int worst_first(const void *a, const void *b)
{
    const prediction *x = *(prediction *const *)a, *y = *(prediction *const *)b;
    const float p = isnan(x->label_probability) ? -1.0f : x->label_probability,
                q = isnan(y->label_probability) ? -1.0f : y->label_probability;
    if (p != q) return p < q ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static rd_code print_worst(const predictions *p, const rd_run *r, rd_status *st)
{
    const prediction **wrong = malloc((size_t)(p->n + 1) * sizeof *wrong);
    int64_t n = 0;
    rd_strbuf line = {0};
    if (!wrong) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " predictions", p->n);
    for (int64_t i = 0; i < p->n; i++)
        if (p->at[i].label != p->at[i].predicted) wrong[n++] = &p->at[i];
    qsort(wrong, (size_t)n, sizeof *wrong, worst_first);
    if (n > 0)
        rd_info(r->log, "the worst of %" PRId64 " mistake%s (prediction, label):", n, RD_S(n));
    for (int64_t i = 0; i < n && i < WORST; i++) {
        rd_strbuf_reset(&line);
        rd_strbuf_puts(&line, "  ");
        rd_dataset_class_text(r->eval_data, wrong[i]->predicted, &line);
        rd_strbuf_printf(&line, " %.4f, ", (double)wrong[i]->probability);
        rd_dataset_class_text(r->eval_data, wrong[i]->label, &line);
        rd_strbuf_printf(&line, " %.4f: ", (double)wrong[i]->label_probability);
        add_sample(&line, r, wrong[i]->id, true);
        rd_info(r->log, "%s", rd_strbuf_str(&line));
    }
    rd_strbuf_release(&line);
    free(wrong);
    return st->code;
}

rd_code predictions_print(const predictions *p, const rd_run *r, rd_status *st)
{
    class_row *c = NULL;
    RD_TRY(count_classes(p, r->spec.n_classes, &c, st));
    RD_TRY(print_classes(c, r, st));
    RD_TRY(print_worst(p, r, st));
done:
    free(c);
    return st->code;
}
