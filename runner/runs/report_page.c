/* report_page.c -- the page of the report: HTML that is whole without its program, the style, the
 * program, and the data of the curves.
 *
 * The policy in the head allows this style and this program by their hashes, and pictures inside
 * the page. Nothing else may run or be loaded, whatever the texts of the runs hold. */
#include "report_impl.h"
#include "report_assets.inc"
#include "rd/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef RD_VERSION /* make gives both */
#define RD_VERSION "unknown"
#define RD_COMMIT "unknown"
#endif

enum { MOST_KEY_COLUMNS = 10, MOST_COMPARED = 200, MOST_VALUE = 300 };

/* "2026-11-29 16:30" in local time; "" if it is not known. */
static void date_of(double seconds, char out[32])
{
    const time_t t = (time_t)(isfinite(seconds) && fabs(seconds) < 1e11 ? seconds : 0.0);
    struct tm at;
    out[0] = '\0';
    if (t > 0 && localtime_r(&t, &at)) (void)strftime(out, 32, "%Y-%m-%d %H:%M", &at);
}

static void put_value(rd_strbuf *b, const json_t *v)
{
    rd_strbuf text = {0};
    runs_show_value(&text, v);
    report_text_n(b, rd_strbuf_str(&text), text.n < MOST_VALUE ? text.n : MOST_VALUE);
    if (text.n > MOST_VALUE) rd_strbuf_puts(b, " ...");
    b->failed |= text.failed;
    rd_strbuf_release(&text);
}

static void put_state(const runs_facts *f, rd_strbuf *b)
{
    rd_strbuf_printf(b, "<span class=\"state %s\">%s", runs_state_name(f->state),
                     runs_state_name(f->state));
    if (f->state == RUNS_FAILED && f->exit_code > 0) rd_strbuf_printf(b, " %d", f->exit_code);
    rd_strbuf_puts(b, "</span>");
    if (f->why[0]) {
        rd_strbuf_puts(b, "<span class=\"why\">");
        report_text(b, f->why);
        rd_strbuf_puts(b, "</span>");
    }
}

/* ---- runs ---- */

/* Begins a cell of a number. v: what a sort takes; NAN: none. */
static void number_cell(rd_strbuf *b, double v)
{
    if (isfinite(v))
        rd_strbuf_printf(b, "<td class=\"n\" data-v=\"%.17g\">", v);
    else
        rd_strbuf_puts(b, "<td class=\"n\">");
}

static const char *same_figure(const runs_list *l)
{
    const char *first = NULL;
    for (int i = 0; i < l->n; i++) {
        if (!l->at[i].figure[0]) continue;
        if (first && strcmp(first, l->at[i].figure) != 0) return NULL;
        first = l->at[i].figure;
    }
    return first;
}

static void run_row(const runs_list *l, int i, const char **keys, int n_keys, rd_strbuf *b)
{
    const runs_facts *f = &l->at[i];
    char text[32];
    rd_strbuf_printf(b, "<tr data-run=\"%d\"><th scope=\"row\">", i);
    report_text(b, f->name);
    rd_strbuf_puts(b, "</th><td>");
    put_state(f, b);
    rd_strbuf_puts(b, "</td>");
    number_cell(b, f->step >= 0 ? (double)f->step : (double)NAN);
    if (f->step >= 0)
        rd_strbuf_printf(b, "%" PRId64, f->step);
    else
        rd_strbuf_puts(b, "–");
    if (f->state != RUNS_DONE && f->to_step > 0) rd_strbuf_printf(b, " of %" PRId64, f->to_step);
    rd_strbuf_puts(b, "</td>");
    number_cell(b, f->seconds);
    rd_strbuf_printf(b, "%s</td>", runs_duration(f->seconds, text));
    number_cell(b, f->best);
    report_number(b, f->best);
    if (f->figure[0] && !same_figure(l)) {
        rd_strbuf_puts(b, " ");
        report_text(b, f->figure);
    }
    rd_strbuf_puts(b, "</td>");
    number_cell(b, f->best_step >= 0 ? (double)f->best_step : (double)NAN);
    if (f->best_step >= 0)
        rd_strbuf_printf(b, "%" PRId64 "</td>", f->best_step);
    else
        rd_strbuf_puts(b, "–</td>");
    number_cell(b, f->loss);
    report_number(b, f->loss);
    rd_strbuf_puts(b, "</td>");
    number_cell(b, f->units_per_s);
    report_number(b, f->units_per_s);
    rd_strbuf_puts(b, "</td>");
    for (int k = 0; k < n_keys; k++) {
        const json_t *v = json_object_get(f->config, keys[k]);
        if (json_is_number(v))
            number_cell(b, json_number_value(v));
        else
            rd_strbuf_puts(b, "<td>");
        if (json_is_real(v))
            report_number(b, json_real_value(v)); /* all digits are below, where keys differ */
        else
            put_value(b, v);
        rd_strbuf_puts(b, "</td>");
    }
    rd_strbuf_puts(b, "</tr>\n");
}

static void section_runs(const runs_list *l, const char **keys, int n_keys, rd_strbuf *b)
{
    const int shown = n_keys < MOST_KEY_COLUMNS ? n_keys : MOST_KEY_COLUMNS;
    const char *figure = same_figure(l);
    rd_strbuf_puts(b,
                   "<section id=\"overview\" aria-labelledby=\"h-overview\"><h2 id=\"h-overview\">"
                   "Runs</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                   "aria-label=\"Table of runs\"><table id=\"runs\"><thead><tr>"
                   "<th scope=\"col\">run</th><th scope=\"col\">state</th>"
                   "<th scope=\"col\" class=\"n\">steps</th><th scope=\"col\" class=\"n\">time"
                   "</th><th scope=\"col\" class=\"n\">best");
    if (figure) {
        rd_strbuf_puts(b, " ");
        report_text(b, figure);
    }
    rd_strbuf_puts(b, "</th><th scope=\"col\" class=\"n\">at step</th><th scope=\"col\" "
                      "class=\"n\">training loss</th><th scope=\"col\" class=\"n\">");
    report_text(b, l->n > 0 && l->at[0].unit[0] ? l->at[0].unit : "samples");
    rd_strbuf_puts(b, "/s</th>");
    for (int k = 0; k < shown; k++) {
        rd_strbuf_puts(b, "<th scope=\"col\">");
        report_text(b, keys[k]);
        rd_strbuf_puts(b, "</th>");
    }
    rd_strbuf_puts(b, "</tr></thead><tbody>\n");
    for (int i = 0; i < l->n; i++) run_row(l, i, keys, shown, b);
    rd_strbuf_puts(b, "</tbody></table></div>\n</section>\n");
}

static void tile_text(rd_strbuf *b, const char *title, const char *value, const char *more)
{
    rd_strbuf_printf(b, "<div><dt>%s</dt><dd>", title);
    report_text(b, value);
    if (more[0]) {
        rd_strbuf_puts(b, "<span class=\"dim\">");
        report_text(b, more);
        rd_strbuf_puts(b, "</span>");
    }
    rd_strbuf_puts(b, "</dd></div>\n");
}

/* The figures of a single run. */
static void section_tiles(const runs_facts *f, rd_strbuf *b)
{
    char value[128], more[128], begun[32], ended[32];
    rd_strbuf_puts(b, "<section id=\"overview\" aria-label=\"Overview\"><dl class=\"tiles\">\n<div>"
                      "<dt>state</dt><dd>");
    put_state(f, b);
    rd_strbuf_puts(b, "</dd></div>\n");
    if (f->figure[0]) {
        char title[64];
        rd_strbuf name = {0};
        report_text(&name, f->figure);
        (void)snprintf(title, sizeof title, "best %.50s", rd_strbuf_str(&name));
        (void)snprintf(value, sizeof value, "%.6g", f->best);
        (void)snprintf(more, sizeof more, "at step %" PRId64 ", last %.6g", f->best_step, f->last);
        tile_text(b, title, value, more);
        rd_strbuf_release(&name);
    }
    if (!isnan(f->loss)) {
        (void)snprintf(value, sizeof value, "%.6g", f->loss);
        tile_text(b, "last training loss", value, "mean since the record before");
    }
    if (f->step >= 0) {
        (void)snprintf(value, sizeof value, "%" PRId64, f->step);
        more[0] = '\0';
        if (f->to_step > 0) (void)snprintf(more, sizeof more, "of %" PRId64, f->to_step);
        tile_text(b, "steps", value, more);
    }
    date_of(f->started, begun);
    date_of(f->last_time, ended);
    if (begun[0]) {
        (void)snprintf(more, sizeof more, "%s to %s", begun, ended);
        tile_text(b, "time of training", runs_duration(f->seconds, value), more);
    }
    if (!isnan(f->units_per_s)) {
        (void)snprintf(value, sizeof value, "%.6g", f->units_per_s);
        (void)snprintf(more, sizeof more, "%s per second", f->unit);
        tile_text(b, "last speed", value, more);
    }
    rd_strbuf_puts(b, "</dl></section>\n");
}

/* ---- comparisons ---- */

/* Writes the value of a fact of a run. */
typedef void fact_fn(const runs_list *l, int run, const void *ctx, int fact, rd_strbuf *b);

/* A table with a row for each fact and a column for each run. Facts that are equal in all runs have
 * one cell. */
static void put_compared(const runs_list *l, const char *label, const char *const *names,
                         int n_facts, fact_fn *fact, const void *ctx, rd_strbuf *b)
{
    const int n = l->n;
    rd_strbuf_printf(
        b,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table "
        "class=\"compare\"><thead><tr><th scope=\"col\">%s</th>",
        label, label);
    for (int i = 0; i < n; i++) {
        rd_strbuf_puts(b, "<th scope=\"col\">");
        report_text(b, l->at[i].name);
        rd_strbuf_puts(b, "</th>");
    }
    rd_strbuf_puts(b, "</tr></thead><tbody>\n");
    rd_strbuf first = {0}, other = {0};
    for (int k = 0; k < n_facts; k++) {
        bool same = true, any = false;
        rd_strbuf_reset(&first);
        fact(l, 0, ctx, k, &first);
        for (int i = 1; i < n && same; i++) {
            rd_strbuf_reset(&other);
            fact(l, i, ctx, k, &other);
            same = !strcmp(rd_strbuf_str(&first), rd_strbuf_str(&other));
        }
        any = !same || first.n > 0;
        if (!any) continue;
        rd_strbuf_puts(b, "<tr><th scope=\"row\">");
        report_text(b, names[k]);
        rd_strbuf_puts(b, "</th>");
        if (same && n > 1) {
            rd_strbuf_printf(b, "<td class=\"long same\" colspan=\"%d\">", n);
            rd_strbuf_puts(b, rd_strbuf_str(&first));
            rd_strbuf_puts(b, "</td></tr>\n");
            continue;
        }
        for (int i = 0; i < n; i++) {
            rd_strbuf_reset(&other);
            fact(l, i, ctx, k, &other);
            rd_strbuf_printf(b, "<td%s>", other.n > 24 ? " class=\"long\"" : "");
            rd_strbuf_puts(b, rd_strbuf_str(&other));
            rd_strbuf_puts(b, "</td>");
        }
        rd_strbuf_puts(b, "</tr>\n");
    }
    b->failed |= first.failed || other.failed;
    rd_strbuf_release(&first);
    rd_strbuf_release(&other);
    rd_strbuf_puts(b, "</tbody></table></div>\n");
}

static void fact_key(const runs_list *l, int run, const void *ctx, int fact, rd_strbuf *b)
{
    const char *const *keys = ctx;
    put_value(b, json_object_get(l->at[run].config, keys[fact]));
}

/* Lists the keys that any run set and that are equal in all runs; the caller frees the list. */
static const char **keys_set(const runs_list *l, const char **differing, int n_differing, int *n)
{
    json_t *seen = json_object();
    const char **list = calloc(MOST_COMPARED, sizeof *list), *key;
    json_t *source;
    *n = 0;
    for (int k = 0; seen && k < n_differing; k++)
        (void)json_object_set_new(seen, differing[k], json_true());
    for (int i = 0; seen && list && i < l->n; i++) {
        json_object_foreach(l->at[i].set, key, source)
        {
            if (*n == MOST_COMPARED || json_object_get(seen, key)) continue;
            (void)json_object_set_new(seen, key, json_true());
            list[(*n)++] = key;
        }
    }
    json_decref(seen);
    return list;
}

static void section_config(const runs_list *l, const char **keys, int n_keys, rd_strbuf *b)
{
    int n_set;
    const char **set = keys_set(l, keys, l->n > 1 ? n_keys : 0, &n_set);
    const int most = n_keys < MOST_COMPARED ? n_keys : MOST_COMPARED;
    b->failed |= !set;
    rd_strbuf_puts(b, "<section id=\"config\" aria-labelledby=\"h-config\"><h2 id=\"h-config\">"
                      "Configuration</h2>\n");
    if (l->n > 1 && most > 0) {
        rd_strbuf_printf(b, "<p class=\"hint\">%d key%s in the runs.</p>\n", n_keys,
                         n_keys == 1 ? " differs" : "s differ");
        put_compared(l, "Keys that differ", keys, most, fact_key, keys, b);
    } else if (l->n > 1) {
        rd_strbuf_puts(b, "<p class=\"hint\">All keys are equal in the runs.</p>\n");
    }
    if (set && n_set > 0) {
        runs_list one = {.at = l->at, .n = 1};
        rd_strbuf_printf(b, "<details%s><summary>%s</summary>\n", l->n > 1 ? "" : " open",
                         l->n > 1 ? "Keys that were set, equal in all runs" : "Keys that were set");
        put_compared(&one, "Keys that were set", set, n_set, fact_key, set, b);
        rd_strbuf_puts(b, "</details>\n");
    }
    rd_strbuf_puts(b, "</section>\n");
    free((void *)set);
}

/* ---- environment ---- */

enum { ENVIRONMENT = 10 };

static void fact_environment(const runs_list *l, int run, const void *ctx, int fact, rd_strbuf *b)
{
    const runs_banner *k = (const runs_banner *)ctx + run;
    const char *texts[ENVIRONMENT] = {k->program, k->config,     k->world, k->device,   k->model,
                                      k->data,    k->vocabulary, k->batch, k->optimizer};
    char date[32];
    date_of(l->at[run].started, date);
    texts[ENVIRONMENT - 1] = date;
    report_text(b, texts[fact]);
}

static void section_environment(const runs_list *l, rd_strbuf *b)
{
    static const char *const names[ENVIRONMENT] = {
        "program", "started as",           "ranks and hosts", "device",    "model",
        "data",    "vocabulary or images", "global batch",    "optimizer", "first start"};
    runs_banner *k = calloc((size_t)l->n + 1, sizeof *k);
    b->failed |= !k;
    for (int i = 0; k && i < l->n; i++) runs_banner_read(l->at[i].folder, &k[i]);
    rd_strbuf_puts(b, "<section id=\"environment\" aria-labelledby=\"h-environment\"><h2 "
                      "id=\"h-environment\">Environment</h2>\n<p class=\"hint\">Of the last start "
                      "of each run.</p>\n");
    if (k) put_compared(l, "Environment", names, ENVIRONMENT, fact_environment, k, b);
    bool damaged = false;
    for (int i = 0; i < l->n; i++) damaged |= l->at[i].damage[0] != '\0';
    if (damaged) {
        rd_strbuf_puts(b, "<h3>What could not be read</h3><ul>\n");
        for (int i = 0; i < l->n; i++) {
            if (!l->at[i].damage[0]) continue;
            rd_strbuf_puts(b, "<li>");
            report_text(b, l->at[i].name);
            rd_strbuf_puts(b, ": ");
            report_text(b, l->at[i].damage);
            rd_strbuf_puts(b, "</li>\n");
        }
        rd_strbuf_puts(b, "</ul>\n");
    }
    rd_strbuf_puts(b, "</section>\n");
    free(k);
}

/* ---- the page ---- */

static void section(rd_strbuf *b, const char *id, const char *title, const char *hint,
                    const rd_strbuf *body)
{
    if (body->n == 0) return;
    rd_strbuf_printf(b,
                     "<section id=\"%s\" aria-labelledby=\"h-%s\"><h2 id=\"h-%s\">%s</h2>\n<p "
                     "class=\"hint\">%s</p>\n",
                     id, id, id, title, hint);
    rd_strbuf_add(b, body->s, body->n);
    rd_strbuf_puts(b, "</section>\n");
    b->failed |= body->failed;
}

static void page_head(const report_parts *p, rd_strbuf *b)
{
    rd_strbuf_puts(b,
                   "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "script-src 'sha256-" REPORT_JS_SHA256 "'; style-src 'sha256-" REPORT_CSS_SHA256
                   "'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                   "<meta name=\"referrer\" content=\"no-referrer\">\n"
                   "<meta name=\"color-scheme\" content=\"light dark\">\n"
                   "<meta name=\"generator\" content=\"run_dist " RD_VERSION ", commit " RD_COMMIT
                   "\">\n<title>");
    report_text(b, p->title);
    rd_strbuf_puts(b, " – report of run_dist</title>\n<style>");
    rd_strbuf_add(b, report_css, sizeof report_css);
    rd_strbuf_puts(b, "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">to the "
                      "report</a>\n");
}

static void page_nav(const report_parts *p, rd_strbuf *b)
{
    const struct {
        const char *id, *title;
        bool there;
    } parts[] = {{"overview", "Overview", true},
                 {"curves", "Curves", true},
                 {"samples", "Samples", p->samples.n > 0},
                 {"mistakes", "Mistakes", p->mistakes.n > 0},
                 {"confusion", "Confusions", p->confusion.n > 0},
                 {"config", "Configuration", true},
                 {"environment", "Environment", true}};
    rd_strbuf_puts(b, "<nav aria-label=\"Sections\"><ul>");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].there)
            rd_strbuf_printf(b, "<li><a href=\"#%s\">%s</a></li>", parts[i].id, parts[i].title);
    rd_strbuf_puts(b, "</ul></nav>\n");
}

void report_page(const runs_list *l, const report_parts *p, rd_strbuf *b)
{
    char date[32];
    int n_keys = 0;
    const char **keys = runs_differing(l, &n_keys);
    b->failed |= n_keys < 0;
    if (n_keys < 0) n_keys = 0;
    date_of(rd_wall_s(), date);
    page_head(p, b);
    rd_strbuf_puts(b, "<header><h1>");
    report_text(b, p->title);
    rd_strbuf_printf(b,
                     "</h1>\n<p class=\"dim\">%d run%s%s, read on %s by run_dist " RD_VERSION
                     "</p>\n"
                     "</header>\n",
                     l->n, l->n == 1 ? "" : "s", l->more ? " (not all folders were searched)" : "",
                     date);
    page_nav(p, b);
    rd_strbuf_puts(b, "<main id=\"main\">\n");
    if (p->n_found > l->n)
        rd_strbuf_printf(b,
                         "<p><strong>The report shows the first %d of %d runs.</strong> --sort and "
                         "--where choose.</p>\n",
                         l->n, p->n_found);
    if (l->n == 1)
        section_tiles(&l->at[0], b);
    else
        section_runs(l, keys, n_keys, b);
    rd_strbuf_puts(b,
                   "<section id=\"curves\" aria-labelledby=\"h-curves\"><h2 id=\"h-curves\">"
                   "Curves</h2>\n<noscript><p>The curves need JavaScript. The tables below do "
                   "not.</p></noscript>\n<p class=\"hint\" id=\"keys\">Drag over a chart to zoom "
                   "all charts; double click for the whole curves. With a chart in focus: the "
                   "wheel, + and - zoom, arrow keys read values, Shift and arrows move, 0 shows "
                   "all, l changes the scale. Dots are evaluations. Pale areas reach from the "
                   "smallest to the largest value of a point.</p>\n<div class=\"charts\" "
                   "id=\"charts\"></div>\n</section>\n");
    section(b, "samples", "Samples", "The last training samples that each run recorded.",
            &p->samples);
    section(b, "mistakes", "Mistakes",
            "Samples of the last evaluation whose class was predicted wrongly: label, then the "
            "predicted class and its probability.",
            &p->mistakes);
    if (p->n_without > 0)
        rd_strbuf_printf(b,
                         "<p class=\"hint\">The pictures of %d run%s have no room in this page; a "
                         "report of one run alone has them.</p>\n",
                         p->n_without, p->n_without == 1 ? "" : "s");
    section(b, "confusion", "Confusions", "Of the last evaluation.", &p->confusion);
    section_config(l, keys, n_keys, b);
    section_environment(l, b);
    rd_strbuf_puts(b, "</main>\n<footer><p>This page is one file. It loads nothing and sends "
                      "nothing.</p></footer>\n<script type=\"application/json\" id=\"data\">");
    rd_strbuf_add(b, rd_strbuf_str(&p->data), p->data.n);
    rd_strbuf_puts(b, "</script>\n<script>");
    rd_strbuf_add(b, report_js, sizeof report_js);
    rd_strbuf_puts(b, "</script>\n</body></html>\n");
    b->failed |= p->data.failed;
    free((void *)keys);
}
