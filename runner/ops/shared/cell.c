/* cell.c -- what all recurrent cells share: the projection, and products with rows of a kernel. */
#include "rd/cell.h"
#include "rounded_rows.h"
#include <inttypes.h>
#include <string.h>

rd_code rd_cell_init(rd_cell *k, const rd_cell_def *d, const rd_cell_shape *s, rd_backend *be,
                     const rd_params *ps, rd_arena *scratch, rd_var *const *w, int n_w,
                     rd_status *st)
{
    memset(k, 0, sizeof *k);
    if (n_w < 1 || n_w > RD_CELL_MAX_PARAMS)
        return rd_fail(st, RD_EBUG, "cell '%s' has %d parameters; 1 to %d are allowed", d->name,
                       n_w, RD_CELL_MAX_PARAMS);
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
    if (x->param)
        return rd_fail(st, RD_EBUG, "%s: parameter '%s' has no slack rows", op, x->param->name);
    if (x->cols != cols)
        return rd_fail(st, RD_EBUG, "%s: an input has %" PRId64 " columns instead of %" PRId64, op,
                       x->cols, cols);
    return RD_OK;
}

static rd_leaf_rows leaf_rows(const rd_var *w, int64_t row0, int64_t rows)
{
    return (rd_leaf_rows){w->param, w->v, w->cols, row0, rows, w->recorded};
}

rd_code rd_param_mul(rd_backend *be, const rd_params *ps, const rd_var *w, int64_t row0,
                     int64_t rows, int64_t n, const float *x, float *y, bool add, rd_status *st)
{
    const rd_leaf_rows r = leaf_rows(w, row0, rows);
    return rd_leaf_mul(be, ps, &r, n, x, y, add, st);
}

rd_code rd_param_mul_t(rd_backend *be, const rd_params *ps, const rd_var *w, int64_t row0,
                       int64_t rows, int64_t n, const float *y, float *x, bool add, rd_status *st)
{
    const rd_leaf_rows r = leaf_rows(w, row0, rows);
    return rd_leaf_mul_t(be, ps, &r, n, y, x, add, st);
}

rd_code rd_param_grad(rd_backend *be, const rd_var *w, int64_t row0, int64_t rows, int64_t N,
                      const float *x, const float *dy, rd_status *st)
{
    const int64_t width = w->cols;
    if (!w->g) return RD_OK;
    return rd_gemm(be, true, false, rows, width, N, 1.0f, x, rows, dy, width, 1.0f,
                   w->g + row0 * width, width, st);
}

rd_code rd_mul_rows(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *x,
                    float *y, bool add, rd_status *st)
{
    return rd_param_mul(k->be, k->ps, w, row0, rows, n, x, y, add, st);
}

rd_code rd_mul_rows_t(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *y,
                      float *x, bool add, rd_status *st)
{
    return rd_param_mul_t(k->be, k->ps, w, row0, rows, n, y, x, add, st);
}

rd_code rd_mul_grad(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t N, const float *x,
                    const float *dy, rd_status *st)
{
    return rd_param_grad(k->be, w, row0, rows, N, x, dy, st);
}

/* ---- operands with gaps between their rows ---- */

/* Products with parameters whose operands have gaps, one table for each kind of backend. */
typedef struct strided_products {
    rd_code (*operand)(rd_cell *k, int64_t n, int64_t cols, const float *x, int64_t ld,
                       const float **out, int64_t *ld_out, rd_status *st);
    /* Computes y = x W (back: x = y W^T). in [n, in_cols] has leading dimension ld_in, out
     * [n, out_cols] has ld_out. */
    rd_code (*mul)(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, bool back, int64_t n,
                   const float *in, int64_t ld_in, float *out, int64_t ld_out, bool add,
                   rd_status *st);
    rd_code (*for_step)(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                        const float *x, float *z, int64_t ldz, float **y, rd_status *st);
} strided_products;

/* On a CPU: packed products take rows without gaps, so rows with gaps are copied. */
static rd_code packed_operand(rd_cell *k, int64_t n, int64_t cols, const float *x, int64_t ld,
                              const float **out, int64_t *ld_out, rd_status *st)
{
    float *copy;
    *out = x;
    *ld_out = ld;
    if (ld == cols) return RD_OK;
    RD_TRY(rd_rows_get(k->scratch, n, cols, &copy, st));
    RD_TRY(rd_rows_copy(k->be, n, cols, x, ld, copy, cols, false, st));
    *out = copy;
    *ld_out = cols;
done:
    return st->code;
}

static rd_code packed_mul(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, bool back, int64_t n,
                          const float *in, int64_t ld_in, float *out, int64_t ld_out, bool add,
                          rd_status *st)
{
    const int64_t in_cols = back ? w->cols : rows, out_cols = back ? rows : w->cols;
    const rd_mark mark = rd_arena_mark(k->scratch);
    const bool gaps = ld_out != out_cols;
    float *product = out;
    RD_TRY(packed_operand(k, n, in_cols, in, ld_in, &in, &ld_in, st));
    if (gaps) RD_TRY(rd_rows_get(k->scratch, n, out_cols, &product, st));
    RD_TRY((back ? rd_mul_rows_t : rd_mul_rows)(k, w, row0, rows, n, in, product, add && !gaps,
                                                st));
    if (gaps) RD_TRY(rd_rows_copy(k->be, n, out_cols, product, out_cols, out, ld_out, add, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code packed_for_step(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                               const float *x, float *z, int64_t ldz, float **y, rd_status *st)
{
    (void)z, (void)ldz;
    RD_TRY(rd_rows_get(k->scratch, n, w->cols, y, st));
    RD_TRY(rd_mul_rows(k, w, row0, rows, n, x, *y, false, st));
done:
    return st->code;
}

/* On a GPU: products take leading dimensions. */
static rd_code direct_operand(rd_cell *k, int64_t n, int64_t cols, const float *x, int64_t ld,
                              const float **out, int64_t *ld_out, rd_status *st)
{
    (void)k, (void)n, (void)cols, (void)st;
    *out = x;
    *ld_out = ld;
    return RD_OK;
}

static rd_code direct_mul(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, bool back, int64_t n,
                          const float *in, int64_t ld_in, float *out, int64_t ld_out, bool add,
                          rd_status *st)
{
    return rd_gemm(k->be, false, back, n, back ? rows : w->cols, back ? w->cols : rows, 1.0f, in,
                   ld_in, w->v + row0 * w->cols, w->cols, add, out, ld_out, st);
}

static rd_code direct_for_step(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                               const float *x, float *z, int64_t ldz, float **y, rd_status *st)
{
    *y = NULL;
    return direct_mul(k, w, row0, rows, false, n, x, rows, z, ldz, true, st);
}

static const strided_products strided[RD_BACKENDS] = {
    [RD_CPU] = {packed_operand, packed_mul, packed_for_step},
    [RD_GPU] = {direct_operand, direct_mul, direct_for_step}};

rd_code rd_mul_operand(rd_cell *k, int64_t n, int64_t cols, const float *x, int64_t ld,
                       const float **out, int64_t *ld_out, rd_status *st)
{
    return strided[rd_backend_kind_of(k->be)].operand(k, n, cols, x, ld, out, ld_out, st);
}

static rd_code mul_strided(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, bool back, int64_t n,
                           const float *in, int64_t ld_in, float *out, int64_t ld_out, bool add,
                           rd_status *st)
{
    return strided[rd_backend_kind_of(k->be)].mul(k, w, row0, rows, back, n, in, ld_in, out, ld_out,
                                                  add, st);
}

rd_code rd_mul_strided(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n, const float *x,
                       int64_t ldx, float *y, int64_t ldy, bool add, rd_status *st)
{
    return mul_strided(k, w, row0, rows, false, n, x, ldx, y, ldy, add, st);
}

rd_code rd_mul_strided_t(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                         const float *y, int64_t ldy, float *x, int64_t ldx, bool add,
                         rd_status *st)
{
    return mul_strided(k, w, row0, rows, true, n, y, ldy, x, ldx, add, st);
}

rd_code rd_mul_strided_grad(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t N,
                            const float *x, int64_t ldx, const float *dy, int64_t ldy,
                            rd_status *st)
{
    const int64_t width = w->cols;
    if (!w->g) return RD_OK;
    const rd_mark mark = rd_arena_mark(k->scratch);
    RD_TRY(rd_mul_operand(k, N, rows, x, ldx, &x, &ldx, st));
    RD_TRY(rd_mul_operand(k, N, width, dy, ldy, &dy, &ldy, st));
    RD_TRY(rd_gemm(k->be, true, false, rows, width, N, 1.0f, x, ldx, dy, ldy, 1.0f,
                   w->g + row0 * width, width, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

rd_code rd_mul_for_step(rd_cell *k, rd_var *w, int64_t row0, int64_t rows, int64_t n,
                        const float *x, float *z, int64_t ldz, float **y, rd_status *st)
{
    return strided[rd_backend_kind_of(k->be)].for_step(k, w, row0, rows, n, x, z, ldz, y, st);
}

rd_code rd_cell_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                     const rd_cell_rows *r, rd_status *st)
{
    if (k->def->step(k, n, h_prev, c_prev, r, st) != RD_OK) return st->code;
    if (!k->s.projects) return RD_OK;
    /* The product rounds n up. The rows behind belong to the next step and are written later. */
    RD_TRY(rd_mul_rows(k, k->w[k->n_w - 1], 0, k->s.H, n, r->m, r->h, false, st));
    RD_TRY(rd_rounded_write(k->be, n * k->s.R, r->h, st));
done:
    return st->code;
}

rd_code rd_cell_step_back(rd_cell *k, int64_t n, const float *dh, float *dc, const float *h_prev,
                          const float *c_prev, const rd_cell_rows *r, float *dz, float *dh_prev,
                          bool add, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(k->scratch);
    const float *dm = dh;
    /* Products that write whole blocks of rows must not reach the rows of other steps. */
    const bool apart = add && h_prev && dh_prev && rd_backend_rounds_rows(k->be);
    float *to = dh_prev;
    if (k->s.projects) {
        float *m;
        RD_TRY(rd_rows_get(k->scratch, n, k->s.H, &m, st));
        RD_TRY(rd_rounded_write(k->be, n * k->s.R, dh, st));
        RD_TRY(rd_mul_rows_t(k, k->w[k->n_w - 1], 0, k->s.H, n, dh, m, false, st));
        dm = m;
    }
    if (apart) RD_TRY(rd_rows_get(k->scratch, n, k->s.R, &to, st));
    RD_TRY(k->def->step_back(k, n, dm, dc, h_prev, c_prev, r, dz, to, add && !apart, st));
    if (apart) RD_TRY(rd_vec_add(k->be, n * k->s.R, to, dh_prev, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

rd_code rd_cell_projection_back(rd_cell *k, int64_t N, const float *m, const float *dh_total,
                                rd_status *st)
{
    if (!k->s.projects) return RD_OK;
    return rd_mul_grad(k, k->w[k->n_w - 1], 0, k->s.H, N, m, dh_total, st);
}
