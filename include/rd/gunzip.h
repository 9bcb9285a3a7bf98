/* gunzip.h -- unpacks gzip for readers that take it piece by piece, and compares the checksum at its end, at which libarchive does not look:
 * a flipped bit often unpacks to something, and damaged data would be trained on. xz, bzip2 and zstd check themselves. */
#ifndef RD_GUNZIP_H
#define RD_GUNZIP_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

/* CRC-32, as gzip has it; continues from a previous value. */
uint32_t rd_crc32(uint32_t crc, const void *p, size_t n);

bool rd_gzip_begins(const void *p,
                    size_t n); /* do bytes that begin like this look packed with gzip? */

/* `size` bytes from `at` on of an open file, or (fd < 0) of memory. */
typedef struct rd_gzip_input {
    int fd;
    int64_t at, size;
    const void *mem;
} rd_gzip_input;

typedef struct rd_gunzip rd_gunzip;
/* What `from` refers to is borrowed and outlives *out, which the caller owns; `name` is for messages, `code` for what is wrong with the file. */
rd_code rd_gunzip_new(const char *name, const rd_gzip_input *from, rd_code code, rd_gunzip **out,
                      rd_status *st);
/* Opens `to`, whose formats are set, on what is unpacked; returns libarchive's code. g outlives its use. */
struct archive;
int rd_gunzip_open(rd_gunzip *g, struct archive *to);
/* To be called when `to` has given all that is wanted: unpacks what is left, since the checksum is of everything, and compares it. A reader
 * that stops before its data's end has no use for this. Of several gzip members one after the other the last one counts. */
rd_code rd_gunzip_end(rd_gunzip *g, rd_status *st);
void rd_gunzip_free(rd_gunzip *g); /* NULL is fine */

RD_C_END
#endif
