/* text.c -- tests parallel text: how lines become ids, where files may come from, and the
 * message for each error. */
#include "../../runner/data/text_impl.h"
#include "dataset_open.h"
#include "rd/gunzip.h"
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>

/* One member per (name, text). filter: a filter of libarchive. name NULL ends the list. Format
 * raw takes one member. */
static void put_archive(const char *name, int filter, bool raw, const char *const members[][2])
{
    struct archive *a = archive_write_new();
    assert_int_equal(archive_write_add_filter(a, filter), ARCHIVE_OK);
    assert_int_equal(raw ? archive_write_set_format_raw(a)
                         : archive_write_set_format_pax_restricted(a),
                     ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, in_dir(name)), ARCHIVE_OK);
    for (int i = 0; members[i][0]; i++) {
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, members[i][0]);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        archive_entry_set_size(e, (la_int64_t)strlen(members[i][1]));
        assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
        assert_int_equal(archive_write_data(a, members[i][1], strlen(members[i][1])),
                         strlen(members[i][1]));
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
}

/* A zip archive with one stored member, whose name is marked as UTF-8 or not. */
static void put_zip(const char *name, const char *member, bool utf8, const char *text)
{
    char b[512];
    const size_t n_member = strlen(member), n = strlen(text);
    const uint32_t crc = rd_crc32(0, text, n);
    char about[26] = {
        10, 0, 0, utf8 ? 8 : 0, [14] = (char)n, [18] = (char)n, [22] = (char)n_member};
    for (int i = 0; i < 4; i++) about[10 + i] = (char)(crc >> 8 * i);
    size_t at = 0;
#define ADD(from, bytes) (memcpy(b + at, from, bytes), at += (bytes))
    ADD("PK\3\4", 4);
    ADD(about, sizeof about);
    ADD(member, n_member);
    ADD(text, n);
    const size_t list = at;
    ADD("PK\1\2\12\0", 6);
    ADD(about, sizeof about);
    ADD(((const char[14]){0}), 14);
    ADD(member, n_member);
    const char end[22] = {
        'P', 'K', 5, 6, [8] = 1, [10] = 1, [12] = (char)(at - list), [16] = (char)list};
    ADD(end, sizeof end);
#undef ADD
    put_bytes(name, b, at);
}

/* Opens the dataset of a config in which every "@" stands for the folder. */
static rd_code open_text(const char *config, rd_mode mode, rd_split split, bool keep_all,
                         rd_dataset **d, rd_status *st)
{
    const rd_dataset_args a = {.mode = mode, .split = split, .keep_all = keep_all};
    return dataset_open("parallel_text", config, &a, d, st);
}

#define VOCABS "'src_vocab_file': '@/v.src', 'tgt_vocab_file': '@/v.tgt'"
#define BUCKETS "'bucket_src': [50], 'bucket_tgt': [50]"
#define FILES "'source_file': '@/a', 'target_file': '@/b'"
#define CONFIG "{" VOCABS ", " BUCKETS ", " FILES "}"
#define BYTES(s) (s), sizeof(s) - 1

static char *ids_of(const rd_dataset *d, int64_t i, const char *field)
{
    static char out[512];
    rd_status st = {0};
    rd_arena *a = NULL;
    rd_batch b = {0};
    assert_int_equal(rd_arena_new(1 << 16, &a, &st), RD_OK);
    assert_int_equal(rd_dataset_def_of(d)->fetch(rd_dataset_self(d), &i, 1, a, &b, &st), RD_OK);
    assert_int_equal(b.n, 1);
    assert_int_equal(b.sample[0], i);
    const rd_field *f = rd_batch_field(&b, field);
    assert_non_null(f);
    assert_null(rd_batch_field(&b, "label"));
    size_t used = 0;
    out[0] = '\0';
    for (int64_t k = f->off[0]; k < f->off[1] && used < sizeof out - 16; k++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%d", k > f->off[0] ? " " : "",
                                 ((const int32_t *)f->data)[k]);
    rd_arena_free(a);
    return out;
}

/* ---- lines to ids; the source vocabulary is a b c dd, ids 4 to 7 ---- */
static struct line_row {
    const char *name, *text;
    size_t n;
    const char *lines[5];
    const char *more; /* keys */
} line_rows[] = {
    {"words", BYTES("a b\nc\n"), {"1 4 5 2", "1 6 2"}, NULL},
    {"no last line end", BYTES("a b\nc"), {"1 4 5 2", "1 6 2"}, NULL},
    {"unknown words", BYTES("a x dd d ddd\n"), {"1 4 0 7 0 0 2"}, NULL},
    {"an empty line is one empty token", BYTES("a\n\nb\n"), {"1 4 2", "1 0 2", "1 5 2"}, NULL},
    {"two blanks make an empty token", BYTES("a  b\n"), {"1 4 0 5 2"}, NULL},
    {"leading blank", BYTES(" a\n"), {"1 0 4 2"}, NULL},
    {"trailing white space goes", BYTES("a b \t \n"), {"1 4 5 2"}, NULL},
    {"trailing white space behind 7, 8 and 15 bytes",
     BYTES("a b c a \na b c dd  \na b c dd a b c \n"),
     {"1 4 5 6 4 2", "1 4 5 6 7 2", "1 4 5 6 7 4 5 6 2"},
     NULL},
    {"trailing Unicode white space goes", BYTES("a\xC2\xA0\xE2\x80\xA9\n"), {"1 4 2"}, NULL},
    {"a tab is no separator", BYTES("a\tb c\n"), {"1 0 6 2"}, NULL},
    {"CR LF", BYTES("a b\r\nc\r\n"), {"1 4 5 2", "1 6 2"}, NULL},
    {"a lone CR ends no line", BYTES("a\rb c\n"), {"1 0 6 2"}, NULL},
    {"U+2028, U+2029, U+0085 end no line",
     BYTES("a\xE2\x80\xA8 b\na\xE2\x80\xA9"
           "b\na \xC2\x85"
           "b\n"),
     {"1 0 5 2", "1 0 2", "1 4 0 2"},
     NULL},
    {"special names in the text are unknown words", BYTES("a </S> <S> b\n"), {"1 4 0 0 5 2"}, NULL},
    {"byte order mark",
     BYTES("\xEF\xBB\xBF"
           "a\nb\n"),
     {"1 4 2", "1 5 2"},
     NULL},
    {"invalid UTF-8 replaced", BYTES("a \xFF\xFE b\n"), {"1 4 0 5 2"}, "'invalid_utf8': 'replace'"},
    {"a line of just max_line_bytes", BYTES("a b c dd\n"), {"1 4 5 6 7 2"}, "'max_line_bytes': 8"},
    {"NUL replaced", BYTES("a \0 b\n"), {"1 4 0 5 2"}, "'invalid_utf8': 'replace'"},
};

static void check_line_row(void **state)
{
    const struct line_row *r = *state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    int n = 0;
    while (n < 5 && r->lines[n]) n++;
    put_bytes("a", r->text, r->n);
    put_bytes("b", "x\nx\nx\nx\nx\n", (size_t)n * 2);
    char config[512];
    snprintf(config, sizeof config, "{" VOCABS ", " BUCKETS ", " FILES ", 'max_unknown': 1%s%s}",
             r->more ? ", " : "", r->more ? r->more : "");
    must_do(open_text(config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, false, &d, &st), &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    assert_int_equal(def->count(rd_dataset_self(d)), n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(ids_of(d, i, "source"), r->lines[i]);
        assert_string_equal(ids_of(d, i, "target"), "1 4 2");
    }
    rd_dataset_free(d);
}

/* ---- what is wrong ---- */
static struct bad_row {
    const char *name, *config, *source, *target;
    size_t n;
    rd_code code;
    const char *message;
    rd_mode mode;
    rd_split split;
} bad_rows[] = {
    {"unequal line counts", CONFIG, "a\nb\n", "x\n", 4, RD_EDATA, "a' has 2 lines, '", 0, 0},
    {"unequal line counts, the other number", CONFIG, "a\nb\n", "x\n", 4, RD_EDATA, "b' has 1;", 0,
     0},
    {"invalid UTF-8", CONFIG, "a\nbc \xE9t\n", "x\nx\n", 8, RD_EDATA,
     "/a:2:4: invalid UTF-8 (byte 0xE9)", 0, 0},
    {"NUL", CONFIG, "a\nb\nc\0\n", "x\n", 7, RD_EDATA, "/a:3:2: a NUL byte", 0, 0},
    {"huge line", "{" VOCABS ", " BUCKETS ", " FILES ", 'max_line_bytes': 8}", "a\nb b b b b\n",
     "x\n", 13, RD_EDATA, "/a:2: a line of more than 8 bytes", 0, 0},
    {"empty files", CONFIG, "", "", 0, RD_EDATA, "/a' is empty", 0, 0},
    {"missing file", "{" VOCABS ", " BUCKETS ", 'source_file': '@/none', 'target_file': '@/b'}",
     "a\n", "x\n", 2, RD_EDATA, "/none': No such file or directory; check the path", 0, 0},
    {"missing vocabulary key", "{'src_vocab_file': '@/v.src', " BUCKETS ", " FILES "}", "a\n",
     "x\n", 2, RD_EUSAGE, "tgt_vocab_file", 0, 0},
    {"missing source key", "{" VOCABS ", " BUCKETS ", 'target_file': '@/b'}", "a\n", "x\n", 2,
     RD_EUSAGE, "missing key 'source_file'", 0, 0},
    {"missing evaluation key", CONFIG, "a\n", "x\n", 2, RD_EUSAGE, "missing key 'source_file_eval'",
     RD_MODE_EVAL, RD_SPLIT_EVAL},
    {"missing target for a score", "{" VOCABS ", " BUCKETS ", 'source_file_test': '@/a'}", "a\n",
     "x\n", 2, RD_EUSAGE, "missing key 'target_file_test'", RD_MODE_EVAL, RD_SPLIT_TEST},
    {"more than half of the source is unknown", CONFIG, "a x y\nz b Ä\n", "x\nx\n", 13, RD_EDATA,
     "lacks 66.7 % of the words of ", 0, 0},
    {"the first unknown word", CONFIG, "a b\nc x\nÄy z w v u t\n", "x\nx\nx\n", 22, RD_EDATA,
     "the first is 'x' in line 2; check that it is the vocabulary of this text", 0, 0},
    {"all of the target is unknown", CONFIG, "a\nb\n", "a\nb\n", 4, RD_EDATA,
     "v.tgt' lacks 100.0 %", 0, 0},
    {"a smaller limit", "{" VOCABS ", " BUCKETS ", " FILES ", 'max_unknown': 0.1}", "a b c a x\n",
     "x\n", 10, RD_EDATA, "raise max_unknown (0.1)", 0, 0},
    {"a vocabulary with two words in a line",
     "{'src_vocab_file': '@/v.two', 'tgt_vocab_file': '@/v.tgt', " BUCKETS ", " FILES "}", "a b\n",
     "x\n", 4, RD_EDATA, "its line 1 is 'a b', but a line is one word: cut -d' ' -f1", 0, 0},
    {"no pair has words on both sides", CONFIG, "a\n \n\n", "\nx\n\xC2\xA0\n", 5, RD_EDATA,
     "has words in both lines", 0, 0},
    {"a line that is too long to translate",
     "{" VOCABS ", " BUCKETS ", 'source_file_test': '@/a', 'max_infer_tokens': 4}",
     "a b c a\na b c a b\n", "", 18, RD_EDATA,
     "/a:2: a line of 5 tokens, but the most to translate is 4", RD_MODE_INFER, RD_SPLIT_TEST},
    {"missing buckets", "{" VOCABS ", " FILES ", 'bucket_src': [50]}", "a\n", "x\n", 2, RD_EUSAGE,
     "missing key 'bucket_tgt'", 0, 0},
    {"an empty list of buckets", "{" VOCABS ", " FILES ", 'bucket_src': [], 'bucket_tgt': [50]}",
     "a\n", "x\n", 2, RD_EUSAGE,
     "'bucket_src' must be a list of integers, each 3 .. 65534, not [] (an empty list); meaning: "
     "source length limits",
     0, 0},
    {"an empty source key", "{" VOCABS ", " BUCKETS ", 'source_file': '', 'target_file': '@/b'}",
     "a\n", "x\n", 2, RD_EUSAGE, "empty key 'source_file'", 0, 0},
    {"an empty vocabulary key",
     "{'src_vocab_file': '@/v.src', 'tgt_vocab_file': '', " BUCKETS ", " FILES "}", "a\n", "x\n", 2,
     RD_EUSAGE, "empty key 'tgt_vocab_file'", 0, 0},
    {"buckets that do not ascend",
     "{" VOCABS ", " FILES ", 'bucket_src': [20, 20], 'bucket_tgt': [50]}", "a\n", "x\n", 2,
     RD_EUSAGE, "'bucket_src' must ascend, but 20 follows 20", 0, 0},
    {"nothing fits", "{" VOCABS ", " FILES ", 'bucket_src': [3], 'bucket_tgt': [50]}",
     "a b\na b c\n", "x\nx\n", 10, RD_EDATA, "no pair of", 0, 0},
    {"nothing fits, the lengths", "{" VOCABS ", " FILES ", 'bucket_src': [3], 'bucket_tgt': [50]}",
     "a b\na b c\n", "x\nx\n", 10, RD_EDATA, "longest source 5, target 3", 0, 0},
    {"standard input is for translation",
     "{" VOCABS ", " BUCKETS ", 'source_file': '-', 'target_file': '@/b'}", "a\n", "x\n", 2,
     RD_EUSAGE, "cannot be standard input", 0, 0},
    {"a member that is not there",
     "{" VOCABS ", " BUCKETS ", 'source_file': '@/t.tar.gz!no', 'target_file': '@/b'}", "a\n",
     "x\n", 2, RD_EDATA, "has no member 'no'; it has: deep/src, tgt", 0, 0},
    {"a member whose name is not UTF-8",
     "{" VOCABS ", " BUCKETS ", 'source_file': '@/latin.zip!größe', 'target_file': '@/b'}", "a\n",
     "x\n", 2, RD_EDATA,
     "it has: gr\xEF\xBF\xBD\xEF\xBF\xBD"
     "e; a name that is not UTF-8 cannot be given here",
     0, 0},
    {"an archive cut short",
     "{" VOCABS ", " BUCKETS ", 'source_file': '@/cut.gz', 'target_file': '@/b'}", "a\n", "x\n", 2,
     RD_EDATA, "cut.gz': truncated gzip input", 0, 0},
};

static void check_bad_row(void **state)
{
    const struct bad_row *r = *state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    put_bytes("a", r->source, r->n);
    put_bytes("b", r->target, strlen(r->target));
    assert_int_equal(
        open_text(r->config, r->mode ? r->mode : RD_MODE_TRAIN, r->split, false, &d, &st), r->code);
    assert_null(d);
    if (!strstr(st.msg, r->message)) fail_msg("'%s' is not in '%s'", r->message, st.msg);
}

/* ---- where a file may come from: always the same three lines ---- */
static struct from_row {
    const char *name, *source;
} from_rows[] = {
    {"gzip, by content", "@/gz"},
    {"xz", "@/xz"},
    {"tar.gz", "@/t.tar.gz!deep/src"},
    {"tar.xz", "@/t.tar.xz!deep/src"},
    {"zip", "@/ascii.zip!dir/src"},
    {"zip, a name marked as UTF-8", "@/marked.zip!größe"},
    {"zip, UTF-8 without the mark", "@/unmarked.zip!größe"},
    {"a plain file with ! in its name", "@/odd!name"},
};

static void check_from_row(void **state)
{
    const struct from_row *r = *state;
    char config[512];
    rd_status st = {0};
    rd_dataset *d = NULL;
    snprintf(config, sizeof config,
             "{" VOCABS ", " BUCKETS ", 'source_file': '%s', 'target_file': '@/t.tar.gz!tgt'}",
             r->source);
    must_do(open_text(config, RD_MODE_TRAIN, RD_SPLIT_TRAIN, false, &d, &st), &st);
    assert_int_equal(rd_dataset_def_of(d)->count(rd_dataset_self(d)), 3);
    assert_string_equal(ids_of(d, 0, "source"), "1 4 2");
    assert_string_equal(ids_of(d, 2, "source"), "1 6 4 2");
    assert_string_equal(ids_of(d, 2, "target"), "1 5 2");
    rd_dataset_free(d);
}

/* ---- blank lines, in pairs, of whatever white space, with every number of ranks ---- */
static void test_blank(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d = NULL, *e = NULL, *f = NULL;
    put_bytes("a", BYTES("a\n\nb\nc\n \t\na\n\n"));
    put_bytes("b", BYTES("x\nx\n\xE3\x80\x80\nx\n\nx\nx\n"));
    must_do(open_text(CONFIG, RD_MODE_TRAIN, RD_SPLIT_TRAIN, false, &d, &st), &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    static const bool source[] = {false, true, false, false, true, false, true};
    static const int bucket[] = {0, -1, -1, 0, -1, 0, -1};
    assert_int_equal(d->kept, 3);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(def->bucket(self, i), bucket[i]);
        assert_int_equal(def->blank(self, i), source[i]);
    }
    assert_non_null(strstr(def->fingerprint(self), ", 4 left out"));
    must_do(open_text("{" VOCABS ", " BUCKETS
                      ", 'source_file_eval': '@/a', 'target_file_eval': '@/b'}",
                      RD_MODE_EVAL, RD_SPLIT_EVAL, true, &e, &st),
            &st);
    assert_int_equal(e->kept, 7);
    assert_null(strstr(def->fingerprint(rd_dataset_self(e)), "left out"));
    put_bytes("a", BYTES("a\na\nb\nc\n"));
    put_bytes("b", BYTES("x\nx\nx\nx\n"));
    must_do(open_text(CONFIG, RD_MODE_TRAIN, RD_SPLIT_TRAIN, false, &f, &st), &st);
    assert_null(strstr(def->fingerprint(rd_dataset_self(f)), "left out"));
    rd_dataset_free(d);
    rd_dataset_free(e);
    rd_dataset_free(f);
}

/* ---- text that comes piece by piece ---- */
static void test_feed(void **state)
{
    (void)state;
    rd_status st = {0}, long_line = {0}, bad = {0};
    rd_dataset *d = NULL;
    must_do(open_text("{" VOCABS ", 'source_file_test': '/dev/null', 'max_infer_tokens': 4}",
                      RD_MODE_INFER, RD_SPLIT_TEST, true, &d, &st),
            &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    assert_int_equal(def->count(self), 0);
    must_do(def->feed(self,
                      BYTES("\xEF\xBB\xBF"
                            "a b\n\nc"),
                      0, &st),
            &st);
    assert_int_equal(def->count(self), 3);
    assert_string_equal(ids_of(d, 0, "source"), "1 4 5 2");
    assert_true(def->blank(self, 1));
    assert_string_equal(ids_of(d, 2, "source"), "1 6 2");
    must_do(def->feed(self, BYTES("dd\n"), 3, &st), &st);
    assert_int_equal(def->count(self), 1);
    assert_string_equal(ids_of(d, 0, "source"), "1 7 2");
    assert_int_equal(def->feed(self, BYTES("a\na b c a b\n"), 4, &long_line), RD_EDATA);
    assert_non_null(strstr(long_line.msg, "standard input:6: a line of 5 tokens"));
    assert_int_equal(def->feed(self, BYTES("a\n\xFF\n"), 6, &bad), RD_EDATA);
    assert_non_null(strstr(bad.msg, "standard input:8:1: invalid UTF-8"));
    rd_dataset_free(d);
}

/* ---- buckets: lengths 0..10 -> 0, 11..20 -> 1, 21..50 -> 2, 51..100 -> 3, 310 -> out ----
 * The original's own test. */
static void test_buckets(void **state)
{
    (void)state;
    static const struct {
        int source, target, bucket;
    } pairs[] = {{3, 3, 0},     {10, 10, 0},  {11, 3, 1},   {3, 11, 1},
                 {20, 20, 1},   {21, 20, 2},  {50, 50, 2},  {51, 3, 3},
                 {100, 100, 3}, {101, 3, -1}, {3, 310, -1}, {310, 310, -1}};
    enum { N = sizeof pairs / sizeof pairs[0] };
    rd_strbuf text[2] = {{0}, {0}};
    for (int i = 0; i < N; i++)
        for (int s = 0; s < 2; s++)
            for (int k = 2, n = s ? pairs[i].target : pairs[i].source; k < n; k++)
                rd_strbuf_puts(&text[s], k + 1 < n ? "a " : "a\n");
    put_bytes("a", text[0].s, text[0].n);
    put_bytes("b", text[1].s, text[1].n);
    for (int keep_all = 0; keep_all < 2; keep_all++) {
        rd_status st = {0};
        rd_dataset *d = NULL;
        if (open_text("{" VOCABS ", " FILES ", 'max_unknown': 1, 'bucket_src': [10, 20, 50, 100], "
                      "'bucket_tgt': [10, 20, 50, 100]}",
                      RD_MODE_TRAIN, RD_SPLIT_TRAIN, keep_all, &d, &st) != RD_OK)
            fail_msg("%s", st.msg);
        const rd_dataset_def *def = rd_dataset_def_of(d);
        assert_int_equal(def->n_buckets(rd_dataset_self(d)), 4);
        assert_int_equal(d->kept, keep_all ? N : N - 3);
        for (int i = 0; i < N; i++) {
            assert_int_equal(def->length(rd_dataset_self(d), i), pairs[i].source + pairs[i].target);
            assert_int_equal(def->bucket(rd_dataset_self(d), i),
                             keep_all && pairs[i].bucket < 0 ? 3 : pairs[i].bucket);
        }
        rd_dataset_free(d);
    }
    rd_strbuf_release(&text[0]);
    rd_strbuf_release(&text[1]);
}

static void test_translate_without_target(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_dataset *d = NULL;
    put_bytes("a", BYTES("a b\n\nc x dd\n"));
    const char *config = "{" VOCABS ", 'source_file_test': '@/a', 'target_file_test': '@/none'}";
    must_do(open_text(config, RD_MODE_INFER, RD_SPLIT_TEST, true, &d, &st), &st);
    const rd_dataset_def *def = rd_dataset_def_of(d);
    size_t n;
    assert_int_equal(def->count(rd_dataset_self(d)), 3);
    assert_string_equal(ids_of(d, 2, "source"), "1 6 0 7 2");
    assert_string_equal(ids_of(d, 2, "target"), "1 2");
    assert_int_equal(def->bucket(rd_dataset_self(d), 2), 0);
    assert_null(def->reference(rd_dataset_self(d), 0, &n));
    rd_dataset_free(d);
    put_bytes("a", "", 0); /* nothing to translate is no error */
    must_do(open_text(config, RD_MODE_INFER, RD_SPLIT_TEST, true, &d, &st), &st);
    rd_order *p = NULL;
    assert_int_equal(rd_order_new(d, 1, 0, 8, &(rd_order_rules){.shuffle = false}, &p, &st), RD_OK);
    assert_int_equal(rd_order_n_batches(p), 0);
    rd_order_free(p);
    rd_dataset_free(d);
}

static void test_output_and_reference(void **state)
{
    (void)state;
    static const int32_t ids[] = {RD_SOS, 4, RD_UNK, 5, RD_PAD, 99, 7, RD_EOS, 4, RD_PAD};
    static const struct {
        const char *more;
        bool specials;
        const char *want;
    } cases[] = {
        {"", false, "a b dd"},
        {", 'print_unk': true", false, "a <UNK> b dd"},
        {", 'delimiter': '_'", true, "<S>_a_b_<PAD>_dd_</S>_a_<PAD>"},
        {", 'delimiter': ''", false, "abdd"},
    };
    put_bytes("a", BYTES("a\nb\n"));
    put_bytes("b", BYTES("x  unknown words \r\n\n"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[512];
        rd_status st = {0};
        rd_dataset *d = NULL;
        snprintf(config, sizeof config,
                 "{" VOCABS ", 'source_file_eval': '@/a', 'target_file_eval': '@/b'%s}",
                 cases[i].more);
        must_do(open_text(config, RD_MODE_EVAL, RD_SPLIT_EVAL, true, &d, &st), &st);
        rd_strbuf b = {0};
        const rd_dataset_def *def = rd_dataset_def_of(d);
        def->text(rd_dataset_self(d), 0, ids, sizeof ids / sizeof ids[0], cases[i].specials, &b);
        assert_string_equal(rd_strbuf_str(&b), cases[i].want);
        rd_strbuf_release(&b);
        size_t n;
        assert_string_equal(def->reference(rd_dataset_self(d), 0, &n), "x  unknown words");
        assert_int_equal(n, 16);
        assert_string_equal(def->reference(rd_dataset_self(d), 1, &n), "");
        rd_dataset_free(d);
    }
}

/* A shard keeps its lines, knows all lengths, and has the whole text's hash. */
static void test_shards(void **state)
{
    (void)state;
    static const char text[] = "a b c\nb\n\na a a a a\nx\nb c\ndd\n";
    static const int length[] = {5, 3, 3, 7, 3, 4, 3};
    const rd_lines_opts o = {.max_line_bytes = 100};
    rd_status st = {0};
    rd_vocab *v = NULL;
    rd_side whole = {0};
    rd_lines *l = NULL;
    assert_int_equal(rd_vocab_new_mem("v", BYTES("a\nb\nc\ndd\n"), false, &v, &st), RD_OK);
    const rd_side_args shared = {.vocab = v, .size = 1, .shared = true};
    assert_int_equal(rd_lines_new_mem("t", BYTES(text), o, &l, &st), RD_OK);
    assert_int_equal(rd_side_read(&whole, l, &shared, &st), RD_OK);
    rd_lines_free(l);
    for (int size = 1; size <= 9; size++)
        for (int rank = 0; rank < size; rank++) {
            rd_side s = {0};
            const rd_side_args part = {.vocab = v, .rank = rank, .size = size};
            assert_int_equal(rd_lines_new_mem("t", BYTES(text), o, &l, &st), RD_OK);
            assert_int_equal(rd_side_read(&s, l, &part, &st), RD_OK);
            rd_lines_free(l);
            assert_int_equal(s.head.n_lines, 7);
            assert_int_equal(s.head.n_tokens, whole.head.n_tokens);
            assert_true(s.head.hash == whole.head.hash);
            for (int i = 0; i < 7; i++) {
                assert_int_equal(rd_side_length(&s, i), length[i]);
                if (i % size != rank) continue;
                int32_t mine[8], theirs[8];
                assert_int_equal(rd_side_n_ids(&s, i), length[i]);
                must_do(rd_side_ids(&s, i, mine, &st), &st);
                must_do(rd_side_ids(&whole, i, theirs, &st), &st);
                assert_memory_equal(mine, theirs, (size_t)length[i] * sizeof(int32_t));
            }
            rd_side_release(&s);
        }
    rd_side_release(&whole);
    rd_vocab_free(v);
}

/* A vocabulary of more than 65,535 ids: four bytes a token. */
static void test_wide_ids(void **state)
{
    (void)state;
    rd_strbuf words = {0};
    for (int i = 0; i < 70000; i++) rd_strbuf_printf(&words, "w%d\n", i);
    put_bytes("v.wide", words.s, words.n);
    rd_strbuf_release(&words);
    put_bytes("a", BYTES("w0 w69999 w65531 w65532\n"));
    put_bytes("b", BYTES("x\n"));
    rd_status st = {0};
    rd_dataset *d = NULL;
    if (open_text("{'src_vocab_file': '@/v.wide', 'tgt_vocab_file': '@/v.tgt', " BUCKETS ", " FILES
                  "}",
                  RD_MODE_TRAIN, RD_SPLIT_TRAIN, false, &d, &st) != RD_OK)
        fail_msg("%s", st.msg);
    assert_string_equal(ids_of(d, 0, "source"), "1 4 70003 65535 65536 2");
    rd_dataset_free(d);
}

/* More lines and longer ones than one buffer: 3 MB with lines up to 600 KB. */
static void test_long_text(void **state)
{
    (void)state;
    rd_strbuf b = {0}, lengths = {0};
    int64_t want = 0;
    for (int i = 0; i < 60; i++) {
        const int n = i % 10 == 9 ? 300000 : 1 + i * 7919 % 20000;
        for (int k = 0; k < n; k++) rd_strbuf_puts(&b, k + 1 < n ? "a " : "b\n");
        rd_strbuf_printf(&lengths, "%d ", n);
        want += n;
    }
    const rd_lines_opts o = {.max_line_bytes = 1 << 20};
    rd_status st = {0};
    rd_vocab *v = NULL;
    rd_lines *l = NULL;
    rd_side s = {0};
    assert_int_equal(rd_vocab_new_mem("v", BYTES("a\nb\n"), false, &v, &st), RD_OK);
    assert_int_equal(rd_lines_new_mem("t", b.s, b.n, o, &l, &st), RD_OK);
    const rd_side_args all = {.vocab = v, .size = 1, .keep_raw = true, .shared = true},
                       every_other = {.vocab = v, .size = 2};
    assert_int_equal(rd_side_read(&s, l, &all, &st), RD_OK);
    rd_lines_free(l);
    assert_int_equal(s.head.n_tokens, want);
    assert_int_equal(s.head.n_unknown, 0);
    assert_int_equal(s.head.longest, 300002);
    rd_side half = {0}; /* knows the lengths of lines that it does not hold, too */
    assert_int_equal(rd_lines_new_mem("t", b.s, b.n, o, &l, &st), RD_OK);
    assert_int_equal(rd_side_read(&half, l, &every_other, &st), RD_OK);
    rd_lines_free(l);
    const char *line = b.s;
    char *p = lengths.s;
    for (int64_t i = 0; i < 60; i++) {
        const int64_t n = strtol(p, &p, 10);
        assert_int_equal(rd_side_n_ids(&s, i), n + 2);
        assert_int_equal(rd_side_length(&s, i), n + 2);
        assert_int_equal(rd_side_length(&half, i), n + 2);
        int32_t *ids = malloc((size_t)(n + 2) * sizeof *ids);
        assert_non_null(ids);
        must_do(rd_side_ids(&s, i, ids, &st), &st);
        assert_int_equal(ids[0], RD_SOS);
        assert_int_equal(ids[n], 5);
        assert_int_equal(ids[n + 1], RD_EOS);
        for (int64_t k = 1; k < n; k++)
            if (ids[k] != 4) fail_msg("line %" PRId64 ", token %" PRId64 " is %d", i, k, ids[k]);
        free(ids);
        size_t raw;
        assert_memory_equal(rd_side_raw(&s, i, &raw), line, (size_t)n * 2 - 1);
        assert_int_equal(raw, n * 2 - 1);
        line += n * 2;
    }
    rd_side_release(&half);
    rd_side_release(&s);
    rd_vocab_free(v);
    rd_strbuf_release(&b);
    rd_strbuf_release(&lengths);
}

/* Equal text gives an equal fingerprint whatever its line ends; one other letter another one. */
static void test_fingerprint(void **state)
{
    (void)state;
    static const char *const text[] = {"a b\nc\n", "a b\r\nc", "a c\nc\n"};
    char print[3][256];
    for (int i = 0; i < 3; i++) {
        rd_status st = {0};
        rd_dataset *d = NULL;
        put_bytes("a", text[i], strlen(text[i]));
        put_bytes("b", BYTES("x\nx\n"));
        must_do(open_text(CONFIG, RD_MODE_TRAIN, RD_SPLIT_TRAIN, false, &d, &st), &st);
        snprintf(print[i], sizeof print[i], "%s",
                 rd_dataset_def_of(d)->fingerprint(rd_dataset_self(d)));
        rd_dataset_free(d);
    }
    assert_string_equal(print[0], print[1]);
    assert_string_not_equal(print[0], print[2]);
}

static int make_files(void **state)
{
    if (make_dir(state) != 0) return -1;
    static const char *const one[][2] = {{"x", "a\nb\nc a\n"}, {NULL, NULL}};
    static const char *const tar[][2] = {
        {"./deep/src", "a\nb\nc a\n"}, {"tgt", "x\nx\ny\n"}, {NULL, NULL}};
    put_bytes("v.src", BYTES("a\t9\nb\t5\nc\t1\ndd\n"));
    put_bytes("v.two", BYTES("a b\nc d\n"));
    put_bytes("v.tgt", BYTES("x\ny\n"));
    put_bytes("odd!name", BYTES("a\nb\nc a\n"));
    put_zip("ascii.zip", "dir/src", false, one[0][1]);
    put_zip("marked.zip",
            "gr\xC3\xB6\xC3\x9F"
            "e",
            true, one[0][1]);
    put_zip("unmarked.zip",
            "gr\xC3\xB6\xC3\x9F"
            "e",
            false, one[0][1]);
    put_zip("latin.zip",
            "gr\xF6\xDF"
            "e",
            false, one[0][1]);
    put_archive("gz", ARCHIVE_FILTER_GZIP, true, one);
    put_archive("xz", ARCHIVE_FILTER_XZ, true, one);
    put_archive("t.tar.gz", ARCHIVE_FILTER_GZIP, false, tar);
    put_archive("t.tar.xz", ARCHIVE_FILTER_XZ, false, tar);
    char bytes[64];
    FILE *f = fopen(in_dir("gz"), "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    put_bytes("cut.gz", bytes, n - 12);
    return 0;
}

/* Reads files to the end. Their stored bytes are done evenly, though libarchive and the buffer read
 * ahead. */
static void reads_evenly(const char *const *files, int n, int64_t lines)
{
    const char *at[2] = {in_dir(files[0]), in_dir(files[n - 1])};
    rd_text_files f = {.at = (char **)(uintptr_t)at, .n = n};
    rd_status st = {0};
    rd_lines *l;
    int64_t i = 0, before = 0;
    const double all = (double)rd_text_files_disk(&f);
    assert_true(all > 1000.0);
    must_do(rd_lines_new_list(at, n, (rd_lines_opts){.max_line_bytes = 100}, &l, &st), &st);
    for (const char *line = "";; i++) {
        size_t bytes;
        must_do(rd_lines_next(l, &line, &bytes, &st), &st);
        const int64_t done = rd_lines_disk(l);
        if (done < before) fail_msg("%s: %" PRId64 " after %" PRId64, files[0], done, before);
        before = done;
        if (i == lines / 2 && ((double)done < 0.45 * all || (double)done > 0.90 * all))
            fail_msg("%s: %.2f of it are done at half of the lines", files[0], (double)done / all);
        if (!line) break;
    }
    assert_int_equal(i, lines);
    if ((double)before < 0.98 * all || (double)before > all)
        fail_msg("%s: %.2f of it are done at the end", files[0], (double)before / all);
    rd_lines_free(l);
}

static void test_share(void **state)
{
    enum { LINES = 150000, BYTES = 12 };
    static const char *const plain[] = {"big"}, *const gz[] = {"big.gz"},
                             *const member[] = {"big.tar.gz!b"}, *const both[] = {"big", "big.gz"};
    char *text = malloc(LINES * BYTES + 1);
    (void)state;
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        snprintf(text + (size_t)i * BYTES, BYTES + 1, "%011u\n", (unsigned)i * 2654435761u);
    const char *const one[][2] = {{"b", text}, {NULL, NULL}}, *const three[][2] = {{"a", "x\n"},
                                                                                   {"b", text},
                                                                                   {"c", text},
                                                                                   {NULL, NULL}};
    put_bytes("big", text, (size_t)LINES * BYTES);
    put_archive("big.gz", ARCHIVE_FILTER_GZIP, true, one);
    put_archive("big.tar.gz", ARCHIVE_FILTER_GZIP, false, three);
    free(text);
    reads_evenly(plain, 1, LINES);
    reads_evenly(gz, 1, LINES);
    reads_evenly(member, 1, LINES);
    reads_evenly(both, 2, 2 * LINES);
}

RD_TESTS_WITH("text", make_files, remove_dir, TEST_ROWS(check_line_row, line_rows),
              TEST_ROWS(check_bad_row, bad_rows), TEST_ROWS(check_from_row, from_rows),
              TEST(test_blank), TEST(test_feed), TEST(test_buckets),
              TEST(test_translate_without_target), TEST(test_output_and_reference),
              TEST(test_shards), TEST(test_share), TEST(test_wide_ids), TEST(test_long_text),
              TEST(test_fingerprint))
