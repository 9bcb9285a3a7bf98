/* watch.c -- the thread that watches the ranks. See watch.h for what it is for, watch_rules.c for who is to blame.
 *
 * Per host one rank judges: the lowest whose own watch ticks (a stopped process stops its thread too). On rank 0's host
 * it sees all ranks when it is rank 0 itself, else those of its host. On other hosts it is the leader, which tells rank
 * 0 and judges only when rank 0 is silent, or another rank when the leader is. So a job ends by whoever is left.
 *
 * A process that ends makes its pidfd readable at once. Ages are of time in which this thread ticks: in a job that was
 * stopped and goes on (Ctrl-Z, a suspended laptop), or on a machine that stood still for a second, nobody has been
 * slow. */
#include "rd/watch.h"
#include "comm_impl.h"
#include "watch_net.h"
#include "rd/clock.h"
#include "rd/file.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 250, TELL_MS = 1000, SLOT_BYTES = 128, MAX_NET = 64, MAX_FDS = 1100 };
static const double fresh_s = 3.0; /* a watch that has ticked so recently is at work */
static const double still_s =
    1.0; /* and one that has not for so long belongs to a process that stands still */

typedef struct watch_slot { /* of one rank, in memory that its host shares */
    _Atomic int64_t step, beat_ns, tick_ns, pid;
    _Atomic int32_t phase, rank;
    char pad[SLOT_BYTES - 4 * sizeof(int64_t) - 2 * sizeof(int32_t)];
} watch_slot;

typedef struct board {
    _Atomic int32_t abort_code; /* the job is being ended: by whoever wrote this */
    _Atomic int32_t cut;        /* because a host cannot be reached */
    char pad[SLOT_BYTES - 2 * sizeof(int32_t)];
    watch_slot at[];
} board;

struct rd_watch {
    rd_comm *comm; /* for its world and rd_comm_abort alone */
    rd_log *log;
    rd_watch_limits limits;
    const rd_world *w;
    board *board;
    size_t bytes;
    bool shared; /* board is a mapping of all ranks of the host */
    rd_net *net;
    int *pidfd;  /* [local_size], -1: none */
    bool *ended; /* [local_size]: its process has ended */
    int64_t *beat_ns,
        *still_ns; /* [local_size]: its last beat, and for how long this thread has not run since then */
    rd_beat *all;   /* rank 0: [size], else [local_size] */
    rd_beat *told;  /* rank 0, several hosts: [size], as it came */
    bool root_done; /* a leader: rank 0 has said that it is */
    bool blind;     /* some host has no connection, or shares no memory: nobody sees all ranks */
    int wake[2];    /* a pipe: rd_watch_stop */
    pthread_t thread;
    bool running;
    atomic_bool leaving;                /* the main thread ends the job */
    bool passed_on;                     /* and that has been told to the other hosts */
    int64_t still_from_ns, still_to_ns; /* when this thread did not run last */
    int64_t told_ns;
    int warned; /* culprit of the last warning; -1: none */
    int64_t warned_step;
};

/* ---- what the others do ---- */

static void watch_look(rd_watch *w, int64_t now)
{
    const int n = w->w->local_size;
    for (int i = 0; i < n; i++) {
        const watch_slot *s = &w->board->at[i];
        if (!w->shared && i != w->w->local_rank) continue; /* what it says is not to be seen here */
        rd_assert(atomic_load(&s->rank) >= 0 && atomic_load(&s->rank) < w->w->size);
        rd_beat *b = &w->all[w->w->rank == 0 ? atomic_load(&s->rank) : i];
        const int32_t phase = atomic_load(&s->phase);
        const int64_t step = atomic_load(&s->step),
                      beat = atomic_load(&s->beat_ns); /* last, see rd_watch_beat */
        if (beat !=
            w->beat_ns
                [i]) { /* since the last look: before, in or after the last time without one */
            const int64_t from = beat > w->still_from_ns ? beat : w->still_from_ns;
            w->still_ns[i] = w->still_to_ns > from ? w->still_to_ns - from : 0;
        }
        w->beat_ns[i] = beat;
        const int64_t age_ns = now - beat - w->still_ns[i];
        b->rank = atomic_load(&s->rank);
        b->host_index = w->w->host_index;
        b->phase = phase;
        b->step = step;
        b->pid = atomic_load(&s->pid);
        b->age_s = age_ns > 0 ? (double)age_ns * 1e-9 : 0.0;
        b->still = i != w->w->local_rank &&
                   (double)(now - atomic_load(&s->tick_ns)) * 1e-9 > still_s;
        b->gone = w->ended[i] && b->phase != RD_PHASE_END;
        snprintf(b->host, sizeof b->host, "%s", w->w->host);
    }
}

/* The lowest rank of this host whose watch is at work. */
static bool judges(const rd_watch *w, int64_t now)
{
    for (int i = 0; i < w->w->local_rank; i++) {
        const watch_slot *s = &w->board->at[i];
        if (!w->ended[i] && atomic_load(&s->phase) != RD_PHASE_END &&
            (double)(now - atomic_load(&s->tick_ns)) * 1e-9 < fresh_s)
            return false;
    }
    return true;
}

/* ---- ending the job ---- */

static void watch_nap(int64_t ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Open MPI's launcher, once it has been told to end a job, waits for the daemon of a host that is cut off: for the quarter of
 * an hour after which the kernel gives up data that nobody acknowledges. Killed, it takes all that can be reached with it
 * at once. */
static void kill_launcher(void)
{
    static const char *const names[] = {"mpirun",  "mpiexec", "orterun",
                                        "prterun", "orted",   "prted"};
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
    FILE *f = fopen(path, "re");
    if (f && !fgets(name, sizeof name, f)) name[0] = '\0';
    if (f) fclose(f);
    name[strcspn(name, "\n")] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) (void)kill(getppid(), SIGKILL);
}

/* To the other hosts: how the job ends. */
static void pass_on(rd_watch *w, rd_code code)
{
    const rd_net_order o = {(int32_t)code};
    if (w->net && w->w->rank == 0)
        rd_net_order_all(w->net, &o);
    else if (w->net)
        rd_net_tell(w->net, w->all, 0, (int)code);
}

/* text: what to say; NULL: it has been said. cut: a host cannot be reached, see above; the launcher gets time to notice by
 * itself, which it does in some seconds with oob_tcp_keepalive_time set. */
static void end_job(rd_watch *w, rd_code code, const char *text, bool cut)
    __attribute__((noreturn));
static void end_job(rd_watch *w, rd_code code, const char *text, bool cut)
{
    rd_status st = {.rank = w->w->rank};
    if (text) {
        rd_fail(&st, code, "%s", text);
        rd_live(w->log, NULL);
        rd_error(w->log, &st);
    }
    atomic_store(&w->board->cut, cut ? 1 : 0); /* who sees the code looks for it */
    atomic_store(&w->board->abort_code, (int32_t)code);
    pass_on(w, code);
    /* A disk may hang: the others know by now. */
    if (text && w->limits.ends)
        w->limits.ends(w->limits.ctx, atomic_load(&w->board->at[w->w->local_rank].step), &st);
    if (cut) {
        watch_nap(4000);
        rd_tmpfile_abandon();
        kill_launcher();
        _exit((int)code);
    }
    watch_nap(
        500); /* a checkpoint may still become whole; a second after the first rank has gone the launcher kills */
    rd_tmpfile_abandon();
    if (!text)
        watch_nap(
            1000); /* a message of the rank that failed may be on its way, and the launcher may be at it */
    rd_comm_abort(w->comm, (int)code);
}

/* ---- one look ---- */

/* Rank 0: a host of which nothing is heard, though its connection stands. */
static bool fallen_silent(const rd_watch *w, int line)
{
    return !rd_net_broken(w->net, line) && w->limits.abort_s > 0.0 &&
           rd_net_silence_s(w->net, line) > w->limits.abort_s;
}

static void judge(rd_watch *w, int n)
{
    int culprit, n_waiting;
    char text[600];
    const rd_verdict v = rd_watch_judge(w->all, n, &w->limits, &culprit, &n_waiting);
    rd_assert(culprit < n && n_waiting <= n && (v == RD_WATCH_FINE || culprit >= 0));
    const rd_beat *b = culprit >= 0 ? &w->all[culprit] : NULL;
    /* Where all that are seen wait, one that is not seen may be at a long save or evaluation; its own host watches it.
     */
    if (v == RD_WATCH_FINE || (w->blind && v != RD_WATCH_LOST &&
                               (b->phase == RD_PHASE_WAIT || b->phase == RD_PHASE_EXCHANGE))) {
        w->warned = -1;
        return;
    }
    rd_watch_say(b, v, n_waiting, text, sizeof text);
    if (v == RD_WATCH_WARN) {
        if (w->warned != b->rank || w->warned_step != b->step)
            rd_warn(w->log, "no progress: %s", text);
        w->warned = b->rank;
        w->warned_step = b->step;
        return;
    }
    if (v == RD_WATCH_STALL) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "; that is more than stall_abort_s allows (%g s)",
                 w->limits.abort_s);
    }
    end_job(w, v == RD_WATCH_LOST ? RD_EPEER : RD_ESTALL, text,
            v == RD_WATCH_LOST && b->host_index != w->w->host_index &&
                fallen_silent(w, b->host_index - 1));
}

/* Rank 0: what the leaders sent. A host that closed its connection, or is silent for too long, is lost with its ranks. */
static void hear_hosts(rd_watch *w)
{
    int code = 0;
    rd_net_take(w->net, w->told, w->w->size, &code);
    if (code) end_job(w, (rd_code)code, NULL, false);
    for (int r = 0; r < w->w->size; r++) {
        const int line = w->told[r].host_index - 1;
        if (line < 0) continue; /* rank 0's host, or nothing came yet */
        w->all[r] =
            w->told
                [r]; /* of a second ago: what it has done since is not known, and no fault of its own */
        if (rd_net_broken(w->net, line) || fallen_silent(w, line)) {
            w->all[r].gone = true;
            w->all[r].age_s += rd_net_silence_s(w->net, line);
        }
    }
}

static void speak_up(rd_watch *w, int64_t now)
{
    if (!w->net || now - w->told_ns < (int64_t)TELL_MS * 1000000) return;
    w->told_ns = now;
    if (w->w->rank == 0) {
        const rd_net_order o = {0};
        rd_net_order_all(w->net, &o);
        return;
    }
    rd_net_tell(w->net, w->all, w->w->local_size, 0);
}

/* The connection to rank 0 has closed. Where a rank of this host is gone as well, the launcher, which hears of that as soon as this thread
 * does, may have taken down rank 0 for it, and before it came to say so. */
static void root_is_gone(rd_watch *w) __attribute__((noreturn));
static void root_is_gone(rd_watch *w)
{
    int culprit, n_waiting;
    char text[800] = "rank 0 is gone";
    size_t n = strlen(text);
    if (rd_watch_judge(w->all, w->w->local_size, &w->limits, &culprit, &n_waiting) ==
        RD_WATCH_LOST) {
        rd_watch_say(&w->all[culprit], RD_WATCH_LOST, 0, text, sizeof text);
        n = strlen(text);
        snprintf(text + n, sizeof text - n,
                 "; rank 0 is gone, too: its connection to this host has closed");
    } else {
        snprintf(text + n, sizeof text - n,
                 ": its connection to host %s has closed; start the same command again to go on "
                 "from the last "
                 "checkpoint",
                 w->w->host);
    }
    end_job(w, RD_EPEER, text, false);
}

static void leader_listens(rd_watch *w)
{
    rd_net_order o;
    char text[300];
    if (rd_net_ordered(w->net, &o)) {
        if (o.abort_code > 0) end_job(w, (rd_code)o.abort_code, NULL, false);
        w->root_done = o.abort_code == RD_NET_DONE;
    }
    if (w->root_done) return;
    const double silent = rd_net_silence_s(w->net, 0);
    if (rd_net_broken(w->net, 0)) root_is_gone(w);
    if (w->limits.abort_s > 0.0 && silent > w->limits.abort_s) {
        snprintf(text, sizeof text,
                 "nothing has been heard from rank 0 on host %s for %.0f s; its host, or the "
                 "network to it, "
                 "is down",
                 w->w->host, silent);
        end_job(w, RD_EPEER, text, true);
    }
}

static void one_look(rd_watch *w, int64_t now)
{
    const int32_t code = atomic_load(&w->board->abort_code);
    watch_look(w, now);
    speak_up(w, now);
    if (atomic_load(&w->leaving)) {
        if (code && !w->passed_on) pass_on(w, (rd_code)code);
        w->passed_on = code != 0;
        return;
    }
    if (code) end_job(w, (rd_code)code, NULL, atomic_load(&w->board->cut) != 0);
    if (w->net && w->w->rank == 0) hear_hosts(w);
    if (w->net && w->w->rank != 0) leader_listens(w);
    if (!judges(w, now)) return;
    /* A leader in contact with rank 0 leaves the judgement to it. */
    if (w->net && w->w->rank != 0 && rd_net_silence_s(w->net, 0) < fresh_s) return;
    judge(w, w->w->rank == 0 ? w->w->size : w->w->local_size);
}

/* This thread comes so much later than it should: that is of this process or of all the machine. */
static void stood_still(rd_watch *w, int64_t from_ns, int64_t to_ns)
{
    w->still_from_ns = from_ns;
    w->still_to_ns = to_ns;
    for (int i = 0; i < w->w->local_size; i++) w->still_ns[i] += to_ns - from_ns;
    rd_net_stood_still(w->net, to_ns - from_ns);
}

static void *watch(void *arg)
{
    rd_watch *w = arg;
    int64_t last = rd_now_ns();
    for (;;) {
        struct pollfd p[MAX_FDS] = {{.fd = w->wake[0], .events = POLLIN}};
        int net_fd[MAX_NET], of[MAX_FDS], n = 1;
        /* Those that there are: poll takes no more entries than a process may have files open. */
        for (int i = 0; i < w->w->local_size && n < MAX_FDS - MAX_NET; i++) {
            if (w->ended[i] || w->pidfd[i] < 0) continue;
            of[n] = i;
            p[n++] = (struct pollfd){.fd = w->pidfd[i], .events = POLLIN};
        }
        const int n_ranks = n, n_net = rd_net_fds(w->net, net_fd, MAX_NET);
        for (int i = 0; i < n_net; i++) p[n++] = (struct pollfd){.fd = net_fd[i], .events = POLLIN};
        (void)poll(p, (nfds_t)n, TICK_MS);
        if (p[0].revents) return NULL;
        for (int i = 1; i < n_ranks; i++)
            if (p[i].revents) {
                w->ended[of[i]] = true;
                w->told_ns = 0; /* rank 0 is to hear of it before the launcher comes to it */
            }
        const int64_t now = rd_now_ns();
        if (now - last > (int64_t)2 * TICK_MS * 1000000)
            stood_still(w, last + (int64_t)TICK_MS * 1000000, now);
        last = now;
        atomic_store(&w->board->at[w->w->local_rank].tick_ns, now);
        one_look(w, now);
    }
}

/* ---- start and end ---- */

static rd_code open_board(rd_watch *w, rd_status *st)
{
    char why[200] = "";
    void *p = NULL;
    w->bytes = sizeof(board) + ((size_t)w->w->local_size + 1) *
                                   sizeof(watch_slot); /* the last one is for the mapping's mark */
    if (w->comm->vt->share && w->w->local_size > 1) {
        RD_TRY(w->comm->vt->share(w->comm, w->bytes, w->bytes - sizeof(watch_slot), &p, why, st));
        w->shared = p != NULL;
        if (!p && w->w->local_rank == 0)
            rd_warn(w->log, "the ranks of host %s cannot watch each other: %s", w->w->host, why);
    }
    if (!p && posix_memalign(&p, SLOT_BYTES, w->bytes) != 0) p = NULL;
    if (!p) rd_fail(st, RD_EENV, "out of memory for the watch");
    if (p && !w->shared) memset(p, 0, w->bytes);
    w->board = p;
done:
    return st->code;
}

static void fill_own(rd_watch *w)
{
    watch_slot *s = &w->board->at[w->w->local_rank];
    const int64_t now = rd_now_ns();
    atomic_store(&s->rank, w->w->rank);
    atomic_store(&s->pid, getpid());
    atomic_store(&s->beat_ns, now);
    atomic_store(&s->tick_ns, now);
    atomic_store(&s->phase, RD_PHASE_START);
}

static rd_code watch_start_thread(rd_watch *w, rd_status *st)
{
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    const int err = pthread_create(&w->thread, NULL, watch, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->running = err == 0;
    return err == 0 ? st->code
                    : rd_fail(st, RD_EENV, "cannot start the watch's thread: %s", strerror(err));
}

rd_code rd_watch_start(rd_comm *comm, rd_log *log, const rd_watch_limits *limits, rd_watch **out,
                       rd_status *st)
{
    rd_watch *w = calloc(1, sizeof *w);
    char why[200] = "";
    *out = NULL;
    if (w) {
        *w = (rd_watch){.comm = comm,
                        .log = log,
                        .limits = *limits,
                        .w = rd_comm_world(comm),
                        .wake = {-1, -1},
                        .warned = -1};
        const size_t n_local = (size_t)w->w->local_size,
                     n_all = w->w->rank == 0 ? (size_t)w->w->size : n_local;
        w->pidfd = malloc(n_local * sizeof *w->pidfd);
        w->ended = calloc(n_local, sizeof *w->ended);
        w->beat_ns = calloc(n_local, sizeof *w->beat_ns);
        w->still_ns = calloc(n_local, sizeof *w->still_ns);
        w->all = calloc(n_all, sizeof *w->all);
        w->told = calloc(n_all, sizeof *w->told);
        for (size_t i = 0; w->pidfd && i < n_local; i++) w->pidfd[i] = -1;
        for (size_t i = 0; w->all && i < n_all; i++)
            w->all[i].phase = RD_PHASE_END; /* nothing is known of it yet */
    }
    if (!w || !w->pidfd || !w->ended || !w->beat_ns || !w->still_ns || !w->all || !w->told)
        rd_fail(st, RD_EENV, "out of memory for the watch");
    else if (pipe(w->wake) != 0)
        rd_fail(st, RD_EENV, "the watch gets no pipe: %s%s", strerror(errno),
                errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
    RD_TRY(rd_comm_agree(comm, st));
    (void)open_board(w, st);
    RD_TRY(rd_comm_agree(comm, st));
    fill_own(w);
    RD_TRY(rd_comm_barrier(comm, st)); /* every slot is filled */
    if (w->shared)
        for (int i = 0; i < w->w->local_size; i++)
            if (i != w->w->local_rank)
                w->pidfd[i] = (int)syscall(SYS_pidfd_open, (pid_t)atomic_load(&w->board->at[i].pid),
                                           0);
    RD_TRY(rd_net_open(comm, &w->net, why, st));
    int64_t n_apart = !w->shared && w->w->local_size > 1;
    RD_TRY(rd_comm_sum_i64(comm, &n_apart, 1, st));
    w->blind = why[0] != '\0' || n_apart > 0;
    if (why[0] && w->w->rank == 0) rd_warn(log, "hosts cannot watch each other: %s", why);
    fill_own(w);
    (void)watch_start_thread(w, st);
    RD_TRY(rd_comm_agree(comm, st));
    *out = w;
    return RD_OK;
done:
    rd_watch_stop(w);
    return st->code;
}

void rd_watch_beat(rd_watch *w, rd_phase phase, int64_t step)
{
    if (!w) return;
    watch_slot *s = &w->board->at[w->w->local_rank];
    /* Whoever sees the new phase sees its time, too: a step is not judged by the age of the long save or evaluation before it. */
    atomic_store_explicit(&s->beat_ns, rd_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&s->step, step, memory_order_release);
    atomic_store_explicit(&s->phase, (int32_t)phase, memory_order_release);
}

void rd_watch_leaving(rd_watch *w, rd_code code)
{
    int32_t none = 0;
    if (!w) return;
    atomic_store(&w->leaving, true);
    (void)atomic_compare_exchange_strong(&w->board->abort_code, &none, (int32_t)code);
    rd_watch_beat(w, RD_PHASE_END, atomic_load(&w->board->at[w->w->local_rank].step));
    watch_nap(
        2 * TICK_MS); /* the others hear of it before the launcher ends them, one after the other */
}

/* So that a connection that closes is no loss. */
static void last_word(rd_watch *w)
{
    const rd_net_order done = {RD_NET_DONE};
    if (!w->net) return;
    if (atomic_load(&w->leaving)) { /* the thread may not have come to it */
        if (!w->passed_on) pass_on(w, (rd_code)atomic_load(&w->board->abort_code));
        return;
    }
    if (w->w->rank == 0) {
        rd_net_order_all(w->net, &done);
        return;
    }
    watch_look(w, rd_now_ns());
    for (int i = 0; i < w->w->local_size; i++) w->all[i].phase = RD_PHASE_END;
    rd_net_tell(w->net, w->all, w->w->local_size, 0);
}

void rd_watch_stop(rd_watch *w)
{
    if (!w) return;
    if (w->running) {
        rd_watch_beat(w, RD_PHASE_END, atomic_load(&w->board->at[w->w->local_rank].step));
        (void)!write(w->wake[1], "", 1);
        (void)pthread_join(w->thread, NULL);
        last_word(w);
    }
    rd_net_close(w->net);
    for (int i = 0; w->pidfd && i < w->w->local_size; i++)
        if (w->pidfd[i] >= 0) close(w->pidfd[i]);
    for (int i = 0; i < 2; i++)
        if (w->wake[i] >= 0) close(w->wake[i]);
    if (w->board && w->shared) munmap(w->board, w->bytes);
    if (w->board && !w->shared) free(w->board);
    free(w->pidfd);
    free(w->ended);
    free(w->beat_ns);
    free(w->still_ns);
    free(w->all);
    free(w->told);
    free(w);
}
