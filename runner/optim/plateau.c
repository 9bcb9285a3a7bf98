/* plateau.c -- a smaller rate when the monitored value stands still, as Keras' ReduceLROnPlateau of 2018.
 *
 * Improved is: better than the best by more than plateau_min_delta. An evaluation that does not improve, outside the
 * cool-down, counts one; at plateau_patience of them in a row the rate is multiplied by plateau_factor, down to
 * plateau_min_lr, and plateau_cooldown evaluations follow that do not count. A value that is no number does not
 * improve. */
#include "rd/optim.h"
#include <math.h>

void rd_plateau_start(rd_plateau *p)
{
    *p = (rd_plateau){.factor = 1.0};
}

bool rd_plateau_update(const rd_schedule_config *c, rd_plateau *p, double value,
                       bool higher_is_better, double rate)
{
    if (!c->has_plateau) return false;
    if (p->cooldown > 0) {
        p->cooldown--;
        p->wait = 0;
    }
    const double delta = c->plateau_min_delta;
    const bool better = higher_is_better ? value > p->best + delta : value < p->best - delta;
    if (p->has_best ? better : isfinite(value)) {
        p->best = value;
        p->has_best = true;
        p->wait = 0;
        return false;
    }
    if (p->cooldown > 0) return false;
    p->wait++;
    if (p->wait < c->plateau_patience || rate <= c->plateau_min_lr) return false;
    p->factor *= c->plateau_factor;
    p->cuts++;
    p->cooldown = c->plateau_cooldown;
    p->wait = 0;
    return true;
}
