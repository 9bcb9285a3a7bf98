/* stack.c -- recurrent layers with their parameters, and the packing of a batch. See nn.h. */
#include "rd/nn.h"
#include "rd/cell.h"
#include <stdio.h>
#include <string.h>

int64_t rd_cell_output_width(const rd_cell_config *c)
{
    const rd_cell_def *d = rd_cell_find(c->type);
    return d && d->can_project && c->proj_size > 0 ? c->proj_size : c->units;
}

typedef struct declaring {
    rd_params *ps;
    const char *prefix;
    rd_stack_layer *out;
} declaring;

static rd_code emit(void *ctx, const char *name, int n_dim, const int64_t *dim, rd_init init,
                    rd_status *st)
{
    declaring *d = ctx;
    char full[160];
    if (d->out->n_w >= RD_LAYER_PARAMS)
        return rd_fail(st, RD_EBUG, "a cell has more than %d parameters", RD_LAYER_PARAMS);
    snprintf(full, sizeof full, "%s/%s", d->prefix, name);
    if (rd_params_add(d->ps, full, n_dim, dim, init, 0, &d->out->w[d->out->n_w], st) != RD_OK)
        return st->code;
    d->out->n_w++;
    return RD_OK;
}

rd_code rd_stack_layer_add(rd_params *ps, const char *prefix, const rd_cell_config *c, int64_t in,
                           int64_t extra, bool dropout, bool residual, uint64_t seed,
                           uint32_t *site, rd_stack_layer *out, rd_status *st)
{
    memset(out, 0, sizeof *out);
    const rd_cell_def *d = rd_cell_find(c->type);
    if (!d)
        return rd_fail(st, RD_EUSAGE, "cell type '%s' is unknown; use lstm, gru, glstm or slstm",
                       c->type);
    if (extra > 0 && !d->has_c)
        return rd_fail(st, RD_EUSAGE,
                       "cell type '%s' does not go with attention_type gnmt or gnmt_v2, which need "
                       "an LSTM-type state; use lstm, glstm or slstm, or attention_type bahdanau",
                       c->type);
    out->l.cell = d;
    out->l.shape = (rd_cell_shape){.in = in,
                                   .H = c->units,
                                   .R = rd_cell_output_width(c),
                                   .extra = extra,
                                   .groups = c->num_groups,
                                   .projects = d->can_project && c->proj_size > 0};
    out->l.residual = residual;
    out->l.drop_in = (rd_dropout){
        .seed = seed, .site = (*site)++, .keep = dropout ? (float)c->keep_in : 1.0f};
    out->l.drop_out = (rd_dropout){
        .seed = seed, .site = (*site)++, .keep = dropout ? (float)c->keep_out : 1.0f};
    declaring x = {ps, prefix, out};
    return d->declare(&out->l.shape, emit, &x, st);
}

rd_var *rd_stack_layer_apply(rd_tape *t, rd_stack_layer *s, const rd_packing *p, uint64_t epoch,
                             rd_var *x, rd_var *att)
{
    rd_var *w[RD_LAYER_PARAMS];
    rd_layer l = s->l;
    l.drop_in.epoch = l.drop_out.epoch = epoch;
    for (int i = 0; i < s->n_w; i++) w[i] = rd_tape_param(t, s->w[i]);
    return rd_op_rnn_layer(t, &l, p, x, att, w, s->n_w);
}

rd_var *rd_stack_apply(rd_tape *t, int n, rd_stack_layer *s, const rd_packing *p, uint64_t epoch,
                       rd_var *x, rd_var *att)
{
    rd_var *w[RD_MAX_LAYERS * RD_LAYER_PARAMS];
    rd_layer l[RD_MAX_LAYERS];
    int n_w = 0;
    if (n == 0) return x;
    for (int k = 0; k < n; k++) {
        l[k] = s[k].l;
        l[k].drop_in.epoch = l[k].drop_out.epoch = epoch;
        for (int i = 0; i < s[k].n_w; i++) w[n_w++] = rd_tape_param(t, s[k].w[i]);
    }
    return rd_op_rnn_stack(t, n, l, p, x, att, w, s[0].n_w);
}

rd_code rd_pack(rd_arena *a, int64_t n, const int64_t *steps, const int64_t *sample,
                rd_packed_batch *out, rd_status *st)
{
    int64_t *order, *rank, *len, *off, *ids, *count, longest = 0;
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < n; i++) longest = steps[i] > longest ? steps[i] : longest;
    const size_t per_row = (size_t)(n + 1) * sizeof(int64_t),
                 per_step = (size_t)(longest + 2) * sizeof(int64_t);
    RD_TRY(rd_arena_get(a, per_row, &order, st));
    RD_TRY(rd_arena_get(a, per_row, &rank, st));
    RD_TRY(rd_arena_get(a, per_row, &len, st));
    RD_TRY(rd_arena_get(a, per_row, &ids, st));
    RD_TRY(rd_arena_zero(a, per_step, &off, st));
    RD_TRY(rd_arena_zero(a, per_step, &count, st));
    /* A stable counting sort, longest first. */
    for (int64_t i = 0; i < n; i++) count[longest - steps[i]]++;
    int64_t sum = 0;
    for (int64_t b = 0; b <= longest; b++) {
        const int64_t c = count[b];
        count[b] = sum;
        sum += c;
    }
    for (int64_t i = 0; i < n; i++) order[count[longest - steps[i]]++] = i;
    for (int64_t i = 0; i < n; i++) {
        rank[order[i]] = i;
        len[i] = steps[order[i]];
        ids[i] = sample[order[i]];
    }
    int64_t running = n;
    for (int64_t t = 0; t < longest; t++) {
        while (running > 0 && len[running - 1] <= t) running--;
        off[t + 1] = off[t] + running;
    }
    if (longest == 0) off[1] = 0;
    *out = (rd_packed_batch){
        .p = {longest, off, ids}, .n = n, .order = order, .rank = rank, .len = len};
done:
    return st->code;
}
