/* comm_rows.c -- see comm_rows.h.
 *
 * Where the table lies in the arena that a host's ranks share, each of them puts its set of rows into memory in
 * common, beside the others' sets; after the barrier all know the union. On one host every rank sums its share of the
 * union's rows where they lie, along the tree of host_sum.h. Rows that nobody touched are +0.0 everywhere and stay
 * so: a whole sum gives them the same bytes. For that reason short gaps between runs of rows are simply summed too, and
 * no share of touched rows makes this slower than the sum of the whole table.
 *
 * Between hosts, local rank 0 unites the sets (an OR of one bit a row). Then the owners of a share pack the union's
 * rows into one array, add these up as they add up whole slices (cross_sum.c), and unpack the sum: no row numbers
 * travel, both sides know them. A host that lacks a row adds its zeros, as it does in a whole sum, so that the tree and
 * the bytes are the same, signs of zeros included. Packing passes over the rows twice more; on a fast link that is more than
 * the last sixth of a table is worth, so from five sixths on the share is added up where it lies, its zeros too.
 *
 * Without such an arena the union's rows are packed on every rank and summed from there. */
#include "rd/comm_rows.h"
#include "comm_mpi.h"
#include "tree_sum.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GAP_BYTES = 512,      /* a gap of so much is cheaper to sum than a run to begin */
    PACK_FLOATS = 1 << 22 /* at a time: the pipeline between hosts runs empty behind each */
};

struct rd_comm_rows {
    rd_comm *c; /* borrowed */
    rd_wire wire;
    bool whole; /* too wide or too long for this */
    int64_t rows, dim, n_words;
    int64_t pack_rows;      /* that the packed array holds */
    uint64_t *unite, *here; /* owned by unite; [n_words] each: rows of all hosts, of this one */
    int64_t sent;           /* bytes to other hosts, so far */
    float *pack;            /* owned; NULL: not needed */
    rd_cross *cross;        /* owned; of all ranks, where none share memory; else NULL */
    /* [n_local + 1][n_words] of the host's ranks, mapped: their sets, and the union of all hosts; then a status of
     * local rank 0. NULL: none. */
    uint64_t *common;
    size_t common_bytes;
};

/* ---- sets of rows ---- */

int64_t rd_row_set_words(int64_t rows)
{
    return rows / 64 + (rows % 64 != 0);
}

static uint64_t tail(int64_t rows) /* bits of the last word that stand for rows */
{
    return rows % 64 ? (UINT64_C(1) << rows % 64) - 1 : UINT64_MAX;
}

void rd_row_set_fill(uint64_t *set, int64_t rows)
{
    if (rows > 0) memset(set, 0xff, (size_t)rd_row_set_words(rows) * sizeof *set);
}

static int64_t count_words(const uint64_t *set, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += __builtin_popcountll(set[i]);
    return sum;
}

int64_t rd_row_set_count(const uint64_t *set, int64_t rows)
{
    const int64_t n = rd_row_set_words(rows);
    return n ? count_words(set, n - 1) + __builtin_popcountll(set[n - 1] & tail(rows)) : 0;
}

/* The first row from `from` on that is in the set (flip 0) or is not (flip UINT64_MAX); end: none before it. */
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

/* The next run of rows of the set behind *r and before end; gaps of up to `gap` rows count as part of it. */
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
    /* Long stretches are written without being read first, so from here on it is faster to zero all of it. */
    if (rd_row_set_count(set, rows) > rows / 4) {
        memset(x, 0, (size_t)rows * (size_t)dim * sizeof *x);
        return;
    }
    while (next_run(set, rows, gap, &r))
        memset(x + r.lo * dim, 0, (size_t)(r.hi - r.lo) * (size_t)dim * sizeof *x);
}

/* The row that k rows of the set come before; rows: there are no more. Beyond the last row no bit is set. */
static int64_t row_at(const uint64_t *set, int64_t rows, int64_t k)
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

/* The rows of owner o of n: those between which 1/n of the set lies. */
static comm_rows_run share_of(const rd_comm_rows *t, int64_t count, int o, int n)
{
    rd_assert(o >= 0 && o < n && count >= 0 && count <= t->rows);
    return (comm_rows_run){row_at(t->unite, t->rows, count * o / n),
                           row_at(t->unite, t->rows, count * (o + 1) / n)};
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

/* Memory in common on every host, or on none. */
static rd_code get_common(rd_comm_rows *t, int n_local, rd_status *st)
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
        rd_fail(st, RD_EBUG, "a table of %lld rows and %lld columns", (long long)rows,
                (long long)dim);
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
        if (a) RD_TRY(get_common(t, w->n_local, st));
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

/* n floats at `at` of the parts of k ranks, to or from the packed array. empty: the parts hold zeros. */
typedef void move_rows(float *const *part, int k, size_t at, float *packed, size_t n, bool empty);

/* Calls it for the rows of the union from *at on, before end, as many as the packed array holds, and moves *at behind
 * them. The parts hold zeros in rows that are not in `here` (NULL: that is not known). Returns the number of rows. */
static int64_t each_packed(const rd_comm_rows *t, int64_t *at, int64_t end, move_rows *move,
                           float *const *part, int k, int64_t first, const uint64_t *here)
{
    int64_t n = 0;
    comm_rows_run r = {*at, *at};
    while (n < t->pack_rows && next_run(t->unite, end, 0, &r)) {
        if (r.hi - r.lo > t->pack_rows - n) r.hi = r.lo + t->pack_rows - n;
        for (int64_t lo = r.lo; lo < r.hi;) { /* cut where this host has rows and has none */
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

static void comm_rows_take(float *const *part, int k, size_t at, float *packed, size_t n,
                           bool empty)
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

static void comm_rows_give(float *const *part, int k, size_t at, float *packed, size_t n,
                           bool empty)
{
    (void)empty;
    for (int r = 0; r < k; r++) memcpy(part[r] + at, packed, n * sizeof *packed);
}

/* ---- in the arena ---- */

static uint64_t *common_set(const rd_comm_rows *t, int r)
{
    return t->common + (size_t)r * (size_t)t->n_words;
}

static void unite_local(const rd_comm_rows *t, int n_local, uint64_t *set)
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
    const comm_rows_run share = share_of(t, count_words(t->unite, t->n_words), w->me, w->n_owners);
    for (comm_rows_run r = {share.lo, share.lo};
         w->n_local > 1 && next_run(t->unite, share.hi, gap, &r);)
        rd_tree_sum_all(part, w->n_local, (size_t)(first + r.lo * t->dim),
                        (size_t)((r.hi - r.lo) * t->dim));
}

/* The sum of n packed rows between hosts. */
static rd_code sum_pack(rd_comm_rows *t, rd_cross *cross, int64_t n, rd_status *st)
{
    const int64_t before = cross->sent;
    if (n > 0) (void)rd_cross_sum_wire(cross, t->wire, t->pack, n * t->dim, st);
    t->sent += cross->sent - before;
    return st->code;
}

static bool nearly_all(const rd_comm_rows *t, int64_t count)
{
    return count > t->rows - t->rows / 6;
}

/* Rows [r.lo, r.hi) of k ranks' parts, added up where they lie, between hosts too, and written into every part. */
static rd_code sum_run(rd_comm_rows *t, rd_cross *cross, float *const *part, int k, int me,
                       int64_t first, comm_rows_run r, rd_status *st)
{
    const int64_t before = cross->sent;
    for (int64_t lo = r.lo; lo < r.hi; lo += t->pack_rows) {
        const int64_t hi = lo + t->pack_rows < r.hi ? lo + t->pack_rows : r.hi,
                      at = first + lo * t->dim;
        const size_t n = (size_t)((hi - lo) * t->dim);
        if (k > 1) comm_rows_take(part, k, (size_t)at, part[me] + at, n, false);
        RD_TRY(rd_cross_sum_wire(cross, t->wire, part[me] + at, (int64_t)n, st));
        for (int q = 0; q < k; q++)
            if (q != me) memcpy(part[q] + at, part[me] + at, n * sizeof(float));
    }
done:
    t->sent += cross->sent - before;
    return st->code;
}

/* The rows of this rank's share: packed, added up between hosts, and written into every rank's part. */
static rd_code sum_packed(rd_comm_rows *t, const rd_host *w, float *const *part, int64_t first,
                          int64_t count, rd_status *st)
{
    if (w->me >= w->n_owners) return RD_OK;
    const comm_rows_run share = share_of(t, count, w->me, w->n_owners);
    if (nearly_all(t, count))
        return sum_run(t, w->cross, part, w->n_local, w->me, first, share, st);
    for (int64_t at = share.lo; at < share.hi;) {
        int64_t from = at;
        const int64_t n = each_packed(t, &at, share.hi, comm_rows_take, part, w->n_local, first,
                                      t->here);
        RD_TRY(sum_pack(t, w->cross, n, st));
        (void)each_packed(t, &from, at, comm_rows_give, part, w->n_local, first, NULL);
    }
done:
    return st->code;
}

/* Every rank's t->unite becomes the union of all hosts. */
static rd_code unite_hosts(rd_comm_rows *t, rd_host *w, rd_status *st)
{
    uint64_t *all = common_set(t, w->n_local), *failed = all + t->n_words;
    unite_local(t, w->n_local, t->here);
    if (w->me ==
        0) { /* it is one of the owners on every host; a failure is told after the barrier */
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
                "the first rank of this host cannot reach the other hosts; see its message");
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
    mine[t->n_words - 1] &= tail(t->rows);
    rd_host_barrier(w);
    if (w->n_hosts > 1)
        RD_TRY(unite_hosts(t, w, st));
    else
        unite_local(t, w->n_local, t->unite);
    const int64_t count = count_words(t->unite, t->n_words);
    if (w->n_hosts > 1)
        (void)sum_packed(t, w, part, first, count, st);
    else
        sum_in_place(t, w, part, first);
    rd_host_barrier(w);
    memcpy(touched, t->unite, (size_t)t->n_words * sizeof *touched);
    *n_summed = count;
done:
    return st->code;
}

/* ---- elsewhere ---- */

static rd_code sum_elsewhere(rd_comm_rows *t, MPI_Comm world, float *x, uint64_t *touched,
                             int64_t *n_summed, rd_status *st)
{
    memcpy(t->unite, touched, (size_t)t->n_words * sizeof *touched);
    t->unite[t->n_words - 1] &= tail(t->rows);
    RD_TRY(RD_MPI(
        MPI_Allreduce(MPI_IN_PLACE, t->unite, (int)t->n_words, MPI_UINT64_T, MPI_BOR, world), st));
    const int64_t count = count_words(t->unite, t->n_words);
    if (t->cross) t->sent += t->n_words * (int64_t)sizeof *t->unite;
    const bool dense = t->cross && nearly_all(t, count);
    if (dense) RD_TRY(sum_run(t, t->cross, &x, 1, 0, 0, (comm_rows_run){0, t->rows}, st));
    for (int64_t at = dense ? t->rows : 0; at < t->rows;) {
        int64_t from = at;
        const int64_t n = each_packed(t, &at, t->rows, comm_rows_take, &x, 1, 0, NULL);
        if (t->cross)
            RD_TRY(sum_pack(t, t->cross, n, st));
        else
            RD_TRY(rd_comm_sum_f32(t->c, t->pack, n * t->dim, st));
        (void)each_packed(t, &from, at, comm_rows_give, &x, 1, 0, NULL);
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
            (void)sum_elsewhere(t, world, x, touched, &n, st);
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
