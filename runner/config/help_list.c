/* help_list.c -- the answers of --list: the entries of the registries, the modes and the
 * experiments. */
#include "help_impl.h"

#include <string.h>

/* Kinds of --list, and the key that chooses an entry. */
static const char *const list_kinds[][2] = {{"models", "model"},
                                            {"datasets", "dataset"},
                                            {"optimizers", "optimizer"},
                                            {"metrics", "metric"},
                                            {"schedules", "lr_policy"}};
enum { N_LIST_KINDS = sizeof list_kinds / sizeof *list_kinds };
const char *const rd_list_words[] = {"models",    "datasets", "optimizers", "metrics",
                                     "schedules", "modes",    "configs",    NULL};

static void list_owners(const char *key, const rd_option_owner *owners, int n, FILE *out)
{
    int width = 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(owners[i].kind, key) && (int)strlen(owners[i].name) > width)
            width = (int)strlen(owners[i].name);
    for (int i = 0; i < n; i++) {
        char left[96];
        if (strcmp(owners[i].kind, key) != 0) continue;
        snprintf(left, sizeof left, "  %s", owners[i].name);
        rd_help_pair(out, left, owners[i].about ? owners[i].about : "", width + 4);
    }
    fprintf(out, "\nchosen by the key '%s': --set %s=NAME; --help=%s says more\n", key, key, key);
}

static void list_modes(FILE *out)
{
    const rd_topic *t = rd_topic_named("modes");
    for (int i = 0; t && i < t->n_rows; i++) {
        char left[96];
        snprintf(left, sizeof left, "  %s", t->rows[i][0]);
        rd_help_pair(out, left, t->rows[i][1], 21);
    }
    fputs("\nchosen by --mode=NAME; --help=modes says more\n", out);
}

/* The kind that a word means: in one number or the other, in any case. NULL: none. */
static const char *list_kind(const char *word)
{
    char plural[64];
    snprintf(plural, sizeof plural, "%.60ss", word);
    for (int i = 0; rd_list_words[i]; i++)
        if (!strcmp(rd_list_words[i], word) || !strcmp(rd_list_words[i], plural))
            return rd_list_words[i];
    return NULL;
}

rd_code rd_help_list(const char *kind, const rd_option_owner *owners, int n_owners, FILE *out,
                     rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    const char *found = list_kind(kind);
    if (!found) {
        const char *nearest = rd_nearest(kind, rd_list_words, N_LIST_KINDS + 2);
        return rd_fail(
            st, RD_EUSAGE,
            "--list=%s: there are models, datasets, optimizers, metrics, schedules, modes "
            "and configs%s%s%s",
            rd_shown(kind, shown), nearest ? "; did you mean --list=" : "", nearest ? nearest : "",
            nearest ? "?" : "");
    }
    for (int i = 0; i < N_LIST_KINDS; i++)
        if (!strcmp(found, list_kinds[i][0])) {
            list_owners(list_kinds[i][1], owners, n_owners, out);
            return RD_OK;
        }
    if (!strcmp(found, "configs")) return rd_help_list_configs(out, st);
    list_modes(out);
    return RD_OK;
}
