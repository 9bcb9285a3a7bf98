/* report_parts.c -- the sections of one run: samples, mistakes with pictures, confusions.
 *
 * The records are texts and pictures for TensorBoard. Texts are tables of Markdown. A picture of
 * mistakes holds several tiles; it is decoded, cut into its tiles, and each is encoded again, so no
 * foreign byte of an image reaches the page. */
#include "report_impl.h"
#include "rd/tiles.h"
#include "../data/images_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

static void part_begin(const char *name, int64_t step, bool open, rd_strbuf *b)
{
    rd_strbuf_printf(b, "<details class=\"run\"%s><summary>", open ? " open" : "");
    report_text(b, name);
    rd_strbuf_printf(b, " <span class=\"dim\">step %" PRId64 "</span></summary>\n", step);
}

/* ---- samples ---- */

/* Returns the text behind "    NAME: " of a line, without blanks in front. NULL: another line. */
static const char *line_after(const char *line, size_t n, const char *name, size_t *n_out)
{
    const size_t k = strlen(name);
    size_t at = 4 + k;
    if (n < at || memcmp(line, "    ", 4) != 0 || memcmp(line + 4, name, k) != 0) return NULL;
    while (at < n && line[at] == ' ') at++;
    *n_out = n - at;
    return line + at;
}

enum { SAMPLE_MOST = 2000 }; /* bytes of a text of a sample in the page */

static void sample_text(const char *s, size_t n, rd_strbuf *b)
{
    report_text_n(b, s, n < SAMPLE_MOST ? n : SAMPLE_MOST);
    if (n > SAMPLE_MOST) rd_strbuf_puts(b, " ...");
}

static void put_sample(const char *text, rd_strbuf *b)
{
    static const char *const names[] = {"source:", "target:", "prediction:"};
    bool any = false;
    rd_strbuf_puts(b, "<dl>");
    for (const char *s = text; *s;) {
        const size_t n = strcspn(s, "\n");
        for (int i = 0; i < 3; i++) {
            size_t k;
            const char *value = line_after(s, n, names[i], &k);
            if (!value) continue;
            rd_strbuf_printf(b, "<dt>%.*s</dt><dd>", (int)strlen(names[i]) - 1, names[i]);
            sample_text(value, k, b);
            rd_strbuf_puts(b, "</dd>");
            any = true;
        }
        s += n + (s[n] == '\n');
    }
    if (!any) { /* of another version */
        rd_strbuf_puts(b, "<dt>text</dt><dd>");
        sample_text(text, strlen(text), b);
        rd_strbuf_puts(b, "</dd>");
    }
    rd_strbuf_puts(b, "</dl>");
}

void report_samples(const report_extras *x, const char *name, bool open, rd_strbuf *b)
{
    if (x->n_samples == 0) return;
    part_begin(name, x->sample[0].step, open, b);
    for (int i = 0; i < x->n_samples; i++) {
        rd_strbuf_printf(b, "<div class=\"box sample\"><p class=\"hint\">step %" PRId64 "</p>",
                         x->sample[i].step);
        put_sample(x->sample[i].text, b);
        rd_strbuf_puts(b, "</div>\n");
    }
    rd_strbuf_puts(b, "</details>\n");
}

/* ---- tables of Markdown ---- */

enum { MOST_CELLS = 128, CELL = 256 };

/* Reads a row "| a | b |" into cells, and returns their number. *s moves to the next row. 0: the
 * text has ended, or no row follows. */
static int table_cells(const char **s, char cell[][CELL])
{
    const char *p = *s, *end = p + strcspn(p, "\n");
    int n = 0;
    *s = end + (*end == '\n');
    if (p == end || *p != '|') return 0;
    for (p++; p < end && n < MOST_CELLS; n++) {
        size_t k = 0;
        while (p < end && *p == ' ') p++;
        for (; p < end && *p != '|'; p++) {
            if (*p == '\\' && p + 1 < end && p[1] == '|') p++;
            if (k + 1 < CELL) cell[n][k++] = *p;
        }
        while (k > 0 && cell[n][k - 1] == ' ') k--;
        cell[n][k] = '\0';
        p++;
    }
    return n;
}

static int cell_of(char cell[][CELL], int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(cell[i], name)) return i;
    return -1;
}

/* ---- confusions ---- */

static int64_t count_of(const char *cell)
{
    char *end;
    const int64_t v = strtoll(cell, &end, 10);
    return *cell && *end == '\0' && v >= 0 && v < INT64_C(1) << 50 ? v : 0;
}

/* The square root makes a mistake in a hundred visible. */
static int shade_of(int64_t count, int64_t sum)
{
    return count > 0 && sum > 0 ? (int)ceil(9.0 * sqrt((double)count / (double)sum)) : 0;
}

static void confusion_row(char cell[][CELL], int n, int row, rd_strbuf *b)
{
    int64_t sum = 0;
    for (int i = 1; i < n; i++) sum += count_of(cell[i]);
    rd_strbuf_puts(b, "<tr><th scope=\"row\">");
    report_text(b, cell[0]);
    rd_strbuf_puts(b, "</th>");
    for (int i = 1; i < n; i++) {
        const int64_t v = count_of(cell[i]);
        const int shade = shade_of(v, sum);
        if (shade > 0)
            rd_strbuf_printf(b, "<td class=\"%c%d\">%" PRId64 "</td>", i == row ? 'r' : 'w', shade,
                             v);
        else
            rd_strbuf_puts(b, "<td class=\"zero\">0</td>");
    }
    rd_strbuf_printf(b, "<td>%" PRId64 "</td>", sum);
    if (sum > 0 && row < n)
        rd_strbuf_printf(b, "<td>%.1f %%</td>", 100.0 * (double)count_of(cell[row]) / (double)sum);
    else
        rd_strbuf_puts(b, "<td>–</td>");
    rd_strbuf_puts(b, "</tr>\n");
}

static void put_matrix(const char *text, char cell[][CELL], rd_strbuf *b)
{
    const char *s = text;
    const int n = table_cells(&s, cell);
    rd_strbuf_puts(b, "<table class=\"confusion\"><caption>A row for each label, a column for each "
                      "predicted class</caption><thead><tr><th scope=\"col\">label</th>");
    for (int i = 1; i < n; i++) {
        rd_strbuf_puts(b, "<th scope=\"col\">");
        report_text(b, cell[i]);
        rd_strbuf_puts(b, "</th>");
    }
    rd_strbuf_puts(b, "<th scope=\"col\">samples</th><th scope=\"col\">right</th></tr></thead>"
                      "<tbody>\n");
    for (int row = 0; *s && row < MOST_CELLS + 1;) {
        const int k = table_cells(&s, cell);
        if (k == 0) break;
        if (!strncmp(cell[0], "---", 3)) continue;
        row++;
        if (k == n) confusion_row(cell, n, row, b);
    }
    rd_strbuf_puts(b, "</tbody></table>");
}

/* The most frequent confusions as a table. */
static void put_confusions(const char *text, char cell[][CELL], rd_strbuf *b)
{
    const char *s = text;
    rd_strbuf_puts(b, "<table><caption>Most frequent confusions</caption><thead><tr><th scope="
                      "\"col\" class=\"n\">samples</th><th scope=\"col\">label</th><th scope="
                      "\"col\">taken for</th></tr></thead><tbody>\n");
    for (int row = 0; *s && row < 40; row++) {
        const int n = table_cells(&s, cell);
        if (n == 0) break;
        if (row < 2 || n < 3) continue;
        rd_strbuf_printf(b, "<tr><td class=\"n\">%" PRId64 "</td><td>", count_of(cell[0]));
        report_text(b, cell[1]);
        rd_strbuf_puts(b, "</td><td>");
        report_text(b, cell[2]);
        rd_strbuf_puts(b, "</td></tr>\n");
    }
    rd_strbuf_puts(b, "</tbody></table>");
}

static void scroll_begin(const char *label, const char *name, rd_strbuf *b)
{
    rd_strbuf_printf(b, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s of ",
                     label);
    report_text(b, name);
    rd_strbuf_puts(b, "\">");
}

void report_confusion(const report_extras *x, const char *name, bool open, int64_t *room,
                      rd_strbuf *b)
{
    rd_strbuf matrix = {0};
    char(*cell)[CELL] = malloc(sizeof *cell * MOST_CELLS);
    if (cell && x->confusion.bytes) put_matrix(x->confusion.bytes, cell, &matrix);
    const bool fits = matrix.n > 0 && (int64_t)matrix.n <= *room;
    if (cell && (fits || x->confusions.bytes)) {
        part_begin(name, fits ? x->confusion.step : x->confusions.step, open, b);
        scroll_begin(fits ? "Confusion matrix" : "Confusions", name, b);
        if (fits)
            rd_strbuf_add(b, rd_strbuf_str(&matrix), matrix.n);
        else
            put_confusions(x->confusions.bytes, cell, b);
        rd_strbuf_puts(b, "</div></details>\n");
    }
    if (fits) *room -= (int64_t)matrix.n;
    b->failed |= matrix.failed || !cell;
    rd_strbuf_release(&matrix);
    free(cell);
}

/* ---- mistakes ---- */

enum { MOST_TILES = 64, TILE_SIDE = 144, PNG_PIXELS = 4096 };

/* Where the columns of the table of mistakes are; -1: there is none. */
typedef struct tile_columns {
    int place, sample, label, predicted, probability;
} tile_columns;

typedef struct tile {
    char sample[CELL], label[CELL], predicted[CELL], probability[CELL];
} tile;

/* Copies a rectangle of RGBx pixels as RGB, smaller by a whole number so that it fits the page. */
static bool tile_copy(const rd_pixels *from, int64_t x, int64_t y, int64_t w, int64_t h,
                      rd_picture *to)
{
    const int64_t side = w > h ? w : h,
                  by = side > TILE_SIDE ? (side + TILE_SIDE - 1) / TILE_SIDE : 1;
    rd_status own = {0};
    if (rd_picture_new((w + by - 1) / by, (h + by - 1) / by, to, &own) != RD_OK) return false;
    for (int64_t j = 0; j < to->h; j++)
        for (int64_t i = 0; i < to->w; i++) {
            int sum[3] = {0}, n = 0;
            for (int64_t v = j * by; v < (j + 1) * by && v < h; v++)
                for (int64_t u = i * by; u < (i + 1) * by && u < w; u++, n++)
                    for (int k = 0; k < 3; k++)
                        sum[k] += from->p[((y + v) * from->w + x + u) * 4 + k];
            for (int k = 0; k < 3; k++)
                to->rgb[(j * to->w + i) * 3 + k] = (uint8_t)((sum[k] + n / 2) / n);
        }
    return true;
}

/* Appends the address of an image that holds the picture itself. */
static void picture_address(const rd_picture *p, rd_strbuf *b)
{
    unsigned char *jpeg = NULL;
    unsigned long n = 0;
    tjhandle t = p->w * p->h > PNG_PIXELS ? tjInitCompress() : NULL;
    if (t && tjCompress2(t, p->rgb, (int)p->w, 0, (int)p->h, TJPF_RGB, &jpeg, &n, TJSAMP_444, 85,
                         0) == 0) {
        rd_strbuf_puts(b, "data:image/jpeg;base64,");
        report_base64(b, jpeg, n);
    } else {
        rd_strbuf png = {0};
        rd_status own = {0};
        (void)rd_picture_png(p, &png, &own);
        rd_strbuf_puts(b, "data:image/png;base64,");
        report_base64(b, rd_strbuf_str(&png), png.n);
        b->failed |= own.code != RD_OK;
        rd_strbuf_release(&png);
    }
    if (jpeg) tjFree(jpeg);
    if (t) (void)tjDestroy(t);
}

/* Reads the table of mistakes. Returns the number of tiles. *caption: tiles have captions. */
static int tiles_read(const char *text, tile tiles[MOST_TILES], bool *caption)
{
    char(*cell)[CELL] = malloc(sizeof *cell * MOST_CELLS);
    const char *s = text;
    int n = 0;
    if (!cell) return 0;
    int k = table_cells(&s, cell);
    const tile_columns c = {cell_of(cell, k, "place"), cell_of(cell, k, "sample"),
                            cell_of(cell, k, "label"), cell_of(cell, k, "prediction"),
                            cell_of(cell, k, "probability")};
    *caption = c.place >= 0;
    (void)table_cells(&s, cell); /* the line below the head */
    while (*s && n < MOST_TILES && (k = table_cells(&s, cell)) > 0) {
        tile *t = &tiles[n++];
        *t = (tile){.sample = ""};
        if (c.sample >= 0 && c.sample < k) memcpy(t->sample, cell[c.sample], CELL);
        if (c.label >= 0 && c.label < k) memcpy(t->label, cell[c.label], CELL);
        if (c.predicted >= 0 && c.predicted < k) memcpy(t->predicted, cell[c.predicted], CELL);
        if (c.probability >= 0 && c.probability < k)
            memcpy(t->probability, cell[c.probability], CELL);
    }
    free(cell);
    return n;
}

static void tile_item(const tile *t, const rd_picture *p, rd_strbuf *b)
{
    char *end;
    const double probability = strtod(t->probability, &end);
    rd_strbuf_puts(b, "<li class=\"box\">");
    if (p) {
        rd_strbuf_puts(b, "<img alt=\"");
        report_text(b, t->sample);
        rd_strbuf_printf(b, "\" width=\"%" PRId64 "\" height=\"%" PRId64 "\" src=\"", p->w, p->h);
        picture_address(p, b);
        rd_strbuf_puts(b, "\">");
    }
    rd_strbuf_puts(b, "<p>");
    report_text(b, t->label);
    rd_strbuf_puts(b, " <span class=\"sr\">taken for</span><span aria-hidden=\"true\">→</span> "
                      "<span class=\"wrong\">");
    report_text(b, t->predicted);
    rd_strbuf_puts(b, "</span>");
    if (end != t->probability && *end == '\0' && probability >= 0.0 && probability <= 1.0)
        rd_strbuf_printf(b, " %.0f %%", 100.0 * probability);
    rd_strbuf_puts(b, "</p><p class=\"dim\">");
    report_text(b, t->sample);
    rd_strbuf_puts(b, "</p></li>\n");
}

/* Appends one item for each tile. pixels.p NULL: without pictures. */
static void put_tiles(const tile *tiles, int n, bool caption, const rd_pixels *pixels, rd_strbuf *b)
{
    const int64_t columns = (int64_t)ceil(sqrt((double)n)), rows = (n + columns - 1) / columns;
    const int64_t w = pixels->p ? pixels->w / columns : 0, h = pixels->p ? pixels->h / rows : 0,
                  below = RD_TILE_GAP +
                          (caption ? RD_TILE_CAPTION * rd_tile_scale(w - RD_TILE_GAP) : 0);
    rd_strbuf_puts(b, "<ul class=\"pictures\">\n");
    for (int i = 0; i < n; i++) {
        rd_picture p = {.rgb = NULL};
        const bool shown = w > RD_TILE_GAP && h > below &&
                           tile_copy(pixels, i % columns * w, i / columns * h, w - RD_TILE_GAP,
                                     h - below, &p);
        tile_item(&tiles[i], shown ? &p : NULL, b);
        rd_picture_release(&p);
    }
    rd_strbuf_puts(b, "</ul>\n");
}

bool report_mistakes(const report_extras *x, const char *name, bool open, int64_t *room,
                     rd_strbuf *b)
{
    tile *tiles = malloc(MOST_TILES * sizeof *tiles);
    rd_strbuf part = {0};
    rd_scratch scratch = {0};
    rd_pixels pixels = {.p = NULL};
    rd_png_head head;
    rd_decode answer;
    rd_status own = {0};
    char why[RD_WHY_BYTES];
    bool caption = false, fits = true;
    const int n = tiles && x->names.bytes ? tiles_read(x->names.bytes, tiles, &caption) : 0;
    const uint8_t *png = (const uint8_t *)x->pictures.bytes;
    /* The last evaluation has a matrix, too; if it made no mistake, these are of an earlier one. */
    if (n == 0 || x->names.step < x->confusion.step) goto done;
    /* The picture and its table are of the same evaluation, or the picture is left out. */
    if (png && x->pictures.step == x->names.step && rd_png_is(png, x->pictures.n) &&
        rd_png_read_head(png, x->pictures.n, &head, why) == RD_DECODE_OK && head.w <= 4096 &&
        head.h <= 4096 &&
        rd_png_decode(png, x->pictures.n, &head, 4, &scratch, &pixels, &answer, why, &own) ==
            RD_OK &&
        answer != RD_DECODE_OK)
        pixels.p = NULL;
    put_tiles(tiles, n, caption, &pixels, &part);
    fits = (int64_t)part.n <= *room;
    if (!fits) {
        rd_strbuf_reset(&part);
        put_tiles(tiles, n, caption, &(rd_pixels){.p = NULL}, &part);
    } else {
        *room -= (int64_t)part.n;
    }
    part_begin(name, x->names.step, open, b);
    rd_strbuf_add(b, rd_strbuf_str(&part), part.n);
    rd_strbuf_puts(b, "</details>\n");
    b->failed |= part.failed;
done:
    b->failed |= !tiles;
    rd_scratch_release(&scratch);
    rd_strbuf_release(&part);
    free(tiles);
    return fits;
}
