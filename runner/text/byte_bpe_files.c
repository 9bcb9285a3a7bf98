/* byte_bpe_files.c -- finds out which files a byte-level BPE model is, and reads those that are not
 * a tokenizer.json: vocab.json with merges.txt, and the .tiktoken files of tiktoken.
 *
 * merges.txt has one merge "left right" per line, maybe below "#version: 0.2". Without a vocab.json
 * beside it the ids are those of GPT-2: the 256 bytes, the merges in order, <|endoftext|>. OpenAI's
 * names are vocab.bpe and encoder.json.
 *
 * A line of a .tiktoken file is the token in base64, a space, and its rank, which is its id. Each
 * two neighbours merge whose bytes together are a token. The file does not name its pattern. Files
 * of GPT-2's size have GPT-2's, those of cl100k's size have that; another size is an error. */
#include "byte_bpe_impl.h"
#include "rd/file.h"
#include "rd/input.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GPT2_MOST = 50257, CL100K = 100256 };
static const char end_of_text[] = "<|endoftext|>";

/* Returns the next line of a text and its length without LF and CR; NULL at the end. */
static const char *next_line(const char *text, size_t n, size_t *at, size_t *length)
{
    if (*at >= n) return NULL;
    const char *line = text + *at, *lf = memchr(line, '\n', n - *at);
    *length = lf ? (size_t)(lf - line) : n - *at;
    *at += *length + 1;
    while (*length > 0 && line[*length - 1] == '\r') --*length;
    return line;
}

/* ---- merges.txt ---- */

typedef struct merges_reader {
    const char *text, *name;
    size_t n;
} merges_reader;

/* Calls add with the two symbols of each line, as bytes. */
static rd_code each_merge(const merges_reader *r,
                          rd_code (*add)(void *ctx, const rd_strbuf *both, size_t n_left,
                                         const char *where, rd_status *st),
                          void *ctx, rd_status *st)
{
    rd_strbuf b = {0};
    size_t at = 0, n;
    int64_t number = 0;
    for (const char *line; (line = next_line(r->text, r->n, &at, &n));) {
        char where[160];
        (void)snprintf(where, sizeof where, "%.120s:%" PRId64, r->name, ++number);
        if (n == 0 || (number == 1 && n >= 8 && memcmp(line, "#version", 8) == 0)) continue;
        const char *space = memchr(line, ' ', n);
        if (!space || space == line || space + 1 == line + n ||
            memchr(space + 1, ' ', (size_t)(line + n - space - 1)))
            RD_TRY(rd_fail(st, RD_EDATA, "%s: not two tokens with one space between", where));
        rd_strbuf_reset(&b);
        byte_bpe_put_bytes(&b, line, (size_t)(space - line));
        const size_t n_left = b.n;
        byte_bpe_put_bytes(&b, space + 1, (size_t)(line + n - space - 1));
        if (b.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory for '%s'", r->name));
        RD_TRY(add(ctx, &b, n_left, where, st));
    }
done:
    rd_strbuf_release(&b);
    return st->code;
}

static rd_code note_result(void *ctx, const rd_strbuf *both, size_t n_left, const char *where,
                           rd_status *st)
{
    (void)n_left;
    return rd_strings_add(ctx, both->s, both->n) >= 0
               ? RD_OK
               : rd_fail(st, RD_EENV, "out of memory at %s", where);
}

static rd_code add_merge(void *ctx, const rd_strbuf *both, size_t n_left, const char *where,
                         rd_status *st)
{
    return byte_bpe_merge(ctx, both->s, n_left, both->s + n_left, both->n - n_left, where, st);
}

/* The ids of GPT-2: the bytes, then the results of the merges. */
static rd_code vocab_of_merges(const rd_strings *results, const char *name, byte_bpe *m,
                               rd_status *st)
{
    for (int32_t i = 0; i < 256; i++)
        RD_TRY(byte_bpe_token(m, (const char[]){(char)byte_bpe_byte(i)}, 1, i, name, st));
    for (int32_t k = 0; k < results->n; k++) {
        size_t n;
        const char *s = rd_strings_at(results, k, &n);
        RD_TRY(byte_bpe_token(m, s, n, 256 + k, name, st));
    }
    RD_TRY(byte_bpe_special(m, end_of_text, sizeof end_of_text - 1, 256 + results->n, name, st));
done:
    return st->code;
}

/* Reads vocab.json. What no merge makes is a special. */
static rd_code vocab_of_json(const char *path, const rd_strings *results, byte_bpe *m,
                             rd_status *st)
{
    char *text = NULL;
    size_t n;
    json_error_t e;
    json_t *root = NULL;
    const json_t *id;
    const char *shown;
    rd_strbuf b = {0};
    RD_TRY(rd_file_read(path, RD_EDATA, &text, &n, st));
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) RD_TRY(rd_fail(st, RD_EDATA, "%s:%d:%d: %s", path, e.line, e.column, e.text));
    json_object_foreach(root, shown, id)
    {
        if (!json_is_integer(id))
            RD_TRY(rd_fail(st, RD_EDATA, "'%s': the id of '%.60s' is no integer", path, shown));
        rd_strbuf_reset(&b);
        byte_bpe_put_bytes(&b, shown, strlen(shown));
        if (b.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory for '%s'", path));
        if (b.n == 1 || rd_strings_find(results, rd_strbuf_str(&b), b.n) >= 0)
            RD_TRY(byte_bpe_entry(m, shown, strlen(shown), json_integer_value(id), path, st));
        else
            RD_TRY(byte_bpe_special(m, shown, strlen(shown), json_integer_value(id), path, st));
    }
done:
    json_decref(root);
    free(text);
    rd_strbuf_release(&b);
    return st->code;
}

/* Writes the path of the vocabulary beside merges.txt or vocab.bpe. *there: whether it exists. */
static rd_code vocab_beside(const char *path, char out[4096], bool *there, rd_status *st)
{
    static const char *const names[][2] = {{"merges.txt", "vocab.json"},
                                           {"vocab.bpe", "encoder.json"}};
    const size_t n = strlen(path);
    *there = false;
    for (int i = 0; i < 2 && !*there; i++) {
        const size_t end = strlen(names[i][0]);
        if (n < end || n >= 4000 || strcmp(path + n - end, names[i][0]) != 0) continue;
        (void)snprintf(out, 4096, "%.*s%s", (int)(n - end), path, names[i][1]);
        RD_TRY(rd_path_there(out, there, st));
    }
done:
    return st->code;
}

static rd_code read_merges(const merges_reader *r, byte_bpe *m, rd_status *st)
{
    char vocab[4096];
    bool there;
    rd_strings results = {0};
    RD_TRY(vocab_beside(r->name, vocab, &there, st));
    RD_TRY(each_merge(r, note_result, &results, st));
    RD_TRY(there ? vocab_of_json(vocab, &results, m, st)
                 : vocab_of_merges(&results, r->name, m, st));
    RD_TRY(each_merge(r, add_merge, m, st));
    RD_TRY(rd_splitter_add(m->split, rd_splitter_gpt2, strlen(rd_splitter_gpt2), r->name, st));
done:
    rd_strings_release(&results);
    return st->code;
}

/* ---- .tiktoken ---- */

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *d = c ? strchr(digits, c) : NULL;
    return d ? (int)(d - digits) : -1;
}

/* Appends the bytes of base64 text, with its padding. Returns false if it is none. */
static bool put_base64(rd_strbuf *out, const char *s, size_t n)
{
    if (n == 0 || n % 4 != 0) return false;
    for (size_t i = 0; i < n; i += 4) {
        const int pad = i + 4 < n || s[i + 3] != '=' ? 0 : s[i + 2] == '=' ? 2 : 1;
        uint32_t x = 0;
        for (int k = 0; k < 4; k++) {
            const int d = k < 4 - pad ? base64_digit(s[i + (size_t)k]) : 0;
            if (d < 0) return false;
            x = x << 6 | (uint32_t)d;
        }
        const char bytes[3] = {(char)(x >> 16), (char)(x >> 8), (char)x};
        rd_strbuf_add(out, bytes, (size_t)(3 - pad));
    }
    return true;
}

/* Reads "base64 SP rank". *rank is -1 if the line is not of this form. */
static void read_rank(const char *line, size_t n, rd_strbuf *bytes, int64_t *rank)
{
    const char *space = memchr(line, ' ', n);
    *rank = -1;
    rd_strbuf_reset(bytes);
    if (!space || space + 1 == line + n || line + n - space > 9 ||
        !put_base64(bytes, line, (size_t)(space - line)))
        return;
    int64_t r = 0;
    for (const char *d = space + 1; d < line + n; d++) {
        if (*d < '0' || *d > '9') return;
        r = r * 10 + (*d - '0');
    }
    *rank = r;
}

/* Adds every way in which two tokens make a third one, in the order of the third one's rank. */
static rd_code merges_of_ranks(byte_bpe *m, const char *name, rd_status *st)
{
    rd_strbuf whole = {0};
    m->by_id = m->ignore_merges = true;
    for (int32_t t = 0; t < m->tokens.n; t++) {
        size_t n;
        const char *s = rd_strings_at(&m->tokens, t, &n);
        if (n < 2) continue;
        rd_strbuf_reset(&whole); /* the set may move */
        rd_strbuf_add(&whole, s, n);
        if (whole.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory for '%s'", name));
        for (size_t k = 1; k < n; k++)
            if (rd_strings_find(&m->tokens, whole.s, k) >= 0 &&
                rd_strings_find(&m->tokens, whole.s + k, n - k) >= 0)
                RD_TRY(byte_bpe_merge(m, whole.s, k, whole.s + k, n - k, name, st));
    }
done:
    rd_strbuf_release(&whole);
    return st->code;
}

static rd_code read_tiktoken(const char *text, size_t n_text, const char *name, byte_bpe *m,
                             rd_status *st)
{
    rd_strbuf bytes = {0};
    size_t at = 0, n;
    int64_t number = 0, last = -1, rank;
    for (const char *line; (line = next_line(text, n_text, &at, &n));) {
        number++;
        if (n == 0) continue;
        read_rank(line, n, &bytes, &rank);
        if (bytes.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory for '%s'", name));
        if (rank <= last)
            RD_TRY(rd_fail(st, RD_EDATA, "%s:%" PRId64 ": %s", name, number,
                           rank < 0 ? "not a token in base64, a space and its rank"
                                    : "the ranks do not ascend"));
        RD_TRY(byte_bpe_token(m, rd_strbuf_str(&bytes), bytes.n, rank, name, st));
        last = rank;
    }
    if (m->tokens.n > GPT2_MOST && m->tokens.n != CL100K)
        RD_TRY(rd_fail(st, RD_EDATA,
                       "'%s' has %" PRId32
                       " tokens: a .tiktoken file does not name its pattern, which is known for up "
                       "to %d tokens and for %d; use the tokenizer.json of this tokenizer",
                       name, m->tokens.n, GPT2_MOST, CL100K));
    RD_TRY(merges_of_ranks(m, name, st));
    const bool gpt2 = m->tokens.n <= GPT2_MOST;
    const char *pattern = gpt2 ? rd_splitter_gpt2 : rd_splitter_cl100k;
    RD_TRY(rd_splitter_add(m->split, pattern, strlen(pattern), name, st));
    /* cl100k leaves one id free. */
    RD_TRY(byte_bpe_special(m, end_of_text, sizeof end_of_text - 1, last + (gpt2 ? 1 : 2), name,
                            st));
done:
    rd_strbuf_release(&bytes);
    return st->code;
}

/* ---- which file is it? ---- */

static rd_code read_file(const char *path, byte_bpe *m, rd_status *st)
{
    char *text = NULL;
    size_t n = 0, first = 0, at = 0, length = 0;
    int64_t rank = -1;
    rd_strbuf bytes = {0};
    RD_TRY(rd_file_read(path, RD_EDATA, &text, &n, st));
    while (first < n && strchr(" \t\r\n", text[first]) && text[first]) first++;
    if (first == n) RD_TRY(rd_fail(st, RD_EDATA, "'%s' is empty", path));
    if (text[first] == '{') {
        RD_TRY(byte_bpe_read_json(text, n, path, m, st));
        goto done;
    }
    RD_TRY(rd_splitter_new(&m->split, st));
    const char *line = next_line(text, n, &at, &length);
    read_rank(line, length, &bytes, &rank);
    if (rank >= 0)
        RD_TRY(read_tiktoken(text, n, path, m, st));
    else
        RD_TRY(read_merges(&(merges_reader){text, path, n}, m, st));
done:
    free(text);
    rd_strbuf_release(&bytes);
    return st->code;
}

rd_code byte_bpe_read(const char *path, byte_bpe *m, rd_status *st)
{
    static const char *const names[] = {"tokenizer.json", "merges.txt", "vocab.bpe"};
    char inside[4096];
    struct stat s;
    bool there = false;
    if (rd_path_stat(path, &s, RD_MAYBE) != 0 || !S_ISDIR(s.st_mode)) return read_file(path, m, st);
    for (size_t i = 0; i < sizeof names / sizeof *names && !there; i++) {
        (void)snprintf(inside, sizeof inside, "%.4000s/%s", path, names[i]);
        RD_TRY(rd_path_there(inside, &there, st));
    }
    if (!there)
        RD_TRY(rd_fail(st, RD_EDATA, "'%s' has no tokenizer.json, merges.txt or vocab.bpe", path));
    return read_file(inside, m, st);
done:
    return st->code;
}
