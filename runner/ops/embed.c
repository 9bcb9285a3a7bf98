/* embed.c -- rows of a table: y[i] = W[ids[i]]. Backward: dW[ids[i]] += dy[i].
 *
 * A CPU adds in the order of i, so the sums are the same for every number of threads. A GPU adds in
 * its own fixed order. Backward also marks the rows of ids as touched, so that later passes can
 * skip the other rows. */
#include "rd/ops.h"
#include "shared/pick_rows.h"
#include <inttypes.h>

typedef struct embed_attr {
    const int32_t *ids;
    int64_t n;
} embed_attr;

static rd_code embed_infer(rd_call *c, rd_status *st)
{
    const embed_attr *a = c->attr;
    for (int64_t i = 0; i < a->n; i++)
        if (a->ids[i] < 0 || a->ids[i] >= c->in[0]->rows)
            return rd_fail(st, RD_EBUG, "token id %d is outside an embedding of %" PRId64 " rows",
                           a->ids[i], c->in[0]->rows);
    c->out[0]->rows = a->n;
    c->out[0]->cols = c->in[0]->cols;
    return RD_OK;
}

static rd_code embed_forward(rd_call *c, rd_status *st)
{
    const embed_attr *a = c->attr;
    RD_TRY(rd_call_lend(c, c->device_kept, a->ids, (size_t)a->n * sizeof *a->ids, &c->saved, st));
    const rd_picked p = {c->in[0]->v, c->in[0]->cols, c->saved};
    RD_TRY(rd_rows_pick(c->be, 1, &p, a->n, c->out[0]->v, st));
done:
    return st->code;
}

static rd_code embed_backward(rd_call *c, rd_status *st)
{
    const embed_attr *a = c->attr;
    uint64_t *touched = c->in[0]->param ? rd_tape_touched(c->tape, c->in[0]->param) : NULL;
    const int64_t w = c->in[0]->cols;
    float *g = c->in[0]->g;
    if (!g) return RD_OK;
    RD_TRY(rd_add_picked(c, a->n, a->ids, c->saved, c->in[0]->rows, w, c->out[0]->g, w, g, st));
    for (int64_t i = 0; i < a->n && touched; i++)
        touched[a->ids[i] / 64] |= UINT64_C(1) << a->ids[i] % 64;
done:
    return st->code;
}

RD_OP(embed) = {.name = "embed",
                .about = "rows of a table",
                .infer = embed_infer,
                .kernel = RD_EVERY_BACKEND(embed_forward, embed_backward),
                .marks_rows = true,
                .reads_out = RD_READS_NOTHING};

rd_var *rd_op_embed(rd_tape *t, rd_var *W, const int32_t *ids, int64_t n)
{
    const embed_attr a = {ids, n};
    return rd_tape_apply(t, &rd_op_def_embed, &a, sizeof a, &W, 1, NULL, 1);
}
