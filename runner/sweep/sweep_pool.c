/* sweep_pool.c -- the processes of a sweep: starts them, passes signals on, waits for them.
 *
 * Signals stay blocked and are handled one at a time while the sweep waits, so there are no
 * handlers. Each run is in its own process group: Ctrl-C reaches the sweep alone, which asks each
 * run once, by USR2. mpirun and srun pass USR2 on and let ranks take their time. When the sweep is
 * killed, the kernel sends each run USR2: it saves and ends. */
#include "sweep_impl.h"
#include "rd/clock.h"
#include "rd/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One request may arrive twice: through the process group, and from a process that passes it on. */
enum { REPEAT_NS = 200000000 };

static void pool_signals(sigset_t *set)
{
    static const int list[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};
    struct sigaction now;
    sigemptyset(set);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        /* HUP and TSTP stay ignored under nohup and without job control. */
        const bool may_be_ignored = list[i] == SIGHUP || list[i] == SIGTSTP;
        if (may_be_ignored && sigaction(list[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            continue;
        sigaddset(set, list[i]);
    }
}

void sweep_pool_prepare(void)
{
    sigset_t set;
    (void)signal(SIGCHLD, SIG_DFL);
    pool_signals(&set);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Runs in the new process. */
static void pool_child(const sweep_lane *lane, char *const *words, int out, int err_pipe,
                       pid_t parent)
{
    const int null = open("/dev/null", O_RDONLY);
    sigset_t set;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGUSR2, 0, 0, 0);
    if (getppid() != parent) _exit(127); /* the parent died before prctl */
    if (null >= 0) (void)dup2(null, 0);
    (void)dup2(out, 1);
    (void)dup2(out, 2);
    if (lane->pinned) (void)sched_setaffinity(0, sizeof lane->cores, &lane->cores);
    if (lane->gpus[0]) (void)setenv("CUDA_VISIBLE_DEVICES", lane->gpus, 1);
    (void)signal(SIGTTOU, SIG_IGN);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    pool_signals(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)execvp(words[0], words);
    const int err = errno;
    (void)!write(err_pipe, &err, sizeof err);
    _exit(127);
}

rd_code sweep_pool_start(sweep_lane *lane, char *const *words, const char *out, rd_status *st)
{
    int ends[2], err = 0;
    const pid_t parent = getpid();
    const int fd = rd_open_record(out, O_WRONLY | O_CREAT | O_APPEND,
                                  "give --logdir a folder that this user may write to", st);
    if (fd < 0) return st->code;
    if (rd_pipe(ends) != 0) {
        (void)close(fd);
        return rd_fail(st, RD_EENV, "cannot start a run: %s", strerror(errno));
    }
    const pid_t pid = fork();
    if (pid == 0) pool_child(lane, words, fd, ends[1], parent);
    if (pid < 0) err = errno;
    (void)close(ends[1]);
    (void)close(fd);
    if (pid > 0) {
        (void)setpgid(pid, pid);
        while (read(ends[0], &err, sizeof err) < 0 && errno == EINTR) continue;
        if (err) (void)waitpid(pid, NULL, 0);
    }
    (void)close(ends[0]);
    if (err)
        return rd_fail(st, RD_EENV, "cannot start '%s': %s%s", words[0], strerror(err),
                       err == ENOENT ? "; is it installed, and in PATH?" : "");
    lane->pid = pid;
    lane->start_ns = rd_now_ns();
    return RD_OK;
}

/* Sends a signal to all runs. To a launcher alone: it passes the signal on to its ranks. */
static void pool_signal(const sweep_pool *p, int sig, bool group)
{
    for (int i = 0; i < p->lanes->n; i++) {
        const sweep_lane *lane = &p->lanes->at[i];
        if (lane->pid > 0) (void)kill(group ? -lane->pid : lane->pid, sig);
    }
}

/* Handles a request to stop: the second one ends the runs, the third one kills them. */
static void pool_stop(sweep_pool *p, int sig)
{
    const int64_t now = rd_now_ns();
    if (p->n_stops > 0 && now - p->stop_ns < REPEAT_NS) return;
    p->stop_ns = now;
    if (p->n_stops++ == 0) {
        p->stop_signal = sig;
        pool_signal(p, SIGUSR2, false);
        return;
    }
    pool_signal(p, p->n_stops == 2 ? SIGTERM : SIGKILL, true);
}

static void pool_handle(sweep_pool *p, int sig)
{
    switch (sig) {
    case SIGUSR1: /* save and go on */
        pool_signal(p, SIGUSR1, false);
        break;
    case SIGTSTP:
        pool_signal(p, SIGSTOP, true);
        (void)raise(SIGSTOP);
        pool_signal(p, SIGCONT, true);
        break;
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGUSR2:
        pool_stop(p, sig);
        break;
    default:
        break;
    }
}

/* Returns the lane of a process that has ended. Orphans of launchers are taken, too. */
static sweep_lane *pool_ended(sweep_pool *p, int *status)
{
    int raw;
    pid_t pid;
    while ((pid = waitpid(-1, &raw, WNOHANG)) > 0)
        for (int i = 0; i < p->lanes->n; i++) {
            if (p->lanes->at[i].pid != pid) continue;
            *status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
            p->lanes->at[i].pid = 0;
            return &p->lanes->at[i];
        }
    return NULL;
}

sweep_lane *sweep_pool_wait(sweep_pool *p, double seconds, int *status)
{
    const int64_t end = rd_now_ns() + (int64_t)(seconds * 1e9);
    sigset_t set;
    pool_signals(&set);
    for (;;) {
        sweep_lane *lane = pool_ended(p, status);
        const int64_t left = end - rd_now_ns();
        if (lane || left <= 0) return lane;
        const struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        const int before = p->n_stops, sig = sigtimedwait(&set, NULL, &t);
        if (sig > 0) pool_handle(p, sig);
        if (p->n_stops != before) return pool_ended(p, status);
    }
}
