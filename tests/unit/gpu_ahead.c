/* gpu_ahead.c -- tests arrays that are uploaded early: engine/gpu/gpu_ahead.c with a device
 * whose two streams are late at random. It needs no GPU. What is downloaded must be what was
 * sent, whichever stream was late. */
#include "../../runner/engine/gpu/gpu_ahead.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

/* ---- the device ---- */
enum { MOST_WORK = 64, MOST_BATCH = 24, BATCHES = 12 };

typedef struct work {
    enum { COPY, RECORD, WAIT } what;
    int *to;
    const int *from;
    size_t n;
    int event, turn; /* of the event: how often it was recorded until then */
} work;

struct rd_gpu {
    work queue[RD_QUEUES][MOST_WORK];
    int n[RD_QUEUES];
    int recorded[RD_AHEAD_EVENTS], passed[RD_AHEAD_EVENTS];
    int n_rooms, got, most_rooms; /* most_rooms: then there is no memory */
    uint64_t dice;
};

static rd_gpu device;
static rd_ahead *ahead;

static int roll(int n)
{
    device.dice = device.dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((device.dice >> 33) % (uint64_t)n);
}

/* The first work of a stream, if it does not wait. */
static bool advance(rd_gpu *g, int stream)
{
    const work w = g->queue[stream][0];
    if (g->n[stream] == 0 || (w.what == WAIT && g->passed[w.event] < w.turn)) return false;
    if (w.what == COPY) memcpy(w.to, w.from, w.n * sizeof *w.to);
    if (w.what == RECORD) g->passed[w.event] = w.turn;
    memmove(g->queue[stream], g->queue[stream] + 1, (size_t)--g->n[stream] * sizeof w);
    return true;
}

static void time_passes(void)
{
    for (int i = roll(6); i > 0; i--) (void)advance(&device, roll(RD_QUEUES));
}

static void drain(rd_gpu *g)
{
    while (g->n[0] + g->n[1] > 0) {
        const bool moved = advance(g, roll(RD_QUEUES));
        assert_true(moved || advance(g, 0) || advance(g, 1)); /* else each waits for the other */
    }
}

static bool is_read(const rd_gpu *g, const int *from, size_t n)
{
    for (int s = 0; s < RD_QUEUES; s++)
        for (int i = 0; i < g->n[s]; i++)
            if (g->queue[s][i].what == COPY && g->queue[s][i].from >= from &&
                g->queue[s][i].from < from + n)
                return true;
    return false;
}

static rd_code queue(rd_gpu *g, int stream, work w, rd_status *st)
{
    while (g->n[stream] == MOST_WORK) (void)advance(g, roll(RD_QUEUES));
    g->queue[stream][g->n[stream]++] = w;
    time_passes();
    return st->code;
}

static void *get(rd_gpu *g, size_t bytes)
{
    if (g->n_rooms == g->most_rooms) return NULL;
    g->n_rooms++;
    g->got++;
    return calloc(1, bytes);
}

static void put(rd_gpu *g, void *p)
{
    if (!p) return;
    drain(g);
    g->n_rooms--;
    free(p);
}

static rd_code up(rd_gpu *g, void *to, const void *host, size_t bytes, rd_status *st)
{
    return queue(g, RD_QUEUE_COPIES,
                 (work){.what = COPY, .to = to, .from = host, .n = bytes / sizeof(int)}, st);
}

static rd_code copy(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st)
{
    return queue(g, RD_QUEUE_OPS,
                 (work){.what = COPY, .to = to, .from = from, .n = bytes / sizeof(int)}, st);
}

static rd_code record(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st)
{
    return queue(g, (int)stream,
                 (work){.what = RECORD, .event = event, .turn = ++g->recorded[event]}, st);
}

static rd_code wait_for(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *st)
{
    return queue(g, (int)stream, (work){.what = WAIT, .event = event, .turn = g->recorded[event]},
                 st);
}

static const rd_ahead_device calls = {get, put, up, copy, record, wait_for};

static void open_device(uint64_t seed, int most_rooms)
{
    rd_status st = {0};
    device = (rd_gpu){.dice = seed, .most_rooms = most_rooms};
    assert_int_equal(rd_ahead_new(&device, &calls, &ahead, &st), RD_OK);
}

static void close_device(void)
{
    rd_ahead_free(ahead);
    assert_int_equal(device.n_rooms, 0);
}

static rd_gpu_ahead_counts counts(void)
{
    rd_gpu_ahead_counts c;
    rd_ahead_count(ahead, &c);
    return c;
}

/* ---- a training ---- */
/* Does what a driver does: the host's memory may be written again, and the device forgets what was
 * sent from it. */
static void settle(int *host)
{
    while (is_read(&device, host, MOST_BATCH)) (void)advance(&device, roll(RD_QUEUES));
    rd_ahead_forget(ahead, host, MOST_BATCH * sizeof *host);
}

static void up_now(int *to, int *host, size_t n)
{
    rd_status st = {0};
    if (!rd_ahead_take(ahead, to, host, n * sizeof *host, &st))
        (void)queue(&device, RD_QUEUE_OPS, (work){.what = COPY, .to = to, .from = host, .n = n},
                    &st);
    assert_int_equal(st.code, RD_OK);
}

/* Two host buffers take turns. The buffer of the next batch is sent while the ops of the batch
 * before are queued. Batches have different sizes (grows), are not sent at all, or are dropped
 * for another batch, as by an evaluation between steps. */
static void train(bool grows, bool drops)
{
    static int host[2][MOST_BATCH], got[BATCHES][MOST_BATCH];
    size_t size[BATCHES];
    rd_status st = {0};
    memset(got, 0, sizeof got);
    for (int k = 0; k < BATCHES; k++) {
        int *x = host[k % 2];
        size[k] = grows ? (size_t)(1 + roll(k + 1) + roll(MOST_BATCH / 2)) : MOST_BATCH;
        const int tries = drops && roll(3) == 0 ? 2 : 1;
        for (int i = 0; i < tries; i++) {
            settle(x);
            for (size_t e = 0; e < size[k]; e++)
                x[e] = 1000 * (k + 1) + (int)e + 100 * (tries - 1 - i);
            if (!drops || roll(4) > 0) (void)rd_ahead_send(ahead, x, size[k] * sizeof *x, &st);
            time_passes();
        }
        up_now(got[k], x, size[k]);
        time_passes();
    }
    assert_int_equal(st.code, RD_OK);
    drain(&device);
    for (int k = 0; k < BATCHES; k++)
        for (size_t e = 0; e < size[k]; e++) assert_int_equal(got[k][e], 1000 * (k + 1) + (int)e);
}

/* ---- tests ---- */
static void test_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        open_device(seed, RD_AHEAD_SLOTS);
        train(false, false);
        const rd_gpu_ahead_counts c = counts();
        assert_true(c.sent == BATCHES && c.taken == BATCHES && c.late == 0 && !c.is_short);
        assert_int_equal(c.bytes,
                         MOST_BATCH *
                             sizeof(int)); /* one room, and the array itself, are two buffers */
        assert_int_equal(device.got, 1);
        close_device();
    }
}

static void test_other_sizes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        open_device(seed, RD_AHEAD_SLOTS);
        train(true, true);
        assert_true(counts().taken <= counts().sent && counts().taken > 0);
        close_device();
    }
}

/* Without memory for the first array, or for a larger one. */
static void test_short(void **state)
{
    rd_status st = {0};
    int x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {0};
    (void)state;
    open_device(1, 0);
    train(true, false);
    assert_true(counts().sent == 0 && counts().is_short && counts().bytes == 0);
    close_device();
    open_device(2, 1);
    (void)rd_ahead_send(ahead, x, 4 * sizeof *x, &st);
    up_now(y, x, 4);
    device.most_rooms = 0;
    (void)rd_ahead_send(ahead, x, sizeof x, &st);
    up_now(y, x, 8);
    drain(&device);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(st.code, RD_OK);
    assert_true(counts().sent == 1 && counts().taken == 1 && counts().is_short &&
                counts().bytes == 0);
    close_device();
}

/* Several arrays at a time, more than there are buffers; the first bytes of one array; one array
 * that is sent twice. */
static void test_several(void **state)
{
    rd_status st = {0};
    int x[RD_AHEAD_SLOTS + 1][4], y[RD_AHEAD_SLOTS + 1][4] = {{0}};
    (void)state;
    open_device(3, RD_AHEAD_SLOTS);
    for (int i = 0; i <= RD_AHEAD_SLOTS; i++) {
        for (int e = 0; e < 4; e++) x[i][e] = 10 * i + e;
        (void)rd_ahead_send(ahead, x[i], sizeof x[i], &st);
    }
    assert_int_equal(counts().sent, RD_AHEAD_SLOTS);
    (void)rd_ahead_send(ahead, x[1], sizeof x[1], &st); /* in its own room */
    assert_int_equal(counts().sent, RD_AHEAD_SLOTS + 1);
    assert_false(rd_ahead_take(ahead, y[0], &x[0][1], sizeof(int), &st)); /* begins elsewhere */
    assert_false(rd_ahead_take(ahead, y[0], x[0], 5 * sizeof(int), &st)); /* is longer */
    assert_true(rd_ahead_take(ahead, y[0], x[0], 2 * sizeof(int), &st));
    assert_false(rd_ahead_take(ahead, y[0], x[0], 2 * sizeof(int), &st)); /* once */
    for (int i = 1; i <= RD_AHEAD_SLOTS; i++)
        assert_int_equal(rd_ahead_take(ahead, y[i], x[i], sizeof x[i], &st), i < RD_AHEAD_SLOTS);
    drain(&device);
    assert_true(y[0][1] == 1 && y[0][2] == 0);
    assert_memory_equal(x + 1, y + 1, (RD_AHEAD_SLOTS - 1) * sizeof *x);
    assert_int_equal(st.code, RD_OK);
    close_device();
}

static void test_place(void **state)
{
    int a, b;
    (void)state;
    rd_ahead_slot room[RD_AHEAD_SLOTS] = {{.bytes = 0}};
    assert_int_equal(rd_ahead_place(room, 7), 0);
    room[1].bytes = 5;
    assert_int_equal(rd_ahead_place(room, 7), 1); /* grows */
    room[2].bytes = 9;
    room[3].bytes = 8;
    assert_int_equal(rd_ahead_place(room, 7), 3);
    assert_int_equal(rd_ahead_place(room, 9), 2);
    assert_int_equal(rd_ahead_place(room, 10), 2);
    assert_int_equal(rd_ahead_place(room, 4), 1);
    room[3].host = &a;
    room[3].sent = 6;
    assert_int_equal(rd_ahead_place(room, 7), 2);
    assert_int_equal(rd_ahead_find(room, &a, 6), 3);
    assert_int_equal(rd_ahead_find(room, &a, 7), -1);
    assert_int_equal(rd_ahead_find(room, &b, 1), -1);
    assert_int_equal(rd_ahead_find(room, NULL, 0), -1);
    for (int i = 0; i < RD_AHEAD_SLOTS; i++) room[i].host = &b;
    assert_int_equal(rd_ahead_place(room, 1), -1);
}

RD_TESTS("gpu_ahead", TEST(test_any_order), TEST(test_other_sizes), TEST(test_short),
         TEST(test_several), TEST(test_place))
