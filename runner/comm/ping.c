/* ping.c -- compares clocks and measures sums, see ping.h.
 *
 * The messages use MPI_COMM_WORLD. The rest of the program does not use it, because its collectives
 * have their own communicators. */
#include "rd/ping.h"
#include "comm_mpi.h"
#include "rd/clock.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG = 7 };

/* Answers n questions of a rank with the time of this rank. */
static rd_code ping_answer(int rank, int n, rd_status *st)
{
    for (int i = 0; i < n; i++) {
        int64_t now = 0;
        RD_TRY(RD_MPI(MPI_Recv(&now, 1, MPI_INT64_T, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                      st));
        now = rd_now_ns();
        RD_TRY(RD_MPI(MPI_Send(&now, 1, MPI_INT64_T, rank, TAG, MPI_COMM_WORLD), st));
    }
done:
    return st->code;
}

/* Asks rank 0 for its time n times and keeps the fastest answer. */
static rd_code ping_ask(int n, rd_clock_offset *out, rd_status *st)
{
    out->round_ns = INT64_MAX;
    for (int i = 0; i < n; i++) {
        int64_t theirs = 0;
        const int64_t begin = rd_now_ns();
        RD_TRY(RD_MPI(MPI_Send(&theirs, 1, MPI_INT64_T, 0, TAG, MPI_COMM_WORLD), st));
        RD_TRY(RD_MPI(MPI_Recv(&theirs, 1, MPI_INT64_T, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                      st));
        const int64_t round = rd_now_ns() - begin, middle = begin + round / 2;
        if (round < out->round_ns) *out = (rd_clock_offset){middle - theirs, round, middle};
    }
done:
    return st->code;
}

rd_code rd_clock_compare(rd_comm *c, int n, rd_clock_offset *out, rd_status *st)
{
    const rd_world *w = rd_comm_world(c);
    const bool asks = w->local_rank == 0 && w->host_index != 0;
    unsigned char mine = asks, *all = NULL;
    *out = (rd_clock_offset){.at_ns = rd_now_ns()};
    if (w->n_hosts == 1 || strcmp(w->comm, "mpi") != 0) return RD_OK;
    all = malloc((size_t)w->size);
    if (!all) rd_fail(st, RD_EENV, "out of memory for %d ranks", w->size);
    RD_TRY(rd_comm_agree(c, st));
    RD_TRY(rd_comm_allgather(c, &mine, all, 1, st));
    if (asks) RD_TRY(ping_ask(n, out, st));
    for (int i = 0; w->rank == 0 && i < w->size; i++)
        if (all[i]) RD_TRY(ping_answer(i, n, st));
    RD_TRY(rd_comm_local_bcast(c, out, sizeof *out, 0, st));
done:
    free(all);
    return st->code;
}

int64_t rd_clock_shared(const rd_clock_offset *a, const rd_clock_offset *b, int64_t x)
{
    double offset = (double)a->offset_ns;
    if (b->at_ns > a->at_ns)
        offset += (double)(b->offset_ns - a->offset_ns) *
                  ((double)(x - a->at_ns) / (double)(b->at_ns - a->at_ns));
    return x - (int64_t)offset;
}

/* Measures the sums of one host, in shared memory made for this purpose. */
static rd_code time_host(MPI_Comm local, bool crowded, const int64_t *n, int n_sizes, int times,
                         double *seconds, rd_status *st)
{
    rd_host *w = NULL;
    rd_host_arena *a = NULL;
    char why[200];
    RD_TRY(rd_host_new(local, local, crowded, &w, why, st));
    if (!w) goto done;
    RD_TRY(rd_host_arena_new(w, local, local, n[n_sizes - 1], &a, why, st));
    for (int i = 0; a && i < n_sizes; i++) {
        int64_t begin_ns = 0;
        for (int k = -2; k < times; k++) {
            if (k == 0) {
                rd_host_barrier(w);
                begin_ns = rd_now_ns();
            }
            RD_TRY(rd_host_arena_sum(a, rd_host_arena_mine(a), n[i], st));
        }
        seconds[i] = (double)(rd_now_ns() - begin_ns) * 1e-9 / times;
    }
done:
    rd_host_arena_free(a);
    rd_host_free(w);
    return st->code;
}

rd_code rd_time_inside(rd_comm *c, const int64_t *n, int n_sizes, int times, double *seconds,
                       rd_status *st)
{
    const rd_world *w = rd_comm_world(c);
    MPI_Comm local = MPI_COMM_NULL;
    for (int i = 0; i < n_sizes; i++) seconds[i] = NAN;
    if (strcmp(w->comm, "mpi") != 0 || n_sizes < 1 || times < 1) return RD_OK;
    RD_TRY(RD_MPI(MPI_Comm_split(MPI_COMM_WORLD, w->host_index, w->rank, &local), st));
    if (w->local_size > 1)
        (void)time_host(local, w->local_size > sysconf(_SC_NPROCESSORS_ONLN), n, n_sizes, times,
                        seconds, st);
done:
    if (local != MPI_COMM_NULL) MPI_Comm_free(&local);
    return rd_comm_agree(c, st);
}
