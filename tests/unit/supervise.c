/* supervise.c -- tests how the supervisor reads a launcher's line, how it writes the line
 * without some hosts, and how it judges an exit status. */
#include "../../runner/supervise/supervise_impl.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 40 };

/* Words of a line; the array is the caller's, the text is written into. */
static int split(char *text, char *argv[MOST])
{
    int n = 0;
    for (char *rest = NULL, *w = strtok_r(text, " ", &rest); w && n < MOST - 1;
         w = strtok_r(NULL, " ", &rest))
        argv[n++] = w;
    argv[n] = NULL;
    return n;
}

static void joined(char **argv, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; argv[i]; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? " " : "", argv[i]);
}

static void finds_the_log_folder(void **state)
{
    static const struct {
        const char *line, *dir;
        bool own;
    } t[] = {
        {"mpirun -np 2 run_dist --logdir=a/b", "a/b", true},
        {"mpirun -np 2 run_dist --logdir a/b --set x=1", "a/b", true},
        {"/opt/bin/mpirun run_dist --logd=a", "a", true},
        {"srun --mpi=pmix run_dist --lo a", "a", true},
        {"mpirun run_dist --logdir=a --logdir=b", "b", true},
        {"timeout 100 mpirun run_dist --logdir=a", "a", false},
        {"./train.sh", NULL, false},
        {"mpirun run_dist --logdirs=a", NULL, true},
        {"mpirun run_dist --lr=1", NULL, true},
        {"mpirun run_dist --logdir", NULL, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char text[200], *argv[MOST];
        launch_line l;
        snprintf(text, sizeof text, "%s", t[i].line);
        launch_read(argv, split(text, argv), &l);
        if (t[i].dir) assert_non_null(l.logdir);
        if (t[i].dir)
            assert_string_equal(l.logdir, t[i].dir);
        else
            assert_null(l.logdir);
        assert_int_equal(l.own_launcher, t[i].own);
        launch_release(&l);
    }
}

/* dead: which hosts, by their place in the line, as bits. */
static void check_without(const char *line, unsigned dead, const char *want)
{
    char text[400], got[600], *argv[MOST];
    launch_line l;
    launch_words w;
    rd_status st = {0};
    snprintf(text, sizeof text, "%s", line);
    launch_read(argv, split(text, argv), &l);
    if (launch_hosts(&l, &st) != RD_OK) fail_msg("%s: %s", line, st.msg);
    for (int i = 0; i < l.n_hosts; i++) l.host[i].dead = dead >> i & 1;
    if (launch_without_dead(&l, &w, &st) != RD_OK) fail_msg("%s: %s", line, st.msg);
    joined(w.argv, got, sizeof got);
    assert_string_equal(got, want);
    launch_words_release(&w);
    launch_release(&l);
}

static void leaves_hosts_out(void **state)
{
    (void)state;
    check_without("mpirun -np 6 -H a:2,b:2,c:2 p", 0, "mpirun -np 6 -H a:2,b:2,c:2 p");
    check_without("mpirun -np 6 -H a:2,b:2,c:2 p", 2, "mpirun -np 4 -H a:2,c:2 p");
    check_without("mpirun -np 6 -H a:2,b:2,c:2 p", 5, "mpirun -np 2 -H b:2 p");
    check_without("mpirun --np=6 --host=a:2,b:2,c:2 p", 4, "mpirun --np=4 --host=a:2,b:2 p");
    check_without("mpirun -host a,b,b,c p -n 9", 2,
                  "mpirun -host a,c p -n 2"); /* any -n counts: p is not known to be one */
    check_without("mpirun -n 3 -H a,b,b p", 1, "mpirun -n 2 -H b,b p");
    check_without("mpirun -n 2 -H a:4,b:4 p", 1, "mpirun -n 2 -H b:4 p"); /* they fit */
    check_without("mpirun -n 8 -H a:*,b:* p", 1, "mpirun -n 4 -H b:* p"); /* as if alike */
    check_without("mpirun -n 1 -H a:*,b:*,c:* p", 3, "mpirun -n 1 -H c:* p");
    check_without("mpirun -H a:2,b:2 -mca plm_rsh_args -np p", 1,
                  "mpirun -H b:2 -mca plm_rsh_args -np p"); /* values are skipped */
    check_without("mpirun -np 4 -H a:2,b:2 apptainer exec -H /home i p", 2,
                  "mpirun -np 2 -H a:2 apptainer exec -H /home i p");
    check_without("mpirun -np 4 -H ab:2,a:2 p", 2,
                  "mpirun -np 2 -H ab:2 p"); /* a name that begins with another */
}

static void leaves_lines_of_a_hostfile_out(void **state)
{
    char name[] = "/tmp/run_dist_test.XXXXXX", line[200], text[200], got[1000] = "", *argv[MOST];
    static const char lines[] =
        "# three\na slots=2\n\n b slots=4 max_slots=8 # the big one\nc slots = 2\n";
    const int fd = mkstemp(name);
    launch_line l;
    launch_words w;
    rd_status st = {0};
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, lines, sizeof lines - 1), (int)sizeof lines - 1);
    close(fd);
    snprintf(line, sizeof line, "mpirun --hostfile %s -np 8 p", name);
    snprintf(text, sizeof text, "%s", line);
    launch_read(argv, split(text, argv), &l);
    assert_int_equal(launch_hosts(&l, &st), RD_OK);
    assert_int_equal(l.n_hosts, 3);
    assert_string_equal(l.host[1].name, "b");
    assert_int_equal(l.host[1].slots, 4);
    assert_int_equal(l.host[2].slots, 2);
    l.host[1].dead = true;
    assert_int_equal(launch_without_dead(&l, &w, &st), RD_OK);
    assert_string_equal(w.argv[4], "4");
    FILE *f = fopen(w.argv[2], "r");
    assert_non_null(f);
    assert_true(fread(got, 1, sizeof got - 1, f) > 0);
    fclose(f);
    assert_string_equal(got, "# three\na slots=2\n\nc slots = 2\n");
    snprintf(got, sizeof got, "%s", w.argv[2]);
    launch_words_release(&w);
    assert_int_not_equal(access(got, F_OK), 0);
    launch_release(&l);
    unlink(name);
}

static void asks_as_mpirun_does(void **state)
{
    static const struct {
        const char *line, *want; /* NULL: not by ssh */
    } t[] = {
        {"mpirun -H a,b p",
         "ssh -o BatchMode=yes -o ConnectTimeout=5 -o ConnectionAttempts=1 -- b true"},
        {"mpirun -H a,b -mca plm_rsh_args -F*/k/ssh_config p",
         "ssh -o BatchMode=yes -o ConnectTimeout=5 -o ConnectionAttempts=1 -F /k/ssh_config -- b "
         "true"},
        {"mpirun -H a,b --prtemca plm_ssh_agent /usr/bin/ssh*-x p",
         "/usr/bin/ssh -x -o BatchMode=yes -o ConnectTimeout=5 -o ConnectionAttempts=1 -- b true"},
        {"mpirun -H a,b -mca plm_rsh_agent sh p", NULL},
        {"mpirun -H a,b -mca plm_rsh_agent rsh p", NULL},
    };
    (void)state;
    unsetenv("OMPI_MCA_plm_rsh_agent");
    unsetenv("OMPI_MCA_plm_rsh_args");
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char text[200], got[400], *argv[MOST], **words = NULL;
        launch_line l;
        rd_strbuf b = {0};
        snprintf(text, sizeof text, "%s", t[i].line);
        const int n = split(text, argv);
        for (int k = 0; k < n; k++) { /* '*' stands for a blank inside a word */
            char *star = strchr(argv[k], '*');
            if (star) *star = ' ';
        }
        launch_read(argv, n, &l);
        const bool can = launch_probe(&l, "b", &b, &words);
        assert_int_equal(can, t[i].want != NULL);
        if (can) {
            joined(words, got, sizeof got);
            assert_string_equal(got, t[i].want);
        }
        free(words);
        rd_strbuf_release(&b);
        launch_release(&l);
    }
}

static void refuses_what_it_cannot_share_out(void **state)
{
    static const char *const lines[] = {"mpirun -np 2 p", "srun -N 2 p",
                                        "mpirun -np 1 -H a p : -np 1 -H b p", "mpirun -H , p",
                                        "mpirun --hostfile /nonexistent p"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[200], *argv[MOST];
        launch_line l;
        rd_status st = {0};
        snprintf(text, sizeof text, "%s", lines[i]);
        launch_read(argv, split(text, argv), &l);
        assert_int_equal(launch_hosts(&l, &st), RD_EUSAGE);
        assert_true(st.msg[0] != '\0');
        launch_release(&l);
    }
}

/* What a list of hosts or a hostfile says, or what is wrong with it. */
static void checks_names_and_slots(void **state)
{
    static const struct {
        const char *list, *file; /* one of them */
        const char *says;        /* of the error; NULL: none */
        int n;
        int64_t slots; /* of the first host */
    } t[] = {
        {"a,-oProxyCommand=touch${IFS}pwn:2", NULL, "'-oProxyCommand=touch${IFS}pwn:2' is not", 0,
         0},
        {"a,b c", NULL, "'b c' is not", 0, 0},
        {"a;b", NULL, "'a;b' is not", 0, 0},
        {"a,$(b)", NULL, "'$(b)' is not", 0, 0},
        {"a,b\x1b[2J", NULL, "'b\\u001b[2J' is not", 0, 0},
        {"-lroot@a", NULL, "'-lroot@a' is not", 0, 0},
        {"+n0", NULL, "'+n0' is not", 0, 0},
        {"a,:2", NULL, "an entry without a name", 0, 0},
        {"a:99999999999999999999", NULL, "'99999999999999999999' is not a number of slots", 0, 0},
        {"a:9223372036854775807,a:9223372036854775807", NULL, "is not a number of slots", 0, 0},
        {"a:1000000,b:1", NULL, "more than 1000000 slots", 0, 0},
        {"a:999999,a:2", NULL, "more than 1000000 slots", 0, 0},
        {"a:1000000", NULL, NULL, 1, 1000000},
        {"a:0", NULL, "'0' is not a number of slots", 0, 0},
        {"a:-3", NULL, "'-3' is not a number of slots", 0, 0},
        {"a:0x2", NULL, "'0x2' is not a number of slots", 0, 0},
        {"a: 2", NULL, "' 2' is not a number of slots", 0, 0},
        {"me@a:2,me@a", NULL, NULL, 1, 3},
        {"a:*,b", NULL, NULL, 2, 0},
        {"[fe80::1]:2,b", NULL, NULL, 2, 2},
        {"[fe80::1", NULL, "'[fe80::1' is not", 0, 0},
        {"[b]:2", NULL, "'[b]:2' is not", 0, 0},
        {NULL, "a slots=1\n-oProxyCommand=x slots=1\n", ":2: '-oProxyCommand=x' is not", 0, 0},
        {NULL, "a slots=1\n\n  `b` slots=1\n", ":3: '`b`' is not", 0, 0},
        {NULL, "a slots=99999999999999999999\n", ":1: '99999999999999999999' is not a number", 0,
         0},
        {NULL, "a slots=2 max_slots=99999999999999999999\n", ":1: '99999999999999999999' is", 0, 0},
        {NULL, "a max-slots = 0\n", ":1: '0' is not a number", 0, 0},
        {NULL, "a slots=\n", ":1: '' is not a number", 0, 0},
        {NULL, "a slots=4 max_slots=2\n", ":1: 4 slots are more than max_slots=2", 0, 0},
        {NULL, "a slots=600000\nb slots=600000\n", ":2: the hosts have more than 1000000", 0, 0},
        {NULL, "a\tslots = 3 max_slots=9 # one\r\nb user=x=y\n", NULL, 2, 3},
        {NULL, "fe80::1 slots=2\nme@b slots 4\n", NULL, 2, 2},
    };
    char name[] = "/tmp/run_dist_test.XXXXXX", option[100];
    const int fd = mkstemp(name);
    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        launch_line l;
        rd_status st = {0};
        char mpirun[] = "mpirun", list[200], program[] = "p",
             *argv[] = {mpirun, option, list, program, NULL};
        snprintf(option, sizeof option, "%s", t[i].list ? "-H" : "--hostfile");
        snprintf(list, sizeof list, "%s", t[i].list ? t[i].list : name);
        if (t[i].file) {
            assert_int_equal(ftruncate(fd, 0), 0);
            assert_int_equal(pwrite(fd, t[i].file, strlen(t[i].file), 0), strlen(t[i].file));
        }
        launch_read(argv, 4, &l);
        assert_int_equal(launch_hosts(&l, &st), t[i].says ? RD_EUSAGE : RD_OK);
        if (t[i].says && !strstr(st.msg, t[i].says)) fail_msg("%zu: %s", i, st.msg);
        if (!t[i].says) {
            assert_int_equal(l.n_hosts, t[i].n);
            assert_int_equal(l.host[0].slots, t[i].slots);
        }
        launch_release(&l);
    }
    close(fd);
    unlink(name);
}

/* Counts at the ends of their range: no sum or product may overflow. */
static void fits_large_counts(void **state)
{
    launch_host h[3] = {{.slots = INT64_MAX}, {.slots = INT64_MAX}, {.slots = 1, .dead = true}};
    launch_line l = {.host = h, .n_hosts = 3};
    (void)state;
    assert_int_equal(launch_fit(&l, 7), 7);
    assert_int_equal(launch_fit(&l, INT64_MAX), INT64_MAX);
    h[0].slots = 0; /* not known: two thirds of the ranks */
    assert_int_equal(launch_fit(&l, 9), 6);
    assert_int_equal(launch_fit(&l, 10), 6);
    assert_true(launch_fit(&l, INT64_MAX) == INT64_MAX / 3 * 2);
    check_without("mpirun -np 99999999999999999999 -H a:2,b:2 p", 1,
                  "mpirun -np 99999999999999999999 -H b:2 p"); /* mpirun refuses it */
    check_without("mpirun -H a:2,b:2 p -n name", 1, "mpirun -H b:2 p -n name");
    check_without("mpirun -np 4 -H me@a:2,[fe80::1]:2 p", 2, "mpirun -np 2 -H me@a:2 p");
}

static void refuses_to_probe_an_option(void **state)
{
    static const char *const names[] = {"-oProxyCommand=x", "a b", "", "a;b"};
    char mpirun[] = "mpirun", *argv[] = {mpirun, NULL}, **words = NULL;
    launch_line l;
    rd_strbuf b = {0};
    (void)state;
    launch_read(argv, 1, &l);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_false(launch_probe(&l, names[i], &b, &words));
        assert_null(words);
    }
    rd_strbuf_release(&b);
}

static void knows_this_host(void **state)
{
    char own[200] = "", text[600], *argv[MOST];
    launch_line l;
    rd_status st = {0};
    (void)state;
    gethostname(own, sizeof own - 1);
    snprintf(text, sizeof text, "mpirun -H localhost,127.0.0.1,%s,203.0.113.7,%sx p", own, own);
    launch_read(argv, split(text, argv), &l);
    assert_int_equal(launch_hosts(&l, &st), RD_OK);
    assert_int_equal(l.n_hosts, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(l.host[i].local, i < 3);
    launch_release(&l);
}

static void judges_a_status(void **state)
{
    static const int never[] = {0, 2, 4, 5, 6, 75, 110, 124, 126, 127};
    static const int again[] = {1, 3, 7, 8, 9, 70, 134, 137, 139, 143, 205, 255, 42, 213};
    char text[160];
    bool yes;
    (void)state;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        assert_true(supervise_meaning(never[i], &yes, text)[0] != '\0');
        assert_false(yes);
    }
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        assert_true(supervise_meaning(again[i], &yes, text)[0] != '\0');
        assert_true(yes);
    }
    assert_non_null(strstr(supervise_meaning(137, &yes, text), "signal 9, Killed"));
    assert_non_null(strstr(supervise_meaning(139, &yes, text), "signal 11, Segmentation fault"));
}

RD_TESTS("supervise", TEST(finds_the_log_folder), TEST(leaves_hosts_out),
         TEST(leaves_lines_of_a_hostfile_out), TEST(asks_as_mpirun_does),
         TEST(refuses_what_it_cannot_share_out), TEST(knows_this_host),
         TEST(checks_names_and_slots), TEST(fits_large_counts), TEST(refuses_to_probe_an_option),
         TEST(judges_a_status))
