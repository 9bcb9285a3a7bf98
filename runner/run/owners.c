/* owners.c -- which model, dataset, optimizer, metric and learning-rate policy a config chooses, so
 * that keys that only others read are refused. */
#include "run.h"

#include "rd/metric.h"

#include <strings.h>

enum { MAX_OWNERS = 128 };

typedef struct owner_list {
    rd_option_owner at[MAX_OWNERS];
    int n;
} owner_list;

static void owners_add(owner_list *l, const char *kind, const char *name, const char *chosen,
                       const rd_option_group *group, const rd_option_group *own)
{
    if (l->n < MAX_OWNERS)
        l->at[l->n++] = (rd_option_owner){.kind = kind,
                                          .name = name,
                                          .group = {group, own},
                                          .chosen = chosen && strcasecmp(name, chosen) == 0};
}

static const char *owners_string(const rd_config *c, const char *key)
{
    return json_string_value(rd_config_get(c, key));
}

static void owners_of_data(const rd_config *c, owner_list *l)
{
    const char *model = owners_string(c, "model"), *data = owners_string(c, "dataset");
    const rd_model_def *def = rd_model_find(model ? model : "");
    int n = 0;
    const rd_model_def *const *models = rd_model_defs(&n);
    for (int i = 0; i < n; i++)
        owners_add(l, "model", models[i]->name, model, models[i]->group, models[i]->own);
    const rd_dataset_def *const *datasets = rd_dataset_defs(&n);
    if (!data && def) data = def->default_dataset;
    for (int i = 0; i < n; i++)
        owners_add(l, "dataset", datasets[i]->name, data, datasets[i]->group, datasets[i]->own);
}

static void owners_of_update(const rd_config *c, owner_list *l)
{
    const char *optimizer = owners_string(c, "optimizer"), *metric = owners_string(c, "metric");
    int n = 0;
    const rd_optimizer_def *const *optimizers = rd_optimizer_defs(&n);
    for (int i = 0; i < n; i++)
        owners_add(l, "optimizer", optimizers[i]->name, optimizer, optimizers[i]->group,
                   optimizers[i]->own);
    const rd_metric_def *const *metrics = rd_metric_defs(&n);
    for (int i = 0; i < n; i++)
        owners_add(l, "metric", metrics[i]->name, metric, metrics[i]->group, metrics[i]->own);
    const char *policy = owners_string(c, "lr_policy");
    if (!policy)
        policy = owners_string(c, "piecewise_learning_rate_schedule") ? "piecewise" : "decay";
    for (size_t i = 0; i < sizeof rd_group_policy / sizeof *rd_group_policy; i++)
        owners_add(l, "lr_policy", rd_group_policy[i].name, policy, &rd_group_policy[i], NULL);
}

rd_code run_check_owners(const rd_config *c, rd_strbuf *notes, rd_status *st)
{
    owner_list l = {.n = 0};
    owners_of_data(c, &l);
    owners_of_update(c, &l);
    return rd_config_check_owners(c, l.at, l.n, notes, st);
}
