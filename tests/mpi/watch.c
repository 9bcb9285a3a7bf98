/* watch.c -- a job of ten or more short steps whose rank `size - 1` fails. tests/mpi/watch.sh
 * runs it.
 *
 *     watch CASE [STEPS]
 *
 * CASE: fine, kill, root_kill, stop, root_stop, stop_waiting, hang, input, save, evaluate,
 * straggle, leave, leave_late, cause, no_cause, unshared, code or beats.
 *
 *     leave        the rank ends the job
 *     leave_late   the rank has reported the end of the job, and hangs
 *     cause        as leave, half a second after the other ranks have seen that a rank is lost
 *     no_cause     the other ranks see that, and no rank reports why
 *     unshared     the ranks cannot share memory, as where memfd_create is forbidden
 *     code         two hosts: the leader of the second host ends the job, and rank 0 gets its exit
 *                  code
 *     beats        two hosts: the leader of the second host sends beats that cannot be
 *
 * Limits: a warning after 1 s, the end after 2.5 s. Steps take 50 ms and end in a sum over
 * ranks. */
#include "rd/clock.h"
#include "rd/watch.h"
#include "../../runner/comm/watch_net.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void nap(double s)
{
    const struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

/* In pieces, so that it takes as long beside a watch on a machine that stands still meanwhile. */
static void be_long(double s)
{
    for (int i = 0; i < (int)(s * 10.0); i++) nap(0.1);
}

static void happen(const char *what, rd_comm *c, rd_watch *w, rd_log *log, int64_t step)
{
    const rd_world *world = rd_comm_world(c);
    const bool last = world->rank == world->size - 1, root = world->rank == 0;
    if (strcmp(what, "kill") == 0 && last) (void)raise(SIGKILL);
    if (strcmp(what, "root_kill") == 0 && root) (void)raise(SIGKILL);
    if (strcmp(what, "stop") == 0 && last) (void)raise(SIGSTOP);
    if (strcmp(what, "root_stop") == 0 && root) (void)raise(SIGSTOP);
    if (strcmp(what, "stop_waiting") ==
        0) { /* the others are in an update by then, which waits as well */
        rd_status own = {0};
        float x = 0.0f;
        rd_watch_beat(w, last ? RD_PHASE_WAIT : RD_PHASE_UPDATE, step);
        if (last) (void)raise(SIGSTOP);
        (void)rd_comm_sum_f32(c, &x, 1, &own);
    }
    if (strcmp(what, "hang") == 0 && last) nap(60.0);
    if (strcmp(what, "input") == 0 && last) {
        rd_watch_beat(w, RD_PHASE_INPUT, step);
        nap(60.0);
    }
    if (strcmp(what, "save") == 0 && root) {
        rd_watch_beat(w, RD_PHASE_SAVE, step);
        be_long(4.0);
    }
    if (strcmp(what, "evaluate") == 0 && last) {
        rd_watch_beat(w, RD_PHASE_EVALUATE, step);
        be_long(4.0);
    }
    if (strcmp(what, "straggle") == 0 && last) be_long(1.8);
    if (strcmp(what, "no_cause") == 0 || (strcmp(what, "cause") == 0 && !last)) {
        rd_status st = {.rank = world->rank};
        rd_watch_yield(w);
        rd_fail(&st, RD_EPEER, "another rank ended");
        rd_error(log, &st);
        rd_watch_leaving(w, RD_EPEER);
        rd_comm_abort(c, RD_EPEER);
    }
    if (strcmp(what, "cause") == 0) nap(0.5);
    if ((strncmp(what, "leave", 5) == 0 || strcmp(what, "cause") == 0) && last) {
        rd_status st = {.rank = world->rank};
        rd_fail(&st, RD_EDATA, "line 7 of a file is no good");
        rd_error(log, &st);
        rd_watch_leaving(w, RD_EDATA);
        if (strcmp(what, "leave_late") == 0) nap(60.0);
        rd_comm_abort(c, RD_EDATA);
    }
}

static rd_code tell_code(rd_comm *c, rd_status *st)
{
    const rd_world *world = rd_comm_world(c);
    rd_net *net = NULL;
    rd_beat all[16];
    char why[200];
    int code = 0;
    RD_TRY(rd_net_open(c, &net, why, st));
    if (net && world->rank != 0) rd_net_send_beats(net, NULL, 0, RD_ESTALL);
    for (int i = 0; i < 50 && world->rank == 0 && !why[0] && code == 0; i++) {
        nap(0.1);
        rd_net_receive_beats(net, all, world->size, &code);
    }
    if (world->rank == 0) printf("told %d %s\n", code, why);
    RD_TRY(rd_comm_barrier(c, st));
done:
    rd_net_close(net);
    return st->code;
}

/* The leader of host 1 sends beats that cannot be, then a good one. Rank 0 takes the good one
 * alone. */
static rd_code tell_beats(rd_comm *c, rd_status *st)
{
    enum { BAD = 9 };
    const rd_world *world = rd_comm_world(c);
    const rd_beat good = {
        .rank = 3, .phase = RD_PHASE_COMPUTE, .host_index = 1, .step = 7, .host = "node2"};
    rd_net *net = NULL;
    rd_beat all[4], bad[BAD];
    char why[200];
    int code = 0, n_other = 0;
    for (int i = 0; i < BAD; i++) {
        bad[i] = good;
        bad[i].rank = 2;
    }
    bad[0].rank = -1;
    bad[1].rank = 4;
    bad[2].host_index = 0;
    bad[3].host_index = 2;
    bad[4].phase = -1;
    bad[5].phase = RD_N_PHASES;
    bad[6].age_s = NAN;
    memset(bad[7].host, 'x', sizeof bad[7].host);
    memset(&bad[8].gone, 2, sizeof bad[8].gone);
    for (int r = 0; r < 4; r++) all[r] = (rd_beat){.rank = -7};
    RD_TRY(rd_net_open(c, &net, why, st));
    for (int i = 0; net && world->rank == 2 && i < BAD; i++)
        rd_net_send_beats(net, &bad[i], 1, i % 2 ? 1000 : -3); /* codes that are none */
    if (net && world->rank == 2) rd_net_send_beats(net, &good, 1, 0);
    for (int i = 0; i < 600 && world->rank == 0 && !why[0] && all[3].step != 7; i++) {
        rd_net_receive_beats(net, all, world->size, &code);
        nap(0.1);
    }
    for (int r = 0; r < 3; r++) n_other += all[r].rank != -7;
    if (world->rank == 0)
        printf("good %d, other %d, code %d %s\n", all[3].step == 7, n_other, code, why);
    RD_TRY(rd_comm_barrier(c, st));
done:
    rd_net_close(net);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    rd_comm *c = NULL;
    rd_log *log = NULL;
    rd_watch *w = NULL;
    const rd_watch_limits limits = {.warn_s = 1.0, .abort_s = 2.5};
    const int64_t n_steps = argc > 2 ? strtoll(argv[2], NULL, 10) : 10;
    if (rd_comm_start(&argc, &argv, &c, &st) != RD_OK) return st.code;
    const rd_world *world = rd_comm_world(c);
    const char *what = argc > 1 ? argv[1] : "fine";
    RD_TRY(rd_log_new(world->rank, world->host, stdout, &log, &st));
    if (strcmp(what, "code") == 0) {
        RD_TRY(tell_code(c, &st));
        goto done;
    }
    if (strcmp(what, "beats") == 0) {
        RD_TRY(tell_beats(c, &st));
        goto done;
    }
    struct rlimit files;
    (void)getrlimit(RLIMIT_FSIZE, &files);
    if (strcmp(what, "unshared") ==
        0) { /* a limit on the size of files is one on shared memory, too */
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 0, .rlim_max = files.rlim_max});
    }
    RD_TRY(rd_watch_start(c, log, &limits, &w, &st));
    (void)setrlimit(RLIMIT_FSIZE, &files);
    for (int64_t step = 1; step <= n_steps; step++) {
        float x[2] = {1.0f, (float)world->rank};
        rd_watch_beat(w, RD_PHASE_COMPUTE, step);
        nap(0.05);
        if (step == 5) happen(what, c, w, log, step);
        rd_watch_beat(w, RD_PHASE_WAIT, step);
        RD_TRY(rd_comm_sum_f32(c, x, 2, &st));
        rd_watch_beat(w, RD_PHASE_UPDATE, step);
        if (world->rank == 0) printf("step %lld\n", (long long)step), fflush(stdout);
    }
    if (world->rank == 0) printf("done\n");
done:
    if (st.code != RD_OK) rd_error(log, &st);
    rd_watch_stop(w);
    rd_log_free(log);
    rd_comm_free(c);
    return st.code;
}
