/* relu.c -- the op relu: y = max(x, 0). Backward: dx = dy where y > 0. NaN stays NaN. */
#include "shared/image_op.h"

static rd_code relu_infer(rd_call *c, rd_status *st)
{
    (void)st;
    rd_op_like(c->out[0], c->in[0]);
    c->out[0]->rectified = true;
    (void)rd_call_take_values(c, 0, false);
    return RD_OK;
}

static rd_code relu_forward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0];
    return rd_op_rectify(c->be, x->type, rd_op_elements(x), x->values, c->out[0]->values, st);
}

static rd_code relu_backward(rd_call *c, rd_status *st)
{
    const rd_var *y = c->out[0];
    const int64_t n = rd_op_elements(y);
    float *dx;
    bool add;
    if (rd_call_pass_grad(c, 0)) {
        if (!y->g_masked) RD_TRY(rd_op_mask(c->be, y->type, n, y->values, y->grads, st));
        goto done;
    }
    RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
    if (dx) RD_TRY(rd_op_masked(c->be, y->type, n, y->values, y->grads, dx, add, st));
done:
    return st->code;
}

/* Backward of the op before needs no values, so x may be gone. */
static bool relu_again(const rd_call *c)
{
    return !c->in[0]->taken;
}

RD_OP(relu) = {.name = "relu",
               .about = "max(x, 0)",
               .infer = relu_infer,
               .kernel = RD_EVERY_BACKEND(relu_forward, relu_backward),
               .narrow = RD_NARROW(0),
               .own_grads = true,
               .reads_out = RD_READS_SIGNS,
               .again = relu_again};

rd_var *rd_op_relu(rd_tape *t, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_relu, NULL, 0, &x, 1, NULL, 1) : NULL;
}
