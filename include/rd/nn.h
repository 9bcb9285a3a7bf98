/* nn.h -- the parts of sequence-to-sequence models: recurrent stacks, encoders, the attention decoder, search.
 * Formulas: OpenSeq2Seq 4. A part declares its parameters once and is then used with a tape; it borrows them from the
 * rd_params that it was given. rd_*_add: RD_EUSAGE where sizes of the config do not fit together. rd_*_apply: NULL
 * after a failure of the tape (rd_tape_check). Nothing here is collective. */
#ifndef RD_NN_H
#define RD_NN_H

#include "rd/ops.h"

RD_C_BEGIN

/* ---- recurrent layers with their parameters ---- */
enum { RD_LAYER_PARAMS = 72 };
typedef struct rd_stack_layer {
    rd_layer l;
    int n_w;
    rd_param *w[RD_LAYER_PARAMS];
} rd_stack_layer;

typedef struct rd_cell_config {           /* of one side */
    const char *type;                     /* lstm gru glstm slstm */
    int64_t units, proj_size, num_groups; /* 0: none */
    double keep_in, keep_out;
} rd_cell_config;

/* Width of a cell's output: the projection's, where the cell projects. */
int64_t rd_cell_output_width(const rd_cell_config *c);
/* Declares the parameters PREFIX/kernel ... of one layer. site: running number of dropouts, advanced by 2. */
rd_code rd_stack_layer_add(rd_params *ps, const char *prefix, const rd_cell_config *c, int64_t in,
                           int64_t extra, bool dropout, bool residual, uint64_t seed,
                           uint32_t *site, rd_stack_layer *out, rd_status *st);
/* Records the layer; epoch keys the dropout. x (N, in), att (N, extra) or NULL; returns (N, R). */
rd_var *rd_stack_layer_apply(rd_tape *t, rd_stack_layer *s, const rd_packing *p, uint64_t epoch,
                             rd_var *x, rd_var *att);

/* ---- packing a batch ---- */
typedef struct rd_packed_batch {
    rd_packing p;
    int64_t n;            /* sequences */
    const int64_t *order; /* [n] packed position -> row of the batch */
    const int64_t *rank;  /* [n] row of the batch -> packed position */
    const int64_t *len;   /* [n] steps by packed position, descending */
} rd_packed_batch;
/* Sorts by falling length, stable. steps[n]: time steps of each row (rows without any come last and are in no step);
 * sample[n]: global sample ids. Memory of the arena. */
rd_code rd_pack(rd_arena *a, int64_t n, const int64_t *steps, const int64_t *sample,
                rd_packed_batch *out, rd_status *st);

/* ---- encoder ---- */
typedef enum rd_encoder_type { RD_ENC_UNI, RD_ENC_BI, RD_ENC_GNMT } rd_encoder_type;
typedef struct rd_encoder {
    rd_encoder_type type;
    int n_layers;
    rd_param *embedding; /* [V_s, E_s] */
    rd_stack_layer fw[RD_MAX_LAYERS], bw[RD_MAX_LAYERS];
    int64_t M; /* width of a memory vector */
} rd_encoder;
/* skip: residual around every layer (uni, bi); gnmt: residual from layer 2 on. */
rd_code rd_encoder_add(rd_params *ps, rd_encoder_type type, int n_layers, int64_t vocab,
                       int64_t emb, const rd_cell_config *c, bool skip, uint64_t seed,
                       uint32_t *site, rd_encoder *out, rd_status *st);
/* Memory rows, sentence after sentence in the order `sentence[0 .. n)` (rows of the batch); *first and *len [n] (by
 * that order) say which rows are whose; *max_len is the longest, at least 1. src + off[i] .. off[i + 1]: token ids of
 * row i. Returns (off[n] - off[0], M); the lists are of the tape's arena. */
rd_var *rd_encoder_apply(rd_tape *t, rd_encoder *e, int64_t n, const int32_t *src,
                         const int64_t *off, const int64_t *sample, uint64_t epoch,
                         const int64_t *sentence, const int64_t **first, const int64_t **len,
                         int64_t *max_len);

/* ---- decoder ---- */
typedef enum rd_decoder_style {
    RD_DEC_WRAPPED /* bahdanau, luong */,
    RD_DEC_GNMT,
    RD_DEC_GNMT_V2
} rd_decoder_style;
typedef struct rd_decoder {
    rd_decoder_style style;
    rd_attention_kind kind;
    int n_layers;
    rd_stack_layer layer[RD_MAX_LAYERS];
    rd_param *embedding, *memory_kernel, *query_kernel, *v, *g, *b, *W_in, *b_in, *W_out;
    int64_t E, M, A, R, H, V; /* R: width of the query; V: output classes */
    float temperature;
} rd_decoder;
rd_code rd_decoder_add(rd_params *ps, rd_decoder_style style, rd_attention_kind kind, int n_layers,
                       int64_t vocab, int64_t emb, int64_t M, int64_t A, const rd_cell_config *c,
                       bool skip, double temperature, uint64_t seed, uint32_t *site,
                       rd_decoder *out, rd_status *st);
/* Teacher forcing over a packed target: ids[N] inputs in packed order, memory (S, M), first and len by packed sequence.
 * Returns what W_out multiplies, (N, X). */
rd_var *rd_decoder_apply(rd_tape *t, rd_decoder *d, const rd_packing *p, uint64_t epoch,
                         const int32_t *ids, rd_var *memory, const int64_t *first,
                         const int64_t *len);

/* ---- search ---- */
enum { RD_SEARCH_WIDEST = 1024 };
/* What a step finds for each of its rows: the n best tokens but the end token, and how good that is. */
typedef struct rd_search_best {
    int64_t n;   /* the width of the beam, or all tokens but one */
    int32_t end; /* the end token */
    int32_t
        *id; /* [rows, n], in any order; of tokens that are as good as each other, the lowest ids */
    float *logp;     /* [rows, n] their log probabilities; -INFINITY where that is no number */
    float *end_logp; /* [rows] the same of the end token */
} rd_search_best;
/* Rows first .. first + n - 1 of out, from their logits [n, V], which are gone afterwards. */
void rd_search_best_rows(const rd_search_best *out, int64_t first, int64_t n, int64_t V,
                         float *logits);
/* One step of n hypotheses: row i continues row parent[i] of the call before (ignored in the first call) for the
 * sentence sentence[i] with token ids[i]. */
typedef rd_code rd_search_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                               const int64_t *sentence, const rd_search_best *out, rd_status *st);
typedef struct rd_hypothesis {
    const int32_t *ids; /* without the end token */
    int64_t n;
    double score; /* log probability, by the length penalty for beams */
} rd_hypothesis;
/* Greedy for beam_width 1 and length_penalty 0, else beam search (OpenSeq2Seq 4.10: hypotheses are followed, not
 * slots). Sentence s ends after limit[s] tokens at the latest (0: at once, empty). start, end: token ids, below V. Of equal
 * scores that of the better hypothesis counts, then the lower id. out[n_sentences], memory of the arena. Logits that are not
 * finite end no sentence early, and break nothing. */
rd_code rd_search(rd_arena *a, int64_t n_sentences, const int64_t *limit, int64_t V, int32_t start,
                  int32_t end, int64_t beam_width, double length_penalty, rd_search_step *step,
                  void *ctx, rd_hypothesis *out, rd_status *st);
/* Decodes n sentences given their memory (as of rd_encoder_apply); sentence s ends after 2 len[s] tokens at the latest.
 * out[n], memory of the tape's arena. On a GPU the host sees a step's best tokens alone; beam_width is at most
 * RD_SEARCH_WIDEST there (RD_EUSAGE). */
rd_code rd_decoder_search(rd_tape *t, rd_decoder *d, rd_params *ps, int64_t n, rd_var *memory,
                          const int64_t *first, const int64_t *len, int64_t max_len,
                          int64_t beam_width, double length_penalty, rd_hypothesis *out,
                          rd_status *st);

RD_C_END
#endif
