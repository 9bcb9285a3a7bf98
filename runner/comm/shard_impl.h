/* shard_impl.h -- how shard.c divides an array, for the sums of cross_flow.c. */
#ifndef RD_SHARD_IMPL_H
#define RD_SHARD_IMPL_H

#include "rd/shard.h"
#include "cross_sum.h"

/* A range of the array that one rank of each host sums, and sends. */
typedef struct rd_stripe {
    int64_t from, n;
    int64_t *cut; /* owned; [hosts + 1], where the pieces begin, from 0; NULL: another rank's */
    int part;     /* of the plan; -1: in the rest */
} rd_stripe;

struct rd_shard {
    rd_comm *c;            /* borrowed */
    MPI_Comm world, leads; /* owned; all ranks; the lowest rank of each host, by host */
    MPI_Comm owners;       /* owned; the ranks of all hosts with the same stripes */
    rd_cross *cross;       /* owned; sums over `owners`; NULL: this rank owns no stripe */
    rd_cross_job *job[RD_CROSS_DEEP]; /* owned */
    bool by_hosts;                    /* the ranks of a host share memory */
    bool lead;                        /* this rank is the lowest of its host */
    int n_hosts, host, n_owners, me;  /* me: which owner this rank is; n_owners: none */
    int place;                        /* which piece of a stripe belongs to this host */
    rd_flow_part *part;               /* owned; a copy of the plan's */
    int n_parts;
    rd_wire wire;
    int64_t kept;
    rd_stripe *stripe; /* owned; [n_stripes], those of this rank, in the order of the plan */
    int n_stripes;
    rd_shard_piece *piece; /* owned; [n_pieces] */
    int64_t n_pieces;
    int64_t *kept_of; /* owned; [n_hosts] */
    int64_t dealt;    /* elements that have a host, while pieces are made */
    int *lead_of;     /* owned; [n_hosts]; rank */
    double *f64;      /* owned; [2][n_f64] */
    int64_t n_f64;
    float *buffer; /* owned; [RD_SHARD_FETCH] on rank 0 */
    int64_t sent, spent_ns;
    bool broken; /* messages were left on their way */
};

/* Returns the most numbers of a stripe of this rank. */
static inline int64_t rd_shard_longest(const rd_shard *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->n_stripes; i++)
        if (s->stripe[i].n > most) most = s->stripe[i].n;
    return most;
}

#endif
