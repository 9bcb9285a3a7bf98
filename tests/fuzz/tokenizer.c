/* tokenizer.c -- fuzz target: reads any bytes as the file of a byte-level BPE model, one of
 * tokenizer.json, merges.txt and .tiktoken.
 *
 * A model that opens splits each text into pieces whose bytes are the text's, and has an id for
 * each piece. Written as a tokenizer.json it opens again. A tokenizer.json is then the same
 * model. */
#include "../../runner/text/byte_bpe_impl.h"
#include "fuzz_files.h"
#include "rd/subword.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Compares pieces, ids and the text. */
static void check_text(const rd_subword *s, rd_subword_scratch *w, const char *text, size_t n)
{
    rd_subword_ids ids = {0};
    rd_strbuf pieces = {0}, bytes = {0};
    rd_subword_encode(s, w, text, n, &ids);
    rd_subword_segment(s, w, text, n, &pieces);
    must(ids.failed == pieces.failed);
    size_t k = 0;
    for (size_t from = 0; from < pieces.n; k++) {
        const char *space = memchr(pieces.s + from, ' ', pieces.n - from);
        const size_t end = space ? (size_t)(space - pieces.s) : pieces.n;
        must(k < ids.n && ids.at[k] >= 0 && ids.at[k] < rd_subword_size(s));
        byte_bpe_put_bytes(&bytes, pieces.s + from, end - from);
        from = end + 1;
    }
    must(k == ids.n);
    if (!ids.failed) {
        const char *got = rd_strbuf_str(&bytes);
        /* add_prefix_space, in front of the text and behind added tokens */
        size_t i = 0;
        for (size_t at = 0; at < bytes.n; at++)
            if (i < n && got[at] == text[i])
                i++;
            else
                must(got[at] == ' ');
        must(i == n);
    }
    free(ids.at);
    rd_strbuf_release(&pieces);
    rd_strbuf_release(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "Hug the pugs' 12345 \xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC \n\n  x\xFF<|endoftext|>";
    char path[FUZZ_PATH];
    rd_status st = {0};
    rd_subword *s = NULL, *again = NULL;
    rd_subword_scratch *w = NULL;
    fuzz_memory_file(data, size, path);
    if (rd_subword_open("byte_bpe", path, &s, &st) != RD_OK) {
        must(!s && st.msg[0] && st.code == RD_EDATA);
        return 0;
    }
    must(rd_subword_scratch_new(s, &w, &st) == RD_OK);
    check_text(s, w, text, sizeof text - 1);
    const size_t n = size < 200 ? size : 200;
    check_text(s, w, (const char *)data + size - n, n);
    rd_subword_scratch_free(w);
    char written[512];
    (void)snprintf(written, sizeof written, "%s/tokenizer.json", fuzz_folder());
    must(rd_subword_write(s, written, &st) == RD_OK);
    if (rd_subword_open("byte_bpe", written, &again, &st) != RD_OK)
        fuzz_failed(__FILE__, __LINE__, st.msg);
    must(rd_subword_size(again) == rd_subword_size(s));
    if (size > 0 && data[0] == '{') must(rd_subword_hash(again) == rd_subword_hash(s));
    rd_subword_free(again);
    rd_subword_free(s);
    return 0;
}
