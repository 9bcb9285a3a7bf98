/* schedule_banner.c -- the learning rate in the banner: each boundary as in the config and as a
 * step of this number of ranks, with the rate that follows. */
#include "rd/optim.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static bool schedule_banner_scaled(const rd_schedule_config *c)
{
    return c->lr_scaling != RD_SCALE_NONE;
}

/* Returns the first step of one rank at which the decay has reached min_learning_rate; -1: none. */
static int64_t floor_step(const rd_schedule_config *c)
{
    const double far = 1e15;
    if (rd_schedule_base(c, 0.0) <= c->min_learning_rate) return 0;
    if (c->decay_rate >= 1.0 || rd_schedule_base(c, far) > c->min_learning_rate) return -1;
    int64_t lo = 0, hi = (int64_t)far; /* above the floor at lo, on it at hi */
    while (hi - lo > 1) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (rd_schedule_base(c, (double)mid) > c->min_learning_rate)
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}

static void boundary(const rd_schedule_config *c, int n_ranks, const char *what, int64_t base,
                     rd_strbuf *b)
{
    const int64_t step = rd_schedule_step(c, base, n_ranks);
    if (step < 0) {
        rd_strbuf_printf(b, "  %-18s passed (config: %" PRId64 ")\n", what, base);
        return;
    }
    rd_strbuf_printf(b, "  %-18s step %" PRId64, what, step);
    if (step != base) rd_strbuf_printf(b, " (config: %" PRId64 ")", base);
    rd_strbuf_printf(b, ", rate %.6g\n", rd_schedule_at(c, step, n_ranks));
}

/* Appends the line of a boundary that the config has in epochs. */
static void epoch_boundary(const rd_schedule_config *c, int n_ranks, const char *what, double epoch,
                           rd_strbuf *b)
{
    rd_strbuf_printf(b, "  %-18s epoch %.6g", what, epoch);
    if (epoch < c->origin_epoch) {
        rd_strbuf_puts(b, " passed\n");
        return;
    }
    if (c->epoch_steps > 0.0) {
        const int64_t step = c->origin_step +
                             (int64_t)ceil((epoch - c->origin_epoch) * c->epoch_steps - 1e-9);
        rd_strbuf_printf(b, " = step %" PRId64 ", rate %.6g", step,
                         rd_schedule_at(c, step, n_ranks));
    }
    rd_strbuf_puts(b, "\n");
}

static void decay_lines(const rd_schedule_config *c, int n_ranks, rd_strbuf *b)
{
    if (!c->use_decay) return;
    const int64_t at_floor = floor_step(c);
    if (at_floor == 0) {
        rd_strbuf_printf(
            b,
            "  min_learning_rate %.6g is not below learning_rate: it is the rate of every step\n",
            c->min_learning_rate);
        return;
    }
    boundary(c, n_ranks, "decay begins", c->begin_decay_at, b);
    for (int k = 1; k <= 3; k++) {
        const int64_t at = c->begin_decay_at + k * c->decay_steps;
        char what[32];
        snprintf(what, sizeof what, "decay period %d", k);
        if (at_floor < 0 || at < at_floor) boundary(c, n_ranks, what, at, b);
    }
    if (at_floor > 0) boundary(c, n_ranks, "floor reached", at_floor, b);
}

static void piece_lines(const rd_schedule_config *c, int n_ranks, rd_strbuf *b)
{
    rd_pieces p;
    rd_status st = {0};
    const bool steps = c->lr_boundary_unit == RD_LR_STEPS;
    if (rd_schedule_pieces(c->piecewise_learning_rate_schedule, &p, &st) != RD_OK) return;
    for (int i = 0; i + 1 < p.n; i++) {
        char what[48];
        snprintf(what, sizeof what, "then %.6g", p.rate[i + 1]);
        if (steps)
            boundary(c, n_ranks, what, (int64_t)ceil(p.at[i]), b);
        else
            epoch_boundary(c, n_ranks, what, p.at[i], b);
    }
}

/* Appends the lines of a polynomial, cosine or wsd schedule: begin, half way, end. */
static void smooth_lines(const rd_schedule_config *c, int n_ranks, const char *name, rd_strbuf *b)
{
    char begins[32];
    snprintf(begins, sizeof begins, "%s begins", name);
    if (c->has_steps) {
        const int64_t at = c->has_begin ? c->begin_decay_at : c->warmup_steps;
        boundary(c, n_ranks, begins, at, b);
        boundary(c, n_ranks, "half way", at + c->decay_steps / 2, b);
        boundary(c, n_ranks, "end reached", at + c->decay_steps, b);
    } else {
        const double at = rd_schedule_begin_epoch(c);
        const double end = c->has_end_epoch ? c->decay_end_epoch : c->end_epoch;
        epoch_boundary(c, n_ranks, begins, at, b);
        epoch_boundary(c, n_ranks, "half way", at + (end - at) / 2, b);
        epoch_boundary(c, n_ranks, "end reached", end, b);
    }
}

/* Appends the lines of inv_sqrt: the first, highest and half of the highest rate, and the floor. */
static void inv_sqrt_lines(const rd_schedule_config *c, int n_ranks, rd_strbuf *b)
{
    /* The rate of step s is that of position s + from of a sequence that falls as 1 / sqrt(s). */
    const int64_t from = c->inv_sqrt_form == RD_INV_SQRT_FAIRSEQ ? 0 : 1;
    const int64_t w = c->warmup_steps > 1 ? c->warmup_steps : 1, top = w - from;
    const double highest = rd_schedule_base(c, (double)top), floor = c->min_learning_rate;
    if (top > 0) boundary(c, n_ranks, "warm-up begins", 0, b);
    boundary(c, n_ranks, "highest rate", top, b);
    if (floor <= highest / 2) boundary(c, n_ranks, "half of it", 4 * w - from, b);
    if (!(floor > 0.0)) return;
    const double at = ceil((double)w * (highest / floor) * (highest / floor) * (1.0 - 1e-12));
    if (at < 1e15) boundary(c, n_ranks, "floor reached", (int64_t)at - from, b);
}

bool rd_schedule_idle_warmup(const rd_schedule_config *c)
{
    return (c->warmup_steps > 0 || c->warmup_epochs > 0.0) && !schedule_banner_scaled(c) &&
           !c->has_warmup_start && rd_schedule_policy(c) != RD_LR_INV_SQRT;
}

static void warmup_lines(const rd_schedule_config *c, int n_ranks, rd_strbuf *b)
{
    const double f = rd_schedule_factor(c, n_ranks);
    if (c->warmup_steps == 0 && c->warmup_epochs == 0.0) return;
    if (rd_schedule_policy(c) == RD_LR_INV_SQRT) return;
    if (rd_schedule_idle_warmup(c)) {
        rd_strbuf_puts(b, "  no warm-up: lr_scaling none has no factor to grow; warmup_start says "
                          "where it begins\n");
        return;
    }
    if (f <= 1.0 && !c->has_warmup_start) return;
    if (c->has_warmup_start)
        rd_strbuf_printf(b, "  %-18s rate %.6g\n", "warm-up begins",
                         c->warmup_start * f * rd_schedule_base(c, 0.0));
    if (c->warmup_steps > 0)
        boundary(c, n_ranks, "warm-up ends", c->warmup_steps, b);
    else
        epoch_boundary(c, n_ranks, "warm-up ends", c->warmup_epochs, b);
}

void rd_schedule_describe(const rd_schedule_config *c, int n_ranks, rd_strbuf *b)
{
    const double f = rd_schedule_factor(c, n_ranks);
    rd_strbuf_printf(b, "config %.6g, lr_scaling %s for %d rank%s: factor %.6g, effective %.6g\n",
                     c->learning_rate,
                     rd_option_word(&rd_group_schedule, "lr_scaling", (int)c->lr_scaling), n_ranks,
                     n_ranks == 1 ? "" : "s", f, f * c->learning_rate);
    warmup_lines(c, n_ranks, b);
    switch (rd_schedule_policy(c)) {
    case RD_LR_DECAY:
        decay_lines(c, n_ranks, b);
        break;
    case RD_LR_PIECEWISE:
        piece_lines(c, n_ranks, b);
        break;
    case RD_LR_POLYNOMIAL:
        smooth_lines(c, n_ranks, "polynomial", b);
        break;
    case RD_LR_COSINE:
        smooth_lines(c, n_ranks, "cosine", b);
        break;
    case RD_LR_WSD:
        smooth_lines(c, n_ranks, "wsd decay", b);
        break;
    case RD_LR_INV_SQRT:
        inv_sqrt_lines(c, n_ranks, b);
        break;
    }
    if (c->has_plateau)
        rd_strbuf_printf(b,
                         "  plateau: times %.6g after %" PRId64
                         " evaluation%s without a gain of %.6g, not below %.6g\n",
                         c->plateau_factor, c->plateau_patience,
                         c->plateau_patience == 1 ? "" : "s", c->plateau_min_delta,
                         f * c->plateau_min_lr);
}
