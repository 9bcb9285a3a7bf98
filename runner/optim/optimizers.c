/* optimizers.c -- the list of optimizers, which make writes from the names in optimizers/, and the keys they read. */
#include "rd/optim.h"
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
    RD_OPT_REAL(T, opt_momentum, opt_momentum, "0.9", 0.0, 1.0,
                "momentum, nesterov, lars: share of the last step that is kept"),
    RD_OPT_REAL(T, adam_beta1, adam_beta1, "0.9", 0.0, 0.999999, "adam: decay of the first moment"),
    RD_OPT_REAL(T, adam_beta2, adam_beta2, "0.999", 0.0, 0.999999,
                "adam: decay of the second moment"),
    RD_OPT_REAL(T, adam_epsilon, adam_epsilon, "1e-8", 1e-30, 1e6,
                "adam: added to the root, outside the bias correction"),
    RD_OPT_REAL(T, adagrad_init, adagrad_init, "0.1", 1e-30, 1e30,
                "adagrad: first value of the accumulator"),
    RD_OPT_REAL(T, adadelta_rho, adadelta_rho, "0.95", 0.0, 1.0,
                "adadelta: decay of both accumulators"),
    RD_OPT_REAL(T, adadelta_epsilon, adadelta_epsilon, "1e-8", 1e-30, 1e6,
                "adadelta: added under both roots"),
    RD_OPT_REAL(T, rmsprop_decay, rmsprop_decay, "0.9", 0.0, 1.0,
                "rmsprop: decay of the mean square"),
    RD_OPT_REAL(T, rmsprop_momentum, rmsprop_momentum, "0.9", 0.0, 1.0,
                "rmsprop: share of the last step that is kept"),
    RD_OPT_REAL(
        T, rmsprop_epsilon, rmsprop_epsilon, "1.0", 1e-30, 1e6,
        "rmsprop: added under the root (1.0 as in tf_cnn_benchmarks; TensorFlow's own is 1e-10)"),
    RD_OPT_REAL(T, lars_eta, lars_eta, "0.001", 0.0, 1e6,
                "lars: trust ratio of a variable is lars_eta |w| / (|g| + weight_decay |w| + "
                "lars_epsilon)"),
    RD_OPT_REAL(T, lars_epsilon, lars_epsilon, "0.0", 0.0, 1e6,
                "lars: added under the line of the trust ratio"),
    RD_OPT_REAL(
        T, weight_decay, weight_decay, "0.0", 0.0, 1e6,
        "L2: this times the weight is added to the gradient, after clipping and before the "
        "optimizer, so momentum "
        "and adam see it; the printed loss is without it. Not for biases and the factors of norms"),
    RD_OPT_BOOL(T, weight_decay_all, weight_decay_all, "false",
                "weight_decay is for all variables, biases and the factors of norms too"),
    RD_OPT_REAL(T, max_grad_norm, max_grad_norm, NULL, 1e-30, 1e30,
                "gradients whose global norm is above this are scaled down to it; not with lars_nu",
                RD_GIVEN(T, has_max_grad_norm)),
    RD_OPT_REAL(T, lars_nu, lars_nu, NULL, 0.0, 1e30,
                "LARS: each variable's gradient is scaled by lars_nu |w| / |g|; not with "
                "max_grad_norm",
                RD_GIVEN(T, has_lars_nu)),
    /* Times the weight of a batch it must have a reciprocal in float32 that is not flushed to 0. */
    RD_OPT_REAL(
        T, loss_scale, loss_scale, "1.0", 1e-30, 1e30,
        "the loss is multiplied by this before, the gradients divided by it after, "
        "back-propagation. In mixed precision on a GPU "
        "without bfloat16 it is the first value, 32768 where it is not given: halved after a "
        "step that overflowed, doubled "
        "after 2000 in a row that did not",
        RD_GIVEN(T, has_loss_scale)),
    RD_OPT_END};

const rd_option_group rd_group_optim = {"optimizer", "Optimizer, clipping, LARS", rows, sizeof(T)};

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
                       "sets the size of every gradient "
                       "itself; remove one of the two keys, as --set max_grad_norm=null does",
                       c->lars_nu, optimizers_where(cfg, "lars_nu"), c->max_grad_norm,
                       optimizers_where(cfg, "max_grad_norm"));
    if (c->has_lars_nu && (lars || c->weight_decay != 0.0))
        return rd_fail(st, RD_EUSAGE,
                       "'lars_nu' %g (%s) and '%s' (%s) exclude each other: \"optimizer\": "
                       "\"lars\" with 'lars_eta' "
                       "has a trust ratio that knows of the decay; remove 'lars_nu', as --set "
                       "lars_nu=null does",
                       c->lars_nu, optimizers_where(cfg, "lars_nu"),
                       lars ? "optimizer" : "weight_decay",
                       optimizers_where(cfg, lars ? "optimizer" : "weight_decay"));
    if (lars && c->has_max_grad_norm)
        return rd_fail(
            st, RD_EUSAGE,
            "'optimizer' %s (%s) and 'max_grad_norm' %g (%s) exclude each other: LARS sets the "
            "size of "
            "every gradient itself; remove 'max_grad_norm', as --set max_grad_norm=null does",
            def->name, optimizers_where(cfg, "optimizer"), c->max_grad_norm,
            optimizers_where(cfg, "max_grad_norm"));
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
