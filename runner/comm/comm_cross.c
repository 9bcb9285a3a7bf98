/* comm_cross.c -- the sum between hosts, in an order that does not change: the binary tree of comm_window.c goes on over
 * hosts.
 *
 * For 2^k hosts: k exchanges with partners at distance 1, 2, 4, ..., each rank keeping one half of what it had, sum the
 * array so that every rank holds 1/2^k of the result; the same exchanges backwards collect it (Rabenseifner's algorithm with
 * the near partners first, which makes the sum a tree over neighbours). Each rank sends 2 (1 - 1/2^k) of the array, the
 * least there is. Any other number of hosts goes through MPI_Allreduce, whose order the library chooses: the same in
 * every run with the same number of ranks. */
#include "comm_window.h"

typedef struct half {
    int64_t from, n;
} half;

/* The half of [from, from + n) that a rank keeps (upper: the second one), and the one it gives away. */
static half part_of(half h, bool upper)
{
    const int64_t first = h.n / 2;
    return upper ? (half){h.from + first, h.n - first} : (half){h.from, first};
}

static rd_code exchange(MPI_Comm cross, int partner, const float *give, int64_t n_give, float *take, int64_t n_take,
                        rd_status *st)
{
    return RD_MPI(MPI_Sendrecv(give, (int)n_give, MPI_FLOAT, partner, 3, take, (int)n_take, MPI_FLOAT, partner, 3, cross,
                               MPI_STATUS_IGNORE), st);
}

rd_code rd_cross_sum(MPI_Comm cross, float *x, int64_t n, float *spare, rd_status *st)
{
    half kept[32] = {{0, n}};
    int me = 0, size = 1, k = 0;
    MPI_Comm_rank(cross, &me);
    MPI_Comm_size(cross, &size);
    if ((size & (size - 1)) != 0) return RD_MPI(MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, cross), st);
    for (; 1 << k < size; k++) {
        const int partner = me ^ 1 << k;
        const bool upper = (me >> k & 1) != 0;
        const half keep = part_of(kept[k], upper), give = part_of(kept[k], !upper);
        RD_TRY(exchange(cross, partner, x + give.from, give.n, spare, keep.n, st));
        float *restrict mine = x + keep.from;
        const float *restrict theirs = spare;
        if (upper)
            for (int64_t i = 0; i < keep.n; i++) mine[i] = theirs[i] + mine[i];
        else
            for (int64_t i = 0; i < keep.n; i++) mine[i] = mine[i] + theirs[i];
        kept[k + 1] = keep;
    }
    while (k-- > 0) {
        const half mine = kept[k + 1], theirs = part_of(kept[k], (me >> k & 1) == 0);
        RD_TRY(exchange(cross, me ^ 1 << k, x + mine.from, mine.n, x + theirs.from, theirs.n, st));
    }
done:
    return st->code;
}
