/* comm_end.c -- limits the time in which MPI ends.
 *
 * When MPI_Finalize begins, everything is saved and printed, and the watch has ended. A library
 * that waits for a dead network may then never return. A thread counts the time. It counts its own
 * naps, so time in which the process is stopped does not count. */
#include "comm_impl.h"
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAP_MS = 100, FENCE_MS = 1000, OTHERS_MS = 2000, LEAVE_MS = 3000 };

typedef struct end_limit {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool end; /* MPI has ended */
    double limit_s;
    int exit_code, rank;
    atomic_int *said; /* shared by the ranks of the host: one of them prints; NULL: not shared */
    char host[64];
} end_limit;

static void nap(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Returns a function of the PMIx library that MPI has loaded, or NULL. */
static void *pmix_function(const char *name)
{
    void *f = dlsym(RTLD_DEFAULT, name);
    void *library = f ? NULL : dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
    return library ? dlsym(library, name) : f;
}

static void fence_ended(int status, void *arg)
{
    (void)status;
    atomic_store((atomic_int *)arg, 1);
}

/* Joins the fence of MPI_Finalize for a rank that does not reach it. The other ranks wait there.
 * mpirun can hang if a rank leaves the launcher while its fence is open (Open MPI 4.1.4, PMIx
 * 4.2.2). */
static void join_fence(void)
{
    static atomic_int ended;
    int (*fence)(const void *, size_t, const void *, size_t, void (*)(int, void *), void *);
    void *f = pmix_function("PMIx_Fence_nb");
    memcpy(&fence, &f, sizeof f);
    if (!f || fence(NULL, 0, NULL, 0, fence_ended, &ended) != 0) return;
    for (int ms = 0; ms < FENCE_MS && !atomic_load(&ended); ms += NAP_MS) nap(NAP_MS);
}

/* Returns true while MPI runs and MPI_Finalize has not begun. */
static bool finalize_is_ahead(void)
{
    int running = 0, done = 0;
    MPI_Initialized(&running);
    MPI_Finalized(&done);
    return running && !done;
}

/* Tells the launcher that this process ends as it should. mpirun otherwise reports a process that
 * ends before MPI_Finalize, with code 1 in place of 0. */
static void *leave_launcher(void *arg)
{
    atomic_int *left = arg;
    const bool ahead = finalize_is_ahead();
    int (*finalize)(const void *, size_t);
    void *f = pmix_function("PMIx_Finalize");
    memcpy(&finalize, &f, sizeof f);
    if (ahead) join_fence();
    if (f)
        (void)finalize(NULL, 0);
    else if (ahead)
        MPI_Abort(MPI_COMM_WORLD, 0); /* it ends the process with this code */
    atomic_store(left, 1);
    return NULL;
}

/* The thread that ends the process, and the exit code: for park_thread, which has no argument. */
static pthread_t ending_thread;
static int ending_code;

/* Holds the thread that crashed until the process ends. */
static void park_thread(int sig)
{
    (void)sig;
    if (pthread_equal(pthread_self(), ending_thread)) _exit(ending_code);
    for (;;) (void)pause();
}

/* The thread in MPI_Finalize continues while PMIx_Finalize frees what it uses. All is written, so a
 * crash there must not replace the exit code of the run. */
static void park_crashes(int exit_code)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction sa = {.sa_handler = park_thread};
    sigemptyset(&sa.sa_mask);
    ending_thread = pthread_self();
    ending_code = exit_code;
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        (void)sigaction(crashes[i], &sa, NULL);
}

static void end_process(const end_limit *e) __attribute__((noreturn));
static void end_process(const end_limit *e)
{
    static atomic_int left;
    char line[400], who[100] = "";
    pthread_t helper;
    if (e->rank != 0) (void)snprintf(who, sizeof who, "[rank %d, %s] ", e->rank, e->host);
    const int n = snprintf(line, sizeof line,
                           "%swarning: MPI_Finalize has not returned for %g s, more than "
                           "stall_abort_s allows; the run itself is over and all is written, so it "
                           "ends here with exit code %d\n",
                           who, e->limit_s, e->exit_code);
    if (!e->said || atomic_exchange(e->said, 1) == 0)
        (void)!write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    park_crashes(e->exit_code);
    if (pthread_create(&helper, NULL, leave_launcher, &left) == 0)
        for (int ms = 0; ms < LEAVE_MS && !atomic_load(&left); ms += NAP_MS) nap(NAP_MS);
    _exit(e->exit_code);
}

static void *limit_thread(void *arg)
{
    end_limit *e = arg;
    int64_t naps = 0;
    (void)pthread_mutex_lock(&e->lock);
    while (!e->end) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += NAP_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&e->ended, &e->lock, &until);
        if (e->end) break;
        /* A rank inside MPI_Finalize gives the others time to join its fence. */
        const double extra_ms = finalize_is_ahead() ? 0.0 : OTHERS_MS;
        if ((double)++naps * NAP_MS >= e->limit_s * 1000.0 + extra_ms) end_process(e);
    }
    (void)pthread_mutex_unlock(&e->lock);
    return NULL;
}

void rd_comm_end_within(rd_comm *c, double seconds)
{
    c->end_s = seconds;
}

void rd_comm_end(rd_comm *c, int exit_code)
{
    if (!c) return;
    end_limit e = {
        .limit_s = c->end_s, .exit_code = exit_code, .rank = c->w.rank, .said = c->end_said};
    pthread_condattr_t monotonic;
    (void)fflush(stdout);
    (void)snprintf(e.host, sizeof e.host, "%s", c->w.host);
    (void)pthread_mutex_init(&e.lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&e.ended, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    const bool limited = c->end_s > 0.0 && strcmp(c->w.comm, "mpi") == 0 &&
                         pthread_create(&e.thread, NULL, limit_thread, &e) == 0;
    rd_comm_free(c);
    if (limited) {
        (void)pthread_mutex_lock(&e.lock);
        e.end = true;
        (void)pthread_cond_signal(&e.ended);
        (void)pthread_mutex_unlock(&e.lock);
        (void)pthread_join(e.thread, NULL);
    }
    (void)pthread_cond_destroy(&e.ended);
    (void)pthread_mutex_destroy(&e.lock);
}
