/* exchange.h -- replaces the gradients of all ranks by their sum.
 *
 * A step calls exchange_begin, then exchange_last before the last backward, exchange_settle after
 * it, and exchange_finish. */
#ifndef RD_RUN_EXCHANGE_H
#define RD_RUN_EXCHANGE_H

#include "run.h"

/* Collective, after the gradients have their place. The caller owns *out. */
rd_code exchange_new(rd_run *r, exchange **out, rd_status *st);

/* NULL is fine. Call it before the tape is freed. */
void exchange_free(exchange *x);

/* Ends sums that other ranks may never join. Call it after a failure of this rank, before anything
 * waits for the GPU. */
void exchange_abort(exchange *x);

/* Appends a line for the banner, or nothing. */
void exchange_describe(const exchange *x, rd_strbuf *out);

/* Returns how the parameters are divided between hosts or GPUs (key shard). NULL: they are not. */
rd_shard *exchange_shard(const exchange *x);

/* Collective, after a finite update on GPUs that keep parts of the optimizer's state. Copies the
 * weights of each rank to all others. *bytes: sent to other hosts by this rank; *seconds: taken. */
rd_code exchange_spread(exchange *x, double *bytes, double *seconds, rd_status *st);

/* Collective, after exchange_finish. Gives all ranks the sums of all gradients, where the key shard
 * gave them a part. */
rd_code exchange_whole(exchange *x, rd_status *st);

/* Begins a step: the gradients are zero at the end of the next backward, or are what it added.
 * Until then the tape borrows their memory. */
void exchange_begin(exchange *x);

/* The same between the micro-batches of a step. */
void exchange_clear(exchange *x);

/* Reports that the update has left zeros in place of the gradients on the GPU. The next
 * exchange_begin zeroes nothing there. */
void exchange_zeroed(exchange *x);

/* Completes elements [from, from + n) of the gradient arena, which have got their last
 * contribution. Called once for each element. */
typedef rd_code exchange_before(void *ctx, int64_t from, int64_t n, rd_status *st);

/* Announces that the next backward gives the last contributions. before: NULL is fine. */
void exchange_last(exchange *x, exchange_before *before, void *ctx);

/* Ends the part that overlaps backward, also where there was no backward. Afterwards the main
 * thread may call MPI. */
void exchange_settle(exchange *x);

/* Collective. Completes the sum. *out: its times on this rank. */
rd_code exchange_finish(exchange *x, step_comm *out, rd_status *st);

/* Collective. Measures the sum of the first n gradients by itself, on this rank. All gradients must
 * be zero. */
rd_code exchange_alone(exchange *x, int64_t n, double *seconds, rd_status *st);

#endif
