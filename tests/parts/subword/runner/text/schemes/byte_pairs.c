/* byte_pairs.c -- two bytes of a word at a time: an example of a subword scheme without a model.
 *
 * A piece that continues a word ends in "+". */
#include "../subword_impl.h"
#include <string.h>

static void byte_pairs_segment(const void *self, void *w, const char *line, size_t n,
                               rd_strbuf *out)
{
    const size_t begin = out->n;
    (void)self;
    (void)w;
    for (size_t i = 0; i < n;) {
        if (line[i] == ' ') {
            i++;
            continue;
        }
        const size_t k = i + 1 < n && line[i + 1] != ' ' ? 2 : 1;
        if (out->n > begin) rd_strbuf_add(out, " ", 1);
        rd_strbuf_add(out, line + i, k);
        i += k;
        if (i < n && line[i] != ' ') rd_strbuf_add(out, "+", 1);
    }
}

static void byte_pairs_join(const void *self, const char *pieces, size_t n, rd_strbuf *out)
{
    (void)self;
    for (size_t i = 0; i < n; i++) {
        if (pieces[i] == '+' && i + 1 < n && pieces[i + 1] == ' ')
            i++;
        else
            rd_strbuf_add(out, pieces + i, 1);
    }
}

RD_SUBWORD(byte_pairs) = {
    .name = "byte_pairs",
    .about = "two bytes at a time",
    .segment = byte_pairs_segment,
    .join = byte_pairs_join,
};
