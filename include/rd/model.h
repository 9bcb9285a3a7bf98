/* model.h -- models, one file each in models/; make writes the registry. A model declares its parameters once and
 * records one forward pass per batch. Every rank makes the same model; no function of it is collective. */
#ifndef RD_MODEL_H
#define RD_MODEL_H

#include "rd/data.h"
#include "rd/tape.h"

RD_C_BEGIN

typedef struct rd_model_args {
    const rd_config *config;
    rd_mode mode;
    const rd_data_spec *data; /* borrowed for the call */
    uint64_t seed;            /* of dropout */
    rd_params *params; /* borrowed for the life of the model; parameters are declared in it */
    rd_backend *backend;
    rd_log *log;                    /* warnings (rank 0 speaks) */
    const struct rd_model_def *def; /* the definition whose create is called */
} rd_model_args;

/* What one batch gives: sums over this rank's samples, never means. */
typedef struct rd_loss_out {
    rd_var *
        loss; /* (1, 1): sum of the loss over the rank's samples; its gradient is that of the sum */
    double loss_sum;
    double weight; /* what loss_sum is divided by, summed over ranks: sentences, or tokens */
    double n_tokens_src, n_tokens_tgt; /* real tokens (start and end included), for tokens/s */
    double n_targets, n_correct;       /* target positions with weight 1; of these, argmax right */
    double
        nll_sum; /* plain negative log likelihood over targets: perplexity = exp(nll_sum / n_targets) */
    const int32_t
        *predicted; /* argmax ids of sample `shown` of the batch, n_predicted of them; step arena */
    int64_t n_predicted, shown;
    /* images; one target a sample, and weight is the number of samples */
    double n_top5;            /* samples whose label is among the five best */
    const int32_t *argmax;    /* [n] class of every sample; step arena; NULL: not an image model */
    const float *probability; /* [n] of it */
} rd_loss_out;

typedef struct rd_decode_config {
    int64_t beam_width; /* 1: greedy */
    double length_penalty;
} rd_decode_config;

typedef struct rd_decoded { /* of one sample: ids up to, without, the end token */
    const int32_t *ids;
    int64_t n;
    double score; /* log probability (after the length penalty for beams) */
} rd_decoded;

typedef struct rd_model_def {
    const char *name, *about;
    /* The keys that it reads, which other models may read too, and keys that it alone reads. NULL: none. */
    const rd_option_group *group, *own;
    const char *default_dataset;
    int64_t usual_batch; /* samples per rank in bench mode, where the user gives none */
    const char *unit;    /* what speed is counted in: "images"; NULL: tokens */
    const void *variant; /* what create needs to know: models of one family differ in it */
    /* Checks the config (RD_EUSAGE names the keys) and declares the parameters. *self is the caller's, for destroy. */
    rd_code (*create)(const rd_model_args *a, void **self, rd_status *st);
    void (*destroy)(void *self);
    /* Forward pass of a batch on the tape, also with n == 0: loss 0, no record, so there is nothing to go back through.
     * What out points to is of the tape's arena. */
    rd_code (*loss)(void *self, rd_tape *t, const rd_batch *b, rd_loss_out *out, rd_status *st);
    /* Optional (sequence models): decodes every sample of the batch; out[n], memory of the tape's arena. */
    rd_code (*decode)(void *self, rd_tape *t, const rd_batch *b, const rd_decode_config *c,
                      rd_decoded *out, rd_status *st);
    /* Floating-point operations of forward and backward of this batch, of products alone (2 per multiply-add; backward
     * twice forward), real tokens only. */
    double (*flops)(void *self, const rd_batch *b);
} rd_model_def;

/* Begins the definition of a model: RD_MODEL(id) = {...}; in a file of models/. make finds the
 * definitions, also those of macros RD_MODEL_...(id, ...) at the beginning of a line, and writes
 * the registry from them. */
#define RD_MODEL(id) const rd_model_def rd_model_##id

const rd_model_def *rd_model_find(const char *name); /* NULL: unknown */
const rd_model_def *const *rd_model_defs(int *n);

RD_C_END
#endif
