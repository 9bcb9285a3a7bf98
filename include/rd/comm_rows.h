/* comm_rows.h -- sums over the ranks of tables of which a step fills few rows: gradients of embeddings. Only rows that
 * some rank has touched are read, sent and written, and the result has the bytes that rd_comm_sum_f32 over the whole
 * table gives. Rows are sets of bits: row i is bit i % 64 of word i / 64; bits behind the last row do not count. */
#ifndef RD_COMM_ROWS_H
#define RD_COMM_ROWS_H

#include "rd/comm.h"

RD_C_BEGIN

typedef struct rd_comm_rows rd_comm_rows;
/* Collective. A table of rows x dim floats. c is borrowed and outlives *out, which the caller owns. A shared arena that
 * the table lies in must be there already. wire: how numbers travel where there are several hosts. */
rd_code rd_comm_rows_new(rd_comm *c, int64_t rows, int64_t dim, rd_wire wire, rd_comm_rows **out,
                         rd_status *st);
void rd_comm_rows_free(rd_comm_rows *t); /* NULL is fine; not collective */

/* Collective. x[rows * dim] becomes the sum over all ranks; in the shared arena of all of them, at one place, or of
 * none. touched, in: rows that this rank may have written; the others hold +0.0. Out: those of any rank, the same on
 * all, as is *n_summed (may be NULL): how many these are. A row of more than a million numbers, or a table beside the
 * arena, may be summed whole: then these are all rows. In a world of one nothing happens. */
rd_code rd_comm_sum_rows_f32(rd_comm_rows *t, float *x, uint64_t *touched, int64_t *n_summed,
                             rd_status *st);
int64_t rd_comm_rows_sent(
    const rd_comm_rows *t); /* bytes that this rank has sent to other hosts so far */

/* ---- sets of rows; of the calling rank alone ---- */
int64_t rd_row_set_words(int64_t rows);
void rd_row_set_fill(uint64_t *set, int64_t rows); /* all of them */
int64_t rd_row_set_count(const uint64_t *set, int64_t rows);
/* x[rows * dim]: zeroes the rows of the set; where these are many, all. */
void rd_row_set_zero(float *x, int64_t rows, int64_t dim, const uint64_t *set);

RD_C_END
#endif
