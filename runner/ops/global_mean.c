/* global_mean.c -- the mean over the pixels of an image:
 *   y[i, c] = mean over h, w of x[i, h, w, c];  dx = dy / (h w) at every pixel */
#include "shared/image_op.h"

static rd_code global_mean_infer(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0];
    RD_TRY(rd_op_image_check("global_mean", x, st));
    c->out[0]->rows = x->dim[0];
    c->out[0]->cols = x->dim[3];
    c->out[0]->type = x->type;
done:
    return st->code;
}

typedef struct global_mean_job {
    rd_image_view v;
    float *x, *y;
    bool add;
} global_mean_job;

static int64_t global_mean_lanes(const rd_image_view *v, int64_t k)
{
    return v->c - k * v->B < v->B ? v->c - k * v->B : v->B;
}

static void global_mean_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const global_mean_job *j = ctx;
    const rd_image_view *v = &j->v;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t k = 0; k < v->K; k++) {
            const int64_t lanes = global_mean_lanes(v, k);
            const float *x = j->x + i * v->sample + k * v->P * v->B;
            float *restrict y = j->y + i * v->c + k * v->B;
            for (int64_t l = 0; l < lanes; l++) y[l] = 0.0f;
            for (int64_t p = 0; p < v->P; p++, x += v->B)
                for (int64_t l = 0; l < lanes; l++) y[l] += x[l];
            for (int64_t l = 0; l < lanes; l++) y[l] /= (float)v->P;
        }
}

static void global_mean_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const global_mean_job *j = ctx;
    const rd_image_view *v = &j->v;
    const float scale = 1.0f / (float)v->P;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t k = 0; k < v->K; k++) {
            const int64_t lanes = global_mean_lanes(v, k);
            float *restrict x = j->x + i * v->sample + k * v->P * v->B;
            const float *restrict y = j->y + i * v->c + k * v->B;
            for (int64_t p = 0; p < v->P; p++, x += v->B) {
                if (j->add) {
                    for (int64_t l = 0; l < lanes; l++) x[l] += y[l] * scale;
                } else {
                    for (int64_t l = 0; l < lanes; l++) x[l] = y[l] * scale;
                    for (int64_t l = lanes; l < v->B; l++) x[l] = 0.0f;
                }
            }
        }
}

static rd_code global_mean_forward(rd_call *c, rd_status *st)
{
    global_mean_job j = {rd_image_view_of(c->in[0]), c->in[0]->v, c->out[0]->v, false};
    (void)st;
    rd_parallel(c->be, j.v.n, 1, global_mean_forward_part, &j);
    return RD_OK;
}

static rd_code global_mean_backward(rd_call *c, rd_status *st)
{
    global_mean_job j = {.v = rd_image_view_of(c->in[0]), .y = c->out[0]->g};
    RD_TRY(rd_call_grad(c, 0, &j.x, &j.add, st));
    if (j.x) rd_parallel(c->be, j.v.n, 1, global_mean_backward_part, &j);
done:
    return st->code;
}

RD_OP(global_mean) = {.name = "global_mean",
                      .about = "mean over the pixels of images",
                      .infer = global_mean_infer,
                      .kernel = {[RD_CPU] = {global_mean_forward, global_mean_backward},
                                 [RD_GPU] = RD_GPU_KERNEL(global_mean)},
                      .narrow = RD_NARROW(0),
                      .own_grads = true};

rd_var *rd_op_global_mean(rd_tape *t, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_global_mean, NULL, 0, &x, 1, NULL, 1) : NULL;
}
