/* runs_line.c -- lines of metrics.jsonl are split like JSON, and lines that are cut are refused. */
#include "rd/runs.h"
#include "test.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct line_row {
    const char *name, *line;
    int fields;    /* -1: refused */
    double number; /* of the field "x" */
} rows[] = {
    {"one number", "{\"x\":1.5}", 1, 1.5},
    {"blanks everywhere", " { \"x\" : -2e3 , \"y\" : 1 } \r", 2, -2000.0},
    {"an empty object", "{ }", 0, NAN},
    {"null is no number", "{\"x\":null,\"y\":2}", 2, NAN},
    {"a text is no number", "{\"x\":\"3\"}", 1, NAN},
    {"a number with a tail is none", "{\"x\":3abc}", 1, NAN},
    {"infinity is no number", "{\"x\":1e999}", 1, NAN},
    {"a nested value is skipped", "{\"a\":{\"x\":9,\"b\":[1,{\"c\":\"}]\"}]},\"x\":4}", 2, 4.0},
    {"a bracket and a quote in a text", "{\"a\":\"}\\\"{\",\"x\":5}", 2, 5.0},
    {"the first of two counts", "{\"x\":6,\"x\":7}", 2, 6.0},
    {"a name that only begins so", "{\"xy\":6,\"x\":7}", 2, 7.0},
    {"cut in a number", "{\"x\":1.", -1, NAN},
    {"cut behind a comma", "{\"x\":1,", -1, NAN},
    {"cut in a name", "{\"x\":1,\"y", -1, NAN},
    {"cut in a nested value", "{\"x\":1,\"y\":[2", -1, NAN},
    {"cut in an escape", "{\"x\":\"\\", -1, NAN},
    {"a list", "[1]", -1, NAN},
    {"two objects", "{\"x\":1}{\"x\":2}", -1, NAN},
    {"no value", "{\"x\":}", -1, NAN},
    {"no colon", "{\"x\" 1}", -1, NAN},
    {"brackets the wrong way", "{\"x\":]}", -1, NAN},
    {"nothing", "", -1, NAN},
};

static void check_line(void **state)
{
    const struct line_row *r = *state;
    rd_runs_field f[RD_RUNS_FIELDS];
    char *exact = malloc(strlen(r->line) + 1); /* without a byte behind it for the sanitizer */
    assert_non_null(exact);
    memcpy(exact, r->line, strlen(r->line));
    const int n = rd_runs_split(exact, strlen(r->line), f);
    assert_int_equal(n, r->fields);
    if (n >= 0) {
        const double v = rd_runs_number(f, n, "x");
        assert_true(isnan(r->number) ? isnan(v) : v == r->number);
    }
    free(exact);
}

/* Each prefix of a real line is refused, the whole line is not. */
static void test_prefixes(void **state)
{
    static const char line[] =
        "{\"step\":104,\"epoch\":3,\"loss\":4.38345004478971,\"perplexity\":null,\"score_line\":"
        "\"BLEU = 32.57, 76.0/48.4 [multi-bleu]\",\"time\":1795969766.40738}";
    rd_runs_field f[RD_RUNS_FIELDS];
    (void)state;
    for (size_t n = 0; n + 1 < sizeof line; n++) assert_int_equal(rd_runs_split(line, n, f), -1);
    assert_int_equal(rd_runs_split(line, sizeof line - 1, f), 6);
    assert_true(rd_runs_number(f, 6, "time") == 1795969766.40738);
    assert_true(rd_runs_number(f, 6, "step") == 104.0);
}

/* A line with more fields than there is room for gives the first ones. */
static void test_many_fields(void **state)
{
    char line[8192] = "{";
    rd_runs_field f[RD_RUNS_FIELDS];
    size_t n = 1;
    (void)state;
    for (int i = 0; i < 2 * RD_RUNS_FIELDS; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s\"k%d\":%d", i ? "," : "", i, i);
    line[n++] = '}';
    assert_int_equal(rd_runs_split(line, n, f), RD_RUNS_FIELDS);
    assert_true(rd_runs_number(f, RD_RUNS_FIELDS, "k95") == 95.0);
    assert_true(isnan(rd_runs_number(f, RD_RUNS_FIELDS, "k96")));
}

RD_TESTS("runs_line", TEST_ROWS(check_line, rows), TEST(test_prefixes), TEST(test_many_fields))
