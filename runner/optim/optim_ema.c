/* optim_ema.c -- the average of the weights over the updates (key ema).
 *
 * The average is one more slot of the optimizer: checkpoints hold it, and the ranks of a host share
 * it. The update of a block moves its average while the weights are in the cache
 * (optim_sweeps.c). */
#include "optim_impl.h"
#include <math.h>
#include <string.h>

int rd_optim_n_slots(const rd_optim *o)
{
    return o->def->n_slots + (o->ema ? 1 : 0);
}

const char *rd_optim_slot_name(const rd_optim *o, int k)
{
    return k < o->def->n_slots ? o->def->slot_name[k] : "ema";
}

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
    const int64_t trained = rd_params_trained_span(o->p), lo = o->shared ? o->own_lo : 0,
                  hi = o->shared && o->own_hi < trained ? o->own_hi : trained;
    float *w = rd_params_values(o->p), *x = rd_params_slot(o->p, rd_optim_ema_slot(o));
    for (int64_t i = lo; i < hi; i++) {
        const float v = w[i];
        w[i] = x[i];
        x[i] = v;
    }
    if (o->shared) RD_TRY(rd_comm_local_barrier(o->comm, st));
    rd_params_touch(o->p);
    rd_params_touch_slots(o->p);
    o->swapped = !o->swapped;
    if (!o->swapped && o->sums_held) o->sum_version = rd_params_version(o->p);
done:
    return st->code;
}
