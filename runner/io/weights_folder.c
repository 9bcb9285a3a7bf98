/* weights_folder.c -- folders of weights; see weights_folder.h. */
#include "rd/weights_folder.h"
#include "npz_impl.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/safetensors.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4400, JSON_MOST = 64 << 20, MOST_FILES = 10000 };
static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

struct rd_weights {
    char *folder;          /* owned */
    rd_safetensors **file; /* owned; [n_files] */
    char **name;           /* owned; [n_files] of the files */
    int n_files;
};

static rd_code folder_path(const char *folder, const char *file, char out[PATH_BYTES],
                           rd_status *st)
{
    if (strlen(folder) > 4000)
        return rd_fail(st, RD_EUSAGE,
                       "the folder of the weights has a path of %zu bytes; 4000 are "
                       "allowed",
                       strlen(folder));
    (void)snprintf(out, PATH_BYTES, "%s/%.300s", folder, file);
    return RD_OK;
}

rd_code rd_weights_there(const char *folder, bool *there, rd_status *st)
{
    char path[PATH_BYTES];
    struct stat s;
    *there = false;
    if (strlen(folder) > 4000 || rd_path_stat(folder, &s, RD_MAYBE) != 0 || !S_ISDIR(s.st_mode))
        return RD_OK;
    RD_TRY(folder_path(folder, one_file, path, st));
    RD_TRY(rd_path_there(path, there, st));
    if (*there) return RD_OK;
    RD_TRY(folder_path(folder, index_file, path, st));
    RD_TRY(rd_path_there(path, there, st));
done:
    return st->code;
}

rd_code rd_weights_json(const char *folder, const char *file, json_t **out, rd_status *st)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    json_error_t why;
    *out = NULL;
    RD_TRY(folder_path(folder, file, path, st));
    RD_TRY(rd_file_read_limited(path, RD_ECKPT, JSON_MOST, "a file of weights' settings", &text, &n,
                                st));
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        rd_fail(st, RD_ECKPT, "'%s':%d:%d: %.120s", path, why.line, why.column, why.text);
    else if (!json_is_object(*out))
        rd_fail(st, RD_ECKPT, "'%s' is no JSON object", path);
done:
    if (st->code != RD_OK) {
        json_decref(*out);
        *out = NULL;
    }
    free(text);
    return st->code;
}

void rd_weights_free(rd_weights *w)
{
    if (!w) return;
    for (int i = 0; i < w->n_files; i++) {
        rd_safetensors_free(w->file[i]);
        free(w->name[i]);
    }
    free(w->file);
    free(w->name);
    free(w->folder);
    free(w);
}

const char *rd_weights_path(const rd_weights *w)
{
    return w->folder;
}

/* Opens a file of the folder, unless it is open. *k: its number. */
static rd_code folder_open_file(rd_weights *w, const char *file, int *k, rd_status *st)
{
    char path[PATH_BYTES];
    for (*k = 0; *k < w->n_files; (*k)++)
        if (strcmp(w->name[*k], file) == 0) return RD_OK;
    if (w->n_files == MOST_FILES)
        return rd_fail(st, RD_ECKPT, "more than %d files of weights", MOST_FILES);
    rd_safetensors **more = realloc(w->file, (size_t)(w->n_files + 1) * sizeof *more);
    if (more) w->file = more;
    char **names = realloc(w->name, (size_t)(w->n_files + 1) * sizeof *names);
    if (names) w->name = names;
    char *name = strdup(file);
    if (!more || !names || !name) {
        free(name);
        return rd_fail(st, RD_EENV, "out of memory for a list of files");
    }
    w->file[w->n_files] = NULL;
    w->name[w->n_files++] = name;
    RD_TRY(folder_path(w->folder, file, path, st));
    RD_TRY(rd_safetensors_new(path, &w->file[*k], st));
done:
    return st->code;
}

/* Is it the plain name of a file in the folder? */
static bool folder_plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 256;
}

/* Opens the files that the index names, and checks that each array is where the index says. */
static rd_code folder_open_index(rd_weights *w, rd_status *st)
{
    json_t *root = NULL, *v;
    const char *key;
    int k, n = 0;
    RD_TRY(rd_weights_json(w->folder, index_file, &root, st));
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        RD_TRY(rd_fail(st, RD_ECKPT, "'%s/%s': 'weight_map' is no object with names of arrays",
                       w->folder, index_file));
    json_object_foreach(map, key, v)
    {
        const char *file = json_string_value(v);
        if (!folder_plain_name(file))
            RD_TRY(rd_fail(st, RD_ECKPT, "'%s/%s': the file of '%.100s' is no name of a file",
                           w->folder, index_file, key));
        RD_TRY(folder_open_file(w, file, &k, st));
        if (!rd_safetensors_find(w->file[k], key))
            RD_TRY(rd_fail(st, RD_ECKPT, "'%s/%s' says that '%.100s' is in %s, which lacks it",
                           w->folder, index_file, key, file));
    }
    for (k = 0; k < w->n_files; k++) n += rd_safetensors_n(w->file[k]);
    if ((size_t)n != json_object_size(map))
        rd_fail(st, RD_ECKPT,
                "'%s/%s' names %zu arrays, and its files have %d; files of another save are mixed "
                "in",
                w->folder, index_file, json_object_size(map), n);
done:
    json_decref(root);
    return st->code;
}

rd_code rd_weights_new(const char *folder, rd_weights **out, rd_status *st)
{
    char path[PATH_BYTES];
    double all = 0.0;
    bool whole = false;
    int k;
    rd_weights *w = *out = calloc(1, sizeof *w);
    if (w) w->folder = strdup(folder);
    if (!w || !w->folder) {
        rd_fail(st, RD_EENV, "out of memory for weights");
        goto done;
    }
    RD_TRY(folder_path(folder, one_file, path, st));
    RD_TRY(rd_path_there(path, &whole, st));
    if (whole)
        (void)folder_open_file(w, one_file, &k, st);
    else
        (void)folder_open_index(w, st);
    for (int i = 0; st->code == RD_OK && i < rd_weights_n(w); i++)
        all += (double)rd_weights_at(w, i)->bytes;
    rd_arrays_begin(all);
done:
    if (st->code != RD_OK) {
        rd_weights_free(w);
        *out = NULL;
    }
    return st->code;
}

rd_code rd_weights_new_file(const char *folder, const char *file, rd_weights **out, rd_status *st)
{
    int k;
    rd_weights *w = *out = calloc(1, sizeof *w);
    if (w) w->folder = strdup(folder);
    if (w && w->folder)
        (void)folder_open_file(w, file, &k, st);
    else
        rd_fail(st, RD_EENV, "out of memory for weights");
    if (st->code != RD_OK) {
        rd_weights_free(w);
        *out = NULL;
    }
    return st->code;
}

int rd_weights_n(const rd_weights *w)
{
    int n = 0;
    for (int k = 0; k < w->n_files; k++) n += rd_safetensors_n(w->file[k]);
    return n;
}

const rd_array *rd_weights_at(const rd_weights *w, int i)
{
    for (int k = 0; k < w->n_files; i -= rd_safetensors_n(w->file[k++]))
        if (i < rd_safetensors_n(w->file[k])) return rd_safetensors_at(w->file[k], i);
    return NULL;
}

const rd_array *rd_weights_find(const rd_weights *w, const char *name)
{
    for (int k = 0; k < w->n_files; k++) {
        const rd_array *a = rd_safetensors_find(w->file[k], name);
        if (a) return a;
    }
    return NULL;
}

/* ---- types ---- */

float rd_weights_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1F;
    uint32_t bits, fraction = h & 0x3FF;
    float x;
    if (exponent == 0) { /* zero, or a number without a leading 1 */
        x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    bits = sign | (exponent == 31 ? 0xFFu : exponent + 112) << 23 | fraction << 13;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float of_bf16(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Widens n elements in place: the file's bytes are in the second half of the memory of out. They
 * are read as bytes, since they have another type. */
static void widen_halves(bool bf16, float *out, int64_t n)
{
    const unsigned char *from = (const unsigned char *)out + 2 * (size_t)n;
    uint16_t h;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&h, from + 2 * i, sizeof h);
        out[i] = bf16 ? of_bf16(h) : rd_weights_of_f16(h);
    }
}

static rd_code read_doubles(const rd_safetensors *s, int i, float *out, int64_t n, rd_status *st)
{
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    if (!x) return rd_fail(st, RD_EENV, "out of memory for weights");
    if (rd_safetensors_read(s, i, x, st) == RD_OK)
        for (int64_t k = 0; k < n; k++) out[k] = (float)x[k];
    free(x);
    return st->code;
}

static rd_code read_array(const rd_weights *w, int k, int i, float *out, int64_t n, rd_status *st)
{
    const rd_array *a = rd_safetensors_at(w->file[k], i);
    const bool half = strcmp(a->descr, "bf16") == 0 || strcmp(a->descr, "<f2") == 0;
    const size_t size = half                           ? 2
                        : strcmp(a->descr, "<f4") == 0 ? 4
                        : strcmp(a->descr, "<f8") == 0 ? 8
                                                       : 0;
    if (size == 0)
        return rd_fail(st, RD_ECKPT,
                       "'%s/%s': '%s' has integers or another type that weights do not have",
                       w->folder, w->name[k], a->name);
    if (a->bytes / size != (size_t)n)
        return rd_fail(st, RD_ECKPT, "'%s/%s': '%s' has %zu elements instead of %" PRId64,
                       w->folder, w->name[k], a->name, a->bytes / size, n);
    if (size == 8) return read_doubles(w->file[k], i, out, n, st);
    if (rd_safetensors_read(w->file[k], i, (char *)out + (half ? 2 * (size_t)n : 0), st) == RD_OK &&
        half)
        widen_halves(strcmp(a->descr, "bf16") == 0, out, n);
    return st->code;
}

rd_code rd_weights_read(const rd_weights *w, const char *name, float *out, int64_t n, rd_status *st)
{
    for (int k = 0; k < w->n_files; k++)
        for (int i = 0; i < rd_safetensors_n(w->file[k]); i++)
            if (strcmp(rd_safetensors_at(w->file[k], i)->name, name) == 0)
                return read_array(w, k, i, out, n, st);
    return rd_fail(st, RD_EBUG, "'%s' has no array '%s'", w->folder, name);
}
