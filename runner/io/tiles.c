/* tiles.c -- captions of tiles, see tiles.h. */
#include "rd/tiles.h"
#include "rd/printable.h"

#include <string.h>

int rd_tile_scale(int64_t w)
{
    return w >= 192 ? 2 : 1;
}

/* Appends the first n characters of a text. */
static void text_begin(rd_strbuf *b, const char *text, int64_t n)
{
    for (int64_t i = 0; i < n && *text; i++) {
        const size_t k = rd_utf8_bytes(text, strlen(text));
        rd_strbuf_add(b, text, k ? k : 1);
        text += k ? k : 1;
    }
}

void rd_tile_caption(rd_picture *p, int64_t x, int64_t y, int64_t w, int line, rd_colour c,
                     const char *text)
{
    const int scale = rd_tile_scale(w);
    const int64_t room = w / (RD_GLYPH_W * scale), n = rd_picture_glyphs(text);
    rd_strbuf shown = {0};
    text_begin(&shown, text, n <= room ? n : room - 2);
    if (n > room) rd_strbuf_puts(&shown, "..");
    rd_picture_text(p, x, y + (2 + line * RD_TILE_LINE) * scale, scale, c, rd_strbuf_str(&shown));
    rd_strbuf_release(&shown);
}
