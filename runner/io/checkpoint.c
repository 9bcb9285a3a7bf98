/* checkpoint.c -- saves and loads model-<step>.npz. checkpoint.h describes the order of a save.
 *
 * The manifest is the last member of the archive, because the CRC32C of an array is known once the
 * array is written:
 *     {"format_version": 1, "step": 500, ...the caller's entries...,
 *      "arrays": [{"name": ..., "shape": ..., "dtype": ..., "crc32c": ...}, ...]}
 * A loader that finds the manifest and all its arrays with matching checksums has
 * the whole checkpoint. */
#include "ckpt_impl.h"
#include "npz_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { format_version = 1 };
static const char manifest_name[] = "manifest.json";
/* Largest step, epoch or other number of progress that is believed. */
static const json_int_t most_progress = INT64_C(1000000000000000);

/* Fails if the file system of dir has too little space for the checkpoint. */
static rd_code checkpoint_check_space(const char *dir, const rd_array *a, int n, size_t meta_bytes,
                                      rd_status *st)
{
    /* Per member: both zip headers, each with the name, the NPY header, and
     * the manifest's entry. */
    uint64_t need = (uint64_t)meta_bytes + (64 << 10) + (uint64_t)n * 1536;
    for (int i = 0; i < n; i++) need += a[i].bytes;
    struct statvfs v;
    if (statvfs(dir, &v) != 0)
        return rd_fail(st, RD_EENV,
                       "cannot save a checkpoint in '%s': %s; is the log folder still there?", dir,
                       strerror(errno));
    const uint64_t have = (uint64_t)v.f_bavail * (uint64_t)v.f_frsize;
    if (v.f_blocks > 0 && have < need) /* some network file systems report no sizes */
        rd_fail(st, RD_EENV,
                "no space for a checkpoint in '%s': %" PRIu64 " bytes needed, %" PRIu64
                " free; earlier checkpoints are intact; "
                "free space on that disk and start the same command again",
                dir, need, have);
    return st->code;
}

/* Returns the manifest's entry for an array; NULL: out of memory. The caller owns it. */
static json_t *array_entry(const rd_array *a, uint32_t crc)
{
    json_t *shape = json_array();
    for (int d = 0; shape && d < a->n_dim; d++)
        json_array_append_new(shape, json_integer(a->dim[d]));
    char hex[16];
    snprintf(hex, sizeof hex, "%08" PRIx32, crc);
    return json_pack("{s:s, s:o, s:s, s:s}", "name", a->name, "shape", shape, "dtype", a->descr,
                     "crc32c", hex);
}

/* Returns a manifest without its arrays; NULL: out of memory. An entry of meta with the name of one
 * of ours is left out, so no manifest has two steps. */
static json_t *manifest_begin(const json_t *meta, int64_t step)
{
    json_t *m = json_object();
    if (!m || json_object_set_new(m, "format_version", json_integer(format_version)) != 0 ||
        json_object_set_new(m, "step", json_integer(step)) != 0 ||
        (meta && json_object_update_missing(m, (json_t *)(uintptr_t)meta) != 0)) {
        json_decref(m);
        return NULL;
    }
    return m;
}

static rd_code write_archive(const char *path, const rd_array *a, int n, json_t *manifest,
                             rd_status *st)
{
    rd_npz_out o = {0};
    char *text = NULL;
    double all = 0.0;
    json_t *list = json_array();
    RD_TRY(rd_npz_out_open(&o, path, st));
    for (int i = 0; i < n; i++) all += (double)a[i].bytes;
    rd_arrays_begin(all);
    for (int i = 0; i < n; i++) {
        uint32_t crc;
        RD_TRY(rd_npz_out_array(&o, &a[i], &crc, st));
        json_array_append_new(list, array_entry(&a[i], crc));
    }
    if (json_array_size(list) == (size_t)n && json_object_set(manifest, "arrays", list) == 0)
        text = json_dumps(manifest, JSON_INDENT(1));
    if (!text) {
        rd_fail(st, RD_EENV, "out of memory while writing '%s'", path);
        goto done;
    }
    RD_TRY(rd_npz_out_text(&o, manifest_name, text, st));
    RD_TRY(rd_npz_out_commit(&o, st));
done:
    rd_npz_out_release(&o);
    free(text);
    json_decref(list);
    return st->code;
}

rd_code rd_ckpt_point(const char *dir, const char *prefix, int64_t step, rd_status *st)
{
    char path[4200], line[512];
    bool odd;
    const char *kind;
    if (rd_ckpt_pointer_read(dir, prefix, &odd, &kind) == step) return RD_OK;
    snprintf(path, sizeof path, "%s/checkpoint", dir);
    const int n = snprintf(line, sizeof line, "%s-%" PRId64 ".npz\n", prefix, step);
    return rd_file_write_atomic(path, line, (size_t)n, st);
}

rd_code rd_ckpt_save(const char *dir, const char *name_prefix, int64_t step, const rd_array *a,
                     int n, const json_t *meta, int keep, rd_status *st)
{
    char path[4096];
    json_t *manifest = NULL;
    RD_TRY(rd_ckpt_path(dir, name_prefix, step, path, st));
    if (step < 0 || rd_ckpt_step_of(strrchr(path, '/') + 1, name_prefix) != step ||
        strlen(name_prefix) > 64) {
        rd_fail(st, RD_EBUG, "'%s' is not the name of a checkpoint", path);
        goto done;
    }
    manifest = manifest_begin(meta, step);
    char *text = manifest ? json_dumps(manifest, JSON_INDENT(1)) : NULL;
    if (!text) {
        rd_fail(st, RD_EENV, "out of memory while saving '%s'", path);
        goto done;
    }
    const size_t meta_bytes = strlen(text);
    free(text);
    RD_TRY(checkpoint_check_space(dir, a, n, meta_bytes, st));
    if (write_archive(path, a, n, manifest, st) != RD_OK) {
        rd_status_prefix(st, "checkpoint not saved, earlier checkpoints are intact");
        goto done;
    }
    /* The folder may have been replaced meanwhile: `checkpoint` never names what is not there. */
    if (access(path, F_OK) != 0) {
        rd_fail(st, RD_EENV, "cannot find '%s' after it was written: %s; was its folder moved?",
                path, strerror(errno));
        goto done;
    }
    if (rd_ckpt_has_pointer(name_prefix)) RD_TRY(rd_ckpt_point(dir, name_prefix, step, st));
    RD_TRY(rd_ckpt_retain(dir, name_prefix, step, keep, st));
done:
    json_decref(manifest);
    return st->code;
}

void rd_ckpt_release(rd_ckpt *c)
{
    rd_npz_free(c->npz);
    json_decref(c->meta);
    memset(c, 0, sizeof *c);
}

static rd_code checkpoint_check_array(const rd_npz *z, const json_t *entry, rd_status *st)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const char *hex = json_string_value(json_object_get(entry, "crc32c"));
    const json_t *shape = json_object_get(entry, "shape");
    if (!name || !dtype || !hex || !json_is_array(shape))
        return rd_fail(st, RD_ECKPT,
                       "the manifest has an entry without name, shape, dtype and crc32c");
    const rd_array *a = rd_npz_find(z, name);
    if (!a) return rd_fail(st, RD_ECKPT, "array '%s' is missing", name);
    bool same = strcmp(a->descr, dtype) == 0 && json_array_size(shape) == (size_t)a->n_dim;
    for (int d = 0; same && d < a->n_dim; d++) {
        const json_t *v = json_array_get(shape, (size_t)d);
        same = json_is_integer(v) && json_integer_value(v) == a->dim[d];
    }
    if (!same)
        return rd_fail(st, RD_ECKPT, "array '%s' differs from the manifest in type or shape", name);
    char ours[16];
    snprintf(ours, sizeof ours, "%08" PRIx32, rd_crc32c(0, a->data, a->bytes));
    if (strcmp(ours, hex) != 0)
        return rd_fail(st, RD_ECKPT, "array '%s' is damaged: CRC32C %s, the manifest says %.16s",
                       name, ours, hex);
    return st->code;
}

/* Fails if the entry `key` of an object is there, but is no number from low to most_progress.
 * whole: it must be an integer. */
static rd_code check_number(const json_t *object, const char *key, json_int_t low, bool whole,
                            rd_status *st)
{
    const json_t *v = json_object_get(object, key);
    const double x = json_number_value(v);
    if (!v || (json_is_integer(v) && json_integer_value(v) >= low &&
               json_integer_value(v) <= most_progress))
        return RD_OK;
    if (!whole && json_is_real(v) && x >= (double)low && x <= (double)most_progress) return RD_OK;
    return rd_fail(st, RD_ECKPT,
                   "%s: '%s' is not a %snumber from %" JSON_INTEGER_FORMAT
                   " to %" JSON_INTEGER_FORMAT,
                   manifest_name, key, whole ? "whole " : "", low, most_progress);
}

/* Checks sums over steps. */
static rd_code check_sums(const json_t *m, const char *key, rd_status *st)
{
    const json_t *sums = json_object_get(m, key), *classes = json_object_get(sums, "classes");
    if (check_number(sums, "weight", 0, false, st) != RD_OK ||
        check_number(sums, "targets", 0, false, st) != RD_OK ||
        check_number(sums, "samples", 0, false, st) != RD_OK)
        return st->code;
    if (sums && !json_is_number(json_object_get(sums, "loss")))
        return rd_fail(st, RD_ECKPT, "%s: the 'loss' of '%s' is not a number", manifest_name, key);
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const double x = json_number_value(json_array_get(classes, i));
        if (!(x >= 0.0 && x <= (double)most_progress))
            return rd_fail(st, RD_ECKPT, "%s: a count of 'classes' is not in 0 .. %g",
                           manifest_name, (double)most_progress);
    }
    return RD_OK;
}

/* Checks what a run needs to go on with another global batch, and the sums of its steps. */
static rd_code check_position(const json_t *m, rd_status *st)
{
    const json_t *parts = json_object_get(m, "parts"), *schedule = json_object_get(m, "schedule"),
                 *from = json_object_get(schedule, "step"), *to = json_object_get(m, "step");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        if (!json_object_get(part, "global_batch") || !json_object_get(part, "batches"))
            return rd_fail(st, RD_ECKPT, "%s: a part has no 'global_batch' or 'batches'",
                           manifest_name);
        if (check_number(part, "global_batch", 1, true, st) != RD_OK ||
            check_number(part, "batches", 0, true, st) != RD_OK ||
            check_number(part, "batch_tokens", 1, true, st) != RD_OK)
            return st->code;
    }
    if (check_number(schedule, "step", 0, true, st) != RD_OK ||
        check_number(schedule, "samples", 0, true, st) != RD_OK ||
        check_number(schedule, "epoch", 0, false, st) != RD_OK ||
        check_number(schedule, "step_samples", 1, true, st) != RD_OK ||
        check_sums(m, "epoch_sums", st) != RD_OK || check_sums(m, "summary_sums", st) != RD_OK)
        return st->code;
    if (json_is_integer(to) && json_integer_value(from) > json_integer_value(to))
        return rd_fail(st, RD_ECKPT, "%s: the schedule's 'step' is later than the checkpoint's",
                       manifest_name);
    return RD_OK;
}

/* Checks the numbers of progress that a run writes. A checksum does not vouch for them, and the
 * trainer computes with them. */
static rd_code check_progress(const json_t *m, rd_status *st)
{
    static const struct {
        const char *key;
        json_int_t low;
    } whole[] = {{"step", 0},
                 {"updates", 0},
                 {"skipped", 0},
                 {"epoch", 0},
                 {"batch", 0},
                 {"samples", 0},
                 {"global_batch", 0},
                 {"batch_tokens", 1},
                 {"best_step", -1},
                 {"best_before", -1},
                 {"loss_scale_good_steps", 0},
                 {"skipped_in_row", 0},
                 {"bad_in_row", 0},
                 {"diverging", 0},
                 {"all_samples", 0},
                 {"state_updates", 0},
                 {"spiked", 0}},
      of_plateau[] = {{"wait", 0}, {"cooldown", 0}, {"cuts", 0}};
    const json_t *plateau = json_object_get(m, "plateau"),
                 *factor = json_object_get(plateau, "factor"),
                 *scale = json_object_get(m, "loss_scale");
    const size_t n = sizeof whole / sizeof whole[0],
                 n_all = n + sizeof of_plateau / sizeof of_plateau[0];
    for (size_t i = 0; i < n_all; i++) {
        const char *key = i < n ? whole[i].key : of_plateau[i - n].key;
        const json_int_t low = i < n ? whole[i].low : of_plateau[i - n].low;
        if (check_number(i < n ? m : plateau, key, low, true, st) != RD_OK) return st->code;
    }
    if (check_position(m, st) != RD_OK) return st->code;
    if (check_number(json_object_get(m, "patience"), "wait", 0, true, st) != RD_OK) return st->code;
    if (factor && !(json_number_value(factor) > 0.0 && json_number_value(factor) <= 1.0))
        return rd_fail(st, RD_ECKPT, "%s: the plateau's 'factor' is not in 0 .. 1", manifest_name);
    if (scale && !(json_number_value(scale) > 0.0))
        return rd_fail(st, RD_ECKPT, "%s: 'loss_scale' is not larger than 0", manifest_name);
    return RD_OK;
}

/* Reads the manifest and checks the arrays against it. *newer: the checkpoint seems intact but has
 * a later format. */
static rd_code check_manifest(rd_ckpt *c, bool *newer, rd_status *st)
{
    const rd_array *text = rd_npz_find(c->npz, manifest_name);
    json_error_t err;
    if (!text)
        return rd_fail(st, RD_ECKPT, "has no %s: not a checkpoint of run_dist", manifest_name);
    c->meta = json_loadb(text->data, text->bytes, JSON_REJECT_DUPLICATES, &err);
    if (!json_is_object(c->meta))
        return rd_fail(st, RD_ECKPT, "%s is not a JSON object: line %d: %s", manifest_name,
                       err.line, err.text);
    const json_t *version = json_object_get(c->meta, "format_version"),
                 *step = json_object_get(c->meta, "step");
    const json_t *arrays = json_object_get(c->meta, "arrays");
    if (!json_is_integer(version) || json_integer_value(version) < 1)
        return rd_fail(st, RD_ECKPT, "%s has no 'format_version': not a checkpoint of run_dist",
                       manifest_name);
    if (json_integer_value(version) > format_version) {
        *newer = true;
        return rd_fail(st, RD_ECKPT,
                       "written by a newer run_dist (checkpoint format %" JSON_INTEGER_FORMAT
                       ", this program reads up to %d); use that program, or another --logdir",
                       json_integer_value(version), format_version);
    }
    if (!json_is_integer(step) || json_integer_value(step) < 0 || !json_is_array(arrays))
        return rd_fail(st, RD_ECKPT, "%s lacks 'step' or 'arrays'", manifest_name);
    c->step = json_integer_value(step);
    if (check_progress(c->meta, st) != RD_OK) return st->code;
    const json_t *inner = json_object_get(c->meta, "meta");
    if (json_is_object(inner) && check_progress(inner, st) != RD_OK) return st->code;
    if (json_array_size(arrays) + 1 != (size_t)rd_npz_n(c->npz))
        return rd_fail(st, RD_ECKPT, "%d arrays in the archive, %zu in its manifest",
                       rd_npz_n(c->npz) - 1, json_array_size(arrays));
    for (size_t i = 0; i < json_array_size(arrays); i++)
        if (checkpoint_check_array(c->npz, json_array_get(arrays, i), st) != RD_OK) return st->code;
    return st->code;
}

static rd_code checkpoint_load(const char *path, rd_ckpt *out, bool *newer, rd_status *st)
{
    *newer = false;
    memset(out, 0, sizeof *out);
    if (strlen(path) >= sizeof out->path)
        return rd_fail(st, RD_ECKPT, "the path '%.200s...' is too long", path);
    memcpy(out->path, path, strlen(path) + 1);
    if (rd_npz_new(path, &out->npz, st) == RD_OK && check_manifest(out, newer, st) != RD_OK)
        rd_status_prefix(st, "'%s'", path);
    if (st->code != RD_OK) rd_ckpt_release(out);
    return st->code;
}

bool rd_ckpt_renamed(const rd_ckpt *c, int64_t *named)
{
    static const char *const prefix[] = {"model", "best", "top", "average"};
    const char *slash = strrchr(c->path, '/');
    *named = -1;
    for (int i = 0; i < 4 && *named < 0; i++)
        *named = rd_ckpt_step_of(slash ? slash + 1 : c->path, prefix[i]);
    return *named >= 0 && *named != c->step;
}

rd_code rd_ckpt_load(const char *path, rd_ckpt *out, rd_status *st)
{
    bool newer;
    return checkpoint_load(path, out, &newer, st);
}

/* Appends a text to the warning, after "; " if there is one already. */
static void checkpoint_add_warning(char *warning, const char *text)
{
    const size_t n = strlen(warning);
    if (n + 3 < RD_MSG_BYTES)
        snprintf(warning + n, RD_MSG_BYTES - n, "%s%.*s", n ? "; " : "",
                 (int)(RD_MSG_BYTES - n - 3), text);
}

/* A checkpoint file of the folder. */
typedef struct checkpoint_file {
    const char *prefix;
    int64_t step;
} checkpoint_file;

/* Sorts the largest step first. Of the same step, "model" comes before "best". */
static int checkpoint_compare(const void *a, const void *b)
{
    const checkpoint_file *x = a, *y = b;
    if (x->step != y->step) return (x->step < y->step) - (x->step > y->step);
    return strcmp(y->prefix, x->prefix);
}

/* Lists all files that rd_ckpt_load_newest may load, newest first. The caller frees *out. */
static rd_code list_files(const char *dir, const char *prefix, checkpoint_file **out, int *n,
                          rd_status *st)
{
    const char *const prefixes[2] = {prefix, rd_ckpt_has_pointer(prefix) ? "best" : NULL};
    rd_ckpt_list l[2] = {{0}};
    *n = 0;
    *out = NULL;
    for (int k = 0; k < 2 && prefixes[k]; k++)
        RD_TRY(rd_ckpt_list_new(dir, prefixes[k], &l[k], st));
    *out = malloc((size_t)(l[0].n + l[1].n + 1) * sizeof **out);
    if (!*out) {
        rd_fail(st, RD_EENV, "out of memory while listing log folder '%s'", dir);
        goto done;
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < l[k].n; i++)
            (*out)[(*n)++] = (checkpoint_file){prefixes[k], l[k].step[i]};
    qsort(*out, (size_t)*n, sizeof **out, checkpoint_compare);
done:
    for (int k = 0; k < 2; k++) rd_ckpt_list_release(&l[k]);
    return st->code;
}

/* Adds a warning if the file `checkpoint` names nothing, or a file that is not there. If there is
 * no other file either, *lost becomes RD_ECKPT. Fails if `checkpoint` is no file. */
static rd_code check_pointer(const char *dir, const char *prefix, const checkpoint_file *file,
                             int n, char *warning, rd_status *lost, rd_status *st)
{
    char text[200];
    bool odd;
    const char *kind;
    const int64_t named = rd_ckpt_pointer_read(dir, prefix, &odd, &kind);
    if (kind)
        return rd_fail(st, RD_ECKPT, "'%s/checkpoint' is %s, not a regular file; remove it", dir,
                       kind);
    if (odd)
        checkpoint_add_warning(
            warning,
            "the file 'checkpoint' names no checkpoint; loading the one with the largest step");
    for (int i = 0; i < n; i++)
        if (file[i].step == named && strcmp(file[i].prefix, prefix) == 0) return RD_OK;
    if (named < 0) return RD_OK;
    snprintf(text, sizeof text,
             "the file 'checkpoint' names %.64s-%" PRId64 ".npz, which is not there%s", prefix,
             named, n > 0 ? "; loading the one with the largest step" : "");
    checkpoint_add_warning(warning, text);
    if (n == 0) rd_fail(lost, RD_ECKPT, "%s", text);
    return RD_OK;
}

rd_code rd_ckpt_load_newest(const char *dir, const char *name_prefix, rd_ckpt *out, char *warning,
                            rd_status *st)
{
    checkpoint_file *file = NULL;
    rd_status last = {0};
    int n = 0;
    memset(out, 0, sizeof *out);
    warning[0] = '\0';
    rd_ckpt_remove_stale(dir);
    RD_TRY(list_files(dir, name_prefix, &file, &n, st));
    RD_TRY(check_pointer(dir, name_prefix, file, n, warning, &last, st));
    for (int i = 0; i < n; i++) {
        char path[4096];
        bool newer;
        rd_status one = {0};
        RD_TRY(rd_ckpt_path(dir, file[i].prefix, file[i].step, path, st));
        if (checkpoint_load(path, out, &newer, &one) == RD_OK) goto done;
        /* Only damage leads to an older checkpoint. A newer format, or missing memory or
         * permission, is for the user to solve. */
        if (newer || one.code != RD_ECKPT) {
            *st = one;
            goto done;
        }
        checkpoint_add_warning(warning, one.msg);
        last = one;
    }
    if (last.code != RD_OK)
        rd_fail(st, RD_ECKPT,
                "no whole checkpoint is left in '%s' (%.300s); move them and the file 'checkpoint' "
                "away to start anew",
                dir, last.msg);
done:
    free(file);
    return st->code;
}
