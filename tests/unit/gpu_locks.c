/* gpu_locks.c -- GPUs that jobs lock in a folder: all that a job asks for or none, free again after
 * a release, and folders that cannot be used. */
#include "../../runner/run/gpu_locks.h"
#include "scratch_dir.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char name[4][GPU_LOCKS_NAME] = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"};

static bool take(gpu_locks *l, int n, int wanted, int *index)
{
    rd_status st = {0};
    const bool got = gpu_locks_try(l, dir, n, name, wanted, index, &st);
    must(&st);
    return got;
}

static void test_all_or_none(void **state)
{
    gpu_locks a, b, c;
    int index[4];
    (void)state;
    assert_true(take(&a, 4, 1, index));
    assert_int_equal(index[0], 0);
    assert_true(take(&b, 4, 2, index));
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], 2);
    assert_false(take(&c, 4, 2, index)); /* one is free, and stays free */
    assert_int_equal(c.n, 0);
    char want[64];
    (void)snprintf(want, sizeof want, "process %ld on ", (long)getpid());
    assert_int_equal(strncmp(c.holder, want, strlen(want)), 0);
    assert_true(take(&c, 4, 1, index));
    assert_int_equal(index[0], 3);
    gpu_locks_release(&b);
    gpu_locks_release(&c);
    assert_true(take(&c, 4, 3, index));
    assert_int_equal(index[0], 1);
    assert_int_equal(index[2], 3);
    assert_false(take(&b, 4, 1, index));
    gpu_locks_release(&a);
    gpu_locks_release(&c);
    assert_true(take(&b, 4, 4, index));
    gpu_locks_release(&b);
    assert_false(take(&b, 4, 5, index));
    assert_true(take(&b, 0, 0, index));
    gpu_locks_release(&b);
}

/* A process that is killed has no locks any more. */
static void test_killed(void **state)
{
    gpu_locks l;
    int index[4], ends[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rd_status st = {0};
        if (gpu_locks_try(&l, dir, 2, name, 2, index, &st)) (void)!write(ends[1], "x", 1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_false(take(&l, 2, 1, index));
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(take(&l, 2, 2, index));
    gpu_locks_release(&l);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void test_refused(void **state)
{
    gpu_locks l;
    rd_status st = {0};
    int index[4];
    (void)state;
    assert_false(gpu_locks_try(&l, "/nonexistent", 1, name, 1, index, &st));
    assert_int_equal(st.code, RD_EENV);
    assert_non_null(strstr(st.msg, "lock_dir: cannot write '/nonexistent/run_dist.gpus.lock'"));
    st = (rd_status){0};
    const char *path = in_dir("run_dist.GPU-d.lock");
    (void)unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_false(gpu_locks_try(&l, dir, 4, name, 4, index, &st));
    assert_int_equal(st.code, RD_EENV);
    assert_non_null(strstr(st.msg, "is a symbolic link, not a regular file; remove it"));
    assert_true(take(&l, 3, 3, index)); /* none of them stayed locked */
    gpu_locks_release(&l);
}

/* A file that another user made can only be read, which is enough. */
static void test_read_only(void **state)
{
    gpu_locks a, b;
    int index[4];
    (void)state;
    assert_true(take(&a, 1, 1, index));
    gpu_locks_release(&a);
    if (geteuid() == 0) skip(); /* root writes everywhere */
    assert_int_equal(chmod(in_dir("run_dist.GPU-a.lock"), 0444), 0);
    assert_true(take(&a, 1, 1, index));
    assert_false(take(&b, 1, 1, index));
    gpu_locks_release(&a);
}

RD_TESTS_WITH("gpu_locks", make_dir, remove_dir, TEST(test_all_or_none), TEST(test_killed),
              TEST(test_read_only), TEST(test_refused))
