/* text_samples.c -- texts that a language model writes during its training; see text_samples.h.
 *
 * A sample of the evaluation data begins with a prompt, or its first tokens are taken for one. The
 * same samples and the same random numbers serve at every evaluation, so the texts show what the
 * model has learnt in between. */
#include "text_samples.h"
#include "decode.h"
#include "device.h"
#include "rd/printable.h"

#include <string.h>

enum { FIRST_TOKENS = 32 };

typedef struct text_writer {
    rd_run *run;
    recorder *records;
    rd_strbuf text, shown; /* of all samples in Markdown; of one */
} text_writer;

/* Adds the text of a sample. */
static rd_code text_sample(void *ctx, const rd_batch *b, int64_t i, const rd_decoded *d,
                           rd_status *st)
{
    text_writer *w = ctx;
    const rd_dataset *data = w->run->eval_data;
    const rd_dataset_def *def = rd_dataset_def_of(data);
    const rd_field *f = &b->field[0];
    const char *line, *end;
    rd_strbuf_reset(&w->shown);
    def->text(rd_dataset_self(data), 0, (const int32_t *)f->data + f->off[i],
              f->off[i + 1] - f->off[i], false, &w->shown);
    rd_strbuf_puts(&w->shown, " ... ");
    if (d->n > 0) def->text(rd_dataset_self(data), 1, d->ids, d->n, false, &w->shown);
    rd_info(w->run->log, "sample %lld at step %lld:", (long long)i + 1,
            (long long)w->run->progress.step);
    for (line = rd_strbuf_str(&w->shown); *line; line = *end ? end + 1 : end) {
        rd_strbuf out = {0};
        end = strchrnul(line, '\n');
        rd_printable_add(&out, line, (size_t)(end - line));
        rd_info(w->run->log, "  | %s", rd_strbuf_str(&out));
        rd_strbuf_puts(&w->text, "    ");
        rd_strbuf_puts(&w->text, rd_strbuf_str(&out));
        rd_strbuf_puts(&w->text, "\n");
        rd_strbuf_release(&out);
    }
    rd_strbuf_puts(&w->text, "\n---\n\n");
    if (w->text.failed || w->shown.failed) return rd_fail(st, RD_EENV, "out of memory for a text");
    return RD_OK;
}

/* Makes the prompts of a batch: the prompt of each sample, else some of its first tokens. */
static rd_code text_prompts(const rd_batch *from, rd_arena *a, rd_batch *out, rd_status *st)
{
    const rd_field *f = rd_batch_field(from, "target"), *prompt = rd_batch_field(from, "prompt");
    int64_t *off;
    int32_t *ids;
    if (!f) return rd_fail(st, RD_EBUG, "a batch without a text");
    RD_TRY(rd_arena_get(a, (size_t)(from->n + 1) * sizeof *off, &off, st));
    RD_TRY(rd_arena_get(a, (size_t)(f->off[from->n] + 1) * sizeof *ids, &ids, st));
    off[0] = 0;
    for (int64_t i = 0; i < from->n; i++) {
        const int64_t all = f->off[i + 1] - f->off[i],
                      some = all / 2 < FIRST_TOKENS ? all / 2 : FIRST_TOKENS,
                      n = prompt ? ((const int32_t *)prompt->data)[prompt->off[i]] : some;
        const int64_t taken = n < 1 ? 1 : n;
        memcpy(ids + off[i], (const int32_t *)f->data + f->off[i], (size_t)taken * sizeof *ids);
        off[i + 1] = off[i] + taken;
    }
    *out = *from;
    out->n_fields = 1;
    out->field[0] = (rd_field){.name = "source", .dtype = RD_I32, .data = ids, .off = off};
done:
    return st->code;
}

rd_code text_samples(rd_run *r, recorder *c, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    const int64_t count = def->count(rd_dataset_self(r->eval_data)),
                  n = r->config.sample_texts < count ? r->config.sample_texts : count;
    text_writer w = {.run = r, .records = c};
    rd_decode_config how;
    rd_search_keys keys;
    if (!r->model->continues || n < 1 || !def->text) return RD_OK;
    RD_TRY(decode_config(r, r->eval_data, &how, &keys, st));
    how.max_new_tokens = r->config.sample_tokens;
    for (int64_t k = 0; k < n; k++) {
        const int64_t id = k * (count / n);
        rd_batch from = {0}, prompts = {0};
        RD_TRY(device_fresh_batch(r, st));
        RD_TRY(def->fetch(rd_dataset_self(r->eval_data), &id, 1, r->batch_arena, &from, st));
        RD_TRY(text_prompts(&from, r->batch_arena, &prompts, st));
        RD_TRY(decode_one(r, &prompts, &how, text_sample, &w, st));
    }
    recorder_text(c, r->progress.step, "continuation", rd_strbuf_str(&w.text));
done:
    rd_strbuf_release(&w.text);
    rd_strbuf_release(&w.shown);
    return st->code;
}
