/* near_cores.c -- the cores near a GPU: lists of cores, a made /sys, who is bound, what the log
 * says, and the binding of this process itself. */
#include "rd/near_cores.h"
#include "../../runner/comm/near_rules.h"
#include "rd/file.h"
#include "test.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>

static rd_cpu_set cores(int from, int to)
{
    rd_cpu_set s = {.bits = {0}};
    for (int i = from; i < to; i++) s.bits[i / 64] |= (uint64_t)1 << (i % 64);
    return s;
}

static const struct list {
    const char *name, *text;
    bool right;
    int n, last;
} lists[] = {
    {"one core", "7\n", true, 1, 7},
    {"a range", "0-3\n", true, 4, 3},
    {"two ranges, as with hyperthreads", "0-31,64-95\n", true, 64, 95},
    {"without an end of line", "0,2,4", true, 3, 4},
    {"the last core of a set", "8191", true, 1, 8191},
    {"empty", "\n", false, 0, 0},
    {"nothing", "", false, 0, 0},
    {"backwards", "3-1\n", false, 0, 0},
    {"beyond the set", "0-8192\n", false, 0, 0},
    {"far beyond", "0-99999999999999999999\n", false, 0, 0},
    {"words", "none\n", false, 0, 0},
    {"a comma too much", "0-3,\n", false, 0, 0},
    {"a range without end", "0-\n", false, 0, 0},
    {"a negative core", "-1\n", false, 0, 0},
};

static void test_cpulist(void **state)
{
    const struct list *l = *state;
    rd_cpu_set s;
    int n = 0, last = 0;
    assert_int_equal(rd_cpus_parse(l->text, &s), l->right);
    if (!l->right) return;
    for (int i = 0; i < 64 * RD_CPU_WORDS; i++) {
        if (!(s.bits[i / 64] >> (i % 64) & 1)) continue;
        n++;
        last = i;
    }
    assert_int_equal(n, l->n);
    assert_int_equal(last, l->last);
}

static char sys[256];

static void put(const char *file, const char *text)
{
    char dir[400], path[450];
    rd_status st = {0};
    snprintf(dir, sizeof dir, "%s/bus/pci/devices/0000:3b:00.0", sys);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    must_do(rd_mkdirs(dir, &st), &st);
    must_do(rd_file_write_atomic(path, text, strlen(text), &st), &st);
}

static void test_node(void **state)
{
    rd_cpu_set near;
    const rd_cpu_set want = cores(32, 64);
    (void)state;
    assert_int_equal(rd_near_node(sys, "0000:3B:00.0", &near), -1); /* no such device */
    put("numa_node", "1\n");
    assert_int_equal(rd_near_node(sys, "0000:3B:00.0", &near), -1); /* no list */
    put("local_cpulist", "32-63\n");
    assert_int_equal(rd_near_node(sys, "0000:3B:00.0", &near), 1); /* CUDA has upper case */
    assert_memory_equal(&near, &want, sizeof near);
    assert_int_equal(rd_near_node(sys, "", &near), -1);
    assert_int_equal(rd_near_node(sys, "../../pci/devices/0000:3b:00.0", &near), -1);
    assert_int_equal(rd_near_node(sys, "0000:3b:00.0/../0000:3b:00.0", &near), -1);
    put("local_cpulist", "\n");
    assert_int_equal(rd_near_node(sys, "0000:3b:00.0", &near), -1);
    put("local_cpulist", "0-63\n");
    put("numa_node", "-1\n"); /* a machine with one node */
    assert_int_equal(rd_near_node(sys, "0000:3b:00.0", &near), -1);
    put("numa_node", "");
    assert_int_equal(rd_near_node(sys, "0000:3b:00.0", &near), -1);
}

static const struct choice {
    const char *name;
    int node, mine[2], near[2], other[2];
    bool launcher;
    rd_near want;
} choices[] = {
    {"all cores of two nodes", 0, {0, 64}, {0, 32}, {0, 64}, false, RD_NEAR_BOUND},
    {"nothing known", -1, {0, 64}, {0, 0}, {0, 64}, false, RD_NEAR_SAME},
    {"near already", 0, {0, 32}, {0, 32}, {0, 32}, false, RD_NEAR_SAME},
    {"one core, which is near", 0, {5, 6}, {0, 32}, {6, 7}, true, RD_NEAR_SAME},
    {"on the other node", 1, {0, 32}, {32, 64}, {0, 32}, false, RD_NEAR_FAR},
    {"on the other node by the launcher", 1, {0, 1}, {32, 64}, {1, 2}, true, RD_NEAR_FAR},
    {"the ranks have different cores", 0, {0, 40}, {0, 32}, {40, 64}, false, RD_NEAR_LAUNCHER},
    {"the launcher says so", 0, {0, 64}, {0, 32}, {0, 64}, true, RD_NEAR_LAUNCHER},
};

static void test_choice(void **state)
{
    const struct choice *c = *state;
    const rd_cpu_set all[2] = {cores(c->mine[0], c->mine[1]), cores(c->other[0], c->other[1])},
                     near = cores(c->near[0], c->near[1]);
    assert_int_equal(rd_near_choose(&all[0], &near, c->node, all, 2, c->launcher), c->want);
}

static const struct text {
    const char *name;
    rd_near_cores rank[2];
    int n;
    const char *want; /* "!" in front: a warning */
} texts[] = {
    {"nothing to tell",
     {{RD_NEAR_SAME, -1, 64, 64, 0, 0}, {RD_NEAR_SAME, -1, 64, 64, 0, 0}},
     2,
     ""},
    {"one rank",
     {{RD_NEAR_BOUND, 1, 64, 32, 0, 0}},
     1,
     "cores: the rank is bound to those of its GPU's NUMA node (rank 0: node 1, 32 of 64 cores)"},
    {"one of two ranks",
     {{RD_NEAR_SAME, -1, 64, 64, 0, 0}, {RD_NEAR_BOUND, 0, 64, 32, 0, 0}},
     2,
     "cores: 1 of 2 ranks is bound to those of their GPU's NUMA node (rank 1: node 0, 32 of 64 "
     "cores)"},
    {"by the launcher",
     {{RD_NEAR_LAUNCHER, 0, 64, 64, 0, 0}, {RD_NEAR_LAUNCHER, 0, 64, 64, 0, 0}},
     2,
     "cores: ranks are not bound to their GPU's NUMA node, because the launcher has bound them"},
    {"by the environment",
     {{RD_NEAR_THREADS, 0, 64, 64, 0, 2}},
     1,
     "cores: ranks are not bound to their GPU's NUMA node, because GOMP_CPU_AFFINITY places "
     "threads"},
    {"far away",
     {{RD_NEAR_BOUND, 0, 64, 32, 0, 0}, {RD_NEAR_FAR, 1, 32, 32, 0, 0}},
     2,
     "!rank 1 has no core on NUMA node 1, where its GPU is (1 of 2 ranks), so its batches cross "
     "between nodes; mpirun --bind-to none lets run_dist bind ranks"},
    {"refused by the system",
     {{RD_NEAR_FAILED, 1, 64, 64, EPERM, 0}},
     1,
     "!rank 0 cannot be bound to the cores of NUMA node 1, where its GPU is: Operation not "
     "permitted"},
};

static void test_text(void **state)
{
    const struct text *t = *state;
    char out[320];
    const bool warns = rd_near_text(t->rank, t->n, out);
    assert_int_equal(warns, t->want[0] == '!');
    assert_string_equal(out, t->want + warns);
}

/* Returns the lowest core of this process and the number of its cores. */
static int my_cores(int *n)
{
    cpu_set_t set;
    int first = -1;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    *n = CPU_COUNT(&set);
    for (int i = 0; first < 0; i++)
        if (CPU_ISSET(i, &set)) first = i;
    return first;
}

/* This process, with two cores or more, is bound to its first one. */
static void test_process(void **state)
{
    rd_status st = {0};
    rd_comm *c;
    rd_near_cores got;
    char list[32];
    int n, argc = 0;
    char **argv = NULL;
    const int first = my_cores(&n);
    (void)state;
    if (n < 2) skip_because("this process has one core");
    must_do(rd_comm_start(&argc, &argv, &c, &st), &st);
    snprintf(list, sizeof list, "%d\n", first);
    put("numa_node", "1\n");
    put("local_cpulist", list);
    setenv("RD_COMM_SYSFS", sys, 1);
    setenv("OMP_PROC_BIND", "close", 1);
    must_do(rd_comm_bind_near(c, "0000:3B:00.0", &got, &st), &st);
    assert_int_equal(got.result, RD_NEAR_THREADS);
    setenv("OMP_PROC_BIND", "false", 1);
    setenv("OMPI_MCA_orte_bound_at_launch", "1", 1);
    must_do(rd_comm_bind_near(c, "0000:3B:00.0", &got, &st), &st);
    assert_int_equal(got.result, RD_NEAR_LAUNCHER);
    unsetenv("OMPI_MCA_orte_bound_at_launch");
    must_do(rd_comm_bind_near(c, "0000:3C:00.0", &got, &st), &st);
    assert_int_equal(got.result, RD_NEAR_SAME);
    assert_int_equal(my_cores(&got.n_after), first);
    assert_int_equal(got.n_after, n); /* nothing has been bound so far */
    must_do(rd_comm_bind_near(c, "0000:3B:00.0", &got, &st), &st);
    assert_int_equal(got.result, RD_NEAR_BOUND);
    assert_int_equal(got.n_before, n);
    assert_int_equal(got.n_after, 1);
    assert_int_equal(my_cores(&n), first);
    assert_int_equal(n, 1);
    assert_int_equal(rd_comm_world(c)->n_cpus, 1);
    rd_comm_free(c);
}

static int begin(void **state)
{
    static const char *const unset[] = {
        "OMP_PROC_BIND",        "OMP_PLACES", "GOMP_CPU_AFFINITY", "OMPI_MCA_orte_bound_at_launch",
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",  "PMI_SIZE",          "SLURM_PROCID",
        "SLURM_NTASKS"};
    const char *tmp = getenv("TMPDIR");
    (void)state;
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++) unsetenv(unset[i]);
    snprintf(sys, sizeof sys, "%.200s/rd_sys.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(sys) ? 0 : -1;
}

static int end(void **state)
{
    char cmd[300];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", sys);
    return system(cmd);
}

RD_TESTS_WITH("near_cores", begin, end, TEST_ROWS(test_cpulist, lists), TEST(test_node),
              TEST_ROWS(test_choice, choices), TEST_ROWS(test_text, texts), TEST(test_process))
