/* cube.c -- y = x^3, dx += 3 x^2 dy: a template of an op with kernels for CPU and GPU. */
#include "rd/ops.h"

static rd_code cube_infer(rd_call *c, rd_status *st)
{
    (void)st;
    c->out[0]->rows = c->in[0]->rows;
    c->out[0]->cols = c->in[0]->cols;
    return RD_OK;
}

static void cube_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const rd_call *c = ctx;
    const float *restrict x = c->in[0]->v;
    float *restrict y = c->out[0]->v;
    for (int64_t i = lo; i < hi; i++) y[i] = x[i] * x[i] * x[i];
}

static void cube_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const rd_call *c = ctx;
    const float *restrict x = c->in[0]->v, *restrict dy = c->out[0]->g;
    float *restrict dx = c->in[0]->g;
    for (int64_t i = lo; i < hi; i++) dx[i] += 3.0f * x[i] * x[i] * dy[i];
}

static rd_code cube_forward(rd_call *c, rd_status *st)
{
    rd_parallel(c->be, c->in[0]->rows * c->in[0]->cols, 4096, cube_forward_part, c);
    return st->code;
}

static rd_code cube_backward(rd_call *c, rd_status *st)
{
    if (c->in[0]->g)
        rd_parallel(c->be, c->in[0]->rows * c->in[0]->cols, 4096, cube_backward_part, c);
    return st->code;
}

RD_OP(cube) = {
    .name = "cube",
    .about = "x^3",
    .infer = cube_infer,
    .kernel = {[RD_CPU] = {cube_forward, cube_backward}, [RD_GPU] = RD_GPU_KERNEL(cube)}};

rd_var *rd_op_cube(rd_tape *t, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_cube, NULL, 0, &x, 1, NULL, 1) : NULL;
}
