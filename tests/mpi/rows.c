/* rows.c -- tests sums of tables by their touched rows against the sum of the whole table.
 *
 * The bytes are the same, whatever rows of whatever ranks are touched. tests/mpi/rows.sh runs it
 * with 1 to 4 ranks, with and without shared memory; tests/mpi/rows_hosts.sh runs it on several
 * hosts. */
#include "test.h"
#include "rank_check.h"
#include "rd/comm_rows.h"
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 3001 * 513, MAX_WORDS = 3001 / 64 + 1 };

static float *arena; /* room for two tables: one for the rows, one for the whole sum */

static uint32_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((x ^ (x >> 31)) >> 32);
}

typedef bool pattern(int rank, int64_t row, int64_t rows,
                     uint64_t seed); /* does the rank touch the row? */

static bool none(int rank, int64_t row, int64_t rows, uint64_t seed)
{
    return (void)rank, (void)row, (void)rows, (void)seed, false;
}
static bool all(int rank, int64_t row, int64_t rows, uint64_t seed)
{
    return (void)rank, (void)row, (void)rows, (void)seed, true;
}
static bool one_of_last_rank(int rank, int64_t row, int64_t rows, uint64_t seed)
{
    return rank == world->size - 1 && row == (int64_t)(seed % (uint64_t)rows);
}
static bool last_row(int rank, int64_t row, int64_t rows, uint64_t seed)
{
    return (void)rank, (void)seed, row == rows - 1;
}
static bool every_second(int rank, int64_t row, int64_t rows, uint64_t seed)
{
    return (void)rank, (void)rows, (void)seed, row % 2 == 1;
}
static bool tenth(int rank, int64_t row, int64_t rows, uint64_t seed)
{
    return (void)rows, mix(seed * 1000003 + (uint64_t)rank * 7919 + (uint64_t)row) % 10 == 0;
}
static bool half(int rank, int64_t row, int64_t rows, uint64_t seed)
{
    return (void)rows, mix(seed * 1000003 + (uint64_t)rank * 7919 + (uint64_t)row) % 2 == 0;
}
static bool only_first_rank(int rank, int64_t row, int64_t rows,
                            uint64_t seed) /* the others have no samples */
{
    return rank == 0 && tenth(rank, row, rows, seed);
}
static bool low_rows(int rank, int64_t row, int64_t rows,
                     uint64_t seed) /* sorted by frequency, as vocabularies are */
{
    return mix(seed * 1000003 + (uint64_t)rank * 7919 + (uint64_t)row) %
               (uint64_t)(1 + 64 * row / rows) ==
           0;
}
static bool parts(int rank, int64_t row, int64_t rows, uint64_t seed) /* no row of two ranks */
{
    return (void)seed, row * world->size / rows == rank;
}

static pattern *const patterns[] = {none,  all,  one_of_last_rank, last_row, every_second,
                                    tenth, half, only_first_rank,  low_rows, parts};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

/* Numbers whose sum depends on the order, zeros of both signs among them. */
static float number(int rank, int64_t i, uint64_t seed)
{
    const uint32_t h = mix(seed * 31 + (uint64_t)rank * 1000000007 + (uint64_t)i * 3);
    if (h % 5 == 0) return -0.0f;
    if (h % 7 == 0) return 0.0f;
    return ((float)(h >> 8) - 8388608.0f) * (h & 1 ? 1e-3f : 7.3f);
}

typedef struct size {
    int64_t rows, dim;
} size;

static bool touches(const uint64_t *set, int64_t row)
{
    return set[row / 64] >> row % 64 & 1;
}

static void sum_both(rd_comm_rows *t, size s, pattern *p, uint64_t seed, bool whole_is_fine,
                     float *x, float *want)
{
    rd_status st = {0};
    uint64_t touched[MAX_WORDS];
    int64_t n_union = 0, n_summed = -1;
    const size_t bytes = (size_t)(s.rows * s.dim) * sizeof *x;
    memset(touched, 0, sizeof touched);
    if (s.rows % 64)
        touched[s.rows / 64] = ~UINT64_C(0) << s.rows % 64; /* bits that do not count */
    memset(x, 0, bytes);
    for (int64_t i = 0; i < s.rows; i++) {
        if (!p(world->rank, i, s.rows, seed)) continue;
        touched[i / 64] |= UINT64_C(1) << i % 64;
        for (int64_t j = 0; j < s.dim; j++)
            x[i * s.dim + j] = number(world->rank, i * s.dim + j, seed);
    }
    memcpy(want, x, bytes);
    CHECK(rd_comm_sum_f32(comm, want, s.rows * s.dim, &st) == RD_OK);
    CHECK(rd_comm_sum_rows_f32(t, x, touched, &n_summed, &st) == RD_OK);
    CHECK(memcmp(x, want, bytes) == 0);
    for (int64_t i = 0; i < s.rows; i++) {
        bool any = false;
        for (int r = 0; r < world->size; r++) any |= p(r, i, s.rows, seed);
        n_union += any;
        CHECK(!any || touches(touched, i));
        if (!whole_is_fine) CHECK(any == touches(touched, i));
    }
    if (world->size > 1) CHECK(n_summed == n_union || (whole_is_fine && n_summed == s.rows));
    CHECK(rd_row_set_count(touched, s.rows) == (n_summed == s.rows ? s.rows : n_union));
}

static void test_sums(void **state)
{
    (void)state;
    static const size sizes[] = {{1, 1},    {1, 700}, {63, 3},   {64, 16},
                                 {65, 128}, {130, 1}, {1000, 7}, {3001, 513}};
    rd_status st = {0};
    float *elsewhere = malloc(2 * (size_t)LARGEST * sizeof *elsewhere);
    CHECK(elsewhere);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k].rows * sizes[k].dim;
        rd_comm_rows *t = NULL;
        CHECK(rd_comm_rows_new(comm, sizes[k].rows, sizes[k].dim, RD_WIRE_F32, &t, &st) == RD_OK);
        for (int p = 0; p < N_PATTERNS; p++) {
            if (n > 100000 && patterns[p] != all && patterns[p] != half && patterns[p] != low_rows)
                continue;
            sum_both(t, sizes[k], patterns[p], (uint64_t)p + 5, false, arena, arena + n);
            if (n > 100000 && patterns[p] != half) continue;
            sum_both(t, sizes[k], patterns[p], (uint64_t)p + 9, true, elsewhere, elsewhere + n);
        }
        for (uint64_t round = 0; round < 20 && n < 100000; round++)
            sum_both(t, sizes[k], tenth, 100 + round, false, arena, arena + n);
        rd_comm_rows_free(t);
    }
    free(elsewhere);
}

/* One row of a thousand is touched: the others are neither summed nor sent. Every wire type holds
 * whole numbers exactly. */
static void test_narrow(void **state)
{
    (void)state;
    rd_status st = {0};
    uint64_t touched[16];
    if (world->size == 1) return;
    for (rd_wire wire = RD_WIRE_F32; wire <= RD_WIRE_F16; wire++) {
        int64_t n_summed = 0, sent;
        rd_comm_rows *t = NULL;
        CHECK(rd_comm_rows_new(comm, 1000, 16, wire, &t, &st) == RD_OK);
        memset(arena, 0, 16000 * sizeof *arena);
        memset(touched, 0, sizeof touched);
        touched[15] = 1;
        for (int j = 0; j < 16; j++) arena[960 * 16 + j] = (float)(world->rank + j);
        CHECK(rd_comm_sum_rows_f32(t, arena, touched, &n_summed, &st) == RD_OK);
        CHECK(n_summed == 1);
        for (int j = 0; j < 16; j++)
            CHECK(arena[960 * 16 + j] ==
                  (float)(world->size * j + world->size * (world->size - 1) / 2));
        /* Between all hosts (without shared memory: all ranks): a set of 1,000 bits each, and the
         * row there, and back to all but one. */
        const bool shared = strstr(rd_comm_note(comm), "in place") != NULL;
        const int64_t hosts = shared ? world->n_hosts : world->size,
                      bytes = wire == RD_WIRE_F32 || world->n_hosts == 1 ? 4 : 2;
        sent = rd_comm_rows_sent(t);
        CHECK(rd_comm_sum_i64(comm, &sent, 1, &st) == RD_OK);
        CHECK(sent == (hosts > 1 ? hosts * 16 * 8 + 2 * (hosts - 1) * 16 * bytes : 0));
        rd_comm_rows_free(t);
    }
    rd_comm_rows_free(NULL);
}

/* A narrow type rounds these numbers: the bytes are those of a flow that sums the whole table. */
static void test_narrow_bytes(void **state)
{
    (void)state;
    rd_status st = {0};
    const int64_t rows = 1000, dim = 7, n = rows * dim;
    const rd_flow_part part = {.from = 0, .n = n};
    for (rd_wire wire = RD_WIRE_BF16; wire <= RD_WIRE_F16; wire++) {
        float *x = arena, *want = arena + n;
        rd_comm_rows *t = NULL;
        rd_flow *f = NULL;
        CHECK(rd_comm_rows_new(comm, rows, dim, wire, &t, &st) == RD_OK);
        CHECK(rd_flow_new(comm, want, &part, 1, wire, RD_FLOW_LATE, &f, &st) == RD_OK);
        for (int p = 0; p < N_PATTERNS; p++) {
            uint64_t touched[16] = {0};
            memset(x, 0, (size_t)n * sizeof *x);
            for (int64_t i = 0; i < n; i++) {
                if (!patterns[p](world->rank, i / dim, rows, 3)) continue;
                touched[i / dim / 64] |= UINT64_C(1) << i / dim % 64;
                x[i] = number(world->rank, i, 4) * 1e-3f;
            }
            memcpy(want, x, (size_t)n * sizeof *x);
            CHECK(rd_comm_sum_rows_f32(t, x, touched, NULL, &st) == RD_OK);
            rd_flow_ready(f, 1);
            rd_flow_pause(f);
            CHECK(rd_flow_finish(f, &st) == RD_OK);
            CHECK(memcmp(x, want, (size_t)n * sizeof *x) == 0);
        }
        rd_flow_free(f);
        rd_comm_rows_free(t);
    }
}

static void test_sets(void **state)
{
    (void)state;
    rd_status st = {0};
    enum { ROWS = 200, DIM = 33 };
    static float x[ROWS * DIM];
    for (uint64_t seed = 0; seed < 50; seed++) {
        uint64_t set[4] = {0, 0, 0, ~UINT64_C(0) << ROWS % 64};
        int64_t n = 0;
        for (int64_t i = 0; i < ROWS; i++)
            if (mix(seed * 977 + (uint64_t)i) % (seed + 1) == 0) {
                set[i / 64] |= UINT64_C(1) << i % 64;
                n++;
            }
        CHECK(rd_row_set_count(set, ROWS) == n && rd_row_set_words(ROWS) == 4);
        for (int dim = 1; dim <= DIM;
             dim += 16) { /* what is not in the set holds zeros, or may become them */
            for (int64_t i = 0; i < ROWS * dim; i++) x[i] = touches(set, i / dim) ? 1.0f : 0.0f;
            rd_row_set_zero(x, ROWS, dim, set);
            for (int64_t i = 0; i < ROWS * dim; i++) CHECK(x[i] == 0.0f);
        }
    }
    uint64_t two[2] = {0, 0};
    x[0] = 3.0f;
    rd_row_set_zero(x, 128, 1, two);
    CHECK(x[0] == 3.0f && rd_row_set_count(two, 128) == 0);
    rd_row_set_fill(two, 65);
    CHECK(rd_row_set_count(two, 65) == 65 && rd_row_set_words(64) == 1 && rd_row_set_words(0) == 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sets), cmocka_unit_test(test_narrow),
                                       cmocka_unit_test(test_narrow_bytes),
                                       cmocka_unit_test(test_sums)};
    rd_status st = {0};
    char why[200];
    if (rd_comm_start(&argc, &argv, &comm, &st) != RD_OK)
        return fprintf(stderr, "rows: %s\n", st.msg), 1;
    world = rd_comm_world(comm);
    CHECK(rd_comm_arena_new(comm, 2 * (int64_t)LARGEST, &arena, why, &st) == RD_OK);
    if (world->rank == 0) printf("%d hosts, %s\n", world->n_hosts, rd_comm_note(comm));
    const int bad = cmocka_run_group_tests(tests, NULL, NULL);
    rd_comm_free(comm);
    return bad;
}
