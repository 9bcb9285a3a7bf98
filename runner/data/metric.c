/* metric.c -- the metrics by name, and the tokens that they compare. make writes the list of the
 * metrics. */
#include "rd/metric.h"
#include "rd/data.h"
#include <string.h>

#define RD_ENTRY(name) extern const rd_metric_def rd_metric_##name;
#include "metrics.inc"
#undef RD_ENTRY
#define RD_ENTRY(name) &rd_metric_##name,
static const rd_metric_def *const all[] = {
#include "metrics.inc"
    NULL,
};
#undef RD_ENTRY

const rd_metric_def *const *rd_metric_defs(int *n)
{
    *n = (int)(sizeof all / sizeof all[0]) - 1;
    return all;
}

const rd_metric_def *rd_metric_find(const char *name)
{
    for (int i = 0; all[i]; i++)
        if (strcmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}

/* Gets arrays for n tokens from the arena. */
static rd_code tokens_make(int64_t n, rd_arena *a, const char ***at, int32_t **len, rd_status *st)
{
    *len = NULL;
    if (rd_arena_get(a, (size_t)(n + 1) * sizeof **at, at, st) == RD_OK)
        (void)rd_arena_get(a, (size_t)(n + 1) * sizeof **len, len, st);
    return *len ? RD_OK : rd_failed_(st->code);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

rd_code rd_tokens_split(const char *text, size_t n, bool bpe, rd_arena *a, rd_tokens *out,
                        rd_status *st)
{
    const char **at;
    int32_t *len;
    *out = (rd_tokens){0};
    RD_TRY(tokens_make((int64_t)n / 2 + 1, a, &at, &len, st));
    int64_t k = 0;
    for (size_t i = 0; i < n;) {
        if (is_space(text[i])) {
            i++;
            continue;
        }
        const size_t from = i;
        while (i < n && !is_space(text[i])) i++;
        at[k] = text + from;
        len[k++] = (int32_t)(i - from);
    }
    *out = (rd_tokens){k, at, len};
    if (bpe) {
        const rd_tokens in = *out;
        RD_TRY(rd_tokens_bpe(&in, a, out, st));
    }
done:
    return st->code;
}

static bool is_marked(const rd_tokens *t, int64_t k)
{
    return k + 1 < t->n && t->len[k] >= 2 && memcmp(t->at[k] + t->len[k] - 2, "@@", 2) == 0;
}

rd_code rd_tokens_bpe(const rd_tokens *in, rd_arena *a, rd_tokens *out, rd_status *st)
{
    const char **at;
    int32_t *len;
    int64_t m = 0;
    const rd_tokens t = *in; /* out may be in */
    RD_TRY(tokens_make(t.n, a, &at, &len, st));
    for (int64_t k = 0; k < t.n; k++) {
        int64_t e = k;
        size_t bytes = (size_t)t.len[k];
        for (; is_marked(&t, e); e++) bytes += (size_t)t.len[e + 1] - 2;
        if (e == k) {
            at[m] = t.at[k];
            len[m++] = t.len[k];
            continue;
        }
        char *w;
        size_t used = 0;
        RD_TRY(rd_arena_get(a, bytes + 1, &w, st));
        for (; k <= e; k++) {
            const size_t kept = (size_t)t.len[k] - (k < e ? 2 : 0);
            memcpy(w + used, t.at[k], kept);
            used += kept;
        }
        k = e;
        at[m] = w;
        len[m++] = (int32_t)used;
    }
    *out = (rd_tokens){m, at, len};
done:
    return st->code;
}

rd_code rd_vocab_tokens(const rd_vocab *v, const int32_t *ids, int64_t n, bool print_unk, bool bpe,
                        rd_arena *a, rd_tokens *out, rd_status *st)
{
    const char **at;
    int32_t *len;
    int64_t k = 0;
    *out = (rd_tokens){0};
    RD_TRY(tokens_make(n, a, &at, &len, st));
    for (int64_t i = 0; i < n && ids[i] != RD_EOS; i++) {
        if (ids[i] < 0 || ids[i] >= rd_vocab_size(v) ||
            (ids[i] < RD_N_SPECIAL && !(ids[i] == RD_UNK && print_unk)))
            continue;
        size_t m;
        at[k] = rd_vocab_word(v, ids[i], &m);
        len[k] = (int32_t)m;
        k += m > 0; /* an empty token vanishes when the line is split again */
    }
    *out = (rd_tokens){k, at, len};
    if (bpe) RD_TRY(rd_tokens_bpe(out, a, out, st));
done:
    return st->code;
}
