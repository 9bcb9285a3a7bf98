/* raw_text.c -- texts in several files, lines that are read again, limits of lengths, and the
 * vocabularies and subword models that a log folder keeps. */
#include "../../runner/data/text_impl.h"
#include "rd/file.h"
#include "dataset_open.h"
#include "test.h"
#include <inttypes.h>
#include <sys/stat.h>
#include <zlib.h>

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static void put_gz(const char *name, const char *text)
{
    gzFile f = gzopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
}

static char *take(const char *name)
{
    rd_status st = {0};
    char *p = NULL;
    size_t n = 0;
    must_do(rd_file_read(in_dir(name), RD_EDATA, &p, &n, &st), &st);
    return p;
}

static rd_code open_train(const char *config, rd_dataset **d, rd_status *st)
{
    const rd_dataset_args a = {.mode = RD_MODE_TRAIN, .split = RD_SPLIT_TRAIN};
    return dataset_open("parallel_text", config, &a, d, st);
}

/* Returns the ids of all samples that a bucket keeps, one a line: "0: 1 4 2 | 1 5 2". The caller
 * owns it. */
static char *all_ids(const rd_dataset *d)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    rd_strbuf out = {0};
    rd_status st = {0};
    rd_arena *a = NULL;
    must_do(rd_arena_new(1 << 16, &a, &st), &st);
    for (int64_t i = 0; i < def->count(rd_dataset_self(d)); i++) {
        rd_batch b = {0};
        if (def->bucket(rd_dataset_self(d), i) < 0) continue;
        rd_arena_reset(a);
        must_do(def->fetch(rd_dataset_self(d), &i, 1, a, &b, &st), &st);
        rd_strbuf_printf(&out, "%" PRId64 ":", i);
        for (int s = 0; s < 2; s++) {
            for (int64_t k = b.field[s].off[0]; k < b.field[s].off[1]; k++)
                rd_strbuf_printf(&out, " %d", ((const int32_t *)b.field[s].data)[k]);
            rd_strbuf_puts(&out, s == 0 ? " |" : "\n");
        }
    }
    rd_arena_free(a);
    assert_false(out.failed);
    return out.s ? out.s : strdup("");
}

static void expect_ids(const rd_dataset *d, const char *want)
{
    char *got = all_ids(d);
    assert_string_equal(got, want);
    free(got);
}

#define VOCABS "'src_vocab_file': '@/v', 'tgt_vocab_file': '@/v', 'max_unknown': 1"

/* ---- several files: always the lines a / b / c a / dd ---- */
static struct list_row {
    const char *name, *source;
} list_rows[] = {
    {"one file", "'@/whole'"},
    {"a list", "['@/p1', '@/p2', '@/p3']"},
    {"a list of one", "['@/whole']"},
    {"a pattern, in the order of names", "'@/p*'"},
    {"a class of characters", "'@/p[123]'"},
    {"a range", "'@/p{1..3}'"},
    {"words in braces, a pattern and a name", "['@/p{1,2}', '@/p?', '@/p3']"},
    {"a name that looks like a pattern is a file", "'@/w[1].*'"},
};

static void make_list(const char *config_source, char out[1024])
{
    (void)snprintf(out, 1024, "{" VOCABS ", 'source_file': %s, 'target_file': '@/tgt'}",
                   config_source);
}

static void check_list_row(void **state)
{
    const struct list_row *r = *state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    char config[1024];
    make_list(r->source, config);
    if (open_train(config, &d, &st) != RD_OK) {
        /* p1 p2 p1 p2 p3 p3 has other lines */
        if (!strstr(r->name, "words in braces")) fail_msg("%s", st.msg);
        assert_non_null(strstr(st.msg, "p1' (and 5 more files) has 8 lines"));
        return;
    }
    expect_ids(d, "0: 1 4 2 | 1 4 2\n1: 1 5 2 | 1 5 2\n2: 1 6 4 2 | 1 6 4 2\n3: 1 7 2 | 1 7 2\n");
    rd_dataset_free(d);
}

/* Each file may have its own compression, byte order mark and kind of line end. */
static void test_odd_files(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    put("o1", "\xEF\xBB\xBF"
              "a\r\n");
    put("o2", "\xEF\xBB\xBF");
    put_gz("o3", "b\nc a");
    put("o4", "");
    put("o5", "\xEF\xBB\xBF"
              "dd");
    must_do(open_train("{" VOCABS ", 'source_file': '@/o?', 'target_file': '@/tgt'}", &d, &st),
            &st);
    expect_ids(d, "0: 1 4 2 | 1 4 2\n1: 1 5 2 | 1 5 2\n2: 1 6 4 2 | 1 6 4 2\n3: 1 7 2 | 1 7 2\n");
    rd_dataset_free(d);
}

/* ---- what is wrong ---- */
static struct bad_row {
    const char *name, *keys;
    rd_code code;
    const char *message;
} bad_rows[] = {
    {"a pattern without files", "'source_file': '@/none*', 'target_file': '@/tgt'", RD_EDATA,
     "source_file: no file matches '"},
    {"braces that are not closed", "'source_file': '@/p{1,2', 'target_file': '@/tgt'", RD_EUSAGE,
     "source_file: '"},
    {"an empty list", "'source_file': [], 'target_file': '@/tgt'", RD_EUSAGE,
     "'source_file' must be a file name, or a list of file names, not [] (an empty list)"},
    {"a number in a list", "'source_file': ['@/p1', 7], 'target_file': '@/tgt'", RD_EUSAGE,
     "must be a file name, or a list of file names, not 7 (element 2)"},
    {"an empty name in a list", "'source_file': ['@/p1', ''], 'target_file': '@/tgt'", RD_EUSAGE,
     "(element 2)"},
    {"standard input in a list", "'source_file': ['@/p1', '-'], 'target_file': '@/tgt'", RD_EUSAGE,
     "'source_file' cannot be standard input"},
    {"a file of a list is missing", "'source_file': ['@/p1', '@/no'], 'target_file': '@/tgt'",
     RD_EDATA, "/no': No such file or directory"},
    {"unequal numbers of lines in lists",
     "'source_file': ['@/p1', '@/p2'], 'target_file': ['@/p1', '@/p1']", RD_EDATA,
     "p1' (and 1 more file) has 3 lines, '"},
    {"unequal numbers of lines: the pair of files that differs",
     "'source_file': ['@/p1', '@/p2'], 'target_file': ['@/p1', '@/p1']", RD_EDATA,
     "p2' with 2 and '"},
    {"a line of the second file", "'source_file': ['@/p1', '@/bad'], 'target_file': '@/tgt'",
     RD_EDATA, "/bad:2:1: invalid UTF-8 (byte 0xFF)"},
    {"three lengths", "'source_file': '@/p1', 'target_file': '@/p1', 'max_seq_len': [1, 2, 3]",
     RD_EUSAGE, "'max_seq_len' has 3 numbers"},
    {"nothing fits", "'source_file': '@/p2', 'target_file': '@/p2', 'max_seq_len': [1, 0]",
     RD_EUSAGE, "'max_seq_len' must be a list of integers, each 1 .. "},
    {"lines that are read again, compressed",
     "'source_file': '@/gz', 'target_file': '@/tgt', 'ids_in_memory': 'never'", RD_EUSAGE,
     "gz' is no plain file; unpack it"},
    {"an unknown scheme", "'source_file': '@/p1', 'target_file': '@/p1', 'subword': 'bep'",
     RD_EUSAGE, "did you mean \"bpe\"?"},
    {"a scheme without its model", "'source_file': '@/p1', 'target_file': '@/p1', 'subword': 'bpe'",
     RD_EUSAGE, "missing key 'subword_model'"},
    {"a model without a scheme",
     "'source_file': '@/p1', 'target_file': '@/p1', 'subword_model': '@/v'", RD_EUSAGE,
     "'subword_model' with subword none, which has no model"},
    {"a model that is none",
     "'source_file': '@/p1', 'target_file': '@/p1', 'subword': 'bpe', 'subword_model': '@/v'",
     RD_EDATA, "subword_model: "},
};

static void check_bad_row(void **state)
{
    const struct bad_row *r = *state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    char config[1024];
    (void)snprintf(config, sizeof config, "{" VOCABS ", %s}", r->keys);
    assert_int_equal(open_train(config, &d, &st), r->code);
    assert_null(d);
    if (!strstr(st.msg, r->message)) fail_msg("'%s' is not in '%s'", r->message, st.msg);
}

/* ---- limits of lengths ---- */
static void test_lengths(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    put("l1", "a\na b\na b c\na b c dd\n");
    put("l2", "a\na b\na b\na\n");
    must_do(open_train("{" VOCABS ", 'source_file': '@/l1', 'target_file': '@/l2', "
                       "'max_seq_len': [3, 1]}",
                       &d, &st),
            &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    assert_true(def->bucket(self, 0) >= 0); /* 1 and 1 tokens */
    for (int i = 1; i < 4; i++) assert_int_equal(def->bucket(self, i), -1);
    assert_int_equal(d->kept, 1);
    rd_dataset_free(d);
    must_do(open_train("{" VOCABS ", 'source_file': '@/l1', 'target_file': '@/l2', "
                       "'max_seq_len': [3]}",
                       &d, &st),
            &st);
    assert_int_equal(d->kept, 3);
    rd_dataset_free(d);
    /* The usual limit: 100 tokens. */
    rd_strbuf b = {0};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 100 + i; k++) rd_strbuf_puts(&b, k > 0 ? " a" : "a");
        rd_strbuf_puts(&b, "\n");
    }
    put("l1", rd_strbuf_str(&b));
    put("l2", "a\na\n");
    must_do(open_train("{" VOCABS ", 'source_file': '@/l1', 'target_file': '@/l2'}", &d, &st), &st);
    assert_int_equal(d->kept, 1);
    assert_int_equal(rd_dataset_def_of(d)->n_buckets(rd_dataset_self(d)), 10);
    rd_dataset_free(d);
    rd_strbuf_release(&b);
}

/* ---- lines that are read again give the ids that would be kept ---- */
static const char again_keys[] =
    "{" VOCABS ", 'source_file': ['@/g1', '@/g2'], 'target_file': '@/g3', 'invalid_utf8': "
    "'replace', 'max_seq_len': [40], 'ids_in_memory': '%s'}";

static void make_again(void)
{
    rd_strbuf b[3] = {{0}, {0}, {0}};
    rd_strbuf_puts(&b[0], "\xEF\xBB\xBF"
                          "a b\r\n");
    for (int i = 1; i < 300; i++) {
        const int to = i < 200 ? 0 : 1;
        if (i == 199) rd_strbuf_puts(&b[0], "c dd "); /* the last line of the first file */
        if (i == 200)
            rd_strbuf_puts(&b[1], "\xEF\xBB\xBF"
                                  "c dd ");
        for (int k = 0; k < (i == 199 || i == 200 ? 1 : 1 + i * 7 % 50); k++)
            rd_strbuf_printf(&b[to], "%s%s", k ? " " : "",
                             (i + k) % 5 == 0 ? "\xC3"
                             : (i + k) % 3    ? "a"
                                              : "dd");
        rd_strbuf_puts(&b[to], i % 11 == 0 ? " \t\r\n" : i == 199 || i == 299 ? "" : "\n");
        if (i == 150) rd_strbuf_puts(&b[0], "\n"); /* an empty line */
        if (i == 150) rd_strbuf_puts(&b[2], "a\n");
        rd_strbuf_printf(&b[2], "%s\n", i % 13 ? "b c" : "");
    }
    rd_strbuf_puts(&b[2], "b\n");
    put("g1", rd_strbuf_str(&b[0]));
    put("g2", rd_strbuf_str(&b[1]));
    put("g3", rd_strbuf_str(&b[2]));
    for (int i = 0; i < 3; i++) rd_strbuf_release(&b[i]);
}

static void test_again(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d[2] = {NULL, NULL};
    char config[1024], *ids[2];
    make_again();
    for (int i = 0; i < 2; i++) {
        (void)snprintf(config, sizeof config, again_keys, i == 0 ? "always" : "never");
        must_do(open_train(config, &d[i], &st), &st);
        ids[i] = all_ids(d[i]);
    }
    assert_int_equal(rd_dataset_def_of(d[0])->count(rd_dataset_self(d[0])), 301);
    assert_true(d[0]->kept > 200 && d[0]->kept < 300);
    assert_string_equal(ids[0], ids[1]);
    assert_string_equal(rd_dataset_def_of(d[0])->fingerprint(rd_dataset_self(d[0])),
                        rd_dataset_def_of(d[1])->fingerprint(rd_dataset_self(d[1])));
    for (int64_t i = 0; i < 301; i++)
        assert_int_equal(rd_dataset_def_of(d[0])->length(rd_dataset_self(d[0]), i),
                         rd_dataset_def_of(d[1])->length(rd_dataset_self(d[1]), i));
    for (int i = 0; i < 2; i++) {
        rd_dataset_free(d[i]);
        free(ids[i]);
    }
}

/* A text that changes while it is in use is an error. */
static void test_changed(void **state)
{
    (void)state;
    static const char *const now[] = {"a b c\na b\n", "a b\n", "a b\na b c\n"};
    for (size_t i = 0; i < sizeof now / sizeof *now; i++) {
        rd_status st = {0};
        rd_dataset *d = NULL;
        rd_arena *a = NULL;
        rd_batch b = {0};
        int64_t ids[] = {0, 1};
        put("c1", "a b\na b\n");
        put("c2", "a\nb\n");
        must_do(open_train("{" VOCABS ", 'source_file': '@/c1', 'target_file': '@/c2', "
                           "'ids_in_memory': 'never'}",
                           &d, &st),
                &st);
        FILE *f = fopen(in_dir("c1"), "w"); /* the same file, as an editor may write it */
        assert_non_null(f);
        fputs(now[i], f);
        assert_int_equal(fclose(f), 0);
        must_do(rd_arena_new(1 << 16, &a, &st), &st);
        assert_int_equal(rd_dataset_def_of(d)->fetch(rd_dataset_self(d), ids, 2, a, &b, &st),
                         RD_EDATA);
        assert_non_null(strstr(st.msg, "the line is another one than at the start of the run"));
        rd_arena_free(a);
        rd_dataset_free(d);
    }
}

/* ---- white space that is no blank ---- */
static struct space_row {
    const char *name, *line;
    bool odd;
} space_rows[] = {
    {"blanks", "a  b", false},
    {"a TAB", "a\tb", true},
    {"a TAB behind eight bytes", "abcdefgh\tbcdefghijk", true},
    {"a TAB in the last byte but one", "abcdefghijklmn\tb", true},
    {"at the end, where it is removed", "a b \t", false},
    {"no-break space",
     "a\xC2\xA0"
     "b",
     true},
    {"line separator",
     "a b c d e\xE2\x80\xA8"
     "b",
     true},
    {"ideographic space", "\xE6\x97\xA5\xE3\x80\x80\xE6\x9C\xAC", true},
    {"Ogham space",
     "a\xE1\x9A\x80"
     "b",
     true},
    {"letters of the same lead bytes", "\xC2\xA9 \xE1\xBA\xA1 \xE2\x82\xAC \xE3\x81\x82", false},
    {"zero width space is none",
     "a\xE2\x80\x8B"
     "b",
     false},
};

static void check_space_row(void **state)
{
    const struct space_row *r = *state;
    const rd_lines_opts o = {.max_line_bytes = 100};
    rd_status st = {0};
    rd_vocab *v = NULL;
    rd_lines *l = NULL;
    rd_side s = {0};
    char text[128];
    (void)snprintf(text, sizeof text, "x\n%s\ny\n", r->line);
    must_do(rd_vocab_new_mem("v", "a\n", 2, false, &v, &st), &st);
    must_do(rd_lines_new_mem("t", text, strlen(text), o, &l, &st), &st);
    const rd_side_args a = {.vocab = v, .size = 1};
    must_do(rd_side_read(&s, l, &a, &st), &st);
    assert_int_equal(s.head.n_spaces, r->odd);
    assert_int_equal(s.head.first_spaces, r->odd ? 2 : 0);
    rd_lines_free(l);
    rd_side_release(&s);
    rd_vocab_free(v);
}

/* ---- vocabularies that are made ---- */
static const char source_text[] = "b a\nc b  c\n\nz\xC3\xA4 c\tc za\n";
static const char target_text[] = "x\nc\nq\nx c\n";

static struct made_row {
    const char *name, *keys, *source, *target, *shared; /* files; NULL: there is none */
} made_rows[] = {
    /* Counts: b 2, c 2, a 1, za 1, and 1 of z with U+00E4, which is above 'a'. A word with a TAB
     * cannot be in the file. */
    {"ties in falling order of code points", "'subword': 'none'",
     "c\t2\nb\t2\nz\xC3\xA4\t1\nza\t1\na\t1\n", "x\t2\nc\t2\nq\t1\n", NULL},
    {"a shared one adds the counts first", "'subword': 'none', 'shared_vocab': true", NULL, NULL,
     "c\t4\nx\t2\nb\t2\nz\xC3\xA4\t1\nza\t1\nq\t1\na\t1\n"},
    {"at least twice", "'subword': 'none', 'word_min_count': 2", "c\t2\nb\t2\n", "x\t2\nc\t2\n",
     NULL},
    {"at least three times, counted on both sides",
     "'subword': 'none', 'word_min_count': 3, 'shared_vocab': true, 'max_unknown': 1", NULL, NULL,
     "c\t4\n"},
    {"at most two words", "'subword': 'none', 'num_words': 2", "c\t2\nb\t2\n", "x\t2\nc\t2\n",
     NULL},
};

static void forget(const char *log)
{
    static const char *const files[] = {"text.json", "vocab.txt", "vocab.source.txt",
                                        "vocab.target.txt", "subword.model"};
    char path[600];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(path, sizeof path, "%s/text/%s", in_dir(log), files[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof path, "%s/text", in_dir(log));
    (void)rmdir(path);
    (void)rmdir(in_dir(log));
}

static void expect_file(const char *name, const char *want)
{
    if (!want) {
        assert_int_equal(access(in_dir(name), F_OK), -1);
        return;
    }
    char *got = take(name);
    assert_string_equal(got, want);
    free(got);
}

static rd_code open_raw(const char *keys, rd_mode mode, rd_dataset **d, rd_status *st)
{
    char config[1024], log[300];
    (void)snprintf(config, sizeof config, "{%s, 'source_file': '@/r1', 'target_file': '@/r2'}",
                   keys);
    (void)snprintf(log, sizeof log, "%s", in_dir("log"));
    const rd_dataset_args a = {.mode = mode, .split = RD_SPLIT_TRAIN, .logdir = log};
    return dataset_open("parallel_text", config, &a, d, st);
}

static void check_made_row(void **state)
{
    const struct made_row *r = *state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    put("r1", source_text);
    put("r2", target_text);
    must_do(open_raw(r->keys, RD_MODE_TRAIN, &d, &st), &st);
    expect_file("log/text/vocab.source.txt", r->source);
    expect_file("log/text/vocab.target.txt", r->target);
    expect_file("log/text/vocab.txt", r->shared);
    rd_dataset_free(d);
    forget("log");
}

/* ---- what a log folder keeps ---- */

/* Writes text.json with one value replaced. */
static void spoil(const char *name, const char *from, const char *to)
{
    char *p = take(name), *at = strstr(p, from);
    rd_strbuf b = {0};
    assert_non_null(at);
    rd_strbuf_add(&b, p, (size_t)(at - p));
    rd_strbuf_puts(&b, to);
    rd_strbuf_puts(&b, at + strlen(from));
    put(name, rd_strbuf_str(&b));
    rd_strbuf_release(&b);
    free(p);
}

/* What happens at the second opening. The first one has 'subword': 'bpe', 'subword_size': 4. */
static struct kept_row {
    const char *name;
    const char *keys;             /* of the second opening; NULL: the same */
    const char *source;           /* the source text of the second opening; NULL: the same */
    const char *file, *from, *to; /* a file that is spoilt between */
    bool checkpoint;              /* the log folder has one */
    const char *words;            /* the source vocabulary afterwards */
    rd_code code;
    const char *message;
    rd_mode mode;
} kept_rows[] = {
    {"the same: nothing is written", .words = "kept\t7\n"},
    {"other rules: made anew", .keys = "'subword': 'none'", .words = "lo\t3\nlow\t2\n"},
    {"another size: made anew", .keys = "'subword': 'bpe', 'subword_size': 1",
     .words = "lo\t3\nw\t2\no@@\t2\nl@@\t2\n"},
    {"another text: made anew", .source = "x\n", .words = "x\t1\n"},
    {"the same, with a checkpoint", .checkpoint = true, .words = "kept\t7\n"},
    {"other rules, with a checkpoint: refused", .keys = "'subword': 'bpe', 'subword_size': 5",
     .checkpoint = true, .code = RD_EUSAGE, .message = "subword_size 4 -> 5: the checkpoints in '"},
    {"another text, with a checkpoint: kept", .source = "x\n", .checkpoint = true,
     .words = "kept\t7\n"},
    {"no text.json: made anew", .file = "log/text/text.json", .words = "lo\t3\nlow\t2\n"},
    {"a damaged text.json", .file = "log/text/text.json", .from = "{", .to = "", .code = RD_EDATA,
     .message = "text.json' is damaged; restore it, or remove this folder"},
    {"a text.json without files", .file = "log/text/text.json", .from = "\"files\"",
     .to = "\"filed\"", .code = RD_EDATA, .message = "is damaged"},
    {"a later text.json", .file = "log/text/text.json", .from = "\"format\": 1",
     .to = "\"format\": 2", .code = RD_EDATA, .message = "by a later version of this program"},
    {"a changed model", .file = "log/text/subword.model", .from = "0.2", .to = "0.1",
     .code = RD_EDATA, .message = "subword.model' is not the file that was kept: its hash differs"},
    {"eval mode reads what is kept", .mode = RD_MODE_EVAL, .words = "kept\t7\n"},
    {"eval mode, whatever the keys say", .keys = "'subword': 'none'", .mode = RD_MODE_EVAL,
     .words = "kept\t7\n"},
    {"eval mode makes nothing", .file = "log/text/text.json", .mode = RD_MODE_EVAL,
     .code = RD_EUSAGE, .message = "/text has no vocabularies; name the --logdir of the training"},
    {"prepare mode, again", .mode = RD_MODE_PREPARE, .words = "kept\t7\n"},
    {"prepare mode, another text", .source = "x\n", .mode = RD_MODE_PREPARE, .words = "x\t1\n"},
    {"prepare mode, another text, with a checkpoint", .source = "x\n", .mode = RD_MODE_PREPARE,
     .checkpoint = true, .words = "kept\t7\n"},
};

/* Marks the source vocabulary, so that a rewritten file is seen: its hash is entered, too. */
static void mark_kept(void)
{
    char *p = take("log/text/vocab.source.txt"), was[20], now[20];
    (void)snprintf(was, sizeof was, "%016" PRIx64, rd_hash(0, p, strlen(p)));
    (void)snprintf(now, sizeof now, "%016" PRIx64, rd_hash(0, "kept\t7\n", 7));
    spoil("log/text/text.json", was, now);
    put("log/text/vocab.source.txt", "kept\t7\n");
    free(p);
}

static void check_kept_row(void **state)
{
    const struct kept_row *r = *state;
    static const char keys[] = "'subword': 'bpe', 'subword_size': 4, 'max_unknown': 1";
    rd_status st = {0};
    rd_dataset *d = NULL;
    char second[256];
    put("r1", "low low\nlo lo lo\n");
    put("r2", "x\nx\n");
    must_do(open_raw(keys, RD_MODE_TRAIN, &d, &st), &st);
    rd_dataset_free(d);
    if (!r->file) mark_kept();
    if (r->file && r->from)
        spoil(r->file, r->from, r->to);
    else if (r->file)
        assert_int_equal(unlink(in_dir(r->file)), 0);
    if (r->checkpoint) put("log/model-3.npz", "");
    if (r->source) {
        put("r1", r->source);
        put("r2", "x\n");
    }
    (void)snprintf(second, sizeof second, "%s, 'max_unknown': 1", r->keys ? r->keys : keys);
    if (!r->keys) (void)snprintf(second, sizeof second, "%s", keys);
    if (r->mode == RD_MODE_EVAL) {
        char config[1024], log[300];
        (void)snprintf(config, sizeof config,
                       "{%s, 'source_file_eval': '@/r1', 'target_file_eval': '@/r2'}", second);
        (void)snprintf(log, sizeof log, "%s", in_dir("log"));
        const rd_dataset_args a = {
            .mode = r->mode, .split = RD_SPLIT_EVAL, .logdir = log, .keep_all = true};
        assert_int_equal(dataset_open("parallel_text", config, &a, &d, &st), r->code);
    } else {
        const rd_code code = open_raw(second, r->mode ? r->mode : RD_MODE_TRAIN, &d, &st);
        if (code != r->code) fail_msg("code %d: %s", code, st.msg);
    }
    if (r->code == RD_OK)
        expect_file("log/text/vocab.source.txt", r->words);
    else if (!strstr(st.msg, r->message))
        fail_msg("'%s' is not in '%s'", r->message, st.msg);
    rd_dataset_free(d);
    (void)unlink(in_dir("log/model-3.npz"));
    forget("log");
}

/* A run that begins with other weights takes their vocabularies, and keeps them whatever its own
 * text is. */
static void test_inherited(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    char log[300], child[300];
    put("r1", "low low\nlo lo lo\n");
    put("r2", "x\nx\n");
    must_do(open_raw("'subword': 'bpe', 'subword_size': 4", RD_MODE_TRAIN, &d, &st), &st);
    rd_dataset_free(d);
    put("r1", "slow\nnew\n");
    (void)snprintf(child, sizeof child, "%s", in_dir("child"));
    static const char *const weights[] = {"log", "log:best", "log:7", "log/model-7.npz"};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        (void)snprintf(log, sizeof log, "%s", in_dir(weights[i]));
        const rd_dataset_args a = {
            .mode = RD_MODE_TRAIN, .split = RD_SPLIT_TRAIN, .logdir = child, .weights = log};
        for (int again = 0; again < 2; again++) {
            must_do(dataset_open("parallel_text",
                                 "{'source_file': '@/r1', 'target_file': '@/r2', 'max_unknown': 1}",
                                 &a, &d, &st),
                    &st);
            rd_dataset_free(d);
            expect_file("child/text/vocab.source.txt", "lo\t3\nlow\t2\n");
        }
        forget("child");
    }
    forget("log");
}

/* A model that the config names is kept, too, so it may be gone later. */
static void test_given_model(void **state)
{
    (void)state;
    static const char codes[] = "#version: 0.2\nl o\n";
    rd_status st = {0};
    rd_dataset *d = NULL;
    put("codes", codes);
    put("r1", "low lo\n");
    put("r2", "x\n");
    must_do(open_raw("'subword': 'bpe', 'subword_model': '@/codes'", RD_MODE_TRAIN, &d, &st), &st);
    expect_file("log/text/subword.model", codes);
    expect_file("log/text/vocab.source.txt", "w\t1\no\t1\nlo@@\t1\nl@@\t1\n");
    char *first = all_ids(d), *second;
    rd_dataset_free(d);
    assert_int_equal(unlink(in_dir("codes")), 0);
    must_do(open_raw("'subword': 'bpe', 'subword_model': '@/codes'", RD_MODE_TRAIN, &d, &st), &st);
    second = all_ids(d);
    assert_string_equal(first, second);
    free(first);
    free(second);
    rd_dataset_free(d);
    forget("log");
}

/* The output of a model is text again. */
static void test_joined(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    rd_strbuf out = {0};
    static const struct {
        const char *keys, *want;
    } rows[] = {{"'subword': 'none'", "low low"},
                {"'subword': 'bpe', 'subword_size': 1", "low low"},
                {"'subword': 'char'", "low low"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put("r1", "x\n");
        put("r2", "low low\n");
        must_do(open_raw(rows[i].keys, RD_MODE_TRAIN, &d, &st), &st);
        rd_arena *a = NULL;
        rd_batch b = {0};
        int64_t id = 0;
        must_do(rd_arena_new(1 << 16, &a, &st), &st);
        must_do(rd_dataset_def_of(d)->fetch(rd_dataset_self(d), &id, 1, a, &b, &st), &st);
        const int32_t *ids = b.field[1].data;
        rd_strbuf_reset(&out);
        rd_dataset_text(d, 1, ids + 1, b.field[1].off[1] - 1, false, &out);
        assert_string_equal(rd_strbuf_str(&out), rows[i].want);
        rd_strbuf_reset(&out); /* without the end token, which decoders leave out */
        rd_dataset_text(d, 1, ids + 1, b.field[1].off[1] - 2, false, &out);
        assert_string_equal(rd_strbuf_str(&out), rows[i].want);
        rd_strbuf_reset(&out); /* with start and end, as samples are shown */
        rd_dataset_text(d, 1, ids, b.field[1].off[1], true, &out);
        assert_int_equal(strncmp(rd_strbuf_str(&out), "<S> low low </S>", 17), 0);
        rd_data_spec spec;
        rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
        assert_true(spec.joins && spec.subword_hash != 0);
        rd_arena_free(a);
        rd_dataset_free(d);
        forget("log");
    }
    rd_strbuf_release(&out);
}

static int make_all(void **state)
{
    if (make_dir(state) != 0) return -1;
    put("v", "a\nb\nc\ndd\n");
    put("whole", "a\nb\nc a\ndd\n");
    put("tgt", "a\nb\nc a\ndd\n");
    put("w[1].*", "a\nb\nc a\ndd\n");
    put("p1", "a\n");
    put("p2", "b\nc a\n");
    put("p3", "dd");
    put("bad", "a\n\xFF\n");
    put_gz("gz", "a\nb\nc a\ndd\n");
    return 0;
}

RD_TESTS_WITH("raw_text", make_all, remove_dir, TEST_ROWS(check_list_row, list_rows),
              TEST(test_odd_files), TEST_ROWS(check_bad_row, bad_rows), TEST(test_lengths),
              TEST(test_again), TEST(test_changed), TEST_ROWS(check_space_row, space_rows),
              TEST_ROWS(check_made_row, made_rows), TEST_ROWS(check_kept_row, kept_rows),
              TEST(test_inherited), TEST(test_given_model), TEST(test_joined))
