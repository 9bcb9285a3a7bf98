/* add.c -- y = a + b, then max(y, 0) when asked. da += dy, db += dy, where y > 0. */
#include "shared/image_cuda.h"
#include "shared/image_op.h"
#include <string.h>

static rd_code add_infer(rd_call *c, rd_status *st)
{
    const rd_var *a = c->in[0], *b = c->in[1];
    RD_TRY(rd_op_image_check("add", a, st));
    if (b->n_dim != 4 || memcmp(a->dim, b->dim, 4 * sizeof *a->dim) != 0)
        return rd_fail(st, RD_EBUG, "add: images of %lldx%lldx%lld and %lldx%lldx%lld",
                       (long long)a->dim[1], (long long)a->dim[2], (long long)a->dim[3],
                       (long long)b->dim[1], (long long)b->dim[2], (long long)b->dim[3]);
    if (a->type != b->type) return rd_fail(st, RD_EBUG, "add: images of two types");
    rd_op_like(c->out[0], a->layout ? a : b);
    c->out[0]->rectified = *(const bool *)c->attr;
done:
    return st->code;
}

typedef struct add_job {
    const float *a, *b;
    float *y;
    bool relu;
} add_job;
static void add_part(void *ctx, int64_t lo, int64_t hi)
{
    const add_job *j = ctx;
    const float *a = j->a, *b = j->b;
    float *restrict y = j->y;
    if (j->relu)
        for (int64_t i = lo; i < hi; i++) {
            const float s = a[i] + b[i];
            y[i] = s < 0.0f ? 0.0f : s;
        }
    else
        for (int64_t i = lo; i < hi; i++) y[i] = a[i] + b[i];
}

static rd_code add_forward(rd_call *c, rd_status *st)
{
    add_job j = {.y = c->out[0]->v, .relu = *(const bool *)c->attr};
    RD_TRY(rd_op_in_order(c->scratch, c->out[0], c->in[0], &j.a, st));
    RD_TRY(rd_op_in_order(c->scratch, c->out[0], c->in[1], &j.b, st));
    const int64_t n = rd_op_elements(c->out[0]);
    if (rd_backend_gpu(c->be))
        return rd_cuda_sum(rd_backend_gpu(c->be), c->out[0]->type, n, j.a, j.b, j.relu, j.y, st);
    rd_parallel(c->be, n, 16384, add_part, &j);
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
              .cpu = {add_forward, add_backward},
              .cuda = {add_forward, add_backward},
              .narrow = RD_NARROW(0) | RD_NARROW(1),
              .own_grads = true};

rd_var *rd_op_add(rd_tape *t, rd_var *a, rd_var *b, bool relu)
{
    rd_var *in[] = {a, b};
    return a && b ? rd_tape_apply(t, &rd_op_def_add, &relu, sizeof relu, in, 2, NULL, 1) : NULL;
}
