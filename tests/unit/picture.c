/* picture.c -- pictures in memory: the font, clipping, PNG files, and what a confusion matrix
 * shows. */
#include "rd/confusion_png.h"
#include "../../runner/data/images_impl.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static const rd_colour ink = {30, 30, 30}, white = {255, 255, 255};

static bool is_colour(const rd_picture *p, int64_t x, int64_t y, rd_colour c)
{
    const uint8_t *at = p->rgb + (y * p->w + x) * 3;
    return at[0] == c.r && at[1] == c.g && at[2] == c.b;
}

/* Draws a text alone, in a picture that just holds it. */
static rd_picture drawn(const char *text, int scale)
{
    rd_picture p;
    rd_status st = {0};
    must_do(rd_picture_new(rd_picture_glyphs(text) * RD_GLYPH_W * scale, RD_GLYPH_H * scale, &p,
                           &st),
            &st);
    rd_picture_text(&p, 0, 0, scale, ink, text);
    return p;
}

static bool same(const rd_picture *a, const rd_picture *b)
{
    return a->w == b->w && a->h == b->h && memcmp(a->rgb, b->rgb, (size_t)(a->w * a->h * 3)) == 0;
}

static void check_alike(const char *a, const char *b, bool alike)
{
    rd_picture p = drawn(a, 1), q = drawn(b, 1);
    if (same(&p, &q) != alike) fail_msg("'%s' and '%s'", a, b);
    rd_picture_release(&p);
    rd_picture_release(&q);
}

static void test_font(void **state)
{
    (void)state;
    for (int a = 0x20; a < 0x7f; a++)
        for (int b = a + 1; b < 0x7f; b++)
            check_alike((char[2]){(char)a}, (char[2]){(char)b}, false);
    check_alike("\xc3\x84\xc3\xa9\xc5\x82\xc5\xbe", "Aelz", true); /* accents are left out */
    check_alike("\xe4\xb8\xad\x07", "\xff\x7f", true);             /* boxes */
    assert_int_equal(rd_picture_glyphs("a\xe4\xb8\xad\xff"), 3);
}

static void test_up_is_turned(void **state)
{
    rd_picture p = drawn("Ag,7", 3), q;
    rd_status st = {0};
    (void)state;
    must_do(rd_picture_new(p.h, p.w, &q, &st), &st);
    rd_picture_text_up(&q, 0, q.h, 3, ink, "Ag,7");
    for (int64_t y = 0; y < p.h; y++)
        for (int64_t x = 0; x < p.w; x++)
            assert_true(is_colour(&p, x, y, ink) == is_colour(&q, y, q.h - 1 - x, ink));
    rd_picture_release(&p);
    rd_picture_release(&q);
}

static void test_clipping(void **state)
{
    rd_picture p;
    rd_status st = {0};
    (void)state;
    must_do(rd_picture_new(4, 3, &p, &st), &st);
    rd_picture_fill(&p, -2, -5, 3, 6, ink);
    rd_picture_fill(&p, 3, 2, 100, 100, ink);
    rd_picture_fill(&p, 7, 7, 2, 2, ink);
    for (int64_t y = 0; y < 3; y++)
        for (int64_t x = 0; x < 4; x++)
            assert_true(is_colour(&p, x, y,
                                  (x == 0 && y == 0) || (x == 3 && y == 2) ? ink : white));
    rd_picture_text(&p, -3, -3, 1, ink, "WWW"); /* the sanitizer sees what leaves the picture */
    rd_picture_text_up(&p, 2, 30, 2, ink, "WWWWW");
    rd_picture_release(&p);
    assert_int_equal(rd_picture_new(0, 3, &p, &st), RD_EBUG);
}

static void test_png(void **state)
{
    rd_picture p = drawn("PNG: 7 %", 2);
    rd_strbuf file = {0};
    rd_status st = {0};
    rd_scratch s = {0};
    rd_png_head head;
    rd_pixels px;
    rd_decode answer;
    char why[RD_WHY_BYTES];
    (void)state;
    must_do(rd_picture_png(&p, &file, &st), &st);
    const uint8_t *at = (const uint8_t *)file.s;
    assert_int_equal(rd_png_read_head(at, file.n, &head, why), RD_DECODE_OK);
    must_do(rd_png_decode(at, file.n, &head, 4, &s, &px, &answer, why, &st), &st);
    assert_int_equal(answer, RD_DECODE_OK);
    assert_int_equal(px.h, p.h);
    assert_int_equal(px.w, p.w);
    for (int64_t i = 0; i < p.h * p.w; i++) assert_memory_equal(px.p + 4 * i, p.rgb + 3 * i, 3);
    rd_scratch_release(&s);
    rd_strbuf_release(&file);
    rd_picture_release(&p);
}

/* Where a text was found last. */
static int64_t found_x, found_y;

/* Returns how often a text of one colour is in the picture. */
static int occurs(const rd_picture *p, const char *text, int scale, rd_colour c)
{
    rd_picture t = drawn(text, scale);
    int n = 0;
    for (int64_t y = 0; y + t.h <= p->h; y++)
        for (int64_t x = 0; x + t.w <= p->w; x++) {
            bool fits = true;
            for (int64_t i = 0; i < t.w * t.h && fits; i++)
                fits = is_colour(&t, i % t.w, i / t.w, ink) ==
                       is_colour(p, x + i % t.w, y + i / t.w, c);
            n += fits;
            if (fits) found_x = x;
            if (fits) found_y = y;
        }
    rd_picture_release(&t);
    return n;
}

static void test_confusion(void **state)
{
    static const int64_t at[9] = {96, 4, 0, 12345678, 0, 0, 0, 0, 0};
    static const char *const names[3] = {"cats", "", "a name that is longer than the room for it"};
    const rd_colour grey = {110, 110, 110};
    rd_picture p;
    rd_status st = {0};
    (void)state;
    must_do(rd_confusion_draw(&(rd_confusion){3, at, names}, &p, &st), &st);
    assert_int_equal(occurs(&p, "cats", 2, ink), 1); /* the other one is turned */
    assert_int_equal(occurs(&p, "96", 2, ink), 1);
    const int64_t x = found_x, y = found_y;
    assert_int_equal(occurs(&p, "4", 2, ink), 1); /* the prediction is another one */
    assert_true(found_x > x + 20 && found_y == y);
    assert_int_equal(occurs(&p, "12M", 2, ink), 1); /* the label is; five digits have room */
    assert_true(found_x < x + 20 && found_y > y + 20);
    assert_int_equal(occurs(&p, "a name that is longer t~", 2, ink), 1);
    assert_int_equal(occurs(&p, " 96 %", 2, grey), 1);
    assert_int_equal(occurs(&p, "  0 %", 2, grey), 1);
    assert_int_equal(occurs(&p, "label", 2, grey), 0);
    assert_int_equal(occurs(&p, "prediction", 2, grey), 1);
    rd_picture_release(&p);
}

/* A row whose samples are all right is green, one whose samples are all wrong red, and a row
 * without samples pale. */
static void test_confusion_colours(void **state)
{
    static const int64_t at[9] = {7, 0, 0, 7, 0, 0, 0, 0, 0};
    rd_picture p;
    rd_status st = {0};
    int n[3] = {0};
    (void)state;
    must_do(rd_confusion_draw(&(rd_confusion){3, at, NULL}, &p, &st), &st);
    for (int64_t i = 0; i < p.w * p.h; i++) {
        const uint8_t *c = p.rgb + 3 * i;
        n[0] += c[1] > 150 && c[0] < 60 && c[2] < 60;
        n[1] += c[0] > 150 && c[1] < 60 && c[2] < 60;
        n[2] += c[0] == 244 && c[1] == 244 && c[2] == 244;
    }
    assert_in_range(n[0], 100, 10000);
    assert_in_range(n[1], 100, 10000);
    assert_in_range(n[2], 5 * n[0], 9 * n[0]); /* seven of nine cells */
    rd_picture_release(&p);
}

static void test_confusion_sizes(void **state)
{
    static const int64_t sizes[] = {
        1, 30, 31, RD_CONFUSION_NAMED, RD_CONFUSION_NAMED + 1, RD_CONFUSION_MOST};
    int64_t *at = malloc(RD_CONFUSION_MOST * RD_CONFUSION_MOST * sizeof *at);
    rd_picture p;
    rd_status st = {0};
    (void)state;
    assert_non_null(at);
    for (int64_t i = 0; i < RD_CONFUSION_MOST * RD_CONFUSION_MOST; i++) at[i] = INT64_MAX / 4000;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        must_do(rd_confusion_draw(&(rd_confusion){sizes[i], at, NULL}, &p, &st), &st);
        assert_in_range(p.w, 1, 4096);
        assert_in_range(p.h, 1, 4096);
        rd_picture_release(&p);
    }
    free(at);
    assert_int_equal(rd_confusion_draw(&(rd_confusion){.n = 0}, &p, &st), RD_EUSAGE);
    st = (rd_status){0};
    assert_int_equal(rd_confusion_draw(&(rd_confusion){.n = RD_CONFUSION_MOST + 1}, &p, &st),
                     RD_EUSAGE);
}

RD_TESTS("picture", TEST(test_font), TEST(test_up_is_turned), TEST(test_clipping), TEST(test_png),
         TEST(test_confusion), TEST(test_confusion_colours), TEST(test_confusion_sizes))
