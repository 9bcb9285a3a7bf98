/* npz_same.c -- compares two .npz archives, or two JSON files.
 *
 *     npz_same [--new_keys] [--manifest] A.npz B.npz
 *     npz_same [--new_keys] --json A.json B.json
 *
 * Compares names, types, shapes and bytes of all arrays. With --manifest, also the values in
 * manifest.json, which names the number of ranks. The order of keys in a JSON object is not
 * compared. With --new_keys, a key that only B has is no difference. Exit status 0: equal;
 * 1: different, and the first difference is printed. */
#include "rd/file.h"
#include "rd/npz.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool new_keys;

static bool same(const rd_array *a, const rd_array *b)
{
    if (strcmp(a->descr, b->descr) != 0 || a->n_dim != b->n_dim || a->bytes != b->bytes)
        return false;
    for (int k = 0; k < a->n_dim; k++)
        if (a->dim[k] != b->dim[k]) return false;
    return memcmp(a->data, b->data, a->bytes) == 0;
}

/* Prints the path of the first value that differs between two JSON texts. The order of an object's
 * keys has no meaning and is not compared. */
static int json_differs(const char *path, const json_t *a, const json_t *b)
{
    if (json_is_object(a) && json_is_object(b)) {
        const char *key;
        json_t *value;
        char inner[512];
        json_object_foreach((json_t *)a, key, value)
        {
            (void)snprintf(inner, sizeof inner, "%.250s.%.250s", path, key);
            if (!json_object_get(b, key)) return printf("%s: only in the first\n", inner), 1;
            if (json_differs(inner, value, json_object_get(b, key))) return 1;
        }
        json_object_foreach((json_t *)b, key, value)
        {
            if (!new_keys && !json_object_get(a, key))
                return printf("%s.%s: only in the second\n", path, key), 1;
        }
        return 0;
    }
    if (json_equal(a, b)) return 0;
    char *x = json_dumps(a, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)),
         *y = json_dumps(b, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    printf("%s: %.200s, %.200s\n", path, x ? x : "?", y ? y : "?");
    free(x);
    free(y);
    return 1;
}

static int texts_differ(const char *name, const char *a, size_t n_a, const char *b, size_t n_b)
{
    json_error_t e;
    json_t *x = json_loadb(a, n_a, 0, &e), *y = json_loadb(b, n_b, 0, &e);
    int differ = 1;
    if (x && y)
        differ = json_differs(name, x, y);
    else
        printf("%s: not JSON: %s\n", name, e.text);
    json_decref(x);
    json_decref(y);
    return differ;
}

static int manifests_differ(const rd_npz *x, const rd_npz *y)
{
    const rd_array *a = rd_npz_find(x, "manifest.json"), *b = rd_npz_find(y, "manifest.json");
    if (!a && !b) return 0;
    if (!a || !b) return printf("only one archive has a manifest.json\n"), 1;
    return texts_differ("manifest.json", a->data, a->bytes, b->data, b->bytes);
}

static int files_differ(const char *a, const char *b, rd_status *st)
{
    char *x = NULL, *y = NULL;
    size_t n_x = 0, n_y = 0;
    int differ = 1;
    RD_TRY(rd_file_read(a, RD_EDATA, &x, &n_x, st));
    RD_TRY(rd_file_read(b, RD_EDATA, &y, &n_y, st));
    differ = texts_differ("", x, n_x, y, n_y);
done:
    free(x);
    free(y);
    return differ;
}

/* Returns 1 and prints the name when an array of x is not in y with equal bytes. */
static int missing(const rd_npz *x, const rd_npz *y, const char *name_y)
{
    for (int i = 0; i < rd_npz_n(x); i++) {
        const rd_array *a = rd_npz_at(x, i), *b = rd_npz_find(y, a->name);
        if (strcmp(a->name, "manifest.json") == 0) continue;
        if (b && same(a, b)) continue;
        printf("'%s' %s %s\n", a->name, b ? "has other bytes in" : "is not in", name_y);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    rd_npz *x = NULL, *y = NULL;
    int differ = 1;
    new_keys = argc > 1 && strcmp(argv[1], "--new_keys") == 0;
    argc -= new_keys;
    argv += new_keys;
    const bool manifest = argc == 4 && strcmp(argv[1], "--manifest") == 0,
               json = argc == 4 && strcmp(argv[1], "--json") == 0;
    if (argc != 3 + manifest + json) {
        fprintf(stderr, "usage: npz_same [--new_keys] [--manifest] A.npz B.npz, "
                        "npz_same [--new_keys] --json A.json B.json\n");
        return (int)RD_EUSAGE;
    }
    if (json) {
        differ = files_differ(argv[2], argv[3], &st);
        goto done;
    }
    const char *a = argv[1 + manifest], *b = argv[2 + manifest];
    RD_TRY(rd_npz_new(a, &x, &st));
    RD_TRY(rd_npz_new(b, &y, &st));
    differ = missing(x, y, b) || missing(y, x, a) || (manifest && manifests_differ(x, y));
done:
    if (st.code != RD_OK) fprintf(stderr, "npz_same: %s\n", st.msg);
    rd_npz_free(x);
    rd_npz_free(y);
    return st.code != RD_OK ? (int)st.code : differ;
}
