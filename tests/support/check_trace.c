/* check_trace.c -- checks that a file is a valid trace.
 *
 *     check_trace FILE RANKS STEPS [ops] [SLACK_US]
 *
 * A valid trace has these properties:
 *   - Metadata events have names that the format defines.
 *   - The file is a JSON array. Every rank has a named row and STEPS steps.
 *   - Of two spans in a row, one contains the other, or they do not overlap.
 *   - Every step has input, forward, backward, wait and update in this order. With `ops` there are
 *     spans inside forward.
 *   - By the common clock, no rank's sum of a step ends before the last rank has begun to wait for
 *     it, with a tolerance of SLACK_US.
 * Prints one line. If something is wrong, prints what, and exits with 1. */
#include <math.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    const char *name;
    int pid, tid;
    double begin, end;
    size_t order;
} span;

enum { MOST_RANKS = 64, MOST_STEPS = 4096 };
typedef struct step {
    double wait_begin, sum_end; /* times of one rank in us */
    bool seen;
} step;

static int bad;

static void __attribute__((format(printf, 1, 2))) wrong(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (bad++ < 20) {
        (void)vprintf(fmt, ap);
        (void)putchar('\n');
    }
    va_end(ap);
}

static int by_row(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->pid != y->pid) return x->pid - y->pid;
    if (x->tid != y->tid) return x->tid - y->tid;
    if (x->begin < y->begin || x->begin > y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end < y->end || x->end > y->end) return x->end > y->end ? -1 : 1;
    /* If both are equally long, the outer span is written after the inner one. */
    return x->order < y->order ? 1 : -1;
}

/* Checks a metadata event. The trace event format defines these names, each with one argument, and
 * viewers skip all others. */
static void check_metadata(const json_t *o, size_t i, const char *name)
{
    static const char *const defined[][2] = {{"process_name", "name"},
                                             {"process_labels", "labels"},
                                             {"process_sort_index", "sort_index"},
                                             {"thread_name", "name"},
                                             {"thread_sort_index", "sort_index"}};
    const json_t *args = json_object_get(o, "args");
    size_t k = 0;
    while (k < 5 && strcmp(defined[k][0], name) != 0) k++;
    if (k == 5)
        wrong("event %zu: the format has no metadata '%s'", i, name);
    else if (json_object_size(args) != 1 || !json_object_get(args, defined[k][1]))
        wrong("event %zu: '%s' needs the argument '%s' alone", i, name, defined[k][1]);
}

/* Checks the spans of one row with a stack of the spans that contain the current one. */
static void check_row(const span *s, size_t n)
{
    enum { DEEP = 16 };
    const span *open[DEEP];
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        while (depth > 0 && open[depth - 1]->end <= s[i].begin) depth--;
        if (depth > 0 && s[i].end > open[depth - 1]->end)
            wrong("rank %d row %d: '%s' at %.3f goes on beyond '%s' that it begins in", s[i].pid,
                  s[i].tid, s[i].name, s[i].begin, open[depth - 1]->name);
        if (depth == DEEP) {
            wrong("rank %d row %d: more than %d spans in each other", s[i].pid, s[i].tid, DEEP);
            return;
        }
        open[depth++] = &s[i];
    }
}

/* Checks the spans in one step and their order. */
static void check_step(const span *at, const span *end, const char *want_ops, step *out)
{
    static const char *const order[] = {"input", "forward",  "backward",
                                        "wait",  "exchange", "update"};
    int next = 0, seen[6] = {0}, ops = 0;
    for (const span *s = at + 1; s < end && s->begin < at->end; s++) {
        int k = 0;
        while (k < 6 && strcmp(order[k], s->name) != 0) k++;
        if (k == 6) {
            ops++;
            continue;
        }
        /* Each part of a batch, and each batch of an update, begins with the input again. */
        if (k < next && k != 0)
            wrong("rank %d, %s: '%s' comes after '%s'", at->pid, at->name, s->name, order[next]);
        next = k;
        seen[k]++;
        if (k == 3 && seen[3] == 1) out->wait_begin = s->begin;
        if (k == 3 || k == 4) out->sum_end = s->end;
    }
    for (int k = 0; k < 6; k++)
        if (seen[k] == 0 && k != 4) wrong("rank %d, %s: no '%s'", at->pid, at->name, order[k]);
    if (want_ops && ops == 0) wrong("rank %d, %s: no ops", at->pid, at->name);
    if (!want_ops && ops > 0)
        wrong("rank %d, %s: %d spans that nobody asked for", at->pid, at->name, ops);
    out->seen = true;
}

int main(int argc, char **argv)
{
    json_error_t e;
    json_t *all = argc >= 4 ? json_load_file(argv[1], 0, &e) : NULL, *o;
    const int ranks = argc >= 4 ? atoi(argv[2]) : 0, want_steps = argc >= 4 ? atoi(argv[3]) : 0;
    const char *ops = argc > 4 && strcmp(argv[4], "ops") == 0 ? argv[4] : NULL;
    const double slack = argc > (ops ? 5 : 4) ? atof(argv[ops ? 5 : 4]) : 0.0;
    size_t i, n = 0;
    int named[MOST_RANKS] = {0}, steps[MOST_RANKS] = {0};
    if (argc < 4 || ranks < 1 || ranks > MOST_RANKS) return 2;
    if (!json_is_array(all)) {
        (void)printf("%s: no JSON array: line %d: %s\n", argv[1], e.line, e.text);
        return 1;
    }
    span *s = calloc(json_array_size(all) + 1, sizeof *s);
    step *at = calloc((size_t)MOST_RANKS * MOST_STEPS, sizeof *at);
    if (!s || !at) return 2;
    json_array_foreach(all, i, o)
    {
        const char *name = json_string_value(json_object_get(o, "name")),
                   *ph = json_string_value(json_object_get(o, "ph"));
        const int pid = (int)json_integer_value(json_object_get(o, "pid"));
        if (!name || !ph || pid < 0 || pid >= ranks) {
            wrong("event %zu: no name, no ph, or of rank %d", i, pid);
            continue;
        }
        if (strcmp(ph, "M") == 0) check_metadata(o, i, name);
        if (strcmp(name, "process_name") == 0) {
            char want[32];
            (void)snprintf(want, sizeof want, "rank %d (", pid);
            const char *text =
                json_string_value(json_object_get(json_object_get(o, "args"), "name"));
            if (text && strncmp(text, want, strlen(want)) == 0) named[pid]++;
        } else if (strcmp(ph, "X") == 0) {
            const double begin = json_number_value(json_object_get(o, "ts")),
                         dur = json_number_value(json_object_get(o, "dur"));
            if (dur < 0) wrong("rank %d: '%s' takes %.3f us", pid, name, dur);
            /* Microseconds with three decimals are whole nanoseconds. */
            s[n++] = (span){name,
                            pid,
                            (int)json_integer_value(json_object_get(o, "tid")),
                            (double)llround(begin * 1e3),
                            (double)llround((begin + dur) * 1e3),
                            i};
        }
    }
    qsort(s, n, sizeof *s, by_row);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from; to < n && s[to].pid == s[from].pid && s[to].tid == s[from].tid; to++) {
        }
        check_row(s + from, to - from);
        for (size_t k = from; k < to; k++) {
            const int number = strncmp(s[k].name, "step ", 5) == 0 ? atoi(s[k].name + 5) : -1;
            if (number < 0 || number >= MOST_STEPS) continue;
            steps[s[k].pid]++;
            check_step(&s[k], s + to, ops, &at[s[k].pid * MOST_STEPS + number]);
        }
    }
    for (int r = 0; r < ranks; r++) {
        if (named[r] != 1) wrong("rank %d is named %d times", r, named[r]);
        if (steps[r] != want_steps) wrong("rank %d has %d steps", r, steps[r]);
    }
    for (int k = 0; k < MOST_STEPS; k++)
        for (int a = 0; a < ranks; a++)
            for (int b = 0; b < ranks; b++) {
                const step *x = &at[a * MOST_STEPS + k], *y = &at[b * MOST_STEPS + k];
                if (x->seen && y->seen && x->sum_end + 1e3 * slack < y->wait_begin)
                    wrong(
                        "step %d: rank %d has the sum %.1f us before rank %d began to wait for it",
                        k, a, (y->wait_begin - x->sum_end) * 1e-3, b);
            }
    (void)printf("%zu events, %zu spans, %d wrong\n", json_array_size(all), n, bad);
    free(s);
    free(at);
    json_decref(all);
    return bad > 0;
}
