/* shortlist.c -- fuzz target: reads any bytes as a lexicon and lists the target words of a
 * sentence. The first byte chooses how many words are kept. */
#include "../../runner/data/data_impl.h"
#include "rd/shortlist.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    rd_status st = {0};
    rd_vocab *v = NULL;
    rd_shortlist *s = NULL;
    rd_arena *a = NULL;
    const int64_t k = 1 + data[0] % 4, off[2] = {0, 3};
    const int32_t src[3] = {4, 6, 5};
    int64_t *at;
    int32_t *id;
    if (rd_vocab_new_mem("words", "a\nb\nc\nd\n", 8, false, &v, &st) != RD_OK) abort();
    (void)rd_shortlist_new_mem("fuzz", (const char *)data + 1, size - 1, v, v, k, &s, &st);
    if ((s != NULL) != (st.code == RD_OK) || (!s && st.msg[0] == '\0')) abort();
    if (s) {
        if (rd_arena_new(4096, &a, &st) != RD_OK ||
            rd_shortlist_sets(s, 1, src, off, a, &at, &id, &st) != RD_OK)
            abort();
        const int64_t n = at[1] - at[0];
        if (n < RD_N_SPECIAL || n > rd_vocab_size(v) || n > RD_N_SPECIAL + 3 * k) abort();
        for (int64_t i = 0; i < n; i++)
            if (id[i] < 0 || id[i] >= rd_vocab_size(v) || (i > 0 && id[i] <= id[i - 1])) abort();
    }
    rd_arena_free(a);
    rd_shortlist_free(s);
    rd_vocab_free(v);
    return 0;
}
