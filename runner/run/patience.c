/* patience.c -- early stopping: ends a training whose evaluations no longer improve.
 *
 * An improvement is strict, as in Sockeye. The minima hold the end back: the training goes on, and
 * the first evaluation after them decides. */
#include "patience.h"

#include <math.h>

void patience_update(run_patience *p, double value, bool higher_is_better, double min_delta)
{
    const bool better = !p->has_best || (higher_is_better ? value > p->best + min_delta
                                                          : value < p->best - min_delta);
    if (isfinite(value) && better) {
        *p = (run_patience){.best = value, .has_best = true};
        return;
    }
    p->wait++;
}

bool patience_ends(const run_config *c, const run_progress *at, double epochs)
{
    return c->stop_patience > 0 && at->patience.wait >= c->stop_patience &&
           at->step >= c->min_steps && at->all_samples >= c->min_samples &&
           epochs >= (double)c->min_epochs;
}

bool patience_holds(const run_config *c, const run_progress *at)
{
    return at->patience.stopped && c->stop_patience > 0 && at->patience.wait >= c->stop_patience;
}
