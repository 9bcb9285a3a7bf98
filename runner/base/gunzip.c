/* gunzip.c -- the bytes of a compressed file, with every checksum compared.
 *
 * A gzip file may hold several members one after the other (`cat a.gz b.gz`, bgzip). zlib compares
 * the CRC and the length at the end of each of them. Zeros may follow the last member, since tapes
 * and some copies pad files; anything else that follows is damage. libarchive decompresses bzip2,
 * xz and zstd. It ignores what follows a bzip2 stream, so this file looks there. A file that was
 * compressed twice has two layers, each read from the one below it. */
#include "rd/gunzip.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    BLOCK = 1 << 17,
    HEADER = 10,
    MAX_LAYERS = 4,
    GZIP_WINDOW = 15 + 16,
    BEFORE = 32,
    WHY_BYTES = 256
};

/* One layer of compression. Layer 0 reads the file, layer k the output of layer k - 1. */
typedef struct layer {
    rd_gunzip *g; /* borrowed */
    int k;
    struct archive *other;        /* owned; bzip2, xz or zstd; NULL: gzip */
    bool opened, given;           /* other is open; it has the bytes of `in` */
    int64_t n_in;                 /* bytes that other was given */
    size_t n_last;                /* bytes that it was given last */
    unsigned char before[BEFORE]; /* the last bytes before those */
    z_stream z;                   /* its next_in and avail_in are the input of any layer */
    bool live;                    /* z is initialised */
    bool input_ended, ended;      /* no more input; all members are decompressed */
    bool between;                 /* behind a member: the next one, zeros or the end follow */
    int64_t member;               /* number of the current member, from 1 */
    uint64_t n, member_begin;     /* bytes decompressed so far; before the current member */
    unsigned char in[BLOCK];
} layer;

struct rd_gunzip {
    char *name;
    rd_gzip_input from;
    rd_code code;
    int64_t pos; /* position in the compressed bytes */
    layer *layer[MAX_LAYERS];
    int n_layers;
    rd_code failed; /* RD_OK, or the code of the failure that `why` describes */
    char why[WHY_BYTES];
    int err;                   /* the system's error, if reading failed */
    size_t n_held;             /* bytes of block that are decompressed and not yet delivered */
    const unsigned char *left; /* rd_gunzip_copy: the rest of the block */
    size_t n_left;
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

/* Behind "BZh" and a digit there is a block, or the end of a stream without blocks. */
static bool bzip2_begins(const unsigned char *p, size_t n)
{
    return n >= 10 && memcmp(p, "BZh", 3) == 0 && p[3] >= '1' && p[3] <= '9' &&
           (memcmp(p + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0 ||
            memcmp(p + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0);
}

/* Returns whether bzip2, xz or zstd begins here. */
static bool other_begins(const unsigned char *p, size_t n)
{
    return bzip2_begins(p, n) || (n >= 6 && memcmp(p, "\xFD\x37zXZ\0", 6) == 0) ||
           (n >= 4 && memcmp(p, "\x28\xB5\x2F\xFD", 4) == 0);
}

bool rd_compressed(const unsigned char *p, size_t n)
{
    return rd_gzip_begins(p, n) || other_begins(p, n);
}

/* Returns whether a gzip member begins here. n: number of bytes that can be read, at least
 * HEADER in a whole member. */
static bool member_begins(const unsigned char *p, size_t n)
{
    return n >= HEADER && rd_gzip_begins(p, n) && p[2] == Z_DEFLATED && (p[3] & 0xE0) == 0;
}

/* Reads at most n bytes at position `at`. Returns their number; -1: see errno. */
static ssize_t gunzip_read_at(const rd_gzip_input *from, int64_t at, void *p, size_t n)
{
    const int64_t left = from->size - at;
    if (left <= 0) return 0;
    if ((int64_t)n > left) n = (size_t)left;
    if (!from->in) {
        memcpy(p, (const unsigned char *)from->mem + from->at + at, n);
        return (ssize_t)n;
    }
    return rd_input_pread(from->in, p, n, from->at + at);
}

/* Keeps the first failure. Returns -1. */
static RD_PRINTF(3, 4) ssize_t gunzip_keep(rd_gunzip *g, rd_code code, const char *fmt, ...)
{
    va_list ap;
    if (g->failed != RD_OK) return -1;
    g->failed = code;
    va_start(ap, fmt);
    (void)vsnprintf(g->why, sizeof g->why, fmt, ap);
    va_end(ap);
    return -1;
}

static ssize_t layer_read(rd_gunzip *g, int k, unsigned char *p, size_t n);

/* Gives layer k its next input. Returns 0, or -1 after a failure. */
static ssize_t layer_fill(rd_gunzip *g, int k)
{
    layer *l = g->layer[k];
    if (l->z.avail_in > 0 || l->input_ended) return 0;
    ssize_t got;
    if (k > 0) {
        got = layer_read(g, k - 1, l->in, sizeof l->in);
        if (got < 0) return -1;
    } else {
        got = gunzip_read_at(&g->from, g->pos, l->in, sizeof l->in);
        if (got < 0) {
            g->err = errno;
            return gunzip_keep(g, rd_fault_code(g->err, g->code), "%s", strerror(g->err));
        }
        g->pos += got;
    }
    l->z.next_in = l->in;
    l->z.avail_in = (uInt)got;
    l->input_ended = got == 0;
    return 0;
}

/* Reads what is behind a member: the end, zeros up to the end, or another member. */
static ssize_t layer_between(rd_gunzip *g, int k)
{
    layer *l = g->layer[k];
    bool padded = false;
    for (;;) {
        if (layer_fill(g, k) < 0) return -1;
        if (l->input_ended) {
            l->ended = true;
            return 0;
        }
        while (l->z.avail_in > 0 && *l->z.next_in == 0) {
            padded = true;
            l->z.next_in++;
            l->z.avail_in--;
        }
        if (l->z.avail_in == 0) continue;
        if (padded || *l->z.next_in != 0x1F)
            return gunzip_keep(g, g->code, "bytes that are not gzip follow the gzip data");
        l->between = false;
        l->member++;
        l->member_begin = l->n;
        if (inflateReset(&l->z) != Z_OK) return gunzip_keep(g, RD_EENV, "out of memory");
        return 0;
    }
}

static ssize_t layer_damaged(rd_gunzip *g, int k)
{
    const layer *l = g->layer[k];
    const char *what = l->z.msg ? l->z.msg : "";
    const bool checksum = strstr(what, "data check") || strstr(what, "length check");
    if (!checksum) return gunzip_keep(g, g->code, "gzip decompression failed");
    if (l->member == 1)
        return gunzip_keep(g, g->code,
                           "the checksum at its end does not match its %" PRIu64
                           " decompressed byte%s",
                           l->n, l->n == 1 ? "" : "s");
    return gunzip_keep(g, g->code,
                       "its decompressed bytes %" PRIu64 " to %" PRIu64 ", gzip member %" PRId64
                       ", do not match their checksum",
                       l->member_begin, l->n, l->member);
}

/* ---- bzip2, xz and zstd ---- */

/* libarchive starts a program for a format that it was built without, and for rare formats such as
 * lrzip and grzip. So only filters that are built in are switched on. */
static void other_filters(struct archive *a)
{
    if (archive_liblzma_version()) (void)archive_read_support_filter_xz(a);
    if (archive_bzlib_version()) (void)archive_read_support_filter_bzip2(a);
    if (archive_libzstd_version()) (void)archive_read_support_filter_zstd(a);
}

static la_ssize_t other_on_input(struct archive *a, void *self, const void **p)
{
    layer *l = self;
    if (l->given) { /* libarchive asks when it has used all, or looks ahead */
        const size_t n = l->n_last < BEFORE ? l->n_last : BEFORE;
        memmove(l->before, l->before + n, BEFORE - n);
        memcpy(l->before + BEFORE - n, l->in + l->n_last - n, n);
        l->z.avail_in = 0;
    }
    if (layer_fill(l->g, l->k) < 0) {
        archive_set_error(a, EIO, "%s", l->g->why);
        return -1;
    }
    *p = l->in;
    l->given = true;
    l->n_last = l->z.avail_in;
    l->n_in += l->z.avail_in;
    return l->z.avail_in;
}

static ssize_t other_fails(rd_gunzip *g, const layer *l)
{
    const char *why = archive_error_string(l->other);
    return gunzip_keep(g, archive_errno(l->other) == ENOMEM ? RD_EENV : g->code, "%s",
                       why ? why : "unknown error");
}

/* Opens a layer whose first input may be there already. Returns 0, or -1 after a failure. */
static ssize_t other_open(rd_gunzip *g, layer *l)
{
    struct archive_entry *e;
    l->opened = true;
    if (archive_read_open(l->other, l, NULL, other_on_input, NULL) != ARCHIVE_OK)
        return other_fails(g, l);
    const int rc = archive_read_next_header(l->other, &e);
    l->ended = rc == ARCHIVE_EOF; /* a compressed file without content */
    return rc == ARCHIVE_OK || rc == ARCHIVE_WARN || l->ended ? 0 : other_fails(g, l);
}

static bool all_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0) return false;
    return true;
}

/* Checks that nothing but zeros follows what libarchive has used. Returns 0, or -1 after a
 * failure. */
static ssize_t other_end(rd_gunzip *g, layer *l)
{
    const size_t left = (size_t)(l->n_in - archive_filter_bytes(l->other, -1)),
                 last = left < l->n_last ? left : l->n_last,
                 before = left - last < BEFORE ? left - last : BEFORE;
    bool zero = all_zero(l->in + l->n_last - last, last) &&
                all_zero(l->before + BEFORE - before, before);
    l->ended = true;
    while (zero && !l->input_ended) {
        l->z.avail_in = 0;
        if (layer_fill(g, l->k) < 0) return -1;
        zero = all_zero(l->in, l->z.avail_in);
    }
    return zero ? 0 : gunzip_keep(g, g->code, "bytes that are not compressed follow its end");
}

static ssize_t other_read(rd_gunzip *g, layer *l, unsigned char *p, size_t n)
{
    size_t done = 0;
    if (!l->opened && other_open(g, l) < 0) return -1;
    while (done < n && !l->ended) {
        const la_ssize_t got = archive_read_data(l->other, p + done, n - done);
        if (got < 0) return other_fails(g, l);
        if (got == 0 && other_end(g, l) < 0) return -1;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* ---- all of them ---- */

/* Decompresses until n bytes are written or all members are read. Returns the number of bytes; -1
 * after a failure, also if bytes came before it. */
static ssize_t layer_read(rd_gunzip *g, int k, unsigned char *p, size_t n)
{
    layer *l = g->layer[k];
    if (l->other) return other_read(g, l, p, n);
    l->z.next_out = p;
    l->z.avail_out = (uInt)n;
    while (l->z.avail_out > 0 && !l->ended) {
        if (l->between) {
            if (layer_between(g, k) < 0) return -1;
            continue;
        }
        if (layer_fill(g, k) < 0) return -1;
        const uInt before = l->z.avail_out;
        const int rc = inflate(&l->z, Z_NO_FLUSH);
        l->n += before - l->z.avail_out;
        if (rc == Z_STREAM_END)
            l->between = true;
        else if (rc == Z_MEM_ERROR)
            return gunzip_keep(g, RD_EENV, "out of memory");
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return layer_damaged(g, k);
        else if (l->input_ended && l->z.avail_in == 0 && l->z.avail_out == before)
            return gunzip_keep(g, g->code, "truncated gzip input");
    }
    return (ssize_t)(n - l->z.avail_out);
}

static layer *gunzip_add_layer(rd_gunzip *g)
{
    layer *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->g = g;
    l->k = g->n_layers;
    l->member = 1;
    return g->layer[g->n_layers++] = l;
}

/* Begins to decompress what the layer's first input shows. Returns false if that is not compressed,
 * or if there is no memory. */
static bool layer_begin(layer *l)
{
    if (member_begins(l->in, l->z.avail_in)) {
        z_stream *z = &l->z;
        l->live = inflateInit2(z, GZIP_WINDOW) == Z_OK;
        return l->live;
    }
    l->other = other_begins(l->in, l->z.avail_in) ? archive_read_new() : NULL;
    if (!l->other) return false;
    other_filters(l->other);
    (void)archive_read_support_format_raw(l->other);
    /* The raw format refuses a file without content. */
    (void)archive_read_support_format_empty(l->other);
    return true;
}

int64_t rd_gunzip_taken(const rd_gunzip *g)
{
    return g->pos;
}

bool rd_gunzip_failed(const rd_gunzip *g, rd_status *st)
{
    if (!g || g->failed == RD_OK) return false;
    const bool trust = strstr(g->why, "checksum") != NULL;
    if (g->err != 0)
        (void)rd_input_fails(st, g->failed, "read", g->name, g->err, NULL);
    else if (g->failed == RD_EENV)
        rd_fail(st, RD_EENV, "%s while reading '%s'", g->why, g->name);
    else if (trust)
        rd_fail(st, g->failed, "cannot trust '%s': %s; it is damaged, get it again", g->name,
                g->why);
    else
        rd_fail(st, g->failed, "cannot read '%s': %s; the file may be cut short or damaged",
                g->name, g->why);
    return true;
}

/* Opens the layers. A file that was compressed k times has k of them. */
static rd_code gunzip_start(rd_gunzip *g, rd_status *st)
{
    layer *first = gunzip_add_layer(g);
    if (!first) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", g->name);
    if (layer_fill(g, 0) == 0 && !layer_begin(first))
        return rd_fail(st, g->code,
                       "cannot decompress '%s': it has no gzip header; it is damaged, get it again",
                       g->name);
    while (g->failed == RD_OK) {
        const ssize_t n = layer_read(g, g->n_layers - 1, g->block, sizeof g->block);
        if (n < 0) break;
        if (!member_begins(g->block, (size_t)n) && !other_begins(g->block, (size_t)n)) {
            g->n_held = (size_t)n;
            return RD_OK;
        }
        if (g->n_layers == MAX_LAYERS)
            return rd_fail(st, g->code,
                           "'%s' is compressed more than %d times; decompress it first", g->name,
                           MAX_LAYERS);
        layer *next = gunzip_add_layer(g);
        if (!next) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", g->name);
        memcpy(next->in, g->block, (size_t)n);
        next->z.next_in = next->in;
        next->z.avail_in = (uInt)n;
        if (!layer_begin(next)) (void)gunzip_keep(g, RD_EENV, "out of memory");
    }
    (void)rd_gunzip_failed(g, st);
    return st->code;
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
    for (int k = 0; k < g->n_layers; k++) {
        if (g->layer[k]->live) (void)inflateEnd(&g->layer[k]->z);
        (void)archive_read_free(g->layer[k]->other);
        free(g->layer[k]);
    }
    free(g->name);
    free(g);
}

ssize_t rd_gunzip_read(rd_gunzip *g, const void **p)
{
    ssize_t n = (ssize_t)g->n_held;
    g->n_held = 0;
    if (n == 0 && g->failed == RD_OK) n = layer_read(g, g->n_layers - 1, g->block, sizeof g->block);
    *p = g->block;
    return g->failed == RD_OK ? n : -1;
}

ssize_t rd_gunzip_copy(rd_gunzip *g, void *p, size_t n)
{
    if (g->n_left == 0) {
        const void *block;
        const ssize_t got = rd_gunzip_read(g, &block);
        if (got < 0) return -1;
        g->left = block;
        g->n_left = (size_t)got;
    }
    const size_t k = n < g->n_left ? n : g->n_left;
    memcpy(p, g->left, k);
    g->left += k;
    g->n_left -= k;
    return (ssize_t)k;
}

static la_ssize_t gunzip_on_deliver(struct archive *to, void *self, const void **p)
{
    rd_gunzip *g = self;
    const ssize_t n = rd_gunzip_read(g, p);
    if (n < 0) archive_set_error(to, g->err ? g->err : EIO, "%s", g->why);
    return n;
}

int rd_gunzip_open(rd_gunzip *g, struct archive *to)
{
    return archive_read_open(to, g, NULL, gunzip_on_deliver, NULL);
}

rd_code rd_gunzip_end(rd_gunzip *g, rd_status *st)
{
    const void *p;
    ssize_t n;
    do n = rd_gunzip_read(g, &p);
    while (n > 0);
    if (n < 0) (void)rd_gunzip_failed(g, st);
    return st->code;
}
