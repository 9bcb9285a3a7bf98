/* gpu_graph.c -- see gpu_graph.h. */
#include "gpu_graph.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_KEYS = 256,      /* remembered; the one not used for longest makes room */
    MOST_GRAPHED = 32,    /* of these have graphs */
    MOST_TASKS = 512,     /* of a segment: the GPU begins while the host goes on */
    POST_MOST = 64 << 10, /* bytes of an array that goes with the letter */
    LETTER_MOST = 1 << 20,
    STRIKES = 2, /* one after the other: the graphs of a key are made anew */
    RENEWALS = 3 /* then the key has had its chances */
};

typedef struct segment {
    rd_gpu_tasks tasks; /* with the arguments of the last time */
    rd_gpu_graph *graph;
    size_t letter; /* room */
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
    int segment, i;   /* REPLAY: where in now's list */
    unsigned char *letter;
    size_t letter_used, letter_room;
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

/* Twice as large, or `least`. */
static rd_code enlarge(void *list, size_t each, size_t least, size_t *room, rd_status *st)
{
    void *p;
    memcpy(&p, list, sizeof p);
    size_t more = 2 * *room > least ? 2 * *room : least;
    p = realloc(p, more * each);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for the list of a step's launches");
    memcpy(list, &p, sizeof p);
    *room = more;
    return st->code;
}

static rd_code gpu_graph_append(rd_gpu_tasks *t, rd_gpu_run *run, const void *args, size_t bytes,
                                size_t fixed, rd_status *st)
{
    const size_t room = (bytes + 15) / 16 * 16;
    size_t cap = (size_t)t->cap;
    if (t->n == t->cap) RD_TRY(enlarge(&t->task, sizeof *t->task, MOST_TASKS / 8, &cap, st));
    t->cap = (int)cap;
    if (t->room - t->used < room) RD_TRY(enlarge(&t->args, 1, t->used + room + 4096, &t->room, st));
    memcpy(t->args + t->used, args, bytes);
    t->task[t->n++] = (rd_gpu_task){
        .run = run, .bytes = (uint32_t)bytes, .fixed = (uint32_t)fixed, .at = t->used};
    t->used += room;
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
    free(q->letter);
    free(q);
}

/* ---- keys ---- */

/* The one not used for longest, among those that have graphs or among all. */
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

static void gpu_graph_make_room(rd_graphs *q)
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

/* The first n tasks, one by one. */
static rd_code play(rd_graphs *q, const rd_gpu_tasks *t, int n, rd_status *st)
{
    for (int i = 0; i < n; i++) {
        const void *args = rd_gpu_args(t, i);
        if (t->task[i].run) {
            RD_TRY(t->task[i].run(q->gpu, args, st));
        } else {
            const rd_gpu_post *p = args;
            RD_TRY(q->maker->up(q->gpu, p->to, q->letter + p->from, p->bytes, st));
        }
    }
done:
    return st->code;
}

/* The program took another way than the last time, or the graph does not take what is new: what was written down of
 * this segment, and what comes, is launched one by one. */
static rd_code leave(rd_graphs *q, rd_status *st)
{
    entry *e = q->now;
    q->state = PLAIN;
    q->count.left++;
    if (q->segment < e->n) RD_TRY(play(q, &e->segment[q->segment].tasks, q->i, st));
    if (++e->strikes < STRIKES) goto done;
    drop_segments(q, e);
    e->seen = 1;
    e->strikes = 0;
    if (++e->renewals == RENEWALS) gpu_graph_give_up(q, e, "their work is never the same twice");
done:
    q->letter_used = 0;
    return st->code;
}

static rd_code gpu_graph_start(rd_graphs *q, segment *s, rd_status *st)
{
    q->count.started++;
    q->count.tasks += s->tasks.n;
    RD_TRY(q->maker->start(q->gpu, s->graph, q->letter, q->letter_used, st));
done:
    q->letter_used = 0;
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
    *s = (segment){.tasks = q->rec, .letter = q->letter_used + q->letter_used / 4 + 1024};
    q->rec = (rd_gpu_tasks){0};
    if (q->maker->make(q->gpu, &s->tasks, s->letter, &s->graph, &s->bytes, &own) == RD_OK) {
        q->count.graphs++;
        q->count.bytes += s->bytes;
        return gpu_graph_start(q, s, st);
    }
    q->state = PLAIN;
    RD_TRY(play(q, &s->tasks, s->tasks.n, st));
    q->letter_used = 0;
    gpu_graph_give_up(q, e, own.msg);
done:
    return st->code;
}

static rd_code flush_replay(rd_graphs *q, rd_status *st)
{
    entry *e = q->now;
    if (q->i == 0) return st->code;
    segment *s = &e->segment[q->segment];
    if (q->i < s->tasks.n || q->letter_used > s->letter) return leave(q, st);
    for (int i = 0; i < s->tasks.n; i++) {
        rd_gpu_task *t = &s->tasks.task[i];
        rd_status own = {.code = RD_OK};
        if (!t->changed) continue;
        if (q->maker->set(q->gpu, s->graph, i, t, rd_gpu_args(&s->tasks, i), &own) != RD_OK) {
            e->strikes = STRIKES; /* it may be half changed */
            return leave(q, st);
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
    q->rec.used = q->letter_used = 0;
    q->segment = q->i = 0;
    q->state = PLAIN;
    if (e->never || e->seen++ == 0) return st->code;
    q->state = e->n > 0 ? REPLAY : RECORD;
    if (q->state == RECORD) gpu_graph_make_room(q);
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
    /* A failure on the way: half of a step is no graph. */
    if (q->state == RECORD && st->code != RD_OK) drop_segments(q, q->now);
    q->state = CLOSED;
    return st->code;
}

/* Whether the task fits where the list is now; its arguments are then those of the list. */
static bool accept(rd_graphs *q, rd_gpu_run *run, const void *args, size_t bytes, size_t fixed)
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

/* Written down: true; else it has to be done now. */
static bool write_down(rd_graphs *q, rd_gpu_run *run, const void *args, size_t bytes, size_t fixed,
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
    if (!accept(q, run, args, bytes, fixed)) {
        (void)leave(q, st);
        return false;
    }
    if (q->i == MOST_TASKS) (void)flush_replay(q, st);
    return true;
}

rd_code rd_graphs_task(rd_graphs *q, rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes,
                       size_t fixed, rd_status *st)
{
    if (q && write_down(q, run, args, bytes, fixed, st)) return st->code;
    return st->code == RD_OK ? run(g, args, st) : st->code;
}

bool rd_graphs_up(rd_graphs *q, void *device, const void *host, size_t bytes, rd_status *st)
{
    if (!q || q->state == CLOSED) return false;
    if (q->state == PLAIN) {
        q->count.all++;
        return false;
    }
    if (bytes > POST_MOST || q->letter_used + bytes > LETTER_MOST)
        return rd_graphs_flush(q, st) != RD_OK;
    const size_t room = (bytes + 15) / 16 * 16;
    if (q->letter_room - q->letter_used < room &&
        enlarge(&q->letter, 1, q->letter_used + room + POST_MOST, &q->letter_room, st) != RD_OK)
        return true;
    const rd_gpu_post p = {device, q->letter_used, bytes};
    memcpy(q->letter + q->letter_used, host, bytes);
    q->letter_used += room;
    return write_down(q, NULL, &p, sizeof p, 0, st) || st->code != RD_OK;
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
