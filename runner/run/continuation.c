/* continuation.c -- texts token by token; see continuation.h.
 *
 * A token is not a piece of text by itself: some have a part of a character, and SentencePiece
 * writes the space before a word at the word. So some tokens are always decoded together. Their
 * text replaces the end of what was there. */
#include "continuation.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT = 32 };

rd_code stop_strings_new(const json_t *value, stop_strings *out, rd_status *st)
{
    const size_t n = json_is_array(value) ? json_array_size(value) : json_is_string(value);
    *out = (stop_strings){0};
    if (n == 0) return RD_OK;
    out->at = calloc(n, sizeof *out->at);
    if (!out->at) return rd_fail(st, RD_EENV, "out of memory for %zu stop strings", n);
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_array(value) ? json_array_get(value, i) : value);
        if (!s || !s[0]) continue;
        out->at[out->n++] = s;
        if (strlen(s) > out->longest) out->longest = strlen(s);
    }
    return RD_OK;
}

void stop_strings_release(stop_strings *s)
{
    free(s->at);
    *s = (stop_strings){0};
}

/* Appends the text of tokens. Returns the number of its bytes. */
static size_t continuation_text(const rd_dataset *d, const int32_t *ids, int64_t n, rd_strbuf *out)
{
    const size_t before = out->n;
    rd_dataset_def_of(d)->text(rd_dataset_self(d), 1, ids, n, false, out);
    return out->n - before;
}

static void continuation_cut(continuation *c, size_t bytes)
{
    if (bytes >= c->text.n) return;
    c->text.n = bytes;
    c->text.s[bytes] = '\0';
}

void continuation_begin(continuation *c, const rd_dataset *d, int32_t before)
{
    rd_strbuf_reset(&c->text);
    c->stopped = false;
    c->n = c->n_recent = 0;
    c->whole = c->context = 0;
    if (!c->recent) {
        c->cap = 2 * RECENT;
        c->recent = malloc((size_t)c->cap * sizeof *c->recent);
    }
    if (!c->recent) {
        c->text.failed = true;
        return;
    }
    c->recent[c->n_recent++] = before;
    if (before < 0) return;
    c->context = continuation_text(d, &before, 1, &c->text);
    continuation_cut(c, 0);
}

/* Stands in a text for bytes that are not UTF-8. */
static const char replaced[] = "\xEF\xBF\xBD";

/* Returns the number of last bytes that a further token can change. A character whose bytes come
 * from several tokens is U+FFFD until the last of them, with SentencePiece one for each byte. */
static size_t continuation_incomplete(const char *s, size_t n)
{
    const size_t each = sizeof replaced - 1;
    size_t k = 0;
    while (k < 3 * each && k + each <= n && memcmp(s + n - k - each, replaced, each) == 0)
        k += each;
    return k;
}

/* Forgets all tokens but the last, if its text stands for itself. */
static void continuation_forget(continuation *c, const rd_dataset *d)
{
    rd_strbuf one = {0};
    const int32_t last = c->recent[c->n_recent - 1];
    const size_t n = continuation_text(d, &last, 1, &one);
    const bool whole = n > 0 && !one.failed && !strstr(one.s, replaced);
    c->text.failed |= one.failed;
    rd_strbuf_release(&one);
    if (!whole) return;
    c->recent[0] = last;
    c->n_recent = 1;
    c->context = n;
    c->whole = c->text.n;
}

bool continuation_add(continuation *c, const rd_dataset *d, const stop_strings *s, int32_t id)
{
    if (c->stopped || c->text.failed) return c->stopped;
    if (c->n_recent == c->cap) {
        int32_t *more = realloc(c->recent, 2 * (size_t)c->cap * sizeof *more);
        if (!more) {
            c->text.failed = true;
            return false;
        }
        c->recent = more;
        c->cap *= 2;
    }
    c->recent[c->n_recent++] = id;
    c->n++;
    /* The text of all recent tokens, without that of the context. */
    const int64_t skip = c->recent[0] < 0;
    continuation_cut(c, c->whole);
    const size_t n = continuation_text(d, c->recent + skip, c->n_recent - skip, &c->text);
    if (c->text.failed) return false;
    const size_t drop = c->context < n ? c->context : n;
    if (drop > 0) {
        char *at = c->text.s + c->whole;
        memmove(at, at + drop, n - drop + 1);
        c->text.n -= drop;
    }
    /* A stop string can begin before the text that is new. */
    const size_t from = c->whole + 1 > s->longest ? c->whole + 1 - s->longest : 0;
    const char *first = NULL;
    for (int i = 0; i < s->n && c->text.n > from; i++) {
        const char *at = memmem(c->text.s + from, c->text.n - from, s->at[i], strlen(s->at[i]));
        if (at && (!first || at < first)) first = at;
    }
    if (first) {
        c->stopped = true;
        continuation_cut(c, (size_t)(first - c->text.s));
    } else if (c->n_recent > RECENT) {
        continuation_forget(c, d);
    }
    return c->stopped;
}

size_t continuation_sure(const continuation *c, const stop_strings *s)
{
    const char *text = rd_strbuf_str(&c->text);
    const size_t n = c->text.n;
    size_t back = continuation_incomplete(text, n);
    if (c->stopped) return n;
    for (int i = 0; i < s->n; i++) {
        const size_t most = strlen(s->at[i]) - 1;
        for (size_t k = most < n ? most : n; k > back; k--)
            if (memcmp(text + n - k, s->at[i], k) == 0) {
                back = k;
                break;
            }
    }
    return n - back;
}

void continuation_release(continuation *c)
{
    rd_strbuf_release(&c->text);
    free(c->recent);
    *c = (continuation){0};
}
