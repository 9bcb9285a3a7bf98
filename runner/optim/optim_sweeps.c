/* optim_sweeps.c -- one update of all parameters on a CPU, in two sweeps over memory.
 *
 * The first sweep reads the gradients (with LARS the weights, too) and sums squares. A sum of
 * squares of floats cannot overflow a double, so the sum is finite exactly if all gradients are. It
 * gives the factors of clipping and LARS. The second sweep scales a block of 16 KiB, adds the
 * weight decay, and updates the block while it is in the cache. For each parameter the first sweep
 * moves 4 bytes of memory, the scaled gradient 8 bytes, and the optimizer its own (adam: 24).
 *
 * Running statistics of norms have gradients that are means over the batch. They go through both
 * sweeps, so one that is not finite stops the step. They are part of no norm.
 *
 * Both sweeps use a list of blocks that depends on the parameters alone, and the sums of blocks are
 * added in order. So results do not depend on the number of threads, nor on the number of ranks or
 * hosts that share the blocks (optim_share.c, optim_shard.c). Between the sweeps, each rank adds up
 * the sums of all blocks. */
#include "optim_impl.h"
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { LANES = RD_OPTIM_LANES };

const double rd_optim_lars_unknown = 1.0 / 16384.0; /* as in OpenSeq2Seq */

/* Sets denormals to zero and returns the previous mode. On many CPUs an operation on denormals
 * takes a hundred times as long, and moments that only decay end as denormals. */
static unsigned flush_denormals(void)
{
#ifdef __SSE__
    const unsigned old = _mm_getcsr();
    _mm_setcsr(old | 0x8040u); /* denormal results and operands become zero */
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

bool rd_optim_decays(const rd_optim *o, int param)
{
    const unsigned flags = rd_params_at(o->p, param)->flags;
    return o->decay && rd_param_trains(rd_params_at(o->p, param)) &&
           (o->c.weight_decay_all || !(flags & RD_PARAM_NO_DECAY));
}

double rd_optim_decoupled(const rd_optim *o, int param)
{
    return o->decoupled && !rd_optim_is_state(o, param) &&
                   o->def->decays(&o->c.own, rd_params_at(o->p, param))
               ? o->c.weight_decay
               : 0.0;
}

/* Returns the sum over i of (x[i] scale)^2. The square of a float is exact in double. Computes
 * LANES sums side by side and adds them in order. */
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

static void norm_block(rd_optim *o, int64_t b, float scale, bool weights)
{
    const rd_optim_block *k = &o->norm.at[b];
    o->g_sq[b] = sum_squares(rd_params_grads(o->p) + k->lo, k->n, scale);
    if (weights) o->w_sq[b] = sum_squares(rd_params_values(o->p) + k->lo, k->n, 1.0f);
}

static bool all_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0.0f) return false;
    return true;
}

/* Updates n elements of whole rows, in runs of rows that have a gradient. */
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

/* Updates a running statistic: v = momentum v + (1 - momentum) g. */
static void update_state(rd_optim *o, const rd_optim_block *k, float scale)
{
    const double m = rd_params_at(o->p, k->param)->momentum;
    const float keep = (float)m, rest = (float)(1.0 - m);
    float *restrict v = rd_params_values(o->p) + k->lo, *restrict g = rd_params_grads(o->p) + k->lo;
    for (int64_t i = 0; i < k->n; i++) {
        g[i] = g[i] * scale;
        v[i] = keep * v[i] + rest * g[i];
    }
}

/* Computes the gradient that the optimizer gets: s = (g + wd w) f. */
static void prepare_gradient(float *restrict s, const float *restrict g, const float *restrict w,
                             int64_t n, float wd, float f)
{
    if (wd != 0.0f)
        for (int64_t i = 0; i < n; i++) s[i] = (g[i] + wd * w[i]) * f;
    else
        for (int64_t i = 0; i < n; i++) s[i] = g[i] * f;
}

static void scale_gradient(float *g, int64_t n, float scale, float clip)
{
    if (scale == 1.0f && clip == 1.0f) return;
    for (int64_t i = 0; i < n; i++) g[i] = g[i] * scale * clip;
}

/* Moves the average of the weights by a share of the way to them. */
static void follow_weights(float *restrict x, const float *restrict w, int64_t n, float share)
{
    for (int64_t i = 0; i < n; i++) x[i] += share * (w[i] - x[i]);
}

static void update_block(rd_optim *o, int64_t b, int thread, float scale, float clip, double lr,
                         int64_t t)
{
    const rd_optim_block *k = &o->update.at[b];
    if (rd_optim_is_state(o, k->param)) {
        update_state(o, k, scale);
        return;
    }
    float *g = rd_params_grads(o->p) + k->lo, *w = rd_params_values(o->p) + k->lo;
    rd_update u = {.c = &o->c,
                   .own = &o->c.own,
                   .lr = lr,
                   .decay = rd_optim_decoupled(o, k->param),
                   .t = t,
                   .w = w,
                   .g = g,
                   .row = k->row,
                   .hi = k->n};
    const bool decay = rd_optim_decays(o, k->param);
    scale_gradient(g, k->n, scale, clip);
    if (decay || o->trust) { /* the arena keeps the plain gradient, for histograms */
        u.g = o->scratch + thread * (o->update.longest + LANES);
        prepare_gradient(u.g, g, w, k->n, decay ? (float)o->c.weight_decay : 0.0f,
                         o->trust ? o->factor[k->param] : 1.0f);
    }
    for (int i = 0; i < o->def->n_slots; i++)
        u.slot[i] = rd_params_slot(o->p, o->first_slot + i) + k->at;
    if (k->row > 0)
        update_rows(o->def, &u, k->n);
    else
        o->def->update(&u);
    if (o->ema)
        follow_weights(rd_params_slot(o->p, rd_optim_ema_slot(o)) + k->at, w, k->n,
                       rd_optim_ema_share(o, t));
}

/* Scales and clips the gradients of the blocks of other ranks and hosts, as update_block does for
 * its own. */
static void scale_others(rd_optim *o, float scale, float clip)
{
    const unsigned old = flush_denormals();
    for (int64_t b = 0; b < o->update.n; b++) {
        const rd_optim_block *k = &o->update.at[b];
        if (rd_optim_is_own(o, k)) continue;
        scale_gradient(rd_params_grads(o->p) + k->lo, k->n, scale,
                       rd_optim_is_state(o, k->param) ? 1.0f : clip);
    }
    restore_denormals(old);
}

typedef struct sweep {
    rd_optim *o;
    float scale, clip;
    double lr;
    int64_t t;
    bool norms;              /* true: the first sweep; false: the second sweep */
    bool weights;            /* first sweep: also sum squares of weights */
    bool hold;               /* second sweep: compare the checksum of each block first */
    _Atomic int64_t damaged; /* second sweep: lowest block with another checksum; -1: none */
} sweep;

/* Compares the checksum of a block with the one that the last update left. */
static void compare_block(sweep *s, int64_t b)
{
    const rd_optim *o = s->o;
    const rd_optim_block *k = &o->update.at[b];
    if (rd_optim_block_sum(rd_params_values(o->p) + k->lo, k->n) == o->sum[b]) return;
    int64_t lowest = atomic_load(&s->damaged);
    while ((lowest < 0 || b < lowest) && !atomic_compare_exchange_weak(&s->damaged, &lowest, b)) {
    }
}

/* Compares the checksums of this rank's range that other hosts update: their weights replace the
 * ones here. */
static void compare_others(sweep *s)
{
    const rd_optim *o = s->o;
#pragma omp parallel for num_threads(o->n_threads) schedule(static)
    for (int64_t i = 0; i < o->n_guard; i++)
        if (!rd_optim_is_own(o, &o->update.at[o->guard[i]])) compare_block(s, o->guard[i]);
}

/* Updates a block and guards it with a checksum. If a host keeps its weights once, a flipped bit
 * has no replica to differ from. So the checksum of each block is compared before its update and
 * computed after it, while the block is in the cache. */
static void guarded_update(sweep *s, int64_t b, int thread)
{
    rd_optim *o = s->o;
    const rd_optim_block *k = &o->update.at[b];
    const float *w = rd_params_values(o->p) + k->lo;
    if (s->hold) compare_block(s, b);
    update_block(o, b, thread, s->scale, s->clip, s->lr, s->t);
    if (o->sum) o->sum[b] = rd_optim_block_sum(w, k->n);
}

/* Runs the sweep over a contiguous share of this rank's blocks: that of thread `thread` of n. */
static void sweep_share(sweep *s, int thread, int n)
{
    const rd_optim_blocks *list = s->norms ? &s->o->norm : &s->o->update;
    const unsigned old = flush_denormals();
    for (int64_t i = list->n_own * thread / n; i < list->n_own * (thread + 1) / n; i++) {
        if (s->norms)
            norm_block(s->o, list->own[i], s->scale, s->weights);
        else
            guarded_update(s, list->own[i], thread);
    }
    restore_denormals(old);
}

static void run_sweep(sweep *s)
{
    const int n = s->o->n_threads;
    if (n == 1) {
        sweep_share(s, 0, 1);
        return;
    }
#pragma omp parallel for num_threads(n) schedule(static, 1)
    for (int i = 0; i < n; i++) sweep_share(s, i, n);
}

static float optim_lars_factor(const rd_optim *o, int param, double g, double w)
{
    if (!o->def->trust_ratio) {
        const double f = g > 0.0 && w > 0.0 ? o->c.lars_nu * w / g : rd_optim_lars_unknown;
        return f < FLT_MAX ? (float)f : FLT_MAX;
    }
    if (rd_params_at(o->p, param)->flags & RD_PARAM_NO_DECAY) return 1.0f;
    if (!(g > 0.0 && w > 0.0)) return 1.0f;
    const rd_trust_ratio r = o->def->trust_ratio(&o->c.own);
    const double f = r.eta * w /
                     (g + (rd_optim_decays(o, param) ? o->c.weight_decay * w : 0.0) + r.epsilon);
    return f < FLT_MAX ? (float)f : FLT_MAX;
}

/* Adds up the blocks' sums to the norms of all parameters and the global norm, and computes the
 * factors of LARS. Returns false if a gradient or running statistic is not finite. */
static bool gather_norms(rd_optim *o, bool weights, rd_optim_stats *stats)
{
    double total = 0.0, state = 0.0, decayed = 0.0;
    int64_t b = 0;
    for (int i = 0; i < rd_params_n(o->p); i++) {
        double g_sq = 0.0, w_sq = 0.0;
        for (; b < o->norm.n && o->norm.at[b].param == i; b++) {
            g_sq += o->g_sq[b];
            if (weights) w_sq += o->w_sq[b];
        }
        if (rd_optim_is_state(o, i)) {
            state += g_sq;
            o->g_norm[i] = 0.0;
            continue;
        }
        total += g_sq;
        o->g_norm[i] = sqrt(g_sq);
        if (o->trust) o->factor[i] = optim_lars_factor(o, i, sqrt(g_sq), sqrt(w_sq));
        if (rd_optim_decays(o, i)) decayed += w_sq;
    }
    stats->grad_norm = sqrt(total);
    stats->l2 = weights ? 0.5 * o->c.weight_decay * decayed : 0.0;
    return isfinite(total) && isfinite(state);
}

double rd_optim_report(rd_optim *o, rd_optim_stats *stats)
{
    const double norm = o->last_norm = stats->grad_norm;
    double clip = 1.0;
    if (o->c.has_max_grad_norm && norm > o->c.max_grad_norm) clip = o->c.max_grad_norm / norm;
    stats->clipped_norm = norm * clip;
    for (int i = 0; stats->param_norm && i < rd_params_n(o->p); i++)
        stats->param_norm[i] = o->g_norm[i] * clip;
    return clip;
}

static rd_code cpu_step(rd_optim *o, const rd_optim_job *job, rd_optim_stats *stats, rd_status *st)
{
    sweep s = {.o = o,
               .scale = job->scale,
               .clip = 1.0f,
               .lr = job->lr,
               .t = job->t,
               .norms = true,
               .weights = job->weights};
    run_sweep(&s);
    /* After this barrier all ranks of the host have done their backward pass, so no rank reads the
     * values that change now. */
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
    RD_TRY(rd_optim_spread_norms(o, job->weights, st));
    stats->finite = gather_norms(o, job->weights, stats);
    stats->spike = stats->finite && stats->most_norm > 0.0 && stats->grad_norm > stats->most_norm;
    stats->finite &= !stats->spike;
    const double clip = rd_optim_report(o, stats);
    if (stats->finite) {
        s.norms = false;
        s.clip = (float)clip;
        s.hold = o->shared && rd_optim_sums_hold(o);
        s.damaged = -1;
        if (s.hold && o->shard) compare_others(&s);
        run_sweep(&s);
        if (o->damaged < 0) o->damaged = s.damaged;
        if ((o->shared || o->shard) && stats->want_grads) scale_others(o, s.scale, s.clip);
    }
    /* After this barrier all blocks are updated, and all ranks have read the norms. */
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
    if (!stats->finite) goto done;
    RD_TRY(rd_optim_spread_weights(o, st));
    rd_params_updated(o->p);
    o->sum_version = rd_params_version(o->p);
done:
    return st->code;
}

/* There is nothing to make: cpu_step leaves checksums itself. */
static rd_code cpu_open(rd_optim *o, rd_status *st)
{
    (void)o;
    return st->code;
}

static void cpu_close(rd_optim *o)
{
    (void)o;
}

const rd_optim_sweeps rd_optim_cpu_sweeps = {cpu_open, cpu_close, cpu_step, rd_optim_sum_own,
                                             cpu_open};
