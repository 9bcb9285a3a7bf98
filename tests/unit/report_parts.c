/* report_parts.c -- the parts of the report that are made of records for TensorBoard: pictures are
 * cut into their tiles without captions, matrices and samples become HTML, and what does not fit is
 * left out. */
#include "../../runner/runs/report_impl.h"
#include "rd/tiles.h"
#include "../../runner/io/events_impl.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const rd_colour red = {250, 10, 20}, blue = {10, 20, 250}, black = {0, 0, 0};
enum { SIDE = 40, MOST = 1 << 20 };

/* A picture of two tiles with captions, as png. */
static void two_tiles(rd_strbuf *png)
{
    rd_picture p;
    const int64_t h = SIDE + RD_TILE_CAPTION + RD_TILE_GAP, w = SIDE + RD_TILE_GAP;
    rd_status st = {0};
    must_do(rd_picture_new(2 * w, h, &p, &st), &st);
    rd_picture_fill(&p, 0, 0, SIDE, SIDE, red);
    rd_picture_fill(&p, w, 0, SIDE, SIDE, blue);
    rd_picture_fill(&p, 0, SIDE, 2 * w, RD_TILE_CAPTION, black); /* must not be seen */
    rd_png(png, (int)p.w, (int)p.h, 3, p.rgb);
    rd_picture_release(&p);
}

static const char names[] = "| place | sample | label | prediction | probability |\n"
                            "|---|---|---|---|---|\n"
                            "| row 1, column 1 | a\\|<b>.png | cat | dog | 0.934 |\n"
                            "| row 1, column 2 | c.png | dog | cat | nan |\n";

static report_extras mistakes(rd_strbuf *png)
{
    return (report_extras){.pictures = {7, png->s, png->n},
                           .names = {7, (char *)(uintptr_t)names, sizeof names - 1},
                           .confusion.step = -1,
                           .confusions.step = -1};
}

static int digit(char c)
{
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = strchr(all, c);
    assert_true(p && *p);
    return (int)(p - all);
}

/* Decodes the k-th picture of the page. Fails unless all its pixels have the colour. */
static void is_plain(const char *html, int k, rd_colour c)
{
    static uint8_t out[1 << 16];
    static const char begin[] = "data:image/png;base64,";
    size_t n = 0;
    const char *p = html;
    for (int i = 0; i <= k; i++) {
        p = strstr(p, begin);
        assert_non_null(p);
        p += strlen(begin);
    }
    for (; *p != '"' && n + 3 < sizeof out; p += 4) {
        const int v = digit(p[0]) << 18 | digit(p[1]) << 12 | (p[2] == '=' ? 0 : digit(p[2]) << 6) |
                      (p[3] == '=' ? 0 : digit(p[3]));
        out[n++] = (uint8_t)(v >> 16);
        out[n++] = (uint8_t)(v >> 8 & 255);
        out[n++] = (uint8_t)(v & 255);
    }
    assert_int_equal(out[19], SIDE); /* width and height of the PNG */
    assert_int_equal(out[23], SIDE);
    static uint8_t rows[SIDE * (1 + 3 * SIDE)];
    const uint8_t rgb[3] = {c.r, c.g, c.b}, *idat = out + 8 + 25; /* signature, head */
    uLongf bytes = sizeof rows;
    const uLong packed = (uLong)idat[2] << 8 | idat[3];
    assert_int_equal(uncompress(rows, &bytes, idat + 8, packed), Z_OK);
    assert_int_equal(bytes, sizeof rows);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            assert_memory_equal(rows + y * (1 + 3 * SIDE) + 1 + 3 * x, rgb, 3);
}

/* A caption that is too long ends in two dots, and nothing is drawn beside it. */
static void test_captions(void **state)
{
    rd_picture cut, want;
    rd_status st = {0};
    (void)state;
    must_do(rd_picture_new(40, RD_TILE_CAPTION, &cut, &st), &st);
    must_do(rd_picture_new(40, RD_TILE_CAPTION, &want, &st), &st);
    rd_tile_caption(&cut, 0, 0, 36, 0, black, "Z\xc3\xbcrich West");
    rd_tile_caption(&cut, 0, 0, 36, 1, red, "Bern");
    rd_tile_caption(&want, 0, 0, 36, 0, black, "Zuri..");
    rd_tile_caption(&want, 0, 0, 40, 1, red, "Bern");
    assert_memory_equal(cut.rgb, want.rgb, 40 * RD_TILE_CAPTION * 3);
    rd_tile_caption(&want, 0, 0, 36, 0, black, "x");
    assert_memory_not_equal(cut.rgb, want.rgb, 40 * RD_TILE_CAPTION * 3);
    assert_true(rd_tile_scale(191) == 1 && rd_tile_scale(192) == 2);
    rd_picture_release(&cut);
    rd_picture_release(&want);
}

static void test_tiles(void **state)
{
    rd_strbuf png = {0}, b = {0};
    int64_t room = MOST;
    (void)state;
    two_tiles(&png);
    const report_extras x = mistakes(&png);
    assert_true(report_mistakes(&x, "run", true, &room, &b));
    const char *html = rd_strbuf_str(&b);
    is_plain(html, 0, red);
    is_plain(html, 1, blue);
    assert_non_null(strstr(html, "alt=\"a|&lt;b&gt;.png\" width=\"40\" height=\"40\""));
    assert_non_null(strstr(html, "<span class=\"wrong\">dog</span> 93 %</p>"));
    assert_non_null(strstr(html, "<span class=\"wrong\">cat</span></p>")); /* nan is no number */
    assert_true(room < MOST && room > MOST / 2);
    rd_strbuf_release(&b);
    rd_strbuf_release(&png);
}

/* Returns the number of pictures. */
static int pictures_of(const report_extras *x, int64_t room, bool fits)
{
    rd_strbuf b = {0};
    int n = 0;
    assert_int_equal(report_mistakes(x, "run", true, &room, &b), fits);
    for (const char *p = rd_strbuf_str(&b); (p = strstr(p, "<img ")); p++) n++;
    assert_int_equal(strstr(rd_strbuf_str(&b), "c.png") != NULL, b.n > 0);
    rd_strbuf_release(&b);
    return n;
}

static void test_pictures_that_do_not_fit(void **state)
{
    rd_strbuf png = {0};
    (void)state;
    two_tiles(&png);
    report_extras x = mistakes(&png);
    assert_int_equal(pictures_of(&x, MOST, true), 2);
    assert_int_equal(pictures_of(&x, 300, false), 0); /* no room: the names alone */
    x.pictures.step = 6;                              /* of another evaluation */
    assert_int_equal(pictures_of(&x, MOST, true), 0);
    x.pictures.step = 7;
    for (size_t n = 0; n < png.n; n += 97) { /* cut */
        x.pictures.n = n;
        assert_int_equal(pictures_of(&x, MOST, true), 0);
    }
    x = mistakes(&png);
    x.confusion.step = 8; /* a later evaluation made no mistake */
    rd_strbuf b = {0};
    int64_t room = MOST;
    assert_true(report_mistakes(&x, "run", true, &room, &b));
    assert_int_equal(b.n, 0);
    rd_strbuf_release(&png);
}

static void test_matrix(void **state)
{
    static const char counts[] = "| label, then predicted | cat | a\\|b |\n|---|---|---|\n"
                                 "| cat | 9 | 1 |\n| a\\|b | 0 | 0 |\n| short |\n";
    report_extras x = {.confusion = {3, (char *)(uintptr_t)counts, sizeof counts - 1},
                       .confusions.step = -1};
    rd_strbuf b = {0};
    int64_t room = MOST;
    (void)state;
    report_confusion(&x, "<run>", false, &room, &b);
    const char *html = rd_strbuf_str(&b);
    assert_non_null(strstr(html, "<summary>&lt;run&gt; <span class=\"dim\">step 3</span>"));
    assert_non_null(strstr(html, "<th scope=\"col\">cat</th><th scope=\"col\">a|b</th>"));
    assert_non_null(strstr(html, "<tr><th scope=\"row\">cat</th><td class=\"r9\">9</td><td class="
                                 "\"w3\">1</td><td>10</td><td>90.0 %</td></tr>"));
    assert_non_null(strstr(html, "<td class=\"zero\">0</td><td class=\"zero\">0</td><td>0</td><td>"
                                 "–</td></tr>"));
    assert_null(strstr(html, "short"));
    rd_strbuf_release(&b);
    room = 10; /* no room, and no list of confusions */
    report_confusion(&x, "run", false, &room, &b);
    assert_int_equal(b.n, 0);
    rd_strbuf_release(&b);
}

static void test_samples(void **state)
{
    char first[] = "    source:     a <b\n    target:     \n    prediction: c\n",
         other[] = "odd & <";
    report_extras x = {.sample = {{9, first}, {8, other}}, .n_samples = 2};
    rd_strbuf b = {0};
    (void)state;
    report_samples(&x, "run", true, &b);
    const char *html = rd_strbuf_str(&b);
    assert_non_null(strstr(html, "<dl><dt>source</dt><dd>a &lt;b</dd><dt>target</dt><dd></dd><dt>"
                                 "prediction</dt><dd>c</dd></dl>"));
    assert_non_null(strstr(html, "<dl><dt>text</dt><dd>odd &amp; &lt;</dd></dl>"));
    rd_strbuf_release(&b);
}

static void test_texts(void **state)
{
    rd_strbuf b = {0};
    (void)state;
    report_text(&b, "<>&\"'\xe2\x80\xae\n\xff");
    assert_string_equal(rd_strbuf_str(&b), "&lt;&gt;&amp;&quot;&#39;\\u202e\\n\\xff");
    rd_strbuf_reset(&b);
    report_json_text(&b, "</script>\"\\&\xe2\x80\xa8\xc3\xbc");
    assert_string_equal(rd_strbuf_str(&b),
                        "\"\\u003c/script\\u003e\\\"\\\\\\u0026\\\\u2028\\u00FC\"");
    rd_strbuf_reset(&b);
    static const char *const plain[] = {"", "f", "fo", "foo", "foobar"}; /* RFC 4648 */
    static const char *const coded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYmFy"};
    for (int i = 0; i < 5; i++) {
        report_base64(&b, plain[i], strlen(plain[i]));
        assert_string_equal(rd_strbuf_str(&b), coded[i]);
        rd_strbuf_reset(&b);
    }
    rd_strbuf_release(&b);
}

RD_TESTS("report_parts", TEST(test_tiles), TEST(test_pictures_that_do_not_fit), TEST(test_matrix),
         TEST(test_captions), TEST(test_samples), TEST(test_texts))
