/* gpt.c -- language models that are decoders alone: GPT-2 (Radford et al. 2019), and the family of
 * Llama, Qwen and SmolLM. All of them are keys of one model; presets give the keys usual values.
 *
 * A sample is a window of a text. Token k predicts token k + 1. With document_mask the window is
 * cut before each end token: as input it opens the next document, as label it ends the last one.
 * Each part is then a sequence by itself, so no document sees another, at no cost. */
#include "gpt_model.h"
#include "sequence_model.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const recomputes[] = {[RD_TF_RECOMPUTE_NONE] = "none",
                                         [RD_TF_RECOMPUTE_LAYER] = "layer",
                                         [RD_TF_RECOMPUTE_NORMS] = "norms",
                                         NULL};
static const char *const norm_types[] = {[GPT_NORM_LAYER] = "layer", [GPT_NORM_RMS] = "rms", NULL};
static const char *const pos_types[] = {[GPT_POS_LEARNED] = "learned",
                                        [GPT_POS_ROPE] = "rope",
                                        [GPT_POS_SINUSOID] = "sinusoid",
                                        [GPT_POS_NONE] = "none",
                                        NULL};
static const char *const biases[] = {
    [GPT_BIAS_ALL] = "all", [GPT_BIAS_NONE] = "none", [GPT_BIAS_QKV] = "qkv", NULL};
static const char *const scalings[] = {[GPT_SCALING_NONE] = "none",
                                       [GPT_SCALING_LINEAR] = "linear",
                                       [GPT_SCALING_LLAMA3] = "llama3",
                                       NULL};
static const char *const activations[] = {
    [RD_ACT_RELU] = "relu",         [RD_ACT_RELU2] = "relu2", [RD_ACT_GELU_TANH] = "gelu_tanh",
    [RD_ACT_GELU_ERF] = "gelu_erf", [RD_ACT_SILU] = "silu",   NULL};
static const char *const ties[] = {[GPT_TIE_AUTO] = "auto",
                                   [GPT_TIE_ALL] = "all",
                                   [GPT_TIE_TARGET] = "target",
                                   [GPT_TIE_NONE] = "none",
                                   NULL};
static const char *const restarts[] = {[GPT_RESTART] = "restart", [GPT_WINDOW] = "window", NULL};

enum {
    TRAINING = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH,
    ALWAYS = TRAINING | RD_MODE_EVAL | RD_MODE_INFER
};
#define T gpt_config

static const rd_option rows[] = {
    RD_OPT_INT(T, n_layers, n_layers, NULL, 1, RD_TF_MOST_LAYERS, "number of layers",
               RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, n_embd, n_embd, NULL, 2, 65536, "width of embeddings and of all layers' outputs",
               RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, n_heads, n_heads, "8", 1, 1024, "number of attention heads"),
    RD_OPT_INT(T, n_kv_heads, n_kv_heads, "0", 0, 1024,
               "number of key and value heads; 0: n_heads"),
    RD_OPT_INT(T, head_dim, head_dim, "0", 0, RD_ROTARY_WIDEST,
               "width of a head; 0: n_embd / n_heads"),
    RD_OPT_INT(T, ff_dim, ff_dim, "2048", 1, 1 << 20, "width inside feed-forward blocks"),
    RD_OPT_INT(T, max_len, max_len, "1024", 1, 1 << 20,
               "most tokens of a sequence; learned positions have this number of vectors"),
    RD_OPT_ENUM(T, norm_type, norm_type, "\"layer\"", norm_types,
                "norms. layer: layer norms; rms: by the root mean square, as Llama"),
    RD_OPT_REAL(T, norm_eps, norm_eps, "1e-6", 1e-12, 1, "added to the variance in norms"),
    RD_OPT_ENUM(
        T, pos, pos, "\"learned\"", pos_types,
        "positions. learned: max_len vectors; rope: queries and keys are turned; sinusoid; none"),
    RD_OPT_REAL(T, rope_theta, rope_theta, "10000", 1, 1e12, "base of rotary positions"),
    RD_OPT_ENUM(T, rope_scaling, rope_scaling, "\"none\"", scalings,
                "how rotary positions become slower. linear: rope_factor times; llama3: slow ones "
                "alone"),
    RD_OPT_REAL(T, rope_factor, rope_factor, "8", 1, 1e6, "factor of rope_scaling"),
    RD_OPT_REAL(T, rope_low_freq_factor, rope_low, "1", 1e-3, 1e6,
                "llama3: longer wavelengths than rope_original_len / this are slow"),
    RD_OPT_REAL(T, rope_high_freq_factor, rope_high, "4", 1e-3, 1e6,
                "llama3: shorter ones than rope_original_len / this are fast"),
    RD_OPT_INT(T, rope_original_len, rope_original_len, "8192", 1, 1 << 30,
               "llama3: number of positions before scaling"),
    RD_OPT_ENUM(T, activation, activation, "\"relu\"", activations,
                "activation of feed-forward blocks"),
    RD_OPT_BOOL(T, gated_ff, gated_ff, "false", "see transformer; with silu SwiGLU"),
    RD_OPT_ENUM(T, bias, bias, "\"all\"", biases,
                "biases. all: also in norms; qkv: of queries, keys and values; none"),
    RD_OPT_BOOL(T, qk_norm, qk_norm, "false",
                "a norm of each query and key head, as Qwen 3; needs norm_type rms"),
    RD_OPT_ENUM(T, tie_embeddings, tie_embeddings, "\"auto\"", ties,
                "none: the output has its own table; else it is that of the embeddings"),
    RD_OPT_INT(T, vocab_multiple, vocab_multiple, "1", 1, 65536,
               "the table has a multiple of this number of rows"),
    RD_OPT_INT(T, vocab_rows, vocab_rows, "0", 0, 1 << 24,
               "number of classes of the output, as published weights have it; 0: the tokens"),
    RD_OPT_REAL(T, init_std, init_std, "0.02", 0, 10,
                "standard deviation of initial weights; / sqrt(2 n_layers) for the last matrix of "
                "each block"),
    RD_OPT_REAL(T, logit_softcap, logit_softcap, "0", 0, 1e6,
                "limits logits: c tanh(logit / c), as Gemma 2; 0: no limit"),
    RD_OPT_REAL(T, z_loss, z_loss, "0", 0, 10,
                "weight of (log sum exp of the logits)^2 in the loss, as PaLM"),
    RD_OPT_REAL(T, dropout_embedding, dropout_embedding, "0.0", 0, 0.999,
                "dropout of embeddings with positions"),
    RD_OPT_REAL(T, dropout_attention, dropout_attention, "0.1", 0, 0.999,
                "dropout of attention weights"),
    RD_OPT_REAL(T, dropout_residual, dropout_residual, "0.1", 0, 0.999,
                "dropout of the output of each block"),
    RD_OPT_BOOL(T, document_mask, document_mask, "false", "a token sees its own document alone"),
    RD_OPT_ENUM(T, document_positions, document_positions, "\"restart\"", restarts,
                "with document_mask. restart: positions begin at 0 in each document; window: in "
                "each window"),
    RD_OPT_ENUM(T, recompute, recompute, "\"norms\"", recomputes,
                "values that backward computes again, see transformer"),
    RD_OPT_INT(T, max_new_tokens, max_new_tokens, "100", 1, 1 << 20,
               "most tokens that infer mode adds to a prompt"),
    RD_OPT_STRINGS(T, stop_strings, stop_strings,
                   "infer mode: a text ends before the first of these strings that the model "
                   "writes"),
    RD_OPT_INT(T, lora_rank, lora_rank, "0", 0, 4096,
               "rank of the adapters (LoRA) that are trained in place of all weights; 0: none"),
    RD_OPT_STRINGS(T, lora_targets, lora_targets,
                   "matrices with an adapter, by transformers' names, or all-linear; default "
                   "q_proj and v_proj, for GPT-2 c_attn"),
    RD_OPT_REAL(T, lora_alpha, lora_alpha, "0", 0, 1e6,
                "adapters count lora_alpha / lora_rank times; 0: lora_rank"),
    RD_OPT_BOOL(T, lora_rslora, lora_rslora, "false",
                "they count lora_alpha / sqrt(lora_rank) times"),
    RD_OPT_REAL(T, lora_dropout, lora_dropout, "0.0", 0, 0.999, "dropout of the input of adapters"),
    RD_OPT_PATH(T, lora_from, lora_from, NULL,
                "folder of PEFT with the adapter that the weights of a folder begin with; it gives "
                "lora_rank, lora_targets, lora_alpha and lora_rslora"),
    RD_OPT_END,
};
#undef T
static const rd_option_group group = {"gpt", "model gpt: language models that are decoders alone",
                                      rows, sizeof(gpt_config)};

/* ---- config ---- */

/* Checks that the keys fit together, and decides those that are 0. */
static rd_code gpt_check(gpt_config *c, const rd_model_args *a, rd_status *st)
{
    const rd_config *cfg = a->config;
    if (c->head_dim == 0 && c->n_embd % c->n_heads != 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'n_embd' is %" PRId64 ", which is no multiple of 'n_heads' (%" PRId64
                       "); change one of them, or give 'head_dim'",
                       rd_config_where(cfg, "n_embd"), c->n_embd, c->n_heads);
    if (c->head_dim == 0) c->head_dim = c->n_embd / c->n_heads;
    if (c->n_kv_heads == 0) c->n_kv_heads = c->n_heads;
    if (c->n_heads % c->n_kv_heads != 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'n_heads' %" PRId64 " is no multiple of 'n_kv_heads' %" PRId64,
                       rd_config_where(cfg, "n_kv_heads"), c->n_heads, c->n_kv_heads);
    if ((c->pos == GPT_POS_ROPE || c->qk_norm) &&
        (c->head_dim % 2 != 0 || c->head_dim > RD_ROTARY_WIDEST))
        return rd_fail(st, RD_EUSAGE,
                       "%s: %s needs heads of an even width of at most %d, but theirs is %" PRId64,
                       rd_config_where(cfg, c->qk_norm ? "qk_norm" : "pos"),
                       c->qk_norm ? "'qk_norm'" : "'pos' rope", RD_ROTARY_WIDEST, c->head_dim);
    if (c->pos == GPT_POS_SINUSOID && c->n_embd % 2 != 0)
        return rd_fail(st, RD_EUSAGE, "%s: 'pos' sinusoid needs an even 'n_embd', not %" PRId64,
                       rd_config_where(cfg, "pos"), c->n_embd);
    if (c->qk_norm && c->norm_type != GPT_NORM_RMS)
        return rd_fail(st, RD_EUSAGE, "%s: 'qk_norm' needs 'norm_type' rms",
                       rd_config_where(cfg, "qk_norm"));
    if (c->rope_high <= c->rope_low && c->rope_scaling == GPT_SCALING_LLAMA3)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'rope_high_freq_factor' %g is not above 'rope_low_freq_factor' %g",
                       rd_config_where(cfg, "rope_high_freq_factor"), c->rope_high, c->rope_low);
    if (a->mode == RD_MODE_BENCH && c->vocab_rows < a->data->tgt_vocab_size)
        c->vocab_rows = 0; /* the tokens are made up */
    if (c->vocab_rows && c->vocab_rows < a->data->tgt_vocab_size)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'vocab_rows' is %" PRId64 ", but the tokenizer has %" PRId64
                       " tokens; use the tokenizer of these weights",
                       rd_config_where(cfg, "vocab_rows"), c->vocab_rows,
                       (int64_t)a->data->tgt_vocab_size);
    if (c->document_mask && a->data->end_id < 0 && a->mode != RD_MODE_BENCH)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'document_mask' needs a token that ends a document, which this "
                       "tokenizer lacks; set 'document' to line or blank_line, and the data get "
                       "one",
                       rd_config_where(cfg, "document_mask"));
    return RD_OK;
}

/* Returns the angle of position 1 of pair k of a head (Su et al. 2021), scaled as Llama 3 does: by
 * the factor where the wavelength is long, not at all where it is short, and in between by a mean
 * of both. */
static double gpt_rope_rate(const gpt_config *c, int64_t k)
{
    const double two_pi = 6.28318530717958647692,
                 f = pow(c->rope_theta, -2.0 * (double)k / (double)c->head_dim), wave = two_pi / f,
                 n = (double)c->rope_original_len;
    if (c->rope_scaling == GPT_SCALING_NONE) return f;
    if (c->rope_scaling == GPT_SCALING_LINEAR || wave > n / c->rope_low) return f / c->rope_factor;
    if (wave < n / c->rope_high) return f;
    const double s = (n / wave - c->rope_low) / (c->rope_high - c->rope_low);
    return (1.0 - s) * f / c->rope_factor + s * f;
}

static rd_code gpt_rope(gpt *m, rd_status *st)
{
    const int64_t half = m->c.head_dim / 2;
    if (m->c.pos != GPT_POS_ROPE) return RD_OK;
    m->rope = malloc((size_t)(half + 1) * sizeof *m->rope);
    if (!m->rope) return rd_fail(st, RD_EENV, "out of memory for the model");
    for (int64_t k = 0; k < half; k++) m->rope[k] = gpt_rope_rate(&m->c, k);
    return RD_OK;
}

static void gpt_destroy(void *self)
{
    gpt *m = self;
    if (!m) return;
    free(m->rope);
    free(m);
}

/* ---- parameters ---- */

static rd_code gpt_declare(gpt *m, const rd_model_args *a, const rd_tf_config *tc, rd_status *st)
{
    static const rd_tf_positions positions[] = {[GPT_POS_LEARNED] = RD_TF_POSITIONS_LEARNED,
                                                [GPT_POS_ROPE] = RD_TF_POSITIONS_NONE,
                                                [GPT_POS_SINUSOID] = RD_TF_POSITIONS_PAIRS,
                                                [GPT_POS_NONE] = RD_TF_POSITIONS_NONE};
    const gpt_config *c = &m->c;
    const int64_t k = c->vocab_multiple, V = (m->n_classes + k - 1) / k * k;
    const bool tied = c->tie_embeddings != GPT_TIE_NONE;
    rd_param *table;
    uint32_t site = 0;
    RD_TRY(rd_tf_table_add(a->params, "embedding", V, tc, tied, &table, st));
    RD_TRY(rd_tf_embedding_add(a->params, "positions", table, positions[c->pos], c->max_len, false,
                               1.0, tc, &site, &m->embedding, st));
    m->embedding.drop_sum.keep = (float)(1.0 - c->dropout_embedding);
    RD_TRY(rd_tf_stack_add(a->params, "decoder", tc, (int)c->n_layers, true, false, &site,
                           &m->stack, st));
    m->output = table;
    if (!tied)
        RD_TRY(rd_params_add(a->params, "output_kernel", 2, (int64_t[]){V, tc->d},
                             (rd_init){RD_INIT_NORMAL, c->init_std, 0, 0}, 0, &m->output, st));
    if (c->lora_rank > 0) gpt_lora_freeze(a->params);
done:
    return st->code;
}

static rd_code gpt_create(const rd_model_args *a, void **self, rd_status *st)
{
    gpt *m = *self = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for the model");
    gpt_config *c = &m->c;
    rd_tf_lora_config lora;
    m->ps = a->params;
    m->end = a->data->end_id;
    m->id_bytes = a->data->id_bytes;
    RD_TRY(rd_config_read(a->config, &group, a->mode, c, st));
    RD_TRY(gpt_check(c, a, st));
    m->n_tokens = a->data->tgt_vocab_size;
    m->n_classes = c->vocab_rows ? c->vocab_rows : m->n_tokens;
    RD_TRY(gpt_rope(m, st));
    RD_TRY(gpt_lora_check(c, a, &lora, st));
    const rd_tf_config tc = {.d = c->n_embd,
                             .n_heads = c->n_heads,
                             .n_kv_heads = c->n_kv_heads,
                             .head = c->head_dim,
                             .ff = c->ff_dim,
                             .attention_bias = c->bias != GPT_BIAS_NONE,
                             .no_out_bias = c->bias != GPT_BIAS_ALL,
                             .no_ff_bias = c->bias != GPT_BIAS_ALL,
                             .no_norm_bias = c->bias != GPT_BIAS_ALL,
                             .rms = c->norm_type == GPT_NORM_RMS,
                             .qk_norm = c->qk_norm,
                             .ff_gate = c->gated_ff,
                             .rope = m->rope,
                             .activation = c->activation,
                             .recompute = c->recompute,
                             .eps = c->norm_eps,
                             .keep_attention = 1.0 - c->dropout_attention,
                             .keep_residual = 1.0 - c->dropout_residual,
                             .keep_ff = 1.0,
                             .init = RD_TF_NORMAL,
                             .init_std = c->init_std,
                             .init_residual_std = c->init_std / sqrt(2.0 * (double)c->n_layers),
                             .seed = a->seed,
                             .lora = lora};
    RD_TRY(gpt_declare(m, a, &tc, st));
done:
    if (st->code != RD_OK) {
        gpt_destroy(m);
        *self = NULL;
    }
    return st->code;
}

/* ---- the rows of a batch ---- */

/* The inputs and labels of a batch. The last token of a sample is a label, not an input. */
typedef struct gpt_batch {
    rd_tf_rows rows;
    int32_t *input, *label; /* [rows.N] */
    float *weight;          /* [rows.N] 0: the label is part of a prompt; NULL: all are 1 */
    double weights;         /* sum of them */
} gpt_batch;

/* Finds the field "target" of a batch. */
static rd_code gpt_field(const rd_batch *b, const rd_field **out, rd_status *st)
{
    *out = rd_batch_field(b, "target");
    if (!*out || (*out)->dtype != RD_I32)
        return rd_fail(st, RD_EBUG, "model gpt got a batch without a text");
    return RD_OK;
}

/* Returns whether a sequence begins at input k of a sample. */
static bool gpt_begins(const gpt *m, const int32_t *x, int64_t k)
{
    return k == 0 || (m->c.document_mask && x[k] == m->end);
}

/* Lists the sequences of a batch: samples, or with document_mask parts of them. The parts of a
 * sample have different keys of dropout. */
static rd_code gpt_rows(const gpt *m, rd_arena *a, const rd_batch *b, const rd_field *f,
                        rd_tf_rows *out, rd_status *st)
{
    const int32_t *x = f->data;
    int64_t n = 0, *len, *sample, *place;
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t k = f->off[i]; k + 1 < f->off[i + 1]; k++)
            n += gpt_begins(m, x + f->off[i], k - f->off[i]);
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *len, &len, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *sample, &sample, st));
    n = -1;
    for (int64_t i = 0; i < b->n; i++) {
        int64_t part = 0;
        for (int64_t k = f->off[i]; k + 1 < f->off[i + 1]; k++) {
            if (gpt_begins(m, x + f->off[i], k - f->off[i])) {
                len[++n] = 0;
                sample[n] = b->sample[i] + (part++ << 40);
            }
            len[n]++;
        }
    }
    RD_TRY(rd_tf_rows_list(a, n + 1, len, sample, out, st));
    if (!m->c.document_mask || m->c.document_positions == GPT_RESTART) return RD_OK;
    RD_TRY(rd_arena_get(a, (size_t)(out->N + 1) * sizeof *place, &place, st));
    for (int64_t i = 0, r = 0; i < b->n; i++)
        for (int64_t k = 0; k + 1 < f->off[i + 1] - f->off[i]; k++) place[r++] = k;
    out->position = place;
done:
    return st->code;
}

static rd_code gpt_list(const gpt *m, rd_arena *a, const rd_batch *b, const rd_field *f,
                        gpt_batch *r, rd_status *st)
{
    const rd_field *prompt = rd_batch_field(b, "prompt");
    const int32_t *x = f->data;
    for (int64_t i = 0; i < b->n; i++)
        if (f->off[i + 1] - f->off[i] - 1 > m->c.max_len)
            return rd_fail(st, RD_EUSAGE,
                           "a sample has %" PRId64 " tokens, but 'max_len' is %" PRId64
                           "; use a smaller 'seq_len'",
                           f->off[i + 1] - f->off[i] - 1, m->c.max_len);
    RD_TRY(gpt_rows(m, a, b, f, &r->rows, st));
    const size_t bytes = (size_t)(r->rows.N + 1) * sizeof *r->label;
    RD_TRY(rd_arena_get(a, bytes, &r->input, st));
    RD_TRY(rd_arena_get(a, bytes, &r->label, st));
    if (prompt) RD_TRY(rd_arena_get(a, bytes, &r->weight, st));
    r->weights = 0.0;
    for (int64_t i = 0, at = 0; i < b->n; i++) {
        const int64_t before = prompt ? ((const int32_t *)prompt->data)[prompt->off[i]] : 0;
        for (int64_t k = f->off[i]; k + 1 < f->off[i + 1]; k++, at++) {
            const bool counts = k + 1 - f->off[i] >= before;
            r->input[at] = x[k];
            r->label[at] = x[k + 1];
            if (prompt) r->weight[at] = counts ? 1.0f : 0.0f;
            r->weights += counts;
        }
    }
done:
    return st->code;
}

/* ---- loss ---- */

static rd_code gpt_loss(void *self, rd_tape *t, const rd_batch *b, rd_loss_out *out, rd_status *st)
{
    gpt *m = self;
    rd_arena *a = rd_tape_arena(t);
    const rd_field *f;
    gpt_batch r = {0};
    int32_t *argmax;
    memset(out, 0, sizeof *out);
    RD_TRY(rd_tape_check(t, st));
    if (b->n == 0) return sequence_no_loss(t, out, st);
    RD_TRY(gpt_field(b, &f, st));
    RD_TRY(gpt_list(m, a, b, f, &r, st));
    const int64_t N = r.rows.N;
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *argmax, &argmax, st));
    rd_var *x = rd_tf_embedding_apply(t, &m->embedding, &r.rows, (uint64_t)b->epoch, r.input);
    x = rd_tf_stack_apply(t, &m->stack, &r.rows, (uint64_t)b->epoch, x, NULL, NULL);
    const rd_xent e = {.target = r.label,
                       .temperature = 1.0f,
                       .loss_sum = &out->loss_sum,
                       .nll_sum = &out->nll_sum,
                       .argmax = argmax,
                       .weight = r.weight,
                       .n_classes = m->n_classes,
                       .by_rows = true,
                       .softcap = (float)m->c.logit_softcap,
                       .z_loss = (float)m->c.z_loss};
    out->loss = rd_op_softmax_xent(t, &e, x, rd_tape_param(t, m->output));
    RD_TRY(rd_tape_check(t, st));
    out->n_targets = out->weight = r.weights;
    out->n_tokens_tgt = (double)N;
    for (int64_t i = 0; i < N; i++) {
        const bool counts = !r.weight || r.weight[i] > 0.0f;
        out->n_correct += counts && argmax[i] == r.label[i];
        out->n_bytes += counts && m->id_bytes ? (double)m->id_bytes[r.label[i]] : 0.0;
    }
    out->n_predicted = f->off[1] - f->off[0] - 1;
    out->predicted = argmax;
done:
    return st->code;
}

/* Returns 2 operations for each multiply-add: those of every matrix element and token, and those of
 * attention scores and contexts, half as many by the causal mask. Backward counts twice forward, or
 * once for frozen matrices. */
static double gpt_flops(void *self, const rd_batch *b)
{
    const gpt *m = self;
    const rd_field *f;
    rd_status st = {0};
    double none, total = 0.0;
    if (b->n == 0 || gpt_field(b, &f, &st) != RD_OK) return 0.0;
    const double all = rd_tf_stack_elements(&m->stack, &none) +
                       (double)(m->n_classes * m->c.n_embd),
                 each = m->c.lora_rank > 0 ? 2.0 * all + 3.0 * rd_tf_lora_elements(&m->stack)
                                           : 3.0 * all,
                 width = (double)(m->c.n_layers * m->c.n_heads * m->c.head_dim);
    const int32_t *x = f->data;
    for (int64_t i = 0; i < b->n; i++) {
        double n = 0.0;
        for (int64_t k = f->off[i]; k + 1 < f->off[i + 1]; k++) {
            if (gpt_begins(m, x + f->off[i], k - f->off[i])) n = 0.0;
            n += 1.0; /* keys that this row sees */
            total += each + 6.0 * width * n;
        }
    }
    return 2.0 * total;
}

/* ---- completion of prompts ---- */

static rd_code gpt_decode(void *self, rd_tape *t, const rd_batch *b, const rd_decode_config *c,
                          rd_decoded *out, rd_status *st)
{
    gpt *m = self;
    const rd_field *f = rd_batch_field(b, "source");
    if (b->n == 0) return RD_OK;
    if (!f) return rd_fail(st, RD_EBUG, "model gpt got a batch without prompts");
    const rd_lm_decoder d = {.stack = &m->stack,
                             .embedding = &m->embedding,
                             .output = m->output,
                             .n_classes = m->n_tokens,
                             .end = m->end,
                             .max_len = m->c.max_len,
                             .softcap = m->c.logit_softcap,
                             .ps = m->ps};
    const rd_lm_prompts p = {.n = b->n,
                             .ids = f->data,
                             .off = f->off,
                             .most = c->max_new_tokens ? c->max_new_tokens : m->c.max_new_tokens};
    rd_backend_set_int8(rd_tape_backend(t), c->int8);
    (void)rd_lm_search(t, &d, &p, &c->search, out, st);
    rd_backend_set_int8(rd_tape_backend(t), false);
    return st->code;
}

/* ---- the models of this file ---- */

#define SIZES(layers, embd, heads, ff, len)                                          \
    {"n_layers", #layers, NULL}, {"n_embd", #embd, NULL}, {"n_heads", #heads, NULL}, \
        {"ff_dim", #ff, NULL},                                                       \
    {                                                                                \
        "max_len", #len, NULL                                                        \
    }
#define NO_DROPOUT                      \
    {"dropout_attention", "0.0", NULL}, \
    {                                   \
        "dropout_residual", "0.0", NULL \
    }
/* AdamW, and a rate that rises in a straight line, from `start` of it on, and then falls as half a
 * cosine. */
#define OWN_RATE "lr_policy piecewise_learning_rate_schedule use_decay"
#define RECIPE(rate, least, warmup, start, beta2)                                  \
    {"optimizer", "\"adamw\"", NULL}, {"adam_beta2", #beta2, "optimizer"},         \
        {"weight_decay", "0.1", "optimizer"}, {"max_grad_norm", "1.0", "lars_nu"}, \
        {"learning_rate", #rate, OWN_RATE},                                        \
        {"lr_policy", "\"cosine\"", "piecewise_learning_rate_schedule use_decay"}, \
        {"min_learning_rate", #least, OWN_RATE},                                   \
        {"warmup_steps", #warmup, OWN_RATE " warmup_epochs"},                      \
        {"warmup_start", #start, OWN_RATE " warmup_epochs warmup_steps"},          \
    {                                                                              \
        "lr_scaling", "\"none\"", NULL                                             \
    }
#define OWN_END OWN_RATE " begin_decay_at decay_begin_epoch decay_end_epoch"
/* llm.c's steps of 10 billion tokens. */
#define GPT2_END                                       \
    {"begin_decay_at", "700", OWN_END " decay_steps"}, \
    {                                                  \
        "decay_steps", "18373", OWN_END                \
    }
#define GPT2(layers, embd, heads, ff)                                            \
    SIZES(layers, embd, heads, ff, 1024), {"activation", "\"gelu_tanh\"", NULL}, \
        {"norm_eps", "1e-5", NULL}, {"vocab_multiple", "128", NULL}, NO_DROPOUT, \
    {                                                                            \
        "batch_tokens", "524288", "batch_size batch_sentences"                   \
    }

/* How it writes, as nanoGPT. */
#define WRITES                                                                               \
    {"decoder_type", "\"sampling\"", NULL}, {"sampling_temperature", "0.8", "decoder_type"}, \
    {                                                                                        \
        "sampling_top_k", "200", "decoder_type"                                              \
    }

static const rd_model_key gpt_keys[] = {{"activation", "\"gelu_tanh\"", NULL},
                                        {"norm_eps", "1e-5", NULL},
                                        NO_DROPOUT,
                                        WRITES,
                                        {NULL, NULL, NULL}};
static const rd_model_key gpt2_keys[] = {GPT2(12, 768, 12, 3072),
                                         RECIPE(6e-4, 0, 699, 0.001428571428571, 0.95),
                                         GPT2_END,
                                         WRITES,
                                         {NULL, NULL, NULL}};
static const rd_model_key medium_keys[] = {GPT2(24, 1024, 16, 4096),
                                           RECIPE(3e-4, 0, 699, 0.001428571428571, 0.95),
                                           GPT2_END,
                                           WRITES,
                                           {NULL, NULL, NULL}};
static const rd_model_key large_keys[] = {GPT2(36, 1280, 20, 5120),
                                          RECIPE(2.5e-4, 0, 699, 0.001428571428571, 0.95),
                                          GPT2_END,
                                          WRITES,
                                          {NULL, NULL, NULL}};
static const rd_model_key xl_keys[] = {GPT2(48, 1600, 25, 6400),
                                       RECIPE(2e-4, 0, 699, 0.001428571428571, 0.95),
                                       GPT2_END,
                                       WRITES,
                                       {NULL, NULL, NULL}};
static const rd_model_key llama_keys[] = {SIZES(12, 768, 12, 2048, 1024),
                                          {"norm_type", "\"rms\"", NULL},
                                          {"norm_eps", "1e-5", NULL},
                                          {"pos", "\"rope\"", NULL},
                                          {"activation", "\"silu\"", NULL},
                                          {"gated_ff", "true", NULL},
                                          {"bias", "\"none\"", NULL},
                                          {"tie_embeddings", "\"none\"", NULL},
                                          NO_DROPOUT,
                                          {"batch_tokens", "524288", "batch_size batch_sentences"},
                                          RECIPE(6e-4, 6e-5, 1000, 0.000999000999, 0.95),
                                          WRITES,
                                          {NULL, NULL, NULL}};
/* nanoGPT's config for characters: six layers of 384, no biases, dropout 0.2. */
static const rd_model_key char_keys[] = {SIZES(6, 384, 6, 1536, 256),
                                         {"activation", "\"gelu_erf\"", NULL},
                                         {"norm_eps", "1e-5", NULL},
                                         {"bias", "\"none\"", NULL},
                                         {"dropout_embedding", "0.2", NULL},
                                         {"dropout_attention", "0.2", NULL},
                                         {"dropout_residual", "0.2", NULL},
                                         {"subword", "\"char\"", "subword_model"},
                                         {"batch_sentences", "64", "batch_size batch_tokens"},
                                         RECIPE(1e-3, 1e-4, 100, 0.0099009900990099, 0.99),
                                         {"decay_steps", "4900", OWN_END},
                                         WRITES,
                                         {NULL, NULL, NULL}};

/* Keys that may differ from those of weights: no shape depends on them. */
static const char free_keys[] = "max_len norm_eps rope_theta rope_scaling rope_factor "
                                "rope_low_freq_factor rope_high_freq_factor rope_original_len "
                                "seq_len vocab_size";
static const rd_model_folder folder = {.keys = gpt_folder_keys,
                                       .free_keys = free_keys,
                                       .load = gpt_weights_load,
                                       .save = gpt_weights_save,
                                       .save_adapter = gpt_adapter_save,
                                       .adapter_keys = gpt_adapter_keys,
                                       .load_adapter = gpt_adapter_load};

#define RD_MODEL_GPT(id, what, list)              \
    RD_MODEL(id) = {.name = #id,                  \
                    .about = what,                \
                    .own = &group,                \
                    .group = &rd_group_search,    \
                    .decodes_int8 = true,         \
                    .continues = true,            \
                    .keys = list,                 \
                    .folder = &folder,            \
                    .default_dataset = "lm_text", \
                    .usual_batch = 8,             \
                    .create = gpt_create,         \
                    .destroy = gpt_destroy,       \
                    .loss = gpt_loss,             \
                    .decode = gpt_decode,         \
                    .flops = gpt_flops}

RD_MODEL_GPT(gpt, "language model, a decoder alone; its sizes are keys", gpt_keys);
RD_MODEL_GPT(gpt2, "GPT-2 of 124 million parameters, with llm.c's recipe", gpt2_keys);
RD_MODEL_GPT(gpt2_medium, "GPT-2 of 355 million parameters", medium_keys);
RD_MODEL_GPT(gpt2_large, "GPT-2 of 774 million parameters", large_keys);
RD_MODEL_GPT(gpt2_xl, "GPT-2 of 1558 million parameters", xl_keys);
RD_MODEL_GPT(llama, "Llama of 134 million parameters; Qwen and SmolLM by keys", llama_keys);
RD_MODEL_GPT(nanogpt_char, "nanoGPT's model of characters, 10.7 million parameters", char_keys);
