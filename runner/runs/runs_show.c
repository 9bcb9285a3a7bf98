/* runs_show.c -- one run on one screen: its end, its model and data, the keys set, its curves. */
#include "runs_impl.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { PLOT_LINES = 9, LEAST_WIDTH = 40, SIDE_BY_SIDE = 72, MOST_SET = 3 };

/* Does the terminal show UTF-8? */
static bool shows_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *v = getenv(names[i]);
        if (v && *v) return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
    }
    return false;
}

/* Appends a line "title  text", cut to the width. Nothing if the text is empty. */
static void show_line(rd_strbuf *b, const char *title, const char *text, int width)
{
    rd_strbuf line = {0};
    if (!text[0]) return;
    rd_strbuf_printf(&line, "%-9s %s", title, text);
    if (width > 0)
        runs_cut(b, rd_strbuf_str(&line), width);
    else
        rd_strbuf_puts(b, rd_strbuf_str(&line));
    rd_strbuf_puts(b, "\n");
    rd_strbuf_release(&line);
}

/* "2026-11-29 16:30" in local time; "" if it is not known. */
static void show_date(double seconds, char out[32])
{
    const time_t t = (time_t)(isfinite(seconds) && fabs(seconds) < 1e11 ? seconds : 0.0);
    struct tm at;
    out[0] = '\0';
    if (t > 0 && localtime_r(&t, &at)) (void)strftime(out, 32, "%Y-%m-%d %H:%M", &at);
}

static void show_end(const runs_facts *f, rd_strbuf *b, int width)
{
    char text[600], time[32], begun[32], ended[32], steps[48] = "";
    if (f->to_step > 0) (void)snprintf(steps, sizeof steps, " of %" PRId64, f->to_step);
    show_date(f->started, begun);
    show_date(f->last_time, ended);
    (void)snprintf(text, sizeof text, "%s%s%s%s%s", runs_state_name(f->state),
                   f->end[0] ? " by " : "", f->end, f->why[0] ? ": " : "", f->why);
    show_line(b, "state", text, width);
    if (f->step >= 0) {
        int n = snprintf(text, sizeof text, "step %" PRId64 "%s in %s", f->step, steps,
                         runs_duration(f->seconds, time));
        if (!isnan(f->units_per_s))
            n += snprintf(text + n, sizeof text - (size_t)n, ", %.6g %s/s", f->units_per_s,
                          f->unit);
        if (begun[0])
            (void)snprintf(text + n, sizeof text - (size_t)n, "; %s%s%s", begun,
                           ended[0] ? " to " : "", ended);
        show_line(b, "progress", text, width);
    }
    if (!isnan(f->best)) {
        int n = snprintf(text, sizeof text, "best %s %.6g at step %" PRId64 ", last %.6g",
                         f->figure, f->best, f->best_step, f->last);
        if (!isnan(f->loss) && strcmp(f->figure, "train loss") != 0)
            (void)snprintf(text + n, sizeof text - (size_t)n, "; last training loss %.6g", f->loss);
        show_line(b, "result", text, width);
    }
    show_line(b, "damage", f->damage, width);
}

/* The list of keys while it is wrapped. */
typedef struct set_lines {
    rd_strbuf *out, line;
    int width, wide, lines, left; /* left: number of keys without room */
} set_lines;

static void set_flush(set_lines *l)
{
    if (l->line.n > 0 && l->lines < MOST_SET)
        show_line(l->out, l->lines ? "" : "keys", rd_strbuf_str(&l->line), l->width);
    l->lines++;
    rd_strbuf_reset(&l->line);
}

static void set_add(set_lines *l, const char *key, const json_t *v)
{
    rd_strbuf item = {0}, cut = {0};
    rd_printable_add(&item, key, strlen(key));
    rd_strbuf_puts(&item, " ");
    runs_show_value(&item, v);
    runs_cut(&cut, rd_strbuf_str(&item), l->wide > 60 ? 56 : l->wide - 12);
    const int w = runs_columns(rd_strbuf_str(&cut), cut.n);
    const int used = runs_columns(rd_strbuf_str(&l->line), l->line.n);
    if (l->line.n > 0 && 10 + used + 2 + w > l->wide) set_flush(l);
    if (l->lines < MOST_SET)
        rd_strbuf_printf(&l->line, "%s%s", l->line.n ? ", " : "", rd_strbuf_str(&cut));
    else
        l->left++;
    rd_strbuf_release(&item);
    rd_strbuf_release(&cut);
}

/* The keys that the user set, wrapped, in at most MOST_SET lines. Paths are long, and come last. */
static void show_set(const runs_facts *f, rd_strbuf *b, int width)
{
    set_lines l = {.out = b, .width = width, .wide = width > 0 ? width : 1 << 20};
    const char *key;
    json_t *source;
    for (int pass = 0; pass < 2; pass++) {
        json_object_foreach(f->set, key, source)
        {
            const json_t *v = json_object_get(f->config, key);
            const char *text = json_string_value(v);
            const bool is_path = text && strchr(text, '/');
            if (is_path == (pass == 1) && !json_is_null(v) &&
                strcmp(json_string_value(source), "forced") != 0)
                set_add(&l, key, v);
        }
    }
    set_flush(&l);
    if (l.left > 0) {
        char more[64];
        (void)snprintf(more, sizeof more, "and %d more: --format=json has all", l.left);
        show_line(b, "", more, width);
    }
    rd_strbuf_release(&l.line);
}

static void show_curves(const runs_facts *f, const runs_curves *c, rd_strbuf *b, int width)
{
    const bool braille = shows_utf8(), evaluated = c->figure.n > 0;
    const int wide = width > 0 ? width : 80;
    const bool two = wide >= SIDE_BY_SIDE;
    const int each = two ? (wide - 2) / 2 : wide;
    rd_strbuf lines[2][PLOT_LINES + 2] = {{{0}}};
    runs_curve_draw(&c->loss, "training loss (mean)", each, PLOT_LINES, braille, lines[0]);
    if (two)
        runs_curve_draw(evaluated ? &c->figure : &c->rate, evaluated ? f->figure : "learning rate",
                        each, PLOT_LINES, braille, lines[1]);
    for (int i = 0; i < PLOT_LINES + 2; i++) {
        rd_strbuf line = {0};
        rd_strbuf_puts(&line, rd_strbuf_str(&lines[0][i]));
        if (two) {
            for (int k = runs_columns(rd_strbuf_str(&line), line.n); k < each + 2; k++)
                rd_strbuf_puts(&line, " ");
            rd_strbuf_puts(&line, rd_strbuf_str(&lines[1][i]));
        }
        while (line.n > 0 && line.s[line.n - 1] == ' ') line.s[--line.n] = '\0';
        rd_strbuf_puts(b, rd_strbuf_str(&line));
        rd_strbuf_puts(b, "\n");
        rd_strbuf_release(&line);
        rd_strbuf_release(&lines[0][i]);
        rd_strbuf_release(&lines[1][i]);
    }
}

static void show_text(const runs_facts *f, const runs_curves *c, int width, rd_strbuf *b)
{
    runs_banner banner;
    char text[512];
    const int wide = width > 0 && width < LEAST_WIDTH ? LEAST_WIDTH : width;
    runs_banner_read(f->folder, &banner);
    show_line(b, "run", f->name, wide);
    show_end(f, b, wide);
    (void)snprintf(text, sizeof text, "%s%s%s", banner.program, banner.config[0] ? ": " : "",
                   banner.config);
    show_line(b, "program", text, wide);
    (void)snprintf(text, sizeof text, "%s%s%s", banner.world, banner.device[0] ? "; " : "",
                   banner.device);
    show_line(b, "machine", text, wide);
    (void)snprintf(text, sizeof text, "%s%s%s", banner.model, banner.vocabulary[0] ? "; " : "",
                   banner.vocabulary);
    show_line(b, "model", text, wide);
    (void)snprintf(text, sizeof text, "%s%s%s", banner.data, banner.batch[0] ? "; batch " : "",
                   banner.batch);
    show_line(b, "data", text, wide);
    show_set(f, b, wide);
    show_curves(f, c, b, wide);
}

static void points_json(json_t *o, const char *name, const runs_curve *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++)
        (void)json_array_append_new(list, json_pack("[f,f]", c->step[i], c->value[i]));
    (void)json_object_set_new(o, name, list);
}

rd_code runs_show(const char *folder, runs_format format, int width, rd_strbuf *b, rd_status *st)
{
    runs_facts f;
    runs_curves *c = calloc(1, sizeof *c);
    if (!c) return rd_fail(st, RD_EENV, "out of memory for the curves");
    if (runs_read(folder, folder, &f, c, st) != RD_OK) goto done;
    if (format == RUNS_JSON) {
        json_t *o = runs_json(&f), *curves = json_object();
        points_json(curves, "train_loss", &c->loss);
        if (f.figure[0]) points_json(curves, f.figure, &c->figure);
        points_json(curves, "learning_rate", &c->rate);
        (void)json_object_set(o, "config", f.config);
        (void)json_object_set_new(o, "curves", curves);
        char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        b->failed |= text == NULL;
        if (text) rd_strbuf_printf(b, "%s\n", text);
        free(text);
        json_decref(o);
    } else {
        show_text(&f, c, width, b);
    }
    runs_facts_release(&f);
done:
    free(c);
    return st->code;
}
