/* none.c -- words: what stands between spaces. The text is used as it is. */
#include "../subword_impl.h"
#include <string.h>

static void none_segment(const void *self, void *w, const char *line, size_t n, rd_strbuf *out)
{
    (void)self;
    (void)w;
    bool first = true;
    for (size_t from = 0; from < n;) {
        const char *space = memchr(line + from, ' ', n - from);
        const size_t end = space ? (size_t)(space - line) : n;
        if (end > from) {
            if (!first) rd_strbuf_add(out, " ", 1);
            rd_strbuf_add(out, line + from, end - from);
            first = false;
        }
        from = end + 1;
    }
}

static void none_join(const void *self, const char *pieces, size_t n, rd_strbuf *out)
{
    (void)self;
    rd_subword_put_text(out, pieces, n);
}

RD_SUBWORD(none) = {
    .name = "none",
    .about = "words, as the text has them between spaces",
    .segment = none_segment,
    .join = none_join,
};
