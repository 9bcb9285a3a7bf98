/* gunzip.c -- the bytes of a gzip file, and the checksum at its end.
 *
 * A file may hold several members one after the other, and only the checksum of the last one can be
 * found. So the decompressed bytes are first taken for one member. If its checksum does not match,
 * the file is decompressed a second time and only the bytes of the last member are counted. */
#include "rd/gunzip.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 17, TRAILER = 8 };

struct rd_gunzip {
    char *name;
    rd_gzip_input from;
    rd_code code;
    int64_t pos;             /* position in the compressed bytes */
    struct archive *archive; /* decompresses, with the raw format */
    bool ended;              /* all bytes are decompressed */
    bool once;               /* compressed once: else the checksum is not that of the output */
    uint32_t crc;            /* checksum of the bytes decompressed so far */
    uint64_t n;              /* number of these bytes */
    unsigned char block[BLOCK];
};

/* Reflected polynomial 0xEDB88320, eight bytes per iteration. The tables take 2 us and stay on the
 * stack. */
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
        const uint32_t a = c ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                (uint32_t)p[3] << 24);
        c = t[7][a & 255] ^ t[6][a >> 8 & 255] ^ t[5][a >> 16 & 255] ^ t[4][a >> 24] ^ t[3][p[4]] ^
            t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    while (n--) c = c >> 8 ^ t[0][(c ^ *p++) & 255];
    return ~c;
}

bool rd_gzip_begins(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    return n >= 2 && p[0] == 0x1F && p[1] == 0x8B;
}

/* Reads at most n bytes at position `at`. Returns their number; -1: see errno. */
static ssize_t gunzip_read_at(const rd_gzip_input *from, int64_t at, void *p, size_t n)
{
    const int64_t left = from->size - at;
    rd_assert(at >= 0 || from->size < TRAILER);
    if (left <= 0) return 0;
    if ((int64_t)n > left) n = (size_t)left;
    if (from->fd < 0) {
        memcpy(p, (const unsigned char *)from->mem + from->at + at, n);
        return (ssize_t)n;
    }
    ssize_t k;
    do k = pread(from->fd, p, n, (off_t)(from->at + at));
    while (k < 0 && errno == EINTR);
    return k;
}

static la_ssize_t gunzip_on_read(struct archive *a, void *self, const void **p)
{
    rd_gunzip *g = self;
    const ssize_t k = gunzip_read_at(&g->from, g->pos, g->block, sizeof g->block);
    if (k < 0) {
        archive_set_error(a, errno, "%s", strerror(errno));
        return -1;
    }
    g->pos += k;
    *p = g->block;
    return k;
}

static rd_code gunzip_fail(const rd_gunzip *g, rd_status *st)
{
    const char *why = archive_error_string(g->archive);
    return rd_fail(st, g->code, "cannot read '%s': %s; the file may be cut short or damaged",
                   g->name, why ? why : "unknown error");
}

static rd_code gunzip_start(rd_gunzip *g, rd_status *st)
{
    struct archive_entry *e;
    struct archive *a = g->archive = archive_read_new();
    if (!a) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", g->name);
    (void)archive_read_support_filter_gzip(a);
    (void)archive_read_support_format_raw(a);
    /* The raw format refuses a file without content. */
    (void)archive_read_support_format_empty(a);
    if (archive_read_open(a, g, NULL, gunzip_on_read, NULL) != ARCHIVE_OK)
        return gunzip_fail(g, st);
    const int filters = archive_filter_count(a) - 1;
    if (filters == 0) /* libarchive would return the compressed bytes */
        return rd_fail(st, g->code,
                       "cannot decompress '%s': it has no gzip header; it is damaged, get it again",
                       g->name);
    g->once = filters == 1;
    const int rc = archive_read_next_header(a, &e);
    g->ended = rc == ARCHIVE_EOF;
    return rc == ARCHIVE_OK || rc == ARCHIVE_WARN || rc == ARCHIVE_EOF ? RD_OK : gunzip_fail(g, st);
}

rd_code rd_gunzip_new(const char *name, const rd_gzip_input *from, rd_code code, rd_gunzip **out,
                      rd_status *st)
{
    rd_gunzip *g = *out = calloc(1, sizeof *g);
    if (!g || !(g->name = strdup(name)))
        return rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
    g->from = *from;
    g->code = code;
    return gunzip_start(g, st);
}

void rd_gunzip_free(rd_gunzip *g)
{
    if (!g) return;
    (void)archive_read_free(g->archive);
    free(g->name);
    free(g);
}

/* Returns the number of the next decompressed bytes, borrowed until the next call. 0: the end; -1:
 * the archive knows why. */
static la_ssize_t gunzip_next_block(rd_gunzip *g, const void **p)
{
    size_t n = 0;
    la_int64_t at;
    if (g->ended) return 0;
    const int rc = archive_read_data_block(g->archive, p, &n, &at);
    if (rc == ARCHIVE_EOF)
        g->ended = true;
    else if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
        return -1;
    if (n > 0) g->crc = rd_crc32(g->crc, *p, n);
    g->n += n;
    return (la_ssize_t)n;
}

static la_ssize_t gunzip_on_deliver(struct archive *to, void *self, const void **p)
{
    rd_gunzip *g = self;
    la_ssize_t n;
    do n = gunzip_next_block(g, p); /* a block may be empty without being the end */
    while (n == 0 && !g->ended);
    if (n < 0) {
        const char *why = archive_error_string(g->archive);
        archive_set_error(to, archive_errno(g->archive), "%s", why ? why : "unknown error");
    }
    return n;
}

int rd_gunzip_open(rd_gunzip *g, struct archive *to)
{
    return archive_read_open(to, g, NULL, gunzip_on_deliver, NULL);
}

/* Computes the CRC of the decompressed bytes from byte `at` on; false: decompressing failed. */
static bool gunzip_crc_from(const rd_gunzip *g, uint64_t at, uint32_t *crc)
{
    rd_status st = {0};
    rd_gunzip *again = NULL;
    const void *p;
    rd_assert(at <= g->n);
    *crc = 0;
    bool whole = rd_gunzip_new(g->name, &g->from, g->code, &again, &st) == RD_OK;
    while (whole && !again->ended) {
        const uint64_t before = again->n;
        const la_ssize_t n = gunzip_next_block(again, &p);
        const size_t skip = n <= 0 || at <= before      ? 0
                            : at - before < (uint64_t)n ? (size_t)(at - before)
                                                        : (size_t)n;
        whole = n >= 0;
        if (n > 0) *crc = rd_crc32(*crc, (const unsigned char *)p + skip, (size_t)n - skip);
    }
    rd_gunzip_free(again);
    return whole;
}

static uint32_t little32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool gunzip_checksum_matches(const rd_gunzip *g)
{
    unsigned char end[TRAILER];
    uint32_t last;
    if (gunzip_read_at(&g->from, g->from.size - TRAILER, end, TRAILER) != TRAILER) return false;
    const uint32_t want = little32(end), length = little32(end + 4); /* length modulo 2^32 */
    if (length == (uint32_t)g->n && want == g->crc) return true;
    if (length == 0 && want == 0)
        return true; /* bgzip ends with an empty member, which proves nothing */
    return length <= g->n && gunzip_crc_from(g, g->n - length, &last) && want == last;
}

rd_code rd_gunzip_end(rd_gunzip *g, rd_status *st)
{
    const void *p;
    while (!g->ended)
        if (gunzip_next_block(g, &p) < 0) return gunzip_fail(g, st);
    if (!g->once || gunzip_checksum_matches(g)) return RD_OK;
    return rd_fail(
        st, g->code,
        "cannot trust '%s': its %" PRIu64
        " decompressed bytes do not match the checksum at its end; it is damaged, get it "
        "again",
        g->name, g->n);
}
