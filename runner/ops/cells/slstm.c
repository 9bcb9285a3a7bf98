/* slstm.c -- OpenSeq2Seq's "simple LSTM": gates from the input alone, so that x W is one product over all steps:
 *   [i, j, f, o] = x W + b               W [in, 4H], b [4H]
 *   c' = c s(f + 1) + s(i) tanh(j),  h' = s(o) tanh(c')
 * The previous h is not used, nor what gnmt attention joins to it. */
#include "../shared/cell.h"

static rd_code declare(const rd_cell_shape *s, rd_cell_emit *emit, void *ctx, rd_status *st)
{
    const int64_t wide = 4 * s->H;
    RD_TRY(emit(ctx, "kernel", 2, (int64_t[]){s->in, wide}, (rd_init){RD_INIT_GLOROT, 0, s->in, wide}, st));
    RD_TRY(emit(ctx, "bias", 1, &wide, (rd_init){RD_INIT_CONST, 0, 0, 0}, st));
done:
    return st->code;
}

static rd_code input(rd_cell *k, int64_t n, const float *x, const float *a, float *z, rd_status *st)
{
    (void)a;
    return rd_mul_rows(k, k->w[0], 0, k->s.in, n, x, z, false, st);
}

static rd_code step(rd_cell *k, int64_t n, const float *h_prev, const float *c_prev, const rd_cell_rows *r,
                    rd_status *st)
{
    const int64_t H = k->s.H;
    (void)h_prev;
    (void)st;
    rd_add_bias(n, 4 * H, k->w[1]->v, r->z);
    rd_lstm_gates(n, H, c_prev, r->z, r->c, r->tc, r->h);
    return RD_OK;
}

static rd_code step_back(rd_cell *k, int64_t n, const float *dm, float *dc, const float *h_prev, const float *c_prev,
                         const rd_cell_rows *r, float *dz, float *dh_prev, rd_status *st)
{
    (void)st;
    rd_lstm_gates_back(n, k->s.H, dm, dc, c_prev, r, dz);
    if (h_prev && dh_prev) memset(dh_prev, 0, (size_t)(n * k->s.H) * sizeof(float));
    return RD_OK;
}

static rd_code input_back(rd_cell *k, int64_t n, const float *dz, float *dx, bool add_dx, float *da, rd_status *st)
{
    (void)da;
    return dx ? rd_mul_rows_t(k, k->w[0], 0, k->s.in, n, dz, dx, add_dx, st) : RD_OK;
}

static rd_code weights_back(rd_cell *k, int64_t N, const float *x, const float *a, const float *h_prev, const float *tc,
                            const float *dz, rd_status *st)
{
    (void)a;
    (void)h_prev;
    (void)tc;
    if (rd_mul_grad(k, k->w[0], 0, k->s.in, N, x, dz, k->Z, st) != RD_OK) return st->code;
    rd_add_columns(k->be, N, k->Z, dz, k->Z, k->w[1]->g);
    return RD_OK;
}

const rd_cell_def rd_cell_slstm = {.name = "slstm",
                                   .has_c = true,
                                   .can_project = false,
                                   .declare = declare,
                                   .n_gates = 4,
                                   .input = input,
                                   .step = step,
                                   .step_back = step_back,
                                   .input_back = input_back,
                                   .weights_back = weights_back};
