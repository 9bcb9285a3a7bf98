/* report_text.c -- texts that are safe in the report, whatever the runs have left.
 *
 * All texts of runs go through these functions: names of folders and keys, values, samples, names
 * of classes, messages. First come the rules of printable.h, then those of HTML or JSON. */
#include "report_impl.h"
#include "rd/printable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void report_text_n(rd_strbuf *b, const char *s, size_t n)
{
    rd_strbuf shown = {0};
    rd_printable_add(&shown, s, n);
    for (size_t i = 0; i < shown.n; i++) {
        const char c = shown.s[i];
        const char *entity = c == '&'   ? "&amp;"
                             : c == '<' ? "&lt;"
                             : c == '>' ? "&gt;"
                             : c == '"' ? "&quot;"
                                        : NULL;
        if (c == '\'') entity = "&#39;";
        if (entity)
            rd_strbuf_puts(b, entity);
        else
            rd_strbuf_add(b, &shown.s[i], 1);
    }
    b->failed |= shown.failed;
    rd_strbuf_release(&shown);
}

void report_text(rd_strbuf *b, const char *s)
{
    report_text_n(b, s, strlen(s));
}

void report_json_text(rd_strbuf *b, const char *s)
{
    rd_strbuf shown = {0};
    rd_printable_add(&shown, s, strlen(s));
    json_t *v = json_string(rd_strbuf_str(&shown));
    /* Only ASCII is left, so there is no U+2028 either. */
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    b->failed |= shown.failed || !text;
    for (const char *p = text; p && *p; p++) {
        if (*p == '<' || *p == '>' || *p == '&')
            rd_strbuf_printf(b, "\\u%04x", (unsigned)*p);
        else
            rd_strbuf_add(b, p, 1);
    }
    free(text);
    json_decref(v);
    rd_strbuf_release(&shown);
}

void report_base64(rd_strbuf *b, const void *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i += 3) {
        const size_t k = n - i < 3 ? n - i : 3;
        const unsigned v = (unsigned)s[i] << 16 | (k > 1 ? (unsigned)s[i + 1] << 8 : 0U) |
                           (k > 2 ? (unsigned)s[i + 2] : 0U);
        const char out[4] = {digits[v >> 18], digits[v >> 12 & 63],
                             k > 1 ? digits[v >> 6 & 63] : '=', k > 2 ? digits[v & 63] : '='};
        rd_strbuf_add(b, out, 4);
    }
}

void report_number(rd_strbuf *b, double v)
{
    if (isnan(v))
        rd_strbuf_puts(b, "–");
    else
        rd_strbuf_printf(b, "%.6g", v);
}
