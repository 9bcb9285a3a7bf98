/* shortcut.c -- the shortcut of He et al. 2015 (arXiv:1512.03385, 3.3), option A:
 *   y[i, p, q, before + c] = x[i, p stride, q stride, c]
 * It takes every stride-th pixel. The new channels are zeros: half of them before the old channels,
 * half after. If their number is odd, the additional one comes after. */
#include "shortcut.h"
#include <inttypes.h>
#include <string.h>

static rd_code shortcut_infer(rd_call *c, rd_status *st)
{
    const rd_shortcut *a = c->attr;
    const rd_var *x = c->in[0];
    RD_TRY(rd_op_image_check("shortcut", x, st));
    if (a->stride < 1 || a->c_out < x->dim[3])
        return rd_fail(st, RD_EBUG,
                       "shortcut: stride %" PRId64 " is below 1, or the number of output channels, "
                       "%" PRId64 ", is below that of the input, %" PRId64,
                       a->stride, a->c_out, x->dim[3]);
    rd_image_set(c->out[0], x->dim[0], (x->dim[1] - 1) / a->stride + 1,
                 (x->dim[2] - 1) / a->stride + 1, a->c_out, x->layout);
    c->out[0]->type = x->type;
done:
    return st->code;
}

typedef struct shortcut_job {
    rd_image_view x, y;
    int64_t stride, before;
    float *vx, *vy;
    bool back;
} shortcut_job;

static void shortcut_part(void *ctx, int64_t lo, int64_t hi)
{
    const shortcut_job *j = ctx;
    const rd_image_view *x = &j->x, *y = &j->y;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t c = 0; c < x->c; c++) {
            const int64_t d = c + j->before;
            float *vx = j->vx + i * x->sample + c / x->B * x->P * x->B + c % x->B;
            float *vy = j->vy + i * y->sample + d / y->B * y->P * y->B + d % y->B;
            for (int64_t p = 0; p < y->h; p++)
                for (int64_t q = 0; q < y->w; q++) {
                    float *a = vx + (p * x->w + q) * j->stride * x->B,
                          *b = vy + (p * y->w + q) * y->B;
                    if (j->back)
                        *a += *b;
                    else
                        *b = *a;
                }
        }
}

static shortcut_job shortcut_job_of(const rd_call *c)
{
    const rd_shortcut *a = c->attr;
    return (shortcut_job){.x = rd_image_view_of(c->in[0]),
                          .y = rd_image_view_of(c->out[0]),
                          .stride = a->stride,
                          .before = (a->c_out - c->in[0]->dim[3]) / 2};
}

static rd_code shortcut_forward(rd_call *c, rd_status *st)
{
    (void)st;
    shortcut_job j = shortcut_job_of(c);
    j.vx = c->in[0]->v;
    j.vy = c->out[0]->v;
    memset(j.vy, 0, (size_t)(j.y.n * j.y.sample) * sizeof(float));
    rd_parallel(c->be, j.x.n, 1, shortcut_part, &j);
    return RD_OK;
}

static rd_code shortcut_backward(rd_call *c, rd_status *st)
{
    shortcut_job j = shortcut_job_of(c);
    bool add;
    RD_TRY(rd_call_grad(c, 0, &j.vx, &add, st));
    if (!j.vx) goto done;
    j.vy = c->out[0]->g;
    if (!add) memset(j.vx, 0, (size_t)(j.x.n * j.x.sample) * sizeof(float));
    j.back = true;
    rd_parallel(c->be, j.x.n, 1, shortcut_part, &j);
done:
    return st->code;
}

RD_OP(shortcut) = {
    .name = "shortcut",
    .about = "every stride-th pixel, channels padded with zeros",
    .infer = shortcut_infer,
    .kernel =
        {[RD_CPU] = {shortcut_forward, shortcut_backward}, [RD_GPU] = RD_GPU_KERNEL(shortcut)},
    .narrow = RD_NARROW(0),
    .own_grads = true};

rd_var *rd_op_shortcut(rd_tape *t, rd_var *x, int64_t stride, int64_t c_out)
{
    const rd_shortcut a = {stride, c_out};
    return x ? rd_tape_apply(t, &rd_op_def_shortcut, &a, sizeof a, &x, 1, NULL, 1) : NULL;
}
