/* predict_format.c -- the forms in which infer mode writes the classes of images: TSV with a first
 * line of names, JSON lines, and the class alone.
 *
 * Probabilities have four digits behind the point. Further digits depend on the CPU. */
#include "predict_format.h"
#include "infer_format.h"
#include "rd/printable.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool predict_best(const float *logits, int64_t V, int64_t n, predict_class *out)
{
    double sum = 0.0, top = -INFINITY;
    int64_t have = 0;
    for (int64_t v = 0; v < V; v++) {
        if (!isfinite(logits[v])) return false;
        top = fmax(top, (double)logits[v]);
    }
    for (int64_t v = 0; v < V; v++) {
        const double p = exp((double)logits[v] - top);
        int64_t at = have < n ? have : n;
        sum += p;
        while (at > 0 && out[at - 1].probability < p) at--;
        if (at >= n) continue;
        if (have < n) have++;
        memmove(out + at + 1, out + at, (size_t)(have - 1 - at) * sizeof *out);
        out[at] = (predict_class){.id = (int32_t)v, .probability = p};
    }
    for (int64_t k = 0; k < have; k++) out[k].probability /= sum;
    return true;
}

void predict_field(rd_strbuf *out, const char *text, bool shown)
{
    if (shown) {
        rd_printable_add(out, text, strlen(text));
        return;
    }
    for (const char *s = text; *s;) {
        const size_t n = strcspn(s, "\t\n\r\\");
        rd_strbuf_add(out, s, n);
        s += n;
        if (*s)
            rd_strbuf_puts(out, *s == '\t'   ? "\\t"
                                : *s == '\n' ? "\\n"
                                : *s == '\r' ? "\\r"
                                             : "\\\\");
        s += *s != '\0';
    }
}

void predict_head(int64_t n, rd_strbuf *out)
{
    rd_strbuf_puts(out, "path\tclass\tprobability");
    for (int64_t k = 2; k <= n; k++)
        rd_strbuf_printf(out, "\tclass_%" PRId64 "\tprobability_%" PRId64, k, k);
    rd_strbuf_puts(out, "\terror\n");
}

static void predict_tsv(int64_t n, bool shown, const predict_row *row, rd_strbuf *out)
{
    predict_field(out, row->path, shown);
    for (int64_t k = 0; k < n; k++) {
        rd_strbuf_puts(out, "\t");
        if (k < row->n) predict_field(out, row->best[k].name, shown);
        rd_strbuf_puts(out, "\t");
        if (k < row->n) rd_strbuf_printf(out, "%.4f", row->best[k].probability);
    }
    rd_strbuf_puts(out, "\t");
    if (row->trouble) predict_field(out, row->trouble, shown);
}

static void predict_json_class(rd_strbuf *out, const predict_class *c)
{
    rd_strbuf_puts(out, "\"class\":");
    infer_json_string(out, c->name, strlen(c->name));
    rd_strbuf_printf(out, ",\"id\":%" PRId32 ",\"probability\":%.4f", c->id, c->probability);
}

static void predict_json(int64_t n, const predict_row *row, rd_strbuf *out)
{
    rd_strbuf_puts(out, "{\"path\":");
    infer_json_string(out, row->path, strlen(row->path));
    if (row->n > 0) {
        rd_strbuf_puts(out, ",");
        predict_json_class(out, &row->best[0]);
    }
    for (int64_t k = 0; n > 1 && k < row->n; k++) {
        rd_strbuf_puts(out, k ? ",{" : ",\"top\":[{");
        predict_json_class(out, &row->best[k]);
        rd_strbuf_puts(out, k + 1 < row->n ? "}" : "}]");
    }
    if (row->trouble) {
        rd_strbuf_puts(out, row->n > 0 ? ",\"warning\":" : ",\"error\":");
        infer_json_string(out, row->trouble, strlen(row->trouble));
    }
    rd_strbuf_puts(out, "}");
}

void predict_format(rd_output_format format, int64_t n, bool shown, const predict_row *row,
                    rd_strbuf *out)
{
    rd_strbuf line = {0};
    if (format == RD_FORMAT_TSV)
        predict_tsv(n, shown, row, out);
    else if (format == RD_FORMAT_TEXT)
        predict_field(out, row->n > 0 ? row->best[0].name : "", shown);
    else
        predict_json(n, row, &line);
    if (shown)
        rd_printable_add(out, rd_strbuf_str(&line), line.n);
    else
        rd_strbuf_add(out, rd_strbuf_str(&line), line.n);
    rd_strbuf_puts(out, "\n");
    out->failed = out->failed || line.failed;
    rd_strbuf_release(&line);
}
