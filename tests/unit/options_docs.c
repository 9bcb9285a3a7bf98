/* options_docs.c -- help, the markdown table and the schema that option tables give. */
#include "rd/options.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <math.h>

typedef struct fields {
    int64_t i;
    double r;
    bool b;
    const char *s;
    int e;
    rd_ints l;
} fields;
static const char *const cells[] = {"lstm", "gnmt_v2", NULL};
static const rd_option one_rows[] = {
    RD_OPT_INT(fields, batch_size, i, NULL, 1, 65536, "sentences per rank",
               RD_REQUIRED(RD_MODE_TRAIN)),
    RD_OPT_REAL(fields, keep_prob, r, "0.1", 0.0, 1.0,
                "keep probability of what goes into each layer, in training only; elsewhere it is "
                "one, whatever the config "
                "says here, as it is in the original; a help text as long as this one runs over "
                "into a third line"),
    RD_OPT_ENUM(fields, cell_type, e, "\"lstm\"", cells, "a|b"),
    RD_OPT_INTS(fields, bucket_src, l, "[50]", 1, 10000, "length limits"),
    RD_OPT_END,
};
static const rd_option two_rows[] = {
    RD_OPT_INT(fields, batch_size, i, NULL, 1, 10, "seen before"),
    RD_OPT_BOOL(fields, use_swap_memory, b, "false", "swaps memory", RD_WITHOUT_EFFECT),
    RD_OPT_REAL(fields, a_key_that_is_longer_than_its_column, r, NULL, 0.0, INFINITY, "any"),
    RD_OPT_INT(fields, whole, i, NULL, -0x1p63, 0x1p63, "unlimited"),
    RD_OPT_STRING(fields, word, s, NULL, NULL),
    RD_OPT_END,
};
static const rd_option_group one = {"one", "the first group", one_rows, sizeof(fields)};
static const rd_option_group two = {"two", "the second group", two_rows, sizeof(fields)};
static const rd_option_group *const groups[] = {&one, &two};

static void compare(void (*how)(const rd_option_group *const *, int, FILE *), const char *want)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    how(groups, 2, f);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, want);
    free(text);
}

static void help(void **state)
{
    (void)state;
    compare(rd_options_help,
            "one: the first group\n"
            "  batch_size                    sentences per rank (an integer, 1 .. 65536,\n"
            "                                required)\n"
            "  keep_prob                     keep probability of what goes into each layer,\n"
            "                                in training only; elsewhere it is one, whatever\n"
            "                                the config says here, as it is in the original;\n"
            "                                a help text as long as this one runs over into a\n"
            "                                third line (a number, 0 .. 1, default 0.1)\n"
            "  cell_type                     a|b (one of lstm, gnmt_v2, default \"lstm\")\n"
            "  bucket_src                    length limits (a list of integers, each 1 ..\n"
            "                                10000, default [50])\n"
            "\n"
            "two: the second group\n"
            "  use_swap_memory               swaps memory (true or false, default false; read\n"
            "                                for compatibility, without effect)\n"
            "  a_key_that_is_longer_than_its_column\n"
            "                                any (a number, 0 or more)\n"
            "  whole                         unlimited (an integer)\n"
            "  word                          (a string)\n");
}

static void markdown(void **state)
{
    (void)state;
    compare(rd_options_markdown,
            "**one**: the first group\n\n"
            "| key | type | default | values | meaning |\n|---|---|---|---|---|\n"
            "| `batch_size` | integer | required | 1 .. 65536 | sentences per rank |\n"
            "| `keep_prob` | number | `0.1` | 0 .. 1 | keep probability of what goes into each "
            "layer, in training "
            "only; elsewhere it is one, whatever the config says here, as it is in the original; a "
            "help text as long "
            "as this one runs over into a third line |\n"
            "| `cell_type` | string | `\"lstm\"` | `lstm`, `gnmt_v2` | a\\|b |\n"
            "| `bucket_src` | list of integers | `[50]` | 1 .. 10000 | length limits |\n"
            "\n**two**: the second group\n\n"
            "| key | type | default | values | meaning |\n|---|---|---|---|---|\n"
            "| `use_swap_memory` | bool | `false` |  | swaps memory (read for compatibility, "
            "without effect) |\n"
            "| `a_key_that_is_longer_than_its_column` | number | none | 0 or more | any |\n"
            "| `whole` | integer | none |  | unlimited |\n"
            "| `word` | string | none |  |  |\n");
}

static void schema(void **state)
{
    (void)state;
    static const char want[] =
        "{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\", \"title\": \"run_dist "
        "experiment\", \"type\": "
        "\"object\","
        " \"additionalProperties\": false, \"properties\": {"
        "\"$schema\": {\"type\": \"string\", \"description\": \"where an editor finds this "
        "schema\"},"
        "\"base\": {\"type\": \"string\", \"minLength\": 1, \"description\": \"another config, "
        "whose "
        "keys come before those of this one\"},"
        "\"batch_size\": {\"type\": \"integer\", \"description\": \"sentences per rank\", "
        "\"minimum\": 1, \"maximum\": "
        "65536},"
        "\"keep_prob\": {\"type\": \"number\", \"default\": 0.1, \"minimum\": 0.0, \"maximum\": "
        "1.0, \"description\": "
        "\"keep probability of what goes into each layer, in training only; elsewhere it is one, "
        "whatever the config "
        "says here, as it is in the original; a help text as long as this one runs over into a "
        "third line\"},"
        "\"cell_type\": {\"type\": \"string\", \"default\": \"lstm\", \"description\": \"a|b\", "
        "\"anyOf\": [{\"enum\": "
        "[\"lstm\", "
        "\"gnmt_v2\"]}, {\"pattern\": \"^(?:[lL][sS][tT][mM]|[gG][nN][mM][tT]_[vV]2)$\"}]},"
        "\"bucket_src\": {\"type\": \"array\", \"default\": [50], \"description\": \"length "
        "limits\", \"items\": "
        "{\"type\": \"integer\", "
        "\"minimum\": 1, \"maximum\": 10000}, \"minItems\": 1},"
        "\"use_swap_memory\": {\"type\": \"boolean\", \"default\": false, \"description\": \"swaps "
        "memory (read for "
        "compatibility, "
        "without effect)\"},"
        "\"a_key_that_is_longer_than_its_column\": {\"type\": \"number\", \"description\": "
        "\"any\", \"minimum\": 0.0},"
        "\"whole\": {\"type\": \"integer\", \"description\": \"unlimited\"},"
        "\"word\": {\"type\": \"string\", \"description\": \"\"}}}";
    json_t *expected = json_loads(want, 0, NULL), *got = rd_options_schema(groups, 2, NULL, 0);
    assert_non_null(expected);
    assert_non_null(got);
    char *a = json_dumps(got, JSON_SORT_KEYS | JSON_INDENT(1)),
         *b = json_dumps(expected, JSON_SORT_KEYS | JSON_INDENT(1));
    assert_string_equal(a, b);
    free(a);
    free(b);
    json_decref(expected);
    json_decref(got);
}

RD_TESTS("options_docs", TEST(help), TEST(markdown), TEST(schema))
