/* images.c -- compares the image models with PyTorch in float64.
 *
 * Compared are the loss, gradients, running statistics, ten steps of training, an evaluation, and
 * the numbers of parameters and operations. README.md of this folder describes the cases and how
 * they were made.
 *
 * Tolerances: each case states how far rounding moves each kind of number, because training through
 * batch norm of few samples amplifies rounding more in a deep network than in a shallow one. The
 * stated number is the largest difference from PyTorch's float64 of two kinds of runs: PyTorch's
 * own float32, and float64 with weights that are off by some units in the last place of a float32.
 * Eight times that number is allowed, because run_dist sums in other orders and uses another
 * algorithm (Winograd) for some convolutions. No wrong formula passes: an epsilon of 1e-5 instead
 * of 1e-3 moves the first loss by 3e-6, and a wrong momentum moves the later ones by percents.
 *
 * On a GPU in mixed, images are bfloat16 between layers. There the models are also compared with
 * PyTorch in float64 that rounds at the same places. Each number has its own tolerance; README.md
 * explains how it was derived. Builds without a GPU have none of these tests; the emulated one
 * has. */
#include "rd/image_net.h"
#include "rd/model.h"
#include "rd/optim.h"
#include "rd/modes.h"
#include "optim_defaults.h"
#include "test.h"
#include "test_device.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden/images"
#define NARROW_FOLDER "tests/golden/images_narrow"
#define ALLOWED 8.0 /* times the rounding that the case states */
/* Times the root mean square of 16 runs, for each number. The probability of more by chance is 1 in
 * 50,000. */
#define NARROW_ALLOWED 6.0
enum { MOST_CASES = 64, MOST_IMAGES = 32 };

/* ---- numbers by formula: README.md, "Image models" ---- */
static uint64_t fnv1a(const char *prefix, const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *prefix; prefix++) h = (h ^ (unsigned char)*prefix) * 1099511628211u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

/* Returns 24 bits of SplitMix64. */
static uint32_t bits(uint64_t hash, int64_t i)
{
    uint64_t z = (hash + (uint64_t)i) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) >> 40);
}

/* Returns a number in [-1, 1). */
static double formula(uint64_t hash, int64_t i)
{
    return (double)bits(hash, i) * 0x1p-23 - 1.0;
}

static void set_param(rd_params *ps, const rd_param *p)
{
    const uint64_t h = fnv1a("", p->name), off = fnv1a("off/", p->name);
    const char *part = strrchr(p->name, '/') + 1;
    float *w = test_values(ps) + p->offset;
    const bool beta = strcmp(part, "beta") == 0, first = beta && strstr(p->name, "/norm1/");
    const double middle = strstr(p->name, "/norm2/") || strstr(p->name, "/norm3/") ? 0.25 : 1.0;
    if (p->flags & RD_PARAM_STATE) return;
    if (strcmp(part, "kernel") == 0) {
        const double spread = sqrt(6.0 / (double)(p->n / p->dim[p->n_dim - 1]));
        for (int64_t i = 0; i < p->n; i++) w[i] = (float)(formula(h, i) * spread);
    } else if (beta || strcmp(part, "gamma") == 0) {
        for (int64_t i = 0; i < p->n; i++) {
            const double about = !beta ? 1.0 : first && bits(off, i) % 4 == 0 ? -3.0 : 3.0;
            w[i] = (float)(middle * (about + 0.25 * formula(h, i)));
        }
    } else {
        for (int64_t i = 0; i < p->n; i++) w[i] = (float)(0.125 * formula(h, i));
    }
}

/* ---- the device: the first GPU with RD_TEST_DEVICE=cuda ---- */
#ifdef RD_CUDA
static rd_gpu *gpus[2]; /* float32, mixed; made at the first use */

static void free_gpus(void)
{
    for (int i = 0; i < 2; i++) rd_gpu_free(gpus[i]);
}

static void new_gpu_backend(bool mixed, rd_backend **be, rd_status *st)
{
    if (!gpus[0] && !gpus[1]) (void)atexit(free_gpus);
    if (!gpus[mixed])
        must_do(rd_gpu_new(0, &(rd_gpu_options){.mixed = mixed}, &gpus[mixed], st), st);
    must_do(rd_backend_gpu_new(gpus[mixed], 1, be, st), st);
}

static bool emulated(void)
{
    return test_on_gpu() && strstr(rd_gpu_libraries(), "emulated");
}

static void use_device(rd_params *ps, const rd_backend *be)
{
    rd_status st = {0};
    if (rd_gpu_of(be)) must_do(rd_params_use_gpu(ps, rd_gpu_of(be), &st), &st);
}
#else
static void new_gpu_backend(bool mixed, rd_backend **be, rd_status *st)
{
    (void)mixed, (void)be, (void)st;
    fail_msg("RD_TEST_DEVICE=cuda, and this build has no GPU backend");
}

static bool emulated(void)
{
    return false;
}

static void use_device(rd_params *ps, const rd_backend *be)
{
    (void)ps, (void)be;
}
#endif

/* ---- a case ---- */
typedef struct fixture {
    json_t *info;
    rd_config *config;
    rd_params *ps;
    rd_backend *be;
    rd_tape *tape;
    const rd_model_def *def;
    void *model;
    rd_batch batch;
    float *image;
    int32_t *label;
    int64_t sample[MOST_IMAGES], off[MOST_IMAGES + 1], label_off[MOST_IMAGES + 1];
} fixture;

static const json_t *info(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!v) fail_msg("the case has no '%s'", key);
    return v;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(info(o, key));
}

static double rounding(const fixture *f, const char *kind)
{
    return fmax(number(info(f->info, "rounding"), kind), 0x1p-23);
}

static double allowed(const fixture *f, const char *kind)
{
    return ALLOWED * rounding(f, kind);
}

/* Makes the config from the keys of the case, without dropout. quick: the initial values do not
 * matter, so they are uniform, which is fastest. */
static void open_config(fixture *f, const char *model, const json_t *keys, bool quick)
{
    rd_status st = {0};
    const rd_option_group *groups[RD_MAX_GROUPS];
    json_t *o = keys ? json_deep_copy(keys) : json_object();
    json_object_set_new(o, "model", json_string(model));
    json_object_set_new(o, "dropout_conv", json_real(0.0));
    json_object_set_new(o, "dropout_dense", json_real(0.0));
    if (quick) json_object_set_new(o, "initializer", json_string("glorot_uniform"));
    char *text = json_dumps(o, 0);
    assert_non_null(text);
    must_do(rd_config_new(model, text, strlen(text), groups, rd_option_groups(groups), false,
                          &f->config, &st),
            &st);
    free(text);
    json_decref(o);
}

static rd_code create(fixture *f, const char *model, const json_t *image, int64_t classes,
                      bool mixed, rd_status *st)
{
    rd_status own = {0};
    rd_data_spec spec = {.n_classes = classes,
                         .image_h = json_integer_value(json_array_get(image, 0)),
                         .image_w = json_integer_value(json_array_get(image, 1)),
                         .image_c = json_integer_value(json_array_get(image, 2))};
    rd_log *log;
    must_do(rd_params_new(&f->ps, &own), &own);
    if (test_on_gpu())
        new_gpu_backend(mixed, &f->be, &own);
    else
        must_do(rd_backend_cpu_new(1, mixed, &f->be, &own), &own);
    must_do(rd_log_new(0, "test", stdout, &log, &own), &own);
    f->def = rd_model_find(model);
    if (!f->def) fail_msg("there is no model '%s'", model);
    const rd_model_args args = {.def = f->def,
                                .config = f->config,
                                .mode = RD_MODE_TRAIN,
                                .data = &spec,
                                .seed = 1,
                                .params = f->ps,
                                .backend = f->be,
                                .log = log};
    (void)f->def->create(&args, &f->model, st);
    rd_log_free(log);
    return st->code;
}

/* Opens a case. first: number of the first sample. */
static fixture *open_with(const char *name, bool mixed, int64_t first)
{
    rd_status st = {0};
    fixture *f = calloc(1, sizeof *f);
    char path[512];
    json_error_t e;
    assert_non_null(f);
    snprintf(path, sizeof path, FOLDER "/%s", name);
    f->info = json_load_file(path, 0, &e);
    if (!f->info) fail_msg("%s:%d: %s", path, e.line, e.text);
    const char *model = json_string_value(info(f->info, "model"));
    const json_t *image = info(f->info, "image"), *list = info(f->info, "parameters");
    const int64_t n = (int64_t)number(f->info, "n"), classes = (int64_t)number(f->info, "classes");
    open_config(f, model, info(f->info, "config"), true);
    must_do(create(f, model, image, classes, mixed, &st), &st);
    must_do(rd_params_seal(f->ps, 1, NAN, &st), &st);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i), *shape = json_array_get(row, 1);
        const rd_param *p = rd_params_find(f->ps, json_string_value(json_array_get(row, 0)));
        if (!p)
            fail_msg("the model has no parameter '%s'", json_string_value(json_array_get(row, 0)));
        assert_int_equal(json_array_size(shape), p->n_dim);
        for (int k = 0; k < p->n_dim; k++)
            assert_int_equal(json_integer_value(json_array_get(shape, (size_t)k)), p->dim[k]);
        set_param(f->ps, p);
    }
    assert_int_equal(json_array_size(list) + json_array_size(info(f->info, "states")),
                     rd_params_n(f->ps));
    rd_params_touch(f->ps);
    use_device(f->ps, f->be);
    must_do(rd_tape_new(f->be, f->ps, &f->tape, &st), &st);
    int64_t dim[3], size = 1;
    for (size_t k = 0; k < 3; k++) size *= dim[k] = json_integer_value(json_array_get(image, k));
    assert_true(n <= MOST_IMAGES);
    f->image = malloc((size_t)(n * size) * sizeof *f->image + 64);
    f->label = malloc((size_t)n * sizeof *f->label);
    assert_true(f->image && f->label);
    const uint64_t hash = fnv1a("", "image"), square = fnv1a("", "square"),
                   label_hash = fnv1a("", "label");
    for (int64_t i = first, at = 0; i < first + n; i++)
        for (int64_t y = 0; y < dim[0]; y++)
            for (int64_t x = 0; x < dim[1]; x++)
                for (int64_t c = 0; c < dim[2]; c++, at++)
                    f->image[at] =
                        (float)(0.75 *
                                    formula(square, ((i * 64 + y / 8) * 64 + x / 8) * dim[2] + c) +
                                0.25 * formula(hash, first * size + at));
    for (int64_t i = 0; i < n; i++) {
        f->label[i] = (int32_t)(bits(label_hash, first + i) % (uint32_t)classes);
        f->sample[i] = i;
        f->off[i + 1] = (i + 1) * size;
        f->label_off[i + 1] = i + 1;
    }
    f->batch = (rd_batch){.n = n, .n_global = n, .sample = f->sample, .n_fields = 2};
    f->batch.field[0] = (rd_field){
        .name = "image", .dtype = RD_F32, .data = f->image, .off = f->off, .n_dim = 3};
    memcpy(f->batch.field[0].dim, dim, sizeof dim);
    f->batch.field[1] = (rd_field){
        .name = "label", .dtype = RD_I32, .data = f->label, .off = f->label_off};
    return f;
}

static fixture *open_case(const char *name)
{
    return open_with(name, false, 0);
}

static void close_case(fixture *f)
{
    rd_tape_free(f->tape);
    if (f->model) f->def->destroy(f->model);
    rd_backend_free(f->be);
    rd_params_free(f->ps);
    rd_config_free(f->config);
    json_decref(f->info);
    free(f->image);
    free(f->label);
    free(f);
}

static void near(double got, double want, double rtol, const char *what)
{
    if (!(fabs(got - want) <= rtol * fabs(want)))
        fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

static rd_loss_out forward(fixture *f, bool training)
{
    rd_status st = {0};
    rd_loss_out out;
    rd_tape_reset(f->tape, training, training);
    must_do(f->def->loss(f->model, f->tape, &f->batch, &out, &st), &st);
    return out;
}

static rd_loss_out forward_backward(fixture *f)
{
    rd_status st = {0};
    memset(test_grads(f->ps), 0, (size_t)rd_params_span(f->ps) * sizeof(float));
    rd_params_touch_grads(f->ps);
    const rd_loss_out out = forward(f, true);
    must_do(rd_tape_backward(f->tape, out.loss, &st), &st);
    return out;
}

/* Compares x / by with the rows of a list. A row is [name, .., norm, product with the fixed vector
 * of that name, ..], with the norm at index `at`. tolerance: as a share of the norm. own:
 * multiplies the tolerance by the numbers that the row has after these two. */
static void check_rows(const fixture *f, const char *list, size_t at, const float *x, double by,
                       double tolerance, bool own)
{
    const json_t *rows = info(f->info, list);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_array_get(row, 0));
        const rd_param *p = rd_params_find(f->ps, name);
        if (!p) fail_msg("the model has no '%s'", name);
        const double norm = json_number_value(json_array_get(row, at)),
                     dot = json_number_value(json_array_get(row, at + 1));
        const uint64_t h = fnv1a("dot/", name);
        double got_norm = 0.0, got_dot = 0.0;
        for (int64_t k = 0; k < p->n; k++) {
            const double v = (double)x[p->offset + k] / by;
            got_norm += v * v;
            got_dot += v * formula(h, k);
        }
        got_norm = sqrt(got_norm);
        /* The gradient of some betas is only rounding. */
        const double part = tolerance * fmax(norm, 0.01);
        const double most[2] = {part * (own ? json_number_value(json_array_get(row, at + 2)) : 1.0),
                                part *
                                    (own ? json_number_value(json_array_get(row, at + 3)) : 1.0)};
        if (!(fabs(got_norm - norm) <= most[0]) || !(fabs(got_dot - dot) <= most[1]))
            fail_msg("%s: norm %.7g and product %.7g, want %.7g to %.1e and %.7g to %.1e", name,
                     got_norm, got_dot, norm, most[0], dot, most[1]);
    }
}

static void check_tables(const fixture *f, const char *list, size_t at, const float *x, double by,
                         double tolerance)
{
    check_rows(f, list, at, x, by, tolerance, false);
}

static void test_gradients(void **state)
{
    fixture *f = open_case(*state);
    const rd_loss_out out = forward_backward(f);
    const double n = (double)f->batch.n;
    near(out.loss_sum, number(f->info, "loss_sum"), allowed(f, "loss"), "loss");
    near(out.nll_sum, number(f->info, "nll_sum"), allowed(f, "loss"), "negative log likelihood");
    assert_true(out.weight == n && out.n_targets == n && out.n_tokens_src == 0.0 &&
                out.n_tokens_tgt == 0.0);
    const int32_t *label = rd_batch_field(&f->batch, "label")->data;
    double n_correct = 0.0, n_top5 = 0.0;
    for (int64_t i = 0; i < f->batch.n; i++) {
        n_correct += out.argmax[i] == label[i];
        n_top5 += out.rank[i] < 5;
    }
    assert_true(n_correct == number(f->info, "n_correct") && n_top5 == number(f->info, "n_top5"));
    check_tables(f, "parameters", 2, test_grads(f->ps), n, allowed(f, "gradient"));
    close_case(f);
}

/* Trains from the initial weights and compares the losses of the case. */
static void check_losses(fixture *f, double tolerance)
{
    rd_status st = {0};
    rd_optim *o;
    const char *optimizer = json_string_value(info(f->info, "optimizer"));
    rd_optim_config c;
    const json_t *want = info(f->info, "losses");
    must_do(optim_from_keys(optimizer,
                            strcmp(optimizer, "adadelta") == 0 ? "\"adadelta_epsilon\": 1e-7" : "",
                            &c, &st),
            &st);
    must_do(rd_optim_new(&c, f->ps, 1, &o, &st), &st);
    for (size_t i = 0; i < json_array_size(want); i++) {
        const rd_loss_out out = forward_backward(f);
        char what[64];
        snprintf(what, sizeof what, "loss of step %zu", i);
        near(out.loss_sum / out.weight, json_number_value(json_array_get(want, i)), tolerance,
             what);
        rd_optim_stats stats = {0};
        must_do(rd_optim_step(o, (int64_t)i + 1, number(f->info, "lr"), 1.0 / out.weight, &stats,
                              &st),
                &st);
    }
    rd_optim_free(o);
}

static void test_training(void **state)
{
    fixture *f = open_case(*state);
    const double tolerance = allowed(f, "training");
    check_losses(f, tolerance);
    check_tables(f, "states", 1, test_values(f->ps), 1.0, allowed(f, "state"));
    const rd_loss_out out = forward(f, false);
    const double eval = fmax(allowed(f, "eval"), tolerance);
    near(out.loss_sum / out.weight, number(f->info, "eval_loss"), eval, "loss of the evaluation");
    near(out.nll_sum / out.weight, number(f->info, "eval_nll"), eval, "its plain likelihood");
    close_case(f);
}

/* ---- published sizes ---- */
static void test_counts(void **state)
{
    (void)state;
    json_error_t e;
    json_t *rows = json_load_file(FOLDER "/parameter_counts.json", 0, &e);
    if (!rows) fail_msg("%s", e.text);
    assert_true(json_array_size(rows) >= 20);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *model = json_string_value(info(row, "model"));
        fixture *f = calloc(1, sizeof *f);
        rd_status st = {0};
        assert_non_null(f);
        open_config(f, model, NULL, false);
        must_do(create(f, model, info(row, "image"), (int64_t)number(row, "classes"), false, &st),
                &st);
        const rd_batch one = {.n = 3};
        const double want = 3.0 * (6.0 * number(row, "macs") - 2.0 * number(row, "first_macs")),
                     got = f->def->flops(f->model, &one);
        if (rd_params_count(f->ps) != (int64_t)number(row, "parameters") || got != want)
            fail_msg("%s: %lld parameters and %.0f operations, want %.0f and %.0f", model,
                     (long long)rd_params_count(f->ps), got, number(row, "parameters"), want);
        close_case(f);
    }
    json_decref(rows);
}

/* Numbers of papers and other programs, not of the script that makes the cases. */
static void test_known_counts(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int64_t h, c, classes, count;
        double gmac; /* giga multiply-adds of all layers, 0: not compared */
    } known[] = {
        {"mnist_cnn", 28, 1, 10, 1199882, 0.01199},
        {"resnet50", 224, 3, 1000, 25557032, 3.858},
        {"resnet50", 224, 3, 1001, 25559081, 0},
        {"resnet50_v1.5", 224, 3, 1000, 25557032, 4.089},
        {"resnet101", 224, 3, 1000, 44549160, 7.57},
        {"resnet152", 224, 3, 1000, 60192808, 11.28},
        {"resnet101_v1.5", 224, 3, 1000, 44549160, 7.80},
        {"resnet152_v1.5", 224, 3, 1000, 60192808, 11.51},
        {"resnet18", 224, 3, 1000, 11689512, 0},
        {"resnet34", 224, 3, 1000, 21797672, 0},
        {"vgg16", 224, 3, 1000, 138357544, 15.47},
        /* (75 + 1) 64 + (1600 + 1) 64 + (4096 + 1) 384 + (384 + 1) 192 + (192 + 1) 10 */
        {"alexnet_cifar", 32, 3, 10, 1756426, 0},
        {"resnet20", 32, 3, 10, 269722, 0},
        {"resnet32", 32, 3, 10, 464154, 0},
        {"resnet44", 32, 3, 10, 658586, 0},
        {"resnet56", 32, 3, 10, 853018, 0},
        {"resnet110", 32, 3, 10, 1727962, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        fixture *f = calloc(1, sizeof *f);
        rd_status st = {0};
        json_t *image = json_pack("[I, I, I]", (json_int_t)known[i].h, (json_int_t)known[i].h,
                                  (json_int_t)known[i].c);
        assert_true(f && image);
        open_config(f, known[i].model, NULL, false);
        must_do(create(f, known[i].model, image, known[i].classes, false, &st), &st);
        if (rd_params_count(f->ps) != known[i].count)
            fail_msg("%s: %lld parameters, want %lld", known[i].model,
                     (long long)rd_params_count(f->ps), (long long)known[i].count);
        const rd_param *first = rd_params_at(f->ps, 0);
        const double out = known[i].h == 28                          ? 26.0 * 26.0
                           : known[i].h == 224 && first->dim[0] == 7 ? 112.0 * 112.0
                                                                     : 0.0;
        if (known[i].gmac > 0.0 && out > 0.0) {
            const rd_batch one = {.n = 1};
            const double gmac = (f->def->flops(f->model, &one) + 2.0 * out * (double)first->n) /
                                6e9;
            if (fabs(gmac - known[i].gmac) > 0.0051)
                fail_msg("%s: %.4f GMAC, want %.3f", known[i].model, gmac, known[i].gmac);
        }
        json_decref(image);
        close_case(f);
    }
}

/* ---- wrong keys, and unusual batches ---- */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *keys;
        int64_t h, w, c, classes;
        const char *says;
    } bad[] = {
        {"mnist_cnn", "{}", 5, 28, 1, 10, "too small for model mnist_cnn: 1 x 24"},
        {"lenet", "{}", 3, 3, 1, 10, "too small for model lenet"},
        {"alexnet", "{}", 62, 227, 3, 10, "too small for model alexnet"},
        {"vgg16", "{}", 32, 31, 3, 10, "too small for model vgg"},
        {"mnist_cnn", "{}", 28, 28, 1, 0, "the dataset has 0 classes"},
        {"resnet50", "{}", 0, 0, 0, 0, "take a dataset of images"},
        {"resnet", "{\"depth\": 20}", 32, 32, 3, 10, "18, 34, 50, 101 or 152"},
        {"resnet_cifar", "{\"depth\": 50}", 32, 32, 3, 10, "depth"},
        {"resnet_cifar", "{\"depth\": 18}", 32, 32, 3, 10, "6 n + 2"},
        {"resnet50", "{\"depth\": 101}", 224, 224, 3, 10, "take model resnet"},
        {"resnet20", "{\"depth\": 56}", 32, 32, 3, 10, "take model resnet_cifar"},
        {"resnet50_v1.5", "{\"resnet_version\": \"v1\"}", 224, 224, 3, 10, "v1.5"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fixture *f = calloc(1, sizeof *f);
        rd_status st = {0};
        json_t *keys = json_loads(bad[i].keys, 0, NULL),
               *image = json_pack("[I, I, I]", (json_int_t)bad[i].h, (json_int_t)bad[i].w,
                                  (json_int_t)bad[i].c);
        assert_true(f && keys && image);
        open_config(f, bad[i].model, keys, false);
        (void)create(f, bad[i].model, image, bad[i].classes, false, &st);
        if (strcmp(bad[i].keys, "{\"depth\": 50}") == 0) { /* 6 * 8 + 2 is a valid depth */
            assert_int_equal(st.code, RD_OK);
        } else {
            if (st.code != RD_EUSAGE || !strstr(st.msg, bad[i].says))
                fail_msg("row %zu: code %d, '%s'; want '%s'", i, st.code, st.msg, bad[i].says);
            assert_null(f->model);
        }
        json_decref(keys);
        json_decref(image);
        close_case(f);
    }
}

static void test_batches(void **state)
{
    (void)state;
    fixture *f = open_case("lenet.json");
    rd_status st = {0};
    rd_loss_out out;
    float value;
    const rd_batch empty = {.n = 0};
    /* Without samples the loss is 0, and backward has nothing to do. */
    rd_tape_reset(f->tape, true, true);
    must_do(f->def->loss(f->model, f->tape, &empty, &out, &st), &st);
    assert_non_null(out.loss);
    must_do(rd_tape_read(f->tape, out.loss, false, &value, &st), &st);
    assert_true(value == 0.0f && out.weight == 0.0 && !out.loss->needs_grad);
    must_do(rd_tape_backward(f->tape, out.loss, &st), &st);
    f->label[1] = 10; /* the classes are 0 to 9 */
    rd_tape_reset(f->tape, false, false);
    assert_int_equal(f->def->loss(f->model, f->tape, &f->batch, &out, &st), RD_EDATA);
    assert_non_null(strstr(st.msg, "sample 1 has label 10"));
    f->label[1] = 1;
    f->batch.field[0].dim[1] = 27;
    st = (rd_status){0};
    rd_tape_reset(f->tape, false, false);
    assert_int_equal(f->def->loss(f->model, f->tape, &f->batch, &out, &st), RD_EDATA);
    f->batch.field[0].dim[1] = 28;
    f->batch.field[1].dtype = RD_U8;
    st = (rd_status){0};
    rd_tape_reset(f->tape, false, false);
    assert_int_equal(f->def->loss(f->model, f->tape, &f->batch, &out, &st), RD_EUSAGE);
    close_case(f);
}

/* Dropout acts only in training, and depends on seed, epoch and sample. */
static void test_dropout(void **state)
{
    (void)state;
    fixture *f = open_case("mnist_cnn.json");
    rd_status st = {0};
    const double plain = forward(f, true).loss_sum;
    f->def->destroy(f->model);
    f->model = NULL;
    rd_params_free(f->ps);
    rd_tape_free(f->tape);
    rd_backend_free(f->be);
    f->ps = NULL;
    f->tape = NULL;
    f->be = NULL;
    must_do(rd_config_set(f->config, "dropout_conv=0.25", &st), &st);
    must_do(rd_config_set(f->config, "dropout_dense=0.5", &st), &st);
    must_do(create(f, "mnist_cnn", info(f->info, "image"), 10, false, &st), &st);
    must_do(rd_params_seal(f->ps, 1, NAN, &st), &st);
    for (int i = 0; i < rd_params_n(f->ps); i++) set_param(f->ps, rd_params_at(f->ps, i));
    rd_params_touch(f->ps);
    use_device(f->ps, f->be);
    must_do(rd_tape_new(f->be, f->ps, &f->tape, &st), &st);
    const double first = forward(f, true).loss_sum, again = forward(f, true).loss_sum,
                 eval = forward(f, false).loss_sum;
    f->batch.epoch = 1;
    const double later = forward(f, true).loss_sum;
    assert_true(first == again && first != plain && later != first);
    near(eval, plain, 1e-6, "loss of an evaluation");
    close_case(f);
}

/* Products have bfloat16 inputs with 8 bits, so each is off by 0.2 %, in a sum of many. */
static void test_mixed(void **state)
{
    (void)state;
    static const char *const names[] = {"lenet.json", "mnist_cnn.json", "resnet20.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fixture *f = open_with(names[i], true, 0);
        const rd_loss_out out = forward_backward(f);
        const double want = number(f->info, "loss_sum");
        near(out.loss_sum, want, 0.02, "loss in mixed precision");
        assert_true(out.loss_sum != want && fabs(out.loss_sum - want) > 1e-6 * want);
        check_tables(f, "parameters", 2, test_grads(f->ps), (double)f->batch.n, 0.1);
        close_case(f);
    }
}

static bool has_bfloat16(void)
{
    rd_status st = {0};
    rd_backend *be = NULL;
    new_gpu_backend(true, &be, &st);
    const bool has = rd_backend_activations(be) == RD_BFLOAT16;
    rd_backend_free(be);
    return has;
}

/* *state: name of a case. Its results are in the file of that name in images_narrow. */
static void test_narrow(void **state)
{
    if (!has_bfloat16()) skip_because("this device stores activations in another type");
    char path[512];
    json_error_t e;
    snprintf(path, sizeof path, NARROW_FOLDER "/%s", (const char *)*state);
    json_t *narrow = json_load_file(path, 0, &e);
    if (!narrow) fail_msg("%s:%d: %s", path, e.line, e.text);
    fixture *f = open_with(*state, true, (int64_t)number(narrow, "first"));
    json_object_update(f->info, narrow);
    json_decref(narrow);
    const rd_loss_out out = forward_backward(f);
    const double loss = NARROW_ALLOWED * rounding(f, "loss");
    near(out.loss_sum, number(f->info, "loss_sum"), loss, "loss");
    near(out.nll_sum, number(f->info, "nll_sum"), loss, "negative log likelihood");
    check_rows(f, "parameters", 1, test_grads(f->ps), (double)f->batch.n, NARROW_ALLOWED, true);
    check_losses(f, NARROW_ALLOWED * rounding(f, "training"));
    close_case(f);
}

static const rd_param *created(fixture *f, const char *model, const char *keys, const char *name)
{
    rd_status st = {0};
    json_t *k = json_loads(keys, 0, NULL), *image = json_pack("[i, i, i]", 64, 64, 3);
    assert_true(k && image);
    open_config(f, model, k, false);
    must_do(create(f, model, image, 10, false, &st), &st);
    json_decref(k);
    json_decref(image);
    const rd_param *p = rd_params_find(f->ps, name);
    if (!p) fail_msg("no parameter %s", name);
    return p;
}

static void test_initial(void **state)
{
    (void)state;
    static const struct {
        const char *model, *keys, *name;
        rd_init_kind kind;
        double value;
        unsigned flags;
    } rows[] = {
        {"mnist_cnn", "{}", "mnist_cnn/conv2/kernel", RD_INIT_GLOROT, 0.0, 0},
        {"mnist_cnn", "{}", "mnist_cnn/conv2/bias", RD_INIT_CONST, 0.0, RD_PARAM_NO_DECAY},
        {"resnet18", "{}", "resnet/conv1/kernel", RD_INIT_NORMAL, 0.02525381361380527,
         0}, /* sqrt(2 / (49 64)) */
        {"resnet18", "{\"initializer\": \"he_normal_fan_in\"}", "resnet/conv1/kernel",
         RD_INIT_NORMAL, 0.11664236870396085, 0}, /* sqrt(2 / (49 3)) */
        {"resnet18", "{}", "resnet/dense/kernel", RD_INIT_UNIFORM, 0.04419417382415922,
         0}, /* sqrt(1 / 512) */
        {"resnet18", "{}", "resnet/dense/bias", RD_INIT_UNIFORM, 0.04419417382415922,
         RD_PARAM_NO_DECAY},
        {"resnet18", "{}", "resnet/norm1/gamma", RD_INIT_CONST, 1.0, RD_PARAM_NO_DECAY},
        {"resnet18", "{}", "resnet/stage2/block1/norm2/gamma", RD_INIT_CONST, 1.0,
         RD_PARAM_NO_DECAY},
        {"resnet18", "{\"zero_gamma\": true}", "resnet/stage2/block1/norm1/gamma", RD_INIT_CONST,
         1.0, RD_PARAM_NO_DECAY},
        {"resnet18", "{\"zero_gamma\": true}", "resnet/stage2/block1/norm2/gamma", RD_INIT_CONST,
         0.0, RD_PARAM_NO_DECAY},
        {"resnet18", "{\"zero_gamma\": true}", "resnet/stage3/block1/projection_norm/gamma",
         RD_INIT_CONST, 1.0, RD_PARAM_NO_DECAY},
        {"resnet50", "{\"zero_gamma\": true}", "resnet/stage2/block1/norm3/gamma", RD_INIT_CONST,
         0.0, RD_PARAM_NO_DECAY},
        {"resnet20", "{\"zero_gamma\": true}", "resnet_cifar/stage1/block1/norm2/gamma",
         RD_INIT_CONST, 0.0, RD_PARAM_NO_DECAY},
        {"resnet20", "{}", "resnet_cifar/norm1/variance", RD_INIT_CONST, 1.0,
         RD_PARAM_NO_DECAY | RD_PARAM_STATE},
        {"lenet", "{}", "lenet/conv1/kernel", RD_INIT_TRUNCATED, 0.13127181135456945,
         0}, /* sqrt(1 / 75) / 0.87962566 */
        {"lenet", "{}", "lenet/dense1/kernel", RD_INIT_TRUNCATED, 0.011048543456039806,
         0}, /* sqrt(2 / (16 16 64)) */
        {"lenet", "{}", "lenet/dense2/kernel", RD_INIT_TRUNCATED, 0.04419417382415922, 0},
        /* The values of tf_cnn_benchmarks for this model. */
        {"alexnet_cifar", "{}", "alexnet_cifar/conv1/kernel", RD_INIT_TRUNCATED, 0.05, 0},
        {"alexnet_cifar", "{}", "alexnet_cifar/conv1/bias", RD_INIT_CONST, 0.0, RD_PARAM_NO_DECAY},
        {"alexnet_cifar", "{}", "alexnet_cifar/conv2/bias", RD_INIT_CONST, 0.1, RD_PARAM_NO_DECAY},
        {"alexnet_cifar", "{}", "alexnet_cifar/dense1/kernel", RD_INIT_TRUNCATED, 0.04, 0},
        {"alexnet_cifar", "{}", "alexnet_cifar/dense2/bias", RD_INIT_CONST, 0.1, RD_PARAM_NO_DECAY},
        {"alexnet_cifar", "{}", "alexnet_cifar/dense3/bias", RD_INIT_CONST, 0.0, RD_PARAM_NO_DECAY},
        {"alexnet_cifar", "{\"initializer\": \"glorot_uniform\"}", "alexnet_cifar/dense1/kernel",
         RD_INIT_GLOROT, 0.0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture *f = calloc(1, sizeof *f);
        assert_non_null(f);
        const rd_param *p = created(f, rows[i].model, rows[i].keys, rows[i].name);
        if (p->init.kind != rows[i].kind || p->flags != rows[i].flags ||
            fabs(p->init.value - rows[i].value) > 1e-12)
            fail_msg("row %zu, %s: kind %d, value %.17g, flags %u", i, rows[i].name,
                     (int)p->init.kind, p->init.value, p->flags);
        close_case(f);
    }
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    const rd_param *p = created(f, "resnet20", "{\"batch_norm_momentum\": 0.97}",
                                "resnet_cifar/norm1/mean");
    assert_true(p->momentum == 0.97 && p->init.value == 0.0);
    close_case(f);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns whether a network has tens of millions of parameters and this build is slow (sanitizers,
 * emulated GPU). Such a test would take minutes, and run the same code as the smaller networks. */
static bool too_large(const char *name)
{
    bool slow = emulated();
#ifdef __SANITIZE_ADDRESS__
    slow = true;
#endif
    static const char *const large[] = {"alexnet",  "resnet101",  "resnet152", "resnet34",
                                        "resnet50", "resnet_key", "vgg16"};
    for (size_t i = 0; slow && i < sizeof large / sizeof *large; i++)
        if (strncmp(name, large[i], strlen(large[i])) == 0) return true;
    return false;
}

/* Lists the cases of a folder in the order of their names. Returns -1 if there are fewer than
 * `least`. */
static int cases_of(const char *folder, int least, char **names)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strlen(e->d_name) > 5 && strcmp(e->d_name + strlen(e->d_name) - 5, ".json") == 0 &&
            n < MOST_CASES && strcmp(e->d_name, "parameter_counts.json") != 0)
            names[n++] = strdup(e->d_name);
    if (d) closedir(d);
    if (n < least) {
        fprintf(stderr,
                "%s holds %d cases, at least %d are expected; run from the project's folder\n",
                folder, n, least);
        return -1;
    }
    qsort(names, (size_t)n, sizeof *names, by_name);
    return n;
}

static void make_tests(test_list *l)
{
    static char title[3 * MOST_CASES][128];
    static char *names[MOST_CASES], *narrow[MOST_CASES]; /* the tests borrow them */
    int k = 0;
    const int n = cases_of(FOLDER, 16, names), n_narrow = cases_of(NARROW_FOLDER, 5, narrow);
    if (n < 0 || n_narrow < 0) exit(1);
    static const struct {
        const char *what;
        CMUnitTestFunction fn;
    } kinds[] = {{"loss and gradients", test_gradients},
                 {"ten steps and an evaluation", test_training}};
    for (int i = 0; i < n; i++)
        for (int w = 0; w < 2 && !too_large(names[i]); w++, k++) {
            snprintf(title[k], sizeof title[k], "%.80s: %s", names[i], kinds[w].what);
            add_test(l, title[k], kinds[w].fn, names[i]);
        }
    for (int i = 0; i < n_narrow && test_on_gpu(); i++, k++) {
        snprintf(title[k], sizeof title[k], "16 bits: %.80s", narrow[i]);
        add_test(l, title[k], test_narrow, narrow[i]);
    }
    const test_entry others[] = {TEST(test_counts),  TEST(test_known_counts), TEST(test_refused),
                                 TEST(test_batches), TEST(test_dropout),      TEST(test_mixed),
                                 TEST(test_initial)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) add_entry(l, &others[i]);
}

RD_TESTS_MADE("golden images", make_tests)
