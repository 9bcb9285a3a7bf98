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
    if (o->shard) {
        rd_optim_fill_own(o, o->def->n_slots);
        return;
    }
    memcpy(rd_params_slot(o->p, rd_optim_ema_slot(o)), rd_params_values(o->p),
           (size_t)rd_params_trained_span(o->p) * sizeof(float));
    rd_params_touch_slots(o->p);
}
