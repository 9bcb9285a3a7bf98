/* predict_format.c -- classes of images: the most probable ones by the softmax formula, and the
 * rows that are written. */
#include "../../runner/run/predict_format.h"
#include "test.h"
#include <math.h>

static void test_best(void **state)
{
    static const float logits[] = {0.0f, 1.0f, 3.0f, 1.0f, -2.0f};
    const double sum = 1.0 + exp(1.0) + exp(3.0) + exp(1.0) + exp(-2.0);
    static const int32_t order[] = {2, 1, 3, 0, 4}; /* of equal ones the lower class */
    predict_class best[5];
    (void)state;
    for (int64_t n = 1; n <= 5; n++) {
        assert_true(predict_best(logits, 5, n, best));
        for (int64_t k = 0; k < n; k++) {
            assert_int_equal(best[k].id, order[k]);
            assert_float_equal(best[k].probability, exp((double)logits[order[k]]) / sum, 1e-12);
        }
    }
    /* Logits whose exp overflows or vanishes. */
    assert_true(predict_best((const float[]){-1e30f, 900.0f, 899.0f}, 3, 3, best));
    assert_int_equal(best[0].id, 1);
    assert_float_equal(best[0].probability, 1.0 / (1.0 + exp(-1.0)), 1e-12);
    assert_true(best[2].id == 0 && best[2].probability == 0.0);
    assert_false(predict_best((const float[]){0.0f, NAN}, 2, 1, best));
    assert_false(predict_best((const float[]){0.0f, INFINITY}, 2, 1, best));
}

static const predict_class two[] = {{7, 0.75, "a\tb"}, {1, 0.2499, "\"x\\\n"}};

static const struct form {
    const char *name;
    rd_output_format format;
    int64_t n;
    bool shown;
    predict_row row;
    const char *want;
} forms[] = {
    {"tsv", RD_FORMAT_TSV, 1, false, {"p\\q\n", two, 1, NULL}, "p\\\\q\\n\ta\\tb\t0.7500\t\n"},
    {"tsv, two",
     RD_FORMAT_TSV,
     2,
     false,
     {"p", two, 2, "dark"},
     "p\ta\\tb\t0.7500\t\"x\\\\\\n\t0.2499\tdark\n"},
    {"tsv, no class", RD_FORMAT_TSV, 2, false, {"p", two, 0, "gone"}, "p\t\t\t\t\tgone\n"},
    {"tsv on a terminal",
     RD_FORMAT_TSV,
     1,
     true,
     {"\x1b[2J", two, 1, NULL},
     "\\u001b[2J\ta\\tb\t0.7500\t\n"},
    {"json",
     RD_FORMAT_JSON,
     1,
     false,
     {"p\xff", two, 1, "dark"},
     "{\"path\":\"p\xEF\xBF\xBD\",\"class\":\"a\\u0009b\",\"id\":7,\"probability\":0.7500,"
     "\"warning\":\"dark\"}\n"},
    {"json, two",
     RD_FORMAT_JSON,
     2,
     false,
     {"p", two, 2, NULL},
     "{\"path\":\"p\",\"class\":\"a\\u0009b\",\"id\":7,\"probability\":0.7500,\"top\":[{\"class\":"
     "\"a\\u0009b\",\"id\":7,\"probability\":0.7500},{\"class\":\"\\\"x\\\\\\u000a\",\"id\":1,"
     "\"probability\":0.2499}]}\n"},
    {"json, no class",
     RD_FORMAT_JSON,
     2,
     false,
     {"p", two, 0, "gone"},
     "{\"path\":\"p\",\"error\":\"gone\"}\n"},
    {"text", RD_FORMAT_TEXT, 2, false, {"p", two, 2, NULL}, "a\\tb\n"},
    {"text, no class", RD_FORMAT_TEXT, 1, false, {"p", two, 0, "gone"}, "\n"},
};

static void check_form(void **state)
{
    const struct form *f = *state;
    rd_strbuf out = {0};
    predict_format(f->format, f->n, f->shown, &f->row, &out);
    assert_string_equal(rd_strbuf_str(&out), f->want);
    rd_strbuf_release(&out);
}

static void test_head(void **state)
{
    rd_strbuf out = {0};
    (void)state;
    predict_head(1, &out);
    predict_head(3, &out);
    assert_string_equal(rd_strbuf_str(&out),
                        "path\tclass\tprobability\terror\n"
                        "path\tclass\tprobability\tclass_2\tprobability_2\tclass_3\tprobability_3\t"
                        "error\n");
    rd_strbuf_release(&out);
}

RD_TESTS("predict_format", TEST(test_best), TEST(test_head), TEST_ROWS(check_form, forms))
