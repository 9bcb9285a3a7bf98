/* npz_same.c -- are the arrays of two .npz archives the same bytes?
 *
 *     npz_same A.npz B.npz
 *
 * Names, types, shapes and data of all arrays; the manifest of a checkpoint, which names the number of ranks, is no array. Exit
 * status 0: the same; 1: not, and the first difference is named. */
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

/* Every array of x is in y, the same. */
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
    if (argc != 3) return fprintf(stderr, "usage: npz_same A.npz B.npz\n"), (int)RD_EUSAGE;
    RD_TRY(rd_npz_new(argv[1], &x, &st));
    RD_TRY(rd_npz_new(argv[2], &y, &st));
    differ = missing(x, y, argv[2]) || missing(y, x, argv[1]);
done:
    if (st.code != RD_OK) fprintf(stderr, "npz_same: %s\n", st.msg);
    rd_npz_free(x);
    rd_npz_free(y);
    return st.code != RD_OK ? (int)st.code : differ;
}
