/* optim.c -- makes and frees optimizers, cuts the parameters into blocks, and chooses the functions
 * that do a step: those of optim_sweeps.c on a CPU, those of optim_gpu.cu on a GPU. */
#include "optim_impl.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, LANES = RD_OPTIM_LANES };

/* Cuts all parameters but frozen ones into blocks. at_rows: blocks of RD_PARAM_ROWS tables are
 * whole rows. */
static rd_code optim_cut(const rd_params *p, bool at_rows, rd_optim_blocks *out, rd_status *st)
{
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        int64_t n = 0;
        for (int i = 0; i < rd_params_n(p); i++) {
            const rd_param *q = rd_params_at(p, i);
            if (q->flags & RD_PARAM_FROZEN) continue;
            const int64_t row = at_rows && (q->flags & RD_PARAM_ROWS) && q->n_dim > 0
                                    ? q->n / q->dim[0]
                                    : 0;
            const int64_t len = row > 0 ? (row > BLOCK ? row : BLOCK / row * row) : BLOCK;
            for (int64_t lo = 0; lo < q->n; lo += len, n++) {
                const int64_t left = q->n - lo;
                if (pass == 1)
                    out->at[n] = (rd_optim_block){.lo = q->offset + lo,
                                                  .n = left < len ? left : len,
                                                  .param = i,
                                                  .row = row,
                                                  .at = q->offset + lo};
                if (len > out->longest) out->longest = len;
            }
        }
        if (pass == 1) break;
        out->n = n;
        out->at = calloc((size_t)n + 1, sizeof *out->at);
        out->own = calloc((size_t)n + 1, sizeof *out->own);
        if (!out->at || !out->own) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    }
    return RD_OK;
}

static const rd_optim_sweeps *const sweeps_of[RD_BACKENDS] = {
    [RD_CPU] = &rd_optim_cpu_sweeps, [RD_GPU] = RD_GPU_ENTRY(&rd_optim_gpu_sweeps)};

rd_code rd_optim_step(rd_optim *o, int64_t t, double lr, double grad_scale, rd_optim_stats *stats,
                      rd_status *st)
{
    if (t < 1) return rd_fail(st, RD_EBUG, "optimizer step %" PRId64 ": steps count from 1", t);
    const rd_optim_job job = {.t = t,
                              .lr = lr,
                              .scale = (float)grad_scale,
                              .weights = o->trust || (stats->want_l2 && o->decay)};
    return o->sweeps->step(o, &job, stats, st);
}

rd_code rd_optim_guard(rd_optim *o, rd_status *st)
{
    return o->sweeps->guard(o, st);
}

rd_code rd_optim_new(const rd_optim_config *c, rd_params *p, int n_threads, rd_optim **out,
                     rd_status *st)
{
    rd_optim *o = *out = NULL;
    const rd_optimizer_def *def = rd_optimizer_find(c->optimizer);
    if (!def)
        return rd_fail(st, RD_EUSAGE, "optimizer '%s' is unknown; --help=optimizer lists them",
                       c->optimizer ? c->optimizer : "");
    o = calloc(1, sizeof *o);
    if (!o) return rd_fail(st, RD_EENV, "out of memory for the optimizer");
    o->sweeps = sweeps_of[rd_params_kind(p)];
    o->c = *c;
    o->def = def;
    o->p = p;
    o->last_norm = NAN;
    o->damaged = -1;
    o->n_threads = n_threads < 1 ? 1 : n_threads;
    o->trust = c->has_lars_nu || def->trust_ratio;
    o->decay = c->weight_decay != 0.0 && !def->decays;
    o->decoupled = c->weight_decay != 0.0 && def->decays;
    if (!c->has_own) RD_TRY(rd_optim_own_defaults(def, &o->c.own, st));
    RD_TRY(optim_cut(p, false, &o->norm, st));
    RD_TRY(optim_cut(p, def->skips_zero_rows, &o->update, st));
    const size_t n_params = (size_t)rd_params_n(p) + 1;
    o->g_sq = calloc((size_t)o->norm.n + 1, sizeof(double));
    o->w_sq = calloc((size_t)o->norm.n + 1, sizeof(double));
    o->g_norm = calloc(n_params, sizeof(double));
    o->factor = calloc(n_params, sizeof(float));
    o->scratch = calloc((size_t)o->n_threads * (size_t)(o->update.longest + LANES), sizeof(float));
    o->guard = calloc((size_t)o->update.n + 1, sizeof *o->guard);
    if (!o->g_sq || !o->w_sq || !o->g_norm || !o->factor || !o->scratch || !o->guard) {
        rd_fail(st, RD_EENV, "out of memory for the optimizer");
        goto done;
    }
    rd_optim_take_own(o);
    o->first_slot = rd_params_n_slots(p);
    o->ema = c->ema > 0.0;
    if (!c->sharded) {
        RD_TRY(rd_params_slots(p, rd_optim_n_slots(o), rd_params_trained_span(p), st));
        rd_optim_fill_own(o, 0);
        RD_TRY(o->sweeps->open(o, st));
    }
    *out = o;
    o = NULL;
done:
    rd_optim_free(o);
    return st->code;
}

static void free_blocks(rd_optim_blocks *b)
{
    free(b->at);
    free(b->own);
}

void rd_optim_free(rd_optim *o)
{
    if (!o) return;
    free_blocks(&o->norm);
    free_blocks(&o->update);
    if (!o->shared) {
        free(o->g_sq);
        free(o->w_sq);
    }
    rd_optim_unshare(o);
    o->sweeps->close(o);
    free(o->g_norm);
    free(o->guard);
    free(o->norm_host);
    free(o->factor);
    free(o->scratch);
    free(o->frozen);
    free(o);
}

const rd_optimizer_def *rd_optim_def(const rd_optim *o)
{
    return o->def;
}

double rd_optim_norm(const rd_optim *o)
{
    return o->last_norm;
}
