/* multiply.c -- the op multiply: y = a b, element by element. Backward: da += dy b,  db += dy a. */
#include "multiply.h"
#include "shared/image_op.h"
#include <inttypes.h>

static rd_code multiply_infer(rd_call *c, rd_status *st)
{
    const rd_var *a = c->in[0], *b = c->in[1];
    if (a->rows != b->rows || a->cols != b->cols)
        return rd_fail(st, RD_EBUG,
                       "multiply: %" PRId64 "x%" PRId64 " does not fit %" PRId64 "x%" PRId64,
                       a->rows, a->cols, b->rows, b->cols);
    if (a->type != b->type)
        return rd_fail(st, RD_EBUG, "multiply: the factors have different element types");
    c->out[0]->rows = a->rows;
    c->out[0]->cols = a->cols;
    c->out[0]->type = a->type;
    return RD_OK;
}

static void multiply_part(void *ctx, int64_t lo, int64_t hi)
{
    const rd_multiply_pass *j = ctx;
    const float *a = j->a, *b = j->b;
    float *y = j->y;
    if (j->add) {
#pragma omp simd
        for (int64_t i = lo; i < hi; i++) y[i] += a[i] * b[i];
    } else {
#pragma omp simd
        for (int64_t i = lo; i < hi; i++) y[i] = a[i] * b[i];
    }
}

enum { GRAIN = 16384 };

static rd_code multiply_pass(rd_call *c, const rd_multiply_pass *p, rd_status *st)
{
    rd_multiply_pass j = *p;
    rd_parallel(c->be, j.n, GRAIN, multiply_part, &j);
    return st->code;
}

static rd_code multiply_forward(rd_call *c, rd_status *st)
{
    const rd_multiply_pass p = rd_multiply_forward_pass(c);
    return multiply_pass(c, &p, st);
}

static rd_code multiply_backward(rd_call *c, rd_status *st)
{
    return rd_multiply_back(c, multiply_pass, st);
}

static bool multiply_again(const rd_call *c)
{
    (void)c;
    return true;
}

RD_OP(multiply) = {
    .name = "multiply",
    .about = "a b, element by element",
    .infer = multiply_infer,
    .kernel =
        {[RD_CPU] = {multiply_forward, multiply_backward}, [RD_GPU] = RD_GPU_KERNEL(multiply)},
    .narrow = RD_NARROW(0) | RD_NARROW(1),
    .own_grads = true,
    .reads_out = RD_READS_NOTHING,
    .again = multiply_again};

rd_var *rd_op_multiply(rd_tape *t, rd_var *a, rd_var *b)
{
    rd_var *in[] = {a, b};
    return a && b ? rd_tape_apply(t, &rd_op_def_multiply, NULL, 0, in, 2, NULL, 1) : NULL;
}
