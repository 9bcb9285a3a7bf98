/* picture.h -- pictures in memory: rectangles and text, and PNG files. */
#ifndef RD_PICTURE_H
#define RD_PICTURE_H

#include "rd/strbuf.h"
#include <stdint.h>

RD_C_BEGIN

/* An RGB picture, 8 bits for each channel. */
typedef struct rd_picture {
    int64_t w, h;
    uint8_t *rgb; /* owned; [h][w][3] */
} rd_picture;

typedef struct rd_colour {
    uint8_t r, g, b;
} rd_colour;

/* Makes a white picture. The caller releases *p. RD_EENV: out of memory. */
rd_code rd_picture_new(int64_t w, int64_t h, rd_picture *p, rd_status *st);
void rd_picture_release(rd_picture *p); /* a struct of zeros is fine */

/* Fills a rectangle. What is outside of the picture is left out, here and below. */
void rd_picture_fill(rd_picture *p, int64_t x, int64_t y, int64_t w, int64_t h, rd_colour c);

/* The size of a character: a glyph of 5 x 7 pixels, and one pixel to the next. */
enum { RD_GLYPH_W = 6, RD_GLYPH_H = 8 };

/* Writes UTF-8 text. x, y: its upper left corner; scale: pixels for each pixel of a glyph. Letters
 * with accents are drawn without them, and what has no glyph as a box. */
void rd_picture_text(rd_picture *p, int64_t x, int64_t y, int scale, rd_colour c, const char *text);
/* Does the same from the bottom to the top. x, y: the lower left corner of the text. */
void rd_picture_text_up(rd_picture *p, int64_t x, int64_t y, int scale, rd_colour c,
                        const char *text);
/* Returns the number of glyphs of a text. */
int64_t rd_picture_glyphs(const char *text);

/* Appends the picture as a PNG file. */
rd_code rd_picture_png(const rd_picture *p, rd_strbuf *out, rd_status *st);

RD_C_END
#endif
