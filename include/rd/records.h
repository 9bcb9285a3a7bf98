/* records.h -- what a run leaves in its log folder for people and scripts: TensorBoard events and metrics.jsonl. Rank 0
 * only. Formats: spec of records; golden bytes in tests/unit/events.c. */
#ifndef RD_RECORDS_H
#define RD_RECORDS_H
#include "rd/status.h"
#include <jansson.h>
#include <stdint.h>
RD_C_BEGIN

typedef struct rd_events rd_events;
/* Opens a new events.out.tfevents.<time>.<host>.<pid>.<n> in dir (made where missing); writes file_version and
 * SessionLog START, so that a viewer drops the points after start_step of an earlier run that was cut off (all points
 * when start_step is 0). Each record is one write call. */
rd_code rd_events_new(const char *dir, int64_t start_step, rd_events **out, rd_status *st);
void rd_events_free(rd_events *e); /* NULL is fine; syncs */
/* Syncs the file to its disk, where other hosts see it; at most every ten seconds, calls between do nothing. */
rd_code rd_events_flush(rd_events *e, rd_status *st);
rd_code rd_events_scalar(rd_events *e, int64_t step, const char *tag, double value,
                         rd_status *st); /* simple_value */
/* New form (plugin histograms, 30 buckets): computed from the finite ones of n floats. */
rd_code rd_events_histogram(rd_events *e, int64_t step, const char *tag, const float *x, int64_t n,
                            rd_status *st);
rd_code rd_events_text(rd_events *e, int64_t step, const char *tag, const char *markdown,
                       rd_status *st);
/* Grey (1 channel), RGB (3) or RGBA (4) image, 8 bits, as PNG with stored deflate blocks; at most 4096 x 4096. */
rd_code rd_events_image(rd_events *e, int64_t step, const char *tag, int w, int h, int channels,
                        const uint8_t *pixels, rd_status *st);
/* hparams plugin: session start info from a flat JSON object (numbers, strings, bools; others as text), experiment with
 * these metric tags (NULL-ended); and session end (status: 1 success, 2 failure). */
rd_code rd_events_hparams(rd_events *e, const json_t *flat, const char *const *metric_tags,
                          rd_status *st);
rd_code rd_events_end(rd_events *e, int status, rd_status *st);
/* Own reader: calls back per value; checks every CRC; RD_EDATA with the offset at the first bad record; a truncated
 * last record is the end. kind and value: "scalar" the scalar; "histogram" its count; "text", "image" their bytes;
 * "hparams", "tensor" 0. tag and kind are borrowed for the call. For tests and `run_dist --events FILE`. */
typedef void rd_event_fn(void *ctx, int64_t step, double wall, const char *tag, const char *kind,
                         double value);
rd_code rd_events_read(const char *path, rd_event_fn *fn, void *ctx, rd_status *st);
rd_code rd_events_read_mem(const void *p, size_t n, rd_event_fn *fn, void *ctx, rd_status *st);

/* metrics.jsonl: one JSON object a line, one write call each, appended. On resume, lines of steps > start_step are cut
 * off (the run that was killed had written them), so that every step is there once; lines that are no JSON objects
 * (half written) go, too. */
typedef struct rd_metrics rd_metrics;
rd_code rd_metrics_new(const char *path, int64_t start_step, rd_metrics **out, rd_status *st);
rd_code rd_metrics_write(rd_metrics *m, json_t *object_stolen,
                         rd_status *st); /* compact, keys in order of insertion */
void rd_metrics_free(rd_metrics *m);     /* NULL is fine */

RD_C_END
#endif
