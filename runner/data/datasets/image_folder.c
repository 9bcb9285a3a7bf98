/* image_folder.c -- a folder for each class, with images in it or in folders below it.
 *
 * The class is the rank of the folder's name among the sorted names. Opening the dataset reads only
 * names. The training folder defines the classes, also for the other splits: a class without
 * validation images must not shift the numbers of those behind it. Where it is gone, data.json of
 * the log folder defines them. In infer mode the folder may hold images and no classes.
 *
 * With eval_fraction one folder holds the images of both splits. A hash of split_seed, class and
 * name decides for each image by itself. So an image that is added moves no other one. */
#include "../images_impl.h"
#include "rd/file.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { SIDE = 224 };

typedef struct folder_keys {
    double eval_fraction;
    int64_t split_seed;
} folder_keys;

#define T folder_keys
static const rd_option rows[] = {
    RD_OPT_REAL(T, eval_fraction, eval_fraction, "0", 0, 0.9,
                "one folder of class folders, without train and val: this share of its images is "
                "the evaluation data. 0: data_dir has a folder for each"),
    RD_OPT_INT(T, split_seed, split_seed, "0", 0, 9007199254740992.0,
               "with eval_fraction: another number chooses other images. The choice depends on it, "
               "on the class and on the file's name alone"),
    RD_OPT_END};
#undef T
static const rd_option_group own_group = {"image_folder", "class folders", rows,
                                          sizeof(folder_keys)};

static const char *const usual[2][2] = {{"train", "training"}, {"val", "validation"}};

/* What one walk adds. */
typedef struct adder {
    rd_images *m;
    int64_t label;
    int64_t n_other; /* images of the class that belong to the other split */
} adder;

/* Does an image belong to the evaluation data? path: "class/name". */
static bool folder_is_eval(const folder_keys *k, const char *path)
{
    const uint64_t h =
        rd_mix64(rd_fnv(RD_FNV_START ^ rd_splitmix64((uint64_t)k->split_seed), path, strlen(path)));
    return (double)(h >> 11) * 0x1p-53 < k->eval_fraction;
}

static rd_code folder_image(void *ctx, const char *path, rd_status *st)
{
    adder *a = ctx;
    const folder_keys *k = a->m->own;
    const bool own_test = a->m->split == RD_SPLIT_TEST && a->m->c.data[RD_SPLIT_TEST] &&
                          a->m->c.data[RD_SPLIT_TEST][0];
    if (k->eval_fraction > 0.0 && !own_test &&
        folder_is_eval(k, path) == rd_images_train_like(a->m)) {
        a->n_other++;
        return RD_OK;
    }
    return rd_images_add(a->m, RD_IN_FILE, 0, 0, a->label, path, st);
}

static void folder_skip(void *ctx, rd_skip why, const char *path)
{
    rd_images_skip(((adder *)ctx)->m, why, path, 1);
}

static void skip_nothing(void *ctx, rd_skip why, const char *path)
{
    (void)ctx;
    (void)why;
    (void)path;
}

static const rd_image_walk quiet = {.skip = skip_nothing};

/* Finds one of two folders of data_dir, in any case: "train", "Training". Writes the first name if
 * there is none. */
static rd_code find_usual(const rd_images *m, const char *const names[2], char out[RD_PATH_BYTES],
                          bool *there, rd_status *st)
{
    char root[RD_PATH_BYTES];
    rd_names folders = {0}, files = {0};
    *there = false;
    RD_TRY(rd_images_path(m, "", root, st));
    RD_TRY(rd_path_there(root, there, st));
    if (!*there)
        RD_TRY(rd_fail(st, RD_EDATA, "there is no folder '%s'; check data_dir%s", root,
                       rd_images_fetcher(m)));
    RD_TRY(rd_image_list(root, "", &quiet, &folders, &files, st));
    *there = false;
    for (int k = 0; k < 2 && !*there; k++)
        for (int64_t i = 0; i < folders.n && !*there; i++)
            if (strcasecmp(folders.at[i], names[k]) == 0) {
                *there = true;
                RD_TRY(rd_images_path(m, folders.at[i], out, st));
            }
    if (!*there) RD_TRY(rd_images_path(m, names[0], out, st));
done:
    rd_names_release(&folders);
    rd_names_release(&files);
    return st->code;
}

/* Lists the classes: the folders of the training data if it exists, else those of root. */
static rd_code find_classes(const rd_images *m, const char *root, rd_names *out, rd_status *st)
{
    char train[RD_PATH_BYTES];
    rd_names files = {0};
    const char *given = m->c.data[RD_SPLIT_TRAIN];
    const folder_keys *k = m->own;
    if (!rd_images_train_like(m) && (k->eval_fraction == 0.0 || m->split == RD_SPLIT_TEST)) {
        bool there = false, any = true;
        const json_t *kept = json_object_get(m->kept, "classes");
        if (json_is_array(kept) && m->c.data_dir && m->c.data_dir[0])
            RD_TRY(rd_path_there(m->c.data_dir, &any, st));
        if (given && given[0]) {
            RD_TRY(rd_images_path(m, given, train, st));
            RD_TRY(rd_path_there(train, &there, st));
        } else if (any && m->c.data_dir && m->c.data_dir[0]) {
            RD_TRY(find_usual(m, usual[0], train, &there, st));
        }
        if (there) root = train;
        for (size_t i = (size_t)m->label_offset; !there && i < json_array_size(kept); i++)
            RD_TRY(rd_names_add(out, json_string_value(json_array_get(kept, i)), st));
        if (out->n > 0) return RD_OK;
    }
    RD_TRY(rd_image_list(root, "", &quiet, out, &files, st));
    if (out->n == 0)
        RD_TRY(rd_fail(
            st, RD_EDATA,
            "'%s' has no folder for a class%s; each class needs a folder of images with its "
            "name, as in train/cat/1.jpg",
            root, files.n > 0 ? ", only files" : ""));
done:
    rd_names_release(&files);
    return st->code;
}

/* Fails because data_dir has no folder for the split. It may be a folder of classes. */
static rd_code no_split(const rd_images *m, const char *missing, rd_status *st)
{
    enum { SHOWN = 4 };
    char root[RD_PATH_BYTES];
    rd_names folders = {0}, files = {0};
    rd_strbuf list = {0};
    RD_TRY(rd_images_path(m, "", root, st));
    RD_TRY(rd_image_list(root, "", &quiet, &folders, &files, st));
    for (int64_t i = 0; i < folders.n && i < SHOWN; i++)
        rd_strbuf_printf(&list, "%s%s", i ? ", " : "", folders.at[i]);
    if (folders.n > 1)
        rd_fail(st, RD_EDATA,
                "there is no folder '%s'; '%s' has %" PRId64
                " folders: %s%s; if these are the classes, add \"eval_fraction\": 0.1 to split "
                "them; else check data_dir, or name the folder with %s",
                missing, root, folders.n, rd_strbuf_str(&list), folders.n > SHOWN ? ", ..." : "",
                rd_images_train_like(m) ? "train_data" : "eval_data");
    else
        rd_fail(st, RD_EDATA,
                "there is no folder '%s'; check data_dir, or name the folder with %s%s", missing,
                rd_images_train_like(m) ? "train_data" : "eval_data", rd_images_fetcher(m));
done:
    rd_strbuf_release(&list);
    rd_names_release(&folders);
    rd_names_release(&files);
    return st->code;
}

/* Is `train` a folder of classes, and no class? Then data_dir has no other folder than one of test
 * images. */
static rd_code whole_is_train(const rd_images *m, bool *train, rd_status *st)
{
    char root[RD_PATH_BYTES];
    rd_names folders = {0}, files = {0};
    if (!*train) return RD_OK;
    RD_TRY(rd_images_path(m, "", root, st));
    RD_TRY(rd_image_list(root, "", &quiet, &folders, &files, st));
    for (int64_t i = 0; i < folders.n; i++)
        *train &= strncasecmp(folders.at[i], "train", 5) == 0 ||
                  strncasecmp(folders.at[i], "test", 4) == 0;
done:
    rd_names_release(&folders);
    rd_names_release(&files);
    return st->code;
}

/* Finds the folder that eval_fraction splits: train_data, data_dir, or its folder `train`. */
static rd_code find_whole(const rd_images *m, char out[RD_PATH_BYTES], rd_status *st)
{
    const char *given = m->c.data[RD_SPLIT_TRAIN], *eval = m->c.data[RD_SPLIT_EVAL];
    char other[RD_PATH_BYTES];
    bool train, val;
    if (eval && eval[0])
        return rd_fail(st, RD_EUSAGE,
                       "'eval_data' and 'eval_fraction' both choose the evaluation data; remove "
                       "one of them");
    if (given && given[0]) return rd_images_path(m, given, out, st);
    RD_TRY(find_usual(m, usual[0], out, &train, st));
    RD_TRY(find_usual(m, usual[1], other, &val, st));
    if (train && val)
        RD_TRY(rd_fail(st, RD_EUSAGE,
                       "'eval_fraction' splits one folder of classes, but there are '%s' and '%s'; "
                       "remove eval_fraction, or name the folder to split with train_data",
                       out, other));
    RD_TRY(whole_is_train(m, &train, st));
    if (!train) RD_TRY(rd_images_path(m, "", out, st));
done:
    return st->code;
}

static rd_code find_root(const rd_images *m, char out[RD_PATH_BYTES], rd_status *st)
{
    const folder_keys *k = m->own;
    const char *given = rd_images_given(m);
    bool there = false;
    if (k->eval_fraction > 0.0 &&
        !(m->split == RD_SPLIT_TEST && m->c.data[RD_SPLIT_TEST] && m->c.data[RD_SPLIT_TEST][0]))
        return find_whole(m, out, st);
    if (given) return rd_images_path(m, given, out, st);
    RD_TRY(find_usual(m, usual[!rd_images_train_like(m)], out, &there, st));
    if (!there) RD_TRY(no_split(m, out, st));
done:
    return st->code;
}

static int folder_by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the images of one class. */
static rd_code add_class(rd_images *m, const char *root, const char *name, const rd_names *classes,
                         rd_status *st)
{
    char **at = classes->n == 0 ? NULL
                                : bsearch(&name, classes->at, (size_t)classes->n,
                                          sizeof *classes->at, folder_by_bytes);
    if (!at)
        return rd_fail(st, RD_EDATA, "'%s' has a class '%s' that the training data does not have",
                       root, name);
    adder a = {.m = m, .label = at - classes->at};
    const rd_image_walk w = {&a, folder_image, folder_skip};
    const int64_t before = m->head.n;
    RD_TRY(rd_image_walk_below(root, name, &w, st));
    if (m->head.n > before || !rd_images_train_like(m)) return RD_OK;
    if (a.n_other > 0)
        return rd_fail(st, RD_EDATA,
                       "all %" PRId64 " images of '%s/%s' are evaluation data; lower "
                       "eval_fraction, or choose another split_seed",
                       a.n_other, root, name);
    return rd_fail(st, RD_EDATA,
                   "'%s/%s' has no .jpg, .jpeg or .png; remove the folder if it is not a class",
                   root, name);
done:
    return st->code;
}

static rd_code image_folder_load(rd_images *m, rd_status *st)
{
    char root[RD_PATH_BYTES];
    rd_names classes = {0}, folders = {0}, files = {0};
    adder a = {.m = m};
    const rd_image_walk w = {&a, folder_image, folder_skip};
    uint32_t shard;
    RD_TRY(find_root(m, root, st));
    RD_TRY(rd_images_add_shard(m, root, &shard, st)); /* shard 0: the root of all names */
    RD_TRY(find_classes(m, root, &classes, st));
    for (int64_t i = 0; i < classes.n; i++) RD_TRY(rd_images_add_class(m, classes.at[i], st));
    RD_TRY(rd_image_list(root, "", &quiet, &folders, &files, st));
    if (folders.n == 0 && m->mode == RD_MODE_INFER) {
        RD_TRY(rd_image_walk_below(root, "", &w, st));
        goto done;
    }
    rd_names_release(&folders);
    rd_names_release(&files);
    RD_TRY(rd_image_list(root, "", &w, &folders, &files, st));
    for (int64_t i = 0; i < files.n; i++)
        rd_images_skip(m, rd_image_named(files.at[i]) ? RD_SKIP_PLACE : RD_SKIP_NAME, files.at[i],
                       1);
    if (folders.n == 0)
        RD_TRY(rd_fail(
            st, RD_EDATA,
            "'%s' has no folder for a class; each class needs a folder of images with its name",
            root));
    for (int64_t i = 0; i < folders.n; i++) {
        rd_images_read_part(m, (double)i, (double)folders.n);
        RD_TRY(add_class(m, root, folders.at[i], &classes, st));
    }
    RD_TRY(rd_images_sort(m, st));
done:
    rd_names_release(&classes);
    rd_names_release(&folders);
    rd_names_release(&files);
    return st->code;
}

static const rd_images_kind image_folder = {
    .name = "image_folder",
    .load = image_folder_load,
    .side = SIDE,
    .fetcher = "; configs/get_food fetches photographs of food in ten classes"};

RD_DATASET_IMAGES_OWN(image_folder,
                      "JPEG and PNG files in a folder for each class: data_dir/train/CLASS/x.jpg "
                      "and data_dir/val/..., "
                      "or data_dir/CLASS/x.jpg with eval_fraction",
                      image_folder, &own_group);
