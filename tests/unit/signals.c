/* signals.c -- tests what a signal means to a run: USR1 asks for a save, TERM and others for a
 * stop. The same request within a fifth of a second counts once; a later one ends the process. */
#include "../../runner/run/signals.h"
#include "rd/clock.h"
#include "test.h"
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Waits at most five seconds until the thread of the handlers has done its work. */
static bool soon(bool (*done)(void))
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000; i++) {
        if (done()) return true;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

static bool stopped(void)
{
    return signals_stop() != 0;
}

static void test_save(void **state)
{
    (void)state;
    const pid_t pid = fork();
    if (pid == 0) {
        signals_start(NULL);
        if (signals_take_save()) _exit(1);
        for (int i = 0; i < 2; i++) {
            (void)kill(getpid(), SIGUSR1);
            if (!soon(signals_take_save)) _exit(2);
        }
        if (signals_take_save()) _exit(3);
        _exit(signals_stop() == 0 ? 0 : 4);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The seconds that max_hours leaves. */
static void test_left(void **state)
{
    (void)state;
    assert_true(isinf(signals_left_s()));
    signals_limit(rd_now_ns() + INT64_C(100000000000));
    assert_true(signals_left_s() > 10.0 && signals_left_s() <= 100.0);
    assert_int_equal(signals_stop(), 0);
    signals_limit(rd_now_ns() - 1);
    assert_true(signals_left_s() == 0.0);
    assert_int_equal(signals_stop(), SIGNALS_LATE);
    signals_limit(0);
    assert_true(isinf(signals_left_s()));
}

static struct stop_row {
    const char *name;
    int sig;
} stop_rows[] = {{"TERM", SIGTERM}, {"INT", SIGINT}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}};

static void check_stop(void **state)
{
    const struct stop_row *r = *state;
    int ends[2];
    char alive = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGHUP, SIG_DFL); /* under nohup it would stay ignored */
        signals_start(NULL);
        if (signals_stop() != 0) _exit(1);
        (void)kill(getpid(), r->sig);
        (void)kill(getpid(), r->sig); /* at once: the same request */
        if (!soon(stopped) || signals_stop() != r->sig || signals_take_save()) _exit(2);
        if (write(ends[1], "x", 1) != 1) _exit(4); /* it has not ended yet */
        const struct timespec later = {.tv_nsec = 300000000};
        (void)nanosleep(&later, NULL);
        (void)kill(getpid(), r->sig);
        (void)sleep(5);
        _exit(3);
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &alive, 1), 1);
    (void)close(ends[0]);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + r->sig);
}

RD_TESTS("signals", TEST(test_save), TEST(test_left), TEST_ROWS(check_stop, stop_rows))
