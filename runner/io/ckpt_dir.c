/* ckpt_dir.c -- which checkpoints a log folder holds, which one `checkpoint` names,
 * and which are removed. */
#include "ckpt_impl.h"
#include "rd/file.h"
#include "rd/input.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool rd_ckpt_has_pointer(const char *prefix)
{
    return strcmp(prefix, "model") == 0;
}

int64_t rd_ckpt_step_of(const char *file_name, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (strncmp(file_name, prefix, n) != 0 || file_name[n] != '-') return -1;
    const char *p = file_name + n + 1;
    if (*p < '0' || *p > '9' || (*p == '0' && p[1] != '.')) return -1;
    int64_t step = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(step, 10, &step) ||
            __builtin_add_overflow(step, *p - '0', &step))
            return -1;
    return strcmp(p, ".npz") == 0 ? step : -1;
}

rd_code rd_ckpt_path(const char *dir, const char *prefix, int64_t step, char out[4096],
                     rd_status *st)
{
    if (snprintf(out, 4096, "%s/%s-%" PRId64 ".npz", dir, prefix, step) >= 4096)
        return rd_fail(st, RD_EUSAGE,
                       "the name of log folder '%.200s...' is too long; choose a shorter --logdir",
                       dir);
    return st->code;
}

/* Sorts the largest step first. */
static int compare_steps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

rd_code rd_ckpt_list_new(const char *dir, const char *prefix, rd_ckpt_list *out, rd_status *st)
{
    *out = (rd_ckpt_list){0};
    rd_folder f;
    if (rd_folder_list(dir, RD_MAYBE, &f) != 0)
        return errno == ENOENT ? st->code
                               : rd_input_fails(st, RD_EENV, "list log folder", dir, errno, NULL);
    int cap = 0;
    for (int64_t i = 0; i < f.n; i++) {
        const int64_t step = rd_ckpt_step_of(f.entry[i].name, prefix);
        if (step < 0) continue;
        if (out->n == cap) {
            cap = cap ? 2 * cap : 16;
            int64_t *more = realloc(out->step, sizeof *more * (size_t)cap);
            if (!more) {
                rd_fail(st, RD_EENV, "out of memory while listing log folder '%s'", dir);
                break;
            }
            out->step = more;
        }
        out->step[out->n++] = step;
    }
    rd_folder_release(&f);
    if (out->n > 0) qsort(out->step, (size_t)out->n, sizeof *out->step, compare_steps);
    return st->code;
}

void rd_ckpt_list_release(rd_ckpt_list *l)
{
    free(l->step);
    *l = (rd_ckpt_list){0};
}

int64_t rd_ckpt_pointer_read(const char *dir, const char *prefix, bool *odd, const char **kind)
{
    char path[4200], line[512];
    *odd = false;
    *kind = NULL;
    if (!rd_ckpt_has_pointer(prefix)) return -1;
    snprintf(path, sizeof path, "%s/checkpoint", dir);
    rd_input *in = rd_input_open(path, RD_MAYBE, kind);
    if (!in) return -1;
    const ssize_t n = rd_input_read(in, line, sizeof line - 1);
    rd_input_close(in);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    const int64_t step = rd_ckpt_step_of(line, prefix);
    *odd = step < 0;
    return step;
}

int64_t rd_ckpt_newest_step(const char *dir)
{
    static const char *const prefix[] = {"model", "best"};
    rd_status st = {0};
    const char *kind;
    bool odd;
    int64_t newest = rd_ckpt_pointer_read(dir, "model", &odd, &kind);
    for (int i = 0; i < 2; i++) {
        rd_ckpt_list l;
        if (rd_ckpt_list_new(dir, prefix[i], &l, &st) == RD_OK && l.n > 0 && l.step[0] > newest)
            newest = l.step[0];
        rd_ckpt_list_release(&l);
    }
    return newest;
}

bool rd_ckpt_rename(const char *dir, const char *from, const char *to, int64_t step)
{
    char was[4096], now[4096];
    rd_status st = {0};
    return rd_ckpt_path(dir, from, step, was, &st) == RD_OK &&
           rd_ckpt_path(dir, to, step, now, &st) == RD_OK && rename(was, now) == 0;
}

void rd_ckpt_remove(const char *dir, const char *prefix, int64_t step)
{
    char path[4096];
    rd_status st = {0};
    if (step >= 0 && rd_ckpt_path(dir, prefix, step, path, &st) == RD_OK) (void)unlink(path);
}

rd_code rd_ckpt_retain(const char *dir, const char *prefix, int64_t written, int keep,
                       rd_status *st)
{
    rd_ckpt_list l = {0};
    if (keep <= 0) return st->code;
    RD_TRY(rd_ckpt_list_new(dir, prefix, &l, st));
    int kept = 1; /* the one just written */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < l.n; i++) {
            const int64_t s = l.step[i];
            if (s == written || (s > written) != (pass == 1)) continue;
            if (kept < keep) {
                kept++;
                continue;
            }
            char path[4096];
            RD_TRY(rd_ckpt_path(dir, prefix, s, path, st));
            /* A file that cannot be removed does not end the run. The next save tries again. */
            (void)unlink(path);
        }
    }
done:
    rd_ckpt_list_release(&l);
    return st->code;
}

/* Is this the name of a file that the program writes atomically in a log folder? */
static bool writes_atomically(const char *name)
{
    static const char *const one[] = {"checkpoint",  "metrics.jsonl", "samples.jsonl",
                                      "config.json", "step.json",     "data.json"};
    char prefix[256] = "";
    const char *dash = strrchr(name, '-');
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (strcmp(name, one[i]) == 0) return true;
    if (!dash || (size_t)(dash - name) >= sizeof prefix) return false;
    memcpy(prefix, name, (size_t)(dash - name));
    return rd_ckpt_step_of(name, prefix) >= 0;
}

/* Returns the pid in "<name>.tmp.<pid>" of a file that the program writes atomically; else 0. any:
 * the program writes all files of the folder. */
static pid_t temporary_pid(const char *name, bool any)
{
    const char *t = strstr(name, ".tmp.");
    if (!t || t == name) return 0;
    const char *p = t + 5;
    long pid = 0;
    for (; *p >= '0' && *p <= '9' && pid < 100000000; p++) pid = pid * 10 + (*p - '0');
    if (*p || pid <= 0) return 0;
    char what[256];
    const size_t n = (size_t)(t - name);
    if (n >= sizeof what) return 0;
    memcpy(what, name, n);
    what[n] = '\0';
    return any || writes_atomically(what) ? (pid_t)pid : 0;
}

/* Removes the temporary files of a folder. owner: of its lock; any: as for temporary_pid. */
static void remove_stale_of(const char *dir, rd_lock_owner owner, bool any)
{
    DIR *d = owner == RD_LOCK_OTHER ? NULL : opendir(dir);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));) {
        const pid_t pid = temporary_pid(e->d_name, any);
        if (pid <= 0) continue;
        if (owner == RD_LOCK_OURS || (kill(pid, 0) != 0 && errno == ESRCH))
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    (void)closedir(d);
}

void rd_ckpt_remove_stale(const char *dir)
{
    /* If another process holds the lock, it uses its temporary files, and its pid may belong
     * to another host. If this process holds the lock, nobody else writes here. A file with a
     * pid that is alive then comes from an earlier process with that number: in a container
     * the pids start anew. */
    static const char *const inner[] = {"text", "eval"};
    const rd_lock_owner owner = rd_logdir_lock_owner(dir);
    char path[4200];
    struct stat sb;
    remove_stale_of(dir, owner, false);
    for (int i = 0; i < 2 && owner != RD_LOCK_OTHER; i++) {
        (void)snprintf(path, sizeof path, "%.4000s/%s", dir, inner[i]);
        /* Another run may write where a link leads to. Evaluations have their own lock. */
        if (lstat(path, &sb) == 0 && S_ISDIR(sb.st_mode))
            remove_stale_of(path, i == 1 ? rd_logdir_lock_owner(path) : owner, true);
    }
}
