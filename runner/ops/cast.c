/* cast.c -- the op cast: y = x in elements of another type. Backward: dx = dy in the type of x. On
 * a CPU all elements are float32. */
#include "shared/image_op.h"

static rd_code cast_infer(rd_call *c, rd_status *st)
{
    (void)st;
    rd_op_like(c->out[0], c->in[0]);
    c->out[0]->type = *(const rd_element *)c->attr;
    return RD_OK;
}

static rd_code cast_forward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *y = c->out[0];
    return rd_backend_cast(c->be, rd_op_elements(x), x->values, x->type, y->values, y->type, false,
                           st);
}

static rd_code cast_backward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *y = c->out[0];
    void *dx;
    bool add;
    RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
    if (dx)
        RD_TRY(rd_backend_cast(c->be, rd_op_elements(x), y->grads, y->type, dx, x->type, add, st));
done:
    return st->code;
}

RD_OP(cast) = {.name = "cast",
               .about = "elements of another type",
               .infer = cast_infer,
               .kernel = RD_EVERY_BACKEND(cast_forward, cast_backward),
               .narrow = RD_NARROW(0),
               .own_grads = true};

rd_var *rd_op_cast(rd_tape *t, rd_var *x, rd_element type)
{
    return !x || x->type == type
               ? x
               : rd_tape_apply(t, &rd_op_def_cast, &type, sizeof type, &x, 1, NULL, 1);
}
