/* clock.c -- monotonic time and wall time, see clock.h. */
#include "rd/clock.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

int64_t rd_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double rd_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *rd_duration_text(double seconds, char out[32])
{
    if (!isfinite(seconds) || seconds < 0) {
        (void)snprintf(out, 32, "?");
        return out;
    }
    const int64_t s = (int64_t)(seconds + 0.5);
    if (s < 60)
        (void)snprintf(out, 32, "%" PRId64 "s", s);
    else if (s < 3600)
        (void)snprintf(out, 32, "%" PRId64 "m %02" PRId64 "s", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(out, 32, "%" PRId64 "h %02" PRId64 "m", s / 3600, s % 3600 / 60);
    else
        (void)snprintf(out, 32, "%" PRId64 "d %02" PRId64 "h", s / 86400, s % 86400 / 3600);
    return out;
}

void rd_utc_text(double seconds, char *out, size_t size)
{
    const time_t t = (time_t)seconds;
    struct tm at;
    if (!(seconds >= 0.0 && seconds < 2.5e11) || !gmtime_r(&t, &at) ||
        strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &at) == 0)
        *out = '\0';
}
