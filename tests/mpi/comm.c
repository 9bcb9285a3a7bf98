/* comm.c -- tests every collective of comm.h on N ranks against what one rank computes alone.
 *
 * tests/mpi/comm.sh runs it with 1 to 4 ranks, with and without shared memory. The summed
 * numbers are integers that float holds exactly, so the bound is zero. The order of sums is
 * tested with numbers that float does not hold exactly. */
#include "test.h"
#include "rank_check.h"
#include "../../runner/comm/host_arena.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int value(int rank, int64_t i)
{
    return (int)((i * 7 + rank * 13) % 101) - 50;
}

/* Borders of 1 MiB pieces: 262144 floats, 131072 doubles. 1024 floats are the last size without
 * slices. */
static const int64_t sizes[] = {0,    1,      5,      17,     1000,   1024,
                                1025, 131073, 262144, 262145, 300001, 600000};
enum { N_SIZES = sizeof sizes / sizeof *sizes, LARGEST = 600000 };

static void test_world(void **state)
{
    (void)state;
    rd_status st = {0};
    CHECK(world->rank >= 0 && world->rank < world->size);
    CHECK(world->local_rank >= 0 && world->local_rank < world->local_size &&
          world->local_size <= world->size);
    CHECK(world->host_index >= 0 && world->host_index < world->n_hosts);
    CHECK(world->n_cpus >= 1 && world->host[0] != '\0');
    int64_t sums[2] = {world->local_rank == 0, 1};
    CHECK(rd_comm_sum_i64(comm, sums, 2, &st) == RD_OK);
    CHECK(sums[0] == world->n_hosts && sums[1] == world->size);
    if (world->size > 1)
        CHECK(strcmp(world->comm, "mpi") == 0 && strncmp(world->library, "Open MPI ", 9) == 0);
    CHECK(rd_comm_note(comm)[0] != '\0');
    if (world->rank == 0) printf("%s\n", rd_comm_note(comm));
}

static void test_sums(void **state)
{
    (void)state;
    rd_status st = {0};
    float *f = malloc(LARGEST * sizeof *f);
    double *d = malloc(LARGEST * sizeof *d);
    int64_t *k = malloc(LARGEST * sizeof *k);
    CHECK(f && d && k);
    for (int s = 0; s < N_SIZES; s++) {
        for (int64_t i = 0; i < sizes[s]; i++) {
            k[i] = value(world->rank, i);
            f[i] = (float)k[i];
            d[i] = (double)k[i];
        }
        CHECK(rd_comm_sum_f32(comm, f, sizes[s], &st) == RD_OK);
        CHECK(rd_comm_sum_f64(comm, d, sizes[s], &st) == RD_OK);
        CHECK(rd_comm_sum_i64(comm, k, sizes[s], &st) == RD_OK);
        for (int64_t i = 0; i < sizes[s]; i++) {
            int want = 0;
            for (int r = 0; r < world->size; r++) want += value(r, i);
            CHECK(f[i] == (float)want && d[i] == (double)want && k[i] == want);
        }
    }
    free(f);
    free(d);
    free(k);
}

static void test_max_min(void **state)
{
    (void)state;
    rd_status st = {0};
    double hi[3], lo[3];
    for (int i = 0; i < 3; i++) hi[i] = lo[i] = i == 1 ? -world->rank : world->rank + 0.5;
    CHECK(rd_comm_max_f64(comm, hi, 3, &st) == RD_OK && rd_comm_min_f64(comm, lo, 3, &st) == RD_OK);
    CHECK(hi[0] == world->size - 0.5 && hi[1] == 0.0 && lo[0] == 0.5 && lo[1] == 1.0 - world->size);
}

/* Numbers whose sum depends on the order. */
static float uneven(int rank, int64_t i)
{
    return (float)((i * 2654435761u + (unsigned)rank * 40503u) % 100003) * 1.7e-3f;
}

/* Ranks [lo, hi) along the tree that host_sum.c speaks of. */
static float tree_sum(int lo, int hi, int64_t i)
{
    int half = 1;
    if (hi - lo == 1) return uneven(lo, i);
    while (2 * half < hi - lo) half *= 2;
    const float left = tree_sum(lo, lo + half, i), right = tree_sum(lo + half, hi, i);
    return left + right;
}

/* The same, which float does not hold. */
static double fine(int rank, int64_t i)
{
    return uneven(rank, i) * 1.1;
}

static double tree_sum_f64(int lo, int hi, int64_t i)
{
    int half = 1;
    if (hi - lo == 1) return fine(lo, i);
    while (2 * half < hi - lo) half *= 2;
    return tree_sum_f64(lo, lo + half, i) + tree_sum_f64(lo + half, hi, i);
}

static void test_same_bytes(void **state)
{
    (void)state;
    rd_status st = {0};
    const int64_t n = 300001;
    const size_t bytes = (size_t)n * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    CHECK(a && b);
    for (int64_t i = 0; i < n; i++) a[i] = b[i] = uneven(world->rank, i);
    CHECK(rd_comm_sum_f32(comm, a, n, &st) == RD_OK);
    CHECK(rd_comm_sum_f32(comm, b, n, &st) == RD_OK);
    CHECK(memcmp(a, b, bytes) == 0);
    for (int64_t i = 0; world->n_hosts == 1 && i < n; i++)
        CHECK(a[i] == tree_sum(0, world->size, i));
    CHECK(rd_comm_bcast(comm, b, (int64_t)bytes, world->size - 1, &st) == RD_OK);
    CHECK(memcmp(a, b, bytes) == 0);
    free(a);
    free(b);
    double *d = malloc((size_t)n * sizeof *d);
    CHECK(d);
    for (int64_t m = 1; m <= n; m += 100000) {
        for (int64_t i = 0; i < m; i++) d[i] = fine(world->rank, i);
        CHECK(rd_comm_sum_f64(comm, d, m, &st) == RD_OK);
        for (int64_t i = 0; world->n_hosts == 1 && i < m; i++)
            CHECK(d[i] == tree_sum_f64(0, world->size, i));
    }
    free(d);
}

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)value(world->rank, i);
}

static bool is_sum(const float *x, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        int want = 0;
        for (int r = 0; r < world->size; r++) want += value(r, i);
        if (x[i] != (float)want) return false;
    }
    return true;
}

static bool is_own(const float *x, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        if (x[i] != (float)value(world->rank, i)) return false;
    return true;
}

/* Every rank a host of its own. */
static void test_cross(void **state)
{
    (void)state;
    rd_status st = {0};
    if (world->size < 2) skip();
    const int64_t n[] = {1, 2, 3, 5, 1000, 77777, RD_CROSS_FLOATS + 7};
    const size_t largest = RD_CROSS_FLOATS + 7;
    float *x = malloc(largest * sizeof *x);
    double *d = malloc(1000 * sizeof *d);
    rd_cross *c = NULL;
    CHECK(x && d && rd_cross_new(MPI_COMM_WORLD, &c, &st) == RD_OK);
    for (int s = 0; s < 7; s++) {
        fill(x, n[s]);
        CHECK(rd_cross_sum(c, x, n[s], &st) == RD_OK && is_sum(x, 0, n[s]));
        for (int64_t i = 0; i < n[s]; i++) x[i] = uneven(world->rank, i);
        CHECK(rd_cross_sum(c, x, n[s], &st) == RD_OK);
        for (int64_t i = 0; i < n[s]; i++) CHECK(x[i] == tree_sum(0, world->size, i));
    }
    for (int64_t i = 0; i < 1000; i++) d[i] = value(world->rank, i) + 0.25;
    CHECK(rd_cross_sum_f64(c, d, 1000, &st) == RD_OK);
    for (int64_t i = 0; i < 1000; i++) {
        double want = 0.25 * world->size;
        for (int q = 0; q < world->size; q++) want += value(q, i);
        CHECK(d[i] == want);
    }
    rd_cross_free(c);
    free(x);
    free(d);
}

/* Ranges of an arena: every size up to 5,000, and unaligned places. The bytes around a range do not
 * change. */
static void test_arena(void **state)
{
    (void)state;
    rd_status st = {0};
    float *x, *second;
    char why[200];
    const bool shared = strstr(rd_comm_note(comm), "shared memory") !=
                        NULL; /* the note changes with an arena */
    CHECK(rd_comm_arena_new(comm, LARGEST, &x, why, &st) == RD_OK && x);
    CHECK((uintptr_t)x % 64 == 0);
    CHECK((why[0] == '\0') == (world->size == 1 || shared));
    for (int64_t i = 0; i < LARGEST; i++) CHECK(x[i] == 0.0f);
    for (int64_t n = 1; n <= 5000; n += world->size > 2 ? 7 : 1) {
        const int64_t at = n * 37 % 1000;
        fill(x, at + n + 64);
        CHECK(rd_comm_sum_f32(comm, x + at, n, &st) == RD_OK);
        CHECK(is_own(x, 0, at) && is_sum(x, at, at + n) && is_own(x, at + n, at + n + 64));
    }
    for (int s = 0; s < N_SIZES; s++) {
        fill(x, LARGEST);
        CHECK(rd_comm_sum_f32(comm, x, sizes[s], &st) == RD_OK);
        CHECK(is_sum(x, 0, sizes[s]) && is_own(x, sizes[s], LARGEST));
    }
    for (int64_t i = 0; i < LARGEST; i++) x[i] = uneven(world->rank, i);
    CHECK(rd_comm_sum_f32(comm, x, LARGEST, &st) == RD_OK);
    for (int64_t i = 0; world->n_hosts == 1 && why[0] == '\0' && i < LARGEST; i++) {
        CHECK(x[i] == tree_sum(0, world->size, i));
    }
    CHECK(rd_comm_arena_new(comm, 1, &second, NULL, &st) == RD_EBUG && !second);
    st = (rd_status){0};
    rd_comm_arena_free(comm);
    CHECK(rd_comm_arena_new(comm, 0, &x, why, &st) == RD_OK && x);
    rd_comm_arena_free(comm);
    rd_comm_arena_free(comm);
}

/* One host has no memory for an arena: no host gets a shared arena, all ranks get the report, and
 * sums are right. A limit on the size of files also limits shared memory. */
static void test_no_room(void **state)
{
    (void)state;
    rd_status st = {0};
    const bool shared = strstr(rd_comm_note(comm), "shared") != NULL;
    const bool lacks = world->host_index == world->n_hosts - 1;
    double others = 0.0;
    struct rlimit before;
    float *x;
    char why[200];
    if (!shared) skip();
    for (int again = 0; again < 2; again++) {
        CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
        (void)signal(SIGXFSZ, SIG_IGN);
        if (!again && lacks)
            CHECK(setrlimit(RLIMIT_FSIZE,
                            &(struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max}) == 0);
        CHECK(rd_comm_arena_new(comm, LARGEST, &x, why, &st) == RD_OK && x);
        CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
        others = why[0] != '\0';
        if (!again && lacks && world->local_size > 1)
            CHECK(strstr(why, "cannot share") && strstr(why, "MiB"));
        CHECK(rd_comm_sum_f64(comm, &others, 1, &st) == RD_OK &&
              others == (again ? 0.0 : world->size));
        fill(x, LARGEST);
        CHECK(rd_comm_sum_f32(comm, x + 5, 70000, &st) == RD_OK);
        CHECK(is_own(x, 0, 5) && is_sum(x, 5, 70005) && is_own(x, 70005, LARGEST));
        rd_comm_arena_free(comm);
    }
}

/* tree: as many neighbours on each host, a power of two of them. */
static void test_arena_on_hosts(const int64_t n_floats, rd_host *w, MPI_Comm local, bool tree)
{
    rd_status st = {0};
    rd_host_arena *a = NULL;
    char why[200] = "";
    CHECK(rd_host_arena_new(w, MPI_COMM_WORLD, local, n_floats, &a, why, &st) == RD_OK && a);
    float *x = rd_host_arena_mine(a);
    CHECK(rd_host_arena_holds(a, x) && rd_host_arena_holds(a, x + n_floats - 1) &&
          !rd_host_arena_holds(a, x + n_floats));
    const int64_t at[][2] = {{0, n_floats}, {5, 1}, {1000, 1025}, {77, n_floats - 77}};
    for (int i = 0; i < 4; i++) {
        fill(x, n_floats);
        CHECK(rd_host_arena_sum(a, x + at[i][0], at[i][1], &st) == RD_OK);
        CHECK(is_own(x, 0, at[i][0]) && is_sum(x, at[i][0], at[i][0] + at[i][1]) &&
              is_own(x, at[i][0] + at[i][1], n_floats));
    }
    for (int64_t i = 0; i < n_floats; i++) x[i] = uneven(world->rank, i);
    CHECK(rd_host_arena_sum(a, x, n_floats, &st) == RD_OK);
    for (int64_t i = 0; tree && i < n_floats; i++) CHECK(x[i] == tree_sum(0, world->size, i));
    rd_host_arena_free(a);
}

/* Made-up hosts, by splitting the world: every way to place a job of this size on two or three
 * hosts. */
static void test_window_on_hosts(void **state)
{
    (void)state;
    rd_status st = {0};
    if (world->size < 2) skip();
    const int64_t n = 300001;
    float *x = malloc((size_t)n * sizeof *x);
    CHECK(x);
    for (int layout = 1; layout < 1 << (world->size - 1);
         layout++) { /* bit r: rank r + 1 is not on rank 0's host */
        const int host = world->rank > 0 ? layout >> (world->rank - 1) & 1 : 0;
        for (int three = 0; three < 2; three++) {
            const int color = three && host && world->rank == world->size - 1 ? 2 : host;
            MPI_Comm local;
            rd_host *w = NULL;
            char why[200] = "";
            MPI_Comm_split(MPI_COMM_WORLD, color, world->rank, &local);
            CHECK(rd_host_new(MPI_COMM_WORLD, local, true, &w, why, &st) == RD_OK);
            CHECK(w || why[0]);
            for (int s = 0; w && s < N_SIZES - 1; s++) {
                for (int64_t i = 0; i < sizes[s]; i++) x[i] = (float)value(world->rank, i);
                CHECK(rd_host_sum_f32(w, x, sizes[s], &st) == RD_OK);
                for (int64_t i = 0; i < sizes[s]; i++) {
                    int want = 0;
                    for (int r = 0; r < world->size; r++) want += value(r, i);
                    CHECK(x[i] == (float)want);
                }
            }
            const bool halves = layout == (world->size == 2 ? 1 : 6) && !three &&
                                world->size % 2 == 0;
            if (w) test_arena_on_hosts(n, w, local, halves);
            rd_host_free(w);
            MPI_Comm_free(&local);
        }
    }
    free(x);
}

static void test_bcast(void **state)
{
    (void)state;
    rd_status st = {0};
    char p[5000];
    for (int root = 0; root < world->size; root++) {
        memset(p, world->rank + 1, sizeof p);
        CHECK(rd_comm_bcast(comm, p, sizeof p, root, &st) == RD_OK);
        CHECK(p[0] == root + 1 && p[4999] == root + 1);
        CHECK(rd_comm_bcast(comm, NULL, 0, root, &st) == RD_OK);
    }
    memset(p, world->host_index + 1, sizeof p);
    CHECK(rd_comm_local_bcast(comm, p, sizeof p, world->local_size - 1, &st) == RD_OK);
    CHECK(p[17] == world->host_index + 1);
    CHECK(rd_comm_barrier(comm, &st) == RD_OK && rd_comm_local_barrier(comm, &st) == RD_OK);
}

static void test_gather(void **state)
{
    (void)state;
    rd_status st = {0};
    char mine[64], *all = NULL, want[1024] = "";
    int64_t *lens = NULL;
    for (int r = 0; r < world->size; r++)
        for (int i = 0; i < r * 3; i++)
            strcat(want, (char[]){(char)('a' + r), '\0'}); /* rank 0 gives nothing */
    memset(mine, 'a' + world->rank, sizeof mine);
    CHECK(rd_comm_gather(comm, mine, world->rank * 3, &all, &lens, &st) == RD_OK);
    if (world->rank == 0) {
        CHECK(strcmp(all, want) == 0);
        for (int r = 0; r < world->size; r++) CHECK(lens[r] == r * 3);
    } else
        CHECK(!all && !lens);
    free(all);
    free(lens);
    int64_t k = world->rank * 11, *ks = calloc((size_t)world->size, sizeof k);
    CHECK(ks && rd_comm_allgather(comm, &k, ks, sizeof k, &st) == RD_OK);
    for (int r = 0; r < world->size; r++) CHECK(ks[r] == r * 11);
    free(ks);
}

static void test_agree(void **state)
{
    (void)state;
    for (int bad = -1; bad < world->size; bad++) {
        rd_status st = {0};
        if (bad >= 0 && world->rank >= bad) rd_fail(&st, RD_EDATA, "told by %d", world->rank);
        for (int twice = 0; twice < 2; twice++) {
            const rd_code code = rd_comm_agree(comm, &st);
            char want[32];
            snprintf(want, sizeof want, "told by %d", bad);
            CHECK(code == st.code && code == (bad < 0 ? RD_OK : RD_EDATA));
            if (bad >= 0) CHECK(st.rank == bad && strcmp(st.msg, want) == 0);
        }
    }
}

static void test_same(void **state)
{
    (void)state;
    for (int odd = 0; odd <= world->size; odd++) {
        rd_status st = {0};
        const bool differ = odd < world->size && world->size > 1;
        const char *text = differ && world->rank == odd ? "sum 2" : "sum 1";
        const int sayer = odd == 0 ? 1 : odd; /* rank 0 is the measure: then all others differ */
        const rd_code code = rd_comm_same(comm, "config", text, &st);
        char want[16];
        snprintf(want, sizeof want, "rank %d", sayer);
        CHECK(code == (differ ? RD_EDISAGREE : RD_OK));
        if (differ)
            CHECK(st.rank == sayer && strstr(st.msg, want) && strstr(st.msg, "config") &&
                  strstr(st.msg, "'sum 1'") && strstr(st.msg, "'sum 2'") &&
                  strstr(st.msg, world->host));
    }
    rd_status st = {0};
    CHECK(rd_comm_same(comm, "nothing", "", &st) == RD_OK);
}

static void *abort_soon(void *unused)
{
    usleep(200000);
    rd_comm_abort(comm, 8);
    return unused;
}

/* The last rank ends the job from its main thread, or from a watchdog thread. In the second case
 * its main thread waits like those of the other ranks. */
static int end_job(const char *how)
{
    rd_status st = {0};
    pthread_t t;
    float x[2] = {0};
    if (world->rank == world->size - 1) {
        if (strcmp(how, "abort") == 0) rd_comm_abort(comm, 7);
        if (pthread_create(&t, NULL, abort_soon, NULL) != 0) return 1;
        (void)rd_comm_barrier(comm, &st);
    }
    (void)rd_comm_sum_f32(comm, x, 2, &st);
    return 0;
}

/* Many sums of few numbers, with a barrier before and after each. Every round gives another
 * result. */
static int many_rounds(int rounds)
{
    rd_status st = {0};
    for (int i = 0; i < rounds; i++) {
        float x[3] = {(float)(i + world->rank), (float)(i * 3), (float)world->rank};
        const float n = (float)world->size, ranks = n * (n - 1.0f) / 2.0f;
        CHECK(rd_comm_sum_f32(comm, x, 3, &st) == RD_OK && rd_comm_barrier(comm, &st) == RD_OK);
        CHECK(x[0] == n * (float)i + ranks && x[1] == n * (float)(i * 3) && x[2] == ranks);
    }
    if (world->rank == 0) printf("%d rounds, %s\n", rounds, rd_comm_note(comm));
    rd_comm_free(comm);
    return 0;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    if (rd_comm_start(&argc, &argv, &comm, &st) != RD_OK) {
        fprintf(stderr, "%s\n", st.msg);
        return st.code;
    }
    world = rd_comm_world(comm);
    if (argc > 1 && strcmp(argv[1], "rounds") == 0)
        return many_rounds(argc > 2 ? atoi(argv[2]) : 10000);
    if (argc > 1) return end_job(argv[1]);
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1; /* rank 0 alone prints the closing lines */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_world),           cmocka_unit_test(test_sums),
        cmocka_unit_test(test_max_min),         cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_window_on_hosts), cmocka_unit_test(test_bcast),
        cmocka_unit_test(test_arena),           cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_cross),           cmocka_unit_test(test_gather),
        cmocka_unit_test(test_agree),           cmocka_unit_test(test_same),
    };
    const int failures = cmocka_run_group_tests_name("comm", tests, NULL, NULL);
    rd_comm_free(comm);
    return failures != 0;
}
