/* schedule_check.c -- checks keys of the schedule that need or exclude each other. */
#include "rd/optim.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *schedule_check_where(const rd_config *cfg, const char *key)
{
    return cfg ? rd_config_where(cfg, key) : "config";
}

static rd_code check_decay(const rd_schedule_config *c, const rd_config *cfg, rd_status *st)
{
    if (!c->use_decay) return RD_OK;
    const struct {
        const char *key;
        bool has;
    } need[] = {{"begin_decay_at", c->has_begin},
                {"decay_steps", c->has_steps},
                {"decay_rate", c->has_rate},
                {"use_staircase_decay", c->has_staircase},
                {"min_learning_rate", c->has_min}};
    char missing[128] = "";
    int n = 0;
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (!need[i].has) {
            const size_t used = strlen(missing);
            snprintf(missing + used, sizeof missing - used, "%s'%s'", n++ ? ", " : "", need[i].key);
        }
    if (n == 0) return RD_OK;
    return rd_fail(st, RD_EUSAGE,
                   "%s: 'use_decay' is true and %s %s missing; add %s or set 'use_decay' to false",
                   schedule_check_where(cfg, "use_decay"), missing, n == 1 ? "is" : "are",
                   n == 1 ? "it" : "them");
}

/* Fails because the keys a and b exclude each other. what: the reason, and what to do. */
static rd_code exclude(const rd_config *cfg, const char *a, const char *b, const char *what,
                       rd_status *st)
{
    return rd_fail(st, RD_EUSAGE, "'%s' (%s) and '%s' (%s) exclude each other: %s", a,
                   schedule_check_where(cfg, a), b, schedule_check_where(cfg, b), what);
}

static rd_code check_piecewise(const rd_schedule_config *c, const rd_config *cfg, rd_status *st)
{
    static const char *const key = "piecewise_learning_rate_schedule";
    rd_pieces p;
    if (!c->piecewise_learning_rate_schedule)
        return rd_fail(
            st, RD_EUSAGE,
            "%s: 'lr_policy' is piecewise and '%s' is missing; add it, as \"0.1;30;0.01\"",
            schedule_check_where(cfg, "lr_policy"), key);
    if (c->has_min)
        return exclude(cfg, "min_learning_rate", key,
                       "its last rate is the lowest; remove one of them", st);
    if (rd_schedule_pieces(c->piecewise_learning_rate_schedule, &p, st) != RD_OK) return st->code;
    if (p.rate[0] != c->learning_rate)
        return rd_fail(
            st, RD_EUSAGE,
            "'learning_rate' is %g (%s) and '%s' (%s) begins with %g; make them equal, or leave "
            "'learning_rate' out",
            c->learning_rate, schedule_check_where(cfg, "learning_rate"), key,
            schedule_check_where(cfg, key), p.rate[0]);
    return RD_OK;
}

/* Checks polynomial, cosine and wsd. Their begin and end must be in one unit. */
static rd_code check_smooth(const rd_schedule_config *c, const rd_config *cfg, rd_status *st)
{
    const bool steps = c->has_begin || c->has_steps,
               epochs = c->has_begin_epoch || c->has_end_epoch;
    if (c->piecewise_learning_rate_schedule)
        return exclude(cfg, "lr_policy", "piecewise_learning_rate_schedule", "remove one of them",
                       st);
    if (steps && epochs)
        return exclude(cfg, c->has_steps ? "decay_steps" : "begin_decay_at",
                       c->has_end_epoch ? "decay_end_epoch" : "decay_begin_epoch",
                       "the way is written in steps or in epochs, not in both", st);
    if (c->has_begin && !c->has_steps)
        return rd_fail(
            st, RD_EUSAGE,
            "%s: 'begin_decay_at' is set and 'decay_steps', the length of the way, is missing",
            schedule_check_where(cfg, "begin_decay_at"));
    if (rd_schedule_policy(c) == RD_LR_WSD) {
        if (c->has_steps && !c->has_begin)
            return rd_fail(st, RD_EUSAGE,
                           "%s: 'decay_steps' is set and 'begin_decay_at', where the decay of wsd "
                           "begins, is missing; add it, or use 'decay_fraction' instead",
                           schedule_check_where(cfg, "decay_steps"));
        if (c->has_fraction && (c->has_begin || c->has_begin_epoch))
            return exclude(cfg, "decay_fraction",
                           c->has_begin ? "begin_decay_at" : "decay_begin_epoch",
                           "the decay begins at one place; remove one of them", st);
    }
    if (c->has_begin_epoch && c->has_end_epoch && c->decay_end_epoch <= c->decay_begin_epoch)
        return rd_fail(st, RD_EUSAGE,
                       "'decay_end_epoch' %g (%s) does not come after 'decay_begin_epoch' %g",
                       c->decay_end_epoch, schedule_check_where(cfg, "decay_end_epoch"),
                       c->decay_begin_epoch);
    if (c->min_learning_rate > c->learning_rate)
        return rd_fail(
            st, RD_EUSAGE,
            "'min_learning_rate' %g (%s), where the rate ends, is above 'learning_rate' %g",
            c->min_learning_rate, schedule_check_where(cfg, "min_learning_rate"), c->learning_rate);
    return RD_OK;
}

static rd_code check_inv_sqrt(const rd_schedule_config *c, const rd_config *cfg, rd_status *st)
{
    const bool fairseq = c->inv_sqrt_form == RD_INV_SQRT_FAIRSEQ;
    if (c->piecewise_learning_rate_schedule)
        return exclude(cfg, "lr_policy", "piecewise_learning_rate_schedule", "remove one of them",
                       st);
    if (c->warmup_epochs > 0.0)
        return exclude(cfg, "lr_policy", "warmup_epochs",
                       "inv_sqrt counts in steps; write 'warmup_steps' instead", st);
    if (c->has_warmup_start)
        return exclude(cfg, "lr_policy", "warmup_start",
                       "inv_sqrt has its own warm-up, which begins at 'warmup_init_lr' in the "
                       "form fairseq; remove 'warmup_start'",
                       st);
    if (c->has_init_lr && !fairseq)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'warmup_init_lr' is of \"inv_sqrt_form\": \"fairseq\"; remove it, or "
                       "set that",
                       schedule_check_where(cfg, "warmup_init_lr"));
    if (fairseq && c->warmup_steps == 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'inv_sqrt_form' is fairseq and 'warmup_steps', which says where the "
                       "rate begins to fall, is missing; add it, as 4000",
                       schedule_check_where(cfg, "inv_sqrt_form"));
    const double w = c->warmup_steps > 1 ? (double)c->warmup_steps : 1.0;
    const double highest = fairseq ? c->learning_rate : c->learning_rate / sqrt(w);
    if (c->min_learning_rate > highest)
        return rd_fail(st, RD_EUSAGE,
                       "'min_learning_rate' %g (%s), below which the rate does not fall, is above "
                       "%g, the highest rate of inv_sqrt",
                       c->min_learning_rate, schedule_check_where(cfg, "min_learning_rate"),
                       highest);
    if (c->warmup_init_lr > c->learning_rate)
        return rd_fail(st, RD_EUSAGE,
                       "'warmup_init_lr' %g (%s), where the warm-up begins, is above "
                       "'learning_rate' %g",
                       c->warmup_init_lr, schedule_check_where(cfg, "warmup_init_lr"),
                       c->learning_rate);
    return RD_OK;
}

static rd_code check_plateau(const rd_schedule_config *c, const rd_config *cfg, rd_status *st)
{
    static const char *const keys[] = {"plateau_patience",
                                       "plateau_min_delta",
                                       "plateau_cooldown",
                                       "plateau_min_lr",
                                       "plateau_monitor",
                                       "plateau_restore",
                                       NULL};
    if (c->has_plateau || !cfg) return RD_OK;
    for (int i = 0; keys[i]; i++)
        if (rd_config_has(cfg, keys[i]))
            return rd_fail(
                st, RD_EUSAGE,
                "%s: '%s' is set and 'plateau_factor', which turns the rule on, is missing",
                schedule_check_where(cfg, keys[i]), keys[i]);
    return RD_OK;
}

rd_code rd_schedule_check(const rd_schedule_config *c, const rd_config *cfg, rd_status *st)
{
    const rd_lr_policy policy = rd_schedule_policy(c);
    const bool smooth = policy == RD_LR_POLYNOMIAL || policy == RD_LR_COSINE || policy == RD_LR_WSD;
    if (c->warmup_steps > 0 && c->warmup_epochs > 0.0)
        return exclude(cfg, "warmup_steps", "warmup_epochs",
                       "the warm-up has one length; remove one of them", st);
    if (c->has_warmup_start && c->warmup_steps == 0 && c->warmup_epochs == 0.0)
        return rd_fail(
            st, RD_EUSAGE,
            "%s: 'warmup_start' is set and 'warmup_epochs' (or 'warmup_steps') is missing",
            schedule_check_where(cfg, "warmup_start"));
    if (c->use_decay && policy != RD_LR_DECAY)
        return exclude(cfg, c->has_policy ? "lr_policy" : "piecewise_learning_rate_schedule",
                       "use_decay", "use_decay belongs to the policy decay; remove one of them",
                       st);
    if (!smooth && (c->has_begin_epoch || c->has_end_epoch))
        return rd_fail(st, RD_EUSAGE,
                       "%s: '%s' is of \"lr_policy\": \"polynomial\", \"cosine\" or \"wsd\"; "
                       "remove it, or set that",
                       schedule_check_where(cfg, c->has_end_epoch ? "decay_end_epoch"
                                                                  : "decay_begin_epoch"),
                       c->has_end_epoch ? "decay_end_epoch" : "decay_begin_epoch");
    if (policy == RD_LR_DECAY && c->piecewise_learning_rate_schedule)
        return exclude(cfg, "lr_policy", "piecewise_learning_rate_schedule", "remove one of them",
                       st);
    RD_TRY(check_plateau(c, cfg, st));
    if (policy == RD_LR_PIECEWISE)
        RD_TRY(check_piecewise(c, cfg, st));
    else if (smooth)
        RD_TRY(check_smooth(c, cfg, st));
    else if (policy == RD_LR_INV_SQRT)
        RD_TRY(check_inv_sqrt(c, cfg, st));
    else
        RD_TRY(check_decay(c, cfg, st));
done:
    return st->code;
}
