/* run_dist_vocab.c -- counts the words of text files and writes a vocabulary.
 *
 * Each line is "word TAB count". The most frequent words come first; equal counts are in the order
 * of bytes.
 *
 *     run_dist-vocab [--min_count=N] [--max_size=N] FILE... > vocab.txt
 *
 * Files are read as in run_dist: plain, compressed, or "archive!member". Single spaces separate
 * words. Empty words are left out. max_size is a number of words, without the four special ids. */
#include "../../runner/data/data_impl.h"
#include <errno.h>
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

/* Writes the words that the limits leave and returns their number. */
static int64_t write_words(table *t, int64_t min_count, int64_t max_size)
{
    size_t n = 0;
    int64_t written = 0;
    for (size_t i = 0; t->slot && i <= t->mask; i++)
        if (t->slot[i].at) t->slot[n++] = t->slot[i];
    if (n > 0) qsort(t->slot, n, sizeof *t->slot, most_frequent_first);
    for (size_t i = 0; i < n; i++) {
        const word *w = &t->slot[i];
        if (written < max_size && w->count >= min_count) {
            fwrite(w->at, 1, w->n, stdout);
            printf("\t%" PRId64 "\n", w->count);
            written++;
        }
        free(w->at);
    }
    free(t->slot);
    return written;
}

static const char usage[] =
    "usage: %s [--min_count=N] [--max_size=N] FILE... > vocab.txt\n"
    "Counts the words of text files and writes a vocabulary: \"word TAB count\", the most frequent "
    "first.\n"
    "  --min_count=N  leaves out words that occur fewer than N times (1)\n"
    "  --max_size=N   writes N words at most (all)\n"
    "A FILE is plain, compressed, or \"archive!member\". Single spaces separate words.\n";

/* Reads --NAME=N, N from 1. *is: the word is this option. */
static rd_code take_number(const char *arg, const char *name, int64_t *out, bool *is, rd_status *st)
{
    const size_t n = strlen(name);
    char *end;
    if (strncmp(arg, name, n) != 0) return RD_OK;
    *is = true;
    errno = 0;
    *out = strtoll(arg + n, &end, 10);
    if (end == arg + n || *end || errno || *out < 1)
        rd_fail(st, RD_EUSAGE, "%s%.40s is no whole number from 1", name, arg + n);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    table t = {0};
    int64_t min_count = 1, max_size = INT64_MAX, n = 0;
    int n_files = 0;
    const char *me = program_invocation_short_name;
    for (int i = 1; i < argc && st.code == RD_OK; i++) {
        bool is = false;
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            printf(usage, me);
            return fflush(stdout) == 0 ? RD_OK : RD_EENV;
        }
        if (take_number(argv[i], "--min_count=", &min_count, &is, &st) != RD_OK ||
            take_number(argv[i], "--max_size=", &max_size, &is, &st) != RD_OK)
            break;
        if (is) continue;
        if (argv[i][0] == '-')
            rd_fail(&st, RD_EUSAGE, "unknown option '%.80s'; -h lists them, and ./%.80s is a file",
                    argv[i], argv[i]);
        else
            argv[1 + n_files++] = argv[i];
    }
    if (st.code == RD_OK && n_files == 0) {
        fprintf(stderr, usage, me);
        return RD_EUSAGE;
    }
    for (int i = 1; i <= n_files && st.code == RD_OK; i++) (void)count_file(&t, argv[i], &st);
    const bool read = st.code == RD_OK;
    n = write_words(&t, min_count, read ? max_size : 0);
    if (read && n == 0)
        rd_fail(&st, RD_EDATA, "no word is left: the files are empty, or min_count is too large");
    if ((fflush(stdout) != 0 || ferror(stdout)) && st.code == RD_OK)
        rd_fail(&st, RD_EENV, "cannot write the vocabulary to standard output");
    if (st.code != RD_OK) fprintf(stderr, "%s: %s\n", me, st.msg);
    return (int)st.code;
}
