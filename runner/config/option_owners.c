/* option_owners.c -- refuses keys that only other optimizers, datasets, models, metrics or
 * learning-rate policies read than those of this run. */
#include "config_impl.h"
#include <string.h>

enum { NAMED_OWNERS = 4 }; /* more owners than this are named by their group */

/* What a run does with an owner of a kind: "this run reads webdataset". */
static const char *verb_of(const char *kind)
{
    return !strcmp(kind, "dataset") ? "reads" : !strcmp(kind, "model") ? "trains" : "uses";
}

static const rd_option *row_of(const rd_option_group *g, const char *key)
{
    for (const rd_option *o = g ? g->options : NULL; o && o->key; o++)
        if (!strcmp(o->key, key)) return o;
    return NULL;
}

/* The row with which the owner reads the key; NULL: it does not read it. */
static const rd_option *owned_row(const rd_option_owner *w, const char *key)
{
    const rd_option *o = row_of(w->group[0], key);
    return o ? o : row_of(w->group[1], key);
}

static bool has_group(const rd_option_owner *w, const rd_option_group *g)
{
    return w->group[0] == g || w->group[1] == g;
}

/* Does every run read the key, since it is in a group that no owner has? */
static bool common_key(const rd_config *c, const rd_option_owner *owners, int n, const char *key)
{
    for (int i = 0; i < c->n_groups; i++) {
        bool owned = false;
        for (int k = 0; k < n && !owned; k++) owned = has_group(&owners[k], c->groups[i]);
        if (!owned && row_of(c->groups[i], key)) return true;
    }
    return false;
}

static const char *chosen_of(const rd_option_owner *owners, int n, const char *kind)
{
    for (int i = 0; i < n; i++)
        if (owners[i].chosen && !strcmp(owners[i].kind, kind)) return owners[i].name;
    return NULL;
}

/* Appends names as "a, b or c". */
static void join_names(const char *const *name, int n, char *out, size_t used, size_t cap)
{
    for (int i = 0; i < n && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s",
                                 i == 0       ? ""
                                 : i + 1 == n ? " or "
                                              : ", ",
                                 name[i]);
}

/* "optimizer lars, momentum or nesterov", or "the models of group image_model". */
static void name_owners(const rd_option_owner *owners, int n, const char *kind, const char *key,
                        char *out, size_t cap)
{
    const char *name[NAMED_OWNERS] = {NULL}, *group[NAMED_OWNERS] = {NULL};
    int found = 0, n_groups = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(owners[i].kind, kind) != 0 || !owned_row(&owners[i], key)) continue;
        const char *g = owners[i].group[row_of(owners[i].group[0], key) ? 0 : 1]->name;
        bool seen = false;
        for (int k = 0; k < n_groups; k++) seen |= strcmp(group[k], g) == 0;
        if (!seen && n_groups < NAMED_OWNERS) group[n_groups++] = g;
        if (found++ < NAMED_OWNERS) name[found - 1] = owners[i].name;
    }
    const bool by_group = found > NAMED_OWNERS;
    const size_t used = by_group ? (size_t)snprintf(out, cap, "the %ss of group ", kind)
                                 : (size_t)snprintf(out, cap, "%s ", kind);
    join_names(by_group ? group : name, by_group ? n_groups : found, out, used, cap);
}

/* Returns an owner that reads the key where the config chooses another part of its kind. NULL:
 * nothing is wrong with the key. */
static const rd_option_owner *foreign_owner(const rd_config *c, const rd_option_owner *owners,
                                            int n, const char *key)
{
    const rd_option_owner *foreign = NULL;
    for (int i = 0; i < n; i++) {
        if (!owned_row(&owners[i], key)) continue;
        if (owners[i].chosen || !chosen_of(owners, n, owners[i].kind)) return NULL;
        if (!foreign) foreign = &owners[i];
    }
    return foreign && !common_key(c, owners, n, key) ? foreign : NULL;
}

rd_code rd_config_replaced(const rd_config *c, const rd_option_owner *owners, int n,
                           const char *kind, json_t *found, rd_status *st)
{
    for (int i = 0; i < c->n; i++) {
        const rd_entry *e = &c->entry[i];
        const bool of_file = e->origin == RD_ORIGIN_FILE || e->origin == RD_ORIGIN_OPENSEQ2SEQ;
        const rd_option_owner *w = e->written && of_file ? foreign_owner(c, owners, n, e->o->key)
                                                         : NULL;
        char names[256];
        if (!w || strcmp(w->kind, kind) != 0) continue;
        name_owners(owners, n, w->kind, e->o->key, names, sizeof names);
        if (json_object_set_new(found, e->o->key,
                                json_sprintf("%s: '%s' belongs to %s", e->where, e->o->key, names)))
            return rd_fail(st, RD_EENV, "out of memory for the keys of the config");
    }
    return st->code;
}

rd_code rd_config_check_owners(const rd_config *c, const rd_option_owner *owners, int n,
                               rd_strbuf *notes, rd_status *st)
{
    for (int i = 0; i < c->n; i++) {
        const rd_entry *e = &c->entry[i];
        const char *key = e->o->key;
        const rd_option_owner *w = e->written ? foreign_owner(c, owners, n, key) : NULL;
        char names[256];
        if (!w) continue;
        name_owners(owners, n, w->kind, key, names, sizeof names);
        const char *chosen = chosen_of(owners, n, w->kind), *verb = verb_of(w->kind);
        /* The schedule chooses a policy, too. */
        const char *const partner[] = {
            w->kind, strcmp(w->kind, "lr_policy") ? NULL : "piecewise_learning_rate_schedule",
            NULL};
        if (c->allow_unknown ||
            (owned_row(w, key)->flags & RD_OPT_CARRIED && !rd_config_refuses(c, key, partner)))
            rd_strbuf_printf(notes,
                             "%s: '%s' has no effect: it belongs to %s, and this run %s %s\n",
                             e->where, key, names, verb, chosen);
        else
            return rd_fail(st, RD_EUSAGE,
                           "%s: '%s' belongs to %s; this run %s %s; remove the key, or give --set "
                           "%s=null",
                           e->where, key, names, verb, chosen, key);
    }
    return st->code;
}
