/* cross_flow.c -- sums an array in parts while the rest of the array is being computed.
 *
 * A part starts when every rank of the host has counted it as ready, in memory that they share. No
 * rank waits in a barrier. Each owner then sums its slice of the part over the ranks of its host,
 * in place, and over the same owners of the other hosts (cross_sum.c). It does that in chunks,
 * several at a time. It copies the result to the ranks of its host and counts the part as done. The
 * round ends when all owners have done all parts. All ranks start the parts in the order of the
 * list, so no two ranks wait for different parts of each other.
 *
 * The caller moves the sums on, in rd_flow_finish or, between its own work, in rd_flow_poll. Or a
 * thread does, from the first rd_flow_ready of a round to rd_flow_pause. The thread polls when a
 * part is ready and every tenth of a millisecond, so it needs no separate core. If it has its own
 * core, it polls all the time: in a tenth of a millisecond a link of 10 Gbit/s carries a quarter of
 * a chunk.
 *
 * If each host needs only its part of the result (shard.c), the chunks are the stripes of that
 * part's owner, and a sum ends when each host has its piece.
 *
 * Without shared memory every rank counts as a host. On one host no transfer can be hidden, so the
 * parts are summed as by rd_comm_sum_f32, neighbours together. */
#include "comm_mpi.h"
#include "shard_impl.h"
#include "tree_sum.h"
#include "rd/clock.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TAGS = 512,       /* chunks until tags repeat */
    POLL_NS = 100000, /* time between two polls of a thread without its own core */
    /* Polls without success after which a thread with its own core waits, too: a
     * millisecond or more. */
    BUSY_POLLS = 1000,
};

/* A piece of this rank's slice of a part. */
typedef struct chunk {
    int64_t from, n; /* elements of the array; n = 0: the slice is empty */
    int part;
    bool last;          /* the last chunk of the part */
    const int64_t *cut; /* borrowed; where the pieces of a stripe begin; NULL: no stripe */
} chunk;

struct rd_flow {
    rd_comm *c;
    rd_flow_mode mode;
    rd_wire wire;
    const rd_shard *shard; /* borrowed; NULL: all hosts get the whole sums */
    float *x;
    rd_flow_part *part;
    int n_parts;
    rd_flow_times last;
    bool between_hosts; /* something is sent to others; only then the fields below are set */
    MPI_Comm comm;      /* owned; the owners of the same slice on all hosts */
    rd_cross *cross;    /* owned; NULL: this rank owns no slice */
    rd_cross_job *job[RD_CROSS_DEEP]; /* owned */
    bool finished[RD_CROSS_DEEP];     /* the chunk of this job is summed */
    int n_local, me, n_owners, spins; /* as in rd_host */
    float **to;                       /* owned; [n_local]: x of each rank of the host */
    rd_host_arena_flag **flag;        /* owned; [n_local] */
    rd_host_arena_flag own;           /* this rank's flag if no memory is shared */
    uint64_t rounds;                  /* rounds that have ended */
    chunk *chunk;                     /* owned; [n_chunks], in the order of the parts */
    int n_chunks, begun, retired;     /* chunks of a round: all, begun, done */
    int n_ready, n_done; /* parts of this round: ready on this rank, done by all owners */
    int64_t busy_ns;     /* time of this round in which a chunk was in progress */
    int64_t since_ns;    /* when the present such time began */
    int64_t sent;        /* bytes sent before this round */
    rd_status status;    /* the first failure; rd_flow_finish returns it */
    pthread_t thread;
    bool has_thread, awake;  /* awake: the thread works on this round */
    atomic_bool pause, quit; /* requests to the thread */
    /* go: the thread begins a round; wake: there is something new; idle: the thread has paused. */
    sem_t go, wake, idle;
};

const char *rd_wire_name(rd_wire w)
{
    return w == RD_WIRE_BF16 ? "bfloat16" : w == RD_WIRE_F16 ? "float16" : "float32";
}

rd_flow_mode rd_flow_mode_of(const rd_flow *f)
{
    return f->mode;
}
const rd_flow_part *rd_flow_parts(const rd_flow *f)
{
    return f->part;
}
const rd_flow_times *rd_flow_last(const rd_flow *f)
{
    return &f->last;
}

/* ---- one poll ---- */

/* Returns what a flag counts after this number of parts of the round. */
static uint64_t flow_count(const rd_flow *f, int parts)
{
    return f->rounds * (uint64_t)f->n_parts + (uint64_t)parts;
}

static bool flow_all_ready(const rd_flow *f, int part)
{
    const uint64_t want = flow_count(f, part + 1);
    for (int r = 0; r < f->n_local; r++)
        if (atomic_load_explicit(&f->flag[r]->ready, memory_order_acquire) < want) return false;
    return true;
}

static bool flow_all_done(const rd_flow *f, int part)
{
    const uint64_t want = flow_count(f, part + 1);
    for (int r = 0; r < f->n_owners; r++)
        if (atomic_load_explicit(&f->flag[r]->done, memory_order_acquire) < want) return false;
    return true;
}

/* Sums a chunk over the ranks of the host and starts its sum between hosts. */
static void flow_begin_chunk(rd_flow *f, const chunk *k)
{
    const int slot = f->begun % RD_CROSS_DEEP;
    rd_assert(k->part >= 0 && k->part < f->n_parts);
    rd_assert(k->cut || k->n <= rd_cross_chunk(f->wire));
    rd_assert(f->begun < f->n_chunks && f->begun - f->retired < RD_CROSS_DEEP);
    float *mine = f->to[f->me] + k->from;
    if (f->begun == f->retired) f->since_ns = rd_now_ns();
    if (f->begun == 0 || f->chunk[f->begun - 1].part != k->part)
        f->part[k->part].begin_ns = rd_now_ns();
    f->finished[slot] = k->n == 0 || f->status.code != RD_OK;
    f->begun++;
    if (f->finished[slot]) return;
    if (f->n_local > 1) {
        const float *src[RD_MAX_LOCAL];
        for (int r = 0; r < f->n_local; r++) src[r] = f->to[r] + k->from;
        rd_tree_sum_f32(mine, (const void *const *)src, f->n_local, (size_t)k->n);
    }
    const int tag = RD_CROSS_TAGS * (1 + (f->begun - 1) % TAGS);
    const rd_code code = k->cut ? rd_cross_start_pieces(f->job[slot], mine, k->cut, false, tag,
                                                        &f->status)
                                : rd_cross_start(f->job[slot], mine, k->n, tag, &f->status);
    if (code != RD_OK) f->finished[slot] = true;
}

/* Copies a finished chunk to the ranks of the host. After a failure the sums are wrong and are
 * never used, but no rank of this host waits for ever. */
static void flow_retire_chunk(rd_flow *f, const chunk *k)
{
    const int64_t lo = k->cut ? k->cut[f->shard->place] : 0,
                  hi = k->cut ? k->cut[f->shard->place + 1] : k->n, from = k->from + lo;
    for (int r = 0; r < f->n_local && f->status.code == RD_OK; r++)
        if (r != f->me)
            memcpy(f->to[r] + from, f->to[f->me] + from, (size_t)(hi - lo) * sizeof(float));
    if (k->last)
        atomic_store_explicit(&f->flag[f->me]->done, flow_count(f, k->part + 1),
                              memory_order_release);
    rd_assert(f->retired < f->begun);
    f->retired++;
    if (f->retired == f->begun) f->busy_ns += rd_now_ns() - f->since_ns;
}

/* Moves the sums on without waiting. Returns whether a chunk began or finished. */
static bool flow_advance(rd_flow *f)
{
    bool moved = false;
    while (f->begun < f->n_chunks && f->begun - f->retired < RD_CROSS_DEEP &&
           flow_all_ready(f, f->chunk[f->begun].part)) {
        flow_begin_chunk(f, &f->chunk[f->begun]);
        moved = true;
    }
    for (int i = f->retired; i < f->begun; i++) {
        const int slot = i % RD_CROSS_DEEP;
        if (f->finished[slot]) continue;
        if (rd_cross_poll(f->job[slot], &f->finished[slot], &f->status) != RD_OK)
            f->finished[slot] = true;
        moved |= f->finished[slot];
    }
    while (f->retired < f->begun && f->finished[f->retired % RD_CROSS_DEEP])
        flow_retire_chunk(f, &f->chunk[f->retired]);
    while (f->n_done < f->n_parts && flow_all_done(f, f->n_done))
        f->part[f->n_done++].end_ns = rd_now_ns();
    return moved;
}

/* ---- the thread ---- */

static void flow_sleep(int64_t ns)
{
    const struct timespec t = {.tv_nsec = ns};
    nanosleep(&t, NULL);
}

/* Waits until there is something new, or until it is time to poll for messages of other hosts. */
static void flow_wait(rd_flow *f)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += POLL_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    (void)sem_clockwait(&f->wake, CLOCK_MONOTONIC, &t);
}

static void *flow_thread(void *p)
{
    rd_flow *f = p;
    const int polls = f->mode == RD_FLOW_CORE ? BUSY_POLLS : 0;
    for (;;) {
        while (sem_wait(&f->go) != 0) continue;
        if (atomic_load(&f->quit)) return NULL;
        int idle = 0; /* polls in a row that found nothing */
        while (!atomic_load(&f->pause)) {
            idle = flow_advance(f) ? 0 : idle + 1;
            if (idle > polls)
                flow_wait(f);
            else if (idle > 0)
                sched_yield();
        }
        sem_post(&f->idle);
    }
}

static rd_code flow_start_thread(rd_flow *f, rd_status *st)
{
    sigset_t all, before;
    sem_init(&f->go, 0, 0);
    sem_init(&f->wake, 0, 0);
    sem_init(&f->idle, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the main thread handles signals */
    f->has_thread = pthread_create(&f->thread, NULL, flow_thread, f) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return f->has_thread
               ? RD_OK
               : rd_fail(st, RD_EENV,
                         "cannot start a thread for the sums between hosts; set overlap to calls");
}

/* ---- a round ---- */

void rd_flow_ready(rd_flow *f, int n)
{
    rd_assert(n <= f->n_parts);
    if (!f->between_hosts || n <= f->n_ready) return;
    for (int i = f->n_ready; i < n; i++) f->part[i].begin_ns = rd_now_ns();
    f->n_ready = n;
    atomic_store_explicit(&f->flag[f->me]->ready, flow_count(f, n), memory_order_release);
    /* After the last part the caller moves the sums on by itself. */
    if (!f->has_thread || n == f->n_parts) return;
    if (f->awake) {
        sem_post(&f->wake);
        return;
    }
    f->awake = true;
    atomic_store(&f->pause, false);
    sem_post(&f->go);
}

void rd_flow_poll(rd_flow *f)
{
    if (f->between_hosts && f->mode == RD_FLOW_CALLS) (void)flow_advance(f);
}

void rd_flow_pause(rd_flow *f)
{
    if (!f->awake) return;
    atomic_store(&f->pause, true);
    sem_post(&f->wake);
    while (sem_wait(&f->idle) != 0) continue;
    f->awake = false;
}

/* Sums all parts on one host, neighbouring parts in one call. */
static rd_code flow_sum_at_once(rd_flow *f, rd_status *st)
{
    const int64_t begin_ns = rd_now_ns();
    for (int i = 0; i < f->n_parts;) {
        int k = i + 1;
        while (k < f->n_parts && f->part[k].from == f->part[k - 1].from + f->part[k - 1].n) k++;
        const int64_t part_ns = rd_now_ns(),
                      n = f->part[k - 1].from + f->part[k - 1].n - f->part[i].from;
        RD_TRY(rd_comm_sum_f32(f->c, f->x + f->part[i].from, n, st));
        const int64_t end_ns = rd_now_ns();
        for (; i < k; i++) {
            /* Equal times show exchange.c that the parts were summed together. */
            f->part[i].begin_ns = part_ns;
            f->part[i].end_ns = end_ns;
        }
    }
    f->last.total_s = f->last.exposed_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    return st->code;
}

rd_code rd_flow_finish(rd_flow *f, rd_status *st)
{
    const int polls = f->mode == RD_FLOW_CORE ? BUSY_POLLS : 50;
    int idle = 0;
    if (!f->between_hosts) return flow_sum_at_once(f, st);
    const int64_t begin_ns = rd_now_ns();
    rd_flow_ready(f, f->n_parts);
    rd_flow_pause(f);
    while (f->n_done < f->n_parts) {
        idle = flow_advance(f) ? 0 : idle + 1;
        if (idle > f->spins + polls)
            flow_sleep(POLL_NS / 2);
        else if (idle > f->spins)
            sched_yield();
    }
    f->last.exposed_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
    f->last.total_s = (double)f->busy_ns * 1e-9;
    if (f->cross) f->last.wire_bytes = f->cross->sent - f->sent;
    if (f->cross) f->sent = f->cross->sent;
    rd_assert(f->begun == f->n_chunks && f->retired == f->n_chunks && f->n_ready == f->n_parts);
    rd_assert(!f->awake); /* the thread has paused */
    f->rounds++;
    f->begun = f->retired = f->n_ready = f->n_done = 0;
    f->busy_ns = 0;
    if (st->code == RD_OK && f->status.code != RD_OK) *st = f->status;
    return st->code;
}

/* ---- start and end ---- */

void rd_flow_free(rd_flow *f)
{
    if (!f) return;
    if (f->has_thread) {
        rd_flow_pause(f);
        atomic_store(&f->quit, true);
        sem_post(&f->go);
        pthread_join(f->thread, NULL);
        sem_destroy(&f->go);
        sem_destroy(&f->wake);
        sem_destroy(&f->idle);
    }
    /* After a failure MPI may still write to the buffers of jobs in progress. They are not freed;
     * the process ends soon. */
    if (f->begun == f->retired && f->status.code == RD_OK) {
        for (int i = 0; i < RD_CROSS_DEEP; i++) rd_cross_job_free(f->job[i]);
        rd_cross_free(f->cross);
        if (f->comm != MPI_COMM_NULL) MPI_Comm_free(&f->comm);
    }
    free(f->to);
    free(f->flag);
    free(f->chunk);
    free(f->part);
    free(f);
}

/* Finds this rank's slice of each part and cuts it into chunks. */
static rd_code flow_make_chunks(rd_flow *f, const rd_host *w, rd_status *st)
{
    const chunk *none = NULL;
    const int64_t most = rd_cross_chunk(f->wire);
    int n = 0;
    for (int twice = 0; twice < 2; twice++) {
        n = 0;
        for (int i = 0; i < f->n_parts; i++) {
            int64_t lo = 0, hi = f->part[i].n;
            if (w) rd_host_arena_slice(w, f->part[i].n, &lo, &hi);
            do {
                const int64_t m = hi - lo < most ? hi - lo : most;
                if (f->chunk != none)
                    f->chunk[n] = (chunk){
                        .from = f->part[i].from + lo, .n = m, .part = i, .last = lo + m == hi};
                n++;
                lo += m;
            } while (lo < hi);
        }
        if (twice == 0) f->chunk = calloc((size_t)n + 1, sizeof *f->chunk);
        if (!f->chunk) return rd_fail(st, RD_EENV, "out of memory for the sums between hosts");
    }
    rd_assert(n >= f->n_parts);
    f->n_chunks = n;
    return RD_OK;
}

/* Makes this rank's stripes to chunks. A part without a stripe of this rank gets an empty one. */
static rd_code flow_take_stripes(rd_flow *f, rd_status *st)
{
    const rd_shard *s = f->shard;
    int n = 0, k = 0;
    f->chunk = calloc((size_t)s->n_stripes + (size_t)f->n_parts + 1, sizeof *f->chunk);
    if (!f->chunk) return rd_fail(st, RD_EENV, "out of memory for the sums between hosts");
    for (int i = 0; i < f->n_parts; i++) {
        const int first = n;
        for (; k < s->n_stripes && s->stripe[k].part == i; k++)
            f->chunk[n++] = (chunk){
                .from = s->stripe[k].from, .n = s->stripe[k].n, .part = i, .cut = s->stripe[k].cut};
        if (n == first) f->chunk[n++] = (chunk){.part = i};
        f->chunk[n - 1].last = true;
    }
    f->n_chunks = n;
    return RD_OK;
}

/* Does what needs no other rank. */
static rd_code flow_prepare(rd_flow *f, const rd_host *w, const rd_host_arena *a, rd_status *st)
{
    const int64_t at = a ? f->x - rd_host_arena_mine(a) : 0;
    f->n_local = f->n_owners = 1;
    if (a) {
        f->n_local = w->n_local;
        f->n_owners = w->n_owners;
        f->me = w->me;
        f->spins = w->spins;
    }
    f->to = calloc((size_t)f->n_local, sizeof *f->to);
    f->flag = calloc((size_t)f->n_local, sizeof *f->flag);
    if (!f->to || !f->flag) return rd_fail(st, RD_EENV, "out of memory for the sums between hosts");
    for (int r = 0; r < f->n_local; r++) {
        f->to[r] = a ? rd_host_arena_of(a, r) + at : f->x;
        f->flag[r] = a ? rd_host_arena_flag_of(a, r) : &f->own;
    }
    /* An earlier flow has counted here. The agreement that follows is also a barrier. */
    atomic_store(&f->flag[f->me]->ready, 0);
    atomic_store(&f->flag[f->me]->done, 0);
    if (f->me >= f->n_owners) return RD_OK; /* other ranks own the slices */
    return f->shard ? flow_take_stripes(f, st) : flow_make_chunks(f, a ? w : NULL, st);
}

/* Makes the jobs. */
static rd_code flow_connect(rd_flow *f, rd_status *st)
{
    int64_t most = rd_cross_chunk(f->wire), received = -1;
    RD_TRY(rd_cross_new(f->comm, &f->cross, st));
    if (f->shard) most = rd_shard_longest(f->shard);
    for (int i = 0; f->shard && i < f->shard->n_stripes; i++) {
        const int64_t n = rd_cross_received(f->cross, f->shard->stripe[i].cut);
        if (n > received) received = n;
    }
    for (int i = 0; i < RD_CROSS_DEEP; i++)
        RD_TRY(rd_cross_job_new(f->cross, most, received, f->wire, NULL, &f->job[i], st));
done:
    return st->code;
}

static rd_code flow_new(rd_comm *c, float *x, const rd_flow_part *part, int n_parts, rd_wire wire,
                        const rd_shard *shard, rd_flow_mode mode, rd_flow **out, rd_status *st)
{
    MPI_Comm world = MPI_COMM_NULL;
    rd_host *w = NULL;
    rd_host_arena *a = NULL;
    rd_flow *f = calloc(1, sizeof *f);
    *out = NULL;
    if (f) {
        *f = (rd_flow){.c = c,
                       .x = x,
                       .wire = wire,
                       .shard = shard,
                       .n_parts = n_parts,
                       .comm = MPI_COMM_NULL};
        f->part = malloc(((size_t)n_parts + 1) * sizeof *part);
    }
    if (!f || !f->part) rd_fail(st, RD_EENV, "out of memory for the sums of %d parts", n_parts);
    if (c->w.size > 1)
        RD_TRY(rd_comm_agree(c, st));
    else
        RD_TRY(st->code);
    if (!f || !f->part) goto done;
    memcpy(f->part, part, (size_t)n_parts * sizeof *part);
    f->between_hosts = (c->w.n_hosts > 1 || shard) && n_parts > 0;
    if (f->between_hosts) {
        f->mode = mode >= RD_FLOW_THREAD && !c->threads ? RD_FLOW_CALLS : mode;
        rd_mpi_inside(c, &world, &w, &a);
        (void)flow_prepare(f, w, a, st);
        RD_TRY(rd_comm_agree(c, st));
        if (!a)
            RD_TRY(RD_MPI(MPI_Comm_dup(world, &f->comm), st));
        else if (w->cross)
            RD_TRY(RD_MPI(MPI_Comm_dup(w->cross_comm, &f->comm), st));
        if (f->comm != MPI_COMM_NULL) {
            RD_TRY(RD_MPI(MPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN), st));
            (void)flow_connect(f, st);
        }
        if (st->code == RD_OK && f->mode >= RD_FLOW_THREAD && f->n_chunks > 0)
            (void)flow_start_thread(f, st);
        RD_TRY(rd_comm_agree(c, st));
    }
    *out = f;
    return RD_OK;
done:
    rd_flow_free(f);
    return st->code;
}

rd_code rd_flow_new(rd_comm *c, float *x, const rd_flow_part *part, int n_parts, rd_wire wire,
                    rd_flow_mode mode, rd_flow **out, rd_status *st)
{
    return flow_new(c, x, part, n_parts, wire, NULL, mode, out, st);
}

rd_code rd_shard_flow(rd_shard *s, float *x, rd_flow_mode mode, rd_flow **out, rd_status *st)
{
    return flow_new(s->c, x, s->part, s->n_parts, s->wire, s, mode, out, st);
}
