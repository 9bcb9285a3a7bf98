/* picture.c -- pictures in memory, see picture.h. The font was drawn for this program: one row of
 * dots after the other, from '!' on, with the letters of English and the signs of ASCII. */
#include "rd/picture.h"
#include "events_impl.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 5, HIGH = 7, BOX = 0x7f };

static const char *const glyphs[0x80 - 0x20] = {
    "..... ..... ..... ..... ..... ..... .....", "..#.. ..#.. ..#.. ..#.. ..#.. ..... ..#..",
    ".#.#. .#.#. ..... ..... ..... ..... .....", ".#.#. .#.#. ##### .#.#. ##### .#.#. .#.#.",
    "..#.. .#### #.#.. .###. ..#.# ####. ..#..", "##..# ##..# ...#. ..#.. .#... #..## #..##",
    ".##.. #..#. #..#. .##.. #.#.# #..#. .##.#", "..#.. ..#.. ..... ..... ..... ..... .....",
    "...#. ..#.. .#... .#... .#... ..#.. ...#.", ".#... ..#.. ...#. ...#. ...#. ..#.. .#...",
    "..... ..#.. #.#.# .###. #.#.# ..#.. .....", "..... ..#.. ..#.. ##### ..#.. ..#.. .....",
    "..... ..... ..... ..... ..#.. ..#.. .#...", "..... ..... ..... .###. ..... ..... .....",
    "..... ..... ..... ..... ..... .##.. .##..", "....# ....# ...#. ..#.. .#... #.... #....",
    ".###. #...# #..## #.#.# ##..# #...# .###.", "..#.. .##.. #.#.. ..#.. ..#.. ..#.. #####",
    ".###. #...# ....# ..##. .#... #.... #####", ".###. #...# ....# ..##. ....# #...# .###.",
    "...#. ..##. .#.#. #..#. ##### ...#. ...#.", "##### #.... ####. ....# ....# #...# .###.",
    ".###. #.... #.... ####. #...# #...# .###.", "##### ....# ....# ...#. ..#.. ..#.. ..#..",
    ".###. #...# #...# .###. #...# #...# .###.", ".###. #...# #...# .#### ....# ....# .###.",
    "..... .##.. .##.. ..... .##.. .##.. .....", "..... .##.. .##.. ..... .##.. .##.. .#...",
    "...#. ..#.. .#... #.... .#... ..#.. ...#.", "..... ..... ##### ..... ##### ..... .....",
    ".#... ..#.. ...#. ....# ...#. ..#.. .#...", ".###. #...# ....# ..##. ..#.. ..... ..#..",
    ".###. #...# #.### #.#.# #.### #.... .###.", "..#.. .#.#. #...# #...# ##### #...# #...#",
    "####. #...# #...# ####. #...# #...# ####.", ".###. #...# #.... #.... #.... #...# .###.",
    "###.. #..#. #...# #...# #...# #..#. ###..", "##### #.... #.... ####. #.... #.... #####",
    "##### #.... #.... ####. #.... #.... #....", ".###. #...# #.... #.### #...# #...# .###.",
    "#...# #...# #...# ##### #...# #...# #...#", ".###. ..#.. ..#.. ..#.. ..#.. ..#.. .###.",
    "..### ...#. ...#. ...#. ...#. #..#. .##..", "#...# #..#. #.#.. ##... #.#.. #..#. #...#",
    "#.... #.... #.... #.... #.... #.... #####", "#...# ##.## #.#.# #.#.# #...# #...# #...#",
    "#...# ##..# ##..# #.#.# #..## #..## #...#", ".###. #...# #...# #...# #...# #...# .###.",
    "####. #...# #...# ####. #.... #.... #....", ".###. #...# #...# #...# #.#.# #..#. .##.#",
    "####. #...# #...# ####. #.#.. #..#. #...#", ".###. #...# #.... .###. ....# #...# .###.",
    "##### ..#.. ..#.. ..#.. ..#.. ..#.. ..#..", "#...# #...# #...# #...# #...# #...# .###.",
    "#...# #...# #...# #...# .#.#. .#.#. ..#..", "#...# #...# #...# #.#.# #.#.# ##.## #...#",
    "#...# #...# .#.#. ..#.. .#.#. #...# #...#", "#...# #...# .#.#. ..#.. ..#.. ..#.. ..#..",
    "##### ....# ...#. ..#.. .#... #.... #####", ".###. .#... .#... .#... .#... .#... .###.",
    "#.... #.... .#... ..#.. ...#. ....# ....#", ".###. ...#. ...#. ...#. ...#. ...#. .###.",
    "..#.. .#.#. #...# ..... ..... ..... .....", "..... ..... ..... ..... ..... ..... #####",
    ".#... ..#.. ..... ..... ..... ..... .....", "..... ..... .###. ....# .#### #...# .####",
    "#.... #.... ####. #...# #...# #...# ####.", "..... ..... .#### #.... #.... #.... .####",
    "....# ....# .#### #...# #...# #...# .####", "..... ..... .###. #...# ##### #.... .###.",
    "..##. .#... ####. .#... .#... .#... .#...", "..... .#### #...# #...# .#### ....# .###.",
    "#.... #.... #.##. ##..# #...# #...# #...#", "..#.. ..... .##.. ..#.. ..#.. ..#.. .###.",
    "...#. ..... ..##. ...#. ...#. #..#. .##..", "#.... #.... #..#. #.#.. ##... #.#.. #..#.",
    ".##.. ..#.. ..#.. ..#.. ..#.. ..#.. .###.", "..... ..... ##.#. #.#.# #.#.# #.#.# #.#.#",
    "..... ..... #.##. ##..# #...# #...# #...#", "..... ..... .###. #...# #...# #...# .###.",
    "..... ####. #...# #...# ####. #.... #....", "..... .#### #...# #...# .#### ....# ....#",
    "..... ..... #.##. ##... #.... #.... #....", "..... ..... .#### #.... .###. ....# ####.",
    ".#... .#... ####. .#... .#... .#... ..##.", "..... ..... #...# #...# #...# #..## .##.#",
    "..... ..... #...# #...# #...# .#.#. ..#..", "..... ..... #...# #...# #.#.# #.#.# .#.#.",
    "..... ..... #...# .#.#. ..#.. .#.#. #...#", "..... #...# #...# #..## .##.# ....# .###.",
    "..... ..... ##### ...#. ..#.. .#... #####", "...## ..#.. ..#.. .#... ..#.. ..#.. ...##",
    "..#.. ..#.. ..#.. ..#.. ..#.. ..#.. ..#..", "##... ..#.. ..#.. ...#. ..#.. ..#.. ##...",
    "..... ..... .#..# #.#.# #..#. ..... .....", "##### #...# #...# #...# #...# #...# #####",
};

/* The letters from U+00C0 to U+017F, without their accents. */
static const char unaccented[] = "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYTsaaaaaaaceeeeiiiidnooooo/ouuuuyty"
                                 "AaAaAaCcCcCcCcDdDdEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIiIiJjKkkLlLlLlL"
                                 "lLlNnNnNnnNnOoOoOoOoRrRrRrSsSsSsSsTtTtTtUuUuUuUuUuUuWwYyYZzZzZzs";

rd_code rd_picture_new(int64_t w, int64_t h, rd_picture *p, rd_status *st)
{
    *p = (rd_picture){.w = w, .h = h};
    if (w < 1 || h < 1 || w > 1 << 15 || h > 1 << 15)
        return rd_fail(st, RD_EBUG, "a picture of %" PRId64 " x %" PRId64 " pixels", w, h);
    p->rgb = malloc((size_t)(w * h * 3));
    if (!p->rgb)
        return rd_fail(st, RD_EENV, "out of memory for a picture of %" PRId64 " x %" PRId64, w, h);
    memset(p->rgb, 255, (size_t)(w * h * 3));
    return RD_OK;
}

void rd_picture_release(rd_picture *p)
{
    free(p->rgb);
    *p = (rd_picture){0};
}

void rd_picture_fill(rd_picture *p, int64_t x, int64_t y, int64_t w, int64_t h, rd_colour c)
{
    const int64_t x1 = x + w < p->w ? x + w : p->w, y1 = y + h < p->h ? y + h : p->h;
    for (int64_t j = y > 0 ? y : 0; j < y1; j++)
        for (int64_t i = x > 0 ? x : 0; i < x1; i++) {
            uint8_t *at = p->rgb + (j * p->w + i) * 3;
            at[0] = c.r;
            at[1] = c.g;
            at[2] = c.b;
        }
}

/* Returns the character at s as one that has a glyph, and moves s behind it. */
static int picture_next(const char **s)
{
    const unsigned char *u = (const unsigned char *)*s;
    const size_t n = rd_utf8_bytes(*s, strlen(*s));
    uint32_t c = u[0];
    *s += n > 0 ? n : 1;
    if (n == 2) c = (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    if (n == 2 && c >= 0xC0 && c < 0x180) c = (unsigned char)unaccented[c - 0xC0];
    return c >= 0x20 && c < BOX && n > 0 ? (int)c : BOX;
}

int64_t rd_picture_glyphs(const char *text)
{
    int64_t n = 0;
    while (*text) {
        (void)picture_next(&text);
        n++;
    }
    return n;
}

static void picture_write(rd_picture *p, int64_t x, int64_t y, int scale, rd_colour c,
                          const char *text, bool up)
{
    for (int64_t k = 0; *text; k++) {
        const int drawn = picture_next(&text);
        const char *dot = glyphs[drawn - 0x20];
        const int64_t below = strchr("gpqy", drawn) != NULL; /* these reach below the line */
        for (int64_t j = 0; j < HIGH; j++, dot++)            /* a blank ends each row */
            for (int64_t i = 0; i < WIDE; i++, dot++) {
                if (*dot != '#') continue;
                const int64_t along = (k * RD_GLYPH_W + i) * scale, down = (j + below) * scale;
                if (up)
                    rd_picture_fill(p, x + down, y - along - scale, scale, scale, c);
                else
                    rd_picture_fill(p, x + along, y + down, scale, scale, c);
            }
    }
}

void rd_picture_text(rd_picture *p, int64_t x, int64_t y, int scale, rd_colour c, const char *text)
{
    picture_write(p, x, y, scale, c, text, false);
}

void rd_picture_text_up(rd_picture *p, int64_t x, int64_t y, int scale, rd_colour c,
                        const char *text)
{
    picture_write(p, x, y, scale, c, text, true);
}

rd_code rd_picture_png(const rd_picture *p, rd_strbuf *out, rd_status *st)
{
    rd_png_packed(out, (int)p->w, (int)p->h, 3, p->rgb);
    if (out->failed)
        rd_fail(st, RD_EENV, "out of memory for a picture of %" PRId64 " x %" PRId64, p->w, p->h);
    return st->code;
}
