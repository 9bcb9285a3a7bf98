/* replicas.c -- checks that all copies of the weights are equal, and that they are what the updates
 * made of them. A bit that differs means a broken machine or a bug. It must not be saved, and the
 * message names the copy and the array.
 *
 * A rank has its own copy, or the ranks of a host share one (rd_optim_share). Copies are compared
 * by checksums. A host with a shared copy has no second one to compare with, so each update also
 * leaves checksums of blocks, and the next one verifies them. The norm of the gradient is compared
 * as well: every rank derives clipping and LARS from it. */
#include "replicas.h"
#include "rd/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct replicas_record { /* one rank's copy; plain data */
    uint64_t sum;                /* checksum of all values */
    double norm;
    int32_t damaged; /* index of a parameter whose blocks changed outside an update; -1: none */
    int32_t local_size;
    bool votes; /* true on one rank for each copy */
    bool shared;
    char host[64];
} replicas_record;

static bool is_shared(const rd_run *r)
{
    return r->optim && rd_optim_is_shared(r->optim);
}

static bool same_norm(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Does rank i hold the weights of the majority? Of two copies that differ, rank 0's counts as
 * right. */
static bool is_in_majority(const replicas_record *all, const uint64_t *sum, int n, int i)
{
    int same = 0, copies = 0;
    for (int k = 0; k < n; k++) {
        copies += all[k].votes;
        same += all[k].votes && sum[k] == sum[i];
    }
    return 2 * same > copies || (2 * same == copies && sum[i] == sum[0]);
}

static int first_differing(const replicas_record *all, const uint64_t *sum, int n)
{
    for (int i = 0; i < n; i++)
        if (all[i].votes && !is_in_majority(all, sum, n, i)) return i;
    return -1;
}

static int n_copies(const replicas_record *all, int n)
{
    int copies = 0;
    for (int k = 0; k < n; k++) copies += all[k].votes;
    return copies;
}

/* Finds the first array whose checksums differ. of_param: this rank's checksums. */
static rd_code name_array(rd_run *r, const replicas_record *all, const uint64_t *of_param,
                          int *differing, const char **name, rd_status *st)
{
    const int n = rd_params_n(r->params), size = r->world->size;
    uint64_t *one = calloc((size_t)size, sizeof *one),
             *each = calloc(((size_t)n + 1) * (size_t)size, sizeof *each);
    *name = "?";
    if (!one || !each) rd_fail(st, RD_EENV, "out of memory for the checksums of %d arrays", n);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_allgather(r->comm, of_param, each, (int64_t)n * (int64_t)sizeof *of_param, st));
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < size; i++) one[i] = each[(size_t)i * (size_t)n + (size_t)k];
        const int bad = first_differing(all, one, size);
        if (bad < 0) continue;
        *differing = bad;
        *name = rd_params_at(r->params, k)->name;
        break;
    }
done:
    free(one);
    free(each);
    return st->code;
}

/* Names the owner of a copy, for messages. */
static void name_owner(const replicas_record *c, int rank, char out[128])
{
    if (c->shared)
        (void)snprintf(out, 128, "host %s (%d ranks, one copy)", c->host, c->local_size);
    else
        (void)snprintf(out, 128, "rank %d", rank);
}

static rd_code compare(rd_run *r, const replicas_record *all, const uint64_t *of_param,
                       rd_status *st)
{
    const int size = r->world->size;
    const char *name = "?", *other = all[0].shared ? "most hosts" : "most ranks",
               *remedy =
                   "nothing was saved since; start again from the last checkpoint, and suspect";
    char text[128];
    uint64_t *sum = calloc((size_t)size, sizeof *sum);
    int differing = -1;
    if (!sum) rd_fail(st, RD_EENV, "out of memory for %d checksums", size);
    RD_TRY(run_agree(r, st));
    for (int i = 0; i < size; i++) {
        sum[i] = all[i].sum;
        if (all[i].damaged < 0) continue;
        name_owner(&all[i], i, text);
        r->agreed = true;
        rd_fail(st, RD_ENUMERIC,
                "after step %" PRId64 " %s holds other weights than its last update left, first in "
                "'%s'; %s that machine's memory",
                r->progress.step, text, rd_params_at(r->params, all[i].damaged)->name, remedy);
        goto done;
    }
    differing = first_differing(all, sum, size);
    if (differing >= 0) {
        RD_TRY(name_array(r, all, of_param, &differing, &name, st));
        if (n_copies(all, size) == 2) other = all[0].shared ? "rank 0's host" : "rank 0";
        name_owner(&all[differing], differing, text);
        r->agreed = true;
        rd_fail(st, RD_ENUMERIC,
                "after step %" PRId64
                " %s holds other weights than %s, first in '%s'; %s that machine",
                r->progress.step, text, other, name, remedy);
        goto done;
    }
    for (int i = 1; i < size; i++) {
        if (same_norm(all[i].norm, all[0].norm)) continue;
        r->agreed = true;
        rd_fail(st, RD_ENUMERIC,
                "at step %" PRId64
                " rank %d (%s) has a gradient of norm %.17g, rank 0 one of %.17g, after a sum "
                "that gives every rank the same; %s that machine or the network to it",
                r->progress.step, i, all[i].host, all[i].norm, all[0].norm, remedy);
        goto done;
    }
done:
    free(sum);
    return st->code;
}

rd_code run_check_replicas(rd_run *r, rd_status *st)
{
    const rd_world *w = r->world;
    const int n = rd_params_n(r->params);
    const bool shared = is_shared(r);
    replicas_record mine = {.norm = rd_optim_norm(r->optim),
                            .damaged = -1,
                            .votes = !shared || w->local_rank == 0,
                            .shared = shared,
                            .local_size = w->local_size};
    int damaged = -1;
    if (w->size == 1) return st->code;
    replicas_record *all = calloc((size_t)w->size, sizeof *all);
    uint64_t *of_param = calloc((size_t)n + 1, sizeof *of_param);
    if (!all || !of_param) rd_fail(st, RD_EENV, "out of memory for checksums of the weights");
    RD_TRY(run_agree(r, st));
    (void)rd_optim_checksums(r->optim, of_param, &damaged, st);
    RD_TRY(run_agree(r, st));
    mine.damaged = damaged;
    mine.sum = RD_FNV_START;
    for (int i = 0; i < n; i++) mine.sum = rd_fnv_step(mine.sum, of_param[i]);
    (void)snprintf(mine.host, sizeof mine.host, "%s", w->host);
    RD_TRY(rd_comm_allgather(r->comm, &mine, all, sizeof mine, st));
    RD_TRY(compare(r, all, of_param, st));
done:
    free(all);
    free(of_param);
    return st->code;
}

/* ---- copying values and slots from rank 0 to all ranks ---- */

/* Broadcasts x[n] in pieces. One rank of each copy writes into it. */
static rd_code spread(rd_run *r, float *x, int64_t n, float *piece, int64_t piece_n, rd_status *st)
{
    const rd_world *w = r->world;
    const bool writes = w->rank != 0 && (!is_shared(r) || w->local_rank == 0);
    for (int64_t i = 0; i < n; i += piece_n) {
        const int64_t m = n - i < piece_n ? n - i : piece_n;
        if (w->rank == 0) memcpy(piece, x + i, (size_t)m * sizeof *x);
        RD_TRY(rd_comm_bcast(r->comm, piece, m * (int64_t)sizeof *x, 0, st));
        if (writes) memcpy(x + i, piece, (size_t)m * sizeof *x);
    }
done:
    return st->code;
}

/* Copies the slots to the hosts that keep parts of them. */
static rd_code spread_parts(rd_run *r, run_slot_source *slots, void *ctx, float *piece,
                            int64_t piece_n, rd_status *st)
{
    const int64_t n = rd_params_trained_span(r->params);
    int64_t any = slots != NULL;
    RD_TRY(rd_comm_bcast(r->comm, &any, sizeof any, 0, st));
    if (!any) {
        RD_TRY(rd_comm_local_barrier(r->comm, st)); /* the values are complete */
        rd_optim_start_ema(r->optim);
    }
    for (int k = 0; any && k < rd_params_n_slots(r->params); k++)
        for (int64_t i = 0; i < n; i += piece_n) {
            const int64_t m = n - i < piece_n ? n - i : piece_n;
            if (r->world->rank == 0) slots(ctx, k, i, m, piece);
            RD_TRY(rd_comm_bcast(r->comm, piece, m * (int64_t)sizeof *piece, 0, st));
            rd_optim_put_slot(r->optim, k, i, m, piece);
        }
done:
    return st->code;
}

rd_code run_spread_weights(rd_run *r, run_slot_source *slots, void *ctx, rd_status *st)
{
    enum { PIECE = 1 << 20 };
    const bool parts = r->optim && rd_optim_shard_of(r->optim);
    if (r->world->size == 1) {
        rd_params_touch(r->params);
        rd_params_touch_slots(r->params);
        return st->code;
    }
    float *piece = malloc(PIECE * sizeof *piece);
    if (piece)
        (void)rd_params_sync_to_host(r->params, RD_VALUES | RD_SLOTS, st);
    else
        rd_fail(st, RD_EENV, "out of memory for a piece of the weights");
    RD_TRY(run_agree(r, st));
    RD_TRY(spread(r, rd_params_values(r->params), rd_params_span(r->params), piece, PIECE, st));
    if (parts) RD_TRY(spread_parts(r, slots, ctx, piece, PIECE, st));
    for (int k = 0; k < rd_params_n_slots(r->params) && !parts; k++)
        RD_TRY(spread(r, rd_params_slot(r->params, k), rd_params_trained_span(r->params), piece,
                      PIECE, st));
    /* ranks that share a copy wait until it is complete */
    RD_TRY(rd_comm_local_barrier(r->comm, st));
    rd_params_touch(r->params);
    rd_params_touch_slots(r->params);
done:
    free(piece);
    return st->code;
}
