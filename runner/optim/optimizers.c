/* optimizers.c -- the registry of optimizers, which make writes, and the keys that all of them
 * read. */
#include "optim_impl.h"
#include <string.h>
#include <strings.h>

#define RD_ENTRY(name) extern const rd_optimizer_def rd_optimizer_##name;
#include "optimizers.inc"
#undef RD_ENTRY
#define RD_ENTRY(name) &rd_optimizer_##name,
static const rd_optimizer_def *const all[] = {
#include "optimizers.inc"
};
#undef RD_ENTRY
#define RD_ENTRY(name) #name,
static const char *const names[] = {
#include "optimizers.inc"
    NULL,
};
#undef RD_ENTRY

enum { TRAINING = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH };
#define T rd_optim_config

static const rd_option rows[] = {
    RD_OPT_NAME(T, optimizer, optimizer, NULL, names, "how weights follow from gradients",
                RD_REQUIRED(TRAINING)),
    RD_OPT_REAL(
        T, weight_decay, weight_decay, "0.0", 0.0, 1e6,
        "L2 factor: the gradient gets weight_decay times the weight added, after clipping "
        "and before the optimizer, so momentum and adam include it. The printed loss does "
        "not. Biases and the factors of norms are left out. adamw: decoupled, the weight falls "
        "by the rate times weight_decay times itself, and decay_exclude says where"),
    RD_OPT_BOOL(T, weight_decay_all, weight_decay_all, "false",
                "weight_decay also applies to biases and the factors of norms"),
    RD_OPT_REAL(T, max_grad_norm, max_grad_norm, NULL, 1e-30, 1e30,
                "gradients with a larger global norm are scaled down to this norm. Not with "
                "lars_nu",
                RD_GIVEN(T, has_max_grad_norm)),
    RD_OPT_REAL(T, lars_nu, lars_nu, NULL, 0.0, 1e30,
                "LARS for any optimizer: each variable's gradient is scaled by lars_nu |w| / |g|. "
                "Not with max_grad_norm",
                RD_GIVEN(T, has_lars_nu)),
    /* 1 / (loss_scale * weight of a batch) must be a float32 that is not flushed to 0. */
    RD_OPT_REAL(T, loss_scale, loss_scale, "1.0", 1e-30, 1e30,
                "the loss is multiplied by this before back-propagation, and the gradients are "
                "divided by it after. In mixed precision on a GPU without bfloat16 it is the first "
                "value (32768 if not given): halved after a step that overflowed, doubled after "
                "2000 steps in a row that did not",
                RD_GIVEN(T, has_loss_scale)),
    RD_OPT_REAL(T, ema, ema, "0.0", 0.0, 1.0,
                "keeps an average of the weights beside them, and evaluation and inference use it: "
                "update t, from 0, moves it by max(ema, 9 / (t + 10)) of the way to the weights, "
                "as Marian's exponential smoothing. 1e-4 is usual; 0: none"),
    RD_OPT_END};

const rd_option_group rd_group_optim = {"optimizer", "Optimizer, clipping, LARS", rows, sizeof(T)};

rd_code rd_optim_own_read(const rd_optimizer_def *def, const rd_config *cfg, rd_mode mode,
                          rd_optim_own *out, rd_status *st)
{
    if (!def->own) return st->code;
    if (def->own->struct_bytes > sizeof *out)
        return rd_fail(st, RD_EBUG, "the keys of optimizer %s take %zu bytes; %zu are there",
                       def->name, def->own->struct_bytes, sizeof *out);
    return rd_config_read(cfg, def->own, mode, out, st);
}

rd_code rd_optim_own_defaults(const rd_optimizer_def *def, rd_optim_own *out, rd_status *st)
{
    rd_config *none = NULL;
    *out = (rd_optim_own){.real = 0.0};
    if (!def->own) return st->code;
    RD_TRY(rd_config_new("defaults", "{}", 2, &def->own, 1, false, &none, st));
    RD_TRY(rd_optim_own_read(def, none, RD_MODE_TRAIN, out, st));
done:
    rd_config_free(none);
    return st->code;
}

rd_code rd_optim_read(const rd_config *cfg, rd_mode mode, rd_optim_config *out, rd_status *st)
{
    RD_TRY(rd_config_read(cfg, &rd_group_optim, mode, out, st));
    const rd_optimizer_def *def = rd_optimizer_find(out->optimizer);
    if (!def) goto done;
    if (def->group) RD_TRY(rd_config_read_more(cfg, def->group, mode, out, st));
    RD_TRY(rd_optim_own_read(def, cfg, mode, &out->own, st));
    out->has_own = true;
done:
    return st->code;
}

static const char *optimizers_where(const rd_config *cfg, const char *key)
{
    return cfg ? rd_config_where(cfg, key) : "config";
}

rd_code rd_optim_check(const rd_optim_config *c, const rd_config *cfg, rd_status *st)
{
    const rd_optimizer_def *def = rd_optimizer_find(c->optimizer);
    const bool lars = def && def->trust_ratio;
    if (c->has_lars_nu && c->has_max_grad_norm)
        return rd_fail(st, RD_EUSAGE,
                       "'lars_nu' %g (%s) and 'max_grad_norm' %g (%s) exclude each other: LARS "
                       "sets the size of every gradient itself; remove one of the two keys, as "
                       "--set max_grad_norm=null does",
                       c->lars_nu, optimizers_where(cfg, "lars_nu"), c->max_grad_norm,
                       optimizers_where(cfg, "max_grad_norm"));
    if (c->has_lars_nu && (lars || c->weight_decay != 0.0))
        return rd_fail(st, RD_EUSAGE,
                       "'lars_nu' %g (%s) and '%s' (%s) exclude each other: \"optimizer\": "
                       "\"lars\" with 'lars_eta' has a trust ratio that knows of the decay; remove "
                       "'lars_nu', as --set lars_nu=null does",
                       c->lars_nu, optimizers_where(cfg, "lars_nu"),
                       lars ? "optimizer" : "weight_decay",
                       optimizers_where(cfg, lars ? "optimizer" : "weight_decay"));
    if (lars && c->has_max_grad_norm)
        return rd_fail(
            st, RD_EUSAGE,
            "'optimizer' %s (%s) and 'max_grad_norm' %g (%s) exclude each other: LARS sets the "
            "size of every gradient itself; remove 'max_grad_norm', as --set max_grad_norm=null "
            "does",
            def->name, optimizers_where(cfg, "optimizer"), c->max_grad_norm,
            optimizers_where(cfg, "max_grad_norm"));
    if (c->weight_decay_all && def && def->decays)
        return rd_fail(
            st, RD_EUSAGE,
            "'optimizer' %s (%s) and 'weight_decay_all' (%s) exclude each other: 'decay_exclude' "
            "says what %s decays; remove 'weight_decay_all', and set \"decay_exclude\": \"none\" "
            "to decay all",
            def->name, optimizers_where(cfg, "optimizer"),
            optimizers_where(cfg, "weight_decay_all"), def->name);
    return RD_OK;
}

const rd_optimizer_def *rd_optimizer_find(const char *name)
{
    if (!name) return NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcasecmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}

const rd_optimizer_def *const *rd_optimizer_defs(int *n)
{
    *n = (int)(sizeof all / sizeof *all);
    return all;
}
