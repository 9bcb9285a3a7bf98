/* gpt_lora.c -- low-rank adapters of language models (LoRA, Hu et al. 2021), as PEFT has them.
 *
 * The matrices that get an adapter have the names that transformers gives them. All other weights
 * are frozen: they have no gradient and no state of the optimizer, and ranks do not exchange
 * them. */
#include "gpt_model.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct lora_name {
    const char *name;
    unsigned targets;
} lora_name;

static const lora_name gpt2_names[] = {
    {"c_attn", RD_TF_LORA_QKV},
    {"c_proj", RD_TF_LORA_OUT | RD_TF_LORA_FF2},
    {"c_fc", RD_TF_LORA_FF1 | RD_TF_LORA_GATE},
    {"attn.c_proj", RD_TF_LORA_OUT},
    {"mlp.c_proj", RD_TF_LORA_FF2},
    {NULL, 0},
};
static const lora_name llama_names[] = {
    {"q_proj", RD_TF_LORA_Q},      {"k_proj", RD_TF_LORA_K},
    {"v_proj", RD_TF_LORA_V},      {"o_proj", RD_TF_LORA_OUT},
    {"gate_proj", RD_TF_LORA_FF1}, {"up_proj", RD_TF_LORA_GATE},
    {"down_proj", RD_TF_LORA_FF2}, {NULL, 0},
};

/* Returns the names of the model's matrices. */
static const lora_name *lora_names(const gpt_config *c)
{
    return c->norm_type == GPT_NORM_LAYER ? gpt2_names : llama_names;
}

/* Adds the targets of a name. */
static rd_code lora_target(const gpt_config *c, const rd_config *cfg, const char *word,
                           unsigned *out, rd_status *st)
{
    const bool all = strcmp(word, "all-linear") == 0;
    rd_strbuf names = {0};
    unsigned found = 0;
    for (const lora_name *n = lora_names(c); n->name; n++) {
        rd_strbuf_printf(&names, "%s, ", n->name);
        if (all || strcmp(word, n->name) == 0) found |= n->targets;
    }
    *out |= found;
    if (!found)
        rd_fail(st, RD_EUSAGE,
                "%s: '%.60s' in 'lora_targets' is no matrix of this model; known are %sand "
                "all-linear for all of them",
                rd_config_where(cfg, "lora_targets"), word, rd_strbuf_str(&names));
    rd_strbuf_release(&names);
    return st->code;
}

rd_code gpt_lora_check(const gpt_config *c, const rd_model_args *a, rd_tf_lora_config *out,
                       rd_status *st)
{
    const double r = (double)c->lora_rank, alpha = c->lora_alpha > 0.0 ? c->lora_alpha : r;
    *out = (rd_tf_lora_config){.rank = c->lora_rank, .keep = 1.0 - c->lora_dropout};
    if (c->lora_rank == 0 && c->lora_from)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'lora_from' needs the folder of the weights: \"init_from\", or "
                       "\"checkpoint\" for eval, infer and export",
                       rd_config_where(a->config, "lora_from"));
    if (c->lora_rank == 0) return RD_OK;
    out->scale = c->lora_rslora ? alpha / sqrt(r) : alpha / r;
    for (int i = 0; i < c->lora_targets.n; i++)
        RD_TRY(lora_target(c, a->config, c->lora_targets.at[i], &out->targets, st));
    if (out->targets == 0)
        out->targets = c->norm_type == GPT_NORM_LAYER ? RD_TF_LORA_QKV
                                                      : RD_TF_LORA_Q | RD_TF_LORA_V;
    /* A feed-forward block without a gate has one matrix in its place. */
    if (!c->gated_ff && out->targets & RD_TF_LORA_GATE)
        out->targets = (out->targets & ~(unsigned)RD_TF_LORA_GATE) | RD_TF_LORA_FF1;
done:
    return st->code;
}

static bool is_adapter(const rd_param *p)
{
    const size_t n = strlen(p->name);
    return n > 7 &&
           (strcmp(p->name + n - 7, "_lora_a") == 0 || strcmp(p->name + n - 7, "_lora_b") == 0);
}

void gpt_lora_freeze(rd_params *ps)
{
    for (int i = 0; i < rd_params_n(ps); i++)
        if (!is_adapter(rd_params_at(ps, i))) rd_params_freeze(ps, rd_params_at(ps, i));
}

/* Returns the names of the targets, each bit once. The caller owns it. NULL: out of memory. */
static json_t *lora_target_names(const gpt *m)
{
    json_t *list = json_array();
    unsigned left = m->stack.c.lora.targets;
    for (const lora_name *n = lora_names(&m->c); n->name && list; n++) {
        /* The bits that the model has of it. */
        const unsigned has = m->c.gated_ff ? n->targets : n->targets & ~(unsigned)RD_TF_LORA_GATE;
        if (!has || (left & has) != has) continue;
        (void)json_array_append_new(list, json_string(n->name));
        left &= ~has;
    }
    return list;
}

json_t *gpt_adapter_json(const gpt *m, const char *base)
{
    const gpt_config *c = &m->c;
    const double alpha = c->lora_alpha > 0.0 ? c->lora_alpha : (double)c->lora_rank;
    json_t *number = floor(alpha) < alpha ? json_real(alpha) : json_integer((json_int_t)alpha);
    return json_pack("{s:s, s:s, s:s?, s:I, s:o, s:f, s:o, s:s, s:b, s:b, s:b, s:b}", "peft_type",
                     "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r",
                     (json_int_t)c->lora_rank, "lora_alpha", number, "lora_dropout",
                     c->lora_dropout, "target_modules", lora_target_names(m), "bias", "none",
                     "use_rslora", (int)c->lora_rslora, "fan_in_fan_out",
                     (int)(c->norm_type == GPT_NORM_LAYER), "inference_mode", 1,
                     "init_lora_weights", 1);
}

/* ---- PEFT's adapter_config.json ---- */

static rd_code adapter_wrong(const json_t *o, const char *path, const char *name,
                             const char *needed, rd_status *st)
{
    char *text = json_dumps(json_object_get(o, name), JSON_ENCODE_ANY | JSON_COMPACT);
    rd_fail(st, RD_ECKPT, "'%s': '%s' is %.60s, not %s", path, name, text ? text : "missing",
            needed);
    free(text);
    return st->code;
}

/* Is a value like a missing one: null, false or empty? */
static bool adapter_none(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

/* Refuses forms of adapters that this program does not compute. */
static rd_code adapter_known(const json_t *o, const char *path, rd_status *st)
{
    static const char *const others[] = {"use_dora",
                                         "use_qalora",
                                         "lora_bias",
                                         "rank_pattern",
                                         "alpha_pattern",
                                         "modules_to_save",
                                         "layers_to_transform",
                                         "exclude_modules",
                                         "layer_replication",
                                         "target_parameters",
                                         "trainable_token_indices",
                                         "alora_invocation_tokens"};
    const json_t *bias = json_object_get(o, "bias");
    const char *type = json_string_value(json_object_get(o, "peft_type")),
               *word = json_string_value(bias);
    if (!type || strcmp(type, "LORA") != 0) return adapter_wrong(o, path, "peft_type", "LORA", st);
    if (bias && !json_is_null(bias) && (!word || strcmp(word, "none") != 0))
        return adapter_wrong(o, path, "bias", "none", st);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!adapter_none(json_object_get(o, others[i])))
            return rd_fail(st, RD_ECKPT, "'%s': '%s' is not known to this program", path,
                           others[i]);
    return RD_OK;
}

rd_code gpt_adapter_keys(const json_t *o, const char *path, json_t *keys, rd_status *st)
{
    json_t *rank = json_object_get(o, "r"), *alpha = json_object_get(o, "lora_alpha"),
           *names = json_object_get(o, "target_modules"), *v;
    size_t i;
    RD_TRY(adapter_known(o, path, st));
    if (!json_is_integer(rank) || json_integer_value(rank) < 1 || json_integer_value(rank) > 4096)
        RD_TRY(adapter_wrong(o, path, "r", "a whole number, 1 .. 4096", st));
    if (!json_is_number(alpha) || !(json_number_value(alpha) > 0.0) ||
        json_number_value(alpha) > 1e6)
        RD_TRY(adapter_wrong(o, path, "lora_alpha", "a number above 0, at most 1e6", st));
    if (!json_is_array(names) || json_array_size(names) == 0)
        RD_TRY(adapter_wrong(o, path, "target_modules", "a list of names", st));
    json_array_foreach(names, i, v)
    {
        if (!json_is_string(v) || json_string_length(v) == 0)
            RD_TRY(adapter_wrong(o, path, "target_modules", "a list of names", st));
    }
    (void)json_object_set(keys, "lora_rank", rank);
    (void)json_object_set(keys, "lora_alpha", alpha);
    (void)json_object_set(keys, "lora_targets", names);
    (void)json_object_set_new(keys, "lora_rslora",
                              json_boolean(json_is_true(json_object_get(o, "use_rslora"))));
done:
    return st->code;
}
