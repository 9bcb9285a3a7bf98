/* attention_decoder.c -- the op of a decoder with input feeding. shared/attention_loop.c computes
 * it on both devices; a GPU computes plain LSTM layers as attention_decoder.cu does. */
#include "shared/attention_loop.h"
#include <inttypes.h>

static rd_code attention_decoder_infer(rd_call *c, rd_status *st)
{
    const rd_attn_decoder *d = c->attr;
    const int64_t N = d->packing.off[d->packing.n_steps],
                  wide = c->in[RD_LOOP_EMB]->cols + c->in[RD_LOOP_MEMORY]->cols;
    if (d->n_layers < 1 || d->n_layers > RD_MAX_LAYERS)
        return rd_fail(st, RD_EBUG, "attention_decoder: %d layers; 1 to %d are allowed",
                       d->n_layers, RD_MAX_LAYERS);
    const rd_layer *top = &d->layer[d->n_layers - 1];
    if (c->in[RD_LOOP_EMB]->rows != N ||
        d->layer[0].shape.in != (c->in[RD_LOOP_W] ? c->in[RD_LOOP_W]->cols : wide) ||
        (c->in[RD_LOOP_W] && c->in[RD_LOOP_W]->rows != wide))
        return rd_fail(st, RD_EBUG,
                       "attention_decoder: inputs of %" PRId64 " rows, %" PRId64
                       " wide, do not fit",
                       c->in[RD_LOOP_EMB]->rows, wide);
    /* luong has no query kernel: the query itself is multiplied with the keys. */
    const rd_var *query = c->in[RD_LOOP_QUERY];
    const int64_t depth = c->in[RD_LOOP_KEYS]->cols;
    if ((query ? query->rows : depth) != top->shape.R || (query && query->cols != depth) ||
        c->in[RD_LOOP_KEYS]->rows != c->in[RD_LOOP_MEMORY]->rows)
        return rd_fail(st, RD_EBUG,
                       "attention_decoder: a query of width %" PRId64
                       " does not fit keys of %" PRId64,
                       top->shape.R, depth);
    c->out[0]->rows = c->out[1]->rows = N;
    c->out[0]->cols = top->shape.R;
    c->out[1]->cols = c->in[RD_LOOP_MEMORY]->cols;
    return RD_OK;
}

RD_OP(attention_decoder) = {.name = "attention_decoder",
                            .about = "decoder loop with input feeding and attention",
                            .infer = attention_decoder_infer,
                            .kernel = {[RD_CPU] = {rd_attn_loop_forward, rd_attn_loop_backward},
                                       [RD_GPU] = RD_GPU_KERNEL(attention_decoder)}};

rd_var *rd_op_attention_decoder(rd_tape *t, const rd_attn_decoder *d, rd_var *emb, rd_var *memory,
                                rd_var *keys, rd_var *query_kernel, rd_var *v, rd_var *g, rd_var *b,
                                rd_var *W_in, rd_var *b_in, rd_var *const *w, rd_var **ctx_out)
{
    rd_var *in[RD_MAX_IN] = {emb, memory, keys, query_kernel, v, g, b, W_in, b_in},
           *out[2] = {NULL, NULL};
    int n = RD_LOOP_CELLS, n_w = 0;
    for (int l = 0; l < d->n_layers; l++) n_w += d->n_w[l];
    *ctx_out = NULL;
    if (!emb || !memory || !keys) return NULL;
    if (n + n_w > RD_MAX_IN) {
        rd_fail(rd_tape_status(t), RD_EUSAGE,
                "the decoder has %d parameters; at most %d are allowed; use fewer layers or groups",
                n_w, RD_MAX_IN - n);
        return NULL;
    }
    for (int i = 0; i < n_w; i++)
        if (!(in[n++] = w[i])) return NULL;
    rd_var *q = rd_tape_apply(t, &rd_op_def_attention_decoder, d, sizeof *d, in, n, out, 2);
    *ctx_out = out[1];
    return q;
}
