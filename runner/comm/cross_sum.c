/* cross_sum.c -- the sum between hosts, in a fixed order that does not depend on the MPI library:
 * the binary tree of host_sum.c goes on over hosts.
 *
 * The number of hosts is split into factors: eights, fours or twos for its power of two, then the
 * odd rest. Each factor is a level. At a level, groups of that many hosts exchange data, neighbours
 * first. Each host sends every other host of the group the piece of that host, and sums what it
 * receives along the tree. After the last level each host has its piece of the sum over all hosts.
 * The same levels in reverse order collect the pieces.
 *
 * Up to eight hosts, and any odd number, need two rounds of messages. With h hosts each sends
 * 2 (1 - 1/h) of the array, which is the minimum. Groups of neighbours whose size is a power of two
 * are branches of the tree, so every split gives the same order.
 *
 * 16-bit types: every host rounds what it sends at a level, and also what it keeps. The result is
 * rounded before it is sent. So each element depends only on the hosts' values and not on where
 * pieces begin, and all hosts hold the same bytes.
 *
 * A job can also stop after the last level, when each host has its piece, or only collect pieces.
 * The pieces are then those of the caller (shard.c), which may differ in size. No element of a sum
 * depends on where pieces begin.
 *
 * A job is one such sum in progress. It never waits: rd_cross_poll goes as far as
 * messages have arrived. */
#include "cross_sum.h"
#include "mpi_error.h"
#include "tree_sum.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { EIGHT = 8, F64_LEAST = 512, F64_MOST = 16384, F64_NUMBERS = 1 << 20, BLOCK = 1024 };

typedef struct cross_sum_range {
    int64_t from, n;
} cross_sum_range;

struct rd_cross_job {
    rd_cross *c; /* borrowed */
    float *x;    /* borrowed; the array */
    rd_wire wire;
    int step;           /* 0 .. n_levels - 1: sums; then as many steps that collect */
    int end;            /* the step after the last one */
    int tag;            /* tag of the messages of step 0 */
    const int64_t *cut; /* borrowed; [size + 1] where pieces begin; NULL: pieces of equal size */
    int first[RD_CROSS_LEVELS + 1]; /* with cut: the first piece that each level works on */
    int n_req;                      /* requests of this step */
    cross_sum_range at[RD_CROSS_LEVELS + 1]; /* the part of x that each level works on */
    MPI_Request *req, *own_req;              /* own_req: owned; NULL if req is borrowed */
    unsigned char *send_buf, *recv_buf;      /* owned; in the wire's type */
    float *wide;       /* owned; one block per host of a group, for 16-bit types */
    const float **src; /* owned; the terms of a sum */
    int64_t capacity;  /* most numbers of a sum */
};

/* Returns this host's place in its group at level l. */
static int cross_digit(const rd_cross *c, int l)
{
    return c->me / c->stride[l] % c->radix[l];
}

/* Returns the rank of the host at place q of the group. */
static int cross_member(const rd_cross *c, int l, int q)
{
    return c->me + (q - cross_digit(c, l)) * c->stride[l];
}

/* Returns how many of the caller's pieces belong to one host of a group at level l. */
static int cross_width(const rd_cross *c, int l)
{
    int width = 1;
    for (int k = l + 1; k < c->n_levels; k++) width *= c->radix[k];
    return width;
}

/* Returns what the host at place q of the group gets of the range of level l. */
static cross_sum_range cross_piece(const rd_cross_job *j, int l, int q)
{
    const int radix = j->c->radix[l];
    const cross_sum_range r = j->at[l];
    rd_assert(q >= 0 && q < radix && r.n >= 0);
    if (j->cut) {
        const int width = cross_width(j->c, l), at = j->first[l] + q * width;
        return (cross_sum_range){j->cut[at], j->cut[at + width] - j->cut[at]};
    }
    const int64_t lo = r.n * q / radix, hi = r.n * (q + 1) / radix;
    return (cross_sum_range){r.from + lo, hi - lo};
}

/* Starts to send n numbers. */
static rd_code cross_send(rd_cross_job *j, int to, const void *p, int64_t n, rd_status *st)
{
    const int64_t bytes = n * (int64_t)rd_wire_bytes(j->wire);
    rd_assert(to != j->c->me && to >= 0 && to < j->c->size && j->n_req < j->c->n_requests);
    j->c->sent += bytes;
    return RD_MPI(MPI_Isend(p, (int)bytes, MPI_BYTE, to, j->tag + j->step, j->c->comm,
                            &j->req[j->n_req++]),
                  st);
}

/* Starts to receive n numbers. */
static rd_code cross_receive(rd_cross_job *j, int from, void *p, int64_t n, rd_status *st)
{
    const int64_t bytes = n * (int64_t)rd_wire_bytes(j->wire);
    rd_assert(from != j->c->me && from >= 0 && from < j->c->size);
    rd_assert(j->n_req < j->c->n_requests);
    return RD_MPI(MPI_Irecv(p, (int)bytes, MPI_BYTE, from, j->tag + j->step, j->c->comm,
                            &j->req[j->n_req++]),
                  st);
}

/* Sends every host of the group its piece. Receives their terms for this host's piece in slots of
 * recv_buf, in order. */
static rd_code cross_begin_sum(rd_cross_job *j, int l, rd_status *st)
{
    const rd_cross *c = j->c;
    const size_t size = rd_wire_bytes(j->wire);
    const int me = cross_digit(c, l), radix = c->radix[l];
    const cross_sum_range mine = cross_piece(j, l, me);
    for (int q = 0, slot = 0; q < radix; q++) {
        if (q == me) continue;
        if (mine.n > 0)
            RD_TRY(cross_receive(j, cross_member(c, l, q),
                                 j->recv_buf + (size_t)(slot++ * mine.n) * size, mine.n, st));
    }
    for (int i = 1; i < radix; i++) { /* start at another host than the others do */
        const int q = (me + i) % radix;
        const cross_sum_range p = cross_piece(j, l, q);
        const void *from = j->x + p.from;
        if (p.n == 0) continue;
        if (j->wire != RD_WIRE_F32) {
            unsigned char *to = j->send_buf + (size_t)(p.from - j->at[l].from) * size;
            rd_wire_narrow(j->wire, j->x + p.from, p.n, to);
            from = to;
        }
        RD_TRY(cross_send(j, cross_member(c, l, q), from, p.n, st));
    }
done:
    return st->code;
}

/* Sums this host's piece over the group. */
static void cross_end_sum(rd_cross_job *j, int l)
{
    const rd_cross *c = j->c;
    const int me = cross_digit(c, l), radix = c->radix[l];
    const cross_sum_range mine = cross_piece(j, l, me);
    const size_t size = rd_wire_bytes(j->wire);
    float *x = j->x + mine.from;
    rd_assert(l < c->n_levels && mine.from + mine.n <= j->capacity);
    for (int64_t i = 0; i < mine.n; i += BLOCK) {
        const int64_t m = mine.n - i < BLOCK ? mine.n - i : BLOCK;
        rd_wire_round(j->wire, x + i, m);
        for (int q = 0, slot = 0; q < radix; q++) {
            if (q == me) {
                j->src[q] = x + i;
                continue;
            }
            unsigned char *p = j->recv_buf + (size_t)(slot++ * mine.n + i) * size;
            j->src[q] = j->wire == RD_WIRE_F32 ? (float *)(void *)p : j->wide + q * BLOCK;
            if (j->wire != RD_WIRE_F32) rd_wire_widen(j->wire, p, m, j->wide + q * BLOCK);
        }
        rd_tree_sum_f32(x + i, (const void *const *)j->src, radix, (size_t)m);
        if (l + 1 == c->n_levels) rd_wire_round(j->wire, x + i, m);
    }
    j->at[l + 1] = mine;
}

/* Sends this host's piece of the result to the group and receives theirs. */
static rd_code cross_begin_collect(rd_cross_job *j, int l, rd_status *st)
{
    const rd_cross *c = j->c;
    const size_t size = rd_wire_bytes(j->wire);
    const int me = cross_digit(c, l), radix = c->radix[l];
    const cross_sum_range mine = cross_piece(j, l, me);
    const void *from = j->x + mine.from;
    for (int q = 0; q < radix; q++) {
        const cross_sum_range p = cross_piece(j, l, q);
        void *to = j->x + p.from;
        if (q == me || p.n == 0) continue;
        if (j->wire != RD_WIRE_F32) to = j->recv_buf + (size_t)(p.from - j->at[l].from) * size;
        RD_TRY(cross_receive(j, cross_member(c, l, q), to, p.n, st));
    }
    if (mine.n == 0) goto done;
    if (j->wire != RD_WIRE_F32) {
        /* The numbers are rounded already, so nothing is lost. */
        rd_wire_narrow(j->wire, j->x + mine.from, mine.n, j->send_buf);
        from = j->send_buf;
    }
    for (int i = 1; i < radix; i++)
        RD_TRY(cross_send(j, cross_member(c, l, (me + i) % radix), from, mine.n, st));
done:
    return st->code;
}

/* Writes the received pieces to x, for 16-bit types. */
static void cross_end_collect(rd_cross_job *j, int l)
{
    const int me = cross_digit(j->c, l), radix = j->c->radix[l];
    for (int q = 0; q < radix && j->wire != RD_WIRE_F32; q++) {
        const cross_sum_range p = cross_piece(j, l, q);
        if (q == me) continue;
        rd_wire_widen(j->wire,
                      j->recv_buf + (size_t)(p.from - j->at[l].from) * rd_wire_bytes(j->wire), p.n,
                      j->x + p.from);
    }
}

static rd_code cross_begin_step(rd_cross_job *j, rd_status *st)
{
    const int levels = j->c->n_levels;
    j->n_req = 0;
    return j->step < levels ? cross_begin_sum(j, j->step, st)
                            : cross_begin_collect(j, 2 * levels - 1 - j->step, st);
}

static void cross_end_step(rd_cross_job *j)
{
    const int levels = j->c->n_levels;
    if (j->step < levels)
        cross_end_sum(j, j->step);
    else
        cross_end_collect(j, 2 * levels - 1 - j->step);
}

int64_t rd_cross_chunk(rd_wire w)
{
    return RD_CROSS_CHUNK / (int64_t)rd_wire_bytes(w);
}

rd_code rd_cross_start(rd_cross_job *j, float *x, int64_t n, int tag, rd_status *st)
{
    if (n > j->capacity)
        return rd_fail(st, RD_EBUG, "a sum of %" PRId64 " numbers exceeds the capacity of %" PRId64,
                       n, j->capacity);
    rd_assert(n >= 0);
    j->x = x;
    j->at[0] = (cross_sum_range){0, n};
    j->cut = NULL;
    j->tag = tag;
    j->step = 0;
    j->end = 2 * j->c->n_levels;
    return j->end > 0 ? cross_begin_step(j, st) : st->code;
}

rd_code rd_cross_start_pieces(rd_cross_job *j, float *x, const int64_t *cut, bool collect, int tag,
                              rd_status *st)
{
    const rd_cross *c = j->c;
    const int levels = c->n_levels;
    if (cut[c->size] > j->capacity)
        return rd_fail(st, RD_EBUG, "pieces of %" PRId64 " numbers exceed the capacity of %" PRId64,
                       cut[c->size], j->capacity);
    j->x = x;
    j->cut = cut;
    j->at[0] = (cross_sum_range){cut[0], cut[c->size] - cut[0]};
    j->first[0] = 0;
    for (int l = 0; l < levels; l++) {
        j->at[l + 1] = cross_piece(j, l, cross_digit(c, l));
        j->first[l + 1] = j->first[l] + cross_digit(c, l) * cross_width(c, l);
    }
    j->tag = tag;
    j->step = collect ? levels : 0;
    j->end = collect ? 2 * levels : levels;
    return levels > 0 ? cross_begin_step(j, st) : st->code;
}

rd_code rd_cross_poll(rd_cross_job *j, bool *done, rd_status *st)
{
    *done = false;
    while (j->step < j->end) {
        int arrived = 0;
        RD_TRY(RD_MPI(MPI_Testall(j->n_req, j->req, &arrived, MPI_STATUSES_IGNORE), st));
        if (!arrived) goto done;
        cross_end_step(j);
        if (++j->step < j->end) RD_TRY(cross_begin_step(j, st));
    }
    *done = true;
done:
    return st->code;
}

void rd_cross_job_free(rd_cross_job *j)
{
    if (!j) return;
    free(j->own_req);
    free(j->send_buf);
    free(j->recv_buf);
    free(j->wide);
    free(j->src);
    free(j);
}

static int widest_level(const rd_cross *c)
{
    int widest = 2;
    for (int l = 0; l < c->n_levels; l++)
        if (c->radix[l] > widest) widest = c->radix[l];
    return widest;
}

rd_code rd_cross_job_new(rd_cross *c, int64_t capacity, int64_t received, rd_wire wire,
                         MPI_Request *req, rd_cross_job **out, rd_status *st)
{
    rd_cross_job *j = calloc(1, sizeof *j);
    const int widest = widest_level(c);
    const int64_t most = received < 0 ? capacity + widest : received + 1;
    *out = NULL;
    if (j) {
        const size_t size = rd_wire_bytes(wire);
        *j = (rd_cross_job){.c = c, .wire = wire, .capacity = capacity};
        j->req = req ? req : (j->own_req = malloc((size_t)c->n_requests * sizeof *j->req));
        j->recv_buf = malloc((size_t)most * size);
        j->src = calloc((size_t)widest, sizeof *j->src);
        if (wire != RD_WIRE_F32) {
            j->send_buf = malloc((size_t)capacity * size);
            j->wide = malloc((size_t)widest * BLOCK * sizeof(float));
        }
    }
    if (!j || !j->req || !j->recv_buf || !j->src ||
        (wire != RD_WIRE_F32 && (!j->send_buf || !j->wide))) {
        rd_cross_job_free(j);
        return rd_fail(st, RD_EENV, "out of memory for sums between hosts");
    }
    *out = j;
    return RD_OK;
}

void rd_cross_free(rd_cross *c)
{
    if (!c) return;
    for (int w = 0; w < 3; w++)
        for (int k = 0; k < RD_CROSS_DEEP; k++) rd_cross_job_free(c->job[w][k]);
    free(c->request);
    free(c->all);
    free(c);
}

/* Cuts c->size into levels. */
static void cross_make_levels(rd_cross *c)
{
    int two = c->size & -c->size, stride = 1; /* two: the power of two in the number of hosts */
    const int odd = c->size / two;
    while (stride < c->size) {
        const int radix = two == 1 ? odd : two < EIGHT ? two : EIGHT;
        c->radix[c->n_levels] = radix;
        c->stride[c->n_levels++] = stride;
        stride *= radix;
        if (two > 1) two /= radix;
    }
    rd_assert(stride == c->size && c->n_levels <= RD_CROSS_LEVELS);
}

int rd_cross_place(int size, int rank)
{
    rd_cross c = {.size = size, .me = rank};
    int place = 0;
    cross_make_levels(&c);
    for (int l = 0; l < c.n_levels; l++) place += cross_digit(&c, l) * cross_width(&c, l);
    return place;
}

int64_t rd_cross_received(const rd_cross *c, const int64_t *cut)
{
    int64_t most = 0;
    int first = 0;
    for (int l = 0; l < c->n_levels; l++) {
        const int width = cross_width(c, l);
        first += cross_digit(c, l) * width;
        const int64_t n = (c->radix[l] - 1) * (cut[first + width] - cut[first]);
        if (n > most) most = n;
    }
    return most;
}

rd_code rd_cross_new(MPI_Comm comm, rd_cross **out, rd_status *st)
{
    rd_cross *c = *out = calloc(1, sizeof *c);
    if (!c) return rd_fail(st, RD_EENV, "out of memory for sums between hosts");
    c->comm = comm;
    RD_TRY(RD_MPI(MPI_Comm_rank(comm, &c->me), st));
    RD_TRY(RD_MPI(MPI_Comm_size(comm, &c->size), st));
    cross_make_levels(c);
    c->n_requests = 2 * widest_level(c);
    c->request = malloc((size_t)(RD_CROSS_DEEP * c->n_requests) * sizeof *c->request);
    c->f64_piece = F64_NUMBERS / c->size < F64_LEAST  ? F64_LEAST
                   : F64_NUMBERS / c->size > F64_MOST ? F64_MOST
                                                      : F64_NUMBERS / c->size;
    c->all = malloc((size_t)c->size * (size_t)c->f64_piece * sizeof *c->all);
    if (!c->all || !c->request) {
        rd_fail(st, RD_EENV, "out of memory for sums between hosts");
        goto done;
    }
    for (int i = 0; i < RD_CROSS_DEEP * c->n_requests; i++) c->request[i] = MPI_REQUEST_NULL;
done:
    if (st->code != RD_OK) {
        rd_cross_free(c);
        *out = NULL;
    }
    return st->code;
}

/* Finds job k of this wire type, and makes it at the first call. Its requests are next to those of
 * the other jobs. */
static rd_code cross_get_job(rd_cross *c, rd_wire wire, int k, rd_cross_job **out, rd_status *st)
{
    rd_assert(k >= 0 && k < RD_CROSS_DEEP);
    if (!c->job[wire][k])
        RD_TRY(rd_cross_job_new(c, rd_cross_chunk(wire), -1, wire, c->request + k * c->n_requests,
                                &c->job[wire][k], st));
    *out = c->job[wire][k];
done:
    return st->code;
}

rd_code rd_cross_sum_wire(rd_cross *c, rd_wire wire, float *x, int64_t n, rd_status *st)
{
    const int64_t chunk = rd_cross_chunk(wire), n_chunks = (n + chunk - 1) / chunk;
    bool done[RD_CROSS_DEEP] = {false};
    rd_cross_job *j = NULL;
    for (int64_t begun = 0, retired = 0; retired < n_chunks;) {
        for (; begun < n_chunks && begun - retired < RD_CROSS_DEEP; begun++) {
            const int k = (int)(begun % RD_CROSS_DEEP);
            const int64_t at = begun * chunk;
            RD_TRY(cross_get_job(c, wire, k, &j, st));
            RD_TRY(rd_cross_start(j, x + at, n - at < chunk ? n - at : chunk,
                                  RD_CROSS_TAGS * (1 + k), st));
            done[k] = false;
        }
        for (int64_t i = retired; i < begun; i++) {
            const int k = (int)(i % RD_CROSS_DEEP);
            if (!done[k]) RD_TRY(rd_cross_poll(c->job[wire][k], &done[k], st));
        }
        rd_assert(retired < begun && begun - retired <= RD_CROSS_DEEP);
        const int64_t before = retired;
        while (retired < begun && done[retired % RD_CROSS_DEEP]) retired++;
        int which;
        if (retired == before)
            RD_TRY(RD_MPI(MPI_Waitany(RD_CROSS_DEEP * c->n_requests, c->request, &which,
                                      MPI_STATUS_IGNORE),
                          st));
    }
done:
    return st->code;
}

rd_code rd_cross_sum(rd_cross *c, float *x, int64_t n, rd_status *st)
{
    return rd_cross_sum_wire(c, RD_WIRE_F32, x, n, st);
}

/* For few numbers: every host receives all of them and sums them itself. */
rd_code rd_cross_sum_f64(rd_cross *c, double *x, int64_t n, rd_status *st)
{
    for (int64_t i = 0; i < n; i += c->f64_piece) {
        const int64_t m = n - i < c->f64_piece ? n - i : c->f64_piece;
        RD_TRY(RD_MPI(MPI_Allgather(x + i, (int)m, MPI_DOUBLE, c->all, (int)m, MPI_DOUBLE, c->comm),
                      st));
        for (int64_t k = 0; k < m; k++) c->all[k] = rd_tree_sum_strided(c->all + k, m, 0, c->size);
        memcpy(x + i, c->all, (size_t)m * sizeof *x);
    }
done:
    return st->code;
}
