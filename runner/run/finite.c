/* finite.c -- finds weights and optimizer state that are inf or NaN.
 *
 * A step is skipped if its gradient is not finite. An update with a finite gradient can still leave
 * such values: where the rate times the gradient, or the square of a gradient, overflows. */
#include "finite.h"

#include <stdio.h>
#include <string.h>

bool finite_all(const float *x, int64_t n)
{
    uint32_t other = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        other |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return other == 0;
}

static bool slot_finite(const rd_run *r, const rd_param *p, int k)
{
    const float *x = rd_params_slot(r->params, k);
    const rd_shard *s = rd_optim_shard_of(r->optim);
    int64_t n;
    if (!s) return finite_all(x + p->offset, p->n);
    const rd_shard_piece *piece = rd_shard_pieces(s, &n);
    for (int64_t i = rd_shard_find(s, p->offset); i < n && piece[i].lo < p->offset + p->n; i++) {
        const int64_t lo = piece[i].lo > p->offset ? piece[i].lo : p->offset,
                      end = p->offset + p->n, hi = piece[i].hi < end ? piece[i].hi : end;
        if (piece[i].host == rd_shard_host(s) &&
            !finite_all(x + piece[i].at + (lo - piece[i].lo), hi - lo))
            return false;
    }
    return true;
}

bool finite_find_other(const rd_run *r, char name[320])
{
    const rd_params *ps = r->params;
    const int n_slots = r->optim ? rd_params_n_slots(ps) : 0;
    for (int i = 0; i < rd_params_n(ps); i++) {
        const rd_param *p = rd_params_at(ps, i);
        (void)snprintf(name, 320, "%s", p->name);
        if (!finite_all(rd_params_values(ps) + p->offset, p->n)) return true;
        for (int k = 0; k < n_slots && rd_param_trains(p); k++) {
            (void)snprintf(name, 320, "%s/%s", p->name, rd_optim_slot_name(r->optim, k));
            if (!slot_finite(r, p, k)) return true;
        }
    }
    return false;
}
