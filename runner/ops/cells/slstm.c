/* slstm.c -- the "simple LSTM" of OpenSeq2Seq. Its gates depend on the input alone, so x W is one
 * product over all steps:
 *   [i, j, f, o] = x W + b               W [in, 4H], b [4H]
 *   c' = c s(f + 1) + s(i) tanh(j),  h' = s(o) tanh(c')
 * The cell uses neither the previous h nor the context that gnmt attention joins to it. */
#include "rd/cell.h"

static rd_code slstm_declare(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st)
{
    const int64_t wide = 4 * s->H;
    RD_TRY(emit(ctx, "kernel", 2, (int64_t[]){s->in, wide},
                (rd_init){RD_INIT_GLOROT, 0, s->in, wide}, st));
    RD_TRY(emit(ctx, "bias", 1, &wide, (rd_init){RD_INIT_CONST, 0, 0, 0}, st));
done:
    return st->code;
}

static rd_code slstm_input(rd_cell *k, int64_t n, const float *x, const float *a, float *z,
                           rd_status *st)
{
    (void)a;
    return rd_mul_rows(k, k->w[0], 0, k->s.in, n, x, z, false, st);
}

static rd_code slstm_step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev,
                          const rd_cell_rows *r, rd_status *st)
{
    const int64_t H = k->s.H;
    const float *b = k->w[1]->v, *const bias[4] = {b, b + H, b + 2 * H, b + 3 * H};
    (void)h_prev;
    return rd_lstm_gates(k->be, n, H, 1, NULL, bias, c_prev, r, st);
}

static rd_code slstm_step_back(rd_cell *k, int64_t n, const float *dm, float *dc,
                               const float *h_prev, const float *c_prev, const rd_cell_rows *r,
                               float *dz, float *dh_prev, bool add, rd_status *st)
{
    RD_TRY(rd_lstm_gates_back(k->be, n, k->s.H, 1, dm, dc, c_prev, r, dz, st));
    if (h_prev && dh_prev && !add) RD_TRY(rd_vec_zero(k->be, n * k->s.H, dh_prev, st));
done:
    return st->code;
}

static rd_code slstm_input_back(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx,
                                float *da, rd_status *st)
{
    (void)da;
    return dx ? rd_mul_rows_t(k, k->w[0], 0, k->s.in, n, dz, dx, add_dx, st) : RD_OK;
}

static rd_code slstm_weights_back(rd_cell *k, int64_t N, const float *x, const float *a,
                                  const float *h_prev, const float *tc, const float *dz,
                                  rd_status *st)
{
    (void)a;
    (void)h_prev;
    (void)tc;
    RD_TRY(rd_mul_grad(k, k->w[0], 0, k->s.in, N, x, dz, st));
    RD_TRY(rd_add_columns(k->be, k->scratch, N, k->Z, dz, k->Z, k->w[1]->g, st));
done:
    return st->code;
}

RD_CELL(slstm) = {.name = "slstm",
                  .has_c = true,
                  .can_project = false,
                  .declare = slstm_declare,
                  .n_gates = 4,
                  .input = slstm_input,
                  .step = slstm_step,
                  .step_back = slstm_step_back,
                  .input_back = slstm_input_back,
                  .weights_back = slstm_weights_back};
