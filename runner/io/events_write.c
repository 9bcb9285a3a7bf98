/* events_write.c -- writes an event file for TensorBoard, on rank 0.
 *
 * Each record is one write call. A reader then rarely sees half a record, and a killed run loses
 * nothing that was recorded. If a write fails half way, the half record is cut off again, because
 * readers stop at a bad record. fsync, which also shows the file to other hosts of a network file
 * system, runs at most every ten seconds. */
#include "events_impl.h"
#include "rd/clock.h"
#include "rd/file.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t sync_every_ns = (int64_t)10 * 1000 * 1000 * 1000;

struct rd_events {
    int fd;
    off_t size; /* bytes of the complete records so far */
    int64_t synced_ns;
    /* A half record could not be cut off. Readers stop there, so nothing more is written. */
    bool torn;
    char path[4096];
};

/* Writes one record with this field of Event. After a failed write, cuts the half record off. */
static rd_code events_write_record(rd_events *e, int64_t step, int field, const rd_strbuf *body,
                                   rd_status *st)
{
    rd_strbuf record = {0};
    if (e->torn)
        return rd_fail(st, RD_EENV, "'%s' ends in a half record since its disk was full", e->path);
    rd_event_record(&record, rd_wall_s(), step, field, body);
    if (record.failed) {
        rd_fail(st, RD_EENV, "out of memory while writing '%s'", e->path);
        goto done;
    }
    rd_assert(e->fd >= 0 && record.n > 0);
    ssize_t n;
    do n = write(e->fd, record.s, record.n);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)record.n) {
        e->size += n;
    } else {
        const int err = n < 0 ? errno : ENOSPC;
        e->torn = n > 0 && ftruncate(e->fd, e->size) != 0;
        rd_fail(st, RD_EENV, "cannot write '%s': %s; check the free space of the log folder",
                e->path, strerror(err));
    }
done:
    rd_strbuf_release(&record);
    return st->code;
}

/* Writes a summary and releases it. */
static rd_code events_write_summary(rd_events *e, int64_t step, rd_strbuf *summary, rd_status *st)
{
    (void)events_write_record(e, step, RD_EVENT_SUMMARY, summary, st);
    rd_strbuf_release(summary);
    return st->code;
}

static rd_code events_write_start(rd_events *e, int64_t start_step, rd_status *st)
{
    /* A viewer drops its points of steps >= first. The points of start_step itself stay: they are
     * not written again, except in a run that begins anew. */
    const int64_t first = start_step > 0 ? start_step + 1 : 0;
    rd_strbuf version = {0}, start = {0};
    rd_strbuf_puts(&version, "brain.Event:2");
    rd_pb_uint(&start, 1, 1); /* SessionLog.START */
    RD_TRY(events_write_record(e, 0, RD_EVENT_FILE_VERSION, &version, st));
    RD_TRY(events_write_record(e, first, RD_EVENT_SESSION_LOG, &start, st));
done:
    rd_strbuf_release(&version);
    rd_strbuf_release(&start);
    return st->code;
}

rd_code rd_events_new(const char *dir, int64_t start_step, rd_events **out, rd_status *st)
{
    char host[128] = "";
    const char *kind;
    *out = NULL;
    rd_events *e = calloc(1, sizeof *e);
    if (!e) return rd_fail(st, RD_EENV, "out of memory while opening event files in '%s'", dir);
    e->fd = -1;
    RD_TRY(rd_mkdirs(dir, st));
    if (gethostname(host, sizeof host - 1) != 0 || !host[0]) snprintf(host, sizeof host, "unknown");
    const int64_t second = (int64_t)rd_wall_s();
    for (int n = 0; e->fd < 0 && n < 1000; n++) {
        if (snprintf(e->path, sizeof e->path, "%s/events.out.tfevents.%010" PRId64 ".%s.%ld.%d",
                     dir, second, host, (long)getpid(), n) >= (int)sizeof e->path) {
            rd_fail(st, RD_EUSAGE,
                    "the name of log folder '%.200s...' is too long; choose a shorter --logdir",
                    dir);
            goto done;
        }
        e->fd = rd_open_output(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, &kind);
        if (e->fd < 0 && errno != EEXIST) break;
    }
    if (e->fd < 0) {
        rd_fail(st, RD_EENV,
                "cannot write '%s': %s; check the free space and the permissions of the log folder",
                e->path, strerror(errno));
        goto done;
    }
    RD_TRY(events_write_start(e, start_step, st));
    *out = e;
    return st->code;
done:
    rd_events_free(e);
    return st->code;
}

rd_code rd_events_flush(rd_events *e, rd_status *st)
{
    const int64_t now = rd_now_ns();
    if (e->synced_ns != 0 && now - e->synced_ns < sync_every_ns) return st->code;
    e->synced_ns = now;
    if (fsync(e->fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EINTR)
        rd_fail(st, RD_EENV, "cannot write '%s': %s; check the free space of the log folder",
                e->path, strerror(errno));
    return st->code;
}

void rd_events_free(rd_events *e)
{
    if (!e) return;
    if (e->fd >= 0) {
        (void)fsync(e->fd);
        (void)close(e->fd);
    }
    free(e);
}

rd_code rd_events_scalar(rd_events *e, int64_t step, const char *tag, double value, rd_status *st)
{
    rd_strbuf s = {0};
    rd_summary_scalar(&s, tag, value);
    return events_write_summary(e, step, &s, st);
}

rd_code rd_events_histogram(rd_events *e, int64_t step, const char *tag, const float *x, int64_t n,
                            rd_status *st)
{
    rd_strbuf s = {0};
    rd_summary_histogram(&s, tag, x, n);
    return events_write_summary(e, step, &s, st);
}

rd_code rd_events_text(rd_events *e, int64_t step, const char *tag, const char *markdown,
                       rd_status *st)
{
    rd_strbuf s = {0};
    rd_summary_text(&s, tag, markdown);
    return events_write_summary(e, step, &s, st);
}

rd_code rd_events_image(rd_events *e, int64_t step, const char *tag, int w, int h, int channels,
                        const uint8_t *pixels, rd_status *st)
{
    /* 4096 x 4096 keeps every length in the PNG far from its limits, and the event file usable. */
    if (w < 1 || h < 1 || w > 4096 || h > 4096 || (channels != 1 && channels != 3 && channels != 4))
        return rd_fail(st, RD_EBUG, "image '%s' of %d x %d pixels with %d channels", tag, w, h,
                       channels);
    rd_strbuf s = {0}, png = {0};
    rd_png(&png, w, h, channels, pixels);
    rd_summary_image(&s, tag, w, h, &png);
    rd_strbuf_release(&png);
    return events_write_summary(e, step, &s, st);
}

rd_code rd_events_layout(rd_events *e, const rd_event_chart *charts, rd_status *st)
{
    rd_strbuf s = {0};
    rd_summary_layout(&s, charts);
    return events_write_summary(e, 0, &s, st);
}

rd_code rd_events_hparams(rd_events *e, const json_t *flat, const char *const *columns, int n_first,
                          const rd_event_metric *metrics, rd_status *st)
{
    rd_strbuf s = {0}, content = {0};
    const double wall = rd_wall_s();
    rd_hparams_experiment(&content, flat, columns, n_first, metrics, wall);
    rd_summary_plugin(&s, "_hparams_/experiment", "hparams", &content);
    if (events_write_summary(e, 0, &s, st) == RD_OK) {
        rd_strbuf_reset(&content);
        rd_hparams_start(&content, flat, wall);
        rd_summary_plugin(&s, "_hparams_/session_start_info", "hparams", &content);
        (void)events_write_summary(e, 0, &s, st);
    }
    rd_strbuf_release(&content);
    return st->code;
}

rd_code rd_events_end(rd_events *e, int status, rd_status *st)
{
    rd_strbuf s = {0}, content = {0};
    rd_hparams_end(&content, status, rd_wall_s());
    rd_summary_plugin(&s, "_hparams_/session_end_info", "hparams", &content);
    rd_strbuf_release(&content);
    return events_write_summary(e, 0, &s, st);
}
