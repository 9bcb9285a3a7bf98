/* npz_impl.h -- what the files of .npz and checkpoints share: the NPY header, the archive as a stream of members. */
#ifndef RD_NPZ_IMPL_H
#define RD_NPZ_IMPL_H

#include "rd/file.h"
#include "rd/npz.h"
#include <archive.h>

/* ---- npy.c ---- */
enum {
    RD_NPY_HEADER_MAX = 512, /* of what we write: six dimensions of 19 digits fit three times */
    RD_NPY_READ_MAX =
        65536 /* of what we read: a plain array's header has 128 bytes; NumPy itself refuses more than 10000 */
};
/* Bytes of one element; 0 when the type is none that we read. */
size_t rd_npy_item(const char *descr);
/* The product of the dimensions times the element size, into *out; false when it does not fit or a dimension is
 * negative. */
bool rd_npy_bytes(const rd_array *a, size_t *out);
/* Magic, version 1.0 and dictionary, padded with spaces to a multiple of 64; returns the length. */
size_t rd_npy_header(const rd_array *a, char out[RD_NPY_HEADER_MAX]);
/* Length of magic, version and length field (10 or 12) from the first 8 bytes; 0: not NPY, or an unknown version. */
size_t rd_npy_prefix(const unsigned char *p);
/* Fills descr, n_dim, dim and bytes of *a from the dictionary text [s, s + n). RD_ECKPT says what is wrong with it. */
rd_code rd_npy_parse(const char *s, size_t n, rd_array *a, rd_status *st);

/* ---- npz_write.c: an archive written member by member ---- */
typedef struct rd_npz_out {
    rd_tmpfile file;
    struct archive *zip;
    rd_status *st; /* of the call in progress, for the callback; NULL: write nothing more */
} rd_npz_out;
rd_code rd_npz_out_open(rd_npz_out *o, const char *path, rd_status *st); /* *o must be all zero */
rd_code rd_npz_out_array(rd_npz_out *o, const rd_array *a, uint32_t *crc32c,
                         rd_status *st); /* CRC32C of the data; may be NULL */
rd_code rd_npz_out_text(rd_npz_out *o, const char *name, const char *text, rd_status *st);
rd_code rd_npz_out_commit(rd_npz_out *o, rd_status *st);
void rd_npz_out_release(
    rd_npz_out *o); /* removes what was not committed; an empty struct is fine */

/* The library's own words, never NULL. */
const char *rd_archive_text(struct archive *a);

#endif
