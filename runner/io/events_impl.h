/* events_impl.h -- building blocks of event files: protobuf's wire format, records, and the bodies
 * of summaries. */
#ifndef RD_EVENTS_IMPL_H
#define RD_EVENTS_IMPL_H

#include "rd/records.h"
#include "rd/strbuf.h"

/* ---- protobuf.c ---- */
/* The functions below append one field to b. */
void rd_pb_uint(rd_strbuf *b, int field, uint64_t v);
void rd_pb_double(rd_strbuf *b, int field, double v);
void rd_pb_float(rd_strbuf *b, int field, float v);
void rd_pb_bytes(rd_strbuf *b, int field, const void *p, size_t n);
void rd_pb_string(rd_strbuf *b, int field, const char *s);
/* Appends the message m, also if it is empty. A failed m makes b fail. */
void rd_pb_message(rd_strbuf *b, int field, const rd_strbuf *m);

/* A cursor over the fields of a message that is not trusted. */
typedef struct rd_pb {
    const unsigned char *p, *end; /* the bytes that follow */
    bool bad;                     /* the bytes that followed were not a field */
    int field;                    /* number of the present field */
    int wire;                     /* its type: 0 varint, 1 fixed64, 2 bytes, 5 fixed32 */
    uint64_t value;               /* its value for the types 0, 1, 5; its length for 2 */
    const unsigned char *bytes;   /* its bytes for type 2; borrowed */
} rd_pb;
/* Returns a cursor in front of the first field. p is borrowed. */
rd_pb rd_pb_over(const void *p, size_t n);
/* Moves to the next field. Returns false at the end, or if c->bad. */
bool rd_pb_next(rd_pb *c);
/* Returns the value of a fixed64 field, or of a fixed32 field. */
double rd_pb_as_double(const rd_pb *c);
float rd_pb_as_float(const rd_pb *c);

/* ---- event_record.c: Event and Summary messages ---- */
/* Field numbers of Event. */
enum { RD_EVENT_FILE_VERSION = 3, RD_EVENT_SUMMARY = 5, RD_EVENT_SESSION_LOG = 7 };
/* Appends one framed record that holds Event {wall, step, field: body}. */
void rd_event_record(rd_strbuf *out, double wall, int64_t step, int field, const rd_strbuf *body);
/* The functions below append one Summary.Value. */
void rd_summary_scalar(rd_strbuf *out, const char *tag, double value);
void rd_summary_histogram(rd_strbuf *out, const char *tag, const float *x, int64_t n);
void rd_summary_text(rd_strbuf *out, const char *tag, const char *markdown);
void rd_summary_image(rd_strbuf *out, const char *tag, int w, int h, const rd_strbuf *png);
/* Appends a value that carries only the content of its plugin (hparams). */
void rd_summary_plugin(rd_strbuf *out, const char *tag, const char *plugin,
                       const rd_strbuf *content);
/* Appends the layout of the custom scalars plugin. */
void rd_summary_layout(rd_strbuf *out, const rd_event_chart *charts);
/* Returns the masked form of a CRC32C. */
uint32_t rd_event_mask(uint32_t crc32c);

/* ---- hparams.c ---- */
/* The functions below append the content of the hparams plugin: the start of a session, the
 * experiment, the end of a session. */
void rd_hparams_start(rd_strbuf *content, const json_t *flat, double wall);
void rd_hparams_experiment(rd_strbuf *content, const json_t *flat, const char *const *columns,
                           int n_first, const rd_event_metric *metrics, double wall);
void rd_hparams_end(rd_strbuf *content, int status, double wall);

/* ---- png.c ---- */
/* Appends a PNG file of w x h pixels, 8 bits per channel. channels: 1 (grey),
 * 3 (RGB) or 4 (RGBA). */
void rd_png(rd_strbuf *out, int w, int h, int channels, const uint8_t *pixels);
/* Does the same, compressed. */
void rd_png_packed(rd_strbuf *out, int w, int h, int channels, const uint8_t *pixels);

#endif
