/* pick.c -- picks rows and joins columns: y[i] = [x0[idx0[i]]; x1[idx1[i]]; ...]. Turns packed (time-major) rows into
 * rows by sentence, joins the two directions of an encoder. An index of -1 gives zeros. Backward: dx_k[idx_k[i]] += the
 * k-th columns of dy[i]. */
#include "rd/ops.h"
#include <string.h>

enum { MOST = 4 };
typedef struct attr {
    const int64_t *idx[MOST];
    int64_t n;
} attr;

static rd_code infer(rd_call *c, rd_status *st)
{
    const attr *a = c->attr;
    c->out[0]->rows = a->n;
    for (int k = 0; k < c->n_in; k++) {
        c->out[0]->cols += c->in[k]->cols;
        for (int64_t i = 0; i < a->n; i++)
            if (a->idx[k][i] < -1 || a->idx[k][i] >= c->in[k]->rows)
                return rd_fail(st, RD_EBUG, "pick: row %lld of an input of %lld", (long long)a->idx[k][i],
                               (long long)c->in[k]->rows);
    }
    return RD_OK;
}

static rd_code forward(rd_call *c, rd_status *st)
{
    const attr *a = c->attr;
    (void)st;
    float *y = c->out[0]->v;
    for (int64_t i = 0; i < a->n; i++)
        for (int k = 0; k < c->n_in; k++) {
            const size_t bytes = (size_t)c->in[k]->cols * sizeof(float);
            if (a->idx[k][i] < 0)
                memset(y, 0, bytes);
            else
                memcpy(y, c->in[k]->v + a->idx[k][i] * c->in[k]->cols, bytes);
            y += c->in[k]->cols;
        }
    return RD_OK;
}

static rd_code backward(rd_call *c, rd_status *st)
{
    const attr *a = c->attr;
    (void)st;
    const float *dy = c->out[0]->g;
    for (int64_t i = 0; i < a->n; i++)
        for (int k = 0; k < c->n_in; k++) {
            const int64_t w = c->in[k]->cols;
            float *g = c->in[k]->g && a->idx[k][i] >= 0 ? c->in[k]->g + a->idx[k][i] * w : NULL;
            for (int64_t j = 0; g && j < w; j++) g[j] += dy[j];
            dy += w;
        }
    return RD_OK;
}

extern const rd_op rd_op_def_pick;
const rd_op rd_op_def_pick = {
    .name = "pick", .about = "picks rows, joins columns", .infer = infer, .cpu = {forward, backward}};

rd_var *rd_op_pick(rd_tape *t, int n_in, rd_var *const *x, const int64_t *const *idx, int64_t n)
{
    attr a = {.n = n};
    if (n_in > MOST) {
        rd_fail(rd_tape_status(t), RD_EBUG, "pick: %d inputs, %d fit", n_in, MOST);
        return NULL;
    }
    for (int k = 0; k < n_in; k++) {
        if (!x[k]) return NULL;
        a.idx[k] = idx[k];
    }
    return rd_tape_apply(t, &rd_op_def_pick, &a, sizeof a, x, n_in, NULL, 1);
}
