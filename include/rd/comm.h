/* comm.h -- the ranks of a job. A communicator is a table of functions; "self" (a world of one, no launcher) and "mpi"
 * exist. Functions marked Collective must be called by all ranks, in the same order. */
#ifndef RD_COMM_H
#define RD_COMM_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef struct rd_comm rd_comm;

typedef struct rd_world {
    int rank, size;             /* of the job */
    int local_rank, local_size; /* of this rank's host */
    int n_hosts, host_index;
    int n_cpus;                 /* processors this rank may use alone: its binding, or its share of the host's */
    char host[64];
    const char *comm;           /* "self" or "mpi" */
    char library[128];          /* "Open MPI 4.1.4", or "" */
} rd_world;

/* Collective, the first call of the program that touches MPI; takes MPI's arguments out of argv. Started without a
 * launcher: a world of one without MPI_Init, at once. Under a launcher (OMPI_COMM_WORLD_SIZE,
 * PMIX_RANK, PMI_SIZE, or SLURM_NTASKS with SLURM_PROCID is set): MPI_Init_thread; RD_EENV when the launcher counts
 * more ranks than MPI ("program and mpirun use different MPI libraries"). MPI errors are returned, not fatal.
 * SLURM_NTASKS alone does not count (a plain start inside salloc), nor do a batch script's two; srun without PMIx is
 * RD_EENV. */
rd_code rd_comm_start(int *argc, char ***argv, rd_comm **out, rd_status *st);
/* Collective; MPI_Finalize. NULL is fine. */
void rd_comm_free(rd_comm *c);
/* Ends the whole job with this exit code, from any rank, at any time. Prints nothing. Does not return: when
 * MPI_Abort does not end the process in 3 s, _exit does. */
void rd_comm_abort(rd_comm *c, int exit_code) __attribute__((noreturn));

const rd_world *rd_comm_world(const rd_comm *c); /* borrowed until rd_comm_free */
const char *rd_comm_note(const rd_comm *c);       /* how sums travel, one line for the banner; borrowed */
const char *rd_comm_library_version(void);        /* "Open MPI 4.1.4", known without MPI_Init */

/* Collective. In place, the same bytes on every rank. Deterministic: the same np and input give the same bytes in
 * every run. Any n, also 0 and above 2^31 (cut in pieces). Float sums of the ranks of one host go through shared
 * memory, along the binary tree ((0 + 1) + (2 + 3)) + ... over the ranks, unless the environment has RD_COMM_SHARED=0 or
 * a host does not let its ranks share: then by messages. Between hosts, and between ranks without shared memory, the tree
 * goes on where they are 2^k; other numbers are summed by MPI_Allreduce. */
rd_code rd_comm_sum_f32(rd_comm *c, float *x, int64_t n, rd_status *st);
rd_code rd_comm_sum_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_sum_i64(rd_comm *c, int64_t *x, int64_t n, rd_status *st);
rd_code rd_comm_max_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_min_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st);
rd_code rd_comm_barrier(rd_comm *c, rd_status *st);
/* Collective. Every rank gives n bytes of its own length; rank 0 gets all, in rank order, in one malloc'd block (*out,
 * the caller frees) with *lens (malloc'd, size entries). Others get NULL. */
rd_code rd_comm_gather(rd_comm *c, const void *p, int64_t n, char **out, int64_t **lens, rd_status *st);
/* Collective. Fixed-size records of every rank, to every rank: all[size * bytes]. */
rd_code rd_comm_allgather(rd_comm *c, const void *mine, void *all, int64_t bytes, rd_status *st);

/* Collective among the ranks of one host. root: a local rank. */
rd_code rd_comm_local_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st);
rd_code rd_comm_local_barrier(rd_comm *c, rd_status *st);

/* Collective. n zeros of this rank, 64-byte aligned, which the other ranks of its host reach too: rd_comm_sum_f32 over
 * any part of them, the same part on every rank, sums where they lie, without a copy. Where some host cannot share so
 * much memory they are private memory on all ranks and sums take the way of other arrays; *why (may be NULL) then
 * says the reason, else it is "". One at a time: RD_EBUG. Borrowed until rd_comm_arena_free or rd_comm_free. */
rd_code rd_comm_arena_new(rd_comm *c, int64_t n, float **out, char why[200], rd_status *st);
void rd_comm_arena_free(rd_comm *c); /* not collective; none: nothing happens */

/* Collective. All ranks leave with the same status, that of the lowest rank that failed (st->rank says who). To be
 * called after each phase that can fail on some ranks only. */
rd_code rd_comm_agree(rd_comm *c, rd_status *st);

/* Collective. text is a short line per rank and name (binary version, config hash, parameter list hash, data
 * fingerprint, ...); a rank whose text differs from rank 0's ends the run with RD_EDISAGREE and a message that names
 * the rank, its host, `name`, and both values. */
rd_code rd_comm_same(rd_comm *c, const char *name, const char *text, rd_status *st);

RD_C_END
#endif
