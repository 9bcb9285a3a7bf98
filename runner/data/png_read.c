/* png_read.c -- decodes PNG files. They occur among JPEGs under JPEG names, and whole data sets
 * consist of them.
 *
 * All colour types and depths are read, except interlaced files. Transparency is dropped; sixteen
 * bits become eight.
 *
 * The pixels of a PNG are one deflate stream, cut into IDAT chunks. libarchive decompresses it: it
 * gets the stream as the only member of a zip archive, made up here, whose size is the one that the
 * PNG header promises. Checksums are not checked. A stream that is cut short is decoded as far as
 * possible. */
#include "images_impl.h"
#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>

enum {
    SIGNATURE = 8,
    CHUNK_HEAD = 8,
    CHUNK_TAIL = 4,
    ZLIB_HEAD = 2,
    ZIP_HEAD = 31,
    RAW_MAX = 1 << 28,
    PALETTE_MAX = 256 * 3
};
enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGBA = 6 };

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void le32(uint8_t *p, uint32_t x)
{
    for (int k = 0; k < 4; k++) p[k] = (uint8_t)(x >> (8 * k));
}

bool rd_png_is(const uint8_t *p, size_t n)
{
    return n >= SIGNATURE && memcmp(p, "\x89PNG\r\n\x1a\n", SIGNATURE) == 0;
}

static int samples_of(int colour)
{
    return colour == RGB ? 3 : colour == GREY_ALPHA ? 2 : colour == RGBA ? 4 : 1;
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
    if (n < SIGNATURE + CHUNK_HEAD + 13 + CHUNK_TAIL || memcmp(p + 12, "IHDR", 4) != 0)
        return png_read_refuse(why, "the PNG ends within its header");
    const uint8_t *h = p + SIGNATURE + CHUNK_HEAD;
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
    out->w = w;
    out->h = rows;
    return RD_DECODE_OK;
}

/* Copies all IDAT chunks to out + ZIP_HEAD; out has a capacity of ZIP_HEAD + n bytes. Copies the
 * palette, too. Returns the length of the deflate stream; 0: none. */
static size_t png_read_collect(const uint8_t *p, size_t n, uint8_t *out,
                               uint8_t palette[PALETTE_MAX])
{
    size_t used = 0;
    for (size_t at = SIGNATURE; n - at >= CHUNK_HEAD;) {
        const size_t claimed = be32(p + at), left = n - at - CHUNK_HEAD,
                     k = claimed < left ? claimed : left;
        const uint8_t *data = p + at + CHUNK_HEAD;
        if (memcmp(p + at + 4, "IEND", 4) == 0) break;
        if (memcmp(p + at + 4, "PLTE", 4) == 0)
            memcpy(palette, data, k < PALETTE_MAX ? k : PALETTE_MAX);
        if (memcmp(p + at + 4, "IDAT", 4) == 0) {
            memcpy(out + ZIP_HEAD + used, data, k);
            used += k;
        }
        if (left - k < CHUNK_TAIL) break;
        at += CHUNK_HEAD + k + CHUNK_TAIL;
    }
    if (used <= ZLIB_HEAD) return 0;
    used -= ZLIB_HEAD;
    memmove(out + ZIP_HEAD, out + ZIP_HEAD + ZLIB_HEAD, used);
    return used;
}

/* Decompresses the n bytes at zip + ZIP_HEAD into raw and returns the number of bytes written.
 * Reads block by block, since libarchive returns the last block together with an error about what
 * follows the stream. */
static size_t inflate_member(uint8_t *zip, size_t n, uint8_t *raw, size_t n_raw)
{
    /* version 2.0, no flags, deflate */
    static const uint8_t head[10] = {'P', 'K', 3, 4, 20, 0, 0, 0, 8, 0};
    struct archive_entry *e;
    size_t got = 0;
    int rc = ARCHIVE_FATAL;
    memset(zip, 0, ZIP_HEAD);
    memcpy(zip, head, sizeof head);
    le32(zip + 18, (uint32_t)n);
    le32(zip + 22, (uint32_t)n_raw);
    zip[26] = 1; /* the name has one byte */
    zip[30] = 'x';
    struct archive *a = archive_read_new();
    if (a && archive_read_support_format_zip_streamable(a) == ARCHIVE_OK &&
        archive_read_set_options(a, "zip:ignorecrc32") == ARCHIVE_OK &&
        archive_read_open_memory(a, zip, ZIP_HEAD + n) == ARCHIVE_OK)
        rc = archive_read_next_header(a, &e);
    while (rc == ARCHIVE_OK && got < n_raw) {
        const void *block = NULL;
        size_t k = 0;
        la_int64_t at;
        rc = archive_read_data_block(a, &block, &k, &at);
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN) break;
        if (k > n_raw - got) k = n_raw - got;
        if (k > 0) memcpy(raw + got, block, k);
        got += k;
    }
    (void)archive_read_free(a);
    return got;
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

rd_code rd_png_decode(const uint8_t *p, size_t n, const rd_png_head *h, int64_t c, rd_scratch *s,
                      rd_pixels *out, rd_decode *answer, char why[RD_WHY_BYTES], rd_status *st)
{
    const size_t bits = (size_t)samples_of(h->colour) * (size_t)h->depth,
                 bpp = bits < 8 ? 1 : bits / 8;
    const size_t n_row = ((size_t)h->w * bits + 7) / 8, n_raw = (n_row + 1) * (size_t)h->h;
    uint8_t palette[PALETTE_MAX] = {0};
    *answer = RD_DECODE_NONE;
    *out = (rd_pixels){0};
    why[0] = '\0';
    RD_TRY(rd_scratch_reserve(&s->pixels, &s->n_pixels, (size_t)(h->h * h->w) * 4, st));
    RD_TRY(rd_scratch_reserve(&s->wide, &s->n_wide, ZIP_HEAD + n + n_raw, st));
    uint8_t *raw = s->wide + ZIP_HEAD + n;
    const size_t n_stream = png_read_collect(p, n, s->wide, palette);
    const size_t got = n_stream > 0 ? inflate_member(s->wide, n_stream, raw, n_raw) : 0;
    const int64_t n_rows = (int64_t)(got / (n_row + 1));
    if (n_rows == 0) {
        (void)png_read_refuse(why, "no pixel of the PNG can be decoded");
        return RD_OK;
    }
    /* Grey where a file that is cut short has no data. */
    memset(s->pixels, 128, (size_t)(h->h * h->w) * 4);
    for (int64_t y = 0; y < n_rows; y++) {
        uint8_t *row = raw + (size_t)y * (n_row + 1);
        unfilter(row[0], row + 1, y > 0 ? row - n_row : NULL, n_row, bpp);
        row_to_rgbx(h, row + 1, palette, s->pixels + y * h->w * 4);
    }
    if (c == 1) rd_rgbx_to_grey(s->pixels, h->h * h->w);
    *answer = n_rows == h->h ? RD_DECODE_OK : RD_DECODE_DAMAGED;
    if (*answer != RD_DECODE_OK)
        snprintf(why, RD_WHY_BYTES, "the PNG ends after %d of %d rows", (int)n_rows, (int)h->h);
    *out = (rd_pixels){s->pixels, h->h, h->w, c};
done:
    return st->code;
}
