/* metric_text.c -- texts as metrics compare them, see metric_text.h. */
#include "metric_text.h"
#include "data_impl.h"
#include "rd/hash.h"
#include "rd/printable.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- n-grams ---- */

/* Every n-gram gets a number, and an n-gram is the pair (number of its first n - 1 items, last
 * item). The pairs of one n are the keys of a table, and a slot is the number of an n-gram. */
typedef struct gram {
    uint64_t pair; /* 0: empty */
    int32_t hyp, ref, now;
} gram;

typedef struct gram_table {
    gram *slot;
    uint32_t mask;
} gram_table;

static uint32_t gram_at(const gram_table *t, uint32_t before, uint32_t item)
{
    const uint64_t pair = (uint64_t)before << 32 | (item + 1);
    uint32_t i = (uint32_t)((pair * RD_GOLDEN64) >> 32) & t->mask;
    while (t->slot[i].pair != 0 && t->slot[i].pair != pair) i = (i + 1) & t->mask;
    t->slot[i].pair = pair;
    return i;
}

/* Extends the n-grams of a text from k to k + 1 items. id: the slots of its n-grams, plus 1. */
static void grams_extend(const gram_table *t, const metric_text *x, int k, uint32_t *id)
{
    for (int64_t i = 0; i + k < x->n; i++) id[i] = gram_at(t, id[i], x->at[i + k]) + 1;
}

/* Counts a reference: of each n-gram the largest count of all references is kept. */
static void grams_of_ref(const gram_table *t, const uint32_t *id, int64_t n)
{
    for (int64_t i = 0; i < n; i++) t->slot[id[i] - 1].now++;
    for (int64_t i = 0; i < n; i++) {
        gram *g = &t->slot[id[i] - 1];
        if (g->now > g->ref) g->ref = g->now;
        g->now = 0;
    }
}

/* Returns the clipped matches: each distinct n-gram of the hypothesis counts once. */
static int64_t grams_shared(const gram_table *t, const uint32_t *id, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) t->slot[id[i] - 1].hyp++;
    for (int64_t i = 0; i < n; i++) {
        gram *g = &t->slot[id[i] - 1];
        sum += g->hyp < g->ref ? g->hyp : g->ref;
        g->hyp = 0;
    }
    return sum;
}

static int64_t grams_left(int64_t n, int k)
{
    return n > k ? n - k : 0;
}

static int64_t match_order(const gram_table *t, const metric_text *hyp, const metric_text *refs,
                           int64_t n_refs, int k, uint32_t *id)
{
    memset(t->slot, 0, ((size_t)t->mask + 1) * sizeof *t->slot);
    int64_t at = hyp->n;
    grams_extend(t, hyp, k, id);
    for (int64_t r = 0; r < n_refs; r++) {
        grams_extend(t, &refs[r], k, id + at);
        grams_of_ref(t, id + at, grams_left(refs[r].n, k));
        at += refs[r].n;
    }
    return grams_shared(t, id, grams_left(hyp->n, k));
}

/* Returns a power of two of slots for n entries, at most half full. 0: too many. */
static uint64_t table_slots(int64_t n)
{
    uint64_t slots = 32;
    if (n > INT32_MAX / 2) return 0;
    while (slots < (uint64_t)n * 2) slots *= 2;
    return slots;
}

bool metric_match(const metric_text *hyp, const metric_text *refs, int64_t n_refs, int order,
                  int64_t *match)
{
    int64_t n = hyp->n;
    for (int64_t r = 0; r < n_refs; r++) n += refs[r].n;
    const uint64_t slots = table_slots(n);
    const gram_table t = {slots ? malloc(slots * sizeof *t.slot) : NULL, (uint32_t)(slots - 1)};
    uint32_t *id = calloc((size_t)n + 1, sizeof *id);
    const bool ok = t.slot && id;
    for (int k = 0; ok && k < order; k++) match[k] = match_order(&t, hyp, refs, n_refs, k, id);
    free(t.slot);
    free(id);
    return ok;
}

/* ---- words as numbers ---- */

typedef struct word_slot {
    const char *at; /* NULL: empty */
    int32_t len;
    uint32_t number;
} word_slot;

typedef struct word_table {
    word_slot *slot;
    uint32_t mask, n;
} word_table;

static uint32_t word_number(word_table *t, const char *at, int32_t len)
{
    const uint64_t h = rd_fnv(RD_FNV_START, at, (size_t)len);
    uint32_t k = (uint32_t)(h ^ h >> 32) & t->mask;
    while (t->slot[k].at && !(t->slot[k].len == len && memcmp(t->slot[k].at, at, (size_t)len) == 0))
        k = (k + 1) & t->mask;
    if (!t->slot[k].at) t->slot[k] = (word_slot){at, len, t->n++};
    return t->slot[k].number;
}

static metric_text word_numbers(word_table *t, const rd_tokens *x, uint32_t *out)
{
    for (int64_t i = 0; i < x->n; i++) out[i] = word_number(t, x->at[i], x->len[i]);
    return (metric_text){out, x->n};
}

bool metric_match_words(const rd_tokens *hyp, const rd_tokens *refs, int64_t n_refs, int order,
                        int64_t *match)
{
    int64_t n = hyp->n;
    for (int64_t r = 0; r < n_refs; r++) n += refs[r].n;
    const uint64_t slots = table_slots(n);
    word_table t = {slots ? calloc(slots, sizeof *t.slot) : NULL, (uint32_t)(slots - 1), 0};
    uint32_t *at = malloc(((size_t)n + 1) * sizeof *at);
    metric_text *texts = malloc((size_t)(n_refs + 1) * sizeof *texts);
    bool ok = t.slot && at && texts;
    if (ok) {
        texts[0] = word_numbers(&t, hyp, at);
        n = hyp->n;
        for (int64_t r = 0; r < n_refs; n += refs[r++].n)
            texts[r + 1] = word_numbers(&t, &refs[r], at + n);
        ok = metric_match(texts, texts + 1, n_refs, order, match);
    }
    free(t.slot);
    free(at);
    free(texts);
    return ok;
}

/* ---- tokenizer 13a ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_stop(char c)
{
    return c == '.' || c == ',';
}

/* The characters that always stand alone: not the apostrophe, comma, hyphen, stop. */
static bool is_mark(char c)
{
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
           (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

/* Replaces what by one character, or by none (0), in place. Returns the new length. */
static size_t text_replace(char *s, size_t n, const char *what, char by)
{
    const size_t k = strlen(what);
    size_t m = 0;
    for (size_t i = 0; i < n;) {
        if (n - i >= k && memcmp(s + i, what, k) == 0) {
            if (by) s[m++] = by;
            i += k;
        } else {
            s[m++] = s[i++];
        }
    }
    return m;
}

static size_t part_put(char *out, size_t m, char a, char b, char c)
{
    out[m] = a;
    out[m + 1] = b;
    out[m + 2] = c;
    return m + 3;
}

/* The four substitutions of mteval-v13a.pl. Each goes from left to right, without overlaps. They
 * compare bytes: no byte of a longer character is a digit, a stop or a mark. */

static size_t part_marks(const char *s, size_t n, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_mark(s[i]))
            m = part_put(out, m, ' ', s[i], ' ');
        else
            out[m++] = s[i];
    }
    return m;
}

static size_t part_stops_after(const char *s, size_t n, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        out[m++] = s[i];
        if (i + 1 < n && !is_digit(s[i]) && is_stop(s[i + 1]))
            m = part_put(out, m, ' ', s[++i], ' ');
    }
    return m;
}

static size_t part_stops_before(const char *s, size_t n, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && is_stop(s[i]) && !is_digit(s[i + 1])) {
            m = part_put(out, m, ' ', s[i], ' ');
            i++;
        }
        out[m++] = s[i];
    }
    return m;
}

static size_t part_hyphens(const char *s, size_t n, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        out[m++] = s[i];
        if (i + 1 < n && is_digit(s[i]) && s[i + 1] == '-') m = part_put(out, m, ' ', s[++i], ' ');
    }
    return m;
}

/* Writes the tokens, a space before and after each. */
static size_t text_join(const rd_tokens *in, char *out)
{
    size_t n = 0;
    out[n++] = ' ';
    for (int64_t i = 0; i < in->n; i++) {
        memcpy(out + n, in->at[i], (size_t)in->len[i]);
        n += (size_t)in->len[i];
        out[n++] = ' ';
    }
    return n;
}

static int64_t words_split(const char *s, size_t n, const char **at, int32_t *len)
{
    int64_t k = 0;
    size_t from = 0;
    for (size_t i = 0; i <= n;) {
        const size_t space = i < n ? rd_utf8_space(s + i, n - i) : 1;
        if (space > 0) {
            if (i > from) {
                at[k] = s + from;
                len[k++] = (int32_t)(i - from);
            }
            from = i + space;
        }
        i += space > 0 ? space : 1;
    }
    return k;
}

bool metric_words_13a(const rd_tokens *in, metric_words *out)
{
    size_t n = 1;
    *out = (metric_words){.text = NULL};
    for (int64_t i = 0; i < in->n; i++) n += (size_t)in->len[i] + 1;
    /* A stop gets up to four spaces, another character up to two. */
    const size_t most = 5 * n;
    char *other = malloc(most);
    if (n > INT32_MAX / 5 || !other || !(out->text = malloc(most))) goto failed;
    n = text_join(in, out->text);
    n = text_replace(out->text, n, "<skipped>", 0);
    n = text_replace(out->text, n, "&quot;", '"');
    n = text_replace(out->text, n, "&amp;", '&');
    n = text_replace(out->text, n, "&lt;", '<');
    n = text_replace(out->text, n, "&gt;", '>');
    n = part_marks(out->text, n, other);
    n = part_stops_after(other, n, out->text);
    n = part_stops_before(out->text, n, other);
    n = part_hyphens(other, n, out->text);
    out->at = malloc((n / 2 + 1) * sizeof *out->at);
    out->len = malloc((n / 2 + 1) * sizeof *out->len);
    if (!out->at || !out->len) goto failed;
    out->tokens = (rd_tokens){words_split(out->text, n, out->at, out->len), out->at, out->len};
    free(other);
    return true;
failed:
    free(other);
    return false;
}

void metric_words_free(metric_words *w)
{
    free(w->text);
    free(w->at);
    free(w->len);
}

/* ---- characters ---- */

/* Returns the code point of a valid character of `bytes` bytes. */
static uint32_t code_point(const unsigned char *s, size_t bytes)
{
    if (bytes == 1) return s[0];
    uint32_t c = s[0] & (0xFFu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) c = c << 6 | (s[i] & 0x3Fu);
    return c;
}

bool metric_chars(const rd_tokens *in, uint32_t **at, int64_t *n)
{
    size_t bytes = 0;
    *n = 0;
    for (int64_t i = 0; i < in->n; i++) bytes += (size_t)in->len[i];
    *at = malloc((bytes + 1) * sizeof **at);
    if (!*at) return false;
    for (int64_t i = 0; i < in->n; i++) {
        const char *s = in->at[i], *end = s + in->len[i];
        while (s < end) {
            const size_t left = (size_t)(end - s), space = rd_utf8_space(s, left),
                         k = rd_utf8_bytes(s, left);
            if (space == 0) {
                const unsigned char *u = (const unsigned char *)s;
                (*at)[(*n)++] = k > 0 ? code_point(u, k) : 0xDC00u + u[0];
            }
            s += k > 0 ? k : 1;
        }
    }
    return true;
}

/* ---- number of references ---- */

void metric_refs_add(int64_t counts[METRIC_REF_COUNTS], int64_t n_refs)
{
    counts[METRIC_SENTENCES]++;
    counts[METRIC_REFS] += n_refs;
    counts[METRIC_SQUARES] += n_refs * n_refs;
}

const char *metric_refs_word(const int64_t counts[METRIC_REF_COUNTS], char out[24])
{
    /* The sum of squares is least when all numbers are equal. */
    const int64_t each = counts[METRIC_SENTENCES] > 0
                             ? counts[METRIC_REFS] / counts[METRIC_SENTENCES]
                             : 1;
    if (counts[METRIC_SQUARES] != each * counts[METRIC_REFS]) return "var";
    (void)snprintf(out, 24, "%" PRId64, each);
    return out;
}
