/* sweep_halving.c -- successive halving (Jamieson and Talwalkar 2016): all runs train to a first
 * step, the best part of them goes on to `factor` times that step, and so on, until one is left.
 *
 * A run that waits was stopped by --stop_at_step and goes on from its checkpoint, so it ends with
 * the bytes of a run that never waited. Only evaluations that the run has anyway are compared, up
 * to the step of the round. So the decision is the same whenever it is made. */
#include "sweep_impl.h"
#include "../runs/runs_impl.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

rd_code sweep_rounds_read(const rd_cli *cli, const rd_config *c, sweep_rounds *out, rd_status *st)
{
    const char *text = cli->sweep_halving, *p = text;
    char *end = NULL, shown[80];
    *out = (sweep_rounds){.factor = 2};
    if (!text) return RD_OK;
    out->steps = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : 0;
    if (end && *end == ':' && end[1] >= '0' && end[1] <= '9')
        out->factor = strtoll(end + 1, &end, 10);
    if (!end || *end || out->steps < 1 || out->steps > INT64_C(1000000000000) || out->factor < 2 ||
        out->factor > 1000)
        return rd_fail(st, RD_EUSAGE,
                       "--sweep_halving=%s: write the steps of the first round, as 500, or with "
                       "the factor between rounds, 2 .. 1000, as 500:3",
                       rd_printable(text, strlen(text), false, shown, sizeof shown));
    if (cli->mode_bit != RD_MODE_TRAIN_EVAL)
        return rd_fail(st, RD_EUSAGE,
                       "--sweep_halving compares evaluations, and the mode is %s; give "
                       "--mode=train_eval",
                       cli->mode);
    if (cli->stop_at_step > 0)
        return rd_fail(st, RD_EUSAGE,
                       "--sweep_halving sets --stop_at_step for each round; leave that out");
    if (rd_config_has(c, "eval_frequency") &&
        json_number_value(rd_config_get(c, "eval_frequency")) > (double)out->steps)
        return rd_fail(st, RD_EUSAGE,
                       "eval_frequency is %.0f, so no run is evaluated by step %" PRIi64
                       ", the first of --sweep_halving; lower eval_frequency, or begin with more "
                       "steps",
                       json_number_value(rd_config_get(c, "eval_frequency")), out->steps);
    return RD_OK;
}

int64_t sweep_rounds_limit(const sweep_rounds *r, const rd_cli *cli, int k, int n)
{
    int64_t limit = r->steps;
    if (r->steps <= 0 || n <= 1) return 0;
    for (int i = 0; i < k; i++)
        if (__builtin_mul_overflow(limit, r->factor, &limit)) return 0;
    return cli->max_steps_given && limit >= cli->max_steps ? 0 : limit;
}

/* One run in a comparison. */
typedef struct place {
    int run;
    double value, loss;
    bool higher;
} place;

/* Sorts the best first; equal ones by the loss, then in the order of the sweep. */
static int by_value(const void *pa, const void *pb)
{
    const place *a = pa, *b = pb;
    if (a->value != b->value) return (a->value > b->value) == a->higher ? -1 : 1;
    if (a->loss != b->loss) return a->loss < b->loss ? -1 : 1;
    return a->run - b->run;
}

rd_code sweep_rounds_decide(const sweep_rounds *r, sweep_list *l, int64_t step, rd_log *log,
                            rd_status *st)
{
    place *at = calloc((size_t)l->n + 1, sizeof *at);
    int n = 0, in = 0;
    if (!at) return rd_fail(st, RD_EENV, "out of memory for a comparison of runs");
    for (int i = 0; i < l->n; i++) {
        runs_facts f;
        double loss;
        if (l->at[i].out) continue;
        in++;
        if (l->at[i].code > 0) continue; /* a failure is no candidate */
        RD_TRY(runs_read(l->at[i].folder, l->at[i].name, &f, NULL, st));
        const double best = runs_best_until(&f, step, &loss);
        if (isfinite(best))
            at[n++] = (place){
                .run = i, .value = best, .loss = isnan(loss) ? HUGE_VAL : loss, .higher = f.higher};
        runs_facts_release(&f);
    }
    if (n == 0)
        rd_fail(st, RD_EUSAGE,
                "no run of the round has an evaluation by step %" PRIi64
                "; evaluate more often (eval_frequency), or begin --sweep_halving with more steps",
                step);
    RD_TRY(st->code);
    qsort(at, (size_t)n, sizeof *at, by_value);
    const int keep = (int)((in + r->factor - 1) / r->factor);
    for (int i = 0; i < l->n; i++) l->at[i].out = true;
    for (int i = 0; i < n && i < keep; i++) l->at[at[i].run].out = false;
    rd_info(log, "round %d, step %" PRIi64 ": the best %d of %d go on; first %s (%.6g)",
            l->decided + 1, step, keep < n ? keep : n, in, l->at[at[0].run].name, at[0].value);
    l->decided++;
done:
    free(at);
    return st->code;
}
