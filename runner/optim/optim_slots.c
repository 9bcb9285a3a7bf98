/* optim_slots.c -- the slots of an optimizer, and which blocks of them this rank updates. */
#include "optim_impl.h"
#include <string.h>

int rd_optim_n_slots(const rd_optim *o)
{
    return o->def->n_slots + (o->ema ? 1 : 0);
}

const char *rd_optim_slot_name(const rd_optim *o, int k)
{
    return k < o->def->n_slots ? o->def->slot_name[k] : "ema";
}

int64_t rd_optim_kept(const rd_optim *o)
{
    return o->shard ? rd_shard_kept(o->shard, rd_shard_host(o->shard))
                    : rd_params_trained_span(o->p);
}

static void take_own(const rd_optim *o, rd_optim_blocks *list)
{
    list->n_own = 0;
    for (int64_t b = 0; b < list->n; b++)
        if (rd_optim_is_own(o, &list->at[b])) list->own[list->n_own++] = b;
}

void rd_optim_take_own(rd_optim *o)
{
    take_own(o, &o->norm);
    take_own(o, &o->update);
    o->n_guard = 0;
    for (int64_t b = 0; b < o->update.n; b++)
        if (!o->shared || (o->update.at[b].lo >= o->own_lo && o->update.at[b].lo < o->own_hi))
            o->guard[o->n_guard++] = b;
}

void rd_optim_first_slot(const rd_optim *o, int k, int64_t n, const float *values, float *x)
{
    const float first = k < o->def->n_slots && o->def->slot_init
                            ? (float)o->def->slot_init(&o->c.own, k)
                            : 0.0f;
    if (k == o->def->n_slots) {
        memcpy(x, values, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t i = 0; i < n; i++) x[i] = first;
}

void rd_optim_fill_own(rd_optim *o, int k)
{
    for (; k < rd_optim_n_slots(o); k++) {
        float *x = rd_params_slot(o->p, o->first_slot + k);
        /* Slots are zeros already. */
        if (k < o->def->n_slots && !o->def->slot_init) continue;
        for (int64_t i = 0; i < o->update.n_own; i++) {
            const rd_optim_block *b = &o->update.at[o->update.own[i]];
            if (!rd_optim_is_state(o, b->param))
                rd_optim_first_slot(o, k, b->n, rd_params_values(o->p) + b->lo, x + b->at);
        }
    }
    rd_params_touch_slots(o->p);
}
