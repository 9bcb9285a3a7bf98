/* lm_tokens.c -- fuzz target: reads any bytes as a file of tokens of llm.c or nanoGPT. */
#include "../../runner/data/lm_impl.h"
#include "fuzz_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    rd_status st = {0};
    rd_token_list l;
    int32_t ids[16];
    fuzz_memory_file(data, size, path);
    const rd_code code = rd_token_list_open(path, 50257, &l, &st);
    must((code == RD_OK) == (st.msg[0] == '\0'));
    must(code == RD_OK || code == RD_EDATA);
    if (code == RD_OK) {
        must(l.n >= 0 && (size_t)l.n <= size / 2);
        const int64_t n = l.n < 16 ? l.n : 16;
        for (int k = 0; k < 2; k++) {
            st = (rd_status){0};
            const rd_code got = rd_token_list_get(&l, k * (l.n - n), n, 50257, ids, &st);
            must(got == RD_OK || got == RD_EDATA);
            for (int64_t i = 0; i < n && got == RD_OK; i++) must(ids[i] >= 0 && ids[i] < 50257);
        }
    }
    rd_token_list_release(&l);
    return 0;
}
