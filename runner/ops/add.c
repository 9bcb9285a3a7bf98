/* add.c -- the op add: y = a + b, then max(y, 0) if relu is set. Backward: da += dy and db += dy,
 * where y > 0 if relu is set. */
#include "shared/image_op.h"
#include <inttypes.h>
#include <string.h>

static rd_code add_infer(rd_call *c, rd_status *st)
{
    const rd_var *a = c->in[0], *b = c->in[1];
    RD_TRY(rd_op_image_check("add", a, st));
    if (b->n_dim != 4 || memcmp(a->dim, b->dim, 4 * sizeof *a->dim) != 0)
        return rd_fail(st, RD_EBUG,
                       "add: an image of %" PRId64 "x%" PRId64 "x%" PRId64
                       " does not fit one of %" PRId64 "x%" PRId64 "x%" PRId64,
                       a->dim[1], a->dim[2], a->dim[3], b->dim[1], b->dim[2], b->dim[3]);
    if (a->type != b->type)
        return rd_fail(st, RD_EBUG, "add: the images have different element types");
    rd_op_like(c->out[0], a->layout ? a : b);
    c->out[0]->rectified = *(const bool *)c->attr;
done:
    return st->code;
}

static rd_code add_forward(rd_call *c, rd_status *st)
{
    const rd_var *y = c->out[0];
    const float *a, *b;
    RD_TRY(rd_op_in_order(c->scratch, y, c->in[0], &a, st));
    RD_TRY(rd_op_in_order(c->scratch, y, c->in[1], &b, st));
    RD_TRY(rd_op_sum(c->be, y->type, rd_op_elements(y), a, b, *(const bool *)c->attr, y->values,
                     st));
done:
    return st->code;
}

static rd_code add_backward(rd_call *c, rd_status *st)
{
    const rd_var *y = c->out[0];
    const int64_t n = rd_op_elements(y);
    const bool mask = *(const bool *)c->attr && !y->g_masked;
    if (mask) RD_TRY(rd_op_mask(c->be, y->type, n, y->values, y->grads, st));
    for (int k = 0; k < 2; k++) {
        float *dx;
        bool add;
        if (rd_call_pass_grad(c, k)) continue;
        RD_TRY(rd_call_grad(c, k, &dx, &add, st));
        if (!dx) continue;
        if (c->in[k]->layout == y->layout)
            RD_TRY(rd_op_copy(c->be, y->type, n, y->grads, dx, add, st));
        else
            RD_TRY(rd_op_to_order(y, c->in[k], y->g, dx, add, st));
    }
done:
    return st->code;
}

RD_OP(add) = {.name = "add",
              .about = "a + b of images, relu",
              .infer = add_infer,
              .kernel = RD_EVERY_BACKEND(add_forward, add_backward),
              .narrow = RD_NARROW(0) | RD_NARROW(1),
              .own_grads = true};

rd_var *rd_op_add(rd_tape *t, rd_var *a, rd_var *b, bool relu)
{
    rd_var *in[] = {a, b};
    return a && b ? rd_tape_apply(t, &rd_op_def_add, &relu, sizeof relu, in, 2, NULL, 1) : NULL;
}
