/* schedule_pieces.c -- reads piecewise_learning_rate_schedule, "rate;boundary;rate;...;rate". */
#include "rd/optim.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Reads a number that ends at ';' or at the end of s. Returns that place; NULL: there is no such
 * number. */
static const char *number(const char *s, double *out)
{
    char *end;
    *out = strtod(s, &end);
    if (end == s || !isfinite(*out)) return NULL;
    while (*end == ' ') end++;
    return *end == ';' || *end == '\0' ? end : NULL;
}

bool rd_schedule_first_rate(const char *piecewise, double *out)
{
    return piecewise && number(piecewise, out) != NULL;
}

rd_code rd_schedule_pieces(const char *text, rd_pieces *out, rd_status *st)
{
    static const char *const form = "write rate;boundary;rate, as \"0.1;30;0.01;60;0.001\"";
    const char *s = text ? text : "";
    out->n = 0;
    for (;;) {
        if (out->n == RD_MAX_PIECES)
            return rd_fail(st, RD_EUSAGE,
                           "'piecewise_learning_rate_schedule' has more than %d rates",
                           RD_MAX_PIECES);
        const int i = out->n++;
        const char *end = number(s, &out->rate[i]);
        if (!end || out->rate[i] < 0.0)
            return rd_fail(
                st, RD_EUSAGE,
                "'piecewise_learning_rate_schedule': \"%.40s\" does not begin with a rate; %s", s,
                form);
        if (out->rate[i] > 1e6 || (out->rate[i] > 0.0 && out->rate[i] < (double)FLT_MIN))
            return rd_fail(st, RD_EUSAGE,
                           "'piecewise_learning_rate_schedule': the rate %g must be 0, or a "
                           "float32 number, 1.18e-38 .. 1e6",
                           out->rate[i]);
        if (*end == '\0') return RD_OK;
        s = end + 1;
        end = number(s, &out->at[i]);
        if (!end || *end == '\0')
            return rd_fail(
                st, RD_EUSAGE,
                "'piecewise_learning_rate_schedule': \"%.40s\" is not a boundary and a rate; %s", s,
                form);
        if (out->at[i] <= (i > 0 ? out->at[i - 1] : 0.0))
            return rd_fail(st, RD_EUSAGE,
                           "'piecewise_learning_rate_schedule': the boundary %g does not come "
                           "after %s %g; boundaries rise",
                           out->at[i], i > 0 ? "the boundary" : "the start",
                           i > 0 ? out->at[i - 1] : 0.0);
        s = end + 1;
    }
}
