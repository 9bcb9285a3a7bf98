/* text_side.c -- turns the lines of one file into token ids in flat arrays.
 *
 * A token takes 2 bytes while the vocabulary has fewer than 65,536 ids, a line takes 8 bytes. Five
 * million pairs of 27 tokens a side take 0.6 GB, once per host.
 *
 * Trailing white space is removed, then the line is split at each single space. Two spaces in a row
 * make an empty token; an empty line is one empty token. Each line becomes "start w1 .. wn end".
 * Empty lines are listed, too: they are left out of training and of translation. */
#include "text_impl.h"

static int64_t count_tokens(const char *line, size_t n)
{
    int64_t k = 1;
    for (size_t i = 0; i < n; i++) k += line[i] == ' ';
    return k;
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

rd_code rd_side_read(rd_side *s, rd_lines *l, const rd_vocab *v, int rank, int size, bool keep_raw,
                     bool shared, rd_status *st)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < RD_SIDE_BLOCKS; i++) rd_block_init(&s->block[i], shared);
    s->rank = rank;
    s->size = size;
    s->head.wide = rd_vocab_size(v) > UINT16_MAX;
    const size_t id_bytes = s->head.wide ? sizeof(int32_t) : sizeof(uint16_t);
    int64_t here = 0, at = 0, i = 0;
    for (;; i++) {
        const char *line;
        size_t n;
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        n = rd_utf8_rstrip(line, n);
        s->head.hash = rd_hash(s->head.hash, line, n);
        s->head.n_lines = i;
        if (n == 0) RD_TRY(put_blank(s, i, st));
        int64_t tokens;
        if (i % size == rank) {
            /* A line of n bytes has at most n spaces: n + 1 tokens, start and end. */
            RD_TRY(rd_block_grow(&s->ids, ((size_t)at + n + 3) * id_bytes, st));
            RD_TRY(rd_block_grow(&s->off, (size_t)(here + 2) * sizeof(int64_t), st));
            const int64_t end = text_side_put_line(s, v, line, n, at);
            ((int64_t *)(void *)s->off.p)[++here] = end;
            tokens = end - at;
            s->head.n_here += tokens - 2;
            at = end;
        } else {
            tokens = count_tokens(line, n) + 2;
        }
        if (size > 1) {
            RD_TRY(rd_block_grow(&s->len, (size_t)(i + 1) * sizeof(uint32_t), st));
            ((uint32_t *)(void *)s->len.p)[i] =
                (uint32_t)tokens; /* fits: max_line_bytes is far smaller */
        }
        s->head.n_tokens += tokens - 2;
        if (tokens > s->head.longest) s->head.longest = tokens;
        if (keep_raw) RD_TRY(put_raw(s, i, line, n, st));
    }
    s->head.n_lines = i;
    s->head.n_bytes = rd_lines_bytes(l);
    s->head.bom = rd_lines_bom(l);
    s->head.n_replaced = rd_lines_replaced(l);
    s->head.first_replaced = rd_lines_first_replaced(l);
    RD_TRY(rd_block_trim(&s->ids, (size_t)at * id_bytes, st));
    RD_TRY(rd_block_trim(&s->off, (size_t)(here + 1) * sizeof(int64_t), st));
    if (keep_raw && i > 0) {
        RD_TRY(rd_block_trim(&s->raw, (size_t)((const int64_t *)(const void *)s->raw_off.p)[i],
                             st));
        RD_TRY(rd_block_trim(&s->raw_off, (size_t)(i + 1) * sizeof(int64_t), st));
    }
    if (size > 1) RD_TRY(rd_block_trim(&s->len, (size_t)i * sizeof(uint32_t), st));
    if (s->blank.p) RD_TRY(rd_block_trim(&s->blank, (size_t)s->head.n_blank * sizeof(int64_t), st));
done:
    return st->code;
}

void rd_side_release(rd_side *s)
{
    for (int i = 0; i < RD_SIDE_BLOCKS && s->size > 0; i++) /* size 0: never read */
        rd_block_free(&s->block[i]);
    memset(s, 0, sizeof *s);
}

static const int64_t *offset_of(const rd_side *s, int64_t i)
{
    return (const int64_t *)(const void *)s->off.p + i / s->size;
}

int64_t rd_side_n_ids(const rd_side *s, int64_t i)
{
    const int64_t *o = offset_of(s, i);
    return o[1] - o[0];
}

int64_t rd_side_length(const rd_side *s, int64_t i)
{
    return s->size > 1 ? ((const uint32_t *)(const void *)s->len.p)[i] : rd_side_n_ids(s, i);
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

void rd_side_ids(const rd_side *s, int64_t i, int32_t *out)
{
    const int64_t *o = offset_of(s, i), n = o[1] - o[0];
    if (s->head.wide)
        memcpy(out, (const int32_t *)(const void *)s->ids.p + o[0], (size_t)n * sizeof *out);
    else
        for (int64_t k = 0; k < n; k++)
            out[k] = ((const uint16_t *)(const void *)s->ids.p)[o[0] + k];
}

const char *rd_side_raw(const rd_side *s, int64_t i, size_t *n)
{
    if (!s->raw.p) return NULL;
    const int64_t *o = (const int64_t *)(const void *)s->raw_off.p + i;
    *n = (size_t)(o[1] - o[0] - 1);
    return s->raw.p + o[0];
}
