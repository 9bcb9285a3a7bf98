/* runs_curve.c -- keeps a curve of any length in little memory, and draws it with characters.
 *
 * A curve has at most RUNS_POINTS points. When it is full, each two of them become one, and later
 * points are means of twice as many values. */
#include "runs_impl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void curve_halve(runs_curve *c)
{
    for (int i = 0; i < RUNS_POINTS / 2; i++) {
        c->step[i] = 0.5 * (c->step[2 * i] + c->step[2 * i + 1]);
        c->value[i] = 0.5 * (c->value[2 * i] + c->value[2 * i + 1]);
    }
    c->n /= 2;
    c->stride *= 2;
}

static void curve_point(runs_curve *c)
{
    c->step[c->n] = c->step_sum / (double)c->filled;
    c->value[c->n++] = c->sum / (double)c->filled;
    c->filled = 0;
    c->step_sum = c->sum = 0.0;
}

void runs_curve_add(runs_curve *c, double step, double value)
{
    if (!isfinite(value) || !isfinite(step)) return;
    if (c->stride == 0) {
        c->stride = 1;
        c->first = step;
    }
    c->last = step;
    c->step_sum += step;
    c->sum += value;
    c->filled++;
    if (c->filled < c->stride) return;
    if (c->n == RUNS_POINTS)
        curve_halve(c); /* the sums hold half of a point now */
    else
        curve_point(c);
}

void runs_curve_end(runs_curve *c)
{
    if (c->filled == 0) return;
    if (c->n == RUNS_POINTS) curve_halve(c);
    curve_point(c);
}

/* ---- the drawing ---- */

enum { MOST_WIDTH = 400, MOST_HEIGHT = 60, LABEL = 9 };

/* One drawing: dots of 2 x 4 per character with braille, else 1 x 1. */
typedef struct canvas {
    int width, height, across, down; /* characters, and dots in a character */
    uint8_t dots[MOST_HEIGHT][MOST_WIDTH];
} canvas;

static void canvas_dot(canvas *v, int x, int y)
{
    static const uint8_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= v->width * v->across || y >= v->height * v->down) return;
    v->dots[y / v->down][x / v->across] |= bit[y % v->down][x % v->across];
}

typedef struct bounds {
    double x0, x1, y0, y1;
    bool log; /* y is a logarithm */
} bounds;

static bool curve_bounds(const runs_curve *c, bounds *b)
{
    *b = (bounds){INFINITY, -INFINITY, INFINITY, -INFINITY, false};
    for (int i = 0; i < c->n; i++) {
        b->x0 = fmin(b->x0, c->step[i]);
        b->x1 = fmax(b->x1, c->step[i]);
        b->y0 = fmin(b->y0, c->value[i]);
        b->y1 = fmax(b->y1, c->value[i]);
    }
    if (c->n == 0) return false;
    b->log = b->y0 > 0.0 && b->y1 / b->y0 > 1000.0;
    if (b->log) {
        b->y0 = log10(b->y0);
        b->y1 = log10(b->y1);
    }
    if (!(b->x1 > b->x0)) b->x1 = b->x0 + 1.0;
    if (!(b->y1 > b->y0)) {
        const double room = b->y0 != 0.0 ? 0.1 * fabs(b->y0) : 1.0;
        b->y0 -= room;
        b->y1 += room;
    }
    return isfinite(b->x1 - b->x0) && isfinite(b->y1 - b->y0);
}

static void canvas_curve(canvas *v, const runs_curve *c, const bounds *b)
{
    const int w = v->width * v->across, h = v->height * v->down;
    int last_x = -1, last_y = 0;
    for (int i = 0; i < c->n; i++) {
        const double y = b->log ? log10(c->value[i]) : c->value[i];
        const int px = (int)((c->step[i] - b->x0) / (b->x1 - b->x0) * (w - 1) + 0.5);
        const int py = (int)((b->y1 - y) / (b->y1 - b->y0) * (h - 1) + 0.5);
        const int dx = px - last_x, dy = py - last_y;
        const int n = last_x < 0 ? 0 : (abs(dx) > abs(dy) ? abs(dx) : abs(dy));
        for (int k = 1; k < n; k++)
            canvas_dot(v, last_x + (int)lround((double)dx * k / n),
                       last_y + (int)lround((double)dy * k / n));
        canvas_dot(v, px, py);
        last_x = px;
        last_y = py;
    }
}

static void canvas_row(const canvas *v, int row, bool braille, rd_strbuf *out)
{
    int last = v->width;
    while (last > 0 && v->dots[row][last - 1] == 0) last--;
    for (int i = 0; i < v->width; i++) {
        const unsigned code = 0x2800U + v->dots[row][i];
        const char utf8[4] = {(char)(0xE0 | code >> 12), (char)(0x80 | (code >> 6 & 0x3F)),
                              (char)(0x80 | (code & 0x3F)), '\0'};
        if (!braille || i >= last)
            rd_strbuf_puts(out, v->dots[row][i] ? "*" : " ");
        else
            rd_strbuf_puts(out, utf8);
    }
}

static void line_padded(rd_strbuf *out, const char *text, int width)
{
    rd_strbuf cut = {0};
    runs_cut(&cut, text, width);
    rd_strbuf_puts(out, rd_strbuf_str(&cut));
    for (int i = runs_columns(rd_strbuf_str(&cut), cut.n); i < width; i++) rd_strbuf_puts(out, " ");
    rd_strbuf_release(&cut);
}

void runs_curve_draw(const runs_curve *c, const char *title, int width, int height, bool braille,
                     rd_strbuf lines[])
{
    canvas v = {.across = braille ? 2 : 1, .down = braille ? 4 : 1};
    bounds b;
    v.width = width - LABEL < 1 ? 1 : width - LABEL > MOST_WIDTH ? MOST_WIDTH : width - LABEL;
    v.height = height > MOST_HEIGHT ? MOST_HEIGHT : height;
    line_padded(&lines[0], title, width);
    const bool any = curve_bounds(c, &b);
    if (any) canvas_curve(&v, c, &b);
    for (int i = 0; i < height; i++) {
        char label[32] = "";
        const double y = any ? b.y1 - (b.y1 - b.y0) * i / (height > 1 ? height - 1 : 1) : 0.0;
        if (any && (i == 0 || i == height - 1 || i == height / 2))
            (void)snprintf(label, sizeof label, "%.4g", b.log ? pow(10.0, y) : y);
        rd_strbuf_printf(&lines[1 + i], "%*.*s|", LABEL - 1, LABEL - 1, label);
        if (i < v.height) canvas_row(&v, i, braille, &lines[1 + i]);
    }
    char first[32] = "", last[32] = "";
    if (any) {
        (void)snprintf(first, sizeof first, "step %.0f", c->first);
        (void)snprintf(last, sizeof last, "%.0f", c->last);
    } else {
        (void)snprintf(first, sizeof first, "nothing recorded");
    }
    rd_strbuf_printf(&lines[1 + height], "%*s %-*s%s", LABEL - 1, "",
                     v.width - (int)strlen(last) > 0 ? v.width - (int)strlen(last) : 0, first,
                     last);
}
