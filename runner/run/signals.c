/* signals.c -- requests from outside. A handler only sets a flag. The ranks agree on it at the next
 * step, in the control block of the training loop (train.c), or at the end of a part of an
 * evaluation (evaluate.c). So all ranks save and stop at the same step.
 *
 * USR1: save and continue. TERM, INT, USR2, HUP: save and stop; a second one: exit at once. One
 * request may arrive twice, through the process group and from the launcher, so a signal within a
 * fifth of a second is no second request.
 *
 * A thread that does nothing else runs the handlers, and all other threads block these signals. The
 * kernel writes the frame of a handler below the stack pointer of the interrupted code. Generated
 * code of oneDNN (sgemm with AVX-512) does not survive that: the heap was damaged. */
#include "signals.h"
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/log.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static const int64_t repeat_ns = 200000000;

/* The mutable globals of the handlers, which can write to nothing else. Only on_stop uses
 * stopped_ns, and its own signals do not interrupt it. */
static atomic_int stop_signal, save_asked;
static int64_t stopped_ns;
/* Only the thread of the training uses it. */
static int64_t limit_ns;
/* Where the thread of the handlers reports a request; NULL: nowhere. Borrowed. */
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static rd_log *told;

static void on_stop(int sig)
{
    const int64_t now = rd_now_ns(); /* clock_gettime is allowed in a handler */
    if (!stop_signal) {
        stopped_ns = now;
        stop_signal = sig;
        rd_log_hurry();
    } else if (now - stopped_ns > repeat_ns) {
        rd_tmpfile_abandon();
        _exit(128 + sig);
    }
}

static void on_save(int sig)
{
    (void)sig;
    save_asked = 1;
}

/* Says that the request has arrived, for somebody who sees nothing and would ask again. Steps are
 * usually shorter than the second that this waits. */
static void signals_tell(void)
{
    const struct timespec second = {1, 0};
    (void)nanosleep(&second, NULL);
    pthread_mutex_lock(&told_lock);
    if (told)
        rd_info(told, "asked to stop: this step, then a checkpoint, then the end; the same signal "
                      "again ends the run at once, without a checkpoint");
    told = NULL;
    pthread_mutex_unlock(&told_lock);
}

static void *signals_thread(void *ctx)
{
    (void)pthread_sigmask(SIG_UNBLOCK, ctx, NULL);
    while (pause() < 0) /* it returns after each handler */
        if (stop_signal) signals_tell();
    return NULL;
}

void signals_quiet(void)
{
    pthread_mutex_lock(&told_lock);
    told = NULL;
    pthread_mutex_unlock(&told_lock);
}

void signals_start(rd_log *log)
{
    told = log;
    static sigset_t set; /* the thread reads it */
    struct sigaction sa = {.sa_flags = SA_RESTART}, now;
    pthread_t thread;
    sigemptyset(&sa.sa_mask);
    sigaddset(&sa.sa_mask, SIGTERM);
    sigaddset(&sa.sa_mask, SIGINT);
    sigaddset(&sa.sa_mask, SIGUSR2);
    sigaddset(&sa.sa_mask, SIGHUP);
    set = sa.sa_mask;
    sigaddset(&set, SIGUSR1);
    sa.sa_handler = on_stop;
    /* HUP: the terminal was closed. Under nohup it stays ignored. */
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        (void)sigaction(SIGHUP, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGUSR2, &sa, NULL);
    sa.sa_handler = on_save;
    (void)sigaction(SIGUSR1, &sa, NULL);
    /* Threads that start later inherit the mask. Without the thread this one goes on to handle the
     * signals. */
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, signals_thread, &set) == 0)
        (void)pthread_detach(thread);
    else
        (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void signals_limit(int64_t at_ns)
{
    limit_ns = at_ns;
}

double signals_left_s(void)
{
    const int64_t left = limit_ns - rd_now_ns();
    return limit_ns == 0 ? INFINITY : left > 0 ? (double)left * 1e-9 : 0.0;
}

int signals_stop(void)
{
    if (!stop_signal && limit_ns > 0 && rd_now_ns() >= limit_ns) return SIGNALS_LATE;
    return stop_signal;
}

bool signals_take_save(void)
{
    return atomic_exchange(&save_asked, 0) != 0;
}
