/* nn.h -- the parts of sequence-to-sequence models: recurrent stacks, encoders, the attention
 * decoder, search. The formulas are those of OpenSeq2Seq 4.
 *
 * A part declares its parameters once, with rd_*_add, and borrows them from the rd_params of that
 * call. Then rd_*_apply records the part on a tape. rd_*_add fails with RD_EUSAGE if sizes in the
 * config do not fit together. rd_*_apply returns NULL after a failure of the tape (rd_tape_check).
 *
 * Nothing here is collective. */
#ifndef RD_NN_H
#define RD_NN_H

#include "rd/onnx.h"
#include "rd/ops.h"
#include "rd/search.h"

RD_C_BEGIN

/* ---- recurrent layers with their parameters ---- */
enum { RD_LAYER_PARAMS = 72 }; /* the largest number of parameters of a layer */
/* One recurrent layer. */
typedef struct rd_stack_layer {
    rd_layer l;                   /* what rd_op_rnn_layer computes */
    int n_w;                      /* number of parameters */
    rd_param *w[RD_LAYER_PARAMS]; /* borrowed; the first n_w are set */
} rd_stack_layer;

/* The cells of the encoder, or of the decoder. */
typedef struct rd_cell_config {
    const char *type; /* lstm, gru, glstm or slstm */
    int64_t units;
    int64_t proj_size;        /* width of the recurrent projection; 0: none */
    int64_t num_groups;       /* of glstm; 0: none */
    double keep_in, keep_out; /* probability that dropout keeps an input or an output */
} rd_cell_config;

/* Returns the width of a cell's output: proj_size if the cell projects, else units. */
int64_t rd_cell_output_width(const rd_cell_config *c);
/* Declares the parameters PREFIX/kernel ... of one layer. in: width of the input; extra: width of
 * the attention context that is a second input, 0: none; dropout: apply keep_in and keep_out;
 * residual: add the input to the output; *site: running number of dropouts, increased by 2. */
rd_code rd_stack_layer_add(rd_params *ps, const char *prefix, const rd_cell_config *c, int64_t in,
                           int64_t extra, bool dropout, bool residual, uint64_t seed,
                           uint32_t *site, rd_stack_layer *out, rd_status *st);
/* Records the layer and returns its output, (N, R). x: (N, in); att: (N, extra) or NULL; epoch: a
 * part of the key of dropout. */
rd_var *rd_stack_layer_apply(rd_tape *t, rd_stack_layer *s, const rd_packing *p, uint64_t epoch,
                             rd_var *x, rd_var *att);
/* Records n layers, one above the other, and returns the output of the highest one. att is joined
 * to each. */
rd_var *rd_stack_apply(rd_tape *t, int n, rd_stack_layer *s, const rd_packing *p, uint64_t epoch,
                       rd_var *x, rd_var *att);

/* ---- packing a batch ---- */
typedef struct rd_packed_batch {
    rd_packing p;
    int64_t n;            /* number of sequences */
    const int64_t *order; /* [n] row of the batch at each packed position */
    const int64_t *rank;  /* [n] packed position of each row of the batch */
    const int64_t *len;   /* [n] number of steps at each packed position, descending */
} rd_packed_batch;
/* Packs the n rows of a batch: a stable sort, longest first. steps[n]: number of time steps of each
 * row; rows with 0 steps come last and are part of no step. sample[n]: global sample ids. *out is
 * memory of the arena. */
rd_code rd_pack(rd_arena *a, int64_t n, const int64_t *steps, const int64_t *sample,
                rd_packed_batch *out, rd_status *st);

/* ---- encoder ---- */
typedef enum rd_encoder_type { RD_ENC_UNI, RD_ENC_BI, RD_ENC_GNMT } rd_encoder_type;
typedef struct rd_encoder {
    rd_encoder_type type;
    int n_layers;
    rd_param *embedding; /* (V_s, E_s): size of the source vocabulary, width of its embedding */
    rd_stack_layer fw[RD_MAX_LAYERS], bw[RD_MAX_LAYERS]; /* forward and backward direction */
    int64_t M;                                           /* width of a memory vector */
} rd_encoder;
/* Declares the parameters of an encoder. skip: residual connections around all layers (uni, bi).
 * gnmt ignores skip: its layers have residual connections from layer 2 on. *site: as in
 * rd_stack_layer_add. */
rd_code rd_encoder_add(rd_params *ps, rd_encoder_type type, int n_layers, int64_t vocab,
                       int64_t emb, const rd_cell_config *c, bool skip, uint64_t seed,
                       uint32_t *site, rd_encoder *out, rd_status *st);
/* Records the encoder and returns the memory, (off[n] - off[0], M): one row for each source token.
 * src[off[i] .. off[i + 1]): token ids of row i of the batch; sample[n]: global sample ids;
 * sentence[n]: rows of the batch in the order in which their memory follows.
 *
 * (*first)[k] and (*len)[k]: first memory row of the k-th sentence of that order, and its number of
 * rows; memory of the tape's arena. *max_len: the largest of *len, at least 1. */
rd_var *rd_encoder_apply(rd_tape *t, rd_encoder *e, int64_t n, const int32_t *src,
                         const int64_t *off, const int64_t *sample, uint64_t epoch,
                         const int64_t *sentence, const int64_t **first, const int64_t **len,
                         int64_t *max_len);

/* ---- decoder ---- */
/* RD_DEC_WRAPPED: attention around all layers, for attention_type bahdanau and luong. */
typedef enum rd_decoder_style { RD_DEC_WRAPPED, RD_DEC_GNMT, RD_DEC_GNMT_V2 } rd_decoder_style;
typedef struct rd_decoder {
    rd_decoder_style style;
    rd_attention_kind kind;
    int n_layers;
    rd_stack_layer layer[RD_MAX_LAYERS];
    /* Borrowed; NULL: this decoder has no such parameter. */
    rd_param *embedding, *memory_kernel, *query_kernel, *v, *g, *b, *W_in, *b_in, *W_out;
    int64_t E; /* width of the target embedding */
    int64_t M; /* width of a memory vector */
    int64_t A; /* depth of the attention score */
    int64_t R; /* width of the query: a cell's output */
    int64_t H; /* units of a cell */
    int64_t V; /* number of output classes */
    float temperature;
} rd_decoder;
/* Declares the parameters of a decoder. emb, M, A: the widths E, M and A of rd_decoder. skip:
 * residual connections around all layers and a dense layer in front (RD_DEC_WRAPPED); the gnmt
 * styles ignore it and have residual connections from layer 2 on. temperature divides the logits.
 * *site: as in rd_stack_layer_add. */
rd_code rd_decoder_add(rd_params *ps, rd_decoder_style style, rd_attention_kind kind, int n_layers,
                       int64_t vocab, int64_t emb, int64_t M, int64_t A, const rd_cell_config *c,
                       bool skip, double temperature, uint64_t seed, uint32_t *site,
                       rd_decoder *out, rd_status *st);
/* Records teacher forcing over a packed target. Returns the factor of W_out, (N, X): X is M for
 * RD_DEC_WRAPPED, else R. ids[N]: input tokens in packed order; memory: (S, M); first, len: memory
 * rows by packed sequence, as rd_encoder_apply returns them. */
rd_var *rd_decoder_apply(rd_tape *t, rd_decoder *d, const rd_packing *p, uint64_t epoch,
                         const int32_t *ids, rd_var *memory, const int64_t *first,
                         const int64_t *len);

/* ---- graphs for other programs (recurrent_graph.c) ---- */
/* Add the encoder, or one step of the decoder, to a graph. The host has the values of the
 * parameters. A cell without a form there: RD_EUSAGE. logs/EXPORT.md has the inputs and outputs. */
rd_code rd_encoder_graph(rd_onnx *g, const rd_params *ps, const rd_encoder *e, const rd_decoder *d);
rd_code rd_decoder_graph(rd_onnx *g, const rd_params *ps, const rd_decoder *d);

/* ---- decoding ---- */
/* The table that makes logits from the last vector of a decoder. */
typedef struct rd_output_table {
    const float *w;
    bool rows;         /* w is (V, X), as an embedding is; else (X, V) */
    const float *bias; /* [V]; NULL: none */
    int64_t X, V;
    float temperature; /* divides the logits */
} rd_output_table;
/* Logits of the tokens that a sentence may have, and of no others. CPU alone. */
typedef struct rd_short_output rd_short_output;
/* Makes it for n sentences and at most `most` rows of a step. Each set has the end token. *out is
 * memory of the arena; all arguments are borrowed for its life. */
rd_code rd_short_output_new(rd_arena *a, rd_backend *be, const rd_output_table *t, int64_t n,
                            const rd_token_sets *sets, int64_t most, rd_short_output **out,
                            rd_status *st);
/* Does the end of an rd_search_step: fills rows [0, n) of `best` from x (n, X). A row's numbers
 * depend on its sentence alone, not on the batch or the threads. */
rd_code rd_short_output_best(rd_short_output *s, int64_t n, const float *x, const int64_t *sentence,
                             const rd_search_best *best, rd_status *st);
/* Decodes n sentences with rd_search. memory, first, len and max_len come from rd_encoder_apply.
 * Sentence s has at most rd_search_limit(rules, len[s]) tokens. sets: the tokens of each sentence;
 * NULL: all. out[n * rd_search_n_best(rules)]: memory of the tape's arena. With a GPU only the best
 * tokens of each step are downloaded, beam_width is at most RD_SEARCH_WIDEST, and sets is NULL:
 * else RD_EUSAGE. */
rd_code rd_decoder_search(rd_tape *t, rd_decoder *d, rd_params *ps, int64_t n, rd_var *memory,
                          const int64_t *first, const int64_t *len, int64_t max_len,
                          const rd_search_rules *rules, const rd_token_sets *sets,
                          rd_hypothesis *out, rd_status *st);

RD_C_END
#endif
