/* host_sum.h -- the ranks of one host that share memory: their barrier, and sums of arrays that lie
 * anywhere. Sums go on between hosts through cross_sum.h. */
#ifndef RD_HOST_SUM_H
#define RD_HOST_SUM_H

#include "cross_sum.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { RD_MAX_LOCAL = 1024 }; /* most ranks of a host that share memory */

typedef struct rd_host {
    rd_cross *cross; /* owned; sums with the owners of the same slice on the other hosts; NULL on
                            one host, and for a rank that owns no slice */
    MPI_Comm cross_comm; /* owned; the ranks of `cross` */
    int me, n_local;     /* this rank on its host, ranks of the host */
    int n_owners;        /* ranks that own a slice: the smallest n_local of all hosts */
    int n_hosts;
    int spins;           /* how often a barrier polls before it gives the core away */
    unsigned turn;       /* which of the two slots is next */
    uint32_t n_barriers; /* barriers so far, modulo 2^32 */
    void (*idle)(void);  /* called now and then while a barrier waits; NULL: nothing to do */
    size_t piece;        /* bytes of a slot */
    size_t bytes;        /* bytes of the mapping */
    unsigned char *map;  /* owned; the barrier's flags, then two slots for each rank */
} rd_host;

/* Collective on world. local: the ranks of this host; crowded: there are more of them than cores.
 * Where some host cannot share memory, *out is NULL on all ranks with RD_OK, and why has the
 * reason. The caller owns *out. */
rd_code rd_host_new(MPI_Comm world, MPI_Comm local, bool crowded, rd_host **out, char why[200],
                    rd_status *st);
void rd_host_free(rd_host *h); /* NULL is fine */

/* Collective. Replaces x[0, n) by its sum over all ranks: the same bytes on all ranks, along a
 * fixed binary tree. */
rd_code rd_host_sum_f32(rd_host *h, float *x, int64_t n, rd_status *st);
rd_code rd_host_sum_f64(rd_host *h, double *x, int64_t n, rd_status *st);
/* Returns the bytes of x that one round of rd_host_sum_* takes. */
size_t rd_host_piece_bytes(const rd_host *h);

/* ---- host_barrier.c ---- */

/* Collective among the ranks of a host. Waits until all of them are here. What a rank wrote before
 * the barrier, the others read after it. */
void rd_host_barrier(rd_host *h);
/* Returns the bytes that the barrier needs at the beginning of the mapping. They start as zeros. */
size_t rd_host_barrier_bytes(int n_local);

#endif
