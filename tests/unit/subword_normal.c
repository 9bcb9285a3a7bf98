/* subword_normal.c -- normal forms of Unicode, and tokenizers that ask for them: the values of
 * Hugging Face's tokenizers (tests/support/make_normal_golden.py). */
#include "../../runner/text/byte_bpe_impl.h"
#include "rd/file.h"
#include "rd/subword.h"
#include "scratch_dir.h"
#include "subword_lines.h"
#include "test.h"

#define FOLDER "tests/unit/subword/"

/* Not inline: gcc 12 would warn of a dangling pointer where there is none. */
__attribute__((noinline)) static char *file_text(const char *path, size_t *n)
{
    rd_status st = {0};
    char *text = NULL;
    must_do(rd_file_read(path, RD_EDATA, &text, n, &st), &st);
    return text;
}

/* Writes normal.json with other text in the place of the normalizer. Returns its path. */
static const char *with_normalizer(const char *normalizer)
{
    static const char old[] = "\"normalizer\": {\n    \"type\": \"NFC\"\n  }";
    const char *path = in_dir("tokenizer.json");
    size_t n;
    char *text = file_text(FOLDER "normal.json", &n), *at = strstr(text, old);
    assert_non_null(at);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(f, "%.*s%s%s", (int)(at - text), text, normalizer, at + sizeof old - 1);
    assert_int_equal(fclose(f), 0);
    free(text);
    return path;
}

#ifdef RD_UTF8PROC

static const struct form_row {
    const char *name;
    rd_normal_form form;
    const char *file;
} form_rows[] = {
    {"NFC", RD_NFC, FOLDER "forms.nfc"},
    {"NFD", RD_NFD, FOLDER "forms.nfd"},
    {"NFKC", RD_NFKC, FOLDER "forms.nfkc"},
    {"NFKD", RD_NFKD, FOLDER "forms.nfkd"},
};

/* Each line of forms.txt, and all of them as one text. */
static void check_form(void **state)
{
    const struct form_row *r = *state;
    rd_status st = {0};
    size_t n, n_want, n_line, n_line_want;
    char *text = file_text(FOLDER "forms.txt", &n), *want = file_text(r->file, &n_want);
    text_lines t = {text, n}, w = {want, n_want};
    const char *line, *line_want;
    rd_strbuf b = {0};
    int n_lines = 0;
    while (text_lines_next(&t, &line, &n_line, &st) == RD_OK && line) {
        (void)text_lines_next(&w, &line_want, &n_line_want, &st);
        rd_strbuf_reset(&b);
        rd_normalize(r->form, line, n_line, &b);
        if (b.n != n_line_want || memcmp(rd_strbuf_str(&b), line_want, b.n) != 0)
            fail_msg("line %d '%.*s' became '%s', expected '%.*s'", n_lines + 1, (int)n_line, line,
                     rd_strbuf_str(&b), (int)n_line_want, line_want);
        n_lines++;
    }
    assert_true(n_lines > 100 && w.left == 0);
    rd_strbuf_reset(&b);
    rd_normalize(r->form, text, n, &b);
    assert_int_equal(b.n, n_want);
    assert_memory_equal(b.s, want, n_want);
    free(text);
    free(want);
    rd_strbuf_release(&b);
}

/* Bytes that are not UTF-8, and NUL, stay. What is beside them is in its form. */
static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        const char *want;
        size_t n_want;
    } rows[] = {
        {"", 0, "", 0},
        {"\xFF", 1, "\xFF", 1},
        {"e\xCC\x81\xFF", 4, "\xC3\xA9\xFF", 3},
        {"\xFF"
         "e\xCC\x81",
         4, "\xFF\xC3\xA9", 3},
        {"e\xFF\xCC\x81", 4, "e\xFF\xCC\x81", 4},
        {"e\0\xCC\x81", 4, "e\0\xCC\x81", 4},
        {"e\xCC\x81\0e\xCC\x81", 7, "\xC3\xA9\0\xC3\xA9", 5},
        {"e\xCC", 2, "e\xCC", 2}, /* cut */
        {"\xED\xA0\x80"
         "e\xCC\x81",
         6, "\xED\xA0\x80\xC3\xA9", 5},                     /* a surrogate */
        {"\xC0\xAF\xE2\x84\xAB", 5, "\xC0\xAF\xC3\x85", 4}, /* not the shortest form */
        {"\xF4\x90\x80\x80\xE2\x84\xA6", 7, "\xF4\x90\x80\x80\xCE\xA9", 6}, /* above 10FFFF */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rd_strbuf b = {0};
        rd_normalize(RD_NFC, rows[i].text, rows[i].n, &b);
        assert_int_equal(b.n, rows[i].n_want);
        assert_memory_equal(rd_strbuf_str(&b), rows[i].want, b.n);
        rd_strbuf_release(&b);
    }
}

/* ---- tokenizers ---- */

static const struct golden {
    const char *name, *model, *ids;
} golden[] = {
    {"NFC, added tokens", FOLDER "normal.json", FOLDER "normal.ids"},
    {"NFKD, then NFC, a space in front", FOLDER "several.json", FOLDER "several.ids"},
};

/* Fails unless the ids of a text are the numbers of a line. */
static void same_ids(const rd_subword *s, rd_subword_scratch *w, const char *text, size_t n,
                     const char *want, size_t n_want)
{
    rd_subword_ids ids = {0};
    const char *at = want;
    rd_subword_encode(s, w, text, n, &ids);
    assert_false(ids.failed);
    for (size_t i = 0; i < ids.n; i++) {
        char *end;
        const long id = at < want + n_want ? strtol(at, &end, 10) : -1;
        if (id != ids.at[i])
            fail_msg("id %zu of '%.*s' is %d, expected %ld", i, (int)n, text, (int)ids.at[i], id);
        at = end;
    }
    assert_true(at == want + n_want);
    free(ids.at);
}

static void check_ids(const rd_subword *s, const char *path)
{
    rd_status st = {0};
    rd_subword_scratch *w = NULL;
    size_t n, n_ids, n_line, n_numbers;
    char *text = file_text(FOLDER "forms.txt", &n), *ids = file_text(path, &n_ids);
    text_lines t = {text, n}, i = {ids, n_ids};
    const char *line, *numbers;
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    while (text_lines_next(&t, &line, &n_line, &st) == RD_OK && line) {
        (void)text_lines_next(&i, &numbers, &n_numbers, &st);
        same_ids(s, w, line, n_line, numbers, n_numbers);
    }
    assert_int_equal(i.left, 0);
    free(text);
    free(ids);
    rd_subword_scratch_free(w);
}

/* The ids are those of the other program, also with the file that is written. */
static void check_golden(void **state)
{
    const struct golden *g = *state;
    const char *copy = in_dir("copy.json");
    rd_status st = {0};
    rd_subword *s, *again;
    must_do(rd_subword_open("byte_bpe", g->model, &s, &st), &st);
    check_ids(s, g->ids);
    must_do(rd_subword_write(s, copy, &st), &st);
    must_do(rd_subword_open("byte_bpe", copy, &again, &st), &st);
    check_ids(again, g->ids);
    assert_true(rd_subword_hash(again) == rd_subword_hash(s));
    rd_subword_free(again);
    rd_subword_free(s);
}

/* What is joined again is the text in its form. */
static void test_join(void **state)
{
    static const char text[] = "e\xCC\x81 hug \xE2\x84\xABngstrom",
                      want[] = "\xC3\xA9 hug \xC3\x85ngstrom";
    rd_status st = {0};
    rd_subword *s;
    rd_subword_scratch *w;
    (void)state;
    must_do(rd_subword_open("byte_bpe", FOLDER "normal.json", &s, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    same_after_join(s, w, text, sizeof text - 1, want, sizeof want - 1);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

static const struct read_row {
    const char *name, *normalizer;
    rd_code code;
    const char *message;
} read_rows[] = {
    {"none", "\"normalizer\": null", RD_OK, NULL},
    {"an empty sequence", "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []}", RD_OK,
     NULL},
    {"a sequence of one",
     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}", RD_OK,
     NULL},
    {"another one", "\"normalizer\": {\"type\": \"Lowercase\"}", RD_EDATA,
     "the normalizer 'Lowercase' is not supported, only NFC, NFD, NFKC and NFKD"},
    {"another one in a sequence",
     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
     "\"Strip\"}]}",
     RD_EDATA, "the normalizer 'Strip' is not supported"},
    {"a text", "\"normalizer\": \"NFC\"", RD_EDATA, "the normalizer '' is not supported"},
    {"five",
     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
     "\"NFC\"}, {\"type\": \"NFC\"}, {\"type\": \"NFC\"}, {\"type\": \"NFC\"}]}",
     RD_EDATA, "a sequence of more than four normalizers"},
    {"a token in another form", "\"normalizer\": {\"type\": \"NFD\"}", RD_EDATA,
     "an added token that is not in the form of its normalizer"},
};

static void check_read(void **state)
{
    const struct read_row *r = *state;
    rd_status st = {0};
    rd_subword *s = NULL;
    (void)rd_subword_open("byte_bpe", with_normalizer(r->normalizer), &s, &st);
    assert_int_equal(st.code, r->code);
    if (r->message && !strstr(st.msg, r->message)) fail_msg("%s", st.msg);
    rd_subword_free(s);
}

/* Ids depend on the forms, so the hash does. */
static void test_hash(void **state)
{
    rd_status st = {0};
    rd_subword *s[3];
    const char *forms[] = {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}",
                           "\"normalizer\": {\"type\": \"NFKC\"}"};
    (void)state;
    for (int i = 0; i < 3; i++)
        must_do(rd_subword_open("byte_bpe", with_normalizer(forms[i]), &s[i], &st), &st);
    for (int i = 0; i < 3; i++)
        assert_true(rd_subword_hash(s[i]) != rd_subword_hash(s[(i + 1) % 3]));
    for (int i = 0; i < 3; i++) rd_subword_free(s[i]);
}

RD_TESTS_WITH("subword_normal", make_dir, remove_dir, TEST_ROWS(check_form, form_rows),
              TEST(test_bytes), TEST_ROWS(check_golden, golden), TEST(test_join),
              TEST_ROWS(check_read, read_rows), TEST(test_hash))

#else

static void test_missing(void **state)
{
    rd_status st = {0};
    rd_subword *s = NULL;
    (void)state;
    assert_int_equal(rd_subword_open("byte_bpe", FOLDER "normal.json", &s, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "apt-get install libutf8proc-dev"));
    st = (rd_status){0};
    must_do(rd_subword_open("byte_bpe", with_normalizer("\"normalizer\": null"), &s, &st), &st);
    rd_subword_free(s);
}

RD_TESTS_WITH("subword_normal", make_dir, remove_dir, TEST(test_missing))

#endif
