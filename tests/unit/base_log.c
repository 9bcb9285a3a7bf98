/* base_log.c -- tests where the lines of each rank go, and the live line of a terminal on a
 * pseudo-terminal. */
#include "rd/log.h"
#include "test.h"
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static char got_out[20000], got_err[20000], got_tee[20000];
static char folder[256], path[300];

static void slurp(int fd, char *into)
{
    lseek(fd, 0, SEEK_SET);
    const ssize_t n = read(fd, into, 19999);
    into[n > 0 ? n : 0] = '\0';
}

/* What comes within so many ms of the last byte, which comes in pieces, up to such an end. */
static void drain(int fd, int ms, const char *end, char *into, size_t room)
{
    size_t n = 0;
    const size_t tail = strlen(end);
    for (struct pollfd p = {.fd = fd, .events = POLLIN}; n < room - 1;) {
        if (tail > 0 && n >= tail && memcmp(into + n - tail, end, tail) == 0) break;
        if (poll(&p, 1, ms) <= 0) break;
        const ssize_t more = read(fd, into + n, room - 1 - n);
        if (more <= 0) break;
        n += (size_t)more;
    }
    into[n] = '\0';
}

/* Removes the times of run.log's lines from got_tee, and returns how many lines have one. */
static int take_times(void)
{
    static char text[sizeof got_tee];
    int n = 0;
    char *to = got_tee;
    strcpy(text, got_tee);
    for (const char *s = text; *s;) {
        const char *from = rd_log_text(s), *end = strchr(from, '\n');
        n += from != s;
        end = end ? end + 1 : from + strlen(from);
        memmove(to, from, (size_t)(end - from));
        to += end - from;
        s = end;
    }
    *to = '\0';
    return n;
}

static int n_times; /* number of lines of run.log with a time */

/* Runs body on a log of this rank, and fills got_out, got_err, got_tee, this one without times. */
static void with_log(int rank, bool tee, void (*body)(rd_log *l))
{
    rd_status st = {0};
    rd_log *l;
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out && err);
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    const rd_code made = rd_log_new(rank, "node7", out, &l, &st);
    const rd_code teed = made == RD_OK && tee ? rd_log_tee(l, path, &st) : RD_OK;
    body(l);
    rd_log_free(l);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(made, RD_OK);
    assert_int_equal(teed, RD_OK);
    slurp(fileno(out), got_out);
    slurp(fileno(err), got_err);
    fclose(out);
    fclose(err);
    const int fd = open(path, O_RDONLY);
    got_tee[0] = '\0';
    if (fd >= 0) {
        slurp(fd, got_tee);
        close(fd);
        unlink(path);
    }
    n_times = take_times();
}

static void say_all(rd_log *l)
{
    rd_info(l, "step %d", 1);
    rd_live(l, "never here");
    rd_warn(l, "odd %s", "thing");
    rd_status st = {.rank = 0};
    rd_fail(&st, RD_EDATA, "bad 100%% of '%s'", "x%s"); /* a message is text, not a format */
    rd_error(l, &st);
    st.rank = 3;
    rd_error(l, &st);
    rd_live(l, NULL);
}

static void test_rank0(void **state)
{
    (void)state;
    with_log(0, true, say_all);
    assert_string_equal(got_out, "step 1\n");
    assert_string_equal(got_err, "warning: odd thing\nrun_dist: error: bad 100% of 'x%s'\n"
                                 "run_dist: error: rank 3: bad 100% of 'x%s'\n");
    assert_string_equal(got_tee, "step 1\nwarning: odd thing\nrun_dist: error: bad 100% of 'x%s'\n"
                                 "run_dist: error: rank 3: bad 100% of 'x%s'\n");
    assert_int_equal(n_times, 4);
}

/* Only a whole time, and the blank behind it, is left out. */
static void test_text_of_line(void **state)
{
    (void)state;
    assert_string_equal(rd_log_text("2026-11-29 20:01:02 step 1"), "step 1");
    assert_string_equal(rd_log_text("2026-11-29 20:01:02 "), "");
    static const char *const whole[] = {"",
                                        "step 1",
                                        "2026-11-29 20:01:02",
                                        "2026-11-29 20:01",
                                        "2026-11-29T20:01:02 step",
                                        "2026-11-29 20:01:0x step"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        assert_ptr_equal(rd_log_text(whole[i]), whole[i]);
}

/* The time is that of the line, by the clock of the host. */
static void test_time(void **state)
{
    char from[32], to[32], got[32];
    (void)state;
    FILE *f = tmpfile();
    rd_status st = {0};
    rd_log *l;
    struct tm at;
    assert_non_null(f);
    assert_int_equal(rd_log_new(0, "h", f, &l, &st), RD_OK);
    assert_int_equal(rd_log_tee(l, path, &st), RD_OK);
    time_t now = time(NULL);
    strftime(from, sizeof from, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &at));
    rd_info(l, "x");
    now = time(NULL);
    strftime(to, sizeof to, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &at));
    rd_log_free(l);
    fclose(f);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, 22, f), 22);
    fclose(f);
    unlink(path);
    assert_memory_equal(got + 19, " x\n", 3);
    got[19] = '\0';
    assert_true(strcmp(from, got) <= 0 && strcmp(got, to) <= 0);
}

static void test_rank3(void **state)
{
    (void)state;
    with_log(3, false, say_all);
    assert_string_equal(got_out, "");
    assert_string_equal(got_err, "[rank 3, node7] warning: odd thing\n"
                                 "[rank 3, node7] run_dist: error: bad 100% of 'x%s'\n"
                                 "[rank 3, node7] run_dist: error: bad 100% of 'x%s'\n");
}

static void say_long(rd_log *l)
{
    char text[10001];
    memset(text, 'y', 10000);
    text[10000] = '\0';
    rd_info(l, "%s|", text);
    rd_info(l, "%s", "two\nlines");
}

static void test_long_line(void **state)
{
    (void)state;
    with_log(0, true, say_long);
    assert_int_equal(strlen(got_out), 10000 + 2 + 11);
    assert_string_equal(got_out + 10000, "|\ntwo\\nlines\n");
    assert_string_equal(got_out, got_tee);
}

/* Names that would move the cursor, hide text, or look like a line of the program. */
static const char forged[] =
    "a\nrun_dist: error: forged\x1b[2J\xc2\x9b\xe2\x80\xae\xff\t\xc3\xa9.jpg";
static const char escaped[] =
    "a\\nrun_dist: error: forged\\u001b[2J\\u009b\\u202e\\xff\\t\xc3\xa9.jpg";

static void say_forged(rd_log *l)
{
    rd_status st = {.rank = 0}, lines = {.rank = 0};
    rd_info(l, "%s", forged);
    rd_warn(l, "'%s' is damaged", forged);
    rd_fail(&st, RD_EDATA, "no '%s'", forged);
    rd_status_prefix(&st, "in '%s'", forged);
    rd_error(l, &st);
    rd_fail_lines(&lines, RD_EDATA, "two lines:\nthe second");
    rd_error(l, &lines);
}

static void test_forged_lines(void **state)
{
    char want[1000];
    (void)state;
    with_log(0, true, say_forged);
    snprintf(want, sizeof want, "%s\n", escaped);
    assert_string_equal(got_out, want);
    snprintf(want, sizeof want,
             "warning: '%s' is damaged\nrun_dist: error: in '%s': no '%s'\n"
             "run_dist: error: two lines:\nthe second\n",
             escaped, escaped, escaped);
    assert_string_equal(got_err, want);
    assert_memory_equal(got_tee, got_out, strlen(got_out));
    assert_string_equal(got_tee + strlen(got_out), want);
}

static void append_forged(rd_log *l)
{
    rd_status st = {.rank = 0};
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    rd_fail(&st, RD_EDATA, "no '%s'", forged);
    rd_error_append(l, path, &st);
}

static void test_forged_append(void **state)
{
    char want[1000];
    (void)state;
    with_log(3, false, append_forged);
    snprintf(want, sizeof want, "[rank 3, node7] run_dist: error: no '%s'\n", escaped);
    assert_string_equal(got_tee, want);
    assert_int_equal(n_times, 1);
}

static void test_tee_appends(void **state)
{
    (void)state;
    rd_status st = {0};
    FILE *f = fopen(path, "w");
    fputs("earlier run\n", f);
    fclose(f);
    with_log(0, true, say_long);
    assert_memory_equal(got_tee, "earlier run\nyyy", 15);
    rd_log *l;
    assert_int_equal(rd_log_new(0, "h", stdout, &l, &st), RD_OK);
    assert_int_equal(rd_log_tee(l, "/proc/none/run.log", &st), RD_EENV);
    assert_non_null(strstr(st.msg, "/proc/none/run.log"));
    rd_log_free(l);
    rd_log_free(NULL);
    rd_info(NULL, "nowhere");
    rd_live(NULL, "nowhere");
}

/* A pseudo-terminal, or the test is skipped. Returns the side that a person sees. */
static int terminal(FILE **tty)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    *tty = fopen(ptsname(master), "r+");
    if (!*tty) skip();
    struct termios t;
    tcgetattr(fileno(*tty), &t);
    cfmakeraw(&t); /* "\n" stays "\n" */
    tcsetattr(fileno(*tty), TCSANOW, &t);
    return master;
}

/* What a terminal of 20 columns gets. */
static const struct shown {
    const char *name, *no_color, *term, *columns, *want;
} shown_rows[] = {
    {"plain", "", "dumb", "20",
     "one two three four\n    five six\n    twenty-two-letters-ab\n    seven\ncut at the width...\n"
     "good news\nat 50 %\n"},
    {"wider", "", "dumb", "32",
     "one two three four five six\n    twenty-two-letters-ab seven\ncut at the width of twenty "
     "c...\ngood news\nat 50 %\n"},
    {"colours", "", "xterm", "32",
     "one two three four five six\n    twenty-two-letters-ab seven\ncut at the width of twenty "
     "c...\n\033[32mgood news\033[0m\nat 50 %\n"},
    {"NO_COLOR", "1", "xterm", "32",
     "one two three four five six\n    twenty-two-letters-ab seven\ncut at the width of twenty "
     "c...\ngood news\nat 50 %\n"},
    {"too narrow counts as not set", "", "dumb", "3",
     "one two three four five six twenty-two-letters-ab seven\ncut at the width of twenty "
     "columns\ngood news\nat 50 %\n"},
};

static void check_shown(void **state)
{
    const struct shown *r = *state;
    rd_status st = {0};
    rd_log *l;
    FILE *tty;
    const int master = terminal(&tty);
    setenv("NO_COLOR", r->no_color, 1);
    setenv("TERM", r->term, 1);
    setenv("COLUMNS", r->columns, 1);
    assert_int_equal(rd_log_new(0, "h", tty, &l, &st), RD_OK);
    assert_int_equal(rd_log_tee(l, path, &st), RD_OK);
    assert_true(rd_log_watched(l));
    rd_info(l, "one two three four five six twenty-two-letters-ab seven");
    rd_info_cut(l, "cut at the width of twenty columns");
    rd_good(l, "good news");
    rd_info(l, "at 50 %%");
    rd_log_free(l);
    drain(master, 10000, "at 50 %\n", got_out, sizeof got_out);
    assert_string_equal(got_out, r->want);
    fclose(tty);
    close(master);
    const int fd = open(path, O_RDONLY);
    slurp(fd, got_tee);
    close(fd);
    unlink(path);
    assert_int_equal(take_times(), 4);
    assert_string_equal(got_tee, "one two three four five six twenty-two-letters-ab seven\n"
                                 "cut at the width of twenty columns\ngood news\nat 50 %\n");
    unsetenv("NO_COLOR");
    unsetenv("COLUMNS");
}

/* A number and its percent sign stay together, and so do the bytes of a character. */
static void test_folds_keep_together(void **state)
{
    rd_status st = {0};
    rd_log *l;
    FILE *tty;
    const int master = terminal(&tty);
    (void)state;
    setenv("COLUMNS", "21", 1);
    setenv("TERM", "dumb", 1);
    assert_int_equal(rd_log_new(0, "h", tty, &l, &st), RD_OK);
    rd_info(l, "input 3 %%, update 12 %%");
    rd_info(l,
            "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9 "
            "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9 z");
    rd_log_free(l);
    drain(master, 10000, "z\n", got_out, sizeof got_out);
    assert_string_equal(
        got_out,
        "input 3 %, update\n    12 %\n"
        "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9 "
        "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\n"
        "    z\n");
    fclose(tty);
    close(master);
    unsetenv("COLUMNS");
}

/* A file is no terminal: its lines are whole, and its width is 80 or COLUMNS. */
static void test_no_terminal(void **state)
{
    rd_status st = {0};
    rd_log *l;
    FILE *f = tmpfile();
    (void)state;
    setenv("TERM", "xterm", 1);
    assert_non_null(f);
    assert_int_equal(rd_log_new(0, "h", f, &l, &st), RD_OK);
    assert_false(rd_log_watched(l));
    assert_int_equal(rd_log_columns(l), 80);
    setenv("COLUMNS", "100", 1);
    assert_int_equal(rd_log_columns(l), 100);
    unsetenv("COLUMNS");
    rd_good(l, "%0200d end", 7);
    rd_log_free(l);
    rewind(f);
    char line[400];
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(strlen(line), 205);
    fclose(f);
}

/* A rank of --np has the launcher's terminal, which may be on another host. */
static void test_launcher(void **state)
{
    rd_status st = {0};
    rd_log *l;
    (void)state;
    setenv("TERM", "dumb", 1);
    setenv("COLUMNS", "61", 1);
    for (int k = 0; k < 2; k++) {
        setenv("RD_TERMINAL", k ? "colours" : "plain", 1);
        assert_int_equal(rd_log_new(0, "h", stdout, &l, &st), RD_OK);
        assert_true(rd_log_watched(l));
        assert_int_equal(rd_log_columns(l), 61);
        assert_int_equal(rd_log_has_colours(), k);
        rd_log_free(l);
    }
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(rd_log_new(0, "h", f, &l, &st), RD_OK);
    assert_false(rd_log_watched(l)); /* only standard output is shown there */
    rd_log_free(l);
    fclose(f);
    unsetenv("RD_TERMINAL");
    unsetenv("COLUMNS");
    assert_false(rd_log_has_colours());
}

static void test_live_line(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_log *l;
    FILE *tty;
    const int master = terminal(&tty);
    assert_int_equal(rd_log_new(0, "h", tty, &l, &st), RD_OK);
    assert_true(rd_log_is_tty(l));
    assert_int_equal(rd_log_tee(l, path, &st), RD_OK);
    rd_live(l, "at %d%s", 1, "\x1b[2J\n");
    rd_info(l, "line");
    rd_info(l, "next");
    char wide[400] = "";
    for (int i = 0; i < 100; i++) strcat(wide, "\xC3\xA9"); /* 100 characters, 79 fit */
    rd_live(l, "%s", wide);
    rd_live(l, NULL);
    rd_live(l, NULL);
    rd_live(l, "end");
    rd_log_free(l);
    wide[2 * 79] = '\0';
    char want[1000];
    drain(master, 10000, "\rend\033[K\r\033[K", got_out, sizeof got_out);
    snprintf(want, sizeof want,
             "\rat 1\\u001b[2J\\n\033[K\r\033[Kline\nnext\n\r%s\033[K\r\033[K\rend\033[K\r\033[K",
             wide);
    assert_string_equal(got_out, want);
    fclose(tty);
    close(master);
    const int fd = open(path, O_RDONLY);
    slurp(fd, got_tee);
    close(fd);
    unlink(path);
    assert_int_equal(take_times(), 2);
    assert_string_equal(got_tee, "line\nnext\n"); /* neither live line nor escapes */
}

static long waits(void) /* how often this thread has let the processor go to wait for something */
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_THREAD, &u), 0);
    return u.ru_nvcsw;
}

/* Nobody reads the output. After a request to stop, lines are left out at once, and run.log
 * contains all of them. When a reader comes back, the log reports the number of missing lines. */
static void stuck_console(int in, FILE *to)
{
    rd_status st = {0};
    rd_log *l;
    char word[200];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_int_equal(rd_log_new(0, "h", to, &l, &st), RD_OK);
    assert_int_equal(rd_log_tee(l, path, &st), RD_OK);
    rd_log_hurry();
    const long before = waits();
    for (int i = 0; i < 2000; i++) rd_info(l, "%d %s", i, word);
    assert_true(waits() - before <
                60); /* of 50 ms each: 3 s, and a busy machine makes them no more */
    assert_int_equal(fcntl(fileno(to), F_GETFL) & O_NONBLOCK,
                     0); /* what others write to is as it was */
    static char text[600000];
    drain(in, 100, "", text, sizeof text); /* there is room again, whether that was all or not */
    const size_t n_text = strlen(text);
    rd_info(l, "again");
    drain(in, 10000, "again\n", text + n_text, sizeof text - n_text);
    const char *gap = strstr(text, "\n(");
    assert_non_null(gap);
    int lines = 0;
    for (const char *s = text; (s = strchr(s, '\n')) && s < gap; s++)
        lines += s[1] != ' '; /* a blank: the line goes on */
    assert_in_range(lines, 1, 1999);
    char want[200];
    snprintf(
        want, sizeof want,
        "\n(%d lines were not shown: nothing was read here for a while; run.log has them)\nagain\n",
        2000 - lines);
    assert_string_equal(gap, want);
    rd_log_free(l);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int n = 0;
    while (fgets(text, sizeof text, f)) n++;
    fclose(f);
    unlink(path);
    assert_int_equal(n, 2001);
}

static void test_stuck_pipe(void **state)
{
    int fd[2];
    (void)state;
    assert_int_equal(pipe(fd), 0);
    FILE *to = fdopen(fd[1], "w");
    stuck_console(fd[0], to);
    fclose(to);
    close(fd[0]);
}

static void append_error(rd_log *l)
{
    rd_status st = {.rank = 3};
    rd_fail(&st, RD_EPEER, "rank 0 is gone");
    rd_error_append(l, path, &st);
    st.rank = 5;
    rd_error_append(l, path, &st);
}

/* Behind what is there, and never a new file. */
static void test_append(void **state)
{
    (void)state;
    with_log(3, false, append_error);
    assert_string_equal(got_tee, "");
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, "a line\n", 7), 7);
    close(fd);
    with_log(3, false, append_error);
    assert_string_equal(got_tee, "a line\n[rank 3, node7] run_dist: error: rank 0 is gone\n"
                                 "[rank 3, node7] run_dist: error: rank 5: rank 0 is gone\n");
    assert_string_equal(got_err, "");
}

static void test_stuck_terminal(void **state)
{
    FILE *tty;
    (void)state;
    const int master = terminal(&tty);
    stuck_console(master, tty);
    fclose(tty);
    close(master);
}

static int make_folder(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%.200s/rd_log.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/run.log", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

RD_TESTS_WITH("base_log", make_folder, remove_folder, TEST(test_rank0), TEST(test_rank3),
              TEST(test_text_of_line), TEST(test_time), TEST(test_long_line),
              TEST(test_forged_lines), TEST(test_forged_append), TEST(test_tee_appends),
              TEST(test_live_line), TEST_ROWS(check_shown, shown_rows),
              TEST(test_folds_keep_together), TEST(test_no_terminal), TEST(test_launcher),
              TEST(test_append), TEST(test_stuck_pipe),
              /* last: hurry is for good */ TEST(test_stuck_terminal))
