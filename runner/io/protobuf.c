/* protobuf.c -- protobuf's wire format, as far as event files need it.
 *
 * A message is a sequence of fields. Each field is a varint (number << 3 | wire type) and a value.
 * Fields are written in the order of their numbers, as the reference writers do. */
#include "events_impl.h"
#include <string.h>

static void pb_varint(rd_strbuf *b, uint64_t v)
{
    unsigned char s[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) s[n++] = (unsigned char)(v | 0x80);
    rd_assert(n < sizeof s);
    s[n++] = (unsigned char)v;
    rd_strbuf_add(b, s, n);
}

void rd_pb_uint(rd_strbuf *b, int field, uint64_t v)
{
    pb_varint(b, (uint64_t)field << 3);
    pb_varint(b, v);
}

void rd_pb_double(rd_strbuf *b, int field, double v)
{
    pb_varint(b, (uint64_t)field << 3 | 1);
    rd_strbuf_add(b, &v, sizeof v);
}

void rd_pb_float(rd_strbuf *b, int field, float v)
{
    pb_varint(b, (uint64_t)field << 3 | 5);
    rd_strbuf_add(b, &v, sizeof v);
}

void rd_pb_bytes(rd_strbuf *b, int field, const void *p, size_t n)
{
    rd_assert(field > 0);
    pb_varint(b, (uint64_t)field << 3 | 2);
    pb_varint(b, n);
    rd_strbuf_add(b, p, n);
}

void rd_pb_string(rd_strbuf *b, int field, const char *s)
{
    rd_pb_bytes(b, field, s, strlen(s));
}

void rd_pb_message(rd_strbuf *b, int field, const rd_strbuf *m)
{
    rd_pb_bytes(b, field, rd_strbuf_str(m), m->n);
    b->failed = b->failed || m->failed;
}

rd_pb rd_pb_over(const void *p, size_t n)
{
    const unsigned char *s = p;
    return (rd_pb){.p = s, .end = s + n};
}

static bool pb_read_varint(rd_pb *c, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && c->p < c->end; shift += 7) {
        const unsigned char b = *c->p++;
        *v |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) return true;
    }
    return false;
}

bool rd_pb_next(rd_pb *c)
{
    uint64_t tag;
    rd_assert(c->p <= c->end);
    if (c->bad || c->p == c->end) return false;
    c->bad = true;
    if (!pb_read_varint(c, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) return false;
    c->field = (int)(tag >> 3);
    c->wire = (int)(tag & 7);
    const size_t left = (size_t)(c->end - c->p), fixed = c->wire == 1 ? 8 : 4;
    if (c->wire == 0) {
        if (!pb_read_varint(c, &c->value)) return false;
    } else if (c->wire == 1 || c->wire == 5) {
        if (left < fixed) return false;
        c->value = 0;
        memcpy(&c->value, c->p, fixed); /* little endian, like the hosts of this program */
        c->p += fixed;
    } else if (c->wire == 2) {
        if (!pb_read_varint(c, &c->value) || c->value > (uint64_t)(c->end - c->p)) return false;
        c->bytes = c->p;
        c->p += c->value;
    } else {
        return false; /* groups: no writer of event files uses them */
    }
    c->bad = false;
    return true;
}

double rd_pb_as_double(const rd_pb *c)
{
    double v;
    memcpy(&v, &c->value, sizeof v);
    return v;
}

float rd_pb_as_float(const rd_pb *c)
{
    float v;
    memcpy(&v, &c->value, sizeof v);
    return v;
}
