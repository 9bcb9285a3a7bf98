/* bpe_limits.c -- the limits of byte pair encoding; see bpe_limits.h.
 *
 * Glossaries are regular expressions, as in subword-nmt. A word that a glossary matches as a whole
 * is one piece. Else each match inside of it, from left to right, is cut out. A part that some
 * glossary matches as a whole is a piece, and byte pair encoding splits the others. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "bpe_limits.h"
#include "rd/hash.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

typedef struct glossary {
    pcre2_code *find, *whole; /* the pattern; "^pattern$" */
    const char *text;         /* the pattern; only while the limits are made */
    size_t n;
} glossary;

struct bpe_limits {
    rd_strings pieces;
    bool has_pieces;
    uint64_t hash;
    glossary *gloss;
    size_t n_gloss;
    pcre2_code *any; /* "^(?:a|b)$" of all patterns; NULL: there are none */
};

static rd_code limits_no_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for the limits of subwords");
}

static rd_code gloss_compile(const char *before, const char *p, size_t n, const char *after,
                             pcre2_code **out, rd_status *st)
{
    rd_strbuf b = {0};
    int error;
    size_t at;
    rd_strbuf_puts(&b, before);
    rd_strbuf_add(&b, p, n);
    rd_strbuf_puts(&b, after);
    if (b.failed) {
        (void)limits_no_memory(st);
    } else {
        *out = pcre2_compile((PCRE2_SPTR)b.s, b.n, PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF,
                             &error, &at, NULL);
        if (!*out) {
            char why[160];
            (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
            rd_fail(st, RD_EUSAGE, "the glossary '%.*s' is no regular expression: %s",
                    n < 200 ? (int)n : 200, p, why);
        }
    }
    rd_strbuf_release(&b);
    return st->code;
}

/* Returns the first match from `at` on, in range[2]. false: there is none. */
static bool gloss_match(const pcre2_code *c, const char *s, size_t n, size_t at, size_t range[2])
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    const bool found = m && pcre2_match(c, (PCRE2_SPTR)s, n, at, 0, m, NULL) >= 0;
    if (found) memcpy(range, pcre2_get_ovector_pointer(m), 2 * sizeof *range);
    pcre2_match_data_free(m);
    return found;
}

static rd_code gloss_add(bpe_limits *l, const char *p, size_t n, rd_status *st)
{
    glossary *g = realloc(l->gloss, (l->n_gloss + 1) * sizeof *g);
    uint32_t groups = 0;
    size_t range[2];
    if (!g) return limits_no_memory(st);
    l->gloss = g;
    g += l->n_gloss++;
    *g = (glossary){.text = p, .n = n};
    RD_TRY(gloss_compile("", p, n, "", &g->find, st));
    RD_TRY(gloss_compile("^", p, n, "$", &g->whole, st));
    (void)pcre2_pattern_info(g->find, PCRE2_INFO_CAPTURECOUNT, &groups);
    if (groups > 0)
        return rd_fail(st, RD_EUSAGE,
                       "the glossary '%.*s' has a group that captures; write (?:...) for (...)",
                       n < 200 ? (int)n : 200, p);
    if (gloss_match(g->find, "", 0, 0, range))
        return rd_fail(st, RD_EUSAGE, "the glossary '%.*s' matches an empty text; make it longer",
                       n < 200 ? (int)n : 200, p);
done:
    return st->code;
}

/* Calls f for each line, without a CR at its end. */
static rd_code limits_lines(bpe_limits *l, const char *text, size_t n,
                            rd_code (*f)(bpe_limits *, const char *, size_t, rd_status *),
                            rd_status *st)
{
    while (n > 0) {
        const char *lf = memchr(text, '\n', n);
        const size_t k = lf ? (size_t)(lf - text) : n, m = k > 0 && text[k - 1] == '\r' ? k - 1 : k;
        if (m > 0) RD_TRY(f(l, text, m, st));
        text += lf ? k + 1 : k;
        n -= lf ? k + 1 : k;
    }
done:
    return st->code;
}

static rd_code piece_add(bpe_limits *l, const char *line, size_t n, rd_status *st)
{
    const char *space = memchr(line, ' ', n);
    if (!space || space == line || space + 1 == line + n)
        return rd_fail(st, RD_EDATA, "a line of the pieces is not 'piece count'");
    if (rd_strings_add(&l->pieces, line, (size_t)(space - line)) < 0) return limits_no_memory(st);
    return RD_OK;
}

rd_code bpe_limits_new(const char *pieces, size_t n_pieces, const char *glossaries,
                       size_t n_glossaries, bpe_limits **out, rd_status *st)
{
    rd_strbuf all = {0};
    *out = NULL;
    if (n_pieces == 0 && n_glossaries == 0) return RD_OK;
    bpe_limits *l = calloc(1, sizeof *l);
    if (!l) return limits_no_memory(st);
    l->has_pieces = n_pieces > 0;
    l->hash = rd_hash(rd_hash(1, pieces, n_pieces), glossaries, n_glossaries);
    RD_TRY(limits_lines(l, pieces, n_pieces, piece_add, st));
    RD_TRY(limits_lines(l, glossaries, n_glossaries, gloss_add, st));
    for (size_t i = 0; i < l->n_gloss; i++) {
        if (i > 0) rd_strbuf_puts(&all, "|");
        rd_strbuf_add(&all, l->gloss[i].text, l->gloss[i].n);
    }
    if (all.failed) RD_TRY(limits_no_memory(st));
    if (all.n > 0) RD_TRY(gloss_compile("^(?:", all.s, all.n, ")$", &l->any, st));
    *out = l;
    l = NULL;
done:
    rd_strbuf_release(&all);
    bpe_limits_free(l);
    return st->code;
}

void bpe_limits_free(bpe_limits *l)
{
    if (!l) return;
    rd_strings_release(&l->pieces);
    for (size_t i = 0; i < l->n_gloss; i++) {
        pcre2_code_free(l->gloss[i].find);
        pcre2_code_free(l->gloss[i].whole);
    }
    free(l->gloss);
    pcre2_code_free(l->any);
    free(l);
}

bool bpe_limits_have_pieces(const bpe_limits *l)
{
    return l && l->has_pieces;
}

uint64_t bpe_limits_hash(const bpe_limits *l)
{
    return l ? l->hash : 0;
}

bool bpe_limits_allow(const bpe_limits *l, const char *piece, size_t n, bool continues)
{
    enum { MOST = 1024 };
    char s[MOST];
    if (!continues) return rd_strings_find(&l->pieces, piece, n) >= 0;
    if (n > MOST - 2) return false;
    memcpy(s, piece, n);
    memcpy(s + n, "@@", 2);
    return rd_strings_find(&l->pieces, s, n + 2) >= 0;
}

static bool parts_add(bpe_parts *p, uint32_t from, uint32_t n)
{
    if (n == 0) return true;
    if (p->n == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 16;
        bpe_part *at = realloc(p->at, cap * sizeof *at);
        if (at) p->at = at;
        bpe_part *other = realloc(p->other, cap * sizeof *other);
        if (other) p->other = other;
        if (!at || !other) return false;
        p->cap = cap;
    }
    p->at[p->n++] = (bpe_part){from, n, false};
    return true;
}

/* Cuts the parts at the matches of one glossary. */
static bool gloss_cut(const glossary *g, const char *word, bpe_parts *p)
{
    size_t range[2];
    const size_t n = p->n;
    if (n > 0) memcpy(p->other, p->at, n * sizeof *p->at);
    p->n = 0;
    for (size_t i = 0; i < n; i++) {
        const bpe_part part = p->other[i];
        const char *s = word + part.from;
        size_t from = 0;
        if (!gloss_match(g->whole, s, part.n, 0, range))
            for (size_t at = 0; at < part.n && gloss_match(g->find, s, part.n, at, range);) {
                if (range[1] <= range[0]) { /* a match of nothing, such as a word boundary */
                    at = range[0] + 1;
                    continue;
                }
                if (!parts_add(p, part.from + (uint32_t)from, (uint32_t)(range[0] - from)) ||
                    !parts_add(p, part.from + (uint32_t)range[0], (uint32_t)(range[1] - range[0])))
                    return false;
                at = from = range[1];
            }
        if (!parts_add(p, part.from + (uint32_t)from, part.n - (uint32_t)from)) return false;
    }
    return true;
}

bool bpe_limits_cut(const bpe_limits *l, const char *word, size_t n, bpe_parts *out)
{
    size_t range[2];
    out->n = 0;
    if (n > UINT32_MAX || !parts_add(out, 0, (uint32_t)n)) return false;
    for (size_t k = 0; l && k < l->n_gloss; k++)
        if (!gloss_cut(&l->gloss[k], word, out)) return false;
    for (size_t i = 0; i < out->n && l && l->any; i++)
        out->at[i].whole = gloss_match(l->any, word + out->at[i].from, out->at[i].n, 0, range);
    return true;
}
