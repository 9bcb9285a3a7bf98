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
/* Writes a duration as "59s", "3m 05s", "2h 10m" or "4d 01h", and returns out. Not finite or
 * negative: "?". */
char *rd_duration_text(double seconds, char out[32]);

/* Writes the seconds since 1970 as UTC, "2026-11-29T20:15:00Z" (20 bytes), into out[0..size). "" if
 * they are no time. */
void rd_utc_text(double seconds, char *out, size_t size);
RD_C_END
#endif
