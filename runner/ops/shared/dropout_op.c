/* dropout_op.c -- functions that dropout.c and dropout.cu share; see dropout.h. */
#include "../dropout.h"

bool rd_dropout_active(const rd_call *c)
{
    return c->training && ((const rd_dropout_op *)c->attr)->d.keep < 1.0f;
}

rd_key rd_dropout_key(const rd_call *c)
{
    const rd_dropout *d = &((const rd_dropout_op *)c->attr)->d;
    return rd_key_make(d->seed, RD_RNG_DROPOUT, d->site, d->epoch);
}

rd_image_view rd_dropout_view(const rd_var *x)
{
    if (rd_image_is(x)) return rd_image_view_of(x);
    return (rd_image_view){.n = x->rows,
                           .h = 1,
                           .w = 1,
                           .c = x->cols,
                           .K = 1,
                           .P = 1,
                           .B = x->cols,
                           .sample = x->cols};
}

rd_code rd_dropout_copy(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *y = c->out[0];
    const rd_image_view v = rd_dropout_view(x);
    if (y->values == x->values) return st->code;
    return rd_op_copy(c->be, x->type, v.n * v.sample, x->values, y->values, false, st);
}

rd_code rd_dropout_back_by(rd_call *c, rd_dropout_pass *back, rd_status *st)
{
    rd_var *x = c->in[0];
    const rd_image_view v = rd_dropout_view(x);
    rd_dropout_grad to = {.dy = c->out[0]->grads};
    const bool masked = c->out[0]->g_masked && x->rectified;
    bool fresh = false;
    if (rd_call_pass_grad(c, 0)) {
        to.dx = x->grads;
        fresh = true;
    } else {
        RD_TRY(rd_call_grad(c, 0, &to.dx, &to.add, st));
        fresh = !to.add;
    }
    if (!to.dx) goto done;
    if (rd_dropout_active(c))
        RD_TRY(back(c, &to, st));
    else if (to.dx != to.dy)
        RD_TRY(rd_op_copy(c->be, x->type, v.n * v.sample, to.dy, to.dx, to.add, st));
    /* If x is 0, y is 0. If y is 0 because the element was dropped, it has no gradient either. */
    x->g_masked = masked && fresh;
done:
    return st->code;
}
