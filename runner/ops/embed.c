/* embed.c -- rows of a table: y[i] = W[ids[i]]. Backward: dW[ids[i]] += dy[i], in the order of i, so the sums are the
 * same for any number of threads (these cut the columns; a GPU has an order of its own). It marks the rows of ids, for
 * those who skip the others. */
#include "rd/ops.h"
#include "shared/pick_rows.h"
#include <string.h>

typedef struct embed_attr {
    const int32_t *ids;
    int64_t n;
} embed_attr;

static rd_code embed_infer(rd_call *c, rd_status *st)
{
    const embed_attr *a = c->attr;
    for (int64_t i = 0; i < a->n; i++)
        if (a->ids[i] < 0 || a->ids[i] >= c->in[0]->rows)
            return rd_fail(st, RD_EBUG, "token id %d is outside an embedding of %lld rows",
                           a->ids[i], (long long)c->in[0]->rows);
    c->out[0]->rows = a->n;
    c->out[0]->cols = c->in[0]->cols;
    return RD_OK;
}

static rd_code embed_forward(rd_call *c, rd_status *st)
{
    const embed_attr *a = c->attr;
    const int64_t w = c->in[0]->cols;
    if (rd_backend_gpu(c->be)) {
        RD_TRY(rd_call_lend(c, c->device_kept, a->ids, (size_t)a->n * sizeof *a->ids, &c->saved,
                            st));
        const rd_picked p = {c->in[0]->v, w, c->saved};
        return rd_pick_rows(rd_backend_gpu(c->be), 1, &p, a->n, c->out[0]->v, st);
    }
    for (int64_t i = 0; i < a->n; i++)
        memcpy(c->out[0]->v + i * w, c->in[0]->v + a->ids[i] * w, (size_t)w * sizeof(float));
done:
    return st->code;
}

static void embed_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const rd_call *c = ctx;
    const embed_attr *a = c->attr;
    const int64_t w = c->in[0]->cols;
    for (int64_t i = 0; i < a->n; i++) {
        float *restrict g = c->in[0]->g + a->ids[i] * w;
        const float *restrict d = c->out[0]->g + i * w;
        for (int64_t j = lo; j < hi; j++) g[j] += d[j];
    }
}

static rd_code embed_backward(rd_call *c, rd_status *st)
{
    const embed_attr *a = c->attr;
    uint64_t *touched = c->in[0]->param ? rd_tape_touched(c->tape, c->in[0]->param) : NULL;
    const int64_t w = c->in[0]->cols;
    float *g = c->in[0]->g;
    if (!g) return RD_OK;
    if (rd_backend_gpu(c->be))
        RD_TRY(rd_add_picked(c, a->n, a->ids, c->saved, c->in[0]->rows, w, c->out[0]->g, w, g, st));
    else
        rd_parallel(c->be, w, 64, embed_backward_part, c);
    for (int64_t i = 0; i < a->n && touched; i++)
        touched[a->ids[i] / 64] |= UINT64_C(1) << a->ids[i] % 64;
done:
    return st->code;
}

RD_OP(embed) = {.name = "embed",
                .about = "rows of a table",
                .infer = embed_infer,
                .cpu = {embed_forward, embed_backward},
                .cuda = {embed_forward, embed_backward},
                .marks_rows = true};

rd_var *rd_op_embed(rd_tape *t, rd_var *W, const int32_t *ids, int64_t n)
{
    const embed_attr a = {ids, n};
    return rd_tape_apply(t, &rd_op_def_embed, &a, sizeof a, &W, 1, NULL, 1);
}
