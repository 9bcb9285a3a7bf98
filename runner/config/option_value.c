/* option_value.c -- checks a JSON value against a row of an option table, and words the error. */
#include "config_impl.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

bool rd_option_range(const rd_option *o, char out[RD_KIND_BYTES])
{
    char lo[32], hi[32];
    rd_shown_real(o->min, lo);
    rd_shown_real(o->max, hi);
    out[0] = '\0';
    /* 2^63 is the limit of an int64_t anyway, so messages leave it out. */
    const bool has_lo = o->min > -INFINITY && !(o->type != RD_REAL && o->min <= -0x1p63);
    const bool has_hi = o->max < INFINITY && !(o->type != RD_REAL && o->max >= 0x1p63);
    if (o->choices || o->type == RD_BOOL || o->type == RD_STRING || o->type == RD_PATHS ||
        (!has_lo && !has_hi))
        return false;
    if (!has_hi)
        snprintf(out, RD_KIND_BYTES, "%s or more", lo);
    else if (!has_lo)
        snprintf(out, RD_KIND_BYTES, "%s or less", hi);
    else
        snprintf(out, RD_KIND_BYTES, "%s .. %s", lo, hi);
    return true;
}

const char *rd_option_kind(const rd_option *o, char out[RD_KIND_BYTES])
{
    static const char *const what[] = {
        [RD_BOOL] = "true or false",
        [RD_INT] = "an integer",
        [RD_REAL] = "a number",
        [RD_STRING] = "a string",
        [RD_INTS] = "a list of integers",
        [RD_ENUM] = "a string",
        [RD_PATHS] = "a file name, or a list of file names",
    };
    char range[RD_KIND_BYTES];
    if (rd_option_range(o, range)) {
        snprintf(out, RD_KIND_BYTES, "%s, %s%.80s", what[o->type],
                 o->type == RD_INTS ? "each " : "", range);
    } else if (o->type == RD_PATHS && !o->path) {
        snprintf(out, RD_KIND_BYTES, "a string, or a list of strings");
    } else if (o->choices) {
        size_t n = (size_t)snprintf(out, RD_KIND_BYTES, "one of ");
        for (int i = 0; o->choices[i] && n < RD_KIND_BYTES; i++)
            n += (size_t)snprintf(out + n, RD_KIND_BYTES - n, "%s%s", i ? ", " : "", o->choices[i]);
    } else {
        snprintf(out, RD_KIND_BYTES, "%s", what[o->type]);
    }
    return out;
}

int rd_option_choice(const rd_option *o, const char *s)
{
    for (int i = 0; o->choices[i]; i++)
        if (!strcasecmp(o->choices[i], s)) return i;
    return o->flags & RD_OPT_OPEN ? 0 : -1;
}

const char *rd_option_word(const rd_option_group *g, const char *key, int value)
{
    const rd_option *o = g->options;
    while (o->key && strcmp(o->key, key) != 0) o++;
    if (!o->key || !o->choices) return NULL;
    for (int i = 0; o->choices[i]; i++)
        if (i == value) return o->choices[i];
    return NULL;
}

int64_t rd_option_int(const json_t *v)
{
    return json_is_real(v) ? (int64_t)json_real_value(v) : json_integer_value(v);
}

bool rd_int_within(int64_t k, double min, double max)
{
    return (min <= -0x1p63 || (min < 0x1p63 && k >= (int64_t)ceil(min))) &&
           (max >= 0x1p63 || (max >= -0x1p63 && k <= (int64_t)floor(max)));
}

/* From 2^53 on a double no longer shows which integer was written, so such a real is refused. */
static bool is_int(const rd_option *o, const json_t *v)
{
    if (json_is_real(v)) {
        const double x = json_real_value(v);
        return x == floor(x) && fabs(x) < 0x1p53 && rd_int_within((int64_t)x, o->min, o->max);
    }
    return json_is_integer(v) && rd_int_within(json_integer_value(v), o->min, o->max);
}

/* Returns why a real number is no number of float32, the type of the arithmetic: it would become 0,
 * lose digits, or become infinite there. "": it is one. */
static const char *not_float(const json_t *v)
{
    const double x = json_is_real(v) ? fabs(json_real_value(v)) : 0.0;
    if (x > 0.0 && x < (double)FLT_MIN) return " (below 1.18e-38, the smallest float32)";
    return x > (double)FLT_MAX && isfinite(x) ? " (above 3.4e38, the largest float32)" : "";
}

static bool fits(const rd_option *o, const json_t *v, size_t *bad_element)
{
    switch (o->type) {
    case RD_BOOL:
        return json_is_boolean(v);
    case RD_INT:
        return is_int(o, v);
    case RD_REAL: {
        const double x = json_number_value(v);
        return json_is_number(v) && isfinite(x) && x >= o->min && x <= o->max && !*not_float(v);
    }
    case RD_STRING:
    case RD_ENUM:
        return json_is_string(v) && (!o->choices || rd_option_choice(o, json_string_value(v)) >= 0);
    case RD_PATHS:
        if (json_is_string(v)) return true;
        if (json_array_size(v) == 0) return false;
        for (size_t i = 0; i < json_array_size(v); i++) {
            const char *s = json_string_value(json_array_get(v, i));
            if (s && s[0]) continue;
            *bad_element = i + 1;
            return false;
        }
        return true;
    case RD_INTS:
        if (json_array_size(v) == 0) return false; /* no list, or an empty one */
        for (size_t i = 0; i < json_array_size(v); i++)
            if (!is_int(o, json_array_get(v, i))) {
                *bad_element = i + 1;
                return false;
            }
        return true;
    }
    return false;
}

rd_code rd_option_check(const rd_option *o, const json_t *v, const char *at, rd_status *st)
{
    char kind[RD_KIND_BYTES], shown[RD_SHOWN_BYTES], near[RD_SHOWN_BYTES] = "", nth[48] = "";
    size_t bad_element = 0;
    if (fits(o, v, &bad_element)) return RD_OK;
    if (bad_element)
        snprintf(nth, sizeof nth, " (element %zu)", bad_element);
    else if (json_is_array(v) && json_array_size(v) == 0)
        snprintf(nth, sizeof nth, " (an empty list)");
    if (o->type == RD_REAL) snprintf(nth, sizeof nth, "%s", not_float(v));
    rd_shown_json(bad_element ? json_array_get(v, bad_element - 1) : v, shown);
    if (o->choices && json_is_string(v)) {
        int n = 0;
        while (o->choices[n]) n++;
        const char *nearest = rd_nearest(json_string_value(v), o->choices, n);
        if (nearest) snprintf(near, sizeof near, "; did you mean \"%s\"?", nearest);
    }
    const bool meant = o->help && !near[0];
    return rd_fail(st, RD_EUSAGE, "%s: '%s' must be %s, not %s%s%s%s%.200s", at, o->key,
                   rd_option_kind(o, kind), shown, nth, near, meant ? "; meaning: " : "",
                   meant ? o->help : "");
}
