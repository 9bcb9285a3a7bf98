/* onnx.c -- tests graphs of ONNX: the file is parsed again with the field numbers of onnx.proto3.
 * tests/support/check_export.py opens the graphs of all models with onnx and onnxruntime. */
#include "../../runner/io/events_impl.h"
#include "rd/file.h"
#include "rd/onnx.h"
#include "test.h"
#include "scratch_dir.h"

/* Moves to field `field` for the k-th time. */
static rd_pb field_at(rd_pb c, int field, int k)
{
    while (rd_pb_next(&c))
        if (c.field == field && k-- == 0) return c;
    fail_msg("field %d is missing", field);
    return c;
}

static rd_pb inside(rd_pb c, int field, int k)
{
    const rd_pb at = field_at(c, field, k);
    assert_int_equal(at.wire, 2);
    return rd_pb_over(at.bytes, (size_t)at.value);
}

static int count(rd_pb c, int field)
{
    int n = 0;
    while (rd_pb_next(&c)) n += c.field == field;
    assert_false(c.bad);
    return n;
}

static const char *text(rd_pb c, int field, int k)
{
    static char out[4][200];
    static int at;
    const rd_pb f = field_at(c, field, k);
    char *s = out[at++ % 4];
    assert_true(f.wire == 2 && f.value < 200);
    memcpy(s, f.bytes, (size_t)f.value);
    s[f.value] = '\0';
    return s;
}

/* y = loop(x W + b), where the loop doubles its state for each row. */
static rd_onnx *small_graph(rd_status *st)
{
    static const float w[] = {1, 2, 3, 4, 5, 6};
    const rd_onnx_dim in[] = {RD_ONNX_ANY("batch"), RD_ONNX_DIM(2)}, row[] = {RD_ONNX_DIM(3)};
    rd_onnx *g, *body;
    must_do(rd_onnx_new("small", &g, st), st);
    const int x = rd_onnx_input(g, "x", RD_ONNX_FLOAT, 2, in),
              W = rd_onnx_weight(g, "layer/kernel", RD_ONNX_FLOAT, 2, (int64_t[]){2, 3}, w),
              y = rd_onnx_op2(g, "MatMul", x, W);
    assert_int_equal(rd_onnx_find(g, "layer/kernel"), W);
    assert_int_equal(rd_onnx_find(g, "none"), -1);
    must_do(rd_onnx_body(g, "body", &body), st);
    const int s = rd_onnx_input(body, "s", RD_ONNX_FLOAT, 1, row),
              t = rd_onnx_input(body, "t", RD_ONNX_FLOAT, 1, row);
    rd_onnx_output(body, rd_onnx_op2(body, "Add", s, t), "s2", RD_ONNX_FLOAT, 1, row);
    const rd_onnx_attr a[] = {
        {.name = "body", .kind = RD_ONNX_G, .g = body},
        {.name = "num_scan_inputs", .kind = RD_ONNX_I, .i = 1},
        {.name = "half", .kind = RD_ONNX_F, .f = 0.5f},
        {.name = "word", .kind = RD_ONNX_S, .s = "abc"},
        {.name = "list", .kind = RD_ONNX_IS, .is = (int64_t[]){-1, 300}, .n = 2},
        {.name = NULL}};
    const int zero = rd_onnx_weight(g, NULL, RD_ONNX_FLOAT, 1, (int64_t[]){3}, w),
              z = rd_onnx_node(g, "Scan", 3, (int[]){zero, -1, y}, a, 1, NULL);
    rd_onnx_free(body);
    rd_onnx_output(g, z, "y", RD_ONNX_FLOAT, 1, row);
    must(st);
    return g;
}

static void check_value(rd_pb info, const char *name, int type, int n_dim)
{
    rd_pb tensor = inside(inside(info, 2, 0), 1, 0), shape = inside(tensor, 2, 0);
    assert_string_equal(text(info, 1, 0), name);
    assert_int_equal(field_at(tensor, 1, 0).value, type);
    assert_int_equal(count(shape, 1), n_dim);
}

static void check_graph(rd_pb g)
{
    rd_pb node = inside(g, 1, 0), scan = inside(g, 1, 1), weight = inside(g, 5, 0), data;
    static const float w[] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(count(g, 1), 3);
    assert_string_equal(text(g, 2, 0), "small");
    assert_int_equal(count(g, 5), 2);
    assert_string_equal(text(node, 4, 0), "MatMul");
    assert_string_equal(text(node, 1, 0), "x");
    assert_string_equal(text(node, 1, 1), "layer/kernel");
    assert_string_equal(text(scan, 1, 1), ""); /* an input that is left out */
    assert_string_equal(text(scan, 1, 2), text(node, 2, 0));
    check_value(inside(g, 11, 0), "x", 1, 2);
    assert_string_equal(
        text(inside(inside(inside(inside(inside(g, 11, 0), 2, 0), 1, 0), 2, 0), 1, 0), 2, 0),
        "batch");
    check_value(inside(g, 12, 0), "y", 1, 1);
    assert_int_equal(field_at(weight, 1, 0).value, 2);
    assert_int_equal(field_at(weight, 1, 1).value, 3);
    assert_int_equal(field_at(weight, 2, 0).value, 1);
    assert_string_equal(text(weight, 8, 0), "layer/kernel");
    data = field_at(weight, 9, 0);
    assert_int_equal(data.value, sizeof w);
    assert_memory_equal(data.bytes, w, sizeof w);
}

static void check_attributes(rd_pb node)
{
    static const int type[] = {5, 2, 1, 3, 7};
    static const char *const name[] = {"body", "num_scan_inputs", "half", "word", "list"};
    assert_int_equal(count(node, 5), 5);
    for (int i = 0; i < 5; i++) {
        const rd_pb a = inside(node, 5, i);
        assert_string_equal(text(a, 1, 0), name[i]);
        assert_int_equal(field_at(a, 20, 0).value, type[i]);
    }
    rd_pb half = field_at(inside(node, 5, 2), 2, 0), body = inside(inside(node, 5, 0), 6, 0);
    assert_true(rd_pb_as_float(&half) == 0.5f);
    assert_int_equal(field_at(inside(node, 5, 1), 3, 0).value, 1);
    assert_string_equal(text(inside(node, 5, 3), 4, 0), "abc");
    assert_int_equal((int64_t)field_at(inside(node, 5, 4), 8, 0).value, -1);
    assert_int_equal(field_at(inside(node, 5, 4), 8, 1).value, 300);
    assert_int_equal(count(body, 11), 2);
    check_value(inside(body, 12, 0), "s2", 1, 1);
    assert_int_equal(count(body, 5), 0); /* its constants are those of the graph around it */
}

static void test_file(void **state)
{
    rd_status st = {0};
    rd_onnx *g = small_graph(&st);
    json_t *m = json_pack("{s:s}", "key", "value");
    char *p;
    size_t n;
    (void)state;
    must_do(rd_onnx_write(g, in_dir("a.onnx"), "1.2", m, &st), &st);
    rd_onnx_free(g);
    json_decref(m);
    must_do(rd_file_read(in_dir("a.onnx"), RD_EDATA, &p, &n, &st), &st);
    const rd_pb model = rd_pb_over(p, n);
    assert_int_equal(field_at(model, 1, 0).value, 8);
    assert_string_equal(text(model, 2, 0), "run_dist");
    assert_string_equal(text(model, 3, 0), "1.2");
    assert_int_equal(field_at(inside(model, 8, 0), 2, 0).value, 17);
    assert_string_equal(text(inside(model, 14, 0), 1, 0), "key");
    assert_string_equal(text(inside(model, 14, 0), 2, 0), "value");
    assert_int_equal(count(model, 7), 1);
    check_graph(inside(model, 7, 0));
    check_attributes(inside(inside(model, 7, 0), 1, 1));
    free(p);
}

/* A failure stays, and no file appears. */
static void test_failures(void **state)
{
    rd_status st = {0};
    rd_onnx *g;
    (void)state;
    must_do(rd_onnx_new("x", &g, &st), &st);
    (void)rd_onnx_int(g, 3);
    assert_int_equal(rd_onnx_op1(g, "Relu", 99), -1);
    assert_int_equal(st.code, RD_EBUG);
    assert_int_equal(rd_onnx_int(g, 3), -1);
    assert_int_equal(rd_onnx_write(g, in_dir("b.onnx"), "1", NULL, &st), RD_EBUG);
    assert_int_equal(access(in_dir("b.onnx"), F_OK), -1);
    rd_onnx_free(g);
    st = (rd_status){0};
    must_do(rd_onnx_new("x", &g, &st), &st);
    (void)rd_onnx_input(g, "a", RD_ONNX_INT64, 0, NULL);
    assert_int_equal(rd_onnx_input(g, "a", RD_ONNX_INT64, 0, NULL), -1);
    assert_int_equal(st.code, RD_EBUG);
    rd_onnx_free(g);
}

RD_TESTS_WITH("onnx", make_dir, remove_dir, TEST(test_file), TEST(test_failures))
