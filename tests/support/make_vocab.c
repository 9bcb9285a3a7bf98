/* make_vocab.c -- counts the words of text files and writes a vocabulary.
 *
 * Each line is "word TAB count". The most frequent words come first; equal counts are in the order
 * of bytes.
 *
 *     make_vocab [--min_count=N] [--max_size=N] FILE... > vocab.txt
 *
 * Files are read as in run_dist: plain, compressed, or "archive!member". Single spaces separate
 * words. Empty words are left out. max_size is a number of words, without the four special ids. */
#include "../../runner/data/data_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct word {
    char *at; /* NULL: empty slot */
    size_t n;
    int64_t count;
} word;

typedef struct table {
    word *slot;
    size_t n, mask; /* n words in mask + 1 slots */
} table;

static rd_code no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory");
}

static word *find(const table *t, const char *at, size_t n)
{
    size_t i = rd_hash(0, at, n) & t->mask;
    while (t->slot[i].at && !(t->slot[i].n == n && memcmp(t->slot[i].at, at, n) == 0))
        i = (i + 1) & t->mask;
    return &t->slot[i];
}

static rd_code grow(table *t, rd_status *st)
{
    table big = {.n = t->n, .mask = t->slot ? t->mask * 2 + 1 : 65535};
    big.slot = calloc(big.mask + 1, sizeof *big.slot);
    if (!big.slot) return no_memory(st);
    for (size_t i = 0; t->slot && i <= t->mask; i++)
        if (t->slot[i].at) *find(&big, t->slot[i].at, t->slot[i].n) = t->slot[i];
    free(t->slot);
    *t = big;
    return RD_OK;
}

static rd_code count_word(table *t, const char *at, size_t n, rd_status *st)
{
    if (!t->slot || t->n * 2 > t->mask) RD_TRY(grow(t, st));
    word *w = find(t, at, n);
    if (!w->at) {
        w->at = malloc(n);
        if (!w->at) return no_memory(st);
        memcpy(w->at, at, n);
        w->n = n;
        t->n++;
    }
    w->count++;
done:
    return st->code;
}

static rd_code count_file(table *t, const char *path, rd_status *st)
{
    rd_lines *l = NULL;
    RD_TRY(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 1 << 30}, &l, st));
    for (;;) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        n = rd_utf8_rstrip(line, n);
        for (size_t i = 0, from = 0; i <= n; i++) {
            if (i < n && line[i] != ' ') continue;
            if (i > from) RD_TRY(count_word(t, line + from, i - from, st));
            from = i + 1;
        }
    }
done:
    rd_lines_free(l);
    return st->code;
}

static int most_frequent_first(const void *a, const void *b)
{
    const word *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    const int c = memcmp(x->at, y->at, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static void write_words(table *t, int64_t min_count, int64_t max_size)
{
    size_t n = 0;
    for (size_t i = 0; t->slot && i <= t->mask; i++)
        if (t->slot[i].at) t->slot[n++] = t->slot[i];
    if (n > 0) qsort(t->slot, n, sizeof *t->slot, most_frequent_first);
    for (size_t i = 0; i < n; i++) {
        const word *w = &t->slot[i];
        if ((int64_t)i < max_size && w->count >= min_count)
            printf("%.*s\t%" PRId64 "\n", (int)w->n, w->at, w->count);
        free(w->at);
    }
    free(t->slot);
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    table t = {0};
    int64_t min_count = 1, max_size = INT64_MAX;
    int n_files = 0;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--min_count=", 12) == 0)
            min_count = strtoll(argv[i] + 12, NULL, 10);
        else if (strncmp(argv[i], "--max_size=", 11) == 0)
            max_size = strtoll(argv[i] + 11, NULL, 10);
        else if (strncmp(argv[i], "--", 2) == 0)
            n_files = -argc;
        else
            n_files++;
    if (n_files < 1) {
        fprintf(stderr, "usage: make_vocab [--min_count=N] [--max_size=N] FILE... > vocab.txt\n");
        return RD_EUSAGE;
    }
    for (int i = 1; i < argc && st.code == RD_OK; i++)
        if (strncmp(argv[i], "--", 2) != 0) (void)count_file(&t, argv[i], &st);
    write_words(&t, st.code == RD_OK ? min_count : INT64_MAX, st.code == RD_OK ? max_size : 0);
    if (st.code == RD_OK && fflush(stdout) != 0)
        rd_fail(&st, RD_EENV, "cannot write the vocabulary");
    if (st.code != RD_OK) fprintf(stderr, "make_vocab: %s\n", st.msg);
    return (int)st.code;
}
