/* runs_where.c -- values of runs by name, conditions on them, and their order.
 *
 * A name is a column of the table or a key of the config. Columns win: no key has such a name. */
#include "runs_impl.h"
#include "rd/printable.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const columns[] = {"run",  "state",     "steps",  "time",    "best",
                                      "loss", "best_step", "figure", "last",    "started",
                                      "why",  "exit_code", "per_s",  "ended_by"};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static json_t *real_or_none(double v)
{
    return isfinite(v) ? json_real(v) : NULL;
}

static json_t *step_or_none(int64_t step)
{
    return step >= 0 ? json_integer((json_int_t)step) : NULL;
}

json_t *runs_value(const runs_facts *f, const char *key)
{
    int i = 0;
    while (i < N_COLUMNS && strcmp(columns[i], key) != 0) i++;
    switch (i) {
    case 0:
        return json_string(f->name);
    case 1:
        return json_string(runs_state_name(f->state));
    case 2:
        return step_or_none(f->step);
    case 3:
        return real_or_none(f->seconds);
    case 4:
        return real_or_none(f->best);
    case 5:
        return real_or_none(f->loss);
    case 6:
        return step_or_none(f->best_step);
    case 7:
        return f->figure[0] ? json_string(f->figure) : NULL;
    case 8:
        return real_or_none(f->last);
    case 9:
        return real_or_none(f->started);
    case 10:
        return f->why[0] ? json_string(f->why) : NULL;
    case 11:
        return f->exit_code ? json_integer(f->exit_code) : NULL;
    case 12:
        return real_or_none(f->units_per_s);
    case 13:
        return f->end[0] ? json_string(f->end) : NULL;
    }
    json_t *v = json_object_get(f->config, key);
    return json_is_null(v) ? NULL : json_incref(v);
}

/* Fails unless a run, a column or the program knows the name. */
static rd_code name_known(const runs_list *l, const char *flag, const char *name, const rd_cli *cli,
                          rd_status *st)
{
    const char *known[1024];
    int n = 0;
    char shown[96];
    for (int i = 0; i < N_COLUMNS; i++) known[n++] = columns[i];
    for (int g = 0; g < cli->n_groups; g++)
        for (const rd_option *o = cli->groups[g]->options; o->key && n < 1024; o++)
            known[n++] = o->key;
    for (int i = 0; i < n; i++)
        if (!strcmp(known[i], name)) return RD_OK;
    for (int i = 0; i < l->n; i++)
        if (json_object_get(l->at[i].config, name)) return RD_OK;
    const char *nearest = rd_nearest(name, known, n);
    return rd_fail(st, RD_EUSAGE, "--%s: '%s' is neither a column nor a key of a config; %s%s%s",
                   flag, rd_printable(name, strlen(name), false, shown, sizeof shown),
                   nearest ? "did you mean '" : "columns are run, state, steps, time, best, loss",
                   nearest ? nearest : "", nearest ? "'?" : "");
}

/* ---- order ---- */

/* Compares two values: none < false < true < numbers < texts < lists. Numbers by value, texts as
 * people sort names. */
static int value_rank(const json_t *v)
{
    if (!v) return 0;
    if (json_is_boolean(v)) return 1;
    if (json_is_number(v)) return 2;
    return json_is_string(v) ? 3 : 4;
}

static int value_compare(const json_t *a, const json_t *b)
{
    const int x = value_rank(a), y = value_rank(b);
    if (x != y) return x - y;
    if (x == 1) return json_is_true(a) - json_is_true(b);
    if (x == 2) {
        const double u = json_number_value(a), v = json_number_value(b);
        return (u > v) - (u < v);
    }
    if (x == 3) return strverscmp(json_string_value(a), json_string_value(b));
    if (x == 0) return 0;
    char *s = json_dumps(a, JSON_COMPACT | JSON_SORT_KEYS),
         *t = json_dumps(b, JSON_COMPACT | JSON_SORT_KEYS);
    const int order = s && t ? strverscmp(s, t) : 0;
    free(s);
    free(t);
    return order;
}

typedef struct run_order {
    const char *key;
    bool best_first, down;
} run_order;

/* Runs without a value are last. */
static int order_compare(const void *pa, const void *pb, void *ctx)
{
    const runs_facts *a = pa, *b = pb;
    const run_order *o = ctx;
    json_t *u = runs_value(a, o->key), *v = runs_value(b, o->key);
    int c;
    if (!u || !v)
        c = !u - !v;
    else if (o->best_first && strcmp(a->figure, b->figure) != 0)
        c = strcmp(a->figure, b->figure); /* figures of different kinds do not compare */
    else if (o->best_first && a->higher)
        c = -value_compare(u, v);
    else
        c = value_compare(u, v);
    if (o->down && u && v) c = -c;
    json_decref(u);
    json_decref(v);
    return c ? c : strverscmp(a->name, b->name);
}

rd_code runs_sort(runs_list *l, const char *text, const rd_cli *cli, rd_status *st)
{
    run_order o = {.key = text ? text : "run"};
    if (o.key[0] == '-') {
        o.down = true;
        o.key++;
    }
    if (name_known(l, "sort", o.key, cli, st) != RD_OK) return st->code;
    o.best_first = !strcmp(o.key, "best") || !strcmp(o.key, "last");
    if (l->n > 1) qsort_r(l->at, (size_t)l->n, sizeof *l->at, order_compare, &o);
    return RD_OK;
}

/* ---- conditions ---- */

typedef enum relation { EQUAL, DIFFERS, LESS, AT_MOST, MORE, AT_LEAST } relation;

/* One condition. */
typedef struct condition {
    char key[128], text[256];
    relation is;
} condition;

static rd_code condition_read(const char *s, size_t n, condition *out, rd_status *st)
{
    static const struct {
        const char *sign;
        relation is;
    } signs[] = {{"<=", AT_MOST}, {">=", AT_LEAST}, {"!=", DIFFERS}, {"==", EQUAL},
                 {"<", LESS},     {">", MORE},      {"=", EQUAL}};
    char shown[128];
    size_t at = 0, len = 0;
    while (n > 0 && s[0] == ' ') s++, n--;
    while (n > 0 && s[n - 1] == ' ') n--;
    while (at < n && !strchr("<>=!", s[at])) at++;
    for (size_t i = 0; i < sizeof signs / sizeof *signs && !len; i++)
        if (n - at >= strlen(signs[i].sign) &&
            !strncmp(s + at, signs[i].sign, strlen(signs[i].sign))) {
            len = strlen(signs[i].sign);
            out->is = signs[i].is;
        }
    size_t n_key = at, from = at + len;
    while (n_key > 0 && s[n_key - 1] == ' ') n_key--;
    while (from < n && s[from] == ' ') from++;
    if (!len || n_key == 0 || n_key >= sizeof out->key || from == n || n - from >= sizeof out->text)
        return rd_fail(st, RD_EUSAGE,
                       "--where: '%s' is no condition; an example: --where 'learning_rate<0.01 and "
                       "state=done', with =, !=, <, <=, > or >=",
                       rd_printable(s, n, false, shown, sizeof shown));
    (void)snprintf(out->key, sizeof out->key, "%.*s", (int)n_key, s);
    (void)snprintf(out->text, sizeof out->text, "%.*s", (int)(n - from), s + from);
    return RD_OK;
}

/* The text of a condition as a value of the same kind. NULL: it is none. */
static json_t *condition_value(const condition *c, const json_t *like)
{
    json_t *v = json_is_string(like) ? NULL : json_loads(c->text, JSON_DECODE_ANY, NULL);
    if (v && (value_rank(v) == value_rank(like))) return v;
    json_decref(v);
    return json_is_string(like) ? json_string(c->text) : NULL;
}

static bool condition_holds(const condition *c, const runs_facts *f)
{
    json_t *v = runs_value(f, c->key);
    if (!v) /* a run without the value differs from each value */
        return c->is == DIFFERS ? strcmp(c->text, "null") != 0
                                : c->is == EQUAL && !strcmp(c->text, "null");
    json_t *w = condition_value(c, v);
    const int order = w ? value_compare(v, w) : 0;
    bool holds = false;
    switch (c->is) {
    case EQUAL:
        holds = w && order == 0;
        break;
    case DIFFERS:
        holds = !w || order != 0;
        break;
    case LESS:
        holds = w && order < 0;
        break;
    case AT_MOST:
        holds = w && order <= 0;
        break;
    case MORE:
        holds = w && order > 0;
        break;
    case AT_LEAST:
        holds = w && order >= 0;
        break;
    }
    json_decref(v);
    json_decref(w);
    return holds;
}

rd_code runs_keep(runs_list *l, const char *text, const rd_cli *cli, rd_status *st)
{
    while (text && *text) {
        const char *and = strstr(text, " and ");
        const size_t n = and? (size_t)(and-text) : strlen(text);
        condition c;
        if (condition_read(text, n, &c, st) != RD_OK ||
            name_known(l, "where", c.key, cli, st) != RD_OK)
            return st->code;
        int kept = 0;
        for (int i = 0; i < l->n; i++) {
            if (condition_holds(&c, &l->at[i]))
                l->at[kept++] = l->at[i];
            else
                runs_facts_release(&l->at[i]);
        }
        l->n = kept;
        text += n + (and? strlen(" and ") : 0);
    }
    return RD_OK;
}

/* ---- keys that differ ---- */

/* Does a key have different values? A key that one version does not know yet counts only where
 * another run sets it. */
static bool key_differs(const runs_list *l, const char *key)
{
    const json_t *first = NULL;
    bool missing = false, set = false;
    for (int i = 0; i < l->n; i++) {
        if (json_object_size(l->at[i].config) == 0) continue; /* nothing is known of it */
        const json_t *v = json_object_get(l->at[i].config, key);
        set |= json_object_get(l->at[i].set, key) != NULL && !json_is_null(v);
        if (!v)
            missing = true;
        else if (!first)
            first = v;
        else if (!json_equal(first, v) && value_compare(first, v) != 0)
            return true;
        else if (!json_equal(first, v) && value_rank(first) != 2)
            return true;
    }
    return missing && set;
}

/* Is one of the values a path? */
static bool key_of_paths(const runs_list *l, const char *key)
{
    for (int i = 0; i < l->n; i++) {
        const char *s = json_string_value(json_object_get(l->at[i].config, key));
        if (s && strchr(s, '/')) return true;
    }
    return false;
}

/* Moves keys of paths behind the others, in their order: the table drops the last ones first. */
static void paths_last(const runs_list *l, const char **list, int n)
{
    int from = 0;
    for (int moved = 0; from + moved < n;) {
        if (!key_of_paths(l, list[from])) {
            from++;
            continue;
        }
        const char *path = list[from];
        memmove(list + from, list + from + 1, sizeof *list * (size_t)(n - from - 1));
        list[n - 1] = path;
        moved++;
    }
}

const char **runs_differing(const runs_list *l, int *n)
{
    json_t *seen = json_object();
    const char **list = NULL, *key;
    json_t *v;
    int cap = 0;
    *n = 0;
    for (int i = 0; i < l->n && *n >= 0; i++) {
        json_object_foreach(l->at[i].config, key, v)
        {
            if (json_object_get(seen, key)) continue;
            if (json_object_set_new(seen, key, json_true()) != 0) *n = -1;
            if (*n < 0 || !key_differs(l, key)) continue;
            if (*n == cap) {
                const char **more = realloc(list, sizeof *list * (size_t)(cap = 2 * cap + 16));
                if (!more) {
                    *n = -1;
                    continue;
                }
                list = more;
            }
            list[(*n)++] = key;
        }
    }
    if (!seen) *n = -1;
    json_decref(seen);
    if (*n > 0) paths_last(l, list, *n);
    if (*n >= 0) return list;
    free(list);
    return NULL;
}
