/* driver_failures.c -- each call that the driver makes of CUDA's libraries fails once, in turn: the
 * failure has its code and names the call, or the driver does without, and the numbers are those
 * of a run without a failure; nothing hangs, and all memory and all objects of the libraries are
 * freed. Needs CUDA=fake.
 *
 * Two kinds: one call fails and the next ones work; or all later calls fail, too, as if the device
 * were gone. By default every seventh call; CASES=all: every one. */
#include "../../runner/engine/gpu/gpu_rnn.h"
#include "fake.h"
#include "rd/gpu.h"
#include "rd/gpu_choose.h"
#include "rd/gpu_parts.h"
#include "rd/hash.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40, LARGE = 20000, H = 8, WIDE = 136, T = 3, SEQUENCES = 8 };

static rd_gpu *gpu;

/* ---- what a step does, in small ---- */
typedef struct arrays {
    float *weights, *x, *y, *image, *filters, *result, *pinned, *large;
    float host[N * N];
    uint64_t numbers; /* a hash of the results so far */
} arrays;

/* how a run ended */
typedef struct outcome {
    rd_status st;
    bool fell_back; /* the driver did without something */
    bool in_work;   /* a call failed before the run began to free what it had */
    uint64_t numbers;
} outcome;

static void *arena_get(void *ctx, size_t bytes, rd_status *st)
{
    void *p;
    (void)ctx;
    return rd_gpu_memory_new(gpu, bytes, &p, st) == RD_OK ? p : NULL;
}
static void arena_put(void *ctx, void *p)
{
    (void)ctx;
    rd_gpu_memory_free(gpu, p);
}
static rd_code arena_zero(void *ctx, void *p, size_t bytes, rd_status *st)
{
    (void)ctx;
    return rd_gpu_zero(gpu, p, bytes, st);
}

/* Adds the arrays that steps write to the hash. */
static void add_numbers(arrays *a, rd_status *st)
{
    static float back[N * N];
    const float *const of[] = {a->x, a->y, a->result};
    for (int i = 0; i < 3; i++) {
        rd_gpu_download(gpu, back, of[i], sizeof back, st);
        if (st->code == RD_OK) a->numbers = rd_fnv(a->numbers, back, sizeof back);
    }
}

static void make(arrays *a, rd_status *st)
{
    for (int i = 0; i < N * N; i++) a->host[i] = (float)(i % 13 - 6) / 32.0f;
    float **const device[] = {&a->weights, &a->x, &a->y, &a->image, &a->filters, &a->result};
    for (int i = 0; i < 6; i++) {
        rd_gpu_memory_new(gpu, sizeof a->host, device[i], st);
        rd_gpu_upload(gpu, *device[i], a->host, sizeof a->host, st);
    }
    rd_gpu_memory_new(gpu, LARGE * sizeof *a->large, &a->large, st);
    rd_status own = {0}; /* the caller does without pinned memory */
    if (rd_gpu_host_new(gpu, LARGE * sizeof *a->pinned, &a->pinned, &own) != RD_OK)
        rd_fail(st, own.code, "%s", own.msg);
    if (st->code == RD_OK) memset(a->pinned, 0, LARGE * sizeof *a->pinned);
    if (st->code == RD_OK) rd_gpu_hold(gpu, a->weights, N * N, st);
}

static void products(arrays *a, rd_status *st)
{
    rd_gpu_gemm(gpu, false, true, N, N, N, 1.0f, a->x, N, a->weights, N, 0.0f, a->y, N, st);
    rd_gpu_gemm_batched(gpu, false, false, 4, 4, 4, 1.0f, a->x, 4, 16, a->y, 4, 16, 1.0f, a->result,
                        4, 16, 3, st);
}

static void convolutions(arrays *a, rd_status *st)
{
    const rd_gpu_conv even = {1, 5, 5, 4, 4, 3, 3, 5, 5, 1, 1, 1, 1, 1, rd_gpu_narrow(gpu)},
                      uneven = {1, 5, 5, 3, 4, 3, 3, 5, 5, 1, 0, 1, 2, 1, rd_gpu_narrow(gpu)};
    const rd_gpu_conv *const all[] = {&even, &uneven};
    for (int i = 0; i < 2; i++) {
        rd_gpu_conv_forward(gpu, all[i], a->image, a->filters, a->y, st);
        rd_gpu_conv_data(gpu, all[i], a->y, a->filters, a->x, i == 1, st);
        rd_gpu_conv_weights(gpu, all[i], a->image, a->y, a->result, st);
    }
}

static void copies(arrays *a, rd_status *st)
{
    const size_t bytes = LARGE * sizeof *a->pinned;
    double seconds;
    rd_gpu_mark(gpu, 0, st);
    rd_gpu_up_ahead(gpu, a->pinned, bytes, st);
    rd_gpu_upload(gpu, a->large, a->pinned, bytes, st);
    rd_gpu_host_wait(gpu, a->pinned, st);
    rd_gpu_upload(gpu, a->large, a->pinned, bytes, st);
    rd_gpu_copy(gpu, a->y, a->x, sizeof a->host, st);
    rd_gpu_zero(gpu, a->x, sizeof a->host, st);
    rd_gpu_cast(gpu, N, a->x, RD_FLOAT32, a->y, RD_BFLOAT16, false, st);
    rd_gpu_mark(gpu, 1, st);
    rd_gpu_between(gpu, 0, 1, &seconds, st);
}

static void recurrent(int units, bool *fell_back, rd_status *st)
{
    static const int64_t off[] = {0, SEQUENCES, 2 * SEQUENCES, 3 * SEQUENCES};
    const int64_t rows = T * SEQUENCES;
    const rd_arena_source memory = {.get = arena_get, .put = arena_put, .zero = arena_zero};
    rd_arena *arena = NULL, *kept = NULL;
    rd_lstm_kept v;
    float *x, *y, *dx, *W, *b, *dW, *db;
    bool refused = false;
    if (rd_arena_new_from(&memory, 1 << 16, &arena, st) != RD_OK ||
        rd_arena_new_from(&memory, 1 << 16, &kept, st) != RD_OK) {
        rd_arena_free(arena);
        return;
    }
    float **const all[] = {&x, &y, &dx, &W, &b, &dW, &db};
    const int64_t sizes[] = {rows * 4,  rows * units,
                             rows * 4,  (4 + units) * 4 * (int64_t)units,
                             4 * units, (4 + units) * 4 * (int64_t)units,
                             4 * units};
    for (int i = 0; i < 7 && st->code == RD_OK; i++)
        (void)rd_arena_zero(arena, (size_t)sizes[i] * sizeof(float), all[i], st);
    if (st->code == RD_OK) {
        const rd_lstm_layer l = {
            .in = 4, .H = units, .n_steps = T, .off = off, .W = W, .b = b, .dW = dW, .db = db};
        rd_gpu_lstm_forward(gpu, "lstm", &l, x, NULL, y, true, kept, arena, &v, st);
        if (st->code == RD_OK && v.choice.algo != RD_RNN_OWN)
            rd_gpu_lstm_backward(gpu, &l, &v, y, dx, false, NULL, arena, &refused, st);
        *fell_back |= st->code == RD_OK && (v.choice.algo == RD_RNN_OWN || refused);
    }
    rd_arena_free(arena);
    rd_arena_free(kept);
}

static void sums(arrays *a, rd_status *st)
{
    rd_gpu_group_options o = {.size = 1, .open_s = 5.0, .sum_s = 5.0};
    rd_gpu_group *q = NULL;
    rd_gpu_nccl about;
    rd_gpu_sum_time time[4];
    int n;
    rd_gpu_nccl_about(gpu, &about, st);
    if (st->code == RD_OK && rd_gpu_group_id(gpu, o.id, st) == RD_OK &&
        rd_gpu_group_new(gpu, &o, &q, st) == RD_OK) {
        rd_gpu_group_sum(q, a->x, N, RD_GPU_WIRE_F32, st);
        rd_gpu_group_sum(q, a->y, N, RD_GPU_WIRE_BF16, st);
        rd_gpu_group_spread(q, a->x, (const rd_gpu_part[]){{0, 16, 0}, {16, N - 16, 0}}, 2, st);
        rd_gpu_group_join(q, st);
        rd_gpu_group_wait(q, 5.0, st);
        rd_gpu_group_times(q, time, 4, &n, st);
    }
    if (st->code != RD_OK)
        rd_gpu_group_abort(q);
    else
        rd_gpu_group_free(q);
}

/* A step that recurs: launched one by one, recorded, started as graphs with other arguments. */
static void steps(arrays *a, rd_status *st)
{
    for (int i = 0; i < 4; i++) {
        rd_gpu_recurs(gpu, 7, st);
        if (st->code == RD_OK) {
            a->host[0] = (float)i;
            rd_gpu_upload(gpu, a->x, a->host, 64, st);
            rd_gpu_zero(gpu, a->result, 64u << (i > 2), st);
            rd_gpu_copy(gpu, i > 2 ? a->image : a->y, a->x, 64, st);
            products(a, st);
            rd_gpu_cast(gpu, i > 2 ? N : 2 * N, a->x, RD_FLOAT32, a->y, RD_FLOAT32, true, st);
            rd_gpu_download(gpu, a->host, a->y, 64, st);
        }
        rd_gpu_recurred(gpu, st);
    }
}

static void release(arrays *a)
{
    float *const all[] = {a->weights, a->x, a->y, a->image, a->filters, a->result, a->large};
    for (int i = 0; i < 7; i++) rd_gpu_memory_free(gpu, all[i]);
    rd_gpu_host_free(gpu, a->pinned);
    rd_gpu_free(gpu);
    gpu = NULL;
}

/* Returns what a run would report. *fell_back: the driver did without something. */
static outcome run(void)
{
    static arrays a;
    outcome end = {.fell_back = false};
    rd_status st = {0};
    memset(&a, 0, sizeof a);
    a.numbers = RD_FNV_START;
    if (rd_gpu_new(0, &(rd_gpu_options){.mixed = true, .graphs = true, .rnn = RD_RNN_ON}, &gpu,
                   &st) != RD_OK)
        return (outcome){.st = st, .in_work = true};
    make(&a, &st);
    if (st.code == RD_OK) products(&a, &st);
    if (st.code == RD_OK) add_numbers(&a, &st);
    if (st.code == RD_OK) convolutions(&a, &st);
    if (st.code == RD_OK) add_numbers(&a, &st);
    if (st.code == RD_OK) copies(&a, &st);
    if (st.code == RD_OK) recurrent(H, &end.fell_back, &st);
    if (st.code == RD_OK) sums(&a, &st);
    if (st.code == RD_OK) steps(&a, &st);
    if (st.code == RD_OK) add_numbers(&a, &st);
    if (st.code == RD_OK) rd_gpu_wait(gpu, &st);
    end.in_work = rd_fake_failed() != NULL;
    const rd_gpu_graph_counts none = {0};
    rd_gpu_graph_counts c = none;
    rd_gpu_count_graphs(gpu, &c);
    end.fell_back |= st.code == RD_OK && (c.given_up > 0 || c.left > 0);
    release(&a);
    end.st = st;
    end.numbers = a.numbers;
    return end;
}

/* ---- checks ---- */
/* Calls whose failure needs no report if the numbers are right: the call frees something, asks for
 * a number in a message, or has a substitute. */
static bool may_be_ignored(const char *call)
{
    static const char *const words[] = {"Free", "Destroy", "MemGetInfo", "GetVersion"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(call, words[i])) return true;
    /* another engine of cuDNN takes the place of one that cannot be had */
    if (strncmp(call, "cudnnBackend", 12) == 0 && !strstr(call, "Execute")) return true;
    /* rd_gpu_memory_free and the end of a group wait before they free */
    return strcmp(call, "ncclCommGetAsyncError") == 0 ||
           strcmp(call, "cudaStreamSynchronize") == 0 || strcmp(call, "ncclCommFinalize") == 0;
}

/* Returns whether the message names the call. A launch is named by its kernel, a poll of NCCL by
 * the call that it waits for, and an engine of cuDNN that cannot be had by the convolution. */
static bool names(const rd_status *st, const char *call)
{
    if (strcmp(call, "ncclCommGetAsyncError") == 0) return strstr(st->msg, "NCCL: nccl");
    if (strncmp(call, "cudnnBackend", 12) == 0 && strstr(st->msg, "cuDNN 9.19 has no reproducible"))
        return true;
    if (strcmp(call, "cudaLaunchKernel") == 0)
        return strncmp(st->msg, "GPU 0: ", 7) == 0 && !strstr(st->msg, ": cuda") &&
               strstr(st->msg, "a failure of the fake");
    return strstr(st->msg, call) ||
           (strcmp(call, "cudaGetDeviceCount") == 0 && strstr(st->msg, "no GPU that can be used"));
}

/* Returns whether the driver goes on without the call: steps without graphs, layers by own kernels.
 * If all later calls fail, too, the message names one of these. */
static bool has_substitute(const char *call)
{
    return strstr(call, "Graph") || strstr(call, "Capture") || strstr(call, "RNN");
}

/* Returns what is wrong with the end of a run in which the call failed; NULL: nothing. */
static const char *mistake_of(const outcome *end, const char *call, bool lasting, uint64_t numbers)
{
    const rd_status *st = &end->st;
    if (rd_fake_left() != 0) return "objects are left";
    if (st->code != RD_OK) {
        if (st->code != RD_EENV && !(strncmp(call, "nccl", 4) == 0 && st->code == RD_EPEER))
            return "another exit code";
        if (names(st, call) || may_be_ignored(call)) return NULL;
        if (lasting && has_substitute(call) && strncmp(st->msg, "GPU 0: ", 7) == 0) return NULL;
        return "the message does not name the call";
    }
    if (lasting && end->in_work) return "a lasting failure was not reported";
    if (!end->fell_back && !may_be_ignored(call)) return "nothing was reported";
    return end->numbers == numbers ? NULL : "other numbers, and nothing was reported";
}

static int n_wrong;

/* Fails call k. Returns false if a run has fewer calls. */
static bool fail_call(int64_t k, bool lasting, uint64_t numbers)
{
    rd_fake_fail(k, lasting);
    const outcome end = run();
    char call[64] = "";
    if (rd_fake_failed()) snprintf(call, sizeof call, "%s", rd_fake_failed());
    rd_fake_fail(0, false);
    if (!call[0]) {
        must(&end.st);
        return false;
    }
    const char *wrong = mistake_of(&end, call, lasting, numbers);
    if (wrong) {
        print_error("call %d, %s%s: %s (%d left, code %d): '%s'\n", (int)k, call,
                    lasting ? ", lasting" : "", wrong, (int)rd_fake_left(), (int)end.st.code,
                    end.st.msg);
        n_wrong++;
    }
    return true;
}

static void in_turn(bool lasting)
{
    outcome end = run(); /* libraries are loaded, texts made */
    must(&end.st);
    assert_false(end.fell_back);
    assert_int_equal(rd_fake_left(), 0);
    const uint64_t numbers = end.numbers;
    int64_t k = 1;
    while (fail_call(k, lasting, numbers)) k += all_cases() ? 1 : 7;
    print_message("%d calls\n", (int)k);
    assert_true(k > 300);
    assert_int_equal(n_wrong, 0);
    end = run();
    must(&end.st);
    assert_true(end.numbers == numbers);
}

/* A call that may be ignored where memory is freed is reported where the caller waits. */
static void test_wait(void **state)
{
    rd_status st = {0};
    (void)state;
    must_do(rd_gpu_new(0, &(rd_gpu_options){.graphs = false}, &gpu, &st), &st);
    rd_fake_fail(1, false);
    assert_int_equal(rd_gpu_wait(gpu, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "cudaStreamSynchronize"));
    rd_fake_fail(0, false);
    rd_gpu_free(gpu);
    gpu = NULL;
}

/* A product fails while it is captured for a graph: the step is launched without one. */
static void test_capture(void **state)
{
    static arrays a;
    bool seen = false;
    (void)state;
    for (int64_t k = 1; !seen; k++) {
        rd_status st = {0};
        rd_gpu_graph_counts c;
        assert_true(k < 100);
        memset(&a, 0, sizeof a);
        must_do(rd_gpu_new(0, &(rd_gpu_options){.graphs = true}, &gpu, &st), &st);
        make(&a, &st);
        for (int i = 0; i < 2; i++) {
            rd_gpu_recurs(gpu, 7, &st);
            products(&a, &st);
            if (i == 1) rd_fake_fail(k, false);
            rd_gpu_recurred(gpu, &st);
        }
        seen = rd_fake_failed() && strcmp(rd_fake_failed(), "cublasLtMatmul") == 0;
        rd_fake_fail(0, false);
        if (seen) {
            must_do(rd_gpu_wait(gpu, &st), &st);
            rd_gpu_count_graphs(gpu, &c);
            assert_int_equal(c.given_up, 1);
        }
        release(&a);
    }
    assert_int_equal(rd_fake_left(), 0);
}

static void test_once(void **state)
{
    (void)state;
    in_turn(false);
}

static void test_lasting(void **state)
{
    (void)state;
    in_turn(true);
}

RD_TESTS("driver_failures", TEST(test_wait), TEST(test_capture), TEST(test_once),
         TEST(test_lasting))
