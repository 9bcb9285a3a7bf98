/* decoder.c -- the decoder of OpenSeq2Seq 4.5 and 4.6: its parameters, and teacher forcing.
 *
 * In the gnmt styles only the bottom layer is in the time loop of the attention. The upper layers
 * run layer by layer afterwards, because the contexts of all steps are then known. */
#include "rd/nn.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static rd_code matrix(rd_params *ps, const char *name, int64_t rows, int64_t cols, unsigned flags,
                      rd_param **out, rd_status *st)
{
    return rd_params_add(ps, name, 2, (int64_t[]){rows, cols},
                         (rd_init){RD_INIT_GLOROT, 0, rows, cols}, flags, out, st);
}

rd_code rd_decoder_add(rd_params *ps, rd_decoder_style style, rd_attention_kind kind, int n_layers,
                       int64_t vocab, int64_t emb, int64_t M, int64_t A, const rd_cell_config *c,
                       bool skip, double temperature, uint64_t seed, uint32_t *site, rd_decoder *d,
                       rd_status *st)
{
    const int64_t R = rd_cell_output_width(c);
    const bool wrapped = style == RD_DEC_WRAPPED,
               luong = kind == RD_ATT_LUONG || kind == RD_ATT_LUONG_SCALED;
    char name[64];
    memset(d, 0, sizeof *d);
    d->style = style;
    d->kind = kind;
    d->n_layers = n_layers;
    d->E = emb;
    d->M = M;
    d->A = A;
    d->R = R;
    d->H = c->units;
    d->V = vocab;
    d->temperature = (float)temperature;
    RD_TRY(matrix(ps, "tgt_embedding", vocab, emb, RD_PARAM_ROWS, &d->embedding, st));
    RD_TRY(matrix(ps, "attention/memory_kernel", M, A, 0, &d->memory_kernel, st));
    if (!luong) {
        RD_TRY(matrix(ps, "attention/query_kernel", R, A, 0, &d->query_kernel, st));
        RD_TRY(rd_params_add(ps, "attention/v", 1, &A, (rd_init){RD_INIT_GLOROT, 0, A, A}, 0, &d->v,
                             st));
    }
    if (kind == RD_ATT_BAHDANAU_NORM || kind == RD_ATT_LUONG_SCALED)
        RD_TRY(rd_params_add(ps, "attention/g", 0, NULL,
                             (rd_init){RD_INIT_CONST, luong ? 1.0 : sqrt(1.0 / (double)A), 0, 0}, 0,
                             &d->g, st));
    if (kind == RD_ATT_BAHDANAU_NORM)
        RD_TRY(rd_params_add(ps, "attention/b", 1, &A, (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &d->b,
                             st));
    if (wrapped && skip) {
        RD_TRY(matrix(ps, "decoder/input_kernel", emb + M, c->units, 0, &d->W_in, st));
        RD_TRY(rd_params_add(ps, "decoder/input_bias", 1, &c->units,
                             (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &d->b_in, st));
    }
    for (int l = 0; l < n_layers; l++) {
        const int64_t in = l > 0     ? R
                           : d->W_in ? c->units
                                     : emb + M,
                      extra = !wrapped && l > 0 ? M : 0;
        snprintf(name, sizeof name, "decoder/layer%d", l);
        RD_TRY(rd_stack_layer_add(ps, name, c, in, extra, true, wrapped ? skip : l >= 2, seed, site,
                                  &d->layer[l], st));
    }
    RD_TRY(matrix(ps, "output_kernel", wrapped ? M : R, vocab, 0, &d->W_out, st));
done:
    return st->code;
}

/* Returns the context of the previous step, zeros in step 0: the second input of the upper layers
 * of gnmt. */
static rd_var *one_step_late(rd_tape *t, const rd_packing *p, rd_var *ctx)
{
    rd_status *st = rd_tape_status(t);
    int64_t *idx;
    if (!ctx ||
        rd_arena_get(rd_tape_arena(t), (size_t)(ctx->rows + 1) * sizeof *idx, &idx, st) != RD_OK)
        return NULL;
    for (int64_t s = 0; s < p->n_steps; s++)
        for (int64_t i = 0; i < p->off[s + 1] - p->off[s]; i++)
            idx[p->off[s] + i] = s ? p->off[s - 1] + i : -1;
    return rd_op_pick(t, 1, &ctx, (const int64_t *[]){idx}, ctx->rows);
}

rd_var *rd_decoder_apply(rd_tape *t, rd_decoder *d, const rd_packing *p, uint64_t epoch,
                         const int32_t *ids, rd_var *memory, const int64_t *first,
                         const int64_t *len)
{
    rd_status *st = rd_tape_status(t);
    rd_var *w[RD_MAX_LAYERS * RD_LAYER_PARAMS], *ctx;
    const bool wrapped = d->style == RD_DEC_WRAPPED;
    int n_w = 0;
    rd_attn_decoder *a;
    if (rd_arena_zero(rd_tape_arena(t), sizeof *a, &a, st) != RD_OK) return NULL;
    *a = (rd_attn_decoder){.kind = d->kind,
                           .packing = *p,
                           .src_first = first,
                           .src_len = len,
                           .n_layers = wrapped ? d->n_layers : 1};
    for (int l = 0; l < a->n_layers; l++) {
        a->layer[l] = d->layer[l].l;
        a->layer[l].drop_in.epoch = a->layer[l].drop_out.epoch = epoch;
        a->n_w[l] = d->layer[l].n_w;
        for (int i = 0; i < d->layer[l].n_w; i++) w[n_w++] = rd_tape_param(t, d->layer[l].w[i]);
    }
    rd_var *emb = rd_op_embed(t, rd_tape_param(t, d->embedding), ids, p->off[p->n_steps]);
    rd_var *keys = rd_op_linear(t, memory, rd_tape_param(t, d->memory_kernel), NULL);
    rd_var *q = rd_op_attention_decoder(t, a, emb, memory, keys, rd_tape_param(t, d->query_kernel),
                                        rd_tape_param(t, d->v), rd_tape_param(t, d->g),
                                        rd_tape_param(t, d->b), rd_tape_param(t, d->W_in),
                                        rd_tape_param(t, d->b_in), w, &ctx);
    if (wrapped) return ctx;
    rd_var *att = d->style == RD_DEC_GNMT_V2 || d->n_layers == 1 ? ctx : one_step_late(t, p, ctx);
    return rd_stack_apply(t, d->n_layers - 1, d->layer + 1, p, epoch, q, att);
}
