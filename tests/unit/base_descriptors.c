/* base_descriptors.c -- closed standard descriptors, and pipes beside them. */
#include "rd/file.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs f in a process without the descriptors whose bits are set. Returns its exit status. */
static int without(int closed, int (*f)(int closed))
{
    const pid_t pid = fork();
    int status = -1;
    if (pid == 0) {
        const int other = open("/proc/self/exe", O_RDONLY); /* anything but /dev/null */
        for (int i = 0; i < 3; i++) (void)dup2(other, i);
        for (int i = 0; i < 3; i++)
            if (closed & 1 << i) (void)close(i);
        _exit(f(closed));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool is_null(int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat("/dev/null", &b) == 0 && S_ISCHR(a.st_mode) &&
           a.st_rdev == b.st_rdev;
}

static int opened(int closed)
{
    char c;
    rd_open_standard();
    for (int i = 0; i < 3; i++) {
        if (is_null(i) != ((closed & 1 << i) != 0)) return 1 + i;
        if ((fcntl(i, F_GETFD) & FD_CLOEXEC) != 0) return 4 + i;
    }
    if ((closed & 1) && (read(0, &c, 1) >= 0 || errno != EBADF)) return 7;
    if ((closed & 2) && (write(1, "x", 1) >= 0 || errno != EBADF)) return 8;
    const int next = open("/dev/null", O_RDONLY);
    return next > 2 ? 0 : 9;
}

static void test_standard(void **state)
{
    (void)state;
    for (int closed = 0; closed < 8; closed++) assert_int_equal(without(closed, opened), 0);
}

static int piped(int closed)
{
    int ends[2];
    char c = 0;
    if (rd_pipe(ends) != 0) return 1;
    for (int i = 0; i < 2; i++) {
        if (ends[i] < 3) return 2 + i;
        if (!(fcntl(ends[i], F_GETFD) & FD_CLOEXEC)) return 4 + i;
    }
    for (int i = 0; i < 3; i++)
        if ((fcntl(i, F_GETFD) >= 0) != !(closed & 1 << i)) return 6 + i;
    return write(ends[1], "x", 1) == 1 && read(ends[0], &c, 1) == 1 && c == 'x' ? 0 : 9;
}

static void test_pipe(void **state)
{
    (void)state;
    for (int closed = 0; closed < 8; closed++) assert_int_equal(without(closed, piped), 0);
}

RD_TESTS("base_descriptors", TEST(test_standard), TEST(test_pipe))
