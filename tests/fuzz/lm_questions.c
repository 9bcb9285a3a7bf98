/* lm_questions.c -- fuzz target: reads any bytes as questions of multiple choice in JSON lines. The
 * tokens are characters of ASCII. */
#include "../../runner/data/lm_impl.h"
#include "fuzz_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rd_subword *ascii(void)
{
    char path[FUZZ_PATH];
    rd_status st = {0};
    rd_strbuf b = {0};
    rd_subword *s;
    rd_strbuf_puts(&b, "#run_dist characters 1\n\xE2\x96\x81\n");
    for (char c = '!'; c <= '~'; c++) rd_strbuf_printf(&b, "%c\n", c);
    fuzz_memory_file(b.s, b.n, path);
    must(rd_subword_open("char", path, &s, &st) == RD_OK);
    rd_strbuf_release(&b);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 33 };
    static rd_subword *s;
    const rd_lines_opts lines = {.max_line_bytes = 1 << 16};
    rd_status st = {0};
    rd_choices c = {0};
    int64_t right = 0;
    if (!s) s = ascii();
    const rd_code code = rd_questions_read_mem(&c, "x.jsonl", (const char *)data, size, &lines, s,
                                               MOST, &st);
    must((code == RD_OK) == (st.msg[0] == '\0'));
    must(code == RD_OK || code == RD_EDATA);
    for (int64_t i = 0; i < c.n && code == RD_OK; i++) {
        const int64_t n = c.first[i + 1] - c.first[i];
        must(n >= 2 && n <= MOST && c.prompt[i] >= 1 && c.prompt[i] < n);
        must(c.question[i] >= 0 && c.question[i] < c.n_questions);
        must(i == 0 || c.question[i] - c.question[i - 1] <= 1);
        right += c.right[i];
        for (int64_t k = c.first[i]; k < c.first[i + 1]; k++)
            must(c.ids[k] >= 0 && c.ids[k] < rd_subword_size(s));
    }
    must(code != RD_OK || right == c.n_questions);
    rd_choices_release(&c);
    return 0;
}
