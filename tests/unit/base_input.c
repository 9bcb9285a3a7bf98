/* base_input.c -- reading files: tries again, short reads, what an error means, and each reader of
 * a file with a fault of the machine in it. The system's calls are replaced (io_faults.h). */
#include "rd/input.h"
#include "rd/checkpoint.h"
#include "rd/file.h"
#include "rd/npz.h"
#include "../../runner/data/images_impl.h"
#include "io_faults.h"
#include "scratch_dir.h"
#include <math.h>
#include <time.h>
#include <zlib.h>

/* The calls that fail: number skip + 1 .. skip + count of those with this name and path. */
static struct {
    const char *call, *path;
    int err, skip, count;
    size_t most; /* bytes that a read may return at most; 0: any number */
    int seen;    /* number of calls with this name and path */
    char log[2048];
    uint32_t fs_type; /* what statfs says; 0: the truth */
    double waited_s[64];
    int n_waits;
} plan;

static int io_fault(const char *call, const char *path, size_t *n)
{
    if (strcmp(call, "fsync") == 0 || strcmp(call, "rename") == 0) {
        const char *slash = strrchr(path, '/');
        const size_t have = strlen(plan.log);
        snprintf(plan.log + have, sizeof plan.log - have, "%s %s\n", call,
                 slash ? slash + 1 : path);
    }
    if (!plan.path || !strstr(path, plan.path)) return 0;
    if (strcmp(call, "read") == 0 && plan.most > 0 && *n > plan.most) *n = plan.most;
    if (!plan.call || strcmp(call, plan.call) != 0) return 0;
    const int k = plan.seen++;
    return k >= plan.skip && k < plan.skip + plan.count ? plan.err : 0;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    if (plan.n_waits < 64)
        plan.waited_s[plan.n_waits++] = (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
    return 0;
}

int statfs(const char *path, struct statfs *out)
{
    const int rc = IO_REAL("statfs", int (*)(const char *, struct statfs *))(path, out);
    if (rc == 0 && plan.fs_type) out->f_type = (long)plan.fs_type;
    return rc;
}

static void fresh(const char *call, const char *path, int err, int skip, int count)
{
    memset(&plan, 0, sizeof plan);
    plan.call = call;
    plan.path = path;
    plan.err = err;
    plan.skip = skip;
    plan.count = count;
}

enum { FOR_EVER = 1 << 30 };

static void put(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- what an error means ---- */

static const struct error_row {
    const char *name;
    int err;
    bool passes;
    rd_code code; /* of data */
} error_rows[] = {
    {"EIO", EIO, true, RD_EENV},
    {"ESTALE", ESTALE, true, RD_EENV},
    {"EAGAIN", EAGAIN, true, RD_EENV},
    {"ETIMEDOUT", ETIMEDOUT, true, RD_EENV},
    {"EREMOTEIO", EREMOTEIO, true, RD_EENV},
    {"ECONNRESET", ECONNRESET, true, RD_EENV},
    {"EHOSTDOWN", EHOSTDOWN, true, RD_EENV},
    {"ENFILE", ENFILE, true, RD_EENV},
    {"ENOMEM", ENOMEM, true, RD_EENV},
    {"EMFILE", EMFILE, false, RD_EENV},
    {"EACCES", EACCES, false, RD_EENV},
    {"EPERM", EPERM, false, RD_EENV},
    {"EUCLEAN", EUCLEAN, false, RD_EENV},
    {"ENOENT", ENOENT, false, RD_EDATA},
    {"ENOTDIR", ENOTDIR, false, RD_EDATA},
    {"EISDIR", EISDIR, false, RD_EDATA},
    {"ELOOP", ELOOP, false, RD_EDATA},
    {"ENAMETOOLONG", ENAMETOOLONG, false, RD_EDATA},
};

static const char *kind;

static void check_error(void **state)
{
    const struct error_row *r = *state;
    rd_status st = {0};
    fresh(NULL, NULL, 0, 0, 0);
    put("x", "abc", 3);
    assert_int_equal(rd_fault_passes(r->err), r->passes);
    assert_int_equal(rd_fault_code(r->err, RD_EDATA), r->code);
    assert_int_equal(rd_fault_code(r->err, RD_ECKPT), r->code == RD_EDATA ? RD_ECKPT : RD_EENV);
    /* one such fault in open: a passing one is not seen, another one ends the call at once */
    fresh("open", "/x", r->err, 0, 1);
    rd_input *in = rd_input_open(in_dir("x"), RD_LISTED, &kind);
    assert_int_equal(in != NULL, r->passes);
    if (!in) assert_int_equal(errno, r->err);
    assert_int_equal(plan.n_waits, r->passes);
    rd_input_close(in);
    /* for ever: the code, and the path in the message */
    fresh("open", "/x", r->err, 0, FOR_EVER);
    char *text;
    size_t n;
    assert_int_equal(rd_file_read(in_dir("x"), RD_EDATA, &text, &n, &st), r->code);
    assert_non_null(strstr(st.msg, "/x'"));
    assert_int_equal(plan.n_waits, r->passes ? RD_USUAL_RETRIES : 0);
}

/* ---- waits ---- */

static void test_waits(void **state)
{
    char p[3];
    (void)state;
    fresh(NULL, NULL, 0, 0, 0);
    put("x", "abc", 3);
    rd_input *in = rd_input_open(in_dir("x"), RD_MAYBE, &kind);
    assert_non_null(in);
    const int64_t before = rd_retries();
    fresh("read", "/x", EIO, 0, 3);
    assert_int_equal(rd_input_pread(in, p, 3, 0), 3);
    assert_memory_equal(p, "abc", 3);
    assert_int_equal(rd_retries() - before, 3);
    assert_int_equal(rd_input_error(in), 0);
    /* 0.1 s, then twice as long each time */
    assert_int_equal(plan.n_waits, 3);
    for (int i = 0; i < 3; i++) assert_true(fabs(plan.waited_s[i] - 0.1 * (double)(1 << i)) < 1e-6);
    /* for ever: 0.1 * (2^9 - 1) s */
    fresh("read", "/x", EIO, 0, FOR_EVER);
    assert_int_equal(rd_input_pread(in, p, 3, 0), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(rd_input_error(in), EIO);
    double sum = 0.0;
    for (int i = 0; i < plan.n_waits; i++) sum += plan.waited_s[i];
    assert_int_equal(plan.n_waits, 9);
    assert_true(fabs(sum - 51.1) < 1e-6);
    /* at most 30 s between two tries */
    rd_retries_allow(12);
    fresh("read", "/x", EIO, 0, FOR_EVER);
    assert_int_equal(rd_input_pread(in, p, 3, 0), -1);
    assert_int_equal(plan.n_waits, 12);
    assert_true(fabs(plan.waited_s[9] - 30.0) < 1e-6 && fabs(plan.waited_s[11] - 30.0) < 1e-6);
    rd_retries_allow(0);
    fresh("read", "/x", EIO, 0, 1);
    assert_int_equal(rd_input_pread(in, p, 3, 0), -1);
    assert_int_equal(plan.n_waits, 0);
    rd_retries_allow(RD_USUAL_RETRIES);
    rd_input_close(in);
}

static void test_interrupted(void **state)
{
    char p[3];
    (void)state;
    fresh(NULL, NULL, 0, 0, 0);
    put("x", "abc", 3);
    const int64_t before = rd_retries();
    fresh("open", "/x", EINTR, 0, 40);
    rd_input *in = rd_input_open(in_dir("x"), RD_MAYBE, &kind);
    assert_non_null(in);
    fresh("read", "/x", EINTR, 0, 40);
    assert_int_equal(rd_input_read(in, p, 3), 3);
    assert_memory_equal(p, "abc", 3);
    assert_int_equal(plan.n_waits, 0);
    assert_int_equal(rd_retries(), before);
    rd_input_close(in);
}

/* A file that is missing for a moment, on a disk of this machine and on a file server. */
static void test_missing(void **state)
{
    (void)state;
    put("x", "abc", 3);
    for (int k = 0; k < 4; k++) {
        const bool network = k & 1, listed = k & 2;
        fresh("open", "/x", ENOENT, 0, 2);
        plan.fs_type = network ? 0x6969 : 0xEF53; /* NFS, ext4 */
        rd_input *in = rd_input_open(in_dir("x"), listed ? RD_LISTED : RD_MAYBE, &kind);
        assert_int_equal(in != NULL, network && listed);
        assert_int_equal(plan.n_waits, network && listed ? 2 : 0);
        rd_input_close(in);
    }
    /* The folders above may be missing, too. */
    fresh(NULL, NULL, 0, 0, 0);
    plan.fs_type = 0x0BD00BD0; /* Lustre */
    assert_null(rd_input_open(in_dir("a/b/c"), RD_LISTED, &kind));
    assert_int_equal(errno, ENOENT);
    assert_int_equal(plan.n_waits, RD_USUAL_RETRIES);
}

/* ---- a stale handle ---- */

static const struct stale_row {
    const char *name;
    const char *now; /* the file at the second open */
    bool same_time;  /* it was changed at the same time */
    bool reads;
} stale_rows[] = {
    {"the same file", NULL, true, true},
    {"a file as long", "fedcba", false, false},
    {"a longer file of the same time", "abcdefg", true, false},
};

static void check_stale(void **state)
{
    const struct stale_row *r = *state;
    char p[8] = "";
    fresh(NULL, NULL, 0, 0, 0);
    put("x", "abcdef", 6);
    rd_input *in = rd_input_open(in_dir("x"), RD_LISTED, &kind);
    assert_non_null(in);
    assert_int_equal(rd_input_read(in, p, 2), 2);
    if (r->now) {
        assert_int_equal(unlink(in_dir("x")), 0);
        put("x", r->now, strlen(r->now));
        const struct timespec t[2] = {rd_input_stat(in)->st_mtim, rd_input_stat(in)->st_mtim};
        if (r->same_time) assert_int_equal(utimensat(AT_FDCWD, in_dir("x"), t, 0), 0);
    }
    fresh("read", "/x", ESTALE, 0, r->reads ? 1 : FOR_EVER);
    assert_int_equal(rd_input_read(in, p + 2, 4), r->reads ? 4 : -1);
    if (r->reads)
        assert_string_equal(p, "abcdef");
    else
        assert_int_equal(errno, ESTALE);
    rd_input_close(in);
}

/* The handle stays stale until the file is opened again. */
static void test_reopened(void **state)
{
    char p[8] = "";
    (void)state;
    fresh(NULL, NULL, 0, 0, 0);
    put("x", "abcdef", 6);
    rd_input *in = rd_input_open(in_dir("x"), RD_LISTED, &kind);
    assert_non_null(in);
    /* A write-only descriptor stands for a stale one: only a new one can be read. */
    const int stale = open(in_dir("x"), O_WRONLY);
    struct stat at;
    char path[4096];
    int fd = -1;
    for (int i = 3; i < 64 && fd < 0; i++)
        if (i != stale && fstat(i, &at) == 0 && strstr(io_path_of(i, path), "/x")) fd = i;
    assert_true(fd >= 0);
    assert_int_equal(dup2(stale, fd), fd);
    close(stale);
    fresh("read", "/x", ESTALE, 0, 1);
    assert_int_equal(rd_input_read(in, p, 6), 6);
    assert_string_equal(p, "abcdef");
    rd_input_close(in);
}

/* ---- folders ---- */

static void test_folder(void **state)
{
    rd_folder f;
    bool there = true;
    rd_status st = {0};
    (void)state;
    fresh(NULL, NULL, 0, 0, 0);
    put("x", "a", 1);
    put("y", "b", 1);
    fresh("readdir", dir, EIO, 2, 1);
    assert_int_equal(rd_folder_list(dir, RD_MAYBE, &f), 0);
    assert_int_equal(plan.n_waits, 1);
    int n = 0;
    for (int64_t i = 0; i < f.n; i++)
        n += strcmp(f.entry[i].name, "x") == 0 || strcmp(f.entry[i].name, "y") == 0;
    assert_int_equal(n, 2);
    rd_folder_release(&f);
    fresh("readdir", dir, EIO, 2, FOR_EVER);
    assert_int_equal(rd_folder_list(dir, RD_MAYBE, &f), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(f.n, 0);
    fresh("opendir", dir, EACCES, 0, 1);
    assert_int_equal(rd_folder_list(dir, RD_MAYBE, &f), -1);
    assert_int_equal(errno, EACCES);
    /* What cannot be seen is not missing. */
    fresh("stat", "/x", EACCES, 0, 1);
    assert_int_equal(rd_path_there(in_dir("x"), &there, &st), RD_EENV);
    st = (rd_status){0};
    must_do(rd_path_there(in_dir("x"), &there, &st), &st);
    assert_true(there);
    must_do(rd_path_there(in_dir("z"), &there, &st), &st);
    assert_false(there);
}

/* ---- each reader ---- */

static const char text[] = "one two\nthree\n\nfour five six\n";
enum { TEXT_BYTES = sizeof text - 1 };

/* Writes the text compressed by zlib. */
static void put_gz(const char *name)
{
    const gzFile f = gzopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, TEXT_BYTES), TEXT_BYTES);
    assert_int_equal(gzclose(f), Z_OK);
}

/* Writes a ustar archive with one member, from the format's definition. */
static void put_tar(const char *name)
{
    unsigned char b[4 * 512] = {0};
    unsigned sum = 0;
    strcpy((char *)b, "member");
    snprintf((char *)b + 100, 8, "%07o", 0644);
    snprintf((char *)b + 108, 8, "%07o", 0);
    snprintf((char *)b + 116, 8, "%07o", 0);
    snprintf((char *)b + 124, 12, "%011o", (unsigned)TEXT_BYTES);
    snprintf((char *)b + 136, 12, "%011o", 0);
    memset(b + 148, ' ', 8);
    b[156] = '0';
    memcpy(b + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++) sum += b[i];
    snprintf((char *)b + 148, 8, "%06o", sum);
    memcpy(b + 512, text, TEXT_BYTES);
    put(name, b, sizeof b);
}

static rd_code read_file(const char *path, rd_status *st)
{
    char *p = NULL;
    size_t n = 0;
    if (rd_file_read(path, RD_EDATA, &p, &n, st) == RD_OK) {
        assert_int_equal(n, TEXT_BYTES);
        assert_memory_equal(p, text, n);
    }
    free(p);
    return st->code;
}

static rd_code read_lines(const char *path, rd_status *st)
{
    rd_lines *l = NULL;
    const char *line;
    size_t n, all = 0;
    RD_TRY(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 1 << 20}, &l, st));
    for (;;) {
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        assert_true(all + n + 1 <= TEXT_BYTES);
        assert_memory_equal(line, text + all, n);
        all += n + 1;
    }
    assert_int_equal(all, TEXT_BYTES);
done:
    rd_lines_free(l);
    return st->code;
}

static rd_code read_stream(const char *path, rd_status *st)
{
    rd_stream *s = NULL;
    char p[2 * TEXT_BYTES];
    size_t got;
    RD_TRY(rd_stream_new(path, &s, st));
    RD_TRY(rd_stream_read(s, p, sizeof p, &got, st));
    assert_int_equal(got, TEXT_BYTES);
    assert_memory_equal(p, text, got);
done:
    rd_stream_free(s);
    return st->code;
}

static rd_code read_tar(const char *path, rd_status *st)
{
    rd_tar *t = NULL;
    rd_tar_member m;
    char p[TEXT_BYTES];
    RD_TRY(rd_tar_new(path, &t, st));
    RD_TRY(rd_tar_next(t, &m, st));
    assert_non_null(m.name);
    assert_string_equal(m.name, "member");
    assert_int_equal(m.bytes, TEXT_BYTES);
    RD_TRY(rd_tar_read(t, &m, p, st));
    assert_memory_equal(p, text, TEXT_BYTES);
    RD_TRY(rd_tar_next(t, &m, st));
    assert_null(m.name);
done:
    rd_tar_free(t);
    return st->code;
}

static rd_code read_shard(const char *path, rd_status *st)
{
    rd_shard_files *f = NULL;
    const char *const paths[] = {path};
    uint8_t p[TEXT_BYTES - 4];
    RD_TRY(rd_shard_files_new(paths, 1, &f, st));
    RD_TRY(rd_shard_files_read(f, 0, 4, sizeof p, p, st));
    assert_memory_equal(p, text + 4, sizeof p);
done:
    rd_shard_files_free(f);
    return st->code;
}

static rd_code read_image(const char *path, rd_status *st)
{
    rd_scratch s = {0};
    size_t n = 0;
    const char *slash = strrchr(path, '/');
    char root[512];
    snprintf(root, sizeof root, "%.*s", (int)(slash - path), path);
    if (rd_image_file(root, slash + 1, &s, &n, st) == RD_OK) {
        assert_int_equal(n, TEXT_BYTES);
        assert_memory_equal(s.bytes, text, n);
    }
    rd_scratch_release(&s);
    return st->code;
}

static rd_code read_npz(const char *path, rd_status *st)
{
    rd_npz *z = NULL;
    if (rd_npz_new(path, &z, st) == RD_OK) {
        const rd_array *a = rd_npz_find(z, "a");
        assert_non_null(a);
        assert_int_equal(a->bytes, TEXT_BYTES);
        assert_memory_equal(a->data, text, TEXT_BYTES);
    }
    rd_npz_free(z);
    return st->code;
}

static const struct reader_row {
    const char *name;
    const char *file;
    rd_code (*f)(const char *path, rd_status *st);
    const char *member; /* appended to the path */
    rd_code missing;    /* code if the file is missing */
} reader_rows[] = {
    {"file", "t.txt", read_file, "", RD_EDATA},
    {"file, gz", "t.gz", read_file, "", RD_EDATA},
    {"lines", "t.txt", read_lines, "", RD_EDATA},
    {"lines, gz", "t.gz", read_lines, "", RD_EDATA},
    {"lines, tar", "t.tar", read_lines, "!member", RD_EDATA},
    {"stream", "t.txt", read_stream, "", RD_EDATA},
    {"stream, gz", "t.gz", read_stream, "", RD_EDATA},
    {"tar", "t.tar", read_tar, "", RD_EDATA},
    {"shard", "t.txt", read_shard, "", RD_EDATA},
    {"image", "t.txt", read_image, "", RD_EDATA},
    {"npz", "t.npz", read_npz, "", RD_ECKPT},
};

static void check_reader(void **state)
{
    const struct reader_row *r = *state;
    rd_status st = {0};
    const rd_array a = {.name = "a",
                        .descr = "|u1",
                        .n_dim = 1,
                        .dim = {TEXT_BYTES},
                        .data = text,
                        .bytes = TEXT_BYTES};
    char path[1024], match[64];
    fresh(NULL, NULL, 0, 0, 0);
    empty_dir();
    put("t.txt", text, TEXT_BYTES);
    put_gz("t.gz");
    put_tar("t.tar");
    must_do(rd_npz_write(in_dir("t.npz"), &a, 1, NULL, &st), &st);
    snprintf(path, sizeof path, "%s%s", in_dir(r->file), r->member);
    snprintf(match, sizeof match, "/%s", r->file);
    must_do(r->f(path, &st), &st);
    /* one byte in each read */
    fresh(NULL, match, 0, 0, 0);
    plan.most = 1;
    must_do(r->f(path, &st), &st);
    /* the number of calls that can fail */
    static const char *const calls[] = {"open", "read"};
    static const struct {
        int err;
        bool passes;
    } errs[] = {{EIO, true},    {ESTALE, true},  {EINTR, true},
                {ENOMEM, true}, {EMFILE, false}, {EACCES, false}};
    for (int c = 0; c < 2; c++) {
        fresh(calls[c], match, 0, 0, 0);
        must_do(r->f(path, &st), &st);
        const int n = plan.seen;
        assert_true(n > 0);
        for (size_t e = 0; e < sizeof errs / sizeof *errs; e++)
            for (int k = 0; k < n; k++) {
                fresh(calls[c], match, errs[e].err, k, 1);
                if (errs[e].passes) must_do(r->f(path, &st), &st);
                if (errs[e].err == EINTR) continue;
                fresh(calls[c], match, errs[e].err, k, FOR_EVER);
                if (r->f(path, &st) != RD_EENV)
                    fail_msg("%s: error %d at call %d of %s: code %d, %s", r->name, errs[e].err, k,
                             calls[c], (int)st.code, st.msg);
                assert_non_null(strstr(st.msg, match));
                assert_non_null(strstr(st.msg, strerrordesc_np(errs[e].err) + 1));
                assert_non_null(strstr(st.msg, "cannot "));
                st = (rd_status){0};
            }
    }
    /* a missing file and a damaged one keep their code */
    fresh(NULL, NULL, 0, 0, 0);
    snprintf(path, sizeof path, "%s%s", in_dir("none"), r->member);
    assert_int_equal(r->f(path, &st), r->missing);
    st = (rd_status){0};
    if (strcmp(r->file, "t.txt") == 0) return;
    struct stat at;
    assert_int_equal(stat(in_dir(r->file), &at), 0);
    assert_int_equal(truncate(in_dir(r->file), at.st_size / 4 + 8), 0);
    snprintf(path, sizeof path, "%s%s", in_dir(r->file), r->member);
    assert_int_equal(r->f(path, &st), r->missing);
}

/* ---- checkpoints ---- */

static void save(int64_t step)
{
    static const float w[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    rd_status st = {0};
    const rd_array a = {
        .name = "w", .descr = "<f4", .n_dim = 1, .dim = {4}, .data = w, .bytes = sizeof w};
    must_do(rd_ckpt_save(dir, "model", step, &a, 1, NULL, 5, &st), &st);
}

static const struct newest_row {
    const char *name;
    const char *call, *path;
    int err;
    rd_code code;
    int64_t step; /* of what is loaded */
} newest_rows[] = {
    {"whole", NULL, NULL, 0, RD_OK, 20},
    {"not opened, EACCES", "open", "model-20", EACCES, RD_EENV, 0},
    {"not opened, EMFILE", "open", "model-20", EMFILE, RD_EENV, 0},
    {"not opened, ENOMEM", "open", "model-20", ENOMEM, RD_EENV, 0},
    {"not read, EIO", "read", "model-20", EIO, RD_EENV, 0},
    {"not read, ESTALE", "read", "model-20", ESTALE, RD_EENV, 0},
    {"folder not opened", "opendir", "", EIO, RD_EENV, 0},
    {"folder not read", "readdir", "", EIO, RD_EENV, 0},
    {"gone after the list was made", "open", "model-20", ENOENT, RD_OK, 10},
};

/* An unreadable newest checkpoint is a fault of the machine: an older one would lose steps. */
static void check_newest(void **state)
{
    const struct newest_row *r = *state;
    rd_status st = {0};
    rd_ckpt c;
    char warning[RD_MSG_BYTES];
    fresh(NULL, NULL, 0, 0, 0);
    empty_dir();
    save(10);
    save(20);
    fresh(r->call, r->path && !r->path[0] ? dir : r->path, r->err, 0, FOR_EVER);
    const rd_code code = rd_ckpt_load_newest(dir, "model", &c, warning, &st);
    fresh(NULL, NULL, 0, 0, 0);
    assert_int_equal(code, r->code);
    if (code == RD_OK) assert_int_equal(c.step, r->step);
    if (code == RD_OK && r->step == 20) assert_string_equal(warning, "");
    rd_ckpt_release(&c);
}

/* The bytes are on the disk before the name, and the name before the call returns. */
static void test_order_of_sync(void **state)
{
    rd_status st = {0};
    char want[512], tmp[64];
    const char *base = strrchr(dir, '/') + 1;
    (void)state;
    snprintf(tmp, sizeof tmp, "tmp.%ld", (long)getpid());
    fresh(NULL, NULL, 0, 0, 0);
    must_do(rd_file_write_atomic(in_dir("x"), "abc", 3, &st), &st);
    snprintf(want, sizeof want, "fsync x.%s\nrename x\nfsync %s\n", tmp, base);
    assert_string_equal(plan.log, want);
    fresh(NULL, NULL, 0, 0, 0);
    save(30);
    snprintf(want, sizeof want,
             "fsync model-30.npz.%s\nrename model-30.npz\nfsync %s\n"
             "fsync checkpoint.%s\nrename checkpoint\nfsync %s\n",
             tmp, base, tmp, base);
    assert_string_equal(plan.log, want);
    /* A failed sync is a failed write, and the old file stays. */
    fresh("fsync", "/x.tmp", EIO, 0, 1);
    assert_int_equal(rd_file_write_atomic(in_dir("x"), "new", 3, &st), RD_EENV);
    char *p;
    size_t n;
    st = (rd_status){0};
    fresh(NULL, NULL, 0, 0, 0);
    must_do(rd_file_read(in_dir("x"), RD_EDATA, &p, &n, &st), &st);
    assert_string_equal(p, "abc");
    free(p);
}

RD_TESTS_WITH("base_input", make_dir, remove_dir, TEST_ROWS(check_error, error_rows),
              TEST(test_waits), TEST(test_interrupted), TEST(test_missing),
              TEST_ROWS(check_stale, stale_rows), TEST(test_reopened), TEST(test_folder),
              TEST_ROWS(check_reader, reader_rows), TEST_ROWS(check_newest, newest_rows),
              TEST(test_order_of_sync))
