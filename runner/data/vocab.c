/* vocab.c -- words and their ids. vocab_formats.c reads the vocabularies of other programs.
 *
 * The file has one word a line. Text after the first TAB (a count) is ignored, trailing white space
 * too. LF, CR LF and a lone CR end a line. Line k, counted from 0, has id k + 4. Ids 0 to 3 are
 * special and are no words of the text: a literal "</S>" in a text is unknown unless the file lists
 * it.
 *
 * The words are stored one after the other in one byte array. The table uses open addressing and is
 * at most half full. A slot holds a word of up to 16 bytes itself: a look-up then touches one cache
 * line and compares two numbers. For a longer word the slot holds two hashes, and the bytes are
 * compared in the array. Text is looked up in groups of tokens: all slots are prefetched before the
 * first is read. */
#include "data_impl.h"
#include <inttypes.h>
#include <stdlib.h>

typedef struct vocab_key {
    uint64_t a, b; /* bytes 0 to 7 and 8 to 15, padded with zeros; for a longer word two hashes */
    uint64_t hash;
} vocab_key;

typedef struct vocab_slot {
    uint64_t a, b;
    uint32_t n;
    int32_t id; /* 0: empty (0 is the id of UNK, which is not in the table) */
} vocab_slot;

enum { INLINE_BYTES = 16 };

struct rd_vocab {
    char *bytes;
    size_t n_bytes, cap_bytes;
    /* [n + 1] word k (line k) is bytes[off[k]] .. bytes[off[k + 1] - 2], followed by '\0'. */
    int64_t *off;
    int64_t n, cap; /* number of lines; capacity of off in lines */
    int64_t duplicates;
    rd_vocab_repeat repeat[RD_VOCAB_REPEATS]; /* the first of them */
    vocab_slot *table;
    uint64_t mask; /* number of slots - 1 */
    uint64_t hash; /* of all words */
    bool bom;
    int64_t replaced;
    rd_vocab_kind kind; /* of the file */
};

/* A word in a line may have at most VOCAB_LINE_BYTES, all words together VOCAB_BYTES, and the file
 * vocab_file_bytes. */
enum { VOCAB_LINE_BYTES = 1 << 20, VOCAB_WORDS = RD_VOCAB_MOST, VOCAB_BYTES = 1 << 28 };
static const size_t vocab_file_bytes = (size_t)1 << 29;

static const char *const special[RD_N_SPECIAL] = {"<UNK>", "<S>", "</S>", "<PAD>"};

static const char *word_at(const rd_vocab *v, int64_t line, size_t *n)
{
    rd_assert(line >= 0 && line < v->n);
    *n = (size_t)(v->off[line + 1] - v->off[line] - 1);
    return v->bytes + v->off[line];
}

static inline vocab_key key_of_long(const char *word, size_t n)
{
    const uint64_t a = rd_hash(1, word, n), b = rd_hash(2, word, n);
    return (vocab_key){a, b, a};
}

static inline vocab_key key_of_short(uint64_t a, uint64_t b, size_t n)
{
    return (vocab_key){a, b, rd_fold(a ^ RD_WY0, b ^ RD_WY1 ^ n)};
}

static vocab_key key_of(const char *word, size_t n)
{
    uint64_t ab[2] = {0, 0};
    if (n > INLINE_BYTES) return key_of_long(word, n);
    if (n > 0) memcpy(ab, word, n);
    return key_of_short(ab[0], ab[1], n);
}

/* Does the same if 16 bytes from word on can be read. Little endian: later bytes are higher. */
static inline vocab_key key_of_padded(const char *word, size_t n)
{
    if (n > INLINE_BYTES) return key_of_long(word, n);
    const uint64_t all = ~(uint64_t)0;
    const uint64_t low = n >= 8 ? all : ~(all << (8 * n)), high = n >= 16 ? all
                                                                  : n > 8 ? ~(all << (8 * (n - 8)))
                                                                          : 0;
    return key_of_short(rd_load64(word) & low, rd_load64(word + 8) & high, n);
}

/* Returns the slot of the word, or the empty slot where it belongs. */
static inline vocab_slot *vocab_find(const rd_vocab *v, const vocab_key *k, const char *word,
                                     size_t n)
{
    for (uint64_t i = k->hash & v->mask;; i = (i + 1) & v->mask) {
        vocab_slot *s = &v->table[i];
        if (s->id == 0) return s;
        if (s->a != k->a || s->b != k->b || s->n != n) continue;
        if (n <= INLINE_BYTES) return s;
        size_t m;
        const char *w = word_at(v, s->id - RD_N_SPECIAL, &m);
        if (memcmp(w, word, n) == 0) return s;
    }
}

static rd_code vocab_add_word(rd_vocab *v, const char *path, const char *word, size_t n,
                              rd_status *st)
{
    if (!v->bytes || v->n_bytes + n + 1 > v->cap_bytes) {
        const size_t cap = (v->n_bytes + n + 1) * 2;
        char *p = realloc(v->bytes, cap);
        if (!p) goto memory;
        v->bytes = p;
        v->cap_bytes = cap;
    }
    if (!v->off || v->n + 2 > v->cap) {
        const int64_t cap = v->cap * 2 + 1024;
        int64_t *p = realloc(v->off, (size_t)cap * sizeof *p);
        if (!p) goto memory;
        v->off = p;
        v->cap = cap;
    }
    if (v->n >= VOCAB_WORDS || v->n_bytes + n > VOCAB_BYTES)
        return rd_fail(st, RD_EDATA,
                       "'%s' has more than %d lines or %d bytes, the most of a vocabulary; is it "
                       "the right file? A vocabulary has one word a line",
                       path, VOCAB_WORDS, VOCAB_BYTES);
    if (n > 0) memcpy(v->bytes + v->n_bytes, word, n);
    v->bytes[v->n_bytes + n] = '\0';
    v->off[v->n++] = (int64_t)v->n_bytes;
    v->n_bytes += n + 1;
    v->off[v->n] = (int64_t)v->n_bytes;
    return RD_OK;
memory:
    return rd_fail(st, RD_EENV, "out of memory while reading '%s'", path);
}

/* Enters the words in the order of lines. A repeated word overwrites the earlier one: it keeps its
 * last id. */
static rd_code make_table(rd_vocab *v, const char *path, rd_status *st)
{
    uint64_t slots = 16;
    while (slots < (uint64_t)v->n * 2) slots *= 2;
    v->table = calloc(slots, sizeof *v->table);
    if (!v->table) return rd_fail(st, RD_EENV, "out of memory for the words of '%s'", path);
    v->mask = slots - 1;
    rd_assert((slots & v->mask) == 0 && slots >= 2 * (uint64_t)v->n);
    for (int64_t k = 0; k < v->n; k++) {
        size_t n;
        const char *w = word_at(v, k, &n);
        const vocab_key h = key_of(w, n);
        vocab_slot *s = vocab_find(v, &h, w, n);
        if (s->id != 0 && v->duplicates < RD_VOCAB_REPEATS)
            v->repeat[v->duplicates] = (rd_vocab_repeat){s->id - RD_N_SPECIAL + 1, k + 1};
        if (s->id != 0) v->duplicates++;
        *s = (vocab_slot){h.a, h.b, (uint32_t)n, (int32_t)(k + RD_N_SPECIAL)};
        v->hash = rd_hash(v->hash, w, n);
    }
    return RD_OK;
}

static rd_code read_words(rd_lines *l, const char *path, rd_vocab **out, rd_status *st)
{
    rd_vocab *v = calloc(1, sizeof *v);
    bool any = false;
    *out = NULL;
    if (!v) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", path);
    for (;;) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        n = rd_utf8_rstrip(line, n);
        const char *tab = n > 0 ? memchr(line, '\t', n) : NULL;
        if (tab) n = (size_t)(tab - line);
        any |= n > 0;
        RD_TRY(vocab_add_word(v, path, line, n, st));
    }
    if (!any)
        RD_TRY(rd_fail(st, RD_EDATA, "the vocabulary '%s' has no word; it needs one word a line",
                       path));
    RD_TRY(make_table(v, path, st));
    v->bom = rd_lines_bom(l);
    v->replaced = rd_lines_replaced(l);
    *out = v;
    return RD_OK;
done:
    rd_vocab_free(v);
    return st->code;
}

static rd_code read_lines(const char *name, const char *p, size_t n, bool replace, rd_vocab **out,
                          rd_status *st)
{
    rd_lines *l = NULL;
    const rd_lines_opts o = {
        .cr_ends = true, .replace = replace, .max_line_bytes = VOCAB_LINE_BYTES};
    RD_TRY(rd_lines_new_mem(name, p, n, o, &l, st));
    RD_TRY(read_words(l, name, out, st));
done:
    rd_lines_free(l);
    return st->code;
}

/* Makes a vocabulary of words that end with '\0' each. */
static rd_code take_words(const char *name, const rd_strbuf *words, rd_vocab **out, rd_status *st)
{
    rd_vocab *v = calloc(1, sizeof *v);
    if (!v) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
    for (size_t at = 0; at < words->n;) {
        const size_t n = strlen(words->s + at);
        RD_TRY(vocab_add_word(v, name, words->s + at, n, st));
        at += n + 1;
    }
    if (v->n == 0)
        RD_TRY(rd_fail(st, RD_EDATA, "the vocabulary '%s' has no word besides special tokens",
                       name));
    RD_TRY(make_table(v, name, st));
    *out = v;
    return RD_OK;
done:
    rd_vocab_free(v);
    return st->code;
}

/* Fails at the first byte that is not UTF-8. */
static rd_code check_utf8(const char *name, const char *p, size_t n, rd_status *st)
{
    const size_t bad = rd_utf8_check(p, n);
    int64_t line = 1;
    size_t begin = 0;
    if (bad == n) return RD_OK;
    for (size_t i = 0; i < bad; i++)
        if (p[i] == '\n') {
            line++;
            begin = i + 1;
        }
    return rd_fail(st, RD_EDATA, "%s:%" PRId64 ":%zu: invalid UTF-8 (byte 0x%02X)", name, line,
                   bad - begin + 1, (unsigned char)p[bad]);
}

rd_code rd_vocab_new_mem(const char *name, const char *p, size_t n, bool replace_invalid_utf8,
                         rd_vocab **out, rd_status *st)
{
    rd_strbuf words = {0};
    rd_vocab_kind kind = RD_VOCAB_LINES;
    char *fixed = NULL;
    int64_t replaced = 0;
    *out = NULL;
    if (n > vocab_file_bytes)
        return rd_fail(st, RD_EDATA,
                       "'%s' has more than %d lines or %d bytes, the most of a vocabulary; is it "
                       "the right file? A vocabulary has one word a line",
                       name, VOCAB_WORDS, VOCAB_BYTES);
    if (replace_invalid_utf8 && rd_utf8_check(p, n) != n) {
        fixed = malloc(3 * n + 1);
        if (!fixed) return rd_fail(st, RD_EENV, "out of memory while reading '%s'", name);
        n = rd_utf8_replace(p, n, fixed, &replaced);
        p = fixed;
    }
    if (rd_vocab_foreign(name, p, n, &kind, &words, st) == RD_OK) {
        if (kind == RD_VOCAB_LINES)
            (void)read_lines(name, p, n, replace_invalid_utf8, out, st);
        else if (check_utf8(name, p, n, st) == RD_OK)
            (void)take_words(name, &words, out, st);
    }
    if (*out) {
        (*out)->kind = kind;
        (*out)->replaced = replaced;
    }
    rd_strbuf_release(&words);
    free(fixed);
    return st->code;
}

rd_code rd_vocab_new(const char *path, bool replace_invalid_utf8, rd_vocab **out, rd_status *st)
{
    char *p = NULL;
    size_t n = 0;
    *out = NULL;
    RD_TRY(rd_lines_read_most(path, vocab_file_bytes, &p, &n, st));
    RD_TRY(rd_vocab_new_mem(path, p, n, replace_invalid_utf8, out, st));
done:
    free(p);
    return st->code;
}

void rd_vocab_free(rd_vocab *v)
{
    if (!v) return;
    free(v->bytes);
    free(v->off);
    free(v->table);
    free(v);
}

bool rd_vocab_bom(const rd_vocab *v)
{
    return v->bom;
}
int64_t rd_vocab_replaced(const rd_vocab *v)
{
    return v->replaced;
}
int64_t rd_vocab_size(const rd_vocab *v)
{
    return v->n + RD_N_SPECIAL;
}
int64_t rd_vocab_duplicates(const rd_vocab *v)
{
    return v->duplicates;
}
const rd_vocab_repeat *rd_vocab_repeats(const rd_vocab *v)
{
    return v->repeat;
}
rd_vocab_kind rd_vocab_kind_of(const rd_vocab *v)
{
    return v->kind;
}
uint64_t rd_vocab_hash(const rd_vocab *v)
{
    return v->hash;
}

int32_t rd_vocab_id(const rd_vocab *v, const char *word, size_t n)
{
    const vocab_key k = key_of(word, n);
    return vocab_find(v, &k, word, n)->id; /* an empty slot has id 0, RD_UNK */
}

void rd_vocab_ids(const rd_vocab *v, const rd_piece *piece, int n, int32_t *ids)
{
    vocab_key k[RD_PIECES];
    rd_assert(n >= 0 && n <= RD_PIECES);
    for (int i = 0; i < n; i++) {
        k[i] = key_of_padded(piece[i].at, piece[i].n);
        __builtin_prefetch(&v->table[k[i].hash & v->mask]);
    }
    for (int i = 0; i < n; i++) ids[i] = vocab_find(v, &k[i], piece[i].at, piece[i].n)->id;
}

const char *rd_vocab_word(const rd_vocab *v, int32_t id, size_t *n)
{
    if (id >= RD_N_SPECIAL && id < v->n + RD_N_SPECIAL) return word_at(v, id - RD_N_SPECIAL, n);
    const char *w = id >= 0 && id < RD_N_SPECIAL ? special[id] : "";
    *n = strlen(w);
    return w;
}
