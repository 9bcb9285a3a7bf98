/* meta_pkl.c -- fuzz target: reads any bytes as a meta.pkl. An accepted one has each character
 * once. */
#include "../../runner/text/meta_pkl.h"
#include "fuzz_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char seen[0x110000];
    rd_status st = {0};
    int32_t *code, n;
    if (!meta_pkl_is((const char *)data, size)) return 0;
    const rd_code got = meta_pkl_read("meta.pkl", (const char *)data, size, &code, &n, &st);
    must(got == RD_OK || (got == RD_EDATA && strstr(st.msg, "'meta.pkl'") && !code));
    for (int32_t i = 0; i < n && got == RD_OK; i++) {
        must(code[i] >= 0 && code[i] < 0x110000 && (code[i] < 0xD800 || code[i] > 0xDFFF));
        must(!seen[code[i]]);
        seen[code[i]] = 1;
    }
    for (int32_t i = 0; i < n && got == RD_OK; i++) seen[code[i]] = 0;
    must(got != RD_OK || n >= 1);
    free(code);
    return 0;
}
