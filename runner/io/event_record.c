/* event_record.c -- the messages of an event file.
 *
 * A file is a sequence of records, little endian:
 *     u64 length | u32 masked CRC32C of the length | Event | u32 masked CRC32C of the Event
 * Field numbers are those of TensorFlow's event.proto, summary.proto and tensor.proto. Scalars have
 * the old short form (simple_value): every reader accepts it, and it is a third smaller. The other
 * values have the tensor form with the name of a plugin. */
#include "events_impl.h"
#include "rd/file.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

uint32_t rd_event_mask(uint32_t crc32c)
{
    return ((crc32c >> 15) | (crc32c << 17)) + 0xA282EAD8u;
}

void rd_event_record(rd_strbuf *out, double wall, int64_t step, int field, const rd_strbuf *body)
{
    rd_strbuf e = {0};
    rd_pb_double(&e, 1, wall);
    if (step != 0) rd_pb_uint(&e, 2, (uint64_t)step);
    rd_pb_message(&e, field, body);

    unsigned char head[12];
    const uint64_t n = e.n;
    memcpy(head, &n, 8);
    const uint32_t head_crc = rd_event_mask(rd_crc32c(0, head, 8));
    memcpy(head + 8, &head_crc, 4);
    const uint32_t crc = rd_event_mask(rd_crc32c(0, rd_strbuf_str(&e), e.n));
    rd_strbuf_add(out, head, sizeof head);
    rd_strbuf_add(out, rd_strbuf_str(&e), e.n);
    rd_strbuf_add(out, &crc, sizeof crc);
    out->failed = out->failed || e.failed;
    rd_strbuf_release(&e);
}

void rd_summary_scalar(rd_strbuf *out, const char *tag, double value)
{
    rd_strbuf v = {0};
    rd_pb_string(&v, 1, tag);
    rd_pb_float(&v, 2, (float)value);
    rd_pb_message(out, 1, &v);
    rd_strbuf_release(&v);
}

enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_STRING = 7 }; /* tensor.proto */

/* Writes the head of a TensorProto: type and shape. */
static void tensor_head(rd_strbuf *t, int dtype, int n_dim, const int64_t *dim)
{
    rd_strbuf shape = {0}, d = {0};
    for (int i = 0; i < n_dim; i++) {
        rd_strbuf_reset(&d);
        if (dim[i] != 0) rd_pb_uint(&d, 1, (uint64_t)dim[i]); /* proto3 omits zeros */
        rd_pb_message(&shape, 2, &d);
    }
    rd_pb_uint(t, 1, (uint64_t)dtype);
    rd_pb_message(t, 2, &shape);
    rd_strbuf_release(&shape);
    rd_strbuf_release(&d);
}

/* Appends a value in the tensor form. Readers take the plugin from a tag's first event in a run.
 * They may see the file of a resumed run first, so each value carries the plugin. The class of data
 * (tensor, blobs) follows from the plugin's name. */
static void tensor_value(rd_strbuf *out, const char *tag, const char *plugin,
                         const rd_strbuf *content, const rd_strbuf *tensor)
{
    rd_strbuf v = {0}, data = {0}, meta = {0};
    rd_pb_string(&data, 1, plugin);
    if (content) rd_pb_message(&data, 2, content);
    rd_pb_message(&meta, 1, &data);
    rd_pb_string(&v, 1, tag);
    rd_pb_message(&v, 8, tensor);
    rd_pb_message(&v, 9, &meta);
    rd_pb_message(out, 1, &v);
    rd_strbuf_release(&v);
    rd_strbuf_release(&data);
    rd_strbuf_release(&meta);
}

/* Finds the smallest and the largest finite value. Returns false if there is none. It works in
 * lanes, so that the compiler can use vectors. */
static bool finite_range(const float *x, int64_t n, float *lo, float *hi)
{
    enum { LANES = 16 };
    float a[LANES], b[LANES];
    for (int k = 0; k < LANES; k++) {
        a[k] = INFINITY;
        b[k] = -INFINITY;
    }
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            const float v = x[i + k], low = fabsf(v) < INFINITY ? v : INFINITY,
                        high = fabsf(v) < INFINITY ? v : -INFINITY;
            a[k] = low < a[k] ? low : a[k];
            b[k] = high > b[k] ? high : b[k];
        }
    }
    for (; i < n; i++) {
        if (!isfinite(x[i])) continue;
        a[0] = fminf(a[0], x[i]);
        b[0] = fmaxf(b[0], x[i]);
    }
    *lo = a[0];
    *hi = b[0];
    for (int k = 1; k < LANES; k++) {
        *lo = fminf(*lo, a[k]);
        *hi = fmaxf(*hi, b[k]);
    }
    return *lo <= *hi;
}

/* Writes 30 equal buckets (left, right, count), as TensorBoard's own histogram summary makes them.
 * If all values are equal, the buckets have no width and the last one counts all values. No values
 * give zeros. Values that are not finite are left out. */
void rd_summary_histogram(rd_strbuf *out, const char *tag, const float *x, int64_t n)
{
    enum { BUCKETS = 30 };
    double rows[BUCKETS][3] = {{0}};
    float flo, fhi;
    if (finite_range(x, n, &flo, &fhi)) {
        const double lo = flo, hi = fhi, width = (hi - lo) / BUCKETS;
        int64_t count[BUCKETS] = {0}, n_finite = 0;
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(x[i])) continue;
            n_finite++;
            if (width > 0) {
                const int k = (int)((x[i] - lo) / width);
                count[k < BUCKETS ? k : BUCKETS - 1]++;
            }
        }
        if (!(width > 0)) count[BUCKETS - 1] = n_finite;
        for (int k = 0; k < BUCKETS; k++) {
            /* Separate products, which no compiler fuses with the sums
             * below: NumPy rounds twice. */
            const double left = k * width, right = (k + 1) * width;
            rows[k][0] = lo + left;
            rows[k][1] = k + 1 < BUCKETS ? lo + right : hi;
            rows[k][2] = (double)count[k];
        }
    }
    rd_strbuf t = {0};
    tensor_head(&t, DT_DOUBLE, 2, (const int64_t[]){BUCKETS, 3});
    rd_pb_bytes(&t, 4, rows, sizeof rows);
    tensor_value(out, tag, "histograms", NULL, &t);
    rd_strbuf_release(&t);
}

void rd_summary_text(rd_strbuf *out, const char *tag, const char *markdown)
{
    rd_strbuf t = {0};
    tensor_head(&t, DT_STRING, 0, NULL);
    rd_pb_string(&t, 8, markdown);
    tensor_value(out, tag, "text", NULL, &t);
    rd_strbuf_release(&t);
}

void rd_summary_image(rd_strbuf *out, const char *tag, int w, int h, const rd_strbuf *png)
{
    char side[16];
    rd_strbuf t = {0};
    tensor_head(&t, DT_STRING, 1, (const int64_t[]){3});
    snprintf(side, sizeof side, "%d", w);
    rd_pb_string(&t, 8, side);
    snprintf(side, sizeof side, "%d", h);
    rd_pb_string(&t, 8, side);
    rd_pb_message(&t, 8, png);
    tensor_value(out, tag, "images", NULL, &t);
    rd_strbuf_release(&t);
}

void rd_summary_plugin(rd_strbuf *out, const char *tag, const char *plugin,
                       const rd_strbuf *content)
{
    rd_strbuf t = {0};
    /* An empty vector, as the plugin's own writer makes it. */
    tensor_head(&t, DT_FLOAT, 1, (const int64_t[]){0});
    tensor_value(out, tag, plugin, content, &t);
    rd_strbuf_release(&t);
}

/* layout.proto: Layout {1 version, 2 Category {1 title, 2 Chart {1 title, 2 lines {1 tag}}}}. */
void rd_summary_layout(rd_strbuf *out, const rd_event_chart *charts)
{
    rd_strbuf layout = {0}, category = {0}, chart = {0}, lines = {0}, t = {0};
    rd_pb_uint(&layout, 1, 1);
    for (const rd_event_chart *c = charts; c->title; c++) {
        if (c == charts || strcmp(c->category, c[-1].category) != 0) {
            rd_strbuf_reset(&category);
            rd_pb_string(&category, 1, c->category);
        }
        rd_strbuf_reset(&chart);
        rd_strbuf_reset(&lines);
        for (int i = 0; i < 3 && c->tags[i]; i++) rd_pb_string(&lines, 1, c->tags[i]);
        rd_pb_string(&chart, 1, c->title);
        rd_pb_message(&chart, 2, &lines);
        rd_pb_message(&category, 2, &chart);
        if (!c[1].title || strcmp(c->category, c[1].category) != 0)
            rd_pb_message(&layout, 2, &category);
    }
    tensor_head(&t, DT_STRING, 0, NULL);
    rd_pb_message(&t, 8, &layout);
    tensor_value(out, "custom_scalars__config__", "custom_scalars", NULL, &t);
    rd_strbuf_release(&layout);
    rd_strbuf_release(&category);
    rd_strbuf_release(&chart);
    rd_strbuf_release(&lines);
    rd_strbuf_release(&t);
}
