/* attend.h -- declarations that attend.c and attend.cu share. */
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

RD_C_END
#endif
