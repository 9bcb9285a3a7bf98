/* byte_bpe.c -- byte-level BPE, as GPT-2, Llama 3 and Qwen have it.
 *
 * Regular expressions split the text into pieces (splitter.c). The bytes of a piece are its first
 * symbols. Then the pair of lowest rank merges, again and again, the leftmost place first. Every
 * text has ids, also bytes that are not UTF-8, and its ids give it back byte for byte, after the
 * normal form that a tokenizer.json may ask for. Special
 * tokens such as <|endoftext|> never come from text; tokens that a tokenizer.json adds without
 * "special" do. */
#include "../byte_bpe_impl.h"
#include "../learn.h"
#include "../piece_cache.h"
#include "../subword_impl.h"
#include "rd/hash.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct byte_scratch {
    rd_piece_cache cache; /* ids of pieces */
    rd_merge_word word;
    rd_splitter_work *split;
    rd_strbuf prefixed; /* a text with a space in front */
    rd_strbuf normal;   /* a text in a normal form */
} byte_scratch;

/* One call of segment or encode. */
typedef struct byte_call {
    const byte_bpe *m;
    byte_scratch *w;
    rd_subword_ids *ids; /* one of the two is NULL */
    rd_strbuf *text;
} byte_call;

static void byte_bpe_close(void *self)
{
    byte_bpe_release(self);
    free(self);
}

static rd_code byte_bpe_open(const char *path, void **self, rd_status *st)
{
    byte_bpe *m = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for the tokenizer of '%s'", path);
    RD_TRY(byte_bpe_read(path, m, st));
    RD_TRY(byte_bpe_finish(m, path, st));
    *self = m;
    m = NULL;
done:
    if (m) byte_bpe_close(m);
    return st->code;
}

static void byte_scratch_free(void *w)
{
    byte_scratch *b = w;
    rd_piece_cache_release(&b->cache);
    rd_merge_release(&b->word);
    rd_splitter_work_free(b->split);
    rd_strbuf_release(&b->prefixed);
    rd_strbuf_release(&b->normal);
    free(b);
}

static rd_code byte_scratch_new(const void *self, void **w, rd_status *st)
{
    byte_scratch *b = calloc(1, sizeof *b);
    (void)self;
    if (b) b->split = rd_splitter_work_new();
    if (!b || !b->split) {
        free(b);
        return rd_fail(st, RD_EENV, "out of memory for the subword scratch");
    }
    *w = b;
    return RD_OK;
}

/* ---- ids of a text ---- */

static void put_ids(const byte_call *c, const int32_t *id, size_t n)
{
    if (c->ids) {
        rd_subword_put_all(c->ids, id, n);
        return;
    }
    const size_t *at = c->m->shown_at;
    for (size_t i = 0; i < n; i++)
        rd_strbuf_add(c->text, c->m->shown.s + at[id[i]], at[id[i] + 1] - at[id[i]]);
}

static bool put_piece(void *ctx, const char *piece, size_t n)
{
    const byte_call *c = ctx;
    const byte_bpe *m = c->m;
    rd_merge_word *word = &c->w->word;
    size_t n_known;
    const uint64_t hash = rd_hash(0, piece, n);
    const int32_t *known = rd_piece_cache_find(&c->w->cache, hash, piece, n, &n_known);
    if (known) {
        put_ids(c, known, n_known / sizeof *known);
        return true;
    }
    const int32_t whole = m->ignore_merges ? rd_strings_find(&m->tokens, piece, n) : -1;
    if (whole >= 0) {
        put_ids(c, &m->token_id[whole], 1);
        return true;
    }
    if (n > UINT32_MAX || !rd_merge_room(word, n)) return false;
    for (size_t i = 0; i < n; i++) {
        word->symbol[i] = m->byte_id[(unsigned char)piece[i]];
        word->end[i] = (uint32_t)i + 1;
    }
    word->n = n;
    if (!rd_merge_apply(&m->merges, word)) return false;
    put_ids(c, word->symbol, word->n);
    rd_piece_cache_put(&c->w->cache, hash, piece, n, word->symbol, word->n * sizeof *word->symbol);
    return true;
}

/* Puts text without added tokens. */
static bool put_plain(byte_call *c, const char *text, size_t n)
{
    if (c->m->prefix_space && n > 0 && text[0] != ' ') {
        rd_strbuf *b = &c->w->prefixed;
        rd_strbuf_reset(b);
        rd_strbuf_add(b, " ", 1);
        rd_strbuf_add(b, text, n);
        if (b->failed) return false;
        text = b->s;
        n = b->n;
    }
    return rd_splitter_text(c->m->split, c->w->split, text, n, put_piece, c);
}

/* Returns the place of the longest added token at s, -1: there is none. late: of those of the
 * normalised text, if there are normal forms. */
static int32_t added_at(const byte_bpe *m, const char *s, size_t n, bool late, size_t *length)
{
    for (int32_t i = 0; i < m->n_matched; i++) {
        if (m->n_normal > 0 && m->late[i] != late) continue;
        const char *t = rd_strings_at(&m->specials, m->matched[i], length);
        if (*length <= n && memcmp(s, t, *length) == 0) return m->matched[i];
    }
    return -1;
}

/* Puts the added tokens of a text, and what is between them by `put`. */
static bool put_added(byte_call *c, const char *text, size_t n, bool late,
                      bool (*put)(byte_call *c, const char *text, size_t n))
{
    size_t from = 0, length;
    for (size_t i = 0; c->m->n_matched > 0 && i < n;) {
        const int32_t special = c->m->in_text[(unsigned char)text[i]]
                                    ? added_at(c->m, text + i, n - i, late, &length)
                                    : -1;
        if (special < 0) {
            i++;
            continue;
        }
        if (!put(c, text + from, i - from)) return false;
        put_ids(c, &c->m->special_id[special], 1);
        from = i += length;
    }
    return put(c, text + from, n - from);
}

static bool put_normal(byte_call *c, const char *text, size_t n)
{
    rd_strbuf *b = &c->w->normal;
    rd_strbuf_reset(b);
    byte_bpe_normalize(c->m, text, n, b);
    return !b->failed && put_added(c, rd_strbuf_str(b), b->n, true, put_plain);
}

static bool put_text(byte_call *c, const char *text, size_t n)
{
    return put_added(c, text, n, false, c->m->n_normal > 0 ? put_normal : put_plain);
}

static void byte_bpe_segment(const void *self, void *w, const char *line, size_t n, rd_strbuf *out)
{
    byte_call c = {.m = self, .w = w, .text = out};
    const size_t before = out->n;
    if (!put_text(&c, line, n)) out->failed = true;
    if (out->n > before) out->s[--out->n] = '\0'; /* the space behind the last piece */
}

static void byte_bpe_encode(const void *self, void *w, const char *text, size_t n,
                            rd_subword_ids *out)
{
    byte_call c = {.m = self, .w = w, .ids = out};
    if (!put_text(&c, text, n)) out->failed = true;
}

static void byte_bpe_join(const void *self, const char *pieces, size_t n, rd_strbuf *out)
{
    rd_strbuf raw = {0};
    (void)self;
    for (size_t from = 0; from < n;) {
        const char *space = memchr(pieces + from, ' ', n - from);
        const size_t end = space ? (size_t)(space - pieces) : n;
        byte_bpe_put_bytes(&raw, pieces + from, end - from);
        from = end + 1;
    }
    rd_subword_put_text(out, raw.s, raw.n);
    out->failed |= raw.failed;
    rd_strbuf_release(&raw);
}

static int32_t byte_bpe_size(const void *self)
{
    return ((const byte_bpe *)self)->n_ids;
}

static void byte_bpe_piece(const void *self, int32_t id, rd_strbuf *out)
{
    const byte_bpe *m = self;
    const size_t n = m->shown_at[id + 1] - m->shown_at[id];
    if (n > 0) rd_strbuf_add(out, m->shown.s + m->shown_at[id], n - 1);
}

static int32_t byte_bpe_find(const void *self, const char *piece, size_t n)
{
    const byte_bpe *m = self;
    rd_strbuf bytes = {0};
    byte_bpe_put_bytes(&bytes, piece, n);
    const int32_t special = rd_strings_find(&m->specials, rd_strbuf_str(&bytes), bytes.n);
    const int32_t token = rd_strings_find(&m->tokens, rd_strbuf_str(&bytes), bytes.n);
    rd_strbuf_release(&bytes);
    return special >= 0 ? m->special_id[special] : token >= 0 ? m->token_id[token] : -1;
}

static uint64_t byte_bpe_hash(const void *self)
{
    const byte_bpe *m = self;
    uint64_t h = rd_hash(0, m->shown.s, m->shown.n);
    h = rd_hash(h, m->shown_at, ((size_t)m->n_ids + 1) * sizeof *m->shown_at);
    h = rd_hash(h, m->special_of, (size_t)m->n_ids * sizeof *m->special_of);
    if (m->n_pairs > 0) h = rd_hash(h, m->pair, (size_t)m->n_pairs * sizeof *m->pair);
    if (m->n_matched > 0) h = rd_hash(h, m->matched, (size_t)m->n_matched * sizeof *m->matched);
    for (int k = 0; k < rd_splitter_count(m->split); k++)
        h = rd_hash(h, rd_splitter_pattern(m->split, k), strlen(rd_splitter_pattern(m->split, k)));
    if (m->n_normal > 0) {
        h = rd_hash(h, m->normal, (size_t)m->n_normal * sizeof *m->normal);
        h = rd_hash(h, rd_normalize_library(), strlen(rd_normalize_library()));
        if (m->n_matched > 0) h = rd_hash(h, m->late, (size_t)m->n_matched * sizeof *m->late);
    }
    const char flags[] = {m->by_id, m->ignore_merges, m->prefix_space};
    h = rd_hash(h, flags, sizeof flags);
    return rd_hash(h, rd_splitter_library(), strlen(rd_splitter_library()));
}

static void byte_bpe_write(const void *self, rd_strbuf *out)
{
    byte_bpe_write_json(self, out);
}

static const char *byte_bpe_library(void)
{
    return rd_splitter_library();
}

/* ---- training ---- */

static bool count_piece(void *ctx, const char *piece, size_t n)
{
    return n < 2 || rd_counts_add(ctx, piece, n);
}

/* Counts the pieces of all lines, each with its LF. */
static rd_code count_lines(const rd_subword_lines *lines, const rd_splitter *split,
                           rd_counts *counts, rd_status *st)
{
    rd_splitter_work *work = rd_splitter_work_new();
    rd_strbuf b = {0};
    for (;;) {
        const char *line;
        size_t n;
        RD_TRY(lines->next(lines->ctx, &line, &n, st));
        if (!line) break;
        rd_strbuf_reset(&b);
        rd_strbuf_add(&b, line, n);
        rd_strbuf_add(&b, "\n", 1);
        if (!work || b.failed || !rd_splitter_text(split, work, b.s, b.n, count_piece, counts))
            RD_TRY(rd_fail(st, RD_EENV, "out of memory for the pieces of the text"));
    }
done:
    rd_splitter_work_free(work);
    rd_strbuf_release(&b);
    return st->code;
}

typedef struct model_maker {
    byte_bpe *m;
    const rd_strings *symbols;
    int32_t first; /* id of the first byte */
    rd_status *st;
} model_maker;

static void make_merge(void *ctx, int32_t left, int32_t right, int32_t to)
{
    const model_maker *k = ctx;
    size_t n, n_left, n_right;
    const char *s = rd_strings_at(k->symbols, to, &n);
    (void)byte_bpe_token(k->m, s, n, k->first + to, "the trained tokenizer", k->st);
    const char *l = rd_strings_at(k->symbols, left, &n_left);
    const char *r = rd_strings_at(k->symbols, right, &n_right);
    if (k->st->code == RD_OK)
        (void)byte_bpe_merge(k->m, l, n_left, r, n_right, "the trained tokenizer", k->st);
}

/* Adds the special tokens, with one space between them. */
static rd_code make_specials(byte_bpe *m, const char *specials, rd_status *st)
{
    for (const char *s = specials; s && *s;) {
        const size_t n = strcspn(s, " ");
        if (n > 0) RD_TRY(byte_bpe_special(m, s, n, m->specials.n, "the trained tokenizer", st));
        s += n + (s[n] == ' ');
    }
done:
    return st->code;
}

static rd_code byte_bpe_train(const rd_subword_lines *lines, const rd_subword_training *t,
                              rd_strbuf *model, rd_status *st)
{
    byte_bpe m = {0};
    rd_counts counts = {0};
    rd_learner *l = NULL;
    rd_merge_word room = {0};
    int32_t symbol[256];
    char size[32], pieces[32];
    RD_TRY(rd_splitter_new(&m.split, st));
    RD_TRY(rd_splitter_add(m.split, rd_splitter_gpt2, strlen(rd_splitter_gpt2), "GPT-2's pattern",
                           st));
    RD_TRY(make_specials(&m, t->specials, st));
    if (t->size < 256 + m.specials.n || t->size > BYTE_BPE_MOST_IDS)
        RD_TRY(rd_fail(st, RD_EUSAGE,
                       "a vocabulary of %" PRId64 " subwords is not possible: byte_bpe has 256 "
                       "bytes, %" PRId32 " special token%s, and at most %d in all",
                       t->size, m.specials.n, RD_S(m.specials.n), BYTE_BPE_MOST_IDS));
    RD_TRY(count_lines(lines, m.split, &counts, st));
    RD_TRY(rd_learner_new(&l, st));
    for (int32_t i = 0; i < 256; i++) {
        const char byte = (char)byte_bpe_byte(i);
        symbol[(unsigned char)byte] = rd_strings_add(rd_learner_symbols(l), &byte, 1);
        RD_TRY(byte_bpe_token(&m, &byte, 1, m.specials.n + i, "the trained tokenizer", st));
    }
    for (int32_t i = 0; i < counts.words.n; i++) {
        size_t n;
        const char *word = rd_strings_at(&counts.words, i, &n);
        if (!rd_merge_room(&room, n)) RD_TRY(rd_fail(st, RD_EENV, "out of memory for the pieces"));
        for (size_t k = 0; k < n; k++) room.symbol[k] = symbol[(unsigned char)word[k]];
        RD_TRY(rd_learner_word(l, room.symbol, n, counts.count[i], st));
    }
    model_maker maker = {&m, rd_learner_symbols(l), m.specials.n, st};
    const rd_learn_rule rule = {.n_merges = INT64_MAX,
                                .n_symbols = (int32_t)t->size - m.specials.n,
                                .min_count = t->min_count > 0 ? t->min_count : 2,
                                .log = t->log};
    RD_TRY(rd_learner_run(l, &rule, make_merge, &maker, st));
    RD_TRY(byte_bpe_finish(&m, "the trained tokenizer", st));
    byte_bpe_write_json(&m, model);
    if (t->log)
        rd_info(t->log, "byte_bpe: %s subwords of %s different pieces", rd_commas(m.n_ids, size),
                rd_commas(counts.words.n, pieces));
done:
    byte_bpe_release(&m);
    rd_counts_release(&counts);
    rd_learner_free(l);
    rd_merge_release(&room);
    return st->code;
}

RD_SUBWORD(byte_bpe) = {
    .name = "byte_bpe",
    .about = "subwords of bytes as GPT-2 has them, with the files of Hugging Face and tiktoken",
    .needs_model = true,
    .open = byte_bpe_open,
    .close = byte_bpe_close,
    .train = byte_bpe_train,
    .scratch_new = byte_scratch_new,
    .scratch_free = byte_scratch_free,
    .segment = byte_bpe_segment,
    .join = byte_bpe_join,
    .size = byte_bpe_size,
    .piece = byte_bpe_piece,
    .find = byte_bpe_find,
    .encode = byte_bpe_encode,
    .write = byte_bpe_write,
    .hash = byte_bpe_hash,
    .library_version = byte_bpe_library,
};
