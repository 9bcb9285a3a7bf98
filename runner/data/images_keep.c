/* images_keep.c -- LOGDIR/data.json: what a model knows of its images besides their pixels.
 *
 * It holds sizes, names of classes and the normalization. A training writes it. Later starts take
 * the names of the classes from it where the training images are no longer there, and export mode
 * needs no images at all. A hash of the rest is its last entry. */
#include "images_impl.h"
#include "rd/file.h"
#include "rd/input.h"
#include <inttypes.h>
#include <stdlib.h>

enum { KEEP_FORMAT = 1, KEEP_BYTES = 1 << 30 };

/* Returns the hash of all entries but "hash". NULL: out of memory. */
static char *keep_hash(const json_t *o, char out[20])
{
    json_t *rest = json_copy((json_t *)(uintptr_t)o);
    if (rest) (void)json_object_del(rest, "hash");
    char *text = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (text) (void)snprintf(out, 20, "%016" PRIx64, rd_hash(0, text, strlen(text)));
    json_decref(rest);
    const bool done = text != NULL;
    free(text);
    return done ? out : NULL;
}

static json_t *keep_floats(const float *x, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) (void)json_array_append_new(list, json_real((double)x[i]));
    return list;
}

rd_code rd_images_keep(void *self, const char *logdir, rd_status *st)
{
    const rd_images *m = self;
    const rd_render *r = &m->render;
    char path[4200], hash[20], *text = NULL;
    json_t *names = m->class_names ? json_array() : json_null();
    const int64_t n = m->head.n_classes + m->label_offset;
    for (int64_t k = 0; m->class_names && k < n; k++) {
        json_t *name = json_string(m->class_names[k]);
        /* A name that is not UTF-8 cannot be kept. */
        (void)json_array_append_new(names, name ? name : json_string(""));
    }
    json_t *o = json_pack("{s:i, s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "format",
                          KEEP_FORMAT, "dataset", m->kind->name, "n_classes", (json_int_t)n,
                          "classes", names, "height", (json_int_t)r->h, "width", (json_int_t)r->w,
                          "channels", (json_int_t)r->c, "eval_resize", (json_int_t)r->eval_resize,
                          "pixel_mean", keep_floats(r->mean, r->c), "pixel_std",
                          keep_floats(r->std, r->c));
    if (o && keep_hash(o, hash)) (void)json_object_set_new(o, "hash", json_string(hash));
    if (o && json_object_get(o, "hash")) text = json_dumps(o, JSON_INDENT(1));
    if (!text) {
        rd_fail(st, RD_EENV, "out of memory for data.json");
    } else {
        (void)snprintf(path, sizeof path, "%.4000s/data.json", logdir);
        (void)rd_file_write_atomic(path, text, strlen(text), st);
    }
    free(text);
    json_decref(o);
    return st->code;
}

/* Is the number an integer in low .. high? */
static bool keep_int(const json_t *o, const char *key, int64_t low, int64_t high)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) >= low && json_integer_value(v) <= high;
}

/* Has it the form that rd_images_keep writes? */
static bool keep_valid(const json_t *o)
{
    static const int64_t side = 1 << 24;
    const json_t *names = json_object_get(o, "classes"), *name;
    size_t i;
    if (!keep_int(o, "n_classes", 1, INT32_MAX) || !keep_int(o, "height", 1, side) ||
        !keep_int(o, "width", 1, side) || !keep_int(o, "channels", 1, 4) ||
        !keep_int(o, "eval_resize", 0, side))
        return false;
    if (json_is_null(names)) return true;
    if (!json_is_array(names) ||
        (json_int_t)json_array_size(names) != json_integer_value(json_object_get(o, "n_classes")))
        return false;
    json_array_foreach((json_t *)(uintptr_t)names, i, name)
    {
        if (!json_is_string(name)) return false;
    }
    return true;
}

/* Parses the text. The caller owns *out. */
static rd_code keep_parse(const char *path, const char *text, size_t n, json_t **out, rd_status *st)
{
    char hash[20];
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *format = json_object_get(o, "format");
    const char *was = json_string_value(json_object_get(o, "hash"));
    *out = NULL;
    if (json_is_integer(format) && json_integer_value(format) > KEEP_FORMAT)
        rd_fail(st, RD_EDATA, "'%s' was written by a later version of this program", path);
    else if (!json_is_object(o) || !was || !keep_hash(o, hash) || strcmp(was, hash) != 0)
        rd_fail(st, RD_EDATA,
                "'%s' is not the file that was kept: its hash differs; restore it, or remove it, "
                "and training writes it anew",
                path);
    else if (!keep_valid(o))
        rd_fail(st, RD_EDATA, "'%s' has no sizes of images or names of classes; restore it", path);
    if (st->code == RD_OK)
        *out = o;
    else
        json_decref(o);
    return st->code;
}

rd_code rd_images_kept(const rd_dataset_args *a, json_t **out, rd_status *st)
{
    char path[4200], *text = NULL;
    size_t n = 0;
    int64_t bytes = 0;
    bool there = false;
    const bool root = rd_rank_of(a->comm) == 0;
    *out = NULL;
    if (!a->logdir || !a->logdir[0]) return RD_OK;
    (void)snprintf(path, sizeof path, "%.4000s/data.json", a->logdir);
    if (root && rd_path_there(path, &there, st) == RD_OK && there &&
        rd_file_read_limited(path, RD_EDATA, KEEP_BYTES, "a data.json", &text, &n, st) == RD_OK)
        bytes = (int64_t)n;
    RD_TRY(rd_agree(a->comm, st));
    if (rd_size_of(a->comm) > 1) {
        RD_TRY(rd_comm_bcast(a->comm, &bytes, sizeof bytes, 0, st));
        if (!root && !(text = malloc((size_t)bytes + 1)))
            rd_fail(st, RD_EENV, "out of memory for data.json");
        RD_TRY(rd_agree(a->comm, st));
        if (bytes > 0) RD_TRY(rd_comm_bcast(a->comm, text, bytes, 0, st));
    }
    if (bytes > 0 || there) (void)keep_parse(path, text, (size_t)bytes, out, st);
    RD_TRY(rd_agree(a->comm, st));
done:
    free(text);
    return st->code;
}
