/* meta_pkl.c -- tests the meta.pkl of nanoGPT's data of characters: what Python wrote is read in
 * each protocol, and what is no such file, or would run code, is refused with file, byte and
 * reason. tests/support/make_meta_pkl.py made the files. */
#include "../../runner/text/meta_pkl.h"
#include "rd/file.h"
#include "rd/subword.h"
#include "scratch_dir.h"
#include <stdlib.h>

static const char *in_corpus(const char *name)
{
    static char path[300];
    (void)snprintf(path, sizeof path, "tests/fuzz/corpus/meta_pkl/%s", name);
    return path;
}

enum { WIDE = 1207 };

/* The code points of wide2 and wide4 by id. */
static int32_t wide_code(int32_t id)
{
    static const int32_t first[] = {0, 9, 10, 32, 0xE9, 0x20AC};
    return id < 6 ? first[id] : id < WIDE - 1 ? 0x4E00 + id - 6 : 0x1F600;
}

static void test_read(void **state)
{
    static const char *const names[] = {"abc2", "abc3", "abc4", "abc5"};
    static const int32_t abc[] = {10, 32, '!', 'a', 'b', 'c'},
                         order[] = {0xE9, 'b', 0x65E5, 'a', 0xE4, 10};
    rd_status st = {0};
    char *bytes;
    size_t n;
    int32_t *code, n_codes;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        must_do(rd_file_read(in_corpus(names[i]), RD_EDATA, &bytes, &n, &st), &st);
        assert_true(meta_pkl_is(bytes, n));
        must_do(meta_pkl_read(names[i], bytes, n, &code, &n_codes, &st), &st);
        assert_int_equal(n_codes, 6);
        assert_memory_equal(code, abc, sizeof abc);
        free(code);
        free(bytes);
    }
    for (int i = 0; i < 2; i++) {
        must_do(rd_file_read(in_corpus(i ? "wide4" : "wide2"), RD_EDATA, &bytes, &n, &st), &st);
        must_do(meta_pkl_read("wide", bytes, n, &code, &n_codes, &st), &st);
        assert_int_equal(n_codes, WIDE);
        for (int32_t k = 0; k < WIDE; k++) assert_int_equal(code[k], wide_code(k));
        free(code);
        free(bytes);
    }
    must_do(rd_file_read(in_corpus("order"), RD_EDATA, &bytes, &n, &st), &st);
    must_do(meta_pkl_read("order", bytes, n, &code, &n_codes, &st), &st);
    assert_int_equal(n_codes, 6);
    assert_memory_equal(code, order, sizeof order);
    free(code);
    free(bytes);
    assert_false(meta_pkl_is("(dp0", 4));
    assert_false(meta_pkl_is("\x80\x01}.", 4));
    assert_false(meta_pkl_is("\x80", 1));
}

/* As a tokenizer: ids are those of the file, and the file that it writes is the same model. */
static void test_tokenizer(void **state)
{
    static const char *const names[] = {"wide4", "order"};
    static const char *const texts[] = {"\t\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 \xE4\xB8\x81",
                                        "\xE6\x97\xA5"
                                        "ba\xC3\xA4\xC3\xA9\n"};
    static const int32_t ids[2][6] = {{1, 4, 5, WIDE - 1, 3, 7}, {2, 1, 3, 4, 0, 5}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        rd_status st = {0};
        rd_subword *s, *again;
        rd_subword_scratch *w;
        rd_subword_ids got = {0};
        rd_strbuf pieces = {0}, text = {0};
        char out[800];
        must_do(rd_subword_open("char", in_corpus(names[i]), &s, &st), &st);
        must_do(rd_subword_scratch_new(s, &w, &st), &st);
        rd_subword_encode(s, w, texts[i], strlen(texts[i]), &got);
        assert_int_equal(got.n, 6);
        assert_memory_equal(got.at, ids[i], sizeof ids[i]);
        for (size_t k = 0; k < got.n; k++) {
            if (k > 0) rd_strbuf_puts(&pieces, " ");
            rd_subword_piece(s, got.at[k], &pieces);
        }
        rd_subword_join(s, pieces.s, pieces.n, &text);
        assert_string_equal(rd_strbuf_str(&text), texts[i]);
        (void)snprintf(out, sizeof out, "%s", in_dir("model"));
        must_do(rd_subword_write(s, out, &st), &st);
        must_do(rd_subword_open("char", out, &again, &st), &st);
        assert_int_equal(rd_subword_size(again), rd_subword_size(s));
        assert_true(rd_subword_hash(again) == rd_subword_hash(s));
        got.n = 0;
        rd_subword_encode(again, w, texts[i], strlen(texts[i]), &got);
        assert_memory_equal(got.at, ids[i], sizeof ids[i]);
        free(got.at);
        rd_strbuf_release(&pieces);
        rd_strbuf_release(&text);
        rd_subword_scratch_free(w);
        rd_subword_free(again);
        rd_subword_free(s);
    }
}

static struct bad_row {
    const char *name, *want;
} bad_rows[] = {
    {"bad_system",
     "at byte 53: the file asks to run code of Python (STACK_GLOBAL), which is never"},
    {"bad_system2", "at byte 36: the file asks to run code of Python (GLOBAL)"},
    {"bad_eval", "asks to run code of Python (STACK_GLOBAL)"},
    {"bad_list", "operation 0x5d; only dicts, strings and whole numbers"},
    {"bad_tuple", "operation 0x85"},
    {"bad_real", "operation 0x47"},
    {"bad_bytes", "operation 0x43"},
    {"bad_none", "operation 0x4e"},
    {"bad_true", "operation 0x88"},
    {"bad_huge", "operation 0x8a"},
    {"bad_no_itos", "'itos' is missing; a meta.pkl of nanoGPT has"},
    {"bad_size", "the keys of 'itos' are not the ids 0 to 4, each once"},
    {"bad_size_more", "'vocab_size' is 7, but 'itos' has 6 characters and 'stoi' 6"},
    {"bad_size_none", "'vocab_size' is 0, not 1 to"},
    {"bad_size_text", "'vocab_size' is no whole number"},
    {"bad_two", "id 5 is no single character"},
    {"bad_empty", "id 5 is no single character"},
    {"bad_number", "id 5 is no single character"},
    {"bad_turned", "'stoi' is not the reverse of 'itos'"},
    {"bad_key", "the keys of 'itos' are not the ids 0 to 5"},
    {"bad_surrogate", "a string is not UTF-8"},
    {"bad_int", "the file is no dict"},
    {"bad_cut", "at byte 142: the file ends before its STOP"},
    {"bad_cut_string", "at byte 2: a frame is longer than the file"},
    {"bad_behind", "at byte 112: bytes behind the STOP"},
    {"bad_protocol0", "is no list of characters"},
    {"bad_mark", "at byte 2: values without a mark"},
    {"bad_odd", "at byte 6: no dict for the values"},
    {"bad_set", "at byte 5: no dict for the values"},
    {"bad_memo", "at byte 2: a value that was never remembered"},
    {"bad_memo_far", "at byte 3: too many values"},
    {"bad_memo_none", "at byte 5: a value that was never remembered"},
    {"bad_remember", "at byte 2: no value to remember"},
    {"bad_frame", "at byte 2: a frame is longer than the file"},
    {"bad_long", "at byte 2: a string is longer than the file"},
    {"bad_two_values", "at byte 4: the file is no dict"},
    {"bad_dict_key", "at byte 5: a key is neither a string nor a whole number"},
    {"bad_mark_value", "at byte 6: a mark in the place of a value"},
    {"bad_twice", "'vocab_size' is there twice"},
    {"bad_itself", "the keys of 'itos' are not the ids"},
};

static void check_bad(void **state)
{
    const struct bad_row *r = *state;
    rd_status st = {0};
    rd_subword *s;
    assert_int_equal(rd_subword_open("char", in_corpus(r->name), &s, &st), RD_EDATA);
    assert_null(s);
    if (!strstr(st.msg, r->want) || !strstr(st.msg, r->name)) fail_msg("%s", st.msg);
}

/* Every file that is cut at any byte is refused. */
static void test_cut(void **state)
{
    rd_status st = {0};
    char *bytes;
    size_t n;
    int32_t *code, n_codes;
    (void)state;
    must_do(rd_file_read(in_corpus("abc2"), RD_EDATA, &bytes, &n, &st), &st);
    for (size_t k = 2; k < n; k++) {
        st = (rd_status){0};
        char *copy = malloc(k);
        assert_non_null(copy);
        memcpy(copy, bytes, k);
        assert_int_equal(meta_pkl_read("cut", copy, k, &code, &n_codes, &st), RD_EDATA);
        assert_null(code);
        assert_non_null(strstr(st.msg, "'cut'"));
        free(copy);
    }
    free(bytes);
}

/* The least bytes that ask for the most memory. */
static void test_many(void **state)
{
    enum { N = 5 << 20 };
    static const char each[] = {'(', '}', '\x94'};
    int32_t *code, n_codes;
    char *bytes = malloc(N);
    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < sizeof each; i++) {
        rd_status st = {0};
        memset(bytes, each[i], N);
        memcpy(bytes, "\x80\x04}", 3);
        assert_int_equal(meta_pkl_read("many", bytes, N, &code, &n_codes, &st), RD_EDATA);
        assert_non_null(strstr(st.msg, "too many"));
    }
    free(bytes);
}

RD_TESTS_WITH("meta_pkl", make_dir, remove_dir, TEST(test_read), TEST(test_tokenizer),
              TEST_ROWS(check_bad, bad_rows), TEST(test_cut), TEST(test_many))
