/* confusion_png.c -- draws a confusion matrix, see confusion_png.h.
 *
 * The rows are labels and the columns predictions. The square root of the share decides the colour,
 * so that a mistake in a hundred is visible. A count that does not fit is cut to thousands ("12k")
 * or millions, and left out where that does not fit either. */
#include "rd/confusion_png.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GAP = 1,          /* pixels between cells */
    MARGIN = 6,       /* pixels around texts */
    NAME_GLYPHS = 24, /* longer names are cut */
    NAME_BYTES = 4 * NAME_GLYPHS + 3,
    LARGEST = 4096 /* pixels of a side */
};

static const rd_colour ink = {30, 30, 30}, grey = {110, 110, 110}, line = {205, 205, 205};

/* The sizes of one picture in pixels. */
typedef struct matrix_sizes {
    int scale;         /* of all text; 0: no names */
    int64_t cell;      /* side of a cell, without the gap */
    int64_t left, top; /* where the cells begin */
    int64_t right;     /* room for the accuracies */
    int64_t widest;    /* glyphs of the longest name */
} matrix_sizes;

/* Writes the name of a class, cut to NAME_GLYPHS. */
static void matrix_name(const rd_confusion *c, int64_t k, char out[NAME_BYTES])
{
    const char *name = c->names && c->names[k] && c->names[k][0] ? c->names[k] : NULL;
    size_t used = 0;
    if (!name) {
        (void)snprintf(out, NAME_BYTES, "%" PRId64, k);
        return;
    }
    for (int n = 0; name[0] && n < NAME_GLYPHS; n++) {
        size_t bytes = rd_utf8_bytes(name, strlen(name));
        if (bytes == 0) bytes = 1;
        memcpy(out + used, name, bytes);
        used += bytes;
        name += bytes;
        if (n == NAME_GLYPHS - 1 && name[0]) {
            used -= bytes;
            out[used++] = '~';
        }
    }
    out[used] = '\0';
}

/* Writes a count in at most `most` glyphs; "" if that is not possible. */
static void matrix_count(int64_t count, int64_t most, char out[24])
{
    static const struct {
        int64_t unit;
        const char *sign;
    } forms[] = {{1, ""}, {1000, "k"}, {1000000, "M"}, {1000000000, "G"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        (void)snprintf(out, 24, "%" PRId64 "%s", count / forms[i].unit, forms[i].sign);
        if ((i == 0 || count >= forms[i].unit) && (int64_t)strlen(out) <= most) return;
    }
    out[0] = '\0';
}

static matrix_sizes matrix_layout(const rd_confusion *c)
{
    matrix_sizes l = {.scale = c->n <= 30 ? 2 : c->n <= RD_CONFUSION_NAMED ? 1 : 0};
    char text[NAME_BYTES];
    int64_t digits = 1;
    if (l.scale == 0) {
        l.left = l.top = l.right = MARGIN;
        l.cell = (LARGEST - 2 * MARGIN) / c->n - GAP;
        l.cell = l.cell < 1 ? 1 : l.cell > 8 ? 8 : l.cell;
        return l;
    }
    for (int64_t k = 0; k < c->n; k++) {
        matrix_name(c, k, text);
        const int64_t n = rd_picture_glyphs(text);
        l.widest = n > l.widest ? n : l.widest;
    }
    for (int64_t i = 0; i < c->n * c->n; i++) {
        const int64_t n = snprintf(NULL, 0, "%" PRId64, c->at[i]);
        digits = n > digits ? n : digits;
    }
    /* Counts have room for up to four digits, five in small matrices. */
    const int64_t room = c->n <= 30 ? 5 : 4;
    digits = digits > room ? room : digits < 2 ? 2 : digits;
    l.cell = digits * RD_GLYPH_W * l.scale + 4;
    const int64_t names = l.widest * RD_GLYPH_W * l.scale + 2 * MARGIN;
    const int64_t title = RD_GLYPH_H * l.scale + MARGIN;
    l.left = names + title;
    l.top = names + title;
    l.right = 5 * RD_GLYPH_W * l.scale + 2 * MARGIN;
    return l;
}

static int64_t matrix_place(int64_t from, int64_t k, int64_t cell)
{
    return from + k * (cell + GAP);
}

static void matrix_cells(const rd_confusion *c, const matrix_sizes *l, rd_picture *p)
{
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t *row = c->at + i * c->n;
        int64_t all = 0;
        for (int64_t j = 0; j < c->n; j++) all += row[j];
        for (int64_t j = 0; j < c->n; j++) {
            const double share = all > 0 ? sqrt((double)row[j] / (double)all) : 0.0;
            const uint8_t pale = (uint8_t)(244.0 - 200.0 * share),
                          full = (uint8_t)(244.0 - 70.0 * share);
            const rd_colour fill = {i == j ? pale : full, i == j ? full : pale, pale};
            const int64_t x = matrix_place(l->left, j, l->cell),
                          y = matrix_place(l->top, i, l->cell);
            char text[24] = "";
            rd_picture_fill(p, x, y, l->cell, l->cell, fill);
            if (l->scale == 0 || row[j] == 0) continue;
            matrix_count(row[j], (l->cell - 2) / (RD_GLYPH_W * l->scale), text);
            const int64_t w = ((int64_t)strlen(text) * RD_GLYPH_W - 1) * l->scale;
            const int64_t h = (RD_GLYPH_H - 1) * l->scale;
            rd_picture_text(p, x + (l->cell - w) / 2, y + (l->cell - h) / 2, l->scale, ink, text);
        }
    }
}

/* Draws the names, and the accuracy at the end of each row. */
static void matrix_labels(const rd_confusion *c, const matrix_sizes *l, rd_picture *p)
{
    const int64_t wide = RD_GLYPH_W * l->scale, high = (RD_GLYPH_H - 1) * l->scale;
    const int64_t end = matrix_place(l->left, c->n, l->cell);
    for (int64_t k = 0; k < c->n; k++) {
        char text[NAME_BYTES];
        matrix_name(c, k, text);
        const int64_t y = matrix_place(l->top, k, l->cell) + (l->cell - high) / 2,
                      x = matrix_place(l->left, k, l->cell) + (l->cell - high) / 2;
        rd_picture_text(p, l->left - MARGIN - rd_picture_glyphs(text) * wide, y, l->scale, ink,
                        text);
        rd_picture_text_up(p, x, l->top - MARGIN, l->scale, ink, text);
        int64_t all = 0;
        for (int64_t j = 0; j < c->n; j++) all += c->at[k * c->n + j];
        if (all == 0) continue;
        (void)snprintf(text, sizeof text, "%3.0f %%",
                       100.0 * (double)c->at[k * c->n + k] / (double)all);
        rd_picture_text(p, end + MARGIN, y, l->scale, grey, text);
    }
    rd_picture_text_up(p, MARGIN / 2, l->top + 6 * wide > p->h ? p->h : l->top + 6 * wide, l->scale,
                       grey, "label");
    rd_picture_text(p, l->left, MARGIN / 2, l->scale, grey, "prediction");
}

rd_code rd_confusion_draw(const rd_confusion *c, rd_picture *out, rd_status *st)
{
    *out = (rd_picture){0};
    if (c->n < 1 || c->n > RD_CONFUSION_MOST)
        return rd_fail(st, RD_EUSAGE, "a confusion matrix of %" PRId64 " classes cannot be drawn",
                       c->n);
    const matrix_sizes l = matrix_layout(c);
    const int64_t side = c->n * (l.cell + GAP) + GAP;
    RD_TRY(rd_picture_new(l.left + side + l.right, l.top + side + MARGIN, out, st));
    if (l.scale > 0) rd_picture_fill(out, l.left - GAP, l.top - GAP, side, side, line);
    matrix_cells(c, &l, out);
    if (l.scale > 0) matrix_labels(c, &l, out);
done:
    return st->code;
}
