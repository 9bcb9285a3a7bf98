/* runs_find.c -- searches a folder for the log folders of runs.
 *
 * A folder is one if it holds run.log or metrics.jsonl, or config.json beside `checkpoint`. Its
 * folders eval and errors belong to it. Links are looked at, for people keep runs on other disks;
 * the search never goes on below a link, so it ends whatever the links name. */
#include "runs_impl.h"
#include "rd/input.h"
#include "rd/printable.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FOLDERS = 200000, MOST_DEPTH = 64 };

typedef struct found {
    bool log, metrics, config, checkpoint;
} found;

static void found_name(found *f, const char *name)
{
    f->log |= !strcmp(name, "run.log");
    f->metrics |= !strcmp(name, "metrics.jsonl");
    f->config |= !strcmp(name, "config.json");
    f->checkpoint |= !strcmp(name, "checkpoint");
}

static bool found_run(const found *f)
{
    return f->log || f->metrics || (f->config && f->checkpoint);
}

bool runs_is_run(const char *folder)
{
    rd_folder list;
    found f = {0};
    if (rd_folder_list(folder, RD_MAYBE, &list) != 0) return false;
    for (int64_t i = 0; i < list.n; i++) found_name(&f, list.entry[i].name);
    rd_folder_release(&list);
    return found_run(&f);
}

/* One search. */
typedef struct search {
    runs_list *out;
    const char *root;
    int n_folders;
    dev_t *dev; /* owned lists: the identity of each run, for runs that are there twice by links */
    ino_t *ino;
    rd_status *st;
} search;

/* Reads a folder as a run, unless it was read before under another name. */
static void search_add(search *s, const char *path, const char *name)
{
    runs_list *l = s->out;
    struct stat sb;
    if (stat(path, &sb) != 0) return;
    for (int i = 0; i < l->n; i++)
        if (s->dev[i] == sb.st_dev && s->ino[i] == sb.st_ino) return;
    if (l->n == l->cap) {
        const int cap = 2 * l->cap + 64;
        runs_facts *at = realloc(l->at, (size_t)cap * sizeof *at);
        if (at) l->at = at;
        dev_t *dev = realloc(s->dev, (size_t)cap * sizeof *dev);
        if (dev) s->dev = dev;
        ino_t *ino = realloc(s->ino, (size_t)cap * sizeof *ino);
        if (ino) s->ino = ino;
        if (!at || !dev || !ino) {
            rd_fail(s->st, RD_EENV, "out of memory for the runs");
            return;
        }
        l->cap = cap;
    }
    s->dev[l->n] = sb.st_dev;
    s->ino[l->n] = sb.st_ino;
    if (runs_read(path, name[0] ? name : ".", &l->at[l->n], NULL, s->st) == RD_OK) l->n++;
}

static void search_unreadable(search *s, const char *path, int err)
{
    char shown[256];
    if (s->out->n_unreadable++ > 0) return;
    (void)snprintf(s->out->unreadable, sizeof s->out->unreadable, "cannot list '%s': %s",
                   rd_printable(path, strlen(path), false, shown, sizeof shown), strerror(err));
}

static bool is_folder(const char *path, const rd_folder_entry *e, bool *link)
{
    struct stat sb;
    *link = e->type == DT_LNK;
    if (e->type == DT_DIR) return true;
    if (e->type != DT_LNK && e->type != DT_UNKNOWN) return false;
    if (lstat(path, &sb) != 0) return false;
    *link = S_ISLNK(sb.st_mode);
    if (*link && stat(path, &sb) != 0) return false;
    return S_ISDIR(sb.st_mode);
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(((const rd_folder_entry *)a)->name, ((const rd_folder_entry *)b)->name);
}

static void search_folder(search *s, const char *path, int depth)
{
    rd_folder list;
    found f = {0};
    if (s->st->code != RD_OK || s->out->more) return;
    if (depth > MOST_DEPTH || s->n_folders++ >= MOST_FOLDERS) {
        s->out->more = true;
        return;
    }
    if (rd_folder_list(path, RD_MAYBE, &list) != 0) {
        search_unreadable(s, path, errno);
        return;
    }
    for (int64_t i = 0; i < list.n; i++) found_name(&f, list.entry[i].name);
    const char *name = path + strlen(s->root);
    while (*name == '/') name++;
    if (found_run(&f)) search_add(s, path, name);
    if (list.n > 1) qsort(list.entry, (size_t)list.n, sizeof *list.entry, by_name);
    /* Links come last: a run then has its own name, and no link's. */
    for (int64_t i = 0; i < 2 * list.n && s->st->code == RD_OK; i++) {
        const rd_folder_entry *e = &list.entry[i % list.n];
        char *below = NULL;
        bool link;
        if (found_run(&f) && (!strcmp(e->name, "eval") || !strcmp(e->name, "errors"))) continue;
        if (strlen(path) + strlen(e->name) > 4000 || asprintf(&below, "%s/%s", path, e->name) < 0)
            continue;
        if (is_folder(below, e, &link) && link == (i >= list.n)) {
            if (!link)
                search_folder(s, below, depth + 1);
            else if (runs_is_run(below))
                search_add(s, below, below + (name - path) + (name[0] ? 0 : 1));
        }
        free(below);
    }
    rd_folder_release(&list);
}

rd_code runs_find(const char *root, runs_list *out, rd_status *st)
{
    search s = {.out = out, .root = root, .st = st};
    struct stat sb;
    *out = (runs_list){.at = NULL};
    if (stat(root, &sb) != 0)
        return rd_input_fails(st, RD_EUSAGE, "open", root, errno,
                              "give the folder of the runs as --logdir=DIR");
    if (!S_ISDIR(sb.st_mode))
        return rd_fail(st, RD_EUSAGE,
                       "'%.300s' is no folder; give that of the runs as --logdir=DIR", root);
    search_folder(&s, root, 0);
    free(s.dev);
    free(s.ino);
    if (st->code == RD_OK && out->n == 0 && out->n_unreadable > 0)
        rd_fail(st, RD_EENV, "%s", out->unreadable);
    return st->code;
}

void runs_list_release(runs_list *l)
{
    for (int i = 0; i < l->n; i++) runs_facts_release(&l->at[i]);
    free(l->at);
    *l = (runs_list){.at = NULL};
}
