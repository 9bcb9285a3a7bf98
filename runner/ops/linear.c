/* linear.c -- y = x W + b, with x (N, k), W (k, n), b (n):
 *   dx = dy W^T,  dW = x^T dy,  db = column sums of dy
 * On a GPU x and y can have 16 bits, and then so have dx and dy. The products read and write them
 * without a conversion. If x and y are float32 and products have 16 bits, x and dy are rounded
 * once, for both products that read them. */
#include "rd/cell.h"
#include "shared/rounded_rows.h"
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
    c->out[0]->type = *(const rd_element *)c->attr;
done:
    return st->code;
}

static rd_gpu_operand linear_operand(void *at, rd_element type, int64_t ld)
{
    return (rd_gpu_operand){at, type, ld};
}

static bool linear_is_narrow(const rd_call *c)
{
    return c->in[0]->type != RD_FLOAT32 || c->out[0]->type != RD_FLOAT32;
}

static rd_code linear_forward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *W = c->in[1], *b = c->in[2], *y = c->out[0];
    const int64_t N = x->rows;
    if (linear_is_narrow(c)) {
        RD_TRY(rd_backend_product(c->be, false, false, N, W->cols, W->rows,
                                  linear_operand(x->values, x->type, W->rows),
                                  linear_operand(W->v, RD_FLOAT32, W->cols), 0.0f,
                                  linear_operand(y->values, y->type, W->cols), st));
    } else {
        if (c->keep && W->g) {
            RD_TRY(rd_rounded_new(c->be, c->device_kept, N, W->rows, x->v, &c->saved, st));
            RD_TRY(rd_rounded_write(c->be, N * W->rows, x->v, st));
        }
        RD_TRY(rd_param_mul(c->be, c->params, W, 0, W->rows, N, x->v, y->v, false, st));
    }
    if (b) RD_TRY(rd_add_bias_to(c->be, N, W->cols, b->v, y->values, y->type, st));
done:
    rd_rounded_end(c->be);
    return st->code;
}

static rd_code linear_backward_narrow(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *W = c->in[1], *y = c->out[0];
    const rd_gpu_operand dy = linear_operand(y->grads, y->type, W->cols);
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
    const rd_var *x = c->in[0], *W = c->in[1], *b = c->in[2], *y = c->out[0];
    const int64_t N = x->rows, n = W->cols;
    float *dx;
    void *rounded;
    bool add;
    if (y->type == RD_FLOAT32 && W->g) {
        RD_TRY(rd_rounded_new(c->be, c->device_scratch, N, n, y->g, &rounded, st));
        RD_TRY(rd_rounded_write(c->be, N * n, y->g, st));
    }
    if (linear_is_narrow(c)) {
        RD_TRY(linear_backward_narrow(c, st));
    } else {
        RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
        RD_TRY(rd_rounded_again(c->be, N, W->rows, x->v, c->saved, st));
        if (dx) RD_TRY(rd_param_mul_t(c->be, c->params, W, 0, W->rows, N, y->g, dx, add, st));
        RD_TRY(rd_param_grad(c->be, W, 0, W->rows, N, x->v, y->g, st));
    }
    if (b) RD_TRY(rd_call_zero_grad(c, 2, st));
    if (b)
        RD_TRY(rd_add_columns_of(c->be, c->device_scratch, N, n, y->grads, y->type, n, b->g, st));
done:
    rd_rounded_end(c->be);
    return st->code;
}

RD_OP(linear) = {.name = "linear",
                 .about = "x W + b",
                 .infer = linear_infer,
                 .kernel = RD_EVERY_BACKEND(linear_forward, linear_backward),
                 .narrow = RD_NARROW(0),
                 .own_grads = true,
                 .reads_out = RD_READS_NOTHING};

rd_var *rd_op_linear_as(rd_tape *t, rd_element type, rd_var *x, rd_var *W, rd_var *b)
{
    rd_var *in[] = {x, W, b};
    return rd_tape_apply(t, &rd_op_def_linear, &type, sizeof type, in, 3, NULL, 1);
}

rd_var *rd_op_linear(rd_tape *t, rd_var *x, rd_var *W, rd_var *b)
{
    return rd_op_linear_as(t, RD_FLOAT32, x, W, b);
}
