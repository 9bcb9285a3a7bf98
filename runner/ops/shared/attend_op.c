/* attend_op.c -- functions that attend.c and attend.cu share; see attend.h. */
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
