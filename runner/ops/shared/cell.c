/* cell.c -- what all recurrent cells share: the registry, the projection, products with rows of a kernel. */
#include "cell.h"
#include <string.h>

#define RD_ENTRY(name) extern const rd_cell_def rd_cell_##name;
#include "cells.inc"
#undef RD_ENTRY
#define RD_ENTRY(name) &rd_cell_##name,
static const rd_cell_def *const cells[] = {
#include "cells.inc"
};
#undef RD_ENTRY

const rd_cell_def *const *rd_cell_defs(int *n)
{
    *n = (int)(sizeof cells / sizeof *cells);
    return cells;
}

const rd_cell_def *rd_cell_find(const char *name)
{
    int n;
    const rd_cell_def *const *d = rd_cell_defs(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(d[i]->name, name) == 0) return d[i];
    return NULL;
}

rd_code rd_cell_init(rd_cell *k, const rd_cell_def *d, const rd_cell_shape *s, rd_backend *be, const rd_params *ps,
                     rd_arena *scratch, rd_var *const *w, int n_w, rd_status *st)
{
    memset(k, 0, sizeof *k);
    if (n_w < 1 || n_w > RD_CELL_MAX_PARAMS) return rd_fail(st, RD_EBUG, "cell '%s' got %d parameters", d->name, n_w);
    k->def = d;
    k->s = *s;
    k->Z = d->n_gates * s->H;
    k->be = be;
    k->ps = ps;
    k->scratch = scratch;
    k->n_w = n_w;
    for (int i = 0; i < n_w; i++) k->w[i] = w[i];
    return RD_OK;
}

rd_code rd_rows_get(rd_arena *a, int64_t rows, int64_t cols, float **out, rd_status *st)
{
    return rd_arena_get(a, (size_t)((rows + RD_SLACK_ROWS) * cols) * sizeof(float), out, st);
}

rd_code rd_rows_zero(rd_arena *a, int64_t rows, int64_t cols, float **out, rd_status *st)
{
    return rd_arena_zero(a, (size_t)((rows + RD_SLACK_ROWS) * cols) * sizeof(float), out, st);
}

rd_code rd_rows_check(const char *op, const rd_var *x, int64_t cols, rd_status *st)
{
    if (x->param) return rd_fail(st, RD_EBUG, "%s: parameter '%s' has no room behind its rows", op, x->param->name);
    if (x->cols != cols)
        return rd_fail(st, RD_EBUG, "%s: an input of %lld columns for %lld", op, (long long)x->cols, (long long)cols);
    return RD_OK;
}

void rd_add_bias(int64_t N, int64_t width, const float *b, float *y)
{
    for (int64_t i = 0; i < N; i++) {
        float *restrict row = y + i * width;
        for (int64_t j = 0; j < width; j++) row[j] += b[j];
    }
}

rd_code rd_mul_rows(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *x, float *y, bool add,
                    rd_status *st)
{
    rd_packed *p = rd_backend_packed(k->be, k->ps, w->param, row0, rows, st);
    return p ? rd_packed_mul(p, n, x, y, add, st) : st->code;
}

rd_code rd_mul_rows_t(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *y, float *x, bool add,
                      rd_status *st)
{
    rd_packed *p = rd_backend_packed(k->be, k->ps, w->param, row0, rows, st);
    return p ? rd_packed_mul_t(p, n, y, x, add, st) : st->code;
}

rd_code rd_mul_grad(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t N, const float *x, const float *dy,
                    int64_t width, rd_status *st)
{
    if (!w->g) return RD_OK;
    return rd_gemm(k->be, true, false, rows, width, N, 1.0f, x, rows, dy, width, 1.0f, w->g + row0 * width, width, st);
}

typedef struct columns {
    int64_t N, ld;
    const float *dz;
    float *g;
} columns;

static void columns_part(void *ctx, int64_t lo, int64_t hi)
{
    const columns *c = ctx;
    for (int64_t i = 0; i < c->N; i++) {
        const float *restrict z = c->dz + i * c->ld;
        float *restrict g = c->g;
        for (int64_t j = lo; j < hi; j++) g[j] += z[j];
    }
}

void rd_add_columns(rd_backend *be, int64_t N, int64_t width, const float *dz, int64_t ld, float *g)
{
    columns c = {N, ld, dz, g};
    if (g) rd_parallel(be, width, 256, columns_part, &c);
}

rd_code rd_cell_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev, const rd_cell_rows *r,
                     rd_status *st)
{
    if (k->def->step(k, n, h_prev, c_prev, r, st) != RD_OK) return st->code;
    if (!k->s.projects) return RD_OK;
    /* The product rounds n up; the rows behind are those of the next step, which are written later. */
    return rd_mul_rows(k, k->w[k->n_w - 1], 0, k->s.H, n, r->m, r->h, false, st);
}

rd_code rd_cell_step_back(rd_cell *k, int64_t n, const float *dh, float *dc, const float *h_prev, const float *c_prev,
                          const rd_cell_rows *r, float *dz, float *dh_prev, rd_status *st)
{
    if (!k->s.projects) return k->def->step_back(k, n, dh, dc, h_prev, c_prev, r, dz, dh_prev, st);
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *dm;
    RD_TRY(rd_rows_get(k->scratch, n, k->s.H, &dm, st));
    RD_TRY(rd_mul_rows_t(k, k->w[k->n_w - 1], 0, k->s.H, n, dh, dm, false, st));
    RD_TRY(k->def->step_back(k, n, dm, dc, h_prev, c_prev, r, dz, dh_prev, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

rd_code rd_cell_projection_back(rd_cell *k, int64_t N, const float *m, const float *dh_total, rd_status *st)
{
    if (!k->s.projects) return RD_OK;
    return rd_mul_grad(k, k->w[k->n_w - 1], 0, k->s.H, N, m, dh_total, k->s.R, st);
}
