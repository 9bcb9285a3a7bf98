/* seq2seq.c -- OpenSeq2Seq's sequence-to-sequence models of January 2018: a recurrent encoder and
 * an attention decoder. The keys and their defaults are those of the original. The parts are in
 * nn.h. */
#include "sequence_model.h"
#include "rd/cell.h"
#include "rd/nn.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum encoder_type { ENCODER_UNI, ENCODER_BI, ENCODER_GNMT } encoder_type;
typedef enum attention_type {
    ATTENTION_BAHDANAU,
    ATTENTION_LUONG,
    ATTENTION_GNMT,
    ATTENTION_GNMT_V2
} attention_type;

/* The words of the enums' keys. */
static const char *const encoder_types[] = {[ENCODER_UNI] = "unidirectional",
                                            [ENCODER_BI] = "bidirectional",
                                            [ENCODER_GNMT] = "gnmt",
                                            NULL};
/* The names of all recurrent cells (runner/ops/cells). */
#define RD_ENTRY(name) #name,
static const char *const cell_types[] = {
#include "cells.inc"
    NULL};
#undef RD_ENTRY
static const char *const attention_types[] = {[ATTENTION_BAHDANAU] = "bahdanau",
                                              [ATTENTION_LUONG] = "luong",
                                              [ATTENTION_GNMT] = "gnmt",
                                              [ATTENTION_GNMT_V2] = "gnmt_v2",
                                              NULL};

typedef struct seq2seq_config {
    encoder_type encoder_type;
    const char *encoder_cell_type, *decoder_cell_type;
    attention_type attention_type;
    int64_t encoder_cell_units, encoder_layers, src_emb_size, decoder_cell_units, decoder_layers,
        tgt_emb_size, attention_layer_size;
    double enc_in, enc_out, dec_in, dec_out, softmax_temperature, init_scale;
    bool enc_skip, dec_skip, has_enc_skip, has_dec_skip, bahdanau_normalize, luong_scale,
        use_attention, use_swap_memory;
    bool average_across_timesteps, pad_vocabs_to_eight;
    int64_t proj_size, num_groups, num_units;
} seq2seq_config;

enum {
    TRAINING = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH,
    ALWAYS = TRAINING | RD_MODE_EVAL | RD_MODE_INFER | RD_MODE_EXPORT
};
#define T seq2seq_config

static const rd_option rows[] = {
    RD_OPT_ENUM(T, encoder_type, encoder_type, "\"unidirectional\"", encoder_types,
                "structure of the encoder"),
    RD_OPT_NAME(T, encoder_cell_type, encoder_cell_type, NULL, cell_types,
                "recurrent cell of the encoder", RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, encoder_cell_units, encoder_cell_units, NULL, 1, 65536,
               "number of units of an encoder cell", RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, encoder_layers, encoder_layers, NULL, 1, RD_MAX_LAYERS,
               "number of encoder layers; gnmt counts the bidirectional layer as one",
               RD_REQUIRED(ALWAYS)),
    RD_OPT_REAL(T, encoder_dp_input_keep_prob, enc_in, NULL, 0.001, 1,
                "probability that an input of an encoder layer is kept; 1 outside training",
                RD_REQUIRED(TRAINING)),
    RD_OPT_REAL(T, encoder_dp_output_keep_prob, enc_out, NULL, 0.001, 1,
                "probability that an output of an encoder layer is kept; 1 outside training",
                RD_REQUIRED(TRAINING)),
    RD_OPT_BOOL(T, encoder_use_skip_connections, enc_skip, NULL,
                "adds a residual connection around every encoder layer. Required unless "
                "encoder_type is gnmt",
                RD_GIVEN(T, has_enc_skip)),
    RD_OPT_INT(T, src_emb_size, src_emb_size, NULL, 1, 65536, "width of the source embedding",
               RD_REQUIRED(ALWAYS)),
    RD_OPT_NAME(T, decoder_cell_type, decoder_cell_type, NULL, cell_types,
                "recurrent cell of the decoder", RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, decoder_cell_units, decoder_cell_units, NULL, 1, 65536,
               "number of units of a decoder cell", RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, decoder_layers, decoder_layers, NULL, 1, RD_MAX_LAYERS,
               "number of decoder layers; with gnmt attention the attended bottom layer counts",
               RD_REQUIRED(ALWAYS)),
    RD_OPT_REAL(T, decoder_dp_input_keep_prob, dec_in, NULL, 0.001, 1,
                "probability that an input of a decoder layer is kept; 1 outside training",
                RD_REQUIRED(TRAINING)),
    RD_OPT_REAL(T, decoder_dp_output_keep_prob, dec_out, NULL, 0.001, 1,
                "probability that an output of a decoder layer is kept; 1 outside training",
                RD_REQUIRED(TRAINING)),
    RD_OPT_BOOL(T, decoder_use_skip_connections, dec_skip, NULL,
                "adds a residual connection around every decoder layer, and a dense layer in "
                "front. Required unless attention_type is gnmt or gnmt_v2",
                RD_GIVEN(T, has_dec_skip)),
    RD_OPT_INT(T, tgt_emb_size, tgt_emb_size, NULL, 1, 65536, "width of the target embedding",
               RD_REQUIRED(ALWAYS)),
    RD_OPT_ENUM(T, attention_type, attention_type, NULL, attention_types,
                "score function and structure of the decoder", RD_REQUIRED(ALWAYS)),
    RD_OPT_INT(T, attention_layer_size, attention_layer_size, NULL, 1, 65536,
               "depth of the attention score; for luong the width of the decoder's output",
               RD_REQUIRED(ALWAYS)),
    RD_OPT_BOOL(T, bahdanau_normalize, bahdanau_normalize, "false",
                "weight-normalised score for bahdanau; the gnmt types always have it", RD_CARRIED),
    RD_OPT_BOOL(T, luong_scale, luong_scale, "false",
                "multiplies the luong score by a learned scalar", RD_CARRIED),
    RD_OPT_BOOL(T, use_attention, use_attention, "false", "attention is always on",
                RD_WITHOUT_EFFECT),
    RD_OPT_REAL(T, softmax_temperature, softmax_temperature, "1.0", 1e-3, 1e3,
                "the logits are divided by this, in training too"),
    RD_OPT_BOOL(T, use_swap_memory, use_swap_memory, "false", "was a hint about GPU memory",
                RD_WITHOUT_EFFECT),
    RD_OPT_INT(T, proj_size, proj_size, "0", 0, 65536,
               "width of the recurrent projection of lstm and glstm cells. 0: none", RD_CARRIED),
    RD_OPT_INT(T, num_groups, num_groups, "0", 0, 64, "number of groups of glstm cells",
               RD_CARRIED),
    RD_OPT_INT(T, num_units, num_units, "0", 0, 65536,
               "has no effect: the *_cell_units keys count"),
    RD_OPT_REAL(T, init_scale, init_scale, NULL, 0, 100,
                "kernels and embeddings start uniform in (-init_scale, init_scale) instead of "
                "Glorot"),
    RD_AVERAGE_ROW(T),
    RD_PAD_ROW(T),
    RD_OPT_END,
};
#undef T
static const rd_option_group group = {
    "seq2seq", "model seq2seq: recurrent encoder, attention decoder", rows, sizeof(seq2seq_config)};

typedef struct seq2seq {
    seq2seq_config c;
    rd_encoder enc;
    rd_decoder dec;
    rd_params *ps;
} seq2seq;

static bool gnmt_attention(const seq2seq_config *c)
{
    return c->attention_type == ATTENTION_GNMT || c->attention_type == ATTENTION_GNMT_V2;
}

static bool is_cell(const char *type, const char *name)
{
    return strcmp(type, name) == 0;
}

/* Checks that the keys fit together, as in OpenSeq2Seq 4.11. R_enc, R_dec: output widths of the
 * cells. */
static rd_code check(const seq2seq_config *c, const rd_config *cfg, int64_t R_enc, int64_t R_dec,
                     rd_status *st)
{
    const bool gnmt_att = gnmt_attention(c), gnmt_enc = c->encoder_type == ENCODER_GNMT;
    if (!gnmt_enc && !c->has_enc_skip)
        return rd_fail(
            st, RD_EUSAGE,
            "key 'encoder_use_skip_connections' is missing; encoder_type %s needs true or false",
            encoder_types[c->encoder_type]);
    if (!gnmt_att && !c->has_dec_skip)
        return rd_fail(
            st, RD_EUSAGE,
            "key 'decoder_use_skip_connections' is missing; attention_type %s needs true or false",
            attention_types[c->attention_type]);
    if (c->attention_type == ATTENTION_LUONG && c->attention_layer_size != R_dec)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'attention_layer_size' is %" PRId64 ", but luong attention needs the "
                       "decoder's output width, %" PRId64,
                       rd_config_where(cfg, "attention_layer_size"), c->attention_layer_size,
                       R_dec);
    if (!gnmt_enc && c->enc_skip && c->src_emb_size != R_enc)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'encoder_use_skip_connections' needs 'src_emb_size' (%" PRId64
                       ") equal to the encoder cell's output width (%" PRId64
                       "): proj_size, else encoder_cell_units",
                       rd_config_where(cfg, "encoder_use_skip_connections"), c->src_emb_size,
                       R_enc);
    if (!gnmt_att && c->dec_skip && c->decoder_cell_units != R_dec)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'decoder_use_skip_connections' needs 'decoder_cell_units' (%" PRId64
                       ") equal to the decoder cell's output width (%" PRId64
                       "); remove proj_size or the skip connections",
                       rd_config_where(cfg, "decoder_use_skip_connections"), c->decoder_cell_units,
                       R_dec);
    if (gnmt_att && !rd_cell_find(c->decoder_cell_type)->has_c)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'decoder_cell_type' %s does not go with attention_type %s, which "
                       "needs an LSTM-type state; use lstm, glstm or slstm, or attention_type "
                       "bahdanau",
                       rd_config_where(cfg, "decoder_cell_type"), c->decoder_cell_type,
                       attention_types[c->attention_type]);
    if (gnmt_enc && c->encoder_layers < 2)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'encoder_layers' is %" PRId64 "; encoder_type gnmt needs 2 or more (a "
                       "bidirectional one and one above it)",
                       rd_config_where(cfg, "encoder_layers"), c->encoder_layers);
    if ((is_cell(c->encoder_cell_type, "glstm") || is_cell(c->decoder_cell_type, "glstm")) &&
        c->num_groups < 1)
        return rd_fail(st, RD_EUSAGE, "key 'num_groups' is missing; glstm cells need it");
    return RD_OK;
}

static void destroy(void *self)
{
    free(self);
}

static rd_code seq2seq_create(const rd_model_args *a, void **self, rd_status *st)
{
    seq2seq *m = *self = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for the model");
    seq2seq_config *c = &m->c;
    m->ps = a->params;
    RD_TRY(rd_config_read(a->config, &group, a->mode, c, st));
    const rd_cell_config ec = {c->encoder_cell_type,
                               c->encoder_cell_units,
                               c->proj_size,
                               c->num_groups,
                               c->enc_in,
                               c->enc_out};
    const rd_cell_config dc = {c->decoder_cell_type,
                               c->decoder_cell_units,
                               c->proj_size,
                               c->num_groups,
                               c->dec_in,
                               c->dec_out};
    RD_TRY(check(c, a->config, rd_cell_output_width(&ec), rd_cell_output_width(&dc), st));
    const rd_encoder_type et = c->encoder_type == ENCODER_GNMT ? RD_ENC_GNMT
                               : c->encoder_type == ENCODER_BI ? RD_ENC_BI
                                                               : RD_ENC_UNI;
    const bool luong = c->attention_type == ATTENTION_LUONG, wrapped = !gnmt_attention(c);
    const rd_attention_kind kind = luong ? (c->luong_scale ? RD_ATT_LUONG_SCALED : RD_ATT_LUONG)
                                   : wrapped && !c->bahdanau_normalize ? RD_ATT_BAHDANAU
                                                                       : RD_ATT_BAHDANAU_NORM;
    const rd_decoder_style style = wrapped                                  ? RD_DEC_WRAPPED
                                   : c->attention_type == ATTENTION_GNMT_V2 ? RD_DEC_GNMT_V2
                                                                            : RD_DEC_GNMT;
    if (!wrapped && is_cell(c->decoder_cell_type, "slstm") && c->decoder_layers > 1)
        rd_warn(a->log,
                "decoder_cell_type slstm has no recurrent input, so that with attention_type %s "
                "its upper layers never see the source",
                attention_types[c->attention_type]);
    uint32_t site = 0;
    RD_TRY(rd_encoder_add(a->params, et, (int)c->encoder_layers,
                          sequence_vocab(c->pad_vocabs_to_eight, a->data->src_vocab_size),
                          c->src_emb_size, &ec, c->enc_skip, a->seed, &site, &m->enc, st));
    RD_TRY(rd_decoder_add(a->params, style, kind, (int)c->decoder_layers,
                          sequence_vocab(c->pad_vocabs_to_eight, a->data->tgt_vocab_size),
                          c->tgt_emb_size, m->enc.M, c->attention_layer_size, &dc, c->dec_skip,
                          c->softmax_temperature, a->seed, &site, &m->dec, st));
done:
    if (st->code != RD_OK) {
        destroy(m);
        *self = NULL;
    }
    return st->code;
}

static rd_code loss(void *self, rd_tape *t, const rd_batch *b, rd_loss_out *out, rd_status *st)
{
    seq2seq *m = self;
    rd_arena *a = rd_tape_arena(t);
    const rd_field *sf, *tf;
    rd_packed_batch p;
    int64_t *steps, max_len;
    const int64_t *first, *len;
    int32_t *in, *target, *argmax, *shown;
    memset(out, 0, sizeof *out);
    RD_TRY(rd_tape_check(t, st));
    if (b->n == 0) return sequence_no_loss(t, out, st);
    RD_TRY(sequence_fields("seq2seq", b, &sf, &tf, st));
    const int32_t *src = sf->data, *tgt = tf->data;
    RD_TRY(rd_arena_get(a, (size_t)(b->n + 1) * sizeof *steps, &steps, st));
    for (int64_t i = 0; i < b->n; i++) {
        steps[i] = tf->off[i + 1] - tf->off[i] - 1; /* the end token is a target, not an input */
        if (steps[i] < 1 || sf->off[i + 1] - sf->off[i] < 1)
            return rd_fail(st, RD_EBUG, "sample %" PRId64 " has no tokens", b->sample[i]);
    }
    RD_TRY(rd_pack(a, b->n, steps, b->sample, &p, st));
    const int64_t N = p.p.off[p.p.n_steps];
    RD_TRY(rd_arena_get(a, (size_t)N * sizeof *in, &in, st));
    RD_TRY(rd_arena_get(a, (size_t)N * sizeof *target, &target, st));
    RD_TRY(rd_arena_get(a, (size_t)N * sizeof *argmax, &argmax, st));
    for (int64_t s = 0; s < p.p.n_steps; s++)
        for (int64_t i = 0; i < p.p.off[s + 1] - p.p.off[s]; i++) {
            const int32_t *y = tgt + tf->off[p.order[i]] + s;
            in[p.p.off[s] + i] = y[0];
            target[p.p.off[s] + i] = y[1];
        }
    rd_var *memory = rd_encoder_apply(t, &m->enc, b->n, src, sf->off, b->sample, (uint64_t)b->epoch,
                                      p.order, &first, &len, &max_len);
    RD_TRY(rd_tape_check(t, st));
    rd_var *top = rd_decoder_apply(t, &m->dec, &p.p, (uint64_t)b->epoch, in, memory, first, len);
    const rd_xent x = {.target = target,
                       .temperature = m->dec.temperature,
                       .loss_sum = &out->loss_sum,
                       .argmax = argmax};
    out->loss = rd_op_softmax_xent(t, &x, top, rd_tape_param(t, m->dec.W_out));
    RD_TRY(rd_tape_check(t, st));
    out->nll_sum = out->loss_sum;
    sequence_counts(b, sf, tf, N, m->c.average_across_timesteps, out);
    for (int64_t i = 0; i < N; i++) out->n_correct += argmax[i] == target[i];
    out->n_predicted = steps[0];
    RD_TRY(rd_arena_get(a, (size_t)(steps[0] + 1) * sizeof *shown, &shown, st));
    for (int64_t s = 0; s < steps[0]; s++) shown[s] = argmax[p.p.off[s] + p.rank[0]];
    out->predicted = shown;
done:
    return st->code;
}

static rd_code seq2seq_decode(void *self, rd_tape *t, const rd_batch *b, const rd_decode_config *c,
                              rd_decoded *out, rd_status *st)
{
    seq2seq *m = self;
    rd_arena *a = rd_tape_arena(t);
    const rd_field *sf = rd_batch_field(b, "source");
    int64_t *same, max_len;
    const int64_t *first, *len;
    rd_token_sets sets;
    const rd_token_sets *among;
    if (b->n == 0) return RD_OK;
    if (!sf) return rd_fail(st, RD_EBUG, "model seq2seq got a batch without source");
    RD_TRY(rd_arena_get(a, (size_t)b->n * sizeof *same, &same, st));
    for (int64_t i = 0; i < b->n; i++) same[i] = i;
    rd_var *memory = rd_encoder_apply(t, &m->enc, b->n, sf->data, sf->off, b->sample, 0, same,
                                      &first, &len, &max_len);
    RD_TRY(rd_tape_check(t, st));
    RD_TRY(sequence_sets(c, b, sf, a, &sets, &among, st));
    RD_TRY(rd_decoder_search(t, &m->dec, m->ps, b->n, memory, first, len, max_len, &c->search,
                             among, out, st));
done:
    return st->code;
}

static double matrix_elements(const rd_stack_layer *s)
{
    double n = 0.0;
    for (int i = 0; i < s->n_w; i++)
        if (s->w[i]->n_dim == 2) n += (double)s->w[i]->n;
    return n;
}

/* Returns 2 operations for each multiply-add: those of every matrix element and token, and those of
 * attention scores and contexts. Backward counts twice forward. */
static double flops(void *self, const rd_batch *b)
{
    const seq2seq *m = self;
    const rd_decoder *d = &m->dec;
    const rd_field *sf, *tf;
    rd_status st = {0};
    double enc = (double)d->memory_kernel->n, dec = (double)d->W_out->n, total = 0.0;
    if (b->n == 0 || sequence_fields("seq2seq", b, &sf, &tf, &st) != RD_OK) return 0.0;
    for (int l = 0; l < m->enc.n_layers; l++)
        enc += matrix_elements(&m->enc.fw[l]) + matrix_elements(&m->enc.bw[l]);
    for (int l = 0; l < d->n_layers; l++) dec += matrix_elements(&d->layer[l]);
    if (d->query_kernel) dec += (double)d->query_kernel->n;
    if (d->W_in) dec += (double)d->W_in->n;
    for (int64_t i = 0; i < b->n; i++) {
        const double S = (double)(sf->off[i + 1] - sf->off[i]),
                     T = (double)(tf->off[i + 1] - tf->off[i] - 1);
        total += S * enc + T * dec + S * T * (double)(d->A + d->M);
    }
    return 6.0 * total;
}

static rd_code seq2seq_graph(void *self, int k, rd_onnx *g, rd_status *st)
{
    const seq2seq *m = self;
    (void)st;
    return k == 0 ? rd_encoder_graph(g, m->ps, &m->enc, &m->dec)
                  : rd_decoder_graph(g, m->ps, &m->dec);
}

RD_MODEL(seq2seq) = {
    .name = "seq2seq",
    .about = "OpenSeq2Seq's recurrent encoder and attention decoder",
    .group = &rd_group_search,
    .own = &group,
    .default_dataset = "parallel_text",
    .usual_batch = 64,
    .create = seq2seq_create,
    .destroy = destroy,
    .loss = loss,
    .decode = seq2seq_decode,
    .flops = flops,
    .graphs = sequence_graphs,
    .graph = seq2seq_graph,
};
