/* base_open.c -- opens names that are no regular files: without waiting, and never through a link
 * to write. */
#include "rd/file.h"
#include "scratch_dir.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void holds(const char *name, const char *text)
{
    char have[100] = "";
    FILE *f = fopen(in_dir(name), "r");
    assert_non_null(f);
    have[fread(have, 1, sizeof have - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(have, text);
}

static int set_up(void **state)
{
    if (make_dir(state) != 0) return -1;
    alarm(60); /* a call that waits ends the test */
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", in_dir("socket"));
    assert_int_equal(bind(s, (struct sockaddr *)(void *)&a, sizeof a), 0);
    close(s);
    put("plain", "12345");
    put("victim", "precious");
    assert_int_equal(symlink("plain", in_dir("link")), 0);
    assert_int_equal(symlink("victim", in_dir("to_victim")), 0);
    assert_int_equal(symlink("nothing", in_dir("dangling")), 0);
    assert_int_equal(symlink("pipe", in_dir("to_pipe")), 0);
    assert_int_equal(symlink(".", in_dir("to_dir")), 0);
    return 0;
}

static void test_read(void **state)
{
    static const struct {
        const char *name, *kind;
    } rows[] = {{"pipe", "a pipe"},       {"to_pipe", "a pipe"},  {"socket", "a socket"},
                {"", "a folder"},         {"to_dir", "a folder"}, {"/dev/null", "a device"},
                {"/dev/zero", "a device"}};
    const char *kind;
    int64_t size = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = rows[i].name[0] == '/' ? rows[i].name : in_dir(rows[i].name);
        for (int pipes = 0; pipes < 2; pipes++) {
            const int fd = pipes ? rd_open_input_or_pipe(path, &size, &kind)
                                 : rd_open_input(path, &size, &kind);
            assert_int_equal(fd, -1);
            assert_non_null(kind);
            assert_string_equal(kind, rows[i].kind);
        }
    }
    assert_int_equal(rd_open_input(in_dir("none"), &size, &kind), -1);
    assert_int_equal(errno, ENOENT);
    assert_null(kind);
    const char *const good[] = {"plain", "link"};
    for (int i = 0; i < 2; i++) {
        const int fd = rd_open_input(in_dir(good[i]), &size, &kind);
        assert_true(fd >= 0);
        assert_int_equal(size, 5);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
        close(fd);
    }
    /* A named pipe is refused while a process writes to it, too. */
    const int both = open(in_dir("pipe"), O_RDWR);
    assert_true(both >= 0 && write(both, "x", 1) == 1);
    assert_int_equal(rd_open_input_or_pipe(in_dir("pipe"), NULL, &kind), -1);
    assert_string_equal(kind, "a pipe");
    close(both);
}

static void test_nameless_pipe(void **state)
{
    int ends[2];
    char path[40], c = 0;
    const char *kind;
    int64_t size = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(rd_open_input(path, &size, &kind), -1);
    assert_string_equal(kind, "a pipe");
    const int fd = rd_open_input_or_pipe(path, &size, &kind);
    assert_true(fd >= 0);
    assert_int_equal(size, -1);
    assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(fd, &c, 1), 1);
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

static void test_write(void **state)
{
    static const struct {
        const char *name, *kind;
    } rows[] = {{"pipe", "a pipe"},
                {"socket", "a socket"},
                {"", "a folder"},
                {"/dev/null", "a device"},
                {"link", "a symbolic link"},
                {"to_victim", "a symbolic link"},
                {"to_pipe", "a symbolic link"},
                {"dangling", "a symbolic link"}};
    static const int flags[] = {O_WRONLY | O_CREAT | O_APPEND, O_RDWR | O_CREAT,
                                O_RDWR | O_CREAT | O_TRUNC, O_WRONLY | O_APPEND};
    const char *kind;
    struct stat s;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            const char *path = rows[i].name[0] == '/' ? rows[i].name : in_dir(rows[i].name);
            assert_int_equal(rd_open_output(path, flags[k], &kind), -1);
            assert_non_null(kind);
            assert_string_equal(kind, rows[i].kind);
        }
    assert_int_equal(rd_open_output(in_dir("link"), O_WRONLY | O_CREAT | O_EXCL, &kind), -1);
    assert_int_equal(errno, EEXIST);
    holds("victim", "precious");
    holds("plain", "12345");
    assert_int_not_equal(lstat(in_dir("nothing"), &s), 0);
    /* Regular files: appended, emptied, made. The folder may be reached through a link. */
    int fd = rd_open_output(in_dir("to_dir/plain"), O_WRONLY | O_APPEND, &kind);
    assert_true(fd >= 0 && write(fd, "6", 1) == 1);
    close(fd);
    holds("plain", "123456");
    fd = rd_open_output(in_dir("plain"), O_RDWR | O_CREAT | O_TRUNC, &kind);
    assert_true(fd >= 0);
    close(fd);
    holds("plain", "");
    put("plain", "12345");
    fd = rd_open_output(in_dir("new"), O_WRONLY | O_CREAT | O_APPEND, &kind);
    assert_true(fd >= 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
    close(fd);
    assert_int_equal(unlink(in_dir("new")), 0);
}

RD_TESTS_WITH("base_open", set_up, remove_dir, TEST(test_read), TEST(test_nameless_pipe),
              TEST(test_write))
