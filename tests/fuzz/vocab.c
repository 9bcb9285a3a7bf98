/* vocab.c -- fuzz target: reads any bytes as a vocabulary file and looks up each word.
 *
 * The lowest bit of the first byte chooses invalid_utf8. Every word must be found with its own id,
 * or with its last id if it is repeated. */
#include "../../runner/data/data_impl.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    rd_status st = {0};
    rd_vocab *v = NULL;
    if (rd_vocab_new_mem("fuzz", (const char *)data + 1, size - 1, data[0] & 1, &v, &st) != RD_OK) {
        if (v || st.msg[0] == '\0') abort();
        return 0;
    }
    int64_t later = 0;
    for (int32_t id = RD_N_SPECIAL; id < rd_vocab_size(v); id++) {
        size_t n, m;
        const char *w = rd_vocab_word(v, id, &n);
        if (rd_utf8_check(w, n) != n) abort();
        const int32_t found = rd_vocab_id(v, w, n);
        const char *x = rd_vocab_word(v, found, &m);
        if (found < id || m != n || memcmp(w, x, n) != 0) abort();
        later += found > id;
    }
    if ((later > 0) != (rd_vocab_duplicates(v) > 0)) abort();
    rd_vocab_free(v);
    return 0;
}
