/* glstm.c -- group-factorised LSTM (Kuchaiev and Ginsburg 2017, arXiv:1703.10722). There are G
 * groups; x and the recurrent side are split evenly:
 *   [i_k, j_k, f_k, o_k] = [x_k; h_k] W_k      W_k [(in/G + (R+extra)/G), 4H/G], no bias
 * The groups are joined gate by gate to width H. Then come the biases b_i, b_j, b_f, b_o [H] and
 * the formulas of lstm, with forget bias 1. The projection is not grouped. The context that gnmt
 * joins to h is split with h: group k sees columns [k w, (k+1) w) of [h; a], w = (R + extra)/G. */
#include "rd/cell.h"
#include <inttypes.h>
#include <stdio.h>

static rd_code glstm_declare(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st)
{
    const int64_t G = s->groups;
    if (G < 1 || G > RD_CELL_MAX_GROUPS || s->H % G || s->in % G || (s->R + s->extra) % G ||
        (s->projects && s->R % G))
        return rd_fail(st, RD_EUSAGE,
                       "'num_groups' %" PRId64
                       " must be 1 .. %d and divide the cell's units (%" PRId64
                       "), its input width (%" PRId64 ") and its recurrent width (%" PRId64
                       "); change num_groups, *_cell_units, *_emb_size or proj_size",
                       G, RD_CELL_MAX_GROUPS, s->H, s->in, (s->R + s->extra));
    const int64_t rows = s->in / G + (s->R + s->extra) / G, wide = 4 * s->H / G;
    char name[32];
    for (int64_t g = 0; g < G; g++) {
        snprintf(name, sizeof name, "group%" PRId64 "_kernel", g);
        RD_TRY(emit(ctx, name, 2, (int64_t[]){rows, wide}, (rd_init){RD_INIT_GLOROT, 0, rows, wide},
                    st));
    }
    for (int g = 0; g < 4; g++) {
        snprintf(name, sizeof name, "bias_%c", "ijfo"[g]);
        RD_TRY(emit(ctx, name, 1, &s->H, (rd_init){RD_INIT_CONST, 0, 0, 0}, st));
    }
    if (s->projects)
        RD_TRY(emit(ctx, "projection", 2, (int64_t[]){s->H, s->R},
                    (rd_init){RD_INIT_GLOROT, 0, s->H, s->R}, st));
done:
    return st->code;
}

/* The n columns of an operand, from col on, that group g multiplies with the rows of W_g from `row`
 * on. */
typedef struct glstm_part {
    int64_t col, n, row;
} glstm_part;

static glstm_part x_part(const rd_cell_shape *s, int64_t g)
{
    return (glstm_part){g * (s->in / s->groups), s->in / s->groups, 0};
}

/* Returns the part of group g. first: column of [h; a] at which the operand begins; width: its
 * columns. */
static glstm_part rec_part(const rd_cell_shape *s, int64_t g, int64_t first, int64_t width)
{
    const int64_t w = (s->R + s->extra) / s->groups, lo0 = g * w, hi0 = lo0 + w;
    const int64_t lo = lo0 > first ? lo0 : first, hi = hi0 < first + width ? hi0 : first + width;
    return (glstm_part){lo - first, hi > lo ? hi - lo : 0, s->in / s->groups + lo - lo0};
}

/* Copies the columns of part p to y [n, p.n]. */
static void glstm_gather(int64_t n, const float *x, int64_t ld, glstm_part p, float *y)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(y + i * p.n, x + i * ld + p.col, (size_t)p.n * sizeof(float));
}

/* group_out and group_in copy group g from y [n, 4H/G] to z [n, 4H], and from z to y. */
static void group_out(const rd_cell_shape *s, int64_t n, int64_t g, const float *y, float *z,
                      bool add)
{
    const int64_t w = s->H / s->groups;
    for (int64_t i = 0; i < n; i++)
        for (int64_t q = 0; q < 4; q++) {
            float *to = z + i * 4 * s->H + q * s->H + g * w;
            const float *from = y + i * 4 * w + q * w;
            for (int64_t c = 0; c < w; c++) to[c] = add ? to[c] + from[c] : from[c];
        }
}

static void group_in(const rd_cell_shape *s, int64_t n, int64_t g, const float *z, float *y)
{
    const int64_t w = s->H / s->groups;
    for (int64_t i = 0; i < n; i++)
        for (int64_t q = 0; q < 4; q++)
            memcpy(y + i * 4 * w + q * w, z + i * 4 * s->H + q * s->H + g * w,
                   (size_t)w * sizeof(float));
}

typedef glstm_part part_fn(const rd_cell_shape *s, int64_t g);
static glstm_part h_part(const rd_cell_shape *s, int64_t g)
{
    return rec_part(s, g, 0, s->R);
}
static glstm_part a_part(const rd_cell_shape *s, int64_t g)
{
    return rec_part(s, g, s->R, s->extra);
}

/* ---- on a GPU: batches of products ---- */
/* z is stored group by group (see rd_lstm_gates), so the columns of a group are an operand without
 * a copy. */

/* Groups first .. first + n - 1 whose operands, kernels and gradients have equal distances in
 * memory: one batch of products. */
typedef struct glstm_run {
    int64_t first, n;
    glstm_part p;       /* part of the first group */
    int64_t col, w, dw; /* distances in elements of operand, kernel, gradient of the kernel */
} glstm_run;

/* Returns the longest run, from group `first` on, of groups that have a part of the operand. n is 0
 * if no group is left. */
static glstm_run run_from(const rd_cell *k, int64_t first, part_fn *fn)
{
    const int64_t G = k->s.groups;
    while (first < G && fn(&k->s, first).n == 0) first++;
    glstm_run r = {.first = first};
    for (int64_t g = first; g < G; g++, r.n++) {
        const glstm_part p = fn(&k->s, g);
        if (g == first) {
            r.p = p;
            continue;
        }
        const rd_var *w = k->w[g], *before = k->w[g - 1];
        const int64_t col = p.col - (r.p.col + (r.n - 1) * r.col), step = w->v - before->v,
                      dw = w->g && before->g ? w->g - before->g : 0;
        if (r.n == 1) {
            r.col = col;
            r.w = step;
            r.dw = dw;
        }
        if (p.n != r.p.n || p.row != r.p.row || col != r.col || step != r.w || dw != r.dw) break;
    }
    return r;
}

static rd_code batch_mul(rd_cell *k, int64_t n, const float *x, int64_t ld, part_fn *fn, float *z,
                         bool add, rd_status *st)
{
    const int64_t wide = 4 * (k->s.H / k->s.groups);
    for (glstm_run r = run_from(k, 0, fn); r.n; r = run_from(k, r.first + r.n, fn))
        RD_TRY(rd_gemm_batched(k->be, false, false, n, wide, r.p.n, 1.0f, x + r.p.col, ld, r.col,
                               k->w[r.first]->v + r.p.row * wide, wide, r.w, add,
                               z + r.first * wide, k->Z, wide, r.n, st));
done:
    return st->code;
}

static rd_code batch_mul_t(rd_cell *k, int64_t n, const float *dz, int64_t ld, part_fn *fn,
                           float *dx, bool add, rd_status *st)
{
    const int64_t wide = 4 * (k->s.H / k->s.groups);
    for (glstm_run r = run_from(k, 0, fn); r.n; r = run_from(k, r.first + r.n, fn))
        RD_TRY(rd_gemm_batched(k->be, false, true, n, r.p.n, wide, 1.0f, dz + r.first * wide, k->Z,
                               wide, k->w[r.first]->v + r.p.row * wide, wide, r.w, add,
                               dx + r.p.col, ld, r.col, r.n, st));
done:
    return st->code;
}

static rd_code batch_grad(rd_cell *k, int64_t N, const float *x, int64_t ld, part_fn *fn,
                          const float *dz, rd_status *st)
{
    const int64_t wide = 4 * (k->s.H / k->s.groups);
    for (glstm_run r = run_from(k, 0, fn); r.n; r = run_from(k, r.first + r.n, fn))
        if (k->w[r.first]->g)
            RD_TRY(rd_gemm_batched(k->be, true, false, r.p.n, wide, N, 1.0f, x + r.p.col, ld, r.col,
                                   dz + r.first * wide, k->Z, wide, 1.0f,
                                   k->w[r.first]->g + r.p.row * wide, wide, r.dw, r.n, st));
done:
    return st->code;
}

/* Sums the columns, then adds the sums of each gate to the gradient of its bias. */
static rd_code batch_bias_grad(rd_cell *k, int64_t N, const float *dz, rd_status *st)
{
    const int64_t G = k->s.groups, w = k->s.H / G;
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *sums;
    RD_TRY(rd_arena_zero(k->scratch, (size_t)k->Z * sizeof *sums, &sums, st));
    RD_TRY(rd_add_columns(k->be, k->scratch, N, k->Z, dz, k->Z, sums, st));
    for (int64_t q = 0; q < 4; q++)
        if (k->w[G + q]->g)
            RD_TRY(rd_rows_copy(k->be, G, w, sums + q * w, 4 * w, k->w[G + q]->g, w, true, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

/* ---- on a CPU: one product for each group, after its columns are copied together ---- */
/* Allocates a [n, wide] and b [n, 4H/G] from scratch memory. */
static rd_code glstm_scratch(rd_cell *k, int64_t n, int64_t wide, float **a, float **b,
                             rd_status *st)
{
    const rd_code r = rd_rows_get(k->scratch, n, wide, a, st);
    return r == RD_OK ? rd_rows_get(k->scratch, n, 4 * (k->s.H / k->s.groups), b, st) : r;
}

static rd_code group_mul(rd_cell *k, int64_t n, const float *x, int64_t ld, part_fn *fn, float *z,
                         bool add, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *xs, *ys;
    RD_TRY(glstm_scratch(k, n, ld, &xs, &ys, st));
    for (int64_t g = 0; g < k->s.groups; g++) {
        const glstm_part p = fn(&k->s, g);
        if (p.n == 0) {
            if (!add) {
                memset(ys, 0, (size_t)(n * 4 * (k->s.H / k->s.groups)) * sizeof(float));
                group_out(&k->s, n, g, ys, z, false);
            }
            continue;
        }
        glstm_gather(n, x, ld, p, xs);
        RD_TRY(rd_mul_rows(k, k->w[g], p.row, p.n, n, xs, ys, false, st));
        group_out(&k->s, n, g, ys, z, add);
    }
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code group_mul_t(rd_cell *k, int64_t n, const float *dz, int64_t ld, part_fn *fn,
                           float *dx, bool add, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *xs, *ys;
    RD_TRY(glstm_scratch(k, n, ld, &xs, &ys, st));
    for (int64_t g = 0; g < k->s.groups; g++) {
        const glstm_part p = fn(&k->s, g);
        if (p.n == 0) continue; /* the columns belong to another group */
        group_in(&k->s, n, g, dz, ys);
        RD_TRY(rd_mul_rows_t(k, k->w[g], p.row, p.n, n, ys, xs, false, st));
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < p.n; c++) {
                float *to = dx + i * ld + p.col + c;
                *to = add ? *to + xs[i * p.n + c] : xs[i * p.n + c];
            }
    }
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code group_grad(rd_cell *k, int64_t N, const float *x, int64_t ld, part_fn *fn,
                          const float *dz, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *xs, *ys;
    RD_TRY(glstm_scratch(k, N, ld, &xs, &ys, st));
    for (int64_t g = 0; g < k->s.groups; g++) {
        const glstm_part p = fn(&k->s, g);
        if (p.n == 0) continue;
        glstm_gather(N, x, ld, p, xs);
        group_in(&k->s, N, g, dz, ys);
        RD_TRY(rd_mul_grad(k, k->w[g], p.row, p.n, N, xs, ys, st));
    }
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code group_bias_grad(rd_cell *k, int64_t N, const float *dz, rd_status *st)
{
    for (int q = 0; q < 4; q++)
        RD_TRY(rd_add_columns(k->be, k->scratch, N, k->s.H, dz + q * k->s.H, k->Z,
                              k->w[k->s.groups + q]->g, st));
done:
    return st->code;
}

/* ---- the table of both ---- */
typedef struct glstm_products {
    rd_code (*mul)(rd_cell *k, int64_t n, const float *x, int64_t ld, part_fn *fn, float *z,
                   bool add, rd_status *st);
    rd_code (*mul_t)(rd_cell *k, int64_t n, const float *dz, int64_t ld, part_fn *fn, float *dx,
                     bool add, rd_status *st);
    rd_code (*grad)(rd_cell *k, int64_t N, const float *x, int64_t ld, part_fn *fn, const float *dz,
                    rd_status *st);
    rd_code (*bias_grad)(rd_cell *k, int64_t N, const float *dz, rd_status *st);
} glstm_products;

static const glstm_products products[RD_BACKENDS] = {
    [RD_CPU] = {group_mul, group_mul_t, group_grad, group_bias_grad},
    [RD_GPU] = {batch_mul, batch_mul_t, batch_grad, batch_bias_grad}};

static const glstm_products *glstm_products_of(const rd_cell *k)
{
    return &products[rd_backend_kind_of(k->be)];
}

static rd_code glstm_input(rd_cell *k, int64_t n, const float *x, const float *a, float *z,
                           rd_status *st)
{
    RD_TRY(glstm_products_of(k)->mul(k, n, x, k->s.in, x_part, z, false, st));
    if (a) RD_TRY(glstm_products_of(k)->mul(k, n, a, k->s.extra, a_part, z, true, st));
done:
    return st->code;
}

static rd_code glstm_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                          const rd_cell_rows *r, rd_status *st)
{
    const int64_t G = k->s.groups;
    const float *const bias[4] = {k->w[G]->v, k->w[G + 1]->v, k->w[G + 2]->v, k->w[G + 3]->v};
    if (h_prev) RD_TRY(glstm_products_of(k)->mul(k, n, h_prev, k->s.R, h_part, r->z, true, st));
    RD_TRY(rd_lstm_gates(k->be, n, k->s.H, G, NULL, bias, c_prev, r, st));
done:
    return st->code;
}

static rd_code glstm_step_back(rd_cell *k, int64_t n, const float *dm, float *dc,
                               const float *h_prev, const float *c_prev, const rd_cell_rows *r,
                               float *dz, float *dh_prev, bool add, rd_status *st)
{
    RD_TRY(rd_lstm_gates_back(k->be, n, k->s.H, k->s.groups, dm, dc, c_prev, r, dz, st));
    if (h_prev && dh_prev)
        RD_TRY(glstm_products_of(k)->mul_t(k, n, dz, k->s.R, h_part, dh_prev, add, st));
done:
    return st->code;
}

static rd_code glstm_input_back(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx,
                                float *da, rd_status *st)
{
    if (dx) RD_TRY(glstm_products_of(k)->mul_t(k, n, dz, k->s.in, x_part, dx, add_dx, st));
    if (da) RD_TRY(glstm_products_of(k)->mul_t(k, n, dz, k->s.extra, a_part, da, true, st));
done:
    return st->code;
}

static rd_code glstm_weights_back(rd_cell *k, int64_t N, const float *x, const float *a,
                                  const float *h_prev, const float *tc, const float *dz,
                                  rd_status *st)
{
    (void)tc;
    RD_TRY(glstm_products_of(k)->grad(k, N, x, k->s.in, x_part, dz, st));
    RD_TRY(glstm_products_of(k)->grad(k, N, h_prev, k->s.R, h_part, dz, st));
    if (a) RD_TRY(glstm_products_of(k)->grad(k, N, a, k->s.extra, a_part, dz, st));
    RD_TRY(glstm_products_of(k)->bias_grad(k, N, dz, st));
done:
    return st->code;
}

RD_CELL(glstm) = {.name = "glstm",
                  .has_c = true,
                  .can_project = true,
                  .declare = glstm_declare,
                  .n_gates = 4,
                  .input = glstm_input,
                  .step = glstm_step,
                  .step_back = glstm_step_back,
                  .input_back = glstm_input_back,
                  .weights_back = glstm_weights_back};
