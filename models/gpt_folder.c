/* gpt_folder.c -- the config.json of Hugging Face's transformers, for the architectures that the
 * model gpt has: GPT-2, Llama (SmolLM2, too), Qwen 2 and Qwen 3.
 *
 * What would change the function of the model and is not known is an error that names it. Keys of
 * training, such as dropout, are the user's. */
#include "gpt_model.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const gpt_architecture architectures[] = {{"gpt2", "GPT2LMHeadModel", true},
                                                 {"llama", "LlamaForCausalLM", false},
                                                 {"qwen2", "Qwen2ForCausalLM", false},
                                                 {"qwen3", "Qwen3ForCausalLM", false}};
enum { GPT2, LLAMA, QWEN2, QWEN3, N_ARCHITECTURES };

/* Names of activations, and the word of the key. */
static const char *const activations[][2] = {
    {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
    {"gelu", "gelu_erf"},      {"silu", "silu"},
    {"swish", "silu"},         {"relu", "relu"},
    {"relu2", "relu2"}};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

/* ---- reading ---- */

/* A config.json, and the keys that it means so far. */
typedef struct folder_reader {
    const json_t *o;
    const char *path;
    json_t *keys;
} folder_reader;

/* Returns the value of a name; null counts as missing. */
static const json_t *folder_get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

static rd_code folder_wrong(const folder_reader *f, const char *name, const char *needed,
                            rd_status *st)
{
    char *text = json_dumps(folder_get(f->o, name), JSON_ENCODE_ANY | JSON_COMPACT);
    rd_fail(st, RD_ECKPT, "'%s': '%s' is %.60s, not %s", f->path, name, text ? text : "missing",
            needed);
    free(text);
    return st->code;
}

/* Takes a whole number of 1 .. most. otherwise: the value where it is missing; -1: it is needed. */
static rd_code folder_int(const folder_reader *f, const char *name, int64_t otherwise, int64_t most,
                          int64_t *out, rd_status *st)
{
    const json_t *v = folder_get(f->o, name);
    *out = v ? (int64_t)json_integer_value(v) : otherwise;
    if ((v && !json_is_integer(v)) || *out < 1 || *out > most)
        return folder_wrong(f, name, "a whole number above 0 of a usual size", st);
    return RD_OK;
}

static rd_code folder_real(const folder_reader *f, const json_t *o, const char *name,
                           double otherwise, double *out, rd_status *st)
{
    const folder_reader in = {o, f->path, NULL};
    const json_t *v = folder_get(o, name);
    *out = v ? json_number_value(v) : otherwise;
    if ((v && !json_is_number(v)) || !(*out > 0.0) || !isfinite(*out))
        return folder_wrong(&in, name, "a number above 0", st);
    return RD_OK;
}

/* Takes a Boolean value. */
static rd_code folder_bool(const folder_reader *f, const char *name, bool otherwise, bool *out,
                           rd_status *st)
{
    const json_t *v = folder_get(f->o, name);
    *out = v ? json_is_true(v) : otherwise;
    return !v || json_is_boolean(v) ? RD_OK : folder_wrong(f, name, "true or false", st);
}

/* Fails if a value is another than the one that this program computes with. */
static rd_code folder_only(const folder_reader *f, const char *name, bool needed, rd_status *st)
{
    bool value;
    if (folder_bool(f, name, needed, &value, st) == RD_OK && value != needed)
        rd_fail(st, RD_ECKPT, "'%s': '%s' %s is not known to this program", f->path, name,
                value ? "true" : "false");
    return st->code;
}

static rd_code folder_put(const folder_reader *f, const char *key, json_t *v, rd_status *st)
{
    if (!v || json_object_set_new(f->keys, key, v) != 0)
        return rd_fail(st, RD_EENV, "out of memory for keys");
    return RD_OK;
}

static rd_code put_int(const folder_reader *f, const char *key, int64_t v, rd_status *st)
{
    return folder_put(f, key, json_integer((json_int_t)v), st);
}

static rd_code put_text(const folder_reader *f, const char *key, const char *v, rd_status *st)
{
    return folder_put(f, key, json_string(v), st);
}

static rd_code folder_activation(const folder_reader *f, const char *name, const char *otherwise,
                                 rd_status *st)
{
    const json_t *v = folder_get(f->o, name);
    const char *word = v ? json_string_value(v) : otherwise;
    for (int i = 0; word && i < N_ACTIVATIONS; i++)
        if (strcmp(word, activations[i][0]) == 0)
            return put_text(f, "activation", activations[i][1], st);
    if (!word) return folder_wrong(f, name, "the name of an activation", st);
    return rd_fail(st, RD_ECKPT,
                   "'%s': the activation '%.60s' is not known; known are gelu_new, gelu, silu, "
                   "relu and relu2",
                   f->path, word);
}

static rd_code folder_rope(const folder_reader *f, rd_status *st)
{
    const json_t *both = folder_get(f->o, "rope_parameters"),
                 *o = both ? both : folder_get(f->o, "rope_scaling"), *v;
    double theta = 10000.0, factor, low, high;
    int64_t n;
    if (o && !json_is_object(o))
        RD_TRY(folder_wrong(f, both ? "rope_parameters" : "rope_scaling", "an object", st));
    v = folder_get(o, "rope_type");
    if (!v) v = folder_get(o, "type");
    const char *type = !v ? "default" : json_string_value(v);
    const folder_reader in = {o, f->path, f->keys};
    RD_TRY(folder_real(f, folder_get(o, "rope_theta") ? o : f->o, "rope_theta", theta, &theta, st));
    RD_TRY(folder_put(f, "rope_theta", json_real(theta), st));
    v = folder_get(f->o, "partial_rotary_factor");
    if (!v) v = folder_get(o, "partial_rotary_factor");
    if (v && fabs(json_number_value(v) - 1.0) > 0.0)
        RD_TRY(rd_fail(st, RD_ECKPT, "'%s': 'partial_rotary_factor' is not known to this program",
                       f->path));
    if (type && strcmp(type, "default") == 0) return put_text(f, "rope_scaling", "none", st);
    if (!type || (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0))
        RD_TRY(rd_fail(st, RD_ECKPT,
                       "'%s': the rope type '%.60s' is not known; known are default, linear and "
                       "llama3",
                       f->path, type ? type : "?"));
    RD_TRY(put_text(f, "rope_scaling", type, st));
    RD_TRY(folder_real(f, o, "factor", -1.0, &factor, st));
    RD_TRY(folder_put(f, "rope_factor", json_real(factor), st));
    if (strcmp(type, "linear") == 0) return RD_OK;
    RD_TRY(folder_real(f, o, "low_freq_factor", -1.0, &low, st));
    RD_TRY(folder_real(f, o, "high_freq_factor", -1.0, &high, st));
    RD_TRY(folder_int(&in, "original_max_position_embeddings", -1, 1 << 30, &n, st));
    RD_TRY(folder_put(f, "rope_low_freq_factor", json_real(low), st));
    RD_TRY(folder_put(f, "rope_high_freq_factor", json_real(high), st));
    RD_TRY(put_int(f, "rope_original_len", n, st));
done:
    return st->code;
}

/* Layers that see a part of the text alone are not known. */
static rd_code folder_windows(const folder_reader *f, rd_status *st)
{
    const json_t *list = folder_get(f->o, "layer_types"), *v;
    size_t i;
    RD_TRY(folder_only(f, "use_sliding_window", false, st));
    json_array_foreach(list, i, v)
    {
        const char *s = json_string_value(v);
        if (!s || strcmp(s, "full_attention") != 0)
            RD_TRY(rd_fail(st, RD_ECKPT, "'%s': the layer type '%.60s' is not known", f->path,
                           s ? s : "?"));
    }
done:
    return st->code;
}

/* The keys of all architectures. */
static rd_code folder_common(const folder_reader *f, int64_t n_layers, int64_t n_embd,
                             int64_t n_heads, int64_t ff, int64_t len, bool tied, rd_status *st)
{
    int64_t rows;
    RD_TRY(folder_int(f, "vocab_size", -1, 1 << 24, &rows, st));
    if (folder_get(f->o, "quantization_config"))
        RD_TRY(rd_fail(st, RD_ECKPT, "'%s': quantized weights are not known to this program",
                       f->path));
    RD_TRY(put_int(f, "vocab_rows", rows, st));
    RD_TRY(put_int(f, "vocab_size", rows, st));
    RD_TRY(put_int(f, "n_layers", n_layers, st));
    RD_TRY(put_int(f, "n_embd", n_embd, st));
    RD_TRY(put_int(f, "n_heads", n_heads, st));
    RD_TRY(put_int(f, "ff_dim", ff, st));
    RD_TRY(put_int(f, "max_len", len, st));
    RD_TRY(put_int(f, "seq_len", len < 1024 ? len : 1024, st));
    RD_TRY(put_text(f, "tie_embeddings", tied ? "all" : "none", st));
done:
    return st->code;
}

static rd_code folder_gpt2(const folder_reader *f, rd_status *st)
{
    int64_t layers, d, heads, ff, len;
    double eps;
    bool tied;
    RD_TRY(folder_int(f, "n_layer", 12, RD_TF_MOST_LAYERS, &layers, st));
    RD_TRY(folder_int(f, "n_embd", 768, 65536, &d, st));
    RD_TRY(folder_int(f, "n_head", 12, 1024, &heads, st));
    RD_TRY(folder_int(f, "n_positions", 1024, 1 << 20, &len, st));
    RD_TRY(folder_int(f, "n_inner", 4 * d, 1 << 20, &ff, st));
    RD_TRY(folder_real(f, f->o, "layer_norm_epsilon", 1e-5, &eps, st));
    RD_TRY(folder_bool(f, "tie_word_embeddings", true, &tied, st));
    RD_TRY(folder_only(f, "scale_attn_weights", true, st));
    RD_TRY(folder_only(f, "scale_attn_by_inverse_layer_idx", false, st));
    RD_TRY(folder_only(f, "add_cross_attention", false, st));
    RD_TRY(folder_activation(f, "activation_function", "gelu_new", st));
    RD_TRY(folder_common(f, layers, d, heads, ff, len, tied, st));
    RD_TRY(folder_put(f, "norm_eps", json_real(eps), st));
    RD_TRY(put_text(f, "norm_type", "layer", st));
    RD_TRY(put_text(f, "pos", "learned", st));
    RD_TRY(put_text(f, "bias", "all", st));
    RD_TRY(put_int(f, "n_kv_heads", heads, st));
    if (d % heads == 0) RD_TRY(put_int(f, "head_dim", d / heads, st));
    RD_TRY(folder_put(f, "gated_ff", json_false(), st));
    RD_TRY(folder_put(f, "qk_norm", json_false(), st));
done:
    return st->code;
}

static rd_code folder_llama(const folder_reader *f, int kind, rd_status *st)
{
    int64_t layers, d, heads, kv, head, ff, len;
    double eps;
    bool tied, attention, ff_bias = false;
    RD_TRY(folder_int(f, "num_hidden_layers", -1, RD_TF_MOST_LAYERS, &layers, st));
    RD_TRY(folder_int(f, "hidden_size", -1, 65536, &d, st));
    RD_TRY(folder_int(f, "num_attention_heads", -1, 1024, &heads, st));
    RD_TRY(folder_int(f, "num_key_value_heads", heads, 1024, &kv, st));
    RD_TRY(folder_int(f, "head_dim", kind == QWEN3 ? 128 : d / heads, 65536, &head, st));
    RD_TRY(folder_int(f, "intermediate_size", -1, 1 << 20, &ff, st));
    RD_TRY(folder_int(f, "max_position_embeddings", kind == LLAMA ? 2048 : 32768, 1 << 20, &len,
                      st));
    RD_TRY(folder_real(f, f->o, "rms_norm_eps", 1e-6, &eps, st));
    RD_TRY(folder_bool(f, "tie_word_embeddings", false, &tied, st));
    RD_TRY(folder_bool(f, "attention_bias", false, &attention, st));
    if (kind == LLAMA) RD_TRY(folder_bool(f, "mlp_bias", false, &ff_bias, st));
    if (kind != QWEN2 && attention != ff_bias)
        RD_TRY(rd_fail(st, RD_ECKPT,
                       "'%s': 'attention_bias' without 'mlp_bias', or the other way round, is not "
                       "known to this program",
                       f->path));
    RD_TRY(folder_windows(f, st));
    RD_TRY(folder_activation(f, "hidden_act", "silu", st));
    RD_TRY(folder_rope(f, st));
    RD_TRY(folder_common(f, layers, d, heads, ff, len, tied, st));
    RD_TRY(folder_put(f, "norm_eps", json_real(eps), st));
    RD_TRY(put_text(f, "norm_type", "rms", st));
    RD_TRY(put_text(f, "pos", "rope", st));
    RD_TRY(put_text(f, "bias", kind == QWEN2 ? "qkv" : attention ? "all" : "none", st));
    RD_TRY(put_int(f, "n_kv_heads", kv, st));
    RD_TRY(put_int(f, "head_dim", head, st));
    RD_TRY(folder_put(f, "gated_ff", json_true(), st));
    RD_TRY(folder_put(f, "qk_norm", json_boolean(kind == QWEN3), st));
done:
    return st->code;
}

/* Finds the architecture. "architectures" counts; without it "model_type" does. */
static rd_code folder_kind(const folder_reader *f, int *kind, rd_status *st)
{
    const json_t *list = folder_get(f->o, "architectures"),
                 *name = json_is_array(list) ? json_array_get(list, 0)
                                             : folder_get(f->o, "model_type");
    const char *s = json_string_value(name);
    for (*kind = 0; s && *kind < N_ARCHITECTURES; (*kind)++)
        if (strcmp(s, json_is_array(list) ? architectures[*kind].name
                                          : architectures[*kind].type) == 0)
            return RD_OK;
    if (!s)
        return rd_fail(st, RD_ECKPT, "'%s' names no architecture: it has no 'architectures'",
                       f->path);
    return rd_fail(st, RD_ECKPT,
                   "'%s': the architecture '%.80s' is not known; known are GPT2LMHeadModel, "
                   "LlamaForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM",
                   f->path, s);
}

rd_code gpt_folder_keys(const json_t *config, const char *path, json_t *keys, rd_status *st)
{
    const folder_reader f = {config, path, keys};
    int kind;
    RD_TRY(folder_kind(&f, &kind, st));
    (void)(kind == GPT2 ? folder_gpt2(&f, st) : folder_llama(&f, kind, st));
done:
    return st->code;
}

/* ---- writing ---- */

const gpt_architecture *gpt_architecture_of(const gpt_config *c, const char **why)
{
    const bool equal = c->n_kv_heads == c->n_heads && c->head_dim * c->n_heads == c->n_embd;
    *why = c->logit_softcap > 0.0 ? "'logit_softcap'"
           : c->norm_type == GPT_NORM_LAYER && c->pos != GPT_POS_LEARNED
               ? "'norm_type' layer without 'pos' learned"
           : c->norm_type == GPT_NORM_LAYER && c->gated_ff ? "'gated_ff' with 'norm_type' layer"
           : c->norm_type == GPT_NORM_LAYER && !equal
               ? "'n_kv_heads' or 'head_dim' with 'norm_type' layer"
           : c->norm_type == GPT_NORM_RMS && c->pos != GPT_POS_ROPE
               ? "'norm_type' rms without 'pos' rope"
           : c->norm_type == GPT_NORM_RMS && !c->gated_ff ? "'norm_type' rms without 'gated_ff'"
           : c->qk_norm && c->bias != GPT_BIAS_NONE       ? "'qk_norm' with 'bias'"
                                                          : NULL;
    if (*why) return NULL;
    return &architectures[c->norm_type == GPT_NORM_LAYER ? GPT2
                          : c->qk_norm                   ? QWEN3
                          : c->bias == GPT_BIAS_QKV      ? QWEN2
                                                         : LLAMA];
}

static const char *activation_name(rd_activation a)
{
    static const char *const names[] = {[RD_ACT_RELU] = "relu",
                                        [RD_ACT_RELU2] = "relu2",
                                        [RD_ACT_GELU_TANH] = "gelu_new",
                                        [RD_ACT_GELU_ERF] = "gelu",
                                        [RD_ACT_SILU] = "silu"};
    return names[a];
}

static json_t *rope_json(const gpt_config *c)
{
    if (c->rope_scaling == GPT_SCALING_NONE)
        return json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", c->rope_theta);
    if (c->rope_scaling == GPT_SCALING_LINEAR)
        return json_pack("{s:s, s:f, s:f}", "rope_type", "linear", "factor", c->rope_factor,
                         "rope_theta", c->rope_theta);
    return json_pack("{s:s, s:f, s:f, s:f, s:I, s:f}", "rope_type", "llama3", "factor",
                     c->rope_factor, "low_freq_factor", c->rope_low, "high_freq_factor",
                     c->rope_high, "original_max_position_embeddings",
                     (json_int_t)c->rope_original_len, "rope_theta", c->rope_theta);
}

static json_t *llama_json(const gpt_config *c)
{
    json_t *rope = rope_json(c), *old = rope ? json_deep_copy(rope) : NULL;
    const bool bias = c->bias == GPT_BIAS_ALL;
    if (old) (void)json_object_del(old, "rope_theta");
    if (old && c->rope_scaling == GPT_SCALING_NONE) {
        json_decref(old);
        old = json_null();
    }
    /* rope_theta and rope_scaling are for releases before 5. */
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:o, s:o, s:b, s:b}",
                     "num_hidden_layers", (json_int_t)c->n_layers, "hidden_size",
                     (json_int_t)c->n_embd, "num_attention_heads", (json_int_t)c->n_heads,
                     "num_key_value_heads", (json_int_t)c->n_kv_heads, "head_dim",
                     (json_int_t)c->head_dim, "intermediate_size", (json_int_t)c->ff_dim,
                     "max_position_embeddings", (json_int_t)c->max_len, "hidden_act",
                     activation_name(c->activation), "rms_norm_eps", c->norm_eps, "rope_theta",
                     c->rope_theta, "rope_scaling", old, "rope_parameters", rope, "attention_bias",
                     (int)bias, "mlp_bias", (int)bias);
}

static json_t *gpt2_json(const gpt_config *c)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:f}", "n_layer", (json_int_t)c->n_layers,
                     "n_embd", (json_int_t)c->n_embd, "n_head", (json_int_t)c->n_heads,
                     "n_positions", (json_int_t)c->max_len, "n_inner", (json_int_t)c->ff_dim,
                     "activation_function", activation_name(c->activation), "layer_norm_epsilon",
                     c->norm_eps);
}

json_t *gpt_config_json(const gpt *m, const gpt_architecture *a)
{
    const bool tied = m->c.tie_embeddings != GPT_TIE_NONE;
    json_t *o = a->gpt2 ? gpt2_json(&m->c) : llama_json(&m->c),
           *more = json_pack("{s:[s], s:s, s:I, s:b, s:s}", "architectures", a->name, "model_type",
                             a->type, "vocab_size", (json_int_t)m->n_classes, "tie_word_embeddings",
                             (int)tied, "torch_dtype", "float32");
    if (!o || !more || json_object_update(o, more) != 0) {
        json_decref(o);
        o = NULL;
    }
    json_decref(more);
    for (int i = 0; i < 2 && o; i++)
        (void)json_object_set_new(o, i == 0 ? "bos_token_id" : "eos_token_id",
                                  m->end >= 0 ? json_integer(m->end) : json_null());
    return o;
}
