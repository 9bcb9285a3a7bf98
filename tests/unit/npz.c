/* npz.c -- tests NumPy archives.
 *
 * What NumPy wrote is read. What we write has NumPy's headers and the same bytes every time.
 * Nothing in a damaged file is trusted. The archives in tests/fuzz/corpus/npz and the golden
 * headers come from NumPy through tests/support/make_npz_corpus.py. tests/support/check_npz.py
 * opens the files of this test with numpy.load. */
#include "rd/file.h"
#include "rd/npz.h"
#include "test.h"
#include "scratch_dir.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static int remove_known(void **state)
{
    (void)state;
    if (getenv("RD_TEST_KEEP")) return 0;
    static const char *const names[] = {"a.npz", "b.npz", "empty.npz", "types.npz"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) (void)unlink(in_dir(names[i]));
    return rmdir(dir); /* a file left behind makes the group fail */
}

static rd_array array_of(const char *name, const char *descr, int n_dim, const int64_t *dim,
                         const void *data, size_t bytes)
{
    rd_array a = {.n_dim = n_dim, .data = data, .bytes = bytes};
    snprintf(a.name, sizeof a.name, "%s", name);
    snprintf(a.descr, sizeof a.descr, "%s", descr);
    for (int i = 0; i < n_dim; i++) a.dim[i] = dim[i];
    return a;
}

static void open_corpus(const char *name, rd_npz **z, rd_status *st)
{
    char path[512];
    snprintf(path, sizeof path, "tests/fuzz/corpus/npz/%s", name);
    (void)rd_npz_new(path, z, st);
}

/* ---- reading what NumPy wrote ---- */

static void check_numpy(const char *file)
{
    rd_status st = {0};
    rd_npz *z;
    open_corpus(file, &z, &st);
    assert_string_equal(st.msg, "");
    assert_non_null(z);
    assert_int_equal(rd_npz_n(z), 9);

    const rd_array *a = rd_npz_find(z, "f4");
    assert_non_null(a);
    assert_string_equal(a->descr, "<f4");
    assert_int_equal(a->n_dim, 2);
    assert_int_equal(a->dim[0], 2);
    assert_int_equal(a->dim[1], 3);
    assert_int_equal(a->bytes, 24);
    for (int i = 0; i < 6; i++) assert_true(((const float *)a->data)[i] == (float)i / 4);
    assert_int_equal((uintptr_t)a->data % 64, 0);

    a = rd_npz_find(z, "f8");
    assert_non_null(a);
    assert_true(((const double *)a->data)[0] == 1e300);
    assert_true(signbit(((const double *)a->data)[1]));
    assert_true(isinf(((const double *)a->data)[2]));

    a = rd_npz_find(z, "f2");
    assert_non_null(a);
    assert_int_equal(((const uint16_t *)a->data)[0], 0x3E00);
    a = rd_npz_find(z, "i4");
    assert_non_null(a);
    assert_int_equal(((const int32_t *)a->data)[0], -1);
    assert_int_equal(((const int32_t *)a->data)[1], INT32_MAX);
    a = rd_npz_find(z, "i8");
    assert_non_null(a);
    assert_int_equal(a->n_dim, 3);
    assert_true(((const int64_t *)a->data)[0] == INT64_MIN);
    a = rd_npz_find(z, "u1");
    assert_non_null(a);
    assert_memory_equal(a->data, "\0\1\2\3\4", 5);
    a = rd_npz_find(z, "deep/er/name");
    assert_non_null(a);
    assert_int_equal(a->n_dim, 0);
    assert_true(((const float *)a->data)[0] == 7);
    a = rd_npz_find(z, "empty");
    assert_non_null(a);
    assert_int_equal(a->bytes, 0);
    assert_null(rd_npz_find(z, "f"));
    assert_null(rd_npz_at(z, 9));
    rd_npz_free(z);
}

static void reads_numpy_stored(void **state)
{
    (void)state;
    check_numpy("numpy-plain.npz");
}

static void reads_numpy_compressed(void **state)
{
    (void)state;
    check_numpy("numpy-compressed.npz");
}

static struct file_row {
    const char *file, *want; /* want: part of the message; NULL: the float array x = 0 1 2 */
} file_rows[] = {
    {"version-2.npz", NULL},
    {"version-3.npz", NULL},
    {"old-dict.npz", NULL},
    {"fortran.npz", "Fortran order"},
    {"big-endian.npz", "type '>f4' cannot be read"},
    {"structured.npz", "not a plain one"},
    {"short-data.npz", "needs 12 bytes, the member holds 11"},
    {"long-data.npz", "needs 12 bytes, the member holds 13"},
    {"overflow.npz", "more elements than memory can hold"},
    {"negative.npz", "not a tuple of counts"},
    {"seven-dims.npz", "more than 6 dimensions"},
    {"no-dict.npz", "not a dictionary"},
    {"long-header.npz", "claims 2147483647 bytes"},
    {"no-magic.npz", "not an NPY array"},
    {"bomb.npz", "claims 4194432 bytes in a file of 4273"},
    {"bombs.npz", "member 'y.npy' claims 614528 bytes in a file of 2368"},
    {"twice.npz", "holds 'x' twice"},
    {"cut.npz", "not a whole zip archive"},
    {"flipped.npz", "damaged: ZIP bad CRC"},
    {"nothing.npz", "not a whole zip archive"},
    {"missing.npz", "cannot open"},
    {".", "not a regular file"},
};

static void check_file(void **state)
{
    const struct file_row *r = *state;
    rd_status st = {0};
    rd_npz *z;
    open_corpus(r->file, &z, &st);
    if (r->want) {
        assert_null(z);
        assert_int_equal(st.code, RD_ECKPT);
        if (!strstr(st.msg, r->want)) fail_msg("'%s' is not in '%s'", r->want, st.msg);
        if (!strstr(st.msg, r->file)) fail_msg("no file name in '%s'", st.msg);
        return;
    }
    assert_string_equal(st.msg, "");
    const rd_array *a = rd_npz_find(z, "x");
    assert_non_null(a);
    assert_int_equal(a->bytes, 12);
    for (int i = 0; i < 3; i++) assert_true(((const float *)a->data)[i] == (float)i);
    rd_npz_free(z);
}

/* Cut anywhere, or one bit of any byte turned: an answer, and never other data than was written. */
static void no_cut_or_flip_is_believed(void **state)
{
    (void)state;
    char *file;
    size_t n;
    rd_status st = {0};
    assert_int_equal(
        rd_file_read("tests/fuzz/corpus/npz/numpy-plain.npz", RD_ECKPT, &file, &n, &st), RD_OK);
    int refused = 0;
    for (size_t cut = 0; cut < n; cut++) {
        rd_npz *z;
        rd_status one = {0};
        char *part = malloc(cut + 1); /* of its own, so that the sanitizer sees its end */
        assert_non_null(part);
        memcpy(part, file, cut);
        assert_int_equal(rd_npz_new_mem(part, cut, &z, &one), RD_ECKPT);
        assert_null(z);
        free(part);
    }
    for (size_t i = 0; i < n; i++) {
        rd_npz *z;
        rd_status one = {0};
        file[i] ^= (char)(1 << i % 8);
        if (rd_npz_new_mem(file, n, &z, &one) == RD_OK) {
            const rd_array *a = rd_npz_find(
                z, "f4"); /* a flip may rename or lose a member; the manifest sees to that */
            if (a && a->n_dim == 2 && a->dim[0] == 2 && strcmp(a->descr, "<f4") == 0)
                for (int k = 0; k < 6; k++)
                    assert_true(((const float *)a->data)[k] == (float)k / 4);
        } else {
            refused++;
        }
        rd_npz_free(z);
        file[i] ^= (char)(1 << i % 8);
    }
    /* Of 2251 bytes. The others are in dates, attributes and local headers that no code reads. */
    assert_true(refused > 1000);
    free(file);
}

/* ---- writing ---- */

static struct head_row {
    const char *descr;
    int n_dim;
    int64_t dim[RD_NPY_MAX_DIM];
    size_t n;         /* bytes of the whole header */
    const char *want; /* NumPy's own text; spaces and a newline follow */
} head_rows[] = {
    {"<f4", 0, {0}, 128, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }"},
    {"<f4", 1, {3}, 128, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"},
    {"<i8", 2, {2, 3}, 128, "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }"},
    {"|u1", 2, {0, 5}, 128, "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 5), }"},
    {"<f8",
     6,
     {1, 2, 3, 4, 5, 6},
     128,
     "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 3, 4, 5, 6), }"},
    /* Room for a first dimension of 20 digits: 64 bytes more than the text needs. */
    {"<f4",
     6,
     {0, 100000000, 100000000, 100000000, 100000000, 1},
     192,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 100000000, 100000000, 100000000, "
     "100000000, 1), }"},
};

static void check_head(void **state)
{
    const struct head_row *r = *state;
    static const char data[6000];
    char want[192], *file;
    rd_status st = {0};
    size_t n, bytes = strcmp(r->descr, "<f4") == 0 ? 4 : strcmp(r->descr, "|u1") == 0 ? 1 : 8;
    for (int i = 0; i < r->n_dim; i++) bytes = r->dim[0] == 0 ? 0 : bytes * (size_t)r->dim[i];
    const rd_array a = array_of("x", r->descr, r->n_dim, r->dim, data, bytes);
    assert_int_equal(rd_npz_write(in_dir("a.npz"), &a, 1, NULL, &st), RD_OK);

    memset(want, ' ', sizeof want);
    memcpy(want, "\x93NUMPY\x01\x00", 8);
    want[8] = (char)(r->n - 10);
    want[9] = 0;
    memcpy(want + 10, r->want, strlen(r->want));
    want[r->n - 1] = '\n';
    assert_int_equal(rd_file_read(in_dir("a.npz"), RD_ECKPT, &file, &n, &st), RD_OK);
    const char *at = memmem(file, n, "\x93NUMPY", 6);
    assert_non_null(at);
    assert_true((size_t)(at - file) + r->n < n);
    assert_memory_equal(at, want, r->n);
    free(file);
}

/* Every type there and back; the files stay for check_npz.py. */
static void writes_and_reads_back(void **state)
{
    (void)state;
    static const float f4[6] = {0, 0.25f, 0.5f, -1, 1e-45f, 3e38f};
    static const double f8[2] = {1e300, -0.0};
    static const uint16_t f2[2] = {0x3E00, 0xC000};
    static const int32_t i4[3] = {INT32_MIN, 0, INT32_MAX};
    static const int64_t i8[1] = {INT64_MIN};
    static const uint8_t u1[5] = {0, 1, 2, 254, 255};
    const rd_array a[] = {
        array_of("model/weights/f4", "<f4", 2, (int64_t[]){2, 3}, f4, sizeof f4),
        array_of("f8", "<f8", 1, (int64_t[]){2}, f8, sizeof f8),
        array_of("f2", "<f2", 1, (int64_t[]){2}, f2, sizeof f2),
        array_of("i4", "<i4", 3, (int64_t[]){1, 3, 1}, i4, sizeof i4),
        array_of("scalar", "<i8", 0, NULL, i8, sizeof i8),
        array_of("u1", "|u1", 1, (int64_t[]){5}, u1, sizeof u1),
        array_of("none", "<f4", 2, (int64_t[]){0, 7}, f4, 0),
    };
    enum { N = sizeof a / sizeof a[0] };
    rd_status st = {0};
    rd_npz *z;
    assert_int_equal(rd_npz_write(in_dir("types.npz"), a, N, "{\"step\": 3}", &st), RD_OK);
    assert_int_equal(rd_npz_new(in_dir("types.npz"), &z, &st), RD_OK);
    assert_int_equal(rd_npz_n(z), N + 1);
    for (int i = 0; i < N; i++) {
        const rd_array *b = rd_npz_find(z, a[i].name);
        assert_non_null(b);
        assert_ptr_equal(b, rd_npz_at(z, i)); /* order is kept */
        assert_string_equal(b->descr, a[i].descr);
        assert_int_equal(b->n_dim, a[i].n_dim);
        for (int d = 0; d < b->n_dim; d++) assert_int_equal(b->dim[d], a[i].dim[d]);
        assert_int_equal(b->bytes, a[i].bytes);
        if (b->bytes > 0) assert_memory_equal(b->data, a[i].data, b->bytes);
    }
    const rd_array *m = rd_npz_find(z, "manifest.json");
    assert_non_null(m);
    assert_string_equal(m->descr, "|u1");
    assert_string_equal(m->data, "{\"step\": 3}"); /* may be read as a string */
    rd_npz_free(z);
}

static void manifest_alone_is_an_archive(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_npz *z;
    assert_int_equal(rd_npz_write(in_dir("empty.npz"), NULL, 0, "{}", &st), RD_OK);
    assert_int_equal(rd_npz_new(in_dir("empty.npz"), &z, &st), RD_OK);
    assert_int_equal(rd_npz_n(z), 1);
    rd_npz_free(z);
}

/* The same arrays at another time and in another time zone: the same bytes. */
static void equal_arrays_give_equal_bytes(void **state)
{
    (void)state;
    static const float x[1000] = {1, 2, 3};
    const rd_array a = array_of("x", "<f4", 1, (int64_t[]){1000}, x, sizeof x);
    rd_status st = {0};
    char *one, *two;
    size_t n_one, n_two;
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    tzset();
    assert_int_equal(rd_npz_write(in_dir("a.npz"), &a, 1, "{}", &st), RD_OK);
    assert_int_equal(setenv("TZ", "XXX-9:30", 1), 0);
    tzset();
    (void)nanosleep(&(struct timespec){.tv_sec = 2},
                    NULL); /* zip tells time in steps of two seconds */
    assert_int_equal(rd_npz_write(in_dir("b.npz"), &a, 1, "{}", &st), RD_OK);
    assert_int_equal(rd_file_read(in_dir("a.npz"), RD_ECKPT, &one, &n_one, &st), RD_OK);
    assert_int_equal(rd_file_read(in_dir("b.npz"), RD_ECKPT, &two, &n_two, &st), RD_OK);
    assert_int_equal(n_one, n_two);
    assert_memory_equal(one, two, n_one);
    free(one);
    free(two);
}

static struct bug_row {
    const char *name, *descr;
    int64_t dim;
    size_t bytes;
} bug_rows[] = {
    {"size does not match", "<f4", 3, 11},
    {"unknown type", "<c8", 1, 8},
    {"../up", "<f4", 1, 4},
    {"/root", "<f4", 1, 4},
    {"", "<f4", 1, 4},
    {"n\xc3\xa9", "<f4", 1, 4},
    {"negative", "<f4", -1, 4},
};

static void refuses_to_write(void **state)
{
    const struct bug_row *r = *state;
    static const float x[4];
    const rd_array a = array_of(r->name, r->descr, 1, &r->dim, x, r->bytes);
    rd_status st = {0};
    (void)unlink(in_dir("a.npz"));
    assert_int_equal(rd_npz_write(in_dir("a.npz"), &a, 1, NULL, &st), RD_EBUG);
    assert_int_not_equal(access(in_dir("a.npz"), F_OK), 0);
}

/* A write that stops anywhere: a message, the old file whole, nothing left behind. */
static void full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    static float x[5000];
    rd_array a = array_of("x", "<f4", 1, (int64_t[]){5000}, x, sizeof x);
    rd_status st = {0};
    char *before, *after;
    size_t n_before, n_after;
    assert_int_equal(rd_npz_write(in_dir("a.npz"), &a, 1, NULL, &st), RD_OK);
    assert_int_equal(rd_file_read(in_dir("a.npz"), RD_ECKPT, &before, &n_before, &st), RD_OK);

    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    now = was;
    x[0] = 1;
    for (size_t limit = 0; limit < n_before; limit += limit < 400 ? 37 : 997) {
        rd_status one = {0};
        now.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        (void)rd_npz_write(in_dir("a.npz"), &a, 1, NULL, &one);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_int_equal(one.code, RD_EENV);
        assert_non_null(strstr(one.msg, "a.npz"));
        assert_int_equal(rd_file_read(in_dir("a.npz"), RD_ECKPT, &after, &n_after, &st), RD_OK);
        assert_int_equal(n_before, n_after);
        assert_memory_equal(before, after, n_before);
        free(after);
    }
    (void)signal(SIGXFSZ, old);
    free(before);
}

RD_TESTS_WITH("npz", make_dir, remove_known, TEST(reads_numpy_stored), TEST(reads_numpy_compressed),
              TEST(no_cut_or_flip_is_believed), TEST(writes_and_reads_back),
              TEST(manifest_alone_is_an_archive), TEST(equal_arrays_give_equal_bytes),
              TEST(full_disk_keeps_the_old_file), TEST_ROWS_BY(check_file, file_rows, file),
              TEST_ROWS_BY(check_head, head_rows, want), TEST_ROWS(refuses_to_write, bug_rows))
