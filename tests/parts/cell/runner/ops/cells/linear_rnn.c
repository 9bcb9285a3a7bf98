/* linear_rnn.c -- a recurrent cell without gates, whose state is its output: a template of a cell.
 *   h' = [x; h] W + b        W [(in + H), H], b [H]
 * A row of z is h' (H) before the recurrent share and the bias. */
#include "rd/cell.h"

static rd_code linear_rnn_declare(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx,
                                  rd_status *st)
{
    const int64_t rows = s->in + s->H;
    if (s->extra)
        return rd_fail(st, RD_EUSAGE, "cell type 'linear_rnn' does not go with gnmt attention");
    RD_TRY(emit(ctx, "kernel", 2, (int64_t[]){rows, s->H}, (rd_init){RD_INIT_GLOROT, 0, rows, s->H},
                st));
    RD_TRY(emit(ctx, "bias", 1, &s->H, (rd_init){RD_INIT_CONST, 0, 0, 0}, st));
done:
    return st->code;
}

static rd_code linear_rnn_input(rd_cell *k, int64_t n, const float *x, const float *a, float *z,
                                rd_status *st)
{
    (void)a;
    return rd_mul_rows(k, k->w[0], 0, k->s.in, n, x, z, false, st);
}

static rd_code linear_rnn_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                               const rd_cell_rows *r, rd_status *st)
{
    const int64_t in = k->s.in, H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    float *hz = NULL; /* the product, if it is not in z yet */
    (void)c_prev;
    if (h_prev) RD_TRY(rd_mul_for_step(k, k->w[0], in, H, n, h_prev, r->z, H, &hz, st));
    RD_TRY(rd_vec_copy(k->be, n * H, r->z, r->h, st));
    if (hz) RD_TRY(rd_vec_add(k->be, n * H, hz, r->h, st));
    RD_TRY(rd_add_bias(k->be, n, H, k->w[1]->v, r->h, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code linear_rnn_step_back(rd_cell *k, int64_t n, const float *dm, float *dc,
                                    const float *h_prev, const float *c_prev, const rd_cell_rows *r,
                                    float *dz, float *dh_prev, bool add, rd_status *st)
{
    (void)dc;
    (void)c_prev;
    (void)r;
    RD_TRY(rd_vec_copy(k->be, n * k->s.H, dm, dz, st));
    if (h_prev && dh_prev)
        RD_TRY(rd_mul_rows_t(k, k->w[0], k->s.in, k->s.H, n, dz, dh_prev, add, st));
done:
    return st->code;
}

static rd_code linear_rnn_input_back(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx,
                                     float *da, rd_status *st)
{
    (void)da;
    return dx ? rd_mul_rows_t(k, k->w[0], 0, k->s.in, n, dz, dx, add_dx, st) : st->code;
}

static rd_code linear_rnn_weights_back(rd_cell *k, int64_t N, const float *x, const float *a,
                                       const float *h_prev, const float *tc, const float *dz,
                                       rd_status *st)
{
    (void)a;
    (void)tc;
    RD_TRY(rd_mul_grad(k, k->w[0], 0, k->s.in, N, x, dz, st));
    RD_TRY(rd_mul_grad(k, k->w[0], k->s.in, k->s.H, N, h_prev, dz, st));
    RD_TRY(rd_add_columns(k->be, k->scratch, N, k->Z, dz, k->Z, k->w[1]->g, st));
done:
    return st->code;
}

RD_CELL(linear_rnn) = {.name = "linear_rnn",
                       .declare = linear_rnn_declare,
                       .n_gates = 1,
                       .input = linear_rnn_input,
                       .step = linear_rnn_step,
                       .step_back = linear_rnn_step_back,
                       .input_back = linear_rnn_input_back,
                       .weights_back = linear_rnn_weights_back};
