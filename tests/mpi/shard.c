/* shard.c -- tests the division of parameters and optimizer state between hosts (rd/shard.h).
 *
 * The pieces cover all, and every host has its part. Sums, norms, weights and state have the bytes
 * of a rank that does everything alone, and all hosts together keep the state once.
 * tests/mpi/shard.sh runs it on simulated hosts, with and without shared memory. With RD_TEST_GPU=1
 * (tests/gpu/shard.sh) a GPU does the updates, and each rank counts as a host. */
#include "test.h"
#include "optim_defaults.h"
#include "odd_params.h"
#include "rd/hash.h"
#include "rd/optim.h"
#include "rd/shard.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN = 350000, KEPT = 325000, PARTS = 4 };

static rd_gpu *gpu; /* NULL: the CPU does the updates */

static uint32_t next(uint32_t *s)
{
    return *s = *s * 1664525u + 1013904223u;
}

static void fill_random(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(next(&seed) >> 8) / 8388608.0f - 1.0f;
}

/* Two parts, a table in between, a small part, and statistics that no optimizer keeps. */
static const rd_flow_part parts[PARTS] = {{.from = 0, .n = 150000},
                                          {.from = 250000, .n = 75000},
                                          {.from = 325000, .n = 16},
                                          {.from = 325016, .n = SPAN - 325016}};
static const rd_flow_part table = {.from = 150000, .n = 100000};

/* Cuts at every 4096 elements of a part, and one block of the table that is longer than a
 * stripe. */
static rd_shard *divided(rd_wire wire)
{
    static int64_t cut[SPAN / 4096 + 16];
    rd_status st = {0};
    rd_shard *s;
    int64_t n = 0;
    for (int64_t at = 0; at < 150000; at += 4096) cut[n++] = at;
    cut[n++] = 150000;
    for (int64_t at = 230000; at < 250000; at += 5000) cut[n++] = at;
    for (int64_t at = 250000; at < 325000; at += 4096) cut[n++] = at;
    cut[n++] = 325000;
    for (int64_t at = 325016; at < SPAN; at += 4096) cut[n++] = at;
    const rd_shard_plan plan = {.part = parts,
                                .n_parts = PARTS,
                                .rest = &table,
                                .n_rest = 1,
                                .cut = cut,
                                .n_cuts = n,
                                .span = SPAN,
                                .kept = KEPT,
                                .wire = wire};
    CHECK(rd_shard_new(comm, &plan, &s, &st) == RD_OK);
    return s;
}

/* Returns what the ranks of a host share as one array, else an array of this rank. */
static void *host_array(const rd_shard *s, size_t bytes)
{
    rd_status st = {0};
    char why[200];
    void *x = NULL;
    if (rd_shard_shares(s)) CHECK(rd_comm_shared(comm, bytes, &x, why, &st) == RD_OK);
    if (!x) x = calloc(1, bytes); /* a host of one rank shares nothing */
    CHECK(x);
    return x;
}

static void host_array_free(const rd_shard *s, void *x, size_t bytes)
{
    if (rd_shard_shares(s) && world->local_size > 1)
        rd_comm_unshare(x, bytes);
    else
        free(x);
}

/* Does this rank write for its host? */
static bool writes(const rd_shard *s)
{
    return !rd_shard_shares(s) || world->local_rank == 0;
}

static void check_pieces(const rd_shard *s)
{
    rd_status st = {0};
    int64_t n, kept[16] = {0};
    const rd_shard_piece *p = rd_shard_pieces(s, &n);
    uint64_t h = RD_FNV_START;
    char text[32];
    CHECK(n > 0 && p[0].lo == 0 && p[n - 1].hi == SPAN);
    for (int64_t i = 0; i < n; i++) {
        CHECK(p[i].lo < p[i].hi && (i == 0 || p[i].lo == p[i - 1].hi));
        CHECK(p[i].host >= 0 && p[i].host < rd_shard_n_hosts(s));
        CHECK(p[i].lo >= KEPT || p[i].at == kept[p[i].host]);
        if (p[i].lo < KEPT) kept[p[i].host] += (p[i].hi < KEPT ? p[i].hi : KEPT) - p[i].lo;
        CHECK(rd_shard_find(s, p[i].lo) == i && rd_shard_find(s, p[i].hi - 1) == i);
        h = rd_fnv_step(h, (uint64_t)p[i].lo * 64 + (uint64_t)p[i].host);
    }
    /* A block of 80,000 elements belongs to one host. The others differ by the rest of its stripe,
     * 20,000 elements, and a block. */
    int64_t most = 0, least = KEPT, big = 0;
    for (int k = 0; k < rd_shard_n_hosts(s); k++) {
        CHECK(kept[k] == rd_shard_kept(s, k));
        if (p[rd_shard_find(s, 160000)].host == k) {
            big = kept[k];
            continue;
        }
        most = kept[k] > most ? kept[k] : most;
        least = kept[k] < least ? kept[k] : least;
    }
    CHECK(most - least <= 25000 && big >= 80000 && big <= least + 100000);
    (void)snprintf(text, sizeof text, "%llx", (unsigned long long)h);
    CHECK(rd_comm_same(comm, "the pieces", text, &st) == RD_OK);
}

/* Has this rank the sums of its host's pieces of all parts? */
static void check_own(const rd_shard *s, const float *x, const float *want)
{
    rd_status st = {0};
    int64_t n;
    const rd_shard_piece *p = rd_shard_pieces(s, &n);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < PARTS && p[i].host == rd_shard_host(s); k++) {
            const int64_t end = parts[k].from + parts[k].n,
                          lo = p[i].lo > parts[k].from ? p[i].lo : parts[k].from,
                          hi = p[i].hi < end ? p[i].hi : end;
            if (lo < hi) CHECK(memcmp(x + lo, want + lo, (size_t)(hi - lo) * sizeof *x) == 0);
        }
}

static void sums(rd_wire wire, rd_flow_mode mode)
{
    rd_status st = {0};
    rd_flow *f;
    float *x, *want = malloc(SPAN * sizeof *want);
    CHECK(want && rd_comm_arena_new(comm, SPAN, &x, NULL, &st) == RD_OK);
    rd_shard *s = divided(wire);
    CHECK((s != NULL) == (world->n_hosts > 1 || (world->size > 1 && getenv("RD_COMM_SHARED"))));
    if (s) check_pieces(s);
    for (uint32_t round = 0; s && round < 2; round++) {
        fill_random(x, SPAN, 77u * round + (uint32_t)world->rank);
        CHECK(rd_flow_new(comm, x, parts, PARTS, wire, mode, &f, &st) == RD_OK);
        CHECK(rd_flow_finish(f, &st) == RD_OK);
        memcpy(want, x, SPAN * sizeof *x);
        const double whole = (double)rd_flow_last(f)->wire_bytes;
        rd_flow_free(f);
        CHECK(rd_comm_barrier(comm, &st) == RD_OK);
        fill_random(x, SPAN, 77u * round + (uint32_t)world->rank);
        CHECK(rd_shard_flow(s, x, mode, &f, &st) == RD_OK);
        for (int i = 1; i <= PARTS; i++) {
            rd_flow_ready(f, i);
            rd_flow_poll(f);
        }
        CHECK(rd_flow_finish(f, &st) == RD_OK);
        double sent[2] = {whole, (double)rd_flow_last(f)->wire_bytes};
        rd_flow_free(f);
        if (wire == RD_WIRE_F32 || world->n_hosts > 1) check_own(s, x, want);
        CHECK(rd_comm_sum_f64(comm, sent, 2, &st) == RD_OK);
        CHECK(world->n_hosts == 1 || fabs(2.0 * sent[1] - sent[0]) < 1e-3 * sent[0]);
        CHECK(rd_shard_collect_parts(s, x, &st) == RD_OK && rd_comm_barrier(comm, &st) == RD_OK);
        for (int i = 0; i < PARTS && (wire == RD_WIRE_F32 || world->n_hosts > 1); i++)
            CHECK(memcmp(x + parts[i].from, want + parts[i].from, (size_t)parts[i].n * sizeof *x) ==
                  0);
        CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    }
    free(want);
    rd_shard_free(s);
    rd_comm_arena_free(comm);
}

static void test_sums(void **state)
{
    (void)state;
    sums(RD_WIRE_F32, RD_FLOW_THREAD);
    sums(RD_WIRE_F32, RD_FLOW_LATE);
    sums(RD_WIRE_BF16, RD_FLOW_CALLS);
    sums(RD_WIRE_F16, RD_FLOW_CORE);
}

static float *lent(void *ctx, int k)
{
    return (float *)ctx + (int64_t)k * KEPT;
}

/* Weights, values of blocks, and state travel to all hosts and to rank 0. */
static void test_collect(void **state)
{
    (void)state;
    enum { BLOCKS = 1000 };
    rd_status st = {0};
    float *arena;
    CHECK(rd_comm_arena_new(comm, SPAN, &arena, NULL, &st) == RD_OK);
    rd_shard *s = divided(RD_WIRE_F32);
    if (!s) goto done;
    int64_t n;
    const rd_shard_piece *p = rd_shard_pieces(s, &n);
    float *x = host_array(s, SPAN * sizeof *x), *want = malloc(SPAN * sizeof *want),
          *slot = calloc(2 * KEPT, sizeof *slot), *got = malloc(RD_SHARD_FETCH * sizeof *got);
    double *d = host_array(s, BLOCKS * sizeof *d);
    int host_of[BLOCKS];
    CHECK(want && slot && got);
    fill_random(want, SPAN, 5);
    for (int64_t i = 0; i < n && writes(s); i++)
        if (p[i].host == rd_shard_host(s))
            memcpy(x + p[i].lo, want + p[i].lo, (size_t)(p[i].hi - p[i].lo) * sizeof *x);
    for (int i = 0; i < BLOCKS; i++) host_of[i] = i * i % rd_shard_n_hosts(s);
    for (int i = 0; i < BLOCKS && writes(s); i++)
        d[i] = host_of[i] == rd_shard_host(s) ? 1.0 / (i + 1) : NAN;
    const int64_t before = rd_shard_sent(s);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    CHECK(rd_shard_collect(s, x, &st) == RD_OK);
    double sent = (double)(rd_shard_sent(s) - before);
    CHECK(rd_shard_collect_f64(s, d, host_of, BLOCKS, &st) == RD_OK);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    CHECK(memcmp(x, want, SPAN * sizeof *x) == 0);
    for (int i = 0; i < BLOCKS; i++) CHECK(d[i] == 1.0 / (i + 1));
    CHECK(rd_comm_sum_f64(comm, &sent, 1, &st) == RD_OK);
    CHECK(sent == 4.0 * SPAN * (rd_shard_n_hosts(s) - 1)); /* (1 - 1/h) of it from each of h */

    /* Slot 1 has other values than slot 0. */
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = p[i].lo; k < p[i].hi && k < KEPT && p[i].host == rd_shard_host(s); k++) {
            slot[p[i].at + k - p[i].lo] = want[k];
            slot[KEPT + p[i].at + k - p[i].lo] = -want[k];
        }
    if (world->rank == 0) {
        uint32_t seed = 3;
        for (int i = 0; i < 50; i++) {
            const int64_t lo = next(&seed) % KEPT, left = KEPT - lo,
                          m = i % 5 == 0 || left < 9000 ? left : next(&seed) % 9000;
            const int k = i % 2;
            CHECK(rd_shard_fetch(s, k, lo, m, lent(slot, k), got, &st) == RD_OK);
            for (int64_t j = 0; j < m; j++) CHECK(got[j] == (k ? -want[lo + j] : want[lo + j]));
        }
        rd_status own = {0};
        CHECK(rd_shard_fetch(s, 0, KEPT - 1, 2, slot, got, &own) == RD_EBUG);
        CHECK(rd_shard_fetched(s, &st) == RD_OK);
    } else {
        rd_status own = {0};
        CHECK(rd_shard_fetch(s, 0, 0, 2, slot, got, &own) == RD_EBUG);
        CHECK(rd_shard_serve(s, lent, slot, &st) == RD_OK);
    }
    free(got);
    free(slot);
    free(want);
    host_array_free(s, d, BLOCKS * sizeof *d);
    host_array_free(s, x, SPAN * sizeof *x);
done:
    rd_shard_free(s);
    rd_comm_arena_free(comm);
}

/* ---- the optimizer ---- */

typedef struct fixture {
    rd_params *p;
    rd_optim *o;
    rd_shard *s;
    double norm[8];
} fixture;

/* Each rank alone, or divided. */
static void setup(fixture *f, const rd_optim_config *config, int n_threads, bool sharded)
{
    rd_status st = {0};
    char why[200] = "";
    int64_t *cut, n_cuts;
    float *g;
    rd_optim_config c = *config;
    *f = (fixture){0};
    c.sharded = sharded;
    f->p = odd_params_new();
    if (gpu) CHECK(rd_params_use_gpu(f->p, gpu, &st) == RD_OK);
    CHECK(rd_optim_new(&c, f->p, n_threads, &f->o, &st) == RD_OK);
    if (!sharded) return;
    const int64_t span = rd_params_grad_span(f->p);
    if (!gpu) {
        CHECK(rd_comm_arena_new(comm, span, &g, NULL, &st) == RD_OK);
        rd_params_use_grads(f->p, g);
    }
    CHECK(rd_optim_cuts(f->o, &cut, &n_cuts, &st) == RD_OK && n_cuts > 10);
    const rd_flow_part all = {.from = 0, .n = span};
    const rd_shard_plan plan = {.part = &all,
                                .n_parts = 1,
                                .cut = cut,
                                .n_cuts = n_cuts,
                                .span = span,
                                .kept = rd_params_trained_span(f->p),
                                .stripe = gpu ? 50000 : 0};
    CHECK(rd_shard_new(comm, &plan, &f->s, &st) == RD_OK);
    free(cut);
    CHECK(rd_optim_shard(f->o, comm, f->s, why, &st) == RD_OK);
    CHECK(rd_optim_shard_of(f->o) == f->s);
}

static void teardown(fixture *f)
{
    rd_optim_free(f->o);
    rd_params_free(f->p);
    if (f->s) rd_shard_free(f->s);
}

static rd_optim_stats step(fixture *f, int64_t t, float odd)
{
    rd_status st = {0};
    rd_optim_stats s = {
        .param_norm = f->norm, .want_l2 = true, .want_grads = t == 3, .zero_grads = t != 3};
    float *g = rd_params_grads(f->p);
    for (int i = 0; i < rd_params_n(f->p); i++) {
        const rd_param *q = rd_params_at(f->p, i);
        if (q->flags & RD_PARAM_FROZEN) continue;
        fill_random(g + q->offset, q->n, (uint32_t)(t * 31 + i));
        for (int64_t k = 0; k < q->n && (q->flags & RD_PARAM_ROWS); k++)
            if ((k / q->dim[1] + t) % 3 == 0) g[q->offset + k] = 0.0f; /* rows without gradient */
    }
    if (odd != 0.0f) g[rd_params_at(f->p, 0)->offset + 77] = odd;
    rd_params_touch_grads(f->p);
    CHECK(rd_optim_step(f->o, t, 0.01, 0.7, &s, &st) == RD_OK);
    if (!gpu || !f->s || !s.finite) return s;
    CHECK(rd_params_sync_to_host(f->p, RD_VALUES, &st) == RD_OK);
    CHECK(rd_shard_collect(f->s, rd_params_values(f->p), &st) == RD_OK);
    rd_params_updated(f->p);
    CHECK(rd_optim_guard(f->o, &st) == RD_OK);
    return s;
}

/* Brings what GPUs have changed to the hosts. */
static void bring(const fixture *f)
{
    rd_status st = {0};
    CHECK(rd_params_sync_to_host(f->p, RD_VALUES | RD_GRADS | RD_SLOTS, &st) == RD_OK);
}

/* Checks that b has the values of a, and this host's part of its slots. */
static void check_same(const fixture *a, const fixture *b)
{
    rd_status st = {0};
    int64_t n = 0;
    const int64_t trained = rd_params_trained_span(a->p);
    bring(a);
    bring(b);
    CHECK(memcmp(rd_params_values(a->p), rd_params_values(b->p),
                 (size_t)rd_params_span(a->p) * 4) == 0);
    CHECK(rd_params_n_slots(a->p) == rd_params_n_slots(b->p));
    const rd_shard_piece *p = b->s ? rd_shard_pieces(b->s, &n) : NULL;
    for (int k = 0; k < rd_params_n_slots(a->p); k++) {
        const float *x = rd_params_slot(a->p, k), *y = rd_params_slot(b->p, k);
        if (!b->s) CHECK(memcmp(x, y, (size_t)trained * 4) == 0);
        for (int64_t i = 0; i < n && p[i].lo < trained; i++) {
            const int64_t hi = p[i].hi < trained ? p[i].hi : trained;
            if (p[i].host == rd_shard_host(b->s))
                CHECK(memcmp(x + p[i].lo, y + p[i].at, (size_t)(hi - p[i].lo) * 4) == 0);
        }
    }
}

/* One weight of one rank changes in the memory of its GPU. The next update finds that. */
static void flip(fixture *f)
{
    rd_status st = {0};
    uint64_t sums[ODD_PARAMS];
    int damaged;
    const float other = 12345.0f;
    const bool here = world->rank == world->size - 1;
    const rd_param *p = rd_params_at(f->p, 1);
    if (here)
        CHECK(rd_gpu_upload(gpu, rd_params_device_values(f->p) + p->offset + 1, &other,
                            sizeof other, &st) == RD_OK);
    (void)step(f, 6, 0.0f);
    CHECK(rd_optim_checksums(f->o, sums, &damaged, &st) == RD_OK);
    CHECK(damaged == (here ? 1 : -1));
}

static void one_case(const char *optimizer, double clip, double lars_nu, double decay,
                     int n_threads)
{
    rd_status st = {0};
    rd_optim_config c = optim_defaults;
    fixture a, b;
    uint64_t x[ODD_PARAMS], y[ODD_PARAMS];
    int damaged;
    c.optimizer = optimizer;
    c.max_grad_norm = clip;
    c.has_max_grad_norm = clip > 0.0;
    c.lars_nu = lars_nu;
    c.has_lars_nu = lars_nu > 0.0;
    c.weight_decay = decay;
    c.ema = n_threads == 1 ? 0.9 : 0.0;
    setup(&a, &c, 1, false);
    setup(&b, &c, n_threads, true);
    check_same(&a, &b);
    for (int64_t t = 1; t <= 4; t++) {
        const float odd = t == 2 ? INFINITY : 0.0f; /* this step is skipped */
        const rd_optim_stats s = step(&a, t, odd), r = step(&b, t, odd);
        CHECK(s.finite == (t != 2) && r.finite == s.finite);
        CHECK(t == 2 || (s.grad_norm == r.grad_norm && s.clipped_norm == r.clipped_norm));
        CHECK(t == 2 || s.l2 == r.l2);
        CHECK(t == 2 || memcmp(a.norm, b.norm, sizeof a.norm) == 0);
        bring(&a);
        bring(&b);
        if (t == 3 || (gpu && t != 2)) /* all are scaled and clipped, or zero */
            CHECK(memcmp(rd_params_grads(a.p), rd_params_grads(b.p),
                         (size_t)rd_params_grad_span(a.p) * 4) == 0);
        check_same(&a, &b);
    }
    CHECK(rd_optim_checksums(a.o, x, &damaged, &st) == RD_OK && damaged < 0);
    CHECK(rd_optim_checksums(b.o, y, &damaged, &st) == RD_OK && damaged < 0);
    for (int i = 0; i < ODD_PARAMS; i++) /* of a host's copy of frozen values, one rank counts */
        CHECK(x[i] == y[i] || (i == ODD_FROZEN && world->local_rank > 0));
    for (int i = 0; i < 2; i++) { /* to the averages and back */
        CHECK(rd_optim_swap_ema(a.o, &st) == RD_OK && rd_optim_swap_ema(b.o, &st) == RD_OK);
        check_same(&a, &b);
    }
    (void)step(&a, 5, 0.0f);
    (void)step(&b, 5, 0.0f);
    check_same(&a, &b);
    CHECK(rd_optim_checksums(b.o, y, &damaged, &st) == RD_OK && damaged < 0);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    if (gpu && b.s) flip(&b);
    teardown(&a);
    teardown(&b);
    rd_comm_arena_free(comm);
}

static void test_update(void **state)
{
    (void)state;
    one_case("adam", 1.0, 0.0, 0.0, 1);
    one_case("adamw", 0.0, 0.0, 0.1, 2);
    one_case("momentum", 0.0, 0.01, 0.0, 1);
    one_case("adagrad", 3.0, 0.0, 0.01, 1);
    one_case("lars", 0.0, 0.0, 0.001, 2);
    one_case("sgd", 0.0, 0.0, 0.0, 1);
}

/* Each host keeps its part of the slots, and of all hosts one keeps each element. */
static void test_kept(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_optim_config c = optim_defaults;
    fixture f;
    c.optimizer = "adam";
    setup(&f, &c, 1, true);
    double kept = rd_optim_kept(f.o) /
                  (f.s && rd_shard_shares(f.s) ? (double)world->local_size : 1.0);
    if (!f.s) kept = (double)rd_optim_kept(f.o) / world->size;
    CHECK(rd_comm_sum_f64(comm, &kept, 1, &st) == RD_OK);
    CHECK(fabs(kept - (double)rd_params_trained_span(f.p)) < 0.5);
    /* rd_optim_put_slot writes what the host keeps, and nothing else */
    const int64_t n = rd_params_trained_span(f.p);
    float *x = malloc((size_t)n * sizeof *x);
    CHECK(x);
    fill_random(x, n, 9);
    for (int64_t at = 0; at < n; at += 10007)
        rd_optim_put_slot(f.o, 1, at, n - at < 10007 ? n - at : 10007, x + at);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    int64_t n_pieces = 0;
    const rd_shard_piece *p = f.s ? rd_shard_pieces(f.s, &n_pieces) : NULL;
    for (int64_t i = 0; i < n_pieces && p[i].lo < n; i++)
        if (p[i].host == rd_shard_host(f.s))
            CHECK(memcmp(rd_params_slot(f.p, 1) + p[i].at, x + p[i].lo,
                         (size_t)((p[i].hi < n ? p[i].hi : n) - p[i].lo) * 4) == 0);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    free(x);
    teardown(&f);
    rd_comm_arena_free(comm);
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    CHECK(rd_comm_start(&argc, &argv, &comm, &st) == RD_OK);
    world = rd_comm_world(comm);
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1; /* rank 0 alone prints the closing lines */
    printf("%d ranks on %d hosts\n", world->size, world->n_hosts);
    if (getenv("RD_TEST_GPU")) CHECK(rd_gpu_new(0, &(rd_gpu_options){0}, &gpu, &st) == RD_OK);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_update), cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_sums), cmocka_unit_test(test_collect)};
    const int failures = gpu ? _cmocka_run_group_tests("shard", tests, 2, NULL, NULL)
                             : cmocka_run_group_tests_name("shard", tests, NULL, NULL);
    rd_gpu_free(gpu);
    rd_comm_free(comm);
    return failures != 0;
}
