/* peak.h -- measures the peak of the CPU or GPU: that of matrix products. */
#ifndef RD_RUN_PEAK_H
#define RD_RUN_PEAK_H

#include "run.h"

/* Returns the CPU time of this process, all threads. On a machine that others use, too, it tells
 * what the clock cannot. */
double peak_cpu_s(void);

/* Raises *peak to the FLOP/s of the best of n products of N^3 on this rank's threads; of fewer
 * where they take longer than 1.5 s in total. *peak_cpu: the same by CPU time. A GPU has its own
 * sizes, and no *peak_cpu. */
rd_code peak_measure(rd_run *r, int64_t N, int n, double *peak, double *peak_cpu, rd_status *st);

#endif
