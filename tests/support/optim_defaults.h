/* optim_defaults.h -- an rd_optim_config for tests that set the rest. */
#ifndef RD_OPTIM_DEFAULTS_H
#define RD_OPTIM_DEFAULTS_H

#include "rd/optim.h"

static const rd_optim_config optim_defaults = {.opt_momentum = 0.9,
                                               .adam_beta1 = 0.9,
                                               .adam_beta2 = 0.999,
                                               .adam_epsilon = 1e-8,
                                               .adagrad_init = 0.1,
                                               .adadelta_rho = 0.95,
                                               .adadelta_epsilon = 1e-8,
                                               .rmsprop_decay = 0.9,
                                               .rmsprop_momentum = 0.9,
                                               .rmsprop_epsilon = 1.0,
                                               .lars_eta = 0.01,
                                               .loss_scale = 1.0};

#endif
