/* config_faults.c -- lets the k-th allocation of Jansson fail, for every k until none fails. Each
 * time there are the right values, or a code and a message; no crash and, under a sanitizer, no
 * leak. */
#include "rd/options.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

typedef struct fields {
    int64_t n;
    double r;
    const char *text, *choice;
    rd_ints list;
} fields;
static const char *const choices[] = {"lstm", "gru", NULL};
static const rd_option rows[] = {
    RD_OPT_INT(fields, batch_size, n, NULL, 1, 100, "sentences per rank"),
    RD_OPT_REAL(fields, keep_prob, r, "0.9", 0.0, 1.0, "keep probability"),
    RD_OPT_STRING(fields, delimiter, text, "\" \"", "joins tokens"),
    RD_OPT_NAME(fields, cell_type, choice, "\"lstm\"", choices, "kind of cell"),
    RD_OPT_INTS(fields, bucket_src, list, "[50]", 1, 10000, "length limits"),
    RD_OPT_END,
};
static const rd_option_group group = {"test", "keys of this test", rows, sizeof(fields)};
static const rd_option_group *const groups[] = {&group};

/* Jansson has one pair of allocation functions for the process, without a context, so these are
 * globals. */
static int countdown;
static bool fired;

static void *failing(size_t n)
{
    if (countdown-- == 0) {
        fired = true;
        return NULL;
    }
    return malloc(n);
}

static rd_code whole_way(rd_status *st)
{
    static const char text[] = "{\"batch_size\": 3, \"delimiter\": \"\\u03b1\", \"bucket_src\": "
                               "[1, 2], \"other\": {\"a\": [1.5]}}";
    rd_config *c = NULL;
    fields f;
    RD_TRY(rd_config_new("x.json", text, sizeof text - 1, groups, 1, true, &c, st));
    RD_TRY(rd_config_set(c, "delimiter=word", st));
    RD_TRY(rd_config_set(c, "bucket_src=3,4", st));
    RD_TRY(rd_config_set(c, "keep_prob=0.5", st));
    RD_TRY(rd_config_put(c, "batch_size", json_integer(7), "forced", st));
    RD_TRY(rd_config_read(c, &group, RD_MODE_TRAIN, &f, st));
    assert_int_equal(f.n, 7);
    assert_int_equal(f.list.at[1], 4);
    assert_true(f.r == 0.5);
    assert_string_equal(f.text, "word");
done:
    rd_config_free(c);
    return st->code;
}

static void every_allocation_of_a_config(void **state)
{
    (void)state;
    int k = 0, seen_no_memory = 0;
    for (;; k++) {
        rd_status st = {0};
        countdown = k;
        fired = false;
        json_set_alloc_funcs(failing, free);
        const rd_code rc = whole_way(&st);
        json_set_alloc_funcs(malloc, free);
        if (!fired) {
            assert_int_equal(rc, RD_OK);
            break;
        }
        seen_no_memory += rc == RD_EENV && strstr(st.msg, "out of memory for the config");
        if (rc != RD_OK && !st.msg[0])
            fail_msg("allocation %d: code %d, message '%s'", k, (int)rc, st.msg);
    }
    assert_true(k > 20);
    assert_true(2 * seen_no_memory > k); /* inside a token Jansson takes it for a syntax error */
}

static void every_allocation_of_the_documents(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_config *c = NULL;
    assert_int_equal(rd_config_new("x.json", "{\"other\": 1}", 12, groups, 1, true, &c, &st),
                     RD_OK);
    int k = 0;
    for (;; k++) {
        countdown = k;
        fired = false;
        json_set_alloc_funcs(failing, free);
        json_t *schema = rd_options_schema(groups, 1, NULL, 0);
        json_t *effective = schema ? rd_config_effective(c) : NULL;
        json_set_alloc_funcs(malloc, free);
        if (!fired) assert_true(schema && effective);
        if (fired && schema && effective) fail_msg("allocation %d failed, and nobody saw it", k);
        json_decref(schema);
        json_decref(effective);
        if (!fired) break;
    }
    assert_true(k > 20);
    rd_config_free(c);
}

RD_TESTS("config_faults", TEST(every_allocation_of_a_config),
         TEST(every_allocation_of_the_documents))
