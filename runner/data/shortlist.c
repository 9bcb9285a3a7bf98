/* shortlist.c -- reads a lexicon and lists the target words of sentences.
 *
 * Within a source word only the order of the values counts, and the logarithm keeps it. So
 * probabilities and logarithms are compared as they are. */
#include "rd/shortlist.h"
#include "data_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct pair {
    int32_t source, target;
    float value;
} pair;

struct rd_shortlist {
    int64_t n_source; /* size of the source vocabulary */
    int64_t *off; /* [n_source + 1] the target ids of source id i are id[off[i] .. off[i + 1]) */
    int32_t *id;  /* best first */
    int64_t unknown;
    uint64_t hash;
};

/* A lexicon being read. */
typedef struct lexicon {
    const char *name;
    pair *pair; /* owned */
    int64_t n, cap, unknown;
    int64_t above, below; /* first line with a value above 0, and below 0; 0: none */
} lexicon;

enum { LEXICON_LINE_BYTES = 1 << 20, LEXICON_PAIRS = 1 << 28, NUMBER_BYTES = 64 };

static int best_first(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->target < y->target ? -1 : x->target > y->target;
}

/* Reads the number of n bytes. */
static bool lexicon_number(const char *text, size_t n, double *out)
{
    char copy[NUMBER_BYTES], *end;
    while (n > 0 && *text == ' ') text++, n--;
    if (n == 0 || n >= sizeof copy) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    *out = strtod(copy, &end);
    return *end == '\0' && isfinite(*out);
}

static rd_code lexicon_keep(lexicon *x, pair p, rd_status *st)
{
    if (x->n == x->cap) {
        const int64_t cap = 2 * x->cap + 4096;
        pair *more = x->n < LEXICON_PAIRS ? realloc(x->pair, (size_t)cap * sizeof *more) : NULL;
        if (!more)
            return rd_fail(st, x->n < LEXICON_PAIRS ? RD_EENV : RD_EDATA,
                           "no memory for the %" PRId64 " pairs of '%s'; keep fewer pairs a word",
                           x->n, x->name);
        x->pair = more;
        x->cap = cap;
    }
    x->pair[x->n++] = p;
    return RD_OK;
}

static rd_code lexicon_line(lexicon *x, const char *line, size_t n, int64_t number,
                            const rd_vocab *source, const rd_vocab *target, rd_status *st)
{
    const char *tab = memchr(line, '\t', n),
               *second = tab ? memchr(tab + 1, '\t', n - (size_t)(tab + 1 - line)) : NULL;
    double value;
    if (!second)
        return rd_fail(st, RD_EDATA,
                       "%s:%" PRId64 ": a lexicon's line is: source word, TAB, target word, TAB, "
                       "probability or its logarithm",
                       x->name, number);
    const size_t rest = n - (size_t)(second + 1 - line);
    if (!lexicon_number(second + 1, rest, &value) || value > 1.0)
        return rd_fail(st, RD_EDATA,
                       "%s:%" PRId64 ": '%.*s' is no probability and no logarithm of one", x->name,
                       number, (int)(rest < 40 ? rest : 40), second + 1);
    if (value > 0.0 && x->above == 0) x->above = number;
    if (value < 0.0 && x->below == 0) x->below = number;
    if (x->above > 0 && x->below > 0)
        return rd_fail(st, RD_EDATA,
                       "%s:%" PRId64 ": a %s, but line %" PRId64
                       " has a %s; a lexicon has one of them throughout",
                       x->name, number, value < 0.0 ? "logarithm" : "probability",
                       value < 0.0 ? x->above : x->below,
                       value < 0.0 ? "probability" : "logarithm");
    const int32_t from = rd_vocab_id(source, line, (size_t)(tab - line)),
                  to = rd_vocab_id(target, tab + 1, (size_t)(second - tab - 1));
    if (from == RD_UNK || to == RD_UNK) {
        x->unknown++;
        return RD_OK;
    }
    return lexicon_keep(x, (pair){from, to, (float)value}, st);
}

/* Keeps the k best pairs of each source word. */
static rd_code shortlist_cut(rd_shortlist *s, lexicon *x, int64_t k, rd_status *st)
{
    int64_t kept = 0;
    s->off = calloc((size_t)s->n_source + 1, sizeof *s->off);
    s->id = malloc((size_t)x->n * sizeof *s->id);
    if (!s->off || !s->id) return rd_fail(st, RD_EENV, "out of memory for '%s'", x->name);
    qsort(x->pair, (size_t)x->n, sizeof *x->pair, best_first);
    for (int64_t i = 0; i < x->n; i++) {
        const pair *p = &x->pair[i];
        int64_t *n = &s->off[p->source + 1]; /* number of pairs of the word so far */
        bool repeated = false;
        if (*n == k) continue;
        for (int64_t j = kept - *n; j < kept; j++) repeated |= s->id[j] == p->target;
        if (repeated) continue;
        s->id[kept++] = p->target;
        ++*n;
        s->hash = rd_hash(s->hash, p, 2 * sizeof(int32_t));
    }
    for (int64_t i = 0; i < s->n_source; i++) s->off[i + 1] += s->off[i];
    return RD_OK;
}

static rd_code shortlist_read(rd_lines *l, const char *name, const rd_vocab *source,
                              const rd_vocab *target, int64_t k, rd_shortlist **out, rd_status *st)
{
    lexicon x = {.name = name};
    rd_shortlist *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return rd_fail(st, RD_EENV, "out of memory for '%s'", name);
    s->n_source = rd_vocab_size(source);
    for (;;) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        n = rd_utf8_rstrip(line, n);
        if (n > 0) RD_TRY(lexicon_line(&x, line, n, rd_lines_number(l), source, target, st));
    }
    if (x.n == 0)
        RD_TRY(rd_fail(st, RD_EDATA,
                       "'%s' has no pair of words of the two vocabularies, but %" PRId64
                       " others; check that it is a lexicon of these subwords",
                       name, x.unknown));
    s->unknown = x.unknown;
    RD_TRY(shortlist_cut(s, &x, k, st));
    *out = s;
    s = NULL;
done:
    free(x.pair);
    rd_shortlist_free(s);
    return st->code;
}

rd_code rd_shortlist_new(const char *path, const rd_vocab *source, const rd_vocab *target,
                         int64_t k, rd_shortlist **out, rd_status *st)
{
    rd_lines *l = NULL;
    *out = NULL;
    const rd_lines_opts o = {.max_line_bytes = LEXICON_LINE_BYTES};
    RD_TRY(rd_lines_new(path, o, &l, st));
    RD_TRY(shortlist_read(l, path, source, target, k, out, st));
done:
    rd_lines_free(l);
    return st->code;
}

rd_code rd_shortlist_new_mem(const char *name, const char *p, size_t n, const rd_vocab *source,
                             const rd_vocab *target, int64_t k, rd_shortlist **out, rd_status *st)
{
    rd_lines *l = NULL;
    *out = NULL;
    const rd_lines_opts o = {.max_line_bytes = LEXICON_LINE_BYTES};
    RD_TRY(rd_lines_new_mem(name, p, n, o, &l, st));
    RD_TRY(shortlist_read(l, name, source, target, k, out, st));
done:
    rd_lines_free(l);
    return st->code;
}

void rd_shortlist_free(rd_shortlist *s)
{
    if (!s) return;
    free(s->off);
    free(s->id);
    free(s);
}

int64_t rd_shortlist_pairs(const rd_shortlist *s)
{
    return s->off[s->n_source];
}

int64_t rd_shortlist_unknown(const rd_shortlist *s)
{
    return s->unknown;
}

uint64_t rd_shortlist_hash(const rd_shortlist *s)
{
    return s->hash;
}

static int lower_id_first(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

rd_code rd_shortlist_sets(const rd_shortlist *s, int64_t n, const int32_t *src, const int64_t *off,
                          rd_arena *a, int64_t **at, int32_t **id, rd_status *st)
{
    int64_t most = n * RD_N_SPECIAL, all = 0;
    for (int64_t i = off[0]; i < off[n]; i++)
        if (src[i] >= 0 && src[i] < s->n_source) most += s->off[src[i] + 1] - s->off[src[i]];
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof **at, at, st));
    RD_TRY(rd_arena_get(a, (size_t)(most + 1) * sizeof **id, id, st));
    for (int64_t i = 0; i < n; i++) {
        int32_t *set = *id + all;
        int64_t m = 0, kept = 0;
        for (int32_t k = 0; k < RD_N_SPECIAL; k++) set[m++] = k;
        for (int64_t j = off[i]; j < off[i + 1]; j++) {
            if (src[j] < 0 || src[j] >= s->n_source) continue;
            const int64_t words = s->off[src[j] + 1] - s->off[src[j]];
            memcpy(set + m, s->id + s->off[src[j]], (size_t)words * sizeof *set);
            m += words;
        }
        qsort(set, (size_t)m, sizeof *set, lower_id_first);
        for (int64_t k = 0; k < m; k++)
            if (k == 0 || set[k] != set[k - 1]) set[kept++] = set[k];
        (*at)[i] = all;
        all += kept;
    }
    (*at)[n] = all;
done:
    return st->code;
}
