/* word_counts.c -- counts the words of lines and writes the vocabulary of the most frequent ones.
 *
 * The order is that of Sockeye: the most frequent word first; of equal counts, the word that comes
 * last by code points. (The order of UTF-8 bytes is that of code points.) */
#include "text_impl.h"
#include <inttypes.h>
#include <stdlib.h>

typedef struct counted {
    size_t at; /* where the word begins in text */
    uint32_t n;
    int64_t count; /* 0: an empty slot */
} counted;

struct rd_word_counts {
    rd_strbuf text; /* the bytes of the words */
    counted *slot;  /* owned */
    size_t n, mask; /* n words in mask + 1 slots */
    int64_t total, unfit;
};

rd_code rd_word_counts_new(rd_word_counts **out, rd_status *st)
{
    rd_word_counts *c = calloc(1, sizeof *c);
    *out = c;
    if (!c) return rd_fail(st, RD_EENV, "out of memory for words");
    c->mask = ((size_t)1 << 14) - 1;
    c->slot = calloc(c->mask + 1, sizeof *c->slot);
    return c->slot ? RD_OK : rd_fail(st, RD_EENV, "out of memory for words");
}

void rd_word_counts_free(rd_word_counts *c)
{
    if (!c) return;
    rd_strbuf_release(&c->text);
    free(c->slot);
    free(c);
}

static counted *counts_find(const rd_word_counts *c, const char *at, size_t n)
{
    size_t i = rd_hash(0, at, n) & c->mask;
    while (c->slot[i].count > 0 &&
           !(c->slot[i].n == n && memcmp(c->text.s + c->slot[i].at, at, n) == 0))
        i = (i + 1) & c->mask;
    return &c->slot[i];
}

static rd_code counts_grow(rd_word_counts *c, rd_status *st)
{
    counted *was = c->slot;
    const size_t n = c->mask + 1;
    c->slot = calloc(2 * n, sizeof *c->slot);
    if (!c->slot) {
        c->slot = was;
        return rd_fail(st, RD_EENV, "out of memory for %zu words", c->n);
    }
    c->mask = 2 * n - 1;
    for (size_t i = 0; i < n; i++)
        if (was[i].count > 0) *counts_find(c, c->text.s + was[i].at, was[i].n) = was[i];
    free(was);
    return RD_OK;
}

static rd_code counts_word(rd_word_counts *c, const char *at, size_t n, rd_status *st)
{
    c->total++;
    if (memchr(at, '\t', n) || memchr(at, '\r', n)) { /* a line of the file cannot hold it */
        c->unfit++;
        return RD_OK;
    }
    if (c->n * 2 > c->mask) RD_TRY(counts_grow(c, st));
    counted *w = counts_find(c, at, n);
    if (w->count == 0) {
        *w = (counted){c->text.n, (uint32_t)n, 0};
        rd_strbuf_add(&c->text, at, n);
        if (c->text.failed) return rd_fail(st, RD_EENV, "out of memory for %zu words", c->n);
        c->n++;
    }
    w->count++;
done:
    return st->code;
}

rd_code rd_word_counts_add(rd_word_counts *c, const char *line, size_t n, rd_status *st)
{
    for (size_t from = 0; from < n;) {
        const char *space = memchr(line + from, ' ', n - from);
        const size_t to = space ? (size_t)(space - line) : n;
        if (to > from) RD_TRY(counts_word(c, line + from, to - from, st));
        from = to + 1;
    }
done:
    return st->code;
}

int64_t rd_word_counts_unfit(const rd_word_counts *c)
{
    return c->unfit;
}

static int counts_order(const void *a, const void *b, void *text)
{
    const counted *x = a, *y = b;
    const char *t = text;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    const int d = memcmp(t + y->at, t + x->at, x->n < y->n ? x->n : y->n);
    return d ? d : (y->n > x->n) - (y->n < x->n);
}

rd_code rd_word_counts_write(const rd_word_counts *c, int64_t min_count, int64_t num_words,
                             rd_strbuf *out, rd_counted *what, rd_status *st)
{
    counted *list = malloc((c->n + 1) * sizeof *list);
    size_t n = 0;
    *what = (rd_counted){.distinct = (int64_t)c->n, .total = c->total};
    if (!list) return rd_fail(st, RD_EENV, "out of memory for %zu words", c->n);
    for (size_t i = 0; i <= c->mask; i++)
        if (c->slot[i].count > 0) list[n++] = c->slot[i];
    if (n > 0) qsort_r(list, n, sizeof *list, counts_order, c->text.s);
    for (size_t i = 0; i < n && list[i].count >= min_count; i++) {
        if (what->words >= RD_VOCAB_MOST || (num_words > 0 && what->words >= num_words)) break;
        rd_strbuf_add(out, c->text.s + list[i].at, list[i].n);
        rd_strbuf_printf(out, "\t%" PRId64 "\n", list[i].count);
        what->words++;
        what->covered += list[i].count;
    }
    free(list);
    if (out->failed) return rd_fail(st, RD_EENV, "out of memory for a vocabulary");
    return RD_OK;
}
