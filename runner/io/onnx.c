/* onnx.c -- a graph of ONNX, see onnx.h. Its messages are those of onnx.proto3 with IR version 8:
 *
 *   Model  1 ir_version, 2 producer_name, 3 producer_version, 7 graph, 8 opset_import,
 *          14 metadata_props
 *   Graph  1 node, 2 name, 5 initializer, 11 input, 12 output
 *   Node   1 input, 2 output, 3 name, 4 op_type, 5 attribute
 *   Attribute  1 name, 2 f, 3 i, 4 s, 6 g, 8 ints, 20 type
 *   Tensor 1 dims, 2 data_type, 8 name, 9 raw_data
 *   ValueInfo  1 name, 2 type {1 tensor {1 elem_type, 2 shape {1 dim {1 value, 2 param}}}}
 *
 * Nodes are written as they come. Weights wait: the file is written piece by piece, so a large
 * model is in memory once more, and not three times. */
#include "rd/onnx.h"
#include "events_impl.h"
#include "rd/file.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { IR_VERSION = 8, OPSET = 17, NAME_BYTES = 200 };

/* An array of constants. */
typedef struct onnx_weight {
    rd_strbuf head; /* owned; the fields in front of the data */
    void *data;     /* owned */
    size_t bytes;
} onnx_weight;

struct rd_onnx {
    rd_onnx *outer;                   /* of a body; NULL: none */
    rd_status *st;                    /* borrowed */
    char name[NAME_BYTES];            /* of the graph */
    rd_strbuf nodes, inputs, outputs; /* owned; fields of Graph */

    /* Of the outermost graph alone. */

    char **value; /* owned list of owned names */
    int n_values, cap_values;
    onnx_weight *weight; /* owned */
    int n_weights, cap_weights;
};

static rd_onnx *root_of(rd_onnx *g)
{
    while (g->outer) g = g->outer;
    return g;
}

static bool onnx_failed(const rd_onnx *g)
{
    return g->st->code != RD_OK;
}

static void onnx_no_memory(const rd_onnx *g)
{
    rd_fail(g->st, RD_EENV, "out of memory for a graph of ONNX");
}

rd_code rd_onnx_new(const char *name, rd_onnx **out, rd_status *st)
{
    rd_onnx *g = *out = calloc(1, sizeof *g);
    if (!g) return rd_fail(st, RD_EENV, "out of memory for a graph of ONNX");
    g->st = st;
    (void)snprintf(g->name, sizeof g->name, "%s", name);
    return RD_OK;
}

rd_code rd_onnx_body(rd_onnx *g, const char *name, rd_onnx **out)
{
    *out = NULL;
    if (onnx_failed(g) || rd_onnx_new(name, out, g->st) != RD_OK) return g->st->code;
    (*out)->outer = g;
    return RD_OK;
}

void rd_onnx_free(rd_onnx *g)
{
    if (!g) return;
    for (int i = 0; i < g->n_values; i++) free(g->value[i]);
    for (int i = 0; i < g->n_weights; i++) {
        rd_strbuf_release(&g->weight[i].head);
        free(g->weight[i].data);
    }
    free(g->value);
    free(g->weight);
    rd_strbuf_release(&g->nodes);
    rd_strbuf_release(&g->inputs);
    rd_strbuf_release(&g->outputs);
    free(g);
}

rd_status *rd_onnx_status(const rd_onnx *g)
{
    return g->st;
}

/* ---- values ---- */

static const char *value_name(rd_onnx *g, int v)
{
    const rd_onnx *r = root_of(g);
    if (v == -1) return "";
    if (v < 0 || v >= r->n_values) {
        rd_fail(g->st, RD_EBUG, "a graph of ONNX has no value %d", v);
        return "";
    }
    return r->value[v];
}

int rd_onnx_find(const rd_onnx *g, const char *name)
{
    while (g->outer) g = g->outer;
    for (int i = 0; i < g->n_values; i++)
        if (strcmp(g->value[i], name) == 0) return i;
    return -1;
}

/* Adds a value. name NULL: "v12". */
static int value_add(rd_onnx *g, const char *name)
{
    rd_onnx *r = root_of(g);
    char own[24];
    if (onnx_failed(g)) return -1;
    if (name && rd_onnx_find(g, name) >= 0) {
        rd_fail(g->st, RD_EBUG, "a graph of ONNX has the value '%s' twice", name);
        return -1;
    }
    if (r->n_values == r->cap_values) {
        const int cap = 2 * r->cap_values + 64;
        char **more = realloc(r->value, (size_t)cap * sizeof *more);
        if (!more) {
            onnx_no_memory(g);
            return -1;
        }
        r->value = more;
        r->cap_values = cap;
    }
    (void)snprintf(own, sizeof own, "v%d", r->n_values);
    r->value[r->n_values] = strdup(name ? name : own);
    if (!r->value[r->n_values]) {
        onnx_no_memory(g);
        return -1;
    }
    return r->n_values++;
}

/* Appends a ValueInfo as a field. */
static void value_info(rd_strbuf *to, int field, const char *name, rd_onnx_type type, int n_dim,
                       const rd_onnx_dim *dim)
{
    rd_strbuf info = {0}, t = {0}, tensor = {0}, shape = {0}, one = {0};
    for (int i = 0; i < n_dim; i++) {
        rd_strbuf_reset(&one);
        if (dim[i].name)
            rd_pb_string(&one, 2, dim[i].name);
        else
            rd_pb_uint(&one, 1, (uint64_t)dim[i].n);
        rd_pb_message(&shape, 1, &one);
    }
    rd_pb_uint(&tensor, 1, (uint64_t)type);
    rd_pb_message(&tensor, 2, &shape);
    rd_pb_message(&t, 1, &tensor);
    rd_pb_string(&info, 1, name);
    rd_pb_message(&info, 2, &t);
    rd_pb_message(to, field, &info);
    rd_strbuf_release(&info);
    rd_strbuf_release(&t);
    rd_strbuf_release(&tensor);
    rd_strbuf_release(&shape);
    rd_strbuf_release(&one);
}

int rd_onnx_input(rd_onnx *g, const char *name, rd_onnx_type type, int n_dim,
                  const rd_onnx_dim *dim)
{
    const int v = value_add(g, name);
    if (v >= 0) value_info(&g->inputs, 11, value_name(g, v), type, n_dim, dim);
    return v;
}

void rd_onnx_output(rd_onnx *g, int v, const char *name, rd_onnx_type type, int n_dim,
                    const rd_onnx_dim *dim)
{
    const int out = value_add(g, name);
    rd_strbuf node = {0};
    if (out < 0) return;
    rd_pb_string(&node, 1, value_name(g, v));
    rd_pb_string(&node, 2, value_name(g, out));
    rd_pb_string(&node, 4, "Identity");
    rd_pb_message(&g->nodes, 1, &node);
    rd_strbuf_release(&node);
    value_info(&g->outputs, 12, value_name(g, out), type, n_dim, dim);
}

/* ---- constants ---- */

static size_t item_bytes(rd_onnx_type type)
{
    return type == RD_ONNX_BOOL ? 1 : type == RD_ONNX_FLOAT ? 4 : 8;
}

int rd_onnx_weight(rd_onnx *g, const char *name, rd_onnx_type type, int n_dim, const int64_t *dim,
                   const void *data)
{
    rd_onnx *r = root_of(g);
    const int v = value_add(g, name);
    size_t bytes = item_bytes(type);
    if (v < 0) return -1;
    if (r->n_weights == r->cap_weights) {
        const int cap = 2 * r->cap_weights + 64;
        onnx_weight *more = realloc(r->weight, (size_t)cap * sizeof *more);
        if (!more) {
            onnx_no_memory(g);
            return -1;
        }
        r->weight = more;
        r->cap_weights = cap;
    }
    onnx_weight *w = &r->weight[r->n_weights];
    *w = (onnx_weight){.bytes = 0};
    for (int i = 0; i < n_dim; i++) {
        rd_pb_uint(&w->head, 1, (uint64_t)dim[i]);
        bytes *= (size_t)dim[i];
    }
    rd_pb_uint(&w->head, 2, (uint64_t)type);
    rd_pb_string(&w->head, 8, value_name(g, v));
    w->bytes = bytes;
    w->data = malloc(bytes + 1);
    r->n_weights++;
    if (!w->data || w->head.failed) {
        onnx_no_memory(g);
        return -1;
    }
    if (bytes > 0) memcpy(w->data, data, bytes);
    return v;
}

int rd_onnx_ints(rd_onnx *g, int n, const int64_t *x)
{
    return rd_onnx_weight(g, NULL, RD_ONNX_INT64, 1, (int64_t[]){n}, x);
}

int rd_onnx_int(rd_onnx *g, int64_t x)
{
    return rd_onnx_weight(g, NULL, RD_ONNX_INT64, 0, NULL, &x);
}

int rd_onnx_float(rd_onnx *g, float x)
{
    return rd_onnx_weight(g, NULL, RD_ONNX_FLOAT, 0, NULL, &x);
}

/* ---- nodes ---- */

/* Appends the fields of a graph. with_weights: those of the constants, too. */
static void graph_fields(const rd_onnx *g, rd_strbuf *out)
{
    rd_strbuf_add(out, rd_strbuf_str(&g->nodes), g->nodes.n);
    rd_pb_string(out, 2, g->name);
    rd_strbuf_add(out, rd_strbuf_str(&g->inputs), g->inputs.n);
    rd_strbuf_add(out, rd_strbuf_str(&g->outputs), g->outputs.n);
    out->failed |= g->nodes.failed || g->inputs.failed || g->outputs.failed;
}

static void add_attr(rd_strbuf *node, const rd_onnx_attr *a)
{
    enum { FLOAT = 1, INT = 2, STRING = 3, GRAPH = 5, INTS = 7 };
    rd_strbuf m = {0}, body = {0};
    uint64_t type = INT;
    rd_pb_string(&m, 1, a->name);
    switch (a->kind) {
    case RD_ONNX_I:
        rd_pb_uint(&m, 3, (uint64_t)a->i);
        break;
    case RD_ONNX_F:
        rd_pb_float(&m, 2, a->f);
        type = FLOAT;
        break;
    case RD_ONNX_S:
        rd_pb_string(&m, 4, a->s);
        type = STRING;
        break;
    case RD_ONNX_G:
        graph_fields(a->g, &body);
        rd_pb_message(&m, 6, &body);
        type = GRAPH;
        break;
    case RD_ONNX_IS:
        for (int i = 0; i < a->n; i++) rd_pb_uint(&m, 8, (uint64_t)a->is[i]);
        type = INTS;
        break;
    }
    rd_pb_uint(&m, 20, type);
    rd_pb_message(node, 5, &m);
    rd_strbuf_release(&m);
    rd_strbuf_release(&body);
}

int rd_onnx_node(rd_onnx *g, const char *op, int n_in, const int *in, const rd_onnx_attr *attr,
                 int n_out, int *out)
{
    rd_strbuf node = {0};
    int first = -1;
    if (onnx_failed(g)) return -1;
    for (int i = 0; i < n_in; i++) rd_pb_string(&node, 1, value_name(g, in[i]));
    for (int i = 0; i < n_out; i++) {
        const int v = value_add(g, NULL);
        if (i == 0) first = v;
        if (out) out[i] = v;
        if (v >= 0) rd_pb_string(&node, 2, value_name(g, v));
    }
    rd_pb_string(&node, 4, op);
    for (; attr && attr->name; attr++) add_attr(&node, attr);
    rd_pb_message(&g->nodes, 1, &node);
    if (node.failed || g->nodes.failed) onnx_no_memory(g);
    rd_strbuf_release(&node);
    return onnx_failed(g) ? -1 : first;
}

int rd_onnx_op1(rd_onnx *g, const char *op, int a)
{
    return rd_onnx_node(g, op, 1, (int[]){a}, NULL, 1, NULL);
}

int rd_onnx_op2(rd_onnx *g, const char *op, int a, int b)
{
    return rd_onnx_node(g, op, 2, (int[]){a, b}, NULL, 1, NULL);
}

int rd_onnx_op3(rd_onnx *g, const char *op, int a, int b, int c)
{
    return rd_onnx_node(g, op, 3, (int[]){a, b, c}, NULL, 1, NULL);
}

int rd_onnx_slice(rd_onnx *g, int x, int64_t axis, int64_t from, int64_t to)
{
    const int in[] = {x, rd_onnx_ints(g, 1, &from), rd_onnx_ints(g, 1, &to),
                      rd_onnx_ints(g, 1, &axis)};
    return rd_onnx_node(g, "Slice", 4, in, NULL, 1, NULL);
}

int rd_onnx_reshape(rd_onnx *g, int x, int n, const int64_t *shape)
{
    return rd_onnx_op2(g, "Reshape", x, rd_onnx_ints(g, n, shape));
}

int rd_onnx_transpose(rd_onnx *g, int x, int n, const int64_t *order)
{
    const rd_onnx_attr a[] = {{.name = "perm", .kind = RD_ONNX_IS, .is = order, .n = n},
                              {.name = NULL}};
    return rd_onnx_node(g, "Transpose", 1, &x, a, 1, NULL);
}

int rd_onnx_concat(rd_onnx *g, int n, const int *x, int64_t axis)
{
    const rd_onnx_attr a[] = {{.name = "axis", .kind = RD_ONNX_I, .i = axis}, {.name = NULL}};
    return rd_onnx_node(g, "Concat", n, x, a, 1, NULL);
}

int rd_onnx_cast(rd_onnx *g, int x, rd_onnx_type type)
{
    const rd_onnx_attr a[] = {{.name = "to", .kind = RD_ONNX_I, .i = (int64_t)type},
                              {.name = NULL}};
    return rd_onnx_node(g, "Cast", 1, &x, a, 1, NULL);
}

int rd_onnx_dim_of(rd_onnx *g, int x, int64_t axis)
{
    const int shape = rd_onnx_op1(g, "Shape", x);
    return rd_onnx_op2(g, "Gather", shape, rd_onnx_ints(g, 1, &axis));
}

/* ---- the file ---- */

/* Appends the tag and the length of a field of n bytes. */
static void onnx_field(rd_strbuf *b, int field, uint64_t n)
{
    rd_strbuf none = {0};
    rd_pb_uint(&none, field, n); /* the tag says varint, wire type 0; bytes are wire type 2 */
    none.s[0] = (char)(none.s[0] | 2);
    rd_strbuf_add(b, none.s, none.n);
    b->failed |= none.failed;
    rd_strbuf_release(&none);
}

/* Appends what comes in front of the data of a weight: the field of Graph, and the tag of the
 * data. */
static void weight_front(const onnx_weight *w, rd_strbuf *out)
{
    rd_strbuf data = {0};
    onnx_field(&data, 9, w->bytes);
    onnx_field(out, 5, w->head.n + data.n + w->bytes);
    rd_strbuf_add(out, rd_strbuf_str(&w->head), w->head.n);
    rd_strbuf_add(out, rd_strbuf_str(&data), data.n);
    out->failed |= data.failed || w->head.failed;
    rd_strbuf_release(&data);
}

/* Appends the fields of Model around the graph. */
static void model_fields(const char *version, const json_t *metadata, rd_strbuf *out)
{
    rd_strbuf m = {0};
    const json_t *v;
    const char *key;
    rd_pb_uint(out, 1, IR_VERSION);
    rd_pb_string(out, 2, "run_dist");
    rd_pb_string(out, 3, version);
    rd_pb_string(&m, 1, "");
    rd_pb_uint(&m, 2, OPSET);
    rd_pb_message(out, 8, &m);
    json_object_foreach((json_t *)(uintptr_t)metadata, key, v)
    {
        rd_strbuf_reset(&m);
        rd_pb_string(&m, 1, key);
        rd_pb_string(&m, 2, json_is_string(v) ? json_string_value(v) : "");
        rd_pb_message(out, 14, &m);
    }
    rd_strbuf_release(&m);
}

rd_code rd_onnx_write(rd_onnx *g, const char *path, const char *producer_version,
                      const json_t *metadata, rd_status *st)
{
    enum { MOST = 2147483647 };
    rd_tmpfile f = {0};
    rd_strbuf model = {0}, graph = {0}, front = {0}, tag = {0};
    RD_TRY(st->code);
    model_fields(producer_version, metadata, &model);
    graph_fields(g, &graph);
    uint64_t bytes = graph.n;
    for (int i = 0; i < g->n_weights; i++) {
        rd_strbuf_reset(&front);
        weight_front(&g->weight[i], &front);
        bytes += front.n + g->weight[i].bytes;
        graph.failed |= front.failed;
    }
    onnx_field(&tag, 7, bytes);
    if (model.failed || graph.failed || tag.failed)
        RD_TRY(rd_fail(st, RD_EENV, "out of memory for a graph of ONNX"));
    if (bytes + model.n + tag.n > MOST)
        RD_TRY(rd_fail(st, RD_EUSAGE,
                       "the graph has %.1f GB of weights, but a file of ONNX has at most 2 GB; use "
                       "--format=safetensors",
                       (double)bytes * 1e-9));
    RD_TRY(rd_tmpfile_open(&f, path, st));
    RD_TRY(rd_tmpfile_write(&f, model.s, model.n, st));
    RD_TRY(rd_tmpfile_write(&f, tag.s, tag.n, st));
    RD_TRY(rd_tmpfile_write(&f, graph.s, graph.n, st));
    for (int i = 0; i < g->n_weights; i++) {
        rd_strbuf_reset(&front);
        weight_front(&g->weight[i], &front);
        if (front.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory for a graph of ONNX"));
        RD_TRY(rd_tmpfile_write(&f, front.s, front.n, st));
        RD_TRY(rd_tmpfile_write(&f, g->weight[i].data, g->weight[i].bytes, st));
    }
    RD_TRY(rd_tmpfile_commit(&f, st));
done:
    rd_tmpfile_release(&f);
    rd_strbuf_release(&model);
    rd_strbuf_release(&graph);
    rd_strbuf_release(&front);
    rd_strbuf_release(&tag);
    return st->code;
}
