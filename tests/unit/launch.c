/* launch.c -- tests the line that starts the ranks, how ranks are dealt to hosts, and what becomes
 * of the launcher's own texts. */
#include "../../runner/launch/launch_impl.h"
#include "test.h"
#include <fcntl.h>
#include <stdio.h>

enum { MOST_WORDS = 16 };

static rd_cli cli_of(const char *const *words, rd_status *st)
{
    const char *argv[MOST_WORDS + 2] = {"run_dist"};
    rd_cli cli;
    int n = 1;
    for (int i = 0; words[i]; i++) argv[n++] = words[i];
    must_do(rd_cli_parse(n, (char *const *)(uintptr_t)argv, &cli, st), st);
    return cli;
}

/* ---- the line ---- */

static const struct line_case {
    const char *name;
    const char *words[MOST_WORDS];
    start_way way;
    int major;
    bool root, batch, yield, input;
    const char *network, *want;
} line_cases[] = {
    {"one host",
     {"--np=4", "x.json", "--logdir=a b"},
     START_MPIRUN,
     4,
     .network = "",
     .want = "mpirun -np 4 --map-by slot --oversubscribe --bind-to none /bin/run_dist x.json "
             "'--logdir=a b'"},
    {"one host as root, with Open MPI 5",
     {"--np", "2", "x.json"},
     START_MPIRUN,
     5,
     .root = true,
     .network = "",
     .want = "mpirun --allow-run-as-root -np 2 --map-by slot:OVERSUBSCRIBE --bind-to none "
             "/bin/run_dist x.json"},
    {"hosts of a batch system",
     {"--np=4", "x.json"},
     START_MPIRUN,
     4,
     .batch = true,
     .network = "",
     .want = "mpirun -np 4 --map-by slot --bind-to none /bin/run_dist x.json"},
    {"two hosts",
     {"--hosts=a:2,b:2", "x.json"},
     START_MPIRUN,
     4,
     .network = "10.0.0.0/24",
     .want = "mpirun -np 4 --host a:2,b:2 --mca oob_tcp_keepalive_time 5 --mca "
             "oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 --mca btl_tcp_if_include "
             "10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 --map-by slot --bind-to none "
             "/bin/run_dist x.json"},
    {"two hosts with Open MPI 5, a port of ssh and a user",
     {"--hosts=me@a:2,me@b:2", "--ssh_port=12345", "x.json"},
     START_MPIRUN,
     5,
     .network = "eth0",
     .want = "mpirun -np 4 --host a:2,b:2 --prtemca plm_ssh_args '-p 12345 -l me' --prtemca "
             "oob_tcp_keepalive_time 5 --prtemca oob_tcp_keepalive_intvl 1 --prtemca "
             "oob_tcp_keepalive_probes 3 --mca btl_tcp_if_include eth0 --prtemca if_include eth0 "
             "--map-by slot --bind-to none /bin/run_dist x.json"},
    {"more ranks than CPUs",
     {"--hosts=a:1,b:1", "x.json"},
     START_MPIRUN,
     4,
     .yield = true,
     .network = "",
     .want = "mpirun -np 2 --host a:1,b:1 --mca oob_tcp_keepalive_time 5 --mca "
             "oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 --map-by slot --bind-to "
             "none --mca mpi_yield_when_idle 1 /bin/run_dist x.json"},
    {"ports of a firewall",
     {"--np=2", "--ports=46000", "x.json"},
     START_MPIRUN,
     4,
     .network = "",
     .want = "mpirun -np 2 --map-by slot --oversubscribe --bind-to none --mca "
             "oob_tcp_dynamic_ipv4_ports 46000-46049 --mca btl_tcp_port_min_v4 46050 --mca "
             "btl_tcp_port_range_v4 100 /bin/run_dist x.json"},
    {"what the user's words say is not repeated",
     {"--hosts=a:1,b:1",
      "--mpirun_args=-mca oob_tcp_keepalive_time 9 --bind-to core -mca btl_tcp_if_exclude "
      "lo,docker0 "
      "--map-by node -mca plm_rsh_args '-p 9'",
      "--ssh_port=12345", "x.json"},
     START_MPIRUN,
     4,
     .network = "10.0.0.0/24",
     .want = "mpirun -np 2 --host a:1,b:1 --mca oob_tcp_keepalive_intvl 1 --mca "
             "oob_tcp_keepalive_probes 3 -mca oob_tcp_keepalive_time 9 --bind-to core -mca "
             "btl_tcp_if_exclude lo,docker0 --map-by node -mca plm_rsh_args '-p 9' /bin/run_dist "
             "x.json"},
    {"srun",
     {"--np=4", "x.json", "--set", "seed=1"},
     START_SRUN,
     4,
     .batch = true,
     .network = "",
     .want = "srun --mpi=pmix --ntasks=4 --kill-on-bad-exit=0 --input=none /bin/run_dist x.json "
             "--set seed=1"},
    {"srun, and a rank that reads",
     {"--np=2", "--mode=infer", "x.json", "--input=-"},
     START_SRUN,
     4,
     .batch = true,
     .input = true,
     .network = "",
     .want = "srun --mpi=pmix --ntasks=2 --kill-on-bad-exit=0 --input=0 /bin/run_dist --mode=infer "
             "x.json --input=-"},
};

static void check_line(void **state)
{
    const struct line_case *c = *state;
    rd_status st = {0};
    rd_cli cli = cli_of(c->words, &st);
    doc_hosts hosts;
    start_words w;
    rd_strbuf text = {0};
    start_facts f = {.way = c->way,
                     .major = c->major,
                     .root = c->root,
                     .batch = c->batch,
                     .yield = c->yield,
                     .input = c->input,
                     .network = c->network,
                     .mpi = "pmix",
                     .program = "/bin/run_dist",
                     .hosts = &hosts};
    clearenv(); /* its variables would be in the line */
    must_do(start_hosts(&cli, &hosts, &f.np, &st), &st);
    must_do(start_line(&f, &cli, &w, &st), &st);
    doc_line_text(w.at, w.n, &text);
    assert_string_equal(rd_strbuf_str(&text), c->want);
    rd_strbuf_release(&text);
    start_words_free(&w);
    doc_hosts_release(&hosts);
    rd_cli_release(&cli);
}

static void variables_travel(void **state)
{
    static const char *const words[] = {"--hosts=a:1,b:1", "x.json", NULL};
    (void)state;
    rd_status st = {0};
    rd_cli cli = cli_of(words, &st);
    doc_hosts hosts;
    start_words w;
    start_facts f = {.major = 4, .network = "", .program = "p", .hosts = &hosts};
    setenv("NCCL_DEBUG", "WARN", 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    setenv("COLUMNS", "61", 1);
    setenv("RD_TERMINAL", "colours", 1);
    must_do(start_hosts(&cli, &hosts, &f.np, &st), &st);
    must_do(start_line(&f, &cli, &w, &st), &st);
    int found = 0;
    for (int i = 0; i + 1 < w.n; i++)
        if (!strcmp(w.at[i], "-x"))
            found += !strcmp(w.at[i + 1], "NCCL_DEBUG") ||
                     !strcmp(w.at[i + 1], "OMP_NUM_THREADS") || !strcmp(w.at[i + 1], "COLUMNS") ||
                     !strcmp(w.at[i + 1], "RD_TERMINAL");
    assert_int_equal(found, 4);
    unsetenv("NCCL_DEBUG");
    unsetenv("COLUMNS");
    unsetenv("RD_TERMINAL");
    start_words_free(&w);
    doc_hosts_release(&hosts);
    rd_cli_release(&cli);
}

/* ---- hosts ---- */

static const struct hosts_case {
    const char *name;
    const char *words[MOST_WORDS];
    int64_t np;       /* 0: a failure */
    const char *want; /* the slots, or the message */
} hosts_cases[] = {
    {"slots are the ranks", {"--hosts=a:2,b:3"}, 5, "2 3"},
    {"fewer ranks than slots", {"--hosts=a:2,b:3", "--np=3"}, 3, "2 3"},
    {"ranks are dealt to hosts without slots", {"--hosts=a,b", "--np=5"}, 5, "3 2"},
    {"one rank each", {"--hosts=a,b"}, 2, "1 1"},
    {"more ranks than slots",
     {"--hosts=a:1,b:1", "--np=4"},
     0,
     "--np=4 asks for more ranks than the 2 slots of --hosts=a:1,b:1; write more slots, as a:2, or "
     "fewer ranks"},
    {"users that differ",
     {"--hosts=x@a:1,y@b:1"},
     0,
     "hosts a and b have different users or ports, but mpirun has one of each for all hosts; put "
     "them into ~/.ssh/config (Host, User, Port)"},
    {"a slot that is no number",
     {"--hosts=a:x"},
     0,
     "--hosts: the slots of 'a:x' must be a number, 1 .. 4096, not 'x'; write a:4 for four ranks "
     "there"},
};

static void check_hosts(void **state)
{
    const struct hosts_case *c = *state;
    rd_status st = {0}, failed = {0};
    rd_cli cli = cli_of(c->words, &st);
    doc_hosts hosts;
    int64_t np = 0;
    char text[200] = "";
    (void)start_hosts(&cli, &hosts, &np, &failed);
    if (c->np == 0) {
        assert_int_equal(failed.code, RD_EUSAGE);
        assert_string_equal(failed.msg, c->want);
    } else {
        must(&failed);
        assert_int_equal(np, c->np);
        for (int i = 0; i < hosts.n; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? " " : "",
                     hosts.at[i].slots);
        assert_string_equal(text, c->want);
    }
    doc_hosts_release(&hosts);
    rd_cli_release(&cli);
}

static void versions(void **state)
{
    (void)state;
    assert_int_equal(start_major("Open MPI 4.1.4"), 4);
    assert_int_equal(start_major("Open MPI 5.0.6"), 5);
    assert_int_equal(start_major("Open MPI 4.0.3"), 0);
    assert_int_equal(start_major("Open MPI 1.10.2"), 0);
    assert_int_equal(start_major("HYDRA build details:"), 0);
    assert_int_equal(start_major(""), 0);
}

/* ---- what the launcher prints ---- */

#define RULER "--------------------------------------------------------------------------\n"
#define EXITED                                                                                \
    RULER                                                                                     \
    "Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n" RULER \
        RULER "mpirun detected that one or more processes exited with non-zero status, thus " \
    "causing\nthe job to be terminated. The first process to do so was:\n\n  Process "        \
    "name: [[1,1],0]\n  Exit code:    75\n" RULER

static const struct output_case {
    const char *name, *in, *passed, *cause;
    bool last;
} output_cases[] = {
    {"lines of ranks", "one\ntwo\n", "one\ntwo\n", "", false},
    {"a line without an end", "how many? ", "how many? ", "", false},
    {"the end of a run that stopped", "saved\n" EXITED, "saved\n", "", false},
    {"lines behind a block", EXITED "saved\n", "saved\n", "", false},
    {"an error comes first", "run_dist: error: no data\n" EXITED, "run_dist: error: no data\n",
     "run_dist: error: no data", true},
    {"other errors follow from it", "run_dist: error: a\nrun_dist: error: b\n",
     "run_dist: error: a\n", "run_dist: error: a", true},
    {"a warning comes after it", "run_dist: error: a\nwarning: b\n",
     "run_dist: error: a\nwarning: b\n", "run_dist: error: a", false},
    {"an error of another rank", "[rank 3, node2] run_dist: error: a\nrun_dist: error: a\n",
     "[rank 3, node2] run_dist: error: a\n", "run_dist: error: a", true},
    {"a rank that is gone", "run_dist: error: rank 1 is gone\n[rank 2, b] run_dist: error: c\n", "",
     "run_dist: error: rank 1 is gone", false},
    {"what mpirun says of signals", "mpirun: Forwarding signal 12 to job\nm\n", "m\n", "", false},
    {"lines of a host", "[node1:12] PMIX ERROR: x\n[node-2.x:1] y\n[node1][[1,1],0] z\n", "", "",
     false},
    {"other brackets", "[rank 0, node1] a\n[1] b\n[]\n[a:] c\n",
     "[rank 0, node1] a\n[1] b\n[]\n[a:] c\n", "", false},
    {"an empty line stays", "a\n\nb\n", "a\n\nb\n", "", false},
    {"a short ruler is not Open MPI's", "-----\na\n-----\n", "-----\na\n-----\n", "", false},
    {"what srun says of tasks",
     "srun: error: node2: task 1: Exited with exit code 9\nsrun: Terminating StepId=1.0\n"
     "slurmstepd-node1: error: *** STEP 1.0\nsrun: error: no such partition\n",
     "srun: error: no such partition\n", "", false},
    {"a block without an end", "a\n" RULER "mpirun was unable\n", "a\n", "", false},
};

static void check_output(void **state)
{
    const struct output_case *c = *state;
    /* Whole, and byte by byte: the end of a read is not the end of a line. */
    for (int pass = 0; pass < 2; pass++) {
        char path[] = "/tmp/launch_output.XXXXXX", got[4096];
        start_output o = {.to = mkstemp(path)};
        assert_true(o.to >= 0);
        if (pass == 0)
            start_output_take(&o, c->in, strlen(c->in));
        else
            for (const char *s = c->in; *s; s++) start_output_take(&o, s, 1);
        start_output_end(&o);
        const ssize_t n = pread(o.to, got, sizeof got - 1, 0);
        assert_true(n >= 0);
        got[n] = '\0';
        assert_string_equal(got, c->passed);
        assert_string_equal(rd_strbuf_str(&o.cause), c->cause);
        assert_int_equal(o.cause_is_last, c->last);
        start_output_release(&o);
        close(o.to);
        unlink(path);
    }
}

static const struct cause_case {
    const char *name, *kept;
    int status, code;
    const char *want; /* its begin */
} cause_cases[] = {
    {"a lost host",
     RULER
     "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node "
     "node1\n  Remote daemon: [[1,0],1] on node node2\n" RULER,
     205, RD_EPEER, "host node2 was lost: its power, its network, or mpirun's daemon there;"},
    {"a lost host, with Open MPI 5",
     RULER
     "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [p-1@0,0] on node "
     "node1\n  Remote daemon: [p-1@0,1] on node node2\n" RULER,
     0, RD_EPEER, "host node2 was lost:"},
    {"no program on a host",
     RULER
     "mpirun was unable to launch the specified application as it could not access\nor execute "
     "an executable:\n\nExecutable: /opt/run_dist\nNode: node2\n\nwhile attempting to start "
     "process rank 2.\n" RULER,
     1, RD_EENV, "node2: there is no program /opt/run_dist; install the same build"},
    {"a killed rank",
     RULER "mpirun noticed that process rank 1 with PID 77 on node node2 exited on signal 9 "
           "(Killed).\n" RULER,
     137, RD_EPEER, "rank 1 on node2 was ended by signal 9, by hand or because memory ran out;"},
    {"slots", RULER "There are not enough slots available in the system to satisfy the 4\n" RULER,
     1, RD_EUSAGE, "mpirun finds not enough slots"},
    {"something else", RULER "A call to bind failed. It is not known why.\n" RULER, 1, RD_EENV,
     "the ranks could not be started, or ended: A call to bind failed. It is not known why.; "
     "--verbose shows all of it"},
    {"a daemon that is gone", "", 213, RD_EPEER, "a host was lost:"},
    {"nothing", "", 1, RD_EENV, "the launcher ended with status 1 and no message;"},
    {"a signal, and nothing", "", 137, 137, "the launcher was ended by signal 9 (Killed);"},
    {"an option that mpirun lacks",
     "mpirun: Error: unknown option \"--nonsense\"\nType 'mpirun --help' for usage.\n", 1,
     RD_EUSAGE, "mpirun has no option \"--nonsense\"; correct --mpirun_args"},
};

static void check_cause(void **state)
{
    const struct cause_case *c = *state;
    assert_int_equal(start_lost(c->kept), strstr(c->want, "host node2 was lost") != NULL);
    char text[700];
    int code = -1;
    start_cause(c->kept, c->status, &code, text);
    assert_int_equal(code, c->code);
    text[strlen(c->want) < sizeof text ? strlen(c->want) : 0] = '\0';
    assert_string_equal(text, c->want);
}

RD_TESTS("launch", TEST_ROWS(check_line, line_cases), TEST(variables_travel),
         TEST_ROWS(check_hosts, hosts_cases), TEST(versions), TEST_ROWS(check_output, output_cases),
         TEST_ROWS(check_cause, cause_cases))
