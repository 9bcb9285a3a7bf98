/* pick.c -- the op pick: picks rows and joins columns.
 *   y[i] = [x0[idx0[i]]; x1[idx1[i]]; ...]
 * An index of -1 gives zeros. Backward: dx_k[idx_k[i]] += columns of x_k in dy[i].
 *
 * The op turns packed (time-major) rows into rows by sentence, and joins the two directions of an
 * encoder. */
#include "rd/ops.h"
#include "shared/pick_rows.h"
#include <inttypes.h>

enum { MOST = RD_MOST_PICKED };
typedef struct pick_attr {
    const int64_t *idx[MOST];
    int64_t n;
} pick_attr;

static rd_code pick_infer(rd_call *c, rd_status *st)
{
    const pick_attr *a = c->attr;
    c->out[0]->rows = a->n;
    for (int k = 0; k < c->n_in; k++) {
        c->out[0]->cols += c->in[k]->cols;
        for (int64_t i = 0; i < a->n; i++)
            if (a->idx[k][i] < -1 || a->idx[k][i] >= c->in[k]->rows)
                return rd_fail(st, RD_EBUG,
                               "pick: row index %" PRId64 " is outside an input of %" PRId64
                               " rows",
                               a->idx[k][i], c->in[k]->rows);
    }
    return RD_OK;
}

/* The indices of all inputs, one input after the other. */
typedef struct pick_saved {
    int32_t *row;        /* [n_in, n] for the host */
    const int32_t *lent; /* [n_in, n] for kernels */
} pick_saved;

static rd_code pick_lend_rows(rd_call *c, rd_status *st)
{
    const pick_attr *a = c->attr;
    const size_t n = (size_t)(c->n_in * a->n);
    pick_saved *s;
    RD_TRY(rd_arena_zero(c->kept, sizeof *s, &s, st));
    c->saved = s;
    RD_TRY(rd_arena_get(c->kept, n * sizeof *s->row, &s->row, st));
    for (int k = 0; k < c->n_in; k++)
        for (int64_t i = 0; i < a->n; i++) {
            const int64_t row = a->idx[k][i];
            if (row > INT32_MAX)
                return rd_fail(st, RD_EUSAGE, "pick: row index %" PRId64 " is above %d", row,
                               INT32_MAX);
            s->row[k * a->n + i] = (int32_t)row;
        }
    RD_TRY(rd_call_lend(c, c->device_kept, s->row, n * sizeof *s->row, &s->lent, st));
done:
    return st->code;
}

static rd_code pick_forward(rd_call *c, rd_status *st)
{
    const pick_attr *a = c->attr;
    rd_picked part[MOST];
    RD_TRY(pick_lend_rows(c, st));
    const pick_saved *s = c->saved;
    for (int k = 0; k < c->n_in; k++)
        part[k] = (rd_picked){c->in[k]->v, c->in[k]->cols, s->lent + k * a->n};
    RD_TRY(rd_rows_pick(c->be, c->n_in, part, a->n, c->out[0]->v, st));
done:
    return st->code;
}

static rd_code pick_backward(rd_call *c, rd_status *st)
{
    const pick_attr *a = c->attr;
    const pick_saved *s = c->saved;
    const float *dy = c->out[0]->g;
    for (int k = 0; k < c->n_in; dy += c->in[k++]->cols)
        if (c->in[k]->g)
            RD_TRY(rd_add_picked(c, a->n, s->row + k * a->n, s->lent + k * a->n, c->in[k]->rows,
                                 c->in[k]->cols, dy, c->out[0]->cols, c->in[k]->g, st));
done:
    return st->code;
}

RD_OP(pick) = {.name = "pick",
               .about = "picks rows, joins columns",
               .infer = pick_infer,
               .kernel = RD_EVERY_BACKEND(pick_forward, pick_backward)};

rd_var *rd_op_pick(rd_tape *t, int n_in, rd_var *const *x, const int64_t *const *idx, int64_t n)
{
    pick_attr a = {.n = n};
    if (n_in > MOST) {
        rd_fail(rd_tape_status(t), RD_EBUG, "pick: %d inputs; at most %d are allowed", n_in, MOST);
        return NULL;
    }
    for (int k = 0; k < n_in; k++) {
        if (!x[k]) return NULL;
        a.idx[k] = idx[k];
    }
    return rd_tape_apply(t, &rd_op_def_pick, &a, sizeof a, x, n_in, NULL, 1);
}
