/* class_loss.c -- softmax and cross-entropy with a smoothed target, one row per sample:
 *   p = softmax(l),  t = (1 - e) [v = y] + e / V
 *   loss = -sum_v t_v log p_v = lse(l) - (1 - e) l_y - e mean(l),   lse(l) = log sum_v exp l_v
 *   dl = dloss (p - t) */
#include "shared/image_op.h"
#include "rd/vecmath.h"
#include <inttypes.h>
#include <math.h>

static rd_code class_loss_infer(rd_call *c, rd_status *st)
{
    const rd_class_loss *a = c->attr;
    const rd_var *l = c->in[0];
    if (l->layout || l->cols < 1)
        return rd_fail(st, RD_EBUG, "class_loss: the logits are not a matrix");
    for (int64_t i = 0; i < l->rows; i++)
        if (a->label[i] < 0 || a->label[i] >= l->cols)
            return rd_fail(st, RD_EBUG, "class_loss: label %d is outside %" PRId64 " classes",
                           a->label[i], l->cols);
    c->out[0]->rows = c->out[0]->cols = 1;
    return RD_OK;
}

typedef struct class_loss_job {
    const rd_class_loss *a;
    int64_t V;
    const float *l;
    float *p; /* NULL: not wanted */
    double *loss, *nll;
} class_loss_job;

static void class_loss_part(void *ctx, int64_t lo, int64_t hi)
{
    const class_loss_job *j = ctx;
    const int64_t V = j->V;
    for (int64_t i = lo; i < hi; i++) {
        const float *l = j->l + i * V;
        float *p = j->p + i * V;
        const int32_t y = j->a->label[i];
        const float top = rd_maxf(l, V), ly = l[y];
        double total = 0.0, sum = 0.0;
        for (int64_t v = 0; v < V; v++) {
            p[v] = rd_expf(l[v] - top);
            sum += (double)p[v];
            total += (double)(l[v] - top);
        }
        const double lse = log(sum), smooth = (double)j->a->smoothing;
        j->nll[i] = lse - (double)(ly - top);
        j->loss[i] = lse - (1.0 - smooth) * (double)(ly - top) - smooth * total / (double)V;
        const float inv = (float)(1.0 / sum);
        if (j->a->argmax || j->a->probability) {
            int64_t best = 0;
            while (best < V - 1 && l[best] != top) best++;
            if (j->a->argmax) j->a->argmax[i] = (int32_t)best;
            if (j->a->probability) j->a->probability[i] = p[best] * inv;
        }
        if (j->a->rank) {
            int32_t above = 0;
            for (int64_t v = 0; v < y; v++) above += l[v] >= ly;
            for (int64_t v = y + 1; v < V; v++) above += l[v] > ly;
            j->a->rank[i] = ly == ly ? above : (int32_t)(V - 1);
        }
        for (int64_t v = 0; v < V; v++) p[v] *= inv;
    }
}

static rd_code class_loss_forward(rd_call *c, rd_status *st)
{
    const rd_class_loss *a = c->attr;
    const int64_t n = c->in[0]->rows, V = c->in[0]->cols;
    class_loss_job j = {.a = a, .V = V, .l = c->in[0]->v};
    double sum = 0.0, nll = 0.0;
    RD_TRY(rd_arena_get(c->kept, (size_t)(n * V) * sizeof(float), &j.p, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)n * sizeof(double), &j.loss, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)n * sizeof(double), &j.nll, st));
    c->saved = j.p;
    rd_parallel(c->be, n, 8, class_loss_part, &j);
    for (int64_t i = 0; i < n; i++) {
        sum += j.loss[i];
        nll += j.nll[i];
    }
    c->out[0]->v[0] = (float)sum;
    if (a->loss_sum) *a->loss_sum = sum;
    if (a->nll_sum) *a->nll_sum = nll;
done:
    return st->code;
}

static rd_code class_loss_backward(rd_call *c, rd_status *st)
{
    const rd_class_loss *a = c->attr;
    const int64_t n = c->in[0]->rows, V = c->in[0]->cols;
    const float g = c->out[0]->g[0], even = a->smoothing / (float)V;
    const float *p = c->saved;
    float *dl;
    bool add;
    RD_TRY(rd_call_grad(c, 0, &dl, &add, st));
    for (int64_t i = 0; i < n && dl; i++) {
        const float *restrict pi = p + i * V;
        float *restrict d = dl + i * V;
        const float right = add ? d[a->label[i]] : 0.0f;
        if (add)
            for (int64_t v = 0; v < V; v++) d[v] += g * (pi[v] - even);
        else
            for (int64_t v = 0; v < V; v++) d[v] = g * (pi[v] - even);
        d[a->label[i]] = right + g * (pi[a->label[i]] - even - (1.0f - a->smoothing));
    }
done:
    return st->code;
}

RD_OP(class_loss) = {.name = "class_loss",
                     .about = "softmax and cross-entropy of classes",
                     .infer = class_loss_infer,
                     .kernel = {[RD_CPU] = {class_loss_forward, class_loss_backward},
                                [RD_GPU] = RD_GPU_KERNEL(class_loss)},
                     .own_grads = true};

rd_var *rd_op_class_loss(rd_tape *t, const rd_class_loss *a, rd_var *logits)
{
    return logits ? rd_tape_apply(t, &rd_op_def_class_loss, a, sizeof *a, &logits, 1, NULL, 1)
                  : NULL;
}
