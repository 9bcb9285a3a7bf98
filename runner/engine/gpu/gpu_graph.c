/* gpu_graph.c -- see gpu_graph.h. */
#include "gpu_graph.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* number of keys remembered; a new key replaces the key that was not used for the longest
     * time */
    MOST_KEYS = 256,
    /* number of keys that have graphs */
    MOST_GRAPHED = 32,
    /* number of tasks in a segment: the GPU begins while the host goes on */
    MOST_TASKS = 512,
    /* largest array in bytes that travels in the upload buffer */
    POST_MOST = 64 << 10,
    UPLOAD_MOST = 1 << 20,
    /* number of failed replays in a row, after which the graphs of a key are made again */
    STRIKES = 2,
    /* number of times that graphs of a key are made again, before the key is given up */
    RENEWALS = 3
};

typedef struct segment {
    rd_gpu_tasks tasks; /* with the arguments of the last run */
    rd_gpu_graph *graph;
    size_t upload; /* capacity of the upload buffer */
    uint64_t bytes;
} segment;

typedef struct entry {
    uint64_t key, used;
    int seen, strikes, renewals;
    bool never;
    segment *segment;
    int n, cap;
} entry;

enum state { CLOSED, PLAIN, RECORD, REPLAY };

struct rd_graphs {
    rd_gpu *gpu;
    const rd_graph_maker *maker;
    entry entry[MOST_KEYS];
    int n_entries;
    uint64_t clock;
    enum state state;
    entry *now;
    rd_gpu_tasks rec; /* RECORD: the segment so far */
    int segment, i;   /* REPLAY: place in the list of `now` */
    unsigned char *upload;
    size_t upload_used, upload_capacity;
    rd_gpu_graph_counts count;
    char note[256];
    bool noted;
};

static void tasks_release(rd_gpu_tasks *t)
{
    free(t->task);
    free(t->args);
    *t = (rd_gpu_tasks){0};
}

/* Doubles the capacity of a list, to at least `least`. */
static rd_code enlarge(void *list, size_t each, size_t least, size_t *capacity, rd_status *st)
{
    void *p;
    memcpy(&p, list, sizeof p);
    size_t more = 2 * *capacity > least ? 2 * *capacity : least;
    p = realloc(p, more * each);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for the list of a step's launches");
    memcpy(list, &p, sizeof p);
    *capacity = more;
    return st->code;
}

static rd_code gpu_graph_append(rd_gpu_tasks *t, rd_gpu_run *run, const void *args, size_t bytes,
                                size_t fixed, rd_status *st)
{
    const size_t padded = (bytes + 15) / 16 * 16;
    size_t cap = (size_t)t->cap;
    if (t->n == t->cap) RD_TRY(enlarge(&t->task, sizeof *t->task, MOST_TASKS / 8, &cap, st));
    t->cap = (int)cap;
    if (t->capacity - t->used < padded)
        RD_TRY(enlarge(&t->args, 1, t->used + padded + 4096, &t->capacity, st));
    memcpy(t->args + t->used, args, bytes);
    t->task[t->n++] = (rd_gpu_task){
        .run = run, .bytes = (uint32_t)bytes, .fixed = (uint32_t)fixed, .at = t->used};
    t->used += padded;
done:
    return st->code;
}

static void drop_segments(rd_graphs *q, entry *e)
{
    for (int i = 0; i < e->n; i++) {
        segment *s = &e->segment[i];
        if (s->graph) {
            q->maker->drop(q->gpu, s->graph);
            q->count.graphs--;
            q->count.bytes -= s->bytes;
        }
        tasks_release(&s->tasks);
    }
    free(e->segment);
    e->segment = NULL;
    e->n = e->cap = 0;
}

rd_code rd_graphs_new(rd_gpu *g, const rd_graph_maker *m, rd_graphs **out, rd_status *st)
{
    rd_graphs *q = *out = calloc(1, sizeof *q);
    if (!q) return rd_fail(st, RD_EENV, "out of memory for the list of graphs");
    q->gpu = g;
    q->maker = m;
    return st->code;
}

void rd_graphs_free(rd_graphs *q)
{
    if (!q) return;
    for (int i = 0; i < q->n_entries; i++) drop_segments(q, &q->entry[i]);
    tasks_release(&q->rec);
    free(q->upload);
    free(q);
}

/* ---- keys ---- */

/* Returns the entry that was not used for the longest time, among those with graphs or among
 * all. */
static entry *oldest(rd_graphs *q, bool graphed)
{
    entry *old = NULL;
    for (int i = 0; i < q->n_entries; i++) {
        entry *e = &q->entry[i];
        if ((e->n > 0 || !graphed) && (!old || e->used < old->used)) old = e;
    }
    return old;
}

static entry *entry_of(rd_graphs *q, uint64_t key)
{
    for (int i = 0; i < q->n_entries; i++)
        if (q->entry[i].key == key) return &q->entry[i];
    entry *e = q->n_entries < MOST_KEYS ? &q->entry[q->n_entries++] : oldest(q, false);
    drop_segments(q, e);
    *e = (entry){.key = key};
    return e;
}

static void gpu_graph_evict(rd_graphs *q)
{
    int graphed = 0;
    for (int i = 0; i < q->n_entries; i++) graphed += q->entry[i].n > 0;
    if (graphed < MOST_GRAPHED) return;
    entry *e = oldest(q, true);
    drop_segments(q, e);
    e->seen = 0;
}

static void gpu_graph_give_up(rd_graphs *q, entry *e, const char *why)
{
    drop_segments(q, e);
    e->never = true;
    q->count.given_up++;
    if (!q->note[0])
        (void)snprintf(
            q->note, sizeof q->note,
            "CUDA graphs: steps of one shape are launched one by one from here on: %.160s", why);
}

/* ---- segments ---- */

/* Runs the first n tasks one by one. */
static rd_code run_tasks(rd_graphs *q, const rd_gpu_tasks *t, int n, rd_status *st)
{
    for (int i = 0; i < n; i++) {
        const void *args = rd_gpu_args(t, i);
        if (t->task[i].run) {
            RD_TRY(t->task[i].run(q->gpu, args, st));
        } else {
            const rd_gpu_post *p = args;
            RD_TRY(q->maker->up(q->gpu, p->to, q->upload + p->from, p->bytes, st));
        }
    }
done:
    return st->code;
}

/* Leaves the graph: the program took another way than the last time, or the graph cannot take the
 * new arguments. The recorded tasks of this segment, and all later tasks, are launched one by
 * one. */
static rd_code leave_graph(rd_graphs *q, rd_status *st)
{
    entry *e = q->now;
    q->state = PLAIN;
    q->count.left++;
    if (q->segment < e->n) RD_TRY(run_tasks(q, &e->segment[q->segment].tasks, q->i, st));
    if (++e->strikes < STRIKES) goto done;
    drop_segments(q, e);
    e->seen = 1;
    e->strikes = 0;
    if (++e->renewals == RENEWALS) gpu_graph_give_up(q, e, "their work is never the same twice");
done:
    q->upload_used = 0;
    return st->code;
}

static rd_code gpu_graph_start(rd_graphs *q, segment *s, rd_status *st)
{
    q->count.started++;
    q->count.tasks += s->tasks.n;
    RD_TRY(q->maker->start(q->gpu, s->graph, q->upload, q->upload_used, st));
done:
    q->upload_used = 0;
    return st->code;
}

static rd_code flush_record(rd_graphs *q, rd_status *st)
{
    entry *e = q->now;
    rd_status own = {.code = RD_OK};
    size_t cap = (size_t)e->cap;
    if (q->rec.n == 0) return st->code;
    if (e->n == e->cap) RD_TRY(enlarge(&e->segment, sizeof *e->segment, 4, &cap, st));
    e->cap = (int)cap;
    segment *s = &e->segment[e->n++];
    *s = (segment){.tasks = q->rec, .upload = q->upload_used + q->upload_used / 4 + 1024};
    q->rec = (rd_gpu_tasks){0};
    if (q->maker->make(q->gpu, &s->tasks, s->upload, &s->graph, &s->bytes, &own) == RD_OK) {
        q->count.graphs++;
        q->count.bytes += s->bytes;
        return gpu_graph_start(q, s, st);
    }
    q->state = PLAIN;
    RD_TRY(run_tasks(q, &s->tasks, s->tasks.n, st));
    q->upload_used = 0;
    gpu_graph_give_up(q, e, own.msg);
done:
    return st->code;
}

static rd_code flush_replay(rd_graphs *q, rd_status *st)
{
    entry *e = q->now;
    if (q->i == 0) return st->code;
    segment *s = &e->segment[q->segment];
    if (q->i < s->tasks.n || q->upload_used > s->upload) return leave_graph(q, st);
    for (int i = 0; i < s->tasks.n; i++) {
        rd_gpu_task *t = &s->tasks.task[i];
        rd_status own = {.code = RD_OK};
        if (!t->changed) continue;
        if (q->maker->set(q->gpu, s->graph, i, t, rd_gpu_args(&s->tasks, i), &own) != RD_OK) {
            e->strikes = STRIKES; /* the graph may be half changed */
            return leave_graph(q, st);
        }
        t->changed = false;
        q->count.set++;
    }
    q->segment++;
    q->i = 0;
    return gpu_graph_start(q, s, st);
}

rd_code rd_graphs_flush(rd_graphs *q, rd_status *st)
{
    if (!q || st->code != RD_OK) return st->code;
    if (q->state == RECORD) return flush_record(q, st);
    if (q->state == REPLAY) return flush_replay(q, st);
    return st->code;
}

rd_code rd_graphs_begin(rd_graphs *q, uint64_t key, rd_status *st)
{
    if (!q) return st->code;
    entry *e = q->now = entry_of(q, key);
    e->used = ++q->clock;
    q->rec.n = 0;
    q->rec.used = q->upload_used = 0;
    q->segment = q->i = 0;
    q->state = PLAIN;
    if (e->never || e->seen++ == 0) return st->code;
    q->state = e->n > 0 ? REPLAY : RECORD;
    if (q->state == RECORD) gpu_graph_evict(q);
    return st->code;
}

rd_code rd_graphs_end(rd_graphs *q, rd_status *st)
{
    if (!q || q->state == CLOSED) return st->code;
    (void)rd_graphs_flush(q, st);
    if (q->state == REPLAY) {
        if (q->segment < q->now->n)
            q->now->strikes++;
        else
            q->now->strikes = 0;
    }
    /* After a failure the segments are dropped: half of a step is no graph. A drop frees memory,
     * which flushes, so the work is closed first. */
    const bool half = q->state == RECORD && st->code != RD_OK;
    q->state = CLOSED;
    q->rec.n = 0;
    if (half) drop_segments(q, q->now);
    return st->code;
}

/* Returns whether the task fits at the current place of the list. If so, its arguments replace
 * those in the list. */
static bool accept_task(rd_graphs *q, rd_gpu_run *run, const void *args, size_t bytes, size_t fixed)
{
    if (q->segment >= q->now->n) return false;
    rd_gpu_tasks *t = &q->now->segment[q->segment].tasks;
    if (q->i == t->n) return false;
    rd_gpu_task *k = &t->task[q->i];
    if (k->run != run || k->bytes != bytes || k->fixed != fixed ||
        memcmp(t->args + k->at, args, fixed) != 0)
        return false;
    if (memcmp(t->args + k->at, args, bytes) != 0) {
        memcpy(t->args + k->at, args, bytes);
        k->changed = true;
    }
    q->i++;
    return true;
}

/* Records a task. False: the caller must run it now. */
static bool record_task(rd_graphs *q, rd_gpu_run *run, const void *args, size_t bytes, size_t fixed,
                        rd_status *st)
{
    if (q->state == CLOSED) return false;
    q->count.all++;
    if (q->state == RECORD) {
        if (gpu_graph_append(&q->rec, run, args, bytes, fixed, st) == RD_OK &&
            q->rec.n == MOST_TASKS)
            (void)flush_record(q, st);
        return true;
    }
    if (q->state != REPLAY) return false;
    if (!accept_task(q, run, args, bytes, fixed)) {
        (void)leave_graph(q, st);
        return false;
    }
    if (q->i == MOST_TASKS) (void)flush_replay(q, st);
    return true;
}

rd_code rd_graphs_task(rd_graphs *q, rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes,
                       size_t fixed, rd_status *st)
{
    if (q && record_task(q, run, args, bytes, fixed, st)) return st->code;
    return st->code == RD_OK ? run(g, args, st) : st->code;
}

bool rd_graphs_up(rd_graphs *q, void *device, const void *host, size_t bytes, rd_status *st)
{
    if (!q || q->state == CLOSED) return false;
    if (q->state == PLAIN) {
        q->count.all++;
        return false;
    }
    if (bytes > POST_MOST || q->upload_used + bytes > UPLOAD_MOST)
        return rd_graphs_flush(q, st) != RD_OK;
    const size_t padded = (bytes + 15) / 16 * 16;
    if (q->upload_capacity - q->upload_used < padded &&
        enlarge(&q->upload, 1, q->upload_used + padded + POST_MOST, &q->upload_capacity, st) !=
            RD_OK)
        return true;
    const rd_gpu_post p = {device, q->upload_used, bytes};
    memcpy(q->upload + q->upload_used, host, bytes);
    q->upload_used += padded;
    return record_task(q, NULL, &p, sizeof p, 0, st) || st->code != RD_OK;
}

void rd_graphs_count(const rd_graphs *q, rd_gpu_graph_counts *out)
{
    *out = q ? q->count : (rd_gpu_graph_counts){0};
}

const char *rd_graphs_note(rd_graphs *q)
{
    if (!q || !q->note[0] || q->noted) return NULL;
    q->noted = true;
    return q->note;
}
