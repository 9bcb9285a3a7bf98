/* optim_step.c -- tests what holds for every optimizer: gradients that are not finite change
 * nothing, threads and cuts do not matter, gaps stay zero, norms and clipping are right.
 *
 * tests/golden/optim.c tests the values of the updates. */
#include "test.h"
#include "optim_defaults.h"
#include "rd/optim.h"
#include "test_device.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    rd_optim_config c;
    rd_params *p;
    rd_optim *o;
    rd_status st;
} fixture;

/* Shapes that reach every way of cutting: longer than a block, rows longer than a block, rows of
 * seven, single elements. */
static void setup_on(fixture *f, bool host, const char *optimizer, int n_threads,
                     double max_grad_norm, double lars_nu, double weight_decay)
{
    static const struct {
        const char *name;
        int64_t dim[2];
        unsigned flags;
    } shapes[] = {{"matrix", {97, 131}, 0},
                  {"long_rows", {3, 5003}, RD_PARAM_ROWS},
                  {"table", {1301, 7}, RD_PARAM_ROWS},
                  {"bias", {13, 1}, 0},
                  {"scalar", {1, 1}, 0}};
    memset(f, 0, sizeof *f);
    f->c = optim_defaults;
    f->c.optimizer = optimizer;
    f->c.max_grad_norm = max_grad_norm;
    f->c.has_max_grad_norm = max_grad_norm > 0;
    f->c.lars_nu = lars_nu;
    f->c.weight_decay = weight_decay;
    f->c.has_lars_nu = lars_nu > 0;
    assert_int_equal(rd_params_new(&f->p, &f->st), RD_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        rd_param *q;
        const rd_init init = {.kind = RD_INIT_CONST};
        assert_int_equal(rd_params_add(f->p, shapes[i].name, 2, shapes[i].dim, init,
                                       shapes[i].flags, &q, &f->st),
                         RD_OK);
    }
    assert_int_equal(rd_params_seal(f->p, 1, NAN, &f->st), RD_OK);
    if (!host) assert_int_equal(test_use_device(f->p, &f->st), RD_OK);
    assert_int_equal(rd_optim_new(&f->c, f->p, n_threads, &f->o, &f->st), RD_OK);
}

static void setup(fixture *f, const char *optimizer, int n_threads, double max_grad_norm,
                  double lars_nu, double weight_decay)
{
    setup_on(f, false, optimizer, n_threads, max_grad_norm, lars_nu, weight_decay);
}

static void teardown(fixture *f)
{
    rd_optim_free(f->o);
    rd_params_free(f->p);
}

static uint32_t next(uint32_t *s)
{
    return *s = *s * 1664525u + 1013904223u;
}
static float number(uint32_t *s)
{
    return (float)(next(s) >> 8) / 8388608.0f - 1.0f;
}

/* Gradients of step t; every third row of the tables is zero. */
static void fill(fixture *f, float *x, uint32_t seed, bool zero_rows)
{
    for (int i = 0; i < rd_params_n(f->p); i++) {
        const rd_param *q = rd_params_at(f->p, i);
        uint32_t s = seed + (uint32_t)i * 7919u;
        for (int64_t k = 0; k < q->n; k++) {
            const float v = number(&s);
            x[q->offset + k] = zero_rows && (q->flags & RD_PARAM_ROWS) &&
                                       (k / q->dim[1] + seed) % 3 == 0
                                   ? 0.0f
                                   : v;
        }
    }
}

/* An update of what the host holds now, and holds afterwards. */
static void update(rd_optim *o, rd_params *p, int64_t t, double lr, double scale, rd_optim_stats *s)
{
    rd_status st = {0};
    test_written(p);
    const uint64_t version = rd_params_version(p);
    assert_int_equal(rd_optim_step(o, t, lr, scale, s, &st), RD_OK);
    assert_true((rd_params_version(p) == version) == !s->finite);
    test_fetch(p);
}

static rd_optim_stats step(fixture *f, int64_t t, double scale)
{
    rd_optim_stats s = {0};
    update(f->o, f->p, t, 0.01, scale, &s);
    return s;
}

static size_t span_bytes(const fixture *f)
{
    return (size_t)rd_params_span(f->p) * sizeof(float);
}

static void test_not_finite(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX}; /* the last overflows when scaled */
    for (int k = 0; k < 4; k++) {
        fixture f;
        setup(&f, *state, 1, 0, 0, 0);
        fill(&f, rd_params_values(f.p), 5, false);
        fill(&f, rd_params_grads(f.p), 1, false);
        assert_true(step(&f, 1, 1.0).finite);
        float *copy[4] = {0};
        const int n = rd_params_n_slots(f.p);
        for (int i = 0; i <= n; i++) {
            copy[i] = malloc(span_bytes(&f));
            memcpy(copy[i], i ? rd_params_slot(f.p, i - 1) : rd_params_values(f.p), span_bytes(&f));
        }
        fill(&f, rd_params_grads(f.p), 2, false);
        const rd_param *q = rd_params_find(f.p, "table");
        rd_params_grads(f.p)[q->offset + q->n - 1] = bad[k];
        double norms[5];
        rd_optim_stats s = {.finite = true, .param_norm = norms};
        update(f.o, f.p, 2, 0.01, 2.0, &s);
        assert_false(s.finite);
        assert_false(isfinite(norms[2])); /* says where */
        assert_true(isfinite(norms[0]) && isfinite(norms[1]) && isfinite(norms[3]) &&
                    isfinite(norms[4]));
        for (int i = 0; i <= n; i++) {
            assert_memory_equal(copy[i], i ? rd_params_slot(f.p, i - 1) : rd_params_values(f.p),
                                span_bytes(&f));
            free(copy[i]);
        }
        teardown(&f);
    }
}

/* Three threads cut at other places than one thread: the bytes are the same. Gaps between
 * parameters stay zero. */
static void test_threads(void **state)
{
    const double limits[][3] = {
        {0, 0, 0}, {0.5, 0, 0}, {0, 0.01, 0}, {0, 0, 0.1}}; /* the last: weight decay */
    for (int k = 0; k < 4; k++) {
        fixture a, b;
        setup(&a, *state, 1, limits[k][0], limits[k][1], limits[k][2]);
        setup(&b, *state, 3, limits[k][0], limits[k][1], limits[k][2]);
        fill(&a, rd_params_values(a.p), 5, false);
        fill(&b, rd_params_values(b.p), 5, false);
        for (int t = 1; t <= 4; t++) {
            fill(&a, rd_params_grads(a.p), (uint32_t)t, true);
            fill(&b, rd_params_grads(b.p), (uint32_t)t, true);
            const rd_optim_stats sa = step(&a, t, 0.125), sb = step(&b, t, 0.125);
            assert_true(sa.grad_norm == sb.grad_norm && sa.grad_norm > 0);
        }
        assert_memory_equal(rd_params_values(a.p), rd_params_values(b.p), span_bytes(&a));
        assert_memory_equal(rd_params_grads(a.p), rd_params_grads(b.p), span_bytes(&a));
        for (int i = 0; i < rd_params_n_slots(a.p); i++)
            assert_memory_equal(rd_params_slot(a.p, i), rd_params_slot(b.p, i), span_bytes(&a));
        const rd_param *bias = rd_params_find(a.p, "bias");
        for (int64_t i = bias->n; i < 16; i++) {
            assert_true(rd_params_values(a.p)[bias->offset + i] == 0.0f);
            for (int s = 0; s < rd_params_n_slots(a.p); s++)
                assert_true(rd_params_slot(a.p, s)[bias->offset + i] == 0.0f);
        }
        teardown(&a);
        teardown(&b);
    }
}

/* As TensorFlow's sparse updates: a row of a table without a gradient keeps its values and slots,
 * even where the slots would move it. Rows with a gradient change. */
static void test_zero_rows(void **state)
{
    fixture f;
    setup(&f, *state, 2, 0, 0, 0);
    if (!rd_optim_def(f.o)->skips_zero_rows) {
        teardown(&f);
        return;
    }
    const int n_slots = rd_params_n_slots(f.p);
    float *was[4] = {0};
    fill(&f, rd_params_values(f.p), 5, false);
    fill(&f, rd_params_grads(f.p), 1, false);
    (void)step(&f, 1, 1.0);
    for (int s = 0; s <= n_slots; s++) {
        was[s] = malloc(span_bytes(&f));
        assert_non_null(was[s]);
        memcpy(was[s], s ? rd_params_slot(f.p, s - 1) : rd_params_values(f.p), span_bytes(&f));
    }
    fill(&f, rd_params_grads(f.p), 2, true);
    (void)step(&f, 2, 1.0);
    for (int i = 1; i <= 2; i++) { /* long_rows, table */
        const rd_param *q = rd_params_at(f.p, i);
        const size_t bytes = (size_t)q->dim[1] * sizeof(float);
        for (int64_t r = 0; r < q->dim[0]; r++)
            for (int s = 0; s <= n_slots; s++) {
                const float *now = s ? rd_params_slot(f.p, s - 1) : rd_params_values(f.p);
                const int64_t at = q->offset + r * q->dim[1];
                if ((memcmp(now + at, was[s] + at, bytes) == 0) != ((r + 2) % 3 == 0))
                    fail_msg("row %d of %s", (int)r, q->name);
            }
    }
    for (int s = 0; s <= n_slots; s++) free(was[s]);
    teardown(&f);
}

/* With zero_grads, an update on a GPU leaves zeros, and weights and slots are the same bytes. A
 * CPU's update, and a step that is skipped, leave the gradients. */
static void test_zero_grads(void **state)
{
    fixture f[2];
    rd_optim_stats s[2] = {{0}, {.zero_grads = true}};
    for (int k = 0; k < 2; k++) {
        setup(&f[k], *state, 1, 1e-3, 0, 0);
        fill(&f[k], rd_params_values(f[k].p), 5, false);
    }
    const size_t n = span_bytes(&f[0]) / sizeof(float);
    float *given = malloc(span_bytes(&f[0]));
    for (int t = 1; t <= 3; t++) {
        for (int k = 0; k < 2; k++) {
            float *g = rd_params_grads(f[k].p);
            fill(&f[k], g, (uint32_t)t, true);
            /* Rows that scaling turns into zeros. */
            const rd_param *q = rd_params_find(f[k].p, "table");
            for (int64_t i = 0; i < 3 * q->dim[1]; i++) g[q->offset + i] = i % 2 ? -0.0f : 1e-44f;
            if (t == 2) g[0] = NAN;
            memcpy(given, g, span_bytes(&f[k]));
            update(f[k].o, f[k].p, t, 0.01, 0.01, &s[k]);
            assert_true(s[k].finite == (t != 2));
            rd_params_device_changed_grads(f[k].p); /* also after a skipped step */
            test_fetch(f[k].p);
        }
        const float *g = rd_params_grads(f[1].p);
        const bool zero = rd_params_kind(f[1].p) == RD_GPU && t != 2;
        for (size_t i = 0; i < n && zero; i++) {
            uint32_t bits;
            memcpy(&bits, &g[i], sizeof bits);
            assert_int_equal(bits, 0);
        }
        if (!zero) assert_memory_equal(g, rd_params_grads(f[0].p), span_bytes(&f[0]));
        if (t == 2) assert_memory_equal(g, given, span_bytes(&f[0]));
        for (int i = 0; i <= rd_params_n_slots(f[0].p); i++)
            assert_memory_equal(i ? rd_params_slot(f[1].p, i - 1) : rd_params_values(f[1].p),
                                i ? rd_params_slot(f[0].p, i - 1) : rd_params_values(f[0].p),
                                span_bytes(&f[0]));
    }
    free(given);
    for (int k = 0; k < 2; k++) teardown(&f[k]);
}

/* update() called on pieces of any length gives what one call gives. */
static void test_cuts(void **state)
{
    enum { LEN = 1000 };
    const rd_optimizer_def *def = rd_optimizer_find(*state);
    assert_non_null(def);
    rd_status st = {0};
    rd_optim_config c;
    must_do(optim_from_keys(*state, "", &c, &st), &st);
    float x[2][5][LEN];
    for (int run = 0; run < 2; run++) {
        uint32_t s = 11;
        for (int k = 0; k < 5; k++)
            for (int i = 0; i < LEN; i++) x[run][k][i] = k < 2 ? number(&s) : fabsf(number(&s));
        rd_update u = {.c = &c,
                       .own = &c.own,
                       .lr = 0.1,
                       .decay = def->decays ? 0.5 : 0.0,
                       .t = 3,
                       .w = x[run][0],
                       .g = x[run][1],
                       .slot = {x[run][2], x[run][3], x[run][4]}};
        for (int64_t lo = 0, len = 1; lo < LEN; lo = u.hi, len = len % 37 + 1) {
            u.lo = lo;
            u.hi = run == 0 ? LEN : (lo + len < LEN ? lo + len : LEN);
            def->update(&u);
        }
    }
    assert_memory_equal(x[0], x[1], sizeof x[0]);
}

static void test_norms(void **state)
{
    (void)state;
    fixture f;
    setup(&f, "sgd", 1, 6.5, 0, 0);
    float *g = rd_params_grads(f.p);
    g[rd_params_find(f.p, "matrix")->offset + 5000] =
        24.0f; /* after the scale 0.5: 12, 3, 4; norm 13 */
    g[rd_params_find(f.p, "table")->offset] = -6.0f;
    g[rd_params_find(f.p, "scalar")->offset] = 8.0f;
    double norms[5];
    rd_optim_stats s = {.param_norm = norms};
    update(f.o, f.p, 1, 1.0, 0.5, &s);
    assert_true(s.finite);
    assert_true(s.grad_norm == 13.0);
    assert_true(s.clipped_norm == 6.5);
    const double want[] = {6.0, 0.0, 1.5, 0.0, 2.0}; /* halved by clipping */
    for (int i = 0; i < 5; i++) assert_true(norms[i] == want[i]);
    assert_true(g[rd_params_find(f.p, "scalar")->offset] == 2.0f);
    assert_true(rd_params_values(f.p)[rd_params_find(f.p, "scalar")->offset] == -2.0f);
    memset(g, 0, span_bytes(&f));
    g[0] = 13.0f;
    s = step(&f, 2, 0.5); /* exactly the limit: not clipped */
    assert_true(s.grad_norm == 6.5 && s.clipped_norm == 6.5 && g[0] == 6.5f);
    teardown(&f);
}

/* Histograms are of the gradient before LARS. */
static void test_lars_keeps_gradients(void **state)
{
    (void)state;
    fixture f;
    setup(&f, "sgd", 1, 0, 0.25, 0);
    const int64_t at = rd_params_find(f.p, "bias")->offset,
                  scalar = rd_params_find(f.p, "scalar")->offset;
    float *g = rd_params_grads(f.p), *w = rd_params_values(f.p);
    g[at] = 8.0f;
    w[at] = 2.0f;
    g[scalar] = 2.0f; /* weight zero: factor 1 / 16384 */
    double norms[5];
    rd_optim_stats s = {.param_norm = norms};
    update(f.o, f.p, 1, 1.0, 0.5, &s);
    assert_true(g[at] == 4.0f && norms[3] == 4.0);
    assert_true(w[at] == 2.0f - 4.0f * (0.25f * 2.0f / 4.0f));
    assert_true(w[scalar] == -1.0f / 16384.0f);
    teardown(&f);
}

/* Spec of Adam's first step: |dw| = lr |g| / (|g| + eps / sqrt(1 - b2)), whatever LARS' factor. */
static void test_adam_first_step(void **state)
{
    (void)state;
    fixture f;
    setup(&f, "adam", 1, 0, 0, 0);
    float *g = rd_params_grads(f.p);
    fill(&f, g, 3, false);
    step(&f, 1, 1.0);
    const rd_param *q = rd_params_find(f.p, "matrix");
    for (int64_t i = q->offset; i < q->offset + q->n; i++) {
        const double a = fabs((double)g[i]), want = 0.01 * a / (a + 1e-8 / sqrt(1 - 0.999));
        assert_true(fabs(fabs((double)rd_params_values(f.p)[i]) - want) <= 1e-5 * want);
    }
    teardown(&f);
}

/* Of the same values wherever they lie; one bit is another sum, of its parameter alone. */
static void test_checksums(void **state)
{
    (void)state;
    enum { N = 5 };
    fixture f[2];
    uint64_t sum[3][N];
    int damaged;
    for (int k = 0; k < 2; k++) {
        setup_on(&f[k], k == 1, "momentum", 2, 0, 0, 0);
        fill(&f[k], rd_params_values(f[k].p), 9, false);
        rd_params_touch(f[k].p);
        assert_int_equal(rd_optim_checksums(f[k].o, sum[k], &damaged, &f[k].st), RD_OK);
        assert_int_equal(damaged, -1);
    }
    assert_memory_equal(sum[0], sum[1], sizeof sum[0]);
    float *w = rd_params_values(f[0].p) + rd_params_find(f[0].p, "long_rows")->offset + 5003 + 17;
    *w = nextafterf(*w, 2.0f);
    rd_params_touch(f[0].p);
    assert_int_equal(rd_optim_checksums(f[0].o, sum[2], &damaged, &f[0].st), RD_OK);
    for (int i = 0; i < N; i++) assert_true((sum[2][i] == sum[0][i]) == (i != 1));
    for (int k = 0; k < 2; k++) teardown(&f[k]);
}

static void test_registry(void **state)
{
    (void)state;
    int n;
    const rd_optimizer_def *const *defs = rd_optimizer_defs(&n);
    assert_true(n >= 9);
    for (int i = 0; i < n; i++) {
        rd_status st = {0};
        rd_optim_config c;
        assert_ptr_equal(rd_optimizer_find(defs[i]->name), defs[i]);
        must_do(optim_from_keys(defs[i]->name, "", &c, &st), &st); /* its keys fit */
    }
    assert_ptr_equal(rd_optimizer_find("Adam"), rd_optimizer_find("adam"));
    assert_null(rd_optimizer_find("adamx"));
    rd_status st = {0};
    rd_optim_config c = optim_defaults;
    assert_int_equal(rd_optim_check(&c, NULL, &st), RD_OK);
    c.has_lars_nu = true;
    assert_int_equal(rd_optim_check(&c, NULL, &st), RD_OK);
    c.has_max_grad_norm = true;
    assert_int_equal(rd_optim_check(&c, NULL, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "'lars_nu'"));
    assert_non_null(strstr(st.msg, "'max_grad_norm'"));
}

/* Keys that exclude each other, both named. */
static void test_exclusions(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer, *one, *other;
        double lars_nu, max_grad_norm, weight_decay;
    } bad[] = {{"sgd", "'lars_nu'", "'weight_decay'", 0.1, 0, 0.1},
               {"LARS", "'lars_nu'", "'optimizer'", 0.1, 0, 0},
               {"lars", "'optimizer'", "'max_grad_norm'", 0, 1, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rd_status st = {0};
        rd_optim_config c = optim_defaults;
        c.optimizer = bad[i].optimizer;
        c.lars_nu = bad[i].lars_nu;
        c.has_lars_nu = bad[i].lars_nu > 0;
        c.max_grad_norm = bad[i].max_grad_norm;
        c.has_max_grad_norm = bad[i].max_grad_norm > 0;
        c.weight_decay = bad[i].weight_decay;
        assert_int_equal(rd_optim_check(&c, NULL, &st), RD_EUSAGE);
        assert_non_null(strstr(st.msg, bad[i].one));
        assert_non_null(strstr(st.msg, bad[i].other));
    }
    rd_status st = {0};
    rd_optim_config c = optim_defaults;
    c.optimizer = "momentum";
    c.weight_decay = 1e-4;
    c.has_max_grad_norm = true;
    assert_int_equal(rd_optim_check(&c, NULL, &st), RD_OK);
    c.weight_decay_all = true;
    assert_int_equal(rd_optim_check(&c, NULL, &st), RD_OK);
    c.optimizer = "adamw";
    assert_int_equal(rd_optim_check(&c, NULL, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "'weight_decay_all'"));
    assert_non_null(strstr(st.msg, "'decay_exclude'"));
}

/* ---- running statistics, weight decay ---- */

/* Two weights, a bias and two running statistics, one declared in between. */
typedef struct mixed_params {
    rd_params *p;
    rd_param *w, *b, *mean, *var;
} mixed_params;

static void mixed_new(mixed_params *m)
{
    rd_status st = {0};
    const int64_t n_w[] = {5000}, n_b[] = {3};
    const rd_init one = {.kind = RD_INIT_CONST, .value = 1.0};
    memset(m, 0, sizeof *m);
    assert_int_equal(rd_params_new(&m->p, &st), RD_OK);
    assert_int_equal(rd_params_add(m->p, "w", 1, n_w, one, 0, &m->w, &st), RD_OK);
    assert_int_equal(rd_params_add_state(m->p, "mean", 7, 0.0, 0.9, &m->mean, &st), RD_OK);
    assert_int_equal(rd_params_add_state(m->p, "var", 7, 1.0, 0.75, &m->var, &st), RD_OK);
    assert_int_equal(rd_params_add(m->p, "b", 1, n_b, one, RD_PARAM_NO_DECAY, &m->b, &st), RD_OK);
    assert_int_equal(rd_params_seal(m->p, 1, NAN, &st), RD_OK);
    assert_true(rd_params_count(m->p) == 5003);
    assert_int_equal(test_use_device(m->p, &st), RD_OK);
    assert_true(rd_params_trained_span(m->p) < rd_params_span(m->p));
    assert_true(m->mean->offset >= rd_params_trained_span(m->p) &&
                m->var->offset >= rd_params_trained_span(m->p));
}

/* v = momentum v + (1 - momentum) g with the scaled gradient g, for every optimizer. v does not
 * count in norms, clipping, decay and slots. */
static void test_state(void **state)
{
    mixed_params m;
    rd_status st = {0};
    rd_optim *o = NULL;
    rd_optim_config c = optim_defaults;
    mixed_new(&m);
    c.optimizer = *state;
    c.weight_decay = 0.5;
    c.weight_decay_all = true;
    c.has_max_grad_norm = strcmp(c.optimizer, "lars") != 0;
    c.max_grad_norm = 1e-3;
    assert_int_equal(rd_optim_new(&c, m.p, 1, &o, &st), RD_OK);
    float *g = rd_params_grads(m.p), *v = rd_params_values(m.p);
    float mean = 0.0f, var = 1.0f;
    for (int t = 1; t <= 3; t++) {
        memset(g, 0, (size_t)rd_params_span(m.p) * sizeof *g);
        g[m.w->offset] = 3.0f * 8.0f; /* scaled by 1/8: 3 and 4, norm 5 */
        g[m.b->offset] = 4.0f * 8.0f;
        for (int i = 0; i < 7; i++) {
            g[m.mean->offset + i] = 8.0f * (float)(i + t);
            g[m.var->offset + i] = 8.0f * 1e6f;
        }
        double norms[4] = {9, 9, 9, 9};
        rd_optim_stats s = {.param_norm = norms};
        update(o, m.p, t, 0.1, 0.125, &s);
        assert_true(s.finite);
        assert_true(s.grad_norm == 5.0);
        assert_true(norms[1] == 0.0 && norms[2] == 0.0);
        mean = 0.9f * mean + (float)(1.0 - 0.9) * (float)(6 + t);
        var = 0.75f * var + 0.25f * 1e6f;
        assert_true(fabsf(v[m.mean->offset + 6] - mean) <= 1e-6f * mean);
        assert_true(fabsf(v[m.var->offset] - var) <= 1e-6f * var);
    }
    /* A statistic that is not finite stops the step. */
    const float w = v[m.w->offset];
    g[m.var->offset + 6] = INFINITY;
    rd_optim_stats s = {0};
    update(o, m.p, 4, 0.1, 1.0, &s);
    assert_false(s.finite);
    assert_true(v[m.w->offset] == w && fabsf(v[m.mean->offset + 6] - mean) <= 1e-6f * mean);
    rd_optim_free(o);
    rd_params_free(m.p);
}

/* Decay is for what may decay; l2 is the term that a loss with it would print. */
static void test_weight_decay(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        mixed_params m;
        rd_status st = {0};
        rd_optim *o = NULL;
        rd_optim_config c = optim_defaults;
        mixed_new(&m);
        c.optimizer = "sgd";
        c.weight_decay = 0.5;
        c.weight_decay_all = all;
        assert_int_equal(rd_optim_new(&c, m.p, 2, &o, &st), RD_OK);
        float *v = rd_params_values(m.p), *g = rd_params_grads(m.p);
        g[m.w->offset + 4999] = 1.0f;
        rd_optim_stats s = {.want_l2 = true};
        update(o, m.p, 1, 0.25, 1.0, &s);
        assert_true(s.l2 == 0.25 * (all ? 5003 : 5000));
        assert_true(s.grad_norm == 1.0); /* without the decay */
        assert_true(g[m.w->offset + 4999] == 1.0f && g[m.w->offset] == 0.0f);
        assert_true(v[m.w->offset] == 1.0f - 0.25f * 0.5f);
        assert_true(v[m.w->offset + 4999] == 1.0f - 0.25f * 1.5f);
        assert_true(v[m.b->offset] == (all ? 1.0f - 0.25f * 0.5f : 1.0f));
        assert_true(v[m.var->offset] == 0.75f &&
                    v[m.mean->offset] == 0.0f); /* gradient 0, no decay */
        for (int64_t i = m.b->n; i < 16; i++) assert_true(v[m.b->offset + i] == 0.0f); /* the gap */
        rd_optim_free(o);
        rd_params_free(m.p);
    }
}

/* adamw without gradients: each step multiplies what decays by 1 - lr weight_decay, and the moments
 * stay 0, because they do not include the decay. A matrix may be without decay by its flag. */
static void test_decoupled(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n_dim;
        int64_t dim[2];
        unsigned flags;
        bool decays; /* where decay_exclude is 1d */
    } shapes[] = {{"matrix", 2, {97, 131}, 0, true}, {"table", 2, {1301, 7}, RD_PARAM_ROWS, true},
                  {"row", 2, {1, 5}, 0, true},       {"gains", 2, {1, 6}, RD_PARAM_NO_DECAY, false},
                  {"bias", 1, {131, 0}, 0, false},   {"norm", 1, {9, 0}, RD_PARAM_NO_DECAY, false},
                  {"scalar", 0, {0, 0}, 0, false}};
    enum { N = sizeof shapes / sizeof *shapes };
    for (int all = 0; all < 2; all++) {
        rd_status st = {0};
        rd_params *p = NULL;
        rd_optim *o = NULL;
        rd_param *q[N], *mean;
        rd_optim_config c;
        const rd_init two = {.kind = RD_INIT_CONST, .value = 2.0};
        must_do(optim_from_keys("adamw",
                                all ? "\"weight_decay\": 0.5, \"decay_exclude\": \"none\""
                                    : "\"weight_decay\": 0.5",
                                &c, &st),
                &st);
        assert_int_equal(rd_params_new(&p, &st), RD_OK);
        for (int i = 0; i < N; i++)
            assert_int_equal(rd_params_add(p, shapes[i].name, shapes[i].n_dim, shapes[i].dim, two,
                                           shapes[i].flags, &q[i], &st),
                             RD_OK);
        assert_int_equal(rd_params_add_state(p, "mean", 7, 2.0, 0.5, &mean, &st), RD_OK);
        assert_int_equal(rd_params_seal(p, 1, NAN, &st), RD_OK);
        assert_int_equal(test_use_device(p, &st), RD_OK);
        assert_int_equal(rd_optim_new(&c, p, 2, &o, &st), RD_OK);
        float *v = rd_params_values(p);
        for (int t = 1; t <= 2; t++) {
            memset(rd_params_grads(p), 0, (size_t)rd_params_span(p) * sizeof *v);
            rd_optim_stats s = {.want_l2 = true};
            update(o, p, t, 0.25, 1.0, &s);
            assert_true(s.finite && s.grad_norm == 0.0);
            assert_true(s.l2 == 0.0); /* no term of a loss */
            for (int i = 0; i < N; i++) {
                const float want = all || shapes[i].decays ? 2.0f * powf(0.875f, (float)t) : 2.0f;
                for (int64_t k = 0; k < q[i]->n; k++)
                    if (v[q[i]->offset + k] != want)
                        fail_msg("%s, step %d: %g, expected %g", shapes[i].name, t,
                                 (double)v[q[i]->offset + k], (double)want);
                for (int64_t k = q[i]->n; k < (q[i]->n + 15) / 16 * 16; k++)
                    assert_true(v[q[i]->offset + k] == 0.0f); /* the gap */
            }
            assert_true(v[mean->offset] == 2.0f * powf(0.5f, (float)t)); /* its own rule only */
            for (int k = 0; k < rd_params_n_slots(p); k++)
                for (int64_t i = 0; i < rd_params_trained_span(p); i++)
                    assert_true(rd_params_slot(p, k)[i] == 0.0f);
        }
        rd_optim_free(o);
        rd_params_free(p);
    }
}

/* Spec of adamw's first step: |dw| = lr |g| / (|g| + eps), as the moments are corrected first. */
static void test_adamw_first_step(void **state)
{
    (void)state;
    fixture f;
    setup(&f, "adamw", 1, 0, 0, 0);
    float *g = rd_params_grads(f.p);
    fill(&f, g, 3, false);
    const rd_param *q = rd_params_find(f.p, "matrix");
    for (int64_t i = q->offset; i < q->offset + q->n; i++) g[i] *= 1e-7f; /* near epsilon */
    step(&f, 1, 1.0);
    for (int64_t i = q->offset; i < q->offset + q->n; i++) {
        const double a = fabs((double)g[i]), want = 0.01 * a / (a + 1e-8);
        assert_true(fabs(fabs((double)rd_params_values(f.p)[i]) - want) <= 1e-5 * want);
    }
    teardown(&f);
}

/* The average of the weights moves by max(ema, 9 / (t + 10)) of the way, t from 0, also in rows
 * without a gradient. A skipped step moves nothing. Two exchanges change nothing. */
static void test_ema(void **state)
{
    static const double emas[] = {0.02, 0.7};
    for (int k = 0; k < 2; k++) {
        fixture f;
        setup(&f, *state, 2, 0, 0, 0);
        rd_optim_free(f.o);
        fill(&f, rd_params_values(f.p), 5, false);
        test_written(f.p);
        f.c.ema = emas[k];
        must_do(rd_optim_new(&f.c, f.p, 2, &f.o, &f.st), &f.st);
        const int slot = rd_optim_ema_slot(f.o), n = rd_optim_n_slots(f.o);
        assert_int_equal(slot, rd_params_n_slots(f.p) - 1);
        assert_int_equal(n, rd_optim_def(f.o)->n_slots + 1);
        assert_string_equal(rd_optim_slot_name(f.o, n - 1), "ema");
        if (n > 1) assert_string_equal(rd_optim_slot_name(f.o, 0), rd_optim_def(f.o)->slot_name[0]);
        const int64_t span = rd_params_span(f.p);
        double *want = malloc((size_t)span * sizeof *want);
        assert_non_null(want);
        for (int64_t i = 0; i < span; i++) want[i] = (double)rd_params_values(f.p)[i];
        int64_t t = 0;
        for (uint32_t s = 0; s < 9; s++) {
            fill(&f, rd_params_grads(f.p), 10 + s, true);
            if (s == 4) rd_params_grads(f.p)[rd_params_at(f.p, 0)->offset + 3] = INFINITY;
            const rd_optim_stats done = step(&f, t + 1, 1.0);
            assert_int_equal(done.finite, s != 4);
            const double share = fmax(emas[k], 9.0 / ((double)t + 10.0));
            for (int64_t i = 0; i < span && done.finite; i++)
                want[i] += share * ((double)rd_params_values(f.p)[i] - want[i]);
            t += done.finite;
            for (int64_t i = 0; i < span; i++) {
                const double gap = fabs((double)rd_params_slot(f.p, slot)[i] - want[i]);
                if (gap > 2e-6) fail_msg("element %d is off by %g", (int)i, gap);
            }
        }
        float *w = malloc(span_bytes(&f)), *x = malloc(span_bytes(&f));
        memcpy(w, rd_params_values(f.p), span_bytes(&f));
        memcpy(x, rd_params_slot(f.p, slot), span_bytes(&f));
        assert_memory_not_equal(w, x, span_bytes(&f));
        must_do(rd_optim_swap_ema(f.o, &f.st), &f.st);
        test_fetch(f.p);
        assert_memory_equal(rd_params_values(f.p), x, span_bytes(&f));
        assert_memory_equal(rd_params_slot(f.p, slot), w, span_bytes(&f));
        must_do(rd_optim_swap_ema(f.o, &f.st), &f.st);
        test_fetch(f.p);
        assert_memory_equal(rd_params_values(f.p), w, span_bytes(&f));
        assert_memory_equal(rd_params_slot(f.p, slot), x, span_bytes(&f));
        free(w);
        free(x);
        free(want);
        teardown(&f);
    }
}

/* A norm above the limit of the caller changes nothing; a norm at the limit does. */
static void test_most_norm(void **state)
{
    fixture f;
    setup(&f, *state, 2, 1.0, 0, 0);
    fill(&f, rd_params_values(f.p), 5, false);
    fill(&f, rd_params_grads(f.p), 6, false);
    float *w = malloc(span_bytes(&f)), *g = malloc(span_bytes(&f));
    memcpy(w, rd_params_values(f.p), span_bytes(&f));
    memcpy(g, rd_params_grads(f.p), span_bytes(&f));
    rd_optim_stats s = {.most_norm = 1e-3};
    update(f.o, f.p, 1, 0.01, 1.0, &s);
    assert_false(s.finite);
    assert_true(s.spike && s.grad_norm > 1.0);
    assert_memory_equal(rd_params_values(f.p), w, span_bytes(&f));
    assert_memory_equal(rd_params_grads(f.p), g, span_bytes(&f));
    s = (rd_optim_stats){.most_norm = s.grad_norm};
    update(f.o, f.p, 1, 0.01, 1.0, &s);
    assert_true(s.finite && !s.spike);
    assert_memory_not_equal(rd_params_values(f.p), w, span_bytes(&f));
    rd_params_grads(f.p)[rd_params_at(f.p, 0)->offset + 3] = NAN; /* this is no spike */
    update(f.o, f.p, 2, 0.01, 1.0, &s);
    assert_true(!s.finite && !s.spike);
    free(w);
    free(g);
    teardown(&f);
}

/* Without the key there is no slot and nothing to exchange. */
static void test_no_ema(void **state)
{
    fixture f;
    (void)state;
    setup(&f, "adam", 1, 0, 0, 0);
    assert_int_equal(rd_optim_ema_slot(f.o), -1);
    assert_int_equal(rd_optim_n_slots(f.o), 2);
    const uint64_t version = rd_params_version(f.p);
    must_do(rd_optim_swap_ema(f.o, &f.st), &f.st);
    assert_true(rd_params_version(f.p) == version);
    teardown(&f);
}

#define ONE(fn, optimizer) TEST_NAMED(#fn " " optimizer, fn, optimizer)
#define EACH(fn)                                                                                   \
    ONE(fn, "sgd"), ONE(fn, "momentum"), ONE(fn, "adam"), ONE(fn, "adagrad"), ONE(fn, "nesterov"), \
        ONE(fn, "rmsprop"), ONE(fn, "lars"), ONE(fn, "adadelta"), ONE(fn, "adamw")

RD_TESTS("optim_step", EACH(test_not_finite), EACH(test_threads), EACH(test_zero_rows),
         EACH(test_zero_grads), EACH(test_cuts), TEST(test_norms), TEST(test_lars_keeps_gradients),
         TEST(test_adam_first_step), EACH(test_state), TEST(test_weight_decay),
         TEST(test_decoupled), TEST(test_adamw_first_step), TEST(test_exclusions),
         TEST(test_checksums), EACH(test_ema), TEST(test_no_ema), EACH(test_most_norm),
         TEST(test_registry))
