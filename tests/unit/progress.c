/* progress.c -- how far a phase is: what a terminal shows, and what a file gets. */
#include "../../runner/data/images_impl.h"
#include "../../runner/data/lm_impl.h"
#include "../../runner/run/progress.h"
#include "image_files.h"
#include "rd/checkpoint.h"
#include "rd/safetensors.h"
#include "rd/weights_folder.h"
#include "test.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <termios.h>

static char got[4096];

/* A pseudo-terminal, or the test is skipped. Returns the side that a person sees. */
static int terminal(FILE **tty)
{
    struct termios t;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    *tty = fopen(ptsname(master), "r+");
    if (!*tty) skip();
    tcgetattr(fileno(*tty), &t);
    cfmakeraw(&t);
    tcsetattr(fileno(*tty), TCSANOW, &t);
    return master;
}

/* Reads what the terminal shows until it has this text. */
static void shows(int master, const char *text)
{
    size_t n = 0;
    got[0] = '\0';
    while (!strstr(got, text)) {
        struct pollfd wait = {.fd = master, .events = POLLIN};
        if (poll(&wait, 1, 10000) < 1) fail_msg("'%s' is not in '%s'", text, got);
        const ssize_t k = read(master, got + n, sizeof got - 1 - n);
        assert_true(k > 0);
        n += (size_t)k;
        got[n] = '\0';
    }
}

/* Makes the phase older: `done` of its steps took `seconds`, and nothing was shown for long. */
static void age(progress *p, double seconds)
{
    p->begin_ns = rd_now_ns() - (int64_t)(seconds * 1e9);
    p->shown_ns = p->begin_ns - INT64_C(100000000000);
}

static void test_terminal(void **state)
{
    rd_world w = {.rank = 0, .size = 4, .comm = "self"};
    rd_run r = {.world = &w};
    rd_status st = {0};
    FILE *tty;
    progress p;
    const int master = terminal(&tty);
    (void)state;
    must_do(rd_log_new(0, "h", tty, &r.log, &st), &st);
    progress_start(&p, &r, "evaluation", "image", 10000);
    assert_true(p.watched);
    progress_at(&p, 1); /* too early */
    age(&p, 10.0);
    progress_at(&p, 2500);
    shows(master, "\033[K");
    assert_string_equal(got, "\revaluation: 2,500 of 10,000 images  25 %  eta 30s\033[K");
    age(&p, 10.0);
    progress_mine(&p, 5000); /* this rank's part of four */
    shows(master, "\033[K");
    assert_string_equal(got, "\revaluation: 10,000 of 10,000 images  100 %  eta 0s\033[K");
    progress_end(&p);
    shows(master, "\r\033[K");
    progress_start(&p, &r, "saving", NULL, 0);
    p.all = 3;
    age(&p, 4.0);
    progress_at(&p, 1);
    shows(master, "\rsaving: 33 %  eta 8s\033[K");
    progress_start(&p, &r, "reading", "image", 0);
    age(&p, 4.0);
    progress_at(&p, 7);
    shows(master, "reading: 7 images\033[K");
    rd_log_free(r.log);
    fclose(tty);
    close(master);
}

static void test_file(void **state)
{
    rd_world w = {.rank = 0, .size = 1, .comm = "self"};
    rd_run r = {.world = &w};
    rd_status st = {0};
    progress p;
    FILE *f = tmpfile();
    (void)state;
    assert_non_null(f);
    must_do(rd_log_new(0, "h", f, &r.log, &st), &st);
    progress_start(&p, &r, "decoding", "sentence", 4);
    assert_false(p.watched);
    p.shown_ns -= INT64_C(59000000000);
    progress_at(&p, 1); /* not a minute yet */
    age(&p, 60.0);
    progress_at(&p, 3);
    progress_at(&p, 4);
    progress_end(&p);
    rd_log_free(r.log);
    rewind(f);
    assert_non_null(fgets(got, sizeof got, f));
    assert_string_equal(got, "decoding: 3 of 4 sentences  75 %  eta 20s\n");
    assert_null(fgets(got, sizeof got, f));
    fclose(f);
}

/* Makes the reading of images older. */
static void age_reading(rd_images *m, double seconds)
{
    m->reading.begin_ns = rd_now_ns() - (int64_t)(seconds * 1e9);
    m->reading.live_ns = m->reading.begin_ns;
}

static void test_images(void **state)
{
    rd_status st = {0};
    rd_images m = {.split = RD_SPLIT_TRAIN};
    FILE *tty;
    const int master = terminal(&tty);
    (void)state;
    must_do(rd_log_new(0, "h", tty, &m.log, &st), &st);
    rd_images_read_part(&m, 0.0, 4.0); /* too early to show something */
    assert_false(m.reading.shown);
    m.head.n = 1200;
    age_reading(&m, 9.0);
    rd_images_read_part(&m, 1.0, 4.0);
    shows(master, "\033[K");
    assert_string_equal(got, "\rtraining data: 1,200 images found, 25 %, eta 27s\033[K");
    age_reading(&m, 9.0);
    m.reading.line_ns = 0; /* the log's line is due */
    rd_images_read_part(&m, 0.0, 4.0);
    shows(master, "found\n");
    m.rank = 1; /* the other ranks show nothing */
    age_reading(&m, 9.0);
    m.reading.shown = false;
    rd_images_read_part(&m, 2.0, 4.0);
    assert_false(m.reading.shown);
    rd_log_free(m.log);
    fclose(tty);
    close(master);
}

/* ---- each reader shows its progress ---- */

enum { RECORDS = 1500, RECORD = 3073, N_IDX = 12000, IDX_HEAD = 16, IDX_IMAGE = 784 };

static rd_images_kind kind = {.name = "x"};

/* A split that is read so slowly that the first part of it prints a line. */
static rd_images reader(rd_log *log)
{
    rd_images m = {.kind = &kind, .split = RD_SPLIT_TRAIN, .log = log};
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_init(&m.block[k], false);
    m.reading.begin_ns = m.reading.line_ns = 1;
    return m;
}

static FILE *log_file(rd_log **log)
{
    rd_status st = {0};
    FILE *f = tmpfile();
    assert_non_null(f);
    must_do(rd_log_new(0, "h", f, log, &st), &st);
    return f;
}

/* The log has one line: text, about that percentage, and a time. */
static void one_line(FILE *f, rd_log *log, const char *text, int percent)
{
    const size_t n = strlen(text);
    int found = -1, end = 0;
    rd_log_free(log);
    rewind(f);
    assert_non_null(fgets(got, sizeof got, f));
    if (strncmp(got, text, n) != 0 || sscanf(got + n, "%3d %%%*[, ]eta %*d%n", &found, &end) != 1 ||
        end == 0)
        fail_msg("'%s' does not begin with '%s'", got, text);
    assert_in_range(found + 3, percent + 1, percent + 5);
    assert_null(fgets(got, sizeof got, f));
    fclose(f);
}

static void reader_end(rd_images *m)
{
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_free(&m->block[k]);
}

static void test_idx(void **state)
{
    static const uint8_t head[IDX_HEAD] = {0, 0, 8, 3,  0, 0, N_IDX >> 8, N_IDX & 255,
                                           0, 0, 0, 28, 0, 0, 0,          28},
                         label_head[8] = {0, 0, 8, 1, 0, 0, N_IDX >> 8, N_IDX & 255};
    const size_t n = IDX_HEAD + (size_t)N_IDX * IDX_IMAGE;
    uint8_t *p = calloc(1, n), *labels = calloc(1, 8 + N_IDX);
    rd_status st = {0};
    rd_stream *s[2];
    rd_log *log;
    FILE *f = log_file(&log);
    rd_images m = reader(log);
    (void)state;
    assert_true(p && labels);
    memcpy(p, head, sizeof head);
    memcpy(labels, label_head, sizeof label_head);
    must_do(rd_stream_new_mem("images", p, n, &s[0], &st), &st);
    must_do(rd_stream_new_mem("labels", labels, 8 + N_IDX, &s[1], &st), &st);
    must_do(rd_idx_load(&m, s[0], "images", s[1], "labels", &st), &st);
    assert_int_equal(m.head.n, N_IDX);
    one_line(f, log, "training data: 12,000 images found, ", 45);
    for (int k = 0; k < 2; k++) rd_stream_free(s[k]);
    reader_end(&m);
    free(p);
    free(labels);
}

static void test_cifar(void **state)
{
    const size_t n = (size_t)RECORDS * RECORD;
    uint8_t *p = calloc(1, n);
    rd_status st = {0};
    (void)state;
    assert_non_null(p);
    for (int archive = 0; archive < 2; archive++) {
        rd_log *log;
        rd_tar *t = NULL;
        FILE *f = log_file(&log);
        rd_images m = reader(log);
        if (archive) {
            tar_out *out = tar_out_new(files_at("cifar.tar"));
            tar_out_put(out, "data_batch_1.bin", p, n);
            tar_out_put(out, "data_batch_2.bin", p, n);
            tar_out_end(out);
            must_do(rd_tar_new(files_at("cifar.tar"), &t, &st), &st);
        } else {
            files_put(files_at("data_batch_1.bin"), p, n);
            files_put(files_at("data_batch_2.bin"), p, n);
        }
        must_do(rd_cifar_load(&m, t, archive ? "cifar.tar" : files_dir(), &st), &st);
        assert_int_equal(m.head.n, 2 * RECORDS);
        one_line(f, log, "training data: reading, ", 46);
        rd_tar_free(t);
        reader_end(&m);
    }
    free(p);
}

static void test_npz_images(void **state)
{
    const size_t n = (size_t)N_IDX * IDX_IMAGE;
    char *p = calloc(1, n);
    const rd_array a[] = {
        {.name = "x_train",
         .descr = "|u1",
         .n_dim = 3,
         .dim = {N_IDX, 28, 28},
         .data = p,
         .bytes = n},
        {.name = "y_train", .descr = "|u1", .n_dim = 1, .dim = {N_IDX}, .data = p, .bytes = N_IDX}};
    rd_status st = {0};
    rd_log *log;
    FILE *f = log_file(&log);
    rd_images m = reader(log);
    (void)state;
    assert_non_null(p);
    must_do(rd_npz_write(files_at("mnist.npz"), a, 2, NULL, &st), &st);
    must_do(rd_npz_images_load(&m, files_at("mnist.npz"), &st), &st);
    assert_int_equal(m.head.n, N_IDX);
    one_line(f, log, "training data: reading, ", 45);
    reader_end(&m);
    free(p);
}

/* Each document is reported, since one may be a whole file. */
static void test_documents(void **state)
{
    rd_progress p;
    rd_log *log;
    FILE *f = log_file(&log);
    (void)state;
    rd_progress_start(&p, log, "text split into tokens", 4000000);
    p.noun = "documents";
    rd_progress_bytes(&p, 1, 1000000, 1000000); /* too early */
    p.line_ns = p.begin_ns = 1;
    rd_progress_bytes(&p, 3, 2000000, 1000000);
    rd_progress_end(&p);
    rewind(f);
    assert_non_null(fgets(got, sizeof got, f));
    char *in = strstr(got, " in ");
    assert_non_null(in);
    *in = '\0';
    assert_string_equal(got, "text split into tokens: 3 documents, 2 MB");
    assert_non_null(strstr(in + 1, " s, eta "));
    rd_log_free(log);
    fclose(f);
}

/* What the functions for arrays say. */
typedef struct heard {
    int n;
    double first, done, all;
} heard;

static void hear(void *ctx, double done, double all)
{
    heard *h = ctx;
    assert_true(done >= h->done && done <= all);
    if (h->n++ == 0) h->first = done;
    h->done = done;
    h->all = all;
}

static void test_arrays(void **state)
{
    enum { N = 3 << 20 };
    float *p = calloc(N, sizeof *p);
    const rd_array a = {
        .name = "w", .descr = "<f4", .n_dim = 1, .dim = {N}, .data = p, .bytes = N * sizeof *p};
    rd_status st = {0};
    rd_weights *w;
    rd_npz *z;
    heard h[4] = {{0}};
    (void)state;
    assert_non_null(p);
    rd_arrays_on_progress(hear, &h[0]);
    must_do(rd_safetensors_write(files_at("model.safetensors"), &a, 1, NULL, &st), &st);
    rd_arrays_on_progress(hear, &h[1]);
    must_do(rd_weights_new(files_dir(), &w, &st), &st);
    must_do(rd_weights_read(w, "w", p, N, &st), &st);
    rd_weights_free(w);
    rd_arrays_on_progress(hear, &h[2]);
    must_do(rd_npz_write(files_at("w.npz"), &a, 1, NULL, &st), &st);
    rd_arrays_on_progress(hear, &h[3]);
    must_do(rd_npz_new(files_at("w.npz"), &z, &st), &st);
    rd_npz_free(z);
    rd_arrays_on_progress(NULL, NULL);
    for (int k = 0; k < 4; k++) {
        assert_true(h[k].n >= 3 && h[k].first < 0.5 * h[k].all);
        assert_true(h[k].done > 0.99 * h[k].all);
        assert_true(h[k].all >= (double)a.bytes && h[k].all < 1.01 * (double)a.bytes);
    }
    free(p);
}

/* A phase of files shows what they say, and no longer once it has ended. */
static void test_phase_of_files(void **state)
{
    enum { N = 3 << 20 };
    rd_world w = {.rank = 0, .size = 1, .comm = "self"};
    rd_run r = {.world = &w};
    char *p = calloc(1, N);
    const rd_array a = {.name = "w", .descr = "|u1", .n_dim = 1, .dim = {N}, .data = p, .bytes = N};
    rd_status st = {0};
    progress shown;
    FILE *f = log_file(&r.log);
    (void)state;
    assert_non_null(p);
    progress_files(&shown, &r, "saving best-7.npz");
    age(&shown, 60.0);
    must_do(rd_npz_write(files_at("best-7.npz"), &a, 1, NULL, &st), &st);
    progress_end(&shown);
    age(&shown, 60.0);
    shown.all = 7;
    must_do(rd_npz_write(files_at("best-7.npz"), &a, 1, NULL, &st), &st);
    assert_int_equal(shown.all, 7); /* nobody has called it */
    one_line(f, r.log, "saving best-7.npz: ", 0);
    free(p);
}

RD_TESTS_WITH("progress", files_set_up, files_tear_down, TEST(test_terminal), TEST(test_file),
              TEST(test_images), TEST(test_idx), TEST(test_cifar), TEST(test_npz_images),
              TEST(test_documents), TEST(test_arrays), TEST(test_phase_of_files))
