/* cross_sum.h -- sums between hosts: one rank of each host takes part. */
#ifndef RD_CROSS_SUM_H
#define RD_CROSS_SUM_H

#include "cross_wire.h"
#include <mpi.h>

enum {
    RD_CROSS_FLOATS = 1 << 20, /* numbers summed at a time, so that they stay in the last cache */
    /* Bytes on the wire of one job. A bucket of some MiB is several jobs, or the link idles while
     * one job turns round. */
    RD_CROSS_CHUNK = 1 << 19,
    /* Jobs at once. One phase of a job leaves the link idle while it turns round. */
    RD_CROSS_DEEP = 12,
    RD_CROSS_LEVELS = 12
};
typedef struct rd_cross_job rd_cross_job;
typedef struct rd_cross {
    MPI_Comm comm; /* borrowed */
    int me, size;  /* rank and size of comm */
    /* The levels of the sum, see cross_sum.c: hosts per group, and the distance
     * between their ranks. */
    int n_levels, radix[RD_CROSS_LEVELS], stride[RD_CROSS_LEVELS];
    int64_t sent;                        /* bytes that this rank has sent so far */
    rd_cross_job *job[3][RD_CROSS_DEEP]; /* owned; by wire type, made at the first use */
    MPI_Request *request; /* owned; [RD_CROSS_DEEP][n_requests], the requests of these jobs */
    int n_requests;       /* most requests of a job */
    double *all;          /* owned; [size][f64_piece], for sums of doubles */
    int f64_piece;        /* doubles summed at a time */
} rd_cross;

/* Makes the state for sums on comm, which is borrowed. Not collective. The caller owns *out. */
rd_code rd_cross_new(MPI_Comm comm, rd_cross **out, rd_status *st);
void rd_cross_free(rd_cross *c); /* NULL is fine */

/* Collective on c->comm. Replaces x[0, n) by its sum over the ranks: the same
 * bytes on all of them. */
rd_code rd_cross_sum(rd_cross *c, float *x, int64_t n, rd_status *st);
/* Collective on c->comm. Sums like rd_cross_sum. wire: the type that numbers have between hosts. */
rd_code rd_cross_sum_wire(rd_cross *c, rd_wire wire, float *x, int64_t n, rd_status *st);
/* Collective on c->comm. Sums doubles. */
rd_code rd_cross_sum_f64(rd_cross *c, double *x, int64_t n, rd_status *st);
/* Returns how many numbers fit in RD_CROSS_CHUNK. */
int64_t rd_cross_chunk(rd_wire w);

/* ---- one sum in the background: a job of at most `capacity` numbers ---- */
enum { RD_CROSS_TAGS = 32 };
/* Makes a job. received: most numbers that a step of a sum receives (rd_cross_received); -1: those
 * of pieces of equal size. req: c->n_requests requests, borrowed; NULL: the job has its own. The
 * caller owns *out. */
rd_code rd_cross_job_new(rd_cross *c, int64_t capacity, int64_t received, rd_wire wire,
                         MPI_Request *req, rd_cross_job **out, rd_status *st);
void rd_cross_job_free(rd_cross_job *j); /* NULL is fine */
/* Begins the sum of x[0, n). The job uses x until rd_cross_poll says done. tag: a multiple of
 * RD_CROSS_TAGS, the same on all ranks, and different from the tags of other jobs in progress. */
rd_code rd_cross_start(rd_cross_job *j, float *x, int64_t n, int tag, rd_status *st);
/* Begins half of a sum, with the caller's pieces: piece p is x[cut[p], cut[p + 1]), and this host
 * has piece rd_cross_place(c->size, c->me). collect false: that piece of x becomes the sum, and the
 * rest of x is undefined. collect true: each host's piece is copied to all hosts. cut: [c->size +
 * 1], from 0, the same on all hosts; borrowed until rd_cross_poll says done. */
rd_code rd_cross_start_pieces(rd_cross_job *j, float *x, const int64_t *cut, bool collect, int tag,
                              rd_status *st);
/* Returns the piece of a rank among `size` ranks. */
int rd_cross_place(int size, int rank);
/* Returns the most numbers that this host receives in a step of a sum with these pieces. */
int64_t rd_cross_received(const rd_cross *c, const int64_t *cut);
/* Moves the sum on without waiting. *done: it is complete. */
rd_code rd_cross_poll(rd_cross_job *j, bool *done, rd_status *st);

#endif
