/* residual.c -- residual sums with inverted dropout of the rows of sentences:
 *   y = x + z / keep where the mask is set, else x;   dx += dy,  dz += dy / keep where it is set
 *
 * A mask is a function of (seed, site, epoch, sample, position). It does not depend on the rank
 * that computes the sample, nor on the place of the row in the batch. It is stored as bits. Where y
 * overwrites a rectified z, and there is no x, backward needs no mask: dz is dy / keep where y is
 * above 0. */
#include "residual.h"
#include <inttypes.h>

static rd_code residual_infer(rd_call *c, rd_status *st)
{
    const rd_residual *a = c->attr;
    const rd_var *x = c->in[0];
    rd_var *z = c->in[1], *y = c->out[0];
    if (!(a->drop.keep > 0.0f))
        return rd_fail(st, RD_EBUG,
                       "residual: the probability to keep an element is %g; it must be above 0",
                       (double)a->drop.keep);
    if (x && (x->rows != z->rows || x->cols != z->cols))
        return rd_fail(st, RD_EBUG,
                       "residual: %" PRId64 "x%" PRId64 " does not fit %" PRId64 "x%" PRId64,
                       x->rows, x->cols, z->rows, z->cols);
    if (rd_residual_drops(c)) {
        if (!a->sample || !a->position)
            return rd_fail(st, RD_EBUG, "residual: dropout needs the sample and position of rows");
        for (int64_t i = 0; i < z->rows; i++)
            if (a->position[i] < 0 || a->position[i] > UINT32_MAX)
                return rd_fail(st, RD_EBUG, "residual: row %" PRId64 " has position %" PRId64, i,
                               a->position[i]);
    }
    if (x && x->type != z->type && x->type != RD_FLOAT32)
        return rd_fail(st, RD_EBUG, "residual: x has 16-bit elements, z has another type");
    y->rows = z->rows;
    y->cols = z->cols;
    y->type = a->wide ? RD_FLOAT32 : x ? x->type : z->type;
    /* The array of a parameter has no slack. */
    if (!x && !rd_residual_drops(c) && !z->param && y->type == z->type)
        y->values = z->values;
    else
        (void)rd_call_take_values(c, 1, !x && z->rectified);
    return RD_OK;
}

typedef struct residual_job {
    const rd_residual *a;
    rd_key key;
    int64_t d, ld;
    const float *x, *z; /* as in rd_residual_pass */
    float *y;
    uint8_t *mask;
} residual_job;

/* y = x + (bit k of the mask ? z scale : 0) */
static void residual_row(const residual_job *j, int64_t i)
{
    typedef int32_t i8 __attribute__((vector_size(32)));
    const i8 bit = {1, 2, 4, 8, 16, 32, 64, 128};
    const float scale = 1.0f / j->a->drop.keep;
    const uint8_t *m = j->mask + i * j->ld;
    const float *x = j->x ? j->x + i * j->d : NULL, *z = j->z + i * j->d;
    float *y = j->y + i * j->d;
    int64_t k = 0;
    for (; k + 8 <= j->d; k += 8) {
        const i8 set = ((int32_t)m[k / 8] & bit) != 0;
        rd_v8 v = (rd_v8)((i8)(rd_v8_load(z + k) * scale) & set);
        if (x) v = rd_v8_load(x + k) + v;
        rd_v8_store(y + k, v);
    }
    for (; k < j->d; k++) {
        const float v = m[k / 8] >> k % 8 & 1 ? z[k] * scale : 0.0f;
        y[k] = x ? x[k] + v : v;
    }
}

static void residual_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const residual_job *j = ctx;
    const int64_t *sample = j->a->sample, *position = j->a->position;
    for (int64_t i = lo; i < hi;) {
        /* The masks of positions that follow each other are drawn together. */
        int64_t n = 1;
        while (i + n < hi && n < 64 && sample[i + n] == sample[i] &&
               position[i + n] == position[i] + n)
            n++;
        rd_philox_keep_bits(j->key, (uint64_t)sample[i], (uint32_t)position[i], n, j->a->drop.keep,
                            j->d, j->mask + i * j->ld, j->ld);
        for (int64_t k = i; k < i + n; k++) residual_row(j, k);
        i += n;
    }
}

static void residual_masked_part(void *ctx, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i++) residual_row(ctx, i);
}

static residual_job residual_job_of(const rd_call *c, const rd_residual_pass *p)
{
    const int64_t d = c->in[1]->cols;
    return (residual_job){
        .a = c->attr, .d = d, .ld = rd_residual_mask_bytes(d), .x = p->x, .z = p->z, .y = p->y};
}

static bool residual_by_sign(const rd_call *c)
{
    return !c->in[0] && c->in[1]->taken && c->in[1]->rectified;
}

static rd_code residual_masked(rd_call *c, const rd_residual_pass *p, rd_status *st)
{
    residual_job j = residual_job_of(c, p);
    j.mask = c->saved;
    rd_parallel(c->be, c->in[1]->rows, 16384 / (j.d + 1) + 1, residual_masked_part, &j);
    return st->code;
}

static rd_code residual_forward(rd_call *c, rd_status *st)
{
    const rd_residual_pass p = rd_residual_forward_pass(c);
    residual_job j = residual_job_of(c, &p);
    if (!rd_residual_drops(c)) return rd_residual_plain(c, st);
    if (c->saved) return residual_masked(c, &p, st);
    j.key = rd_residual_key(c);
    RD_TRY(rd_arena_get(residual_by_sign(c) ? c->scratch : c->kept,
                        (size_t)(c->in[1]->rows * j.ld + 1), &j.mask, st));
    if (!residual_by_sign(c)) c->saved = j.mask;
    rd_parallel(c->be, c->in[1]->rows, 4096 / (j.d + 1) + 1, residual_forward_part, &j);
done:
    return st->code;
}

typedef struct residual_signs_job {
    const float *y, *dy;
    float *dz; /* may be dy */
    float scale;
    bool add;
} residual_signs_job;

static void residual_signs_part(void *ctx, int64_t lo, int64_t hi)
{
    const residual_signs_job *j = ctx;
    const float *y = j->y, *dy = j->dy, scale = j->scale;
    float *dz = j->dz;
    if (j->add) {
#pragma omp simd
        for (int64_t i = lo; i < hi; i++) dz[i] += y[i] > 0.0f ? dy[i] * scale : 0.0f;
    } else {
#pragma omp simd
        for (int64_t i = lo; i < hi; i++) dz[i] = y[i] > 0.0f ? dy[i] * scale : 0.0f;
    }
}

static rd_code residual_signs(rd_call *c, rd_status *st)
{
    const rd_var *y = c->out[0];
    residual_signs_job j = {y->v, y->g, y->g, 1.0f / ((const rd_residual *)c->attr)->drop.keep,
                            false};
    if (!rd_call_pass_grad(c, 1)) RD_TRY(rd_call_grad(c, 1, &j.dz, &j.add, st));
    if (!j.dz) goto done;
    rd_parallel(c->be, y->rows * y->cols, 16384, residual_signs_part, &j);
    c->in[1]->g_masked = !j.add;
done:
    return st->code;
}

static rd_code residual_backward(rd_call *c, rd_status *st)
{
    if (residual_by_sign(c)) return residual_signs(c, st);
    return rd_residual_back(c, residual_masked, st);
}

/* A sum would ask for its inputs again, and they for theirs, down to the first layer. */
static bool residual_again(const rd_call *c)
{
    return !c->in[0];
}

RD_OP(residual) = {
    .name = "residual",
    .about = "residual sum, dropout by position",
    .infer = residual_infer,
    .kernel =
        {[RD_CPU] = {residual_forward, residual_backward}, [RD_GPU] = RD_GPU_KERNEL(residual)},
    .narrow = RD_NARROW(0) | RD_NARROW(1),
    .own_grads = true,
    .again = residual_again};

rd_var *rd_op_residual(rd_tape *t, const rd_residual *a, rd_var *x, rd_var *z)
{
    rd_var *in[] = {x, z};
    return z ? rd_tape_apply(t, &rd_op_def_residual, a, sizeof *a, in, 2, NULL, 1) : NULL;
}
