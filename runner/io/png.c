/* png.c -- writes PNG files. Those in event files have deflate blocks that are stored, not
 * compressed, so their bytes do not depend on the version of zlib. */
#include "events_impl.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Returns the CRC-32 of zip and PNG (reflected 0xEDB88320). It works on four bits at a time: a
 * table of 16 numbers is short enough to be read. */
static uint32_t crc32_png(uint32_t crc, const unsigned char *p, size_t n)
{
    static const uint32_t table[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC,
                                       0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
                                       0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                       0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc = table[(crc ^ p[i]) & 15] ^ (crc >> 4);
        crc = table[(crc ^ (p[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}

static void big32(unsigned char out[4], uint32_t v)
{
    for (int i = 0; i < 4; i++) out[i] = (unsigned char)(v >> (24 - 8 * i));
}

static void png_chunk(rd_strbuf *out, const char *type, const void *p, size_t n)
{
    unsigned char head[8], tail[4];
    big32(head, (uint32_t)n);
    memcpy(head + 4, type, 4);
    rd_strbuf_add(out, head, 8);
    if (n > 0) rd_strbuf_add(out, p, n);
    big32(tail, crc32_png(crc32_png(0, head + 4, 4), p, n));
    rd_strbuf_add(out, tail, 4);
}

/* Writes the bytes as stored blocks in zlib's frame, with Adler-32 at the end. */
static void zlib_stored(rd_strbuf *out, const unsigned char *p, size_t n)
{
    uint32_t a = 1, b = 0;
    unsigned char sum[4];
    rd_strbuf_add(out, "\x78\x01", 2);
    for (size_t at = 0; at < n || at == 0;) {
        const size_t k = n - at < 65535 ? n - at : 65535;
        const unsigned char head[5] = {at + k == n, k & 0xFF, (unsigned char)(k >> 8), ~k & 0xFF,
                                       (unsigned char)(~k >> 8 & 0xFF)};
        rd_strbuf_add(out, head, 5);
        rd_strbuf_add(out, p + at, k);
        at += k;
        if (k == 0) break;
    }
    for (size_t i = 0; i < n; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    big32(sum, b << 16 | a);
    rd_strbuf_add(out, sum, 4);
}

static void zlib_packed(rd_strbuf *out, const unsigned char *p, size_t n)
{
    uLongf bytes = compressBound((uLong)n);
    unsigned char *to = malloc(bytes);
    if (to && compress2(to, &bytes, p, (uLong)n, 9) == Z_OK)
        rd_strbuf_add(out, to, bytes);
    else
        out->failed = true;
    free(to);
}

static void png_file(rd_strbuf *out, int w, int h, int channels, const uint8_t *pixels,
                     void (*pack)(rd_strbuf *out, const unsigned char *p, size_t n))
{
    const unsigned char color_type = channels == 1 ? 0 : channels == 3 ? 2 : 6;
    unsigned char head[13] = {[8] = 8, [9] = color_type};
    rd_strbuf rows = {0}, compressed = {0};
    const size_t row = (size_t)w * (size_t)channels;
    big32(head, (uint32_t)w);
    big32(head + 4, (uint32_t)h);
    for (int y = 0; y < h; y++) {
        rd_strbuf_add(&rows, "", 1); /* filter 0: none */
        rd_strbuf_add(&rows, pixels + (size_t)y * row, row);
    }
    pack(&compressed, (const unsigned char *)rd_strbuf_str(&rows), rows.n);
    rd_strbuf_add(out, "\x89PNG\r\n\x1a\n", 8);
    png_chunk(out, "IHDR", head, sizeof head);
    png_chunk(out, "IDAT", rd_strbuf_str(&compressed), compressed.n);
    png_chunk(out, "IEND", NULL, 0);
    out->failed = out->failed || rows.failed || compressed.failed;
    rd_strbuf_release(&rows);
    rd_strbuf_release(&compressed);
}

void rd_png(rd_strbuf *out, int w, int h, int channels, const uint8_t *pixels)
{
    png_file(out, w, h, channels, pixels, zlib_stored);
}

void rd_png_packed(rd_strbuf *out, int w, int h, int channels, const uint8_t *pixels)
{
    png_file(out, w, h, channels, pixels, zlib_packed);
}
