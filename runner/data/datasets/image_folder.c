/* image_folder.c -- a folder for each class, with images in it or in folders below it.
 *
 * The class is the rank of the folder's name among the sorted names. Opening the dataset reads only
 * names. The training folder defines the classes, also for the other splits: a class without
 * validation images must not shift the numbers of those behind it. In infer mode the folder may
 * hold images and no classes. */
#include "../images_impl.h"
#include "rd/file.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { SIDE = 224, MAX_DEPTH = 32 };

/* Names of the entries of one folder, sorted. */
typedef struct names {
    char **at;
    int64_t n, cap;
} names;

static void names_release(names *x)
{
    for (int64_t i = 0; i < x->n; i++) free(x->at[i]);
    free(x->at);
    *x = (names){0};
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static rd_code names_add(names *x, const char *name, rd_status *st)
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

/* Lists the folders and the files of root/sub. Names that begin with a dot are skipped, and
 * everything else that is neither. A pipe or device with the name of an image is an error. */
static rd_code list(const char *root, const char *sub, names *folders, names *files, rd_status *st)
{
    char path[RD_PATH_BYTES], inner[RD_PATH_BYTES + 300];
    rd_folder f = {0};
    if (snprintf(path, sizeof path, sub[0] ? "%s/%s" : "%s%s", root, sub) >= (int)sizeof path)
        return rd_fail(st, RD_EDATA, "the path is too long: '%.200s/%.200s'", root, sub);
    if (rd_folder_list(path, sub[0] ? RD_LISTED : RD_MAYBE, &f) != 0)
        return rd_input_fails(st, RD_EDATA, "read the folder", path, errno, "check data_dir");
    for (int64_t i = 0; i < f.n; i++) {
        struct stat sb;
        const rd_folder_entry *e = &f.entry[i];
        if (e->name[0] == '.') continue;
        bool folder = e->type == DT_DIR, file = e->type == DT_REG;
        if (!folder && !file) { /* a link, or a file system without d_type */
            snprintf(inner, sizeof inner, "%s/%s", path, e->name);
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
        if (folder) RD_TRY(names_add(folders, e->name, st));
        if (file) RD_TRY(names_add(files, e->name, st));
    }
    if (folders->n > 1) qsort(folders->at, (size_t)folders->n, sizeof *folders->at, by_bytes);
    if (files->n > 1) qsort(files->at, (size_t)files->n, sizeof *files->at, by_bytes);
done:
    rd_folder_release(&f);
    return st->code;
}

/* Adds all images of root/sub and below. */
static rd_code add_images(rd_images *m, const char *root, const char *sub, int64_t label, int depth,
                          rd_status *st)
{
    names folders = {0}, files = {0};
    rd_strbuf b = {0};
    if (depth > MAX_DEPTH)
        return rd_fail(st, RD_EDATA,
                       "'%s/%.200s': folders are nested more than %d deep; does a link lead back?",
                       root, sub, MAX_DEPTH);
    RD_TRY(list(root, sub, &folders, &files, st));
    for (int64_t i = 0; i < files.n; i++) {
        rd_strbuf_reset(&b);
        rd_strbuf_printf(&b, sub[0] ? "%s/%s" : "%s%s", sub, files.at[i]);
        if (b.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
        if (rd_image_named(files.at[i]))
            RD_TRY(rd_images_add(m, RD_IN_FILE, 0, 0, label, rd_strbuf_str(&b), st));
        else
            rd_images_skip(m, RD_SKIP_NAME, rd_strbuf_str(&b), 1);
    }
    for (int64_t i = 0; i < folders.n; i++) {
        rd_strbuf_reset(&b);
        rd_strbuf_printf(&b, "%s/%s", sub, folders.at[i]);
        if (b.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
        RD_TRY(add_images(m, root, rd_strbuf_str(&b), label, depth + 1, st));
    }
done:
    rd_strbuf_release(&b);
    names_release(&folders);
    names_release(&files);
    return st->code;
}

/* Lists the classes: the folders of the training data if it exists, else those of root. */
static rd_code find_classes(const rd_images *m, const char *root, names *out, rd_status *st)
{
    char train[RD_PATH_BYTES];
    names files = {0};
    const char *given = m->c.data[RD_SPLIT_TRAIN];
    if (!rd_images_train_like(m)) {
        RD_TRY(rd_images_path(m, given && given[0] ? given : "train", train, st));
        bool there;
        RD_TRY(rd_path_there(train, &there, st));
        if (there) root = train;
    }
    RD_TRY(list(root, "", out, &files, st));
    if (out->n == 0)
        RD_TRY(rd_fail(
            st, RD_EDATA,
            "'%s' has no folder for a class%s; each class needs a folder of images with its "
            "name, as in train/cat/1.jpg",
            root, files.n > 0 ? ", only files" : ""));
done:
    names_release(&files);
    return st->code;
}

static rd_code find_root(const rd_images *m, char out[RD_PATH_BYTES], rd_status *st)
{
    static const char *const usual[2][2] = {{"train", "training"}, {"val", "validation"}};
    const char *given = rd_images_given(m);
    bool there = false;
    if (given) return rd_images_path(m, given, out, st);
    for (int k = 1; k >= 0 && !there; k--) {
        RD_TRY(rd_images_path(m, usual[!rd_images_train_like(m)][k], out, st));
        RD_TRY(rd_path_there(out, &there, st));
    }
    if (!there)
        rd_fail(st, RD_EDATA, "there is no folder '%s'; check data_dir, or name the folder with %s",
                out, rd_images_train_like(m) ? "train_data" : "eval_data");
done:
    return st->code;
}

static rd_code image_folder_load(rd_images *m, rd_status *st)
{
    char root[RD_PATH_BYTES];
    names classes = {0}, folders = {0}, files = {0};
    uint32_t shard;
    RD_TRY(find_root(m, root, st));
    RD_TRY(rd_images_add_shard(m, root, &shard, st)); /* shard 0: the root of all names */
    RD_TRY(find_classes(m, root, &classes, st));
    for (int64_t i = 0; i < classes.n; i++) RD_TRY(rd_images_add_class(m, classes.at[i], st));
    RD_TRY(list(root, "", &folders, &files, st));
    if (folders.n == 0 && m->mode == RD_MODE_INFER) {
        RD_TRY(add_images(m, root, "", 0, 0, st));
        goto done;
    }
    for (int64_t i = 0; i < files.n; i++)
        rd_images_skip(m, rd_image_named(files.at[i]) ? RD_SKIP_PLACE : RD_SKIP_NAME, files.at[i],
                       1);
    if (folders.n == 0)
        RD_TRY(rd_fail(
            st, RD_EDATA,
            "'%s' has no folder for a class; each class needs a folder of images with its name",
            root));
    for (int64_t i = 0; i < folders.n; i++) {
        char **at = classes.n == 0 ? NULL
                                   : bsearch(&folders.at[i], classes.at, (size_t)classes.n,
                                             sizeof *classes.at, by_bytes);
        if (!at)
            RD_TRY(rd_fail(st, RD_EDATA,
                           "'%s' has a class '%s' that the training data does not have", root,
                           folders.at[i]));
        const int64_t before = m->head.n;
        RD_TRY(add_images(m, root, folders.at[i], at - classes.at, 0, st));
        if (m->head.n == before && rd_images_train_like(m))
            RD_TRY(rd_fail(
                st, RD_EDATA,
                "'%s/%s' has no .jpg, .jpeg or .png; remove the folder if it is not a class", root,
                folders.at[i]));
    }
    RD_TRY(rd_images_sort(m, st));
done:
    names_release(&classes);
    names_release(&folders);
    names_release(&files);
    return st->code;
}

static const rd_images_kind image_folder = {
    .name = "image_folder", .load = image_folder_load, .side = SIDE};

RD_DATASET_IMAGES(
    image_folder,
    "JPEG files in a folder for each class: data_dir/train/CLASS/x.jpg, data_dir/val/CLASS/y.jpg",
    image_folder);
