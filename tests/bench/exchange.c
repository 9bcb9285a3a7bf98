/* exchange.c -- compares the gradient sum of one host with MPI_Allreduce and the memory's speed.
 *
 *     mpirun -np 2 build/release/tests/bench/exchange [--max_mib=512] [--label=default]
 *
 * Prints one line per size, in GB/s of gradient: bytes of one rank's array / time from the start of
 * the first rank to the end of the last rank, median over calls. Ranks that wait for a CPU
 * therefore count in every column. The columns are measured in turns:
 *
 *     in place   rd_comm_sum_f32 on rd_comm_arena_new, the arena that trainings use
 *     slots      the same sum of an array outside the arena
 *     MPI        MPI_Allreduce with MPI_IN_PLACE
 *     bound      the reads, additions and writes of "in place" without its barriers: every rank
 *                sums k private arrays of 1/k of the size into all of them
 *
 * The ratios follow. The first line is the round trip of a cache line between two ranks, which
 * influences the results of small sizes. The mpirun line chooses variants of MPI_Allreduce: --mca
 * coll_sm_priority 100; -x MALLOC_MMAP_THRESHOLD_=... */
#include "median.h"
#include "rd/clock.h"
#include "rd/comm.h"
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64, MAX_CALLS = 32 };

typedef struct bench {
    rd_comm *comm;
    const rd_world *w;
    float *arena, *other, *bound[MAX_RANKS];
    int64_t n; /* number of elements of the current size */
} bench;

static rd_code in_place(bench *b, rd_status *st)
{
    return rd_comm_sum_f32(b->comm, b->arena, b->n, st);
}
static rd_code slots(bench *b, rd_status *st)
{
    return rd_comm_sum_f32(b->comm, b->other, b->n, st);
}
static rd_code by_mpi(bench *b, rd_status *st)
{
    if (MPI_Allreduce(MPI_IN_PLACE, b->other, (int)b->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
        MPI_SUCCESS)
        return rd_fail(st, RD_EPEER, "MPI_Allreduce failed");
    return RD_OK;
}

static rd_code without_barriers(bench *b, rd_status *st)
{
    enum { BLOCK = 2048 };
    float acc[BLOCK];
    const int k = b->w->size;
    const int64_t n = b->n / k;
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t m = n - i < BLOCK ? n - i : BLOCK;
        const float *restrict x = b->bound[0] + i, *restrict y = b->bound[1] + i;
        for (int64_t j = 0; j < m; j++) acc[j] = x[j] + y[j];
        for (int r = 2; r < k; r++) {
            const float *restrict z = b->bound[r] + i;
            for (int64_t j = 0; j < m; j++) acc[j] += z[j];
        }
        for (int r = 0; r < k; r++) memcpy(b->bound[r] + i, acc, (size_t)m * sizeof(float));
    }
    return st->code;
}

enum { KINDS = 4 };
static rd_code (*const kinds[KINDS])(bench *, rd_status *) = {in_place, slots, by_mpi,
                                                              without_barriers};

/* Measures the columns in turns, so that other load on the machine affects all of them. Each column
 * makes one call that loads its memory into the caches, then some timed calls. For small sizes many
 * calls count as one. */
static rd_code measure(bench *b, double gb_per_s[KINDS], rd_status *st)
{
    double t[KINDS][MAX_CALLS];
    const double bytes = (double)b->n * 4.0;
    const int in_a_row = bytes < 1e6 ? 50 : 1, turns = bytes < 6e7 ? 8 : 5,
              calls = bytes < 6e7 ? 4 : 2;
    for (int i = 0; i < turns * KINDS; i++) {
        const int kind = i % KINDS;
        for (int j = -1; j < calls; j++) {
            RD_TRY(rd_comm_barrier(b->comm, st));
            const int64_t begin = rd_now_ns();
            for (int k = 0; k < in_a_row; k++) RD_TRY(kinds[kind](b, st));
            double s[2] = {-(double)begin,
                           (double)rd_now_ns()}; /* the ranks are on one host and have one clock */
            RD_TRY(rd_comm_max_f64(b->comm, s, 2, st));
            if (j >= 0) t[kind][i / KINDS * calls + j] = (s[0] + s[1]) * 1e-9 / in_a_row;
        }
    }
    for (int kind = 0; kind < KINDS; kind++)
        gb_per_s[kind] = bytes / median(t[kind], turns * calls) * 1e-9;
done:
    return st->code;
}

/* Measures the round trip of a cache line between ranks 0 and 1. In the arena, rank 0 sees what
 * rank 1 writes only through a sum, so the line is in a shared window of MPI. */
static rd_code round_trip(bench *b, double *ns, rd_status *st)
{
    enum { N = 20000 };
    MPI_Win win;
    _Atomic int *flag = NULL;
    MPI_Aint size;
    int unit;
    if (MPI_Win_allocate_shared(b->w->rank == 0 ? 256 : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &flag,
                                &win) ||
        MPI_Win_shared_query(win, 0, &size, &unit, &flag))
        return rd_fail(st, RD_EPEER, "no shared window");
    if (b->w->rank == 0) memset((void *)flag, 0, 256);
    RD_TRY(rd_comm_barrier(b->comm, st));
    const int64_t begin = rd_now_ns();
    for (int i = 0; i < N && b->w->rank < 2; i++) {
        if (b->w->rank == 0) atomic_store(&flag[0], i + 1);
        for (int spins = 0; atomic_load(&flag[b->w->rank == 0 ? 32 : 0]) != i + 1; spins++)
            if (spins % 100000 == 99999) sched_yield();
        if (b->w->rank == 1) atomic_store(&flag[32], i + 1);
    }
    *ns = (double)(rd_now_ns() - begin) / N;
    RD_TRY(rd_comm_barrier(b->comm, st));
    MPI_Win_free(&win);
done:
    return st->code;
}

static rd_code run(bench *b, int64_t max_mib, const char *label, rd_status *st)
{
    const int64_t largest = (max_mib << 20) / 4;
    double trip = 0.0;
    char why[200];
    RD_TRY(rd_comm_arena_new(b->comm, largest, &b->arena, why, st));
    b->other = calloc((size_t)largest, sizeof *b->other);
    for (int r = 0; r < b->w->size; r++)
        b->bound[r] = calloc((size_t)(largest / b->w->size + 16), sizeof(float));
    for (int r = 0; r < b->w->size; r++)
        if (!b->other || !b->bound[r]) rd_fail(st, RD_EENV, "out of memory; lower --max_mib");
    RD_TRY(rd_comm_agree(b->comm, st));
    memset(b->other, 0, (size_t)largest * sizeof(float));
    for (int r = 0; r < b->w->size; r++)
        memset(b->bound[r], 0, (size_t)(largest / b->w->size) * sizeof(float));
    RD_TRY(round_trip(b, &trip, st));
    if (b->w->rank == 0) {
        printf("%d ranks, %s%s%s; MPI: %s; round trip of a line %.0f ns\n", b->w->size,
               rd_comm_note(b->comm), why[0] ? "; no arena: " : "", why, label, trip);
        printf("%10s %10s %10s %10s %10s %10s %10s\n", "KiB", "in place", "slots", "MPI", "bound",
               "over MPI", "of bound");
    }
    for (int64_t kib = 64; kib <= max_mib << 10; kib *= kib == 64 || kib >= 262144 ? 2
                                                        : kib == 128               ? 2
                                                                                   : 4) {
        double g[KINDS];
        b->n = kib * 256;
        RD_TRY(measure(b, g, st));
        if (b->w->rank == 0) {
            printf("%10lld %10.2f %10.2f %10.2f %10.2f %9.2fx %9.0f%%\n", (long long)kib, g[0],
                   g[1], g[2], g[3], g[0] / g[2], 100.0 * g[0] / g[3]);
            fflush(stdout);
        }
    }
done:
    free(b->other);
    for (int r = 0; r < b->w->size; r++) free(b->bound[r]);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    bench b = {0};
    int64_t max_mib = 512;
    const char *label = "default";
    if (rd_comm_start(&argc, &argv, &b.comm, &st) == RD_OK) {
        b.w = rd_comm_world(b.comm);
        for (int i = 1; i < argc; i++) {
            if (strncmp(argv[i], "--max_mib=", 10) == 0) max_mib = strtoll(argv[i] + 10, NULL, 10);
            if (strncmp(argv[i], "--label=", 8) == 0) label = argv[i] + 8;
        }
        if (b.w->size < 2 || b.w->size > MAX_RANKS || b.w->n_hosts > 1 || max_mib < 1 ||
            max_mib > 1024)
            rd_fail(&st, RD_EUSAGE,
                    "start it on one host with 2 to %d ranks, --max_mib from 1 to 1024",
                    (int)MAX_RANKS);
        else
            (void)run(&b, max_mib, label, &st);
    }
    if (st.code != RD_OK) fprintf(stderr, "exchange: %s\n", st.msg);
    if (st.code != RD_OK && b.w && b.w->size > 1 && st.code != RD_EUSAGE)
        rd_comm_abort(b.comm, st.code);
    rd_comm_free(b.comm);
    return st.code;
}
