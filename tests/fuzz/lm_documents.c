/* lm_documents.c -- fuzz target: reads any bytes as documents. The first byte chooses what a
 * document is, and whether the bytes are JSON lines, or come by standard input. */
#include "../../runner/data/lm_impl.h"
#include "fuzz_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"text", "x.jsonl", "-"};
    if (size == 0) return 0;
    const rd_doc_rules rules = {.unit = (rd_doc_unit)(data[0] / 2 % 3),
                                .lines = {.replace = data[0] / 8 % 2, .max_line_bytes = 1 << 16},
                                .prompts = data[0] / 16 % 2};
    rd_status st = {0};
    rd_docs *d = NULL;
    rd_doc_part p;
    bool more = true;
    size_t bytes = 0;
    const char *name = names[data[0] / 32 % 2 ? 2 : data[0] % 2];
    (void)rd_docs_new_mem(name, (const char *)data + 1, size - 1, 0, &rules, &d, &st);
    must((d != NULL) == (st.code == RD_OK));
    while (d && more && rd_docs_next(d, &p, &more, &st) == RD_OK) {
        if (!more) break;
        must(p.prompt <= p.n && (!p.is_example || data[0] % 2 == 1));
        must(rd_utf8_check(p.text, p.n) == p.n);
        bytes += p.n;
    }
    must(st.code == RD_OK || (st.code == RD_EDATA && st.msg[0] != '\0'));
    must(bytes <= 3 * size);
    must(!d || rules.prompts || rd_docs_form(d) != RD_DOC_AUTO);
    rd_docs_free(d);
    return 0;
}
