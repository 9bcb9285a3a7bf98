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
    int n_cpus; /* processors this rank may use alone: its binding, or its share of the host's */
    char host[64];
    const char *comm;  /* "self" or "mpi" */
    char library[128]; /* "Open MPI 4.1.4", or "" */
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
const char *rd_comm_note(const rd_comm *c); /* how sums travel, one line for the banner; borrowed */
const char *rd_comm_library_version(void);  /* "Open MPI 4.1.4", known without MPI_Init */

/* Collective. In place, the same bytes on every rank. Deterministic: the same np and input give the same bytes in
 * every run. Any n, also 0 and above 2^31 (cut in pieces). Float sums of the ranks of one host go through shared
 * memory, along the binary tree ((0 + 1) + (2 + 3)) + ... over the ranks, unless the environment has RD_COMM_SHARED=0 or
 * a host does not let its ranks share: then by messages. Between hosts, and between ranks without shared memory, the tree
 * goes on over hosts. (RD_COMM_HOSTS=k makes the ranks of one host behave like those of k hosts, for tests.) */
rd_code rd_comm_sum_f32(rd_comm *c, float *x, int64_t n, rd_status *st);
rd_code rd_comm_sum_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_sum_i64(rd_comm *c, int64_t *x, int64_t n, rd_status *st);
rd_code rd_comm_max_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_min_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st);
rd_code rd_comm_barrier(rd_comm *c, rd_status *st);
/* Collective. Every rank gives n bytes of its own length; rank 0 gets all, in rank order, in one malloc'd block (*out,
 * the caller frees) with *lens (malloc'd, size entries). Others get NULL. */
rd_code rd_comm_gather(rd_comm *c, const void *p, int64_t n, char **out, int64_t **lens,
                       rd_status *st);
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

/* Collective among the ranks of one host. `bytes` of zeros, from a page on, that are the same memory on all of them; what a rank
 * writes before rd_comm_local_barrier the others read after it. *out is NULL on all of them where that cannot be had, or sums do
 * not go through shared memory (RD_COMM_SHARED=0); why says the reason, "" to a rank that is alone on its host. The caller gives it
 * back with rd_comm_unshare, which is not collective. */
rd_code rd_comm_shared(rd_comm *c, size_t bytes, void **out, char why[200], rd_status *st);
void rd_comm_unshare(void *p, size_t bytes); /* bytes as in rd_comm_shared; NULL is fine */

/* ---- flows: the sum of one array in parts, begun while the rest of it is still being computed ---- */

typedef enum rd_wire {
    RD_WIRE_F32,
    RD_WIRE_BF16,
    RD_WIRE_F16
} rd_wire;                           /* how numbers travel between hosts */
const char *rd_wire_name(rd_wire w); /* "float32" */

typedef enum rd_flow_mode {
    RD_FLOW_LATE,   /* nothing moves before rd_flow_finish */
    RD_FLOW_CALLS,  /* rd_flow_poll moves it on */
    RD_FLOW_THREAD, /* a thread of its own does, from rd_flow_ready to rd_flow_take; nobody else may call MPI in between */
    RD_FLOW_CORE    /* so does one that has a processor of its own, and uses it */
} rd_flow_mode;

typedef struct rd_flow rd_flow;
typedef struct rd_flow_part {
    int64_t from, n; /* elements of the array; n > 0 */
    int64_t begin_ns,
        end_ns; /* of the last round on this rank's clock: this rank began with it; every slice of it was there */
} rd_flow_part;
typedef struct rd_flow_times { /* of the last round, on this rank */
    double total_s;            /* at least one part was on its way */
    double exposed_s;          /* in rd_flow_finish */
    int64_t wire_bytes;        /* sent to other hosts by this rank */
} rd_flow_times;

/* Collective. The sum over ranks of the given parts of x, which is the communicator's arena or part of it; of all of them in
 * rounds, one a step. One flow at a time. Same bytes in every mode, for every cut into parts, and, with RD_WIRE_F32, as rd_comm_sum_f32. On one
 * host RD_FLOW_LATE is the only mode, and wire is not asked. With a narrow wire every host's sum is rounded to it, and so is the
 * result, to the nearest even; additions are float32. The parts are copied. */
rd_code rd_flow_new(rd_comm *c, float *x, const rd_flow_part *part, int n_parts, rd_wire wire,
                    rd_flow_mode mode, rd_flow **out, rd_status *st);
void rd_flow_free(rd_flow *f); /* not collective; NULL is fine */
rd_flow_mode rd_flow_mode_of(const rd_flow *f);
/* The first n parts are whole on this rank, and nobody touches them before rd_flow_finish. n never falls in a round. Does
 * not wait. */
void rd_flow_ready(rd_flow *f, int n);
void rd_flow_poll(rd_flow *f); /* does not wait; a failure is told by rd_flow_finish */
void rd_flow_take(
    rd_flow *
        f); /* from here on the caller's thread may call MPI again; it carries on where the other one was */
/* Collective, once a round: all parts are ready, and are the sums afterwards. */
rd_code rd_flow_finish(rd_flow *f, rd_status *st);
const rd_flow_part *rd_flow_parts(const rd_flow *f); /* borrowed; as given, with times */
const rd_flow_times *rd_flow_last(const rd_flow *f); /* borrowed */

/* Collective. All ranks leave with the same status, that of the lowest rank that failed (st->rank says who). To be
 * called after each phase that can fail on some ranks only. */
rd_code rd_comm_agree(rd_comm *c, rd_status *st);

/* Collective. text is a short line per rank and name (binary version, config hash, parameter list hash, data
 * fingerprint, ...); a rank whose text differs from rank 0's ends the run with RD_EDISAGREE and a message that names
 * the rank, its host, `name`, and both values. */
rd_code rd_comm_same(rd_comm *c, const char *name, const char *text, rd_status *st);

RD_C_END
#endif
