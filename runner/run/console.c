/* console.c -- lines for the user: one per summary, and a live line on a terminal in between.
 *
 * A line has the mean figures of the steps since the summary before. It fits the terminal, or 80
 * columns: metrics.jsonl has all figures. */
#include "console.h"
#include "rd/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

double console_real(double v)
{
    /* Not fabs(v): gcc takes exp(x) for positive and leaves fabs out. Its NaN can have a sign. */
    return isnan(v) ? (double)NAN : v;
}

/* ---- the line of a step ---- */

enum { MOST_FIELDS = 16, FIELD_BYTES = 80 };

/* The fields of a line in the order in which they are shown. The larger `rank`, the sooner a field
 * is left out where the line is too long. */
typedef struct step_line {
    int n;
    struct {
        int rank;
        char text[FIELD_BYTES];
    } field[MOST_FIELDS];
} step_line;

static RD_PRINTF(3, 4) void line_add(step_line *l, int rank, const char *fmt, ...)
{
    va_list ap;
    if (l->n == MOST_FIELDS) return;
    l->field[l->n].rank = rank;
    va_start(ap, fmt);
    (void)vsnprintf(l->field[l->n].text, FIELD_BYTES, fmt, ap);
    va_end(ap);
    l->n++;
}

/* Adds the parts of a line of class metrics, which two blanks separate. The first one counts
 * most. */
static void line_add_classes(step_line *l, const char *s)
{
    for (int k = 0; *s; k++) {
        s += strspn(s, " ");
        const char *end = strstr(s, "  ");
        const int n = end ? (int)(end - s) : (int)strlen(s);
        if (n > 0) line_add(l, k == 0 ? 2 : 6, "%.*s", n, s);
        s += n;
    }
}

static void line_fill(const rd_run *r, const step_record *s, step_line *l)
{
    char a[32];
    const bool image = run_is_image(r);
    line_add(l, 0, "step %s", rd_commas((double)s->step, a));
    line_add(l, 4, "epoch %.2f", (double)s->epoch + s->epoch_part);
    line_add(l, 1, "loss %.4f", console_real(s->loss_mean));
    if (image)
        line_add_classes(l, s->class_line);
    else
        line_add(l, 2, "ppl %.4g", console_real(exp(s->nll_mean)));
    line_add(l, 7, "lr %.4g", s->learning_rate);
    if (image)
        line_add(l, 5, "%s %s/s", rd_commas(s->samples_per_s, a),
                 r->model->unit ? r->model->unit : "samples");
    else
        line_add(l, 5, "%s tokens/s", rd_commas(s->tokens_per_s, a));
    line_add(l, 3, "eta %s", rd_duration_text(s->eta_s, a));
    line_add(l, 8, "%.4g s/step", s->step_s);
    line_add(l, 9, "norm %.4g", console_real(s->grad_norm));
    if (s->ranks) line_add(l, 10, "exchange %.1f %%", 100.0 * fmin(1.0, s->ranks->exposed_share));
    if (image)
        line_add(l, 11, "input wait %.1f %%", 100.0 * fmin(1.0, s->input_wait));
    else if (s->model_flops > 0.0)
        line_add(l, 6, "mfu %.1f %%", 100.0 * s->mfu);
    else
        line_add(l, 12, "%s target tokens/s", rd_commas(s->target_tokens_per_s, a));
}

/* Writes the fields that fit into this number of columns, at least those of rank 0 and 1. */
static void line_text(const step_line *l, int columns, char *out, size_t n)
{
    for (int most = 99; most >= 1; most--) {
        size_t used = 0;
        out[0] = '\0';
        for (int i = 0; i < l->n && used < n; i++)
            if (l->field[i].rank <= most)
                used += (size_t)snprintf(out + used, n - used, "%s%s", used ? "  " : "",
                                         l->field[i].text);
        if ((int)used <= columns) return;
    }
}

static void console_describe(const rd_run *r, const step_record *s, char *out, size_t n)
{
    step_line l = {0};
    line_fill(r, s, &l);
    /* The last column of a terminal stays free: a full line would move the cursor. */
    line_text(&l, rd_log_columns(r->log) - rd_log_watched(r->log), out, n);
}

void console_step(rd_run *r, const step_record *s)
{
    char line[1024];
    console_describe(r, s, line, sizeof line);
    rd_info(r->log, "%s", line);
}

bool console_watched(const rd_run *r)
{
    return rd_log_is_tty(r->log) && rd_log_watched(r->log);
}

void console_live(rd_run *r, const step_record *s)
{
    char line[1024];
    console_describe(r, s, line, sizeof line);
    rd_live(r->log, "%s", line);
}

void console_texts_release(console_texts *t)
{
    rd_strbuf_release(&t->source);
    rd_strbuf_release(&t->target);
    rd_strbuf_release(&t->predicted);
}

void console_keep(console_texts *t, const rd_dataset *d, const rd_batch *b, int64_t i,
                  const int32_t *predicted, int64_t n)
{
    const rd_field *src = rd_batch_field(b, "source"), *tgt = rd_batch_field(b, "target");
    rd_strbuf_reset(&t->source);
    rd_strbuf_reset(&t->target);
    rd_strbuf_reset(&t->predicted);
    /* A text has no source, and is too long for a log. */
    if (!src || !tgt || i < 0 || i >= b->n || !predicted) return;
    rd_dataset_text(d, 0, (const int32_t *)src->data + src->off[i], src->off[i + 1] - src->off[i],
                    true, &t->source);
    rd_dataset_text(d, 1, (const int32_t *)tgt->data + tgt->off[i], tgt->off[i + 1] - tgt->off[i],
                    true, &t->target);
    rd_dataset_text(d, 1, predicted, n, true, &t->predicted);
}

void console_sample(rd_run *r, const char *split, const console_texts *t)
{
    if (t->source.n == 0 && t->target.n == 0) return;
    rd_info_cut(r->log, "  %s Source[0]:     %s", split, rd_strbuf_str(&t->source));
    rd_info_cut(r->log, "  %s Target[0]:     %s", split, rd_strbuf_str(&t->target));
    rd_info_cut(r->log, "  %s Prediction[0]: %s", split, rd_strbuf_str(&t->predicted));
}
