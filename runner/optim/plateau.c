/* plateau.c -- lowers the rate when the monitored value no longer improves, as Keras'
 * ReduceLROnPlateau of 2018.
 *
 * An improvement is a value that beats the best one by more than plateau_min_delta. NaN is none.
 * After plateau_patience evaluations in a row without an improvement the rate is multiplied by
 * plateau_factor, but not below plateau_min_lr. The next plateau_cooldown evaluations do not
 * count. In a warm-up evaluations count, but the rate is not lowered, as in Sockeye. */
#include "rd/optim.h"
#include <math.h>

void rd_plateau_start(rd_plateau *p)
{
    *p = (rd_plateau){.factor = 1.0};
}

bool rd_plateau_update(const rd_schedule_config *c, rd_plateau *p, double value,
                       bool higher_is_better, double rate, bool warming)
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
    if (warming || p->wait < c->plateau_patience || rate <= c->plateau_min_lr) return false;
    p->factor *= c->plateau_factor;
    p->cuts++;
    p->cooldown = c->plateau_cooldown;
    p->wait = 0;
    return true;
}
