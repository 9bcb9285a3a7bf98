/* defaults.c -- prints the values of keys that nobody wrote, in lines of at most 100 columns. */
#include "defaults.h"
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 100 };

/* Appends "key value" to the line, and prints the line first if it would be too long. */
static void defaults_put(const rd_run *r, rd_strbuf *line, const char *key, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    const size_t n = strlen(key) + (text ? strlen(text) : 0) + 3;
    if (line->n > 0 && line->n + n > COLUMNS) {
        rd_info(r->log, "  %s", rd_strbuf_str(line));
        rd_strbuf_reset(line);
    }
    rd_strbuf_printf(line, "%s%s %s", line->n > 0 ? ", " : "", key, text ? text : "?");
    free(text);
}

/* Is the value one that the program or the model gives? */
static bool defaults_own(const rd_run *r, const char *key)
{
    const char *where = rd_config_where(r->keys, key);
    return strcmp(where, "default") == 0 || strncmp(where, "model ", 6) == 0;
}

void defaults_report(const rd_run *r)
{
    const rd_dataset_def *d = rd_dataset_def_of(r->train_data);
    const rd_optimizer_def *o = r->optim ? rd_optim_def(r->optim) : NULL;
    const rd_option_group *groups[RD_MAX_GROUPS];
    rd_strbuf line = {0};
    int n = 0;
    n = rd_groups_add(groups, n, d->group);
    n = rd_groups_add(groups, n, d->own);
    n = rd_groups_add(groups, n, r->model->group);
    n = rd_groups_add(groups, n, r->model->own);
    n = rd_groups_add(groups, n, &rd_group_run);
    n = rd_groups_add(groups, n, &rd_group_schedule);
    n = rd_groups_add(groups, n, &rd_group_optim);
    n = rd_groups_add(groups, n, o ? o->group : NULL);
    n = rd_groups_add(groups, n, o ? o->own : NULL);
    rd_info(r->log, "keys that the config does not have:");
    json_t *seen = json_object();
    for (int g = 0; g < n; g++)
        for (const rd_option *k = groups[g]->options; k->key; k++) {
            const json_t *v = rd_config_get(r->keys, k->key);
            if (!v || (k->flags & RD_OPT_ACCEPTED) || !defaults_own(r, k->key) ||
                json_object_get(seen, k->key))
                continue;
            (void)json_object_set_new(seen, k->key, json_true());
            defaults_put(r, &line, k->key, v);
        }
    if (line.n > 0) rd_info(r->log, "  %s", rd_strbuf_str(&line));
    rd_strbuf_release(&line);
    json_decref(seen);
}
