/* comm_rows.c -- sums the touched rows of a table, see comm_rows.h.
 *
 * If the table is in the arena that the ranks of a host share, each rank writes its set of rows
 * into shared memory, next to the sets of the others. After a barrier all ranks know the union. On
 * one host every rank sums its share of the union's rows in place, along the tree of host_sum.h.
 * Rows that nobody touched are +0.0 everywhere and stay +0.0, and a sum of the whole table would
 * give them the same bytes. For that reason short gaps between runs of rows are summed, too, and
 * for no share of touched rows is this slower than the sum of the whole table.
 *
 * Between hosts, local rank 0 unites the sets with an OR of one bit per row. Each owner then packs
 * its share of the union's rows into one array. The owners of the same share sum these arrays as
 * they sum whole slices (cross_sum.c), and unpack the sum. No row numbers are sent, because both
 * sides know them. A host that lacks a row adds zeros, as it does in a sum of the whole table, so
 * the tree and the bytes are the same, including the signs of zeros. Packing reads and writes the
 * rows twice more. On a fast link that costs more than the last sixth of a table is worth. So if
 * five sixths of the rows are touched, the whole share is summed in place, with its zeros.
 *
 * Without such an arena every rank packs the union's rows and sums the packed array. */
#include "rd/comm_rows.h"
#include "comm_mpi.h"
#include "tree_sum.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GAP_BYTES = 512,      /* a gap of this size costs less to sum than a new run */
    PACK_FLOATS = 1 << 22 /* packed at a time; between hosts the pipeline runs empty after each */
};

struct rd_comm_rows {
    rd_comm *c; /* borrowed */
    rd_wire wire;
    bool whole; /* sum the whole table: its rows are too wide or too many */
    int64_t rows, dim, n_words;
    int64_t pack_rows; /* most rows in the packed array */
    uint64_t *unite;   /* owned; [n_words]: the union of all hosts */
    uint64_t *here;    /* borrowed from unite; [n_words]: the union of this host */
    int64_t sent;      /* bytes that this rank has sent to other hosts so far */
    float *pack;       /* owned; the packed array; NULL: not needed */
    rd_cross *cross;   /* owned; sums over all ranks if none share memory; else NULL */
    /* Mapped, shared by the ranks of the host: [n_local + 1][n_words] with the set of each rank and
     * the union of all hosts, then a status of local rank 0. NULL: none. */
    uint64_t *common;
    size_t common_bytes;
};

/* ---- sets of rows ---- */

int64_t rd_row_set_words(int64_t rows)
{
    return rows / 64 + (rows % 64 != 0);
}

/* Returns the bits of the last word that stand for rows. */
static uint64_t last_word_mask(int64_t rows)
{
    return rows % 64 ? (UINT64_C(1) << rows % 64) - 1 : UINT64_MAX;
}

void rd_row_set_fill(uint64_t *set, int64_t rows)
{
    if (rows > 0) memset(set, 0xff, (size_t)rd_row_set_words(rows) * sizeof *set);
}

static int64_t count_bits(const uint64_t *set, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += __builtin_popcountll(set[i]);
    return sum;
}

int64_t rd_row_set_count(const uint64_t *set, int64_t rows)
{
    const int64_t n = rd_row_set_words(rows);
    return n ? count_bits(set, n - 1) + __builtin_popcountll(set[n - 1] & last_word_mask(rows)) : 0;
}

/* Returns the first row from `from` on that is in the set (flip: 0) or is not in it (flip:
 * UINT64_MAX); `end` if there is none before it. */
static int64_t next_row(const uint64_t *set, uint64_t flip, int64_t from, int64_t end)
{
    for (int64_t w = from / 64; from < end; from = ++w * 64) {
        const uint64_t bits = (set[w] ^ flip) & UINT64_MAX << from % 64;
        if (bits) {
            const int64_t row = w * 64 + __builtin_ctzll(bits);
            return row < end ? row : end;
        }
    }
    return end;
}

typedef struct comm_rows_run {
    int64_t lo, hi;
} comm_rows_run;

/* Finds the next run of rows after r->hi and before end. Gaps of up to `gap` rows belong to the
 * run. Returns false if there is none. */
static bool next_run(const uint64_t *set, int64_t end, int64_t gap, comm_rows_run *r)
{
    rd_assert(r->hi >= 0 && r->hi <= end);
    r->lo = next_row(set, 0, r->hi, end);
    if (r->lo == end) return false;
    for (int64_t next = r->lo; next < end && (next == r->lo || next - r->hi <= gap);) {
        r->hi = next_row(set, UINT64_MAX, next, end);
        next = next_row(set, 0, r->hi, end);
    }
    return true;
}

void rd_row_set_zero(float *x, int64_t rows, int64_t dim, const uint64_t *set)
{
    const int64_t gap = (int64_t)(GAP_BYTES / sizeof *x) / dim;
    comm_rows_run r = {0, 0};
    /* Long runs are written without being read first. With more rows it is therefore faster to zero
     * the whole table. */
    if (rd_row_set_count(set, rows) > rows / 4) {
        memset(x, 0, (size_t)rows * (size_t)dim * sizeof *x);
        return;
    }
    while (next_run(set, rows, gap, &r))
        memset(x + r.lo * dim, 0, (size_t)(r.hi - r.lo) * (size_t)dim * sizeof *x);
}

/* Returns the row that has k rows of the set before it; `rows` if there is none. No bit after the
 * last row is set. */
static int64_t nth_row(const uint64_t *set, int64_t rows, int64_t k)
{
    int64_t w = 0;
    const int64_t n = rd_row_set_words(rows);
    rd_assert(k >= 0);
    for (; w < n; w++) {
        const int m = __builtin_popcountll(set[w]);
        if (k < m) break;
        k -= m;
    }
    if (w == n) return rows;
    uint64_t bits = set[w];
    while (k-- > 0) bits &= bits - 1;
    return w * 64 + __builtin_ctzll(bits);
}

/* Returns the rows that owner o of n sums. They contain 1/n of the set. */
static comm_rows_run rows_of_owner(const rd_comm_rows *t, int64_t count, int o, int n)
{
    rd_assert(o >= 0 && o < n && count >= 0 && count <= t->rows);
    return (comm_rows_run){nth_row(t->unite, t->rows, count * o / n),
                           nth_row(t->unite, t->rows, count * (o + 1) / n)};
}

/* ---- a table ---- */

void rd_comm_rows_free(rd_comm_rows *t)
{
    if (!t) return;
    if (t->common) munmap(t->common, t->common_bytes);
    free(t->unite);
    free(t->pack);
    rd_cross_free(t->cross);
    free(t);
}

/* Collective. Maps the shared memory on every host, or on none. */
static rd_code map_common(rd_comm_rows *t, int n_local, rd_status *st)
{
    char why[200];
    void *map = NULL;
    const size_t words = ((size_t)n_local + 1) * (size_t)t->n_words + 1;
    t->common_bytes = words * sizeof *t->common;
    RD_TRY(t->c->vt->share(t->c, t->common_bytes, 0, &map, why, st));
    t->common = map;
    double none = map == NULL;
    RD_TRY(rd_comm_max_f64(t->c, &none, 1, st));
    if (none > 0.0 && map) {
        munmap(map, t->common_bytes);
        t->common = NULL;
    }
done:
    return st->code;
}

rd_code rd_comm_rows_new(rd_comm *c, int64_t rows, int64_t dim, rd_wire wire, rd_comm_rows **out,
                         rd_status *st)
{
    rd_comm_rows *t = calloc(1, sizeof *t);
    int64_t n;
    *out = NULL;
    if (!t)
        rd_fail(st, RD_EENV, "out of memory for a table's rows");
    else if (rows <= 0 || dim <= 0 || __builtin_mul_overflow(rows, dim, &n) || n > INT64_MAX / 16)
        rd_fail(st, RD_EBUG, "a table of %" PRId64 " rows and %" PRId64 " columns is not possible",
                rows, dim);
    if (c->w.size > 1 && rd_comm_agree(c, st) != RD_OK) goto done;
    if (!t || st->code != RD_OK) goto done;
    t->c = c;
    t->wire = c->w.n_hosts > 1 ? wire : RD_WIRE_F32;
    t->whole = dim > PACK_FLOATS || rd_row_set_words(rows) > INT_MAX;
    t->rows = rows;
    t->dim = dim;
    t->n_words = rd_row_set_words(rows);
    if (c->w.size > 1 && !t->whole) {
        MPI_Comm world;
        rd_host *w;
        rd_host_arena *a;
        rd_mpi_inside(c, &world, &w, &a);
        if (!w) (void)rd_cross_new(world, &t->cross, st);
        if (a) RD_TRY(map_common(t, w->n_local, st));
        t->unite = calloc(2 * (size_t)t->n_words, sizeof *t->unite);
        if (t->unite) t->here = t->unite + t->n_words;
        if (c->w.n_hosts > 1 || !t->common) {
            t->pack_rows = PACK_FLOATS / dim < rows ? PACK_FLOATS / dim : rows;
            t->pack = malloc((size_t)(t->pack_rows * dim) * sizeof *t->pack);
        }
        if (!t->unite || (t->pack_rows && !t->pack))
            rd_fail(st, RD_EENV, "out of memory for sums of rows");
        if (rd_comm_agree(c, st) != RD_OK) goto done;
    }
    *out = t;
    t = NULL;
done:
    rd_comm_rows_free(t);
    return st->code;
}

/* ---- sums ---- */

static rd_code sum_whole(rd_comm_rows *t, float *x, uint64_t *touched, int64_t *n_summed,
                         rd_status *st)
{
    rd_row_set_fill(touched, t->rows);
    *n_summed = t->rows;
    return rd_comm_sum_f32(t->c, x, t->rows * t->dim, st);
}

/* Copies n floats between offset `at` of the arrays of k ranks and the packed array. empty: the
 * arrays hold zeros there. */
typedef void move_rows(float *const *part, int k, size_t at, float *packed, size_t n, bool empty);

/* Calls `move` for the union's rows from *at on and before end, until the packed array is full.
 * Moves *at behind them and returns their number. here: the rows that this host has touched, other
 * rows hold zeros; NULL: unknown. */
static int64_t move_packed_rows(const rd_comm_rows *t, int64_t *at, int64_t end, move_rows *move,
                                float *const *part, int k, int64_t first, const uint64_t *here)
{
    int64_t n = 0;
    comm_rows_run r = {*at, *at};
    while (n < t->pack_rows && next_run(t->unite, end, 0, &r)) {
        if (r.hi - r.lo > t->pack_rows - n) r.hi = r.lo + t->pack_rows - n;
        for (int64_t lo = r.lo; lo < r.hi;) { /* cut where rows of this host begin or end */
            int64_t hi = r.hi;
            bool empty = false;
            if (here) {
                empty = !(here[lo / 64] >> lo % 64 & 1);
                hi = next_row(here, empty ? 0 : UINT64_MAX, lo, r.hi);
            }
            move(part, k, (size_t)(first + lo * t->dim), t->pack + n * t->dim,
                 (size_t)((hi - lo) * t->dim), empty);
            n += hi - lo;
            lo = hi;
        }
        *at = r.hi;
    }
    rd_assert(n <= t->pack_rows && *at <= end);
    if (n == 0) *at = end;
    return n;
}

static void gather_rows(float *const *part, int k, size_t at, float *packed, size_t n, bool empty)
{
    const float *from[RD_MAX_LOCAL];
    for (int r = 0; r < k && !empty; r++) from[r] = part[r] + at;
    if (empty)
        memset(packed, 0, n * sizeof *packed);
    else if (k == 1)
        memcpy(packed, from[0], n * sizeof *packed);
    else
        rd_tree_sum_f32(packed, (const void *const *)from, k, n);
}

static void scatter_rows(float *const *part, int k, size_t at, float *packed, size_t n, bool empty)
{
    (void)empty;
    for (int r = 0; r < k; r++) memcpy(part[r] + at, packed, n * sizeof *packed);
}

/* ---- in the arena ---- */

static uint64_t *common_set(const rd_comm_rows *t, int r)
{
    return t->common + (size_t)r * (size_t)t->n_words;
}

static void unite_local_sets(const rd_comm_rows *t, int n_local, uint64_t *set)
{
    memcpy(set, common_set(t, 0), (size_t)t->n_words * sizeof *set);
    for (int r = 1; r < n_local; r++) {
        const uint64_t *theirs = common_set(t, r);
        for (int64_t i = 0; i < t->n_words; i++) set[i] |= theirs[i];
    }
}

static void sum_in_place(const rd_comm_rows *t, const rd_host *w, float *const *part, int64_t first)
{
    const int64_t gap = (int64_t)(GAP_BYTES / sizeof(float)) / t->dim;
    const comm_rows_run share = rows_of_owner(t, count_bits(t->unite, t->n_words), w->me,
                                              w->n_owners);
    for (comm_rows_run r = {share.lo, share.lo};
         w->n_local > 1 && next_run(t->unite, share.hi, gap, &r);)
        rd_tree_sum_all(part, w->n_local, (size_t)(first + r.lo * t->dim),
                        (size_t)((r.hi - r.lo) * t->dim));
}

/* Sums n packed rows between hosts. */
static rd_code sum_packed_rows(rd_comm_rows *t, rd_cross *cross, int64_t n, rd_status *st)
{
    const int64_t before = cross->sent;
    if (n > 0) (void)rd_cross_sum_wire(cross, t->wire, t->pack, n * t->dim, st);
    t->sent += cross->sent - before;
    return st->code;
}

static bool is_nearly_all(const rd_comm_rows *t, int64_t count)
{
    return count > t->rows - t->rows / 6;
}

/* Sums rows [r.lo, r.hi) of k ranks in place, between hosts too, and writes the sum
 * to every rank's array. */
static rd_code sum_run(rd_comm_rows *t, rd_cross *cross, float *const *part, int k, int me,
                       int64_t first, comm_rows_run r, rd_status *st)
{
    const int64_t before = cross->sent;
    for (int64_t lo = r.lo; lo < r.hi; lo += t->pack_rows) {
        const int64_t hi = lo + t->pack_rows < r.hi ? lo + t->pack_rows : r.hi,
                      at = first + lo * t->dim;
        const size_t n = (size_t)((hi - lo) * t->dim);
        if (k > 1) gather_rows(part, k, (size_t)at, part[me] + at, n, false);
        RD_TRY(rd_cross_sum_wire(cross, t->wire, part[me] + at, (int64_t)n, st));
        for (int q = 0; q < k; q++)
            if (q != me) memcpy(part[q] + at, part[me] + at, n * sizeof(float));
    }
done:
    t->sent += cross->sent - before;
    return st->code;
}

/* Packs the rows of this rank's share, sums them between hosts, and writes the sum
 * to every rank's array. */
static rd_code sum_own_share(rd_comm_rows *t, const rd_host *w, float *const *part, int64_t first,
                             int64_t count, rd_status *st)
{
    if (w->me >= w->n_owners) return RD_OK;
    const comm_rows_run share = rows_of_owner(t, count, w->me, w->n_owners);
    if (is_nearly_all(t, count))
        return sum_run(t, w->cross, part, w->n_local, w->me, first, share, st);
    for (int64_t at = share.lo; at < share.hi;) {
        int64_t from = at;
        const int64_t n = move_packed_rows(t, &at, share.hi, gather_rows, part, w->n_local, first,
                                           t->here);
        RD_TRY(sum_packed_rows(t, w->cross, n, st));
        (void)move_packed_rows(t, &from, at, scatter_rows, part, w->n_local, first, NULL);
    }
done:
    return st->code;
}

/* Collective. Writes the union of all hosts to t->unite. */
static rd_code unite_host_sets(rd_comm_rows *t, rd_host *w, rd_status *st)
{
    uint64_t *all = common_set(t, w->n_local), *failed = all + t->n_words;
    unite_local_sets(t, w->n_local, t->here);
    /* Local rank 0 is one of the owners on every host. A failure is returned after the barrier. */
    if (w->me == 0) {
        memcpy(all, t->here, (size_t)t->n_words * sizeof *all);
        (void)RD_MPI(MPI_Allreduce(MPI_IN_PLACE, all, (int)t->n_words, MPI_UINT64_T, MPI_BOR,
                                   w->cross_comm),
                     st);
        t->sent += t->n_words * (int64_t)sizeof *all;
        *failed = (uint64_t)st->code;
    }
    rd_host_barrier(w);
    memcpy(t->unite, all, (size_t)t->n_words * sizeof *all);
    if (*failed && st->code == RD_OK)
        rd_fail(st, (rd_code)*failed,
                "the lowest rank of this host cannot reach the other hosts; see its message");
    return st->code;
}

static rd_code sum_in_arena(rd_comm_rows *t, rd_host *w, rd_host_arena *a, float *x,
                            uint64_t *touched, int64_t *n_summed, rd_status *st)
{
    float *part[RD_MAX_LOCAL];
    const int64_t first = x - rd_host_arena_mine(a);
    uint64_t *mine = common_set(t, w->me);
    for (int r = 0; r < w->n_local; r++) part[r] = rd_host_arena_of(a, r);
    memcpy(mine, touched, (size_t)t->n_words * sizeof *mine);
    mine[t->n_words - 1] &= last_word_mask(t->rows);
    rd_host_barrier(w);
    if (w->n_hosts > 1)
        RD_TRY(unite_host_sets(t, w, st));
    else
        unite_local_sets(t, w->n_local, t->unite);
    const int64_t count = count_bits(t->unite, t->n_words);
    if (w->n_hosts > 1)
        (void)sum_own_share(t, w, part, first, count, st);
    else
        sum_in_place(t, w, part, first);
    rd_host_barrier(w);
    memcpy(touched, t->unite, (size_t)t->n_words * sizeof *touched);
    *n_summed = count;
done:
    return st->code;
}

/* ---- outside the arena ---- */

static rd_code sum_outside_arena(rd_comm_rows *t, MPI_Comm world, float *x, uint64_t *touched,
                                 int64_t *n_summed, rd_status *st)
{
    memcpy(t->unite, touched, (size_t)t->n_words * sizeof *touched);
    t->unite[t->n_words - 1] &= last_word_mask(t->rows);
    RD_TRY(RD_MPI(
        MPI_Allreduce(MPI_IN_PLACE, t->unite, (int)t->n_words, MPI_UINT64_T, MPI_BOR, world), st));
    const int64_t count = count_bits(t->unite, t->n_words);
    if (t->cross) t->sent += t->n_words * (int64_t)sizeof *t->unite;
    const bool dense = t->cross && is_nearly_all(t, count);
    if (dense) RD_TRY(sum_run(t, t->cross, &x, 1, 0, 0, (comm_rows_run){0, t->rows}, st));
    for (int64_t at = dense ? t->rows : 0; at < t->rows;) {
        int64_t from = at;
        const int64_t n = move_packed_rows(t, &at, t->rows, gather_rows, &x, 1, 0, NULL);
        if (t->cross)
            RD_TRY(sum_packed_rows(t, t->cross, n, st));
        else
            RD_TRY(rd_comm_sum_f32(t->c, t->pack, n * t->dim, st));
        (void)move_packed_rows(t, &from, at, scatter_rows, &x, 1, 0, NULL);
    }
    memcpy(touched, t->unite, (size_t)t->n_words * sizeof *touched);
    *n_summed = count;
done:
    return st->code;
}

rd_code rd_comm_sum_rows_f32(rd_comm_rows *t, float *x, uint64_t *touched, int64_t *n_summed,
                             rd_status *st)
{
    int64_t n = 0;
    if (t->c->w.size > 1) {
        MPI_Comm world;
        rd_host *w;
        rd_host_arena *a;
        rd_mpi_inside(t->c, &world, &w, &a);
        if (t->common && rd_host_arena_holds(a, x))
            (void)sum_in_arena(t, w, a, x, touched, &n, st);
        else if (t->pack)
            (void)sum_outside_arena(t, world, x, touched, &n, st);
        else
            (void)sum_whole(t, x, touched, &n, st);
    }
    if (n_summed) *n_summed = n;
    return st->code;
}

int64_t rd_comm_rows_sent(const rd_comm_rows *t)
{
    return t->sent;
}
