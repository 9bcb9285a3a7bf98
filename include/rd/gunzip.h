/* gunzip.h -- decompresses gzip, bzip2, xz and zstd for readers that read piece by piece, and
 * compares all checksums.
 *
 * libarchive ignores those of gzip, and does not see what follows a bzip2 stream. A flipped bit
 * often decompresses to something, and the run would train on damaged data. */
#ifndef RD_GUNZIP_H
#define RD_GUNZIP_H

#include "rd/input.h"
#include "rd/status.h"
#include <stdint.h>
#include <sys/types.h>

RD_C_BEGIN

/* Returns the CRC-32 of gzip; continues from the value of the bytes before. Begin with 0. */
uint32_t rd_crc32(uint32_t crc, const void *p, size_t n);

/* Returns whether bytes that begin like this look like gzip. */
bool rd_gzip_begins(const void *p, size_t n);

/* Returns whether bytes that begin like this are compressed with gzip, xz, bzip2 or zstd. */
bool rd_compressed(const unsigned char *p, size_t n);

/* The compressed bytes: `size` bytes from `at` on, of an open file or of memory. */
typedef struct rd_gzip_input {
    rd_input *in; /* NULL: memory */
    int64_t at, size;
    const void *mem;
} rd_gzip_input;

typedef struct rd_gunzip rd_gunzip;

/* Begins to decompress. The file or memory of `from` is borrowed and must outlive *out, which the
 * caller owns. name: for messages. code: the status of a damaged file; a file that the machine
 * cannot read is RD_EENV. */
rd_code rd_gunzip_new(const char *name, const rd_gzip_input *from, rd_code code, rd_gunzip **out,
                      rd_status *st);

/* Makes `to`, whose formats are set, read the decompressed bytes. Returns libarchive's code. g must
 * outlive the use of `to`. */
struct archive;
int rd_gunzip_open(rd_gunzip *g, struct archive *to);

/* Returns the number of the next decompressed bytes, which *p points to until the next call. 0: the
 * end, and all checksums match; -1: rd_gunzip_failed knows why. */
ssize_t rd_gunzip_read(rd_gunzip *g, const void **p);

/* Copies at most n of the next decompressed bytes to p. Returns their number, as rd_gunzip_read.
 * Not to be mixed with the other functions that read. */
ssize_t rd_gunzip_copy(rd_gunzip *g, void *p, size_t n);

/* Returns the number of compressed bytes read so far. */
int64_t rd_gunzip_taken(const rd_gunzip *g);

/* Returns whether decompressing failed, and puts the failure into *st. `to` reports such a failure
 * as its own: ask here first. g may be NULL. */
bool rd_gunzip_failed(const rd_gunzip *g, rd_status *st);

/* Decompresses what is left, since damage may be anywhere, and compares its checksums. To be called
 * when `to` has given all that is wanted; a reader that stops earlier does not need it. Bytes
 * behind the last member or stream must be zeros. */
rd_code rd_gunzip_end(rd_gunzip *g, rd_status *st);
void rd_gunzip_free(rd_gunzip *g); /* NULL is fine */

RD_C_END
#endif
