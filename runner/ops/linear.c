/* linear.c -- y = x W + b, with x (N, k), W (k, n), b (n):
 *   dx = dy W^T,  dW = x^T dy,  db = column sums of dy
 * If x has 16 bits (on a GPU), dx also has 16 bits, and the products read x without a conversion.
 * y and dy are float32. */
#include "rd/cell.h"
#include <inttypes.h>

static rd_code linear_infer(rd_call *c, rd_status *st)
{
    if (!c->in[1]->param || (c->in[2] && c->in[2]->cols != c->in[1]->cols))
        return rd_fail(st, RD_EBUG,
                       "linear: W (%" PRId64
                       " columns) is not a parameter, or its bias has another width",
                       c->in[1]->cols);
    RD_TRY(rd_rows_check("linear", c->in[0], c->in[1]->rows, st));
    c->out[0]->rows = c->in[0]->rows;
    c->out[0]->cols = c->in[1]->cols;
done:
    return st->code;
}

static rd_gpu_operand linear_operand(void *at, rd_element type, int64_t ld)
{
    return (rd_gpu_operand){at, type, ld};
}

static rd_code linear_forward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *W = c->in[1], *b = c->in[2];
    const int64_t N = x->rows;
    if (x->type != RD_FLOAT32)
        RD_TRY(rd_backend_product(c->be, false, false, N, W->cols, W->rows,
                                  linear_operand(x->values, x->type, W->rows),
                                  linear_operand(W->v, RD_FLOAT32, W->cols), 0.0f,
                                  linear_operand(c->out[0]->v, RD_FLOAT32, W->cols), st));
    else
        RD_TRY(rd_param_mul(c->be, c->params, W, 0, W->rows, N, x->v, c->out[0]->v, false, st));
    if (b) RD_TRY(rd_add_bias(c->be, N, W->cols, b->v, c->out[0]->v, st));
done:
    return st->code;
}

static rd_code linear_backward_narrow(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *W = c->in[1], *y = c->out[0];
    const rd_gpu_operand dy = linear_operand(y->g, RD_FLOAT32, W->cols);
    void *dx;
    bool add;
    RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
    if (dx)
        RD_TRY(rd_backend_product(c->be, false, true, x->rows, W->rows, W->cols, dy,
                                  linear_operand(W->v, RD_FLOAT32, W->cols), add ? 1.0f : 0.0f,
                                  linear_operand(dx, x->type, W->rows), st));
    if (W->g)
        RD_TRY(rd_backend_product(c->be, true, false, W->rows, W->cols, x->rows,
                                  linear_operand(x->values, x->type, W->rows), dy, 1.0f,
                                  linear_operand(W->g, RD_FLOAT32, W->cols), st));
done:
    return st->code;
}

static rd_code linear_backward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *W = c->in[1], *b = c->in[2];
    const float *dy = c->out[0]->g;
    const int64_t N = x->rows, n = W->cols;
    float *dx;
    bool add;
    if (x->type != RD_FLOAT32) {
        RD_TRY(linear_backward_narrow(c, st));
    } else {
        RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
        if (dx) RD_TRY(rd_param_mul_t(c->be, c->params, W, 0, W->rows, N, dy, dx, add, st));
        RD_TRY(rd_param_grad(c->be, W, 0, W->rows, N, x->v, dy, st));
    }
    if (b) RD_TRY(rd_call_zero_grad(c, 2, st));
    if (b) RD_TRY(rd_add_columns(c->be, c->device_scratch, N, n, dy, n, b->g, st));
done:
    return st->code;
}

RD_OP(linear) = {.name = "linear",
                 .about = "x W + b",
                 .infer = linear_infer,
                 .kernel = RD_EVERY_BACKEND(linear_forward, linear_backward),
                 .narrow = RD_NARROW(0),
                 .own_grads = true,
                 .reads_out = RD_READS_NOTHING};

rd_var *rd_op_linear(rd_tape *t, rd_var *x, rd_var *W, rd_var *b)
{
    rd_var *in[] = {x, W, b};
    return rd_tape_apply(t, &rd_op_def_linear, NULL, 0, in, 3, NULL, 1);
}
