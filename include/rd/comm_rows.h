/* comm_rows.h -- sums tables over the ranks if a step fills few rows of them: gradients of
 * embeddings.
 *
 * Only rows that some rank has touched are read, sent and written. The result has the same bytes as
 * rd_comm_sum_f32 over the whole table. A set of rows is an array of bits: row i is bit i % 64 of
 * word i / 64. Bits after the last row do not count. */
#ifndef RD_COMM_ROWS_H
#define RD_COMM_ROWS_H

#include "rd/comm.h"

RD_C_BEGIN

typedef struct rd_comm_rows rd_comm_rows;
/* Collective. Prepares sums of a table of rows x dim floats. c is borrowed and outlives *out, which
 * the caller owns. If the table is in the communicator's arena, the arena must exist already. wire:
 * the type that numbers have between hosts. */
rd_code rd_comm_rows_new(rd_comm *c, int64_t rows, int64_t dim, rd_wire wire, rd_comm_rows **out,
                         rd_status *st);
void rd_comm_rows_free(rd_comm_rows *t); /* NULL is fine; not collective */

/* Collective. Replaces x[rows * dim] by its sum over all ranks. x is in the communicator's arena on
 * all ranks, at the same place, or on none. touched, in: the rows that this rank may have written;
 * all other rows hold +0.0. touched, out: the rows that any rank may have written, the same on all
 * ranks. *n_summed: their number; NULL is fine. If a row has more than a million numbers, or the
 * table is outside the arena, the table may be summed whole; these are then all rows. With one rank
 * nothing happens. */
rd_code rd_comm_sum_rows_f32(rd_comm_rows *t, float *x, uint64_t *touched, int64_t *n_summed,
                             rd_status *st);
/* Returns the bytes that this rank has sent to other hosts so far. */
int64_t rd_comm_rows_sent(const rd_comm_rows *t);

/* ---- sets of rows, on the calling rank alone ---- */

/* Returns the number of words of a set. */
int64_t rd_row_set_words(int64_t rows);
/* Adds all rows to the set. */
void rd_row_set_fill(uint64_t *set, int64_t rows);
/* Returns the number of rows in the set. */
int64_t rd_row_set_count(const uint64_t *set, int64_t rows);
/* Fills the rows of the set with zeros in x[rows * dim]; if the set has many
 * rows, fills all of x. */
void rd_row_set_zero(float *x, int64_t rows, int64_t dim, const uint64_t *set);

RD_C_END
#endif
