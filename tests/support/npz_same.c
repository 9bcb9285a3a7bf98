/* npz_same.c -- compares the arrays of two .npz archives byte for byte.
 *
 *     npz_same [--manifest] A.npz B.npz
 *
 * Compares names, types, shapes and data of all arrays. Skips manifest.json, which names the number of ranks, unless
 * --manifest is given. Exit status 0: equal; 1: different, and the first difference is printed. */
#include "rd/npz.h"
#include <stdio.h>
#include <string.h>

static bool same(const rd_array *a, const rd_array *b)
{
    if (strcmp(a->descr, b->descr) != 0 || a->n_dim != b->n_dim || a->bytes != b->bytes)
        return false;
    for (int k = 0; k < a->n_dim; k++)
        if (a->dim[k] != b->dim[k]) return false;
    return memcmp(a->data, b->data, a->bytes) == 0;
}

static size_t line_bytes(const char *p, size_t n)
{
    const char *end = memchr(p, '\n', n);
    return end ? (size_t)(end - p) : n;
}

/* Prints the first line in which two manifests differ. */
static int manifests_differ(const rd_npz *x, const rd_npz *y)
{
    const rd_array *a = rd_npz_find(x, "manifest.json"), *b = rd_npz_find(y, "manifest.json");
    if (!a && !b) return 0;
    if (!a || !b) return printf("only one archive has a manifest.json\n"), 1;
    const char *p = a->data, *q = b->data;
    size_t i = 0, line = 0;
    while (i < a->bytes && i < b->bytes && p[i] == q[i]) {
        i++;
        if (p[i - 1] == '\n') line = i;
    }
    if (i == a->bytes && i == b->bytes) return 0;
    printf("manifest.json: '%.*s', '%.*s'\n", (int)line_bytes(p + line, a->bytes - line), p + line,
           (int)line_bytes(q + line, b->bytes - line), q + line);
    return 1;
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
    const bool manifest = argc == 4 && strcmp(argv[1], "--manifest") == 0;
    if (argc != 3 + manifest) {
        fprintf(stderr, "usage: npz_same [--manifest] A.npz B.npz\n");
        return (int)RD_EUSAGE;
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
