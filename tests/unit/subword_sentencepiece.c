/* subword_sentencepiece.c -- SentencePiece: ids and texts of PyPI's sentencepiece for its models
 * (tests/support/make_subword_golden.py), and training. Without the library: the message. */
#include "rd/file.h"
#include "rd/hash.h"
#include "rd/printable.h"
#include "scratch_dir.h"
#include "subword_lines.h"
#include "test.h"

#define FOLDER "tests/unit/subword/"

#ifdef RD_SENTENCEPIECE

__attribute__((noinline)) static char *file_text(const char *path, size_t *n)
{
    rd_status st = {0};
    char *text = NULL;
    must_do(rd_file_read(path, RD_EDATA, &text, n, &st), &st);
    return text;
}

static const struct golden {
    const char *name, *model, *ids, *joined;
    int32_t size;
} golden[] = {
    {"unigram, byte_fallback", FOLDER "unigram.model", FOLDER "unigram.ids",
     FOLDER "unigram.joined", 400},
    {"bpe", FOLDER "sp_bpe.model", FOLDER "sp_bpe.ids", FOLDER "sp_bpe.joined", 200},
};

/* Compares ids, pieces and joined text of one line. "-": versions of the library differ. */
static void check_line(const rd_subword *s, rd_subword_scratch *w, const char *line, size_t n,
                       const char *numbers, const char *joined, size_t n_joined)
{
    rd_subword_ids ids = {0};
    rd_strbuf pieces = {0}, one = {0};
    same_after_join(s, w, line, n, joined, n_joined);
    if (*numbers == '-') return;
    rd_subword_encode(s, w, line, n, &ids);
    rd_subword_segment(s, w, line, n, &pieces);
    const char *piece = rd_strbuf_str(&pieces);
    for (size_t i = 0; i < ids.n; i++) {
        char *end;
        const long want = strtol(numbers, &end, 10);
        if (end == numbers || want != ids.at[i])
            fail_msg("id %zu of '%.60s' is %d, expected %ld", i, line, (int)ids.at[i], want);
        numbers = end;
        const char *space = memchr(piece, ' ', (size_t)(pieces.s + pieces.n - piece));
        const size_t len = (size_t)((space ? space : pieces.s + pieces.n) - piece);
        rd_strbuf_reset(&one);
        rd_subword_piece(s, ids.at[i], &one);
        if (ids.at[i] != 0) { /* an unknown piece is the text itself */
            assert_int_equal(one.n, len);
            assert_memory_equal(one.s, piece, len);
            assert_int_equal(rd_subword_find(s, piece, len), ids.at[i]);
        }
        piece += len + (space != NULL);
    }
    assert_int_equal(*numbers, '\n');
    assert_true(piece == rd_strbuf_str(&pieces) + pieces.n);
    free(ids.at);
    rd_strbuf_release(&pieces);
    rd_strbuf_release(&one);
}

static void check_golden(void **state)
{
    static const char *const texts[] = {FOLDER "odd.txt", FOLDER "points.txt"};
    const struct golden *g = *state;
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    size_t n_ids, n_joined, n, m, k;
    char *ids = file_text(g->ids, &n_ids), *joined = file_text(g->joined, &n_joined);
    text_lines i = {ids, n_ids}, j = {joined, n_joined};
    must_do(rd_subword_open("sentencepiece", g->model, &s, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    assert_int_equal(rd_subword_size(s), g->size);
    for (int t = 0; t < 2; t++) {
        char *text = file_text(texts[t], &n);
        text_lines l = {text, n};
        for (const char *line, *numbers, *whole;
             text_lines_next(&l, &line, &n, &st) == RD_OK && line;) {
            (void)text_lines_next(&i, &numbers, &m, &st);
            (void)text_lines_next(&j, &whole, &k, &st);
            check_line(s, w, line, n, numbers, whole, k);
        }
        free(text);
    }
    assert_true(i.left == 0 && j.left == 0);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
    free(ids);
    free(joined);
}

/* Training gives the same bytes each time, and a model that expresses all of its text. */
static void test_training(void **state)
{
    const char *path = in_dir("a.model"), *again = in_dir("b.model"), *copy = in_dir("c.model");
    rd_status st = {0};
    rd_subword *s = NULL, *t = NULL;
    rd_subword_scratch *w = NULL;
    size_t n, m;
    char *odd = file_text("tests/unit/bpe/text.txt", &n);
    (void)state;
    must_do(train_text("sentencepiece", odd, n, (rd_subword_training){.size = 400}, path, &st),
            &st);
    must_do(train_text("sentencepiece", odd, n, (rd_subword_training){.size = 400}, again, &st),
            &st);
    must_do(rd_subword_open("sentencepiece", path, &s, &st), &st);
    must_do(rd_subword_open("sentencepiece", again, &t, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    assert_int_equal(rd_subword_size(s), 400);
    assert_true(rd_subword_hash(s) == rd_subword_hash(t));
    rd_subword_free(t);
    must_do(rd_subword_write(s, copy, &st), &st);
    must_do(rd_subword_open("sentencepiece", copy, &t, &st), &st);
    assert_true(rd_subword_hash(s) == rd_subword_hash(t));
    rd_subword_free(t);
    text_lines l = {odd, n};
    for (const char *line; text_lines_next(&l, &line, &m, &st) == RD_OK && line;) {
        char plain[256]; /* runs of spaces count as one, and none at the ends */
        size_t k = 0;
        for (size_t i = 0; i < m; i++)
            if (line[i] != ' ' || (k > 0 && plain[k - 1] != ' ')) plain[k++] = line[i];
        k -= k > 0 && plain[k - 1] == ' ';
        same_after_join(s, w, line, m, plain, k);
    }
    static const char rare[] = "\xE6\x97\xA5\xE6\x9C\xAC z";
    same_after_join(s, w, rare, sizeof rare - 1, rare, sizeof rare - 1); /* by its bytes */
    rd_subword_scratch_free(w);
    rd_subword_free(s);
    free(odd);
}

/* Any bytes have pieces. */
static void test_bytes(void **state)
{
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    rd_strbuf b = {0}, text = {0};
    (void)state;
    must_do(rd_subword_open("sentencepiece", FOLDER "unigram.model", &s, &st), &st);
    must_do(rd_subword_scratch_new(s, &w, &st), &st);
    for (int i = 0; i < 65536 + 2000; i++) {
        char line[64];
        const size_t n = i < 65536 ? 2 : 3 + (size_t)(i % 60);
        line[0] = (char)i;
        line[1] = (char)(i >> 8);
        for (size_t k = 0; n > 2 && k < n; k++) line[k] = (char)rd_splitmix64((uint64_t)i * 64 + k);
        rd_strbuf_reset(&b);
        rd_strbuf_reset(&text);
        rd_subword_segment(s, w, line, n, &b);
        rd_subword_join(s, rd_strbuf_str(&b), b.n, &text);
        assert_false(b.failed || text.failed);
        assert_true(rd_utf8_valid(rd_strbuf_str(&text), text.n));
    }
    rd_strbuf_release(&b);
    rd_strbuf_release(&text);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
}

static void test_messages(void **state)
{
    const char *path = in_dir("bad.model"), *record = in_dir("run.log");
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_strbuf text = {0};
    (void)state;
    must_do(rd_file_write_atomic(path, "not a model", 11, &st), &st);
    assert_int_equal(rd_subword_open("sentencepiece", path, &s, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "is no model of SentencePiece"));
    st = (rd_status){0};
    must_do(rd_file_write_atomic(path, "", 0, &st), &st);
    assert_int_equal(rd_subword_open("sentencepiece", path, &s, &st), RD_EDATA);
    st = (rd_status){0};
    assert_int_equal(rd_subword_open("sentencepiece", NULL, &s, &st), RD_EUSAGE);
    st = (rd_status){0};
    assert_int_equal(train_text("sentencepiece", "a b\n", 4, (rd_subword_training){.size = 9999},
                                path, &st),
                     RD_EDATA);
    assert_non_null(strstr(st.msg, "cannot train 9999 pieces from 1 line: "));
    /* Lines that the library leaves out are counted. */
    st = (rd_status){0};
    rd_log *log = NULL;
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    must_do(rd_log_new(0, NULL, out, &log, &st), &st);
    must_do(rd_log_tee(log, record, &st), &st);
    for (int i = 0; i < 200; i++) rd_strbuf_printf(&text, "a line of text %d\n", i);
    for (int i = 0; i < 4193; i++) rd_strbuf_puts(&text, "x");
    rd_strbuf_puts(&text, "\n");
    must_do(train_text("sentencepiece", text.s, text.n,
                       (rd_subword_training){.size = 290, .log = log}, path, &st),
            &st);
    /* A sample of a text whose number of lines is known, and the begin of another one. */
    for (int known = 0; known < 2; known++) {
        text_lines t = {text.s, text.n};
        const rd_subword_lines lines = {&t, text_lines_next, known ? 201 : 0};
        must_do(rd_subword_train("sentencepiece", &lines,
                                 &(rd_subword_training){.size = 280, .max_lines = 100, .log = log},
                                 path, &st),
                &st);
    }
    rd_log_free(log);
    fclose(out);
    size_t n;
    char *said = file_text(record, &n);
    assert_non_null(strstr(said, "280 pieces from 100 of 201 lines"));
    int sampled = 0;
    const char *last = strstr(strstr(said, "280 pieces from 100") + 20, "280 pieces from ");
    assert_true(last && sscanf(last, "280 pieces from %d of 201", &sampled) == 1);
    assert_in_range(sampled, 75, 125);
    assert_int_not_equal(sampled, 100);
    assert_non_null(strstr(said, "sentencepiece: 290 pieces from 200 of 201 lines"));
    assert_non_null(strstr(said, "1 line of more than 4192 bytes left out"));
    free(said);
    rd_strbuf_release(&text);
}

RD_TESTS_WITH("subword_sentencepiece", make_dir, remove_dir, TEST_ROWS(check_golden, golden),
              TEST(test_training), TEST(test_bytes), TEST(test_messages))

#else

static void test_missing(void **state)
{
    rd_status st = {0};
    rd_subword *s = NULL;
    (void)state;
    assert_int_equal(rd_subword_open("sentencepiece", FOLDER "unigram.model", &s, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "apt-get install libsentencepiece-dev"));
    st = (rd_status){0};
    assert_int_equal(rd_subword_available("sentencepiece", &st), RD_EENV);
}

RD_TESTS("subword_sentencepiece", TEST(test_missing))

#endif
