/* attend.h -- declarations that attend.c and the .cu files of attention share. */
#ifndef RD_ATTEND_H
#define RD_ATTEND_H

#include "rd/ops.h"
#include "rd/philox.h"

RD_C_BEGIN

/* One sequence, as kernels read it. */
typedef struct rd_attend_seq {
    int64_t q_first, q_len; /* rows of the queries */
    int64_t k_first, k_len; /* rows of the keys, or entries of key_row */
    int64_t sample;         /* global sample id */
    int64_t mask;           /* byte of its first mask, head by head, row by row */
} rd_attend_seq;

/* What forward leaves for backward. */
typedef struct rd_attend_saved {
    float *lse;         /* [n_heads, Nq] log of the sum of exponentials of each row */
    uint8_t *mask;      /* bits of rd_philox_keep, rows of rd_attend_mask_bytes; NULL: no dropout */
    rd_attend_seq *seq; /* [n] where kernels read it */
} rd_attend_saved;

/* Some rows of a sequence from row0 on: the work of one block of threads for each head. */
typedef struct rd_attend_tile {
    int32_t seq, row0;
} rd_attend_tile;

/* Returns the number of query rows. */
int64_t rd_attend_rows(const rd_attend *a);
/* Returns the bytes of a row of the mask: whole words of 32 bits. */
static inline int64_t rd_attend_mask_bytes(int64_t k_len)
{
    return (k_len + 31) / 32 * 4;
}
/* Returns whether the op drops anything in this call. */
bool rd_attend_drops(const rd_call *c);
/* Returns the key of the masks of a head. */
rd_key rd_attend_key(const rd_attend *a, int64_t head);
/* Lists the sequences in the host memory `kept`, and returns the bytes of all masks. */
rd_code rd_attend_list(rd_arena *kept, const rd_attend *a, rd_attend_seq **seq, int64_t *mask_bytes,
                       rd_status *st);
/* Lists tiles of `per_block` rows of the queries, or of the keys, where kernels read them. If the
 * mask is causal, tiles with the most work come first. */
rd_code rd_attend_tiles(rd_call *c, bool keys, int64_t per_block, const rd_attend_tile **out,
                        int64_t *n, rd_status *st);
/* Returns in *out the keys of the masks of all heads, where kernels read them; NULL if the op drops
 * nothing. */
rd_code rd_attend_mask_keys(rd_call *c, const rd_key **out, rd_status *st);

RD_C_END
#endif
