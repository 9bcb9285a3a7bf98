/* transformer.c -- the Transformer for translation (Vaswani et al. 2017), with the forms of
 * Sockeye, fairseq, Marian and OpenNMT as keys. The layers are in transformer_layers.h.
 *
 * One table of embeddings may serve source, target and output. Rows are packed sentence after
 * sentence, so no product computes padding. */
#include "sequence_model.h"
#include "rd/transformer_layers.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum norm_place { NORM_PRE, NORM_POST } norm_place;
typedef enum decoder_layer { LAYER_ATTENTION, LAYER_SSRU } decoder_layer;
typedef enum smoothing_form { SMOOTH_UNIFORM, SMOOTH_FAIRSEQ } smoothing_form;
typedef enum tie_embeddings { TIE_AUTO, TIE_ALL, TIE_TARGET, TIE_NONE } tie_embeddings;

static const char *const norm_places[] = {[NORM_PRE] = "pre", [NORM_POST] = "post", NULL};
static const char *const decoder_layer_kinds[] = {
    [LAYER_ATTENTION] = "attention", [LAYER_SSRU] = "ssru", NULL};
static const char *const recomputes[] = {[RD_TF_RECOMPUTE_NONE] = "none",
                                         [RD_TF_RECOMPUTE_LAYER] = "layer",
                                         [RD_TF_RECOMPUTE_NORMS] = "norms",
                                         NULL};
static const char *const activations[] = {
    [RD_ACT_RELU] = "relu",         [RD_ACT_RELU2] = "relu2", [RD_ACT_GELU_TANH] = "gelu_tanh",
    [RD_ACT_GELU_ERF] = "gelu_erf", [RD_ACT_SILU] = "silu",   NULL};
static const char *const position_types[] = {
    [RD_TF_POSITIONS_PAIRS] = "interleaved", [RD_TF_POSITIONS_HALVES] = "sockeye",
    [RD_TF_POSITIONS_T2T] = "t2t",           [RD_TF_POSITIONS_LEARNED] = "learned",
    [RD_TF_POSITIONS_NONE] = "none",         NULL};
static const char *const smoothing_forms[] = {
    [SMOOTH_UNIFORM] = "uniform", [SMOOTH_FAIRSEQ] = "fairseq", NULL};
static const char *const ties[] = {
    [TIE_AUTO] = "auto", [TIE_ALL] = "all", [TIE_TARGET] = "target", [TIE_NONE] = "none", NULL};
static const char *const inits[] = {
    [RD_TF_SOCKEYE] = "sockeye", [RD_TF_MARIAN] = "marian", [RD_TF_FAIRSEQ] = "fairseq", NULL};

typedef struct transformer_config {
    int64_t encoder_layers, decoder_layers, d_model, n_heads, ff_dim, max_positions;
    decoder_layer decoder_layer;
    rd_tf_recompute recompute;
    norm_place norm;
    rd_activation activation;
    rd_tf_positions positions;
    rd_tf_init weight_init;
    tie_embeddings tie_embeddings;
    smoothing_form label_smoothing_form;
    bool output_bias, attention_bias, embedding_scale, gated_ff;
    double norm_eps, dropout_embedding, dropout_attention, dropout_residual, dropout_ff,
        label_smoothing;
    bool average_across_timesteps, pad_vocabs_to_eight;
} transformer_config;

enum {
    TRAINING = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH,
    ALWAYS = TRAINING | RD_MODE_EVAL | RD_MODE_INFER | RD_MODE_EXPORT
};
#define T transformer_config

static const rd_option rows[] = {
    RD_OPT_INT(T, encoder_layers, encoder_layers, NULL, 1, RD_MAX_LAYERS,
               "number of encoder layers", RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, decoder_layers, decoder_layers, NULL, 1, RD_MAX_LAYERS,
               "number of decoder layers", RD_REQUIRED(ALWAYS)),
    RD_OPT_ENUM(T, decoder_layer, decoder_layer, "\"attention\"", decoder_layer_kinds,
                "how decoder layers read earlier words. attention: self-attention; ssru: a simpler "
                "simple recurrent unit, whose cost does not grow with the sentence"),
    RD_OPT_INT(T, d_model, d_model, "512", 2, 65536,
               "width of embeddings and of all layers' outputs"),
    RD_OPT_INT(T, n_heads, n_heads, "8", 1, 1024,
               "number of attention heads; d_model is a multiple of it"),
    RD_OPT_INT(T, ff_dim, ff_dim, "2048", 1, 1 << 20, "width inside feed-forward blocks"),
    RD_OPT_ENUM(T, norm, norm, "\"pre\"", norm_places,
                "place of layer norms. pre: before each block, and after the last layer; post: "
                "after each block's sum, as in the paper"),
    RD_OPT_REAL(T, norm_eps, norm_eps, "1e-6", 1e-12, 1, "added to the variance in layer norms"),
    RD_OPT_ENUM(T, activation, activation, "\"relu\"", activations,
                "activation of feed-forward blocks"),
    RD_OPT_BOOL(T, gated_ff, gated_ff, "false",
                "another product of the input multiplies the activation in feed-forward blocks: "
                "ReGLU with relu, GEGLU with gelu, SwiGLU with silu"),
    RD_OPT_ENUM(T, positions, positions, "\"sockeye\"", position_types,
                "positions of words. interleaved: sin, cos, sin, cos, as in the paper; sockeye: "
                "the same, all sines first; t2t: those of tensor2tensor, fairseq and Marian; "
                "learned: max_positions vectors; none"),
    RD_OPT_INT(T, max_positions, max_positions, "1024", 1, 1 << 20,
               "number of learned positions; later words use the last one"),
    RD_OPT_BOOL(T, embedding_scale, embedding_scale, "true",
                "multiplies embeddings by the square root of d_model"),
    RD_OPT_ENUM(T, tie_embeddings, tie_embeddings, "\"auto\"", ties,
                "tables that are one. all: source, target and output; target: target and output; "
                "none; auto: all if both sides have the same vocabulary, else target"),
    RD_OPT_BOOL(T, output_bias, output_bias, "true", "a bias for each output word"),
    RD_OPT_BOOL(T, attention_bias, attention_bias, "false",
                "biases in the projections of attention"),
    RD_OPT_ENUM(T, weight_init, weight_init, "\"fairseq\"", inits,
                "initial weights: those of sockeye, marian or fairseq. With fairseq's a table that "
                "is also the output starts with a loss above ln(words), as there"),
    RD_OPT_REAL(T, dropout_embedding, dropout_embedding, "0.0", 0, 0.999,
                "dropout of embeddings, before positions are added"),
    RD_OPT_REAL(T, dropout_attention, dropout_attention, "0.1", 0, 0.999,
                "dropout of attention weights"),
    RD_OPT_REAL(T, dropout_residual, dropout_residual, "0.1", 0, 0.999,
                "dropout of each block's output, and of embeddings with positions"),
    RD_OPT_REAL(T, dropout_ff, dropout_ff, "0.1", 0, 0.999,
                "dropout inside feed-forward blocks, after the activation"),
    RD_OPT_REAL(T, label_smoothing, label_smoothing, "0.0", 0.0, 0.999,
                "share of the target's probability that all classes get"),
    RD_OPT_ENUM(T, label_smoothing_form, label_smoothing_form, "\"uniform\"", smoothing_forms,
                "uniform: the share goes to all words; fairseq: to all but the right one"),
    RD_OPT_ENUM(T, recompute, recompute, "\"norms\"", recomputes,
                "values that backward computes again, for less memory. norms: those of layer norms "
                "and activations; layer: all inside layers; results stay the same to the last bit"),
    RD_AVERAGE_ROW(T),
    RD_PAD_ROW(T),
    RD_OPT_END,
};
#undef T
static const rd_option_group group = {"transformer", "model transformer: attention alone", rows,
                                      sizeof(transformer_config)};

typedef struct transformer {
    transformer_config c;
    rd_tf_embedding source, target;
    rd_tf_stack encoder, decoder;
    rd_param *output, *output_bias; /* (V, d), (V); output_bias NULL: none */
    int64_t n_classes;              /* number of target words; output may have more rows */
    rd_params *ps;
} transformer;

/* Checks that the keys fit together, and decides what auto means. */
static rd_code check(transformer_config *c, const rd_model_args *a, rd_status *st)
{
    const rd_config *cfg = a->config;
    const rd_data_spec *s = a->data;
    const bool same = s->src_vocab_size == s->tgt_vocab_size &&
                      s->src_vocab_hash == s->tgt_vocab_hash;
    if (c->d_model % c->n_heads != 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'd_model' is %" PRId64 ", which is no multiple of 'n_heads' (%" PRId64
                       "); change one of them",
                       rd_config_where(cfg, "d_model"), c->d_model, c->n_heads);
    if (c->d_model % 2 != 0 &&
        (c->positions == RD_TF_POSITIONS_PAIRS || c->positions == RD_TF_POSITIONS_HALVES))
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'd_model' is %" PRId64 ", but 'positions' %s are pairs of a sine and a "
                       "cosine; use an even number",
                       rd_config_where(cfg, "d_model"), c->d_model, position_types[c->positions]);
    if (c->tie_embeddings == TIE_ALL && !same)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'tie_embeddings' all needs one vocabulary for both sides, but source "
                       "(%" PRId64 " words) and target (%" PRId64
                       ") differ; give both sides one vocabulary, or use target",
                       rd_config_where(cfg, "tie_embeddings"), s->src_vocab_size,
                       s->tgt_vocab_size);
    if (c->tie_embeddings == TIE_AUTO) c->tie_embeddings = same ? TIE_ALL : TIE_TARGET;
    if (c->label_smoothing > 0.0 && s->tgt_vocab_size < 2)
        return rd_fail(st, RD_EUSAGE, "%s: 'label_smoothing' needs two target words or more",
                       rd_config_where(cfg, "label_smoothing"));
    return RD_OK;
}

static void transformer_destroy(void *self)
{
    free(self);
}

/* Declares the tables and the output. */
static rd_code declare_tables(transformer *m, const rd_model_args *a, const rd_tf_config *tc,
                              uint32_t *site, rd_status *st)
{
    const transformer_config *c = &m->c;
    const int64_t Vs = sequence_vocab(c->pad_vocabs_to_eight, a->data->src_vocab_size),
                  Vt = sequence_vocab(c->pad_vocabs_to_eight, a->data->tgt_vocab_size);
    const bool all = c->tie_embeddings == TIE_ALL, target = c->tie_embeddings == TIE_TARGET;
    const double keep = 1.0 - c->dropout_embedding;
    rd_param *src, *tgt;
    RD_TRY(rd_tf_table_add(a->params, all ? "embedding" : "src_embedding", Vs, tc, all, &src, st));
    tgt = src;
    if (!all) RD_TRY(rd_tf_table_add(a->params, "tgt_embedding", Vt, tc, target, &tgt, st));
    m->output = tgt;
    RD_TRY(rd_tf_embedding_add(a->params, "src_positions", src, c->positions, c->max_positions,
                               c->embedding_scale, keep, tc, site, &m->source, st));
    RD_TRY(rd_tf_embedding_add(a->params, "tgt_positions", tgt, c->positions, c->max_positions,
                               c->embedding_scale, keep, tc, site, &m->target, st));
    m->n_classes = a->data->tgt_vocab_size;
done:
    return st->code;
}

static rd_code declare_output(transformer *m, const rd_model_args *a, const rd_tf_config *tc,
                              rd_status *st)
{
    const int64_t V = sequence_vocab(m->c.pad_vocabs_to_eight, a->data->tgt_vocab_size);
    const rd_init normal = {RD_INIT_NORMAL, 1.0 / sqrt((double)tc->d), 0, 0},
                  glorot = {RD_INIT_GLOROT, 0, V, tc->d};
    if (m->c.tie_embeddings == TIE_NONE)
        RD_TRY(rd_params_add(a->params, "output_kernel", 2, (int64_t[]){V, tc->d},
                             tc->init == RD_TF_FAIRSEQ ? normal : glorot, 0, &m->output, st));
    if (m->c.output_bias)
        RD_TRY(rd_params_add(a->params, "output_bias", 1, &V, (rd_init){RD_INIT_CONST, 0, 0, 0},
                             RD_PARAM_NO_DECAY, &m->output_bias, st));
done:
    return st->code;
}

static rd_code transformer_create(const rd_model_args *a, void **self, rd_status *st)
{
    transformer *m = *self = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for the model");
    transformer_config *c = &m->c;
    uint32_t site = 0;
    m->ps = a->params;
    RD_TRY(rd_config_read(a->config, &group, a->mode, c, st));
    RD_TRY(check(c, a, st));
    const rd_tf_config tc = {.d = c->d_model,
                             .n_heads = c->n_heads,
                             .ff = c->ff_dim,
                             .post_norm = c->norm == NORM_POST,
                             .attention_bias = c->attention_bias,
                             .ssru = c->decoder_layer == LAYER_SSRU,
                             .recompute = c->recompute,
                             .activation = c->activation,
                             .ff_gate = c->gated_ff,
                             .eps = c->norm_eps,
                             .keep_attention = 1.0 - c->dropout_attention,
                             .keep_residual = 1.0 - c->dropout_residual,
                             .keep_ff = 1.0 - c->dropout_ff,
                             .init = c->weight_init,
                             .seed = a->seed};
    RD_TRY(declare_tables(m, a, &tc, &site, st));
    RD_TRY(rd_tf_stack_add(a->params, "encoder", &tc, (int)c->encoder_layers, false, false, &site,
                           &m->encoder, st));
    RD_TRY(rd_tf_stack_add(a->params, "decoder", &tc, (int)c->decoder_layers, true, true, &site,
                           &m->decoder, st));
    RD_TRY(declare_output(m, a, &tc, st));
done:
    if (st->code != RD_OK) {
        transformer_destroy(m);
        *self = NULL;
    }
    return st->code;
}

/* The rows of a batch. The last token of a target is a label, not an input. */
typedef struct batch_rows {
    rd_tf_rows source, target;
    const int32_t *source_id; /* [source.N] */
    int32_t *target_id;       /* [target.N] inputs */
    int32_t *label;           /* [target.N] */
} batch_rows;

/* Lists the rows of one side. less: number of tokens at the end of each sentence that are no
 * rows. */
static rd_code side_rows(rd_arena *a, const rd_batch *b, const rd_field *f, int64_t less,
                         rd_tf_rows *out, rd_status *st)
{
    int64_t *len;
    RD_TRY(rd_arena_get(a, (size_t)(b->n + 1) * sizeof *len, &len, st));
    for (int64_t i = 0; i < b->n; i++) {
        len[i] = f->off[i + 1] - f->off[i] - less;
        if (len[i] < 1)
            return rd_fail(st, RD_EBUG, "sample %" PRId64 " has no tokens", b->sample[i]);
    }
    RD_TRY(rd_tf_rows_list(a, b->n, len, b->sample, out, st));
done:
    return st->code;
}

static rd_code list_rows(rd_arena *a, const rd_batch *b, const rd_field *sf, const rd_field *tf,
                         batch_rows *r, rd_status *st)
{
    const int32_t *tgt = tf->data;
    RD_TRY(side_rows(a, b, sf, 0, &r->source, st));
    RD_TRY(side_rows(a, b, tf, 1, &r->target, st));
    const size_t bytes = (size_t)(r->target.N + 1) * sizeof *r->label;
    RD_TRY(rd_arena_get(a, bytes, &r->target_id, st));
    RD_TRY(rd_arena_get(a, bytes, &r->label, st));
    r->source_id = (const int32_t *)sf->data + sf->off[0];
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t to = r->target.first[i];
        const size_t n = (size_t)r->target.len[i] * sizeof *tgt;
        memcpy(r->target_id + to, tgt + tf->off[i], n);
        memcpy(r->label + to, tgt + tf->off[i] + 1, n);
    }
done:
    return st->code;
}

static rd_code transformer_loss(void *self, rd_tape *t, const rd_batch *b, rd_loss_out *out,
                                rd_status *st)
{
    transformer *m = self;
    rd_arena *a = rd_tape_arena(t);
    const rd_field *sf, *tf;
    const uint64_t epoch = (uint64_t)b->epoch;
    batch_rows r = {0};
    int32_t *argmax;
    memset(out, 0, sizeof *out);
    RD_TRY(rd_tape_check(t, st));
    if (b->n == 0) return sequence_no_loss(t, out, st);
    RD_TRY(sequence_fields("transformer", b, &sf, &tf, st));
    RD_TRY(list_rows(a, b, sf, tf, &r, st));
    const int64_t N = r.target.N;
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *argmax, &argmax, st));
    rd_var *x = rd_tf_embedding_apply(t, &m->source, &r.source, epoch, r.source_id);
    rd_var *memory = rd_tf_stack_apply(t, &m->encoder, &r.source, epoch, x, NULL, NULL);
    x = rd_tf_embedding_apply(t, &m->target, &r.target, epoch, r.target_id);
    x = rd_tf_stack_apply(t, &m->decoder, &r.target, epoch, x, memory, &r.source);
    const rd_xent e = {.target = r.label,
                       .temperature = 1.0f,
                       .loss_sum = &out->loss_sum,
                       .nll_sum = &out->nll_sum,
                       .argmax = argmax,
                       .smoothing = (float)m->c.label_smoothing,
                       .smooth_others = m->c.label_smoothing_form == SMOOTH_FAIRSEQ,
                       .n_classes = m->n_classes,
                       .by_rows = true};
    out->loss = rd_op_softmax_xent_bias(t, &e, x, rd_tape_param(t, m->output),
                                        rd_tape_param(t, m->output_bias));
    RD_TRY(rd_tape_check(t, st));
    sequence_counts(b, sf, tf, N, m->c.average_across_timesteps, out);
    for (int64_t i = 0; i < N; i++) out->n_correct += argmax[i] == r.label[i];
    out->n_predicted = r.target.len[0];
    out->predicted = argmax;
done:
    return st->code;
}

static rd_tf_decoder transformer_decoder(const transformer *m)
{
    return (rd_tf_decoder){.stack = &m->decoder,
                           .embedding = &m->target,
                           .output = m->output,
                           .output_bias = m->output_bias,
                           .n_classes = m->n_classes,
                           .start = RD_SOS,
                           .end = RD_EOS,
                           .ps = m->ps};
}

static rd_code transformer_graph(void *self, int k, rd_onnx *g, rd_status *st)
{
    const transformer *m = self;
    const rd_tf_decoder d = transformer_decoder(m);
    (void)st;
    return k == 0 ? rd_tf_encoder_graph(g, &m->source, &m->encoder, &d)
                  : rd_tf_decoder_graph(g, &d);
}

static rd_code transformer_decode(void *self, rd_tape *t, const rd_batch *b,
                                  const rd_decode_config *c, rd_decoded *out, rd_status *st)
{
    transformer *m = self;
    rd_arena *a = rd_tape_arena(t);
    const rd_field *sf = rd_batch_field(b, "source");
    rd_tf_rows source;
    rd_token_sets sets;
    const rd_token_sets *among;
    if (b->n == 0) return RD_OK;
    if (!sf) return rd_fail(st, RD_EBUG, "model transformer got a batch without source");
    RD_TRY(side_rows(a, b, sf, 0, &source, st));
    rd_backend_set_int8(rd_tape_backend(t), c->int8);
    rd_var *x = rd_tf_embedding_apply(t, &m->source, &source, 0,
                                      (const int32_t *)sf->data + sf->off[0]);
    rd_var *memory = rd_tf_stack_apply(t, &m->encoder, &source, 0, x, NULL, NULL);
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(sequence_sets(c, b, sf, a, &sets, &among, st));
    const rd_tf_decoder d = transformer_decoder(m);
    RD_TRY(rd_tf_search(t, &d, memory, &source, &c->search, among, out, st));
done:
    rd_backend_set_int8(rd_tape_backend(t), false);
    return st->code;
}

/* Returns 2 operations for each multiply-add: those of every matrix element and token, and those of
 * attention scores and contexts. A causal mask halves the latter. The few operations of recurrent
 * units do not count. Backward counts twice forward. */
static double transformer_flops(void *self, const rd_batch *b)
{
    const transformer *m = self;
    const rd_field *sf, *tf;
    rd_status st = {0};
    double none, of_memory, total = 0.0;
    if (b->n == 0 || sequence_fields("transformer", b, &sf, &tf, &st) != RD_OK) return 0.0;
    const double enc = rd_tf_stack_elements(&m->encoder, &none),
                 dec = rd_tf_stack_elements(&m->decoder, &of_memory) +
                       (double)(m->n_classes * m->c.d_model),
                 d = (double)m->c.d_model, enc_layers = (double)m->c.encoder_layers,
                 dec_layers = (double)m->c.decoder_layers;
    const bool ssru = m->c.decoder_layer == LAYER_SSRU;
    for (int64_t i = 0; i < b->n; i++) {
        const double S = (double)(sf->off[i + 1] - sf->off[i]),
                     n = (double)(tf->off[i + 1] - tf->off[i] - 1),
                     pairs = ssru ? 0.0 : n * (n + 1.0) / 2.0;
        total += S * (enc + of_memory) + n * dec +
                 2.0 * d * (enc_layers * S * S + dec_layers * (pairs + n * S));
    }
    return 6.0 * total;
}

/* ---- the models of this file ---- */

#define SIZES(layers, d, heads, ff)                                                              \
    {"encoder_layers", #layers, NULL}, {"decoder_layers", #layers, NULL}, {"d_model", #d, NULL}, \
        {"n_heads", #heads, NULL}, {"ff_dim", #ff, NULL}, {"label_smoothing", "0.1", NULL},      \
        {"batch_tokens", "4096", "batch_size batch_sentences"},                                  \
    {                                                                                            \
        "average_across_timesteps", "true", NULL                                                 \
    }
/* Adam, and a rate that rises to `rate` and then falls with the root of the step. */
#define RECIPE(rate, warmup)                                                                      \
    {"optimizer", "\"adamw\"", NULL}, {"adam_beta2", "0.98", "optimizer"},                        \
        {"adam_epsilon", "1e-9", "optimizer"},                                                    \
        {"learning_rate", #rate, "lr_policy piecewise_learning_rate_schedule use_decay"},         \
        {"lr_scaling", "\"none\"", NULL},                                                         \
        {"shared_vocab", "true", "src_vocab_file tgt_vocab_file"},                                \
        {"lr_policy", "\"inv_sqrt\"", "piecewise_learning_rate_schedule use_decay"},              \
        {"inv_sqrt_form", "\"fairseq\"", "lr_policy piecewise_learning_rate_schedule use_decay"}, \
    {                                                                                             \
        "warmup_steps", #warmup,                                                                  \
            "lr_policy piecewise_learning_rate_schedule use_decay warmup_epochs"                  \
    }

static const rd_model_key base_keys[] = {
    SIZES(6, 512, 8, 2048), RECIPE(7e-4, 4000), {NULL, NULL, NULL}};
static const rd_model_key big_keys[] = {SIZES(6, 1024, 16, 4096),
                                        RECIPE(5e-4, 4000),
                                        {"dropout_residual", "0.3", NULL},
                                        {NULL, NULL, NULL}};
static const rd_model_key small_keys[] = {
    SIZES(3, 256, 8, 1024), RECIPE(1e-3, 1000), {NULL, NULL, NULL}};
/* What Sockeye's training command of 2018 and 2019 does without further flags: words as they are, a
 * checkpoint of 4000 updates, and a constant rate that falls on a plateau of the loss. */
#define OWN_RATE "lr_policy piecewise_learning_rate_schedule use_decay"
static const rd_model_key sockeye_keys[] = {
    SIZES(6, 512, 8, 2048),
    {"tie_embeddings", "\"none\"", NULL},
    {"weight_init", "\"sockeye\"", NULL},
    {"subword", "\"none\"", "subword_model"},
    {"max_seq_len", "[99]", "bucket_src bucket_tgt"},
    {"optimizer", "\"adam\"", NULL},
    {"learning_rate", "2e-4", OWN_RATE},
    {"lr_scaling", "\"none\"", NULL},
    {"plateau_factor", "0.7", OWN_RATE},
    {"plateau_patience", "8", OWN_RATE},
    {"plateau_min_delta", "0", OWN_RATE},
    {"plateau_restore", "true", OWN_RATE},
    {"checkpoint_steps", "4000", "eval_frequency eval_epochs"},
    {"best_monitor", "\"loss\"", NULL},
    {"stop_patience", "32", NULL},
    {NULL, NULL, NULL}};

#define RD_MODEL_TRANSFORMER(id, what, list)            \
    RD_MODEL(id) = {.name = #id,                        \
                    .about = what,                      \
                    .own = &group,                      \
                    .group = &rd_group_search,          \
                    .decodes_int8 = true,               \
                    .bars_unk = true,                   \
                    .keys = list,                       \
                    .default_dataset = "parallel_text", \
                    .usual_batch = 64,                  \
                    .create = transformer_create,       \
                    .destroy = transformer_destroy,     \
                    .loss = transformer_loss,           \
                    .decode = transformer_decode,       \
                    .flops = transformer_flops,         \
                    .graphs = sequence_graphs,          \
                    .graph = transformer_graph}

RD_MODEL_TRANSFORMER(transformer, "Transformer for translation; by default the sizes of base",
                     base_keys);
RD_MODEL_TRANSFORMER(transformer_base, "Transformer for translation, base of Vaswani et al. 2017",
                     base_keys);
RD_MODEL_TRANSFORMER(transformer_big, "Transformer for translation, big of Vaswani et al. 2017",
                     big_keys);
RD_MODEL_TRANSFORMER(transformer_small, "Transformer for translation that two cores can train",
                     small_keys);
RD_MODEL_TRANSFORMER(sockeye_2018, "Transformer for translation with Sockeye 1's defaults",
                     sockeye_keys);
