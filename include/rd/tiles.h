/* tiles.h -- the places of several pictures in one: each has a caption of two lines below it. */
#ifndef RD_TILES_H
#define RD_TILES_H

#include "rd/picture.h"

RD_C_BEGIN

/* Pixels between tiles, and the height of a caption at scale 1. */
enum { RD_TILE_GAP = 2, RD_TILE_LINE = RD_GLYPH_H + 1, RD_TILE_CAPTION = 2 * RD_TILE_LINE + 4 };
/* Returns the scale of the captions of tiles that are w pixels wide. */
int rd_tile_scale(int64_t w);
/* Writes one line of a caption. A text of more than w pixels is cut, and ends in two dots. line: 0
 * or 1. x, y: the upper left corner of the caption. */
void rd_tile_caption(rd_picture *p, int64_t x, int64_t y, int64_t w, int line, rd_colour c,
                     const char *text);

RD_C_END
#endif
