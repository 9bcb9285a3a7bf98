/* optim.c -- one update of all parameters, in two sweeps over memory.
 *
 * The first reads the gradients (with LARS the weights too) and sums squares; it answers whether all is finite, for a
 * sum of squares of floats cannot overflow a double, and gives the factors of clipping and LARS. The second scales a
 * block of 16 KiB and updates it while it is in the cache: 4 bytes a parameter for the first sweep, 8 for the scaled
 * gradient, and what the optimizer has (adam: 24).
 *
 * Both go by a list of blocks that the parameters alone decide, and the sums of blocks are added in order. So results
 * do not depend on the number of threads. */
#include "rd/optim.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { BLOCK = 4096, LANES = 16 };

static const double lars_unknown = 1.0 / 16384.0; /* factor where a norm is zero, as in OpenSeq2Seq */

typedef struct block {
    int64_t lo, n; /* elements [lo, lo + n) of the arenas, all of one parameter */
    int param;
    int64_t row; /* as in rd_update */
} block;

typedef struct blocks {
    block *at; /* owned */
    int64_t n;
    int64_t longest; /* elements */
} blocks;

struct rd_optim {
    rd_optim_config c;
    const rd_optimizer_def *def;
    rd_params *p; /* borrowed */
    int first_slot, n_threads;
    blocks norm, update; /* update is cut at rows where the optimizer skips some */
    double *g_sq, *w_sq; /* owned, [norm.n]: sums of squares of a block */
    double *g_norm;      /* owned, [parameters] */
    float *factor;       /* owned, [parameters]: LARS */
    float *scratch;      /* owned, [n_threads * update.longest]: LARS */
};

/* Denormals cost a hundred times a normal operation on many processors; moments that only decay end as denormals. */
static unsigned flush_denormals(void)
{
#ifdef __SSE__
    const unsigned old = _mm_getcsr();
    _mm_setcsr(old | 0x8040u); /* results and operands: zero */
    return old;
#else
    return 0;
#endif
}

static void restore_denormals(unsigned old)
{
#ifdef __SSE__
    _mm_setcsr(old);
#else
    (void)old;
#endif
}

static rd_code cut(const rd_params *p, bool at_rows, blocks *out, rd_status *st)
{
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        int64_t n = 0;
        for (int i = 0; i < rd_params_n(p); i++) {
            const rd_param *q = rd_params_at(p, i);
            const int64_t row = at_rows && (q->flags & RD_PARAM_ROWS) && q->n_dim > 0 ? q->n / q->dim[0] : 0;
            const int64_t len = row > 0 ? (row > BLOCK ? row : BLOCK / row * row) : BLOCK;
            for (int64_t lo = 0; lo < q->n; lo += len, n++) {
                const int64_t left = q->n - lo;
                if (pass == 1)
                    out->at[n] = (block){.lo = q->offset + lo, .n = left < len ? left : len, .param = i, .row = row};
                if (len > out->longest) out->longest = len;
            }
        }
        if (pass == 1) break;
        out->n = n;
        out->at = calloc((size_t)n + 1, sizeof *out->at);
        if (!out->at) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    }
    return RD_OK;
}

rd_code rd_optim_new(const rd_optim_config *c, rd_params *p, int n_threads, rd_optim **out, rd_status *st)
{
    rd_optim *o = *out = NULL;
    const rd_optimizer_def *def = rd_optimizer_find(c->optimizer);
    if (!def)
        return rd_fail(st, RD_EUSAGE, "optimizer '%s' is unknown; see 'optimizer' in --help",
                       c->optimizer ? c->optimizer : "");
    o = calloc(1, sizeof *o);
    if (!o) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    o->c = *c;
    o->def = def;
    o->p = p;
    o->n_threads = n_threads < 1 ? 1 : n_threads;
    RD_TRY(cut(p, false, &o->norm, st));
    RD_TRY(cut(p, def->skips_zero_rows, &o->update, st));
    const size_t n_params = (size_t)rd_params_n(p) + 1;
    o->g_sq = calloc((size_t)o->norm.n + 1, sizeof(double));
    o->w_sq = calloc((size_t)o->norm.n + 1, sizeof(double));
    o->g_norm = calloc(n_params, sizeof(double));
    o->factor = calloc(n_params, sizeof(float));
    o->scratch = calloc((size_t)o->n_threads * (size_t)(o->update.longest + LANES), sizeof(float));
    if (!o->g_sq || !o->w_sq || !o->g_norm || !o->factor || !o->scratch) {
        rd_fail(st, RD_EENV, "out of memory for the optimizer");
        goto done;
    }
    o->first_slot = rd_params_n_slots(p);
    RD_TRY(rd_params_slots(p, def->n_slots, st));
    for (int k = 0; k < def->n_slots; k++) {
        const float first = def->slot_init ? (float)def->slot_init(c, k) : 0.0f;
        float *x = rd_params_slot(p, o->first_slot + k);
        for (int64_t b = 0; first != 0.0f && b < o->norm.n; b++)
            for (int64_t i = 0; i < o->norm.at[b].n; i++) x[o->norm.at[b].lo + i] = first;
    }
    *out = o;
    o = NULL;
done:
    rd_optim_free(o);
    return st->code;
}

void rd_optim_free(rd_optim *o)
{
    if (!o) return;
    free(o->norm.at);
    free(o->update.at);
    free(o->g_sq);
    free(o->w_sq);
    free(o->g_norm);
    free(o->factor);
    free(o->scratch);
    free(o);
}

const rd_optimizer_def *rd_optim_def(const rd_optim *o)
{
    return o->def;
}

/* sum over i of (x[i] scale)^2; the square of a float is exact in double. LANES sums side by side, added in order. */
static double sum_squares(const float *restrict x, int64_t n, float scale)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const double y = (double)(x[i + j] * scale);
            lane[j] += y * y;
        }
    for (int j = 0; i < n; i++, j++) {
        const double y = (double)(x[i] * scale);
        lane[j] += y * y;
    }
    double sum = 0.0;
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

static void norm_block(rd_optim *o, int64_t b, float scale)
{
    const block *k = &o->norm.at[b];
    o->g_sq[b] = sum_squares(rd_params_grads(o->p) + k->lo, k->n, scale);
    if (o->c.has_lars_nu) o->w_sq[b] = sum_squares(rd_params_values(o->p) + k->lo, k->n, 1.0f);
}

static bool all_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0.0f) return false;
    return true;
}

/* The update, in runs of rows that have a gradient. */
static void update_rows(const rd_optimizer_def *def, rd_update *u, int64_t n)
{
    int64_t lo = 0;
    for (int64_t r = 0; r < n; r += u->row)
        if (all_zero(u->g + r, u->row)) {
            u->lo = lo;
            u->hi = r;
            if (lo < r) def->update(u);
            lo = r + u->row;
        }
    u->lo = lo;
    u->hi = n;
    if (lo < n) def->update(u);
}

static void update_block(rd_optim *o, int64_t b, int thread, float scale, float clip, double lr, int64_t t)
{
    const block *k = &o->update.at[b];
    float *restrict g = rd_params_grads(o->p) + k->lo;
    if (scale != 1.0f || clip != 1.0f)
        for (int64_t i = 0; i < k->n; i++) g[i] = g[i] * scale * clip;
    rd_update u = {
        .c = &o->c, .lr = lr, .t = t, .w = rd_params_values(o->p) + k->lo, .g = g, .row = k->row, .hi = k->n};
    if (o->c.has_lars_nu) { /* histograms want the gradient before LARS: it stays in the arena */
        float *restrict s = o->scratch + thread * (o->update.longest + LANES);
        const float f = o->factor[k->param];
        for (int64_t i = 0; i < k->n; i++) s[i] = g[i] * f;
        u.g = s;
    }
    for (int i = 0; i < o->def->n_slots; i++) u.slot[i] = rd_params_slot(o->p, o->first_slot + i) + k->lo;
    if (k->row > 0)
        update_rows(o->def, &u, k->n);
    else
        o->def->update(&u);
}

typedef struct sweep {
    rd_optim *o;
    float scale, clip;
    double lr;
    int64_t t;
    bool norms; /* first sweep, else second */
} sweep;

/* Thread `thread` of n takes a contiguous share of the blocks. */
static void sweep_share(const sweep *s, int thread, int n)
{
    const int64_t total = s->norms ? s->o->norm.n : s->o->update.n;
    const unsigned old = flush_denormals();
    for (int64_t b = total * thread / n; b < total * (thread + 1) / n; b++) {
        if (s->norms)
            norm_block(s->o, b, s->scale);
        else
            update_block(s->o, b, thread, s->scale, s->clip, s->lr, s->t);
    }
    restore_denormals(old);
}

static void run_sweep(const sweep *s)
{
    const int n = s->o->n_threads;
    if (n == 1) {
        sweep_share(s, 0, 1);
        return;
    }
#pragma omp parallel for num_threads(n) schedule(static, 1)
    for (int i = 0; i < n; i++) sweep_share(s, i, n);
}

/* Norms of all parameters and the whole from the blocks' sums, and LARS' factors. */
static double gather_norms(rd_optim *o)
{
    double total = 0.0;
    int64_t b = 0;
    for (int i = 0; i < rd_params_n(o->p); i++) {
        double g_sq = 0.0, w_sq = 0.0;
        for (; b < o->norm.n && o->norm.at[b].param == i; b++) {
            g_sq += o->g_sq[b];
            w_sq += o->w_sq[b];
        }
        total += g_sq;
        o->g_norm[i] = sqrt(g_sq);
        double f = g_sq > 0.0 && w_sq > 0.0 ? o->c.lars_nu * sqrt(w_sq) / sqrt(g_sq) : lars_unknown;
        o->factor[i] = f < FLT_MAX ? (float)f : FLT_MAX;
    }
    return sqrt(total);
}

rd_code rd_optim_step(rd_optim *o, int64_t t, double lr, double grad_scale, rd_optim_stats *stats, rd_status *st)
{
    if (t < 1) return rd_fail(st, RD_EBUG, "optimizer step %lld: steps count from 1", (long long)t);
    sweep s = {.o = o, .scale = (float)grad_scale, .clip = 1.0f, .lr = lr, .t = t, .norms = true};
    run_sweep(&s);
    const double norm = gather_norms(o);
    double clip = 1.0;
    if (o->c.has_max_grad_norm && norm > o->c.max_grad_norm) clip = o->c.max_grad_norm / norm;
    stats->finite = isfinite(norm);
    stats->grad_norm = norm;
    stats->clipped_norm = norm * clip;
    for (int i = 0; stats->param_norm && i < rd_params_n(o->p); i++) stats->param_norm[i] = o->g_norm[i] * clip;
    if (!stats->finite) return RD_OK;
    s.norms = false;
    s.clip = (float)clip;
    run_sweep(&s);
    rd_params_touch(o->p);
    return RD_OK;
}
