/* gpt.c -- compares language models with Hugging Face's transformers in float64: models of a
 * formula whose numbers a few digits hold, and the cases of gpt/ (README.md). Counts parameters,
 * and tests what belongs to these models alone: documents, prompts, completion.
 *
 * The formula: one running index n goes through all parameters, p_n = 0.3 sin(1.7 n + 0.3); gains
 * are 1 + p_n. Matrices count as [outputs][inputs], row by row. */
#include "golden_model.h"
#include "rd/npz.h"
#include "rd/optim.h"
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden/gpt"
enum { MOST_V = 32, STEPS = 10 };

/* Makes a model of a config, whose parameters are not laid out yet. */
static void open_model(golden_model *f, const char *text, size_t n, int64_t V, int32_t end)
{
    const rd_data_spec spec = {.src_vocab_size = V, .tgt_vocab_size = V, .end_id = end};
    golden_open(f, "x.json", text, n, GOLDEN_MODEL_KEYS, &spec);
}

/* Runs n samples: tokens and offsets. before: number of tokens of each that are no targets; NULL:
 * one. */
static rd_loss_out run_as(golden_model *f, int64_t n, const int32_t *ids, const int64_t *off,
                          const int32_t *before, bool backward, bool training)
{
    static const int64_t sample[] = {0, 1, 2, 3, 4, 5, 6, 7};
    rd_batch b = {.n = n, .n_global = n, .sample = sample, .n_fields = before ? 2 : 1};
    b.field[0] = (rd_field){.name = "target", .dtype = RD_I32, .data = ids, .off = off};
    b.field[1] = (rd_field){.name = "prompt", .dtype = RD_I32, .data = before, .off = sample};
    return golden_loss_as(f, &b, backward, training);
}

static rd_loss_out run(golden_model *f, int64_t n, const int32_t *ids, const int64_t *off,
                       const int32_t *before, bool backward)
{
    return run_as(f, n, ids, off, before, backward, true);
}

/* ---- the formula ---- */

/* Fills columns [col, col + cols) of a parameter, or all of a vector, as a matrix [cols][rows]. */
static void fill(golden_model *f, const char *name, double base, int64_t col, int64_t cols,
                 int64_t *n)
{
    const rd_param *p = rd_params_find(f->ps, name);
    if (!p) fail_msg("the model has no parameter '%s'", name);
    float *w = test_values(f->ps) + p->offset;
    const int64_t all = p->n_dim == 2 ? p->dim[1] : 1, rows = p->n / all;
    for (int64_t c = col; c < col + cols; c++)
        for (int64_t r = 0; r < rows; r++, ++*n)
            w[r * all + c] = (float)(base + 0.3 * sin(1.7 * (double)*n + 0.3));
}

/* Fills a table, row by row. */
static void fill_rows(golden_model *f, const char *name, int64_t *n)
{
    const rd_param *p = rd_params_find(f->ps, name);
    if (!p) fail_msg("the model has no parameter '%s'", name);
    float *w = test_values(f->ps) + p->offset;
    for (int64_t i = 0; i < p->n; i++, ++*n) w[i] = (float)(0.3 * sin(1.7 * (double)*n + 0.3));
}

static void fill_in_layer(golden_model *f, int l, const char *name, int64_t col, int64_t cols,
                          int64_t *n)
{
    char full[96];
    snprintf(full, sizeof full, "decoder/layer%d/%s", l, name);
    fill(f, full, strstr(name, "gain") ? 1.0 : 0.0, col, cols, n);
}

static void fill_gpt2(golden_model *f)
{
    static const struct {
        const char *name;
        int64_t cols;
    } parts[] = {{"attention/norm_gain", 1},
                 {"attention/norm_bias", 1},
                 {"attention/qkv_kernel", 24},
                 {"attention/qkv_bias", 1},
                 {"attention/out_kernel", 8},
                 {"attention/out_bias", 1},
                 {"ff/norm_gain", 1},
                 {"ff/norm_bias", 1},
                 {"ff/kernel1", 32},
                 {"ff/bias1", 1},
                 {"ff/kernel2", 8},
                 {"ff/bias2", 1}};
    int64_t n = 0;
    fill_rows(f, "embedding", &n);
    fill_rows(f, "positions", &n);
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            fill_in_layer(f, l, parts[i].name, 0, parts[i].cols, &n);
    fill(f, "decoder/norm_gain", 1.0, 0, 1, &n);
    fill(f, "decoder/norm_bias", 0.0, 0, 1, &n);
    assert_int_equal(n, 1896);
    assert_int_equal(rd_params_count(f->ps), 1896);
}

static void fill_llama(golden_model *f, bool qk_norm)
{
    int64_t n = 0;
    fill_rows(f, "embedding", &n);
    for (int l = 0; l < 2; l++) {
        fill_in_layer(f, l, "attention/norm_gain", 0, 1, &n);
        fill_in_layer(f, l, "attention/qkv_kernel", 0, 16, &n);
        if (qk_norm) {
            fill_in_layer(f, l, "attention/q_norm_gain", 0, 1, &n);
            fill_in_layer(f, l, "attention/k_norm_gain", 0, 1, &n);
        }
        fill_in_layer(f, l, "attention/out_kernel", 0, 8, &n);
        fill_in_layer(f, l, "ff/norm_gain", 0, 1, &n);
        fill_in_layer(f, l, "ff/kernel1", 0, 12, &n);
        fill_in_layer(f, l, "ff/gate_kernel", 0, 12, &n);
        fill_in_layer(f, l, "ff/kernel2", 0, 8, &n);
    }
    fill(f, "decoder/norm_gain", 1.0, 0, 1, &n);
    fill_rows(f, "output_kernel", &n);
    assert_int_equal(n, qk_norm ? 1192 : 1176);
    assert_int_equal(rd_params_count(f->ps), n);
}

typedef struct formula {
    const char *name, *config;
    bool llama, qk_norm;
    double loss, norm;
    double logits[4]; /* 0: not known */
} formula;
#define LLAMA                                                                                 \
    "{\"model\": \"gpt\", \"n_layers\": 2, \"n_embd\": 8, \"n_heads\": 2, \"n_kv_heads\": 1," \
    " \"ff_dim\": 12, \"max_len\": 8, \"norm_type\": \"rms\", \"norm_eps\": 1e-6,"            \
    " \"pos\": \"rope\", \"activation\": \"silu\", \"gated_ff\": true, \"bias\": \"none\","   \
    " \"tie_embeddings\": \"none\""
#define GPT2                                                                               \
    "{\"model\": \"gpt\", \"n_layers\": 2, \"n_embd\": 8, \"n_heads\": 2, \"ff_dim\": 32," \
    " \"max_len\": 6"
static const formula formulas[] = {
    {"gpt2",
     GPT2 "}",
     false,
     false,
     2.8867418039,
     2.2735626230,
     {0.46790061, -1.17319651, -1.66855929, -0.53442038}},
    {"gpt2, erf",
     GPT2 ", \"activation\": \"gelu_erf\"}",
     false,
     false,
     2.8867323719,
     2.2736360969,
     {0}},
    {"llama",
     LLAMA "}",
     true,
     false,
     2.6071629074,
     2.7527012189,
     {0.33436329, -0.01232440, -0.34697618, -0.34277379}},
    {"llama, norms of heads",
     LLAMA ", \"qk_norm\": true}",
     true,
     true,
     2.5905567680,
     3.9032907073,
     {-0.28818480, 0.01390137, 0.30241157, 0.29558905}},
};

static void test_formula(void **state)
{
    static const int32_t ids[] = {1, 4, 9, 2, 7, 3, 10};
    static const int64_t off[] = {0, 7}, first_off[] = {0, 2};
    const formula *c = *state;
    rd_status st = {0};
    golden_model f;
    double sum = 0.0;
    open_model(&f, c->config, strlen(c->config), 11, -1);
    must_do(rd_params_seal(f.ps, 1, NAN, &st), &st);
    if (c->llama)
        fill_llama(&f, c->qk_norm);
    else
        fill_gpt2(&f);
    rd_params_touch(f.ps);
    golden_start(&f);
    const rd_loss_out out = run(&f, 1, ids, off, NULL, true);
    assert_true(out.weight == 6.0 && out.n_targets == 6.0);
    golden_near(out.loss_sum / 6.0, c->loss, 1e-5, "loss");
    const float *g = test_grads(f.ps);
    for (int i = 0; i < rd_params_n(f.ps); i++) {
        const rd_param *p = rd_params_at(f.ps, i);
        for (int64_t k = 0; k < p->n; k++) {
            const double x = (double)g[p->offset + k] / 6.0;
            sum += x * x;
        }
    }
    golden_near(sqrt(sum), c->norm, 1e-4, "norm of the gradient");
    if (c == &formulas[0])
        golden_near((double)g[rd_params_find(f.ps, "embedding")->offset] / 6.0, -0.0135387634, 1e-4,
                    "gradient of the first number of the table");
    /* -log p_y = log sum exp z - z_y, so two labels show the difference of their logits. */
    double first = 0.0;
    for (int32_t y = 0; y < 4 && c->logits[0] != 0.0; y++) {
        const double nll = run(&f, 1, (const int32_t[]){1, y}, first_off, NULL, false).nll_sum;
        if (y == 0) first = nll;
        if (fabs(first - nll - (c->logits[y] - c->logits[0])) > 1e-5)
            fail_msg("difference of logits %d: %.9g", y, first - nll);
    }
    golden_close(&f);
}

/* ---- the cases ---- */

typedef struct golden {
    golden_model f;
    rd_npz *z;
    json_t *info;
    const int32_t *ids;
    const int64_t *off;
    int64_t n, V;
} golden;

static const rd_array *member(const rd_npz *z, const char *name)
{
    const rd_array *a = rd_npz_find(z, name);
    if (!a) fail_msg("no member '%s'", name);
    return a;
}

static void open_golden_as(golden *g, const char *name, bool mixed)
{
    rd_status st = {0};
    char path[256];
    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, FOLDER "/%s.npz", name);
    must_do(rd_npz_new(path, &g->z, &st), &st);
    const rd_array *cj = member(g->z, "case_json"), *conf = member(g->z, "config_json");
    g->info = json_loadb(cj->data, cj->bytes, 0, NULL);
    assert_non_null(g->info);
    g->V = json_integer_value(json_object_get(g->info, "vocab"));
    g->ids = member(g->z, "ids")->data;
    g->off = member(g->z, "off")->data;
    g->n = member(g->z, "off")->dim[0] - 1;
    open_model(&g->f, conf->data, conf->bytes, g->V, -1);
    must_do(rd_params_seal(g->f.ps, 1, NAN, &st), &st);
    const float *all = member(g->z, "params")->data;
    const json_t *list = json_object_get(g->info, "parameters");
    assert_int_equal(json_array_size(list), rd_params_n(g->f.ps));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *what = json_string_value(json_array_get(row, 0));
        const rd_param *p = rd_params_find(g->f.ps, what);
        if (!p) fail_msg("the model has no parameter '%s'", what);
        const json_t *shape = json_array_get(row, 1);
        assert_int_equal(json_array_size(shape), p->n_dim);
        for (int k = 0; k < p->n_dim; k++)
            assert_int_equal(json_integer_value(json_array_get(shape, (size_t)k)), p->dim[k]);
        memcpy(test_values(g->f.ps) + p->offset, all + json_integer_value(json_array_get(row, 2)),
               (size_t)p->n * sizeof *all);
    }
    rd_params_touch(g->f.ps);
    golden_start_as(&g->f, mixed);
}

static void open_golden(golden *g, const char *name)
{
    open_golden_as(g, name, false);
}

static void close_golden(golden *g)
{
    golden_close(&g->f);
    json_decref(g->info);
    rd_npz_free(g->z);
}

typedef struct case_name {
    const char *name;
} case_name;
static const case_name case_names[] = {{"gpt2"},         {"gpt2_erf"},   {"llama"},
                                       {"llama_scaled"}, {"qwen2"},      {"qwen3"},
                                       {"lora_gpt2"},    {"lora_llama"}, {"lora_qwen3"}};

/* Gradients are within 1e-5 of the largest element of the parameter. Where there are adapters, they
 * alone have gradients. */
static void test_gradients(void **state)
{
    golden g;
    double want_nll = 0.0;
    open_golden(&g, ((const case_name *)*state)->name);
    const rd_array *nll = member(g.z, "nll");
    const rd_loss_out out = run(&g.f, g.n, g.ids, g.off, NULL, true);
    for (int64_t i = 0; i < nll->dim[0]; i++) want_nll += ((const double *)nll->data)[i];
    golden_near(out.weight, (double)nll->dim[0], 0, "number of targets");
    golden_near(out.nll_sum, want_nll, 1e-5, "loss");
    const float *want = member(g.z, "grads")->data;
    const json_t *list = json_object_get(g.info, "parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const rd_param *p = rd_params_find(g.f.ps, json_string_value(json_array_get(row, 0)));
        const float *w = want + json_integer_value(json_array_get(row, 2)),
                    *got = test_grads(g.f.ps) + p->offset;
        double most = 1e-3, gap = 0.0;
        const bool adapter = strstr(p->name, "_lora_") != NULL;
        if (rd_params_count(g.f.ps) < rd_params_total(g.f.ps))
            assert_true(rd_param_trains(p) == adapter);
        if (!rd_param_trains(p)) continue;
        assert_true(p->offset + p->n <= rd_params_grad_span(g.f.ps));
        for (int64_t k = 0; k < p->n; k++) {
            const double d = fabs((double)got[k] / out.weight - (double)w[k]);
            most = fmax(most, fabs((double)w[k]));
            gap = d > gap || isnan(d) ? d : gap;
        }
        if (!(gap <= 1e-5 * most))
            fail_msg("gradient of %s: off by %.3g of %.3g", p->name, gap, most);
    }
    close_golden(&g);
}

/* Operands of products, and on a GPU values inside a layer, are off by up to 0.2 %. */
static void test_mixed(void **state)
{
    static const double LOSS = 3e-3, GRADIENT = 5e-2;
    golden g;
    double want_nll = 0.0, norm = 0.0, gap = 0.0;
    open_golden_as(&g, ((const case_name *)*state)->name, true);
    const rd_array *nll = member(g.z, "nll");
    const rd_loss_out out = run(&g.f, g.n, g.ids, g.off, NULL, true);
    for (int64_t i = 0; i < nll->dim[0]; i++) want_nll += ((const double *)nll->data)[i];
    golden_near(out.nll_sum, want_nll, LOSS, "loss in mixed precision");
    assert_true(fabs(out.nll_sum - want_nll) > 1e-6 * want_nll);
    const float *want = member(g.z, "grads")->data;
    const json_t *list = json_object_get(g.info, "parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const rd_param *p = rd_params_find(g.f.ps, json_string_value(json_array_get(row, 0)));
        const float *w = want + json_integer_value(json_array_get(row, 2)),
                    *got = test_grads(g.f.ps) + p->offset;
        if (!rd_param_trains(p)) continue;
        for (int64_t k = 0; k < p->n; k++) {
            const double d = (double)got[k] / out.weight - (double)w[k];
            gap += d * d;
            norm += (double)w[k] * (double)w[k];
        }
    }
    if (!(gap <= GRADIENT * GRADIENT * norm))
        fail_msg("gradient: off by %.3g of %.3g", sqrt(gap), sqrt(norm));
    close_golden(&g);
}

/* Returns the bytes that forward keeps for backward: 8 samples of 33 tokens, two layers. */
static size_t kept_bytes(bool mixed)
{
    static const char text[] = "{\"model\": \"nanogpt_char\", \"n_layers\": 2, \"n_embd\": 64,"
                               " \"n_heads\": 4, \"ff_dim\": 256}";
    enum { SAMPLES = 8, LEN = 33 };
    int32_t ids[SAMPLES * LEN];
    int64_t off[SAMPLES + 1] = {0};
    rd_status st = {0};
    golden_model f;
    for (int i = 0; i < SAMPLES * LEN; i++) ids[i] = (i * 7 + i / LEN) % 65;
    for (int i = 0; i < SAMPLES; i++) off[i + 1] = off[i] + LEN;
    open_model(&f, text, strlen(text), 65, -1);
    must_do(rd_params_seal(f.ps, 1, NAN, &st), &st);
    golden_start_as(&f, mixed);
    rd_tape_reset(f.tape, true, true);
    static const int64_t sample[] = {0, 1, 2, 3, 4, 5, 6, 7};
    rd_loss_out out;
    rd_batch b = {.n = SAMPLES, .n_global = SAMPLES, .sample = sample, .n_fields = 1};
    b.field[0] = (rd_field){.name = "target", .dtype = RD_I32, .data = ids, .off = off};
    must_do(f.def->loss(f.model, f.tape, &b, &out, &st), &st);
    const size_t bytes = rd_arena_used(rd_tape_device_arena(f.tape));
    golden_close(&f);
    return bytes;
}

/* A GPU keeps fewer bytes in mixed, a CPU as many. A row of a layer of width d keeps 28 d bytes
 * with 16 bits, and 48 d in float32. */
static void test_memory(void **state)
{
    const size_t wide = kept_bytes(false), narrow = kept_bytes(true);
    (void)state;
    if (test_on_gpu() ? narrow > wide / 100 * 68 : narrow != wide)
        fail_msg("%zu bytes in mixed, %zu in float32", narrow, wide);
}

static void test_logits(void **state)
{
    golden g;
    double got[MOST_V];
    int32_t ids[MOST_V];
    open_golden(&g, ((const case_name *)*state)->name);
    const double *want = member(g.z, "logits")->data;
    const int64_t len = g.off[1];
    memcpy(ids, g.ids, (size_t)len * sizeof *ids);
    for (int32_t y = 0; y < g.V; y++) {
        ids[len - 1] = y;
        got[y] = -run(&g.f, 1, ids, g.off, NULL, false).nll_sum;
        if (fabs((got[y] - got[0]) - (want[y] - want[0])) > 2e-5)
            fail_msg("difference of logits %d: got %.9g, want %.9g", y, got[y] - got[0],
                     want[y] - want[0]);
    }
    close_golden(&g);
}

static void test_adamw(void **state)
{
    golden g;
    rd_status st = {0};
    rd_optim *o;
    rd_optim_config c;
    open_golden(&g, ((const case_name *)*state)->name);
    const double *want = member(g.z, "adam_loss")->data;
    must_do(rd_optim_read(g.f.config, RD_MODE_TRAIN, &c, &st), &st);
    c.max_grad_norm = 0.0;
    c.has_max_grad_norm = false;
    must_do(rd_optim_new(&c, g.f.ps, 1, &o, &st), &st);
    for (int64_t i = 0; i <= STEPS; i++) {
        const rd_loss_out out = run(&g.f, g.n, g.ids, g.off, NULL, true);
        rd_optim_stats stats = {0};
        golden_near(out.loss_sum / out.weight, want[i], 1e-5, "loss of an AdamW step");
        must_do(rd_optim_step(o, i + 1, 0.01, 1.0 / out.weight, &stats, &st), &st);
    }
    rd_optim_free(o);
    close_golden(&g);
}

/* Layers that backward computes again give the same bytes. */
static void test_recompute(void **state)
{
    float *first = NULL;
    for (int k = 0; k < 3; k++) {
        golden g;
        open_golden(&g, ((const case_name *)*state)->name);
        golden_model f;
        rd_status st = {0};
        char text[1024];
        const rd_array *conf = member(g.z, "config_json");
        snprintf(text, sizeof text, "%.*s, \"recompute\": \"%s\"}", (int)conf->bytes - 1,
                 (const char *)conf->data,
                 k == 0   ? "none"
                 : k == 1 ? "norms"
                          : "layer");
        open_model(&f, text, strlen(text), g.V, -1);
        must_do(rd_params_seal(f.ps, 1, NAN, &st), &st);
        golden_start(&f);
        (void)run(&f, g.n, g.ids, g.off, NULL, true);
        const size_t bytes = (size_t)rd_params_grad_span(f.ps) * sizeof(float);
        if (!first) {
            first = malloc(bytes);
            memcpy(first, test_grads(f.ps), bytes);
        }
        assert_memory_equal(first, test_grads(f.ps), bytes);
        golden_close(&f);
        close_golden(&g);
    }
    free(first);
}

/* ---- documents and prompts ---- */

enum { END = 5, V = 11 };

/* Opens a model with weights of its seed. more: further keys. */
static void open_small(golden_model *f, const char *more, int32_t end)
{
    char text[1024];
    rd_status st = {0};
    snprintf(text, sizeof text,
             "{\"model\": \"gpt\", \"n_layers\": 2, \"n_embd\": 16, \"n_heads\": 2, \"ff_dim\": 32,"
             " \"max_len\": 16, \"init_std\": 0.4%s}",
             more);
    open_model(f, text, strlen(text), V, end);
    must_do(rd_params_seal(f->ps, 1, NAN, &st), &st);
    for (int i = 0; i < rd_params_n(f->ps); i++) { /* adapters that do something */
        const rd_param *p = rd_params_at(f->ps, i);
        float *x = rd_params_values(f->ps) + p->offset;
        for (int64_t k = 0; k < p->n && strstr(p->name, "_lora_b"); k++)
            x[k] = sinf((float)(k + p->offset));
    }
    golden_start(f);
}

/* With document_mask the loss of the second document keeps all its bits while the first one
 * changes. Without it, it does not. */
static void test_documents(void **state)
{
    static const char *const forms[] = {
        "", ", \"document_mask\": true", ", \"document_mask\": true, \"pos\": \"rope\"",
        ", \"document_mask\": true, \"document_positions\": \"window\"",
        ", \"document_mask\": true, \"dropout_attention\": 0.3, \"dropout_residual\": 0.3"};
    static const int64_t off[] = {0, 10};
    static const int32_t before = 6; /* the labels behind the end token count */
    (void)state;
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        golden_model f;
        double nll[2];
        open_small(&f, forms[k], END);
        for (int i = 0; i < 2; i++) {
            const int32_t ids[] = {1, 2, i ? 9 : 3, i ? 10 : 4, END, 6, 7, 8, 1, END};
            const rd_loss_out out = run(&f, 1, ids, off, &before, false);
            assert_true(out.n_targets == 4.0 && out.weight == 4.0);
            nll[i] = out.nll_sum;
        }
        if ((nll[0] == nll[1]) != (k > 0))
            fail_msg("form %zu: the second document has the losses %.17g and %.17g", k, nll[0],
                     nll[1]);
        golden_close(&f);
    }
}

/* A document in a window has the loss that it has by itself, where positions restart. */
static void test_document_alone(void **state)
{
    static const int32_t ids[] = {1, 2, 3, 4, END, 6, 7, 8, 1, END};
    static const int64_t off[] = {0, 10}, alone_off[] = {0, 6};
    static const int32_t before = 5, alone_before = 1;
    golden_model f;
    (void)state;
    open_small(&f, ", \"document_mask\": true", END);
    const double in_window = run(&f, 1, ids, off, &before, false).nll_sum,
                 alone = run(&f, 1, ids + 4, alone_off, &alone_before, false).nll_sum;
    golden_near(in_window, alone, 1e-6, "loss of a document in a window");
    golden_close(&f);
}

/* The loss is the mean over all labels that count; those of prompts do not. */
static void test_prompts(void **state)
{
    static const int32_t ids[] = {1, 2, 3, 4, 6, 7, 8, 1}, before[] = {3, 1}, none[] = {1, 1};
    static const int64_t off[] = {0, 5, 8}, first[] = {0, 3};
    golden_model f;
    (void)state;
    open_small(&f, "", -1);
    const rd_loss_out some = run(&f, 2, ids, off, before, false),
                      all = run(&f, 2, ids, off, none, false);
    const double prompt = run(&f, 1, ids, first, none, false).nll_sum;
    assert_true(some.n_targets == 4.0 && all.n_targets == 6.0 && some.n_tokens_tgt == 6.0);
    golden_near(some.nll_sum, all.nll_sum - prompt, 1e-6, "loss without the labels of the prompt");
    golden_close(&f);
}

/* ---- completion ---- */

/* Greedy completion of prompts of different lengths: each token is the best one of a whole forward
 * pass over the text so far. */
static void check_completion(const char *more, int32_t end)
{
    enum { N = 3, MOST = 7 };
    static const int32_t prompts[] = {1, 2, 3, 4, 9, 7, 8};
    static const int64_t off[] = {0, 4, 5, 7}, sample[] = {0, 1, 2};
    rd_status st = {0};
    golden_model f;
    rd_decoded out[N];
    int32_t kept[N][MOST];
    int64_t n_kept[N];
    open_small(&f, more, end);
    rd_batch b = {.n = N, .n_global = N, .sample = sample, .n_fields = 1};
    b.field[0] = (rd_field){.name = "source", .dtype = RD_I32, .data = prompts, .off = off};
    const rd_decode_config c = {.max_new_tokens = MOST};
    rd_tape_reset(f.tape, false, false);
    must_do(f.def->decode(f.model, f.tape, &b, &c, out, &st), &st);
    for (int i = 0; i < N; i++) {
        n_kept[i] = out[i].n;
        assert_true(out[i].n >= 0 && out[i].n <= MOST);
        memcpy(kept[i], out[i].ids, (size_t)out[i].n * sizeof **kept);
    }
    for (int i = 0; i < N; i++) {
        int32_t text[16];
        int64_t n = off[i + 1] - off[i];
        memcpy(text, prompts + off[i], (size_t)n * sizeof *text);
        for (int64_t k = 0; k < MOST && n < 16; k++, n++) {
            text[n] = 0;
            const rd_loss_out l = run_as(&f, 1, text, (const int64_t[]){0, n + 1}, NULL, false,
                                         false);
            const int32_t best = l.predicted[n - 1];
            if (best == end) {
                assert_int_equal(n_kept[i], k);
                break;
            }
            if (k >= n_kept[i] || kept[i][k] != best)
                fail_msg("prompt %d, token %lld: got %d, want %d", i, (long long)k,
                         k < n_kept[i] ? kept[i][k] : -1, best);
            text[n] = best;
        }
    }
    golden_close(&f);
}

static void test_completion(void **state)
{
    (void)state;
    check_completion("", -1);
    check_completion("", 3);
    check_completion(", \"logit_softcap\": 2", -1);
    check_completion(", \"norm_type\": \"rms\", \"pos\": \"rope\", \"activation\": \"silu\","
                     " \"gated_ff\": true, \"n_kv_heads\": 1, \"bias\": \"none\","
                     " \"qk_norm\": true, \"tie_embeddings\": \"none\"",
                     -1);
    check_completion(", \"pos\": \"sinusoid\", \"vocab_multiple\": 8", 10);
    check_completion(", \"lora_rank\": 2, \"lora_targets\": \"all-linear\"", -1);
    check_completion(", \"norm_type\": \"rms\", \"pos\": \"rope\", \"gated_ff\": true,"
                     " \"n_kv_heads\": 1, \"lora_rank\": 3, \"lora_dropout\": 0.5,"
                     " \"lora_targets\": [\"k_proj\", \"v_proj\", \"o_proj\", \"up_proj\"]",
                     -1);
}

/* A text ends where positions end, and a prompt that is too long is an error. */
static void test_room(void **state)
{
    static const int64_t sample[] = {0};
    int32_t ids[17];
    rd_status st = {0};
    golden_model f;
    rd_decoded out;
    (void)state;
    for (int i = 0; i < 17; i++) ids[i] = i % V;
    open_small(&f, "", -1);
    rd_batch b = {.n = 1, .n_global = 1, .sample = sample, .n_fields = 1};
    for (int64_t n = 14; n <= 17; n++) {
        const int64_t off[] = {0, n};
        b.field[0] = (rd_field){.name = "source", .dtype = RD_I32, .data = ids, .off = off};
        const rd_decode_config c = {.max_new_tokens = 100};
        rd_tape_reset(f.tape, false, false);
        const rd_code code = f.def->decode(f.model, f.tape, &b, &c, &out, &st);
        if (n == 17) {
            assert_int_equal(code, RD_EUSAGE);
        } else {
            must(&st);
            assert_int_equal(out.n, 17 - n);
        }
    }
    golden_close(&f);
}

/* ---- adapters ---- */

/* Names of matrices: their adapters, in the order of declaration. */
typedef struct target_case {
    const char *name, *keys, *want;
} target_case;
#define GATED ", \"norm_type\": \"rms\", \"pos\": \"rope\", \"gated_ff\": true"
static const target_case targets[] = {
    {"the usual ones", GATED, "attention/q attention/v "},
    {"the usual one of GPT-2", "", "attention/qkv "},
    {"all", GATED ", \"lora_targets\": \"all-linear\"",
     "attention/q attention/k attention/v attention/out ff/kernel1 ff/gate ff/kernel2 "},
    {"all of GPT-2", ", \"lora_targets\": [\"all-linear\"]",
     "attention/qkv attention/out ff/kernel1 ff/kernel2 "},
    {"a name for two", ", \"lora_targets\": \"c_proj\"", "attention/out ff/kernel2 "},
    {"one of two", ", \"lora_targets\": [\"mlp.c_proj\", \"mlp.c_proj\"]", "ff/kernel2 "},
    {"a name twice", GATED ", \"lora_targets\": [\"k_proj\", \"k_proj\"]", "attention/k "},
    {"without a gate", ", \"norm_type\": \"rms\", \"lora_targets\": \"up_proj\"", "ff/kernel1 "},
};

static void test_targets(void **state)
{
    static const char layer[] = "decoder/layer0/", end[] = "_lora_a";
    const target_case *c = *state;
    golden_model f;
    char keys[512], got[512] = "";
    snprintf(keys, sizeof keys, ", \"lora_rank\": 2%s", c->keys);
    open_small(&f, keys, -1);
    for (int i = 0; i < rd_params_n(f.ps); i++) {
        const rd_param *p = rd_params_at(f.ps, i);
        const size_t n = strlen(p->name), k = sizeof layer - 1, e = sizeof end - 1;
        if (n < k + e || strncmp(p->name, layer, k) != 0 || strcmp(p->name + n - e, end) != 0)
            continue;
        assert_true(rd_param_trains(p) && p->dim[1] == 2);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s ", (int)(n - k - e),
                 p->name + k);
    }
    assert_string_equal(got, c->want);
    golden_close(&f);
}

/* Dropout of adapters acts in training alone, and gradients go through its masks. */
static void test_lora_dropout(void **state)
{
    static const int32_t ids[] = {1, 2, 3, 4, 9, 7, 8, 10, 0, 6};
    static const int64_t off[] = {0, 10};
    static const char *const keys[] = {
        ", \"lora_rank\": 2, \"lora_targets\": \"all-linear\"",
        ", \"lora_rank\": 2, \"lora_targets\": \"all-linear\", \"lora_dropout\": 0.5"};
    double eval[2], train[2], moved[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        const float step = 0.01f;
        golden_model f;
        open_small(&f, keys[i], -1);
        eval[i] = run_as(&f, 1, ids, off, NULL, false, false).nll_sum;
        train[i] = run(&f, 1, ids, off, NULL, true).nll_sum;
        const rd_param *a = rd_params_find(f.ps, "decoder/layer1/ff/kernel2_lora_a");
        const double want = (double)test_grads(f.ps)[a->offset + 3];
        for (int k = 0; k < 2; k++) {
            rd_params_values(f.ps)[a->offset + 3] += k ? -2.0f * step : step;
            rd_params_touch(f.ps);
            moved[k] = run(&f, 1, ids, off, NULL, false).nll_sum;
        }
        golden_near((moved[0] - moved[1]) / (2.0 * (double)step), want, 2e-3, "gradient of A");
        golden_close(&f);
    }
    golden_near(eval[1], eval[0], 0, "loss of an evaluation with dropout of adapters");
    golden_near(train[0], eval[0], 1e-6, "loss of a training without");
    assert_true(fabs(train[1] - eval[0]) > 1e-3 * eval[0]);
}

/* ---- numbers of parameters ---- */

typedef struct count_case {
    const char *name, *keys;
    int64_t V, count;
} count_case;
#define FAMILY                                                                                   \
    ", \"norm_type\": \"rms\", \"pos\": \"rope\", \"activation\": \"silu\", \"gated_ff\": true," \
    " \"bias\": "
static const count_case counts[] = {
    {"124M", "\"model\": \"gpt2\", \"vocab_multiple\": 1", 50257, 124439808},
    {"124M, padded", "\"model\": \"gpt2\"", 50257, 124475904},
    {"355M", "\"model\": \"gpt2_medium\", \"vocab_multiple\": 1", 50257, 354823168},
    {"774M", "\"model\": \"gpt2_large\", \"vocab_multiple\": 1", 50257, 774030080},
    {"1558M", "\"model\": \"gpt2_xl\", \"vocab_multiple\": 1", 50257, 1557611200},
    {"characters", "\"model\": \"nanogpt_char\"", 65, 10745088},
    {"characters, small",
     "\"model\": \"nanogpt_char\", \"n_layers\": 4, \"n_embd\": 128, \"n_heads\": 4,"
     " \"ff_dim\": 512, \"max_len\": 64",
     65, 804096},
    {"Llama 3.2 1B",
     "\"model\": \"gpt\", \"n_layers\": 16, \"n_embd\": 2048, \"n_heads\": 32, \"n_kv_heads\": 8,"
     " \"ff_dim\": 8192" FAMILY "\"none\"",
     128256, 1235814400},
    {"TinyLlama",
     "\"model\": \"llama\", \"n_layers\": 22, \"n_embd\": 2048, \"n_heads\": 32,"
     " \"n_kv_heads\": 4, \"ff_dim\": 5632",
     32000, 1100048384},
    {"SmolLM2 135M",
     "\"model\": \"gpt\", \"n_layers\": 30, \"n_embd\": 576, \"n_heads\": 9, \"n_kv_heads\": 3,"
     " \"ff_dim\": 1536" FAMILY "\"none\"",
     49152, 134515008},
    {"Qwen 2.5 0.5B",
     "\"model\": \"gpt\", \"n_layers\": 24, \"n_embd\": 896, \"n_heads\": 14, \"n_kv_heads\": 2,"
     " \"ff_dim\": 4864" FAMILY "\"qkv\"",
     151936, 494032768},
    {"Qwen 3 0.6B",
     "\"model\": \"gpt\", \"n_layers\": 28, \"n_embd\": 1024, \"n_heads\": 16, \"n_kv_heads\": 8,"
     " \"head_dim\": 128, \"qk_norm\": true, \"ff_dim\": 3072" FAMILY "\"none\"",
     151936, 596049920},
};

static void test_count(void **state)
{
    const count_case *c = *state;
    golden_model f;
    char text[1024];
    snprintf(text, sizeof text, "{%s}", c->keys);
    open_model(&f, text, strlen(text), c->V, -1);
    assert_int_equal(rd_params_count(f.ps), c->count);
    golden_close(&f);
}

/* Initial weights: the first loss is close to the logarithm of the vocabulary. */
static void test_first_loss(void **state)
{
    static const int32_t ids[] = {1, 2, 3, 4, 9, 7, 8, 10, 0, 6};
    static const int64_t off[] = {0, 10};
    rd_status st = {0};
    (void)state;
    for (int k = 0; k < 2; k++) {
        static const char *const texts[] = {
            "{\"model\": \"nanogpt_char\", \"n_layers\": 2, \"n_embd\": 96}",
            "{\"model\": \"llama\", \"n_layers\": 2, \"n_embd\": 96}"};
        golden_model f;
        open_model(&f, texts[k], strlen(texts[k]), 65, -1);
        must_do(rd_params_seal(f.ps, 1, NAN, &st), &st);
        golden_start(&f);
        const double loss = run(&f, 1, ids, off, NULL, false).nll_sum / 9.0;
        if (!(fabs(loss - log(65.0)) < 0.3)) fail_msg("the first loss is %g", loss);
        golden_close(&f);
    }
}

RD_TESTS("gpt", TEST_ROWS(test_formula, formulas), TEST_ROWS(test_gradients, case_names),
         TEST_ROWS(test_mixed, case_names), TEST(test_memory), TEST_ROWS(test_logits, case_names),
         TEST_ROWS(test_adamw, case_names), TEST_ROWS(test_recompute, case_names),
         TEST(test_documents), TEST(test_document_alone), TEST(test_prompts), TEST(test_completion),
         TEST(test_room), TEST_ROWS(test_targets, targets), TEST(test_lora_dropout),
         TEST_ROWS(test_count, counts), TEST(test_first_loss))
