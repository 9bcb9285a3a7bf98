/* cell_graph.c -- recurrent layers as nodes of a graph; see cell_graph.h. The formulas are those of
 * runner/ops/cells. A layer over all steps is a Scan, whose body is one step. */
#include "cell_graph.h"
#include "graph_parts.h"
#include "rd/cell.h"
#include <string.h>

typedef struct cell_graph {
    rd_onnx *g;
    const rd_params *ps;
    const rd_stack_layer *l;
} cell_graph;

/* Returns x W + b. */
static int cell_dense(const cell_graph *k, int x, int kernel, int bias)
{
    return graph_linear(k->g, k->ps, x, k->l->w[kernel], bias >= 0 ? k->l->w[bias] : NULL);
}

/* Returns the values side by side; a value of -1 is left out. */
static int cell_join(const cell_graph *k, int a, int b, int c)
{
    const int x[] = {a, b, c};
    return rd_onnx_concat(k->g, c >= 0 ? 3 : 2, x, 1);
}

/* The gates of lstm, slstm and glstm. z (batch, 4 H): i, j, f, o. The last parameter is the
 * projection, if there is one. */
static void cell_gates(const cell_graph *k, int z, const cell_state *before, cell_state *after)
{
    const int64_t H = k->l->l.shape.H;
    rd_onnx *g = k->g;
    int gate[4];
    for (int q = 0; q < 4; q++) gate[q] = rd_onnx_slice(g, z, 1, q * H, (q + 1) * H);
    const int i = rd_onnx_op1(g, "Sigmoid", gate[0]), j = rd_onnx_op1(g, "Tanh", gate[1]),
              f = rd_onnx_op1(g, "Sigmoid", rd_onnx_op2(g, "Add", gate[2], rd_onnx_float(g, 1.0f))),
              o = rd_onnx_op1(g, "Sigmoid", gate[3]);
    after->c = rd_onnx_op2(g, "Add", rd_onnx_op2(g, "Mul", before->c, f),
                           rd_onnx_op2(g, "Mul", i, j));
    after->h = rd_onnx_op2(g, "Mul", o, rd_onnx_op1(g, "Tanh", after->c));
    if (k->l->l.shape.projects) after->h = cell_dense(k, after->h, k->l->n_w - 1, -1);
}

static void lstm_graph(const cell_graph *k, int x, int att, const cell_state *before,
                       cell_state *after)
{
    cell_gates(k, cell_dense(k, cell_join(k, x, before->h, att), 0, 1), before, after);
}

static void slstm_graph(const cell_graph *k, int x, int att, const cell_state *before,
                        cell_state *after)
{
    (void)att;
    cell_gates(k, cell_dense(k, x, 0, 1), before, after);
}

static void glstm_graph(const cell_graph *k, int x, int att, const cell_state *before,
                        cell_state *after)
{
    const rd_cell_shape *s = &k->l->l.shape;
    const int64_t G = s->groups, in = s->in / G, rec = (s->R + s->extra) / G, w = s->H / G;
    rd_onnx *g = k->g;
    const int side = att >= 0 ? cell_join(k, before->h, att, -1) : before->h;
    int part[RD_CELL_MAX_GROUPS], gate[4], of_gate[RD_CELL_MAX_GROUPS];
    for (int64_t i = 0; i < G; i++)
        part[i] = cell_dense(k,
                             cell_join(k, rd_onnx_slice(g, x, 1, i * in, (i + 1) * in),
                                       rd_onnx_slice(g, side, 1, i * rec, (i + 1) * rec), -1),
                             (int)i, -1);
    for (int q = 0; q < 4; q++) {
        for (int64_t i = 0; i < G; i++)
            of_gate[i] = rd_onnx_slice(g, part[i], 1, q * w, (q + 1) * w);
        gate[q] = rd_onnx_op2(g, "Add", rd_onnx_concat(g, (int)G, of_gate, 1),
                              graph_param(g, k->ps, k->l->w[G + q]));
    }
    cell_gates(k, rd_onnx_concat(g, 4, gate, 1), before, after);
}

static void gru_graph(const cell_graph *k, int x, int att, const cell_state *before,
                      cell_state *after)
{
    const int64_t H = k->l->l.shape.H;
    rd_onnx *g = k->g;
    (void)att;
    const int gates = rd_onnx_op1(g, "Sigmoid",
                                  cell_dense(k, cell_join(k, x, before->h, -1), 0, 1)),
              r = rd_onnx_slice(g, gates, 1, 0, H), u = rd_onnx_slice(g, gates, 1, H, 2 * H),
              rh = rd_onnx_op2(g, "Mul", r, before->h),
              n = rd_onnx_op1(g, "Tanh", cell_dense(k, cell_join(k, x, rh, -1), 2, 3)),
              rest = rd_onnx_op2(g, "Sub", rd_onnx_float(g, 1.0f), u);
    after->h = rd_onnx_op2(g, "Add", rd_onnx_op2(g, "Mul", u, before->h),
                           rd_onnx_op2(g, "Mul", rest, n));
    after->c = -1;
}

static const struct {
    const char *cell;
    void (*step)(const cell_graph *k, int x, int att, const cell_state *before, cell_state *after);
} steps[] = {
    {"lstm", lstm_graph}, {"slstm", slstm_graph}, {"glstm", glstm_graph}, {"gru", gru_graph}};

int cell_graph_step(rd_onnx *g, const rd_params *ps, const rd_stack_layer *l, int x, int att,
                    const cell_state *before, cell_state *after)
{
    const cell_graph k = {g, ps, l};
    *after = *before;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (strcmp(steps[i].cell, l->l.cell->name) != 0) continue;
        steps[i].step(&k, x, att, before, after);
        return l->l.residual ? rd_onnx_op2(g, "Add", after->h, x) : after->h;
    }
    rd_fail(rd_onnx_status(g), RD_EUSAGE,
            "cell type %s has no form in ONNX; --format=safetensors writes its weights",
            l->l.cell->name);
    return -1;
}

/* Returns zeros (batch, width). batch: a list of one integer. */
static int cell_zeros(rd_onnx *g, int batch, int64_t width)
{
    const int shape = rd_onnx_concat(g, 2, (int[]){batch, rd_onnx_ints(g, 1, &width)}, 0);
    return rd_onnx_op1(g, "ConstantOfShape", shape);
}

int cell_graph_layer(rd_onnx *g, const rd_params *ps, const rd_stack_layer *l, int x, int mask,
                     bool backward)
{
    static const int64_t axes[] = {1, 1}, turned[] = {1, 1};
    const rd_cell_shape *s = &l->l.shape;
    const bool has_c = l->l.cell->has_c;
    const rd_onnx_dim any = RD_ONNX_ANY("batch"), h_dim[] = {any, RD_ONNX_DIM(s->R)},
                      c_dim[] = {any, RD_ONNX_DIM(s->H)}, x_dim[] = {any, RD_ONNX_DIM(s->in)},
                      mask_dim[] = {any, RD_ONNX_DIM(1)};
    const int batch = rd_onnx_dim_of(g, x, 0);
    char name[6][200];
    static const char *const ends[] = {"h", "c", "x", "mask", "next_h", "next_c"};
    cell_state before = {-1, -1}, after;
    rd_onnx *body;
    int in[4], n_in = 0, out[3];
    in[n_in++] = cell_zeros(g, batch, s->R);
    if (has_c) in[n_in++] = cell_zeros(g, batch, s->H);
    in[n_in++] = x;
    in[n_in++] = mask;
    for (int i = 0; i < 6; i++)
        (void)snprintf(name[i], sizeof name[i], "%.160s.step.%s", l->w[0]->name, ends[i]);
    if (rd_onnx_body(g, l->w[0]->name, &body) != RD_OK) return -1;
    before.h = rd_onnx_input(body, name[0], RD_ONNX_FLOAT, 2, h_dim);
    if (has_c) before.c = rd_onnx_input(body, name[1], RD_ONNX_FLOAT, 2, c_dim);
    const int x_t = rd_onnx_input(body, name[2], RD_ONNX_FLOAT, 2, x_dim),
              mask_t = rd_onnx_input(body, name[3], RD_ONNX_BOOL, 2, mask_dim),
              y = cell_graph_step(body, ps, l, x_t, -1, &before, &after);
    rd_onnx_output(body, rd_onnx_op3(body, "Where", mask_t, after.h, before.h), name[4],
                   RD_ONNX_FLOAT, 2, h_dim);
    if (has_c)
        rd_onnx_output(body, rd_onnx_op3(body, "Where", mask_t, after.c, before.c), name[5],
                       RD_ONNX_FLOAT, 2, c_dim);
    (void)snprintf(name[0], sizeof name[0], "%.160s.step.y", l->w[0]->name);
    rd_onnx_output(body, y, name[0], RD_ONNX_FLOAT, 2, h_dim);
    const rd_onnx_attr a[] = {
        {.name = "body", .kind = RD_ONNX_G, .g = body},
        {.name = "num_scan_inputs", .kind = RD_ONNX_I, .i = 2},
        {.name = "scan_input_axes", .kind = RD_ONNX_IS, .is = axes, .n = 2},
        {.name = "scan_output_axes", .kind = RD_ONNX_IS, .is = axes, .n = 1},
        {.name = backward ? "scan_input_directions" : NULL,
         .kind = RD_ONNX_IS,
         .is = turned,
         .n = 2},
        {.name = "scan_output_directions", .kind = RD_ONNX_IS, .is = turned, .n = 1},
        {.name = NULL}};
    (void)rd_onnx_node(g, "Scan", n_in, in, a, has_c ? 3 : 2, out);
    rd_onnx_free(body);
    return rd_onnx_status(g)->code == RD_OK ? out[has_c ? 2 : 1] : -1;
}
