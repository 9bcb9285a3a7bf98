/* clock.h -- monotonic and wall time. */
#ifndef RD_CLOCK_H
#define RD_CLOCK_H
#include "rd/status.h"
#include <stdint.h>
RD_C_BEGIN
int64_t rd_now_ns(void); /* monotonic */
double rd_wall_s(void);  /* seconds since 1970, with fraction */
RD_C_END
#endif
