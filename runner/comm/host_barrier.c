/* host_barrier.c -- the barrier of the ranks of one host, in memory that they share.
 *
 * Each rank counts the barriers that it has reached, in its own cache line. It then waits until all
 * other ranks have counted as far. Nothing has to be reset. */
#include "host_sum.h"
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 128 /* bytes between two flags: neighbouring cache lines are fetched in pairs */ };

typedef struct host_barrier_flag {
    _Atomic uint32_t n;        /* barriers that this rank has reached, modulo 2^32 */
    _Atomic uint32_t sleepers; /* ranks that asked the kernel to be woken when n changes */
    char pad[LINE - 2 * sizeof(uint32_t)];
} host_barrier_flag;

size_t rd_host_barrier_bytes(int n_local)
{
    return (size_t)n_local * LINE;
}

static host_barrier_flag *flag_of(const rd_host *w, int r)
{
    return (host_barrier_flag *)(void *)w->map + r;
}

static bool has_arrived(const rd_host *w, host_barrier_flag *f)
{
    return (int32_t)(atomic_load(&f->n) - w->n_barriers) >= 0;
}

/* Waits for one peer. Spinning is fastest while each rank has its own core. On a crowded host the
 * peer needs this rank's core, and the scheduler wakes a sleeping rank sooner than it resumes one
 * that only yields. */
static void host_barrier_wait_for(const rd_host *w, host_barrier_flag *f)
{
    for (int i = 0; i < w->spins; i++) {
        if (has_arrived(w, f)) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    for (int i = 0; i < 8; i++) {
        if (has_arrived(w, f)) return;
        sched_yield();
    }
    const struct timespec timeout = {.tv_nsec = 1000000};
    while (!has_arrived(w, f)) {
        if (w->idle) w->idle(); /* a peer may wait for bytes that this rank has not sent yet */
        atomic_fetch_add(&f->sleepers, 1);
        const uint32_t seen = atomic_load(&f->n);
        if ((int32_t)(seen - w->n_barriers) < 0)
            syscall(SYS_futex, &f->n, FUTEX_WAIT, seen, &timeout, NULL, 0);
        atomic_fetch_sub(&f->sleepers, 1);
    }
}

void rd_host_barrier(rd_host *w)
{
    host_barrier_flag *mine = flag_of(w, w->me);
    rd_assert(w->me >= 0 && w->me < w->n_local);
    w->n_barriers++;
    atomic_store(&mine->n, w->n_barriers);
    if (atomic_load(&mine->sleepers) != 0)
        syscall(SYS_futex, &mine->n, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    for (int r = 0; r < w->n_local; r++)
        if (r != w->me) host_barrier_wait_for(w, flag_of(w, r));
}
