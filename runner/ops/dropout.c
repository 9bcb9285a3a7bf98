/* dropout.c -- inverted dropout of images, or of matrices with a row per sample:
 *   y = x / keep where the mask is set, else 0;  dx = dy / keep where the mask is set, else 0
 * The mask of a sample is drawn in the order h, w, c, so it does not depend on the layout. It is
 * stored in the order of the variable, one byte per element; on a GPU, one bit per element. */
#include "dropout.h"
#include <string.h>

static rd_code dropout_infer(rd_call *c, rd_status *st)
{
    rd_var *x = c->in[0], *y = c->out[0];
    const float keep = ((const rd_dropout_op *)c->attr)->d.keep;
    if (!(keep > 0.0f))
        return rd_fail(st, RD_EBUG,
                       "dropout: the probability to keep an element is %g; it must be above 0",
                       (double)keep);
    rd_op_like(y, x);
    y->rectified = x->rectified;
    /* The array of a parameter has no slack. */
    if (!rd_dropout_active(c) && !x->param) y->values = x->values;
    return RD_OK;
}

typedef struct dropout_job {
    const rd_dropout_op *a;
    rd_key key;
    rd_image_view v;
    const float *x;
    float *y;
    uint8_t *mask;
    /* Masks in the order h, w, c, one per sample, if the variable has another order; else NULL. */
    uint8_t *row;
    bool add;
} dropout_job;

static void dropout_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const dropout_job *j = ctx;
    const rd_image_view *v = &j->v;
    const float scale = 1.0f / j->a->d.keep;
    const int64_t row = v->P * v->c;
    for (int64_t i = lo; i < hi; i++) {
        uint8_t *m = j->mask + i * v->sample;
        uint8_t *drawn = j->row ? j->row + i * row : m;
        rd_philox_keep(j->key, (uint64_t)j->a->sample[i], 0, j->a->d.keep, row, drawn);
        for (int64_t k = 0; k < v->K && j->row; k++) {
            const int64_t lanes = v->c - k * v->B < v->B ? v->c - k * v->B : v->B;
            for (int64_t p = 0; p < v->P; p++) {
                uint8_t *to = m + (k * v->P + p) * v->B;
                const uint8_t *from = drawn + p * v->c + k * v->B;
                memcpy(to, from, (size_t)lanes);
                for (int64_t l = lanes; l < v->B; l++) to[l] = 0;
            }
        }
        const float *restrict x = j->x + i * v->sample;
        float *restrict y = j->y + i * v->sample;
        for (int64_t e = 0; e < v->sample; e++) y[e] = m[e] ? x[e] * scale : 0.0f;
    }
}

static void dropout_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const dropout_job *j = ctx;
    const float scale = 1.0f / j->a->d.keep;
    const uint8_t *m = j->mask;
    const float *dy = j->x; /* may be dx */
    float *dx = j->y;
    if (j->add)
        for (int64_t e = lo; e < hi; e++) dx[e] += m[e] ? dy[e] * scale : 0.0f;
    else
        for (int64_t e = lo; e < hi; e++) dx[e] = m[e] ? dy[e] * scale : 0.0f;
}

static rd_code dropout_forward(rd_call *c, rd_status *st)
{
    const rd_dropout_op *a = c->attr;
    dropout_job j = {.a = a, .v = rd_dropout_view(c->in[0]), .x = c->in[0]->v, .y = c->out[0]->v};
    if (!rd_dropout_active(c)) return rd_dropout_copy(c, st);
    j.key = rd_dropout_key(c);
    RD_TRY(rd_arena_get(c->kept, (size_t)(j.v.n * j.v.sample), &j.mask, st));
    if (c->in[0]->layout)
        RD_TRY(rd_arena_get(c->scratch, (size_t)(j.v.n * j.v.P * j.v.c), &j.row, st));
    c->saved = j.mask;
    rd_parallel(c->be, j.v.n, 1, dropout_forward_part, &j);
done:
    return st->code;
}

static rd_code dropout_pass(rd_call *c, const rd_dropout_grad *to, rd_status *st)
{
    dropout_job j = {.a = c->attr, .v = rd_dropout_view(c->in[0]), .mask = c->saved};
    j.x = to->dy;
    j.y = to->dx;
    j.add = to->add;
    rd_parallel(c->be, j.v.n * j.v.sample, 16384, dropout_backward_part, &j);
    return st->code;
}

static rd_code dropout_backward(rd_call *c, rd_status *st)
{
    return rd_dropout_back_by(c, dropout_pass, st);
}

RD_OP(dropout) = {
    .name = "dropout",
    .about = "inverted dropout of images and rows",
    .infer = dropout_infer,
    .kernel = {[RD_CPU] = {dropout_forward, dropout_backward}, [RD_GPU] = RD_GPU_KERNEL(dropout)},
    .narrow = RD_NARROW(0),
    .own_grads = true};

rd_var *rd_op_dropout(rd_tape *t, const rd_dropout *d, const int64_t *sample, rd_var *x)
{
    const rd_dropout_op a = {*d, sample};
    return x ? rd_tape_apply(t, &rd_op_def_dropout, &a, sizeof a, &x, 1, NULL, 1) : NULL;
}
