/* gpt_model.h -- the state of the model gpt, for gpt.c and for its weights in folders of other
 * programs (gpt_folder.c). */
#ifndef RD_GPT_MODEL_H
#define RD_GPT_MODEL_H

#include "rd/model.h"
#include "rd/transformer_layers.h"

typedef enum gpt_norm { GPT_NORM_LAYER, GPT_NORM_RMS } gpt_norm;
typedef enum gpt_pos { GPT_POS_LEARNED, GPT_POS_ROPE, GPT_POS_SINUSOID, GPT_POS_NONE } gpt_pos;
typedef enum gpt_bias { GPT_BIAS_ALL, GPT_BIAS_NONE, GPT_BIAS_QKV } gpt_bias;
typedef enum gpt_scaling { GPT_SCALING_NONE, GPT_SCALING_LINEAR, GPT_SCALING_LLAMA3 } gpt_scaling;
typedef enum gpt_tie { GPT_TIE_AUTO, GPT_TIE_ALL, GPT_TIE_TARGET, GPT_TIE_NONE } gpt_tie;
typedef enum gpt_restart { GPT_RESTART, GPT_WINDOW } gpt_restart;

typedef struct gpt_config {
    int64_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, ff_dim, max_len, vocab_multiple;
    gpt_norm norm_type;
    gpt_pos pos;
    gpt_bias bias;
    gpt_scaling rope_scaling;
    gpt_tie tie_embeddings;
    gpt_restart document_positions;
    rd_activation activation;
    rd_tf_recompute recompute;
    bool gated_ff, qk_norm, document_mask;
    double norm_eps, rope_theta, rope_factor, rope_low, rope_high, init_std, logit_softcap, z_loss,
        dropout_embedding, dropout_attention, dropout_residual;
    int64_t rope_original_len, max_new_tokens, vocab_rows;
    rd_paths stop_strings;
    int64_t lora_rank; /* 0: no adapters */
    double lora_alpha, lora_dropout;
    bool lora_rslora;
    rd_paths lora_targets;
    const char *lora_from; /* NULL: none */
} gpt_config;

typedef struct gpt {
    gpt_config c;
    double *rope; /* owned; [head / 2]; NULL: no rotary positions */
    rd_tf_embedding embedding;
    rd_tf_stack stack;
    rd_param *output;        /* (V, n_embd) */
    int64_t n_tokens;        /* number of tokens of the tokenizer */
    int64_t n_classes;       /* number of classes of the loss; output may have more rows */
    int32_t end;             /* end token of documents; -1: none */
    const int32_t *id_bytes; /* [n_tokens] bytes of text of each token; NULL: not known */
    rd_params *ps;
} gpt;

/* Weights in the folders of Hugging Face's transformers (gpt_folder.c, gpt_weights.c). */
rd_code gpt_folder_keys(const json_t *config, const char *path, json_t *keys, rd_status *st);
/* An architecture of transformers. */
typedef struct gpt_architecture {
    const char *type, *name; /* "model_type" and "architectures" of config.json */
    bool gpt2;               /* GPT-2's names of arrays, else Llama's */
} gpt_architecture;
/* Returns the architecture that has the parts of a model. NULL: none has; *why says which part. */
const gpt_architecture *gpt_architecture_of(const gpt_config *c, const char **why);
/* Makes the config.json of a model. NULL: out of memory. The caller owns it. */
json_t *gpt_config_json(const gpt *m, const gpt_architecture *a);
/* Adapters (gpt_lora.c). Checks the keys. */
rd_code gpt_lora_check(const gpt_config *c, const rd_model_args *a, rd_tf_lora_config *out,
                       rd_status *st);
/* Freezes all parameters but those of adapters. */
void gpt_lora_freeze(rd_params *ps);
/* Makes PEFT's adapter_config.json. base: the folder of the frozen weights; NULL: not known. NULL:
 * out of memory. The caller owns it. */
json_t *gpt_adapter_json(const gpt *m, const char *base);
rd_code gpt_weights_load(void *self, const rd_weights *w, rd_strbuf *list, int *n, rd_status *st);
rd_code gpt_weights_save(void *self, const char *folder, const json_t *metadata, json_t **config,
                         rd_status *st);
rd_code gpt_adapter_save(void *self, const char *folder, const char *base, const json_t *metadata,
                         json_t **config, rd_status *st);
rd_code gpt_adapter_keys(const json_t *config, const char *path, json_t *keys, rd_status *st);
rd_code gpt_adapter_load(void *self, const rd_weights *w, rd_strbuf *list, int *n, rd_status *st);

#endif
