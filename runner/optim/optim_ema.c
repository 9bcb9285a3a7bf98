/* optim_ema.c -- the average of the weights over the updates (key ema).
 *
 * The average is one more slot of the optimizer: checkpoints hold it, and the ranks of a host share
 * it. The update of a block moves its average while the weights are in the cache
 * (optim_sweeps.c). */
#include "optim_impl.h"
#include <math.h>
#include <string.h>

int rd_optim_ema_slot(const rd_optim *o)
{
    return o->ema ? o->first_slot + o->def->n_slots : -1;
}

float rd_optim_ema_share(const rd_optim *o, int64_t t)
{
    return (float)fmax(o->c.ema, 9.0 / ((double)t + 9.0));
}

void rd_optim_start_ema(rd_optim *o)
{
    if (!o->ema) return;
    if (o->shard) {
        rd_optim_fill_own(o, o->def->n_slots);
        return;
    }
    memcpy(rd_params_slot(o->p, rd_optim_ema_slot(o)), rd_params_values(o->p),
           (size_t)rd_params_trained_span(o->p) * sizeof(float));
    rd_params_touch_slots(o->p);
}

rd_code rd_optim_swap_ema(rd_optim *o, rd_status *st)
{
    if (!o->ema) return st->code;
    if (!o->swapped) o->sums_held = rd_optim_sums_hold(o);
    RD_TRY(rd_params_sync_to_host(o->p, RD_VALUES | RD_SLOTS, st));
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
    for (int64_t i = 0; i < o->update.n_own; i++) {
        const rd_optim_block *b = &o->update.at[o->update.own[i]];
        float *w = rd_params_values(o->p) + b->lo,
              *x = rd_params_slot(o->p, rd_optim_ema_slot(o)) + b->at;
        for (int64_t k = 0; k < b->n && !rd_optim_is_state(o, b->param); k++) {
            const float v = w[k];
            w[k] = x[k];
            x[k] = v;
        }
    }
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
    RD_TRY(rd_optim_spread_weights(o, st));
    rd_params_updated(o->p);
    rd_params_touch_slots(o->p);
    o->swapped = !o->swapped;
    if (!o->swapped && o->sums_held) o->sum_version = rd_params_version(o->p);
done:
    return st->code;
}
