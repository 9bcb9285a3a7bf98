/* metrics.c -- metrics.jsonl: a line a step, and after a resume every step once. */
#include "rd/file.h"
#include "rd/records.h"
#include "test.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char dir[64] = "/tmp/rd_metrics_XXXXXX", path[128];

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir); /* fails when a temporary was left behind */
}

static void check_text(const char *want)
{
    rd_status st = {0};
    char *text;
    size_t n;
    assert_int_equal(rd_file_read(path, RD_EENV, &text, &n, &st), RD_OK);
    assert_string_equal(text, want);
    assert_int_equal(n, strlen(want));
    free(text);
}

static json_t *line(int64_t step, double loss)
{
    return json_pack("{s:I, s:f}", "step", (json_int_t)step, "loss", loss);
}

static struct cut_row {
    const char *name, *before;
    size_t n; /* bytes of before; 0: strlen */
    int64_t start_step;
    const char *after; /* with a line of step 9 written */
} cut_rows[] = {
    {"a new file", NULL, 0, 0, "{\"step\":9,\"loss\":0.1}\n"},
    {"an empty file", "", 0, 0, "{\"step\":9,\"loss\":0.1}\n"},
    {"later steps go", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 0, 2,
     "{\"step\":1}\n{\"step\":2}\n{\"step\":9,\"loss\":0.1}\n"},
    {"a run anew", "{\"step\":1}\n{\"step\":2}\n", 0, 0, "{\"step\":9,\"loss\":0.1}\n"},
    {"nothing to cut", "{\"step\":1}\n{\"step\":2}\n", 0, 2,
     "{\"step\":1}\n{\"step\":2}\n{\"step\":9,\"loss\":0.1}\n"},
    {"half a last line", "{\"step\":1}\n{\"step\":2,\"lo", 0, 5,
     "{\"step\":1}\n{\"step\":9,\"loss\":0.1}\n"},
    {"a last line without newline", "{\"step\":1}\n{\"step\":2}", 0, 5,
     "{\"step\":1}\n{\"step\":2}\n{\"step\":9,\"loss\":0.1}\n"},
    {"half a line in the middle", "{\"step\":1,\"l{\"step\":2}\n{\"step\":3}\n", 0, 5,
     "{\"step\":3}\n{\"step\":9,\"loss\":0.1}\n"},
    {"zeros after a power cut", "{\"step\":1}\n\0\0\0\0\0\0\0\0", 19, 5,
     "{\"step\":1}\n{\"step\":9,\"loss\":0.1}\n"},
    {"empty lines", "\n\n{\"step\":1}\n\n", 0, 5, "{\"step\":1}\n{\"step\":9,\"loss\":0.1}\n"},
    {"lines without a step stay", "{\"note\":1}\n{\"step\":7}\n", 0, 5,
     "{\"note\":1}\n{\"step\":9,\"loss\":0.1}\n"},
    {"spacing of kept lines stays", "{ \"step\" : 1 }\n{\"step\":6}\n", 0, 5,
     "{ \"step\" : 1 }\n{\"step\":9,\"loss\":0.1}\n"},
    /* Python: gzip.compress(b'{"step":1}\n{"step":2}\n', mtime=0) */
    {"a file that the user has compressed",
     "\x1f\x8b\x08\0\0\0\0\0\x02\x03\xabV*.I-P\xb2"
     "2\xac\xe5\xaa\x86"
     "2\x8dj\xb9\0{X~\xe0\x16\0\0\0",
     36, 2, "{\"step\":1}\n{\"step\":2}\n{\"step\":9,\"loss\":0.1}\n"},
    {"other JSON goes", "[1]\n3\n{\"step\":1}\n", 0, 5,
     "{\"step\":1}\n{\"step\":9,\"loss\":0.1}\n"},
};

static void check_cut(void **state)
{
    const struct cut_row *r = *state;
    rd_status st = {0};
    rd_metrics *m;
    (void)unlink(path);
    if (r->before) {
        const size_t n = r->n ? r->n : strlen(r->before);
        assert_int_equal(rd_file_write_atomic(path, r->before, n, &st), RD_OK);
    }
    assert_int_equal(rd_metrics_new(path, r->start_step, &m, &st), RD_OK);
    assert_int_equal(rd_metrics_write(m, line(9, 0.1), &st), RD_OK);
    check_text(r->after); /* before it is closed: nothing is held back */
    rd_metrics_free(m);
    check_text(r->after);
}

static void keys_keep_their_order_and_numbers_their_digits(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_metrics *m;
    (void)unlink(path);
    assert_int_equal(rd_metrics_new(path, 0, &m, &st), RD_OK);
    json_t *o = json_pack("{s:i, s:f, s:f, s:I, s:s, s:n}", "z", 1, "a", 1764284400.125, "m",
                          2.0 / 3, "i", (json_int_t)1 << 62, "text", "\xc3\xa9\n", "none");
    assert_int_equal(rd_metrics_write(m, o, &st), RD_OK);
    rd_metrics_free(m);
    rd_metrics_free(NULL);
    check_text(
        "{\"z\":1,\"a\":1764284400.125,\"m\":0.666666666666667,\"i\":4611686018427387904,\"text\":"
        "\"\xc3\xa9\\n\",\"none\":null}\n");
}

static void failures_are_told(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_metrics *m;
    assert_int_equal(rd_metrics_new("/proc/nowhere/metrics.jsonl", 0, &m, &st), RD_EENV);
    assert_null(m);
    assert_non_null(strstr(st.msg, "/proc/nowhere"));
    st = (rd_status){0};
    assert_int_equal(rd_metrics_new(dir, 0, &m, &st), RD_EENV); /* a folder */
    st = (rd_status){0};
    (void)unlink(path);
    assert_int_equal(rd_metrics_new(path, 0, &m, &st), RD_OK);
    assert_int_equal(rd_metrics_write(m, NULL, &st),
                     RD_EENV); /* what json_pack gives when memory is out */
    rd_metrics_free(m);
}

static void full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    struct rlimit was, now;
    rd_status st = {0};
    rd_metrics *m;
    char *text;
    size_t n;
    int written = 0, lines = 0;
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    (void)unlink(path);
    assert_int_equal(rd_metrics_new(path, 0, &m, &st), RD_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    now = was;
    for (rlim_t limit = 0; limit < 300; limit += 7) {
        rd_status one = {0};
        now.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        written += rd_metrics_write(m, line(1, 0.5), &one) == RD_OK;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        if (one.code != RD_OK) assert_non_null(strstr(one.msg, "metrics.jsonl"));
    }
    (void)signal(SIGXFSZ, old);
    rd_metrics_free(m);
    assert_int_equal(rd_file_read(path, RD_EENV, &text, &n, &st), RD_OK);
    for (const char *p = text; *p; p = strchr(p, '\n') + 1, lines++)
        assert_true(strncmp(p, "{\"step\":1,\"loss\":0.5}\n", 22) == 0);
    assert_int_equal(lines, written);
    assert_true(written > 5 && written < 43);
    free(text);
}

RD_TESTS_WITH("metrics", make_dir, remove_dir, TEST_ROWS(check_cut, cut_rows),
              TEST(keys_keep_their_order_and_numbers_their_digits), TEST(failures_are_told),
              TEST(full_disk_leaves_whole_lines))
