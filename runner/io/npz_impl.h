/* npz_impl.h -- shared by the files for .npz and checkpoints: the NPY header, and an archive
 * written member by member. */
#ifndef RD_NPZ_IMPL_H
#define RD_NPZ_IMPL_H

#include "rd/file.h"
#include "rd/npz.h"
#include <archive.h>

/* ---- npy.c ---- */
enum {
    /* Largest header that is written. Six dimensions of 19 digits fit three times. */
    RD_NPY_HEADER_MAX = 512,
    /* Largest header that is read. A plain array's header has 128 bytes; NumPy
     * refuses more than 10000. */
    RD_NPY_READ_MAX = 65536
};
/* Returns the bytes of one element; 0: the type cannot be read here. */
size_t rd_npy_item(const char *descr);
/* Writes the product of the dimensions and the element size to *out. Returns false if it does not
 * fit or a dimension is negative. */
bool rd_npy_bytes(const rd_array *a, size_t *out);
/* Writes the header to out: magic, version 1.0 and dictionary, padded with spaces to a multiple of
 * 64. Returns its length. */
size_t rd_npy_header(const rd_array *a, char out[RD_NPY_HEADER_MAX]);
/* Returns the length of magic, version and length field, 10 or 12, from the first 8 bytes; 0: not
 * NPY, or an unknown version. */
size_t rd_npy_prefix(const unsigned char *p);
/* Fills descr, n_dim, dim and bytes of *a from the dictionary text [s, s + n). RD_ECKPT says what
 * is wrong with the text. */
rd_code rd_npy_parse(const char *s, size_t n, rd_array *a, rd_status *st);

/* ---- npz_write.c: an archive written member by member ---- */
typedef struct rd_npz_out {
    rd_tmpfile file;
    struct archive *zip; /* owned */
    rd_status *st;       /* of the call in progress, for the callback; NULL: write nothing more */
} rd_npz_out;
/* Opens a new archive. *o must be all zero. */
rd_code rd_npz_out_open(rd_npz_out *o, const char *path, rd_status *st);
/* Writes an array. *crc32c: the CRC32C of its data; NULL is fine. */
rd_code rd_npz_out_array(rd_npz_out *o, const rd_array *a, uint32_t *crc32c, rd_status *st);
/* Writes a member with this text. */
rd_code rd_npz_out_text(rd_npz_out *o, const char *name, const char *text, rd_status *st);
/* Ends the archive and gives it its final name. */
rd_code rd_npz_out_commit(rd_npz_out *o, rd_status *st);
/* Removes an archive that was not committed. A struct of zeros is fine. */
void rd_npz_out_release(rd_npz_out *o);

/* ---- array_progress.c: how far a reading or writing of arrays is ---- */
enum { RD_ARRAY_PART = 4 << 20 }; /* bytes between two reports */
/* Begins a file with `all` bytes. */
void rd_arrays_begin(double all);
/* The next file is number `file` of n_files of about the same size. n_files 0: the only one. */
void rd_arrays_files(int file, int n_files);
/* n bytes more are done, or `done` bytes in all. */
void rd_arrays_add(size_t n);
void rd_arrays_at(double done);

/* Returns libarchive's text for its last error, never NULL. */
const char *rd_archive_text(struct archive *a);

#endif
