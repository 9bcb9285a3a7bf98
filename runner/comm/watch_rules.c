/* watch_rules.c -- which rank is to blame, from the last reports of all ranks. */
#include "rd/watch.h"
#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *name, *doing;
    double patience; /* factor of the limits */
} phases[RD_N_PHASES] = {
    {"start", "starting, before step", 10.0},
    {"input", "reading the batch of step", 1.0},
    {"compute", "computing step", 1.0},
    {"wait", "waiting for the others in step", 1.0},
    {"exchange", "exchanging gradients in step", 1.0},
    {"update", "updating weights in step", 1.0},
    {"save", "saving a checkpoint at step", 10.0},
    {"evaluate", "evaluating at step", 10.0},
    {"end", "done at step", 1.0},
};

/* Returns the phase, or RD_PHASE_START for an unknown number. */
static int watch_known_phase(int32_t phase)
{
    return phase >= 0 && phase < RD_N_PHASES ? phase : RD_PHASE_START;
}

const char *rd_phase_name(rd_phase p)
{
    return phases[watch_known_phase(p)].name;
}

rd_verdict rd_watch_judge(const rd_beat *b, int n, const rd_watch_limits *l, int *culprit,
                          int *n_waiting)
{
    int busy = -1;   /* of the ranks that work: the one without progress for the longest time */
    int behind = -1; /* of the ranks that wait: the one that is furthest behind */
    int last = -1;   /* of the ranks that wait: the one that arrived last */
    int still =
        -1;       /* of the ranks that are stopped: the one without progress for the longest time */
    int live = 0; /* number of ranks that work or wait */
    *culprit = -1;
    *n_waiting = 0;
    for (int i = 0; i < n; i++) {
        if (b[i].phase == RD_PHASE_END) continue;
        live += !b[i].gone;
        if (b[i].still && (still < 0 || b[i].age_s > b[still].age_s)) still = i;
        if (b[i].gone) {
            if (*culprit < 0 || b[i].age_s > b[*culprit].age_s) *culprit = i;
        } else if (b[i].phase == RD_PHASE_WAIT || b[i].phase == RD_PHASE_EXCHANGE) {
            ++*n_waiting;
            if (last < 0 || b[i].age_s < b[last].age_s) last = i;
            if (behind < 0 || b[i].step < b[behind].step ||
                (b[i].step == b[behind].step && b[i].age_s > b[behind].age_s))
                behind = i;
        } else if (busy < 0 ||
                   b[i].age_s / phases[watch_known_phase(b[i].phase)].patience >
                       b[busy].age_s / phases[watch_known_phase(b[busy].phase)].patience) {
            busy = i;
        }
    }
    if (*culprit >= 0) return RD_WATCH_LOST;
    *culprit = busy >= 0 ? busy : behind;
    if (*culprit < 0) return RD_WATCH_FINE;
    /* If all ranks wait, the sum runs since the last rank arrived. */
    const double age = busy >= 0 ? b[busy].age_s / phases[watch_known_phase(b[busy].phase)].patience
                                 : b[last].age_s;
    if (*culprit == behind) --*n_waiting;
    const rd_verdict v = l->abort_s > 0.0 && age > l->abort_s ? RD_WATCH_STALL
                         : l->warn_s > 0.0 && age > l->warn_s ? RD_WATCH_WARN
                                                              : RD_WATCH_FINE;
    if (v == RD_WATCH_FINE || still < 0) return v;
    *culprit = still;
    *n_waiting = live - 1;
    return v;
}

void rd_watch_describe(const rd_beat *b, rd_verdict v, int n_waiting, char *out, size_t n)
{
    char who[160], wait[64] = "";
    snprintf(who, sizeof who, "rank %" PRId32 " (%.63s, process %" PRId64 ")", b->rank, b->host,
             b->pid);
    if (n_waiting > 0)
        snprintf(wait, sizeof wait, "; %d rank%s wait%s for it", n_waiting, RD_S(n_waiting),
                 n_waiting == 1 ? "s" : "");
    if (v == RD_WATCH_LOST)
        snprintf(out, n,
                 "%s is gone: its process has ended or its host cannot be reached; it was last %s "
                 "%" PRId64
                 ", %.0f s ago; start the same command again to go on from the last checkpoint",
                 who, phases[watch_known_phase(b->phase)].doing, b->step, b->age_s);
    else
        snprintf(out, n, "%s has been %s %" PRId64 " for %.0f s%s", who,
                 phases[watch_known_phase(b->phase)].doing, b->step, b->age_s, wait);
}
