/* update.c -- tests weights and optimizer state that the ranks of a host share, each updating
 * its part.
 *
 * Bytes, norms and gradients are those of a rank that updates everything alone. The host keeps
 * one copy. A bit that flips in the copy is found. tests/mpi/update.sh runs it with 1 to 4
 * ranks, with and without shared memory. */
#include "test.h"
#include "optim_defaults.h"
#include "odd_params.h"
#include "rd/optim.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    rd_optim_config c;
    rd_params *p;
    rd_optim *o;
    double *param_norm;
} fixture;

static uint32_t next(uint32_t *s)
{
    return *s = *s * 1664525u + 1013904223u;
}

/* The same on all ranks. Every third row of the tables is zero. */
static void fill(const fixture *f, float *x, uint32_t seed, bool zero_rows)
{
    for (int i = 0; i < rd_params_n(f->p); i++) {
        const rd_param *q = rd_params_at(f->p, i);
        uint32_t s = seed + (uint32_t)i * 7919u;
        if (q->flags & RD_PARAM_FROZEN) continue;
        for (int64_t k = 0; k < q->n; k++) {
            const float v = (float)(next(&s) >> 8) / 8388608.0f - 1.0f;
            const bool none = zero_rows && (q->flags & RD_PARAM_ROWS) &&
                              (k / q->dim[1] + seed) % 3 == 0;
            x[q->offset + k] = none ? 0.0f : v;
        }
    }
}

static void setup(fixture *f, const rd_optim_config *c, int n_threads, bool shared)
{
    rd_status st = {0};
    char why[200] = "";
    *f = (fixture){.c = *c};
    f->p = odd_params_new();
    CHECK(rd_optim_new(&f->c, f->p, n_threads, &f->o, &st) == RD_OK);
    f->param_norm = calloc((size_t)rd_params_n(f->p), sizeof *f->param_norm);
    CHECK(f->param_norm);
    if (!shared) return;
    CHECK(rd_optim_share(f->o, comm, why, &st) == RD_OK);
    const char *env = getenv("RD_COMM_SHARED");
    const bool off = env && env[0] == '0';
    CHECK(rd_optim_is_shared(f->o) == (world->local_size > 1 && !off));
    CHECK((why[0] != '\0') == (world->local_size > 1 && off));
}

static void teardown(fixture *f)
{
    rd_optim_free(f->o);
    rd_params_free(f->p);
    free(f->param_norm);
}

static void check_same(const fixture *a, const fixture *b)
{
    rd_status st = {0};
    const size_t bytes = (size_t)rd_params_span(a->p) * 4,
                 trained = (size_t)rd_params_trained_span(a->p) * 4;
    CHECK(memcmp(rd_params_values(a->p), rd_params_values(b->p), bytes) == 0);
    for (int k = 0; k < rd_params_n_slots(a->p); k++)
        CHECK(memcmp(rd_params_slot(a->p, k), rd_params_slot(b->p, k), trained) == 0);
}

static rd_optim_stats step(fixture *f, int64_t t, uint32_t seed, bool all, float odd)
{
    rd_status st = {0};
    rd_optim_stats s = {.param_norm = f->param_norm, .want_l2 = true, .want_grads = all};
    float *g = rd_params_grads(f->p);
    fill(f, g, seed, true);
    if (odd != 0.0f) g[rd_params_at(f->p, 0)->offset + 77] = odd;
    CHECK(rd_optim_step(f->o, t, 0.01, 0.7, &s, &st) == RD_OK);
    return s;
}

/* The lowest parameter that a rank has found damaged. */
static int found(fixture *f)
{
    rd_status st = {0};
    uint64_t sums[8];
    int damaged = -1;
    CHECK(rd_optim_checksums(f->o, sums, &damaged, &st) == RD_OK);
    double lowest = damaged < 0 ? 1e9 : damaged;
    CHECK(rd_comm_min_f64(comm, &lowest, 1, &st) == RD_OK);
    return lowest < 1e9 ? (int)lowest : -1;
}

static void flip(const fixture *f, int param, int64_t at)
{
    uint32_t bits;
    float *w = rd_params_values(f->p) + rd_params_at(f->p, param)->offset + at;
    memcpy(&bits, w, sizeof bits);
    bits ^= 1u << 3;
    memcpy(w, &bits, sizeof bits);
}

static void one_case(const char *optimizer, double clip, double lars_nu, double decay,
                     int n_threads)
{
    rd_status st = {0};
    rd_optim_config c = optim_defaults;
    fixture a, b;
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
    int64_t t = 1;
    for (uint32_t i = 1; i <= 4; i++) {
        /* The third is skipped. Rank 0 wants all gradients, but not always. */
        const float odd = i == 3 ? INFINITY : 0.0f;
        const bool all = world->rank == 0 && i != 2;
        const rd_optim_stats s = step(&a, t, i, all, odd), u = step(&b, t, i, all, odd);
        CHECK(s.finite == (i != 3) && u.finite == s.finite);
        CHECK(memcmp(&u.grad_norm, &s.grad_norm, 8) == 0 &&
              memcmp(&u.clipped_norm, &s.clipped_norm, 8) == 0);
        CHECK(memcmp(&u.l2, &s.l2, 8) == 0 && u.grad_norm == rd_optim_norm(b.o));
        if (i != 3) CHECK(memcmp(a.param_norm, b.param_norm, (size_t)rd_params_n(a.p) * 8) == 0);
        if (all)
            CHECK(memcmp(rd_params_grads(a.p), rd_params_grads(b.p),
                         (size_t)rd_params_grad_span(a.p) * 4) == 0);
        check_same(&a, &b);
        t += s.finite;
    }
    uint64_t of_a[8], of_b[8];
    int damaged_a = 0, damaged_b = 0;
    CHECK(rd_optim_checksums(a.o, of_a, &damaged_a, &st) == RD_OK && damaged_a == -1);
    CHECK(rd_optim_checksums(b.o, of_b, &damaged_b, &st) == RD_OK && damaged_b == -1);
    for (int i = 0; i < rd_params_n(a.p); i++)
        CHECK(of_a[i] == of_b[i] || (i == ODD_FROZEN && world->local_rank > 0));
    for (int i = 0; i < 2; i++) { /* weights and their averages change places, and back */
        CHECK(rd_optim_swap_ema(a.o, &st) == RD_OK && rd_optim_swap_ema(b.o, &st) == RD_OK);
        check_same(&a, &b);
    }
    /* The checksums that guard the weights still hold: a change since the last update is found. */
    const bool flips = world->host_index == 0 && rd_optim_is_shared(b.o);
    double any = flips;
    CHECK(rd_comm_max_f64(comm, &any, 1, &st) == RD_OK);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    if (flips && world->local_rank == 0) flip(&b, 0, 0);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    CHECK(found(&b) == (any > 0.0 ? 0 : -1));
    teardown(&a);
    teardown(&b);
}

static void test_same_bytes(void **state)
{
    (void)state;
    int n = 0;
    const rd_optimizer_def *const *defs = rd_optimizer_defs(&n);
    for (int i = 0; i < n; i++) one_case(defs[i]->name, 0.0, 0.0, i % 2 ? 1e-3 : 0.0, 1 + i % 2);
    one_case("lars", 0.0, 0.0, 1e-3, 1);
    one_case("momentum", 1.5, 0.0, 1e-3, 1);
    one_case("adam", 1.5, 0.0, 0.0, 2);
    one_case("adamw", 1.5, 0.0, 0.1, 2);
    one_case("adagrad", 0.0, 0.02, 0.0, 1);
}

static void test_flipped_bit(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_optim_config c = optim_defaults;
    c.optimizer = "adam";
    const struct {
        int param;
        int64_t at;
        bool step; /* an update comes between */
    } cases[] = {
        {0, 0, false}, {0, 45506, true},  {1, 12345, true},       {4, 1234, true},
        {6, 0, true},  {7, 19199, false}, {ODD_FROZEN, 0, false}, {ODD_FROZEN, 43128, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        setup(&f, &c, 1, true);
        double shared = world->host_index == 0 &&
                        rd_optim_is_shared(f.o); /* of the host where the bit flips */
        CHECK(rd_comm_max_f64(comm, &shared, 1, &st) == RD_OK);
        (void)step(&f, 1, 1, false, 0.0f);
        CHECK(found(&f) == -1);
        (void)step(&f, 2, 2, false, 0.0f);
        CHECK(rd_comm_barrier(comm, &st) == RD_OK);
        if (world->host_index == 0 && world->local_rank == world->local_size - 1)
            flip(&f, cases[i].param, cases[i].at);
        CHECK(rd_comm_barrier(comm, &st) == RD_OK);
        if (cases[i].step) (void)step(&f, 3, 3, false, 0.0f);
        CHECK(found(&f) == (shared > 0.0 || cases[i].param == ODD_FROZEN ? cases[i].param : -1));
        teardown(&f);
    }
    /* Values that were written on purpose are no damage. */
    fixture f;
    setup(&f, &c, 1, true);
    (void)step(&f, 1, 1, false, 0.0f);
    if (world->local_rank == 0) fill(&f, rd_params_values(f.p), 99, false);
    CHECK(rd_comm_local_barrier(comm, &st) == RD_OK);
    rd_params_touch(f.p);
    (void)step(&f, 2, 2, false, 0.0f);
    CHECK(found(&f) == -1);
    teardown(&f);
}

/* Returns the bytes that count for this process: shared memory counts in proportion. 0: the system
 * does not report them. */
static double own_bytes(void)
{
    char line[256];
    double kb = 0.0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %lf", &kb) == 1) break;
    if (f) fclose(f);
    return kb * 1024.0;
}

/* Of all ranks, of a model of n weights with adam after a step. */
static double memory(bool shared, int64_t n)
{
    rd_status st = {0};
    rd_params *p;
    rd_param *q;
    rd_optim *o;
    rd_optim_config c = optim_defaults;
    rd_optim_stats s = {0};
    char why[200];
    c.optimizer = "adam";
    double before = own_bytes();
    CHECK(rd_params_new(&p, &st) == RD_OK);
    CHECK(rd_params_add(p, "w", 1, &n, (rd_init){.kind = RD_INIT_CONST, .value = 0.5}, 0, &q,
                        &st) == RD_OK);
    CHECK(rd_params_seal(p, 7, NAN, &st) == RD_OK && rd_optim_new(&c, p, 1, &o, &st) == RD_OK);
    if (shared) CHECK(rd_optim_share(o, comm, why, &st) == RD_OK);
    for (int64_t i = 0; i < n; i++) rd_params_grads(p)[i] = 1.0f;
    CHECK(rd_optim_step(o, 1, 0.1, 1.0, &s, &st) == RD_OK);
    /* every rank reads all of the values, as a forward pass does */
    CHECK(rd_params_values(p)[n - 1] < 0.5f);
    for (int64_t i = 0; i < n; i += 64) CHECK(rd_params_values(p)[i] == rd_params_values(p)[n - 1]);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK);
    double after = before > 0.0 ? own_bytes() - before : 0.0;
    CHECK(rd_comm_sum_f64(comm, &after, 1, &st) == RD_OK && rd_comm_barrier(comm, &st) == RD_OK);
    rd_optim_free(o);
    rd_params_free(p);
    return before > 0.0 ? after : 0.0;
}

static void test_memory(void **state)
{
    (void)state;
    rd_status st = {0};
    const int64_t n = 1 << 21;
    const double mib = 1048576.0, array = (double)n * 4.0 / mib, k = world->size;
    const double alone = memory(false, n) / mib, together = memory(true, n) / mib;
    const char *env = getenv("RD_COMM_SHARED");
    if (world->rank == 0 && alone > 0.0)
        printf("memory of %d ranks, %.0f MiB of weights, adam: %.1f MiB each for itself, %.1f MiB "
               "shared\n",
               world->size, array, alone, together);
    if (alone <= 0.0 || world->n_hosts > 1 || world->size == 1 || (env && env[0] == '0')) return;
    CHECK(alone >=
          (4.0 * array - 2.0) * k -
              1.0); /* memory of before, used again, and libraries that more ranks now share */
    CHECK(together <=
          array * k + 3.0 * array + 2.0 + k); /* gradients of each; values and two slots once */
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    CHECK(rd_comm_start(&argc, &argv, &comm, &st) == RD_OK);
    world = rd_comm_world(comm);
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1; /* rank 0 alone prints the closing lines */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bytes),
                                       cmocka_unit_test(test_flipped_bit),
                                       cmocka_unit_test(test_memory)};
    const int failures = cmocka_run_group_tests_name("update", tests, NULL, NULL);
    rd_comm_free(comm);
    return failures != 0;
}
