/* bench_style.c -- compares the figures in the lines of bench mode with those of NumPy
 * (tests/support/make_bench_golden.py). */
#include "../../runner/bench/bench.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_STEPS = 16 };

static struct row {
    const char *name;
    int size;
    int64_t display, n;
    double units[MAX_STEPS], seconds[MAX_STEPS]; /* units: of one rank */
    const char *tfcnn, *horovod;
} table[] = {
#include "bench_golden.inc"
};

/* What the style prints on standard output for these steps, and at the end where asked. */
static char *printed(const struct row *r, bench_format format, bool end)
{
    const rd_world world = {.size = r->size};
    rd_run run = {.world = &world};
    bench b = {.run = &run,
               .images = true,
               .config = {.bench_display = r->display},
               .result = {.n_planned = r->n, .loss = 6.4, .l2 = 0.5}};
    const bench_style *style = bench_style_of(format);
    FILE *f = tmpfile();
    assert_non_null(f);
    b.result.step = calloc((size_t)r->n, sizeof *b.result.step);
    assert_non_null(b.result.step);
    assert_int_equal(fflush(stdout), 0);
    const int was = dup(1);
    assert_int_equal(dup2(fileno(f), 1), 1);
    for (int64_t i = 0; i < r->n; i++) {
        b.result.step[i] = (bench_step){.seconds = r->seconds[i],
                                        .units = r->units[i] * (double)r->size};
        b.result.n++;
        style->step(&b, i + 1);
    }
    if (end) style->end(&b);
    (void)fflush(stdout);
    assert_int_equal(dup2(was, 1), 1);
    (void)close(was);
    char *text = calloc(1, 8192);
    assert_non_null(text);
    rewind(f);
    (void)fread(text, 1, 8191, f);
    (void)fclose(f);
    free(b.result.step);
    free(b.rates);
    return text;
}

static void tfcnn(void **state)
{
    const struct row *r = *state;
    char *text = printed(r, BENCH_TFCNN, false);
    assert_string_equal(text, r->tfcnn);
    free(text);
}

static void horovod(void **state)
{
    const struct row *r = *state;
    char *text = printed(r, BENCH_HOROVOD, true);
    assert_string_equal(text, r->horovod);
    free(text);
}

/* The names are in the order of the formats. */
static void names(void **state)
{
    (void)state;
    int n = 0;
    while (bench_style_names[n]) n++;
    assert_int_equal(n, BENCH_JSON + 1);
    assert_string_equal(bench_style_names[BENCH_TFCNN], "tfcnn");
    assert_string_equal(bench_style_names[BENCH_HOROVOD], "horovod");
}

RD_TESTS("bench_style", TEST_ROWS(tfcnn, table), TEST_ROWS(horovod, table), TEST(names))
