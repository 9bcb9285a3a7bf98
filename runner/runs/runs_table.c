/* runs_table.c -- the table of runs as text that fits a terminal, as CSV and as JSON.
 *
 * The text table gives up columns from the right when the terminal is narrow, and says which. Names
 * of keys are long and their values are short, so a name stands in several lines. */
#include "runs_impl.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

rd_code runs_format_read(const rd_cli *cli, runs_format *out, rd_status *st)
{
    const char *word = cli->format ? cli->format : cli->json ? "json" : "text";
    char shown[64];
    *out = RUNS_TEXT;
    if (!strcmp(word, "text")) return RD_OK;
    *out = RUNS_CSV;
    if (!strcmp(word, "csv")) return RD_OK;
    *out = RUNS_JSON;
    if (!strcmp(word, "json")) return RD_OK;
    return rd_fail(st, RD_EUSAGE, "--format must be one of text, csv, json, not '%s'",
                   rd_printable(word, strlen(word), false, shown, sizeof shown));
}

enum { FIXED = 5, MOST_CELL = 24, MOST_KEY_COLUMNS = 64, HEAD_LINES = 4 };

/* One table of text: a head of several lines, cells, and a width for each column. */
typedef struct text_table {
    int rows, columns;
    char **cell; /* owned [rows * columns] */
    char head[FIXED + MOST_KEY_COLUMNS][HEAD_LINES][40];
    int width[FIXED + MOST_KEY_COLUMNS];
} text_table;

static bool one_figure(const runs_list *l)
{
    const char *first = NULL;
    for (int i = 0; i < l->n; i++) {
        if (!l->at[i].figure[0]) continue;
        if (first && strcmp(first, l->at[i].figure) != 0) return false;
        first = l->at[i].figure;
    }
    return first != NULL;
}

/* Did something other than the length that was asked for, or a request, end the run? */
static bool end_is_early(const runs_facts *f)
{
    static const char *const usual[] = {"", "max_steps", "num_epochs", "max_epochs", "request"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!strcmp(f->end, usual[i])) return false;
    return true;
}

static void cell_fixed(const runs_facts *f, int column, bool figure, rd_strbuf *b)
{
    char text[32];
    switch (column) {
    case 0:
        rd_strbuf_printf(b, "%s%s", f->best_of_all ? "* " : "", f->name);
        break;
    case 1:
        rd_strbuf_puts(b, runs_state_name(f->state));
        if (f->state == RUNS_FAILED && f->exit_code > 0) rd_strbuf_printf(b, " %d", f->exit_code);
        if (end_is_early(f)) rd_strbuf_printf(b, " %s", f->end);
        break;
    case 2:
        if (f->step < 0)
            rd_strbuf_puts(b, "-");
        else
            rd_strbuf_printf(b, "%" PRId64, f->step);
        if (f->state != RUNS_DONE && f->to_step > 0) rd_strbuf_printf(b, "/%" PRId64, f->to_step);
        break;
    case 3:
        rd_strbuf_puts(b, runs_duration(f->seconds, text));
        break;
    default:
        if (isnan(f->best))
            rd_strbuf_puts(b, "-");
        else
            rd_strbuf_printf(b, "%.5g%s%s", f->best, figure ? "" : " ", figure ? "" : f->figure);
        break;
    }
}

/* Splits the name of a key at underscores into lines of at most `width` columns, the longest word
 * at least. Returns the widest. */
static int head_split(const char *name, int width, char out[HEAD_LINES][40])
{
    rd_strbuf shown = {0};
    int line = 0, used = 0, widest = 0;
    rd_printable_add(&shown, name, strlen(name));
    for (int i = 0; i < HEAD_LINES; i++) out[i][0] = '\0';
    for (const char *s = rd_strbuf_str(&shown); *s;) {
        const size_t word = strcspn(s, "_") + (s[strcspn(s, "_")] == '_');
        if (used > 0 && used + (int)word > width && line + 1 < HEAD_LINES) {
            line++;
            used = 0;
        }
        const size_t room = sizeof out[0] - 1 - strlen(out[line]);
        const size_t take = word < room ? word : room;
        strncat(out[line], s, take);
        used += (int)word;
        s += word;
    }
    rd_strbuf_release(&shown);
    for (int i = 0; i < HEAD_LINES; i++) {
        const int w = runs_columns(out[i], strlen(out[i]));
        widest = w > widest ? w : widest;
    }
    return widest;
}

static bool table_new(const runs_list *l, const char **keys, int n_keys, text_table *t)
{
    static const char *const heads[] = {"run", "state", "steps", "time", "best"};
    const bool figure = one_figure(l);
    t->rows = l->n;
    t->columns = FIXED + (n_keys < MOST_KEY_COLUMNS ? n_keys : MOST_KEY_COLUMNS);
    t->cell = calloc((size_t)t->rows * (size_t)t->columns + 1, sizeof *t->cell);
    if (!t->cell) return false;
    for (int c = 0; c < t->columns; c++) {
        t->width[c] = 1;
        for (int r = 0; r < t->rows; r++) {
            rd_strbuf raw = {0}, cut = {0};
            if (c < FIXED)
                cell_fixed(&l->at[r], c, figure, &raw);
            else
                runs_show_value(&raw, json_object_get(l->at[r].config, keys[c - FIXED]));
            runs_cut(&cut, rd_strbuf_str(&raw), c == 0 ? 200 : MOST_CELL);
            rd_strbuf_release(&raw);
            t->cell[r * t->columns + c] = cut.s ? cut.s : strdup("");
            const int w = runs_columns(rd_strbuf_str(&cut), cut.n);
            t->width[c] = w > t->width[c] ? w : t->width[c];
        }
        const char *head = c < FIXED ? heads[c] : keys[c - FIXED];
        const int widest = head_split(head, t->width[c] > 9 ? t->width[c] : 9, t->head[c]);
        t->width[c] = widest > t->width[c] ? widest : t->width[c];
    }
    if (figure)
        for (int i = 0; i < l->n; i++)
            if (l->at[i].figure[0]) {
                char name[64];
                (void)snprintf(name, sizeof name, "best_%s", l->at[i].figure);
                const int w = head_split(name, t->width[4] > 9 ? t->width[4] : 9, t->head[4]);
                t->width[4] = w > t->width[4] ? w : t->width[4];
                break;
            }
    return true;
}

static int table_width(const text_table *t, int columns)
{
    int sum = 2 * (columns - 1);
    for (int c = 0; c < columns; c++) sum += t->width[c];
    return sum;
}

static void row_end(rd_strbuf *b)
{
    while (b->n > 0 && b->s[b->n - 1] == ' ') b->s[--b->n] = '\0';
    rd_strbuf_puts(b, "\n");
}

/* The name and the state are at the left of their columns, figures and keys at the right. */
static void put_cell(rd_strbuf *b, const char *text, int width, bool left, bool last)
{
    const int pad = width - runs_columns(text, strlen(text));
    for (int i = 0; !left && i < pad; i++) rd_strbuf_puts(b, " ");
    rd_strbuf_puts(b, text);
    for (int i = 0; left && i < pad; i++) rd_strbuf_puts(b, " ");
    if (!last) rd_strbuf_puts(b, "  ");
}

static int head_lines(const text_table *t, int column)
{
    int n = 0;
    while (n < HEAD_LINES && t->head[column][n][0]) n++;
    return n;
}

static void table_print(const text_table *t, const runs_list *l, int columns, int width,
                        rd_strbuf *b)
{
    int lines = 0; /* heads end in the last line */
    for (int c = 0; c < columns; c++) lines = head_lines(t, c) > lines ? head_lines(t, c) : lines;
    for (int i = 0; i < lines; i++) {
        for (int c = 0; c < columns; c++) {
            const int k = i - (lines - head_lines(t, c));
            put_cell(b, k >= 0 ? t->head[c][k] : "", t->width[c], c < 2, c + 1 == columns);
        }
        row_end(b);
    }
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < columns; c++) {
            rd_strbuf cut = {0};
            runs_cut(&cut, t->cell[r * t->columns + c], t->width[c]);
            put_cell(b, rd_strbuf_str(&cut), t->width[c], c < 2, c + 1 == columns);
            rd_strbuf_release(&cut);
        }
        row_end(b);
        if (!l->at[r].why[0]) continue;
        rd_strbuf_puts(b, "  ");
        if (width > 0)
            runs_cut(b, l->at[r].why, width - 2);
        else
            rd_strbuf_puts(b, l->at[r].why);
        rd_strbuf_puts(b, "\n");
    }
}

/* Wraps a list of names at the width. */
static void names_wrapped(rd_strbuf *b, const char *begin, const char **names, int n, int width)
{
    int col = (int)strlen(begin);
    rd_strbuf_puts(b, begin);
    for (int i = 0; i < n; i++) {
        rd_strbuf shown = {0};
        rd_printable_add(&shown, names[i], strlen(names[i]));
        const int w = runs_columns(rd_strbuf_str(&shown), shown.n) + 2;
        if (width > 0 && col + w > width) {
            rd_strbuf_puts(b, "\n  ");
            col = 2;
        }
        rd_strbuf_printf(b, " %s%s", rd_strbuf_str(&shown), i + 1 < n ? "," : "");
        col += w;
        rd_strbuf_release(&shown);
    }
    rd_strbuf_puts(b, "\n");
}

void runs_table_text(const runs_list *l, int width, rd_strbuf *b)
{
    int n_keys;
    text_table *t = calloc(1, sizeof *t);
    const char **keys = runs_differing(l, &n_keys);
    if (!t || n_keys < 0 || !table_new(l, keys, n_keys, t)) {
        b->failed = true;
        goto done;
    }
    int columns = t->columns;
    if (width > 0 && table_width(t, columns) > width && t->width[0] > 20) {
        const int over = table_width(t, columns) - width;
        t->width[0] = t->width[0] - over > 20 ? t->width[0] - over : 20;
    }
    while (width > 0 && columns > FIXED && table_width(t, columns) > width) columns--;
    if (width > 0 && table_width(t, columns) > width) { /* a very narrow terminal */
        const int over = table_width(t, columns) - width;
        t->width[0] = t->width[0] - over > 6 ? t->width[0] - over : 6;
        while (columns > 1 && table_width(t, columns) > width) columns--;
    }
    table_print(t, l, columns, width, b);
    const int shown = columns - FIXED > 0 ? columns - FIXED : 0;
    if (n_keys > shown) {
        char begin[48];
        (void)snprintf(begin, sizeof begin, "%d more key%s differ%s:", n_keys - shown,
                       n_keys - shown == 1 ? "" : "s", n_keys - shown == 1 ? "s" : "");
        names_wrapped(b, begin, keys + shown, n_keys - shown, width);
    }
done:
    for (int i = 0; t && t->cell && i < t->rows * t->columns; i++) free(t->cell[i]);
    if (t) free(t->cell);
    free(t);
    free((void *)keys);
}

/* ---- CSV and JSON ---- */

static const char *const csv_columns[] = {"run",    "state", "exit_code", "steps", "time",
                                          "figure", "best",  "best_step", "loss",  "started"};
enum { CSV_COLUMNS = sizeof csv_columns / sizeof *csv_columns };

static void csv_value(rd_strbuf *b, json_t *v)
{
    rd_strbuf text = {0};
    if (v && !json_is_null(v)) runs_show_value(&text, v);
    rd_printable_csv(b, rd_strbuf_str(&text), false);
    rd_strbuf_release(&text);
}

void runs_table_csv(const runs_list *l, rd_strbuf *b)
{
    int n_keys;
    const char **keys = runs_differing(l, &n_keys);
    b->failed |= n_keys < 0;
    for (int c = 0; c < CSV_COLUMNS; c++) rd_strbuf_printf(b, "%s%s", c ? "," : "", csv_columns[c]);
    for (int k = 0; k < n_keys; k++) {
        rd_strbuf_puts(b, ",");
        rd_printable_csv(b, keys[k], false);
    }
    rd_strbuf_puts(b, ",ended_by,why\n");
    for (int r = 0; r < l->n; r++) {
        for (int c = 0; c < CSV_COLUMNS; c++) {
            json_t *v = runs_value(&l->at[r], csv_columns[c]);
            if (c) rd_strbuf_puts(b, ",");
            csv_value(b, v);
            json_decref(v);
        }
        for (int k = 0; k < n_keys; k++) {
            rd_strbuf_puts(b, ",");
            csv_value(b, json_object_get(l->at[r].config, keys[k]));
        }
        rd_strbuf_printf(b, ",%s,", l->at[r].end);
        rd_printable_csv(b, l->at[r].why, false);
        rd_strbuf_puts(b, "\n");
    }
    free((void *)keys);
}

json_t *runs_json(const runs_facts *f)
{
    static const char *const more[] = {"last", "why", "per_s", "ended_by"};
    json_t *o = json_object();
    rd_strbuf folder = {0};
    for (int c = 0; c < CSV_COLUMNS + 4; c++) {
        const char *key = c < CSV_COLUMNS ? csv_columns[c] : more[c - CSV_COLUMNS];
        json_t *v = runs_value(f, key);
        (void)json_object_set_new(o, key, v ? v : json_null());
    }
    rd_printable_add(&folder, f->folder, strlen(f->folder));
    (void)json_object_set_new(o, "folder", json_string(rd_strbuf_str(&folder)));
    rd_strbuf_release(&folder);
    (void)json_object_set_new(o, "to_step",
                              f->to_step > 0 ? json_integer((json_int_t)f->to_step) : json_null());
    if (f->damage[0]) (void)json_object_set_new(o, "damage", json_string(f->damage));
    return o;
}

static void json_put(rd_strbuf *b, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    if (text) {
        rd_strbuf_puts(b, text);
        rd_strbuf_puts(b, "\n");
    } else {
        b->failed = true;
    }
    free(text);
    json_decref(o);
}

void runs_table_json(const runs_list *l, rd_strbuf *b)
{
    int n_keys;
    const char **keys = runs_differing(l, &n_keys);
    json_t *list = json_array();
    b->failed |= n_keys < 0;
    for (int r = 0; r < l->n; r++) {
        json_t *o = runs_json(&l->at[r]), *config = json_object();
        for (int k = 0; k < n_keys; k++) {
            json_t *v = json_object_get(l->at[r].config, keys[k]);
            (void)json_object_set(config, keys[k], v ? v : json_null());
        }
        (void)json_object_set_new(o, "config", config);
        (void)json_array_append_new(list, o);
    }
    json_put(b, json_pack("{s:o}", "runs", list));
    free((void *)keys);
}
