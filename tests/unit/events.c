/* events.c -- tests event files: byte for byte what TensorBoard's own builders make, and read
 * back with every CRC.
 *
 * The golden records are in tests/fuzz/corpus/events/tensorboard.tfevents;
 * tests/support/make_events_corpus.py made them. check_events.py reads the files of this test
 * with TensorBoard's own reader. */
#include "../../runner/io/events_impl.h"
#include "rd/file.h"
#include "test.h"
#include "scratch_dir.h"
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <unistd.h>

static const char corpus[] = "tests/fuzz/corpus/events/";
static const double wall = 1234.5;
/* ---- golden records ---- */

static void body_version(rd_strbuf *b)
{
    rd_strbuf_puts(b, "brain.Event:2");
}

static void body_start(rd_strbuf *b)
{
    rd_pb_uint(b, 1, 1);
}

static void body_scalar(rd_strbuf *b)
{
    rd_summary_scalar(b, "loss", 0.5);
}

static void body_nan(rd_strbuf *b)
{
    rd_summary_scalar(b, "a/b", (double)NAN);
}

static void body_histogram(rd_strbuf *b)
{
    float x[104];
    for (int i = 0; i < 100; i++) x[i + 2] = (float)(i * 37 % 101) / 8 - 3;
    x[0] = INFINITY; /* what is not finite is left out: NumPy was given the hundred values alone */
    x[1] = NAN;
    x[102] = -INFINITY;
    x[103] = NAN;
    rd_summary_histogram(b, "w", x, 104);
}

static void body_same(rd_strbuf *b)
{
    static const float x[5] = {2.5f, 2.5f, 2.5f, 2.5f, 2.5f};
    rd_summary_histogram(b, "same", x, 5);
}

static void body_none(rd_strbuf *b)
{
    rd_summary_histogram(b, "none", NULL, 0);
}

static void body_text(rd_strbuf *b)
{
    rd_summary_text(b, "note",
                    "# Title\n\nGr\xc3\xbc\xc3\x9f"
                    "e");
}

static void body_image(rd_strbuf *b)
{
    static const uint8_t pixels[6] = {255, 0, 0, 0, 0, 255};
    rd_strbuf png = {0};
    rd_png(&png, 2, 1, 3, pixels);
    rd_summary_image(b, "picture", 2, 1, &png);
    rd_strbuf_release(&png);
}

static void body_experiment(rd_strbuf *b)
{
    rd_strbuf content = {0};
    rd_hparams_experiment(&content, NULL, NULL, 0, NULL, wall);
    rd_summary_plugin(b, "_hparams_/experiment", "hparams", &content);
    rd_strbuf_release(&content);
}

static void body_session(rd_strbuf *b)
{
    rd_strbuf content = {0};
    json_t *flat = json_pack("{s:f}", "lr", 0.5);
    rd_hparams_start(&content, flat, wall);
    rd_summary_plugin(b, "_hparams_/session_start_info", "hparams", &content);
    json_decref(flat);
    rd_strbuf_release(&content);
}

static struct golden_row {
    const char *name;
    size_t offset, bytes; /* in tensorboard.tfevents */
    int64_t step;
    int field;
    void (*body)(rd_strbuf *b);
} golden_rows[] = {
    {"file version", 0, 40, 0, RD_EVENT_FILE_VERSION, body_version},
    {"session start", 40, 29, 0, RD_EVENT_SESSION_LOG, body_start},
    {"scalar", 69, 42, 7, RD_EVENT_SUMMARY, body_scalar},
    {"NaN at a huge step", 111, 46, (int64_t)1 << 40, RD_EVENT_SUMMARY, body_nan},
    {"histogram", 157, 790, 1, RD_EVENT_SUMMARY, body_histogram},
    {"histogram of equal values", 947, 793, 2, RD_EVENT_SUMMARY, body_same},
    {"histogram of nothing", 1740, 793, 3, RD_EVENT_SUMMARY, body_none},
    {"text", 2533, 71, 4, RD_EVENT_SUMMARY, body_text},
    {"image", 2604, 145, 5, RD_EVENT_SUMMARY, body_image},
    {"experiment", 2749, 85, 0, RD_EVENT_SUMMARY, body_experiment},
    {"session start info", 2834, 110, 0, RD_EVENT_SUMMARY, body_session},
};

static void check_golden(void **state)
{
    const struct golden_row *r = *state;
    char path[256], *want;
    size_t n;
    rd_status st = {0};
    rd_strbuf body = {0}, record = {0};
    snprintf(path, sizeof path, "%stensorboard.tfevents", corpus);
    assert_int_equal(rd_file_read(path, RD_EDATA, &want, &n, &st), RD_OK);
    assert_true(r->offset + r->bytes <= n);
    r->body(&body);
    rd_event_record(&record, wall, r->step, r->field, &body);
    assert_false(record.failed);
    assert_int_equal(record.n, r->bytes);
    assert_memory_equal(record.s, want + r->offset, r->bytes);
    rd_strbuf_release(&body);
    rd_strbuf_release(&record);
    free(want);
}

/* Three stored blocks. The checksum is that of Python's zlib.adler32 over the rows with their
 * filter bytes. */
static void large_image_has_its_checksum(void **state)
{
    (void)state;
    enum { W = 200, H = 300, RAW = H * (1 + W * 3), IDAT = 2 + RAW + 3 * 5 + 4 };
    uint8_t *pixels = malloc((size_t)W * H * 3);
    rd_strbuf png = {0};
    assert_non_null(pixels);
    for (int k = 0; k < W * H * 3; k++) pixels[k] = (uint8_t)(k * 7);
    rd_png(&png, W, H, 3, pixels);
    assert_int_equal(png.n, 8 + 25 + 12 + IDAT + 12);
    assert_memory_equal(png.s + 8 + 25 + 8 + IDAT - 4, "\xab\x03\x42\x93", 4);
    rd_strbuf_release(&png);
    free(pixels);
}

/* ---- reading ---- */

static struct seen {
    int n;
    struct {
        int64_t step;
        double wall, value;
        char tag[64], kind[16];
    } v[64];
} seen;

static void on_value(void *ctx, int64_t step, double w, const char *tag, const char *kind,
                     double value)
{
    struct seen *s = ctx;
    assert_true(s->n < 64);
    s->v[s->n].step = step;
    s->v[s->n].wall = w;
    s->v[s->n].value = value;
    snprintf(s->v[s->n].tag, sizeof s->v[0].tag, "%s", tag);
    snprintf(s->v[s->n++].kind, sizeof s->v[0].kind, "%s", kind);
}

static void reads_tensorboards_own(void **state)
{
    (void)state;
    static const struct {
        int64_t step;
        const char *tag, *kind;
        double value;
    } want[] = {
        {7, "loss", "scalar", 0.5},
        {(int64_t)1 << 40, "a/b", "scalar", (double)NAN},
        {1, "w", "histogram", 100},
        {2, "same", "histogram", 5},
        {3, "none", "histogram", 0},
        {4, "note", "text", 16},
        {5, "picture", "image", 77},
        {0, "_hparams_/experiment", "hparams", 0},
        {0, "_hparams_/session_start_info", "hparams", 0},
        {8, "tensor", "scalar", 0.25},
        {9, "double", "scalar", 0.125},
        {10, "old", "histogram", 6},
        {11, "old_picture", "image", 81},
    };
    char path[256];
    rd_status st = {0};
    seen.n = 0;
    snprintf(path, sizeof path, "%stensorboard.tfevents", corpus);
    assert_int_equal(rd_events_read(path, on_value, &seen, &st), RD_OK);
    assert_int_equal(seen.n, sizeof want / sizeof want[0]);
    for (int i = 0; i < seen.n; i++) {
        assert_int_equal(seen.v[i].step, want[i].step);
        assert_string_equal(seen.v[i].tag, want[i].tag);
        assert_string_equal(seen.v[i].kind, want[i].kind);
        assert_true(seen.v[i].wall == wall);
        if (want[i].value == want[i].value)
            assert_true(seen.v[i].value == want[i].value);
        else
            assert_true(isnan(seen.v[i].value));
    }
}

static struct bad_row {
    const char *file;
    int n;            /* values before the end */
    const char *want; /* part of the message; NULL: no error */
} bad_rows[] = {
    {"cut.tfevents", 2, NULL},
    {"empty.tfevents", 0, NULL},
    {"flipped.tfevents", 0, "bad record at byte 69: the checksum of its 26 bytes is wrong"},
    {"no-event.tfevents", 0, "bad record at byte 0: the checksum of its length is wrong"},
    {"varint-without-end.tfevents", 0, "at byte 0: not an event"},
    {"bytes-past-end.tfevents", 0, "at byte 0: not an event"},
    {"nested-past-end.tfevents", 0, "at byte 0: not an event"},
    {"group.tfevents", 0, "at byte 0: not an event"},
    {"field-0.tfevents", 0, "at byte 0: not an event"},
    {"deep.tfevents", 0, "at byte 0: not an event"},
    {"missing.tfevents", 0, "missing.tfevents"},
};

static void check_bad(void **state)
{
    const struct bad_row *r = *state;
    char path[256];
    rd_status st = {0};
    seen.n = 0;
    snprintf(path, sizeof path, "%s%s", corpus, r->file);
    (void)rd_events_read(path, on_value, &seen, &st);
    assert_int_equal(seen.n, r->n);
    assert_int_equal(st.code, r->want ? RD_EDATA : RD_OK);
    if (r->want && !strstr(st.msg, r->want)) fail_msg("'%s' is not in '%s'", r->want, st.msg);
    if (r->want && !strstr(st.msg, r->file)) fail_msg("no file name in '%s'", st.msg);
}

/* A file that is cut anywhere: whole records are read. A bit flipped anywhere is found, unless
 * the file seems to end there. */
static void every_cut_and_flip_is_defined(void **state)
{
    (void)state;
    char path[256], *file;
    size_t n;
    rd_status st = {0};
    snprintf(path, sizeof path, "%stensorboard.tfevents", corpus);
    assert_int_equal(rd_file_read(path, RD_EDATA, &file, &n, &st), RD_OK);
    for (size_t cut = 0; cut <= n; cut++) {
        rd_status one = {0};
        char *part = malloc(cut + 1);
        assert_non_null(part);
        memcpy(part, file, cut);
        seen.n = 0;
        assert_int_equal(rd_events_read_mem(part, cut, on_value, &seen, &one), RD_OK);
        assert_int_equal(seen.n == 13, cut == n);
        free(part);
    }
    for (size_t i = 0; i < n; i++) {
        rd_status one = {0};
        file[i] ^= (char)(1 << i % 8);
        assert_int_equal(rd_events_read_mem(file, n, NULL, NULL, &one), RD_EDATA);
        file[i] ^= (char)(1 << i % 8);
    }
    free(file);
}

/* ---- writing a file ---- */

static const char *only_file(void)
{
    static char path[768];
    DIR *d = opendir(dir);
    assert_non_null(d);
    path[0] = '\0';
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        assert_string_equal(path, ""); /* one alone */
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    }
    closedir(d);
    assert_non_null(strstr(path, "/events.out.tfevents."));
    return path;
}

static void write_all(int64_t start_step, rd_events **e, rd_status *st)
{
    static const uint8_t grey[6] = {0, 50, 100, 150, 200, 250};
    static const rd_event_metric results[] = {
        {"", "loss"}, {"eval", "metrics/BLEU"}, {.tag = NULL}};
    static const char *const columns[] = {"optimizer", "lr", "missing", NULL};
    static const rd_event_chart charts[] = {{"Loss", "loss", {"loss$"}},
                                            {"Speed", "speed", {"a", "b"}},
                                            {"Speed", "waits", {"c"}},
                                            {.title = NULL}};
    float x[1000];
    for (int i = 0; i < 1000; i++) x[i] = (float)i;
    json_t *flat = json_pack("{s:f, s:i, s:b, s:s, s:[i,i], s:n}", "lr", 0.25, "batch_size", 64,
                             "shuffle", 1, "optimizer", "Adam", "list", 1, 2, "nothing");
    assert_int_equal(rd_events_new(dir, start_step, e, st), RD_OK);
    assert_int_equal(rd_events_hparams(*e, flat, columns, 1, results, st), RD_OK);
    assert_int_equal(rd_events_layout(*e, charts, st), RD_OK);
    assert_int_equal(rd_events_text(*e, start_step, "config", "```json\n{}\n```\n", st), RD_OK);
    for (int64_t s = start_step + 1; s <= start_step + 5; s++)
        assert_int_equal(rd_events_scalar(*e, s, "loss", 10.0 / (double)s, st), RD_OK);
    assert_int_equal(rd_events_histogram(*e, start_step + 5, "weights/w", x, 1000, st), RD_OK);
    assert_int_equal(rd_events_image(*e, start_step + 5, "image", 3, 2, 1, grey, st), RD_OK);
    uint8_t *large = malloc(200 * 300 * 4); /* more than one deflate block */
    assert_non_null(large);
    for (int k = 0; k < 200 * 300 * 4; k++) large[k] = (uint8_t)(k * 7);
    assert_int_equal(rd_events_image(*e, start_step + 5, "large", 200, 300, 4, large, st), RD_OK);
    assert_int_equal(rd_events_flush(*e, st), RD_OK);
    free(large);
    json_decref(flat);
}

static void writes_and_reads_back(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_events *e;
    empty_dir();
    write_all(0, &e, &st);
    seen.n = 0;
    assert_int_equal(rd_events_read(only_file(), on_value, &seen, &st),
                     RD_OK); /* before it is closed: nothing is held back */
    assert_int_equal(seen.n, 12);
    assert_string_equal(seen.v[4].tag, "loss");
    assert_true(seen.v[5].value == 5.0);
    assert_true(seen.v[5].wall > 1.7e9);
    assert_int_equal(rd_events_end(e, 1, &st), RD_OK);
    rd_events_free(e);
    rd_events_free(NULL);
    assert_int_equal(rd_events_image(NULL, 0, "x", 2, 2, 2, NULL, &st), RD_EBUG);
}

/* What a scan has found. */
static struct scanned {
    int n, images;
    int64_t step;
    size_t bytes;
    char text[64];
} scanned;

static void on_blob(void *ctx, const rd_event_blob *b)
{
    struct scanned *s = ctx;
    s->n++;
    s->images += b->image;
    s->step = b->step;
    s->bytes = b->n;
    memset(s->text, 0, sizeof s->text);
    if (!b->image && b->n < sizeof s->text) memcpy(s->text, b->bytes, b->n);
}

/* A record of more than a block, texts among other records, a limit, a cut file. */
static void scans_texts_and_images(void **state)
{
    (void)state;
    static const char *const texts[] = {"config", NULL}, *const images[] = {"large", "imag", NULL};
    rd_status st = {0};
    rd_events *e;
    struct stat sb;
    enum { SIDE = 700 };
    uint8_t *pixels = calloc(SIDE * SIDE, 3);
    assert_non_null(pixels);
    empty_dir();
    write_all(0, &e, &st);
    assert_int_equal(rd_events_image(e, 9, "large", SIDE, SIDE, 3, pixels, &st), RD_OK);
    assert_int_equal(rd_events_text(e, 10, "config", "last", &st), RD_OK);
    rd_events_free(e);
    free(pixels);
    assert_int_equal(stat(only_file(), &sb), 0);
    scanned = (struct scanned){.n = 0};
    assert_int_equal(rd_events_scan(only_file(), texts, INT64_MAX, on_blob, &scanned), sb.st_size);
    assert_int_equal(scanned.n, 2);
    assert_int_equal(scanned.step, 10);
    assert_string_equal(scanned.text, "last");
    scanned = (struct scanned){.n = 0};
    (void)rd_events_scan(only_file(), images, INT64_MAX, on_blob, &scanned);
    assert_int_equal(scanned.images, 3); /* "image", and twice "large" */
    assert_true(scanned.bytes > SIDE * SIDE * 3);
    scanned = (struct scanned){.n = 0};
    (void)rd_events_scan(only_file(), texts, 1000, on_blob, &scanned);
    assert_int_equal(scanned.n, 1);
    FILE *f = fopen(only_file(), "r+b"); /* a letter of the last text: its checksum is wrong */
    assert_non_null(f);
    assert_int_equal(fseek(f, -18, SEEK_END), 0);
    assert_int_equal(fputc('L', f), 'L');
    assert_int_equal(fclose(f), 0);
    scanned = (struct scanned){.n = 0};
    (void)rd_events_scan(only_file(), texts, INT64_MAX, on_blob, &scanned);
    assert_int_equal(scanned.n, 1);
    assert_int_equal(truncate(only_file(), sb.st_size - 3), 0);
    scanned = (struct scanned){.n = 0};
    (void)rd_events_scan(only_file(), texts, INT64_MAX, on_blob, &scanned);
    assert_int_equal(scanned.n, 1);
    assert_int_equal(rd_events_scan("/nowhere", texts, INT64_MAX, on_blob, &scanned), 0);
}

/* For check_events.py: a run that is cut off at step 5 and resumed from step 3. A viewer then shows
 * 1 2 3 4' 5' ... 8'. */
static void a_resumed_run_has_two_files(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_events *e;
    empty_dir();
    write_all(0, &e, &st);
    rd_events_free(e);
    write_all(3, &e, &st);
    assert_int_equal(rd_events_end(e, 1, &st), RD_OK);
    rd_events_free(e);
}

static void full_disk_leaves_whole_records(void **state)
{
    (void)state;
    struct rlimit was, now;
    rd_status st = {0};
    rd_events *e;
    int failed = 0;
    empty_dir();
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(rd_events_new(dir, 0, &e, &st), RD_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    now = was;
    for (rlim_t limit = 75; limit < 500;
         limit += 7) { /* a record has 42 bytes: some are cut, then there is room again */
        rd_status one = {0};
        now.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        failed += rd_events_scalar(e, (int64_t)limit, "loss", 1, &one) != RD_OK;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        if (one.code != RD_OK) {
            assert_int_equal(one.code, RD_EENV);
            assert_non_null(strstr(one.msg, "tfevents"));
        }
    }
    (void)signal(SIGXFSZ, old);
    rd_events_free(e);
    assert_true(failed > 5);
    seen.n = 0;
    assert_int_equal(rd_events_read(only_file(), on_value, &seen, &st), RD_OK);
    assert_int_equal(seen.n, 61 - failed);
}

static void no_folder_is_told(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_events *e;
    assert_int_equal(rd_events_new("/proc/nowhere", 0, &e, &st), RD_EENV);
    assert_null(e);
    assert_non_null(strstr(st.msg, "/proc/nowhere"));
}

RD_TESTS_WITH("events", make_dir, remove_dir, TEST_ROWS(check_golden, golden_rows),
              TEST_ROWS_BY(check_bad, bad_rows, file), TEST(large_image_has_its_checksum),
              TEST(reads_tensorboards_own), TEST(every_cut_and_flip_is_defined),
              TEST(writes_and_reads_back), TEST(full_disk_leaves_whole_records),
              TEST(no_folder_is_told), TEST(scans_texts_and_images),
              /* last: its files stay for check_events.py */ TEST(a_resumed_run_has_two_files))
