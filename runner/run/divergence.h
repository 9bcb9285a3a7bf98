/* divergence.h -- notices a training whose loss grows, although all numbers stay finite. */
#ifndef RD_RUN_DIVERGENCE_H
#define RD_RUN_DIVERGENCE_H

#include <stdbool.h>
#include <stdint.h>

/* The count of steps is in run_progress.diverging: the steps above the limit less those below it,
 * not below 0. From DIVERGENCE_SHOWN on the run warns, and from DIVERGENCE_STEPS on it ends. */
enum { DIVERGENCE_SHOWN = 5, DIVERGENCE_STEPS = 100 };

/* The loss is the one per target, so the length of sentences does not change it. A model that
 * gives every class the same probability has the loss ln(classes), and one that learns has less.
 * Initial weights may begin far above that. So the reference is the larger one of ln(classes) and
 * the lowest running mean so far. A loss near 0 that rises again is below it. */
typedef struct divergence {
    double floor; /* ln(classes) */
    double mean;  /* running mean of the last steps, about 50 */
    double best;  /* lowest mean */
    bool begun;   /* mean and best have values; checkpoints hold them */
} divergence;

/* Adds the loss per target of a step. limit: multiple of the reference; 0: count nothing. *count:
 * see above. *count > 0 before the first step: the run resumes while it diverges, from a checkpoint
 * without a reference, so this loss is none. Returns whether the loss is above the limit. */
bool divergence_add(divergence *d, double limit, double loss, int64_t *count);

/* Returns the loss from which on a step counts as above. */
double divergence_level(const divergence *d, double limit);

#endif
