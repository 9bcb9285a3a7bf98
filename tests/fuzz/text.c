/* text.c -- fuzz target: reads any bytes as a text and compares the ids with a slow second reader.
 *
 * The first byte chooses invalid_utf8 (bit 0), whether a lone CR ends a line (bit 1), the shards
 * (bits 2 and 3) and the limit of lines (bit 4). */
#include "../../runner/data/text_impl.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const rd_side *s, const rd_vocab *v, int64_t i)
{
    size_t n;
    const char *line = rd_side_raw(s, i, &n);
    const int64_t m = rd_side_n_ids(s, i);
    int32_t *ids = malloc((size_t)m * sizeof *ids);
    if (!ids || rd_utf8_check(line, n) != n || rd_utf8_rstrip(line, n) != n) abort();
    rd_status st = {0};
    if (rd_side_ids(s, i, ids, &st) != RD_OK) abort();
    int64_t k = 0;
    if (ids[k++] != RD_SOS) abort();
    for (size_t from = 0, at = 0; at <= n; at++) {
        if (at < n && line[at] != ' ') continue;
        if (k >= m || ids[k++] != rd_vocab_id(v, line + from, at - from)) abort();
        from = at + 1;
    }
    if (k != m - 1 || ids[k] != RD_EOS) abort();
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char words[] = "a\nb\nab\nabcdefghijklmnopqrstuvwxyz\n\xC3\xA9\n\xEF\xBF\xBD\n";
    if (size == 0) return 0;
    rd_status st = {0};
    rd_vocab *v = NULL;
    rd_lines *l = NULL;
    rd_side s = {0};
    const rd_lines_opts o = {.replace = data[0] & 1,
                             .cr_ends = data[0] & 2,
                             .max_line_bytes = data[0] & 16 ? 40 : 1 << 20};
    const int shards = 1 + (data[0] >> 2 & 3);
    if (rd_vocab_new_mem("words", words, sizeof words - 1, false, &v, &st) != RD_OK) abort();
    if (rd_lines_new_mem("fuzz", (const char *)data + 1, size - 1, o, &l, &st) != RD_OK) abort();
    const rd_side_args args = {.vocab = v, .rank = shards - 1, .size = shards, .keep_raw = true};
    if (rd_side_read(&s, l, &args, &st) == RD_OK) {
        for (int64_t i = 0; i < s.head.n_lines; i++) {
            if (rd_side_length(&s, i) < 3) abort();
            if (i % shards == shards - 1) check_line(&s, v, i);
        }
    } else if (st.msg[0] == '\0') {
        abort();
    }
    rd_lines_free(l);
    rd_side_release(&s);
    rd_vocab_free(v);
    return 0;
}
