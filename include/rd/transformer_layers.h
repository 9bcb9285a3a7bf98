/* transformer_layers.h -- the layers of Transformers (Vaswani et al. 2017), for translation and for
 * language models: embeddings with positions, attention, recurrent units, feed-forward, stacks.
 *
 * A part declares its parameters once, with rd_tf_*_add, and borrows them from the rd_params of
 * that call. rd_tf_*_apply records the part on a tape and returns NULL after a failure of the tape
 * (rd_tape_check). Rows are stored sentence after sentence, without padding. Nothing here is
 * collective. */
#ifndef RD_TRANSFORMER_LAYERS_H
#define RD_TRANSFORMER_LAYERS_H

#include "rd/nn.h"

RD_C_BEGIN

/* ---- rows ---- */
/* The rows of a batch, and what the ops ask of each row. */
typedef struct rd_tf_rows {
    int64_t n;                 /* number of sentences */
    int64_t N;                 /* number of rows */
    const int64_t *first;      /* [n] first row of each sentence */
    const int64_t *len;        /* [n] number of rows of each sentence */
    const int64_t *sample;     /* [n] global sample ids */
    const int64_t *row_sample; /* [N] global sample id of each row */
    const int64_t *position;   /* [N] position of each row in its sentence, from 0 */
} rd_tf_rows;
/* Lists the rows of n sentences. len and sample: [n], borrowed. *out is memory of the arena. */
rd_code rd_tf_rows_list(rd_arena *a, int64_t n, const int64_t *len, const int64_t *sample,
                        rd_tf_rows *out, rd_status *st);

/* ---- sizes and forms ---- */
/* How matrices start. The first three are uniform in (-b, b), except the embeddings of
 * RD_TF_FAIRSEQ. With it, and a table that is also the output matrix, the first loss is above ln V:
 * logits have variance 1, and the input word, which is a part of each row, has a logit of up to
 * sqrt(d). That holds for fairseq, too. */
typedef enum rd_tf_init {
    /* b = sqrt(6 / (inputs + outputs)) of each stored matrix, also where it holds several; a table
     * of embeddings that is no output matrix: b = 0.07. */
    RD_TF_SOCKEYE,
    /* b = sqrt(6 / (inputs + outputs)) of each square part of a matrix that holds several;
     * embeddings: b = sqrt(3 / d). */
    RD_TF_MARIAN,
    /* b = sqrt(6 / (inputs + outputs)) of each square part, and that / sqrt(2) for queries, keys
     * and values; embeddings and the output matrix: normal, with standard deviation 1 / sqrt(d). */
    RD_TF_FAIRSEQ,
    /* Normal with standard deviation init_std; the last matrix of a block: init_residual_std
     * (Radford et al. 2019). */
    RD_TF_NORMAL
} rd_tf_init;

/* The values inside layers that backward computes again. */
typedef enum rd_tf_recompute {
    RD_TF_RECOMPUTE_NONE,
    RD_TF_RECOMPUTE_LAYER, /* all */
    RD_TF_RECOMPUTE_NORMS  /* those of norms, activations and their dropout */
} rd_tf_recompute;

/* Low-rank adapters (LoRA, Hu et al. 2021): the product x W of a dense layer becomes
 *     x W + scale drop(x) A B,   A (inputs, rank), B (rank, outputs)
 * A is uniform in (-b, b) at first, b = 1 / sqrt(inputs), and B is 0, as in PEFT. A target is a
 * bit. */
enum {
    RD_TF_LORA_QKV = 1, /* queries, keys and values by one adapter */
    RD_TF_LORA_Q = 2,   /* ... or each by its own */
    RD_TF_LORA_K = 4,
    RD_TF_LORA_V = 8,
    RD_TF_LORA_OUT = 16,
    RD_TF_LORA_FF1 = 32,  /* rd_tf_ff.w1 */
    RD_TF_LORA_GATE = 64, /* rd_tf_ff.w3 */
    RD_TF_LORA_FF2 = 128  /* rd_tf_ff.w2 */
};
typedef struct rd_tf_lora_config {
    unsigned targets; /* self-attention and feed-forward blocks have adapters there; 0: none */
    int64_t rank;
    double scale, keep; /* keep: probability that dropout keeps an element of x */
} rd_tf_lora_config;

/* What all layers of a model share. */
typedef struct rd_tf_config {
    int64_t d;       /* width of the model */
    int64_t n_heads; /* divides d, unless head is given */
    /* Number of key and value heads, which divides n_heads, and width of a head. 0: n_heads, and
     * d / n_heads. */
    int64_t n_kv_heads, head;
    int64_t ff; /* width inside feed-forward blocks */
    /* y = norm(x + f(x)). false: y = x + f(norm(x)), and a norm after the last layer. */
    bool post_norm;
    bool attention_bias; /* the projections of attention have biases */
    bool no_out_bias;    /* ... but its last one has none */
    bool no_ff_bias;     /* the matrices of feed-forward blocks have no biases */
    bool rms;            /* norms divide by the root mean square, and have no bias */
    bool no_norm_bias;   /* norms have no bias */
    bool qk_norm;        /* a norm of each query and key head, before positions; needs rms */
    /* [head / 2] rotary positions of self-attention, see rd_rotary; NULL: none. Borrowed as long as
     * the stack. */
    const double *rope;
    bool ssru; /* causal stacks have recurrent units in place of self-attention */
    rd_activation activation;
    bool ff_gate; /* feed-forward blocks have a gate: rd_tf_ff.w3 */
    rd_tf_recompute recompute;
    double eps; /* of norms */
    /* Probabilities that dropout keeps an element: of attention weights; of the output of each
     * block, before it is added to its input; inside feed-forward blocks, after the activation. */
    double keep_attention, keep_residual, keep_ff;
    rd_tf_init init;
    double init_std, init_residual_std; /* of RD_TF_NORMAL */
    uint64_t seed;                      /* of dropout */
    rd_tf_lora_config lora;
    /* Type of what the products of a layer read and write. rd_tf_stack_apply sets it: that of the
     * backend. Else RD_FLOAT32. */
    rd_element activations;
} rd_tf_config;

/* ---- embeddings ---- */
typedef enum rd_tf_positions {
    RD_TF_POSITIONS_PAIRS, /* rd_sinusoid */
    RD_TF_POSITIONS_HALVES,
    RD_TF_POSITIONS_T2T,
    RD_TF_POSITIONS_LEARNED,
    RD_TF_POSITIONS_NONE
} rd_tf_positions;
/* x = drop_sum(scale drop_table(table[id]) + P[position]) */
typedef struct rd_tf_embedding {
    rd_param *table;  /* (V, d); borrowed */
    rd_param *places; /* (n_places, d); borrowed; NULL: positions are fixed, or there are none */
    rd_tf_positions positions;
    int64_t n_places;
    float scale;
    rd_dropout drop_table, drop_sum; /* without epoch */
} rd_tf_embedding;
/* Declares a table NAME of V rows. output: it is also an output matrix, so every row gets a
 * gradient. */
rd_code rd_tf_table_add(rd_params *ps, const char *name, int64_t V, const rd_tf_config *c,
                        bool output, rd_param **out, rd_status *st);
/* Makes an embedding of a table. Learned positions are declared as NAME, n_places rows; later
 * positions use the last row. *site: running number of dropouts, increased by 2. */
rd_code rd_tf_embedding_add(rd_params *ps, const char *name, rd_param *table,
                            rd_tf_positions positions, int64_t n_places, bool scaled,
                            double keep_table, const rd_tf_config *c, uint32_t *site,
                            rd_tf_embedding *out, rd_status *st);
/* Records the embedding of ids[N]. epoch: a part of the key of dropout. */
rd_var *rd_tf_embedding_apply(rd_tape *t, const rd_tf_embedding *e, const rd_tf_rows *rows,
                              uint64_t epoch, const int32_t *ids);

/* ---- layers ---- */
typedef struct rd_tf_norm {
    rd_param *gain, *bias; /* (d), (d); borrowed. gain NULL: there is no norm */
} rd_tf_norm;

/* An adapter. */
typedef struct rd_tf_lora {
    rd_param *a, *b; /* (inputs, rank), (rank, outputs); borrowed. a NULL: there is none */
    uint32_t site;
} rd_tf_lora;

/* An attention block. One product makes queries, keys and values of self-attention. */
typedef struct rd_tf_attention {
    rd_tf_norm norm;
    /* With q = n_heads head and k = n_kv_heads head. Self: (d, q + 2 k), (q + 2 k); else the
     * queries: (d, q), (q) */
    rd_param *qkv, *qkv_bias;
    rd_param *kv, *kv_bias;    /* of the memory: (d, 2 k), (2 k); NULL: self-attention */
    rd_param *q_gain, *k_gain; /* (head), (head); NULL: no norm of heads */
    rd_param *out, *out_bias;  /* (q, d), (d) */
    uint32_t site_weights, site_out;
    rd_tf_lora lora_qkv, lora_part[3], lora_out; /* part: of queries, keys, values */
} rd_tf_attention;

/* y = drop(f(x W1 + b1) (x W3 + b3)) W2 + b2; without W3 the second factor is 1 (Shazeer 2020). */
typedef struct rd_tf_ff {
    rd_tf_norm norm;
    rd_param *w1, *b1, *w2, *b2; /* (d, ff), (ff), (ff, d), (d) */
    rd_param *w3, *b3;           /* (d, ff), (ff); NULL: no gate */
    uint32_t site_inside, site_out;
    rd_tf_lora lora1, lora3, lora2;
} rd_tf_ff;

/* A simpler simple recurrent unit (Kim et al. 2019): max(c, 0), with
 *   c_t = f_t c_{t-1} + (1 - f_t) x_t W,   f_t = sigmoid(x_t G + b),   c_{-1} = 0 */
typedef struct rd_tf_ssru {
    rd_tf_norm norm;
    rd_param *kernel, *gate, *gate_bias; /* W (d, d), G (d, d), b (d) */
    uint32_t site_out;
} rd_tf_ssru;

typedef struct rd_tf_layer {
    rd_tf_attention self;   /* out NULL: the layer has a recurrent unit in its place */
    rd_tf_ssru ssru;        /* kernel NULL: none */
    rd_tf_attention memory; /* out NULL: the layer attends to no memory */
    rd_tf_ff ff;
} rd_tf_layer;

enum { RD_TF_MOST_LAYERS = 128 };
typedef struct rd_tf_stack {
    rd_tf_config c; /* n_kv_heads and head are given */
    bool causal;    /* a row sees no later row of its sentence */
    int n_layers;
    rd_tf_layer layer[RD_TF_MOST_LAYERS];
    rd_tf_norm last;
} rd_tf_stack;
/* Declares PREFIX/layer0/attention/... or PREFIX/layer0/ssru/..., PREFIX/layer0/memory/... (if the
 * layers attend to a memory), PREFIX/layer0/ff/... and so on. *site: as above. */
rd_code rd_tf_stack_add(rd_params *ps, const char *prefix, const rd_tf_config *c, int n_layers,
                        bool causal, bool memory, uint32_t *site, rd_tf_stack *out, rd_status *st);
/* Records the stack and returns its output (N, d). x (N, d). memory (M, d), of the rows `of`; NULL
 * for a stack without.
 *
 * With rd_backend_activations of 16 bits, values between the ops of a layer have 16 bits. Sums of
 * blocks, which norms read, and x are float32, as under PyTorch's autocast. With post_norm the
 * outputs of norms have 16 bits. The output is float32 for a causal stack, else of that type. */
rd_var *rd_tf_stack_apply(rd_tape *t, const rd_tf_stack *s, const rd_tf_rows *rows, uint64_t epoch,
                          rd_var *x, rd_var *memory, const rd_tf_rows *of);
/* Returns the number of elements of the matrices that every row of the stack is multiplied with,
 * without adapters, and in *of_memory of those that every row of the memory is. */
double rd_tf_stack_elements(const rd_tf_stack *s, double *of_memory);
/* Returns the number of elements of the adapters. */
double rd_tf_lora_elements(const rd_tf_stack *s);

/* ---- decoding ---- */
/* A decoder with its output. */
typedef struct rd_tf_decoder {
    const rd_tf_stack *stack; /* causal, with a memory */
    const rd_tf_embedding *embedding;
    rd_param *output;      /* (V, d) */
    rd_param *output_bias; /* (V); NULL: none */
    int64_t n_classes;     /* number of tokens; output may have more rows */
    int32_t start, end;    /* tokens */
    rd_params *ps;
} rd_tf_decoder;
/* Decodes n sentences with rd_search. memory (M, d) holds the rows `of`. Sentence s has at most
 * rd_search_limit(rules, of->len[s]) tokens. sets: the tokens of each sentence; NULL: all.
 * out[n * rd_search_n_best(rules)]: memory of the tape's arena. The result of a sentence does not
 * depend on the others. With a GPU, beam_width is at most RD_SEARCH_WIDEST, and sets is NULL: else
 * RD_EUSAGE.
 *
 * Keys and values of the memory are computed once. Those of the tokens are kept, or the states of
 * recurrent units: a step computes one row for each hypothesis. */
rd_code rd_tf_search(rd_tape *t, const rd_tf_decoder *d, rd_var *memory, const rd_tf_rows *of,
                     const rd_search_rules *rules, const rd_token_sets *sets, rd_hypothesis *out,
                     rd_status *st);

/* ---- graphs for other programs (transformer_graph.c) ---- */
/* Add the encoder, or one step of the decoder, to a graph. The host has the values of the
 * parameters. d: the decoder that reads the memory. logs/EXPORT.md has the inputs and outputs. */
rd_code rd_tf_encoder_graph(rd_onnx *g, const rd_tf_embedding *source, const rd_tf_stack *encoder,
                            const rd_tf_decoder *d);
rd_code rd_tf_decoder_graph(rd_onnx *g, const rd_tf_decoder *d);
/* A language model with its output. */
typedef struct rd_lm_decoder {
    const rd_tf_stack *stack; /* causal, without a memory, pre-norm */
    const rd_tf_embedding *embedding;
    rd_param *output;  /* (V, d) */
    int64_t n_classes; /* number of tokens; output may have more rows */
    int32_t end;       /* token that ends a text; -1: none */
    int64_t max_len;   /* most tokens of a sequence */
    double softcap;    /* of logits, as in rd_xent */
    rd_params *ps;
} rd_lm_decoder;
/* Prompts, and the largest number of tokens that each gets. Prompt i is ids[off[i]] .. ids[off[i +
 * 1] - 1]: at least one token, at most max_len. */
typedef struct rd_lm_prompts {
    int64_t n;
    const int32_t *ids;
    const int64_t *off; /* [n + 1] */
    int64_t most;
} rd_lm_prompts;
/* Continues prompts with rd_search; its start token and its limits have no effect. A text ends at
 * the end token, after p->most tokens, or where the next token would have no position.
 * out[p->n * rd_search_n_best(rules)]: memory of the tape's arena. With a GPU, beam_width is at
 * most RD_SEARCH_WIDEST: else RD_EUSAGE. */
rd_code rd_lm_search(rd_tape *t, const rd_lm_decoder *d, const rd_lm_prompts *p,
                     const rd_search_rules *rules, rd_hypothesis *out, rd_status *st);

RD_C_END
#endif
