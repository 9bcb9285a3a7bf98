/* clock.h -- monotonic time and wall time. */
#ifndef RD_CLOCK_H
#define RD_CLOCK_H
#include "rd/status.h"
#include <stdint.h>
RD_C_BEGIN
/* Returns the monotonic time in nanoseconds. */
int64_t rd_now_ns(void);
/* Returns the seconds since 1970, with their fraction. */
double rd_wall_s(void);
RD_C_END
#endif
