/* runs_line.c -- splits a line of metrics.jsonl without building objects.
 *
 * A long run has a million lines of thirty fields, and a curve needs two of them. Splitting is ten
 * times as fast as parsing into objects. The syntax of names and brackets is checked; the text of a
 * value is only looked at when it is used. A line that a kill cut short is refused as a whole. */
#include "rd/runs.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct line_at {
    const char *p, *end;
} line_at;

static void line_blanks(line_at *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\r' || *c->p == '\n'))
        c->p++;
}

/* From the opening quote to behind the closing one. False: there is no closing one. */
static bool line_string(line_at *c)
{
    for (c->p++; c->p < c->end; c->p++) {
        if (*c->p == '\\') {
            c->p++;
        } else if (*c->p == '"') {
            c->p++;
            return true;
        }
    }
    c->p = c->end;
    return false;
}

/* To behind a value. Brackets inside are only counted, so they cannot be too deep. */
static bool line_value(line_at *c)
{
    int64_t depth = 0;
    const char *begin = c->p;
    while (c->p < c->end) {
        const char k = *c->p;
        if (k == '"') {
            if (!line_string(c)) return false;
            continue;
        }
        if (depth == 0 && (k == ',' || k == '}' || k == ' ' || k == '\t' || k == '\r')) break;
        if (k == '{' || k == '[') depth++;
        if (k == '}' || k == ']') depth--;
        if (depth < 0) return false;
        c->p++;
    }
    return depth == 0 && c->p > begin;
}

int rd_runs_split(const char *s, size_t n, rd_runs_field out[RD_RUNS_FIELDS])
{
    enum { LONGEST = 1 << 20 }; /* bytes of a field */
    line_at c = {s, s + n};
    int fields = 0;
    line_blanks(&c);
    if (c.p >= c.end || *c.p != '{') return -1;
    c.p++;
    line_blanks(&c);
    if (c.p < c.end && *c.p == '}') {
        c.p++;
        line_blanks(&c);
        return c.p == c.end ? 0 : -1;
    }
    for (;;) {
        line_blanks(&c);
        if (c.p >= c.end || *c.p != '"') return -1;
        const char *key = c.p + 1;
        if (!line_string(&c)) return -1;
        const ptrdiff_t n_key = c.p - 1 - key;
        line_blanks(&c);
        if (c.p >= c.end || *c.p != ':') return -1;
        c.p++;
        line_blanks(&c);
        const char *text = c.p;
        if (!line_value(&c)) return -1;
        const ptrdiff_t n_text = c.p - text;
        if (n_key > LONGEST || n_text > LONGEST) return -1;
        if (fields < RD_RUNS_FIELDS)
            out[fields++] = (rd_runs_field){
                .key = key, .text = text, .n_key = (int)n_key, .n_text = (int)n_text};
        line_blanks(&c);
        if (c.p >= c.end) return -1;
        if (*c.p == '}') break;
        if (*c.p != ',') return -1;
        c.p++;
    }
    c.p++;
    line_blanks(&c);
    return c.p == c.end ? fields : -1;
}

double rd_runs_number(const rd_runs_field *f, int n, const char *key)
{
    const size_t len = strlen(key);
    for (int i = 0; i < n; i++) {
        char text[64], *end;
        if ((size_t)f[i].n_key != len || memcmp(f[i].key, key, len) != 0) continue;
        const char first = f[i].text[0];
        if (f[i].n_text >= (int)sizeof text || (first != '-' && (first < '0' || first > '9')))
            return (double)NAN;
        memcpy(text, f[i].text, (size_t)f[i].n_text);
        text[f[i].n_text] = '\0';
        const double v = strtod(text, &end);
        return *end == '\0' && isfinite(v) ? v : (double)NAN;
    }
    return (double)NAN;
}
