/* events_read.c -- reads event files of this program and of TensorFlow, and checks every CRC.
 *
 * It knows both forms of scalars and histograms. A truncated record at the end of the file is not
 * an error: its writer is still running, or was killed. */
#include "events_impl.h"
#include "rd/file.h"
#include "rd/input.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The parts of one Summary.Value that are kept. */
typedef struct value {
    char tag[1024], plugin[64];
    const char *kind; /* NULL: nothing yet */
    double value;
    int dtype, n_dim;
    int64_t first_dim;
} value;

static void events_read_copy_text(char *out, size_t cap, const rd_pb *c)
{
    const size_t n = c->value < cap ? (size_t)c->value : cap - 1;
    memcpy(out, c->bytes, n);
    out[n] = '\0';
}

/* Reads SummaryMetadata {1 plugin_data {1 plugin_name}}. The read_* functions return false for
 * malformed bytes. */
static bool read_metadata(const rd_pb *at, value *v)
{
    rd_pb m = rd_pb_over(at->bytes, at->value);
    while (rd_pb_next(&m)) {
        if (m.field != 1 || m.wire != 2) continue;
        rd_pb d = rd_pb_over(m.bytes, m.value);
        while (rd_pb_next(&d))
            if (d.field == 1 && d.wire == 2) events_read_copy_text(v->plugin, sizeof v->plugin, &d);
        if (d.bad) return false;
    }
    return !m.bad;
}

static bool read_shape(const rd_pb *at, value *v)
{
    rd_pb s = rd_pb_over(at->bytes, at->value);
    v->n_dim = 0;
    while (rd_pb_next(&s)) {
        if (s.field != 2 || s.wire != 2) continue;
        rd_pb d = rd_pb_over(s.bytes, s.value);
        int64_t size = 0;
        while (rd_pb_next(&d))
            if (d.field == 1 && d.wire == 0) size = (int64_t)d.value;
        if (d.bad) return false;
        if (v->n_dim++ == 0) v->first_dim = size;
    }
    return !s.bad;
}

/* Returns the sum of the third column of rows (left, right, count). */
static double sum_of_counts(const unsigned char *p, size_t n)
{
    double sum = 0;
    for (size_t i = 16; i + 8 <= n; i += 24) {
        double count;
        memcpy(&count, p + i, sizeof count);
        sum += count;
    }
    return sum;
}

static double f32_at(const unsigned char *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

static double f64_at(const unsigned char *p)
{
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Reads TensorProto {1 dtype, 2 shape, 4 content, 5 floats, 6 doubles, 8 strings}. The value of a
 * scalar is the scalar, of a histogram the count, of strings their number of bytes. */
static bool read_tensor(const rd_pb *at, value *v)
{
    rd_pb t = rd_pb_over(at->bytes, at->value);
    double counts = 0, text = 0, number = 0;
    while (rd_pb_next(&t)) {
        const bool is_bytes = t.wire == 2;
        if (t.field == 1 && t.wire == 0) {
            v->dtype = (int)t.value;
        } else if (t.field == 2 && is_bytes) {
            if (!read_shape(&t, v)) return false;
        } else if ((t.field == 4 || t.field == 6) && is_bytes) {
            counts += sum_of_counts(t.bytes, t.value);
            if (t.value == 4) number = f32_at(t.bytes);
            if (t.value == 8) number = f64_at(t.bytes);
        } else if (t.field == 5 && is_bytes && t.value >= 4) { /* repeated, in packed form */
            number = f32_at(t.bytes);
        } else if (t.field == 5 && t.wire == 5) {
            number = (double)rd_pb_as_float(&t);
        } else if (t.field == 6 && t.wire == 1) {
            number = rd_pb_as_double(&t);
        } else if (t.field == 8 && is_bytes) {
            text += (double)t.value;
        }
    }
    const bool is_scalar = v->n_dim == 0 && (v->dtype == 1 || v->dtype == 2);
    const bool is_histogram = v->n_dim == 2 && v->dtype == 2;
    v->kind = is_scalar ? "scalar" : is_histogram ? "histogram" : v->dtype == 7 ? "text" : "tensor";
    v->value = is_scalar ? number : is_histogram ? counts : v->dtype == 7 ? text : 0;
    return !t.bad;
}

/* Reads HistogramProto {3 num}, the old form. */
static bool read_histo(const rd_pb *at, value *v)
{
    rd_pb h = rd_pb_over(at->bytes, at->value);
    while (rd_pb_next(&h))
        if (h.field == 3 && h.wire == 1) v->value = rd_pb_as_double(&h);
    v->kind = "histogram";
    return !h.bad;
}

static bool read_value(const rd_pb *at, value *v)
{
    rd_pb c = rd_pb_over(at->bytes, at->value);
    memset(v, 0, sizeof *v);
    while (rd_pb_next(&c)) {
        if (c.field == 1 && c.wire == 2) {
            events_read_copy_text(v->tag, sizeof v->tag, &c);
        } else if (c.field == 2 && c.wire == 5) {
            v->kind = "scalar";
            v->value = (double)rd_pb_as_float(&c);
        } else if (c.wire == 2) {
            if (c.field == 5 && !read_histo(&c, v)) return false;
            if (c.field == 8 && !read_tensor(&c, v)) return false;
            if (c.field == 9 && !read_metadata(&c, v)) return false;
            if (c.field == 4) { /* an image in the old form */
                v->kind = "image";
                v->value = (double)c.value;
            }
        }
    }
    if (v->kind && strcmp(v->plugin, "images") == 0) v->kind = "image";
    if (v->kind && strcmp(v->plugin, "hparams") == 0) v->kind = "hparams";
    return !c.bad;
}

/* Reads one Event and calls fn for each of its values. */
static bool read_event(const unsigned char *p, size_t n, rd_event_fn *fn, void *ctx)
{
    rd_pb e = rd_pb_over(p, n), summary = {0};
    double wall = 0;
    int64_t step = 0;
    bool has_summary = false;
    while (rd_pb_next(&e)) {
        if (e.field == 1 && e.wire == 1) wall = rd_pb_as_double(&e);
        if (e.field == 2 && e.wire == 0) step = (int64_t)e.value;
        if (e.field == 5 && e.wire == 2) {
            summary = rd_pb_over(e.bytes, e.value);
            has_summary = true;
        }
    }
    while (has_summary && rd_pb_next(&summary)) {
        value v;
        if (summary.field != 1 || summary.wire != 2) continue;
        if (!read_value(&summary, &v)) return false;
        if (v.kind && fn) fn(ctx, step, wall, v.tag, v.kind, v.value);
    }
    return !e.bad && !summary.bad;
}

static uint32_t u32_at(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

rd_code rd_events_read_mem(const void *p, size_t n, rd_event_fn *fn, void *ctx, rd_status *st)
{
    const unsigned char *s = p;
    for (size_t at = 0; n - at >= 12;) {
        uint64_t len;
        memcpy(&len, s + at, 8);
        if (u32_at(s + at + 8) != rd_event_mask(rd_crc32c(0, s + at, 8)))
            return rd_fail(st, RD_EDATA,
                           "bad record at byte %zu: the checksum of its length is wrong", at);
        if (n - at - 12 < 4 || len > n - at - 16) break;
        if (u32_at(s + at + 12 + len) != rd_event_mask(rd_crc32c(0, s + at + 12, len)))
            return rd_fail(st, RD_EDATA,
                           "bad record at byte %zu: the checksum of its %" PRIu64 " bytes is wrong",
                           at, len);
        if (!read_event(s + at + 12, len, fn, ctx))
            return rd_fail(st, RD_EDATA, "bad record at byte %zu: not an event", at);
        at += 16 + len;
    }
    return st->code;
}

rd_code rd_events_read(const char *path, rd_event_fn *fn, void *ctx, rd_status *st)
{
    char *p = NULL;
    size_t n;
    RD_TRY(rd_file_read(path, RD_EDATA, &p, &n, st));
    if (rd_events_read_mem(p, n, fn, ctx, st) != RD_OK)
        rd_status_prefix(st, "'%s' is not a complete event file", path);
done:
    free(p);
    return st->code;
}

/* ---- one pass in little memory ---- */

enum { SCAN_BLOCK = 1 << 20, SCAN_MOST = 64 << 20, SCAN_HEAD = 256 };

/* A part of a file in memory: bytes at .. at + n - 1. */
typedef struct scan {
    rd_input *in;     /* owned */
    unsigned char *p; /* owned; [cap] */
    size_t n, cap;
    int64_t at;
} scan;

/* Makes the part hold `want` bytes from `from` on. False: the file ends before, or cannot be
 * read. */
static bool scan_hold(scan *s, int64_t from, size_t want)
{
    if (from >= s->at && from + (int64_t)want <= s->at + (int64_t)s->n) return true;
    if (from > s->at && from < s->at + (int64_t)s->n) {
        const size_t skip = (size_t)(from - s->at);
        memmove(s->p, s->p + skip, s->n - skip);
        s->n -= skip;
    } else if (from != s->at) {
        s->n = 0;
    }
    s->at = from;
    if (want > s->cap) {
        unsigned char *more = realloc(s->p, want);
        if (!more) return false;
        s->p = more;
        s->cap = want;
    }
    while (s->n < want) {
        const ssize_t got = rd_input_pread(s->in, s->p + s->n, s->cap - s->n, from + (int64_t)s->n);
        if (got <= 0) return false;
        s->n += (size_t)got;
    }
    return true;
}

/* Finds the last string of a tensor: of an image its PNG. */
static bool scan_string(const rd_pb *at, rd_event_blob *out)
{
    rd_pb t = rd_pb_over(at->bytes, at->value);
    while (rd_pb_next(&t))
        if (t.field == 8 && t.wire == 2) {
            out->bytes = t.bytes;
            out->n = (size_t)t.value;
        }
    return !t.bad;
}

static void scan_value(const rd_pb *at, int64_t step, const char *const *tags, rd_event_blob_fn *fn,
                       void *ctx)
{
    rd_pb c = rd_pb_over(at->bytes, at->value);
    value v = {.kind = NULL};
    rd_event_blob blob = {.step = step, .tag = v.tag};
    bool wanted = false;
    while (rd_pb_next(&c)) {
        if (c.field == 1 && c.wire == 2) events_read_copy_text(v.tag, sizeof v.tag, &c);
        if (c.field == 8 && c.wire == 2 && !scan_string(&c, &blob)) return;
        if (c.field == 9 && c.wire == 2 && !read_metadata(&c, &v)) return;
    }
    for (int i = 0; tags[i]; i++) wanted |= !strncmp(v.tag, tags[i], strlen(tags[i]));
    blob.image = !strcmp(v.plugin, "images");
    if (!c.bad && wanted && blob.bytes && (blob.image || !strcmp(v.plugin, "text"))) fn(ctx, &blob);
}

static void scan_event(const unsigned char *p, size_t n, const char *const *tags,
                       rd_event_blob_fn *fn, void *ctx)
{
    rd_pb e = rd_pb_over(p, n), summary = {0};
    int64_t step = 0;
    while (rd_pb_next(&e)) {
        if (e.field == 2 && e.wire == 0) step = (int64_t)e.value;
        if (e.field == 5 && e.wire == 2) summary = rd_pb_over(e.bytes, e.value);
    }
    if (e.bad || step < 0) return;
    while (summary.p && rd_pb_next(&summary))
        if (summary.field == 1 && summary.wire == 2) scan_value(&summary, step, tags, fn, ctx);
}

/* Does a tag stand at the beginning of a record? The program writes one value in each. */
static bool scan_names(const unsigned char *p, size_t n, const char *const *tags)
{
    for (int i = 0; tags[i]; i++)
        if (memmem(p, n < SCAN_HEAD ? n : SCAN_HEAD, tags[i], strlen(tags[i]))) return true;
    return false;
}

int64_t rd_events_scan(const char *path, const char *const *tags, int64_t most,
                       rd_event_blob_fn *fn, void *ctx)
{
    const char *kind;
    scan s = {.in = rd_input_open(path, RD_MAYBE, &kind), .cap = SCAN_BLOCK};
    int64_t at = 0;
    s.p = s.in ? malloc(s.cap) : NULL;
    while (s.p && at < most && scan_hold(&s, at, 12)) {
        uint64_t len;
        const unsigned char *head = s.p + (at - s.at);
        memcpy(&len, head, 8);
        if (u32_at(head + 8) != rd_event_mask(rd_crc32c(0, head, 8)) || len > INT64_MAX / 2) break;
        const size_t begin = len < SCAN_HEAD ? (size_t)len : SCAN_HEAD;
        if (len <= SCAN_MOST && scan_hold(&s, at + 12, begin) &&
            scan_names(s.p + (at + 12 - s.at), begin, tags)) {
            if (!scan_hold(&s, at + 12, (size_t)len + 4)) break;
            const unsigned char *p = s.p + (at + 12 - s.at);
            if (u32_at(p + len) != rd_event_mask(rd_crc32c(0, p, (size_t)len))) break;
            scan_event(p, (size_t)len, tags, fn, ctx);
        }
        at += 16 + (int64_t)len;
    }
    free(s.p);
    rd_input_close(s.in);
    return at;
}
