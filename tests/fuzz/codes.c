/* codes.c -- fuzz target: reads any bytes as the codes of subword-nmt, and segments them as text.
 *
 * The pieces of a line, without the marks "@@ ", are the line without its outer spaces. */
#include "fuzz_files.h"
#include "rd/subword.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_edge(char c)
{
    return c == ' ' || c == '\r' || c == '\n';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    rd_status st = {0};
    rd_subword *s = NULL;
    rd_subword_scratch *w = NULL;
    fuzz_memory_file(data, size, path);
    if (rd_subword_open("bpe", path, &s, &st) != RD_OK) {
        must(!s && st.msg[0] && st.code == RD_EDATA);
        return 0;
    }
    must(rd_subword_scratch_new(s, &w, &st) == RD_OK);
    /* The text is the input with another letter for '@': every '@' of the pieces is a mark's. */
    char *text = malloc(size + 1), *plain = malloc(size + 1);
    must(text && plain);
    size_t from = 0, end = size, m = 0;
    for (size_t i = 0; i < size; i++) text[i] = data[i] == '@' ? 'x' : (char)data[i];
    while (end > 0 && is_edge(text[end - 1])) end--;
    while (from < end && is_edge(text[from])) from++;
    for (size_t i = from; i < end; i++)
        if (text[i] != ' ' || plain[m - 1] != ' ') plain[m++] = text[i];
    rd_strbuf pieces = {0};
    for (int pass = 0; pass < 2; pass++) { /* the second one from the cache */
        size_t k = 0;
        rd_strbuf_reset(&pieces);
        rd_subword_segment(s, w, text, size, &pieces);
        must(!pieces.failed);
        for (size_t i = 0; i < pieces.n; i++) {
            if (pieces.s[i] == '@') {
                must(i + 3 < pieces.n && memcmp(pieces.s + i, "@@ ", 3) == 0);
                i += 2;
                continue;
            }
            must(k < m && pieces.s[i] == plain[k]);
            k++;
        }
        must(k == m);
    }
    free(text);
    free(plain);
    rd_strbuf_release(&pieces);
    rd_subword_scratch_free(w);
    rd_subword_free(s);
    return 0;
}
