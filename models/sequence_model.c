/* sequence_model.c -- what the models of sentence pairs share: the fields of a batch, counts. */
#include "sequence_model.h"
#include <string.h>

const char *const sequence_graphs[] = {"encoder", "decoder", NULL};

int64_t sequence_vocab(bool pad, int64_t n)
{
    return pad ? (n + 7) / 8 * 8 : n;
}

rd_code sequence_fields(const char *model, const rd_batch *b, const rd_field **src,
                        const rd_field **tgt, rd_status *st)
{
    *src = rd_batch_field(b, "source");
    *tgt = rd_batch_field(b, "target");
    return *src && *tgt ? RD_OK
                        : rd_fail(st, RD_EBUG,
                                  "model %s got a batch without source and target; it needs a "
                                  "dataset of sentence pairs",
                                  model);
}

rd_code sequence_no_loss(rd_tape *t, rd_loss_out *out, rd_status *st)
{
    float *nothing;
    RD_TRY(rd_arena_zero(rd_tape_arena(t), sizeof *nothing, &nothing, st));
    out->loss = rd_tape_const(t, nothing, 1, 1);
    return rd_tape_check(t, st);
done:
    return st->code;
}

void sequence_counts(const rd_batch *b, const rd_field *src, const rd_field *tgt, int64_t n_rows,
                     bool average, rd_loss_out *out)
{
    out->n_targets = (double)n_rows;
    out->weight = average ? (double)n_rows : (double)b->n;
    out->n_tokens_src = (double)(src->off[b->n] - src->off[0]);
    out->n_tokens_tgt = (double)(tgt->off[b->n] - tgt->off[0]);
}

rd_code sequence_sets(const rd_decode_config *c, const rd_batch *b, const rd_field *src,
                      rd_arena *a, rd_token_sets *sets, const rd_token_sets **out, rd_status *st)
{
    int64_t *at;
    int32_t *id;
    *out = NULL;
    if (!c->shortlist) return RD_OK;
    RD_TRY(rd_shortlist_sets(c->shortlist, b->n, src->data, src->off, a, &at, &id, st));
    *sets = (rd_token_sets){at, id};
    *out = sets;
done:
    return st->code;
}
