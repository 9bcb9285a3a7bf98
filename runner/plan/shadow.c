/* shadow.c -- a folder that stands for the log folder while --check reads the data.
 *
 * A dataset may make vocabularies and a subword model, and the evaluation data needs those of the
 * training data. So they are written, but to a folder of rank 0's host that is removed at the end.
 * It has links to all files of the log folder, and of its folder "text". A file is replaced by a
 * new one of its name, so what a link leads to is never changed. */
#include "shadow.h"
#include "../run/setup.h"
#include "rd/input.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHADOW_PATH = 8600 };
static const char text[] = "text";

/* Links to all entries of a folder, which may be missing. */
static rd_code shadow_links(const char *from, const char *to, rd_status *st)
{
    rd_folder all = {0};
    char old[SHADOW_PATH], new[SHADOW_PATH];
    if (rd_folder_list(from, RD_MAYBE, &all) != 0) return RD_OK; /* a start would report it */
    for (int64_t i = 0; i < all.n && st->code == RD_OK; i++) {
        const char *name = all.entry[i].name;
        if (strcmp(name, text) == 0) continue;
        (void)snprintf(old, sizeof old, "%.4200s/%.4200s", from, name);
        (void)snprintf(new, sizeof new, "%.4200s/%.4200s", to, name);
        if (symlink(old, new) != 0)
            rd_fail(st, RD_EENV, "cannot make a link '%s': %s", new, strerror(errno));
    }
    rd_folder_release(&all);
    return st->code;
}

static rd_code shadow_make(rd_run *r, rd_status *st)
{
    const char *tmp = getenv("TMPDIR");
    char real[PATH_MAX], from[SHADOW_PATH], to[SHADOW_PATH];
    (void)snprintf(r->shadow, sizeof r->shadow, "%.3900s/run_dist-check.XXXXXX",
                   tmp && tmp[0] ? tmp : "/tmp");
    if (!mkdtemp(r->shadow)) {
        const int err = errno;
        (void)rd_fail(st, RD_EENV, "cannot make a folder '%s': %s; TMPDIR names another place",
                      r->shadow, strerror(err));
        r->shadow[0] = '\0';
        return st->code;
    }
    (void)snprintf(to, sizeof to, "%s/%s", r->shadow, text);
    if (mkdir(to, 0777) != 0)
        return rd_fail(st, RD_EENV, "cannot make a folder '%s': %s", to, strerror(errno));
    if (!r->cli->logdir || !r->cli->logdir[0] || !realpath(r->cli->logdir, real)) return RD_OK;
    RD_TRY(shadow_links(real, r->shadow, st));
    (void)snprintf(from, sizeof from, "%s/%s", real, text);
    (void)shadow_links(from, to, st);
done:
    return st->code;
}

rd_code shadow_new(rd_run *r, rd_status *st)
{
    const rd_dataset_def *d = rd_dataset_find(setup_dataset_name(r));
    if (!d || !d->prepares) return RD_OK;
    if (r->world->rank == 0) (void)shadow_make(r, st);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_bcast(r->comm, r->shadow, sizeof r->shadow, 0, st));
done:
    return st->code;
}

/* Removes a folder that has files alone. */
static void shadow_remove(const char *path)
{
    rd_folder all = {0};
    char file[SHADOW_PATH];
    if (rd_folder_list(path, RD_MAYBE, &all) != 0) return;
    for (int64_t i = 0; i < all.n; i++) {
        (void)snprintf(file, sizeof file, "%.4200s/%.4200s", path, all.entry[i].name);
        (void)unlink(file);
    }
    rd_folder_release(&all);
    (void)rmdir(path);
}

/* A message names the log folder, which the user knows. */
static void shadow_rename(const rd_run *r, rd_status *st)
{
    const char *logdir = r->cli->logdir ? r->cli->logdir : "";
    const size_t n = strlen(r->shadow), to = strlen(logdir);
    char *at = strstr(st->msg, r->shadow);
    if (!at || (size_t)(at - st->msg) + to + strlen(at + n) >= sizeof st->msg) return;
    memmove(at + to, at + n, strlen(at + n) + 1);
    memcpy(at, logdir, to);
}

void shadow_free(rd_run *r, rd_status *st)
{
    char path[SHADOW_PATH];
    if (!r->shadow[0]) return;
    shadow_rename(r, st);
    if (r->world->rank != 0) return;
    (void)snprintf(path, sizeof path, "%s/%s", r->shadow, text);
    shadow_remove(path);
    shadow_remove(r->shadow);
    r->shadow[0] = '\0';
}
