/* safetensors.c -- safetensors files; see safetensors.h. The reader trusts nothing: every number of
 * the header is checked before it is used, and the arrays must fill the data without gaps. */
#include "rd/safetensors.h"
#include "npz_impl.h"
#include "rd/input.h"
#include "rd/strbuf.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The reference reader refuses longer headers. */
enum { HEADER_MOST = 100000000, PREFIX = 8 };
static const char metadata_key[] = "__metadata__";

/* The types, as the header and as rd_array name them. */
static const struct {
    char name[8], descr[8];
    size_t bytes;
} types[] = {
    {"F32", "<f4", 4}, {"F16", "<f2", 2}, {"BF16", "bf16", 2}, {"F64", "<f8", 8}, {"I64", "<i8", 8},
    {"I32", "<i4", 4}, {"I16", "<i2", 2}, {"I8", "|i1", 1},    {"U8", "|u1", 1},  {"U16", "<u2", 2},
    {"U32", "<u4", 4}, {"U64", "<u8", 8}, {"BOOL", "|b1", 1},
};
enum { N_TYPES = sizeof types / sizeof *types };

static int type_of_descr(const char *descr)
{
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].descr, descr) == 0) return i;
    return -1;
}

/* Computes the bytes of an array. Returns false if a dimension is negative or the product too
 * large. */
static bool tensor_bytes(const rd_array *a, size_t item, size_t *out)
{
    size_t n = item;
    bool none = false;
    for (int d = 0; d < a->n_dim; d++) {
        if (a->dim[d] < 0) return false;
        none |= a->dim[d] == 0;
        if (!none && __builtin_mul_overflow(n, (size_t)a->dim[d], &n)) return false;
    }
    *out = none ? 0 : n;
    return true;
}

/* ---- writing ---- */

/* Makes the header's JSON, padded with blanks. The caller frees it. */
static rd_code header_text(const rd_array *a, int n, const json_t *metadata, char **out,
                           size_t *bytes, rd_status *st)
{
    json_t *o = json_object();
    size_t at = 0;
    *out = NULL;
    if (o && metadata && json_object_size(metadata) > 0)
        (void)json_object_set(o, metadata_key, (json_t *)(uintptr_t)metadata);
    for (int i = 0; i < n && o; i++) {
        const int type = type_of_descr(a[i].descr);
        size_t size = 0;
        json_t *dims = json_array();
        if (type < 0 || !tensor_bytes(&a[i], types[type].bytes, &size) || size != a[i].bytes ||
            !a[i].name[0] || strcmp(a[i].name, metadata_key) == 0 ||
            json_object_get(o, a[i].name)) {
            rd_fail(st, RD_EBUG,
                    "array '%.199s': its type, shape and %zu bytes do not match, or "
                    "its name is there twice",
                    a[i].name, a[i].bytes);
            json_decref(dims);
            break;
        }
        for (int d = 0; d < a[i].n_dim; d++)
            (void)json_array_append_new(dims, json_integer((json_int_t)a[i].dim[d]));
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[type].name, "shape", dims,
                                  "data_offsets", (json_int_t)at, (json_int_t)(at + size));
        if (json_object_set_new(o, a[i].name, entry) != 0)
            rd_fail(st, RD_EBUG, "array '%.199s': its name is not UTF-8", a[i].name);
        at += size;
    }
    char *text = st->code == RD_OK && o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (st->code == RD_OK && !text) rd_fail(st, RD_EENV, "out of memory for a header");
    if (st->code != RD_OK) return st->code;
    const size_t len = strlen(text), pad = (8 - len % 8) % 8;
    char *longer = realloc(text, len + pad + 1);
    if (!longer) {
        free(text);
        return rd_fail(st, RD_EENV, "out of memory for a header");
    }
    memset(longer + len, ' ', pad);
    *out = longer;
    *bytes = len + pad;
    return RD_OK;
}

/* Writes the data of an array, part by part. */
static rd_code tensors_write(rd_tmpfile *f, const void *p, size_t n, rd_status *st)
{
    for (size_t at = 0; at < n;) {
        const size_t k = n - at < RD_ARRAY_PART ? n - at : RD_ARRAY_PART;
        RD_TRY(rd_tmpfile_write(f, (const char *)p + at, k, st));
        rd_arrays_add(k);
        at += k;
    }
done:
    return st->code;
}

rd_code rd_safetensors_write(const char *path, const rd_array *a, int n, const json_t *metadata,
                             rd_status *st)
{
    rd_tmpfile f = {0};
    char *header = NULL;
    size_t bytes = 0;
    double all = 0.0;
    RD_TRY(header_text(a, n, metadata, &header, &bytes, st));
    const uint64_t prefix = bytes; /* little endian, like the hosts of this program */
    RD_TRY(rd_tmpfile_open(&f, path, st));
    RD_TRY(rd_tmpfile_write(&f, &prefix, sizeof prefix, st));
    RD_TRY(rd_tmpfile_write(&f, header, bytes, st));
    for (int i = 0; i < n; i++) all += (double)a[i].bytes;
    rd_arrays_begin(all);
    for (int i = 0; i < n; i++) RD_TRY(tensors_write(&f, a[i].data, a[i].bytes, st));
    RD_TRY(rd_tmpfile_commit(&f, st));
done:
    rd_tmpfile_release(&f);
    free(header);
    return st->code;
}

/* ---- reading ---- */

typedef struct tensor {
    rd_array a;
    uint64_t begin; /* offset in the data */
} tensor;

struct rd_safetensors {
    rd_input *in;            /* owned; NULL: in memory */
    const unsigned char *at; /* borrowed bytes in memory; NULL: a file */
    char *path;              /* owned; NULL: in memory */
    uint64_t data, bytes;    /* offset and number of bytes of the data */
    tensor *list;            /* owned; [n] by `begin` */
    int n;
    json_t *metadata; /* owned; NULL: none */
};

void rd_safetensors_free(rd_safetensors *s)
{
    if (!s) return;
    rd_input_close(s->in);
    json_decref(s->metadata);
    free(s->list);
    free(s->path);
    free(s);
}

/* Reads n bytes at an offset of the file. */
static rd_code tensors_read_at(const rd_safetensors *s, uint64_t at, void *out, size_t n,
                               rd_status *st)
{
    if (s->at) {
        memcpy(out, s->at + at, n);
        return RD_OK;
    }
    for (size_t done = 0; done < n;) {
        const ssize_t got = rd_input_pread(s->in, (char *)out + done, n - done,
                                           (int64_t)(at + done));
        if (got < 0) return rd_input_fails(st, RD_ECKPT, "read", s->path, errno, NULL);
        if (got == 0)
            return rd_fail(st, RD_ECKPT, "ends within its data: was it cut while it was read?");
        done += (size_t)got;
    }
    return RD_OK;
}

/* Is the name one that messages, files and other programs can bear? */
static bool name_usable(const char *name)
{
    const size_t n = strlen(name);
    if (n == 0 || n >= sizeof((rd_array *)0)->name) return false;
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x21 || (unsigned char)*p > 0x7E) return false;
    return true;
}

/* Takes a whole number that is not negative. */
static bool take_number(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static rd_code take_entry(tensor *t, const char *name, const json_t *v, uint64_t bytes,
                          rd_status *st)
{
    const json_t *shape = json_object_get(v, "shape"), *place = json_object_get(v, "data_offsets");
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    uint64_t end = 0, dim;
    size_t size;
    int type = 0;
    if (!name_usable(name))
        return rd_fail(st, RD_ECKPT,
                       "an array's name is empty, longer than %zu bytes or not plain ASCII: "
                       "'%.40s'",
                       sizeof t->a.name - 1, name);
    if (!json_is_object(v) || !dtype || !json_is_array(shape) || json_array_size(place) != 2)
        return rd_fail(st, RD_ECKPT, "'%s' lacks 'dtype', 'shape' or 'data_offsets'", name);
    while (type < N_TYPES && strcmp(types[type].name, dtype) != 0) type++;
    if (type == N_TYPES)
        return rd_fail(st, RD_ECKPT, "'%s' has type '%.20s', which this program does not read",
                       name, dtype);
    if (json_array_size(shape) > RD_NPY_MAX_DIM)
        return rd_fail(st, RD_ECKPT, "'%s' has %zu dimensions; %d are allowed", name,
                       json_array_size(shape), RD_NPY_MAX_DIM);
    (void)snprintf(t->a.name, sizeof t->a.name, "%s", name);
    (void)snprintf(t->a.descr, sizeof t->a.descr, "%s", types[type].descr);
    t->a.n_dim = (int)json_array_size(shape);
    for (int d = 0; d < t->a.n_dim; d++) {
        if (!take_number(json_array_get(shape, (size_t)d), &dim) || dim > INT64_MAX)
            return rd_fail(st, RD_ECKPT, "the shape of '%s' has no whole numbers", name);
        t->a.dim[d] = (int64_t)dim;
    }
    if (!take_number(json_array_get(place, 0), &t->begin) ||
        !take_number(json_array_get(place, 1), &end) || t->begin > end || end > bytes)
        return rd_fail(st, RD_ECKPT,
                       "the place of '%s' is not within the %" PRIu64 " bytes of data", name,
                       bytes);
    if (!tensor_bytes(&t->a, types[type].bytes, &size) || size != end - t->begin)
        return rd_fail(st, RD_ECKPT, "'%s' has another number of bytes than its shape says", name);
    t->a.bytes = size;
    return RD_OK;
}

static int by_place(const void *a, const void *b)
{
    const tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    /* An empty array comes before the one that begins at its place. */
    if (x->a.bytes != y->a.bytes) return x->a.bytes < y->a.bytes ? -1 : 1;
    return strcmp(x->a.name, y->a.name);
}

/* Checks that the arrays follow each other without gap or overlap. */
static rd_code check_places(const rd_safetensors *s, rd_status *st)
{
    uint64_t at = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->list[i].begin != at)
            return rd_fail(st, RD_ECKPT, "at byte %" PRIu64 ": '%s' %s", s->data + s->list[i].begin,
                           s->list[i].a.name,
                           s->list[i].begin < at ? "overlaps the array before it"
                                                 : "leaves a gap behind the array before it");
        at += s->list[i].a.bytes;
    }
    if (at != s->bytes)
        return rd_fail(st, RD_ECKPT,
                       "at byte %" PRIu64 ": %" PRIu64 " bytes of its data belong to no array",
                       s->data + at, s->bytes - at);
    return RD_OK;
}

/* Returns the offset in the file of an entry's name, of 8 where it is written with escapes. */
static size_t entry_at(const char *text, size_t n, const char *name)
{
    const size_t k = strlen(name);
    for (const char *p = text; k > 0 && (p = memmem(p, n - (size_t)(p - text), name, k)); p++)
        if (p > text && p[-1] == '"' && p + k < text + n && p[k] == '"')
            return PREFIX + (size_t)(p - 1 - text);
    return PREFIX;
}

static rd_code take_header(rd_safetensors *s, const json_t *o, const char *head, size_t n,
                           rd_status *st)
{
    const json_t *v, *text;
    const char *key, *name;
    s->list = calloc(json_object_size(o) + 1, sizeof *s->list);
    if (!s->list) return rd_fail(st, RD_EENV, "out of memory for the list of arrays");
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        if (strcmp(key, metadata_key) != 0) {
            if (take_entry(&s->list[s->n], key, v, s->bytes, st) != RD_OK)
                rd_status_prefix(st, "at byte %zu", entry_at(head, n, key));
            RD_TRY(st->code);
            s->n++;
            continue;
        }
        if (!json_is_object(v))
            return rd_fail(st, RD_ECKPT, "at byte %zu: '%s' is no object", entry_at(head, n, key),
                           metadata_key);
        json_object_foreach((json_t *)(uintptr_t)v, name, text)
        {
            if (!json_is_string(text))
                return rd_fail(st, RD_ECKPT, "at byte %zu: '%s' of '%s' is no string",
                               entry_at(head, n, name), name, metadata_key);
        }
        s->metadata = json_incref((json_t *)(uintptr_t)v);
    }
    qsort(s->list, (size_t)s->n, sizeof *s->list, by_place);
    RD_TRY(check_places(s, st));
done:
    return st->code;
}

/* Reads the header of a file of `size` bytes. */
static rd_code read_header(rd_safetensors *s, uint64_t size, rd_status *st)
{
    uint64_t n = 0;
    char *text = NULL;
    json_error_t why;
    json_t *o = NULL;
    if (size < PREFIX)
        return rd_fail(st, RD_ECKPT,
                       "at byte %" PRIu64 ": it ends before the 8 bytes of its header's length",
                       size);
    RD_TRY(tensors_read_at(s, 0, &n, sizeof n, st));
    if (n > HEADER_MOST || n > size - PREFIX)
        return rd_fail(st, RD_ECKPT,
                       "at byte 0: its first 8 bytes promise a header of %" PRIu64
                       " bytes, more than the file has or %d; it is no safetensors file, or it is "
                       "cut short",
                       n, HEADER_MOST);
    text = malloc((size_t)n + 1);
    if (!text) return rd_fail(st, RD_EENV, "out of memory for a header of %" PRIu64 " bytes", n);
    RD_TRY(tensors_read_at(s, PREFIX, text, (size_t)n, st));
    s->data = PREFIX + n;
    s->bytes = size - s->data;
    o = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(o))
        rd_fail(st, RD_ECKPT, "at byte %zu: its header is no JSON object: %.120s",
                (size_t)PREFIX + (o || why.position < 0 ? 0 : (size_t)why.position),
                o ? "another value" : why.text);
    else
        (void)take_header(s, o, text, (size_t)n, st);
done:
    json_decref(o);
    free(text);
    return st->code;
}

rd_code rd_safetensors_new_mem(const void *p, size_t n, rd_safetensors **out, rd_status *st)
{
    rd_safetensors *s = *out = calloc(1, sizeof *s);
    if (!s) return rd_fail(st, RD_EENV, "out of memory");
    s->at = p;
    if (read_header(s, n, st) != RD_OK) {
        rd_safetensors_free(s);
        *out = NULL;
    }
    return st->code;
}

rd_code rd_safetensors_new(const char *path, rd_safetensors **out, rd_status *st)
{
    const char *kind = NULL;
    rd_safetensors *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s) s->path = strdup(path);
    if (!s || !s->path) {
        rd_fail(st, RD_EENV, "out of memory");
        goto done;
    }
    s->in = rd_input_open(path, RD_MAYBE, &kind);
    if (!s->in) {
        rd_input_not_open(st, RD_ECKPT, path, kind, errno, NULL);
        goto done;
    }
    if (read_header(s, (uint64_t)rd_input_stat(s->in)->st_size, st) != RD_OK)
        rd_status_prefix(st, "'%s'", path);
done:
    if (st->code == RD_OK)
        *out = s;
    else
        rd_safetensors_free(s);
    return st->code;
}

int rd_safetensors_n(const rd_safetensors *s)
{
    return s->n;
}

const rd_array *rd_safetensors_at(const rd_safetensors *s, int i)
{
    return i >= 0 && i < s->n ? &s->list[i].a : NULL;
}

const rd_array *rd_safetensors_find(const rd_safetensors *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->list[i].a.name, name) == 0) return &s->list[i].a;
    return NULL;
}

const json_t *rd_safetensors_metadata(const rd_safetensors *s)
{
    return s->metadata;
}

rd_code rd_safetensors_read(const rd_safetensors *s, int i, void *out, rd_status *st)
{
    rd_assert(i >= 0 && i < s->n);
    const size_t n = s->list[i].a.bytes;
    for (size_t done = 0; done < n && st->code == RD_OK;) {
        const size_t k = n - done < RD_ARRAY_PART ? n - done : RD_ARRAY_PART;
        if (tensors_read_at(s, s->data + s->list[i].begin + done, (char *)out + done, k, st) !=
                RD_OK &&
            s->path)
            rd_status_prefix(st, "'%s'", s->path);
        rd_arrays_add(k);
        done += k;
    }
    return st->code;
}
