/* forecast_model.c -- compares the alpha-beta model of plan mode with values of another program
 * (tests/support/make_plan_golden.py).
 *
 * It tests rounds and bytes of an exchange, rows of the table, and fits to timings with known
 * latency and bandwidth. Files that a run leaves in its log folder are read back unchanged. */
#include "../../runner/run/forecast.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool near(double got, double want, double part)
{
    if (isnan(want)) return isnan(got);
    return fabs(got - want) <= part * fabs(want) + 1e-15;
}

#define CHECK_NEAR(what, got, want, part)                                                 \
    do {                                                                                  \
        if (!near((got), (want), (part)))                                                 \
            fail_msg("%s: %.12g, expected %.12g", (what), (double)(got), (double)(want)); \
    } while (0)

static void rounds(void **state)
{
    static const struct {
        int hosts;
        double rounds, bytes;
    } rows[] = {
#define PLAN_ROUNDS
#include "plan_golden.inc"
#undef PLAN_ROUNDS
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double alphas, bytes;
        forecast_cost(rows[i].hosts, 1000.0, 0.5, &alphas, &bytes);
        CHECK_NEAR("rounds", alphas, rows[i].rounds, 0.0);
        CHECK_NEAR("bytes", bytes, 500.0 * rows[i].bytes, 1e-12);
    }
}

static void tables(void **state)
{
    static const struct {
        forecast_step m;
        forecast_row row[FORECAST_ROWS];
    } runs[] = {
#define PLAN_RUNS
#include "plan_golden.inc"
#undef PLAN_RUNS
    };
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int k = 0; k < FORECAST_ROWS; k++) {
            const forecast_row *want = &runs[i].row[k];
            forecast_row got;
            forecast_at(&runs[i].m, want->hosts, runs[i].m.ranks / runs[i].m.hosts, &got);
            assert_int_equal(got.ranks, want->ranks);
            CHECK_NEAR("comm_s", got.comm_s, want->comm_s, 1e-12);
            CHECK_NEAR("exposed_s", got.exposed_s, want->exposed_s, 1e-9);
            CHECK_NEAR("step_s", got.step_s, want->step_s, 1e-12);
            CHECK_NEAR("samples_per_s", got.samples_per_s, want->samples_per_s, 1e-12);
            CHECK_NEAR("units_per_s", got.units_per_s, want->units_per_s, 1e-12);
            CHECK_NEAR("weak", got.weak, want->weak, 1e-12);
            CHECK_NEAR("strong_step_s", got.strong_step_s, want->strong_step_s, 1e-12);
            CHECK_NEAR("strong", got.strong, want->strong, 1e-12);
        }
}

static void fits(void **state)
{
    static const struct {
        const char *name;
        double alpha, beta, alphas[7], bytes[7], seconds[7];
    } rows[] = {
#define PLAN_FITS
#include "plan_golden.inc"
#undef PLAN_FITS
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        forecast_link l = {0};
        assert_true(forecast_fit(rows[i].alphas, rows[i].bytes, rows[i].seconds, 7, &l));
        assert_true(l.measured);
        if (!(fabs(l.alpha_s - rows[i].alpha) < 1e-6 * rows[i].alpha + 1e-12))
            fail_msg("%s: alpha %g", rows[i].name, l.alpha_s);
        CHECK_NEAR(rows[i].name, l.bytes_per_s, rows[i].beta, 1e-6);
    }
}

/* What cannot be known from the timings stays what it was, and nonsense is no fit. */
static void poor_fits(void **state)
{
    const double alphas[] = {2, 2, 2}, bytes[] = {1e6, 1e6, 1e6},
                 seconds[] = {1.04e-2, 1.04e-2, 1.04e-2};
    const double falling[] = {1e-2, 1e-3, 1e-4}, growing[] = {1e6, 1e7, 1e8}, none[] = {0, -1, NAN},
                 zero[] = {0, 0, 0};
    forecast_link l = {.alpha_s = 2e-4};
    (void)state;
    assert_true(forecast_fit(alphas, bytes, seconds, 3, &l));
    CHECK_NEAR("one size, alpha", l.alpha_s, 2e-4, 0.0);
    CHECK_NEAR("one size, bandwidth", l.bytes_per_s, 1e8, 1e-9);
    l.alpha_s = 1e-2; /* two of them are more than an exchange took */
    assert_true(forecast_fit(alphas, bytes, seconds, 3, &l));
    CHECK_NEAR("a latency out of all proportion", l.alpha_s, 0.25 * 1.04e-2, 1e-9);
    CHECK_NEAR("and its bandwidth", l.bytes_per_s, 1e6 / (0.5 * 1.04e-2), 1e-9);
    const forecast_link before = l;
    assert_false(forecast_fit(alphas, bytes, none, 3, &l));
    assert_false(forecast_fit(alphas, zero, seconds, 3, &l));
    assert_false(forecast_fit(alphas, bytes, seconds, 0, &l));
    assert_false(forecast_fit(alphas, growing, falling, 3, &l));
    assert_memory_equal(&l, &before, sizeof l);
    /* Faster than in proportion: no negative latency. */
    const double fast[] = {1e-3, 1.2e-2, 1.4e-1};
    assert_true(forecast_fit(alphas, growing, fast, 3, &l));
    assert_true(l.alpha_s >= 0.0 && l.bytes_per_s > 0.0);
}

/* Exchanges of two hosts with four ranks each, with the times of the model's formula, for
 * numbers of two bytes. Inside a host the link is known: 2 us and 2 3/4 n / 1e10. Between hosts:
 * twice 40 us and 2 1/2 n/2 / 1e8. Then without shared memory (eight hosts with one rank each),
 * and on one host. */
static void links(void **state)
{
    static rd_run r;
    (void)state;
    for (int way = 0; way < 3; way++) {
        forecast_step m = {.hosts = way == 2 ? 1 : 2, .ranks = 8, .wire = 0.5, .shared = way != 1};
        if (way == 0) m.inside = (forecast_link){2e-6, 1e10, true};
        r.times.n_sizes = 4;
        for (int i = 0; i < 4; i++) {
            const double n = 1e5 * pow(4.0, i), rounds = 2.0;
            const double between = rounds * 40e-6 +
                                   2.0 * (way == 1 ? 7.0 / 8.0 : 1.0 / 2.0) * n * 0.5 / 1e8;
            const double inside = (way == 0 ? 2e-6 : 40e-6) + 2.0 * 7.0 / 8.0 * n / 1e8,
                         part = 2e-6 + 2.0 * 3.0 / 4.0 * n / 1e10;
            exchange_size *e = &r.times.sizes[i];
            *e = (exchange_size){.bytes = n, .count = 10};
            for (int k = 0; k < 10; k++)
                e->kept[k] = (float)(way == 0 ? between + part : way == 1 ? between : inside);
        }
        forecast_fit_links(&r, &m);
        const forecast_link *got = way == 2 ? &m.inside : &m.between;
        assert_true(got->measured);
        CHECK_NEAR("latency", got->alpha_s, 40e-6, 1e-4);
        CHECK_NEAR("bandwidth", got->bytes_per_s, 1e8, 1e-4);
    }
}

/* Afterwards the model gives the measured time, and its times for other sizes have changed in
 * proportion. */
static void calibration(void **state)
{
    forecast_step m = {.hosts = 2,
                       .ranks = 8,
                       .bytes = 4e7,
                       .buckets = 10,
                       .wire = 1.0,
                       .shared = true,
                       .comm_s = 1.0,
                       .inside = {2e-6, 1e10, true},
                       .between = {1e-4, 1.25e8, true}};
    const double two = forecast_exchange_s(&m, 2, 4), eight = forecast_exchange_s(&m, 8, 4),
                 f = forecast_calibrate(&m);
    (void)state;
    CHECK_NEAR("factor", f, 1.0 / two, 1e-12);
    CHECK_NEAR("two hosts", forecast_exchange_s(&m, 2, 4), 1.0, 1e-12);
    CHECK_NEAR("eight hosts", forecast_exchange_s(&m, 8, 4), eight / two, 1e-12);
    m.comm_s = 0.0;
    CHECK_NEAR("nothing measured", forecast_calibrate(&m), 1.0, 0.0);
}

/* The table of runner/SHARD.md: P weights of 4 bytes, s values of state for each. */
static void memory(void **state)
{
    const double P = 1e6, s = 2.0;
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++)
        for (int shared = 0; shared < 2; shared++) {
            const forecast_step m = {.weight_bytes = 4 * P,
                                     .gradient_bytes = 4 * P,
                                     .state_bytes = 4 * s * P,
                                     .gpu = gpu,
                                     .shared = shared};
            const bool by_host = shared && !gpu;
            assert_int_equal(forecast_shares(&m), by_host);
            for (int h = 1; h <= 8; h *= 2)
                for (int k = 1; k <= 4; k++) {
                    const double n = h * k, ranks = by_host ? k : 1.0, parts = by_host ? h : n;
                    CHECK_NEAR("without", forecast_memory(&m, h, k, false),
                               4 * P + 4 * ranks * P + 4 * s * P, 1e-12);
                    CHECK_NEAR("with", forecast_memory(&m, h, k, true),
                               4 * P + 4 * ranks * P + 4 * s * P / parts, 1e-12);
                }
        }
}

static void file(void **state)
{
    char dir[] = "/tmp/forecast_model.XXXXXX", path[64];
    rd_status st = {0};
    const forecast_step m = {.model = "seq2seq",
                             .unit = "tokens",
                             .hosts = 2,
                             .ranks = 4,
                             .steps = 20,
                             .step_s = 0.5,
                             .input_s = 0.01,
                             .forward_s = 0.1,
                             .backward_s = 0.2,
                             .wait_s = 0.03,
                             .exposed_s = 0.05,
                             .update_s = 0.04,
                             .other_s = 0.07,
                             .comm_s = 0.09,
                             .bytes = 1e8,
                             .buckets = 25,
                             .wire = 0.5,
                             .samples = 64,
                             .units = 1234,
                             .overlaps = true,
                             .shared = true,
                             .shard = true,
                             .optimizer_bytes = 4e7,
                             .sent_bytes = 5e6,
                             .weight_bytes = 1.1e8,
                             .gradient_bytes = 1.05e8,
                             .state_bytes = 2e8,
                             .gpu = true,
                             .between = {3e-5, 1.25e8, true}};
    forecast_step got;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(forecast_read(dir, &got, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "no measured step"));
    st = (rd_status){0};
    assert_int_equal(forecast_write(&m, dir, &st), RD_OK);
    assert_int_equal(forecast_read(dir, &got, &st), RD_OK);
    assert_string_equal(got.model, m.model);
    assert_string_equal(got.unit, m.unit);
    CHECK_NEAR("backward_s", got.backward_s, m.backward_s, 1e-8);
    CHECK_NEAR("units", got.units, m.units, 1e-8);
    CHECK_NEAR("bytes_per_s", got.between.bytes_per_s, m.between.bytes_per_s, 1e-8);
    assert_true(got.overlaps && got.shared && got.between.measured && !got.inside.measured);
    assert_true(got.shard);
    CHECK_NEAR("optimizer_bytes", got.optimizer_bytes, m.optimizer_bytes, 1e-8);
    CHECK_NEAR("sent_bytes", got.sent_bytes, m.sent_bytes, 1e-8);
    assert_true(got.gpu);
    CHECK_NEAR("weight_bytes", got.weight_bytes, m.weight_bytes, 1e-8);
    CHECK_NEAR("gradient_bytes", got.gradient_bytes, m.gradient_bytes, 1e-8);
    CHECK_NEAR("state_bytes", got.state_bytes, m.state_bytes, 1e-8);
    forecast_step many =
        m; /* on 1,024 such hosts there would be more ranks than an int can count */
    many.hosts = 1;
    many.ranks = 1 << 21;
    assert_int_equal(forecast_write(&many, dir, &st), RD_OK);
    assert_int_equal(forecast_read(dir, &got, &st), RD_EDATA);
    st = (rd_status){0};
    (void)snprintf(path, sizeof path, "%s/step.json", dir);
    static const char *const wrong[] = {"", "{", "[]",
                                        "{\"model\":\"x\",\"unit\":\"y\",\"hosts\":0,\"ranks\":0}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fputs(wrong[i], f);
        (void)fclose(f);
        st = (rd_status){0};
        assert_int_equal(forecast_read(dir, &got, &st), RD_EDATA);
    }
    (void)unlink(path);
    (void)rmdir(dir);
}

RD_TESTS("forecast_model", TEST(rounds), TEST(tables), TEST(fits), TEST(poor_fits),
         TEST(calibration), TEST(memory), TEST(file), TEST(links))
