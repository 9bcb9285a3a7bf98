/* progress.c -- how far a phase is: what a terminal shows, and what a file gets. */
#include "../../runner/data/images_impl.h"
#include "../../runner/run/progress.h"
#include "test.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <termios.h>

static char got[4096];

/* A pseudo-terminal, or the test is skipped. Returns the side that a person sees. */
static int terminal(FILE **tty)
{
    struct termios t;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    *tty = fopen(ptsname(master), "r+");
    if (!*tty) skip();
    tcgetattr(fileno(*tty), &t);
    cfmakeraw(&t);
    tcsetattr(fileno(*tty), TCSANOW, &t);
    return master;
}

/* Reads what the terminal shows until it has this text. */
static void shows(int master, const char *text)
{
    size_t n = 0;
    got[0] = '\0';
    while (!strstr(got, text)) {
        struct pollfd wait = {.fd = master, .events = POLLIN};
        if (poll(&wait, 1, 10000) < 1) fail_msg("'%s' is not in '%s'", text, got);
        const ssize_t k = read(master, got + n, sizeof got - 1 - n);
        assert_true(k > 0);
        n += (size_t)k;
        got[n] = '\0';
    }
}

/* Makes the phase older: `done` of its steps took `seconds`, and nothing was shown for long. */
static void age(progress *p, double seconds)
{
    p->begin_ns = rd_now_ns() - (int64_t)(seconds * 1e9);
    p->shown_ns = p->begin_ns - INT64_C(100000000000);
}

static void test_terminal(void **state)
{
    rd_world w = {.rank = 0, .size = 4, .comm = "self"};
    rd_run r = {.world = &w};
    rd_status st = {0};
    FILE *tty;
    progress p;
    const int master = terminal(&tty);
    (void)state;
    must_do(rd_log_new(0, "h", tty, &r.log, &st), &st);
    progress_start(&p, &r, "evaluation", "image", 10000);
    assert_true(p.watched);
    progress_at(&p, 1); /* too early */
    age(&p, 10.0);
    progress_at(&p, 2500);
    shows(master, "\033[K");
    assert_string_equal(got, "\revaluation: 2,500 of 10,000 images  25 %  eta 30s\033[K");
    age(&p, 10.0);
    progress_mine(&p, 5000); /* this rank's part of four */
    shows(master, "\033[K");
    assert_string_equal(got, "\revaluation: 10,000 of 10,000 images  100 %  eta 0s\033[K");
    progress_end(&p);
    shows(master, "\r\033[K");
    progress_start(&p, &r, "saving", NULL, 0);
    p.all = 3;
    age(&p, 4.0);
    progress_at(&p, 1);
    shows(master, "\rsaving: 33 %  eta 8s\033[K");
    progress_start(&p, &r, "reading", "image", 0);
    age(&p, 4.0);
    progress_at(&p, 7);
    shows(master, "reading: 7 images\033[K");
    rd_log_free(r.log);
    fclose(tty);
    close(master);
}

static void test_file(void **state)
{
    rd_world w = {.rank = 0, .size = 1, .comm = "self"};
    rd_run r = {.world = &w};
    rd_status st = {0};
    progress p;
    FILE *f = tmpfile();
    (void)state;
    assert_non_null(f);
    must_do(rd_log_new(0, "h", f, &r.log, &st), &st);
    progress_start(&p, &r, "decoding", "sentence", 4);
    assert_false(p.watched);
    p.shown_ns -= INT64_C(59000000000);
    progress_at(&p, 1); /* not a minute yet */
    age(&p, 60.0);
    progress_at(&p, 3);
    progress_at(&p, 4);
    progress_end(&p);
    rd_log_free(r.log);
    rewind(f);
    assert_non_null(fgets(got, sizeof got, f));
    assert_string_equal(got, "decoding: 3 of 4 sentences  75 %  eta 20s\n");
    assert_null(fgets(got, sizeof got, f));
    fclose(f);
}

/* Makes the reading of images older. */
static void age_reading(rd_images *m, double seconds)
{
    m->reading.begin_ns = rd_now_ns() - (int64_t)(seconds * 1e9);
    m->reading.live_ns = m->reading.begin_ns;
}

static void test_images(void **state)
{
    rd_status st = {0};
    rd_images m = {.split = RD_SPLIT_TRAIN};
    FILE *tty;
    const int master = terminal(&tty);
    (void)state;
    must_do(rd_log_new(0, "h", tty, &m.log, &st), &st);
    rd_images_read_part(&m, 0.0, 4.0); /* too early to show something */
    assert_false(m.reading.shown);
    m.head.n = 1200;
    age_reading(&m, 9.0);
    rd_images_read_part(&m, 1.0, 4.0);
    shows(master, "\033[K");
    assert_string_equal(got, "\rtraining data: 1,200 images found, 25 %, eta 27s\033[K");
    age_reading(&m, 9.0);
    m.reading.line_ns = 0; /* the log's line is due */
    rd_images_read_part(&m, 0.0, 4.0);
    shows(master, "found\n");
    m.rank = 1; /* the other ranks show nothing */
    age_reading(&m, 9.0);
    m.reading.shown = false;
    rd_images_read_part(&m, 2.0, 4.0);
    assert_false(m.reading.shown);
    rd_log_free(m.log);
    fclose(tty);
    close(master);
}

RD_TESTS("progress", TEST(test_terminal), TEST(test_file), TEST(test_images))
