/* comm_self.c -- the world of one, and the arithmetic of processor shares and control groups. */
#include "rd/comm.h"
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/ping.h"
#include "../../runner/comm/comm_impl.h"
#include "../../runner/comm/host_cpus.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int forget_launcher(void **state)
{
    (void)state;
    const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "SLURM_PROCID",
                                 "SLURM_NTASKS"};
    for (int i = 0; i < 5; i++) unsetenv(names[i]);
    return 0;
}

static void test_collectives(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_comm *c = NULL;
    int argc = 1;
    char name[] = "x", *args[] = {name, NULL}, **argv = args;
    assert_int_equal(rd_comm_start(&argc, &argv, &c, &st), RD_OK);
    const rd_world *w = rd_comm_world(c);
    assert_int_equal(w->size, 1);
    assert_int_equal(w->rank, 0);
    assert_int_equal(w->local_size, 1);
    assert_int_equal(w->n_hosts, 1);
    assert_true(w->n_cpus >= 1 && w->n_cpus <= sysconf(_SC_NPROCESSORS_CONF));
    assert_string_equal(w->comm, "self");
    assert_true(w->host[0] != '\0');
    float f[2] = {1, 2};
    double d[2] = {3, 4};
    int64_t k[2] = {5, 6};
    assert_int_equal(rd_comm_sum_f32(c, f, 2, &st), RD_OK);
    assert_int_equal(rd_comm_sum_f64(c, d, 2, &st), RD_OK);
    assert_int_equal(rd_comm_max_f64(c, d, 2, &st), RD_OK);
    assert_int_equal(rd_comm_min_f64(c, d, 2, &st), RD_OK);
    assert_int_equal(rd_comm_sum_i64(c, k, 2, &st), RD_OK);
    assert_int_equal(rd_comm_bcast(c, k, 16, 0, &st), RD_OK);
    assert_int_equal(rd_comm_local_bcast(c, k, 16, 0, &st), RD_OK);
    assert_int_equal(rd_comm_barrier(c, &st), RD_OK);
    assert_int_equal(rd_comm_local_barrier(c, &st), RD_OK);
    assert_true(f[0] == 1 && f[1] == 2 && d[0] == 3 && d[1] == 4 && k[0] == 5 && k[1] == 6);
    int64_t all[2] = {0, 0}, *lens;
    assert_int_equal(rd_comm_allgather(c, k, all, 16, &st), RD_OK);
    assert_memory_equal(all, k, 16);
    char *text;
    assert_int_equal(rd_comm_gather(c, "abc", 3, &text, &lens, &st), RD_OK);
    assert_string_equal(text, "abc");
    assert_int_equal(lens[0], 3);
    free(text);
    free(lens);
    assert_int_equal(rd_comm_gather(c, NULL, 0, &text, &lens, &st), RD_OK);
    assert_int_equal(lens[0], 0);
    free(text);
    free(lens);
    assert_int_equal(rd_comm_same(c, "config", "any", &st), RD_OK);
    assert_int_equal(rd_comm_agree(c, &st), RD_OK);
    rd_fail(&st, RD_EDATA, "no");
    assert_int_equal(rd_comm_agree(c, &st), RD_EDATA);
    assert_string_equal(st.msg, "no");
    assert_int_equal(st.rank, 0);
    rd_comm_free(c);
    rd_comm_free(NULL);
    assert_memory_equal(rd_comm_library_version(), "Open MPI ", 9);
    assert_in_range(rd_comm_library_version()[9], '1', '9');
}

static void test_abort(void **state)
{
    (void)state;
    const int codes[][2] = {{RD_EDATA, RD_EDATA}, {0, RD_EBUG}}; /* an abort is no success */
    for (int i = 0; i < 2; i++) {
        const pid_t pid = fork();
        if (pid == 0) rd_comm_abort(NULL, codes[i][0]);
        int how;
        waitpid(pid, &how, 0);
        assert_true(WIFEXITED(how));
        assert_int_equal(WEXITSTATUS(how), codes[i][1]);
    }
}

static rd_cpu_set cpus(int from, int to)
{
    rd_cpu_set s = {0};
    for (int i = from; i < to; i++) s.bits[i / 64] |= (uint64_t)1 << (i % 64);
    return s;
}

static struct share {
    const char *name;
    int n, me, range[4][2];
    double quota;
    int want;
} shares[] = {
    {"alone on eight", 1, 0, {{0, 8}}, 0, 8},
    {"two on eight, not bound", 2, 1, {{0, 8}, {0, 8}}, 0, 4},
    {"three on eight, not bound", 3, 0, {{0, 8}, {0, 8}, {0, 8}}, 0, 2},
    {"bound to a core each", 2, 1, {{0, 1}, {1, 2}}, 0, 1},
    {"bound unevenly", 2, 0, {{0, 6}, {6, 8}}, 0, 6},
    {"two by two on two sockets", 4, 3, {{0, 8}, {0, 8}, {8, 16}, {8, 16}}, 0, 4},
    {"more ranks than processors", 4, 2, {{0, 2}, {0, 2}, {0, 2}, {0, 2}}, 0, 1},
    {"beyond 1024", 1, 0, {{5000, 5003}}, 0, 3},
    {"quota of 2.5", 1, 0, {{0, 8}}, 2.5, 2},
    {"quota of half a processor", 1, 0, {{0, 8}}, 0.5, 1},
    {"quota for two ranks", 2, 0, {{0, 8}, {0, 8}}, 4, 2},
    {"quota above the share", 2, 0, {{0, 8}, {0, 8}}, 16, 4},
};

static void test_share(void **state)
{
    const struct share *s = *state;
    rd_cpu_set all[4];
    for (int r = 0; r < s->n; r++) all[r] = cpus(s->range[r][0], s->range[r][1]);
    assert_int_equal(rd_cpus_whole(rd_cpus_share(all, s->n, s->me, s->quota)), s->want);
}

static char root[256];

static void put(const char *path, const char *text)
{
    char full[512], dir[512];
    rd_status st = {0};
    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(dir, sizeof dir, "%s", full);
    *strrchr(dir, '/') = '\0';
    rd_mkdirs(dir, &st);
    rd_file_write_atomic(full, text, strlen(text), &st);
    assert_int_equal(st.code, RD_OK);
}

static void fresh_root(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.150s/rd_cgroup.XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(root));
}

static void drop_root(void)
{
    char cmd[300];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", root);
    assert_int_equal(system(cmd), 0);
}

static bool near(double a, double b)
{
    return a > b - 1e-9 && a < b + 1e-9;
}

static void test_quota(void **state)
{
    (void)state;
    fresh_root();
    assert_true(near(rd_cpus_quota(root), 0)); /* no control groups at all */
    put("/proc/self/cgroup", "0::/a/b\n");
    assert_true(near(rd_cpus_quota(root), 0));
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_true(near(rd_cpus_quota(root), 0));
    put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    assert_true(near(rd_cpus_quota(root), 1.5)); /* the group above rules too */
    put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_true(near(rd_cpus_quota(root), 0.5));
    put("/proc/self/cgroup", "0::/not/visible/here\n"); /* a container's view */
    assert_true(near(rd_cpus_quota(root), 0));
    put("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_true(near(rd_cpus_quota(root), 3));
    put("/proc/self/cgroup", "0::/\n");
    assert_true(near(rd_cpus_quota(root), 3));
    put("/proc/self/cgroup", "12:cpuset:/x\n4:cpu,cpuacct:/docker/1\n1:name=systemd:/y\n");
    put("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n");
    assert_true(near(rd_cpus_quota(root), 0));
    put("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "200000\n");
    assert_true(near(rd_cpus_quota(root), 2));
    put("/proc/self/cgroup", "garbage\n\n:::\n");
    assert_true(rd_cpus_quota(root) >= 0);
    drop_root();
}

/* A clock that is 5 s ahead of rank 0's at first. It gains 1 ms in the 10 s of rank 0's clock
 * between two comparisons. */
static void test_clock(void **state)
{
    (void)state;
    const int64_t s = 1000000000, ms = 1000000;
    const rd_clock_offset a = {.offset_ns = 5 * s, .at_ns = 105 * s},
                          b = {.offset_ns = 5 * s + ms, .at_ns = 115 * s + ms};
    assert_int_equal(rd_clock_shared(&a, &b, 105 * s), 100 * s);
    assert_int_equal(rd_clock_shared(&a, &b, 110 * s + ms / 2), 105 * s);
    assert_int_equal(rd_clock_shared(&a, &b, 115 * s + ms), 110 * s);
    assert_int_equal(rd_clock_shared(&a, &a, 110 * s), 105 * s);
}

RD_TESTS("comm_self", TEST_WITH(test_collectives, forget_launcher, NULL), TEST(test_abort),
         TEST(test_quota), TEST(test_clock), TEST_ROWS(test_share, shares))
