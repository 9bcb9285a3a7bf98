/* subword_byte_bpe.c -- byte-level BPE: the ids of Hugging Face's tokenizers and of tiktoken
 * (tests/support/make_subword_golden.py), its trainer, all forms of files, and bad files. */
#include "../../runner/text/byte_bpe_impl.h"
#include "rd/file.h"
#include "rd/hash.h"
#include "rd/printable.h"
#include "scratch_dir.h"
#include "subword_lines.h"
#include "test.h"
#include <time.h>

#define FOLDER "tests/unit/subword/"

typedef struct opened {
    rd_subword *s;
    rd_subword_scratch *w;
} opened;

static opened open_model(const char *path)
{
    rd_status st = {0};
    opened o = {0};
    must_do(rd_subword_open("byte_bpe", path, &o.s, &st), &st);
    must_do(rd_subword_scratch_new(o.s, &o.w, &st), &st);
    return o;
}

static void close_model(opened *o)
{
    rd_subword_scratch_free(o->w);
    rd_subword_free(o->s);
}

/* Not inline: gcc 12 would warn of a dangling pointer where there is none. */
__attribute__((noinline)) static char *file_text(const char *path, size_t *n)
{
    rd_status st = {0};
    char *text = NULL;
    must_do(rd_file_read(path, RD_EDATA, &text, n, &st), &st);
    return text;
}

/* Fails unless the ids of a text are the numbers of a line, and its pieces have these ids. */
static void same_ids(const opened *o, const char *text, size_t n, const char *want, size_t n_want)
{
    rd_subword_ids ids = {0};
    rd_strbuf pieces = {0};
    rd_subword_encode(o->s, o->w, text, n, &ids);
    rd_subword_segment(o->s, o->w, text, n, &pieces);
    assert_false(ids.failed || pieces.failed);
    const char *at = want, *piece = rd_strbuf_str(&pieces);
    for (size_t i = 0; i < ids.n; i++) {
        char *end;
        const long id = at < want + n_want ? strtol(at, &end, 10) : -1;
        if (id != ids.at[i])
            fail_msg("id %zu of '%.60s' is %d, expected %ld", i, text, (int)ids.at[i], id);
        at = end;
        const size_t len = strcspn(piece, " ");
        assert_int_equal(rd_subword_find(o->s, piece, len), ids.at[i]);
        piece += len + (piece[len] == ' ');
    }
    assert_true(at == want + n_want && *piece == '\0');
    free(ids.at);
    rd_strbuf_release(&pieces);
}

static const struct golden {
    const char *name, *model, *ids;
} golden[] = {
    {"tokenizer.json", FOLDER "bytes.json", FOLDER "bytes.ids"},
    {"own pattern, added tokens", FOLDER "llama.json", FOLDER "llama.ids"},
    {"single digits", FOLDER "digits.json", FOLDER "digits.ids"},
    {"merges.txt and vocab.json", FOLDER "merges.txt", FOLDER "bytes.ids"},
    {"a folder", "tests/unit/subword", FOLDER "bytes.ids"},
    {"tiktoken", FOLDER "gpt2.tiktoken", FOLDER "tiktoken.ids"},
};

/* Compares the ids of odd.txt, and of each line of points.txt. */
static void check_ids(const opened *o, const char *ids)
{
    rd_status st = {0};
    size_t n_odd, n_points, n_ids, n, n_line;
    char *odd = file_text(FOLDER "odd.txt", &n_odd);
    char *points = file_text(FOLDER "points.txt", &n_points), *want = file_text(ids, &n_ids);
    text_lines w = {want, n_ids}, p = {points, n_points};
    const char *line, *numbers;
    int n_lines = 0;
    (void)text_lines_next(&w, &numbers, &n, &st);
    same_ids(o, odd, n_odd, numbers, n);
    same_ids(o, odd, n_odd, numbers, n); /* from the cache */
    while (text_lines_next(&p, &line, &n_line, &st) == RD_OK && line) {
        (void)text_lines_next(&w, &numbers, &n, &st);
        same_ids(o, line, n_line, numbers, n);
        same_after_join(o->s, o->w, line, n_line, line, n_line);
        n_lines++;
    }
    assert_true(n_lines >= 60 && w.left == 0);
    same_after_join(o->s, o->w, odd, n_odd, odd, n_odd);
    free(odd);
    free(points);
    free(want);
}

static void check_golden(void **state)
{
    const struct golden *g = *state;
    opened o = open_model(g->model);
    check_ids(&o, g->ids);
    close_model(&o);
}

/* ---- pieces ---- */

static const struct pattern {
    const char *name, *pattern, *splits;
} patterns[] = {
    {"GPT-2, by the scanner", rd_splitter_gpt2, FOLDER "gpt2.splits"},
    /* A group makes it another pattern, which PCRE2 splits by. */
    {"GPT-2, by PCRE2",
     "(?:'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+)",
     FOLDER "gpt2.splits"},
    {"Llama 3",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     FOLDER "llama.splits"},
    {"cl100k", rd_splitter_cl100k, FOLDER "cl100k.splits"},
};

typedef struct piece_check {
    const char *text, *want;
    size_t used;
} piece_check;

static bool same_piece(void *ctx, const char *at, size_t n)
{
    piece_check *c = ctx;
    char *end;
    const unsigned long want = strtoul(c->want, &end, 10);
    if (at != c->text + c->used || n != want)
        fail_msg("piece at byte %zu of '%.60s' has %zu bytes, expected %lu", c->used, c->text, n,
                 want);
    c->want = end;
    c->used += n;
    return true;
}

static void same_splits(const rd_splitter *s, rd_splitter_work *w, const char *text, size_t n,
                        const char *want)
{
    piece_check c = {text, want, 0};
    assert_true(rd_splitter_text(s, w, text, n, same_piece, &c));
    assert_int_equal(c.used, n);
    assert_int_equal(*c.want, '\n');
}

static void check_pattern(void **state)
{
    const struct pattern *r = *state;
    rd_status st = {0};
    rd_splitter *s = NULL;
    rd_splitter_work *w = rd_splitter_work_new();
    size_t n_odd, n_points, n_want, n;
    char *odd = file_text(FOLDER "odd.txt", &n_odd);
    char *points = file_text(FOLDER "points.txt", &n_points), *want = file_text(r->splits, &n_want);
    text_lines v = {want, n_want}, p = {points, n_points};
    const char *line, *sizes;
    assert_non_null(w);
    must_do(rd_splitter_new(&s, &st), &st);
    must_do(rd_splitter_add(s, r->pattern, strlen(r->pattern), "test", &st), &st);
    (void)text_lines_next(&v, &sizes, &n, &st);
    same_splits(s, w, odd, n_odd, sizes);
    while (text_lines_next(&p, &line, &n, &st) == RD_OK && line) {
        size_t n_sizes;
        (void)text_lines_next(&v, &sizes, &n_sizes, &st);
        same_splits(s, w, line, n, sizes);
    }
    assert_int_equal(v.left, 0);
    rd_splitter_work_free(w);
    rd_splitter_free(s);
    free(odd);
    free(points);
    free(want);
}

/* A written model is the same model. */
static void check_written(void **state)
{
    const struct golden *g = *state;
    const char *path = in_dir("tokenizer.json"), *again = in_dir("again.json");
    rd_status st = {0};
    opened o = open_model(g->model);
    must_do(rd_subword_write(o.s, path, &st), &st);
    opened p = open_model(path);
    check_ids(&p, g->ids);
    assert_int_equal(rd_subword_size(p.s), rd_subword_size(o.s));
    must_do(rd_subword_write(p.s, again, &st), &st);
    size_t n, m;
    char *a = file_text(path, &n), *b = file_text(again, &m);
    assert_string_equal(a, b);
    free(a);
    free(b);
    close_model(&o);
    close_model(&p);
}

static void test_hashes(void **state)
{
    (void)state;
    opened a = open_model(FOLDER "bytes.json"), b = open_model(FOLDER "llama.json");
    opened c = open_model(FOLDER "merges.txt"), d = open_model(FOLDER "gpt2.tiktoken");
    assert_true(rd_subword_hash(a.s) == rd_subword_hash(c.s)); /* other files of one tokenizer */
    assert_true(rd_subword_hash(a.s) != rd_subword_hash(b.s));
    assert_true(rd_subword_hash(a.s) != rd_subword_hash(d.s));
    close_model(&a);
    close_model(&b);
    close_model(&c);
    close_model(&d);
}

/* ---- the trainer ---- */

static const char pugs[] = "the cat sat on the mat. the cat ate the rat.\nhug pug pun bun hugs\n";
#define G "\xC4\xA0"

static void test_trainer(void **state)
{
    static const char *const merges[] = {"\"a t\"",       "\"h e\"",       "\"t he\"", "\"u g\"",
                                         "\"" G " the\"", "\"c at\"",      "\"h ug\"", "\"u n\"",
                                         "\"" G " p\"",   "\"" G " cat\"", "\"b un\"", "\"m at\""};
    const char *path = in_dir("tokenizer.json");
    rd_status st = {0};
    (void)state;
    must_do(train_text("byte_bpe", pugs, sizeof pugs - 1,
                       (rd_subword_training){.size = 268, .min_count = 1}, path, &st),
            &st);
    size_t n;
    char *json = file_text(path, &n), *at = strstr(json, "\"merges\"");
    assert_non_null(at);
    for (size_t k = 0; k < sizeof merges / sizeof *merges; k++) {
        at = strchr(at, '\n');
        assert_non_null(at);
        at += strspn(at, "\n ");
        assert_memory_equal(at, merges[k], strlen(merges[k]));
    }
    assert_null(strchr(at, ',')); /* and no more */
    free(json);
    opened o = open_model(path);
    assert_int_equal(rd_subword_size(o.s), 268);
    same_ids(&o, "the!", 4, "258 0", 5);
    same_ids(&o, " the bun", 8, "260 220 266", 11);
    close_model(&o);
}

/* The same merges as Hugging Face's trainer, from the same text. */
static void test_trainer_golden(void **state)
{
    const char *path = in_dir("tokenizer.json");
    rd_status st = {0};
    size_t n;
    char *odd = file_text(FOLDER "odd.txt", &n);
    (void)state;
    must_do(train_text("byte_bpe", odd, n,
                       (rd_subword_training){.size = 400, .specials = "<|endoftext|>"}, path, &st),
            &st);
    opened o = open_model(path), want = open_model(FOLDER "bytes.json");
    assert_true(rd_subword_hash(o.s) == rd_subword_hash(want.s));
    assert_int_equal(rd_subword_find(o.s, "<|endoftext|>", 13), 0);
    check_ids(&o, FOLDER "bytes.ids");
    close_model(&o);
    close_model(&want);
    free(odd);
}

static void test_trainer_refuses(void **state)
{
    rd_status st = {0};
    (void)state;
    assert_int_equal(train_text("byte_bpe", pugs, sizeof pugs - 1,
                                (rd_subword_training){.size = 256, .specials = "<a> <b>"},
                                in_dir("x"), &st),
                     RD_EUSAGE);
    assert_non_null(strstr(st.msg, "byte_bpe has 256 bytes, 2 special tokens"));
    st = (rd_status){0};
    assert_int_equal(train_text("byte_bpe", pugs, sizeof pugs - 1, (rd_subword_training){0},
                                in_dir("x"), &st),
                     RD_EUSAGE);
}

/* ---- all bytes, long pieces ---- */

/* Every string of up to two bytes and random ones: the ids' bytes are the string's. */
static void test_bytes(void **state)
{
    opened o = open_model(FOLDER "bytes.json");
    rd_strbuf pieces = {0}, raw = {0};
    (void)state;
    for (int i = 0; i < 65536 + 256 + 10000; i++) {
        char line[64];
        size_t n = i < 65536 ? 2 : i < 65536 + 256 ? 1 : 3 + (size_t)(i % 60);
        line[0] = (char)i;
        line[1] = (char)(i >> 8);
        for (size_t k = 0; n > 2 && k < n; k++) line[k] = (char)rd_splitmix64((uint64_t)i * 64 + k);
        rd_strbuf_reset(&pieces);
        rd_strbuf_reset(&raw);
        rd_subword_segment(o.s, o.w, line, n, &pieces);
        assert_true(rd_utf8_valid(pieces.s, pieces.n));
        for (size_t from = 0, len; from < pieces.n; from += len + 1) {
            len = strcspn(pieces.s + from, " ");
            assert_true(len > 0);
            byte_bpe_put_bytes(&raw, pieces.s + from, len);
        }
        assert_int_equal(raw.n, n);
        assert_memory_equal(raw.s, line, n);
    }
    rd_strbuf_release(&pieces);
    rd_strbuf_release(&raw);
    close_model(&o);
}

/* The ids of GPT-2's 256 bytes. */
static void test_byte_order(void **state)
{
    static const int known[][2] = {{'!', 0},    {' ', 220},  {'\n', 198}, {0, 188},
                                   {0x7F, 221}, {0xA0, 254}, {0xAD, 255}, {0xFF, 187}};
    int seen[256] = {0};
    (void)state;
    for (int32_t i = 0; i < 256; i++) seen[byte_bpe_byte(i)]++;
    for (int b = 0; b < 256; b++) assert_int_equal(seen[b], 1);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(byte_bpe_byte(known[i][1]), known[i][0]);
    rd_strbuf b = {0};
    byte_bpe_put_shown(&b, " \n!\xAD", 4);
    assert_string_equal(b.s, G "\xC4\x8A!\xC5\x83");
    rd_strbuf_release(&b);
}

static void test_long_piece(void **state)
{
    enum { LONG = 1 << 20 };
    opened o = open_model(FOLDER "bytes.json");
    char *text = malloc(LONG);
    rd_subword_ids ids = {0};
    (void)state;
    assert_non_null(text);
    memset(text, 'a', LONG);
    const clock_t start = clock();
    rd_subword_encode(o.s, o.w, text, LONG, &ids);
    if (counts_seconds()) assert_true(clock() - start < CLOCKS_PER_SEC);
    size_t bytes = 0;
    rd_strbuf b = {0};
    for (size_t i = 0; i < ids.n; i++) {
        rd_strbuf_reset(&b);
        rd_subword_piece(o.s, ids.at[i], &b);
        bytes += b.n;
        assert_int_equal(strspn(b.s, "a"), b.n);
    }
    assert_int_equal(bytes, LONG);
    assert_true(ids.n < LONG / 2); /* odd.txt has runs of this letter */
    rd_strbuf_release(&b);
    free(ids.at);
    free(text);
    close_model(&o);
}

static void test_join(void **state)
{
    static const struct {
        const char *pieces, *text;
    } row[] = {{"Hello"
                " " G "w orld",
                "Hello world"},
               {"\xC3\x83 \xC2\xA9", "\xC3\xA9"}, /* a character in two pieces */
               {"a \xC3\x83 b", "a\xEF\xBF\xBD"
                                "b"},
               {"<unk> " G "x", "<unk> x"},
               {"\xE6\x97\xA5 x", "\xE6\x97\xA5x"},
               {"", ""}};
    opened o = open_model(FOLDER "bytes.json");
    rd_strbuf b = {0};
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        rd_strbuf_reset(&b);
        rd_subword_join(o.s, row[i].pieces, strlen(row[i].pieces), &b);
        assert_string_equal(rd_strbuf_str(&b), row[i].text);
    }
    rd_strbuf_release(&b);
    close_model(&o);
}

/* ---- bad files ---- */

/* A tokenizer.json, with other text in the place of a part of it: the first `old` becomes `new`. */
static const struct bad {
    const char *name, *old, *new, *message;
} bad[] = {
    {"cut", "\"merges\": [", NULL, "tokenizer.json:"},
    {"no model", "\"model\"", "\"modul\"", "has no \"model\""},
    {"another model", "\"type\": \"BPE\"", "\"type\": \"Unigram\"", "a model that is not BPE"},
    {"dropout", "\"dropout\": null", "\"dropout\": 0.1", "dropout is not supported"},
    {"byte fallback", "\"byte_fallback\": false", "\"byte_fallback\": true",
     "byte_fallback is not supported"},
    {"suffix", "\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"",
     "end_of_word_suffix is not supported"},
    {"normalizer", "\"normalizer\": null", "\"normalizer\": {\"type\": \"Lowercase\"}",
     "the normalizer 'Lowercase' is not supported"},
    {"no pre-tokenizer", "\"type\": \"ByteLevel\"", "\"type\": \"Whitespace\"",
     "a pre_tokenizer that is neither"},
    {"vocabulary that is a list", "\"vocab\": {", "\"vocab\": [], \"x\": {",
     "a model that is not BPE"},
    {"an id that is text", "\"!\": 1,", "\"!\": \"1\",", "the id of '!' is no integer"},
    {"an id twice", "\"!\": 1,", "\"!\": 2,", "two tokens have the id 2"},
    {"a negative id", "\"!\": 1,", "\"!\": -1,", "'!' has the id -1"},
    {"a huge id", "\"!\": 1,", "\"!\": 99999999999,", "'!' has the id 99999999999"},
    {"a byte is missing", "\"!\": 1,", "", "the byte 0x21 has no token"},
    {"a token twice", "\"!\": 1,", "\"!\": 1, \"!\": 1,", "duplicate object key"},
    {"a special with two ids", "\"id\": 0,", "\"id\": 7777,", "has two ids, 7777 and 0"},
    {"a special without an id", "\"id\": 0,", "", "has no content or no id"},
    {"a merge of three", "\"a a\"", "\"a a a\"", "merge 7 is not two tokens"},
    {"a merge of one", "\"a a\"", "\"aa\"", "merge 7 is not two tokens"},
    {"a merge of nothing", "\"a a\"", "\"a \"", "merge 7: a part of a merge is no token"},
    {"a merge in a list", "\"a a\"", "[\"a\", \"a\", \"a\"]", "merge 7 is not two tokens"},
    {"a merge that is a number", "\"a a\"", "7", "merge 7 is not two tokens"},
    {"a merge of a stranger", "\"a a\"", "\"a zzz\"", "merge 7: a part of a merge is no token"},
    {"a merge without a result", "\"a a\"", "\"a <\"", "merge 7: the result of a merge is no"},
};

static void check_bad(void **state)
{
    const struct bad *r = *state;
    const char *whole = in_dir("whole.json"), *path = in_dir("tokenizer.json");
    rd_status st = {0};
    rd_subword *s = NULL;
    opened o = open_model(FOLDER "bytes.json");
    must_do(rd_subword_write(o.s, whole, &st), &st);
    close_model(&o);
    size_t n;
    char *text = file_text(whole, &n), *at = strstr(text, r->old);
    assert_non_null(at);
    rd_strbuf b = {0};
    rd_strbuf_add(&b, text, (size_t)(at - text));
    if (r->new) {
        rd_strbuf_puts(&b, r->new);
        rd_strbuf_puts(&b, at + strlen(r->old));
    }
    must_do(rd_file_write_atomic(path, b.s, b.n, &st), &st);
    assert_int_equal(rd_subword_open("byte_bpe", path, &s, &st), RD_EDATA);
    assert_null(s);
    if (!strstr(st.msg, r->message) || !strstr(st.msg, path))
        fail_msg("the message is: %s", st.msg);
    rd_strbuf_release(&b);
    free(text);
}

/* Files that are no tokenizer.json. */
static const struct file {
    const char *name, *file, *text, *message;
} files[] = {
    {"empty", "x.json", " \n", "is empty"},
    {"a vocabulary alone", "vocab.json", "{\"a\": 1}", "name the merges.txt beside it"},
    {"merges: one token", "merges.txt", "#version: 0.2\na b\nab\n", "merges.txt:3: not two tokens"},
    {"merges: three tokens", "merges.txt", "#version: 0.2\na b c\n",
     "merges.txt:2: not two tokens"},
    {"merges: a stranger", "merges.txt", "#version: 0.2\na b\nac d\n",
     "merges.txt:3: a part of a merge is no token"},
    {"tiktoken: no rank", "x.tiktoken", "IQ== 0\nIg==\n", "x.tiktoken:2: not a token in base64"},
    {"tiktoken: no base64", "x.tiktoken", "IQ== 0\nI?== 1\n",
     "x.tiktoken:2: not a token in base64"},
    {"tiktoken: a rank of letters", "x.tiktoken", "IQ== 0\nIg== 1x\n", "x.tiktoken:2: not a token"},
    {"tiktoken: not ascending", "x.tiktoken", "IQ== 1\nIg== 1\n", ":2: the ranks do not ascend"},
    {"tiktoken: bytes are missing", "x.tiktoken", "IQ== 0\nIg== 1\n", "the byte 0x00 has no token"},
};

static void check_file(void **state)
{
    const struct file *r = *state;
    rd_status st = {0};
    rd_subword *s = NULL;
    must_do(rd_file_write_atomic(in_dir(r->file), r->text, strlen(r->text), &st), &st);
    assert_int_equal(rd_subword_open("byte_bpe", in_dir(r->file), &s, &st), RD_EDATA);
    assert_null(s);
    if (!strstr(st.msg, r->message) || !strstr(st.msg, dir)) fail_msg("the message is: %s", st.msg);
    empty_dir();
}

/* merges.txt alone has GPT-2's ids. */
static void test_merges_alone(void **state)
{
    static const char merges[] = "#version: 0.2\n" G " t\nh e\n" G "t he\n";
    rd_status st = {0};
    (void)state;
    must_do(rd_file_write_atomic(in_dir("vocab.bpe"), merges, sizeof merges - 1, &st), &st);
    opened o = open_model(in_dir("vocab.bpe"));
    assert_int_equal(rd_subword_size(o.s), 260);
    assert_int_equal(rd_subword_find(o.s, "<|endoftext|>", 13), 259);
    same_ids(&o, " the he", 7, "258 220 257", 11);
    close_model(&o);
    empty_dir();
    st = (rd_status){0};
    rd_subword *s = NULL;
    assert_int_equal(rd_subword_open("byte_bpe", dir, &s, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "has no tokenizer.json, merges.txt or vocab.bpe"));
}

RD_TESTS_WITH("subword_byte_bpe", make_dir, remove_dir, TEST_ROWS(check_golden, golden),
              TEST_ROWS(check_pattern, patterns), TEST_ROWS(check_written, golden),
              TEST(test_hashes), TEST(test_trainer), TEST(test_trainer_golden),
              TEST(test_trainer_refuses), TEST(test_bytes), TEST(test_byte_order),
              TEST(test_long_piece), TEST(test_join), TEST_ROWS(check_bad, bad),
              TEST_ROWS(check_file, files), TEST(test_merges_alone))
