/* shard.h -- which part of the parameters each host updates, if every host keeps only its part of
 * the optimizer's state.
 *
 * A sum of gradients then stops where each host has the sums of its part. After the update each
 * host sends its part of the weights to the others. Both send (1 - 1/h) of an array from each of h
 * hosts, so together they send as much as the sum of all gradients on all hosts.
 *
 * The hosts here are those that share memory. Without shared memory every rank counts as a host. So
 * does every rank with a GPU: its weights and state are in the memory of that GPU. */
#ifndef RD_SHARD_H
#define RD_SHARD_H

#include "rd/comm.h"

RD_C_BEGIN

typedef struct rd_shard rd_shard;

/* The arrays that are divided. All ranks give the same. Borrowed for the call. */
typedef struct rd_shard_plan {
    const rd_flow_part *part; /* [n_parts]; what a flow sums, in its order */
    int n_parts;
    const rd_flow_part *rest; /* [n_rest]; what is summed elsewhere, whole */
    int n_rest;               /* parts and rest together are [0, span) */
    const int64_t *cut;       /* [n_cuts]; ascending: elements at which another host may go on */
    int64_t n_cuts;
    int64_t span, kept; /* elements; the optimizer keeps state of [0, kept) */
    rd_wire wire;
    /* > 0: each rank counts as a host, a stripe has at most this number of elements, and there is
     * no rd_shard_flow; 0: as rd_comm_arena_new found, for a flow */
    int64_t stripe;
} rd_shard_plan;

/* Elements [lo, hi), which belong to one host. */
typedef struct rd_shard_piece {
    int64_t lo, hi;
    int64_t at; /* elements of [0, kept) of the same host before it */
    int host;
} rd_shard_piece;

/* Collective, after rd_comm_arena_new. Divides the arrays. Each host gets about the same of every
 * part; with `stripe`, one piece of each stripe. *out is NULL if there is one host. The caller owns
 * *out. c is borrowed and outlives *out. */
rd_code rd_shard_new(rd_comm *c, const rd_shard_plan *plan, rd_shard **out, rd_status *st);
/* Not collective; NULL is fine. */
void rd_shard_free(rd_shard *s);

/* Returns the number of hosts, and which one this rank belongs to. */
int rd_shard_n_hosts(const rd_shard *s);
int rd_shard_host(const rd_shard *s);
/* Returns whether the ranks of a host share memory, so that a host is more than one rank. */
bool rd_shard_shares(const rd_shard *s);
/* Returns the n pieces in the order of the arrays: the same on all ranks. Borrowed. */
const rd_shard_piece *rd_shard_pieces(const rd_shard *s, int64_t *n);
/* Returns the number of the piece with this element. */
int64_t rd_shard_find(const rd_shard *s, int64_t element);
/* Returns the elements of [0, kept) that belong to a host. */
int64_t rd_shard_kept(const rd_shard *s, int host);
/* Return the bytes that this rank has sent to other hosts here so far, and the seconds that this
 * took. Those of the flow do not count. */
int64_t rd_shard_sent(const rd_shard *s);
double rd_shard_seconds(const rd_shard *s);

/* Collective. Makes a flow of the plan's parts as rd_flow_new does. At its end each rank has the
 * sums of its host's pieces; other elements are undefined. s outlives the flow. */
rd_code rd_shard_flow(rd_shard *s, float *x, rd_flow_mode mode, rd_flow **out, rd_status *st);

/* Collective. Copies each host's pieces of x, [span], to all hosts. x is one array that the ranks
 * of a host share; or, without shared memory, an array of each rank. The ranks of a host have
 * written their pieces before, and read x after a rd_comm_local_barrier. */
rd_code rd_shard_collect(rd_shard *s, float *x, rd_status *st);
/* Collective. Does the same for the parts of the flow's array, which each rank has. */
rd_code rd_shard_collect_parts(rd_shard *s, float *x, rd_status *st);
/* Collective. x has n values, and host_of[i] knows the i-th. All hosts get all. x belongs to the
 * ranks of a host as in rd_shard_collect. */
rd_code rd_shard_collect_f64(rd_shard *s, double *x, const int *host_of, int64_t n, rd_status *st);

/* Rank 0 reads state of all hosts: rd_shard_fetch any number of times, then rd_shard_fetched. The
 * other ranks call rd_shard_serve, which returns after that. own: this host's array k, with the
 * elements of its pieces of [0, kept) one after another.
 *
 * Fills to[0, n) with elements [lo, lo + n) of array k. n: at most RD_SHARD_FETCH. Rank 0 only. */
enum { RD_SHARD_FETCH = 1 << 20 };
typedef float *rd_shard_array(void *ctx, int k);
rd_code rd_shard_fetch(rd_shard *s, int k, int64_t lo, int64_t n, const float *own, float *to,
                       rd_status *st);
rd_code rd_shard_fetched(rd_shard *s, rd_status *st);
rd_code rd_shard_serve(rd_shard *s, rd_shard_array *own, void *ctx, rd_status *st);

RD_C_END
#endif
