/* cross_flow.c -- the sum of an array in parts, which goes on while the rest of the array is being computed.
 *
 * A part is issued when every rank of the host has counted it as ready, in a line of memory that they share: nobody waits in a
 * barrier. Then each owner adds up its slice of the part over the ranks of its host, in place, sums that with the same
 * owners of the other hosts (cross_sum.c, in chunks, some of them under way at a time), hands the result to the ranks of its host,
 * and counts the part as done. When all owners have done all parts, the round is over. Parts are issued in the order of
 * the list on every rank, so no two ranks wait for each other's other part.
 *
 * Who moves it on: the caller, in rd_flow_finish or, between its own work, in rd_flow_poll; or a thread, from the first rd_flow_ready of a
 * round to rd_flow_take. It looks when a part is ready and every tenth of a millisecond, so that it needs no processor of its own; or,
 * where it has one, all the time: in a tenth of a millisecond a link of 10 Gbit/s carries a quarter of a chunk.
 *
 * Without memory in common every rank counts as a host. On one host there is nothing that waiting could hide: the parts are summed as
 * rd_comm_sum_f32 does, neighbours together. */
#include "comm_mpi.h"
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
    TAGS = 512, /* chunks until tags repeat */
    LOOK_NS = 100000,
    LOOKS =
        1000, /* of a thread with a processor of its own, a millisecond or more, until it rests all the same */
};

typedef struct chunk { /* of this rank's slices */
    int64_t from, n;   /* elements of a part of an arena; n 0: the slice of `part` is empty */
    int part;
    bool last; /* of this part */
} chunk;

struct rd_flow {
    rd_comm *c;
    rd_flow_mode mode;
    rd_wire wire;
    float *x;
    rd_flow_part *part;
    int n_parts;
    rd_flow_times last;
    bool moves; /* the rest is there: several hosts */
    MPI_Comm comm;
    rd_cross *cross; /* NULL for no owner */
    rd_cross_job *job[RD_CROSS_DEEP];
    bool finished[RD_CROSS_DEEP];
    int n_local, me, n_owners, spins;
    float **to;                /* [n_local]: x, of each rank of the host */
    rd_host_arena_flag **flag; /* [n_local] */
    rd_host_arena_flag own;    /* where no memory is shared */
    uint64_t rounds;
    chunk *chunk;
    int n_chunks, begun, retired; /* chunks of this round */
    int n_ready, seen;            /* parts of this round: ready on this rank, done by all owners */
    int64_t busy_ns, since_ns, sent;
    rd_status status;
    pthread_t thread;
    bool has_thread, awake;
    atomic_bool give_back, quit;
    sem_t go, poke, idle; /* poke: the thread has something new to look at */
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

/* ---- one look at what can go on ---- */

static uint64_t cross_flow_count(const rd_flow *f, int parts)
{
    return f->rounds * (uint64_t)f->n_parts + (uint64_t)parts;
}

static bool all_ready(const rd_flow *f, int part)
{
    const uint64_t want = cross_flow_count(f, part + 1);
    for (int r = 0; r < f->n_local; r++)
        if (atomic_load_explicit(&f->flag[r]->ready, memory_order_acquire) < want) return false;
    return true;
}

static bool all_done(const rd_flow *f, int part)
{
    const uint64_t want = cross_flow_count(f, part + 1);
    for (int r = 0; r < f->n_owners; r++)
        if (atomic_load_explicit(&f->flag[r]->done, memory_order_acquire) < want) return false;
    return true;
}

static void begin_chunk(rd_flow *f, const chunk *k)
{
    const int slot = f->begun % RD_CROSS_DEEP;
    rd_assert(k->part >= 0 && k->part < f->n_parts && k->n <= rd_cross_chunk(f->wire));
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
    if (rd_cross_start(f->job[slot], mine, k->n, tag, &f->status) != RD_OK)
        f->finished[slot] = true;
}

/* After a failure the sums are wrong and are never used, but nobody of this host is left waiting for them. */
static void retire_chunk(rd_flow *f, const chunk *k)
{
    for (int r = 0; r < f->n_local && f->status.code == RD_OK; r++)
        if (r != f->me)
            memcpy(f->to[r] + k->from, f->to[f->me] + k->from, (size_t)k->n * sizeof(float));
    if (k->last)
        atomic_store_explicit(&f->flag[f->me]->done, cross_flow_count(f, k->part + 1),
                              memory_order_release);
    rd_assert(f->retired < f->begun);
    f->retired++;
    if (f->retired == f->begun) f->busy_ns += rd_now_ns() - f->since_ns;
}

/* True: something moved. */
static bool cross_flow_look(rd_flow *f)
{
    bool moved = false;
    while (f->begun < f->n_chunks && f->begun - f->retired < RD_CROSS_DEEP &&
           all_ready(f, f->chunk[f->begun].part)) {
        begin_chunk(f, &f->chunk[f->begun]);
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
        retire_chunk(f, &f->chunk[f->retired]);
    while (f->seen < f->n_parts && all_done(f, f->seen)) f->part[f->seen++].end_ns = rd_now_ns();
    return moved;
}

/* ---- the thread ---- */

static void cross_flow_nap(int64_t ns)
{
    const struct timespec t = {.tv_nsec = ns};
    nanosleep(&t, NULL);
}

/* Until something is to be done, or it is time to look at what came from other hosts. */
static void cross_flow_rest(rd_flow *f)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += LOOK_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    (void)sem_clockwait(&f->poke, CLOCK_MONOTONIC, &t);
}

static void *cross_flow_carry(void *p)
{
    rd_flow *f = p;
    const int looks = f->mode == RD_FLOW_CORE ? LOOKS : 0;
    for (;;) {
        while (sem_wait(&f->go) != 0) continue;
        if (atomic_load(&f->quit)) return NULL;
        int idle = 0; /* looks that found nothing */
        while (!atomic_load(&f->give_back)) {
            idle = cross_flow_look(f) ? 0 : idle + 1;
            if (idle > looks)
                cross_flow_rest(f);
            else if (idle > 0)
                sched_yield();
        }
        sem_post(&f->idle);
    }
}

static rd_code cross_flow_start_thread(rd_flow *f, rd_status *st)
{
    sigset_t all, before;
    sem_init(&f->go, 0, 0);
    sem_init(&f->poke, 0, 0);
    sem_init(&f->idle, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    f->has_thread = pthread_create(&f->thread, NULL, cross_flow_carry, f) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return f->has_thread
               ? RD_OK
               : rd_fail(st, RD_EENV, "no thread for the sums between hosts; set overlap to calls");
}

/* ---- a round ---- */

void rd_flow_ready(rd_flow *f, int n)
{
    rd_assert(n <= f->n_parts);
    if (!f->moves || n <= f->n_ready) return;
    for (int i = f->n_ready; i < n; i++) f->part[i].begin_ns = rd_now_ns();
    f->n_ready = n;
    atomic_store_explicit(&f->flag[f->me]->ready, cross_flow_count(f, n), memory_order_release);
    if (!f->has_thread || n == f->n_parts)
        return; /* the last part: the caller will take it at once */
    if (f->awake) {
        sem_post(&f->poke);
        return;
    }
    f->awake = true;
    atomic_store(&f->give_back, false);
    sem_post(&f->go);
}

void rd_flow_poll(rd_flow *f)
{
    if (f->moves && f->mode == RD_FLOW_CALLS) (void)cross_flow_look(f);
}

void rd_flow_take(rd_flow *f)
{
    if (!f->awake) return;
    atomic_store(&f->give_back, true);
    sem_post(&f->poke);
    while (sem_wait(&f->idle) != 0) continue;
    f->awake = false;
}

/* One host: neighbouring parts in one go. */
static rd_code sum_at_once(rd_flow *f, rd_status *st)
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
            f->part[i].begin_ns = part_ns;
            f->part[i].end_ns =
                end_ns; /* one time, by which exchange.c knows that they went together */
        }
    }
    f->last.total_s = f->last.exposed_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    return st->code;
}

rd_code rd_flow_finish(rd_flow *f, rd_status *st)
{
    const int looks = f->mode == RD_FLOW_CORE ? LOOKS : 50;
    int idle = 0;
    if (!f->moves) return sum_at_once(f, st);
    const int64_t begin_ns = rd_now_ns();
    rd_flow_ready(f, f->n_parts);
    rd_flow_take(f);
    while (f->seen < f->n_parts) {
        idle = cross_flow_look(f) ? 0 : idle + 1;
        if (idle > f->spins + looks)
            cross_flow_nap(LOOK_NS / 2);
        else if (idle > f->spins)
            sched_yield();
    }
    f->last.exposed_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
    f->last.total_s = (double)f->busy_ns * 1e-9;
    if (f->cross) f->last.wire_bytes = f->cross->sent - f->sent;
    if (f->cross) f->sent = f->cross->sent;
    rd_assert(f->begun == f->n_chunks && f->retired == f->n_chunks && f->n_ready == f->n_parts);
    rd_assert(!f->awake); /* the thread does not look at the round any more */
    f->rounds++;
    f->begun = f->retired = f->n_ready = f->seen = 0;
    f->busy_ns = 0;
    if (st->code == RD_OK && f->status.code != RD_OK) *st = f->status;
    return st->code;
}

/* ---- making one ---- */

void rd_flow_free(rd_flow *f)
{
    if (!f) return;
    if (f->has_thread) {
        rd_flow_take(f);
        atomic_store(&f->quit, true);
        sem_post(&f->go);
        pthread_join(f->thread, NULL);
        sem_destroy(&f->go);
        sem_destroy(&f->poke);
        sem_destroy(&f->idle);
    }
    /* After a failure MPI may still write into what is under way: the job ends soon, and takes it along. */
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

/* Which elements of each part are this rank's slice, in chunks; in the array's own elements. */
static rd_code cross_flow_cut(rd_flow *f, const rd_host *w, rd_status *st)
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

/* What does not need other ranks. */
static rd_code prepare(rd_flow *f, const rd_host *w, const rd_host_arena *a, rd_status *st)
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
    /* Another flow has counted here. The agreement that follows is a barrier, too. */
    atomic_store(&f->flag[f->me]->ready, 0);
    atomic_store(&f->flag[f->me]->done, 0);
    if (f->me >= f->n_owners) return RD_OK; /* others do it all */
    return cross_flow_cut(f, a ? w : NULL, st);
}

static rd_code connect(rd_flow *f, rd_status *st)
{
    RD_TRY(rd_cross_new(f->comm, &f->cross, st));
    for (int i = 0; i < RD_CROSS_DEEP; i++)
        RD_TRY(rd_cross_job_new(f->cross, rd_cross_chunk(f->wire), f->wire, NULL, &f->job[i], st));
done:
    return st->code;
}

rd_code rd_flow_new(rd_comm *c, float *x, const rd_flow_part *part, int n_parts, rd_wire wire,
                    rd_flow_mode mode, rd_flow **out, rd_status *st)
{
    MPI_Comm world = MPI_COMM_NULL;
    rd_host *w = NULL;
    rd_host_arena *a = NULL;
    rd_flow *f = calloc(1, sizeof *f);
    *out = NULL;
    if (f) {
        *f = (rd_flow){.c = c, .x = x, .wire = wire, .n_parts = n_parts, .comm = MPI_COMM_NULL};
        f->part = malloc(((size_t)n_parts + 1) * sizeof *part);
    }
    if (!f || !f->part) rd_fail(st, RD_EENV, "out of memory for the sums of %d parts", n_parts);
    if (c->w.size > 1)
        RD_TRY(rd_comm_agree(c, st));
    else
        RD_TRY(st->code);
    if (!f || !f->part) goto done;
    memcpy(f->part, part, (size_t)n_parts * sizeof *part);
    f->moves = c->w.n_hosts > 1 && n_parts > 0;
    if (f->moves) {
        f->mode = mode >= RD_FLOW_THREAD && !c->threads ? RD_FLOW_CALLS : mode;
        rd_mpi_inside(c, &world, &w, &a);
        (void)prepare(f, w, a, st);
        RD_TRY(rd_comm_agree(c, st));
        if (!a)
            RD_TRY(RD_MPI(MPI_Comm_dup(world, &f->comm), st));
        else if (w->cross)
            RD_TRY(RD_MPI(MPI_Comm_dup(w->cross_comm, &f->comm), st));
        if (f->comm != MPI_COMM_NULL) {
            RD_TRY(RD_MPI(MPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN), st));
            (void)connect(f, st);
        }
        if (st->code == RD_OK && f->mode >= RD_FLOW_THREAD && f->n_chunks > 0)
            (void)cross_flow_start_thread(f, st);
        RD_TRY(rd_comm_agree(c, st));
    }
    *out = f;
    return RD_OK;
done:
    rd_flow_free(f);
    return st->code;
}
