/* gzip_end.c -- the checksum at the end of a gzip file, for readers that give out what is in it piece by piece. libarchive does not look at
 * it, and a flipped bit often unpacks to something: a damaged corpus would be trained on. xz, bzip2 and zstd check themselves.
 *
 * A file may hold several members one after the other, and only the last one's checksum is where it can be found. So what came out is first
 * taken for one member; where that does not fit, the file is unpacked a second time and the last member's bytes alone are counted. */
#include "rd/file.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 18, TRAILER = 8 };

/* Reflected polynomial 0xEDB88320, eight bytes a turn; the tables cost 2 us and stay on the stack. */
uint32_t rd_crc32(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t t[8][256];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0u);
        t[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
    uint32_t c = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        const uint32_t a = c ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = t[7][a & 255] ^ t[6][a >> 8 & 255] ^ t[5][a >> 16 & 255] ^ t[4][a >> 24] ^ t[3][p[4]] ^ t[2][p[5]] ^
            t[1][p[6]] ^ t[0][p[7]];
    }
    while (n--) c = c >> 8 ^ t[0][(c ^ *p++) & 255];
    return ~c;
}

/* The CRC of what is unpacked from byte `from` on; false: that cannot be found out. */
static bool crc_behind(const char *path, uint64_t from, uint32_t *crc)
{
    struct archive *a = archive_read_new();
    struct archive_entry *e;
    unsigned char *block = malloc(BLOCK);
    bool whole = a && block && archive_read_support_filter_gzip(a) == ARCHIVE_OK && archive_read_support_format_raw(a) == ARCHIVE_OK &&
                 archive_read_open_filename(a, path, BLOCK) == ARCHIVE_OK && archive_read_next_header(a, &e) == ARCHIVE_OK;
    *crc = 0;
    for (uint64_t at = 0; whole;) {
        const la_ssize_t got = archive_read_data(a, block, BLOCK);
        if (got <= 0) {
            whole = got == 0;
            break;
        }
        const size_t n = (size_t)got, skip = from <= at ? 0 : from - at < n ? (size_t)(from - at) : n;
        *crc = rd_crc32(*crc, block + skip, n - skip);
        at += n;
    }
    free(block);
    (void)archive_read_free(a);
    return whole;
}

static uint32_t little32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

rd_code rd_gzip_end_check(const char *path, uint64_t n, uint32_t crc, rd_code code, rd_status *st)
{
    unsigned char end[TRAILER] = {0};
    uint32_t last;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    const bool there = size >= TRAILER && pread(fd, end, TRAILER, size - TRAILER) == TRAILER;
    const int err = errno;
    if (fd >= 0) (void)close(fd);
    if (fd < 0) return rd_fail(st, code, "cannot open '%s': %s; it was there when it was opened first", path, strerror(err));
    const uint32_t want = little32(end), length = little32(end + 4); /* the length is kept modulo 2^32 */
    if (there && length == (uint32_t)n && want == crc) return RD_OK;
    if (there && length == 0 && want == 0) return RD_OK; /* bgzip ends with an empty member, which tells nothing */
    if (there && length <= n && crc_behind(path, n - length, &last) && want == last) return RD_OK;
    return rd_fail(st, code, "cannot trust '%s': its %" PRIu64 " unpacked bytes do not have the checksum at its end; it is damaged, get it "
                   "again", path, n);
}
