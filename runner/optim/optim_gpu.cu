/* optim_gpu.cu -- the update of optim_sweeps.c on a GPU.
 *
 * A step is queued as a whole. The factors of clipping and LARS, and whether the step is skipped,
 * stay in GPU memory, where the update reads them. One small download at the end reports them to
 * the host.
 *
 * Sums of squares are in double and in a fixed order: over blocks of 4096 elements, over the blocks
 * of a parameter, over the parameters.
 *
 * If ranks keep parts of the slots (optim_shard.c), each does the whole first sweep. In the second
 * sweep it updates its blocks alone. So all ranks have the same factors without a message. */
#include "optim_gpu.h"
#include "../engine/gpu/kernel.h"
#include "rd/hash.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>

struct rd_optim_gpu {
    rd_gpu *gpu; /* borrowed */
    void *base;  /* owned; one allocation in GPU memory, which holds the arrays up to `outcome` */
    rd_gpu_block *norm, *update; /* [norm.n], [update.n] the lists of blocks */
    rd_gpu_block *dealt;         /* [update.n] this rank's blocks of the update, then the others */
    rd_gpu_param *param;         /* by parameter */
    double *g_sq, *w_sq;         /* by block of norm: sums of squares of gradients and weights */
    double *param_w_sq;          /* by parameter: sums of squares of weights */
    float *factor;               /* by parameter: factor of LARS */
    uint64_t *sum;               /* by block of update: checksums */
    rd_gpu_outcome *outcome;     /* followed by the sum of squares of each parameter's gradient */
    rd_gpu_outcome *back;        /* owned; copy of outcome and those sums in host memory */
};

/* Returns the sums of squares of the parameters' gradients, which follow *o in memory. */
static __host__ __device__ inline double *param_g_sq(rd_gpu_outcome *o)
{
    return reinterpret_cast<double *>(o + 1);
}

/* ---- first sweep ---- */

/* Sums squares of the scaled gradients of each block. w: the weights, whose squares are summed,
 * too; NULL: no weights. */
static __global__ void square_blocks(const rd_gpu_block *block, int64_t n, const float *g,
                                     float scale, const float *w, double *g_sq, double *w_sq)
{
    for (int64_t at = blockIdx.x; at < n; at += gridDim.x) {
        const rd_gpu_block b = block[at];
        double g_sum = 0.0, w_sum = 0.0;
        for (int i = threadIdx.x; i < b.n; i += blockDim.x) {
            const double y = (double)(g[b.lo + i] * scale);
            g_sum += y * y;
            if (w) w_sum += (double)w[b.lo + i] * (double)w[b.lo + i];
        }
        g_sum = rd_block_sum(g_sum);
        if (w) w_sum = rd_block_sum(w_sum);
        if (threadIdx.x != 0) continue;
        g_sq[at] = g_sum;
        if (w) w_sq[at] = w_sum;
    }
}

static __device__ double sum_of(const double *x, int n)
{
    double sum = 0.0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    return rd_block_sum(sum);
}

/* Adds up the sums of each parameter's blocks, with a block of threads for each parameter. */
static __global__ void square_params(const rd_gpu_param *param, const double *g_sq,
                                     const double *w_sq, double *param_g, double *param_w)
{
    const rd_gpu_param p = param[blockIdx.x];
    const double g = sum_of(g_sq + p.first, p.n), w = w_sq ? sum_of(w_sq + p.first, p.n) : 0.0;
    if (threadIdx.x != 0) return;
    param_g[blockIdx.x] = g;
    param_w[blockIdx.x] = w;
}

typedef struct lars_rule {
    bool ratio; /* the optimizer's trust ratio; false: factor of the key lars_nu */
    double nu, eta, epsilon, unknown;
} lars_rule;

/* Returns the factor of LARS as optim_lars_factor in optim_sweeps.c does. g, w: norms. */
static __device__ float optim_gpu_lars_factor(const lars_rule &l, const rd_gpu_param &p, double g,
                                              double w)
{
    const bool known = g > 0.0 && w > 0.0;
    double f = 1.0;
    if (!l.ratio)
        f = known ? l.nu * w / g : l.unknown;
    else if (known && !p.no_decay)
        f = l.eta * w / (g + (double)p.decay * w + l.epsilon);
    return f < (double)FLT_MAX ? (float)f : FLT_MAX;
}

/* Fills *out and the factors of LARS. Runs with one block of threads. factor NULL: no LARS.
 * most_norm: the update does nothing if the norm is larger; 0: no limit. */
static __global__ void decide(const rd_gpu_param *param, int n, double max_norm, double most_norm,
                              lars_rule lars, const double *param_w, float *factor,
                              rd_gpu_outcome *out)
{
    double total = 0.0, state = 0.0, decayed = 0.0;
    const double *param_g = param_g_sq(out);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const rd_gpu_param p = param[i];
        (p.state ? state : total) += param_g[i];
        if (!p.state && p.decay != 0.0f) decayed += param_w[i];
        if (factor && !p.state)
            factor[i] = optim_gpu_lars_factor(lars, p, sqrt(param_g[i]), sqrt(param_w[i]));
    }
    total = rd_block_sum(total);
    state = rd_block_sum(state);
    decayed = rd_block_sum(decayed);
    if (threadIdx.x != 0) return;
    const double norm = sqrt(total);
    out->total = total;
    out->decayed = decayed;
    out->clip = max_norm > 0.0 && norm > max_norm ? (float)(max_norm / norm) : 1.0f;
    out->finite = isfinite(total) && isfinite(state) && !(most_norm > 0.0 && norm > most_norm);
}

/* ---- gradients of blocks that other ranks update ---- */

/* Scales and clips them, or leaves zeros, as the update does with its own. */
static __global__ void end_blocks(const rd_gpu_block *block, int64_t n, const rd_gpu_param *param,
                                  const rd_gpu_outcome *outcome, float scale, int32_t zero,
                                  float *g)
{
    if (!outcome->finite) return;
    for (int64_t at = blockIdx.x; at < n; at += gridDim.x) {
        const rd_gpu_block b = block[at];
        const float clip = param[b.param].state ? 1.0f : outcome->clip;
        for (int i = threadIdx.x; i < b.n; i += blockDim.x)
            g[b.lo + i] = zero ? 0.0f : g[b.lo + i] * scale * clip;
    }
}

/* ---- the average of the weights ---- */

/* Moves the average by a share of the way to the weights, unless the step is skipped. */
static __global__ void follow_weights(const rd_gpu_outcome *outcome, int64_t n, const float *w,
                                      float share, float *x)
{
    if (!outcome->finite) return;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        x[i] += share * (w[i] - x[i]);
}

/* ---- checksums ---- */

static __device__ uint64_t optim_gpu_fold(uint64_t h, uint32_t v)
{
    h = (h ^ v) * RD_FNV_PRIME; /* rd_fnv_mix */
    return h ^ h >> 31;
}

/* Returns rd_optim_block_sum, computed by a warp. The 32 chains of the sum are its lanes. */
static __device__ uint64_t optim_gpu_block_sum(const rd_gpu_block &b, const float *w, int lane)
{
    uint32_t one = 0, both = 0;
    for (int i = lane; i < (b.n + 31) / 32 * 32; i += 32) {
        one += i < b.n ? __float_as_uint(w[b.lo + i]) : 0;
        both += one;
    }
    uint64_t h = RD_FNV_START;
    for (int k = 0; k < 4; k++) {
        for (int j = 0; j < 8; j++) h = optim_gpu_fold(h, __shfl_sync(0xffffffffu, one, 8 * k + j));
        for (int j = 0; j < 8; j++)
            h = optim_gpu_fold(h, __shfl_sync(0xffffffffu, both, 8 * k + j));
    }
    return h;
}

static __global__ void sum_blocks(const rd_gpu_block *block, int64_t n, const float *w,
                                  uint64_t *sum)
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64_t at = (int64_t)blockIdx.x * warps + threadIdx.x / 32; at < n;
         at += (int64_t)gridDim.x * warps) {
        const uint64_t h = optim_gpu_block_sum(block[at], w, lane);
        if (lane == 0) sum[at] = h;
    }
}

/* Compares the checksums of blocks with `sum`. */
static __global__ void compare_blocks(const rd_gpu_block *block, int64_t n, const float *w,
                                      const uint64_t *sum, rd_gpu_outcome *out)
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64_t at = (int64_t)blockIdx.x * warps + threadIdx.x / 32; at < n;
         at += (int64_t)gridDim.x * warps) {
        const uint64_t h = optim_gpu_block_sum(block[at], w, lane);
        if (lane == 0 && h != sum[at]) (void)atomicMax(&out->damaged, (int)(n - at));
    }
}

/* ---- the host's part ---- */

/* Places arrays one after the other in one allocation. base NULL: only counts their bytes. */
typedef struct room {
    unsigned char *base;
    size_t used;
} room;

template <typename T> static void optim_gpu_take(room *r, int64_t n, T **out)
{
    if (r->base) *out = reinterpret_cast<T *>(r->base + r->used);
    r->used += ((size_t)n * sizeof(T) + 255) / 256 * 256;
}

static void lay_out(rd_optim_gpu *d, const rd_optim *o, room *r)
{
    const int n = rd_params_n(o->p);
    optim_gpu_take(r, o->norm.n, &d->norm);
    optim_gpu_take(r, o->update.n, &d->update);
    if (o->shard)
        optim_gpu_take(r, o->update.n, &d->dealt);
    else
        d->dealt = d->update; /* all blocks are this rank's */
    optim_gpu_take(r, n, &d->param);
    optim_gpu_take(r, o->norm.n, &d->g_sq);
    optim_gpu_take(r, o->norm.n, &d->w_sq);
    optim_gpu_take(r, n, &d->param_w_sq);
    optim_gpu_take(r, n, &d->factor);
    optim_gpu_take(r, o->update.n, &d->sum);
    double *outcome = NULL;
    optim_gpu_take(r, (int64_t)(sizeof(rd_gpu_outcome) / sizeof(double)) + n, &outcome);
    d->outcome = reinterpret_cast<rd_gpu_outcome *>(outcome);
}

static void optim_gpu_describe(const rd_optim_block *k, rd_gpu_block *out)
{
    out->lo = k->lo;
    out->at = k->at;
    out->n = (int32_t)k->n;
    out->param = k->param;
    out->row = (int32_t)k->row;
}

/* dealt: blocks of this rank come first. */
static rd_code send_blocks(rd_optim_gpu *d, const rd_optim *o, const rd_optim_blocks *from,
                           bool dealt, rd_gpu_block *to, rd_status *st)
{
    const size_t bytes = (size_t)from->n * sizeof *to;
    rd_gpu_block *list = static_cast<rd_gpu_block *>(malloc(bytes + 1));
    int64_t own = 0, other = dealt ? from->n_own : 0;
    if (!list) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    for (int64_t b = 0; b < from->n; b++) {
        const rd_optim_block *k = &from->at[b];
        optim_gpu_describe(k, &list[dealt && rd_optim_is_own(o, k) ? own++ : other++]);
    }
    (void)rd_gpu_upload(d->gpu, to, list, bytes, st);
    free(list);
    return st->code;
}

static rd_code send_params(rd_optim_gpu *d, const rd_optim *o, rd_status *st)
{
    const int n = rd_params_n(o->p);
    rd_gpu_param *list = static_cast<rd_gpu_param *>(calloc((size_t)n + 1, sizeof *list));
    if (!list) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    int64_t b = 0;
    for (int i = 0; i < n; i++) {
        const rd_param *p = rd_params_at(o->p, i);
        rd_gpu_param *q = &list[i];
        q->decay = rd_optim_decays(o, i) ? (float)o->c.weight_decay : 0.0f;
        q->decoupled = (float)rd_optim_decoupled(o, i);
        q->keep = (float)p->momentum;
        q->rest = (float)(1.0 - p->momentum);
        q->state = (p->flags & RD_PARAM_STATE) != 0;
        q->no_decay = (p->flags & RD_PARAM_NO_DECAY) != 0;
        q->first = (int32_t)b;
        while (b < o->norm.n && o->norm.at[b].param == i) b++;
        q->n = (int32_t)b - q->first;
    }
    (void)rd_gpu_upload(d->gpu, d->param, list, (size_t)n * sizeof *list, st);
    free(list);
    return st->code;
}

static size_t outcome_bytes(const rd_optim *o)
{
    return sizeof(rd_gpu_outcome) + (size_t)rd_params_n(o->p) * sizeof(double);
}

static rd_code optim_gpu_fill(rd_optim_gpu *d, const rd_optim *o, rd_status *st)
{
    room r = {NULL, 0};
    lay_out(d, o, &r);
    d->back = static_cast<rd_gpu_outcome *>(malloc(outcome_bytes(o)));
    if (!d->back) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    RD_TRY_OR_RETURN(rd_gpu_memory_new(d->gpu, r.used, &d->base, st));
    r.base = static_cast<unsigned char *>(d->base);
    r.used = 0;
    lay_out(d, o, &r);
    RD_TRY_OR_RETURN(rd_gpu_zero(d->gpu, d->outcome, outcome_bytes(o), st));
    RD_TRY_OR_RETURN(send_blocks(d, o, &o->norm, false, d->norm, st));
    RD_TRY_OR_RETURN(send_blocks(d, o, &o->update, false, d->update, st));
    if (o->shard) RD_TRY_OR_RETURN(send_blocks(d, o, &o->update, true, d->dealt, st));
    return send_params(d, o, st);
}

static void optim_gpu_close(rd_optim *o)
{
    rd_optim_gpu *d = o->gpu;
    if (!d) return;
    rd_gpu_memory_free(d->gpu, d->base);
    free(d->back);
    free(d);
    o->gpu = NULL;
}

static rd_code optim_gpu_open(rd_optim *o, rd_status *st)
{
    rd_optim_gpu *d = o->gpu = static_cast<rd_optim_gpu *>(calloc(1, sizeof *d));
    if (!d) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    d->gpu = rd_params_gpu(o->p);
    if (!o->def->gpu_update)
        return rd_fail(
            st, RD_EUSAGE,
            "optimizer %s has no update for a GPU; set device to cpu, or take another one",
            o->def->name);
    if (optim_gpu_fill(d, o, st) != RD_OK) optim_gpu_close(o);
    return st->code;
}

static rd_code first_sweep(const rd_optim *o, float scale, bool weights, double most_norm,
                           rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    const int n = rd_params_n(o->p);
    const float *g = rd_params_device_grads(o->p),
                *w = weights ? rd_params_device_values(o->p) : NULL;
    const bool ratio = o->def->trust_ratio != NULL;
    const rd_trust_ratio r = ratio ? o->def->trust_ratio(&o->c.own) : rd_trust_ratio();
    const lars_rule lars = {ratio, o->c.lars_nu, r.eta, r.epsilon, rd_optim_lars_unknown};
    const double max_norm = o->c.has_max_grad_norm ? o->c.max_grad_norm : 0.0;
    const unsigned grid = (unsigned)(o->norm.n < (1 << 20) ? o->norm.n : 1 << 20);
    RD_TRY_OR_RETURN(RD_LAUNCH(d->gpu, st, square_blocks, grid, RD_BLOCK, 0, d->norm, o->norm.n, g,
                               scale, w, d->g_sq, d->w_sq));
    RD_TRY_OR_RETURN(RD_LAUNCH(d->gpu, st, square_params, (unsigned)n, RD_BLOCK, 0, d->param,
                               d->g_sq, weights ? d->w_sq : (double *)nullptr,
                               param_g_sq(d->outcome), d->param_w_sq));
    return RD_LAUNCH(d->gpu, st, decide, 1, RD_BLOCK, 0, d->param, n, max_norm, most_norm, lars,
                     d->param_w_sq, o->trust ? d->factor : (float *)nullptr, d->outcome);
}

static rd_code second_sweep(const rd_optim *o, const rd_optim_job *job, bool zero, rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    rd_optim_sweep s = rd_optim_sweep();
    s.on.block = d->dealt;
    s.on.n_blocks = o->update.n_own;
    s.on.param = d->param;
    s.on.factor = o->trust ? d->factor : NULL;
    s.on.outcome = d->outcome;
    s.on.w = rd_params_device_values(o->p);
    s.on.g = rd_params_device_grads(o->p);
    for (int k = 0; k < o->def->n_slots; k++)
        s.on.slot[k] = rd_params_device_slot(o->p, o->first_slot + k);
    s.on.scale = job->scale;
    s.on.zero = zero;
    s.c = &o->c;
    s.own = &o->c.own;
    s.lr = job->lr;
    s.t = job->t;
    return o->def->gpu_update(d->gpu, &s, st);
}

/* Does with the gradients of the blocks of other ranks what the update does with its own. */
static rd_code end_others(const rd_optim *o, float scale, bool zero, rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    const int64_t n = o->update.n - o->update.n_own;
    const unsigned grid = (unsigned)(n < (1 << 20) ? n : 1 << 20);
    return RD_LAUNCH(d->gpu, st, end_blocks, grid, RD_BLOCK, 0, d->dealt + o->update.n_own, n,
                     d->param, d->outcome, scale, (int32_t)zero, rd_params_device_grads(o->p));
}

/* Moves the averages of elements [lo, lo + n), which begin at element `at` of the slot. */
static rd_code follow_range(const rd_optim *o, int64_t t, int64_t lo, int64_t at, int64_t n,
                            rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    if (n <= 0) return st->code;
    return RD_LAUNCH(d->gpu, st, follow_weights, rd_grid(n, RD_BLOCK), RD_BLOCK, 0, d->outcome, n,
                     rd_params_device_values(o->p) + lo, rd_optim_ema_share(o, t),
                     rd_params_device_slot(o->p, rd_optim_ema_slot(o)) + at);
}

static rd_code move_averages(const rd_optim *o, int64_t t, rd_status *st)
{
    const int64_t trained = rd_params_trained_span(o->p);
    int64_t n = 0;
    if (!o->shard) return follow_range(o, t, 0, 0, trained, st);
    const rd_shard_piece *p = rd_shard_pieces(o->shard, &n);
    for (int64_t i = 0; i < n && st->code == RD_OK; i++)
        if (p[i].host == rd_shard_host(o->shard))
            (void)follow_range(o, t, p[i].lo, p[i].at,
                               (p[i].hi < trained ? p[i].hi : trained) - p[i].lo, st);
    return st->code;
}

/* ---- checksums, on the host ---- */

/* Without a division the other GPUs have copies of the update. With it, a damaged weight would
 * reach them all, so each step compares checksums first. */
static rd_code queue_compare(const rd_optim *o, rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    const int64_t n = o->update.n;
    if (!rd_optim_sums_hold(o)) return st->code;
    return RD_LAUNCH(d->gpu, st, compare_blocks, rd_grid(n, RD_BLOCK / 32), RD_BLOCK, 0, d->update,
                     n, rd_params_device_values(o->p), d->sum, d->outcome);
}

static rd_code queue_sums(const rd_optim *o, rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    const int64_t n = o->update.n;
    return RD_LAUNCH(d->gpu, st, sum_blocks, rd_grid(n, RD_BLOCK / 32), RD_BLOCK, 0, d->update, n,
                     rd_params_device_values(o->p), d->sum);
}

/* Takes what the last download of the outcome found. */
static void note_damage(rd_optim *o)
{
    if (o->damaged < 0 && o->gpu->back->damaged > 0)
        o->damaged = o->update.n - o->gpu->back->damaged;
}

static rd_code optim_gpu_guard(rd_optim *o, rd_status *st)
{
    if (!o->shard) return st->code;
    RD_TRY_OR_RETURN(rd_params_sync_to_device(o->p, RD_VALUES, st));
    RD_TRY_OR_RETURN(queue_sums(o, st));
    o->sum_version = rd_params_version(o->p);
    return st->code;
}

static rd_code optim_gpu_step(rd_optim *o, const rd_optim_job *job, rd_optim_stats *stats,
                              rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    const int n = rd_params_n(o->p);
    RD_TRY_OR_RETURN(rd_params_sync_to_device(o->p, RD_VALUES | RD_GRADS | RD_SLOTS, st));
    RD_TRY_OR_RETURN(queue_compare(o, st));
    RD_TRY_OR_RETURN(first_sweep(o, job->scale, job->weights, stats->most_norm, st));
    RD_TRY_OR_RETURN(second_sweep(o, job, stats->zero_grads, st));
    if (o->shard && (stats->want_grads || stats->zero_grads))
        RD_TRY_OR_RETURN(end_others(o, job->scale, stats->zero_grads, st));
    if (o->ema) RD_TRY_OR_RETURN(move_averages(o, job->t, st));
    RD_TRY_OR_RETURN(rd_gpu_download(d->gpu, d->back, d->outcome,
                                     stats->param_norm ? outcome_bytes(o) : sizeof *d->back, st));
    note_damage(o);
    const double *g_sq = param_g_sq(d->back);
    stats->finite = d->back->finite != 0;
    stats->grad_norm = sqrt(d->back->total);
    stats->spike = !stats->finite && isfinite(d->back->total) && stats->most_norm > 0.0 &&
                   stats->grad_norm > stats->most_norm;
    stats->l2 = job->weights ? 0.5 * o->c.weight_decay * d->back->decayed : 0.0;
    for (int i = 0; i < n && stats->param_norm; i++)
        o->g_norm[i] = rd_params_at(o->p, i)->flags & RD_PARAM_STATE ? 0.0 : sqrt(g_sq[i]);
    if (stats->finite) {
        rd_params_device_changed_grads(o->p);
        rd_params_device_changed(o->p);
    }
    (void)rd_optim_report(o, stats);
    return RD_OK;
}

static rd_code optim_gpu_sums(rd_optim *o, uint64_t *sum, rd_status *st)
{
    const rd_optim_gpu *d = o->gpu;
    RD_TRY_OR_RETURN(rd_params_sync_to_device(o->p, RD_VALUES, st));
    RD_TRY_OR_RETURN(queue_compare(o, st));
    RD_TRY_OR_RETURN(queue_sums(o, st));
    RD_TRY_OR_RETURN(rd_gpu_download(d->gpu, d->back, d->outcome, sizeof *d->back, st));
    note_damage(o);
    return rd_gpu_download(d->gpu, sum, d->sum, (size_t)o->update.n * sizeof *sum, st);
}

const rd_optim_sweeps rd_optim_gpu_sweeps = {optim_gpu_open, optim_gpu_close, optim_gpu_step,
                                             optim_gpu_sums, optim_gpu_guard};
