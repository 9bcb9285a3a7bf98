/* image_walk.c -- finds the images below a folder, see image_walk.h. */
#include "rd/image_walk.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 100, WALK_PATH_BYTES = 4096 };

/* A folder, and those above it. */
typedef struct above {
    dev_t dev;
    ino_t ino;
    int depth;
    const struct above *up;
} above;

bool rd_image_named(const char *name)
{
    static const char *const ends[] = {".jpg", ".jpeg", ".png"};
    const size_t n = strlen(name);
    for (int k = 0; k < 3; k++) {
        const size_t e = strlen(ends[k]);
        if (n > e && strcasecmp(name + n - e, ends[k]) == 0) return true;
    }
    return false;
}

void rd_names_release(rd_names *x)
{
    for (int64_t i = 0; i < x->n; i++) free(x->at[i]);
    free(x->at);
    *x = (rd_names){0};
}

static int names_by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

rd_code rd_names_add(rd_names *x, const char *name, rd_status *st)
{
    if (x->n == x->cap) {
        const int64_t cap = x->cap * 2 + 64;
        char **more = realloc(x->at, (size_t)cap * sizeof *more);
        if (!more) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " names of files", cap);
        x->at = more;
        x->cap = cap;
    }
    x->at[x->n] = strdup(name);
    if (!x->at[x->n])
        return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " names of files", x->n);
    x->n++;
    return RD_OK;
}

static void names_sort(rd_names *x)
{
    if (x->n > 1) qsort(x->at, (size_t)x->n, sizeof *x->at, names_by_bytes);
}

/* Writes root/sub/name; parts may be "". RD_EDATA: it is too long. */
static rd_code walk_path(const char *root, const char *sub, const char *name,
                         char out[WALK_PATH_BYTES], rd_status *st)
{
    const int n = snprintf(out, WALK_PATH_BYTES, "%s%s%s%s%s", root, sub[0] ? "/" : "", sub,
                           name[0] ? "/" : "", name);
    if (n < 0 || n >= WALK_PATH_BYTES)
        return rd_fail(st, RD_EDATA, "the path is too long: '%.200s/%.200s'", root, sub);
    return RD_OK;
}

/* Skips root/sub/name. */
static rd_code walk_skip(const rd_image_walk *w, rd_skip why, const char *sub, const char *name,
                         rd_status *st)
{
    char below[WALK_PATH_BYTES];
    RD_TRY(walk_path(sub[0] ? sub : name, "", sub[0] ? name : "", below, st));
    w->skip(w->ctx, why, below);
done:
    return st->code;
}

rd_code rd_image_list(const char *root, const char *sub, const rd_image_walk *w, rd_names *folders,
                      rd_names *files, rd_status *st)
{
    char path[WALK_PATH_BYTES], inner[WALK_PATH_BYTES];
    rd_folder f = {0};
    RD_TRY(walk_path(root, sub, "", path, st));
    if (rd_folder_list(path, sub[0] ? RD_LISTED : RD_MAYBE, &f) != 0)
        return rd_input_fails(st, RD_EDATA, "read the folder", path, errno, "check its name");
    for (int64_t i = 0; i < f.n; i++) {
        struct stat sb;
        const rd_folder_entry *e = &f.entry[i];
        if (e->name[0] == '.') {
            RD_TRY(walk_skip(w, RD_SKIP_HIDDEN, sub, e->name, st));
            continue;
        }
        bool folder = e->type == DT_DIR, file = e->type == DT_REG;
        if (!folder && !file) { /* a link, or a file system without d_type */
            RD_TRY(walk_path(path, "", e->name, inner, st));
            if (rd_path_stat(inner, &sb, e->type == DT_LNK ? RD_MAYBE : RD_LISTED) != 0) {
                rd_input_fails(st, RD_EDATA, "open", inner, errno, NULL);
                break;
            }
            folder = S_ISDIR(sb.st_mode);
            file = S_ISREG(sb.st_mode);
            if (!folder && !file && rd_image_named(e->name)) {
                rd_fail(st, RD_EDATA, "'%s' is %s, not a regular file", inner,
                        rd_file_kind(sb.st_mode));
                break;
            }
        }
        if (folder) RD_TRY(rd_names_add(folders, e->name, st));
        if (file) RD_TRY(rd_names_add(files, e->name, st));
    }
    names_sort(folders);
    names_sort(files);
done:
    rd_folder_release(&f);
    return st->code;
}

static rd_code walk_folder(const char *root, const char *sub, const rd_image_walk *w,
                           const above *up, rd_status *st)
{
    char path[WALK_PATH_BYTES];
    rd_names folders = {0}, files = {0};
    struct stat sb;
    RD_TRY(walk_path(root, sub, "", path, st));
    if (rd_path_stat(path, &sb, sub[0] ? RD_LISTED : RD_MAYBE) != 0)
        return rd_input_fails(st, RD_EDATA, "read the folder", path, errno, "check its name");
    const above here = {sb.st_dev, sb.st_ino, up ? up->depth + 1 : 0, up};
    for (const above *a = up; a; a = a->up)
        if (a->dev == here.dev && a->ino == here.ino) {
            w->skip(w->ctx, RD_SKIP_LOOP, sub);
            return RD_OK;
        }
    if (here.depth > MAX_DEPTH)
        return rd_fail(st, RD_EDATA, "'%.300s...': folders are nested more than %d deep", path,
                       MAX_DEPTH);
    RD_TRY(rd_image_list(root, sub, w, &folders, &files, st));
    for (int64_t i = 0; i < files.n; i++) {
        if (!rd_image_named(files.at[i])) {
            RD_TRY(walk_skip(w, RD_SKIP_NAME, sub, files.at[i], st));
            continue;
        }
        RD_TRY(walk_path(sub[0] ? sub : files.at[i], "", sub[0] ? files.at[i] : "", path, st));
        RD_TRY(w->image(w->ctx, path, st));
    }
    for (int64_t i = 0; i < folders.n; i++) {
        RD_TRY(walk_path(sub[0] ? sub : folders.at[i], "", sub[0] ? folders.at[i] : "", path, st));
        RD_TRY(walk_folder(root, path, w, &here, st));
    }
done:
    rd_names_release(&folders);
    rd_names_release(&files);
    return st->code;
}

rd_code rd_image_walk_below(const char *root, const char *sub, const rd_image_walk *w,
                            rd_status *st)
{
    above at = {0};
    struct stat sb;
    if (!sub[0]) return walk_folder(root, sub, w, NULL, st);
    if (stat(root, &sb) == 0) at = (above){.dev = sb.st_dev, .ino = sb.st_ino};
    return walk_folder(root, sub, w, &at, st);
}
