/* bpe.c -- byte pair encoding as subword-nmt has it (Sennrich, Haddow and Birch 2016): the same
 * codes and the same pieces, byte for byte.
 *
 * A word is what stands between single spaces; CR, LF and spaces at the ends of a line do not
 * count. It starts as its characters, with "</w>" appended to the last one. Learning merges the
 * most frequent pair of neighbours; of equally frequent pairs the largest one in the order of code
 * points. Applying merges the pair that was learned first, at all its places from left to right.
 * The file of codes has the line "#version: 0.2", then one line "left right" per merge. A piece
 * that continues ends in "@@".
 *
 * With a list of pieces, a piece that is not in it is split into the two that it was merged from,
 * and so on. Glossaries protect text (bpe_limits.h).
 *
 * Bytes that are not UTF-8 are characters that no merge has. */
#include "../bpe_limits.h"
#include "../learn.h"
#include "../merge.h"
#include "../piece_cache.h"
#include "../subword_impl.h"
#include "rd/file.h"
#include "rd/hash.h"
#include "rd/printable.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char version[] = "#version: 0.2";
static const char word_end[] = "</w>";
enum { WORD_END = sizeof word_end - 1 };

typedef struct bpe_model {
    rd_strings symbols;
    rd_merges merges;
    int32_t (*origin)[2]; /* [n_origin] by symbol: the pair it was merged from; -1: none */
    int32_t n_origin;
    bpe_limits *limits;    /* owned; NULL: none */
    int32_t ascii[2][128]; /* symbols of ASCII characters: inside a word, at its end; -1: none */
    char *codes;           /* the file */
    size_t n_codes;
} bpe_model;

/* A symbol on its way to pieces. */
typedef struct split_symbol {
    int32_t symbol;
    uint32_t from, n; /* its bytes in the word */
    bool last;        /* it ends the part of the word */
} split_symbol;

typedef struct bpe_scratch {
    rd_piece_cache cache;
    rd_merge_word word;
    rd_strbuf pieces; /* of one word */
    bpe_parts parts;  /* of one word */
    split_symbol *stack;
    size_t cap_stack;
} bpe_scratch;

/* The ends of a line do not count. */
static bool is_edge(char c)
{
    return c == ' ' || c == '\r' || c == '\n';
}

/* Calls f for each word of a line, until it returns false. */
static bool each_word(const char *line, size_t n, bool (*f)(void *, const char *, size_t),
                      void *ctx)
{
    while (n > 0 && is_edge(line[n - 1])) n--;
    size_t from = 0;
    while (from < n && is_edge(line[from])) from++;
    while (from < n) {
        const char *space = memchr(line + from, ' ', n - from);
        const size_t end = space ? (size_t)(space - line) : n;
        if (end > from && !f(ctx, line + from, end - from)) return false;
        from = end + 1;
    }
    return true;
}

static size_t char_length(const char *s, size_t n)
{
    const size_t k = (unsigned char)*s < 0x80 ? 1 : rd_utf8_bytes(s, n);
    return k ? k : 1;
}

/* Returns the string of the character at s as a symbol: with "</w>" at the end of a word. */
static size_t char_symbol(const char *s, size_t k, bool last, char out[4 + WORD_END])
{
    memcpy(out, s, k);
    if (last) memcpy(out + k, word_end, WORD_END);
    return k + (last ? WORD_END : 0);
}

/* ---- the model ---- */

static void bpe_close(void *self)
{
    bpe_model *m = self;
    rd_strings_release(&m->symbols);
    rd_merges_release(&m->merges);
    bpe_limits_free(m->limits);
    free(m->origin);
    free(m->codes);
    free(m);
}

static rd_code bpe_no_memory(const char *path, rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for the codes of '%s'", path);
}

/* Remembers what a symbol was merged from. false: out of memory. */
static bool origin_add(bpe_model *m, int32_t left, int32_t right, int32_t to)
{
    if (m->n_origin <= to) {
        const int32_t n = 2 * to + 64;
        int32_t(*at)[2] = realloc(m->origin, (size_t)n * sizeof *at);
        if (!at) return false;
        for (int32_t i = m->n_origin; i < n; i++) at[i][0] = at[i][1] = -1;
        m->origin = at;
        m->n_origin = n;
    }
    if (m->origin[to][0] < 0) {
        m->origin[to][0] = left;
        m->origin[to][1] = right;
    }
    return true;
}

/* Adds the merge of one line. */
static rd_code add_code(bpe_model *m, const char *line, size_t n, int32_t number, const char *path,
                        rd_status *st)
{
    const char *space = memchr(line, ' ', n);
    if (!space || space == line || space + 1 == line + n ||
        memchr(space + 1, ' ', (size_t)(line + n - space - 1)))
        return rd_fail(st, RD_EDATA, "%s:%" PRId32 ": not two symbols with one space between", path,
                       number);
    if (!rd_utf8_valid(line, n))
        return rd_fail(st, RD_EDATA, "%s:%" PRId32 ": invalid UTF-8", path, number);
    const int32_t left = rd_strings_add(&m->symbols, line, (size_t)(space - line));
    const int32_t right = rd_strings_add(&m->symbols, space + 1, (size_t)(line + n - space - 1));
    const int32_t to = left < 0 || right < 0 ? -1 : rd_strings_join(&m->symbols, left, right);
    if (to < 0 || !rd_merges_add(&m->merges, left, right, to, number) ||
        !origin_add(m, left, right, to))
        return bpe_no_memory(path, st);
    return RD_OK;
}

static rd_code bpe_open(const char *path, void **self, rd_status *st)
{
    int32_t number = 1;
    bpe_model *m = calloc(1, sizeof *m);
    if (!m) return bpe_no_memory(path, st);
    RD_TRY(rd_file_read(path, RD_EDATA, &m->codes, &m->n_codes, st));
    if (m->n_codes == 0) RD_TRY(rd_fail(st, RD_EDATA, "'%s' is empty", path));
    if (m->n_codes > INT32_MAX) RD_TRY(rd_fail(st, RD_EDATA, "'%s' has over 2 GiB", path));
    m->merges.whole_pair = true;
    for (size_t at = 0; at < m->n_codes; number++) {
        const char *line = m->codes + at, *lf = memchr(line, '\n', m->n_codes - at);
        size_t n = lf ? (size_t)(lf - line) : m->n_codes - at;
        at += n + 1;
        while (n > 0 && is_edge(line[n - 1])) n--;
        if (number > 1)
            RD_TRY(add_code(m, line, n, number, path, st));
        else if (n != sizeof version - 1 || memcmp(line, version, n) != 0)
            RD_TRY(rd_fail(st, RD_EDATA,
                           "'%s' does not begin with '%s'; learn the codes with subword-nmt 0.3 "
                           "or later, or with run_dist-bpe",
                           path, version));
    }
    for (int last = 0; last < 2; last++)
        for (int c = 0; c < 128; c++) {
            char s[4 + WORD_END];
            m->ascii[last][c] = rd_strings_find(
                &m->symbols, s, char_symbol((const char[]){(char)c}, 1, last == 1, s));
        }
    *self = m;
    m = NULL;
done:
    if (m) bpe_close(m);
    return st->code;
}

static rd_code bpe_scratch_new(const void *self, void **w, rd_status *st)
{
    (void)self;
    *w = calloc(1, sizeof(bpe_scratch));
    return *w ? RD_OK : rd_fail(st, RD_EENV, "out of memory for the subword scratch");
}

static void bpe_scratch_free(void *w)
{
    bpe_scratch *b = w;
    rd_piece_cache_release(&b->cache);
    rd_merge_release(&b->word);
    rd_strbuf_release(&b->pieces);
    free(b->parts.at);
    free(b->parts.other);
    free(b->stack);
    free(b);
}

/* ---- applying ---- */

typedef struct segmenting {
    const bpe_model *m;
    bpe_scratch *w;
    rd_strbuf *out;
    size_t begin; /* of the line in out */
} segmenting;

/* Splits a word into the symbols that it begins with. */
static bool split_word(const bpe_model *m, rd_merge_word *w, const char *word, size_t n)
{
    if (n > UINT32_MAX || !rd_merge_room(w, n)) return false;
    w->n = 0;
    for (size_t i = 0, k; i < n; i += k) {
        char s[4 + WORD_END];
        k = char_length(word + i, n - i);
        const bool last = i + k == n;
        w->symbol[w->n] = (unsigned char)word[i] < 0x80
                              ? m->ascii[last][(unsigned char)word[i]]
                              : rd_strings_find(&m->symbols, s, char_symbol(word + i, k, last, s));
        w->end[w->n++] = (uint32_t)(i + k);
    }
    return true;
}

/* Appends a piece, which "@@" follows if it continues. */
static void put_piece(rd_strbuf *out, const char *piece, size_t n, bool continues)
{
    rd_strbuf_add(out, piece, n);
    if (continues) rd_strbuf_add(out, "@@ ", 3);
}

/* Makes room for two more symbols on the stack. */
static bool stack_room(bpe_scratch *w, size_t n)
{
    if (n + 2 <= w->cap_stack) return true;
    split_symbol *at = realloc(w->stack, (2 * n + 32) * sizeof *at);
    if (!at) return false;
    w->stack = at;
    w->cap_stack = 2 * n + 32;
    return true;
}

/* Appends a symbol, or the symbols that it was merged from if the list of pieces lacks it.
 * continues: another piece follows the part of the word. false: out of memory. */
static bool put_symbol(const bpe_model *m, bpe_scratch *w, const char *word, split_symbol top,
                       bool continues)
{
    rd_strbuf *out = &w->pieces;
    size_t n = 0;
    if (!stack_room(w, n)) return false;
    w->stack[n++] = top;
    while (n > 0) {
        const split_symbol s = w->stack[--n];
        const char *text = word + s.from;
        if (!stack_room(w, n)) return false;
        if (s.symbol < 0 || s.symbol >= m->n_origin || m->origin[s.symbol][0] < 0 ||
            bpe_limits_allow(m->limits, text, s.n, !s.last)) {
            put_piece(out, text, s.n, !s.last || continues);
            continue;
        }
        size_t left;
        (void)rd_strings_at(&m->symbols, m->origin[s.symbol][0], &left);
        w->stack[n++] = (split_symbol){m->origin[s.symbol][1], s.from + (uint32_t)left,
                                       s.n - (uint32_t)left, s.last};
        w->stack[n++] = (split_symbol){m->origin[s.symbol][0], s.from, (uint32_t)left, false};
    }
    return true;
}

/* Appends the pieces of a part of a word. false: out of memory. */
static bool segment_part(const segmenting *s, const char *part, size_t n, bool continues)
{
    rd_merge_word *w = &s->w->word;
    const bool limited = bpe_limits_have_pieces(s->m->limits);
    if (!split_word(s->m, w, part, n) || !rd_merge_apply(&s->m->merges, w)) return false;
    for (size_t i = 0, from = 0; i < w->n; i++) {
        const split_symbol symbol = {w->symbol[i], (uint32_t)from, w->end[i] - (uint32_t)from,
                                     i + 1 == w->n};
        if (!limited)
            put_piece(&s->w->pieces, part + from, symbol.n, !symbol.last || continues);
        else if (!put_symbol(s->m, s->w, part, symbol, continues))
            return false;
        from = w->end[i];
    }
    return true;
}

/* Appends the pieces of a word. false: out of memory. */
static bool segment_parts(const segmenting *s, const char *word, size_t n)
{
    const bpe_parts *p = &s->w->parts;
    if (!s->m->limits) return segment_part(s, word, n, false);
    if (!bpe_limits_cut(s->m->limits, word, n, &s->w->parts)) return false;
    for (size_t i = 0; i < p->n; i++) {
        const char *part = word + p->at[i].from;
        if (p->at[i].whole)
            put_piece(&s->w->pieces, part, p->at[i].n, i + 1 < p->n);
        else if (!segment_part(s, part, p->at[i].n, i + 1 < p->n))
            return false;
    }
    return true;
}

static bool segment_word(void *ctx, const char *word, size_t n)
{
    segmenting *s = ctx;
    size_t n_known;
    const uint64_t hash = rd_hash(0, word, n);
    const char *known = rd_piece_cache_find(&s->w->cache, hash, word, n, &n_known);
    if (s->out->n > s->begin) rd_strbuf_add(s->out, " ", 1);
    if (known) {
        rd_strbuf_add(s->out, known, n_known);
        return true;
    }
    rd_strbuf *pieces = &s->w->pieces;
    rd_strbuf_reset(pieces);
    if (!segment_parts(s, word, n)) {
        s->out->failed = true;
        return false;
    }
    rd_strbuf_add(s->out, pieces->s, pieces->n);
    s->out->failed |= pieces->failed;
    rd_piece_cache_put(&s->w->cache, hash, word, n, pieces->s, pieces->n);
    return true;
}

static void bpe_segment(const void *self, void *w, const char *line, size_t n, rd_strbuf *out)
{
    segmenting s = {self, w, out, out->n};
    (void)each_word(line, n, segment_word, &s);
}

/* Deletes every "@@ ", and "@@" at the end. */
static void bpe_join(const void *self, const char *pieces, size_t n, rd_strbuf *out)
{
    rd_strbuf raw = {0};
    (void)self;
    size_t from = 0;
    for (size_t i = 0; i + 1 < n;) {
        if (pieces[i] != '@' || pieces[i + 1] != '@' || (i + 2 < n && pieces[i + 2] != ' ')) {
            i++;
            continue;
        }
        rd_strbuf_add(&raw, pieces + from, i - from);
        from = i = i + 3 < n ? i + 3 : n;
    }
    rd_strbuf_add(&raw, pieces + from, n - from);
    rd_subword_put_text(out, raw.s, raw.n);
    out->failed |= raw.failed;
    rd_strbuf_release(&raw);
}

static void bpe_write(const void *self, rd_strbuf *out)
{
    const bpe_model *m = self;
    rd_strbuf_add(out, m->codes, m->n_codes);
}

static uint64_t bpe_hash(const void *self)
{
    const bpe_model *m = self;
    return rd_hash(bpe_limits_hash(m->limits), m->codes, m->n_codes);
}

static rd_code bpe_limit(void *self, const rd_subword_limits *l, rd_status *st)
{
    bpe_model *m = self;
    bpe_limits_free(m->limits);
    return bpe_limits_new(l->pieces, l->n_pieces, l->glossaries, l->n_glossaries, &m->limits, st);
}

/* ---- learning ---- */

static bool count_word(void *ctx, const char *word, size_t n)
{
    return rd_counts_add(ctx, word, n);
}

typedef struct code_writer {
    const rd_strings *symbols;
    rd_strbuf *out;
    int64_t n;
} code_writer;

static void write_code(void *ctx, int32_t left, int32_t right, int32_t to)
{
    code_writer *c = ctx;
    size_t n;
    (void)to;
    const char *s = rd_strings_at(c->symbols, left, &n);
    rd_strbuf_add(c->out, s, n);
    rd_strbuf_add(c->out, " ", 1);
    s = rd_strings_at(c->symbols, right, &n);
    rd_strbuf_add(c->out, s, n);
    rd_strbuf_add(c->out, "\n", 1);
    c->n++;
}

/* Adds a counted word to the learner as its characters. */
static rd_code learn_word(rd_learner *l, const char *word, size_t n, int64_t count,
                          rd_merge_word *room, rd_status *st)
{
    rd_strings *symbols = rd_learner_symbols(l);
    size_t m = 0;
    if (!rd_merge_room(room, n)) return rd_fail(st, RD_EENV, "out of memory for the words");
    for (size_t i = 0, k; i < n; i += k) {
        char s[4 + WORD_END];
        k = char_length(word + i, n - i);
        room->symbol[m++] = rd_strings_add(symbols, s, char_symbol(word + i, k, i + k == n, s));
    }
    return rd_learner_word(l, room->symbol, m, count, st);
}

static rd_code bpe_train(const rd_subword_lines *lines, const rd_subword_training *t,
                         rd_strbuf *model, rd_status *st)
{
    rd_counts counts = {0};
    rd_learner *l = NULL;
    rd_merge_word room = {0};
    int64_t n_lines = 0;
    if (t->size < 1)
        RD_TRY(rd_fail(st, RD_EUSAGE, "%" PRId64 " is no number of merges from 1", t->size));
    for (;; n_lines++) {
        const char *line;
        size_t n;
        RD_TRY(lines->next(lines->ctx, &line, &n, st));
        if (!line) break;
        if (!each_word(line, n, count_word, &counts))
            RD_TRY(rd_fail(st, RD_EENV, "out of memory for the words of the text"));
    }
    RD_TRY(rd_learner_new(&l, st));
    for (int32_t i = 0; i < counts.words.n; i++) {
        size_t n;
        const char *word = rd_strings_at(&counts.words, i, &n);
        RD_TRY(learn_word(l, word, n, counts.count[i], &room, st));
    }
    rd_strbuf_printf(model, "%s\n", version);
    code_writer to = {rd_learner_symbols(l), model, 0};
    const rd_learn_rule rule = {.n_merges = t->size,
                                .min_count = t->min_count > 0 ? t->min_count : 2,
                                .largest_string = true,
                                .log = t->log};
    RD_TRY(rd_learner_run(l, &rule, write_code, &to, st));
    if (t->log)
        rd_info(t->log,
                "bpe: %" PRId64 " merge%s from %" PRId64 " line%s, %" PRId32 " different words",
                to.n, RD_S(to.n), n_lines, RD_S(n_lines), counts.words.n);
done:
    rd_counts_release(&counts);
    rd_learner_free(l);
    rd_merge_release(&room);
    return st->code;
}

RD_SUBWORD(bpe) = {
    .name = "bpe",
    .about = "subwords by byte pair encoding, with the files of subword-nmt",
    .needs_model = true,
    .open = bpe_open,
    .limit = bpe_limit,
    .close = bpe_close,
    .train = bpe_train,
    .scratch_new = bpe_scratch_new,
    .scratch_free = bpe_scratch_free,
    .segment = bpe_segment,
    .join = bpe_join,
    .write = bpe_write,
    .hash = bpe_hash,
};
