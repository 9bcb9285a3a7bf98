/* infer_format.c -- the forms in which infer mode writes translations: text, n-best lines as Moses
 * and Marian write them, and JSON lines.
 *
 * Scores have four digits behind the point. Further digits depend on the CPU. */
#include "infer_format.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>

static void add_plain(rd_strbuf *out, const char *text, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n' && text[i] != '\r') continue;
        rd_strbuf_add(out, text + from, i - from);
        rd_strbuf_puts(out, " ");
        from = i + 1;
    }
    rd_strbuf_add(out, text + from, n - from);
}

void infer_json_string(rd_strbuf *out, const char *text, size_t n)
{
    rd_strbuf_puts(out, "\"");
    for (size_t i = 0; i < n;) {
        const size_t bytes = rd_utf8_bytes(text + i, n - i);
        const unsigned char c = (unsigned char)text[i];
        if (bytes == 0)
            rd_strbuf_puts(out, "\xEF\xBF\xBD");
        else if (c == '"' || c == '\\')
            rd_strbuf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            rd_strbuf_printf(out, "\\u%04x", c);
        else
            rd_strbuf_add(out, text + i, bytes);
        i += bytes > 0 ? bytes : 1;
    }
    rd_strbuf_puts(out, "\"");
}

static void add_score(rd_strbuf *out, double score, const char *none)
{
    if (isfinite(score))
        rd_strbuf_printf(out, "%.4f", fabs(score) < 0.00005 ? 0.0 : score);
    else
        rd_strbuf_puts(out, none);
}

static void add_translation(rd_strbuf *out, const infer_text *t)
{
    rd_strbuf_puts(out, "\"text\":");
    infer_json_string(out, t->text, t->bytes);
    rd_strbuf_puts(out, ",\"score\":");
    add_score(out, t->score, "null");
    rd_strbuf_printf(out, ",\"tokens\":%" PRId64, t->n_tokens);
}

static void format_json(const infer_line *line, rd_strbuf *out)
{
    rd_strbuf_printf(out, "{\"line\":%" PRId64 ",", line->number);
    add_translation(out, &line->best[0]);
    rd_strbuf_printf(out, ",\"source_tokens\":%" PRId64, line->n_source);
    for (int i = 0; line->n > 1 && i < line->n; i++) {
        rd_strbuf_puts(out, i ? ",{" : ",\"nbest\":[{");
        add_translation(out, &line->best[i]);
        rd_strbuf_puts(out, i + 1 < line->n ? "}" : "}]");
    }
    rd_strbuf_puts(out, "}");
}

void infer_format(rd_output_format format, const infer_line *line, rd_strbuf *out)
{
    if (format == RD_FORMAT_JSON) {
        format_json(line, out);
        return;
    }
    if (format == RD_FORMAT_TEXT) {
        add_plain(out, line->best[0].text, line->best[0].bytes);
        return;
    }
    for (int i = 0; i < line->n; i++) {
        rd_strbuf_printf(out, "%s%" PRId64 " ||| ", i ? "\n" : "", line->number);
        add_plain(out, line->best[i].text, line->best[i].bytes);
        rd_strbuf_puts(out, " ||| ");
        add_score(out, line->best[i].score, "nan");
    }
}

int64_t infer_words(const char *text, size_t n)
{
    int64_t words = 0;
    bool inside = false;
    for (size_t i = 0; i < n; i++) {
        const bool space = text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r');
        words += !space && !inside;
        inside = !space;
    }
    return words;
}
