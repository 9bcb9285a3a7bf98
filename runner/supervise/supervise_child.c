/* supervise_child.c -- the launcher as a process: starts it in its own process group, waits for it,
 * passes signals on, and ends everything that it leaves behind on this host.
 *
 * Signals stay blocked and are handled one at a time while the supervisor waits. So there are no
 * handlers, and nothing that handlers could share. Orphans become children of the supervisor
 * (PR_SET_CHILD_SUBREAPER). So a rank whose launcher was killed cannot survive unseen and meet the
 * next start in the log folder. When the supervisor is killed, the launcher gets SIGTERM. */
#include "supervise_impl.h"
#include "rd/clock.h"
#include "rd/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One request may arrive twice: through the process group, and from a process that passes it on. */
enum { REPEAT_NS = 200000000 };
static const double patience_s = 10.0, kill_s = 5.0;

static const int handled[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};
enum { N_HANDLED = sizeof handled / sizeof *handled };

static void handled_set(sigset_t *set)
{
    struct sigaction now;
    sigemptyset(set);
    for (int i = 0; i < N_HANDLED; i++) {
        /* HUP and TSTP stay ignored under nohup and under a shell without job control. A shell also
         * ignores SIGINT for a background process, but a SIGINT sent to that process is meant for
         * it. */
        const bool may_be_ignored = handled[i] == SIGHUP || handled[i] == SIGTSTP;
        if (may_be_ignored && sigaction(handled[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            continue;
        sigaddset(set, handled[i]);
    }
}

void child_prepare(void)
{
    sigset_t set;
    (void)signal(SIGCHLD, SIG_DFL);
    handled_set(&set);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* How a process is started. */
typedef struct child_way {
    bool quiet;       /* its output is discarded */
    int in, err;      /* its standard input and standard error; -1: /dev/null, and this process's */
    int death_signal; /* what it gets when this process dies */
} child_way;

/* Runs in the new process. */
static void run_child(char *const *argv, int err_pipe, pid_t parent, const child_way *way)
{
    const int null = open("/dev/null", O_RDWR);
    sigset_t set;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, way->death_signal, 0, 0, 0);
    if (getppid() != parent) _exit(127); /* the parent died before prctl */
    /* Standard input is /dev/null, unless the caller has another one: it cannot be read a second
     * time. A terminal would also stop a background group that reads from it, or that writes to it
     * under `stty tostop`. */
    if (way->in >= 0 || null >= 0) (void)dup2(way->in >= 0 ? way->in : null, 0);
    if (way->err >= 0) (void)dup2(way->err, 2);
    /* A stream that this process was started without takes what the command writes. */
    for (int i = 1; null >= 0 && i < 3; i++)
        if (way->quiet || (fcntl(i, F_GETFL) & O_ACCMODE) == O_RDONLY || fcntl(i, F_GETFD) < 0)
            (void)dup2(null, i);
    if (null > 2) (void)close(null);
    (void)signal(SIGTTOU, SIG_IGN);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    handled_set(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)execvp(argv[0], argv);
    const int err = errno;
    (void)!write(err_pipe, &err, sizeof err);
    _exit(127);
}

static pid_t supervise_child_start(char *const *argv, const child_way *way, int *err)
{
    int err_pipe[2];
    const pid_t parent = getpid();
    *err = 0;
    if (rd_pipe(err_pipe) != 0) return *err = errno, -1;
    const pid_t pid = fork();
    if (pid == 0) run_child(argv, err_pipe[1], parent, way);
    *err = pid < 0 ? errno : 0;
    (void)close(err_pipe[1]);
    if (pid > 0) {
        (void)setpgid(pid, pid);
        while (read(err_pipe[0], err, sizeof *err) < 0 && errno == EINTR) continue;
        if (*err) (void)waitpid(pid, NULL, 0);
    }
    (void)close(err_pipe[0]);
    return *err ? -1 : pid;
}

rd_code child_start(child *c, char *const *argv, rd_status *st)
{
    const child_way way = {.in = c->streams ? c->in : -1,
                           .err = c->streams ? c->err : -1,
                           .death_signal = c->streams ? SIGUSR2 : SIGTERM};
    int err;
    c->pid = supervise_child_start(argv, &way, &err);
    if (c->pid > 0) return st->code;
    c->pid = 0;
    if (err == ENOENT || err == EACCES || err == ENOTDIR || err == ENOEXEC)
        return rd_fail(st, RD_EUSAGE,
                       "cannot start '%s': %s; give the command that starts the ranks behind --, "
                       "as you would type it",
                       argv[0], strerror(err));
    return rd_fail(st, RD_EENV, "cannot start '%s': %s", argv[0], strerror(err));
}

/* ---- signals ---- */

/* Sends a signal to all children of this process. Not every kernel has the list. */
static void kill_children(int sig)
{
    char path[64];
    int pid;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%d", &pid) == 1) (void)kill(pid, sig);
    if (f) (void)fclose(f);
}

/* Passes a stop request on. By default, mpirun gives its ranks one second between TERM and KILL,
 * and exits with 1. USR2 asks the ranks for the same, lets them take their time, and mpirun passes
 * on their exit code 75. Other programs may not pass USR2 on. */
static void ask_to_stop(child *c, int sig)
{
    const int64_t now = rd_now_ns();
    if (c->n_stops > 0 && now - c->stop_ns < REPEAT_NS) return;
    if (c->n_stops++ == 0) {
        c->stop_signal = sig;
        c->stop_ns = now;
        if (c->pid > 0) (void)(c->own_launcher ? kill(c->pid, SIGUSR2) : kill(-c->pid, sig));
        return;
    }
    if (c->pid > 0) (void)kill(-c->pid, c->n_stops == 2 ? SIGTERM : SIGKILL);
    if (c->n_stops > 2) kill_children(SIGKILL);
}

static void handle_signal(child *c, int sig)
{
    switch (sig) {
    case SIGUSR1: /* save and continue */
        if (c->pid > 0) (void)(c->own_launcher ? kill(c->pid, sig) : kill(-c->pid, sig));
        break;
    /* Ctrl-Z reaches this process only: the terminal does not know the launcher's group */
    case SIGTSTP:
        if (c->pid > 0) (void)kill(-c->pid, SIGTSTP);
        (void)raise(SIGSTOP);
        if (c->pid > 0) (void)kill(-c->pid, SIGCONT);
        break;
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGUSR2:
        ask_to_stop(c, sig);
        break;
    default:
        break;
    }
}

/* Waits for one signal, at most `seconds`, and handles it. */
static void wait_signal(child *c, double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    sigset_t set;
    handled_set(&set);
    const int sig = sigtimedwait(&set, NULL, &t);
    if (sig > 0) handle_signal(c, sig);
}

static int as_shell(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int child_wait(child *c)
{
    for (;;) {
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            if (pid == c->pid) return as_shell(status);
        if (pid < 0 && errno == ECHILD) return 127; /* another process took its status */
        wait_signal(c, 60.0);
    }
}

bool child_pause(child *c, double seconds)
{
    const int64_t end = rd_now_ns() + (int64_t)(seconds * 1e9);
    for (;;) {
        const int64_t left = end - rd_now_ns();
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        if (c->stop_signal) return false;
        if (left <= 0) return true;
        wait_signal(c, (double)left * 1e-9);
    }
}

/* ---- processes left behind ---- */

static bool anything_left(const child *c)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    return pid == 0 || kill(-c->pid, 0) == 0;
}

void child_clear(child *c)
{
    const int64_t begin = rd_now_ns();
    int sent = 0;
    while (c->pid > 0 && anything_left(c)) {
        const double s = (double)(rd_now_ns() - begin) * 1e-9;
        /* stuck in the kernel: a dead network disk */
        if (s > patience_s + 2.0 * kill_s) break;
        if ((s > patience_s && sent == 0) || (s > patience_s + kill_s && sent == 1)) {
            const int sig = sent++ == 0 ? SIGTERM : SIGKILL;
            (void)kill(-c->pid, sig);
            kill_children(sig);
        }
        wait_signal(c, 0.05);
    }
    c->pid = 0;
}

/* ---- probing hosts ---- */

bool child_run_all(child *c, char **const *argv, int n, double seconds, int *status)
{
    const int64_t end = rd_now_ns() + (int64_t)(seconds * 1e9);
    const child_way quiet = {.quiet = true, .in = -1, .err = -1, .death_signal = SIGTERM};
    pid_t *pid = calloc((size_t)n + 1, sizeof *pid);
    int left = 0, err, raw;
    for (int i = 0; i < n; i++) {
        status[i] = -1;
        if (!pid || !argv[i]) continue;
        pid[i] = supervise_child_start(argv[i], &quiet, &err);
        if (pid[i] > 0)
            left++;
        else
            status[i] = 127;
    }
    while (pid && left > 0) {
        const bool over = rd_now_ns() >= end || c->stop_signal != 0;
        for (int i = 0; i < n; i++) {
            if (pid[i] <= 0) continue;
            if (over) (void)kill(-pid[i], SIGKILL);
            if (waitpid(pid[i], &raw, over ? 0 : WNOHANG) != pid[i]) continue;
            if (!over) status[i] = as_shell(raw);
            pid[i] = 0;
            left--;
        }
        if (left > 0) wait_signal(c, 0.05);
    }
    free(pid);
    return c->stop_signal == 0;
}
