/* model.h -- the interface of models. Each model is a file in models/; make writes the registry.
 *
 * A model declares its parameters once and records one forward pass for each batch. All ranks make
 * the same model. No function of a model is collective. */
#ifndef RD_MODEL_H
#define RD_MODEL_H

#include "rd/data.h"
#include "rd/onnx.h"
#include "rd/search.h"
#include "rd/shortlist.h"
#include "rd/tape.h"
#include "rd/weights_folder.h"

RD_C_BEGIN

typedef struct rd_model_args {
    const rd_config *config;
    rd_mode mode;
    const rd_data_spec *data; /* borrowed for the call */
    uint64_t seed;            /* seed of dropout */
    rd_params *params; /* borrowed for the life of the model, which declares its parameters in it */
    rd_backend *backend;
    rd_log *log;                    /* for warnings, which rank 0 prints */
    const struct rd_model_def *def; /* the definition whose `create` is called */
} rd_model_args;

/* The results of one batch: sums over this rank's samples, never means. */
typedef struct rd_loss_out {
    /* (1, 1): sum of the loss over the rank's samples. Its gradient is the gradient of the sum. */
    rd_var *loss;
    double loss_sum; /* the same sum in double */
    /* Number of sentences, target tokens or images: the printed loss is loss_sum / weight, both
     * summed over ranks. */
    double weight;
    /* Number of source and target tokens for tokens/s: no padding, start and end included. */
    double n_tokens_src, n_tokens_tgt;
    double n_targets; /* number of target positions with weight 1 */
    /* Number of targets that the argmax predicts. Images: see class_metric.h. */
    double n_correct;
    /* Negative log likelihood, summed over targets, without label smoothing:
     * perplexity = exp(nll_sum / n_targets). */
    double nll_sum;
    /* Number of bytes of text of the targets with weight 1; 0: not known. */
    double n_bytes;
    /* [n_predicted] argmax ids of the sample with index `shown` in the batch; in the step arena. */
    const int32_t *predicted;
    int64_t n_predicted, shown;

    /* Image models only. A sample has one target, and weight is the number of samples. */

    const int32_t *argmax;    /* [n] best class of each sample; in the step arena; else NULL */
    const int32_t *rank;      /* [n] number of classes before the label, see rd_class_loss */
    const float *probability; /* [n] probability of that class */
    const rd_var *logits;     /* (n, classes), for rd_tape_read; valid until the tape is reset */
} rd_loss_out;

/* How to decode. All zero: greedy search. */
typedef struct rd_decode_config {
    rd_search_rules search;
    const rd_shortlist *shortlist; /* borrowed; NULL: all target words */
    bool int8;                     /* products use int8; needs decodes_int8 and a CPU */
    int64_t max_new_tokens;        /* most tokens of a continuation; 0: the model's key */
} rd_decode_config;

/* One decoded target of a sample; see rd_search for images, too: their class is its one token. */
typedef rd_hypothesis rd_decoded;

/* A value that a model gives to a key that the config does not set. */
typedef struct rd_model_key {
    const char *key;
    const char *value;  /* JSON text */
    const char *unless; /* keys, separated by spaces: the value needs that none of them is set */
} rd_model_key;

/* Weights of a model as a folder that other programs read and write (rd/weights_folder.h). */
typedef struct rd_model_folder {
    /* Adds the keys that the config.json of a folder means to *keys, an object. path: its name, for
     * messages. RD_ECKPT: another model, or a part that this one does not have. */
    rd_code (*keys)(const json_t *config, const char *path, json_t *keys, rd_status *st);
    /* Keys that may differ from those of a folder, separated by spaces: no weight's shape depends
     * on them. */
    const char *free_keys;
    /* Copies the arrays of a folder to the parameters, in the host's memory. Lists arrays that are
     * missing, have another shape, or are not used. Returns their number in *n. */
    rd_code (*load)(void *self, const rd_weights *w, rd_strbuf *list, int *n, rd_status *st);
    /* Writes model.safetensors into a folder, and returns the object of its config.json, which the
     * caller owns. metadata: texts for the file. RD_EUSAGE: the model has no form there. */
    rd_code (*save)(void *self, const char *folder, const json_t *metadata, json_t **config,
                    rd_status *st);
    /* Writes adapter_model.safetensors into a folder, and returns the object of its
     * adapter_config.json, which the caller owns. base: the folder of the frozen weights, or NULL.
     * RD_EUSAGE: the model has no adapters, or no form there. */
    rd_code (*save_adapter)(void *self, const char *folder, const char *base,
                            const json_t *metadata, json_t **config, rd_status *st);
    /* The same as keys and load, for adapter_config.json and adapter_model.safetensors. */
    rd_code (*adapter_keys)(const json_t *config, const char *path, json_t *keys, rd_status *st);
    rd_code (*load_adapter)(void *self, const rd_weights *w, rd_strbuf *list, int *n,
                            rd_status *st);
} rd_model_folder;

typedef struct rd_model_def {
    const char *name, *about;
    /* Keys that other models may read too, and keys that only this model reads. NULL: none. */
    const rd_option_group *group, *own;
    bool bars_unk;     /* the key bar_unk is true unless the config has it */
    bool decodes_int8; /* `decode` knows rd_decode_config.int8 */
    bool continues;    /* it continues a text, so its output has no reference to be scored with */
    /* Values of this model, ended by a NULL key: its sizes and its usual training. NULL: none. */
    const rd_model_key *keys;
    const rd_model_folder *folder; /* NULL: other programs' folders are not known */
    const char *default_dataset;
    int64_t usual_batch; /* samples per rank in bench mode if the user gives none */
    /* In bench mode, unless the user says otherwise: the synthetic images (a name of bench_data;
     * NULL: like the default dataset), and the size that images like ImageNet's get (0: 224). */
    const char *bench_data;
    int64_t bench_size;
    const char *bench_cifar; /* the model of this name for images of CIFAR; NULL: the same one */
    const char *unit;        /* unit of the speed: "images"; NULL: tokens */
    const void *variant;     /* what `create` must know; models of one family differ in it */
    /* Checks the config (RD_EUSAGE names the keys) and declares the parameters. The caller owns
     * *self and frees it with `destroy`. */
    rd_code (*create)(const rd_model_args *a, void **self, rd_status *st);
    void (*destroy)(void *self);
    /* Records the forward pass of a batch. A batch with n == 0 has loss 0, and nothing is recorded,
     * so there is no backward pass. The pointers in *out are memory of the tape's arena. */
    rd_code (*loss)(void *self, rd_tape *t, const rd_batch *b, rd_loss_out *out, rd_status *st);
    /* Optional, for sequence models. Decodes all samples of the batch. Writes N =
     * rd_search_n_best(&c->search) targets of each, best first, to out[n * N]: memory of the tape's
     * arena. */
    rd_code (*decode)(void *self, rd_tape *t, const rd_batch *b, const rd_decode_config *c,
                      rd_decoded *out, rd_status *st);
    /* Returns the number of floating-point operations of forward and backward of this batch: only
     * those of products, 2 for each multiply-add, backward twice forward (frozen weights: once),
     * without padding. */
    double (*flops)(void *self, const rd_batch *b);
    /* Optional. The names of the model's graphs for other programs, ended by NULL: {"", NULL}, or
     * {"encoder", "decoder", NULL}. */
    const char *const *graphs;
    /* Adds all nodes of graph k to g, whose status is *st. The host has the values of the
     * parameters. */
    rd_code (*graph)(void *self, int k, rd_onnx *g, rd_status *st);
} rd_model_def;

/* Begins the definition of a model: RD_MODEL(id) = {...}; in a file of models/. make finds the
 * definitions, also those of macros RD_MODEL_...(id, ...) at the beginning of a line, and writes
 * the registry from them. */
#define RD_MODEL(id) const rd_model_def rd_model_##id

/* Returns the model of this name, whose case does not matter; NULL: unknown. */
const rd_model_def *rd_model_find(const char *name);
/* Returns all n models. */
const rd_model_def *const *rd_model_defs(int *n);

RD_C_END
#endif
