/* jpeg.c -- fuzz target: decodes any bytes as an image, JPEG or PNG, and resamples the result.
 *
 * The first byte chooses the scale (bits 0 and 1) and grey (bit 2). Pictures of more than a few
 * pixels are skipped: they test the same decoder, but slowly. */
#include "../../runner/data/images_impl.h"
#include "rd/gunzip.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* With the right checksum of the header, which a mutation would not hit. */
static void decode_png(const uint8_t *data, size_t size, int64_t c)
{
    enum { HEAD = 8, CHUNK = 8 + 13 };
    rd_status st = {0};
    rd_scratch s = {0};
    rd_png_head png;
    rd_pixels px;
    rd_decode answer;
    char why[RD_WHY_BYTES];
    uint8_t *p = malloc(size);
    if (!p) abort();
    memcpy(p, data, size);
    if (size >= HEAD + CHUNK + 4) {
        const uint32_t crc = rd_crc32(0, p + HEAD + 4, CHUNK - 4);
        for (int k = 0; k < 4; k++) p[HEAD + CHUNK + k] = (uint8_t)(crc >> (24 - 8 * k));
    }
    if (rd_png_read_head(p, size, &png, why) == RD_DECODE_OK && png.h * png.w <= 1 << 16) {
        if (rd_png_decode(p, size, &png, c, &s, &px, &answer, why, &st) != RD_OK) abort();
        if (answer == RD_DECODE_NONE ? px.p || why[0] == '\0' : px.h != png.h || px.w != png.w)
            abort();
        if (answer == RD_DECODE_DAMAGED && why[0] == '\0') abort();
    }
    rd_scratch_release(&s);
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const int den = 1 << (data[0] & 3);
    const int64_t c = data[0] & 4 ? 1 : 4;
    rd_status st = {0};
    rd_scratch s = {0};
    rd_jpeg_head head;
    rd_pixels px;
    rd_decode answer;
    char why[RD_WHY_BYTES];
    float out[5 * 7 * 3];
    if (rd_png_is(data + 1, size - 1)) {
        decode_png(data + 1, size - 1, c);
        return 0;
    }
    if (rd_jpeg_read_head(data + 1, size - 1, &head, why) != RD_DECODE_OK) {
        if (why[0] == '\0') abort();
        return 0;
    }
    if (head.h < 1 || head.w < 1 || head.h * head.w > RD_JPEG_PIXELS_MAX) abort();
    if (head.h * head.w > 1 << 16) return 0;
    if (rd_jpeg_decode(data + 1, size - 1, &head, den, c, &s, &px, &answer, why, &st) != RD_OK)
        abort();
    if (answer == RD_DECODE_NONE && (px.p || why[0] == '\0')) abort();
    if (answer != RD_DECODE_NONE) {
        const rd_box box = {0.25 * (double)px.h, 0.1 * (double)px.w, 0.5 * (double)px.h,
                            0.9 * (double)px.w};
        if (px.h != (head.h + den - 1) / den || px.w != (head.w + den - 1) / den || px.c != c)
            abort();
        if (rd_resample(&px, &box, 5, 7, true, &s, out, &st) != RD_OK) abort();
        for (int64_t i = 0; i < 35 * (c == 1 ? 1 : 3); i++)
            if (!(out[i] >= -0.01f && out[i] <= 255.01f)) abort();
    }
    rd_scratch_release(&s);
    return 0;
}
