/* flatten.c -- the op flatten: one row per image, with its elements in the order h, w, c. */
#include "shared/image_op.h"

static rd_code flatten_infer(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0];
    RD_TRY(rd_op_image_check("flatten", x, st));
    c->out[0]->rows = x->dim[0];
    c->out[0]->cols = x->dim[1] * x->dim[2] * x->dim[3];
    c->out[0]->type = x->type;
    /* The elements of NHWC already have this order. Products that round rows up need slack behind
     * the rows, which an image lacks. */
    if (!x->layout && !rd_backend_rounds_rows(c->be)) c->out[0]->values = x->values;
done:
    return st->code;
}

typedef struct flatten_job {
    rd_image_view v;
    const float *x;
    float *y;
    bool back, add;
} flatten_job;
static void flatten_part(void *ctx, int64_t lo, int64_t hi)
{
    const flatten_job *j = ctx;
    const rd_image_view *v = &j->v;
    const int64_t row = v->P * v->c;
    for (int64_t i = lo; i < hi; i++)
        if (j->back)
            rd_image_from_nhwc(v, j->x + i * row, j->y + i * v->sample, j->add);
        else
            rd_image_to_nhwc(v, j->x + i * v->sample, j->y + i * row, false);
}

static rd_code flatten_forward(rd_call *c, rd_status *st)
{
    (void)st;
    if (c->out[0]->values == c->in[0]->values) return RD_OK;
    flatten_job j = {rd_image_view_of(c->in[0]), c->in[0]->v, c->out[0]->v, false, false};
    rd_parallel(c->be, j.v.n, 1, flatten_part, &j);
    return RD_OK;
}

static rd_code flatten_backward(rd_call *c, rd_status *st)
{
    flatten_job j = {.v = rd_image_view_of(c->in[0]), .x = c->out[0]->g, .back = true};
    RD_TRY(rd_call_grad(c, 0, &j.y, &j.add, st));
    if (!j.y) goto done;
    if (!c->in[0]->layout)
        RD_TRY(rd_op_copy(c->be, c->out[0]->type, j.v.n * j.v.sample, j.x, j.y, j.add, st));
    else
        rd_parallel(c->be, j.v.n, 1, flatten_part, &j);
done:
    return st->code;
}

RD_OP(flatten) = {.name = "flatten",
                  .about = "images as rows",
                  .infer = flatten_infer,
                  .kernel = RD_EVERY_BACKEND(flatten_forward, flatten_backward),
                  .narrow = RD_NARROW(0),
                  .own_grads = true};

rd_var *rd_op_flatten(rd_tape *t, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_flatten, NULL, 0, &x, 1, NULL, 1) : NULL;
}
