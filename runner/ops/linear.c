/* linear.c -- y = x W + b.  dx = dy W^T,  dW = x^T dy,  db = column sums of dy.   x (N, k), W (k, n), b (n) */
#include "shared/cell.h"

static rd_code infer(rd_call *c, rd_status *st)
{
    if (!c->in[1]->param || (c->in[2] && c->in[2]->cols != c->in[1]->cols))
        return rd_fail(st, RD_EBUG, "linear: W of %lld columns is no parameter, or its bias has other ones",
                       (long long)c->in[1]->cols);
    RD_TRY(rd_rows_check("linear", c->in[0], c->in[1]->rows, st));
    c->out[0]->rows = c->in[0]->rows;
    c->out[0]->cols = c->in[1]->cols;
done:
    return st->code;
}

static rd_code forward(rd_call *c, rd_status *st)
{
    rd_packed *p = rd_backend_packed(c->be, c->params, c->in[1]->param, 0, c->in[1]->rows, st);
    if (!p) return st->code;
    const int64_t N = c->in[0]->rows, n = c->in[1]->cols;
    RD_TRY(rd_packed_mul(p, N, c->in[0]->v, c->out[0]->v, false, st));
    if (c->in[2]) rd_add_bias(N, n, c->in[2]->v, c->out[0]->v);
done:
    return st->code;
}

static rd_code backward(rd_call *c, rd_status *st)
{
    rd_packed *p = rd_backend_packed(c->be, c->params, c->in[1]->param, 0, c->in[1]->rows, st);
    if (!p) return st->code;
    const int64_t N = c->in[0]->rows, k = c->in[1]->rows, n = c->in[1]->cols;
    if (c->in[0]->g) RD_TRY(rd_packed_mul_t(p, N, c->out[0]->g, c->in[0]->g, true, st));
    if (c->in[1]->g)
        RD_TRY(rd_gemm(c->be, true, false, k, n, N, 1.0f, c->in[0]->v, k, c->out[0]->g, n, 1.0f, c->in[1]->g, n, st));
    if (c->in[2]) rd_add_columns(c->be, N, n, c->out[0]->g, n, c->in[2]->g);
done:
    return st->code;
}

extern const rd_op rd_op_def_linear;
const rd_op rd_op_def_linear = {.name = "linear", .about = "x W + b", .infer = infer, .cpu = {forward, backward}};

rd_var *rd_op_linear(rd_tape *t, rd_var *x, rd_var *W, rd_var *b)
{
    rd_var *in[] = {x, W, b};
    return rd_tape_apply(t, &rd_op_def_linear, NULL, 0, in, 3, NULL, 1);
}
