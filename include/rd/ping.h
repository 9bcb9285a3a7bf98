/* ping.h -- what is measured of a job's ranks beside its work: how far apart the clocks of hosts are, and how long the
 * ranks of one host take for a sum among themselves. */
#ifndef RD_PING_H
#define RD_PING_H

#include "rd/comm.h"

RD_C_BEGIN

typedef struct rd_clock_offset {
    int64_t offset_ns; /* this rank's rd_now_ns() minus that of rank 0, at the same moment */
    int64_t round_ns;  /* of the exchange it was taken from: the offset is known to half of this */
    int64_t at_ns;     /* when, by this rank's clock */
} rd_clock_offset;

/* Collective. Of `n` questions to rank 0 the one that was answered fastest counts, and its answer is taken for the
 * middle of the way. Ranks of one host have one clock: each host's lowest rank asks for all of them. */
rd_code rd_clock_compare(rd_comm *c, int n, rd_clock_offset *out, rd_status *st);

/* Rank 0's clock when this rank's showed x, between the comparisons a and b: a clock is taken to drift evenly. */
int64_t rd_clock_shared(const rd_clock_offset *a, const rd_clock_offset *b, int64_t x);

/* Collective. seconds[i]: of a sum of n[i] floats over the ranks of this host alone, in memory they share; the mean of
 * `times`, after two more. NAN: this host has one rank, or its ranks do not share memory. n grows. */
rd_code rd_time_inside(rd_comm *c, const int64_t *n, int n_sizes, int times, double *seconds,
                       rd_status *st);

RD_C_END
#endif
