/* optim_defaults.h -- an rd_optim_config for tests that set the rest, and one from keys as a config
 * has them. */
#ifndef RD_OPTIM_DEFAULTS_H
#define RD_OPTIM_DEFAULTS_H

#include "rd/optim.h"
#include <stdio.h>

/* rd_optim_new fills in the defaults of the keys that only one optimizer reads. */
static const rd_optim_config optim_defaults = {.opt_momentum = 0.9, .loss_scale = 1.0};

/* Reads the config of an optimizer. keys: a part of a JSON object, such as "\"lars_eta\": 0.01";
 * "": none. */
static inline rd_code optim_from_keys(const char *optimizer, const char *keys, rd_optim_config *out,
                                      rd_status *st)
{
    const rd_optimizer_def *def = rd_optimizer_find(optimizer);
    const rd_option_group *groups[3] = {&rd_group_optim};
    rd_config *c = NULL;
    char text[1024];
    int n = 1;
    if (!def) return rd_fail(st, RD_EBUG, "no optimizer %s", optimizer);
    if (def->group) groups[n++] = def->group;
    if (def->own) groups[n++] = def->own;
    const int bytes = snprintf(text, sizeof text, "{\"optimizer\": \"%s\"%s%s}", optimizer,
                               keys[0] ? ", " : "", keys);
    RD_TRY(rd_config_new("keys", text, (size_t)bytes, groups, n, false, &c, st));
    RD_TRY(rd_optim_read(c, RD_MODE_TRAIN, out, st));
    out->optimizer = def->name; /* the config goes */
done:
    rd_config_free(c);
    return st->code;
}

#endif
