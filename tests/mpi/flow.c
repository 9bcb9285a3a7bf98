/* flow.c -- tests sums in parts (cross_flow.c) between hosts and in two-byte numbers, against
 * what one rank computes alone.
 *
 * flow.sh runs it with made-up hosts (RD_COMM_HOSTS). Either the summed numbers are integers
 * that every type on the way holds exactly, so the bound is zero. Or they are not, and the test
 * compares the bytes of all ways to the same sum.
 *
 *     flow         the tests; with CASES=all every size from 1 to 5,000, and an odd size past 2^31
 *                  bytes if there is memory
 *     flow error   the largest and the mean error of the wire types, against float64 */
#include "test.h"
#include "rank_check.h"
#include "rd/clock.h"
#include "../../runner/comm/host_sum.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const rd_wire wires[] = {RD_WIRE_F32, RD_WIRE_BF16, RD_WIRE_F16};
static const rd_flow_mode modes[] = {RD_FLOW_LATE, RD_FLOW_CALLS, RD_FLOW_THREAD, RD_FLOW_CORE};

/* -8 .. 8: sums of 9 ranks stay below 2^7, where bfloat16 has all integers. */
static int value(int rank, int64_t i)
{
    return (int)((i * 7 + rank * 13) % 17) - 8;
}

static int sum_of(int64_t i)
{
    int want = 0;
    for (int r = 0; r < world->size; r++) want += value(r, i);
    return want;
}

/* Numbers whose sum depends on the order. */
static float uneven(int rank, int64_t i)
{
    return ((float)((i * 2654435761u + (unsigned)rank * 40503u) % 100003) - 5e4f) * 1.7e-3f;
}

/* ---- numbers of two bytes ---- */

/* To `digits` binary digits, with the smallest step 2^least, by the library's own rounding. */
static double rounded(double x, int digits, int least)
{
    const int e = x != 0.0 ? ilogb(x) : 0, step = e - digits + 1 > least ? e - digits + 1 : least;
    return ldexp(rint(ldexp(x, -step)), step);
}

/* What a number becomes on its way. */
static float sent_as(rd_wire w, float x)
{
    return w == RD_WIRE_F32
               ? x
               : (float)(w == RD_WIRE_BF16 ? rounded(x, 8, -133) : rounded(x, 11, -24));
}

static float there_and_back(rd_wire w, float x)
{
    rd_wire_round(w, &x, 1);
    return x;
}

static void test_rounding(void **state)
{
    (void)state;
    rd_status st = {0};
    uint32_t bits = 12345;
    for (int i = 0; i < 1 << 20; i++) {
        float x;
        bits = bits * 1664525u + 1013904223u;
        uint32_t u = bits;
        if (i % 3 == 0) u = (u & 0xffff8000u) | (i % 2 ? 0x1000u : 0x0u); /* ties of float16 */
        if (i % 3 == 1) u = (u & 0xffff0000u) | 0x8000u;                  /* of bfloat16 */
        memcpy(&x, &u, sizeof x);
        if (!isfinite(x)) continue;
        const float b = there_and_back(RD_WIRE_BF16, x), h = there_and_back(RD_WIRE_F16, x);
        const double most = 65504.0, want = rounded(x, 11, -24);
        CHECK(b == (float)rounded(x, 8, -133) || isinf(b));
        CHECK(!isinf(b) || fabs((double)x) > 3.38e38);
        CHECK(h == (float)(want > most ? most : want < -most ? -most : want));
    }
    const float special[] = {INFINITY, -INFINITY, 0.0f,     -0.0f,
                             65504.0f, -65504.0f, 0x1p-24f, 0x1p-14f};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        const float b = there_and_back(RD_WIRE_BF16, special[i]),
                    h = there_and_back(RD_WIRE_F16, special[i]);
        CHECK(memcmp(&h, &special[i], sizeof h) == 0);
        CHECK(memcmp(&b, &special[i], sizeof b) == 0 || fabsf(special[i]) == 65504.0f);
    }
    CHECK(isnan(there_and_back(RD_WIRE_BF16, NAN)) && isnan(there_and_back(RD_WIRE_F16, NAN)));
    for (uint32_t h = 0; h < 1 << 16; h++) { /* every number there is comes back as it was */
        const uint16_t in = (uint16_t)h;
        uint16_t out[2];
        float x[2];
        rd_wire_widen(RD_WIRE_BF16, &in, 1, &x[0]);
        rd_wire_widen(RD_WIRE_F16, &in, 1, &x[1]);
        rd_wire_narrow(RD_WIRE_BF16, &x[0], 1, &out[0]);
        rd_wire_narrow(RD_WIRE_F16, &x[1], 1, &out[1]);
        CHECK(out[0] == in || isnan(x[0]));
        CHECK(out[1] == in || isnan(x[1]));
    }
}

/* Converting many numbers at once gives the same as converting each alone, for every kind and
 * count: CPUs convert them in vectors where they can. */
static void test_many_at_once(void **state)
{
    (void)state;
    rd_status st = {0};
    enum { N = 1 << 16 };
    float *x = malloc(2 * N * sizeof *x), *many = x + N;
    uint16_t *h = malloc(N * sizeof *h);
    CHECK(x && h);
    for (int w = RD_WIRE_BF16; w <= RD_WIRE_F16; w++)
        for (uint32_t k = 0; k < 16; k++) {
            const int n = N - (int)k;
            for (uint32_t i = 0; i < N; i++) {
                const uint32_t u = (i << 16) + (k % 4 == 3 ? 0xffffu : k % 4 << 14) +
                                   k / 4 * 0x555u; /* every sign, exponent, infinity, NaN */
                memcpy(&x[i], &u, sizeof u);
            }
            rd_wire_narrow((rd_wire)w, x, n, h);
            memcpy(many, x, N * sizeof *x);
            rd_wire_round((rd_wire)w, many, n);
            for (int i = 0; i < n; i++) {
                uint16_t one;
                float back = x[i];
                rd_wire_narrow((rd_wire)w, &x[i], 1, &one);
                rd_wire_round((rd_wire)w, &back, 1);
                CHECK(h[i] == one && memcmp(&many[i], &back, sizeof back) == 0);
            }
            rd_wire_widen((rd_wire)w, h, n, many);
            for (int i = 0; i < n; i++) {
                float one;
                rd_wire_widen((rd_wire)w, &h[i], 1, &one);
                CHECK(memcmp(&many[i], &one, sizeof one) == 0);
            }
        }
    free(x);
    free(h);
}

/* ---- flows ---- */

/* Parts that follow each other, of sizes first, first + step, ... up to last; returns how many. */
static int make_parts(rd_flow_part *p, int first, int last, int step)
{
    int n = 0;
    int64_t at = 0;
    for (int size = first; size <= last; size += step) {
        p[n++] = (rd_flow_part){.from = at, .n = size};
        at += size;
    }
    return n;
}

/* Some time between the parts, another on each rank and in each round. */
static void dawdle(int round, int i)
{
    if ((i * 31 + world->rank * 17 + round * 7) % 23 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
}

/* One round. every: parts that become ready together; 0: all at the end. */
static rd_code round_of(rd_flow *f, int n_parts, int every, int round, rd_status *st)
{
    for (int i = every; every > 0 && i <= n_parts; i += every) {
        rd_flow_ready(f, i);
        dawdle(round, i);
        rd_flow_poll(f);
    }
    rd_flow_pause(f);
    return rd_flow_finish(f, st);
}

static void test_known_answers(void **state)
{
    (void)state;
    rd_status st = {0};
    const int step = all_cases() ? 1 : 97;
    rd_flow_part *p = malloc(5000 * sizeof *p);
    float *x;
    CHECK(p);
    const int n = make_parts(p, 1, 5000, step);
    const int64_t total = p[n - 1].from + p[n - 1].n;
    CHECK(rd_comm_arena_new(comm, total + 5, &x, NULL, &st) == RD_OK);
    for (int w = 0; w < 3; w++)
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            rd_flow *f = NULL;
            CHECK(rd_flow_new(comm, x, p, n, wires[w], modes[m], &f, &st) == RD_OK && f);
            CHECK(rd_flow_mode_of(f) == (world->n_hosts > 1 ? modes[m] : RD_FLOW_LATE));
            for (int round = 0; round < 2; round++) {
                for (int64_t i = 0; i < total + 5; i++) x[i] = (float)value(world->rank, i);
                CHECK(round_of(f, n, round == 1 && world->rank == 0 ? 0 : 3, round, &st) == RD_OK);
                for (int64_t i = 0; i < total; i++) CHECK(x[i] == (float)sum_of(i));
                for (int64_t i = total; i < total + 5; i++)
                    CHECK(x[i] == (float)value(world->rank, i));
                const rd_flow_part *q = rd_flow_parts(f);
                for (int i = 0; i < n; i++)
                    CHECK(q[i].end_ns >= q[i].begin_ns && q[i].begin_ns > 0);
                CHECK(rd_flow_last(f)->exposed_s >= 0.0 && rd_flow_last(f)->total_s >= 0.0);
            }
            rd_flow_free(f);
        }
    rd_comm_arena_free(comm);
    free(p);
}

/* A flow over parts of an array that lies inside the arena, with gaps, in any order of places. */
static void test_gaps(void **state)
{
    (void)state;
    rd_status st = {0};
    const rd_flow_part p[] = {
        {.from = 70000, .n = 600001}, {.from = 16, .n = 5}, {.from = 1024, .n = 40000}};
    const int64_t n = 700000;
    rd_flow *f = NULL;
    float *x;
    CHECK(rd_comm_arena_new(comm, n + 64, &x, NULL, &st) == RD_OK);
    x += 64;
    CHECK(rd_flow_new(comm, x, p, 3, RD_WIRE_BF16, RD_FLOW_THREAD, &f, &st) == RD_OK);
    for (int64_t i = 0; i < n; i++) x[i] = (float)value(world->rank, i);
    CHECK(round_of(f, 3, 1, 0, &st) == RD_OK);
    for (int64_t i = 0; i < n; i++) {
        bool in = false;
        for (int k = 0; k < 3; k++) in |= i >= p[k].from && i < p[k].from + p[k].n;
        CHECK(x[i] == (float)(in ? sum_of(i) : value(world->rank, i)));
    }
    rd_flow_free(f);
    CHECK(rd_flow_new(comm, x, p, 0, RD_WIRE_F32, RD_FLOW_CALLS, &f, &st) == RD_OK);
    CHECK(rd_flow_finish(f, &st) == RD_OK);
    rd_flow_free(f);
    rd_comm_arena_free(comm);
}

/* ---- the order of a sum, worked out from what host_sum.c and cross_sum.c say of it ---- */

static float tree(const float *x, int n)
{
    int left = 1;
    if (n == 1) return x[0];
    while (2 * left < n) left *= 2;
    const float a = tree(x, left), b = tree(x + left, n - left);
    return a + b;
}

enum { MOST_RANKS = 64 };
static int host_of[MOST_RANKS];

static void ask_hosts(void)
{
    rd_status st = {0};
    const bool shared = strstr(rd_comm_note(comm), "shared") != NULL;
    const int mine = shared ? world->host_index : world->rank;
    CHECK(world->size <= MOST_RANKS);
    CHECK(rd_comm_allgather(comm, &mine, host_of, sizeof mine, &st) == RD_OK);
}

/* Returns element i of the sum of uneven(). The sum runs inside hosts first. Then it runs among
 * hosts in groups of 8, 4 or 2 while their number is even. The last sum is among all remaining
 * hosts at once. Each number that is sent is rounded, and so is each sum. */
static float ordered_sum(rd_wire w, int64_t i)
{
    float x[MOST_RANKS];
    int n = 0;
    for (int host = 0; host < world->size; host++) {
        float of_host[MOST_RANKS];
        int k = 0;
        for (int r = 0; r < world->size; r++)
            if (host_of[r] == host) of_host[k++] = uneven(r, i);
        if (k > 0) x[n++] = tree(of_host, k);
    }
    if (world->n_hosts == 1) return tree(x, n);
    while (n > 1) {
        const int group = n % 8 == 0 ? 8 : n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : n;
        for (int k = 0; k < n; k++) x[k] = sent_as(w, x[k]);
        for (int k = 0; k < n / group; k++) x[k] = tree(x + k * group, group);
        n /= group;
    }
    return sent_as(w, x[0]);
}

/* The bytes do not depend on when parts become ready and where they are cut. All ranks have the
 * same bytes; with float32 they are those of rd_comm_sum_f32. */
static void test_same_bytes(void **state)
{
    (void)state;
    rd_status st = {0};
    const int64_t n = 300003;
    const size_t bytes = (size_t)n * sizeof(float);
    const int64_t sizes[] = {n, 262144, 100000, 37777};
    float *x, *first = malloc(bytes), *plain = malloc(bytes);
    rd_flow_part *p = malloc(32 * sizeof *p);
    CHECK(first && plain && p);
    ask_hosts();
    CHECK(rd_comm_arena_new(comm, n, &x, NULL, &st) == RD_OK);
    for (int64_t i = 0; i < n; i++) plain[i] = uneven(world->rank, i);
    CHECK(rd_comm_sum_f32(comm, plain, n, &st) == RD_OK);
    for (int w = 0; w < 3; w++)
        for (int k = 0; k < 4; k++) {
            rd_flow *f = NULL;
            int n_parts = 0;
            for (int64_t at = 0; at < n; at += sizes[k])
                p[n_parts++] = (rd_flow_part){.from = at,
                                              .n = n - at < sizes[k] ? n - at : sizes[k]};
            CHECK(rd_flow_new(comm, x, p, n_parts, wires[w], modes[k % 4], &f, &st) == RD_OK);
            for (int round = 0; round < 2; round++) {
                for (int64_t i = 0; i < n; i++) x[i] = uneven(world->rank, i);
                CHECK(round_of(f, n_parts, 1, k, &st) == RD_OK);
            }
            if (k == 0) {
                for (int64_t i = 0; i < n; i += 11) CHECK(x[i] == ordered_sum(wires[w], i));
                memcpy(first, x, bytes);
                CHECK(rd_comm_bcast(comm, first, (int64_t)bytes, world->size - 1, &st) == RD_OK);
            }
            CHECK(memcmp(x, first, bytes) == 0);
            if (w == 0) CHECK(memcmp(x, plain, bytes) == 0);
            if (w > 0 && world->n_hosts > 1)
                CHECK(memcmp(x, plain, bytes) != 0); /* the test can fail */
            if (world->n_hosts > 1) {                /* each host sends 2 (1 - 1/h) of the array */
                double sent = (double)rd_flow_last(f)->wire_bytes;
                const bool shared = strstr(rd_comm_note(comm), "shared") != NULL;
                const int h = shared ? world->n_hosts : world->size;
                const double want = 2.0 * (h - 1) * (double)bytes * (w > 0 ? 0.5 : 1.0);
                CHECK(rd_comm_sum_f64(comm, &sent, 1, &st) == RD_OK);
                CHECK(fabs(sent - want) < 1e-3 * want + 4096);
            }
            rd_flow_free(f);
        }
    rd_comm_arena_free(comm);
    free(first);
    free(plain);
    free(p);
}

/* A part of many chunks is there when finish returns, on ranks that carry none of it, too. */
static void test_long_part(void **state)
{
    (void)state;
    rd_status st = {0};
    const int64_t n = 8 * rd_cross_chunk(RD_WIRE_F32) * 2 + 3;
    const rd_flow_part p[] = {{.from = 0, .n = n}};
    rd_flow *f = NULL;
    float *x;
    if (world->n_hosts == 1 || world->n_hosts == world->size) skip();
    CHECK(rd_comm_arena_new(comm, n, &x, NULL, &st) == RD_OK);
    CHECK(rd_flow_new(comm, x, p, 1, RD_WIRE_F32, RD_FLOW_LATE, &f, &st) == RD_OK);
    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < n; i++) x[i] = (float)value(world->rank, i);
        CHECK(rd_flow_finish(f, &st) == RD_OK);
        for (int64_t i = n - 1; i >= 0; i--)
            CHECK(x[i] == (float)sum_of(i)); /* what comes last first */
    }
    rd_flow_free(f);
    rd_comm_arena_free(comm);
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* In all modes but "late", a part ends while the caller does something else. rd_flow_finish returns
 * after the last rank has begun it. CASES=all: the time that finish waits is the exposed time. On a
 * busy machine one try in a hundred is enough. */
static void test_overlap(void **state)
{
    (void)state;
    rd_status st = {0};
    const rd_flow_part p[] = {{.from = 0, .n = 5000}, {.from = 5000, .n = 5000}};
    const bool shared = strstr(rd_comm_note(comm), "shared") != NULL;
    double owners = world->local_size;
    float *x;
    if (world->n_hosts == 1) skip();
    CHECK(rd_comm_min_f64(comm, &owners, 1, &st) == RD_OK);
    const bool owner = !shared ||
                       world->local_rank < owners; /* the others have nothing to do in between */
    CHECK(rd_comm_arena_new(comm, 10000, &x, NULL, &st) == RD_OK);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        rd_flow *f = NULL;
        double early = 0.0, waited = !all_cases();
        CHECK(rd_flow_new(comm, x, p, 2, RD_WIRE_F32, modes[m], &f, &st) == RD_OK);
        for (int tries = 0; tries < 100 && (early == 0.0 || waited == 0.0) &&
                            (tries == 0 || modes[m] != RD_FLOW_LATE);
             tries++) {
            CHECK(rd_comm_barrier(comm, &st) == RD_OK);
            rd_flow_ready(f, 1);
            for (int i = 0; i < 20; i++) {
                sleep_ms(5);
                rd_flow_poll(f);
            }
            int64_t now = rd_now_ns();
            CHECK(rd_flow_finish(f, &st) == RD_OK);
            early = !owner || rd_flow_parts(f)[0].end_ns < now;
            CHECK(rd_comm_min_f64(comm, &early, 1, &st) == RD_OK);
            /* Rank 0 waits for all others. All ranks run on one machine, so their clocks agree. */
            if (world->rank > 0) sleep_ms(all_cases() ? 100 : 20);
            now = rd_now_ns();
            CHECK(rd_flow_finish(f, &st) == RD_OK);
            const int64_t left = rd_now_ns();
            const double whole_s = (double)(left - now) * 1e-9;
            double last_began = (double)now;
            CHECK(rd_comm_max_f64(comm, &last_began, 1, &st) == RD_OK);
            CHECK((double)left >= last_began);
            const rd_flow_times *t = rd_flow_last(f);
            CHECK(t->exposed_s <= whole_s && (!owner || t->total_s > 0.0));
            if (modes[m] == RD_FLOW_LATE) CHECK(t->total_s <= t->exposed_s);
            waited = !all_cases() || world->rank > 0 || t->exposed_s > 0.09;
            CHECK(rd_comm_min_f64(comm, &waited, 1, &st) == RD_OK);
        }
        CHECK(modes[m] == RD_FLOW_LATE ? early == 0.0 : early == 1.0 && waited == 1.0);
        rd_flow_free(f);
    }
    rd_comm_arena_free(comm);
}

/* What is not finite arrives as such, with every type. */
static void test_not_finite(void **state)
{
    (void)state;
    rd_status st = {0};
    const rd_flow_part p[] = {{.from = 0, .n = 4000}};
    float *x;
    CHECK(rd_comm_arena_new(comm, 4000, &x, NULL, &st) == RD_OK);
    for (int w = 0; w < 3; w++) {
        rd_flow *f = NULL;
        CHECK(rd_flow_new(comm, x, p, 1, wires[w], RD_FLOW_CALLS, &f, &st) == RD_OK);
        for (int64_t i = 0; i < 4000; i++) x[i] = 1.0f;
        if (world->rank == world->size - 1) {
            x[7] = NAN;
            x[3001] = INFINITY;
        }
        CHECK(rd_flow_finish(f, &st) == RD_OK);
        for (int64_t i = 0; i < 4000; i++)
            CHECK(i == 7 ? isnan(x[i]) : i == 3001 ? isinf(x[i]) : x[i] == (float)world->size);
        rd_flow_free(f);
    }
    rd_comm_arena_free(comm);
}

/* An odd size past 2^31 bytes. */
static void test_large(void **state)
{
    (void)state;
    rd_status st = {0};
    const int64_t n = ((int64_t)1 << 29) + 12345;
    const rd_flow_part p[] = {{.from = 0, .n = n / 2}, {.from = n / 2, .n = n - n / 2}};
    double free_bytes = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    rd_flow *f = NULL;
    float *x;
    CHECK(rd_comm_min_f64(comm, &free_bytes, 1, &st) == RD_OK);
    if (!all_cases() || free_bytes < 6.0 * (double)n * world->size) skip();
    CHECK(rd_comm_arena_new(comm, n, &x, NULL, &st) == RD_OK);
    CHECK(rd_flow_new(comm, x, p, 2, RD_WIRE_F32, RD_FLOW_CALLS, &f, &st) == RD_OK);
    for (int64_t i = 0; i < n; i++) x[i] = (float)value(world->rank, i);
    CHECK(rd_flow_finish(f, &st) == RD_OK);
    for (int64_t i = 0; i < n; i++)
        if (x[i] != (float)sum_of(i)) CHECK(!"a sum past 2^31 bytes");
    rd_flow_free(f);
    rd_comm_arena_free(comm);
}

/* ---- errors ---- */

static double normal(uint64_t *s)
{
    double u[2];
    for (int k = 0; k < 2; k++) {
        *s = *s * 6364136223846793005u + 1442695040888963407u;
        u[k] = ((double)(*s >> 11) + 0.5) * 0x1p-53;
    }
    return sqrt(-2.0 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

/* Gradients as they are: normal, of very different scale from array to array. */
static int tell_errors(void)
{
    enum { N = 1 << 18 };
    rd_status st = {0};
    const rd_flow_part p[] = {{.from = 0, .n = N}};
    double *exact = malloc(N * sizeof *exact), *size = malloc(N * sizeof *size);
    float *x, *mine = malloc(N * sizeof *mine);
    uint64_t seed = 77u + 1000u * (unsigned)world->rank;
    CHECK(exact && size && mine);
    CHECK(rd_comm_arena_new(comm, N, &x, NULL, &st) == RD_OK);
    for (int64_t i = 0; i < N; i++) {
        mine[i] = (float)(normal(&seed) * pow(10.0, (double)(i * 7 / N) - 5.0)); /* 1e-5 .. 10 */
        exact[i] = mine[i];
        size[i] = fabs(exact[i]);
    }
    CHECK(rd_comm_sum_f64(comm, exact, N, &st) == RD_OK &&
          rd_comm_sum_f64(comm, size, N, &st) == RD_OK);
    for (int w = 0; w < 3; w++) {
        rd_flow *f = NULL;
        double most = 0.0, sum = 0.0, sq = 0.0, all = 0.0;
        CHECK(rd_flow_new(comm, x, p, 1, wires[w], RD_FLOW_LATE, &f, &st) == RD_OK);
        memcpy(x, mine, N * sizeof *x);
        CHECK(rd_flow_finish(f, &st) == RD_OK);
        for (int64_t i = 0; i < N; i++) {
            const double d = fabs((double)x[i] - exact[i]), e = d / size[i];
            if (size[i] > 0x1p-10) most = e > most ? e : most; /* below, float16 has fewer digits */
            sum += e;
            CHECK(world->n_hosts == 1 || d < (w == 0   ? 3e-7
                                              : w == 1 ? 1.2e-2
                                                       : 1.5e-3) *
                                                     size[i] +
                                                 2e-7);
            sq += ((double)x[i] - exact[i]) * ((double)x[i] - exact[i]);
            all += exact[i] * exact[i];
        }
        if (world->rank == 0)
            printf("%d hosts, %-8s  error / sum of sizes: largest %.2e, mean %.2e; whole vector, "
                   "relative: %.2e\n",
                   world->n_hosts, rd_wire_name(wires[w]), most, sum / N, sqrt(sq / all));
        rd_flow_free(f);
    }
    free(exact);
    free(size);
    free(mine);
    rd_comm_free(comm);
    return 0;
}

/* ---- a network that fails ---- */

static bool cut; /* MPI_Testall fails */
static int n_freed;
void __lsan_disable(void) __attribute__((weak)); /* what is not freed is meant */
void __lsan_enable(void) __attribute__((weak));

int MPI_Testall(int n, MPI_Request req[], int *flag, MPI_Status all[])
{
    return cut ? MPI_ERR_OTHER : PMPI_Testall(n, req, flag, all);
}

int MPI_Comm_free(MPI_Comm *c)
{
    n_freed++;
    return PMPI_Comm_free(c);
}

/* All owners learn of the failure, no rank is left waiting, and buffers that MPI may still write to
 * stay allocated. It is the last test, because messages are left over. */
static void test_failure(void **state)
{
    (void)state;
    rd_status st = {0}, own = {0};
    const rd_flow_part p[] = {{.n = 100}, {.from = 100, .n = 300}};
    float *x;
    rd_flow *f = NULL;
    int64_t n_failed;
    if (world->n_hosts == 1) skip();
    CHECK(rd_comm_arena_new(comm, 400, &x, NULL, &st) == RD_OK);
    if (__lsan_disable) __lsan_disable();
    CHECK(rd_flow_new(comm, x, p, 2, RD_WIRE_F32, RD_FLOW_THREAD, &f, &st) == RD_OK && f);
    if (__lsan_enable) __lsan_enable();
    cut = true;
    n_failed = round_of(f, 2, 1, 0, &own) != RD_OK;
    cut = false;
    CHECK(n_failed == 0 || own.code == RD_EPEER);
    n_freed = 0;
    rd_flow_free(f);
    CHECK(n_failed == 0 || n_freed == 0);
    CHECK(rd_comm_sum_i64(comm, &n_failed, 1, &st) == RD_OK && n_failed > 0);
    rd_comm_arena_free(comm);
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    if (rd_comm_start(&argc, &argv, &comm, &st) != RD_OK) {
        fprintf(stderr, "%s\n", st.msg);
        return st.code;
    }
    world = rd_comm_world(comm);
    if (argc > 1) return tell_errors();
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1; /* rank 0 alone prints the closing lines */
    if (world->rank == 0)
        printf("%d ranks on %d hosts: %s\n", world->size, world->n_hosts, rd_comm_note(comm));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),      cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_same_bytes),    cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_long_part),     cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_large),         cmocka_unit_test(test_failure),
    };
    const int failures = cmocka_run_group_tests_name("flow", tests, NULL, NULL);
    rd_comm_free(comm);
    return failures != 0;
}
