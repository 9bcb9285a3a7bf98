/* npy.c -- the header of a NumPy array file (NEP 1):
 *     93 'NUMPY' | major minor | header length | a Python dictionary | data
 * The header length is little endian: u16 in version 1.0, u32 in 2.0 and 3.0. The dictionary has
 * exactly the keys descr, fortran_order and shape, in any order and spacing. This file writes it as
 * NumPy does, so equal arrays give equal bytes. */
#include "npz_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    char descr[8];
    size_t item;
} types[] = {
    {"<f4", 4}, {"<f8", 8}, {"<f2", 2}, {"<i4", 4}, {"<i8", 8}, {"|u1", 1},
    {"|i1", 1}, {"|b1", 1}, {"<i2", 2}, {"<u2", 2}, {"<u4", 4}, {"<u8", 8},
};

size_t rd_npy_item(const char *descr)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].descr, descr) == 0) return types[i].item;
    return 0;
}

bool rd_npy_bytes(const rd_array *a, size_t *out)
{
    size_t n = rd_npy_item(a->descr);
    bool fits = n > 0 && a->n_dim >= 0 && a->n_dim <= RD_NPY_MAX_DIM;
    bool empty = false; /* a huge dimension beside one of length 0 is not an overflow */
    for (int i = 0; fits && i < a->n_dim; i++) {
        fits = a->dim[i] >= 0;
        empty = empty || a->dim[i] == 0;
    }
    for (int i = 0; fits && !empty && i < a->n_dim; i++)
        fits = !__builtin_mul_overflow(n, (size_t)a->dim[i], &n);
    *out = empty ? 0 : n;
    return fits && n <= INT64_MAX;
}

size_t rd_npy_header(const rd_array *a, char out[RD_NPY_HEADER_MAX])
{
    size_t n = 10;
    n += (size_t)snprintf(out + n, RD_NPY_HEADER_MAX - n,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (", a->descr);
    for (int i = 0; i < a->n_dim; i++)
        n += (size_t)snprintf(out + n, RD_NPY_HEADER_MAX - n, "%s%" PRId64, i ? ", " : "",
                              a->dim[i]);
    n += (size_t)snprintf(out + n, RD_NPY_HEADER_MAX - n, "%s), }", a->n_dim == 1 ? "," : "");
    /* NumPy leaves space for a first dimension of 20 digits, to rewrite it in place, and then pads
     * to 64. This code does it in the same way, byte for byte. */
    if (a->n_dim > 0) {
        char first[32];
        for (int pad = 21 - snprintf(first, sizeof first, "%" PRId64, a->dim[0]); pad > 0; pad--)
            out[n++] = ' ';
    }
    while ((n + 1) % 64 != 0) out[n++] = ' ';
    out[n++] = '\n';
    memcpy(out, "\x93NUMPY\x01", 8); /* with the '\0' of the literal: version 1.0 */
    out[8] = (char)((n - 10) & 0xFF);
    out[9] = (char)((n - 10) >> 8);
    return n;
}

size_t rd_npy_prefix(const unsigned char *p)
{
    if (memcmp(p, "\x93NUMPY", 6) != 0) return 0;
    return p[6] == 1 ? 10 : p[6] == 2 || p[6] == 3 ? 12 : 0;
}

/* A cursor over the dictionary's text. */
typedef struct npy_text {
    const char *p, *end;
} npy_text;

static void npy_skip_space(npy_text *t)
{
    while (t->p < t->end && strchr(" \t\r\n", *t->p) && *t->p) t->p++;
}

/* The functions below skip spaces and then read what their name says. They return false if
 * something else follows. */
static bool npy_read_char(npy_text *t, char c)
{
    npy_skip_space(t);
    if (t->p >= t->end || *t->p != c) return false;
    t->p++;
    return true;
}

/* Reads a quoted string without escapes, of at most cap - 1 bytes. */
static bool npy_read_string(npy_text *t, char *out, size_t cap)
{
    char quote;
    if (npy_read_char(t, '\''))
        quote = '\'';
    else if (npy_read_char(t, '"'))
        quote = '"';
    else
        return false;
    size_t n = 0;
    while (t->p < t->end && *t->p != quote && *t->p != '\\' && *t->p && n + 1 < cap)
        out[n++] = *t->p++;
    out[n] = '\0';
    return t->p < t->end && *t->p++ == quote;
}

static bool npy_read_word(npy_text *t, const char *w)
{
    const size_t n = strlen(w);
    npy_skip_space(t);
    if ((size_t)(t->end - t->p) < n || memcmp(t->p, w, n) != 0) return false;
    t->p += n;
    return true;
}

static bool npy_read_int(npy_text *t, int64_t *out)
{
    npy_skip_space(t);
    int64_t v = 0;
    int digits = 0;
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++, digits++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *t->p - '0', &v))
            return false;
    if (t->p < t->end && *t->p == 'L') t->p++; /* Python 2 wrote 3L */
    *out = v;
    return digits > 0;
}

static rd_code npy_read_shape(npy_text *t, rd_array *a, rd_status *st)
{
    if (!npy_read_char(t, '(')) return rd_fail(st, RD_ECKPT, "the array's shape is not a tuple");
    a->n_dim = 0;
    while (!npy_read_char(t, ')')) {
        if (a->n_dim == RD_NPY_MAX_DIM)
            return rd_fail(st, RD_ECKPT, "the array has more than %d dimensions", RD_NPY_MAX_DIM);
        if (!npy_read_int(t, &a->dim[a->n_dim]))
            return rd_fail(st, RD_ECKPT, "the array's shape is not a tuple of counts");
        a->n_dim++;
        if (!npy_read_char(t, ',')) {
            if (!npy_read_char(t, ')'))
                return rd_fail(st, RD_ECKPT, "the array's shape has no closing parenthesis");
            break;
        }
    }
    return st->code;
}

rd_code rd_npy_parse(const char *s, size_t n, rd_array *a, rd_status *st)
{
    npy_text t = {s, s + n};
    bool has_descr = false, has_order = false, has_shape = false, fortran = false, closed = false;
    if (!npy_read_char(&t, '{'))
        return rd_fail(st, RD_ECKPT, "the array's header is not a dictionary");
    while (!(closed = npy_read_char(&t, '}'))) {
        char key[32];
        if (!npy_read_string(&t, key, sizeof key) || !npy_read_char(&t, ':'))
            return rd_fail(st, RD_ECKPT, "the array's header is not a dictionary of known form");
        if (strcmp(key, "descr") == 0 && !has_descr) {
            if (!npy_read_string(&t, a->descr, sizeof a->descr))
                return rd_fail(st, RD_ECKPT,
                               "the array's type is not a plain one (such as '<f4', '<f8', '<i4', "
                               "'<i8', '|u1')");
            has_descr = true;
        } else if (strcmp(key, "fortran_order") == 0 && !has_order) {
            fortran = npy_read_word(&t, "True");
            if (!fortran && !npy_read_word(&t, "False"))
                return rd_fail(st, RD_ECKPT,
                               "the array's 'fortran_order' is neither True nor False");
            has_order = true;
        } else if (strcmp(key, "shape") == 0 && !has_shape) {
            if (npy_read_shape(&t, a, st) != RD_OK) return st->code;
            has_shape = true;
        } else {
            return rd_fail(st, RD_ECKPT, "the array's header has an unknown or repeated key '%s'",
                           key);
        }
        if (!npy_read_char(&t, ',')) {
            closed = npy_read_char(&t, '}');
            break;
        }
    }
    npy_skip_space(&t);
    if (!closed || t.p != t.end)
        return rd_fail(st, RD_ECKPT, "the array's header does not end where its length says");
    if (!has_descr || !has_order || !has_shape)
        return rd_fail(st, RD_ECKPT,
                       "the array's header lacks one of 'descr', 'fortran_order', 'shape'");
    if (rd_npy_item(a->descr) == 0)
        return rd_fail(st, RD_ECKPT,
                       "the array's type '%s' cannot be read (little-endian floats and integers "
                       "can); convert it with numpy's astype",
                       a->descr);
    if (!rd_npy_bytes(a, &a->bytes))
        return rd_fail(st, RD_ECKPT, "the array's shape has more elements than memory can hold");
    int long_dims = 0;
    for (int i = 0; i < a->n_dim; i++) long_dims += a->dim[i] > 1;
    if (fortran && long_dims > 1)
        return rd_fail(st, RD_ECKPT,
                       "the array is in Fortran order; save numpy.ascontiguousarray of it");
    return st->code;
}
