/* group_emulated.cc -- sums over ranks, through memory that their processes share.
 *
 * Numbers are added in the order of ranks. With a 16-bit wire each number and each partial sum is
 * rounded, as in a ring. rd_gpu_group_sum begins a sum and copies its numbers. rd_gpu_group_join or
 * _wait completes it.
 *
 * Environment:
 *     RD_EMULATED_NCCL=23000    NCCL's version, default 2.28.9; 0: there is no NCCL
 *     RD_EMULATED_NCCL_FAILS=n  sum n of this process fails as with a lost peer; sum 1 is that of
 *                               rd_gpu_group_new
 *
 * From a failure on until the group is given up, a wait for the device ends the process: see
 * rd_emulated_hang. */
#include "device_emulated.h"
#include "rd/gpu_choose.h"
#include "rd/gpu_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <new>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace
{

enum { MOST_RANKS = 64 };
const int64_t PIECE = 16 << 10; /* floats of a rank at a time */

/* shared memory; zeros at first */
struct board {
    int joined[MOST_RANKS]; /* process id */
    /* number of phases that a rank has reached */
    uint64_t phase[MOST_RANKS];
    int left[MOST_RANKS]; /* the rank does nothing more */
    float slot[][PIECE];
};

struct sum {
    sum *next;
    float *x, *copy;
    int64_t n;
    rd_gpu_wire wire;
    int root;   /* the rank whose numbers all get; -1: a sum */
    bool joins; /* one work with the entry before */
};

double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void doze()
{
    const struct timespec t = {0, 100000};
    nanosleep(&t, nullptr);
}

float on_wire(rd_gpu_wire wire, float x)
{
    return wire == RD_GPU_WIRE_BF16  ? rd_emulated_bfloat16(x)
           : wire == RD_GPU_WIRE_F16 ? rd_emulated_float16(x)
                                     : x;
}

} // namespace

struct rd_gpu_group {
    rd_gpu *g;
    int rank, size;
    double timeout;
    board *b;
    size_t bytes;
    uint64_t phase;
    sum *first, *last;
    /* done: since the last join; joined: before it; times of now() */
    std::vector<rd_gpu_sum_time> done, joined;
    rd_status failure; /* sticks */
};

namespace
{

/* Returns whether the process of rank r has ended, also if its parent has not waited for it. */
bool gone(const rd_gpu_group *q, int r)
{
    char path[64], text[512];
    const int pid = __atomic_load_n(&q->b->joined[r], __ATOMIC_ACQUIRE);
    if (kill(pid, 0) != 0) return errno == ESRCH;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* behind the name */
    return after && strncmp(after, ") Z", 3) == 0;
}

/* Waits until all ranks have reached the phase of this rank. until: a time of now(). */
rd_code meet(rd_gpu_group *q, double until, double waited, rd_status *st)
{
    __atomic_store_n(&q->b->phase[q->rank], ++q->phase, __ATOMIC_RELEASE);
    for (int r = 0; r < q->size; r++)
        for (int tries = 0; __atomic_load_n(&q->b->phase[r], __ATOMIC_ACQUIRE) < q->phase;
             tries++) {
            const bool lost = tries % 64 == 63 &&
                              (__atomic_load_n(&q->b->left[r], __ATOMIC_ACQUIRE) || gone(q, r));
            if (lost && __atomic_load_n(&q->b->phase[r], __ATOMIC_ACQUIRE) < q->phase)
                return rd_fail(st, RD_EPEER, "rank %d was lost while gradients were summed", r);
            if (now() > until)
                return rd_fail(st, RD_ESTALL, "rank %d did not sum its gradients within %.1f s", r,
                               waited);
            if (tries < 32)
                sched_yield();
            else
                doze();
        }
    return RD_OK;
}

rd_code add_up(rd_gpu_group *q, sum *s, double until, double waited, rd_status *st)
{
    rd_emulated_access access;
    if (s->n && memcmp(s->x, s->copy, (size_t)s->n * sizeof *s->x) != 0)
        return rd_fail(st, RD_EBUG, "numbers changed while their sum was on its way");
    for (int64_t at = 0; at < s->n; at += PIECE) {
        const int64_t n = s->n - at < PIECE ? s->n - at : PIECE;
        memcpy(q->b->slot[q->rank], s->x + at, (size_t)n * sizeof *s->x);
        if (meet(q, until, waited, st) != RD_OK) return st->code;
        for (int64_t i = 0; i < n; i++) {
            float total = on_wire(s->wire, q->b->slot[s->root < 0 ? 0 : s->root][i]);
            for (int r = 1; r < q->size && s->root < 0; r++)
                total = on_wire(s->wire, total + on_wire(s->wire, q->b->slot[r][i]));
            s->x[at + i] = total;
        }
        if (meet(q, until, waited, st) != RD_OK) return st->code;
    }
    return RD_OK;
}

rd_code fail_by_order(rd_status *st)
{
    static long left = getenv("RD_EMULATED_NCCL_FAILS") ? atol(getenv("RD_EMULATED_NCCL_FAILS"))
                                                        : 0;
    return left > 0 && --left == 0
               ? rd_fail(st, RD_EPEER, "a sum over ranks failed: RD_EMULATED_NCCL_FAILS")
               : RD_OK;
}

void drop_first(rd_gpu_group *q)
{
    sum *s = q->first;
    q->first = s->next;
    if (!q->first) q->last = nullptr;
    free(s->copy);
    free(s);
}

rd_code add_up_all(rd_gpu_group *q, double timeout, rd_status *st)
{
    if (rd_emulated_stuck(q->g, st) != RD_OK || rd_emulated_flush(q->g, st) != RD_OK)
        return st->code;
    if (q->failure.code != RD_OK) {
        if (st->code == RD_OK) *st = q->failure;
        return st->code;
    }
    const double until = timeout > 0.0 ? now() + timeout : 1e300;
    while (q->first) {
        const double begin = now();
        if (fail_by_order(st) != RD_OK || add_up(q, q->first, until, timeout, st) != RD_OK) {
            q->failure = *st;
            rd_emulated_hang(1);
            return st->code;
        }
        if (q->first->joins && !q->done.empty())
            q->done.back().end_s = now();
        else
            q->done.push_back({begin, now()});
        drop_first(q);
    }
    return RD_OK;
}

} // namespace

extern "C" {

rd_code rd_gpu_nccl_about(rd_gpu *g, rd_gpu_nccl *out, rd_status *st)
{
    const char *version = getenv("RD_EMULATED_NCCL");
    memset(out, 0, sizeof *out);
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    out->version = version ? atoi(version) : 22809;
    if (out->version == 0) return rd_fail(st, RD_EENV, "RD_EMULATED_NCCL is 0");
    out->overridden = rd_nccl_settings(out->settings);
    return RD_OK;
}

rd_code rd_gpu_group_id(rd_gpu *g, unsigned char id[RD_GPU_ID_BYTES], rd_status *st)
{
    unsigned char dice[16];
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (getrandom(dice, sizeof dice, 0) != sizeof dice)
        return rd_fail(st, RD_EENV, "no random numbers: %s", strerror(errno));
    memset(id, 0, RD_GPU_ID_BYTES);
    strcpy((char *)id, "/rd_emulated_");
    for (size_t i = 0; i < sizeof dice; i++) snprintf((char *)id + 13 + 2 * i, 3, "%02x", dice[i]);
    return RD_OK;
}

rd_code rd_gpu_group_new(rd_gpu *g, const rd_gpu_group_options *o, rd_gpu_group **out,
                         rd_status *st)
{
    const int rank = o->rank, size = o->size;
    *out = nullptr;
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
        return rd_fail(st, RD_EBUG, "rank %d of %d", rank, size);
    rd_gpu_group *q = new (std::nothrow) rd_gpu_group{};
    if (!q) return rd_fail(st, RD_EENV, "out of memory for a group");
    const char *name = (const char *)o->id;
    const size_t bytes = sizeof(board) + (size_t)size * sizeof(float[PIECE]);
    const int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    void *p = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                  ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                  : MAP_FAILED;
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) {
        rd_fail(st, RD_EENV, "no shared memory for sums over ranks: %s", strerror(errno));
        delete q;
        return st->code;
    }
    q->g = g;
    q->rank = rank;
    q->size = size;
    q->timeout = o->sum_s;
    q->b = (board *)p;
    q->bytes = bytes;
    __atomic_store_n(&q->b->joined[rank], (int)getpid(), __ATOMIC_RELEASE);
    const double until = o->open_s > 0.0 ? now() + o->open_s : 1e300;
    for (int r = 0; r < size && st->code == RD_OK; r++)
        while (!__atomic_load_n(&q->b->joined[r], __ATOMIC_ACQUIRE) && st->code == RD_OK) {
            if (now() > until)
                rd_fail(st, RD_ESTALL, "rank %d did not join the sums of gradients within %.1f s",
                        r, o->open_s);
            doze();
        }
    /* Once all have joined, nobody opens the memory again; after a timeout nobody should. */
    (void)shm_unlink(name);
    if (st->code == RD_OK && fail_by_order(st) == RD_OK) (void)meet(q, until, o->open_s, st);
    if (st->code != RD_OK) {
        __atomic_store_n(&q->b->left[rank], 1, __ATOMIC_RELEASE);
        munmap(p, bytes);
        delete q;
        return st->code;
    }
    *out = q;
    return RD_OK;
}

void rd_gpu_group_free(rd_gpu_group *q)
{
    if (!q) return;
    __atomic_store_n(&q->b->left[q->rank], 1, __ATOMIC_RELEASE);
    if (q->failure.code != RD_OK) rd_emulated_hang(-1);
    while (q->first) drop_first(q);
    munmap(q->b, q->bytes);
    delete q;
}

void rd_gpu_group_abort(rd_gpu_group *q)
{
    rd_gpu_group_free(q);
}

static rd_code add_work(rd_gpu_group *q, float *x, int64_t n, rd_gpu_wire wire, int root,
                        bool joins, rd_status *st)
{
    if (rd_emulated_stuck(q->g, st) != RD_OK || rd_emulated_flush(q->g, st) != RD_OK)
        return st->code;
    if (n == 0) return RD_OK;
    if (!rd_emulated_is_device(x, (size_t)n * sizeof *x))
        return rd_fail(st, RD_EBUG, "%lld numbers to sum at %p are no memory of the device",
                       (long long)n, (void *)x);
    sum *s = (sum *)calloc(1, sizeof *s);
    float *copy = (float *)malloc((size_t)(n + 1) * sizeof *copy);
    if (!s || !copy) {
        free(s);
        free(copy);
        return rd_fail(st, RD_EENV, "out of memory for a sum over ranks");
    }
    rd_emulated_access access;
    memcpy(copy, x, (size_t)n * sizeof *copy);
    *s = {nullptr, x, copy, n, wire, root, joins};
    if (q->last)
        q->last->next = s;
    else
        q->first = s;
    q->last = s;
    return RD_OK;
}

rd_code rd_gpu_group_sum(rd_gpu_group *q, float *x, int64_t n, rd_gpu_wire wire, rd_status *st)
{
    return add_work(q, x, n, wire, -1, false, st);
}

rd_code rd_gpu_group_spread(rd_gpu_group *q, float *x, const rd_gpu_part *part, int n_parts,
                            rd_status *st)
{
    bool joins = false;
    for (int i = 0; i < n_parts && st->code == RD_OK; i++) {
        (void)add_work(q, x + part[i].from, part[i].n, RD_GPU_WIRE_F32, part[i].rank, joins, st);
        joins = joins || part[i].n > 0;
    }
    return st->code;
}

rd_code rd_gpu_group_join(rd_gpu_group *q, rd_status *st)
{
    if (add_up_all(q, q->timeout, st) != RD_OK) return st->code;
    q->joined.swap(q->done);
    q->done.clear();
    return RD_OK;
}

rd_code rd_gpu_group_times(rd_gpu_group *q, rd_gpu_sum_time *out, int most, int *n, rd_status *st)
{
    const double t = now();
    *n = 0;
    for (const rd_gpu_sum_time &s : q->joined)
        if (*n < most) out[(*n)++] = {t - s.begin_s, t - s.end_s};
    return rd_emulated_stuck(q->g, st);
}

rd_code rd_gpu_group_wait(rd_gpu_group *q, double timeout_s, rd_status *st)
{
    return add_up_all(q, timeout_s, st);
}

} // extern "C"
