/* gpu_graph.c -- tests recorded work that is started as graphs: engine/gpu/gpu_graph.c with a
 * device that reports everything. It needs no GPU. The work done is a text, which must be the
 * same as without graphs. */
#include "../../runner/engine/gpu/gpu_graph.h"
#include "rd/data.h"
#include "rd/strbuf.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device ---- */
typedef struct op { /* what a task is given */
    int32_t name, x;
} op;

struct rd_gpu {
    rd_strbuf did;
    unsigned char memory[1024];
    int n_graphs, made, makes_fail, sets_fail;
    bool refuses; /* to begin anything */
};

struct rd_gpu_graph {
    rd_gpu_tasks list;
    unsigned char letter[4096];
    size_t room;
};

static rd_code run_op(rd_gpu *g, const void *args, rd_status *st)
{
    const op *o = args;
    if (g->refuses) return rd_fail(st, RD_EENV, "the device refuses");
    rd_strbuf_printf(&g->did, "%c%d ", o->name, o->x);
    return st->code;
}

static rd_code up(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st)
{
    memcpy(device, host, bytes);
    rd_strbuf_printf(&g->did, "up%d ", *(const unsigned char *)host);
    return st->code;
}

static rd_code make(rd_gpu *g, const rd_gpu_tasks *t, size_t letter, rd_gpu_graph **out,
                    uint64_t *bytes, rd_status *st)
{
    *out = NULL;
    if (g->makes_fail) return rd_fail(st, RD_EENV, "no graph today");
    rd_gpu_graph *q = *out = calloc(1, sizeof *q);
    q->list = *t;
    q->list.task = malloc((size_t)t->n * sizeof *t->task);
    q->list.args = malloc(t->used);
    memcpy(q->list.task, t->task, (size_t)t->n * sizeof *t->task);
    memcpy(q->list.args, t->args, t->used);
    q->room = letter;
    assert_true(letter <= sizeof q->letter);
    *bytes = 100;
    g->n_graphs++;
    g->made++;
    return st->code;
}

static rd_code set(rd_gpu *g, rd_gpu_graph *q, int i, const rd_gpu_task *task, const void *args,
                   rd_status *st)
{
    if (g->sets_fail) return rd_fail(st, RD_EENV, "nothing can be set");
    memcpy(q->list.args + q->list.task[i].at, args, task->bytes);
    return st->code;
}

static rd_code start(rd_gpu *g, rd_gpu_graph *q, const void *letter, size_t bytes, rd_status *st)
{
    assert_true(bytes <= q->room);
    memcpy(q->letter, letter ? letter : q, letter ? bytes : 0);
    for (int i = 0; i < q->list.n && st->code == RD_OK; i++) {
        const void *args = rd_gpu_args(&q->list, i);
        const rd_gpu_post *p = args;
        if (q->list.task[i].run)
            (void)q->list.task[i].run(g, args, st);
        else
            (void)up(g, p->to, q->letter + p->from, p->bytes, st);
    }
    return st->code;
}

static rd_graphs *graphs;

/* A graph's memory is freed, which flushes, as on a GPU. */
static void drop(rd_gpu *g, rd_gpu_graph *q)
{
    rd_status own = {0};
    (void)rd_graphs_flush(graphs, &own);
    free(q->list.task);
    free(q->list.args);
    free(q);
    g->n_graphs--;
}

static const rd_graph_maker maker = {make, set, start, drop, up};

/* ---- a program ---- */
static rd_gpu device;

static int open_device(void **state)
{
    rd_status st = {0};
    (void)state;
    device = (rd_gpu){.made = 0};
    return rd_graphs_new(&device, &maker, &graphs, &st);
}

static int close_device(void **state)
{
    (void)state;
    rd_graphs_free(graphs);
    assert_int_equal(device.n_graphs, 0);
    rd_strbuf_release(&device.did);
    return 0;
}

/* Upper case: the number can be set in a graph; lower case: it cannot. "^3": upload of three
 * bytes of value 3; "|": wait for a result. */
static void steps(rd_graphs *q, const char *program, rd_status *st)
{
    for (const char *p = program; *p; p++) {
        char *end;
        const long x = strtol(p + 1, &end, 10);
        const op o = {*p, (int32_t)x};
        if (*p == ' ') continue;
        if (*p == '|') {
            (void)rd_graphs_flush(q, st);
        } else if (*p == '^') {
            unsigned char bytes[600];
            memset(bytes, (int)x, sizeof bytes);
            if (!rd_graphs_up(q, device.memory, bytes, x > 99 ? sizeof bytes : 3, st))
                (void)up(&device, device.memory, bytes, 3, st);
        } else {
            (void)rd_graphs_task(q, &device, run_op, &o, sizeof o,
                                 *p >= 'a' ? sizeof o : sizeof o.name, st);
        }
        p = end - 1;
    }
}

/* One time under a key; the same is done as without graphs. */
static void once(uint64_t key, const char *program)
{
    rd_status st = {0};
    rd_strbuf_reset(&device.did);
    steps(NULL, program, &st);
    char want[32768];
    (void)snprintf(want, sizeof want, "%s", device.did.s ? device.did.s : "");
    rd_strbuf_reset(&device.did);
    rd_graphs_begin(graphs, key, &st);
    steps(graphs, program, &st);
    rd_graphs_end(graphs, &st);
    must(&st);
    assert_string_equal(device.did.s ? device.did.s : "", want);
}

static rd_gpu_graph_counts counts(void)
{
    rd_gpu_graph_counts c;
    rd_graphs_count(graphs, &c);
    return c;
}

/* ---- tests ---- */
static void test_second_time(void **state)
{
    (void)state;
    once(7, "A1 b2 ^3 | C4");
    assert_int_equal(device.made, 0);
    once(7, "A1 b2 ^3 | C4");
    assert_int_equal(device.made, 2);
    once(7, "A1 b2 ^3 | C4");
    assert_int_equal(device.made, 2);
    const rd_gpu_graph_counts c = counts();
    assert_int_equal(c.graphs, 2);
    assert_int_equal(c.bytes, 200);
    assert_int_equal(c.started, 4);
    assert_int_equal(c.tasks, 8);
    assert_int_equal(c.all, 12);
    assert_int_equal(c.set + c.left + c.given_up, 0);
    assert_null(rd_graphs_note(graphs));
}

/* What changes from step to step: arguments, values of arrays, their sizes. */
static void test_arguments(void **state)
{
    char program[64];
    (void)state;
    for (int i = 1; i < 9; i++) {
        (void)snprintf(program, sizeof program, "A%d b2 ^%d C5 ^%d | D%d", i, i, 10 + i, i / 3);
        once(7, program);
    }
    assert_int_equal(device.made, 2);
    assert_int_equal(counts().set, 6 + 2); /* A six times, D when i is 3 and 6 */
    assert_int_equal(counts().left, 0);
    once(7, "A8 b2 ^120 C5 ^9 | D2"); /* a larger letter moves what follows; it has room */
    assert_int_equal(counts().set, 6 + 2 + 2);
    once(7, "A8 b2 ^3 C5 ^4 | D2");
    assert_int_equal(counts().left, 0);
    once(8, "^1 ^2 ^3 A1");
    once(8, "^1 ^2 ^3 A1");
    once(8, "^101 ^102 ^103 A1"); /* more than it has room for */
    assert_int_equal(counts().left, 1);
    once(8, "^4 ^5 ^6 A1");
    assert_int_equal(counts().left, 1);
}

/* Other work once: nothing is lost, and the graph serves again. The numbers that were recorded
 * until then are set when it does. */
static void test_other_way(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) once(7, "A1 ^1 b2 C3 | D4 e5");
    once(7, "A6 ^2 b3 C3 | D4 e5");
    assert_int_equal(counts().left, 1);
    assert_int_equal(device.made, 2);
    once(7, "A6 ^2 b2 C3 | D4 e5");
    once(7, "A1 ^2 b2 C3 | D4 e5");
    once(7, "A1 b2 C3 | D4 e5"); /* less in the middle */
    once(7, "A1 ^1 b2 C3 | D4 e5");
    once(7, "A1 ^1 b2 C3 | D4"); /* less at the end */
    once(7, "A1 ^1 b2 C3 | D4 e5");
    once(7, "A1 ^1 b2 C3 | D4 e5 F1"); /* more */
    once(7, "A1 ^1 b2 C3 | D4 e5");
    once(7, "A1 ^1 | b2 C3 | D4 e5"); /* waited for earlier */
    once(7, "A1 ^1 b2 C3 | D4 e5");
    once(7, "A1 ^1 b2 C3"); /* a segment less */
    once(7, "A1 ^1 b2 C3 | D4 e5");
    once(7, "A1 ^1 b2 C3 | D4 e5 | G1"); /* one more */
    once(7, "A1 ^1 b2 C3 | D4 e5");
    assert_int_equal(counts().left, 6);
    assert_int_equal(device.made, 2);
}

/* Another way for good (memory moved): made anew after two times; not for ever. */
static void test_anew(void **state)
{
    char program[32];
    (void)state;
    for (int i = 0; i < 3; i++) once(7, "a1 B2");
    for (int i = 0; i < 2; i++) once(7, "a9 B2");
    assert_int_equal(device.n_graphs, 0);
    for (int i = 0; i < 3; i++) once(7, "a9 B2");
    assert_int_equal(device.made, 2);
    assert_int_equal(counts().left, 2);
    for (int i = 0; i < 40; i++) {
        (void)snprintf(program, sizeof program, "a%d B2", i);
        once(7, program);
    }
    assert_int_equal(device.n_graphs, 0);
    assert_int_equal(counts().given_up, 1);
    const int made = device.made;
    const char *note = rd_graphs_note(graphs);
    assert_non_null(note);
    assert_non_null(strstr(note, "never the same twice"));
    assert_null(rd_graphs_note(graphs)); /* said once */
    for (int i = 0; i < 4; i++) once(7, "a1 B2");
    assert_int_equal(device.made, made);
    for (int i = 0; i < 4; i++) once(8, "a1 B2"); /* other keys are not concerned */
    assert_int_equal(device.made, made + 1);
}

static void test_no_graph(void **state)
{
    (void)state;
    device.makes_fail = 1;
    for (int i = 0; i < 4; i++) once(7, "A1 ^2 b2 | C4 ^3 d5");
    assert_non_null(strstr(rd_graphs_note(graphs), "no graph today"));
    device.makes_fail = 0;
    for (int i = 0; i < 3; i++) once(7, "A1 ^2 b2 | C4 ^3 d5"); /* it was told */
    assert_int_equal(device.made, 0);
    for (int i = 0; i < 3; i++) once(9, "A1 ^2 b2");
    device.sets_fail = 1;
    once(9, "A2 ^2 b2");
    assert_int_equal(device.n_graphs, 0);
    device.sets_fail = 0;
    once(9, "A3 ^2 b2");
    once(9, "A4 ^2 b2");
    assert_int_equal(device.made, 2);
}

/* A long segment is cut, so that the device begins while the host continues. A large array is
 * uploaded alone. */
static void test_cut(void **state)
{
    enum { N = 1300 };
    char *program = malloc(N * 8 + 1);
    (void)state;
    for (int round = 0; round < 4; round++) {
        size_t at = 0;
        for (int i = 0; i < N; i++)
            at += (size_t)sprintf(program + at, i % 100 == 50 ? "^%d " : "A%d ", (i + round) % 90);
        once(7, program);
    }
    free(program);
    assert_int_equal(device.made, 3);
    assert_int_equal(counts().started, 9);
    rd_status st = {0};
    unsigned char *large = calloc(1, 1 << 20);
    for (int i = 0; i < 4; i++) {
        rd_graphs_begin(graphs, 8, &st);
        steps(graphs, "A1 A2", &st);
        rd_strbuf_reset(&device.did);
        assert_false(rd_graphs_up(graphs, device.memory, large, 1 << 20, &st));
        assert_string_equal(i == 0 ? "" : device.did.s,
                            i == 0 ? "" : "A1 A2 "); /* all before it was started */
        rd_graphs_end(graphs, &st);
    }
    free(large);
}

static void test_room(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 40; key++)
        for (int i = 0; i < 2; i++) once(key, "A1 b2");
    assert_int_equal(device.n_graphs, 32);
    assert_int_equal(counts().bytes, 3200);
    once(40, "A1 b2");
    once(9, "A1 b2");
    assert_int_equal(device.made, 40);
    once(1, "A1 b2"); /* forgotten: it has to come twice again */
    assert_int_equal(device.made, 40);
    once(1, "A1 b2");
    assert_int_equal(device.made, 41);
    once(9, "A1 b2"); /* used since: kept, when 10 and others went */
    assert_int_equal(device.made, 41);
    for (uint64_t key = 1000; key < 1300; key++)
        once(key, "A1 b2"); /* never again, as batches of many lengths */
    assert_int_equal(device.n_graphs, 0);
}

/* A failure is the caller's; what was written down goes nowhere, and the next time is as new. */
static void test_failure(void **state)
{
    rd_status st = {0}, own = {0};
    (void)state;
    for (int i = 0; i < 3; i++) once(7, "A1 b2 | C3");
    rd_graphs_begin(graphs, 7, &st);
    steps(graphs, "A1 b2", &st);
    device.refuses = true;
    assert_int_equal(rd_graphs_flush(graphs, &st), RD_EENV);
    assert_int_equal(rd_graphs_end(graphs, &st), RD_EENV);
    device.refuses = false;
    rd_graphs_begin(graphs, 7, &own);
    steps(graphs, "A5 b2", &own);
    rd_fail(&own, RD_ENUMERIC, "elsewhere");
    rd_strbuf_reset(&device.did);
    assert_int_equal(rd_graphs_end(graphs, &own), RD_ENUMERIC);
    assert_string_equal(device.did.s ? device.did.s : "", "");
    once(7, "A6 b2 | C3");
    once(7, "A6 b2 | C3");
    /* When a graph was to be made. */
    const int graphed = device.n_graphs;
    own.code = RD_OK;
    once(8, "A1 | A2");
    rd_graphs_begin(graphs, 8, &own);
    steps(graphs, "A1 |", &own);
    assert_int_equal(device.n_graphs, graphed + 1);
    rd_fail(&own, RD_ENUMERIC, "elsewhere");
    rd_graphs_end(graphs, &own);
    assert_int_equal(device.n_graphs, graphed);
    once(8, "A1 | A2");
    once(8, "A1 | A2");
    assert_int_equal(device.n_graphs, graphed + 2);
}

/* A failure while a step is recorded: what was recorded and not started is dropped, not started. */
static void test_failure_in_record(void **state)
{
    rd_status st = {0};
    (void)state;
    once(9, "A1 | A2 | A3");
    rd_graphs_begin(graphs, 9, &st);
    steps(graphs, "A1 | A2 | A3", &st);
    rd_fail(&st, RD_ENUMERIC, "elsewhere");
    rd_strbuf_reset(&device.did);
    assert_int_equal(rd_graphs_end(graphs, &st), RD_ENUMERIC);
    assert_string_equal(device.did.s ? device.did.s : "", "");
    assert_int_equal(device.n_graphs, 0);
    once(9, "A1 | A2 | A3");
    once(9, "A1 | A2 | A3");
}

/* ---- keys ---- */
static rd_batch batch_of(int64_t *off, int64_t n, int64_t *off2)
{
    rd_batch b = {.n = n, .n_fields = 2};
    b.field[0] = (rd_field){.name = "source", .off = off};
    b.field[1] = (rd_field){.name = "target", .off = off2};
    return b;
}

static void test_keys(void **state)
{
    int64_t a[] = {0, 3, 8, 10}, b[] = {0, 5, 7, 10}, c[] = {0, 4, 8, 10}, shorter[] = {0, 3, 8};
    rd_batch x = batch_of(a, 3, a), y = batch_of(b, 3, b);
    (void)state;
    assert_true(rd_batch_shape(&x) == rd_batch_shape(&y)); /* 3 5 2, 5 2 3 */
    y = batch_of(b, 3, c);
    assert_true(rd_batch_shape(&x) != rd_batch_shape(&y));
    const uint64_t one = rd_batch_shape(&y);
    y = batch_of(c, 3, b); /* sides changed */
    assert_true(one != rd_batch_shape(&y));
    y = batch_of(shorter, 2, shorter);
    assert_true(rd_batch_shape(&x) != rd_batch_shape(&y));
    y.epoch = 5;
    y.step = 9;
    const uint64_t two = rd_batch_shape(&y);
    y.epoch = 6;
    y.step = 10;
    assert_true(two == rd_batch_shape(&y));
    rd_batch image = {
        .n = 4, .n_fields = 1, .field = {{.name = "image", .n_dim = 3, .dim = {8, 6, 3}}}};
    const uint64_t three = rd_batch_shape(&image);
    image.field[0].dim[0] = 6;
    image.field[0].dim[1] = 8;
    assert_true(three != rd_batch_shape(&image));
    image.n = 0; /* a rank without samples */
    assert_true(three != rd_batch_shape(&image));
}

#define DEVICE(test) TEST_WITH(test, open_device, close_device)

RD_TESTS("gpu_graph", DEVICE(test_second_time), DEVICE(test_arguments), DEVICE(test_other_way),
         DEVICE(test_anew), DEVICE(test_no_graph), DEVICE(test_cut), DEVICE(test_room),
         DEVICE(test_failure), DEVICE(test_failure_in_record), TEST(test_keys))
