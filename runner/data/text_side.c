/* text_side.c -- turns the lines of one side of a text into token ids in flat arrays.
 *
 * A token takes 2 bytes while the vocabulary has fewer than 65,536 ids, a line takes 8 bytes. Five
 * million pairs of 27 tokens a side take 0.6 GB, once per host. With `again` a line takes 8 bytes
 * in all: its offset in the file and its number of tokens. Its ids are made when they are used.
 *
 * Trailing white space is removed, and a subword model segments the line. Then the line is split at
 * each single space. Two spaces in a row make an empty token; an empty line is one empty token.
 * Each line becomes "start w1 .. wn end". Empty lines are listed, too: they are left out of
 * training and of translation. */
#include "text_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { SIDE_SLACK = 64, MOST_TOKENS = UINT16_MAX, TOKEN_BITS = 16 };

static int64_t count_tokens(const char *line, size_t n)
{
    int64_t k = 1;
    for (size_t i = 0; i < n; i++) k += line[i] == ' ';
    return k;
}

/* Returns whether a byte of x is below 0x20 or above 0x7F. */
static inline bool odd_bytes(uint64_t x)
{
    return (((x - 0x2020202020202020u) | x) & 0x8080808080808080u) != 0;
}

/* Is there white space inside the line that is no blank? Tokens keep it, and other programs may
 * split there. */
static bool has_spaces(const char *line, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (n - i >= 8 && !odd_bytes(rd_load64(line + i))) {
            i += 8;
            continue;
        }
        for (const size_t stop = n - i > 8 ? i + 8 : n; i < stop; i++) {
            const unsigned char c = (unsigned char)line[i];
            if ((c < 0x20 || c == 0xC2 || (c >= 0xE1 && c <= 0xE3)) &&
                rd_utf8_space(line + i, n - i) > 0)
                return true;
        }
    }
    return false;
}

static inline void put_id(const rd_side *s, int64_t at, int32_t id)
{
    if (s->head.wide)
        ((int32_t *)(void *)s->ids.p)[at] = id;
    else
        ((uint16_t *)(void *)s->ids.p)[at] = (uint16_t)id;
}

/* Keeps the first unknown word for messages. */
static void note_unknown(rd_side_head *h, const rd_piece *piece)
{
    size_t n = piece->n < sizeof h->unknown ? piece->n : sizeof h->unknown - 1;
    if (n == 0 || h->unknown[0]) return;
    while (n < piece->n && n > 0 && ((unsigned char)piece->at[n] & 0xC0) == 0x80) n--;
    memcpy(h->unknown, piece->at, n);
    h->unknown[n] = '\0';
    h->unknown_line = h->n_lines + 1;
}

static int64_t put_pieces(rd_side *s, const rd_vocab *v, const rd_piece *piece, int n, int64_t at)
{
    int32_t ids[RD_PIECES];
    rd_vocab_ids(v, piece, n, ids);
    for (int k = 0; k < n; k++) {
        if (ids[k] == RD_UNK) {
            s->head.n_unknown++;
            note_unknown(&s->head, &piece[k]);
        }
        put_id(s, at + k, ids[k]);
    }
    return at + n;
}

/* Returns the high bit of each byte of x that is a space; exact for every byte. */
static inline uint64_t spaces(uint64_t x)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu, y = x ^ 0x2020202020202020u;
    return ~(((y & low) + low) | y | low);
}

/* Writes the line's ids from position `at` on and returns the position after them. Bytes behind the
 * line can be read (rd_lines_next). */
static int64_t text_side_put_line(rd_side *s, const rd_vocab *v, const char *line, size_t n,
                                  int64_t at)
{
    rd_piece piece[RD_PIECES];
    int k = 0;
    size_t from = 0;
    put_id(s, at++, RD_SOS);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t m = spaces(rd_load64(line + i));
        if (n - i < 8) m &= ~(~(uint64_t)0 << (8 * (n - i)));
        for (; m != 0; m &= m - 1) {
            const size_t here = i + (size_t)__builtin_ctzll(m) / 8;
            piece[k++] = (rd_piece){line + from, here - from};
            from = here + 1;
            if (k == RD_PIECES) {
                at = put_pieces(s, v, piece, k, at);
                k = 0;
            }
        }
    }
    piece[k++] = (rd_piece){line + from, n - from};
    at = put_pieces(s, v, piece, k, at);
    put_id(s, at++, RD_EOS);
    return at;
}

static rd_code put_raw(rd_side *s, int64_t i, const char *line, size_t n, rd_status *st)
{
    const int64_t at = i > 0 ? ((const int64_t *)(const void *)s->raw_off.p)[i] : 0;
    RD_TRY(rd_block_grow(&s->raw, (size_t)at + n + 1, st));
    RD_TRY(rd_block_grow(&s->raw_off, (size_t)(i + 2) * sizeof(int64_t), st));
    memcpy(s->raw.p + at, line, n);
    s->raw.p[(size_t)at + n] = '\0';
    ((int64_t *)(void *)s->raw_off.p)[i + 1] = at + (int64_t)n + 1;
done:
    return st->code;
}

/* Notes that line i, from 0, is blank. */
static rd_code put_blank(rd_side *s, int64_t i, rd_status *st)
{
    rd_side_head *h = &s->head;
    RD_TRY(rd_block_grow(&s->blank, (size_t)(h->n_blank + 1) * sizeof(int64_t), st));
    if (h->n_blank == 0) h->first_blank = i + 1;
    ((int64_t *)(void *)s->blank.p)[h->n_blank++] = i;
done:
    return st->code;
}

/* Buffers of one reading. */
typedef struct side_work {
    const rd_side_args *a;
    rd_subword_scratch *scratch; /* owned; NULL: no subword model */
    rd_strbuf pieces;
} side_work;

static rd_code work_start(side_work *w, const rd_side_args *a, rd_status *st)
{
    *w = (side_work){.a = a};
    if (!a->subword) return RD_OK;
    return rd_subword_scratch_new(a->subword, &w->scratch, st);
}

static void work_end(side_work *w)
{
    rd_subword_scratch_free(w->scratch);
    rd_strbuf_release(&w->pieces);
}

/* Replaces the line by its pieces. Bytes behind them can be read. */
static rd_code work_segment(side_work *w, const char **line, size_t *n, rd_status *st)
{
    static const char zeros[SIDE_SLACK];
    if (!w->a->subword) return RD_OK;
    rd_strbuf_reset(&w->pieces);
    rd_subword_segment(w->a->subword, w->scratch, *line, *n, &w->pieces);
    *n = w->pieces.n;
    rd_strbuf_add(&w->pieces, zeros, sizeof zeros);
    if (w->pieces.failed) return rd_fail(st, RD_EENV, "out of memory for the pieces of a line");
    *line = w->pieces.s;
    return RD_OK;
}

/* Notes where the files begin, up to that of the line before which there are i lines. */
static rd_code put_file(rd_side *s, const rd_lines *l, int64_t i, rd_status *st)
{
    while (s->head.n_files <= rd_lines_file(l)) {
        const size_t k = (size_t)s->head.n_files;
        RD_TRY(rd_block_grow(&s->file, (k + 1) * sizeof(int64_t), st));
        ((int64_t *)(void *)s->file.p)[k] = i;
        s->head.n_files++;
    }
done:
    return st->code;
}

/* Counts the tokens of a line and notes its first unknown word, and keeps no ids. */
static rd_code put_offset(rd_side *s, const rd_lines *l, const rd_vocab *v, const char *line,
                          size_t n, int64_t i, int64_t *tokens, rd_status *st)
{
    RD_TRY(rd_block_grow(&s->ids, (n + 3) * (s->head.wide ? sizeof(int32_t) : sizeof(uint16_t)),
                         st)); /* scratch of one line */
    *tokens = text_side_put_line(s, v, line, n, 0);
    RD_TRY(rd_block_grow(&s->at, (size_t)(i + 1) * sizeof(uint64_t), st));
    ((uint64_t *)(void *)s->at.p)[i] = (uint64_t)rd_lines_offset(l) << TOKEN_BITS |
                                       (uint64_t)(*tokens < MOST_TOKENS ? *tokens : MOST_TOKENS);
    s->head.n_here += *tokens - 2;
done:
    return st->code;
}

/* What rd_side_read counts besides the head. */
typedef struct side_fill {
    int64_t here, at; /* number of lines that are here, and of their ids */
    size_t id_bytes;
} side_fill;

static rd_code put_ids(rd_side *s, side_fill *f, const rd_vocab *v, const char *line, size_t n,
                       int64_t *tokens, rd_status *st)
{
    /* A line of n bytes has at most n spaces: n + 1 tokens, start and end. */
    RD_TRY(rd_block_grow(&s->ids, ((size_t)f->at + n + 3) * f->id_bytes, st));
    RD_TRY(rd_block_grow(&s->off, (size_t)(f->here + 2) * sizeof(int64_t), st));
    const int64_t end = text_side_put_line(s, v, line, n, f->at);
    ((int64_t *)(void *)s->off.p)[++f->here] = end;
    *tokens = end - f->at;
    s->head.n_here += *tokens - 2;
    f->at = end;
done:
    return st->code;
}

/* Enters line i. */
static rd_code put_line(rd_side *s, side_fill *f, side_work *w, const rd_lines *l, const char *line,
                        size_t n, int64_t i, rd_status *st)
{
    const rd_side_args *a = w->a;
    rd_side_head *h = &s->head;
    int64_t tokens = 0;
    n = rd_utf8_rstrip(line, n);
    h->hash = rd_hash(h->hash, line, n);
    h->n_lines = i;
    RD_TRY(put_file(s, l, i, st));
    if (has_spaces(line, n) && h->n_spaces++ == 0) h->first_spaces = i + 1;
    if (a->keep_raw) RD_TRY(put_raw(s, i, line, n, st));
    RD_TRY(work_segment(w, &line, &n, st));
    if (n == 0) RD_TRY(put_blank(s, i, st));
    if (a->again)
        RD_TRY(put_offset(s, l, a->vocab, line, n, i, &tokens, st));
    else if (i % s->size == s->rank)
        RD_TRY(put_ids(s, f, a->vocab, line, n, &tokens, st));
    else
        tokens = count_tokens(line, n) + 2;
    if (s->size > 1) {
        RD_TRY(rd_block_grow(&s->len, (size_t)(i + 1) * sizeof(uint32_t), st));
        ((uint32_t *)(void *)s->len.p)[i] =
            (uint32_t)tokens; /* fits: max_line_bytes is far smaller */
    }
    h->n_tokens += tokens - 2;
    if (tokens > h->longest) h->longest = tokens;
done:
    return st->code;
}

/* Gives the memory back that the blocks do not need. */
static rd_code trim_blocks(rd_side *s, const side_fill *f, bool keep_raw, int64_t n, rd_status *st)
{
    if (s->head.again) {
        rd_block_free(&s->ids);
        RD_TRY(rd_block_trim(&s->at, (size_t)n * sizeof(uint64_t), st));
    } else {
        RD_TRY(rd_block_trim(&s->ids, (size_t)f->at * f->id_bytes, st));
        RD_TRY(rd_block_trim(&s->off, (size_t)(f->here + 1) * sizeof(int64_t), st));
    }
    if (keep_raw && n > 0) {
        RD_TRY(rd_block_trim(&s->raw, (size_t)((const int64_t *)(const void *)s->raw_off.p)[n],
                             st));
        RD_TRY(rd_block_trim(&s->raw_off, (size_t)(n + 1) * sizeof(int64_t), st));
    }
    if (s->size > 1) RD_TRY(rd_block_trim(&s->len, (size_t)n * sizeof(uint32_t), st));
    if (s->blank.p) RD_TRY(rd_block_trim(&s->blank, (size_t)s->head.n_blank * sizeof(int64_t), st));
done:
    return st->code;
}

rd_code rd_side_read(rd_side *s, rd_lines *l, const rd_side_args *a, rd_status *st)
{
    side_work w = {0};
    memset(s, 0, sizeof *s);
    for (int i = 0; i < RD_SIDE_BLOCKS; i++) rd_block_init(&s->block[i], a->shared);
    s->rank = a->rank;
    s->size = a->size;
    s->head.wide = rd_vocab_size(a->vocab) > UINT16_MAX;
    s->head.again = a->again;
    side_fill f = {.id_bytes = s->head.wide ? sizeof(int32_t) : sizeof(uint16_t)};
    int64_t i = 0;
    RD_TRY(work_start(&w, a, st));
    for (;; i++) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        RD_TRY(put_line(s, &f, &w, l, line, n, i, st));
        rd_progress_at(a->progress, i, l);
    }
    s->head.n_lines = i;
    RD_TRY(put_file(s, l, i, st)); /* also files without a line */
    RD_TRY(rd_block_grow(&s->file, (size_t)(s->head.n_files + 1) * sizeof(int64_t), st));
    ((int64_t *)(void *)s->file.p)[s->head.n_files] = i;
    s->head.n_bytes = rd_lines_bytes(l);
    s->head.bom = rd_lines_bom(l);
    s->head.n_replaced = rd_lines_replaced(l);
    s->head.first_replaced = rd_lines_first_replaced(l);
    s->head.file_replaced = rd_lines_file_replaced(l);
    RD_TRY(trim_blocks(s, &f, a->keep_raw, i, st));
done:
    work_end(&w);
    return st->code;
}

/* ---- lines that are read again ---- */

struct rd_side_again {
    rd_side_args args;
    rd_lines_opts opts;
    const rd_text_files *files; /* borrowed */
    pthread_mutex_t lock;
    side_work work;
    char *buf; /* owned */
    size_t cap;
    int open;     /* index of the file that is open; -1: none */
    rd_input *in; /* owned */
};

rd_code rd_side_open(rd_side *s, const rd_text_files *files, const rd_lines_opts *o,
                     const rd_side_args *a, rd_status *st)
{
    rd_side_again *g = calloc(1, sizeof *g);
    if (!g) return rd_fail(st, RD_EENV, "out of memory");
    *g = (rd_side_again){.args = *a, .opts = *o, .files = files, .open = -1};
    (void)pthread_mutex_init(&g->lock, NULL);
    s->reader = g;
    return work_start(&g->work, &g->args, st);
}

static void again_free(rd_side_again *g)
{
    if (!g) return;
    work_end(&g->work);
    rd_input_close(g->in);
    (void)pthread_mutex_destroy(&g->lock);
    free(g->buf);
    free(g);
}

static rd_code again_file(rd_side_again *g, int file, rd_status *st)
{
    const char *kind, *path = g->files->at[file];
    if (g->open == file) return RD_OK;
    rd_input_close(g->in);
    g->open = -1;
    g->in = rd_input_open(path, RD_LISTED, &kind);
    if (!g->in) return rd_input_not_open(st, RD_EDATA, path, kind, errno, "check the path");
    g->open = file;
    return RD_OK;
}

static uint64_t side_at(const rd_side *s, int64_t i)
{
    return ((const uint64_t *)(const void *)s->at.p)[i];
}

static rd_code again_changed(const rd_side_again *g, int64_t line, rd_status *st)
{
    return rd_fail(st, RD_EDATA,
                   "%s:%" PRId64 ": the line is another one than at the start of the run; do not "
                   "change a text while it is in use",
                   g->files->at[g->open], line);
}

/* Reads the bytes of line i, its end included. *line: its number in the file. */
static rd_code again_bytes(const rd_side *s, int64_t i, size_t *n, int64_t *line, rd_status *st)
{
    rd_side_again *g = s->reader;
    const int file = rd_side_file(s, i, line);
    const int64_t from = (int64_t)(side_at(s, i) >> TOKEN_BITS);
    RD_TRY(again_file(g, file, st));
    const bool last = i + 1 == ((const int64_t *)(const void *)s->file.p)[file + 1];
    const int64_t to = last ? rd_input_stat(g->in)->st_size
                            : (int64_t)(side_at(s, i + 1) >> TOKEN_BITS);
    if (to <= from) return again_changed(g, *line, st);
    *n = (size_t)(to - from);
    if (*n > g->cap) {
        char *more = realloc(g->buf, 2 * *n + SIDE_SLACK);
        if (!more) return rd_fail(st, RD_EENV, "out of memory for a line of %zu bytes", *n);
        g->buf = more;
        g->cap = 2 * *n;
    }
    const ssize_t got = rd_input_pread(g->in, g->buf, *n, from);
    if (got < 0) return rd_input_fails(st, RD_EDATA, "read", g->files->at[file], errno, NULL);
    if ((size_t)got != *n) return again_changed(g, *line, st);
done:
    return st->code;
}

/* Writes the `want` ids of line i. The caller holds the lock. */
static rd_code again_ids(const rd_side *s, int64_t i, int64_t want, int32_t *out, rd_status *st)
{
    rd_side_again *g = s->reader;
    rd_lines *l = NULL;
    rd_side one = {.size = 1, .head = {.wide = 1}};
    const char *p;
    size_t n = 0;
    int64_t number = 0;
    RD_TRY(again_bytes(s, i, &n, &number, st));
    rd_lines_opts o = g->opts;
    o.lines_before = number - 1;
    RD_TRY(rd_lines_new_mem(g->files->at[g->open], g->buf, n, o, &l, st));
    RD_TRY(rd_lines_next(l, &p, &n, st));
    if (!p) RD_TRY(again_changed(g, number, st));
    n = rd_utf8_rstrip(p, n);
    RD_TRY(work_segment(&g->work, &p, &n, st));
    if (count_tokens(p, n) + 2 != want) RD_TRY(again_changed(g, number, st));
    one.ids.p = (char *)out;
    (void)text_side_put_line(&one, g->args.vocab, p, n, 0);
done:
    rd_lines_free(l);
    return st->code;
}

void rd_side_release(rd_side *s)
{
    for (int i = 0; i < RD_SIDE_BLOCKS && s->size > 0; i++) /* size 0: never read */
        rd_block_free(&s->block[i]);
    again_free(s->reader);
    memset(s, 0, sizeof *s);
}

static const int64_t *offset_of(const rd_side *s, int64_t i)
{
    return (const int64_t *)(const void *)s->off.p + i / s->size;
}

int64_t rd_side_n_ids(const rd_side *s, int64_t i)
{
    if (s->head.again) return (int64_t)(side_at(s, i) & MOST_TOKENS);
    const int64_t *o = offset_of(s, i);
    return o[1] - o[0];
}

int64_t rd_side_length(const rd_side *s, int64_t i)
{
    return s->size > 1 ? ((const uint32_t *)(const void *)s->len.p)[i] : rd_side_n_ids(s, i);
}

double rd_side_bytes(const rd_side *s)
{
    const rd_side_head *h = &s->head;
    const double lines = (double)h->n_lines, here = lines / s->size;
    if (h->again) return lines * sizeof(uint64_t);
    return ((double)h->n_here + 2.0 * here) * (h->wide ? sizeof(int32_t) : sizeof(uint16_t)) +
           here * sizeof(int64_t) + (s->size > 1 ? lines * sizeof(uint32_t) : 0.0);
}

bool rd_side_blank(const rd_side *s, int64_t i)
{
    const int64_t *at = (const int64_t *)(const void *)s->blank.p;
    int64_t low = 0, high = s->head.n_blank;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (at[mid] == i) return true;
        if (at[mid] < i)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

int rd_side_file(const rd_side *s, int64_t i, int64_t *line)
{
    const int64_t *begin = (const int64_t *)(const void *)s->file.p;
    int low = 0, high = s->head.n_files;
    while (high - low > 1) {
        const int mid = low + (high - low) / 2;
        if (begin[mid] <= i)
            low = mid;
        else
            high = mid;
    }
    *line = i - (begin ? begin[low] : 0) + 1;
    return low;
}

rd_code rd_side_ids(const rd_side *s, int64_t i, int32_t *out, rd_status *st)
{
    if (s->head.again) {
        (void)pthread_mutex_lock(&s->reader->lock);
        (void)again_ids(s, i, rd_side_n_ids(s, i), out, st);
        (void)pthread_mutex_unlock(&s->reader->lock);
        return st->code;
    }
    const int64_t *o = offset_of(s, i), n = o[1] - o[0];
    if (s->head.wide)
        memcpy(out, (const int32_t *)(const void *)s->ids.p + o[0], (size_t)n * sizeof *out);
    else
        for (int64_t k = 0; k < n; k++)
            out[k] = ((const uint16_t *)(const void *)s->ids.p)[o[0] + k];
    return RD_OK;
}

const char *rd_side_raw(const rd_side *s, int64_t i, size_t *n)
{
    if (!s->raw.p) return NULL;
    const int64_t *o = (const int64_t *)(const void *)s->raw_off.p + i;
    *n = (size_t)(o[1] - o[0] - 1);
    return s->raw.p + o[0];
}
