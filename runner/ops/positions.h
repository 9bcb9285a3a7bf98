/* positions.h -- declarations that positions.c and positions.cu share. */
#ifndef RD_POSITIONS_H
#define RD_POSITIONS_H

#include "rd/ops.h"
#include "shared/image_op.h"

RD_C_BEGIN

/* The positions that occur among N rows, in memory of the arena. */
typedef struct rd_position_set {
    int64_t n;
    const int64_t *position; /* [n], increasing */
    const int32_t *row;      /* [N] the index of each row's position */
} rd_position_set;
rd_code rd_position_set_of(rd_arena *a, int64_t N, const int64_t *position, rd_position_set *out,
                           rd_status *st);

/* The table of the encodings that a call needs. Element (p, k) is sin or cos of position[p] times
 * the rate of column k. */
typedef struct rd_position_table {
    int64_t n;               /* number of rows, one for each position that occurs */
    const int64_t *position; /* [n], increasing */
    const int32_t *row;      /* [N] row of the table for each row of x */
    const double *rate;      /* [d] */
    const uint8_t *cosine;   /* [d] 0: sin; 1: cos */
} rd_position_table;
/* Lists the positions of a call in its scratch. */
rd_code rd_position_list(rd_call *c, rd_position_table *out, rd_status *st);

/* Computes y (+)= scale x, n elements of the type of the input. y may be x. */
typedef rd_code rd_position_scale(rd_call *c, int64_t n, float scale, const void *x, void *y,
                                  bool add, rd_status *st);
/* Runs backward with this pass. */
rd_code rd_positions_back(rd_call *c, rd_position_scale *pass, rd_status *st);

RD_C_END
#endif
