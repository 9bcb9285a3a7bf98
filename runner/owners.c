/* owners.c -- the owners of keys, and which of them a config chooses. */
#include "rd/data.h"
#include "rd/metric.h"
#include "rd/model.h"
#include "rd/modes.h"
#include "rd/optim.h"

#include <strings.h>

typedef struct owner_list {
    rd_option_owner *at; /* [RD_MAX_OWNERS] */
    int n;
} owner_list;

static void owners_add(owner_list *l, const char *kind, const char *name, const char *about,
                       const char *chosen, const rd_option_group *group, const rd_option_group *own)
{
    if (l->n < RD_MAX_OWNERS)
        l->at[l->n++] = (rd_option_owner){.kind = kind,
                                          .name = name,
                                          .about = about,
                                          .group = {group, own},
                                          .chosen = chosen && strcasecmp(name, chosen) == 0};
}

static const char *owners_string(const rd_config *c, const char *key)
{
    return c ? json_string_value(rd_config_get(c, key)) : NULL;
}

static void owners_of_data(const rd_config *c, owner_list *l)
{
    const char *model = owners_string(c, "model"), *data = owners_string(c, "dataset");
    const rd_model_def *def = rd_model_find(model ? model : "");
    int n = 0;
    const rd_model_def *const *m = rd_model_defs(&n);
    for (int i = 0; i < n; i++) {
        owners_add(l, "model", m[i]->name, m[i]->about, model, m[i]->group, m[i]->own);
        l->at[l->n - 1].dataset = m[i]->default_dataset;
        l->at[l->n - 1].gives_keys = m[i]->keys != NULL;
    }
    const rd_dataset_def *const *d = rd_dataset_defs(&n);
    if (!data && def) data = def->default_dataset;
    for (int i = 0; i < n; i++)
        owners_add(l, "dataset", d[i]->name, d[i]->about, data, d[i]->group, d[i]->own);
}

static void owners_of_update(const rd_config *c, owner_list *l)
{
    const char *optimizer = owners_string(c, "optimizer"), *metric = owners_string(c, "metric");
    const char *policy = owners_string(c, "lr_policy");
    int n = 0;
    const rd_optimizer_def *const *o = rd_optimizer_defs(&n);
    for (int i = 0; i < n; i++)
        owners_add(l, "optimizer", o[i]->name, o[i]->about, optimizer, o[i]->group, o[i]->own);
    const rd_metric_def *const *m = rd_metric_defs(&n);
    for (int i = 0; i < n; i++)
        owners_add(l, "metric", m[i]->name, m[i]->about, metric, m[i]->group, m[i]->own);
    if (c && !policy)
        policy = owners_string(c, "piecewise_learning_rate_schedule") ? "piecewise" : "decay";
    for (size_t i = 0; i < sizeof rd_group_policy / sizeof *rd_group_policy; i++)
        owners_add(l, "lr_policy", rd_group_policy[i].name, rd_group_policy[i].about, policy,
                   &rd_group_policy[i], NULL);
}

int rd_option_owners(const rd_config *c, rd_option_owner out[RD_MAX_OWNERS])
{
    owner_list l = {.at = out};
    owners_of_data(c, &l);
    owners_of_update(c, &l);
    return l.n;
}

int rd_option_groups_read(const rd_config *c, const rd_option_group *out[RD_MAX_GROUPS])
{
    const rd_option_group *all[RD_MAX_GROUPS];
    rd_option_owner owners[RD_MAX_OWNERS];
    const int n = rd_option_groups(all), n_owners = rd_option_owners(c, owners);
    int n_read = 0;
    for (int i = 0; i < n; i++) {
        bool owned = false, chosen = false;
        for (int k = 0; k < n_owners; k++)
            for (int g = 0; g < 2; g++)
                if (owners[k].group[g] == all[i]) {
                    owned = true;
                    chosen |= owners[k].chosen;
                }
        if (!owned || chosen) out[n_read++] = all[i];
    }
    return n_read;
}
