/* finite.c -- finds weights and optimizer state that are inf or NaN.
 *
 * A step is skipped if its gradient is not finite. An update with a finite gradient can still leave
 * such values: where the rate times the gradient, or the square of a gradient, overflows. */
#include "finite.h"

#include <stdio.h>
#include <string.h>

static bool all_finite(const float *x, int64_t n)
{
    uint32_t other = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        other |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return other == 0;
}

bool finite_find_other(const rd_run *r, char name[320])
{
    const rd_params *ps = r->params;
    const int n_slots = r->optim ? rd_params_n_slots(ps) : 0;
    for (int i = 0; i < rd_params_n(ps); i++) {
        const rd_param *p = rd_params_at(ps, i);
        (void)snprintf(name, 320, "%s", p->name);
        if (!all_finite(rd_params_values(ps) + p->offset, p->n)) return true;
        for (int k = 0; k < n_slots && !(p->flags & RD_PARAM_STATE); k++) {
            (void)snprintf(name, 320, "%s/%s", p->name, rd_optim_slot_name(r->optim, k));
            if (!all_finite(rd_params_slot(ps, k) + p->offset, p->n)) return true;
        }
    }
    return false;
}
