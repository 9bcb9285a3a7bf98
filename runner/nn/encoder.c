/* encoder.c -- the encoders of OpenSeq2Seq 4.4.
 *
 * The backward direction reads each sentence from its end: in packed order, step t of sequence i is
 * token len_i - 1 - t. So both directions have the same packing, and there is no padding. */
#include "rd/nn.h"
#include <stdio.h>
#include <string.h>

rd_code rd_encoder_add(rd_params *ps, rd_encoder_type type, int n_layers, int64_t vocab,
                       int64_t emb, const rd_cell_config *c, bool skip, uint64_t seed,
                       uint32_t *site, rd_encoder *e, rd_status *st)
{
    const int64_t R = rd_cell_output_width(c);
    char name[64];
    memset(e, 0, sizeof *e);
    e->type = type;
    e->n_layers = n_layers;
    e->M = type == RD_ENC_BI ? 2 * R : R;
    RD_TRY(rd_params_add(ps, "src_embedding", 2, (int64_t[]){vocab, emb},
                         (rd_init){RD_INIT_GLOROT, 0, vocab, emb}, RD_PARAM_ROWS, &e->embedding,
                         st));
    for (int l = 0; l < n_layers; l++) {
        const int64_t below = l == 0 ? emb : R;
        if (type == RD_ENC_UNI) {
            snprintf(name, sizeof name, "encoder/layer%d", l);
            RD_TRY(rd_stack_layer_add(ps, name, c, below, 0, true, skip, seed, site, &e->fw[l],
                                      st));
        } else if (type == RD_ENC_BI || l == 0) {
            const bool gnmt = type == RD_ENC_GNMT;
            snprintf(name, sizeof name, gnmt ? "encoder/layer%d/fw" : "encoder/fw/layer%d", l);
            RD_TRY(rd_stack_layer_add(ps, name, c, below, 0, !gnmt, skip && !gnmt, seed, site,
                                      &e->fw[l], st));
            snprintf(name, sizeof name, gnmt ? "encoder/layer%d/bw" : "encoder/bw/layer%d", l);
            RD_TRY(rd_stack_layer_add(ps, name, c, below, 0, !gnmt, skip && !gnmt, seed, site,
                                      &e->bw[l], st));
        } else {
            snprintf(name, sizeof name, "encoder/layer%d", l);
            RD_TRY(rd_stack_layer_add(ps, name, c, l == 1 ? 2 * R : R, 0, true, l >= 2, seed, site,
                                      &e->fw[l], st));
        }
    }
done:
    return st->code;
}

/* Returns the packed row of token `pos` of the sequence at packed position i, in the forward or
 * backward direction. */
static int64_t row_of(const rd_packed_batch *b, int64_t i, int64_t pos, bool backward)
{
    return b->p.off[backward ? b->len[i] - 1 - pos : pos] + i;
}

rd_var *rd_encoder_apply(rd_tape *t, rd_encoder *e, int64_t n, const int32_t *src,
                         const int64_t *off, const int64_t *sample, uint64_t epoch,
                         const int64_t *sentence, const int64_t **first_out,
                         const int64_t **len_out, int64_t *max_len)
{
    rd_arena *a = rd_tape_arena(t);
    rd_status *st = rd_tape_status(t);
    rd_packed_batch b;
    int64_t *steps, *first, *len, *ifw, *ibw;
    int32_t *ids[2];
    if (st->code != RD_OK) return NULL;
    const int64_t N = off[n] - off[0];
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *steps, &steps, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *first, &first, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *len, &len, st));
    for (int64_t i = 0; i < n; i++) steps[i] = off[i + 1] - off[i];
    RD_TRY(rd_pack(a, n, steps, sample, &b, st));
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *ids[0], &ids[0], st));
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *ids[1], &ids[1], st));
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *ifw, &ifw, st));
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *ibw, &ibw, st));
    for (int64_t i = 0; i < n; i++)
        for (int64_t pos = 0; pos < b.len[i]; pos++)
            for (int w = 0; w < 2; w++) ids[w][row_of(&b, i, pos, w)] = src[off[b.order[i]] + pos];

    const rd_packing *p = &b.p;
    rd_var *table = rd_tape_param(t, e->embedding), *fw = rd_op_embed(t, table, ids[0], N),
           *bw = NULL;
    if (e->type != RD_ENC_UNI) bw = rd_op_embed(t, table, ids[1], N);
    for (int l = 0; l < e->n_layers; l++) {
        if (!bw) { /* the rest of the layers has one direction */
            fw = rd_stack_apply(t, e->n_layers - l, e->fw + l, p, epoch, fw, NULL);
            break;
        }
        fw = rd_stack_layer_apply(t, &e->fw[l], p, epoch, fw, NULL);
        bw = rd_stack_layer_apply(t, &e->bw[l], p, epoch, bw, NULL);
        if (e->type != RD_ENC_GNMT) continue;
        /* Layer 1 of gnmt reads both directions, in packed order. */
        for (int64_t i = 0; i < n; i++)
            for (int64_t pos = 0; pos < b.len[i]; pos++) {
                const int64_t r = row_of(&b, i, pos, false);
                ifw[r] = r;
                ibw[r] = row_of(&b, i, pos, true);
            }
        fw = rd_op_pick(t, 2, (rd_var *[]){fw, bw}, (const int64_t *[]){ifw, ibw}, N);
        bw = NULL;
        /* The record borrows the index lists, so the lists of the memory need new arrays. */
        RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *ifw, &ifw, st));
    }
    int64_t m = 0;
    *max_len = 1;
    for (int64_t k = 0; k < n; k++) { /* in the order that the caller wants */
        const int64_t i = b.rank[sentence[k]];
        first[k] = m;
        len[k] = b.len[i];
        *max_len = len[k] > *max_len ? len[k] : *max_len;
        for (int64_t pos = 0; pos < len[k]; pos++, m++) {
            ifw[m] = row_of(&b, i, pos, false);
            if (bw) ibw[m] = row_of(&b, i, pos, true);
        }
    }
    *first_out = first;
    *len_out = len;
    return rd_op_pick(t, bw ? 2 : 1, (rd_var *[]){fw, bw}, (const int64_t *[]){ifw, ibw}, N);
done:
    return NULL;
}
