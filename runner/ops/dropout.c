/* dropout.c -- inverted dropout of images, or of matrices with a row per sample: y = x / keep where the mask is set,
 * else 0. dx = dy / keep there. The mask of a sample is drawn in the order h, w, c, so that it depends on no layout; it
 * is stored in the order of the variable, a byte per element (on a GPU a bit). */
#include "shared/image_cuda.h"
#include "shared/image_op.h"
#include "rd/philox.h"
#include <string.h>

typedef struct dropout_attr {
    rd_dropout d;
    const int64_t *sample;
} dropout_attr;

static bool active(const rd_call *c)
{
    return c->training && ((const dropout_attr *)c->attr)->d.keep < 1.0f;
}

static rd_code dropout_infer(rd_call *c, rd_status *st)
{
    rd_var *x = c->in[0], *y = c->out[0];
    const float keep = ((const dropout_attr *)c->attr)->d.keep;
    if (!(keep > 0.0f)) return rd_fail(st, RD_EBUG, "dropout: %g kept", (double)keep);
    rd_op_like(y, x);
    y->rectified = x->rectified;
    if (!active(c) && !x->param) y->values = x->values; /* a parameter's array has no slack */
    return RD_OK;
}

typedef struct dropout_job {
    const dropout_attr *a;
    rd_key key;
    rd_image_view v;
    const float *x;
    float *y;
    uint8_t *mask;
    uint8_t *row; /* [threads' samples] of masks in the order h, w, c, where that is another one */
    bool add;
} dropout_job;

static rd_image_view view_of(const rd_var *x)
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
    const float *dy = j->x; /* may be dx itself */
    float *dx = j->y;
    if (j->add)
        for (int64_t e = lo; e < hi; e++) dx[e] += m[e] ? dy[e] * scale : 0.0f;
    else
        for (int64_t e = lo; e < hi; e++) dx[e] = m[e] ? dy[e] * scale : 0.0f;
}

static rd_code dropout_forward(rd_call *c, rd_status *st)
{
    const dropout_attr *a = c->attr;
    dropout_job j = {.a = a, .v = view_of(c->in[0]), .x = c->in[0]->v, .y = c->out[0]->v};
    if (!active(c)) {
        if (j.y != j.x)
            RD_TRY(rd_op_copy(c->be, c->in[0]->type, j.v.n * j.v.sample, j.x, j.y, false, st));
        goto done;
    }
    j.key = rd_key_make(a->d.seed, RD_RNG_DROPOUT, a->d.site, a->d.epoch);
    if (rd_backend_gpu(c->be)) {
        const int64_t *sample;
        RD_TRY(rd_arena_get(c->device_kept, rd_cuda_mask_bytes(j.v.n, j.v.sample), &j.mask, st));
        RD_TRY(rd_call_lend(c, c->device_scratch, a->sample, (size_t)j.v.n * sizeof *sample,
                            &sample, st));
        c->saved = j.mask;
        return rd_cuda_image_dropout(rd_backend_gpu(c->be), c->in[0]->type, j.key, a->d.keep, j.v.n,
                                     j.v.sample, sample, j.x, j.y, j.mask, st);
    }
    RD_TRY(rd_arena_get(c->kept, (size_t)(j.v.n * j.v.sample), &j.mask, st));
    if (c->in[0]->layout)
        RD_TRY(rd_arena_get(c->scratch, (size_t)(j.v.n * j.v.P * j.v.c), &j.row, st));
    c->saved = j.mask;
    rd_parallel(c->be, j.v.n, 1, dropout_forward_part, &j);
done:
    return st->code;
}

static rd_code dropout_backward(rd_call *c, rd_status *st)
{
    rd_var *x = c->in[0];
    dropout_job j = {.a = c->attr, .v = view_of(x), .x = c->out[0]->g, .mask = c->saved};
    const int64_t n = j.v.n * j.v.sample;
    const bool masked = c->out[0]->g_masked && x->rectified;
    bool fresh = false;
    if (rd_call_pass_grad(c, 0)) {
        j.y = x->g;
        fresh = true;
    } else {
        RD_TRY(rd_call_grad(c, 0, &j.y, &j.add, st));
        fresh = !j.add;
    }
    if (!j.y) goto done;
    if (!active(c)) {
        if (j.y != j.x) RD_TRY(rd_op_copy(c->be, x->type, n, j.x, j.y, j.add, st));
    } else if (rd_backend_gpu(c->be)) {
        RD_TRY(rd_cuda_image_dropout_back(rd_backend_gpu(c->be), x->type, j.a->d.keep, j.v.n,
                                          j.v.sample, j.mask, j.x, j.y, j.add, st));
    } else {
        rd_parallel(c->be, n, 16384, dropout_backward_part, &j);
    }
    /* Where x is 0, y is; the other way round a dropped element has no gradient either. */
    x->g_masked = masked && fresh;
done:
    return st->code;
}

RD_OP(dropout) = {.name = "dropout",
                  .about = "inverted dropout of images and rows",
                  .infer = dropout_infer,
                  .cpu = {dropout_forward, dropout_backward},
                  .cuda = {dropout_forward, dropout_backward},
                  .narrow = RD_NARROW(0),
                  .own_grads = true};

rd_var *rd_op_dropout(rd_tape *t, const rd_dropout *d, const int64_t *sample, rd_var *x)
{
    const dropout_attr a = {*d, sample};
    return x ? rd_tape_apply(t, &rd_op_def_dropout, &a, sizeof a, &x, 1, NULL, 1) : NULL;
}
