/* runs_diff.c -- what differs between two runs: keys, data, program, and the result. */
#include "runs_impl.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The answer: rows of a section, a name, and a text of each run. "" is nothing. */
typedef struct diff_rows {
    json_t *list; /* owned */
    bool failed;
} diff_rows;

static void diff_add(diff_rows *d, const char *section, const char *key, const char *a,
                     const char *b)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:s}", "section", section, "key", key, "a", a, "b", b);
    d->failed |= !row || json_array_append_new(d->list, row) != 0;
}

/* Adds a row where the texts differ. */
static void diff_texts(diff_rows *d, const char *section, const char *key, const char *a,
                       const char *b)
{
    if (strcmp(a, b) != 0) diff_add(d, section, key, a, b);
}

static void diff_values(diff_rows *d, const char *section, const char *key, const json_t *a,
                        const json_t *b)
{
    rd_strbuf x = {0}, y = {0}, name = {0};
    runs_show_value(&x, a);
    runs_show_value(&y, b);
    rd_printable_add(&name, key, strlen(key));
    diff_texts(d, section, rd_strbuf_str(&name), rd_strbuf_str(&x), rd_strbuf_str(&y));
    d->failed |= x.failed || y.failed || name.failed;
    rd_strbuf_release(&x);
    rd_strbuf_release(&y);
    rd_strbuf_release(&name);
}

static void diff_config(diff_rows *d, const runs_facts f[2])
{
    runs_list both = {.at = (runs_facts *)(uintptr_t)f, .n = 2};
    int n;
    const char **keys = runs_differing(&both, &n);
    d->failed |= n < 0;
    for (int i = 0; i < n; i++)
        diff_values(d, "config", keys[i], json_object_get(f[0].config, keys[i]),
                    json_object_get(f[1].config, keys[i]));
    free((void *)keys);
}

/* The data as the checkpoints name them, else as the runs printed them. */
static void diff_data(diff_rows *d, const runs_facts f[2], const runs_banner k[2])
{
    static const char *const entries[] = {"data", "src_vocab_hash", "tgt_vocab_hash", "classes"};
    json_t *a = runs_manifest(f[0].folder), *b = runs_manifest(f[1].folder);
    for (size_t i = 0; a && b && i < sizeof entries / sizeof *entries; i++) {
        json_t *u = json_object_get(a, entries[i]), *v = json_object_get(b, entries[i]);
        if (u && v) diff_values(d, "data", entries[i], u, v);
    }
    json_decref(a);
    json_decref(b);
    diff_texts(d, "data", "size", k[0].data, k[1].data);
    diff_texts(d, "data", "vocabulary or images", k[0].vocabulary, k[1].vocabulary);
}

static void diff_program(diff_rows *d, const runs_banner k[2])
{
    diff_texts(d, "program", "version", k[0].program, k[1].program);
    diff_texts(d, "program", "world", k[0].world, k[1].world);
    diff_texts(d, "program", "device", k[0].device, k[1].device);
    diff_texts(d, "program", "model", k[0].model, k[1].model);
    diff_texts(d, "program", "global batch", k[0].batch, k[1].batch);
}

static void real_text(double v, char out[64])
{
    if (isnan(v))
        (void)snprintf(out, 64, "-");
    else
        (void)snprintf(out, 64, "%.6g", v);
}

/* The result is shown whole, equal or not. */
static void diff_result(diff_rows *d, const runs_facts f[2])
{
    char text[2][700], time[32], v[64];
    const char *keys[] = {"state", "steps", "time", "best", "last", "training loss"};
    for (int row = 0; row < 6; row++) {
        for (int i = 0; i < 2; i++) {
            char *t = text[i];
            const size_t n = sizeof text[i];
            real_text(row == 3 ? f[i].best : row == 4 ? f[i].last : f[i].loss, v);
            if (row == 0)
                (void)snprintf(t, n, "%s%s%s", runs_state_name(f[i].state), f[i].why[0] ? ": " : "",
                               f[i].why);
            else if (row == 1)
                (void)snprintf(t, n, "%" PRId64, f[i].step);
            else if (row == 2)
                (void)snprintf(t, n, "%s", runs_duration(f[i].seconds, time));
            else if (row == 3 && f[i].figure[0])
                (void)snprintf(t, n, "%s %s at step %" PRId64, f[i].figure, v, f[i].best_step);
            else if (row == 4 && f[i].figure[0])
                (void)snprintf(t, n, "%s %s", f[i].figure, v);
            else
                (void)snprintf(t, n, "%s", v);
        }
        diff_add(d, "result", keys[row], text[0], text[1]);
    }
}

/* ---- the answer ---- */

static const char *row_text(const json_t *row, const char *key)
{
    const char *s = json_string_value(json_object_get(row, key));
    return s ? s : "";
}

static void put_padded(rd_strbuf *b, const char *text, int width)
{
    rd_strbuf cut = {0};
    runs_cut(&cut, text, width);
    rd_strbuf_puts(b, rd_strbuf_str(&cut));
    for (int i = runs_columns(rd_strbuf_str(&cut), cut.n); i < width; i++) rd_strbuf_puts(b, " ");
    rd_strbuf_release(&cut);
}

static int widest_text(const diff_rows *d, const char *key, int most)
{
    size_t i;
    json_t *row;
    int widest = 1;
    json_array_foreach(d->list, i, row)
    {
        const char *s = row_text(row, key);
        const int w = runs_columns(s, strlen(s));
        widest = w > widest && w <= most ? w : widest;
    }
    return widest;
}

/* Texts that fit stand side by side, others below each other in full, since paths differ at their
 * ends. */
static void diff_text(const diff_rows *d, const char *a, const char *b_, int width, rd_strbuf *b)
{
    const int wide = width > 0 ? width : 100;
    const int key = widest_text(d, "key", wide / 2), each = (wide - key - 6) / 2;
    int left = widest_text(d, "a", each);
    const char *section = "";
    size_t i;
    json_t *row;
    const int w = runs_columns(a, strlen(a));
    left = w > left ? (w < each ? w : each) : left;
    put_padded(b, "", key + 4);
    put_padded(b, a, left);
    rd_strbuf_puts(b, "  ");
    runs_cut(b, b_, each);
    rd_strbuf_puts(b, "\n");
    json_array_foreach(d->list, i, row)
    {
        const char *x = row_text(row, "a"), *y = row_text(row, "b");
        if (strcmp(section, row_text(row, "section")) != 0) {
            section = row_text(row, "section");
            rd_strbuf_printf(b, "%s\n", section);
        }
        rd_strbuf_puts(b, "  ");
        if (runs_columns(x, strlen(x)) <= left && runs_columns(y, strlen(y)) <= each) {
            put_padded(b, row_text(row, "key"), key + 2);
            put_padded(b, x[0] ? x : "-", left);
            rd_strbuf_printf(b, "  %s\n", y[0] ? y : "-");
        } else {
            rd_strbuf_printf(b, "%s\n    a: %s\n    b: %s\n", row_text(row, "key"), x[0] ? x : "-",
                             y[0] ? y : "-");
        }
    }
}

static void diff_csv(const diff_rows *d, rd_strbuf *b)
{
    static const char *const columns[] = {"section", "key", "a", "b"};
    size_t i;
    json_t *row;
    rd_strbuf_puts(b, "section,key,a,b\n");
    json_array_foreach(d->list, i, row)
    {
        for (int c = 0; c < 4; c++) {
            if (c) rd_strbuf_puts(b, ",");
            rd_printable_csv(b, row_text(row, columns[c]), false);
        }
        rd_strbuf_puts(b, "\n");
    }
}

rd_code runs_diff(const char *a, const char *b_, runs_format format, int width, rd_strbuf *b,
                  rd_status *st)
{
    runs_facts f[2] = {{.folder = NULL}, {.folder = NULL}};
    runs_banner k[2];
    diff_rows d = {.list = json_array()};
    RD_TRY(runs_read(a, a, &f[0], NULL, st));
    RD_TRY(runs_read(b_, b_, &f[1], NULL, st));
    for (int i = 0; i < 2; i++) runs_banner_read(f[i].folder, &k[i]);
    diff_config(&d, f);
    diff_data(&d, f, k);
    diff_program(&d, k);
    diff_result(&d, f);
    if (format == RUNS_TEXT) {
        diff_text(&d, f[0].name, f[1].name, width, b);
    } else if (format == RUNS_CSV) {
        diff_csv(&d, b);
    } else {
        json_t *o = json_pack("{s:s, s:s, s:O}", "a", f[0].name, "b", f[1].name, "differences",
                              d.list);
        char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
        d.failed |= text == NULL;
        if (text) rd_strbuf_printf(b, "%s\n", text);
        free(text);
        json_decref(o);
    }
    if (d.failed) rd_fail(st, RD_EENV, "out of memory for the differences");
done:
    json_decref(d.list);
    runs_facts_release(&f[0]);
    runs_facts_release(&f[1]);
    return st->code;
}
