/* keep_best.c -- the list of the best evaluations, for checkpoint_keep_best.
 *
 * The list is part of the progress, so each checkpoint holds it, and a killed run ends with the
 * same files. The best one is best-<step>.npz, the others are top-<step>.npz. */
#include "keep_best.h"

#include <math.h>

int64_t keep_best_add(run_progress *at, int64_t keep, double value, bool higher_is_better, bool *in)
{
    const int64_t most = keep < RUN_TOP ? keep : RUN_TOP;
    int k = 0;
    *in = false;
    if (!isfinite(value)) return -1;
    /* The evaluation that a resumed run makes again replaces itself. */
    for (int i = 0; i < at->n_top; i++)
        if (at->top[i].step != at->step) at->top[k++] = at->top[i];
    at->n_top = k;
    while (k > 0 &&
           (higher_is_better ? value > at->top[k - 1].value : value < at->top[k - 1].value))
        k--;
    if (k >= most) return -1;
    const int64_t leaves = at->n_top >= most ? at->top[at->n_top - 1].step : -1;
    if (at->n_top < most) at->n_top++;
    for (int i = at->n_top - 1; i > k; i--) at->top[i] = at->top[i - 1];
    at->top[k] = (run_top){.step = at->step, .value = value};
    *in = true;
    return leaves;
}

bool keep_best_has(const run_progress *at, int64_t step)
{
    for (int i = 0; i < at->n_top; i++)
        if (at->top[i].step == step) return true;
    return false;
}

json_t *keep_best_describe(const run_progress *at)
{
    json_t *list = json_array();
    for (int i = 0; i < at->n_top; i++)
        (void)json_array_append_new(list,
                                    json_pack("{s:I, s:f}", "step", (json_int_t)at->top[i].step,
                                              "value", at->top[i].value));
    return list;
}

void keep_best_take(run_progress *at, const json_t *list)
{
    at->n_top = 0;
    for (size_t i = 0; i < json_array_size(list) && at->n_top < RUN_TOP; i++) {
        const json_t *o = json_array_get(list, i), *step = json_object_get(o, "step"),
                     *value = json_object_get(o, "value");
        if (json_is_integer(step) && json_is_number(value))
            at->top[at->n_top++] = (run_top){.step = (int64_t)json_integer_value(step),
                                             .value = json_number_value(value)};
    }
}
