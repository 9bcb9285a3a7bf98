/* base_file.c -- tests reading of plain and gzip files, messages for unreadable files, and files
 * that appear whole or not at all.
 *
 * The gzip bytes are gzip 1.12's: printf 'hello\n' | gzip -n9, and printf '' | gzip -n9. */
#include "rd/file.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static const unsigned char hello_gz[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,
                                         0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xe7, 0x02, 0x00,
                                         0x20, 0x30, 0x3a, 0x36, 0x06, 0x00, 0x00, 0x00};
static const unsigned char empty_gz[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00,
                                         0x00, 0x02, 0x03, 0x03, 0x00, 0x00, 0x00,
                                         0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

static char dir[256];

static const char *at(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static int set_up(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.200s/rd_file.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char cmd[300];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

/* Reads name and compares: want NULL expects a failure whose message has every word. */
static void expect(const char *name, const char *want, size_t n_want, const char *word)
{
    rd_status st = {0};
    char *p = (char *)1;
    size_t n = 99;
    const rd_code code = rd_file_read(name, RD_EDATA, &p, &n, &st);
    if (want) {
        if (code != RD_OK) fail_msg("%s: %s", name, st.msg);
        assert_int_equal(n, n_want);
        assert_memory_equal(p, want, n);
        assert_int_equal(p[n], 0);
    } else {
        assert_int_equal(code, RD_EDATA);
        assert_null(p);
        assert_int_equal(n, 0);
        if (!strstr(st.msg, word)) fail_msg("'%s' has no '%s'", st.msg, word);
    }
    free(p);
}

static void test_plain(void **state)
{
    (void)state;
    put("empty", "", 0);
    expect(at("empty"), "", 0, NULL);
    put("one", "\x1f", 1);
    expect(at("one"), "\x1f", 1, NULL);
    put("two", "a\0", 2);
    expect(at("two"), "a\0", 2, NULL);
    const size_t sizes[] = {4095, 4096, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 3000000};
    char *big = malloc(3000000);
    assert_non_null(big);
    for (size_t i = 0; i < 3000000; i++) big[i] = (char)(i * i >> 7);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put("big", big, sizes[i]);
        expect(at("big"), big, sizes[i], NULL);
    }
    free(big);
}

static void test_gzip(void **state)
{
    (void)state;
    unsigned char b[200];
    put("h.gz", hello_gz, sizeof hello_gz);
    expect(at("h.gz"), "hello\n", 6, NULL);
    put("h.txt", hello_gz, sizeof hello_gz); /* the content decides, not the name */
    expect(at("h.txt"), "hello\n", 6, NULL);
    put("e.gz", empty_gz, sizeof empty_gz);
    expect(at("e.gz"), "", 0, NULL);
    memcpy(b, hello_gz, sizeof hello_gz); /* two members, as `cat a.gz b.gz` makes them */
    memcpy(b + sizeof hello_gz, hello_gz, sizeof hello_gz);
    put("hh.gz", b, 2 * sizeof hello_gz);
    expect(at("hh.gz"), "hello\nhello\n", 12, NULL);
    memcpy(b + sizeof hello_gz, empty_gz, sizeof empty_gz);
    put("he.gz", b, sizeof hello_gz + sizeof empty_gz);
    expect(at("he.gz"), "hello\n", 6, NULL);
}

static void test_gzip_large(void **state)
{
    (void)state;
    enum { N = 3000001 };
    char *big = malloc(N), cmd[1000];
    assert_non_null(big);
    uint32_t x = 1;
    for (size_t i = 0; i < N; i++) big[i] = (char)((x = x * 1664525u + 1013904223u) >> 24 & 63);
    put("large", big, N);
    snprintf(cmd, sizeof cmd, "gzip -c '%s' > '%s/large.gz'", at("large"), dir);
    assert_int_equal(system(cmd), 0);
    expect(at("large.gz"), big, N, NULL);
    struct stat info;
    assert_int_equal(stat(at("large.gz"), &info), 0);
    const off_t cuts[] = {1, 4, 8, 9, 1000, 1000000};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(truncate(at("large.gz"), info.st_size - cuts[i]), 0);
        expect(at("large.gz"), NULL, 0, "cut short or damaged");
    }
    free(big);
}

static void test_damaged_gzip(void **state)
{
    (void)state;
    unsigned char b[sizeof hello_gz];
    for (size_t n = 2; n < sizeof hello_gz; n++) {
        put("cut.gz", hello_gz, n);
        expect(at("cut.gz"), NULL, 0, "cut.gz");
    }
    for (size_t i = 10; i < sizeof hello_gz;
         i++) { /* the ten bytes before hold the kind of system, a time, ... */
        for (int bit = 0; bit < 8; bit++) {
            memcpy(b, hello_gz, sizeof b);
            b[i] ^= (unsigned char)(1 << bit);
            put("bad.gz", b, sizeof b);
            /* Byte 17 ends the packed data; gzip too ignores the bits of it that are left over. */
            if (i == 17 && bit > 1)
                expect(at("bad.gz"), "hello\n", 6, NULL);
            else
                expect(at("bad.gz"), NULL, 0, "damaged");
        }
    }
}

/* The checksum of each member is compared. Only zeros may follow the last member. */
static void test_members(void **state)
{
    (void)state;
    enum { H = sizeof hello_gz, E = sizeof empty_gz, PAD = 512 };
    unsigned char b[2 * H + E + PAD] = {0};
    memcpy(b, hello_gz, H);
    memcpy(b + H, hello_gz, H);
    memcpy(b + 2 * H, empty_gz, E); /* as bgzip ends a file */
    static const size_t ends[] = {2 * H, 2 * H + E, 2 * H + E + 1, 2 * H + E + PAD};
    for (int k = 0; k < 4; k++) {
        put("m.gz", b, ends[k]);
        expect(at("m.gz"), "hello\nhello\n", 12, NULL);
        for (size_t i = H - 8; i < 2 * H; i++) {
            if (i >= H + 3 && i < H + 10)
                continue;              /* flags, time and system of the second member */
            if (i == H + 17) continue; /* bits that gzip ignores, too */
            b[i] ^= 1;
            put("m.gz", b, ends[k]);
            expect(at("m.gz"), NULL, 0, "damaged");
            b[i] ^= 1;
        }
    }
    b[2 * H + E] = 'x';
    put("m.gz", b, 2 * H + E + 1);
    expect(at("m.gz"), NULL, 0, "bytes that are not gzip follow the gzip data");
    b[2 * H + E] = 0;
    memcpy(b + 2 * H + E + 4, hello_gz, H); /* a member behind zeros */
    put("m.gz", b, 2 * H + E + 4 + H);
    expect(at("m.gz"), NULL, 0, "bytes that are not gzip follow the gzip data");
    put("m.gz", b, 2 * H + 5);
    expect(at("m.gz"), NULL, 0, "truncated gzip input");
}

/* Compressed twice, the inner checksum counts, too. */
static void test_twice(void **state)
{
    (void)state;
    char cmd[1000];
    unsigned char b[sizeof hello_gz];
    memcpy(b, hello_gz, sizeof b);
    for (int k = 0; k < 2; k++) {
        put("in", b, sizeof b);
        snprintf(cmd, sizeof cmd, "gzip -c '%s' > '%s/twice.gz'", at("in"), dir);
        assert_int_equal(system(cmd), 0);
        expect(at("twice.gz"), k ? NULL : "hello\n", k ? 0 : 6, k ? "cannot trust" : NULL);
        b[sizeof b - 8] ^= 4;
    }
}

/* A program packs what is packed already: four times is read, more is refused. */
static void test_layers(void **state)
{
    (void)state;
    char cmd[1000];
    put("layers.gz", hello_gz, sizeof hello_gz);
    for (int layers = 1; layers <= 5; layers++) {
        expect(at("layers.gz"), layers <= 4 ? "hello\n" : NULL, layers <= 4 ? 6 : 0,
               layers <= 4 ? NULL : "compressed more than 4 times; decompress it first");
        snprintf(cmd, sizeof cmd, "cd '%s' && gzip -c layers.gz > more.gz && mv more.gz layers.gz",
                 dir);
        assert_int_equal(system(cmd), 0);
    }
}

static void test_limit(void **state)
{
    (void)state;
    char *p;
    size_t n;
    rd_status st = {0}, st2 = {0}, st3 = {0};
    put("h.gz", hello_gz, sizeof hello_gz);
    assert_int_equal(rd_file_read_limited(at("h.gz"), RD_EDATA, 5, "a test", &p, &n, &st),
                     RD_EDATA);
    assert_non_null(strstr(st.msg, "the most of a test"));
    const int saved = dup(0), endless = open("/dev/zero", O_RDONLY);
    dup2(endless, 0);
    assert_int_equal(rd_file_read_limited("-", RD_EDATA, 1 << 20, "a test", &p, &n, &st2),
                     RD_EDATA);
    dup2(saved, 0);
    close(saved);
    close(endless);
    assert_non_null(strstr(st2.msg, "more than 1 MiB"));
    must_do(rd_file_read_limited(at("h.gz"), RD_EDATA, 100, "a test", &p, &n, &st3), &st3);
    free(p);
}

static void test_messages(void **state)
{
    (void)state;
    char want[600];
    snprintf(want, sizeof want, "cannot open '%s': no such file or directory; check the path",
             at("none"));
    expect(at("none"), NULL, 0, want);
    expect("", NULL, 0, "empty");
    snprintf(want, sizeof want, "cannot read '%s': it is a folder", dir);
    expect(dir, NULL, 0, want);
    put("plain", "x", 1);
    expect(at("plain/below"), NULL, 0, "not a folder");
    if (geteuid() == 0) return; /* root reads everything */
    chmod(at("plain"), 0);
    expect(at("plain"), NULL, 0, "check the permissions");
}

static void check_stdin(const char *name, const void *p, size_t n, const char *want, size_t n_want)
{
    int ends[2], saved = dup(0);
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) { /* one byte at a time: a pipe owes nobody more */
        close(ends[0]);
        for (size_t i = 0; i < n; i++)
            if (write(ends[1], (const char *)p + i, 1) != 1) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    dup2(ends[0], 0);
    close(ends[0]);
    expect(name, want, n_want, NULL);
    dup2(saved, 0);
    close(saved);
    waitpid(pid, NULL, 0);
}

static void test_stdin(void **state)
{
    (void)state;
    check_stdin("-", "some text\n", 10, "some text\n", 10);
    check_stdin("/dev/stdin", hello_gz, sizeof hello_gz, "hello\n", 6);
    check_stdin("-", "", 0, "", 0);
}

/* What has the name of the temporary file is removed, not written to. */
static void test_temporary_taken(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_tmpfile f = {0};
    char tmp[4200], before[3][40] = {"victim", "nothing", "pipe"};
    snprintf(tmp, sizeof tmp, "%s.tmp.%ld", at("taken"), (long)getpid());
    put("victim", "precious", 8);
    for (int i = 0; i < 4; i++) {
        if (i < 3) assert_int_equal(symlink(before[i], tmp), 0);
        if (i == 2) assert_int_equal(mkfifo(at("pipe"), 0600), 0);
        if (i == 3) assert_int_equal(link(at("victim"), tmp), 0);
        assert_int_equal(rd_tmpfile_open(&f, at("taken"), &st), RD_OK);
        assert_int_equal(rd_tmpfile_write(&f, "new", 3, &st), RD_OK);
        assert_int_equal(rd_tmpfile_commit(&f, &st), RD_OK);
        expect(at("taken"), "new", 3, NULL);
        expect(at("victim"), "precious", 8, NULL);
        assert_int_equal(access(at("nothing"), F_OK), -1);
        assert_int_equal(unlink(at("taken")), 0);
    }
    assert_int_equal(unlink(at("pipe")), 0);
    assert_int_equal(mkdir(tmp, 0700), 0);
    assert_int_equal(rd_tmpfile_open(&f, at("taken"), &st), RD_EENV);
    assert_int_equal(rmdir(tmp), 0);
    assert_int_equal(access(at("taken"), F_OK), -1);
}

static void test_atomic(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_tmpfile f = {0};
    put("a", "old", 3);
    assert_int_equal(rd_tmpfile_open(&f, at("a"), &st), RD_OK);
    assert_int_equal(rd_tmpfile_write(&f, "new text", 8, &st), RD_OK);
    expect(at("a"), "old", 3, NULL);
    assert_int_equal(rd_tmpfile_commit(&f, &st), RD_OK);
    rd_tmpfile_release(&f);
    expect(at("a"), "new text", 8, NULL);
    assert_int_equal(access(f.tmp, F_OK), -1);

    assert_int_equal(rd_tmpfile_open(&f, at("a"), &st),
                     RD_OK); /* not committed: as if nothing had been */
    assert_int_equal(rd_tmpfile_write(&f, "third", 5, &st), RD_OK);
    assert_int_equal(access(f.tmp, F_OK), 0);
    rd_tmpfile_release(&f);
    rd_tmpfile_release(&f);
    assert_int_equal(access(f.tmp, F_OK), -1);
    expect(at("a"), "new text", 8, NULL);
    assert_int_equal(rd_file_write_atomic(at("b"), "", 0, &st), RD_OK);
    expect(at("b"), "", 0, NULL);

    assert_int_equal(rd_file_write_atomic(at("none/b"), "x", 1, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "no such file or directory"));
    st = (rd_status){0};
    assert_int_equal(mkdir(at("folder"), 0777), 0);
    assert_int_equal(rd_file_write_atomic(at("folder"), "x", 1, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "folder"));
    char name[5000];
    memset(name, 'x', sizeof name);
    name[4999] = '\0';
    st = (rd_status){0};
    assert_int_equal(rd_tmpfile_open(&f, name, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "4999 bytes"));
}

static void no_temporary_is_left(void)
{
    char cmd[400];
    snprintf(cmd, sizeof cmd, "test -z \"$(find '%s' -name '*.tmp.*')\"", dir);
    assert_int_equal(system(cmd), 0);
}

/* A write that cannot be completed leaves the old file. Here a limit on the file size stops it,
 * elsewhere a full disk. */
static void test_no_room(void **state)
{
    (void)state;
    rd_status st = {0};
    struct rlimit was, small;
    put("a", "old", 3);
    getrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){.rlim_cur = 1000, .rlim_max = was.rlim_max};
    char big[3000] = "";
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const rd_code code = rd_file_write_atomic(at("a"), big, sizeof big, &st);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(code, RD_EENV);
    assert_non_null(strstr(st.msg, "file too large"));
    expect(at("a"), "old", 3, NULL);
    no_temporary_is_left();
}

static _Atomic pid_t writer;

static void *write_for_ever(void *name)
{
    rd_status st = {0};
    writer = gettid();
    while (rd_file_write_atomic(name, "whole", 5, &st) == RD_OK) continue;
    _exit(3); /* no failure is to be seen: the thread waits */
}

#ifdef SYS_pause
enum { PAUSE = SYS_pause };
#else
enum { PAUSE = SYS_ppoll };
#endif

/* Until that thread is in pause(), or, where the kernel does not tell, for a moment. */
static void wait_for_pause(pid_t tid)
{
    char name[64], text[32];
    snprintf(name, sizeof name, "/proc/self/task/%d/syscall", (int)tid);
    for (int i = 0; i < 10000; i++) {
        FILE *f = fopen(name, "r");
        const bool told = f && fgets(text, sizeof text, f);
        if (f) fclose(f);
        usleep(told ? 1000 : 20000);
        if (!told || (text[0] >= '0' && text[0] <= '9' && atoi(text) == PAUSE)) return;
    }
    _exit(4);
}

/* A process ends in the middle of its work: one file is open, and a thread writes another again and
 * again. */
static void test_abandoned(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        put("a", "old", 3);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            rd_status st = {0};
            rd_tmpfile f = {0};
            char busy[512];
            pthread_t thread;
            snprintf(busy, sizeof busy, "%s", at("busy"));
            if (rd_tmpfile_open(&f, at("a"), &st) != RD_OK ||
                rd_tmpfile_write(&f, "half", 4, &st) != RD_OK ||
                pthread_create(&thread, NULL, write_for_ever, busy) != 0)
                _exit(2);
            while (!writer || access(busy, F_OK) != 0) usleep(100); /* it has begun */
            usleep(500 * (unsigned)i);
            rd_tmpfile_abandon();
            wait_for_pause(writer);
            _exit(7);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 7);
        no_temporary_is_left();
        expect(at("a"), "old", 3, NULL);
        expect(at("busy"), "whole", 5, NULL);
    }
}

/* A file that a thread begins after rd_tmpfile_abandon never appears, not even for a moment: the
 * process may be killed in that moment. */
static void test_begun_after_the_end(void **state)
{
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char late[512], event[4096];
        pthread_t thread;
        snprintf(late, sizeof late, "%s", at("late"));
        const int seen = inotify_init1(IN_NONBLOCK);
        if (seen < 0 || inotify_add_watch(seen, at("."), IN_CREATE | IN_DELETE) < 0) _exit(2);
        rd_tmpfile_abandon();
        if (pthread_create(&thread, NULL, write_for_ever, late) != 0) _exit(3);
        while (!writer) usleep(100);
        wait_for_pause(writer);
        _exit(read(seen, event, sizeof event) < 0 && errno == EAGAIN ? 7 : 5);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    no_temporary_is_left();
}

static void test_mkdirs(void **state)
{
    (void)state;
    rd_status st = {0};
    struct stat info;
    assert_int_equal(rd_mkdirs(at("p/q/r"), &st), RD_OK);
    assert_int_equal(stat(at("p/q/r"), &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(rd_mkdirs(at("p//q/r/"), &st), RD_OK); /* again, and with more slashes */
    assert_int_equal(rd_mkdirs("/", &st), RD_OK);
    assert_int_equal(rd_mkdirs(".", &st), RD_OK);
    put("p/file", "x", 1);
    assert_int_equal(rd_mkdirs(at("p/file/x"), &st), RD_EENV);
    assert_non_null(strstr(st.msg, "is a file"));
    st = (rd_status){0};
    char link[512], target[8];
    snprintf(link, sizeof link, "%s", at("p/link"));
    assert_int_equal(symlink("../gone/away", link), 0);
    assert_int_equal(rd_mkdirs(at("p/link/x"), &st), RD_EENV);
    assert_non_null(strstr(st.msg, "p/link' is a link to '../gone/away', which is not there; make "
                                   "that folder, or remove the link"));
    assert_true(rd_link_dangles(link, target, sizeof target));
    assert_string_equal(target, "../gone");
    assert_int_equal(rd_mkdirs(at("gone/away"), (st = (rd_status){0}, &st)), RD_OK);
    assert_int_equal(rd_mkdirs(at("p/link/x"), &st), RD_OK);
    assert_false(rd_link_dangles(link, target, sizeof target));
    assert_false(rd_link_dangles(at("p/none"), target, sizeof target));
    snprintf(link, sizeof link, "%s", at("p/loop"));
    assert_int_equal(symlink("loop", link), 0);
    assert_int_equal(rd_mkdirs(link, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "too many levels of symbolic links"));
    st = (rd_status){0};
    assert_int_equal(rd_mkdirs("", &st), RD_EENV);
    st = (rd_status){0};
    assert_int_equal(rd_mkdirs("/proc/none/x", &st), RD_EENV);
    assert_non_null(strstr(st.msg, "cannot make folder '/proc/none'"));
}

RD_TESTS_WITH("base_file", set_up, tear_down, TEST(test_plain), TEST(test_gzip),
              TEST(test_gzip_large), TEST(test_damaged_gzip), TEST(test_members), TEST(test_twice),
              TEST(test_limit), TEST(test_messages), TEST(test_stdin), TEST(test_atomic),
              TEST(test_temporary_taken), TEST(test_no_room), TEST(test_mkdirs),
              TEST(test_abandoned), TEST(test_begun_after_the_end), TEST(test_layers))
