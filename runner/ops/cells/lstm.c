/* lstm.c -- Hochreiter and Schmidhuber 1997, as LSTMCell of TF 1.4 computes it. The forget bias 1
 * is added at run time. There are no peepholes.
 *   [i, j, f, o] = [x; h; a] W + b        W [(in + R + extra), 4H], b [4H]
 *   c', m: see rd_lstm_gates
 *   h' = m W_p with a projection, else m
 * z holds the four gates, activated in place. */
#include "rd/cell.h"

static rd_code lstm_declare(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st)
{
    const int64_t rows = s->in + s->R + s->extra, wide = 4 * s->H;
    const rd_init glorot = {RD_INIT_GLOROT, 0, rows, wide}, zero = {RD_INIT_CONST, 0, 0, 0},
                  proj = {RD_INIT_GLOROT, 0, s->H, s->R};
    RD_TRY(emit(ctx, "kernel", 2, (int64_t[]){rows, wide}, glorot, st));
    RD_TRY(emit(ctx, "bias", 1, &wide, zero, st));
    if (s->projects) RD_TRY(emit(ctx, "projection", 2, (int64_t[]){s->H, s->R}, proj, st));
done:
    return st->code;
}

static rd_code lstm_input(rd_cell *k, int64_t n, const float *x, const float *a, float *z,
                          rd_status *st)
{
    RD_TRY(rd_mul_rows(k, k->w[0], 0, k->s.in, n, x, z, false, st));
    if (a) RD_TRY(rd_mul_rows(k, k->w[0], k->s.in + k->s.R, k->s.extra, n, a, z, true, st));
done:
    return st->code;
}

static rd_code lstm_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                         const rd_cell_rows *r, rd_status *st)
{
    const int64_t H = k->s.H;
    const rd_mark mark = rd_arena_mark(k->scratch);
    const float *b = k->w[1]->v, *const bias[4] = {b, b + H, b + 2 * H, b + 3 * H};
    float *hz = NULL;
    if (h_prev)
        RD_TRY(rd_mul_for_step(k, k->w[0], k->s.in, k->s.R, n, h_prev, r->z, k->Z, &hz, st));
    RD_TRY(rd_lstm_gates(k->be, n, H, 1, hz, bias, c_prev, r, st));
done:
    rd_arena_rewind(k->scratch, mark);
    return st->code;
}

static rd_code lstm_step_back(rd_cell *k, int64_t n, const float *dm, float *dc,
                              const float *h_prev, const float *c_prev, const rd_cell_rows *r,
                              float *dz, float *dh_prev, bool add, rd_status *st)
{
    RD_TRY(rd_lstm_gates_back(k->be, n, k->s.H, 1, dm, dc, c_prev, r, dz, st));
    if (h_prev && dh_prev)
        RD_TRY(rd_mul_rows_t(k, k->w[0], k->s.in, k->s.R, n, dz, dh_prev, add, st));
done:
    return st->code;
}

static rd_code lstm_input_back(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx,
                               float *da, rd_status *st)
{
    if (dx) RD_TRY(rd_mul_rows_t(k, k->w[0], 0, k->s.in, n, dz, dx, add_dx, st));
    if (da) RD_TRY(rd_mul_rows_t(k, k->w[0], k->s.in + k->s.R, k->s.extra, n, dz, da, true, st));
done:
    return st->code;
}

static rd_code lstm_weights_back(rd_cell *k, int64_t N, const float *x, const float *a,
                                 const float *h_prev, const float *tc, const float *dz,
                                 rd_status *st)
{
    (void)tc;
    RD_TRY(rd_mul_grad(k, k->w[0], 0, k->s.in, N, x, dz, st));
    RD_TRY(rd_mul_grad(k, k->w[0], k->s.in, k->s.R, N, h_prev, dz, st));
    if (a) RD_TRY(rd_mul_grad(k, k->w[0], k->s.in + k->s.R, k->s.extra, N, a, dz, st));
    RD_TRY(rd_add_columns(k->be, k->scratch, N, k->Z, dz, k->Z, k->w[1]->g, st));
done:
    return st->code;
}

RD_CELL(lstm) = {.name = "lstm",
                 .has_c = true,
                 .can_project = true,
                 .declare = lstm_declare,
                 .n_gates = 4,
                 .input = lstm_input,
                 .step = lstm_step,
                 .step_back = lstm_step_back,
                 .input_back = lstm_input_back,
                 .weights_back = lstm_weights_back};
