/* npz.h -- reads and writes NumPy archives through libarchive.
 *
 * An archive is a zip file with one stored member NAME.npy per array. Times and owners are
 * constant, so equal arrays give equal bytes. numpy.load opens the archives. */
#ifndef RD_NPZ_H
#define RD_NPZ_H
#include "rd/status.h"
#include <stdint.h>
RD_C_BEGIN

enum { RD_NPY_MAX_DIM = 6 };
typedef struct rd_array {
    char name[200];
    /* The type: "<f4" "<f8" "<f2" "<i4" "<i8" "|u1"; also "|i1" "|b1" "<i2" "<u2" "<u4" "<u8". */
    char descr[8];
    int n_dim;
    int64_t dim[RD_NPY_MAX_DIM]; /* the shape */
    const void *data;            /* little endian, C order */
    size_t bytes;                /* bytes of data */
    /* NULL: data has them. Else data is NULL, and a writer calls it for the bytes from `at` on:
     * *p points to *n > 0 of them until the next call. */
    rd_code (*read)(void *ctx, size_t at, const void **p, size_t *n, rd_status *st);
    void *ctx;
} rd_array;

/* Writes n arrays into a new archive at path, atomically (rd_tmpfile). manifest: the text of a
 * member "manifest.json"; NULL: no such member. */
rd_code rd_npz_write(const char *path, const rd_array *a, int n, const char *manifest,
                     rd_status *st);

/* Makes the functions of npz.h, checkpoint.h, safetensors.h and weights_folder.h call fn(ctx, done,
 * all) while they read or write: bytes so far, and of all arrays or the whole file. fn NULL: no
 * longer. For the one thread that reads and writes. */
void rd_arrays_on_progress(void (*fn)(void *ctx, double done, double all), void *ctx);

typedef struct rd_npz rd_npz;
/* Reads a whole archive, stored or compressed, into memory and checks every header and CRC.
 * RD_ECKPT: sizes that do not match, unknown types, Fortran order, a truncated file, more than 20
 * times the file's size. Members that are not .npy are kept as bytes: descr is "|u1", and the name
 * keeps its ending. Data is aligned to 64 bytes, and one '\0' follows it. The caller owns *out. */
rd_code rd_npz_new(const char *path, rd_npz **out, rd_status *st);
/* Reads an archive of n bytes in memory. p is borrowed for the call only. */
rd_code rd_npz_new_mem(const void *p, size_t n, rd_npz **out, rd_status *st);
void rd_npz_free(rd_npz *z); /* NULL is fine */
/* Returns the number of arrays. */
int rd_npz_n(const rd_npz *z);
/* Returns array i, or the array of this name, borrowed until rd_npz_free; NULL if there is none. */
const rd_array *rd_npz_at(const rd_npz *z, int i);
const rd_array *rd_npz_find(const rd_npz *z, const char *name);

RD_C_END
#endif
