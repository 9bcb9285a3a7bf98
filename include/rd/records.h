/* records.h -- what a run leaves in its log folder for people and scripts: TensorBoard events and
 * metrics.jsonl. Rank 0 only.
 *
 * logs/README.md lists the files, logs/METRICS.md the tags and keys. event_record.c describes the
 * bytes of an event file, and tests/unit/events.c holds golden bytes. */
#ifndef RD_RECORDS_H
#define RD_RECORDS_H
#include "rd/status.h"
#include <jansson.h>
#include <stdint.h>
RD_C_BEGIN

typedef struct rd_events rd_events;
/* Opens a new file events.out.tfevents.<time>.<host>.<pid>.<n> in dir, and makes dir if it is
 * missing. Writes file_version and SessionLog START. A viewer then drops the points after
 * start_step of an earlier run that was cut off, or all points if start_step is 0. Each record is
 * one write call. The caller owns *out. */
rd_code rd_events_new(const char *dir, int64_t start_step, rd_events **out, rd_status *st);
void rd_events_free(rd_events *e); /* NULL is fine; syncs the file */
/* Syncs the file to its disk, where other hosts can see it. Does nothing if the last sync is less
 * than ten seconds ago. */
rd_code rd_events_flush(rd_events *e, rd_status *st);
/* Writes a scalar, in the form simple_value. */
rd_code rd_events_scalar(rd_events *e, int64_t step, const char *tag, double value, rd_status *st);
/* Writes a histogram of the finite numbers among x[n], in the new form: plugin
 * histograms, 30 buckets. */
rd_code rd_events_histogram(rd_events *e, int64_t step, const char *tag, const float *x, int64_t n,
                            rd_status *st);
/* Writes a text. */
rd_code rd_events_text(rd_events *e, int64_t step, const char *tag, const char *markdown,
                       rd_status *st);
/* Writes an image of w x h pixels as PNG with stored deflate blocks. channels: 1 (grey), 3 (RGB) or
 * 4 (RGBA), 8 bits each. At most 4096 x 4096. */
rd_code rd_events_image(rd_events *e, int64_t step, const char *tag, int w, int h, int channels,
                        const uint8_t *pixels, rd_status *st);
/* A result in the table of the hparams plugin: a scalar of this folder, or of one in it. */
typedef struct rd_event_metric {
    const char *group; /* "eval"; "": this folder */
    const char *tag;
} rd_event_metric;
/* Writes the start of a session for the hparams plugin. flat: a flat JSON object of numbers,
 * strings and bools; other values are written as text. columns: the keys that the table shows,
 * ended by NULL; NULL: all. The first n_first of them stand at its left. metrics: the results,
 * ended by a tag NULL; NULL: none. */
rd_code rd_events_hparams(rd_events *e, const json_t *flat, const char *const *columns, int n_first,
                          const rd_event_metric *metrics, rd_status *st);
/* A chart of the custom scalars plugin. */
typedef struct rd_event_chart {
    const char *category, *title; /* charts of a category follow each other */
    const char *tags[3];          /* regular expressions from the beginning of a tag; NULL: none */
} rd_event_chart;
/* Writes which charts the custom scalars plugin shows, in their order. charts: ended by a title
 * NULL. */
rd_code rd_events_layout(rd_events *e, const rd_event_chart *charts, rd_status *st);
/* Writes the end of the session. status: 1 success, 2 failure. */
rd_code rd_events_end(rd_events *e, int status, rd_status *st);
/* Receives one value of an event file. tag and kind are borrowed for the call. kind "scalar":
 * value is the scalar; "histogram": its count; "text", "image": the number of bytes;
 * "hparams", "tensor": 0. */
typedef void rd_event_fn(void *ctx, int64_t step, double wall, const char *tag, const char *kind,
                         double value);
/* Reads an event file, or n bytes of one in memory, and calls fn for each value. Checks every CRC.
 * The first bad record is RD_EDATA with its offset. A truncated last record is the end of the file.
 * For tests and `run_dist --events FILE`. */
rd_code rd_events_read(const char *path, rd_event_fn *fn, void *ctx, rd_status *st);
rd_code rd_events_read_mem(const void *p, size_t n, rd_event_fn *fn, void *ctx, rd_status *st);
/* A text or an image of an event file. Borrowed for the call. */
typedef struct rd_event_blob {
    int64_t step;
    const char *tag;
    bool image; /* bytes: of a PNG; else of a text */
    const unsigned char *bytes;
    size_t n;
} rd_event_blob;
typedef void rd_event_blob_fn(void *ctx, const rd_event_blob *b);
/* Calls fn for the texts and images of an event file whose tags begin with one of these (ended by
 * NULL). Reads the file once, at most `most` bytes of it and 64 MB of a record, and keeps only one
 * record in memory. The first bad record is the end. Returns the number of bytes that it passed; 0
 * if the file cannot be read. For log folders that nobody vouches for. */
int64_t rd_events_scan(const char *path, const char *const *tags, int64_t most,
                       rd_event_blob_fn *fn, void *ctx);

typedef struct rd_metrics rd_metrics;
/* Opens metrics.jsonl for appending. On resume it first removes the lines of steps > start_step,
 * which the run that was killed had written, so every step is there once. It also removes lines
 * that are not JSON objects, because they are half written. The caller owns *out. */
rd_code rd_metrics_new(const char *path, int64_t start_step, rd_metrics **out, rd_status *st);
/* Appends one compact JSON object as a line, with one write call. The keys keep their order. Takes
 * ownership of object_stolen. */
rd_code rd_metrics_write(rd_metrics *m, json_t *object_stolen, rd_status *st);
void rd_metrics_free(rd_metrics *m); /* NULL is fine */

RD_C_END
#endif
