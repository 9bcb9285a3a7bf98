/* residual_op.c -- functions that residual.c and residual.cu share; see residual.h. */
#include "../residual.h"

bool rd_residual_drops(const rd_call *c)
{
    return c->training && ((const rd_residual *)c->attr)->drop.keep < 1.0f;
}

rd_key rd_residual_key(const rd_call *c)
{
    const rd_dropout *d = &((const rd_residual *)c->attr)->drop;
    return rd_key_make(d->seed, RD_RNG_DROPOUT, d->site, d->epoch);
}

rd_residual_pass rd_residual_forward_pass(const rd_call *c)
{
    const rd_var *x = c->in[0], *z = c->in[1], *y = c->out[0];
    return (rd_residual_pass){x ? x->values : NULL,  z->values, y->values,
                              x ? x->type : y->type, z->type,   y->type};
}

rd_code rd_residual_plain(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0], *z = c->in[1], *y = c->out[0];
    const int64_t n = z->rows * z->cols;
    if (x) return rd_op_sum(c->be, y->type, n, x->values, z->values, false, y->values, st);
    if (y->values == z->values) return RD_OK;
    return rd_op_copy(c->be, y->type, n, z->values, y->values, false, st);
}

/* Computes dx (+)= dy, elements of two types. */
static rd_code residual_give(rd_call *c, const rd_var *x, void *dx, bool add, rd_status *st)
{
    const rd_var *y = c->out[0];
    const int64_t n = y->rows * y->cols;
    if (x->type != y->type)
        return rd_backend_cast(c->be, n, y->grads, y->type, dx, x->type, add, st);
    return rd_op_copy(c->be, y->type, n, y->grads, dx, add, st);
}

rd_code rd_residual_back(rd_call *c, rd_residual_pass_of *masked, rd_status *st)
{
    const rd_var *y = c->out[0], *z = c->in[1];
    void *dx = NULL, *dz;
    bool add = false;
    if (c->in[0] && !rd_call_pass_grad(c, 0)) {
        RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
        if (dx) RD_TRY(residual_give(c, c->in[0], dx, add, st));
    }
    if (rd_call_pass_grad(c, 1)) {
        dz = y->grads;
        add = false;
    } else {
        RD_TRY(rd_call_grad(c, 1, &dz, &add, st));
    }
    if (!dz) goto done;
    if (rd_residual_drops(c)) {
        const rd_residual_pass p = {add ? dz : NULL, y->grads, dz, z->type, y->type, z->type};
        RD_TRY(masked(c, &p, st));
    } else if (dz != y->grads || add) {
        RD_TRY(residual_give(c, z, dz, add, st));
    }
done:
    return st->code;
}
