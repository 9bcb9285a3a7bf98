/* shard.c -- which part of the parameters each host updates, and the messages between the hosts.
 *
 * Parts are cut into stripes, each of about the size of a chunk of cross_flow.c. A stripe is cut
 * into one piece for each host, in the order in which the levels of cross_sum.c deal them. Every
 * host so gets a piece of every bucket: while backward runs, no host receives more than another.
 * Pieces begin at the caller's cuts, so a block of the optimizer is never divided. A host that got
 * less than others so far gets more of the next stripe, so the parts differ by about a block.
 *
 * The stripes of a part are dealt to the ranks of a host. The ranks with the same stripes on all
 * hosts exchange them, as the owners of equal slices do.
 *
 * Ranks with GPUs get one long piece each (rd_shard_plan.stripe): NCCL sums whole buckets, and then
 * spreads the pieces. */
#include "shard_impl.h"
#include "comm_mpi.h"
#include "rd/clock.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_FETCH = 7, BLOCK = 4096 /* least elements of a stripe */ };

int rd_shard_n_hosts(const rd_shard *s)
{
    return s->n_hosts;
}
int rd_shard_host(const rd_shard *s)
{
    return s->host;
}
bool rd_shard_shares(const rd_shard *s)
{
    return s->by_hosts;
}
const rd_shard_piece *rd_shard_pieces(const rd_shard *s, int64_t *n)
{
    *n = s->n_pieces;
    return s->piece;
}
int64_t rd_shard_kept(const rd_shard *s, int host)
{
    return s->kept_of[host];
}
int64_t rd_shard_sent(const rd_shard *s)
{
    return s->sent;
}

double rd_shard_seconds(const rd_shard *s)
{
    return (double)s->spent_ns * 1e-9;
}

int64_t rd_shard_find(const rd_shard *s, int64_t element)
{
    int64_t lo = 0, hi = s->n_pieces; /* piece lo begins at or before the element */
    while (hi - lo > 1) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (s->piece[mid].lo <= element)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- cutting ---- */

/* Returns the largest cut that is at most x; -1: none. *above: the next one; INT64_MAX: none. */
static int64_t shard_cut_below(const rd_shard_plan *p, int64_t x, int64_t *above)
{
    int64_t lo = -1, hi = p->n_cuts;
    while (hi - lo > 1) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (p->cut[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    *above = hi < p->n_cuts ? p->cut[hi] : INT64_MAX;
    return lo < 0 ? -1 : p->cut[lo];
}

/* Returns the end of the stripe that begins at `from`. */
static int64_t shard_stripe_end(const rd_shard_plan *p, int64_t from, int64_t most, int64_t end)
{
    int64_t above;
    if (end - from <= most) return end;
    const int64_t below = shard_cut_below(p, from + most, &above);
    if (below > from) return below;
    return above < end ? above : end; /* one block is longer than a stripe */
}

/* Returns what host h should get of the next n elements, after `dealt` have been dealt. */
static int64_t shard_share(const rd_shard *s, int h, int64_t dealt, int64_t n)
{
    const int64_t want = (dealt + n) / s->n_hosts - s->kept_of[h];
    return want < 0 ? 0 : want > n ? n : want;
}

/* Fills cut[n_hosts + 1] for a stripe. host_at: the host of each piece. Counts the pieces in
 * s->kept_of. */
static void shard_cut_stripe(rd_shard *s, const rd_shard_plan *p, int64_t from, int64_t n,
                             const int *host_at, int64_t *cut)
{
    int64_t above, all = 0, sum = 0;
    const bool counts = from < s->kept; /* else there is no state of it */
    for (int k = 0; k < s->n_hosts && counts; k++) all += shard_share(s, host_at[k], s->dealt, n);
    cut[0] = 0;
    for (int k = 1; k <= s->n_hosts; k++) {
        sum += shard_share(s, host_at[k - 1], s->dealt, n);
        const int64_t at = from + (all > 0 ? sum * n / all : n * k / s->n_hosts),
                      below = shard_cut_below(p, at, &above);
        int64_t to = at - below <= above - at ? below - from : above - from;
        if (to > n || k == s->n_hosts) to = n;
        cut[k] = to < cut[k - 1] ? cut[k - 1] : to;
    }
    for (int k = 0; k < s->n_hosts && counts; k++) s->kept_of[host_at[k]] += cut[k + 1] - cut[k];
    s->dealt += counts ? n : 0;
}

/* Counts stripes and pieces, and then calls itself to make them. host_at: the host of piece p of
 * the stripes of owner o, at [o * n_hosts + p]. */
static rd_code shard_divide(rd_shard *s, const rd_shard_plan *p, const int *host_at, bool make,
                            rd_status *st)
{
    int64_t n = 0, n_mine = 0;
    int64_t *cut = malloc(((size_t)s->n_hosts + 1) * sizeof *cut);
    if (!cut) return rd_fail(st, RD_EENV, "out of memory for the parts of %d hosts", s->n_hosts);
    for (int i = 0; i < p->n_parts + p->n_rest; i++) {
        const bool flows = i < p->n_parts;
        const rd_flow_part *r = flows ? &p->part[i] : &p->rest[i - p->n_parts];
        const int64_t end = r->from + r->n, chunk = rd_cross_chunk(p->wire),
                      share = (r->n + s->n_owners - 1) / s->n_owners,
                      most = share < BLOCK   ? BLOCK
                             : share < chunk ? share
                                             : chunk;
        int64_t m = 0, j = 0;
        for (int64_t at = r->from; at < end; m++) at = shard_stripe_end(p, at, most, end);
        for (int64_t at = r->from; at < end; j++) {
            const int64_t to = shard_stripe_end(p, at, most, end);
            const int owner = (int)(j * s->n_owners / m);
            n += s->n_hosts;
            if (make) {
                shard_cut_stripe(s, p, at, to - at, host_at + owner * s->n_hosts, cut);
                for (int k = 0; k < s->n_hosts; k++)
                    s->piece[s->n_pieces++] = (rd_shard_piece){
                        .lo = at + cut[k],
                        .hi = at + cut[k + 1],
                        .host = host_at[owner * s->n_hosts + k]};
            }
            if (owner == s->me && make) {
                rd_stripe *t = &s->stripe[s->n_stripes++];
                *t = (rd_stripe){.from = at, .n = to - at, .part = flows ? i : -1, .cut = cut};
                cut = malloc(((size_t)s->n_hosts + 1) * sizeof *cut);
                if (!cut)
                    return rd_fail(st, RD_EENV, "out of memory for the parts of %d hosts",
                                   s->n_hosts);
            }
            n_mine += owner == s->me;
            at = to;
        }
    }
    free(cut);
    if (make) return RD_OK;
    s->piece = calloc((size_t)n + 1, sizeof *s->piece);
    s->stripe = calloc((size_t)n_mine + 1, sizeof *s->stripe);
    if (!s->piece || !s->stripe || n_mine > INT_MAX)
        return rd_fail(st, RD_EENV, "out of memory for the parts of %d hosts", s->n_hosts);
    return shard_divide(s, p, host_at, true, st);
}

static int shard_by_place(const void *a, const void *b)
{
    const int64_t x = ((const rd_shard_piece *)a)->lo, y = ((const rd_shard_piece *)b)->lo;
    return (x > y) - (x < y);
}

/* Sorts the pieces, unites neighbours of one host, drops empty ones, and counts their elements. */
static void shard_order(rd_shard *s)
{
    int64_t n = 0;
    qsort(s->piece, (size_t)s->n_pieces, sizeof *s->piece, shard_by_place);
    for (int64_t i = 0; i < s->n_pieces; i++) {
        rd_shard_piece *p = &s->piece[i];
        if (p->lo == p->hi) continue;
        rd_assert(n == 0 || s->piece[n - 1].hi == p->lo); /* nothing is left out */
        if (n > 0 && s->piece[n - 1].host == p->host)
            s->piece[n - 1].hi = p->hi;
        else
            s->piece[n++] = *p;
    }
    s->n_pieces = n;
    memset(s->kept_of, 0, (size_t)s->n_hosts * sizeof *s->kept_of);
    for (int64_t i = 0; i < n; i++) {
        rd_shard_piece *p = &s->piece[i];
        const int64_t hi = p->hi < s->kept ? p->hi : s->kept;
        p->at = s->kept_of[p->host];
        if (p->lo < hi) s->kept_of[p->host] += hi - p->lo;
    }
}

/* ---- start and end ---- */

void rd_shard_free(rd_shard *s)
{
    if (!s) return;
    if (!s->broken) { /* else MPI may still use them; the process ends soon */
        for (int i = 0; i < RD_CROSS_DEEP; i++) rd_cross_job_free(s->job[i]);
        rd_cross_free(s->cross);
        if (s->owners != MPI_COMM_NULL) MPI_Comm_free(&s->owners);
    }
    if (s->leads != MPI_COMM_NULL) MPI_Comm_free(&s->leads);
    if (s->world != MPI_COMM_NULL) MPI_Comm_free(&s->world);
    for (int i = 0; i < s->n_stripes; i++) free(s->stripe[i].cut);
    free(s->part);
    free(s->stripe);
    free(s->piece);
    free(s->kept_of);
    free(s->lead_of);
    free(s->f64);
    free(s->buffer);
    free(s);
}

/* What the ranks tell each other. */
typedef struct shard_record {
    int host, owner, place, lead;
} shard_record;

/* Finds the host of each owner's pieces, and the lowest rank of each host. */
static rd_code shard_meet(rd_shard *s, int *host_at, rd_status *st)
{
    const int size = s->c->w.size;
    shard_record mine = {s->host, s->me, s->place, s->lead};
    shard_record *all = calloc((size_t)size, sizeof *all);
    if (!all) rd_fail(st, RD_EENV, "out of memory for the places of %d ranks", size);
    if (rd_comm_agree(s->c, st) != RD_OK || !all) goto done;
    RD_TRY(RD_MPI(MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE,
                                s->world),
                  st));
    for (int r = 0; r < size; r++) {
        if (all[r].owner < s->n_owners)
            host_at[all[r].owner * s->n_hosts + all[r].place] = all[r].host;
        if (all[r].lead) s->lead_of[all[r].host] = r;
    }
done:
    free(all);
    return st->code;
}

/* Makes the communicators. */
static rd_code shard_connect(rd_shard *s, MPI_Comm world, const rd_host *w, rd_status *st)
{
    RD_TRY(RD_MPI(MPI_Comm_dup(world, &s->world), st));
    RD_TRY(RD_MPI(MPI_Comm_set_errhandler(s->world, MPI_ERRORS_RETURN), st));
    RD_TRY(RD_MPI(MPI_Comm_split(world, s->lead ? 0 : MPI_UNDEFINED, s->host, &s->leads), st));
    if (!s->by_hosts)
        RD_TRY(RD_MPI(MPI_Comm_dup(world, &s->owners), st));
    else if (s->me < s->n_owners)
        RD_TRY(RD_MPI(MPI_Comm_dup(w->cross_comm, &s->owners), st));
    if (s->leads != MPI_COMM_NULL) MPI_Comm_set_errhandler(s->leads, MPI_ERRORS_RETURN);
    if (s->owners == MPI_COMM_NULL) goto done;
    MPI_Comm_set_errhandler(s->owners, MPI_ERRORS_RETURN);
    RD_TRY(rd_cross_new(s->owners, &s->cross, st));
    s->place = rd_cross_place(s->cross->size, s->cross->me);
done:
    return st->code;
}

/* Makes the jobs that collect pieces. They receive in place. */
static rd_code shard_make_jobs(rd_shard *s, rd_status *st)
{
    for (int i = 0; i < RD_CROSS_DEEP && s->cross; i++)
        RD_TRY(rd_cross_job_new(s->cross, rd_shard_longest(s), 0, RD_WIRE_F32,
                                s->cross->request + i * s->cross->n_requests, &s->job[i], st));
done:
    return st->code;
}

rd_code rd_shard_new(rd_comm *c, const rd_shard_plan *plan, rd_shard **out, rd_status *st)
{
    MPI_Comm world;
    rd_host *w;
    rd_host_arena *a;
    rd_shard *s = NULL;
    int *host_at = NULL;
    *out = NULL;
    if (c->w.size == 1) return st->code;
    rd_mpi_inside(c, &world, &w, &a);
    if (plan->stripe > 0) a = NULL;
    const int n_hosts = a ? c->w.n_hosts : c->w.size, n_owners = a ? w->n_owners : 1;
    if (n_hosts == 1) return st->code;
    s = calloc(1, sizeof *s);
    host_at = calloc((size_t)n_hosts * (size_t)n_owners, sizeof *host_at);
    if (s) {
        *s = (rd_shard){.c = c,
                        .world = MPI_COMM_NULL,
                        .leads = MPI_COMM_NULL,
                        .owners = MPI_COMM_NULL,
                        .by_hosts = a != NULL,
                        .lead = !a || c->w.local_rank == 0,
                        .n_hosts = n_hosts,
                        .host = a ? c->w.host_index : c->w.rank,
                        .n_owners = n_owners,
                        .me = !a                 ? 0
                              : w->me < n_owners ? w->me
                                                 : n_owners,
                        .n_parts = plan->n_parts,
                        .wire = plan->wire,
                        .kept = plan->kept};
        s->part = malloc(((size_t)plan->n_parts + 1) * sizeof *s->part);
        s->kept_of = calloc((size_t)n_hosts, sizeof *s->kept_of);
        s->lead_of = calloc((size_t)n_hosts, sizeof *s->lead_of);
        if (c->w.rank == 0) s->buffer = malloc(RD_SHARD_FETCH * sizeof *s->buffer);
    }
    if (!s || !host_at || !s->part || !s->kept_of || !s->lead_of || (!s->buffer && !c->w.rank))
        rd_fail(st, RD_EENV, "out of memory for the parts of %d hosts", n_hosts);
    RD_TRY(rd_comm_agree(c, st));
    memcpy(s->part, plan->part, (size_t)plan->n_parts * sizeof *s->part);
    (void)shard_connect(s, world, w, st);
    RD_TRY(rd_comm_agree(c, st));
    RD_TRY(shard_meet(s, host_at, st));
    if (shard_divide(s, plan, host_at, false, st) == RD_OK) {
        shard_order(s);
        (void)shard_make_jobs(s, st);
    }
    RD_TRY(rd_comm_agree(c, st));
    rd_assert(s->n_pieces == 0 ||
              (s->piece[0].lo == 0 && s->piece[s->n_pieces - 1].hi == plan->span));
    *out = s;
    s = NULL;
done:
    free(host_at);
    rd_shard_free(s);
    return st->code;
}

/* ---- weights ---- */

/* Collects the stripes [0, n_stripes) of this rank, those of the rest only if `rest`. Several are
 * on their way at a time. */
static rd_code shard_collect_stripes(rd_shard *s, float *x, bool rest, rd_status *st)
{
    bool done[RD_CROSS_DEEP] = {false};
    int next = 0, begun = 0, retired = 0, which;
    if (!s->cross) return st->code;
    const int64_t before = s->cross->sent, begin_ns = rd_now_ns();
    for (;;) {
        for (; next < s->n_stripes && begun - retired < RD_CROSS_DEEP; next++) {
            const rd_stripe *t = &s->stripe[next];
            const int k = begun % RD_CROSS_DEEP;
            if (t->part < 0 && !rest) continue;
            RD_TRY(rd_cross_start_pieces(s->job[k], x + t->from, t->cut, true,
                                         RD_CROSS_TAGS * (1 + k), st));
            done[k] = false;
            begun++;
        }
        if (retired == begun) break;
        for (int i = retired; i < begun; i++) {
            const int k = i % RD_CROSS_DEEP;
            if (!done[k]) RD_TRY(rd_cross_poll(s->job[k], &done[k], st));
        }
        const int was = retired;
        while (retired < begun && done[retired % RD_CROSS_DEEP]) retired++;
        if (retired == was)
            RD_TRY(RD_MPI(MPI_Waitany(RD_CROSS_DEEP * s->cross->n_requests, s->cross->request,
                                      &which, MPI_STATUS_IGNORE),
                          st));
    }
done:
    s->sent += s->cross->sent - before;
    s->spent_ns += rd_now_ns() - begin_ns;
    s->broken |= st->code != RD_OK;
    return st->code;
}

rd_code rd_shard_collect(rd_shard *s, float *x, rd_status *st)
{
    return shard_collect_stripes(s, x, true, st);
}

rd_code rd_shard_collect_parts(rd_shard *s, float *x, rd_status *st)
{
    MPI_Comm world;
    rd_host *w;
    rd_host_arena *a;
    rd_mpi_inside(s->c, &world, &w, &a);
    RD_TRY(shard_collect_stripes(s, x, false, st));
    for (int i = 0; i < s->n_stripes && a; i++) {
        const rd_stripe *t = &s->stripe[i];
        for (int r = 0; r < w->n_local && t->part >= 0; r++)
            if (r != w->me)
                memcpy(rd_host_arena_of(a, r) + (x - rd_host_arena_mine(a)) + t->from, x + t->from,
                       (size_t)t->n * sizeof *x);
    }
done:
    return st->code;
}

/* ---- values of blocks ---- */

rd_code rd_shard_collect_f64(rd_shard *s, double *x, const int *host_of, int64_t n, rd_status *st)
{
    int *count = NULL;
    const int64_t begin_ns = rd_now_ns();
    if (!s->lead || n == 0) return st->code;
    if (s->n_f64 < n) {
        free(s->f64);
        s->f64 = malloc(2 * (size_t)n * sizeof *s->f64);
        s->n_f64 = s->f64 ? n : 0;
    }
    count = calloc(3 * (size_t)s->n_hosts, sizeof *count);
    if (!s->f64 || !count || n > INT_MAX / (int64_t)sizeof *x) {
        rd_fail(st, RD_EENV, "out of memory for the norms of %" PRId64 " blocks", n);
        goto done;
    }
    int *from = count + s->n_hosts, *at = from + s->n_hosts;
    double *mine = s->f64, *all = s->f64 + n;
    for (int64_t i = 0; i < n; i++) {
        if (host_of[i] == s->host) mine[count[s->host]] = x[i];
        count[host_of[i]]++;
    }
    for (int h = 1; h < s->n_hosts; h++) from[h] = at[h] = from[h - 1] + count[h - 1];
    RD_TRY(RD_MPI(MPI_Allgatherv(mine, count[s->host], MPI_DOUBLE, all, count, from, MPI_DOUBLE,
                                 s->leads),
                  st));
    s->sent += (int64_t)count[s->host] * (int64_t)sizeof *x * (s->n_hosts - 1);
    for (int64_t i = 0; i < n; i++) x[i] = all[at[host_of[i]]++];
done:
    s->spent_ns += rd_now_ns() - begin_ns;
    free(count);
    return st->code;
}

/* ---- state, for checkpoints ---- */

/* A request of rank 0; array -1: there are no more. */
typedef struct shard_request {
    int64_t array, lo, n;
} shard_request;

/* Finds the elements of a request that host h keeps: [*at, *at + *n) of its array. */
static void shard_kept_part(const rd_shard *s, const shard_request *q, int h, int64_t *at,
                            int64_t *n)
{
    *at = -1;
    *n = 0;
    for (int64_t i = rd_shard_find(s, q->lo); i < s->n_pieces; i++) {
        const rd_shard_piece *p = &s->piece[i];
        if (p->lo >= q->lo + q->n) break;
        if (p->host != h) continue;
        const int64_t lo = p->lo > q->lo ? p->lo : q->lo,
                      hi = p->hi < q->lo + q->n ? p->hi : q->lo + q->n;
        if (*at < 0) *at = p->at + (lo - p->lo);
        *n += hi - lo;
    }
}

/* Writes the elements of host h, which `from` has one after another, to their places. */
static void shard_put_part(const rd_shard *s, const shard_request *q, int h, const float *from,
                           float *to)
{
    for (int64_t i = rd_shard_find(s, q->lo); i < s->n_pieces; i++) {
        const rd_shard_piece *p = &s->piece[i];
        if (p->lo >= q->lo + q->n) break;
        if (p->host != h) continue;
        const int64_t lo = p->lo > q->lo ? p->lo : q->lo,
                      hi = p->hi < q->lo + q->n ? p->hi : q->lo + q->n;
        memcpy(to + (lo - q->lo), from, (size_t)(hi - lo) * sizeof *to);
        from += hi - lo;
    }
}

rd_code rd_shard_fetch(rd_shard *s, int k, int64_t lo, int64_t n, const float *own, float *to,
                       rd_status *st)
{
    shard_request q = {k, lo, n};
    int64_t at, m;
    if (s->c->w.rank != 0 || n > RD_SHARD_FETCH || lo < 0 || lo + n > s->kept)
        return rd_fail(st, RD_EBUG, "elements %" PRId64 " + %" PRId64 " cannot be fetched", lo, n);
    RD_TRY(RD_MPI(MPI_Bcast(&q, (int)sizeof q, MPI_BYTE, 0, s->world), st));
    for (int h = 0; h < s->n_hosts; h++) {
        shard_kept_part(s, &q, h, &at, &m);
        if (m == 0) continue;
        if (h != s->host)
            RD_TRY(RD_MPI(MPI_Recv(s->buffer, (int)m, MPI_FLOAT, s->lead_of[h], TAG_FETCH, s->world,
                                   MPI_STATUS_IGNORE),
                          st));
        shard_put_part(s, &q, h, h == s->host ? own + at : s->buffer, to);
    }
done:
    return st->code;
}

rd_code rd_shard_fetched(rd_shard *s, rd_status *st)
{
    shard_request q = {-1, 0, 0};
    return RD_MPI(MPI_Bcast(&q, (int)sizeof q, MPI_BYTE, 0, s->world), st);
}

rd_code rd_shard_serve(rd_shard *s, rd_shard_array *own, void *ctx, rd_status *st)
{
    shard_request q;
    int64_t at, m;
    for (;;) {
        RD_TRY(RD_MPI(MPI_Bcast(&q, (int)sizeof q, MPI_BYTE, 0, s->world), st));
        if (q.array < 0) break;
        if (!s->lead || s->host == 0) continue;
        shard_kept_part(s, &q, s->host, &at, &m);
        if (m > 0)
            RD_TRY(RD_MPI(MPI_Send(own(ctx, (int)q.array) + at, (int)m, MPI_FLOAT, 0, TAG_FETCH,
                                   s->world),
                          st));
    }
done:
    return st->code;
}
