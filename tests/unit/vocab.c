/* vocab.c -- vocabulary files: every odd thing a file can hold has one defined answer. */
#include "../../runner/data/data_impl.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES(s) (s), sizeof(s) - 1

/* words: the words of ids 4, 5, ...; duplicates; or the message. */
static struct row {
    const char *name, *bytes;
    size_t n;
    bool replace;
    const char *words[6];
    int64_t duplicates;
    rd_code code;
    const char *message;
    rd_vocab_kind kind;
} rows[] = {
    {"plain", BYTES("a\nb\nc\n"), .words = {"a", "b", "c"}},
    {"no last line end", BYTES("a\nb"), .words = {"a", "b"}},
    {"count after a tab", BYTES("a\t12\nb\t3\tx\n"), .words = {"a", "b"}},
    {"CR LF", BYTES("a\r\nb\r\n"), .words = {"a", "b"}},
    {"lone CR ends a line", BYTES("a\rb\r\rc"), .words = {"a", "b", "", "c"}},
    {"CR LF, CR and LF mixed", BYTES("a\r\nb\rc\nd"), .words = {"a", "b", "c", "d"}},
    {"trailing white space goes, leading stays", BYTES(" a \nb\xC2\xA0\xE3\x80\x80\n"),
     .words = {" a", "b"}},
    {"white space before the tab stays", BYTES("a \t1\n"), .words = {"a "}},
    {"U+2028 and U+0085 end no line",
     BYTES("a\xE2\x80\xA8"
           "b\nc\xC2\x85"
           "d\n"),
     .words = {"a\xE2\x80\xA8"
               "b",
               "c\xC2\x85"
               "d"}},
    {"an empty line is the empty word", BYTES("a\n\nb\n"), .words = {"a", "", "b"}},
    {"a repeated word keeps its last id", BYTES("a\nb\na\n"), .words = {"a", "b", "a"},
     .duplicates = 1},
    {"special names may be words", BYTES("<S>\n</S>\n<UNK>\n"), .words = {"<S>", "</S>", "<UNK>"}},
    {"byte order mark is no part of the word",
     BYTES("\xEF\xBB\xBF"
           "a\nb\n"),
     .words = {"a", "b"}},
    {"invalid UTF-8 replaced", BYTES("a\xFF\nb\n"), .replace = true,
     .words = {"a\xEF\xBF\xBD", "b"}},
    {"NUL replaced", BYTES("a\0z\nb\n"), .replace = true, .words = {"a\xEF\xBF\xBDz", "b"}},
    {"invalid UTF-8", BYTES("a\nbc\xFF\n"), .code = RD_EDATA,
     .message = "words:2:3: invalid UTF-8 (byte 0xFF)"},
    {"overlong form", BYTES("\xC0\x80\n"), .code = RD_EDATA, .message = "words:1:1: invalid UTF-8"},
    {"surrogate", BYTES("xxxxxxxxxxxx\xED\xA0\x80\n"), .code = RD_EDATA,
     .message = "words:1:13: invalid UTF-8"},
    {"cut at the end of the file", BYTES("ab\xE2\x82"), .code = RD_EDATA,
     .message = "words:1:3: invalid UTF-8"},
    {"NUL", BYTES("a\n\0\n"), .code = RD_EDATA, .message = "words:2:1: a NUL byte"},
    {"NUL among many letters", BYTES("abcdefghijklmnop\0qrstuvwxyzabcdefg\n"), .code = RD_EDATA,
     .message = "words:1:17: a NUL"},
    {"UTF-16",
     BYTES("\xFF\xFE"
           "a\0\n\0"),
     .code = RD_EDATA, .message = "words:1:1: UTF-16 text"},
    {"empty file", "", 0, .code = RD_EDATA, .message = "the vocabulary 'words' has no word"},
    {"byte order mark alone", BYTES("\xEF\xBB\xBF"), .code = RD_EDATA, .message = "has no word"},
    {"empty lines alone", BYTES("\n\n \n\t3\n"), .code = RD_EDATA, .message = "has no word"},
    {"Sockeye's JSON: special tokens and fillers are no words",
     BYTES("{\n    \"<pad>\": 0,\n    \"<unk>\": 1,\n    \"<s>\": 2,\n    \"</s>\": 3,\n"
           "    \"the\": 4,\n    \"na\xC3\xAFve\": 5,\n    \"<pad6>\": 6,\n"
           "    \"<pad9>\": 7\n}"),
     .words = {"the", "na\xC3\xAFve", "<pad9>"}, .kind = RD_VOCAB_JSON},
    {"JSON: the numbers count, not the lines", BYTES("{\"b\": 9, \"a\":4,\"c\" : 100}\n"),
     .words = {"a", "b", "c"}, .kind = RD_VOCAB_JSON},
    {"JSON: escapes, surrogate pairs",
     BYTES("{\"\\\"\\\\\\/\\t\": 0, \"\\u00e9\": 1, \"\\ud83d\\uDE00\": 2}"),
     .words = {"\"\\/\t", "\xC3\xA9", "\xF0\x9F\x98\x80"}, .kind = RD_VOCAB_JSON},
    {"JSON behind a byte order mark, CR LF",
     BYTES("\xEF\xBB\xBF{\r\n\"a\": 0,\r\n\"b\": 1\r\n}\r\n"), .words = {"a", "b"},
     .kind = RD_VOCAB_JSON},
    {"braces and quotes may be words", BYTES("{\n\"\n}\n:\n"), .words = {"{", "\"", "}", ":"}},
    {"JSON: a number twice", BYTES("{\n\"a\": 7,\n\"b\": 7}"), .code = RD_EDATA,
     .message = "words:3: the id 7 is in line 2 already"},
    {"JSON: a word twice", BYTES("{\n\"a\": 7,\n\"\\u0061\": 8}"), .code = RD_EDATA,
     .message = "words:3: the word 'a' is in line 2 already"},
    {"JSON: no number", BYTES("{\n\"a\": 7,\n\"b\": \"8\"}"), .code = RD_EDATA,
     .message = "words:3:6: no whole number from 0 behind a token"},
    {"JSON: a number with a point", BYTES("{\"a\": 7.5}"), .code = RD_EDATA,
     .message = "words:1:7: no whole number from 0"},
    {"JSON: a negative number", BYTES("{\"a\": 1,\"b\": -1}"), .code = RD_EDATA,
     .message = "words:1:14: no whole number from 0"},
    {"JSON: a huge number", BYTES("{\"a\": 1,\"b\": 99999999999999999999}"), .code = RD_EDATA,
     .message = "no whole number from 0"},
    {"JSON: cut in the middle", BYTES("{\n\"a\": 7,\n\"b"), .code = RD_EDATA,
     .message = "words:3:1: no token in double quotes"},
    {"JSON: cut behind a comma", BYTES("{\"a\": 7,\n"), .code = RD_EDATA,
     .message = "words:2:1: the file ends inside the object"},
    {"JSON: more behind the end", BYTES("{\"a\": 7}\n{\"b\": 8}"), .code = RD_EDATA,
     .message = "words:2:1: more behind the end"},
    {"JSON: NUL as an escape", BYTES("{\"a\": 7,\n\"\\u0000\": 8}"), .code = RD_EDATA,
     .message = "words:2:1: no token"},
    {"JSON: half a surrogate pair", BYTES("{\"a\": 7,\n\"\\ud83d\": 8}"), .code = RD_EDATA,
     .message = "words:2:1: no token"},
    {"JSON: invalid UTF-8", BYTES("{\"a\": 7,\n\"b\xFF\": 8}"), .code = RD_EDATA,
     .message = "words:2:3: invalid UTF-8 (byte 0xFF)"},
    {"JSON: special tokens alone", BYTES("{\"<pad>\": 0, \"<unk>\": 1}"), .code = RD_EDATA,
     .message = "no word besides special tokens"},
    {"Marian's YAML", BYTES("</s>: 0\n<unk>: 1\nthe: 2\n\",\": 3\n\"\\\"\": 4\n'it''s': 5\n"),
     .words = {"the", ",", "\"", "it's"}, .kind = RD_VOCAB_YAML},
    {"YAML: a colon inside a token, ids with a gap", BYTES("a:b: 2\n:: 7\nc: 9\n"),
     .words = {"a:b", ":", "c"}, .kind = RD_VOCAB_YAML},
    {"YAML: a quote that is not closed", BYTES("a: 0\n\"b: 1\n"), .code = RD_EDATA,
     .message = "words:2: a token whose quotes are not closed"},
    {"YAML: a number twice", BYTES("a x: 0\nb: 1\nc: 1\n"), .code = RD_EDATA,
     .message = "words:3: the id 1 is in line 2 already"},
    {"fairseq's dict.txt: fillers are no words",
     BYTES("the 120\n, 99\n. 99\nmadeupword0000 0\nmadeupword0001 0\n"), .words = {"the", ",", "."},
     .kind = RD_VOCAB_COUNTS},
    {"fairseq: an overwriting line counts in place of the first one",
     BYTES("a 9\n<unk> 5\nb 3\na 2 #fairseq:overwrite\n"), .words = {"b", "a"},
     .kind = RD_VOCAB_COUNTS},
    {"fairseq: tokens that end in a colon", BYTES("a: 9\nb: 4\nc: 4\n"),
     .words = {"a:", "b:", "c:"}, .kind = RD_VOCAB_COUNTS},
    {"fairseq: a word twice", BYTES("a 9\nb 3\na 2\n"), .code = RD_EDATA,
     .message = "words:3: the word 'a' is in line 1 already"},
    {"fairseq: a line without a count", BYTES("a 9\nb 3\nc\n"), .code = RD_EDATA,
     .message = "words:3: not \"token count\" as the lines before"},
    {"YAML: a line without an id", BYTES("a: 0\nb: 3\nc 7\n"), .kind = RD_VOCAB_COUNTS,
     .words = {"a:", "b:", "c"}},
    {"YAML: a line of another form", BYTES("a b: 0\nb: 3\nc\n"), .code = RD_EDATA,
     .message = "words:3: not \"token: id\" as the lines before"},
    {"Marian or fairseq: it cannot be told", BYTES("a: 3\nb: 1\nc: 2\n"), .code = RD_EDATA,
     .message = "words: the lines may be \"token: id\" of Marian or \"token: count\" of fairseq"},
    {"Marian or fairseq: one line", BYTES("a: 3\n"), .code = RD_EDATA, .message = "may be"},
    {"numbers and counts behind a TAB are lines", BYTES("7\na: 1\tx\n"), .words = {"7", "a: 1"}},
};

static void check_row(void **state)
{
    const struct row *r = *state;
    rd_status st = {0};
    rd_vocab *v = NULL;
    assert_int_equal(rd_vocab_new_mem("words", r->bytes, r->n, r->replace, &v, &st), r->code);
    if (r->code != RD_OK) {
        assert_null(v);
        if (!strstr(st.msg, r->message)) fail_msg("'%s' is not in '%s'", r->message, st.msg);
        return;
    }
    int64_t n = 0;
    while (n < 6 && r->words[n]) n++;
    assert_int_equal(rd_vocab_size(v), n + 4);
    assert_int_equal(rd_vocab_duplicates(v), r->duplicates);
    assert_int_equal(rd_vocab_kind_of(v), r->kind);
    for (int64_t k = 0; k < n; k++) {
        size_t len;
        assert_string_equal(rd_vocab_word(v, (int32_t)k + 4, &len), r->words[k]);
        assert_int_equal(len, strlen(r->words[k]));
        int64_t last = k;
        for (int64_t j = k + 1; j < n; j++)
            if (strcmp(r->words[j], r->words[k]) == 0) last = j;
        assert_int_equal(rd_vocab_id(v, r->words[k], len), last + 4);
    }
    rd_vocab_free(v);
}

static void test_specials(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_vocab *v = NULL;
    assert_int_equal(rd_vocab_new_mem("words", BYTES("a\nb\n"), false, &v, &st), RD_OK);
    static const char *const want[] = {"<UNK>", "<S>", "</S>", "<PAD>", "a", "b", "", ""};
    for (int32_t id = 0; id < 8; id++) {
        size_t n;
        assert_string_equal(rd_vocab_word(v, id, &n), want[id]);
        assert_int_equal(n, strlen(want[id]));
    }
    size_t n;
    assert_string_equal(rd_vocab_word(v, -1, &n), "");
    /* A special name in a text is a word like any other, here an unknown one. */
    assert_int_equal(rd_vocab_id(v, "</S>", 4), RD_UNK);
    assert_int_equal(rd_vocab_id(v, "", 0), RD_UNK);
    assert_int_equal(rd_vocab_id(v, "c", 1), RD_UNK);
    rd_vocab_free(v);
    rd_vocab_free(NULL);
}

/* The lines of the first repeated words, also of empty ones. */
static void test_repeats(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_vocab *v = NULL;
    must_do(rd_vocab_new_mem("words", BYTES("a\n\nb\na\n\na\nb\n"), false, &v, &st), &st);
    static const int64_t want[RD_VOCAB_REPEATS][2] = {{1, 4}, {2, 5}, {4, 6}};
    assert_int_equal(rd_vocab_duplicates(v), 4);
    for (int k = 0; k < RD_VOCAB_REPEATS; k++) {
        assert_int_equal(rd_vocab_repeats(v)[k].earlier, want[k][0]);
        assert_int_equal(rd_vocab_repeats(v)[k].line, want[k][1]);
    }
    rd_vocab_free(v);
}

/* A small file must not become gigabytes of words. */
static void test_too_many(void **state)
{
    (void)state;
    enum { N = 5000000 };
    rd_status st = {0};
    rd_vocab *v = NULL;
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, '\n', N);
    text[0] = 'a';
    assert_int_equal(rd_vocab_new_mem("words", text, N, false, &v, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "more than 4194304 lines"));
    free(text);
}

/* Many words of many lengths: all found, no stranger found; the hash depends on the order. */
static void test_many_words(void **state)
{
    (void)state;
    enum { N = 70000 };
    char *text = malloc((size_t)N * 48), *p = text;
    assert_non_null(text);
    for (int i = 0; i < N; i++) {
        p += sprintf(p, "%d", i);
        for (int k = 0; k < i % 37; k++) *p++ = (char)('a' + (i + k) % 26);
        *p++ = '\n';
    }
    rd_status st = {0};
    rd_vocab *v = NULL, *w = NULL;
    assert_int_equal(rd_vocab_new_mem("many", text, (size_t)(p - text), false, &v, &st), RD_OK);
    assert_int_equal(rd_vocab_size(v), N + 4);
    assert_int_equal(rd_vocab_duplicates(v), 0);
    const char *line = text;
    for (int i = 0; i < N; i++) {
        const char *e = strchr(line, '\n');
        assert_int_equal(rd_vocab_id(v, line, (size_t)(e - line)), i + 4);
        char other[64];
        memcpy(other, line, (size_t)(e - line));
        other[e - line] = '!';
        assert_int_equal(rd_vocab_id(v, other, (size_t)(e - line) + 1), RD_UNK);
        line = e + 1;
    }
    char *first = text, *second = strchr(text, '\n') + 1; /* "0" and "1b": swap the first letters */
    const char keep = *first;
    *first = *second;
    *second = keep;
    assert_int_equal(rd_vocab_new_mem("many", text, (size_t)(p - text), false, &w, &st), RD_OK);
    assert_true(rd_vocab_hash(v) != rd_vocab_hash(w));
    rd_vocab_free(v);
    rd_vocab_free(w);
    free(text);
}

static void test_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *message;
    } bad[] = {
        {"/nonexistent/words", "cannot open '/nonexistent/words': No such file"},
        {"/tmp", "'/tmp' is a folder"},
        {"[WMT16_DATA_LOCATION]/words", "--set data_location=FOLDER"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rd_status st = {0};
        rd_vocab *v = NULL;
        assert_int_equal(rd_vocab_new(bad[i].path, false, &v, &st), RD_EDATA);
        assert_null(v);
        if (!strstr(st.msg, bad[i].message))
            fail_msg("'%s' is not in '%s'", bad[i].message, st.msg);
    }
}

RD_TESTS("vocab", TEST(test_specials), TEST(test_repeats), TEST(test_too_many),
         TEST(test_many_words), TEST(test_files), TEST_ROWS(check_row, rows))
