/* ckpt_average.c -- the arithmetic mean of the weights of several checkpoints, as one checkpoint.
 *
 * Each weight is summed in double, from the smallest step to the largest, and rounded to float32
 * once. So the same files give the same bytes. Arrays of an optimizer are left out. The files are
 * read one after the other: memory holds one of them, and 8 bytes a weight. */
#include "ckpt_impl.h"
#include "npz_impl.h"
#include "rd/strbuf.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the same step the first one counts. */
static const char *const parent_prefix[] = {"model", "best", "top"};
enum { PARENT_KINDS = 3 };

/* Fills the evaluation of a checkpoint from its manifest. */
static void read_figure(const json_t *meta, rd_ckpt_parent *p)
{
    const json_t *e = json_object_get(meta, "evaluation");
    const char *name = json_string_value(json_object_get(e, "figure"));
    const json_t *value = json_object_get(e, "value");
    p->evaluated = name && json_is_number(value);
    if (!p->evaluated) return;
    (void)snprintf(p->figure, sizeof p->figure, "%s", name);
    p->value = json_number_value(value);
    p->higher_is_better = json_is_true(json_object_get(e, "higher_is_better"));
}

/* Lists the files of the folder, the newest first: those of model, and with `best` the best and top
 * files whose step has no model file. */
static rd_code list_parents(const char *dir, bool best, rd_ckpt_parent **out, int *n, rd_status *st)
{
    rd_ckpt_list l[PARENT_KINDS] = {{0}};
    int at[PARENT_KINDS] = {0}, total = 0;
    *n = 0;
    for (int k = 0; k < (best ? PARENT_KINDS : 1); k++) {
        RD_TRY(rd_ckpt_list_new(dir, parent_prefix[k], &l[k], st));
        total += l[k].n;
    }
    *out = calloc((size_t)total + 1, sizeof **out);
    if (!*out) {
        rd_fail(st, RD_EENV, "out of memory while listing log folder '%s'", dir);
        goto done;
    }
    for (int i = 0; i < total; i++) {
        int kind = -1;
        for (int k = 0; k < PARENT_KINDS; k++)
            if (at[k] < l[k].n && (kind < 0 || l[k].step[at[k]] > l[kind].step[at[kind]])) kind = k;
        const int64_t step = l[kind].step[at[kind]++];
        if (*n > 0 && (*out)[*n - 1].step == step) continue;
        (*out)[*n].step = step;
        (void)snprintf((*out)[*n].name, sizeof(*out)->name, "%s-%" PRId64 ".npz",
                       parent_prefix[kind], step);
        ++*n;
    }
done:
    for (int k = 0; k < PARENT_KINDS; k++) rd_ckpt_list_release(&l[k]);
    return st->code;
}

static rd_code load_parent(const char *dir, const rd_ckpt_parent *p, rd_ckpt *c, rd_status *st)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%.4000s/%s", dir, p->name);
    if (rd_ckpt_load(path, c, st) == RD_OK && c->step != p->step)
        rd_fail(st, RD_ECKPT, "'%s' holds step %" PRId64 "; was it renamed?", path, c->step);
    if (st->code != RD_OK)
        rd_status_prefix(st, "cannot average; move that file away or take fewer checkpoints");
    return st->code;
}

/* Sorts the best figure first; of equal figures, the larger step. */
static int by_figure(const void *a, const void *b)
{
    const rd_ckpt_parent *x = a, *y = b;
    if (x->value != y->value) return (x->value > y->value) == x->higher_is_better ? -1 : 1;
    return (x->step < y->step) - (x->step > y->step);
}

static int by_step(const void *a, const void *b)
{
    const rd_ckpt_parent *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

/* Keeps the files with an evaluation whose figure is that of the newest one, best first. */
static rd_code rank_parents(const char *dir, rd_ckpt_parent *p, int *n, rd_status *st)
{
    int kept = 0;
    for (int i = 0; i < *n; i++) {
        rd_ckpt c = {0};
        rd_arrays_files(i, *n);
        RD_TRY(load_parent(dir, &p[i], &c, st));
        read_figure(c.meta, &p[i]);
        rd_ckpt_release(&c);
        if (p[i].evaluated && (kept == 0 || strcmp(p[i].figure, p[0].figure) == 0))
            p[kept++] = p[i];
    }
    *n = kept;
    qsort(p, (size_t)kept, sizeof *p, by_figure);
done:
    rd_arrays_files(0, 0);
    return st->code;
}

/* Is the array a weight, and not a part of the optimizer's state, <weight>/<slot>? */
static bool is_weight(const rd_npz *z, const rd_array *a)
{
    const char *slash = strrchr(a->name, '/');
    char owner[sizeof a->name];
    if (strcmp(a->name, "manifest.json") == 0) return false;
    (void)snprintf(owner, sizeof owner, "%.*s", slash ? (int)(slash - a->name) : 0, a->name);
    return !slash || !rd_npz_find(z, owner);
}

static void shape_of(const rd_array *a, rd_strbuf *out)
{
    rd_strbuf_puts(out, "(");
    for (int d = 0; d < a->n_dim; d++)
        rd_strbuf_printf(out, "%s%" PRId64, d ? ", " : "", a->dim[d]);
    rd_strbuf_puts(out, ")");
}

/* The sums so far. */
typedef struct mean {
    rd_array *a;  /* owned; [n] the weights, as the first file has them */
    double **sum; /* owned; [n] */
    int n;
    json_t *meta; /* owned; the manifest of the newest file so far */
    char first[64];
} mean;

static rd_code start_mean(mean *m, const rd_ckpt *c, const char *name, rd_status *st)
{
    const int n = rd_npz_n(c->npz);
    m->a = calloc((size_t)n + 1, sizeof *m->a);
    m->sum = calloc((size_t)n + 1, sizeof *m->sum);
    (void)snprintf(m->first, sizeof m->first, "%s", name);
    for (int i = 0; i < n && m->a && m->sum; i++) {
        const rd_array *a = rd_npz_at(c->npz, i);
        if (!is_weight(c->npz, a)) continue;
        if (strcmp(a->descr, "<f4") != 0)
            return rd_fail(st, RD_ECKPT, "'%s': '%s' has type %s, not <f4", c->path, a->name,
                           a->descr);
        m->a[m->n] = *a;
        m->sum[m->n] = calloc(a->bytes / sizeof(float) + 1, sizeof(double));
        if (!m->sum[m->n++]) break;
    }
    if (!m->a || !m->sum || (m->n > 0 && !m->sum[m->n - 1]))
        return rd_fail(st, RD_EENV, "out of memory for the sums of %d arrays", n);
    if (m->n == 0) return rd_fail(st, RD_ECKPT, "'%s' has no weights", c->path);
    return RD_OK;
}

static rd_code add_to_mean(mean *m, const rd_ckpt *c, rd_status *st)
{
    static const char *const same[] = {"model", "src_vocab_hash", "tgt_vocab_hash", NULL};
    rd_strbuf was = {0}, now = {0};
    int n = 0;
    for (int i = 0; i < rd_npz_n(c->npz); i++) n += is_weight(c->npz, rd_npz_at(c->npz, i));
    for (int k = 0; same[k] && m->meta; k++)
        if (!json_equal(json_object_get(m->meta, same[k]), json_object_get(c->meta, same[k])))
            RD_TRY(rd_fail(st, RD_ECKPT,
                           "'%s' has another '%s' than %s; only checkpoints of one "
                           "model can be averaged",
                           c->path, same[k], m->first));
    for (int i = 0; i < m->n; i++) {
        const rd_array *a = rd_npz_find(c->npz, m->a[i].name);
        bool fits = a && a->n_dim == m->a[i].n_dim && strcmp(a->descr, "<f4") == 0;
        for (int d = 0; fits && d < a->n_dim; d++) fits = a->dim[d] == m->a[i].dim[d];
        if (!a) {
            RD_TRY(rd_fail(st, RD_ECKPT,
                           "'%s' has no '%s', which %s has; only checkpoints of one model can be "
                           "averaged",
                           c->path, m->a[i].name, m->first));
        } else if (!fits) {
            shape_of(a, &now);
            shape_of(&m->a[i], &was);
            RD_TRY(rd_fail(st, RD_ECKPT,
                           "'%s': '%s' is %s %s there and %s in %s; only checkpoints of one model "
                           "can be averaged",
                           c->path, a->name, a->descr, rd_strbuf_str(&now), rd_strbuf_str(&was),
                           m->first));
        } else {
            const float *x = a->data;
            const int64_t count = (int64_t)(a->bytes / sizeof *x);
            for (int64_t e = 0; e < count; e++) m->sum[i][e] += (double)x[e];
        }
    }
    if (n != m->n)
        RD_TRY(rd_fail(st, RD_ECKPT,
                       "'%s' has %d arrays of weights and %s %d; only checkpoints of one model can "
                       "be averaged",
                       c->path, n, m->first, m->n));
    json_decref(m->meta);
    m->meta = json_incref(c->meta);
done:
    rd_strbuf_release(&was);
    rd_strbuf_release(&now);
    return st->code;
}

/* Divides the sums by n and stores them as float32. */
static rd_code finish_mean(mean *m, int n, rd_status *st)
{
    for (int i = 0; i < m->n; i++) {
        const int64_t count = (int64_t)(m->a[i].bytes / sizeof(float));
        float *x = malloc(m->a[i].bytes + 1);
        if (!x) return rd_fail(st, RD_EENV, "out of memory for the mean of '%s'", m->a[i].name);
        m->a[i].data = x;
        for (int64_t e = 0; e < count; e++) {
            x[e] = (float)(m->sum[i][e] / n);
            if (isfinite(x[e])) continue;
            return rd_fail(st, RD_ENUMERIC,
                           "the mean of '%s' is not finite: a checkpoint holds inf or NaN there",
                           m->a[i].name);
        }
    }
    return RD_OK;
}

/* Makes the manifest: that of the newest parent, without its optimizer and its evaluations. */
static json_t *mean_manifest(const mean *m, const rd_ckpt_parent *p, int n, bool best)
{
    static const char *const gone[] = {"arrays",      "step",        "format_version",
                                       "plateau",     "patience",    "eval_due",
                                       "restore_due", "evaluation",  "best_step",
                                       "best",        "best_before", "best_measure",
                                       "eval_at_end", "reference",   "top",
                                       "ended_by",    "optimizer",   NULL};
    json_t *meta = json_copy(m->meta), *parents = json_array();
    for (int k = 0; gone[k] && meta; k++) (void)json_object_del(meta, gone[k]);
    for (int i = 0; i < n; i++) {
        json_t *one = json_pack("{s:s, s:I}", "file", p[i].name, "step", (json_int_t)p[i].step);
        if (p[i].evaluated) (void)json_object_set_new(one, p[i].figure, json_real(p[i].value));
        (void)json_array_append_new(parents, one);
    }
    (void)json_object_set_new(
        meta, "average", json_pack("{s:s, s:o}", "of", best ? "best" : "last", "parents", parents));
    return meta;
}

static void release_mean(mean *m, bool own_data)
{
    for (int i = 0; i < m->n; i++) {
        if (own_data) free((void *)(uintptr_t)m->a[i].data);
        free(m->sum[i]);
    }
    free(m->a);
    free(m->sum);
    json_decref(m->meta);
}

rd_code rd_ckpt_average(const char *dir, int n, bool best, rd_ckpt_parent **out, char path[4096],
                        rd_status *st)
{
    rd_ckpt_parent *p = NULL;
    mean m = {0};
    json_t *meta = NULL;
    int n_files = 0, n_found = 0;
    bool own_data = false;
    *out = NULL;
    RD_TRY(list_parents(dir, best, &p, &n_files, st));
    n_found = n_files;
    if (best) RD_TRY(rank_parents(dir, p, &n_found, st));
    if (n_found < n) {
        rd_fail(st, RD_ECKPT,
                "'%s' has %d checkpoint%s%s, and --%s=%d needs %d; train with a larger "
                "checkpoint_keep (0: all)%s, or average fewer",
                dir, n_found, n_found == 1 ? "" : "s",
                best ? " that were evaluated (checkpoint_steps or checkpoint_keep_best in "
                       "train_eval mode)"
                     : "",
                best ? "best" : "last", n, n, best ? " and checkpoint_steps" : "");
        goto done;
    }
    qsort(p, (size_t)n, sizeof *p, by_step);
    for (int i = 0; i < n; i++) {
        rd_ckpt c = {0};
        rd_arrays_files(i, n);
        if (load_parent(dir, &p[i], &c, st) == RD_OK) {
            read_figure(c.meta, &p[i]);
            if (i > 0 || start_mean(&m, &c, p[i].name, st) == RD_OK) (void)add_to_mean(&m, &c, st);
        }
        for (int k = 0; i == 0 && k < m.n; k++) m.a[k].data = NULL;
        rd_ckpt_release(&c);
        RD_TRY(st->code);
    }
    own_data = true;
    rd_arrays_files(0, 0);
    RD_TRY(finish_mean(&m, n, st));
    meta = mean_manifest(&m, p, n, best);
    if (!meta) {
        rd_fail(st, RD_EENV, "out of memory for a manifest");
        goto done;
    }
    RD_TRY(rd_ckpt_path(dir, "average", p[n - 1].step, path, st));
    RD_TRY(rd_ckpt_save(dir, "average", p[n - 1].step, m.a, m.n, meta, 0, st));
    *out = p;
    p = NULL;
done:
    rd_arrays_files(0, 0);
    json_decref(meta);
    release_mean(&m, own_data);
    free(p);
    return st->code;
}
