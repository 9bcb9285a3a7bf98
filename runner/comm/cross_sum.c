/* cross_sum.c -- the sum between hosts, in an order that does not change and does not depend on MPI's library: the binary tree
 * of host_sum.c goes on over hosts.
 *
 * The number of hosts is cut into factors: of its power of two in eights, fours or twos, then what is left, which is odd. At
 * each level groups of that many hosts, neighbours first, share what they have: each sends every other one its piece and adds
 * what comes along the tree. After the last level each host has its piece of the sum over all; the same way back collects
 * the pieces. Up to eight hosts, and any odd number, need two rounds; h hosts send 2 (1 - 1/h) of the array, the least there
 * is. Groups of neighbours whose size is a power of two are branches of the tree, so that every way of cutting gives the
 * same order.
 *
 * Narrow types: what every host gives at a level is rounded, what it keeps for itself too, and so is the result, before it
 * goes round. So each element depends on what the hosts gave alone, not on where pieces begin; all hosts hold the same bytes.
 *
 * A job is one such sum under way. It never waits: rd_cross_poll goes as far as messages have come. */
#include "cross_sum.h"
#include "mpi_error.h"
#include "tree_sum.h"
#include <stdlib.h>
#include <string.h>

enum { EIGHT = 8, F64_LEAST = 512, F64_MOST = 16384, F64_ROOM = 1 << 20, BLOCK = 1024 };

typedef struct cross_sum_range {
    int64_t from, n;
} cross_sum_range;

static cross_sum_range piece(cross_sum_range r, int radix, int q)
{
    rd_assert(q >= 0 && q < radix && r.n >= 0);
    const int64_t lo = r.n * q / radix, hi = r.n * (q + 1) / radix;
    return (cross_sum_range){r.from + lo, hi - lo};
}

struct rd_cross_job {
    rd_cross *c; /* borrowed */
    float *x;    /* of the caller */
    rd_wire wire;
    int step, tag, n_req; /* step: levels up, then down */
    cross_sum_range at[RD_CROSS_LEVELS + 1];
    MPI_Request *req, *own_req; /* own_req: NULL where req is borrowed */
    unsigned char *give, *take;
    float *wide; /* a block of each member of a group; narrow types */
    const float **src;
    int64_t room;
};

static int digit(const rd_cross *c, int l)
{
    return c->me / c->stride[l] % c->radix[l];
}

static int member(const rd_cross *c, int l, int q)
{
    return c->me + (q - digit(c, l)) * c->stride[l];
}

static rd_code send(rd_cross_job *j, int to, const void *p, int64_t n, rd_status *st)
{
    const int64_t bytes = n * (int64_t)rd_wire_bytes(j->wire);
    rd_assert(to != j->c->me && to >= 0 && to < j->c->size && j->n_req < j->c->n_requests);
    j->c->sent += bytes;
    return RD_MPI(MPI_Isend(p, (int)bytes, MPI_BYTE, to, j->tag + j->step, j->c->comm,
                            &j->req[j->n_req++]),
                  st);
}

static rd_code receive(rd_cross_job *j, int from, void *p, int64_t n, rd_status *st)
{
    const int64_t bytes = n * (int64_t)rd_wire_bytes(j->wire);
    rd_assert(from != j->c->me && from >= 0 && from < j->c->size);
    rd_assert(j->n_req < j->c->n_requests);
    return RD_MPI(MPI_Irecv(p, (int)bytes, MPI_BYTE, from, j->tag + j->step, j->c->comm,
                            &j->req[j->n_req++]),
                  st);
}

/* Every member's piece to that member; theirs of mine come into slots of take, in order. */
static rd_code begin_sum(rd_cross_job *j, int l, rd_status *st)
{
    const rd_cross *c = j->c;
    const size_t size = rd_wire_bytes(j->wire);
    const int me = digit(c, l), radix = c->radix[l];
    const cross_sum_range mine = piece(j->at[l], radix, me);
    for (int q = 0, slot = 0; q < radix; q++) {
        if (q == me) continue;
        if (mine.n > 0)
            RD_TRY(receive(j, member(c, l, q), j->take + (size_t)(slot++ * mine.n) * size, mine.n,
                           st));
    }
    for (int i = 1; i < radix; i++) { /* not all to the same one first */
        const int q = (me + i) % radix;
        const cross_sum_range p = piece(j->at[l], radix, q);
        const void *from = j->x + p.from;
        if (p.n == 0) continue;
        if (j->wire != RD_WIRE_F32) {
            unsigned char *to = j->give + (size_t)(p.from - j->at[l].from) * size;
            rd_wire_narrow(j->wire, j->x + p.from, p.n, to);
            from = to;
        }
        RD_TRY(send(j, member(c, l, q), from, p.n, st));
    }
done:
    return st->code;
}

static void end_sum(rd_cross_job *j, int l)
{
    const rd_cross *c = j->c;
    const int me = digit(c, l), radix = c->radix[l];
    const cross_sum_range mine = piece(j->at[l], radix, me);
    const size_t size = rd_wire_bytes(j->wire);
    float *x = j->x + mine.from;
    rd_assert(l < c->n_levels && mine.from + mine.n <= j->room);
    for (int64_t i = 0; i < mine.n; i += BLOCK) {
        const int64_t m = mine.n - i < BLOCK ? mine.n - i : BLOCK;
        rd_wire_round(j->wire, x + i, m);
        for (int q = 0, slot = 0; q < radix; q++) {
            if (q == me) {
                j->src[q] = x + i;
                continue;
            }
            unsigned char *p = j->take + (size_t)(slot++ * mine.n + i) * size;
            j->src[q] = j->wire == RD_WIRE_F32 ? (float *)(void *)p : j->wide + q * BLOCK;
            if (j->wire != RD_WIRE_F32) rd_wire_widen(j->wire, p, m, j->wide + q * BLOCK);
        }
        rd_tree_sum_f32(x + i, (const void *const *)j->src, radix, (size_t)m);
        if (l + 1 == c->n_levels) rd_wire_round(j->wire, x + i, m);
    }
    j->at[l + 1] = mine;
}

static rd_code begin_collect(rd_cross_job *j, int l, rd_status *st)
{
    const rd_cross *c = j->c;
    const size_t size = rd_wire_bytes(j->wire);
    const int me = digit(c, l), radix = c->radix[l];
    const cross_sum_range mine = piece(j->at[l], radix, me);
    const void *from = j->x + mine.from;
    for (int q = 0; q < radix; q++) {
        const cross_sum_range p = piece(j->at[l], radix, q);
        void *to = j->x + p.from;
        if (q == me || p.n == 0) continue;
        if (j->wire != RD_WIRE_F32) to = j->take + (size_t)(p.from - j->at[l].from) * size;
        RD_TRY(receive(j, member(c, l, q), to, p.n, st));
    }
    if (mine.n == 0) goto done;
    if (j->wire != RD_WIRE_F32) {
        rd_wire_narrow(j->wire, j->x + mine.from, mine.n,
                       j->give); /* they are rounded already: nothing is lost */
        from = j->give;
    }
    for (int i = 1; i < radix; i++)
        RD_TRY(send(j, member(c, l, (me + i) % radix), from, mine.n, st));
done:
    return st->code;
}

static void end_collect(rd_cross_job *j, int l)
{
    const int me = digit(j->c, l), radix = j->c->radix[l];
    for (int q = 0; q < radix && j->wire != RD_WIRE_F32; q++) {
        const cross_sum_range p = piece(j->at[l], radix, q);
        if (q == me) continue;
        rd_wire_widen(j->wire, j->take + (size_t)(p.from - j->at[l].from) * rd_wire_bytes(j->wire),
                      p.n, j->x + p.from);
    }
}

static rd_code begin_step(rd_cross_job *j, rd_status *st)
{
    const int levels = j->c->n_levels;
    j->n_req = 0;
    return j->step < levels ? begin_sum(j, j->step, st)
                            : begin_collect(j, 2 * levels - 1 - j->step, st);
}

static void end_step(rd_cross_job *j)
{
    const int levels = j->c->n_levels;
    if (j->step < levels)
        end_sum(j, j->step);
    else
        end_collect(j, 2 * levels - 1 - j->step);
}

int64_t rd_cross_chunk(rd_wire w)
{
    return RD_CROSS_CHUNK / (int64_t)rd_wire_bytes(w);
}

rd_code rd_cross_start(rd_cross_job *j, float *x, int64_t n, int tag, rd_status *st)
{
    if (n > j->room)
        return rd_fail(st, RD_EBUG, "a sum of %lld numbers, room for %lld", (long long)n,
                       (long long)j->room);
    rd_assert(n >= 0);
    j->x = x;
    j->at[0] = (cross_sum_range){0, n};
    j->tag = tag;
    j->step = 0;
    return j->c->n_levels > 0 ? begin_step(j, st) : st->code;
}

rd_code rd_cross_poll(rd_cross_job *j, bool *done, rd_status *st)
{
    const int steps = 2 * j->c->n_levels;
    *done = false;
    while (j->step < steps) {
        int come = 0;
        RD_TRY(RD_MPI(MPI_Testall(j->n_req, j->req, &come, MPI_STATUSES_IGNORE), st));
        if (!come) goto done;
        end_step(j);
        if (++j->step < steps) RD_TRY(begin_step(j, st));
    }
    *done = true;
done:
    return st->code;
}

void rd_cross_job_free(rd_cross_job *j)
{
    if (!j) return;
    free(j->own_req);
    free(j->give);
    free(j->take);
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

rd_code rd_cross_job_new(rd_cross *c, int64_t room, rd_wire wire, MPI_Request *req,
                         rd_cross_job **out, rd_status *st)
{
    rd_cross_job *j = calloc(1, sizeof *j);
    const int widest = widest_level(c);
    *out = NULL;
    if (j) {
        const size_t size = rd_wire_bytes(wire);
        *j = (rd_cross_job){.c = c, .wire = wire, .room = room};
        j->req = req ? req : (j->own_req = malloc((size_t)c->n_requests * sizeof *j->req));
        j->take = malloc((size_t)(room + widest) * size);
        j->src = calloc((size_t)widest, sizeof *j->src);
        if (wire != RD_WIRE_F32) {
            j->give = malloc((size_t)room * size);
            j->wide = malloc((size_t)widest * BLOCK * sizeof(float));
        }
    }
    if (!j || !j->req || !j->take || !j->src || (wire != RD_WIRE_F32 && (!j->give || !j->wide))) {
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

rd_code rd_cross_new(MPI_Comm comm, rd_cross **out, rd_status *st)
{
    rd_cross *c = *out = calloc(1, sizeof *c);
    if (!c) return rd_fail(st, RD_EENV, "out of memory for sums between hosts");
    c->comm = comm;
    RD_TRY(RD_MPI(MPI_Comm_rank(comm, &c->me), st));
    RD_TRY(RD_MPI(MPI_Comm_size(comm, &c->size), st));
    int two = c->size & -c->size, stride = 1; /* the power of two in it */
    const int odd = c->size / two;
    while (stride < c->size) {
        const int radix = two == 1 ? odd : two < EIGHT ? two : EIGHT;
        c->radix[c->n_levels] = radix;
        c->stride[c->n_levels++] = stride;
        stride *= radix;
        if (two > 1) two /= radix;
    }
    rd_assert(stride == c->size && c->n_levels <= RD_CROSS_LEVELS);
    c->n_requests = 2 * widest_level(c);
    c->request = malloc((size_t)(RD_CROSS_DEEP * c->n_requests) * sizeof *c->request);
    c->f64_piece = F64_ROOM / c->size < F64_LEAST  ? F64_LEAST
                   : F64_ROOM / c->size > F64_MOST ? F64_MOST
                                                   : F64_ROOM / c->size;
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

/* Job k of this wire type, whose requests stand beside those of the others. */
static rd_code take_job(rd_cross *c, rd_wire wire, int k, rd_cross_job **out, rd_status *st)
{
    rd_assert(k >= 0 && k < RD_CROSS_DEEP);
    if (!c->job[wire][k])
        RD_TRY(rd_cross_job_new(c, rd_cross_chunk(wire), wire, c->request + k * c->n_requests,
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
            RD_TRY(take_job(c, wire, k, &j, st));
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

/* Few numbers: every host gets all of them, and adds them up itself. */
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
