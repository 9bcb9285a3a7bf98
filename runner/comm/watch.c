/* watch.c -- the thread that watches the ranks. watch.h describes its purpose, watch_rules.c
 * decides which rank is to blame.
 *
 * One rank per host judges: the lowest rank whose watch thread runs. (If a process is stopped, so
 * is its thread.) On rank 0's host the judge sees all ranks if it is rank 0, else only the ranks of
 * its host. On another host the lowest rank is the leader, which reports to rank 0. A leader judges
 * only if rank 0 is silent; another rank judges if the leader is silent. So some rank that is left
 * ends the job.
 *
 * The pidfd of a process becomes readable as soon as the process ends. Ages count only time in
 * which this thread runs. In a job that was stopped and continued (Ctrl-Z, a suspended laptop), or
 * on a machine that stood still for a second, no rank was slow. */
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

enum { TICK_MS = 250, SEND_MS = 1000, SLOT_BYTES = 128, MAX_NET = 64, MAX_FDS = 1100 };
static const double fresh_s = 3.0; /* a watch that has ticked within this time is running */
static const double still_s = 1.0; /* after this time without a tick the process is stopped */

/* What one rank reports, in memory that its host shares. */
typedef struct watch_slot {
    _Atomic int64_t step, beat_ns, tick_ns, pid;
    _Atomic int32_t phase, rank;
    char pad[SLOT_BYTES - 4 * sizeof(int64_t) - 2 * sizeof(int32_t)];
} watch_slot;

/* The reports of the ranks of a host. */
typedef struct board {
    _Atomic int32_t abort_code; /* not 0: the job is being ended with this code */
    _Atomic int32_t cut;        /* the job ends because a host cannot be reached */
    char pad[SLOT_BYTES - 2 * sizeof(int32_t)];
    watch_slot slot[];
} board;

struct rd_watch {
    rd_comm *comm; /* borrowed; used only for rd_comm_world and rd_comm_abort */
    rd_log *log;   /* borrowed */
    rd_watch_limits limits;
    const rd_world *world;
    board *board; /* owned */
    size_t bytes;
    bool shared;       /* the board is shared by all ranks of the host */
    rd_net *net;       /* owned; NULL: no connection */
    int *pidfd;        /* owned; [local_size]; -1: none */
    bool *ended;       /* owned; [local_size]: the process of the rank has ended */
    int64_t *beat_ns;  /* owned; [local_size]: time of the last beat */
    int64_t *pause_ns; /* owned; [local_size]: time since then in which this thread did not run */
    rd_beat *all;      /* owned; rank 0: [size], else [local_size]: the state of the ranks */
    rd_beat *received; /* owned; rank 0 of several hosts: [size], as the leaders sent it */
    bool root_done;    /* for a leader: rank 0 has reported that its work is done */
    bool blind;        /* no rank sees all ranks: some host has no connection or shares no memory */
    int wake[2];       /* a pipe; rd_watch_stop writes to it */
    pthread_t thread;
    bool running;
    atomic_bool leaving;                /* the main thread ends the job */
    bool code_sent;                     /* the code was sent to the other hosts */
    int64_t pause_from_ns, pause_to_ns; /* the last time in which this thread did not run */
    int64_t sent_ns;                    /* when this rank last sent beats or orders */
    int warned;                         /* rank in the last warning; -1: none */
    int64_t warned_step;
};

/* ---- what the others do ---- */

/* Reads the board into w->all. */
static void watch_read_board(rd_watch *w, int64_t now)
{
    const int n = w->world->local_size;
    for (int i = 0; i < n; i++) {
        const watch_slot *s = &w->board->slot[i];
        if (!w->shared && i != w->world->local_rank) continue; /* its slot is not shared */
        rd_assert(atomic_load(&s->rank) >= 0 && atomic_load(&s->rank) < w->world->size);
        rd_beat *b = &w->all[w->world->rank == 0 ? atomic_load(&s->rank) : i];
        const int32_t phase = atomic_load(&s->phase);
        const int64_t step = atomic_load(&s->step),
                      beat = atomic_load(&s->beat_ns); /* read last, see rd_watch_beat */
        /* A new beat came before, during or after the last time without this thread. */
        if (beat != w->beat_ns[i]) {
            const int64_t from = beat > w->pause_from_ns ? beat : w->pause_from_ns;
            w->pause_ns[i] = w->pause_to_ns > from ? w->pause_to_ns - from : 0;
        }
        w->beat_ns[i] = beat;
        const int64_t age_ns = now - beat - w->pause_ns[i];
        b->rank = atomic_load(&s->rank);
        b->host_index = w->world->host_index;
        b->phase = phase;
        b->step = step;
        b->pid = atomic_load(&s->pid);
        b->age_s = age_ns > 0 ? (double)age_ns * 1e-9 : 0.0;
        b->still = i != w->world->local_rank &&
                   (double)(now - atomic_load(&s->tick_ns)) * 1e-9 > still_s;
        b->gone = w->ended[i] && b->phase != RD_PHASE_END;
        snprintf(b->host, sizeof b->host, "%s", w->world->host);
    }
}

/* Returns whether this rank is the lowest one of its host whose watch runs. */
static bool watch_is_judge(const rd_watch *w, int64_t now)
{
    for (int i = 0; i < w->world->local_rank; i++) {
        const watch_slot *s = &w->board->slot[i];
        if (!w->ended[i] && atomic_load(&s->phase) != RD_PHASE_END &&
            (double)(now - atomic_load(&s->tick_ns)) * 1e-9 < fresh_s)
            return false;
    }
    return true;
}

/* ---- ending the job ---- */

static void watch_sleep(int64_t ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Kills Open MPI's launcher if it is this process's parent. A launcher that was asked to end a job
 * waits for the daemon of a host that is cut off. That takes a quarter of an hour, after which the
 * kernel gives up data that nobody acknowledges. If it is killed, it takes all processes that it
 * can reach with it, at once. */
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

/* Sends to the other hosts the code with which the job ends. */
static void send_abort_code(rd_watch *w, rd_code code)
{
    const rd_net_order o = {(int32_t)code};
    if (w->net && w->world->rank == 0)
        rd_net_send_order(w->net, &o);
    else if (w->net)
        rd_net_send_beats(w->net, w->all, 0, (int)code);
}

/* Ends the job. text: the error to print; NULL: another rank has printed it. cut: a host cannot be
 * reached. The launcher then gets 4 s to notice it by itself, as it does if oob_tcp_keepalive_time
 * is set, and is then killed. */
static void watch_end_job(rd_watch *w, rd_code code, const char *text, bool cut)
    __attribute__((noreturn));
static void watch_end_job(rd_watch *w, rd_code code, const char *text, bool cut)
{
    rd_status st = {.rank = w->world->rank};
    if (text) {
        rd_fail(&st, code, "%s", text);
        rd_live(w->log, NULL);
        rd_error(w->log, &st);
    }
    atomic_store(&w->board->cut, cut ? 1 : 0); /* a rank that sees the code reads `cut` */
    atomic_store(&w->board->abort_code, (int32_t)code);
    send_abort_code(w, code);
    /* A disk may hang, so this runs after the others have the code. */
    if (text && w->limits.ends)
        w->limits.ends(w->limits.ctx, atomic_load(&w->board->slot[w->world->local_rank].step), &st);
    if (cut) {
        watch_sleep(4000);
        rd_tmpfile_abandon();
        kill_launcher();
        _exit((int)code);
    }
    /* A checkpoint may still be completed. The launcher kills all ranks a second after the first
     * one has ended. */
    watch_sleep(500);
    rd_tmpfile_abandon();
    /* The message of the rank that failed may be on its way, and the launcher
     * may be ending the job. */
    if (!text) watch_sleep(1000);
    rd_comm_abort(w->comm, (int)code);
}

/* ---- one tick ---- */

/* For rank 0. Returns whether a host has been silent for too long although
 * its connection is open. */
static bool host_is_silent(const rd_watch *w, int line)
{
    return !rd_net_broken(w->net, line) && w->limits.abort_s > 0.0 &&
           rd_net_silence_s(w->net, line) > w->limits.abort_s;
}

/* Judges n ranks; prints a warning or ends the job. */
static void watch_judge(rd_watch *w, int n)
{
    int culprit, n_waiting;
    char text[600];
    const rd_verdict v = rd_watch_judge(w->all, n, &w->limits, &culprit, &n_waiting);
    rd_assert(culprit < n && n_waiting <= n && (v == RD_WATCH_FINE || culprit >= 0));
    const rd_beat *b = culprit >= 0 ? &w->all[culprit] : NULL;
    /* If all ranks that are seen wait, a rank that is not seen may be in a long save or evaluation.
     * Its own host watches it. */
    if (v == RD_WATCH_FINE || (w->blind && v != RD_WATCH_LOST &&
                               (b->phase == RD_PHASE_WAIT || b->phase == RD_PHASE_EXCHANGE))) {
        w->warned = -1;
        return;
    }
    rd_watch_describe(b, v, n_waiting, text, sizeof text);
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
    watch_end_job(w, v == RD_WATCH_LOST ? RD_EPEER : RD_ESTALL, text,
                  v == RD_WATCH_LOST && b->host_index != w->world->host_index &&
                      host_is_silent(w, b->host_index - 1));
}

/* For rank 0. Receives what the leaders sent. A host that closed its connection, or is silent for
 * too long, is lost with its ranks. */
static void receive_hosts(rd_watch *w)
{
    int code = 0;
    rd_net_receive_beats(w->net, w->received, w->world->size, &code);
    if (code) watch_end_job(w, (rd_code)code, NULL, false);
    for (int r = 0; r < w->world->size; r++) {
        const int line = w->received[r].host_index - 1;
        if (line < 0) continue; /* rank 0's host, or a host that has not reported yet */
        /* A second old. What the rank has done since is not known, and is not its fault. */
        w->all[r] = w->received[r];
        if (rd_net_broken(w->net, line) || host_is_silent(w, line)) {
            w->all[r].gone = true;
            w->all[r].age_s += rd_net_silence_s(w->net, line);
        }
    }
}

/* Once a second: sends the beats to rank 0, or rank 0's order to the leaders. */
static void send_beats(rd_watch *w, int64_t now)
{
    if (!w->net || now - w->sent_ns < (int64_t)SEND_MS * 1000000) return;
    w->sent_ns = now;
    if (w->world->rank == 0) {
        const rd_net_order o = {0};
        rd_net_send_order(w->net, &o);
        return;
    }
    rd_net_send_beats(w->net, w->all, w->world->local_size, 0);
}

/* Ends the job because the connection to rank 0 has closed. If a rank of this host is gone as well,
 * the launcher may have ended rank 0 for that reason before rank 0 could report it: the launcher
 * notices a lost rank at the same time as this thread. */
static void end_without_root(rd_watch *w) __attribute__((noreturn));
static void end_without_root(rd_watch *w)
{
    int culprit, n_waiting;
    char text[800] = "rank 0 is gone";
    size_t n = strlen(text);
    if (rd_watch_judge(w->all, w->world->local_size, &w->limits, &culprit, &n_waiting) ==
        RD_WATCH_LOST) {
        rd_watch_describe(&w->all[culprit], RD_WATCH_LOST, 0, text, sizeof text);
        n = strlen(text);
        snprintf(text + n, sizeof text - n,
                 "; rank 0 is gone, too: its connection to this host has closed");
    } else {
        snprintf(text + n, sizeof text - n,
                 ": its connection to host %s has closed; start the same command again to go on "
                 "from the last checkpoint",
                 w->world->host);
    }
    watch_end_job(w, RD_EPEER, text, false);
}

/* For a leader. Receives rank 0's orders, and ends the job if rank 0 is lost. */
static void leader_receive(rd_watch *w)
{
    rd_net_order o;
    char text[300];
    if (rd_net_receive_order(w->net, &o)) {
        if (o.abort_code > 0) watch_end_job(w, (rd_code)o.abort_code, NULL, false);
        w->root_done = o.abort_code == RD_NET_DONE;
    }
    if (w->root_done) return;
    const double silent = rd_net_silence_s(w->net, 0);
    if (rd_net_broken(w->net, 0)) end_without_root(w);
    if (w->limits.abort_s > 0.0 && silent > w->limits.abort_s) {
        snprintf(text, sizeof text,
                 "host %s has received nothing from rank 0 for %.0f s; rank 0's host, or the "
                 "network to it, is down",
                 w->world->host, silent);
        watch_end_job(w, RD_EPEER, text, true);
    }
}

static void watch_tick(rd_watch *w, int64_t now)
{
    const int32_t code = atomic_load(&w->board->abort_code);
    watch_read_board(w, now);
    send_beats(w, now);
    if (atomic_load(&w->leaving)) {
        if (code && !w->code_sent) send_abort_code(w, (rd_code)code);
        w->code_sent = code != 0;
        return;
    }
    if (code) watch_end_job(w, (rd_code)code, NULL, atomic_load(&w->board->cut) != 0);
    if (w->net && w->world->rank == 0) receive_hosts(w);
    if (w->net && w->world->rank != 0) leader_receive(w);
    if (!watch_is_judge(w, now)) return;
    /* A leader that hears rank 0 leaves the judgement to it. */
    if (w->net && w->world->rank != 0 && rd_net_silence_s(w->net, 0) < fresh_s) return;
    watch_judge(w, w->world->rank == 0 ? w->world->size : w->world->local_size);
}

/* Adds a time in which this thread did not run. The process or the whole machine was stopped, so no
 * rank was slow. */
static void watch_add_pause(rd_watch *w, int64_t from_ns, int64_t to_ns)
{
    w->pause_from_ns = from_ns;
    w->pause_to_ns = to_ns;
    for (int i = 0; i < w->world->local_size; i++) w->pause_ns[i] += to_ns - from_ns;
    rd_net_add_pause(w->net, to_ns - from_ns);
}

static void *watch_thread(void *arg)
{
    rd_watch *w = arg;
    int64_t last = rd_now_ns();
    for (;;) {
        struct pollfd p[MAX_FDS] = {{.fd = w->wake[0], .events = POLLIN}};
        int net_fd[MAX_NET], of[MAX_FDS], n = 1;
        /* Only those that exist: poll accepts no more entries than the process
         * may have open files. */
        for (int i = 0; i < w->world->local_size && n < MAX_FDS - MAX_NET; i++) {
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
                w->sent_ns = 0; /* rank 0 must know before the launcher acts */
            }
        const int64_t now = rd_now_ns();
        if (now - last > (int64_t)2 * TICK_MS * 1000000)
            watch_add_pause(w, last + (int64_t)TICK_MS * 1000000, now);
        last = now;
        atomic_store(&w->board->slot[w->world->local_rank].tick_ns, now);
        watch_tick(w, now);
    }
}

/* ---- start and end ---- */

static rd_code board_open(rd_watch *w, rd_status *st)
{
    char why[200] = "";
    void *p = NULL;
    /* The last slot is for the mapping's mark. */
    w->bytes = sizeof(board) + ((size_t)w->world->local_size + 1) * sizeof(watch_slot);
    if (w->comm->vt->share && w->world->local_size > 1) {
        RD_TRY(w->comm->vt->share(w->comm, w->bytes, w->bytes - sizeof(watch_slot), &p, why, st));
        w->shared = p != NULL;
        if (!p && w->world->local_rank == 0)
            rd_warn(w->log, "the ranks of host %s cannot watch each other: %s", w->world->host,
                    why);
    }
    if (!p && posix_memalign(&p, SLOT_BYTES, w->bytes) != 0) p = NULL;
    if (!p) rd_fail(st, RD_EENV, "out of memory for the watch");
    if (p && !w->shared) memset(p, 0, w->bytes);
    w->board = p;
done:
    return st->code;
}

static void fill_own_slot(rd_watch *w)
{
    watch_slot *s = &w->board->slot[w->world->local_rank];
    const int64_t now = rd_now_ns();
    atomic_store(&s->rank, w->world->rank);
    atomic_store(&s->pid, getpid());
    atomic_store(&s->beat_ns, now);
    atomic_store(&s->tick_ns, now);
    atomic_store(&s->phase, RD_PHASE_START);
}

static rd_code watch_start_thread(rd_watch *w, rd_status *st)
{
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* the main thread handles signals */
    const int err = pthread_create(&w->thread, NULL, watch_thread, w);
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
                        .world = rd_comm_world(comm),
                        .wake = {-1, -1},
                        .warned = -1};
        const size_t n_local = (size_t)w->world->local_size,
                     n_all = w->world->rank == 0 ? (size_t)w->world->size : n_local;
        w->pidfd = malloc(n_local * sizeof *w->pidfd);
        w->ended = calloc(n_local, sizeof *w->ended);
        w->beat_ns = calloc(n_local, sizeof *w->beat_ns);
        w->pause_ns = calloc(n_local, sizeof *w->pause_ns);
        w->all = calloc(n_all, sizeof *w->all);
        w->received = calloc(n_all, sizeof *w->received);
        for (size_t i = 0; w->pidfd && i < n_local; i++) w->pidfd[i] = -1;
        for (size_t i = 0; w->all && i < n_all; i++)
            w->all[i].phase = RD_PHASE_END; /* nothing is known yet */
    }
    if (!w || !w->pidfd || !w->ended || !w->beat_ns || !w->pause_ns || !w->all || !w->received)
        rd_fail(st, RD_EENV, "out of memory for the watch");
    else if (rd_pipe(w->wake) != 0)
        rd_fail(st, RD_EENV, "cannot create a pipe for the watch: %s%s", strerror(errno),
                errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
    RD_TRY(rd_comm_agree(comm, st));
    (void)board_open(w, st);
    RD_TRY(rd_comm_agree(comm, st));
    fill_own_slot(w);
    RD_TRY(rd_comm_barrier(comm, st)); /* now every slot is filled */
    if (w->shared)
        for (int i = 0; i < w->world->local_size; i++)
            if (i != w->world->local_rank)
                w->pidfd[i] = (int)syscall(SYS_pidfd_open,
                                           (pid_t)atomic_load(&w->board->slot[i].pid), 0);
    RD_TRY(rd_net_open(comm, &w->net, why, st));
    int64_t n_apart = !w->shared && w->world->local_size > 1;
    RD_TRY(rd_comm_sum_i64(comm, &n_apart, 1, st));
    w->blind = why[0] != '\0' || n_apart > 0;
    if (why[0] && w->world->rank == 0) rd_warn(log, "hosts cannot watch each other: %s", why);
    fill_own_slot(w);
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
    watch_slot *s = &w->board->slot[w->world->local_rank];
    /* A rank that sees the new phase also sees its time. So a step is not judged by the age of the
     * long save or evaluation before it. */
    atomic_store_explicit(&s->beat_ns, rd_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&s->step, step, memory_order_release);
    atomic_store_explicit(&s->phase, (int32_t)phase, memory_order_release);
}

void rd_watch_yield(rd_watch *w)
{
    enum { YIELD_MS = 5000, PAUSE_MS = 50 };
    if (!w || !w->running) return;
    watch_slot *s = &w->board->slot[w->world->local_rank];
    /* The pauses are counted, so time in which the machine stands still does not count. */
    for (int ms = 0; ms < YIELD_MS; ms += PAUSE_MS) {
        atomic_store(&s->beat_ns, rd_now_ns()); /* this rank is not to blame */
        watch_sleep(PAUSE_MS);
        while (atomic_load(&w->board->abort_code)) watch_sleep(TICK_MS); /* the thread ends all */
    }
}

void rd_watch_leaving(rd_watch *w, rd_code code)
{
    int32_t none = 0;
    if (!w) return;
    atomic_store(&w->leaving, true);
    (void)atomic_compare_exchange_strong(&w->board->abort_code, &none, (int32_t)code);
    rd_watch_beat(w, RD_PHASE_END, atomic_load(&w->board->slot[w->world->local_rank].step));
    /* The others notice before the launcher ends them, one after the other. */
    watch_sleep(2 * TICK_MS);
}

/* Reports to the other hosts that this rank is done, so a closed connection does
 * not count as a loss. */
static void send_goodbye(rd_watch *w)
{
    const rd_net_order done = {RD_NET_DONE};
    if (!w->net) return;
    if (atomic_load(&w->leaving)) { /* the thread may not have sent it */
        if (!w->code_sent) send_abort_code(w, (rd_code)atomic_load(&w->board->abort_code));
        return;
    }
    if (w->world->rank == 0) {
        rd_net_send_order(w->net, &done);
        return;
    }
    watch_read_board(w, rd_now_ns());
    for (int i = 0; i < w->world->local_size; i++) w->all[i].phase = RD_PHASE_END;
    rd_net_send_beats(w->net, w->all, w->world->local_size, 0);
}

void rd_watch_stop(rd_watch *w)
{
    if (!w) return;
    if (w->running) {
        rd_watch_beat(w, RD_PHASE_END, atomic_load(&w->board->slot[w->world->local_rank].step));
        (void)!write(w->wake[1], "", 1);
        (void)pthread_join(w->thread, NULL);
        send_goodbye(w);
    }
    rd_net_close(w->net);
    for (int i = 0; w->pidfd && i < w->world->local_size; i++)
        if (w->pidfd[i] >= 0) close(w->pidfd[i]);
    for (int i = 0; i < 2; i++)
        if (w->wake[i] >= 0) close(w->wake[i]);
    if (w->board && w->shared) munmap(w->board, w->bytes);
    if (w->board && !w->shared) free(w->board);
    free(w->pidfd);
    free(w->ended);
    free(w->beat_ns);
    free(w->pause_ns);
    free(w->all);
    free(w->received);
    free(w);
}
