/* attend_op.c -- functions of attention for CPUs and GPUs; see attend.h. */
#include "../attend.h"

int64_t rd_attend_rows(const rd_attend *a)
{
    int64_t n = 0;
    for (int64_t s = 0; s < a->n; s++) n += a->q_len[s];
    return n;
}

bool rd_attend_drops(const rd_call *c)
{
    return c->training && ((const rd_attend *)c->attr)->drop.keep < 1.0f;
}

rd_key rd_attend_key(const rd_attend *a, int64_t head)
{
    return rd_key_make(a->drop.seed, RD_RNG_DROPOUT, a->drop.site + (uint64_t)head, a->drop.epoch);
}

rd_code rd_attend_list(rd_arena *kept, const rd_attend *a, rd_attend_seq **seq, int64_t *mask_bytes,
                       rd_status *st)
{
    int64_t at = 0;
    RD_TRY(rd_arena_get(kept, (size_t)(a->n + 1) * sizeof **seq, seq, st));
    for (int64_t s = 0; s < a->n; s++) {
        (*seq)[s] = (rd_attend_seq){a->q_first[s],
                                    a->q_len[s],
                                    a->k_first[s],
                                    a->k_len[s],
                                    a->sample ? a->sample[s] : 0,
                                    at};
        at += a->n_heads * a->q_len[s] * rd_attend_mask_bytes(a->k_len[s]);
    }
    *mask_bytes = at;
done:
    return st->code;
}

rd_code rd_attend_tiles(rd_call *c, bool keys, int64_t per_block, const rd_attend_tile **out,
                        int64_t *n, rd_status *st)
{
    const rd_attend *a = c->attr;
    const int64_t *len = keys ? a->k_len : a->q_len;
    rd_attend_tile *list;
    int64_t most = 0, at = 0;
    *n = 0;
    for (int64_t s = 0; s < a->n; s++) {
        const int64_t tiles = (len[s] + per_block - 1) / per_block;
        *n += tiles;
        if (tiles > most) most = tiles;
    }
    RD_TRY(rd_arena_get(c->scratch, (size_t)(*n + 1) * sizeof *list, &list, st));
    /* The last query rows see the most keys, the first keys are seen by the most queries. */
    for (int64_t k = 0; k < most; k++)
        for (int64_t s = 0; s < a->n; s++) {
            const int64_t tiles = (len[s] + per_block - 1) / per_block;
            if (k < tiles)
                list[at++] = (rd_attend_tile){
                    (int32_t)s, (int32_t)((a->causal && !keys ? tiles - 1 - k : k) * per_block)};
        }
    RD_TRY(rd_call_lend(c, c->device_scratch, list, (size_t)(*n + 1) * sizeof *list, out, st));
done:
    return st->code;
}

rd_code rd_attend_mask_keys(rd_call *c, const rd_key **out, rd_status *st)
{
    const rd_attend *a = c->attr;
    rd_key *key;
    *out = NULL;
    if (!rd_attend_drops(c)) return st->code;
    RD_TRY(rd_arena_get(c->scratch, (size_t)a->n_heads * sizeof *key, &key, st));
    for (int64_t h = 0; h < a->n_heads; h++) key[h] = rd_attend_key(a, h);
    RD_TRY(rd_call_lend(c, c->device_scratch, key, (size_t)a->n_heads * sizeof *key, out, st));
done:
    return st->code;
}
