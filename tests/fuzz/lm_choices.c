/* lm_choices.c -- fuzz target: reads any bytes as a file of multiple choice of llm.c. */
#include "../../runner/data/lm_impl.h"
#include "fuzz_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    rd_status st = {0};
    rd_choices c = {0};
    bool are;
    fuzz_memory_file(data, size, path);
    must(rd_choices_are(path, &are, &st) == RD_OK);
    const rd_code code = rd_choices_read(&c, path, 65, 50257, &st);
    must((code == RD_OK) == (st.msg[0] == '\0'));
    must(code == RD_OK || code == RD_EDATA);
    must(are || code != RD_OK);
    for (int64_t i = 0; i < c.n && code == RD_OK; i++) {
        const int64_t n = c.first[i + 1] - c.first[i];
        must(n >= 2 && n <= 65 && c.prompt[i] >= 1 && c.prompt[i] < n);
        for (int64_t k = c.first[i]; k < c.first[i + 1]; k++) must(c.ids[k] < 50257);
    }
    rd_choices_release(&c);
    return 0;
}
