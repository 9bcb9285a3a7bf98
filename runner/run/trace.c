/* trace.c -- --trace FILE: the activities of all ranks in some steps, as a Chrome trace: a JSON
 * array of events, which Perfetto and chrome://tracing open. Each rank is one process. Its first
 * row holds the steps and their activities, the rows below it the exchange.
 *
 * A rank keeps its spans in memory of a fixed size and counts those that do not fit. All ranks
 * write their spans after every CHUNK steps, after the last traced step, and at the end. They
 * compare their clocks with rank 0's, convert their spans to that clock, and rank 0 appends the
 * lines to the file. Between two comparisons, a clock is assumed to drift evenly. The file is
 * complete JSON after each addition, so it opens even if the run is killed later. */
#include "trace.h"
#include "run.h"

#include "rd/file.h"
#include "rd/ping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK = 50,          /* number of steps between two writes */
    MAX_SPANS = 1 << 15, /* spans of a rank between two writes: 1.5 MB */
    /* spans of all ranks between two writes; rank 0 holds their lines at once */
    ALL_SPANS = 1 << 22,
    MIN_SPANS = 1 << 9,
    PINGS = 16,
    LANES = 16 /* largest number of rows for exchanges of a rank that overlap */
};
static const char tail[] = "\n]\n";

struct run_trace {
    rd_run *run; /* borrowed */
    const char *path;
    int fd;               /* rank 0; -1: none, or closed after a failure */
    int64_t first, last;  /* first and last step to trace */
    int64_t origin_ns;    /* zero of the written times, by rank 0's clock */
    rd_clock_offset from; /* the comparison of clocks before the present spans */
    bool compared, ops, named;
    int64_t step, step_ns, in_chunk;
    int64_t op_ns;
    span_list *spans;                          /* of the run's times; this file owns the memory */
    int64_t all_dropped, all_spans, all_steps; /* rank 0: for the message at the end */
};

static void on_op(void *ctx, const rd_op *op, bool backward, bool ends)
{
    run_trace *t = ctx;
    (void)backward; /* the activity around it shows that */
    if (!t->spans->active) return;
    const int64_t now = rd_now_ns();
    if (ends) times_span(&t->run->times, op->name, SPAN_ROW_STEPS, -1, 0.0, t->op_ns, now);
    t->op_ns = now;
}

/* ---- which steps ---- */

/* Reads "10:60", both steps included. "": fifty steps, from the third step of this run. */
static rd_code read_steps(run_trace *t, const char *text, int64_t next_step, rd_status *st)
{
    char *end;
    t->first = next_step + 2;
    t->last = t->first + 49;
    if (!text[0]) return RD_OK;
    errno = 0;
    t->first = strtoll(text, &end, 10);
    bool good = end != text && *end == ':';
    if (good) {
        const char *second = end + 1;
        t->last = strtoll(second, &end, 10);
        good = end != second && *end == '\0' && errno == 0 && t->first >= 1 && t->last >= t->first;
    }
    if (good) return RD_OK;
    return rd_fail(st, RD_EUSAGE,
                   "%s: 'trace_steps' is '%.64s'; write the first and the last step to trace, such "
                   "as \"10:60\"",
                   rd_config_where(t->run->keys, "trace_steps"), text);
}

/* ---- the file ---- */

static rd_code write_all(int fd, const char *p, size_t n, off_t at, rd_status *st)
{
    while (n > 0) {
        const ssize_t k = pwrite(fd, p, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return rd_fail(st, RD_EENV, "%s", k < 0 ? strerror(errno) : "the disk takes no more");
        p += k;
        n -= (size_t)k;
        at += k;
    }
    return RD_OK;
}

/* Appends lines, and closes the array again. Each line begins with ",\n", unless it is the file's
 * first. */
static rd_code add_lines(run_trace *t, rd_strbuf *lines, bool first, rd_status *st)
{
    const off_t size = first ? 0 : lseek(t->fd, 0, SEEK_END);
    const off_t at = first ? 0 : size - (off_t)(sizeof tail - 1);
    rd_strbuf_puts(lines, tail);
    if (lines->failed) return rd_fail(st, RD_EENV, "out of memory");
    return write_all(t->fd, lines->s, lines->n, at, st);
}

static rd_code create_file(run_trace *t, rd_status *st)
{
    rd_strbuf b = {0};
    rd_status own = {0};
    const char *kind;
    t->fd = rd_open_output(t->path, O_RDWR | O_CREAT | O_TRUNC, &kind);
    if (t->fd < 0 && kind)
        return rd_fail(st, RD_EENV, "cannot write --trace '%.512s': it is %s; name another file",
                       t->path, kind);
    if (t->fd < 0)
        return rd_fail(st, RD_EENV,
                       "cannot write --trace '%.512s': %s; name a file in a folder that exists",
                       t->path, strerror(errno));
    rd_strbuf_printf(&b,
                     "[\n{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":0,\"args\":{\"labels\":"
                     "\"run_dist, model %s, %d rank%s on %d host%s\"}}",
                     t->run->model->name, t->run->world->size, RD_S(t->run->world->size),
                     t->run->world->n_hosts, RD_S(t->run->world->n_hosts));
    if (add_lines(t, &b, true, &own) != RD_OK)
        rd_fail(st, RD_EENV,
                "cannot write --trace '%.512s': %s; free space there, or leave the flag out",
                t->path, own.msg);
    rd_strbuf_release(&b);
    return st->code;
}

rd_code trace_open(rd_run *r, int64_t next_step, rd_status *st)
{
    if (!r->cli->trace) return RD_OK;
    const int64_t share = ALL_SPANS / r->world->size;
    run_trace *t = calloc(1, sizeof *t);
    if (!t) rd_fail(st, RD_EENV, "out of memory for the trace");
    RD_TRY(run_agree(r, st));
    r->trace = t;
    t->run = r;
    t->path = r->cli->trace;
    t->fd = -1;
    t->ops = r->config.trace_ops;
    t->spans = &r->times.spans;
    t->spans->capacity = share > MAX_SPANS ? MAX_SPANS : share < MIN_SPANS ? MIN_SPANS : share;
    t->spans->at = malloc((size_t)t->spans->capacity * sizeof *t->spans->at);
    if (!t->spans->at) rd_fail(st, RD_EENV, "out of memory for the trace");
    if (st->code == RD_OK) (void)read_steps(t, r->config.trace_steps, next_step, st);
    if (st->code == RD_OK && r->world->rank == 0) (void)create_file(t, st);
    RD_TRY(run_agree(r, st));
    if (t->ops) rd_tape_on_op(r->tape, on_op, t);
done:
    if (st->code != RD_OK) {
        trace_free(t);
        r->trace = NULL;
    }
    return st->code;
}

void trace_free(run_trace *t)
{
    if (!t) return;
    if (t->fd >= 0) (void)close(t->fd);
    if (t->spans) {
        free(t->spans->at);
        *t->spans = (span_list){0};
    }
    free(t);
}

/* ---- spans become lines ---- */

/* Appends nanoseconds as the microseconds of a trace. */
static void append_us(rd_strbuf *b, const char *key, int64_t ns)
{
    const int64_t size = ns < 0 ? -ns : ns;
    rd_strbuf_printf(b, ",\"%s\":%s%" PRId64 ".%03" PRId64, key, ns < 0 ? "-" : "", size / 1000,
                     size % 1000);
}

static void append_names(const run_trace *t, rd_strbuf *b)
{
    const rd_world *w = t->run->world;
    rd_strbuf_printf(
        b,
        ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d "
        "(%s)\"}}"
        ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}"
        ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":"
        "\"steps\"}}"
        ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"args\":{\"name\":"
        "\"gradients\"}}",
        w->rank, w->rank, w->host, w->rank, w->rank, w->rank, w->rank);
}

/* Returns a row for an exchange in which it overlaps no other one. */
static int free_lane(int64_t busy_until[LANES], int64_t begin_ns, int64_t end_ns)
{
    int best = 0;
    for (int i = 0; i < LANES; i++) {
        if (busy_until[i] <= begin_ns) {
            best = i;
            break;
        }
        if (busy_until[i] < busy_until[best]) best = i;
    }
    busy_until[best] = end_ns;
    return best;
}

static int by_begin(const void *a, const void *b)
{
    const trace_span *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1; /* the longer one comes first */
    return 0;
}

static void append_spans(run_trace *t, const rd_clock_offset *to, rd_strbuf *b)
{
    int64_t busy_until[LANES] = {0};
    qsort(t->spans->at, (size_t)t->spans->n, sizeof *t->spans->at, by_begin);
    for (int64_t i = 0; i < t->spans->n; i++) {
        const trace_span *s = &t->spans->at[i];
        const int64_t begin = rd_clock_shared(&t->from, to, s->begin_ns) - t->origin_ns;
        const int64_t end = rd_clock_shared(&t->from, to, s->end_ns) - t->origin_ns;
        const int row = s->row == SPAN_ROW_STEPS
                            ? 0
                            : 1 + free_lane(busy_until, s->begin_ns, s->end_ns);
        rd_strbuf_printf(b, ",\n{\"name\":\"%s", s->name);
        if (s->id >= 0) rd_strbuf_printf(b, " %" PRId64, s->id);
        rd_strbuf_printf(b, "\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", t->run->world->rank, row);
        append_us(b, "ts", begin);
        append_us(b, "dur", end - begin);
        if (s->bytes > 0.0) rd_strbuf_printf(b, ",\"args\":{\"bytes\":%.0f}", s->bytes);
        rd_strbuf_puts(b, "}");
    }
}

/* Collective. Compares the clocks and appends the spans so far to the file. A failure of the file
 * is only a warning. */
static rd_code write_chunk(run_trace *t, rd_status *st)
{
    rd_run *r = t->run;
    rd_clock_offset to;
    rd_strbuf lines = {0}, all = {0};
    rd_status own = {0};
    int64_t *lens = NULL, counts[2] = {t->spans->dropped, t->spans->n};
    char *text = NULL;
    RD_TRY(rd_clock_compare(r->comm, PINGS, &to, st));
    if (!t->named) append_names(t, &lines);
    append_spans(t, &to, &lines);
    if (t->spans->dropped > 0) {
        rd_strbuf_printf(&lines,
                         ",\n{\"name\":\"%" PRId64
                         " span%s dropped\",\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":0",
                         t->spans->dropped, t->spans->dropped == 1 ? " was" : "s were",
                         r->world->rank);
        append_us(&lines, "ts", to.at_ns - to.offset_ns - t->origin_ns);
        rd_strbuf_puts(&lines, "}");
    }
    if (lines.failed) rd_fail(st, RD_EENV, "out of memory for the trace");
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_sum_i64(r->comm, counts, 2, st));
    RD_TRY(rd_comm_gather(r->comm, lines.s ? lines.s : "", (int64_t)lines.n, &text, &lens, st));
    if (r->world->rank == 0) {
        int64_t n = 0;
        for (int i = 0; i < r->world->size; i++) n += lens[i];
        rd_strbuf_add(&all, text, (size_t)n);
        if (t->fd >= 0 && add_lines(t, &all, false, &own) != RD_OK) {
            rd_warn(r->log, "the trace '%s' is not whole: %s", t->path, own.msg);
            (void)close(t->fd);
            t->fd = -1;
        }
        t->all_dropped += counts[0];
        t->all_spans += counts[1];
        t->all_steps += t->in_chunk;
    }
    t->named = true;
    t->from = to;
    t->spans->n = t->spans->dropped = t->in_chunk = 0;
done:
    rd_strbuf_release(&lines);
    rd_strbuf_release(&all);
    free(text);
    free(lens);
    return st->code;
}

/* ---- steps ---- */

rd_code trace_step(rd_run *r, int64_t step, rd_status *st)
{
    run_trace *t = r->trace;
    if (!t) return RD_OK;
    times_enter(r, TIMES_NONE); /* a save or an evaluation belongs to the step before */
    if (t->in_chunk > 0 && (step > t->last || t->in_chunk == CHUNK)) {
        t->spans->active = false;
        RD_TRY(write_chunk(t, st));
    }
    t->spans->active = step >= t->first && step <= t->last;
    if (!t->spans->active) return RD_OK;
    if (!t->compared) {
        RD_TRY(rd_clock_compare(r->comm, PINGS, &t->from, st));
        t->origin_ns = rd_now_ns();
        RD_TRY(rd_comm_bcast(r->comm, &t->origin_ns, sizeof t->origin_ns, 0, st));
        t->compared = true;
    }
    t->in_chunk++;
    t->step = step;
    t->step_ns = rd_now_ns();
    r->times.since_ns = t->step_ns;
done:
    return st->code;
}

void trace_step_end(rd_run *r)
{
    run_trace *t = r->trace;
    times_enter(r, TIMES_NONE);
    if (t && t->spans->active)
        times_span(&r->times, "step", SPAN_ROW_STEPS, t->step, 0.0, t->step_ns, r->times.since_ns);
}

rd_code trace_finish(rd_run *r, rd_status *st)
{
    run_trace *t = r->trace;
    if (!t) return RD_OK;
    times_enter(r, TIMES_NONE);
    t->spans->active = false;
    if (t->in_chunk > 0) RD_TRY(write_chunk(t, st));
    if (r->world->rank != 0 || t->fd < 0) return RD_OK;
    if (t->all_steps == 0)
        rd_info(r->log,
                "trace: no step of %" PRId64 " to %" PRId64
                " was run; trace_steps sets which steps to trace",
                t->first, t->last);
    else
        rd_info(r->log,
                "trace of %" PRId64
                " step%s and %d rank%s in %s; open it with Perfetto or chrome://tracing",
                t->all_steps, RD_S(t->all_steps), r->world->size, RD_S(r->world->size), t->path);
    if (t->all_dropped > 0)
        rd_info(r->log,
                "trace: %" PRId64 " of %" PRId64
                " spans %s dropped because the buffer was full; trace fewer ops (trace_ops)",
                t->all_dropped, t->all_dropped + t->all_spans,
                t->all_dropped == 1 ? "was" : "were");
done:
    return st->code;
}
