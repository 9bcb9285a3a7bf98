/* char.c -- characters: each code point of the text is a piece.
 *
 * Every piece is one character, so what has more than one is free for escapes, and every text comes
 * back byte for byte:
 *   space U+2581; U+2581 itself \U+2581; LF \n; CR \r; tab \t; NUL \0; a byte not UTF-8 \xHH
 * where \ is a backslash. A backslash of the text is a piece of one character, as it is.
 *
 * The model is a text file: the line "#run_dist characters 1", then one piece a line, sorted by
 * code point. The piece of line k has the id k - 2. Characters are sorted as nanoGPT's character
 * data has them. Below "#run_dist characters 2" they have any order. A meta.pkl of nanoGPT is read,
 * too. */
#include "../meta_pkl.h"
#include "../subword_impl.h"
#include "rd/file.h"
#include "rd/hash.h"
#include "rd/printable.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "#run_dist characters 1\n";
static const char any_order[] = "#run_dist characters 2\n";
static const char lower_block[] = "\xE2\x96\x81"; /* U+2581 */

/* Codes: a code point, or for a byte that is not UTF-8 BYTES + the byte. */
enum { BYTES = 0x110000, N_CODES = BYTES + 256, MOST_PIECE = 8 };

typedef struct char_model {
    int32_t n;
    int32_t *code;    /* owned; [n] code of each id */
    int32_t *by_code; /* owned; [n] ids by ascending code; NULL: the ids are */
    int32_t ascii[128];
} char_model;

/* Returns the code at s and its bytes in *n_bytes. */
static int32_t code_at(const char *s, size_t n, size_t *n_bytes)
{
    const unsigned char *u = (const unsigned char *)s;
    const size_t k = rd_utf8_bytes(s, n);
    *n_bytes = k ? k : 1;
    switch (k) {
    case 0:
        return BYTES + u[0];
    case 1:
        return u[0];
    case 2:
        return (u[0] & 0x1F) << 6 | (u[1] & 0x3F);
    case 3:
        return (u[0] & 0x0F) << 12 | (u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    default:
        return (u[0] & 0x07) << 18 | (u[1] & 0x3F) << 12 | (u[2] & 0x3F) << 6 | (u[3] & 0x3F);
    }
}

/* Writes the UTF-8 of a code point. Returns its length. */
static size_t put_code_point(int32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[more] | c >> 6 * more);
    for (int i = 1; i <= more; i++) out[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3F));
    return (size_t)more + 1;
}

/* Writes the piece of a code. Returns its length. */
static size_t piece_of(int32_t c, char out[MOST_PIECE])
{
    static const char digits[] = "0123456789abcdef";
    static const struct {
        int32_t code;
        const char *piece;
    } escape[] = {{' ', lower_block}, {0x2581, "\\\xE2\x96\x81"},
                  {'\n', "\\n"},      {'\r', "\\r"},
                  {'\t', "\\t"},      {0, "\\0"}};
    for (size_t i = 0; i < sizeof escape / sizeof *escape; i++)
        if (escape[i].code == c) {
            size_t n = 0;
            for (; escape[i].piece[n]; n++) out[n] = escape[i].piece[n];
            return n;
        }
    if (c < BYTES) return put_code_point(c, out);
    out[0] = '\\';
    out[1] = 'x';
    out[2] = digits[(c - BYTES) >> 4];
    out[3] = digits[(c - BYTES) & 15];
    return 4;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the code of a piece, -1: it is the piece of none. */
static int32_t code_of(const char *s, size_t n)
{
    size_t k;
    char again[MOST_PIECE];
    int32_t c = -1;
    if (n == 0) return -1;
    if (n == 3 && memcmp(s, lower_block, 3) == 0) return ' ';
    if (n == 2 && s[0] == '\\')
        c = s[1] == 'n' ? '\n' : s[1] == 'r' ? '\r' : s[1] == 't' ? '\t' : s[1] == '0' ? 0 : -1;
    else if (n == 4 && s[0] == '\\' && memcmp(s + 1, lower_block, 3) == 0)
        c = 0x2581;
    else if (n == 4 && s[0] == '\\' && s[1] == 'x' && hex_digit(s[2]) >= 8 && hex_digit(s[3]) >= 0)
        c = BYTES + hex_digit(s[2]) * 16 + hex_digit(s[3]);
    else if ((c = code_at(s, n, &k)) >= BYTES || k != n)
        return -1;
    return c >= 0 && piece_of(c, again) == n && memcmp(again, s, n) == 0 ? c : -1;
}

/* Returns the id at place k of the ascending codes. */
static int32_t id_at(const char_model *m, int32_t k)
{
    return m->by_code ? m->by_code[k] : k;
}

static int32_t id_of(const char_model *m, int32_t code)
{
    if (code < 128) return m->ascii[code];
    int32_t lo = 0, hi = m->n;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (m->code[id_at(m, mid)] < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->n && m->code[id_at(m, lo)] == code ? id_at(m, lo) : -1;
}

static void char_close(void *self)
{
    char_model *m = self;
    free(m->code);
    free(m->by_code);
    free(m);
}

typedef struct code_id {
    int32_t code, id;
} code_id;

static int by_code_id(const void *a, const void *b)
{
    const code_id *x = a, *y = b;
    return x->code != y->code ? (x->code < y->code ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

/* Prepares the search for codes. A code that occurs twice is RD_EDATA; first_line: that of id 0. */
static rd_code index_codes(char_model *m, const char *path, int first_line, rd_status *st)
{
    bool sorted = true;
    code_id *c = NULL;
    for (int32_t i = 1; i < m->n; i++) sorted &= m->code[i] > m->code[i - 1];
    memset(m->ascii, 0xFF, sizeof m->ascii);
    for (int32_t i = 0; i < m->n; i++)
        if (m->code[i] < 128) m->ascii[m->code[i]] = i;
    if (sorted) return RD_OK;
    c = malloc((size_t)m->n * sizeof *c);
    m->by_code = malloc((size_t)m->n * sizeof *m->by_code);
    if (!c || !m->by_code) RD_TRY(rd_fail(st, RD_EENV, "out of memory for '%s'", path));
    for (int32_t i = 0; i < m->n; i++) c[i] = (code_id){m->code[i], i};
    qsort(c, (size_t)m->n, sizeof *c, by_code_id);
    for (int32_t i = 0; i < m->n; i++) {
        if (i > 0 && c[i].code == c[i - 1].code)
            RD_TRY(rd_fail(st, RD_EDATA, "%s:%d: the character of line %d again", path,
                           first_line + c[i].id, first_line + c[i - 1].id));
        m->by_code[i] = c[i].id;
    }
done:
    free(c);
    return st->code;
}

/* Reads the lines of a model's file below the first one. */
static rd_code read_list(char_model *m, const char *path, const char *text, size_t n, bool sorted,
                         rd_status *st)
{
    m->code = malloc((n / 2 + 1) * sizeof *m->code);
    if (!m->code) return rd_fail(st, RD_EENV, "out of memory for '%s'", path);
    for (size_t at = sizeof head - 1; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t len = end ? (size_t)(end - (text + at)) : n - at;
        const int32_t c = code_of(text + at, len);
        if (c < 0 || (sorted && m->n > 0 && c <= m->code[m->n - 1]))
            return rd_fail(st, RD_EDATA, "%s:%d: %s", path, m->n + 2,
                           c < 0 ? "not one character or its escape"
                                 : "the characters are not sorted by code point");
        m->code[m->n++] = c;
        at += len + 1;
    }
    if (m->n == 0) return rd_fail(st, RD_EDATA, "'%s' has no character", path);
    return RD_OK;
}

static rd_code char_open(const char *path, void **self, rd_status *st)
{
    const size_t n_head = sizeof head - 1;
    char *text = NULL;
    size_t n = 0;
    char_model *m = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for '%s'", path);
    RD_TRY(rd_file_read(path, RD_EDATA, &text, &n, st));
    const bool sorted = n >= n_head && memcmp(text, head, n_head) == 0;
    if (meta_pkl_is(text, n)) {
        RD_TRY(meta_pkl_read(path, text, n, &m->code, &m->n, st));
    } else if (sorted || (n >= n_head && memcmp(text, any_order, n_head) == 0)) {
        RD_TRY(read_list(m, path, text, n, sorted, st));
    } else {
        (void)rd_fail(st, RD_EDATA,
                      "'%s' is no list of characters: it does not begin with '%.*s', and is no "
                      "meta.pkl of nanoGPT",
                      path, (int)n_head - 1, head);
        goto done;
    }
    RD_TRY(index_codes(m, path, 2, st));
    *self = m;
    m = NULL;
done:
    if (m) char_close(m);
    free(text);
    return st->code;
}

static void char_segment(const void *self, void *w, const char *line, size_t n, rd_strbuf *out)
{
    char piece[MOST_PIECE];
    (void)self;
    (void)w;
    for (size_t i = 0, k; i < n; i += k) {
        const int32_t c = code_at(line + i, n - i, &k);
        if (i > 0) rd_strbuf_add(out, " ", 1);
        rd_strbuf_add(out, piece, piece_of(c, piece));
    }
}

static void char_join(const void *self, const char *pieces, size_t n, rd_strbuf *out)
{
    rd_strbuf raw = {0};
    (void)self;
    for (size_t from = 0; from < n;) {
        const char *space = memchr(pieces + from, ' ', n - from);
        const size_t len = (space ? (size_t)(space - pieces) : n) - from;
        const int32_t c = code_of(pieces + from, len);
        char at[MOST_PIECE];
        if (c >= BYTES)
            rd_strbuf_add(&raw, (const char[]){(char)(c - BYTES)}, 1);
        else if (c >= 0)
            rd_strbuf_add(&raw, at, put_code_point(c, at));
        else
            rd_strbuf_add(&raw, pieces + from, len);
        from += len + 1;
    }
    rd_subword_put_text(out, raw.s, raw.n);
    out->failed |= raw.failed;
    rd_strbuf_release(&raw);
}

static int32_t char_size(const void *self)
{
    return ((const char_model *)self)->n;
}

static void char_piece(const void *self, int32_t id, rd_strbuf *out)
{
    char piece[MOST_PIECE];
    rd_strbuf_add(out, piece, piece_of(((const char_model *)self)->code[id], piece));
}

static int32_t char_find(const void *self, const char *piece, size_t n)
{
    const int32_t c = code_of(piece, n);
    return c < 0 ? -1 : id_of(self, c);
}

static void char_encode(const void *self, void *w, const char *text, size_t n, rd_subword_ids *out)
{
    (void)w;
    for (size_t i = 0, k; i < n; i += k)
        rd_subword_put(out, id_of(self, code_at(text + i, n - i, &k)));
}

static void put_codes(const int32_t *code, int64_t n, bool sorted, rd_strbuf *out)
{
    char piece[MOST_PIECE];
    rd_strbuf_puts(out, sorted ? head : any_order);
    for (int64_t i = 0; i < n; i++) {
        rd_strbuf_add(out, piece, piece_of(code[i], piece));
        rd_strbuf_add(out, "\n", 1);
    }
}

static void char_write(const void *self, rd_strbuf *out)
{
    const char_model *m = self;
    put_codes(m->code, m->n, !m->by_code, out);
}

static uint64_t char_hash(const void *self)
{
    const char_model *m = self;
    return rd_hash(0, m->code, (size_t)m->n * sizeof *m->code);
}

/* ---- training ---- */

typedef struct counted {
    int64_t count;
    int32_t code;
} counted;

/* The most frequent ones first; equal ones by code point. */
static int by_count(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->code < y->code ? -1 : x->code > y->code;
}

static int by_code(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static rd_code char_train(const rd_subword_lines *lines, const rd_subword_training *t,
                          rd_strbuf *model, rd_status *st)
{
    int64_t *count = calloc(N_CODES, sizeof *count), n_lines = 0, n = 0;
    counted *c = malloc(N_CODES * sizeof *c);
    int32_t *code = malloc(N_CODES * sizeof *code);
    if (!count || !c || !code) RD_TRY(rd_fail(st, RD_EENV, "out of memory for the characters"));
    for (;; n_lines++) {
        const char *line;
        size_t bytes;
        RD_TRY(lines->next(lines->ctx, &line, &bytes, st));
        if (!line) break;
        for (size_t i = 0, k; i < bytes; i += k) count[code_at(line + i, bytes - i, &k)]++;
    }
    count['\n'] += n_lines; /* the end of each line */
    const int64_t least = t->min_count > 0 ? t->min_count : 1;
    for (int32_t i = 0; i < N_CODES; i++)
        if (count[i] >= least) c[n++] = (counted){count[i], i};
    const int64_t found = n;
    if (t->size > 0 && n > t->size) {
        qsort(c, (size_t)n, sizeof *c, by_count);
        n = t->size;
    }
    for (int64_t i = 0; i < n; i++) code[i] = c[i].code;
    qsort(code, (size_t)n, sizeof *code, by_code);
    if (n == 0)
        RD_TRY(rd_fail(st, RD_EDATA,
                       "the text is empty, or none of its characters occurs %" PRId64
                       " time%s; give text to learn from",
                       least, RD_S(least)));
    put_codes(code, n, true, model);
    if (t->log) rd_info(t->log, "characters: %" PRId64 " of %" PRId64 " different ones", n, found);
done:
    free(count);
    free(c);
    free(code);
    return st->code;
}

RD_SUBWORD(char) = {
    .name = "char",
    .about = "characters: each code point is a piece",
    .open = char_open,
    .close = char_close,
    .train = char_train,
    .segment = char_segment,
    .join = char_join,
    .size = char_size,
    .piece = char_piece,
    .find = char_find,
    .encode = char_encode,
    .write = char_write,
    .hash = char_hash,
};
