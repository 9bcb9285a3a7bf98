/* meta_pkl.c -- reads a meta.pkl; see meta_pkl.h.
 *
 * A pickle is a program for a machine with a stack, and Python's reader runs what it names: a file
 * can start any program. This reader knows the few operations that make dicts, strings and whole
 * numbers, and refuses all others. There is no library for C. nanoGPT writes
 *   {"vocab_size": n, "itos": {id: character}, "stoi": {character: id}}
 * in protocol 4 (Python 3.8 to 3.13) or 5. All three must say the same. */
#include "meta_pkl.h"
#include "rd/printable.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CODES_MOST = 0x110000,
    FILE_MOST = 64 << 20,
    STACK_MOST = 1 << 16, /* Python's writer puts 1000 pairs into a dict at once */
    MEMO_MOST = 1 << 22,
    DICTS_MOST = 64,
    PAIRS_MOST = 2 * CODES_MOST + 1024
};

typedef enum pkl_kind { PKL_INT, PKL_STR, PKL_DICT, PKL_MARK } pkl_kind;

typedef struct pkl_value {
    pkl_kind kind;
    uint32_t n;    /* of a string: bytes */
    int64_t value; /* the number; of a string its offset in the file, of a dict its index */
} pkl_value;

typedef struct pkl_pair {
    int32_t dict;
    pkl_value key, value;
} pkl_pair;

/* A list that grows. */
typedef struct pkl_list {
    void *at; /* owned */
    size_t n, cap;
} pkl_list;

typedef struct pkl_reader {
    const char *name;
    const unsigned char *at; /* [n] */
    size_t n, i;
    size_t op; /* offset of the operation that runs */
    pkl_list stack, memo, pairs;
    int32_t n_dicts;
} pkl_reader;

bool meta_pkl_is(const char *bytes, size_t n)
{
    return n >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

static rd_code pkl_bad(const pkl_reader *r, const char *what, rd_status *st)
{
    return rd_fail(st, RD_EDATA, "'%s': at byte %zu: %s", r->name, r->op, what);
}

/* Makes room for one more element of `each` bytes, and at index k at least. */
static rd_code pkl_room(const pkl_reader *r, pkl_list *l, size_t k, size_t each, size_t most,
                        rd_status *st)
{
    if (k < l->cap) return RD_OK;
    if (k >= most) return pkl_bad(r, "too many values for a list of characters", st);
    const size_t cap = 2 * k + 256;
    char *more = realloc(l->at, cap * each);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for '%s'", r->name);
    memset(more + l->cap * each, 0, (cap - l->cap) * each);
    l->at = more;
    l->cap = cap;
    return RD_OK;
}

static pkl_value *pkl_stack(const pkl_reader *r)
{
    return r->stack.at;
}

static rd_code pkl_push(pkl_reader *r, pkl_value v, rd_status *st)
{
    RD_TRY(pkl_room(r, &r->stack, r->stack.n, sizeof v, STACK_MOST, st));
    pkl_stack(r)[r->stack.n++] = v;
done:
    return st->code;
}

/* Reads a number of `bytes` bytes, little-endian. */
static rd_code pkl_number(pkl_reader *r, size_t bytes, uint64_t *out, rd_status *st)
{
    *out = 0;
    if (bytes > r->n - r->i) return pkl_bad(r, "the file ends within a value", st);
    for (size_t k = 0; k < bytes; k++) *out |= (uint64_t)r->at[r->i++] << 8 * k;
    return RD_OK;
}

static rd_code pkl_push_int(pkl_reader *r, int64_t value, rd_status *st)
{
    return pkl_push(r, (pkl_value){.kind = PKL_INT, .value = value}, st);
}

/* Pushes a string whose length has `bytes` bytes. */
static rd_code pkl_push_string(pkl_reader *r, size_t bytes, rd_status *st)
{
    uint64_t n;
    RD_TRY(pkl_number(r, bytes, &n, st));
    if (n > r->n - r->i) return pkl_bad(r, "a string is longer than the file", st);
    if (!rd_utf8_valid((const char *)r->at + r->i, (size_t)n))
        return pkl_bad(r, "a string is not UTF-8", st);
    RD_TRY(pkl_push(r, (pkl_value){PKL_STR, (uint32_t)n, (int64_t)r->i}, st));
    r->i += (size_t)n;
done:
    return st->code;
}

/* Keeps the value on top as number k of the memo. */
static rd_code pkl_memoize(pkl_reader *r, uint64_t k, rd_status *st)
{
    if (r->stack.n == 0 || pkl_stack(r)[r->stack.n - 1].kind == PKL_MARK)
        return pkl_bad(r, "no value to remember", st);
    if (k >= MEMO_MOST) return pkl_bad(r, "too many values for a list of characters", st);
    RD_TRY(pkl_room(r, &r->memo, (size_t)k, sizeof(pkl_value), MEMO_MOST, st));
    ((pkl_value *)r->memo.at)[k] = pkl_stack(r)[r->stack.n - 1];
    for (; r->memo.n <= k; r->memo.n++) /* those between were never set */
        if (r->memo.n < k) ((pkl_value *)r->memo.at)[r->memo.n].kind = PKL_MARK;
done:
    return st->code;
}

static rd_code pkl_recall(pkl_reader *r, uint64_t k, rd_status *st)
{
    if (k >= r->memo.n || ((const pkl_value *)r->memo.at)[k].kind == PKL_MARK)
        return pkl_bad(r, "a value that was never remembered", st);
    return pkl_push(r, ((const pkl_value *)r->memo.at)[k], st);
}

/* Puts the values from index `first` on into the dict below them, as pairs. `drop`: number of
 * values to drop from the stack, the mark included. */
static rd_code pkl_set_items(pkl_reader *r, size_t first, size_t drop, rd_status *st)
{
    const pkl_value *s = pkl_stack(r);
    const size_t n = r->stack.n;
    if (drop >= n || (n - first) % 2 != 0 || s[n - drop - 1].kind != PKL_DICT)
        return pkl_bad(r, "no dict for the values", st);
    for (size_t i = first; i < n; i += 2) {
        if (s[i].kind != PKL_INT && s[i].kind != PKL_STR)
            return pkl_bad(r, "a key is neither a string nor a whole number", st);
        if (s[i + 1].kind == PKL_MARK) return pkl_bad(r, "a mark in the place of a value", st);
        RD_TRY(pkl_room(r, &r->pairs, r->pairs.n, sizeof(pkl_pair), PAIRS_MOST, st));
        ((pkl_pair *)r->pairs.at)[r->pairs.n++] = (pkl_pair){(int32_t)s[n - drop - 1].value, s[i],
                                                             s[i + 1]};
    }
    r->stack.n -= drop;
done:
    return st->code;
}

/* Refuses an operation by its name, where it is one that would run code. */
static rd_code pkl_refused(const pkl_reader *r, unsigned char op, rd_status *st)
{
    static const struct {
        unsigned char op;
        char name[16];
    } runs[] = {{'c', "GLOBAL"}, {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},     {'i', "INST"},
                {'o', "OBJ"},    {0x81, "NEWOBJ"},       {0x92, "NEWOBJ_EX"}, {'b', "BUILD"},
                {'P', "PERSID"}, {'Q', "BINPERSID"},     {0x82, "EXT1"},      {0x83, "EXT2"},
                {0x84, "EXT4"},  {0x97, "NEXT_BUFFER"}};
    char what[120];
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++)
        if (runs[k].op == op) {
            (void)snprintf(what, sizeof what,
                           "the file asks to run code of Python (%s), which is never done",
                           runs[k].name);
            return pkl_bad(r, what, st);
        }
    (void)snprintf(what, sizeof what,
                   "operation 0x%02x; only dicts, strings and whole numbers of protocol 2 to 5 are "
                   "read",
                   op);
    return pkl_bad(r, what, st);
}

/* Puts all values above the last mark into the dict below it. */
static rd_code pkl_set_marked(pkl_reader *r, rd_status *st)
{
    size_t k = r->stack.n;
    while (k > 0 && pkl_stack(r)[k - 1].kind != PKL_MARK) k--;
    if (k == 0) return pkl_bad(r, "values without a mark", st);
    return pkl_set_items(r, k, r->stack.n - k + 1, st);
}

/* Runs an operation. */
static rd_code pkl_operation(pkl_reader *r, unsigned char op, rd_status *st)
{
    uint64_t v = 0;
    switch (op) {
    case 0x95: /* FRAME */
        if (pkl_number(r, 8, &v, st) != RD_OK) return st->code;
        return v <= r->n - r->i ? RD_OK : pkl_bad(r, "a frame is longer than the file", st);
    case '}': /* EMPTY_DICT */
        if (r->n_dicts >= DICTS_MOST) return pkl_bad(r, "too many dicts", st);
        return pkl_push(r, (pkl_value){.kind = PKL_DICT, .value = r->n_dicts++}, st);
    case '(': /* MARK */
        return pkl_push(r, (pkl_value){.kind = PKL_MARK}, st);
    case 0x8c: /* SHORT_BINUNICODE */
        return pkl_push_string(r, 1, st);
    case 'X': /* BINUNICODE */
        return pkl_push_string(r, 4, st);
    case 'K': /* BININT1 */
        if (pkl_number(r, 1, &v, st) != RD_OK) return st->code;
        return pkl_push_int(r, (int64_t)v, st);
    case 'M': /* BININT2 */
        if (pkl_number(r, 2, &v, st) != RD_OK) return st->code;
        return pkl_push_int(r, (int64_t)v, st);
    case 'J': /* BININT */
        if (pkl_number(r, 4, &v, st) != RD_OK) return st->code;
        return pkl_push_int(r, (int32_t)(uint32_t)v, st);
    case 0x94: /* MEMOIZE */
        return pkl_memoize(r, r->memo.n, st);
    case 'q': /* BINPUT */
    case 'r': /* LONG_BINPUT */
        if (pkl_number(r, op == 'q' ? 1 : 4, &v, st) != RD_OK) return st->code;
        return pkl_memoize(r, v, st);
    case 'h': /* BINGET */
    case 'j': /* LONG_BINGET */
        if (pkl_number(r, op == 'h' ? 1 : 4, &v, st) != RD_OK) return st->code;
        return pkl_recall(r, v, st);
    case 's': /* SETITEM */
        if (r->stack.n < 3) return pkl_bad(r, "no dict for the values", st);
        return pkl_set_items(r, r->stack.n - 2, 2, st);
    case 'u': /* SETITEMS */
        return pkl_set_marked(r, st);
    default:
        return pkl_refused(r, op, st);
    }
}

/* Runs the whole file. *out: the dict that it makes. */
static rd_code pkl_run(pkl_reader *r, int32_t *out, rd_status *st)
{
    r->i = 2; /* PROTO and its version */
    for (;;) {
        r->op = r->i;
        if (r->i == r->n) return pkl_bad(r, "the file ends before its STOP", st);
        const unsigned char op = r->at[r->i++];
        if (op == '.') break;
        RD_TRY(pkl_operation(r, op, st));
    }
    if (r->i != r->n) return pkl_bad(r, "bytes behind the STOP", st);
    if (r->stack.n != 1 || pkl_stack(r)->kind != PKL_DICT)
        return pkl_bad(r, "the file is no dict", st);
    *out = (int32_t)pkl_stack(r)->value;
done:
    return st->code;
}

/* ---- what the dicts mean ---- */

static bool pkl_is(const pkl_reader *r, const pkl_value *v, const char *text)
{
    return v->kind == PKL_STR && v->n == strlen(text) && memcmp(r->at + v->value, text, v->n) == 0;
}

/* Finds the value of a key of the file's dict. */
static rd_code pkl_find(const pkl_reader *r, int32_t dict, const char *key, pkl_kind kind,
                        int64_t *out, rd_status *st)
{
    const pkl_pair *p = r->pairs.at;
    int found = 0;
    bool fits = true;
    for (size_t i = 0; i < r->pairs.n; i++) {
        if (p[i].dict != dict || !pkl_is(r, &p[i].key, key)) continue;
        found++;
        fits &= p[i].value.kind == kind;
        *out = p[i].value.value;
    }
    if (found == 1 && fits) return RD_OK;
    return rd_fail(st, RD_EDATA,
                   "'%s': '%s' %s; a meta.pkl of nanoGPT has 'vocab_size', 'itos' and 'stoi'",
                   r->name, key,
                   found == 0        ? "is missing"
                   : found > 1       ? "is there twice"
                   : kind == PKL_INT ? "is no whole number"
                                     : "is no dict");
}

/* Returns the code point of a string of one character, -1: it is none. */
static int32_t pkl_character(const pkl_reader *r, const pkl_value *v)
{
    const unsigned char *u = r->at + v->value;
    if (v->kind != PKL_STR || v->n == 0 || v->n > 4) return -1;
    if (rd_utf8_bytes((const char *)u, v->n) != v->n) return -1;
    int32_t c = v->n == 1 ? u[0] : u[0] & (v->n == 2 ? 0x1F : v->n == 3 ? 0x0F : 0x07);
    for (uint32_t k = 1; k < v->n; k++) c = c << 6 | (u[k] & 0x3F);
    return c;
}

static rd_code pkl_meaning(const pkl_reader *r, int32_t top, int32_t **code, int32_t *n_codes,
                           rd_status *st)
{
    const pkl_pair *p = r->pairs.at;
    int64_t size = 0, itos = 0, stoi = 0, n[2] = {0, 0};
    bool *seen = NULL; /* [CODES_MOST] by code point */
    RD_TRY(pkl_find(r, top, "vocab_size", PKL_INT, &size, st));
    RD_TRY(pkl_find(r, top, "itos", PKL_DICT, &itos, st));
    RD_TRY(pkl_find(r, top, "stoi", PKL_DICT, &stoi, st));
    if (size < 1 || size > CODES_MOST)
        return rd_fail(st, RD_EDATA, "'%s': 'vocab_size' is %" PRId64 ", not 1 to %d", r->name,
                       size, CODES_MOST);
    *code = malloc((size_t)size * sizeof **code);
    seen = calloc(CODES_MOST, sizeof *seen);
    if (!*code || !seen) RD_TRY(rd_fail(st, RD_EENV, "out of memory for '%s'", r->name));
    memset(*code, 0xFF, (size_t)size * sizeof **code);
    for (size_t i = 0; i < r->pairs.n; i++) {
        if (p[i].dict != itos) continue;
        const int64_t k = p[i].key.value;
        const int32_t c = pkl_character(r, &p[i].value);
        if (p[i].key.kind != PKL_INT || k < 0 || k >= size || (*code)[k] >= 0)
            RD_TRY(rd_fail(st, RD_EDATA,
                           "'%s': the keys of 'itos' are not the ids 0 to %" PRId64 ", each once",
                           r->name, size - 1));
        if (c < 0)
            RD_TRY(rd_fail(st, RD_EDATA,
                           "'%s': id %" PRId64 " is no single character; only data of characters "
                           "have a tokenizer here",
                           r->name, k));
        (*code)[k] = c;
        n[0]++;
    }
    for (size_t i = 0; i < r->pairs.n; i++) {
        if (p[i].dict != stoi) continue;
        const int32_t c = pkl_character(r, &p[i].key);
        const int64_t k = p[i].value.kind == PKL_INT ? p[i].value.value : -1;
        if (c < 0 || k < 0 || k >= size || (*code)[k] != c || seen[c])
            RD_TRY(rd_fail(st, RD_EDATA, "'%s': 'stoi' is not the reverse of 'itos'", r->name));
        seen[c] = true;
        n[1]++;
    }
    if (n[0] != size || n[1] != size)
        RD_TRY(rd_fail(st, RD_EDATA,
                       "'%s': 'vocab_size' is %" PRId64 ", but 'itos' has %" PRId64
                       " characters and 'stoi' %" PRId64,
                       r->name, size, n[0], n[1]));
    *n_codes = (int32_t)size;
done:
    free(seen);
    return st->code;
}

rd_code meta_pkl_read(const char *name, const char *bytes, size_t n, int32_t **code,
                      int32_t *n_codes, rd_status *st)
{
    pkl_reader r = {.name = name, .at = (const unsigned char *)bytes, .n = n};
    int32_t top = 0;
    *code = NULL;
    *n_codes = 0;
    if (n > FILE_MOST)
        RD_TRY(rd_fail(st, RD_EDATA, "'%s' has %zu bytes; a meta.pkl has at most %d", name, n,
                       FILE_MOST));
    RD_TRY(pkl_run(&r, &top, st));
    RD_TRY(pkl_meaning(&r, top, code, n_codes, st));
done:
    free(r.stack.at);
    free(r.memo.at);
    free(r.pairs.at);
    if (st->code != RD_OK) {
        free(*code);
        *code = NULL;
    }
    return st->code;
}
