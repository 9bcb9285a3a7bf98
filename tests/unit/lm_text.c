/* lm_text.c -- texts for language models: documents, windows, prompts, files of tokens, tokens that
 * the log folder keeps, and input that is refused. */
#include "../../runner/data/lm_impl.h"
#include "dataset_open.h"
#include <inttypes.h>
#include <sys/stat.h>

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static rd_code open_train(const char *config, rd_dataset **d, rd_status *st)
{
    const rd_dataset_args a = {.mode = RD_MODE_TRAIN, .split = RD_SPLIT_TRAIN};
    return dataset_open("lm_text", config, &a, d, st);
}

/* Appends the texts of all samples, "text|" each; with prompts "prompt>text|". */
static char *all_texts(const rd_dataset *d)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    rd_strbuf out = {0};
    rd_status st = {0};
    rd_arena *a = NULL;
    must_do(rd_arena_new(1 << 16, &a, &st), &st);
    for (int64_t i = 0; i < def->count(self); i++) {
        rd_batch b = {0};
        rd_arena_reset(a);
        must_do(def->fetch(self, &i, 1, a, &b, &st), &st);
        const int32_t *ids = b.field[0].data;
        const int64_t n = b.field[0].off[1];
        const rd_field *prompt = rd_batch_field(&b, "prompt");
        const int64_t p = prompt ? ((const int32_t *)prompt->data)[0] : 0;
        if (p > 0) def->text(self, 1, ids, p, false, &out);
        if (p > 0) rd_strbuf_puts(&out, ">");
        for (int64_t k = p; k < n; k++) {
            const size_t before = out.n;
            def->text(self, 1, ids + k, 1, false, &out);
            if (out.n == before) rd_strbuf_puts(&out, "$"); /* the end token */
        }
        rd_strbuf_puts(&out, "|");
        assert_true(def->length(self, i) == n);
        assert_true(def->tokens(self, i) == n - (p > 0 ? p : 1));
    }
    rd_arena_free(a);
    return out.s ? out.s : strdup("");
}

/* Appends the prompts, "text|" each. */
static char *prompts_of(const rd_dataset *d)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    rd_strbuf out = {0};
    rd_status st = {0};
    rd_arena *a = NULL;
    must_do(rd_arena_new(1 << 16, &a, &st), &st);
    for (int64_t i = 0; i < def->count(self); i++) {
        rd_batch b = {0};
        rd_arena_reset(a);
        must_do(def->fetch(self, &i, 1, a, &b, &st), &st);
        def->text(self, 0, b.field[0].data, b.field[0].off[1], false, &out);
        rd_strbuf_puts(&out, "|");
    }
    rd_arena_free(a);
    return out.s ? out.s : strdup("");
}

/* ---- documents and windows ---- */

static struct text_row {
    const char *name, *config, *want;
} text_rows[] = {
    {"windows of three targets", "{'source_file': '@/a', 'subword': 'char', 'seq_len': 3}",
     "abcd|def\n|\ngh\n|"},
    {"one window", "{'source_file': '@/a', 'subword': 'char', 'seq_len': 64}", "abcdef\ngh\n|"},
    {"two files", "{'source_file': ['@/a', '@/b'], 'subword': 'char', 'seq_len': 64}",
     "abcdef\ngh\nx\n\n\ny\nz|"},
    {"lines",
     "{'source_file': ['@/a', '@/b'], 'subword': 'char', 'seq_len': 64,"
     " 'document': 'line'}",
     "abcdef$gh$x$y$z$|"},
    {"blocks between blank lines",
     "{'source_file': ['@/a', '@/b'], 'subword': 'char', 'seq_len': 64, 'document': 'blank_line'}",
     "abcdef\ngh$x$y\nz$|"},
    {"JSON lines", "{'source_file': '@/c.jsonl', 'subword': 'char', 'seq_len': 64}",
     "one$two\n3$|"},
    {"prompts and completions", "{'source_file': '@/d.jsonl', 'subword': 'char', 'seq_len': 64}",
     "ab>cd$|ef$|gh$|"},
    {"a long example is cut", "{'source_file': '@/d.jsonl', 'subword': 'char', 'seq_len': 2}",
     "ab>c|ef$|gh$|"},
};

static void test_texts(void **state)
{
    const struct text_row *r = *state;
    rd_dataset *d;
    rd_status st = {0};
    put("a", "abcdef\ngh\n");
    put("b", "x\n\n\ny\nz");
    put("c.jsonl", "{\"text\": \"one\"}\n\n{\"other\": 1, \"text\": \"two\\n3\"}\n");
    put("d.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"prompt\":\"e\",\"completion\":"
                   "\"f\"}\n{\"prompt\":\"g\",\"completion\":\"h\"}");
    must_do(open_train(r->config, &d, &st), &st);
    char *got = all_texts(d);
    assert_string_equal(got, r->want);
    free(got);
    rd_dataset_free(d);
}

/* The empty prompt of an example: the first token is no target, all others are. */
static void test_empty_prompt(void **state)
{
    rd_dataset *d;
    rd_status st = {0};
    (void)state;
    put("e.jsonl", "{\"prompt\": \"\", \"completion\": \"abc\"}\n");
    must_do(open_train("{'source_file': '@/e.jsonl', 'subword': 'char', 'seq_len': 9}", &d, &st),
            &st);
    assert_int_equal(rd_dataset_def_of(d)->tokens(rd_dataset_self(d), 0), 3);
    rd_dataset_free(d);
}

/* Evaluation by stride scores every token but the first once, for each number of tokens. */
static void test_stride(void **state)
{
    enum { MOST = 20 };
    const rd_dataset_args a = {.mode = RD_MODE_EVAL, .split = RD_SPLIT_EVAL, .keep_all = true};
    (void)state;
    put("chars", "#run_dist characters 1\na\nb\nc\n");
    for (int n = 2; n < MOST; n++) {
        char text[MOST + 1], config[200];
        for (int i = 0; i < n; i++) text[i] = (char)('a' + i % 3);
        text[n] = '\0';
        put("t", text);
        for (int stride = 1; stride <= 5; stride++) {
            rd_dataset *d;
            rd_status st = {0};
            int64_t targets = 0;
            snprintf(config, sizeof config,
                     "{'source_file_eval': '@/t', 'subword': 'char', 'subword_model': '@/chars',"
                     " 'seq_len': 5, 'eval_stride': %d}",
                     stride);
            must_do(dataset_open("lm_text", config, &a, &d, &st), &st);
            const rd_dataset_def *def = rd_dataset_def_of(d);
            for (int64_t i = 0; i < def->count(rd_dataset_self(d)); i++) {
                assert_true(def->tokens(rd_dataset_self(d), i) > 0);
                targets += def->tokens(rd_dataset_self(d), i);
            }
            assert_int_equal(targets, n - 1);
            rd_dataset_free(d);
        }
    }
}

/* Bytes of text of the ids: those of UTF-8. */
static void test_bytes(void **state)
{
    rd_dataset *d;
    rd_status st = {0};
    rd_data_spec spec;
    int64_t bytes = 0;
    rd_arena *a = NULL;
    rd_batch b = {0};
    const int64_t zero = 0;
    static const char text[] = "a\xC3\xA4\xE2\x82\xAC b\n";
    (void)state;
    put("u", text);
    for (int k = 0; k < 2; k++) {
        must_do(open_train(k ? "{'source_file': '@/u', 'subword': 'byte_bpe', 'subword_size': 260}"
                             : "{'source_file': '@/u', 'subword': 'char'}",
                           &d, &st),
                &st);
        const rd_dataset_def *def = rd_dataset_def_of(d);
        def->spec(rd_dataset_self(d), &spec);
        must_do(rd_arena_new(4096, &a, &st), &st);
        must_do(def->fetch(rd_dataset_self(d), &zero, 1, a, &b, &st), &st);
        bytes = 0;
        for (int64_t i = 0; i < b.field[0].off[1]; i++)
            bytes += spec.id_bytes[((const int32_t *)b.field[0].data)[i]];
        assert_int_equal(bytes, sizeof text - 1);
        assert_true((spec.end_id >= 0) == (k == 1));
        rd_arena_free(a);
        rd_dataset_free(d);
    }
}

/* A document that comes in parts has the bytes that it has as a whole. */
static void test_long_document(void **state)
{
    enum { LINES = 300000 };
    rd_strbuf text = {0}, got = {0};
    rd_status st = {0};
    rd_docs *docs;
    rd_doc_part p;
    bool more = true;
    int parts = 0;
    const char *name = in_dir("long");
    rd_text_files files = {0};
    const rd_doc_rules rules = {.lines = {.max_line_bytes = 100}};
    (void)state;
    for (int i = 0; i < LINES; i++)
        rd_strbuf_printf(&text, "line %d, and its end%s\n", i, i % 3 ? "." : "");
    put_bytes("long", text.s, text.n);
    must_do(rd_text_files_new(&(rd_paths){1, &name}, &files, &st), &st);
    must_do(rd_docs_new(&files, &rules, &docs, &st), &st);
    for (;;) {
        must_do(rd_docs_next(docs, &p, &more, &st), &st);
        if (!more) break;
        rd_strbuf_add(&got, p.text, p.n);
        assert_true(p.ends == (got.n == text.n));
        /* A part begins with the line end behind a letter or digit. */
        if (parts++ > 0) assert_true(p.text[0] == '\n');
    }
    assert_true(parts > 1 && got.n == text.n && memcmp(got.s, text.s, text.n) == 0);
    rd_docs_free(docs);
    rd_text_files_release(&files);
    rd_strbuf_release(&text);
    rd_strbuf_release(&got);
}

/* ---- files of tokens ---- */

static void put_llmc(const char *name, int32_t magic, int32_t version, int32_t count, size_t bytes)
{
    unsigned char file[2048] = {0};
    const int32_t head[3] = {magic, version, count};
    memcpy(file, head, sizeof head);
    for (size_t i = 1024; i < sizeof file; i += 2) file[i] = (unsigned char)(i / 2 % 7);
    put_bytes(name, file, bytes);
}

static void test_tokens(void **state)
{
    static const uint16_t bare[] = {5, 4, 3, 2, 1, 0};
    rd_dataset *d;
    rd_status st = {0};
    rd_arena *a = NULL;
    int64_t ids[] = {0, 1, 2, 3};
    rd_batch b = {0};
    (void)state;
    put_bytes("a.bin", bare, sizeof bare);
    put_llmc("b.bin", 20240520, 1, 4, 1024 + 8);
    must_do(open_train("{'source_file': ['@/a.bin', '@/b.bin'], 'vocab_size': 7, 'seq_len': 2,"
                       " 'end_id': 6}",
                       &d, &st),
            &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    /* 5 4 3 | 3 2 1 | 1 0, then 1 2 3 | 3 4 of the second file */
    assert_int_equal(def->count(rd_dataset_self(d)), 5);
    must_do(rd_arena_new(4096, &a, &st), &st);
    must_do(def->fetch(rd_dataset_self(d), ids, 4, a, &b, &st), &st);
    static const int32_t want[] = {5, 4, 3, 3, 2, 1, 1, 0, 1, 2, 3};
    assert_int_equal(b.field[0].off[4], 11);
    assert_memory_equal(b.field[0].data, want, sizeof want);
    rd_arena_free(a);
    rd_dataset_free(d);
}

static struct bad_row {
    const char *name, *config, *want;
    rd_code code;
} bad_rows[] = {
    {"no text", "{'subword': 'char'}", "missing key 'source_file'", RD_EUSAGE},
    {"a missing file", "{'source_file': '@/none', 'subword': 'char'}", "none", RD_EDATA},
    {"an empty file", "{'source_file': '@/empty', 'subword': 'byte_bpe', 'subword_size': 300}",
     "empty' is empty; a tokenizer needs text to learn from", RD_EDATA},
    {"invalid UTF-8", "{'source_file': '@/latin', 'subword': 'byte_bpe', 'subword_size': 300}",
     "latin:1:3", RD_EDATA},
    {"a long line", "{'source_file': '@/fine', 'subword': 'char', 'max_line_bytes': 3}", "fine",
     RD_EDATA},
    {"a stride beyond the window",
     "{'source_file': '@/fine', 'subword': 'char', 'seq_len': 9, 'max_len': 5}", "'seq_len' 9",
     RD_EUSAGE},
    {"standard input", "{'source_file': '-', 'subword': 'char'}", "only prompts can", RD_EUSAGE},
    {"a placeholder", "{'source_file': '[LM_DATA_LOCATION]/x*.bin', 'vocab_size': 9}",
     "--set data_location=FOLDER", RD_EDATA},
    {"words", "{'source_file': '@/fine', 'subword': 'none'}", "has no ids", RD_EUSAGE},
    {"text and tokens", "{'source_file': ['@/fine', '@/x.bin'], 'subword': 'char'}", "use one kind",
     RD_EUSAGE},
    {"not JSON", "{'source_file': '@/bad1.jsonl', 'subword': 'char'}", "bad1.jsonl:2: not JSON",
     RD_EDATA},
    {"no object", "{'source_file': '@/bad2.jsonl', 'subword': 'char'}",
     "bad2.jsonl:1: not an object", RD_EDATA},
    {"no string", "{'source_file': '@/bad3.jsonl', 'subword': 'char'}",
     "bad3.jsonl:1: \"text\" is not a string", RD_EDATA},
    {"no completion", "{'source_file': '@/bad4.jsonl', 'subword': 'char'}",
     "bad4.jsonl:1: \"completion\" is missing", RD_EDATA},
    {"text and prompt", "{'source_file': '@/bad5.jsonl', 'subword': 'char'}",
     "bad5.jsonl:1: \"text\" beside", RD_EDATA},
    {"both kinds of lines", "{'source_file': '@/bad6.jsonl', 'subword': 'char'}",
     "put them in two files", RD_EDATA},
    {"a key twice", "{'source_file': '@/bad7.jsonl', 'subword': 'char'}", "bad7.jsonl:1: not JSON",
     RD_EDATA},
    {"a question", "{'source_file': '@/bad8.jsonl', 'subword': 'char'}",
     "bad8.jsonl:1: a question of multiple choice, which source_file_eval takes", RD_EDATA},
    {"tokens without a vocabulary", "{'source_file': '@/x.bin'}", "missing key 'vocab_size'",
     RD_EUSAGE},
    {"an empty file of tokens", "{'source_file': '@/none.bin', 'vocab_size': 9}", "is empty",
     RD_EDATA},
    {"an odd number of bytes", "{'source_file': '@/odd.bin', 'vocab_size': 9}", "an odd number",
     RD_EDATA},
    {"a token outside", "{'source_file': '@/x.bin', 'vocab_size': 6}",
     "token 6 at position 3 is outside of the vocabulary of 6", RD_EDATA},
    {"a header alone, cut", "{'source_file': '@/cut.bin', 'vocab_size': 9}", "cut short", RD_EDATA},
    {"another version", "{'source_file': '@/version.bin', 'vocab_size': 9}", "version 3", RD_EDATA},
    {"fewer tokens than announced", "{'source_file': '@/short.bin', 'vocab_size': 9}",
     "must have 1036 bytes, but has 1032", RD_EDATA},
    {"a negative number", "{'source_file': '@/negative.bin', 'vocab_size': 9}", "announces -1",
     RD_EDATA},
    {"multiple choice", "{'source_file': '@/choice.bin', 'vocab_size': 9}", "multiple choice",
     RD_EDATA},
};

static void test_bad(void **state)
{
    const struct bad_row *r = *state;
    static const uint16_t ids[] = {1, 2, 3, 6};
    rd_dataset *d;
    rd_status st = {0};
    put("empty", "");
    put("fine", "some text\n");
    put("latin", "ab\xE4\n");
    put("bad1.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
    put("bad2.jsonl", "[1]\n");
    put("bad3.jsonl", "{\"text\": 5}\n");
    put("bad4.jsonl", "{\"prompt\": \"a\"}\n");
    put("bad5.jsonl", "{\"prompt\": \"a\", \"text\": \"b\"}\n");
    put("bad6.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"text\": \"c\"}\n");
    put("bad7.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n");
    put("bad8.jsonl", "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\"], \"label\": 0}\n");
    put_bytes("x.bin", ids, sizeof ids);
    put("none.bin", "");
    put("odd.bin", "abc");
    put_llmc("cut.bin", 20240520, 1, 4, 600);
    put_llmc("version.bin", 20240520, 3, 4, 1024 + 8);
    put_llmc("short.bin", 20240520, 1, 6, 1024 + 8);
    put_llmc("negative.bin", 20240801, 7, -1, 1024);
    put_llmc("choice.bin", 20240522, 1, 4, 1024 + 8);
    const rd_code code = open_train(r->config, &d, &st);
    if (code != r->code || !strstr(st.msg, r->want))
        fail_msg("code %d, '%s'; wanted %d with '%s'", code, st.msg, r->code, r->want);
    assert_null(d);
}

/* Files without a header: 32 bits if the vocabulary needs them, or if they look so. */
static void test_wide_tokens(void **state)
{
    uint32_t wide[20];
    uint16_t narrow[40];
    int32_t ids[40];
    char path[400];
    rd_status st = {0};
    rd_token_list l;
    (void)state;
    (void)snprintf(path, sizeof path, "%s/wide.bin", dir);
    for (uint32_t i = 0; i < 20; i++) wide[i] = i == 3 ? 70000 : 3 * i;
    put_bytes("wide.bin", wide, sizeof wide);
    must_do(rd_token_list_open(path, 100000, &l, &st), &st);
    assert_int_equal(l.n, 20);
    must_do(rd_token_list_get(&l, 2, 3, 100000, ids, &st), &st);
    assert_memory_equal(ids, ((const int32_t[]){6, 70000, 12}), 12);
    rd_token_list_release(&l);
    wide[3] = 9;
    put_bytes("wide.bin", wide, sizeof wide);
    must_do(rd_token_list_open(path, 100, &l, &st), &st);
    assert_int_equal(l.n, 20);
    must_do(rd_token_list_get(&l, 0, 20, 100, ids, &st), &st);
    for (int i = 0; i < 20; i++) assert_int_equal(ids[i], 3 * i);
    rd_token_list_release(&l);
    for (int i = 0; i < 40; i++) narrow[i] = (uint16_t)(i % 2 && i != 39 ? 0 : 7);
    put_bytes("wide.bin", narrow, sizeof narrow);
    must_do(rd_token_list_open(path, 100, &l, &st), &st);
    assert_int_equal(l.n, 40); /* one upper half is not 0 */
    rd_token_list_release(&l);
    put_bytes("wide.bin", narrow, 78);
    assert_int_equal(rd_token_list_open(path, 100000, &l, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "has 78 bytes, no multiple of 4"));
    rd_token_list_release(&l);
}

/* nanoGPT's meta.pkl, beside the tokens or named: the ids are texts. The log folder keeps the
 * characters, so the file may go. */
static void test_meta(void **state)
{
    static const uint16_t ids[] = {3, 4, 5, 1, 0, 2};
    static const char *const configs[] = {
        "{'source_file': '@/nano/train.bin', 'seq_len': 9}",
        "{'source_file': '@/nano/train.bin', 'seq_len': 9, 'subword': 'char'}",
        "{'source_file': '@/train.bin', 'seq_len': 9, 'subword_model': '@/nano/meta.pkl'}",
        "{'source_file': '@/nano/train.bin', 'seq_len': 9}"};
    char log[400];
    rd_dataset *d;
    rd_status st = {0};
    rd_data_spec spec;
    char *bytes;
    size_t n;
    (void)state;
    assert_int_equal(mkdir(in_dir("nano"), 0700), 0);
    must_do(rd_file_read("tests/fuzz/corpus/meta_pkl/abc4", RD_EDATA, &bytes, &n, &st), &st);
    put_bytes("nano/meta.pkl", bytes, n);
    put_bytes("nano/train.bin", ids, sizeof ids);
    put_bytes("train.bin", ids, sizeof ids);
    (void)snprintf(log, sizeof log, "%s/nano_log", dir);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const rd_dataset_args a = {.mode = RD_MODE_TRAIN,
                                   .split = RD_SPLIT_TRAIN,
                                   .logdir = i == 0 || i == 3 ? log : NULL};
        if (i == 3) assert_int_equal(unlink(in_dir("nano/meta.pkl")), 0);
        must_do(dataset_open("lm_text", configs[i], &a, &d, &st), &st);
        rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
        assert_int_equal(spec.tgt_vocab_size, 6);
        assert_int_equal(spec.end_id, -1);
        assert_int_equal(spec.id_bytes[5], 1);
        char *got = all_texts(d);
        assert_string_equal(got, "abc \n!|");
        free(got);
        rd_dataset_free(d);
    }
    /* A given size means tokens without text. Another scheme is none of characters. */
    put_bytes("nano/meta.pkl", bytes, n);
    free(bytes);
    must_do(open_train("{'source_file': '@/nano/train.bin', 'vocab_size': 9}", &d, &st), &st);
    rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
    assert_true(spec.tgt_vocab_size == 9 && !spec.id_bytes);
    rd_dataset_free(d);
    assert_int_equal(open_train("{'source_file': '@/nano/train.bin', 'subword': 'byte_bpe'}", &d,
                                &st),
                     RD_EUSAGE);
    st = (rd_status){0};
    put("nano/meta.pkl", "\x80\x04"
                         "cos\nsystem\n.");
    assert_int_equal(open_train("{'source_file': '@/nano/train.bin'}", &d, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "nano/meta.pkl': at byte 2: the file asks to run code"));
    char command[500];
    (void)snprintf(command, sizeof command, "rm -rf '%s' '%s'", log, in_dir("nano"));
    assert_int_equal(system(command), 0);
}

/* ---- multiple choice ---- */

/* Two examples: context 1 2 3 with answers 4 and 5 6 (right), context 6 with answers 0 and 0, of
 * which the first is right. */
static const uint16_t examples[] = {65535, 28,    0,  1, 2, 3, 1, 2, 3, 1, 4, 2, 5,
                                    6,     65535, 22, 1, 0, 2, 1, 6, 1, 0, 1, 0, /* too long: */ 9};
enum { IN_EXAMPLES = 25 };

/* Writes the examples behind a header. change: number of uint16 to replace by `by`; -1: none. */
static void put_choices(const char *name, int32_t version, int32_t count, int64_t n, int change,
                        uint16_t by)
{
    unsigned char file[2048] = {0};
    uint16_t at[sizeof examples / 2];
    const int32_t head[3] = {20240522, version, count};
    memcpy(file, head, sizeof head);
    memcpy(at, examples, sizeof at);
    if (change >= 0) at[change] = by;
    memcpy(file + 1024, at, sizeof at);
    put_bytes(name, file, (size_t)(1024 + 2 * n));
}

static rd_code read_choices(rd_choices *c, int64_t most, rd_status *st)
{
    char path[400];
    *c = (rd_choices){0};
    (void)snprintf(path, sizeof path, "%s/choices.bin", dir);
    return rd_choices_read(c, path, most, 7, st);
}

static void test_choices(void **state)
{
    static const int32_t want[] = {1, 2, 3, 4, 1, 2, 3, 5, 6, 6, 0, 6, 0},
                         cut[] = {2, 3, 4, 3, 5, 6, 6, 0, 6, 0};
    rd_status st = {0};
    rd_choices c;
    (void)state;
    put_choices("choices.bin", 1, 2, IN_EXAMPLES, -1, 0);
    must_do(read_choices(&c, 65, &st), &st);
    assert_int_equal(c.n, 4);
    assert_int_equal(c.n_questions, 2);
    assert_int_equal(c.n_ids, 13);
    assert_memory_equal(c.ids, want, sizeof want);
    assert_memory_equal(c.first, ((const int64_t[]){0, 4, 9, 11, 13}), 40);
    assert_memory_equal(c.prompt, ((const int32_t[]){3, 3, 1, 1}), 16);
    assert_memory_equal(c.question, ((const int32_t[]){0, 0, 1, 1}), 16);
    assert_memory_equal(c.right, ((const bool[]){false, true, true, false}), 4);
    assert_int_equal(c.n_cut, 0);
    rd_choices_release(&c);
    must_do(read_choices(&c, 3, &st),
            &st); /* at most three tokens: contexts lose their beginning */
    assert_int_equal(c.n_cut, 2);
    assert_int_equal(c.n_ids, 10);
    assert_memory_equal(c.ids, cut, sizeof cut);
    rd_choices_release(&c);
}

typedef struct choice_row {
    const char *name;
    int32_t version, count;
    int64_t n;
    int change;
    uint16_t by;
    int64_t most;
    const char *want;
} choice_row;
static const choice_row choice_rows[] = {
    {"cut header", 1, 2, -100, -1, 0, 65, "has 824 bytes; a file of multiple choice has a header"},
    {"version", 2, 2, 25, -1, 0, 65, "magic number 20240522 and version 2"},
    {"no examples", 1, 0, 25, -1, 0, 65, "announces 0 examples"},
    {"more examples", 1, 3, 25, -1, 0, 65, "ends in example 2; it is cut short"},
    {"bytes behind", 1, 2, 26, -1, 0, 65, "has 2 bytes behind its 2 examples"},
    {"begin", 1, 2, 25, 14, 3, 65, "example 1 at byte 1052 begins with 3, not with 65535"},
    {"too long", 1, 2, 25, 15, 24, 65, "example 1 at byte 1052 has a length of 24 bytes"},
    {"odd length", 1, 2, 25, 15, 21, 65, "has a length of 21 bytes"},
    {"label", 1, 2, 25, 3, 2, 65, "has 2 answers, and answer 2 is right"},
    {"one answer", 1, 2, 25, 4, 1, 65, "has 1 answers"},
    {"more answers", 1, 2, 25, 4, 3, 65, "has fewer answers than it says"},
    {"fewer tokens", 1, 2, 25, 9, 0, 65, "has a list without tokens"},
    {"more tokens", 1, 2, 25, 11, 9, 65, "has more tokens than bytes"},
    {"no context", 1, 2, 25, 5, 0, 65, "has a list without tokens"},
    {"token", 1, 2, 25, 10, 7, 65, "has token 7, outside of the vocabulary of 7 tokens"},
    {"short window", 1, 2, 25, -1, 0, 2, "has an answer of 2 tokens, but seq_len is 1"},
};
static void check_choice(void **state)
{
    const choice_row *r = *state;
    rd_status st = {0};
    rd_choices c;
    put_choices("choices.bin", r->version, r->count, r->n, r->change, r->by);
    const rd_code code = read_choices(&c, r->most, &st);
    rd_choices_release(&c);
    if (code != RD_EDATA || !strstr(st.msg, r->want) || !strstr(st.msg, "choices.bin"))
        fail_msg("code %d, '%s'; wanted '%s'", code, st.msg, r->want);
}

/* JSON lines, with a tokenizer of characters. */
static rd_code read_questions(rd_choices *c, const char *text, int64_t most, rd_status *st)
{
    const rd_lines_opts lines = {.max_line_bytes = 200};
    rd_subword *s = NULL;
    *c = (rd_choices){0};
    put("abc", "#run_dist characters 1\n\xE2\x96\x81\na\nb\nc\n");
    must_do(rd_subword_open("char", in_dir("abc"), &s, st), st);
    (void)rd_questions_read_mem(c, "q.jsonl", text, strlen(text), &lines, s, most, st);
    rd_subword_free(s);
    return st->code;
}

static void test_questions(void **state)
{
    static const char text[] =
        "{\"ctx\": \"ab\", \"endings\": [\"c\", \"ba\"], \"label\": 1, \"ind\": 4}\n"
        "\n{\"label\": \"0\", \"endings\": [\"\", \"a\", \"a\"], \"ctx\": \"c\"}";
    /* A blank has the id 3, since its code point is read as U+0020: the characters are sorted. */
    rd_status st = {0};
    rd_choices c;
    (void)state;
    must_do(read_questions(&c, text, 65, &st), &st);
    assert_int_equal(c.n_questions, 2);
    assert_int_equal(c.n, 5);
    assert_memory_equal(
        c.ids, ((const int32_t[]){1, 2, 0, 3, 1, 2, 0, 2, 1, 3, 0, 3, 0, 1, 3, 0, 1}), 17 * 4);
    assert_memory_equal(c.first, ((const int64_t[]){0, 4, 9, 11, 14, 17}), 48);
    assert_memory_equal(c.prompt, ((const int32_t[]){2, 2, 1, 1, 1}), 20);
    assert_memory_equal(c.question, ((const int32_t[]){0, 0, 1, 1, 1}), 20);
    assert_memory_equal(c.right, ((const bool[]){false, true, true, false, false}), 5);
    assert_int_equal(c.n_cut, 0);
    rd_choices_release(&c);
    must_do(read_questions(&c, text, 4, &st), &st); /* at most four tokens */
    assert_int_equal(c.n_cut, 1);
    assert_memory_equal(c.ids, ((const int32_t[]){1, 2, 0, 3, 2, 0, 2, 1, 3, 0}), 40);
    rd_choices_release(&c);
}

static struct question_row {
    const char *name, *line, *want;
} question_rows[] = {
    {"cut", "{\"ctx\": \"a\", \"endings\": [\"a\"", "not JSON"},
    {"a list", "[1]", "not an object"},
    {"a key twice", "{\"ctx\": \"a\", \"ctx\": \"a\"}", "not JSON: duplicate"},
    {"no context", "{\"endings\": [\"a\", \"b\"], \"label\": 0}", "\"ctx\" is missing"},
    {"a context of a number", "{\"ctx\": 1, \"endings\": [\"a\", \"b\"], \"label\": 0}",
     "\"ctx\" is not a string"},
    {"an empty context", "{\"ctx\": \"\", \"endings\": [\"a\", \"b\"], \"label\": 0}",
     "\"ctx\" has no token"},
    {"no answers", "{\"ctx\": \"a\", \"label\": 0}", "\"endings\" is no list"},
    {"answers of an object", "{\"ctx\": \"a\", \"endings\": {\"a\": 1, \"b\": 2}, \"label\": 0}",
     "\"endings\" is no list"},
    {"one answer", "{\"ctx\": \"a\", \"endings\": [\"a\"], \"label\": 0}", "at least two answers"},
    {"an answer of a number", "{\"ctx\": \"a\", \"endings\": [\"a\", 2], \"label\": 0}",
     "an answer of \"endings\" is not a string"},
    {"no label", "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\"]}", "\"label\" is missing"},
    {"an empty label", "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\"], \"label\": \"\"}",
     "\"label\" is not the number"},
    {"a label beyond", "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\"], \"label\": 2}",
     "\"label\" is not the number"},
    {"a negative label", "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\"], \"label\": -1}",
     "\"label\" is not the number"},
    {"a real label", "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\"], \"label\": 1.0}",
     "\"label\" is not the number"},
    {"a character that is missing", "{\"ctx\": \"a\", \"endings\": [\"a\", \"d\"], \"label\": 1}",
     "\"endings\" has a character that the tokenizer (char)"},
    {"a long answer", "{\"ctx\": \"a\", \"endings\": [\"a\", \"abcabcabc\"], \"label\": 1}",
     "an answer has 10 tokens, but seq_len is 9"},
    {"NUL", "{\"ctx\": \"\\u0000\", \"endings\": [\"a\", \"b\"], \"label\": 1}", "not JSON"},
    {"UTF-8", "{\"ctx\": \"\xE4\", \"endings\": [\"a\", \"b\"], \"label\": 1}",
     "3:10: invalid UTF-8"},
};
static void check_question(void **state)
{
    const struct question_row *r = *state;
    char text[300];
    rd_status st = {0};
    rd_choices c;
    (void)snprintf(text, sizeof text,
                   "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\"], \"label\": 0}\n\n%s\n", r->line);
    const rd_code code = read_questions(&c, text, 10, &st);
    rd_choices_release(&c);
    if (code != RD_EDATA || !strstr(st.msg, r->want) || !strstr(st.msg, "q.jsonl:3:"))
        fail_msg("code %d, '%s'; wanted '%s'", code, st.msg, r->want);
}

/* ---- what the log folder keeps ---- */

/* The second run finds the tokenizer and the tokens; a changed text has new tokens, a changed rule
 * a new tokenizer. */
static void test_kept(void **state)
{
    static const char config[] =
        "{'source_file': '@/text', 'subword': 'byte_bpe', 'subword_size': 270, 'seq_len': 4,"
        " 'token_cache': '%s'}";
    char text[300], log[300], path[400];
    rd_status st = {0};
    struct stat before, after;
    char *first = NULL;
    (void)state;
    put("text", "the cat sat on the mat. the cat ate the rat.\n");
    snprintf(log, sizeof log, "%s/log", dir);
    for (int k = 0; k < 3; k++) {
        rd_dataset *d;
        const rd_dataset_args a = {.mode = RD_MODE_TRAIN, .split = RD_SPLIT_TRAIN, .logdir = log};
        snprintf(text, sizeof text, config, k == 2 ? "memory" : "file");
        must_do(dataset_open("lm_text", text, &a, &d, &st), &st);
        char *got = all_texts(d);
        if (k == 0) first = got;
        assert_string_equal(got, first);
        snprintf(path, sizeof path, "%s/text/subword.model", log);
        assert_int_equal(stat(path, k == 0 ? &before : &after), 0);
        if (k > 0) assert_true(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
        if (k > 0) free(got);
        rd_dataset_free(d);
    }
    free(first);
    char command[800];
    snprintf(command, sizeof command, "ls %s/text/ids-*.bin | wc -l | grep -qx 1 && rm -r %s", log,
             log);
    assert_int_equal(system(command), 0);
}

/* Prompts: each line is one, and an empty line begins a document. */
static void test_feed(void **state)
{
    rd_dataset *d;
    rd_status st = {0};
    const rd_dataset_args a = {.mode = RD_MODE_INFER, .split = RD_SPLIT_TEST, .keep_all = true};
    (void)state;
    put("prompts", "ab\n\nc");
    put("chars", "#run_dist characters 1\na\nb\nc\n");
    must_do(dataset_open("lm_text",
                         "{'source_file_test': '@/prompts', 'subword': 'char', 'subword_model':"
                         " '@/chars'}",
                         &a, &d, &st),
            &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    assert_int_equal(def->count(self), 3);
    assert_true(!def->blank(self, 0) && def->blank(self, 1) && !def->blank(self, 2));
    must_do(def->feed(self, "bb\nc\n", 5, 3, &st), &st);
    assert_int_equal(def->count(self), 2);
    assert_int_equal(def->length(self, 0), 2);
    assert_int_equal(def->feed(self, "x\n", 2, 5, &st), RD_EDATA);
    rd_dataset_free(d);
}

/* Prompts: what a line is depends on the name, on the first line of standard input, and on
 * input_format. */
static struct prompt_row {
    const char *name, *file, *form, *text, *want; /* want: prompts, or a part of the message */
    rd_code code;
} prompt_rows[] = {
    {"text", "p", "auto", "{\"prompt\": \"a\"}\n", "{\"prompt\": \"a\"}|", RD_OK},
    {"JSON by name", "p.jsonl", "auto", "{\"prompt\": \"a\"}\n\n{\"text\": \"b\\n\"}\n", "a|b\n|",
     RD_OK},
    {"JSON by key", "p", "jsonl", "{\"prompt\": \"a\"}\n\n{\"text\": \"b\\n\"}\n", "a|b\n|", RD_OK},
    {"text by key", "p.jsonl", "text", "{\"text\"", "{\"text\"|", RD_OK},
    {"standard input, JSON", NULL, "auto", "{\"prompt\": \"a\", \"n\": 1}\n{\"text\": \"b\"}",
     "a|b|", RD_OK},
    {"standard input, text", NULL, "auto", "{a\n{\"text\": \"b\"}\n", "{a|{\"text\": \"b\"}|",
     RD_OK},
    {"standard input, cut", NULL, "auto", "{\"text\": \"b\n", "{\"text\": \"b|", RD_OK},
    {"standard input, another object", NULL, "auto", "{\"t\": \"b\"}\n", "{\"t\": \"b\"}|", RD_OK},
    {"standard input, text by key", NULL, "text", "{\"text\": \"b\"}\n", "{\"text\": \"b\"}|",
     RD_OK},
    {"standard input, JSON by key", NULL, "jsonl", "{\"t\": \"b\"}\n",
     "standard input:1: neither \"prompt\" nor \"text\"; a line is an object with \"prompt\" or",
     RD_EDATA},
    {"standard input, text later", NULL, "auto", "{\"text\": \"b\"}\n\nab\n",
     "standard input:3: not JSON", RD_EDATA},
    {"standard input, a prompt that is a number", NULL, "auto",
     "{\"text\": \"b\"}\n{\"prompt\": 1}", "standard input:2: \"prompt\" is not a string",
     RD_EDATA},
};

static void check_prompts(void **state)
{
    const struct prompt_row *r = *state;
    const rd_dataset_args a = {.mode = RD_MODE_INFER, .split = RD_SPLIT_TEST, .keep_all = true};
    char config[400];
    rd_dataset *d;
    rd_status st = {0};
    put("ascii",
        "#run_dist characters 1\n\\n\n\xE2\x96\x81\n\"\n1\n:\na\nb\ne\nm\no\np\nr\nt\nx\n{\n}\n");
    if (r->file) put(r->file, r->text);
    (void)snprintf(config, sizeof config,
                   "{'source_file_test': '%s%s', 'input_format': '%s', 'subword': 'char',"
                   " 'subword_model': '@/ascii'}",
                   r->file ? "@/" : "/dev/null", r->file ? r->file : "", r->form);
    must_do(dataset_open("lm_text", config, &a, &d, &st), &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    if (!r->file) (void)def->feed(rd_dataset_self(d), r->text, strlen(r->text), 0, &st);
    if (st.code != r->code) fail_msg("code %d, '%s'", st.code, st.msg);
    if (r->code != RD_OK) {
        if (!strstr(st.msg, r->want)) fail_msg("'%s'", st.msg);
    } else {
        char *got = prompts_of(d);
        assert_string_equal(got, r->want);
        free(got);
    }
    rd_dataset_free(d);
}

/* The first text decides what the lines of later ones are. A message counts blank lines, too. */
static void test_feed_json(void **state)
{
    const rd_dataset_args a = {.mode = RD_MODE_INFER, .split = RD_SPLIT_TEST, .keep_all = true};
    static const struct {
        const char *text, *want;
    } fed[] = {{"{\"text\": \"a\"}\n\n\n", "a|"},
               {"\n", ""},
               {"{\"prompt\": \"bb\"}\n{\"prompt\": \"c\"}\n", "bb|c|"}};
    rd_dataset *d;
    rd_status st = {0};
    int64_t before = 0;
    (void)state;
    put("chars", "#run_dist characters 1\na\nb\nc\n");
    must_do(dataset_open("lm_text",
                         "{'source_file_test': '/dev/null', 'subword': 'char', 'subword_model':"
                         " '@/chars'}",
                         &a, &d, &st),
            &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    for (size_t i = 0; i < sizeof fed / sizeof *fed; i++) {
        must_do(def->feed(rd_dataset_self(d), fed[i].text, strlen(fed[i].text), before, &st), &st);
        char *got = prompts_of(d);
        assert_string_equal(got, fed[i].want);
        free(got);
        before += def->count(rd_dataset_self(d));
    }
    assert_int_equal(def->feed(rd_dataset_self(d), "\n{}\n", 4, before, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "standard input:8: neither"));
    rd_dataset_free(d);
}

RD_TESTS_WITH("lm_text", make_dir, remove_dir, TEST_ROWS(test_texts, text_rows),
              TEST(test_empty_prompt), TEST(test_stride), TEST(test_bytes),
              TEST(test_long_document), TEST(test_tokens), TEST_ROWS(test_bad, bad_rows),
              TEST(test_wide_tokens), TEST(test_meta), TEST(test_choices),
              TEST_ROWS(check_choice, choice_rows), TEST(test_questions),
              TEST_ROWS(check_question, question_rows), TEST(test_kept), TEST(test_feed),
              TEST_ROWS(check_prompts, prompt_rows), TEST(test_feed_json))
