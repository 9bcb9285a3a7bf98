/* transformer.c -- compares the Transformer with numbers of PyTorch in float64 that a formula and a
 * few digits hold, and counts its parameters.
 *
 * One running index n goes through all parameters: p_n = 0.3 sin(1.7 n + 0.3); gains of norms are
 * 1 + p_n. Matrices count as [outputs][inputs], row by row. Two sentences, one layer on each side,
 * width 8, two heads. Losses and logits agree to 1e-5, the norm of the gradient to 1e-4.
 *
 * Values that backward computes again give the same bytes as values that are kept.
 *
 * seq2seq.c compares all gradients, updates and searches. */
#include "golden_model.h"
#include <stdlib.h>
#include <string.h>

enum { V = 11 };

/* Makes a model of a config, whose parameters are not laid out yet. */
static void open_model(golden_model *f, const char *text, int64_t src_vocab, int64_t tgt_vocab)
{
    const rd_data_spec spec = {.src_vocab_size = src_vocab,
                               .tgt_vocab_size = tgt_vocab,
                               .src_vocab_hash = (uint64_t)src_vocab,
                               .tgt_vocab_hash = (uint64_t)tgt_vocab};
    golden_open(f, "x.json", text, strlen(text), 0, &spec);
}

/* ---- the formula ---- */

static const char tiny[] =
    "{\"model\": \"transformer\", \"encoder_layers\": 1, \"decoder_layers\": 1, \"d_model\": 8,"
    " \"n_heads\": 2, \"ff_dim\": 12, \"tie_embeddings\": \"all\", \"positions\": \"sockeye\","
    " \"dropout_attention\": 0, \"dropout_residual\": 0, \"dropout_ff\": 0,"
    " \"average_across_timesteps\": true%s}";

/* Fills the next parameter. transposed: it is stored as [inputs][outputs]. */
static void fill(golden_model *f, const char *name, double base, bool transposed, int64_t *n)
{
    const rd_param *p = rd_params_find(f->ps, name);
    if (!p) fail_msg("the model has no parameter '%s'", name);
    float *w = test_values(f->ps) + p->offset;
    const int64_t cols = p->n_dim == 2 ? p->dim[1] : p->n, rows = p->n / cols;
    for (int64_t i = 0; i < p->n; i++, ++*n) {
        const double x = base + 0.3 * sin(1.7 * (double)*n + 0.3);
        w[transposed ? i % rows * cols + i / rows : i] = (float)x;
    }
}

static void fill_part(golden_model *f, const char *prefix, const char *const *names, int64_t *n)
{
    char full[128];
    for (int i = 0; names[i]; i++) {
        snprintf(full, sizeof full, "%s/%s", prefix, names[i]);
        fill(f, full, strcmp(names[i], "norm_gain") == 0, strstr(names[i], "kernel") != NULL, n);
    }
}

static void fill_all(golden_model *f)
{
    static const char *const norm[] = {"norm_gain", "norm_bias", NULL},
                             *const self[] = {"norm_gain", "norm_bias", "qkv_kernel", "out_kernel",
                                              NULL},
                             *const memory[] = {"norm_gain", "norm_bias",  "q_kernel",
                                                "kv_kernel", "out_kernel", NULL},
                             *const ff[] = {"norm_gain", "norm_bias", "kernel1", "bias1",
                                            "kernel2",   "bias2",     NULL};
    int64_t n = 0;
    fill(f, "embedding", 0.0, false, &n);
    fill(f, "output_bias", 0.0, false, &n);
    fill_part(f, "encoder/layer0/attention", self, &n);
    fill_part(f, "encoder/layer0/ff", ff, &n);
    fill_part(f, "encoder", norm, &n);
    fill_part(f, "decoder/layer0/attention", self, &n);
    fill_part(f, "decoder/layer0/memory", memory, &n);
    fill_part(f, "decoder/layer0/ff", ff, &n);
    fill_part(f, "decoder", norm, &n);
    assert_int_equal(n, 1403);
    assert_int_equal(rd_params_count(f->ps), 1403);
    rd_params_touch(f->ps);
}

static void open_tiny(golden_model *f, const char *more)
{
    rd_status st = {0};
    char text[1024];
    snprintf(text, sizeof text, tiny, more);
    open_model(f, text, V, V);
    must_do(rd_params_seal(f->ps, 1, NAN, &st), &st);
    fill_all(f);
    golden_start(f);
}

/* Runs the two sentences. label0 replaces the first label. */
static rd_loss_out run(golden_model *f, int32_t label0, bool backward)
{
    static const int32_t source[] = {4, 5, 6, 3, 7, 3};
    static const int64_t source_off[] = {0, 4, 6}, target_off[] = {0, 4, 7}, sample[] = {0, 1};
    /* The inputs are 2 8 9 and 2 5, the labels 8 9 3 and 5 3. A sentence of one input has the label
     * label0 alone. */
    const int32_t whole[] = {2, 8, 9, 3, 2, 5, 3}, first[] = {2, label0};
    static const int64_t first_source_off[] = {0, 4}, first_off[] = {0, 2};
    const bool all = label0 < 0;
    rd_batch b = {.n = all ? 2 : 1, .n_global = all ? 2 : 1, .sample = sample, .n_fields = 2};
    b.field[0] = (rd_field){.name = "source",
                            .dtype = RD_I32,
                            .data = source,
                            .off = all ? source_off : first_source_off};
    b.field[1] = (rd_field){.name = "target",
                            .dtype = RD_I32,
                            .data = all ? whole : first,
                            .off = all ? target_off : first_off};
    return golden_loss(f, &b, backward);
}

static void test_losses(void **state)
{
    static const struct {
        const char *more;
        double loss;
    } forms[] = {
        {"", 2.7206819483},
        {", \"label_smoothing\": 0.1", 2.7449614611},
        {", \"label_smoothing\": 0.1, \"label_smoothing_form\": \"fairseq\"", 2.7473894124}};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        golden_model f;
        open_tiny(&f, forms[i].more);
        const rd_loss_out out = run(&f, -1, false);
        assert_true(out.weight == 5.0 && out.n_targets == 5.0);
        assert_true(out.n_tokens_src == 6.0 && out.n_tokens_tgt == 7.0);
        golden_near(out.loss_sum / 5.0, forms[i].loss, 1e-5, "loss");
        golden_near(out.nll_sum / 5.0, forms[0].loss, 1e-5, "loss without smoothing");
        golden_close(&f);
    }
}

static void test_gradient(void **state)
{
    golden_model f;
    double sum = 0.0;
    (void)state;
    open_tiny(&f, ", \"label_smoothing\": 0.1");
    const rd_loss_out out = run(&f, -1, true);
    const float *g = test_grads(f.ps);
    for (int i = 0; i < rd_params_n(f.ps); i++) {
        const rd_param *p = rd_params_at(f.ps, i);
        for (int64_t k = 0; k < p->n; k++) {
            const double x = (double)g[p->offset + k] / out.weight;
            sum += x * x;
        }
    }
    golden_near(sqrt(sum), 1.9638365481, 1e-4, "norm of the gradient");
    golden_near((double)g[rd_params_find(f.ps, "embedding")->offset] / out.weight, 0.0177252863,
                1e-4, "gradient of the first number of the table, which only the output uses");
    golden_close(&f);
}

/* -log p_y = log sum exp z - z_y, so two labels show the difference of their logits. */
static void test_logits(void **state)
{
    static const double want[] = {-1.14576986, 1.12299209, 2.01839859, 0.71373820};
    golden_model f;
    (void)state;
    open_tiny(&f, "");
    const double first = run(&f, 0, false).nll_sum;
    for (int32_t y = 1; y < 4; y++)
        golden_near(first - run(&f, y, false).nll_sum, want[y] - want[0], 1e-5,
                    "difference of logits");
    golden_close(&f);
}

/* With int8 weights the differences of logits are within 1 % of their range, 3.3, of the golden
 * ones. They are not the same numbers. */
static void test_int8(void **state)
{
    static const double want[] = {-1.14576986, 1.12299209, 2.01839859, 0.71373820};
    golden_model f;
    double worst = 0.0;
    (void)state;
    if (test_on_gpu()) skip_because("8-bit weights are for CPUs");
    open_tiny(&f, "");
    rd_backend_set_int8(f.be, true);
    const double first = run(&f, 0, false).nll_sum;
    for (int32_t y = 1; y < 4; y++)
        worst = fmax(worst, fabs(first - run(&f, y, false).nll_sum - (want[y] - want[0])));
    if (!(worst < 0.033 && worst > 1e-4))
        fail_msg("logits are %.3g away from the golden ones", worst);
    golden_close(&f);
}

/* ---- numbers of parameters ---- */

typedef struct count_row {
    const char *name, *sizes;
    int64_t src_vocab, tgt_vocab, want;
} count_row;

#define LAYERS(enc, dec, d, heads, ff)                                             \
    "\"encoder_layers\": " #enc ", \"decoder_layers\": " #dec ", \"d_model\": " #d \
    ", \"n_heads\": " #heads ", \"ff_dim\": " #ff
#define BASE LAYERS(6, 6, 512, 8, 2048)
#define BIG LAYERS(6, 6, 1024, 16, 4096)
#define BIASED ", \"attention_bias\": true"
static count_row count_rows[] = {
    {"base", BASE, 32768, 32768, 60913664},
    {"base, biases", BASE BIASED, 32768, 32768, 60950528},
    {"base, source apart", BASE ", \"tie_embeddings\": \"target\"", 32768, 32768, 77690880},
    {"base, nothing tied", BASE ", \"tie_embeddings\": \"none\"", 32768, 32768, 94468096},
    {"big", BIG, 32768, 32768, 209874944},
    {"big, biases", BIG BIASED, 32768, 32768, 209948672},
    {"big, source apart", BIG ", \"tie_embeddings\": \"target\"", 32768, 32768, 243429376},
    {"big, nothing tied", BIG ", \"tie_embeddings\": \"none\"", 32768, 32768, 276983808},
    {"big 20+2", LAYERS(20, 2, 1024, 16, 4096), 32768, 32768, 319010816},
    {"base 20+2", LAYERS(20, 2, 512, 8, 2048), 32768, 32768, 88218624},
    {"base 12+1", LAYERS(12, 1, 512, 8, 2048), 32768, 32768, 58816000},
    {"iwslt", LAYERS(6, 6, 512, 4, 1024), 32768, 32768, 48318464},
    {"small", LAYERS(3, 3, 256, 8, 1024), 8000, 8000, 7577408},
    {"small 6+2", LAYERS(6, 2, 256, 8, 1024), 8000, 8000, 8892224},
    {"Sockeye's system test", LAYERS(2, 2, 32, 4, 64), 16, 16, 42640},
    {"fairseq's tiny", LAYERS(2, 2, 64, 2, 64), 16, 16, 134160},
    {"two vocabularies", LAYERS(2, 2, 32, 4, 64), 20, 16, 42640 + 20 * 32},
    {"rounded vocabulary", LAYERS(2, 2, 32, 4, 64) ", \"pad_vocabs_to_eight\": true", 13, 13,
     42640},
    {"learned positions", LAYERS(2, 2, 32, 4, 64) ", \"positions\": \"learned\"", 16, 16,
     42640 + 2 * 1024 * 32},
    /* After the norms of the layers there are no others. */
    {"post norm", LAYERS(2, 2, 32, 4, 64) ", \"norm\": \"post\"", 16, 16, 42640 - 4 * 32},
    /* Two matrices and a bias in place of four matrices, in each decoder layer. */
    {"recurrent units", LAYERS(2, 2, 32, 4, 64) ", \"decoder_layer\": \"ssru\"", 16, 16,
     42640 - 2 * (2 * 32 * 32 - 32)},
    {"base, recurrent units", BASE ", \"decoder_layer\": \"ssru\"", 32768, 32768, 57771008},
    {"no output bias", LAYERS(2, 2, 32, 4, 64) ", \"output_bias\": false", 16, 16, 42640 - 16},
};

static void count_parameters(void **state)
{
    const count_row *r = *state;
    golden_model f;
    char text[512];
    snprintf(text, sizeof text, "{\"model\": \"transformer\", %s}", r->sizes);
    open_model(&f, text, r->src_vocab, r->tgt_vocab);
    assert_int_equal(rd_params_count(f.ps), r->want);
    golden_close(&f);
}

/* ---- dropout ---- */

/* A mask depends on the sample alone: the loss of two sentences is the sum of the losses of each,
 * and another sample id has other masks. Without training there are none. */
static void test_dropout(void **state)
{
    static const int32_t source[] = {4, 5, 6, 3, 7, 3}, target[] = {2, 8, 9, 3, 2, 5, 3};
    static const int64_t source_off[] = {0, 4, 6}, target_off[] = {0, 4, 7};
    static const int64_t ids[] = {11, 12}, others[] = {11, 13};
    rd_status st = {0};
    golden_model f;
    rd_loss_out out;
    double loss[5], both, other, plain;
    (void)state;
    for (int place = 0; place < 5; place++) {
        static const char *const keys[] = {"attention", "residual", "ff", "embedding"};
        char more[256] = "";
        char text[1024];
        if (place < 4) snprintf(more, sizeof more, ", \"dropout_%s\": 0.5", keys[place]);
        /* `tiny` has the other keys; the last value of a key would be a second one. */
        snprintf(text, sizeof text,
                 "{\"model\": \"transformer\", \"encoder_layers\": 1, \"decoder_layers\": 1,"
                 " \"d_model\": 8, \"n_heads\": 2, \"ff_dim\": 12%s%s%s%s}",
                 place == 0 ? "" : ", \"dropout_attention\": 0",
                 place == 1 ? "" : ", \"dropout_residual\": 0",
                 place == 2 ? "" : ", \"dropout_ff\": 0", more);
        open_model(&f, text, V, V);
        must_do(rd_params_seal(f.ps, 1, NAN, &st), &st);
        fill_all(&f);
        must_do(rd_tape_new(f.be, f.ps, &f.tape, &st), &st);
        rd_batch b = {.n = 2, .n_global = 2, .sample = ids, .n_fields = 2, .epoch = 3};
        b.field[0] = (rd_field){"source", RD_I32, source, source_off, 0, {0}};
        b.field[1] = (rd_field){"target", RD_I32, target, target_off, 0, {0}};
        rd_tape_reset(f.tape, true, true);
        must_do(f.def->loss(f.model, f.tape, &b, &out, &st), &st);
        both = loss[place] = out.loss_sum;
        b.sample = others;
        rd_tape_reset(f.tape, true, true);
        must_do(f.def->loss(f.model, f.tape, &b, &out, &st), &st);
        other = out.loss_sum;
        b.sample = ids;
        rd_tape_reset(f.tape, false, false);
        must_do(f.def->loss(f.model, f.tape, &b, &out, &st), &st);
        plain = out.loss_sum;
        double sum = 0.0;
        b.n = 1;
        for (int i = 0; i < 2; i++) {
            b.sample = ids + i;
            b.field[0].off = source_off + i;
            b.field[1].off = target_off + i;
            rd_tape_reset(f.tape, true, true);
            must_do(f.def->loss(f.model, f.tape, &b, &out, &st), &st);
            sum += out.loss_sum;
        }
        golden_near(both, sum, 1e-5, "sentences one by one");
        golden_near(plain / 5.0, 2.7206819483, 1e-5, "loss outside of training");
        if (place == 4) {
            golden_near(both, plain, 1e-6, "loss without dropout");
        } else {
            if (fabs(both - plain) < 1e-3) fail_msg("dropout_%s has no effect", keys[place]);
            if (fabs(both - other) < 1e-3)
                fail_msg("dropout_%s does not depend on the sample", keys[place]);
        }
        for (int k = 0; k < place; k++) assert_true(fabs(loss[k] - both) > 1e-4);
        golden_close(&f);
    }
}

/* ---- initial values ---- */

enum { INIT_D = 64, INIT_V = 400 };

typedef struct init_row {
    const char *name, *init;
    /* Largest value of a matrix: sqrt(6 / (this times d)). */
    double qkv, q, kv, out;
    double table; /* root mean square of the table of embeddings */
} init_row;

/* Sockeye's table is the output matrix, too: b = sqrt(6 / (V + d)), and b / sqrt(3) is the root of
 * the mean square. */
static init_row init_rows[] = {
    {"init: sockeye", "sockeye", 4, 2, 3, 2, 0.065653216},
    {"init: marian", "marian", 2, 2, 2, 2, 0.125},
    {"init: fairseq", "fairseq", 4, 4, 4, 2, 0.125},
};

static void largest(const golden_model *f, const char *name, double want)
{
    const rd_param *p = rd_params_find(f->ps, name);
    double most = 0.0;
    if (!p) fail_msg("the model has no parameter '%s'", name);
    for (int64_t i = 0; i < p->n; i++) {
        const double w = fabs((double)test_values(f->ps)[p->offset + i]);
        if (w > most) most = w;
    }
    if (!(most <= want * 1.000001 && most > 0.99 * want))
        fail_msg("%s: the largest value is %.6g, want %.6g", name, most, want);
}

static double root_mean_square(const golden_model *f, const char *name)
{
    const rd_param *p = rd_params_find(f->ps, name);
    double sum = 0.0;
    if (!p) fail_msg("the model has no parameter '%s'", name);
    for (int64_t i = 0; i < p->n; i++) {
        const double w = (double)test_values(f->ps)[p->offset + i];
        sum += w * w;
    }
    return sqrt(sum / (double)p->n);
}

static double init_bound(double fans)
{
    return sqrt(6.0 / (fans * INIT_D));
}

static void test_init(void **state)
{
    const init_row *row = *state;
    golden_model f;
    rd_status st = {0};
    char text[512];
    for (int tied = 1; tied >= 0; tied--) {
        snprintf(text, sizeof text,
                 "{\"model\": \"transformer\", \"encoder_layers\": 1, \"decoder_layers\": 1,"
                 " \"d_model\": %d, \"n_heads\": 4, \"ff_dim\": %d, \"weight_init\": \"%s\","
                 " \"tie_embeddings\": \"%s\"}",
                 INIT_D, 3 * INIT_D, row->init, tied ? "all" : "none");
        open_model(&f, text, INIT_V, INIT_V);
        must_do(rd_params_seal(f.ps, 1, NAN, &st), &st);
        largest(&f, "encoder/layer0/attention/qkv_kernel", init_bound(row->qkv));
        largest(&f, "decoder/layer0/memory/q_kernel", init_bound(row->q));
        largest(&f, "decoder/layer0/memory/kv_kernel", init_bound(row->kv));
        largest(&f, "decoder/layer0/memory/out_kernel", init_bound(row->out));
        largest(&f, "decoder/layer0/ff/kernel1", init_bound(4));
        golden_near(root_mean_square(&f, tied ? "embedding" : "tgt_embedding"),
                    tied || strcmp(row->init, "sockeye") != 0 ? row->table : 0.07 / sqrt(3.0), 0.02,
                    "the table");
        if (!tied)
            golden_near(root_mean_square(&f, "output_kernel"),
                        strcmp(row->init, "fairseq") == 0 ? row->table : init_rows[0].table, 0.02,
                        "the output matrix");
        golden_close(&f);
    }
}

/* ---- values that backward computes again ---- */

enum { MANY = 9, MOST_WORDS = 40, MOST_CALLS = 256 };

typedef struct ready_list {
    int index[MOST_CALLS], n;
} ready_list;

static void ready(void *ctx, rd_param *p)
{
    ready_list *r = ctx;
    assert_true(r->n < MOST_CALLS);
    r->index[r->n++] = p->index;
}

typedef struct trained {
    double loss;
    float *grads;
    size_t bytes, memory;
    ready_list ready;
} trained;

/* Computes the gradients of some sentences with dropout. words: of the longest one. */
static trained train(const char *form, const char *recompute, int words)
{
    static int32_t source[MANY * MOST_WORDS], target[MANY * MOST_WORDS];
    int64_t source_off[MANY + 1] = {0}, target_off[MANY + 1] = {0}, sample[MANY];
    rd_status st = {0};
    rd_loss_out out;
    golden_model f;
    char text[1024];
    trained r = {0};
    for (int i = 0; i < MANY; i++) {
        sample[i] = 100 + i;
        source_off[i + 1] = source_off[i] + words - (words > MANY ? i : 0);
        target_off[i + 1] = target_off[i] + (words > MANY ? words - 2 * i : 2);
    }
    for (int i = 0; i < MANY * MOST_WORDS; i++) {
        source[i] = 4 + i * 7 % 29;
        target[i] = 4 + i * 11 % 31;
    }
    snprintf(text, sizeof text,
             "{\"model\": \"transformer\", \"encoder_layers\": 2, \"decoder_layers\": 3,"
             " \"d_model\": 32, \"n_heads\": 4, \"ff_dim\": 80, \"dropout_attention\": 0.2,"
             " \"dropout_residual\": 0.3, \"dropout_ff\": 0.1, \"recompute\": \"%s\"%s}",
             recompute, form);
    open_model(&f, text, 40, 40);
    must_do(rd_params_seal(f.ps, 1, NAN, &st), &st);
    golden_start(&f);
    rd_batch b = {.n = MANY, .n_global = MANY, .sample = sample, .n_fields = 2, .epoch = 3};
    b.field[0] = (rd_field){"source", RD_I32, source, source_off, 0, {0}};
    b.field[1] = (rd_field){"target", RD_I32, target, target_off, 0, {0}};
    memset(test_grads(f.ps), 0, (size_t)rd_params_span(f.ps) * sizeof(float));
    rd_params_touch_grads(f.ps);
    rd_tape_on_grad_ready(f.tape, ready, &r.ready);
    rd_tape_reset(f.tape, true, true);
    must_do(f.def->loss(f.model, f.tape, &b, &out, &st), &st);
    must_do(rd_tape_backward(f.tape, out.loss, &st), &st);
    r.loss = out.loss_sum;
    r.bytes = (size_t)rd_params_span(f.ps) * sizeof(float);
    r.grads = malloc(r.bytes);
    memcpy(r.grads, test_grads(f.ps), r.bytes);
    r.memory = rd_arena_peak(rd_tape_device_arena(f.tape));
    golden_close(&f);
    return r;
}

typedef struct recompute_row {
    const char *name, *form;
    int words;
    double norms; /* share of the memory that is left with norms */
} recompute_row;

static recompute_row recompute_rows[] = {
    {"recompute: pre", "", 40, 0.88},
    {"recompute: post, biases", ", \"norm\": \"post\", \"attention_bias\": true", 33, 0.90},
    {"recompute: recurrent units", ", \"decoder_layer\": \"ssru\"", 40, 0.88},
    {"recompute: gelu, nothing tied",
     ", \"activation\": \"gelu_tanh\", \"tie_embeddings\": \"none\", \"positions\": \"learned\"",
     25, 0.87},
    /* Attention has a shorter way for one query outside of training. */
    {"recompute: one target word", "", 3, 1.0},
};

/* Loss and gradients have the same bytes; each parameter is reported once, in the same order; and
 * long sentences need half of the memory. */
static void check_recompute(const recompute_row *row, const char *how, double most)
{
    const trained a = train(row->form, "none", row->words), b = train(row->form, how, row->words);
    assert_true(a.loss == b.loss);
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_equal(a.grads, b.grads, a.bytes);
    assert_int_equal(a.ready.n, b.ready.n);
    assert_memory_equal(a.ready.index, b.ready.index, (size_t)a.ready.n * sizeof *a.ready.index);
    if (row->words > MANY && !((double)b.memory < most * (double)a.memory))
        fail_msg("%zu bytes with recompute %s, %zu without", b.memory, how, a.memory);
    free(a.grads);
    free(b.grads);
}

static void test_recompute(void **state)
{
    const recompute_row *row = *state;
    check_recompute(row, "layer", 0.5);
    check_recompute(row, "norms", row->norms);
}

RD_TESTS("golden transformer", TEST(test_losses), TEST(test_gradient), TEST(test_logits),
         TEST(test_int8), TEST(test_dropout), TEST_ROWS(count_parameters, count_rows),
         TEST_ROWS(test_init, init_rows), TEST_ROWS(test_recompute, recompute_rows))
