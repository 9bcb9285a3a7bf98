/* safetensors.c -- tests safetensors files.
 *
 * What the library safetensors wrote is read, and what it refuses is refused with a reason. What we
 * write has the bytes of the format's description. tests/support/make_safetensors_corpus.py made
 * the files; tests/support/check_export.py opens ours with the library. */
#include "rd/file.h"
#include "rd/safetensors.h"
#include "test.h"
#include "scratch_dir.h"
#include <inttypes.h>

static const char corpus[] = "tests/fuzz/corpus/safetensors/";

static const char *in_corpus(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s%s", corpus, name);
    return path;
}

/* ---- what the library wrote ---- */

static const uint16_t f16[] = {0x3E00, 0xC000}, bf16[] = {0x3FC0, 0xC000};
static const float f32[] = {0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 1.25f}, scalar = 2.5f;
static const double f64[] = {1e300, -0.0};
static const int64_t i64[] = {-1, INT64_C(1) << 62};
static const int32_t i32 = -5;
static const int16_t i16[] = {7, -7};
static const int8_t i8[] = {-1, 1, 2};
static const uint8_t u8 = 255, flags[] = {1, 0};

static const struct {
    const char *name, *descr;
    int n_dim;
    int64_t dim[3];
    const void *data;
    size_t bytes;
} known[] = {
    {"f32", "<f4", 2, {2, 3}, f32, sizeof f32},
    {"f64", "<f8", 1, {2}, f64, sizeof f64},
    {"f16", "<f2", 1, {2}, f16, sizeof f16},
    {"bf16", "bf16", 1, {2}, bf16, sizeof bf16},
    {"i64", "<i8", 1, {2}, i64, sizeof i64},
    {"i32", "<i4", 1, {1}, &i32, sizeof i32},
    {"i16", "<i2", 1, {2}, i16, sizeof i16},
    {"i8", "|i1", 1, {3}, i8, sizeof i8},
    {"u8", "|u1", 1, {1}, &u8, sizeof u8},
    {"bool", "|b1", 1, {2}, flags, sizeof flags},
    {"scalar", "<f4", 0, {0}, &scalar, sizeof scalar},
    {"empty", "<f4", 3, {3, 0, 2}, f32, 0},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static void check_known(const rd_safetensors *s)
{
    char got[64];
    rd_status st = {0};
    assert_int_equal(rd_safetensors_n(s), N_KNOWN);
    for (int i = 0; i < N_KNOWN; i++) {
        const rd_array *a = rd_safetensors_find(s, known[i].name);
        assert_non_null(a);
        assert_string_equal(a->descr, known[i].descr);
        assert_int_equal(a->n_dim, known[i].n_dim);
        for (int d = 0; d < a->n_dim; d++) assert_int_equal(a->dim[d], known[i].dim[d]);
        assert_int_equal(a->bytes, known[i].bytes);
        int at = 0;
        while (rd_safetensors_at(s, at) != a) at++;
        must_do(rd_safetensors_read(s, at, got, &st), &st);
        assert_memory_equal(got, known[i].data, a->bytes);
    }
    assert_null(rd_safetensors_find(s, "__metadata__"));
    assert_null(rd_safetensors_at(s, N_KNOWN));
    assert_null(rd_safetensors_at(s, -1));
    const json_t *m = rd_safetensors_metadata(s);
    assert_int_equal(json_object_size(m), 2);
    assert_string_equal(json_string_value(json_object_get(m, "words")), "\xC3\xA4 b");
}

static void test_library(void **state)
{
    rd_status st = {0};
    rd_safetensors *s;
    (void)state;
    must_do(rd_safetensors_new(in_corpus("types"), &s, &st), &st);
    check_known(s);
    rd_safetensors_free(s);
    must_do(rd_safetensors_new(in_corpus("nothing"), &s, &st), &st);
    assert_int_equal(rd_safetensors_n(s), 0);
    assert_null(rd_safetensors_metadata(s));
    rd_safetensors_free(s);
}

/* ---- what we write ---- */

static rd_array array_of(int i)
{
    rd_array a = {.n_dim = known[i].n_dim, .data = known[i].data, .bytes = known[i].bytes};
    snprintf(a.name, sizeof a.name, "%s", known[i].name);
    snprintf(a.descr, sizeof a.descr, "%s", known[i].descr);
    memcpy(a.dim, known[i].dim, sizeof known[i].dim);
    return a;
}

static void test_all_types(void **state)
{
    rd_array a[N_KNOWN];
    rd_status st = {0};
    rd_safetensors *s;
    json_t *m = json_pack("{s:s, s:s}", "format", "pt", "words", "\xC3\xA4 b");
    (void)state;
    for (int i = 0; i < N_KNOWN; i++) a[i] = array_of(i);
    must_do(rd_safetensors_write(in_dir("a.safetensors"), a, N_KNOWN, m, &st), &st);
    json_decref(m);
    must_do(rd_safetensors_new(in_dir("a.safetensors"), &s, &st), &st);
    check_known(s);
    for (int i = 0, at = 0; i < N_KNOWN; i++, at++) /* in the order in which they were written */
        if (known[i].bytes > 0) assert_string_equal(rd_safetensors_at(s, at)->name, known[i].name);
    rd_safetensors_free(s);
}

/* The bytes of the format's description: length, header with blanks up to a multiple of 8, data. */
static void test_bytes(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"i8\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0"
        ",3]},\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[3,7]}}";
    rd_array a[] = {array_of(7), array_of(10)};
    rd_status st = {0};
    json_t *m = json_pack("{s:s}", "k", "v");
    char *text, want[8 + sizeof header + 8 + 7];
    size_t n;
    (void)state;
    must_do(rd_safetensors_write(in_dir("b.safetensors"), a, 2, m, &st), &st);
    json_decref(m);
    must_do(rd_file_read(in_dir("b.safetensors"), RD_EDATA, &text, &n, &st), &st);
    const size_t len = (sizeof header - 1 + 7) / 8 * 8;
    memset(want, 0, sizeof want);
    want[0] = (char)len;
    memset(want + 8, ' ', len);
    memcpy(want + 8, header, sizeof header - 1);
    memcpy(want + 8 + len, i8, 3);
    memcpy(want + 8 + len + 3, &scalar, 4);
    assert_int_equal(n, 8 + len + 7);
    assert_memory_equal(text, want, n);
    free(text);
}

/* The library's bytes, where arrays come in its order: larger types first, then by name. */
static void test_same_bytes(void **state)
{
    static const float w[] = {1, 2, 3, 4};
    static const uint16_t b[] = {0x3800, 0xBC00};
    static const int64_t seven = 7;
    const rd_array a[] = {
        {.name = "n", .descr = "<i8", .n_dim = 1, .dim = {1}, .data = &seven, .bytes = 8},
        {.name = "a", .descr = "<f4", .n_dim = 2, .dim = {0, 3}, .data = w, .bytes = 0},
        {.name = "s", .descr = "<f4", .n_dim = 0, .data = &scalar, .bytes = 4},
        {.name = "w", .descr = "<f4", .n_dim = 2, .dim = {2, 2}, .data = w, .bytes = 16},
        {.name = "b", .descr = "<f2", .n_dim = 1, .dim = {2}, .data = b, .bytes = 4}};
    rd_status st = {0};
    json_t *m = json_pack("{s:s}", "format", "np");
    char *ours, *theirs;
    size_t n, want;
    (void)state;
    must_do(rd_safetensors_write(in_dir("five"), a, 5, m, &st), &st);
    json_decref(m);
    must_do(rd_file_read(in_dir("five"), RD_EDATA, &ours, &n, &st), &st);
    must_do(rd_file_read(in_corpus("five"), RD_EDATA, &theirs, &want, &st), &st);
    assert_int_equal(want, 352);
    assert_int_equal(n, want);
    assert_memory_equal(ours, theirs, n);
    free(ours);
    free(theirs);
}

static void test_not_written(void **state)
{
    rd_array twice[] = {array_of(0), array_of(0)}, other = array_of(0), odd = array_of(0);
    rd_status st = {0};
    (void)state;
    assert_int_equal(rd_safetensors_write(in_dir("c.safetensors"), twice, 2, NULL, &st), RD_EBUG);
    st = (rd_status){0};
    other.bytes--;
    assert_int_equal(rd_safetensors_write(in_dir("c.safetensors"), &other, 1, NULL, &st), RD_EBUG);
    st = (rd_status){0};
    strcpy(odd.descr, "<c8");
    assert_int_equal(rd_safetensors_write(in_dir("c.safetensors"), &odd, 1, NULL, &st), RD_EBUG);
    assert_int_equal(access(in_dir("c.safetensors"), F_OK), -1);
    st = (rd_status){0};
    rd_array one = array_of(0);
    assert_int_equal(rd_safetensors_write("/proc/none/x", &one, 1, NULL, &st), RD_EENV);
}

/* ---- what is refused ---- */

static struct bad_row {
    const char *name, *want; /* a part of the message */
} bad_rows[] = {
    {"bad_empty", "at byte 0: it ends before the 8 bytes of its header's length"},
    {"bad_short", "at byte 3: it ends before the 8 bytes"},
    {"bad_seven", "at byte 7: it ends before the 8 bytes"},
    {"bad_length_zero", "at byte 8: its header is no JSON object"},
    {"bad_length_over_file", "promise a header of 1000 bytes"},
    {"bad_length_huge", "promise a header of 9223372036854775808 bytes"},
    {"bad_cut_header", "promise a header of"},
    {"bad_not_json", "at byte 14: its header is no JSON object"},
    {"bad_not_object", "at byte 8: its header is no JSON object"},
    {"bad_twice", "no JSON object: duplicate"},
    {"bad_type_unknown", "at byte 9: 'a' has type 'F99', which this program does not read"},
    {"bad_shape_negative", "at byte 9: the shape of 'a' has no whole numbers"},
    {"bad_shape_text", "the shape of 'a' has no whole numbers"},
    {"bad_shape_overflow", "another number of bytes than its shape says"},
    {"bad_shape_other", "another number of bytes than its shape says"},
    {"bad_dimensions", "at byte 9: 'a' has 7 dimensions; 6 are allowed"},
    {"bad_place_behind", "the place of 'a' is not within the 4 bytes"},
    {"bad_place_turned", "the place of 'a' is not within the 4 bytes"},
    {"bad_place_negative", "at byte 9: the place of 'a' is not within the 4 bytes"},
    {"bad_place_huge", "no JSON object: too big integer"},
    {"bad_place_real", "the place of 'a' is not within the 4 bytes"},
    {"bad_place_one", "'a' lacks 'dtype', 'shape' or 'data_offsets'"},
    {"bad_place_missing", "'a' lacks 'dtype', 'shape' or 'data_offsets'"},
    {"bad_overlap", "at byte 132: 'b' overlaps the array before it"},
    {"bad_same_place", "at byte 130: 'b' overlaps the array before it"},
    {"bad_gap", "at byte 139: 'b' leaves a gap"},
    {"bad_rest", "at byte 73: 4 bytes of its data belong to no array"},
    {"bad_cut", "is not within the"},
    {"bad_metadata_number", "at byte 26: 'a' of '__metadata__' is no string"},
    {"bad_metadata_list", "at byte 9: '__metadata__' is no object"},
    {"bad_name_empty", "name is empty"},
    {"bad_name_long", "longer than 199 bytes"},
    {"bad_name_control", "not plain ASCII"},
};

static void check_bad(void **state)
{
    const struct bad_row *r = *state;
    rd_status st = {0};
    rd_safetensors *s = (rd_safetensors *)&st;
    assert_int_equal(rd_safetensors_new(in_corpus(r->name), &s, &st), RD_ECKPT);
    assert_null(s);
    if (!strstr(st.msg, r->want) || !strstr(st.msg, r->name)) fail_msg("%s", st.msg);
    if (!strstr(st.msg, "': at byte ")) fail_msg("no offset: %s", st.msg);
}

/* A header above the limit of the library, of a file that is as large. */
static void test_large_header(void **state)
{
    enum { LIMIT = 100000000 };
    rd_status st = {0};
    rd_safetensors *s;
    (void)state;
    for (uint64_t n = LIMIT; n <= LIMIT + 1; n++) {
        st = (rd_status){0};
        FILE *f = fopen(in_dir("large"), "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(&n, sizeof n, 1, f), 1);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(truncate(in_dir("large"), (off_t)n + 8), 0);
        assert_int_equal(rd_safetensors_new(in_dir("large"), &s, &st), RD_ECKPT);
        if (!strstr(st.msg, n == LIMIT ? ": its header is no JSON object"
                                       : "large': at byte 0: its first 8 bytes promise a header of "
                                         "100000001 bytes"))
            fail_msg("%s", st.msg);
    }
}

static void test_no_file(void **state)
{
    rd_status st = {0};
    rd_safetensors *s;
    (void)state;
    assert_int_equal(rd_safetensors_new(in_dir("none"), &s, &st), RD_ECKPT);
    assert_non_null(strstr(st.msg, "none"));
    st = (rd_status){0};
    assert_int_equal(rd_safetensors_new(dir, &s, &st), RD_ECKPT);
    assert_non_null(strstr(st.msg, "folder"));
}

/* The file becomes shorter after it was opened. */
static void test_cut_later(void **state)
{
    rd_array a = array_of(0);
    rd_status st = {0};
    rd_safetensors *s;
    char got[64];
    (void)state;
    must_do(rd_safetensors_write(in_dir("d.safetensors"), &a, 1, NULL, &st), &st);
    must_do(rd_safetensors_new(in_dir("d.safetensors"), &s, &st), &st);
    assert_int_equal(truncate(in_dir("d.safetensors"), 80), 0);
    assert_int_equal(rd_safetensors_read(s, 0, got, &st), RD_ECKPT);
    assert_non_null(strstr(st.msg, "d.safetensors"));
    rd_safetensors_free(s);
}

RD_TESTS_WITH("safetensors", make_dir, remove_dir, TEST(test_library), TEST(test_all_types),
              TEST(test_bytes), TEST(test_same_bytes), TEST(test_not_written),
              TEST_ROWS(check_bad, bad_rows), TEST(test_large_header), TEST(test_no_file),
              TEST(test_cut_later))
