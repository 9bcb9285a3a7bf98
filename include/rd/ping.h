/* ping.h -- measurements between the ranks of a job: how far apart the clocks of the hosts are, and
 * how long the ranks of one host take for a sum. */
#ifndef RD_PING_H
#define RD_PING_H

#include "rd/comm.h"

RD_C_BEGIN

typedef struct rd_clock_offset {
    int64_t offset_ns; /* rd_now_ns() here minus rd_now_ns() on rank 0, at the same moment */
    int64_t round_ns;  /* duration of the exchange used; offset_ns is exact to half of it */
    int64_t at_ns;     /* time of that exchange on this rank's clock */
} rd_clock_offset;

/* Collective. Compares this rank's clock with rank 0's. Of n questions to rank 0 the one with the
 * fastest answer counts, and its answer is taken for the middle of the exchange. The ranks of one
 * host share a clock, so the lowest rank of each host asks for all of them. */
rd_code rd_clock_compare(rd_comm *c, int n, rd_clock_offset *out, rd_status *st);

/* Returns the time on rank 0's clock when this rank's clock showed x, from the comparisons a and b.
 * The clocks are assumed to drift evenly. */
int64_t rd_clock_shared(const rd_clock_offset *a, const rd_clock_offset *b, int64_t x);

/* Collective. Measures sums over the ranks of this host alone, in memory that they share.
 * seconds[i]: for n[i] floats, the mean of `times` sums after two more to warm up. NAN: this host
 * has one rank, or its ranks do not share memory. n[i] increases with i. */
rd_code rd_time_inside(rd_comm *c, const int64_t *n, int n_sizes, int times, double *seconds,
                       rd_status *st);

RD_C_END
#endif
