/* png_read.c -- decodes PNG files. They occur among JPEGs under JPEG names, and whole data sets
 * consist of them.
 *
 * All colour types and depths are read, except interlaced files. Transparency is dropped; sixteen
 * bits become eight.
 *
 * The pixels of a PNG are one zlib stream, cut into IDAT chunks. It is decompressed row by row, so
 * that an image needs memory for its pixels alone. The checksums of all chunks and of the stream
 * are compared. An image that is cut short or damaged is decoded as far as possible. */
#include "images_impl.h"
#include <stdio.h>
#include <zlib.h>

enum {
    SIGNATURE = 8,
    CHUNK_HEAD = 8,
    CHUNK_TAIL = 4,
    HEADER_BYTES = 13, /* of IHDR */
    FILTERS = 5,
    RAW_MAX = 1 << 28,
    /* A larger image must not be compressed more than RATIO_MAX times: a file of 0.3 MB could give
     * 67 million pixels, all alike. */
    PIXELS_FREE = 1 << 24,
    RATIO_MAX = 200,
    PALETTE_MAX = 256 * 3
};
enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGBA = 6 };

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool rd_png_is(const uint8_t *p, size_t n)
{
    return n >= SIGNATURE && memcmp(p, "\x89PNG\r\n\x1a\n", SIGNATURE) == 0;
}

static int samples_of(int colour)
{
    return colour == RGB ? 3 : colour == GREY_ALPHA ? 2 : colour == RGBA ? 4 : 1;
}

/* Returns whether the checksum behind a chunk of n bytes fits to its name and data. */
static bool crc_fits(const uint8_t *chunk, size_t n)
{
    const uLong crc = crc32_z(crc32(0, NULL, 0), chunk + 4, n + 4);
    return be32(chunk + CHUNK_HEAD + n) == (uint32_t)crc;
}

static rd_decode png_read_refuse(char why[RD_WHY_BYTES], const char *text)
{
    snprintf(why, RD_WHY_BYTES, "%s", text);
    return RD_DECODE_NONE;
}

rd_decode rd_png_read_head(const uint8_t *p, size_t n, rd_png_head *out, char why[RD_WHY_BYTES])
{
    *out = (rd_png_head){0};
    why[0] = '\0';
    if (n < SIGNATURE + CHUNK_HEAD + HEADER_BYTES + CHUNK_TAIL || memcmp(p + 12, "IHDR", 4) != 0)
        return png_read_refuse(why, "the PNG ends within its header");
    const uint8_t *h = p + SIGNATURE + CHUNK_HEAD;
    if (be32(p + SIGNATURE) != HEADER_BYTES || !crc_fits(p + SIGNATURE, HEADER_BYTES))
        return png_read_refuse(why, "the checksum of the PNG's header is wrong");
    const uint32_t w = be32(h), rows = be32(h + 4);
    out->depth = h[8];
    out->colour = h[9];
    const bool known = out->colour == GREY || out->colour == RGB || out->colour == PALETTE ||
                       out->colour == GREY_ALPHA || out->colour == RGBA;
    const bool small = out->depth == 1 || out->depth == 2 || out->depth == 4;
    const bool depth = out->depth == 8 || (out->depth == 16 && out->colour != PALETTE) ||
                       (small && (out->colour == GREY || out->colour == PALETTE));
    if (!known || !depth || h[10] != 0 || h[11] != 0)
        return png_read_refuse(why, "a PNG of an unknown kind");
    if (h[12] != 0) return png_read_refuse(why, "an interlaced PNG");
    if (w == 0 || rows == 0) return png_read_refuse(why, "the PNG's header gives no size");
    if (w > RD_JPEG_SIDE_MAX || rows > RD_JPEG_SIDE_MAX ||
        (int64_t)w * rows > RD_JPEG_DECODED_MAX ||
        (((int64_t)w * samples_of(out->colour) * out->depth + 7) / 8 + 1) * rows > RAW_MAX) {
        snprintf(why, RD_WHY_BYTES, "a PNG of %u x %u pixels, too many", w, rows);
        return RD_DECODE_NONE;
    }
    const int64_t raw = ((int64_t)w * samples_of(out->colour) * out->depth + 7) / 8 * rows;
    if ((int64_t)w * rows > PIXELS_FREE && raw / RATIO_MAX > (int64_t)n) {
        snprintf(why, RD_WHY_BYTES, "a PNG of %u x %u pixels in %zu bytes, too many for its size",
                 w, rows, n);
        return RD_DECODE_NONE;
    }
    out->w = w;
    out->h = rows;
    return RD_DECODE_OK;
}

static uint8_t paeth(int a, int b, int c)
{
    const int p = a + b - c, pa = p > a ? p - a : a - p, pb = p > b ? p - b : b - p,
              pc = p > c ? p - c : c - p;
    return (uint8_t)(pa <= pb && pa <= pc ? a : pb <= pc ? b : c);
}

/* Undoes the filter of one row of n bytes. up: the row above; NULL in the first row. bpp: bytes per
 * pixel. */
static void unfilter(int kind, uint8_t *row, const uint8_t *up, size_t n, size_t bpp)
{
    for (size_t i = 0; i < n; i++) {
        const int a = i >= bpp ? row[i - bpp] : 0, b = up ? up[i] : 0,
                  c = up && i >= bpp ? up[i - bpp] : 0;
        const int add = kind == 1   ? a
                        : kind == 2 ? b
                        : kind == 3 ? (a + b) / 2
                        : kind == 4 ? paeth(a, b, c)
                                    : 0;
        row[i] = (uint8_t)(row[i] + add);
    }
}

static uint8_t sample_at(const uint8_t *row, int64_t i, int depth, bool scale)
{
    if (depth == 8) return row[i];
    if (depth == 16) return row[2 * i];
    const int64_t bit = i * depth;
    const int v = row[bit / 8] >> (8 - depth - bit % 8) & ((1 << depth) - 1);
    return (uint8_t)(scale ? v * 255 / ((1 << depth) - 1) : v);
}

static void row_to_rgbx(const rd_png_head *h, const uint8_t *row, const uint8_t *palette,
                        uint8_t *out)
{
    const int n = samples_of(h->colour);
    for (int64_t x = 0; x < h->w; x++, out += 4) {
        if (h->colour == PALETTE) {
            memcpy(out, palette + 3 * sample_at(row, x, h->depth, false), 3);
            continue;
        }
        for (int k = 0; k < 3; k++)
            out[k] = sample_at(row, x * n + (n >= 3 ? k : 0), h->depth, true);
    }
}

/* An image that is being decoded. */
typedef struct png_image {
    const rd_png_head *h;
    size_t n_row, bpp;  /* bytes of a row without its filter; bytes per pixel, at least 1 */
    uint8_t *row[2];    /* the current row with its filter in front, and the row above */
    size_t have;        /* bytes of the current row so far */
    int64_t y;          /* number of rows decoded */
    bool ended, excess; /* the stream has ended; it has more bytes than the image */
    bool cut;           /* the file ends within a chunk */
    bool wrong;         /* it cannot be decompressed further, or a row has an unknown filter */
    const char *why;    /* what is wrong; NULL: nothing */
    uint8_t palette[PALETTE_MAX];
    uint8_t *out;
} png_image;

static void png_finish_row(png_image *g)
{
    const rd_png_head *h = g->h;
    uint8_t *row = g->row[g->y & 1], *up = g->row[(g->y & 1) ^ 1];
    if (row[0] >= FILTERS) {
        g->wrong = true;
        g->why = "a row of the PNG has an unknown filter";
        return;
    }
    unfilter(row[0], row + 1, g->y > 0 ? up + 1 : NULL, g->n_row, g->bpp);
    row_to_rgbx(h, row + 1, g->palette, g->out + g->y * h->w * 4);
    g->y++;
    g->have = 0;
}

/* Decompresses n bytes of the stream. */
static void png_inflate(png_image *g, z_stream *z, const uint8_t *p, size_t n)
{
    uint8_t rest[64];
    z->next_in = (Bytef *)(uintptr_t)p; /* zlib does not write there */
    z->avail_in = (uInt)n;
    while (z->avail_in > 0 && !g->ended && !g->wrong && !g->excess) {
        const bool full = g->y == g->h->h; /* the checksum follows the last row */
        z->next_out = full ? rest : g->row[g->y & 1] + g->have;
        z->avail_out = full ? sizeof rest : (uInt)(g->n_row + 1 - g->have);
        const uInt before = z->avail_out;
        const int rc = inflate(z, Z_NO_FLUSH);
        const uInt got = before - z->avail_out;
        g->ended = rc == Z_STREAM_END;
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) {
            g->wrong = true;
            g->why = "the PNG's data is damaged";
        }
        if (full) {
            g->excess = got > 0;
        } else {
            g->have += got;
            if (g->have == g->n_row + 1) png_finish_row(g);
        }
    }
}

/* Walks through the chunks. */
static void png_chunks(png_image *g, z_stream *z, const uint8_t *p, size_t n)
{
    for (size_t at = SIGNATURE; n - at >= CHUNK_HEAD;) {
        const size_t claimed = be32(p + at), left = n - at - CHUNK_HEAD,
                     k = claimed < left ? claimed : left;
        const uint8_t *data = p + at + CHUNK_HEAD, *name = p + at + 4;
        const bool whole = left - k >= CHUNK_TAIL;
        if (whole && !crc_fits(p + at, k) && !g->why) g->why = "a checksum of the PNG is wrong";
        if (memcmp(name, "IEND", 4) == 0) return;
        if (memcmp(name, "PLTE", 4) == 0)
            memcpy(g->palette, data, k < PALETTE_MAX ? k : PALETTE_MAX);
        if (memcmp(name, "IDAT", 4) == 0) png_inflate(g, z, data, k);
        g->cut = !whole;
        if (g->cut) return;
        at += CHUNK_HEAD + k + CHUNK_TAIL;
    }
}

rd_code rd_png_decode(const uint8_t *p, size_t n, const rd_png_head *h, int64_t c, rd_scratch *s,
                      rd_pixels *out, rd_decode *answer, char why[RD_WHY_BYTES], rd_status *st)
{
    const size_t bits = (size_t)samples_of(h->colour) * (size_t)h->depth;
    png_image g = {.h = h, .n_row = ((size_t)h->w * bits + 7) / 8, .bpp = bits < 8 ? 1 : bits / 8};
    z_stream z = {0};
    *answer = RD_DECODE_NONE;
    *out = (rd_pixels){0};
    why[0] = '\0';
    RD_TRY(rd_scratch_reserve(&s->pixels, &s->n_pixels, (size_t)(h->h * h->w) * 4, st));
    RD_TRY(rd_scratch_reserve(&s->wide, &s->n_wide, 2 * (g.n_row + 1), st));
    g.out = s->pixels;
    g.row[0] = s->wide;
    g.row[1] = s->wide + g.n_row + 1;
    /* Grey where a file that is cut short has no data. */
    memset(s->pixels, 128, (size_t)(h->h * h->w) * 4);
    if (inflateInit(&z) != Z_OK) RD_TRY(rd_fail(st, RD_EENV, "out of memory for a PNG"));
    png_chunks(&g, &z, p, n);
    (void)inflateEnd(&z);
    if (g.y == 0) {
        (void)png_read_refuse(why, "no pixel of the PNG can be decoded");
        return RD_OK;
    }
    if (c == 1) rd_rgbx_to_grey(s->pixels, h->h * h->w);
    if (g.y == h->h && !g.why && (g.cut || (!g.ended && !g.excess)))
        g.why = "the PNG ends before its last checksum";
    *answer = g.y == h->h && !g.why ? RD_DECODE_OK : RD_DECODE_DAMAGED;
    if (g.why)
        snprintf(why, RD_WHY_BYTES, "%s", g.why);
    else if (g.y < h->h)
        snprintf(why, RD_WHY_BYTES, "the PNG ends after %d of %d rows", (int)g.y, (int)h->h);
    *out = (rd_pixels){s->pixels, h->h, h->w, c};
done:
    return st->code;
}
