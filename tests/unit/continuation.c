/* continuation.c -- tests the text that a language model adds token by token: what is shown before
 * the text ends never changes, and a stop string ends the text. Tokens are single bytes. */
#include "../../runner/run/continuation.h"
#include "scratch_dir.h"

/* Opens a dataset whose tokens are bytes, and returns the tokens of a text in *ids. */
static rd_dataset *open_bytes(const char *text, rd_arena *a, const int32_t **ids, int64_t *n)
{
    static const int64_t zero = 0;
    char config[600];
    rd_config *c = NULL;
    rd_dataset *d = NULL;
    rd_status st = {0};
    rd_batch b = {0};
    const rd_option_group *groups[] = {rd_dataset_find("lm_text")->group};
    FILE *f = fopen(in_dir("merges.txt"), "w");
    assert_non_null(f);
    assert_true(fputs("#version: 0.2\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    (void)snprintf(config, sizeof config,
                   "{\"source_file_test\": \"/dev/null\", \"input_format\": \"text\","
                   " \"subword_model\": \"%s\"}",
                   in_dir("merges.txt"));
    must_do(rd_config_new("test.json", config, strlen(config), groups, 1, false, &c, &st), &st);
    const rd_dataset_args args = {
        .config = c, .mode = RD_MODE_INFER, .split = RD_SPLIT_TEST, .keep_all = true};
    must_do(rd_dataset_new("lm_text", &args, &d, &st), &st);
    rd_config_free(c);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    must_do(def->feed(rd_dataset_self(d), text, strlen(text), 0, &st), &st);
    must_do(def->fetch(rd_dataset_self(d), &zero, 1, a, &b, &st), &st);
    *ids = b.field[0].data;
    *n = b.field[0].off[1];
    assert_int_equal(*n, strlen(text));
    return d;
}

static struct text_row {
    const char *name, *text, *stop[3];
    const char *want;  /* the text at its end */
    const char *shown; /* bytes that are sure after each token; "," between */
} rows[] = {
    {"no stop string", "abc", {0}, "abc", "1,2,3"},
    {"a beginning is held back", "xabd", {"abc"}, "xabd", "1,1,1,4"},
    {"the text ends before a stop string", "xabcd", {"abc"}, "x", "1,1,1,1"},
    {"the longest beginning", "aabaabab", {"aabab"}, "aab", "0,0,0,0,3,3,3,3"},
    {"of two, the longer beginning", "zab", {"b!", "ab?"}, "zab", "1,1,1"},
    {"a whole stop string within a beginning", "xab", {"abc", "b"}, "xa", "1,1,2"},
    {"a stop string of one byte", "xyz", {"z"}, "xy", "1,2,2"},
    {"at the begin", "ab", {"ab"}, "", "0,0"},
    {"two bytes",
     "a\xC3\xA9"
     "b",
     {0},
     "a\xC3\xA9"
     "b",
     "1,1,3,4"},
    {"three bytes", "\xE2\x80\x9Cx", {0}, "\xE2\x80\x9Cx", "0,0,3,4"},
    {"four bytes", "\xF0\x9F\x98\x80", {0}, "\xF0\x9F\x98\x80", "0,0,0,4"},
    {"a stop string of whole characters",
     "a\xC3\xA9\xC3\xA8",
     {"\xC3\xA8"},
     "a\xC3\xA9",
     "1,1,3,3,3"},
    {"U+FFFD as it is",
     "\xEF\xBF\xBD\xEF\xBF\xBDz",
     {0},
     "\xEF\xBF\xBD\xEF\xBF\xBDz",
     "0,0,0,0,0,0,7"},
};

static void check_row(void **state)
{
    const struct text_row *r = *state;
    stop_strings stop = {0};
    continuation c = {0};
    rd_arena *a = NULL;
    rd_status st = {0};
    rd_strbuf got = {0};
    const int32_t *ids;
    int64_t n;
    size_t before = 0;
    json_t *list = json_array();
    for (int i = 0; i < 3 && r->stop[i]; i++)
        assert_int_equal(json_array_append_new(list, json_string(r->stop[i])), 0);
    must_do(stop_strings_new(list, &stop, &st), &st);
    must_do(rd_arena_new(1 << 16, &a, &st), &st);
    rd_dataset *d = open_bytes(r->text, a, &ids, &n);
    continuation_begin(&c, d, -1);
    for (int64_t k = 0; k < n; k++) {
        const bool ends = continuation_add(&c, d, &stop, ids[k]);
        const size_t sure = continuation_sure(&c, &stop);
        rd_strbuf_printf(&got, "%s%zu", k ? "," : "", sure);
        assert_true(sure >= before && sure <= c.text.n);
        /* What was shown is the beginning of the text at its end. */
        assert_true(sure <= strlen(r->want) && memcmp(c.text.s, r->want, sure) == 0);
        before = sure;
        if (ends) break;
    }
    assert_string_equal(rd_strbuf_str(&got), r->shown);
    assert_int_equal(c.text.n, strlen(r->want));
    assert_memory_equal(c.text.s, r->want, c.text.n);
    rd_strbuf_release(&got);
    continuation_release(&c);
    stop_strings_release(&stop);
    json_decref(list);
    rd_dataset_free(d);
    rd_arena_free(a);
}

/* A text of many tokens forgets those before, and stays the same. */
static void test_long(void **state)
{
    enum { N = 3000 };
    static const char part[] = "a\xC3\xA9 \xE2\x80\x9Cword\xE2\x80\x9D\n";
    char text[N + 1] = "";
    const stop_strings none = {0};
    continuation c = {0};
    rd_arena *a = NULL;
    rd_status st = {0};
    const int32_t *ids;
    int64_t n;
    rd_strbuf shown = {0};
    (void)state;
    while (strlen(text) + sizeof part <= N) strcat(text, part);
    for (char *p = text; *p; p++) /* a prompt is one line */
        if (*p == '\n') *p = '_';
    must_do(rd_arena_new(1 << 20, &a, &st), &st);
    rd_dataset *d = open_bytes(text, a, &ids, &n);
    continuation_begin(&c, d, ids[0]);
    for (int64_t k = 1; k < n; k++) {
        const size_t before = continuation_sure(&c, &none);
        (void)continuation_add(&c, d, &none, ids[k]);
        const size_t sure = continuation_sure(&c, &none);
        assert_true(sure >= before);
        rd_strbuf_add(&shown, c.text.s + before, sure - before);
    }
    assert_string_equal(rd_strbuf_str(&shown), text + 1);
    assert_true(c.n_recent < 200);
    rd_strbuf_release(&shown);
    continuation_release(&c);
    rd_dataset_free(d);
    rd_arena_free(a);
}

RD_TESTS_WITH("continuation", make_dir, remove_dir, TEST_ROWS(check_row, rows), TEST(test_long))
