/* gunzip.h -- decompresses gzip for readers that read piece by piece, and checks the checksum at
 * the end.
 *
 * libarchive ignores that checksum. A flipped bit often decompresses to something, and the run
 * would train on damaged data. xz, bzip2 and zstd check themselves. */
#ifndef RD_GUNZIP_H
#define RD_GUNZIP_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

/* Returns the CRC-32 of gzip; continues from the value of the bytes before. Begin with 0. */
uint32_t rd_crc32(uint32_t crc, const void *p, size_t n);

/* Returns whether bytes that begin like this look like gzip. */
bool rd_gzip_begins(const void *p, size_t n);

/* The compressed bytes: `size` bytes from `at` on, of an open file or of memory. */
typedef struct rd_gzip_input {
    int fd; /* below 0: memory */
    int64_t at, size;
    const void *mem;
} rd_gzip_input;

typedef struct rd_gunzip rd_gunzip;

/* Begins to decompress. The file or memory of `from` is borrowed and must outlive *out, which the
 * caller owns. name: for messages. code: the status of a damaged file. */
rd_code rd_gunzip_new(const char *name, const rd_gzip_input *from, rd_code code, rd_gunzip **out,
                      rd_status *st);

/* Makes `to`, whose formats are set, read the decompressed bytes. Returns libarchive's code. g must
 * outlive the use of `to`. */
struct archive;
int rd_gunzip_open(rd_gunzip *g, struct archive *to);

/* Decompresses what is left, since the checksum covers everything, and checks the checksum. To be
 * called when `to` has given all that is wanted; a reader that stops earlier does not need it. If
 * the file holds several gzip members one after the other, the checksum of the last one counts. */
rd_code rd_gunzip_end(rd_gunzip *g, rd_status *st);
void rd_gunzip_free(rd_gunzip *g); /* NULL is fine */

RD_C_END
#endif
