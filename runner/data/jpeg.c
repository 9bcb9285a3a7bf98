/* jpeg.c -- decodes images, recognised by content, through TurboJPEG.
 *
 * The file's name does not count. The decoder turns grey into colour, or colour into grey.
 * TurboJPEG returns CMYK and YCCK as CMYK; this file turns them into RGB. A file that is cut short
 * or holds stray bytes is decoded as far as possible and called damaged. A file that is not a JPEG
 * has no pixels; `why` names what it is. Both are answers, not failures: a run does not stop for
 * one image in a million. The only failure is lack of memory. */
#include "images_impl.h"
#include <stdio.h>
#include <turbojpeg.h>

/* Pixels times scans of one image; scans that TurboJPEG reads at most. */
static const int64_t work_max = (int64_t)1 << 31;
enum { SCANS_MAX = 500 };

static const char *kind_of(const uint8_t *p, size_t n)
{
    static const struct {
        const char *magic, *name;
        size_t n;
    } known[] = {
        {"GIF8", "a GIF", 4},
        {"BM", "a BMP", 2},
        {"II*\0", "a TIFF", 4},
        {"MM\0*", "a TIFF", 4},
        {"RIFF", "a WebP", 4},
        {"\x1f\x8b", "a gzip file", 2},
        {"<!DOCTYPE", "an HTML page", 9},
        {"<html", "an HTML page", 5},
        {"\0\0\0\x0cjP", "a JPEG 2000", 6},
        {"<?xml", "an XML file", 5},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (n >= known[k].n && memcmp(p, known[k].magic, known[k].n) == 0) return known[k].name;
    return n == 0 ? "empty" : NULL;
}

static rd_decode jpeg_refuse(char why[RD_WHY_BYTES], const char *text)
{
    snprintf(why, RD_WHY_BYTES, "%s", text);
    return RD_DECODE_NONE;
}

/* SOF0 .. SOF15 without DHT, JPG and DAC. */
static bool is_frame(int marker)
{
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/* Counts the scans, at most SCANS_MAX. */
static int count_scans(const uint8_t *p, size_t n)
{
    int scans = 0;
    for (const uint8_t *at = p, *end = p + n; scans < SCANS_MAX && end - at >= 2; at++) {
        at = memchr(at, 0xFF, (size_t)(end - at) - 1);
        if (!at) break;
        scans += at[1] == 0xDA;
    }
    return scans;
}

/* Returns the bytes of the coefficients of a frame: two a sample. seg: of its header. */
static int64_t coefficient_bytes(const rd_jpeg_head *h, const uint8_t *seg, size_t length)
{
    int h_max = 1, v_max = 1, samples = 0;
    for (int k = 0; k < h->n_components && length >= 8 + 3 * (size_t)(k + 1); k++) {
        const int sampling = seg[6 + 3 * k + 1], x = sampling >> 4, y = sampling & 15;
        if (x > h_max) h_max = x;
        if (y > v_max) v_max = y;
        samples += x * y;
    }
    return 2 * h->h * h->w * samples / (h_max * v_max);
}

/* A JPEG of many scans costs time with each of them, and keeps all coefficients in memory. A small
 * file can hold hundreds of scans of a huge image. */
static rd_decode check_cost(const rd_jpeg_head *h, int64_t coefficients, const uint8_t *rest,
                            size_t n, char why[RD_WHY_BYTES])
{
    const int64_t pixels = h->h * h->w;
    if (pixels * SCANS_MAX <= work_max && coefficients <= RD_JPEG_COEF_MAX) return RD_DECODE_OK;
    const int scans = count_scans(rest, n);
    if (scans <= 1) return RD_DECODE_OK;
    if (pixels * scans <= work_max && coefficients <= RD_JPEG_COEF_MAX) return RD_DECODE_OK;
    snprintf(why, RD_WHY_BYTES,
             "a JPEG of %d x %d pixels in %d scans, too much work; save it without progression",
             (int)h->w, (int)h->h, scans);
    return RD_DECODE_NONE;
}

rd_decode rd_jpeg_read_head(const uint8_t *p, size_t n, rd_jpeg_head *out, char why[RD_WHY_BYTES])
{
    *out = (rd_jpeg_head){0};
    why[0] = '\0';
    if (n < 3 || p[0] != 0xFF || p[1] != 0xD8 || p[2] != 0xFF) {
        const char *kind = kind_of(p, n);
        snprintf(why, RD_WHY_BYTES, kind ? "%s, not a JPEG" : "not a JPEG", kind);
        return RD_DECODE_NONE;
    }
    size_t at = 2;
    int64_t coefficients;
    for (;;) {
        while (at < n && p[at] != 0xFF)
            at++; /* stray bytes between segments: the decoder skips them, too */
        while (at < n && p[at] == 0xFF) at++;
        if (at + 3 > n) return jpeg_refuse(why, "the JPEG ends before its image data");
        const int marker = p[at++];
        if (marker == 0 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8))
            continue; /* no length follows */
        if (marker == 0xD9 || marker == 0xDA)
            return jpeg_refuse(why, "the JPEG has no frame header");
        const size_t length = (size_t)p[at] << 8 | p[at + 1];
        if (length < 2 || length > n - at)
            return jpeg_refuse(why, "the JPEG ends before its image data");
        const uint8_t *seg = p + at + 2;
        if (marker == 0xEE && length >= 14 && memcmp(seg, "Adobe", 5) == 0) out->adobe = true;
        if (is_frame(marker)) {
            if (length < 8) return jpeg_refuse(why, "the JPEG's frame header is too short");
            out->h = (int64_t)seg[1] << 8 | seg[2];
            out->w = (int64_t)seg[3] << 8 | seg[4];
            out->n_components = seg[5];
            coefficients = coefficient_bytes(out, seg, length);
            at += length;
            break;
        }
        at += length;
    }
    if (out->h == 0 || out->w == 0) return jpeg_refuse(why, "the JPEG's header gives no size");
    if (out->h > RD_JPEG_SIDE_MAX || out->w > RD_JPEG_SIDE_MAX ||
        out->h * out->w > RD_JPEG_PIXELS_MAX) {
        snprintf(why, RD_WHY_BYTES, "a JPEG of %d x %d pixels, too many", (int)out->w, (int)out->h);
        return RD_DECODE_NONE;
    }
    return check_cost(out, coefficients, p + at, n - at, why);
}

/* Converts pixels of four bytes in place. Adobe's files hold 255 - C, 255 - M, 255 - Y, 255 - K. */
static void cmyk_to_rgbx(uint8_t *p, int64_t n, bool inverted)
{
    const unsigned turn = inverted ? 0 : 255;
    for (int64_t i = 0; i < n; i++, p += 4) {
        const unsigned k = p[3] ^ turn;
        for (int c = 0; c < 3; c++) p[c] = (uint8_t)(((p[c] ^ turn) * k + 127) / 255);
    }
}

void rd_rgbx_to_grey(uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] =
            (uint8_t)((19595u * p[4 * i] + 38470u * p[4 * i + 1] + 7471u * p[4 * i + 2] + 32768u) >>
                      16);
}

rd_code rd_jpeg_decode(const uint8_t *p, size_t n, const rd_jpeg_head *head, int den, int64_t c,
                       rd_scratch *s, rd_pixels *out, rd_decode *answer, char why[RD_WHY_BYTES],
                       rd_status *st)
{
    const bool cmyk = head->n_components == 4;
    const int64_t h = (head->h + den - 1) / den, w = (head->w + den - 1) / den, item = cmyk ? 4 : c;
    *answer = RD_DECODE_NONE;
    *out = (rd_pixels){0};
    why[0] = '\0';
    if (h * w > RD_JPEG_DECODED_MAX) {
        snprintf(why, RD_WHY_BYTES, "a JPEG of %d x %d pixels, too many for a small crop",
                 (int)head->w, (int)head->h);
        return RD_OK;
    }
    /* A handle keeps the tables of the image before, which one without own tables would use. */
    tjhandle jpeg = tjInitDecompress();
    if (!jpeg) return rd_fail(st, RD_EENV, "cannot start TurboJPEG: %s", tjGetErrorStr2(NULL));
    RD_TRY(rd_scratch_reserve(&s->pixels, &s->n_pixels, (size_t)(h * w * item), st));
    memset(s->pixels, 128,
           (size_t)(h * w * item)); /* grey where a file that is cut short has no data */
    const int format = cmyk ? TJPF_CMYK : c == 1 ? TJPF_GRAY : TJPF_RGBX;
    const int rc = tjDecompress2(jpeg, p, n, s->pixels, (int)w, (int)(w * item), (int)h, format,
                                 TJFLAG_LIMITSCANS);
    if (rc != 0) {
        snprintf(why, RD_WHY_BYTES, "%s", tjGetErrorStr2(jpeg));
        if (tjGetErrorCode(jpeg) != TJERR_WARNING) goto done;
    }
    if (cmyk) cmyk_to_rgbx(s->pixels, h * w, head->adobe);
    if (cmyk && c == 1) rd_rgbx_to_grey(s->pixels, h * w);
    *answer = rc == 0 ? RD_DECODE_OK : RD_DECODE_DAMAGED;
    *out = (rd_pixels){s->pixels, h, w, c};
done:
    tjDestroy(jpeg);
    return st->code;
}
