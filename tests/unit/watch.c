/* watch.c -- tests which rank is to blame: rd_watch_judge and rd_watch_describe on made-up jobs;
 * and the watch thread on a host with many ranks. */
#include "rd/watch.h"
#include "../../runner/comm/comm_impl.h"
#include "test.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct row {
    const char *name;
    rd_verdict verdict;
    int culprit, n_waiting;
    const char *ranks; /* "phase step age" of each; "gone" or "still" before it */
} row;

/* Limits: 60 and 300. */
static const row rows[] = {
    {"nobody", RD_WATCH_FINE, -1, 0, ""},
    {"all at work", RD_WATCH_FINE, 2, 0, "compute 5 1, compute 5 2, compute 5 3, compute 5 0"},
    {"one is slow", RD_WATCH_WARN, 1, 3, "wait 5 70, compute 5 71, wait 5 69, wait 5 70"},
    {"at the limit is not over it", RD_WATCH_FINE, 1, 1, "wait 5 70, compute 5 60"},
    {"others have waited long, it has just begun", RD_WATCH_FINE, 1, 1, "wait 5 900, compute 5 1"},
    {"one hangs", RD_WATCH_STALL, 1, 2, "wait 5 301, input 5 302, wait 5 303"},
    {"two hang: the longer one", RD_WATCH_STALL, 2, 1, "wait 5 400, compute 5 302, compute 5 350"},
    {"a save may take long", RD_WATCH_FINE, 0, 1, "save 5 599, wait 6 598"},
    {"but not for ever", RD_WATCH_STALL, 0, 1, "save 5 3001, wait 6 3000"},
    {"nor a start", RD_WATCH_WARN, 0, 0, "start 0 601"},
    {"one evaluates, another hangs", RD_WATCH_STALL, 1, 0, "evaluate 5 400, compute 5 301"},
    {"all wait: the one behind", RD_WATCH_STALL, 1, 2, "wait 6 310, wait 5 305, wait 6 320"},
    {"all wait in one step: the longest", RD_WATCH_WARN, 2, 2, "wait 6 61, wait 6 62, wait 6 63"},
    {"all wait, one since a moment ago", RD_WATCH_FINE, 0, 2,
     "wait 6 400, wait 6 0.1, exchange 6 399"},
    {"one stands still, and others update", RD_WATCH_STALL, 0, 2,
     "still wait 5 301, update 5 302, update 5 302"},
    {"two stand still: the longer one", RD_WATCH_WARN, 2, 2,
     "still wait 5 61, update 5 62, still wait 5 63"},
    {"one stands still while another saves", RD_WATCH_FINE, 1, 1, "still wait 5 400, save 5 401"},
    {"one is gone", RD_WATCH_LOST, 1, 1, "wait 5 1, gone compute 5 1"},
    {"gone, and another hangs", RD_WATCH_LOST, 1, 0, "compute 5 999, gone wait 5 1"},
    {"gone after its end", RD_WATCH_FINE, 0, 0, "compute 5 1, gone end 5 9"},
};

static int fill(const char *text, rd_beat b[4])
{
    int n = 0;
    memset(b, 0, 4 * sizeof *b);
    for (; *text && n < 4; n++) {
        char phase[16] = "";
        long long step = 0;
        int used = 0;
        b[n].rank = n;
        b[n].gone = strncmp(text, "gone ", 5) == 0;
        b[n].still = strncmp(text, "still ", 6) == 0;
        text += b[n].gone ? 5 : b[n].still ? 6 : 0;
        assert_int_equal(sscanf(text, "%15s %lld %lf%n", phase, &step, &b[n].age_s, &used), 3);
        text += used + (text[used] == ',' ? 2 : 0);
        b[n].step = step;
        while (b[n].phase < RD_N_PHASES && strcmp(rd_phase_name((rd_phase)b[n].phase), phase) != 0)
            b[n].phase++;
        assert_true(b[n].phase < RD_N_PHASES);
    }
    return n;
}

static void test_judge(void **state)
{
    (void)state;
    const rd_watch_limits l = {.warn_s = 60.0, .abort_s = 300.0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rd_beat b[4];
        int culprit = 0, n_waiting = 0;
        const int n = fill(rows[i].ranks, b);
        const rd_verdict v = rd_watch_judge(b, n, &l, &culprit, &n_waiting);
        if (v != rows[i].verdict || culprit != rows[i].culprit || n_waiting != rows[i].n_waiting)
            fail_msg("%s: verdict %d, culprit %d, %d wait", rows[i].name, (int)v, culprit,
                     n_waiting);
    }
}

static void test_limits_off(void **state)
{
    (void)state;
    rd_beat b[4];
    int culprit, n_waiting;
    const int n = fill("wait 5 301, input 5 302, wait 5 303", b);
    assert_int_equal(rd_watch_judge(b, n, &(rd_watch_limits){.warn_s = 0, .abort_s = 0}, &culprit,
                                    &n_waiting),
                     RD_WATCH_FINE);
    assert_int_equal(rd_watch_judge(b, n, &(rd_watch_limits){.warn_s = 1, .abort_s = 0}, &culprit,
                                    &n_waiting),
                     RD_WATCH_WARN);
    assert_int_equal(rd_watch_judge(b, n, &(rd_watch_limits){.warn_s = 0, .abort_s = 1}, &culprit,
                                    &n_waiting),
                     RD_WATCH_STALL);
}

static void test_say(void **state)
{
    (void)state;
    char text[400];
    rd_beat b = {.rank = 3,
                 .phase = RD_PHASE_COMPUTE,
                 .step = 41,
                 .pid = 812,
                 .age_s = 63.4,
                 .host = "node2"};
    rd_watch_describe(&b, RD_WATCH_WARN, 7, text, sizeof text);
    assert_string_equal(
        text,
        "rank 3 (node2, process 812) has been computing step 41 for 63 s; 7 ranks wait for it");
    rd_watch_describe(&b, RD_WATCH_STALL, 1, text, sizeof text);
    assert_non_null(strstr(text, "; 1 rank waits for it"));
    b.phase = 99; /* of a broken sender */
    rd_watch_describe(&b, RD_WATCH_LOST, 0, text, sizeof text);
    assert_non_null(strstr(text, "rank 3 (node2, process 812) is gone"));
    assert_string_equal(rd_phase_name(RD_PHASE_SAVE), "save");
}

/* There are more ranks than the thread has entries to wait on, and the limit of open files is
 * below the number of ranks: it waits for all of them anyway. */
static void test_many_ranks(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_comm *c = NULL;
    rd_watch *w = NULL;
    struct rlimit files;
    assert_int_equal(rd_comm_self_new(&c, &st), RD_OK);
    c->w.local_size = c->w.size = 4000;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 64, .rlim_max = files.rlim_max}), 0);
    const clock_t before = clock();
    assert_int_equal(
        rd_watch_start(c, NULL, &(rd_watch_limits){.warn_s = 60, .abort_s = 300}, &w, &st), RD_OK);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    rd_watch_stop(w);
    const double busy_s = (double)(clock() - before) / CLOCKS_PER_SEC;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    rd_comm_free(c);
    if (all_cases() && busy_s > 0.3) fail_msg("the watch was busy for %.2f s of one", busy_s);
}

RD_TESTS("watch", TEST(test_judge), TEST(test_limits_off), TEST(test_say), TEST(test_many_ranks))
