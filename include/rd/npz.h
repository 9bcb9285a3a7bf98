/* npz.h -- NumPy archives through libarchive: zip, stored, one NAME.npy a member, times and owners constant so that
 * equal arrays give equal bytes. numpy.load opens them. */
#ifndef RD_NPZ_H
#define RD_NPZ_H
#include "rd/status.h"
#include <stdint.h>
RD_C_BEGIN

enum { RD_NPY_MAX_DIM = 6 };
typedef struct rd_array {
    char name[200];
    char descr
        [8]; /* "<f4" "<f8" "<f2" "<i4" "<i8" "|u1"; also "|i1" "|b1" "<i2" "<u2" "<u4" "<u8" */
    int n_dim;
    int64_t dim[RD_NPY_MAX_DIM];
    const void *data; /* little endian, C order */
    size_t bytes;
} rd_array;

/* Writes all arrays and, as member "manifest.json", the text (NULL: none) into a new archive at path, atomically
 * (rd_tmpfile). */
rd_code rd_npz_write(const char *path, const rd_array *a, int n, const char *manifest,
                     rd_status *st);

typedef struct rd_npz rd_npz;
/* Reads a whole archive, stored or compressed, into memory and checks every header and CRC: sizes that do not match,
 * unknown types, Fortran order, truncation, more than 20 times the file's size are RD_ECKPT. Members that are not .npy
 * are kept as bytes (descr "|u1", name with its ending). Data is 64-byte aligned and one '\0' follows it. */
rd_code rd_npz_new(const char *path, rd_npz **out, rd_status *st);
rd_code rd_npz_new_mem(const void *p, size_t n, rd_npz **out,
                       rd_status *st); /* p borrowed for the call only */
void rd_npz_free(rd_npz *z);           /* NULL is fine */
int rd_npz_n(const rd_npz *z);
const rd_array *rd_npz_at(const rd_npz *z, int i);              /* borrowed until free */
const rd_array *rd_npz_find(const rd_npz *z, const char *name); /* NULL: none */

RD_C_END
#endif
