/* comm.h -- the ranks of a job, and what they compute together.
 *
 * A communicator is a table of functions. There are two: "self", for one rank without a launcher,
 * and "mpi". All ranks must call the functions marked Collective, in the same order. */
#ifndef RD_COMM_H
#define RD_COMM_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef struct rd_comm rd_comm;

typedef struct rd_world {
    int rank, size;             /* this rank, and the number of ranks of the job */
    int local_rank, local_size; /* the same numbers on this rank's host */
    int n_hosts;                /* number of hosts */
    int host_index;             /* this rank's host; hosts are numbered by their lowest rank */
    int n_cpus;        /* cores for this rank alone: its binding, or its share of the host */
    char host[64];     /* name of this rank's host */
    const char *comm;  /* "self" or "mpi" */
    char library[128]; /* "Open MPI 4.1.4", or "" */
} rd_world;

/* Collective. Makes the communicator. It is the first call of the program that touches MPI, and
 * removes MPI's arguments from argv. The caller owns *out.
 *
 * Without a launcher it makes one rank and does not call MPI_Init. Under a launcher it calls
 * MPI_Init_thread. A launcher sets OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_SIZE, or SLURM_NTASKS and
 * SLURM_PROCID. SLURM_NTASKS alone does not count: it is a plain start inside salloc. A batch
 * script has both variables, which do not count either.
 *
 * RD_EENV: the launcher counts more ranks than MPI, so the program and mpirun use different MPI
 * libraries; srun started the ranks without PMIx; or another launcher (torchrun) started several
 * processes that MPI cannot connect. MPI errors are returned and are not fatal. */
rd_code rd_comm_start(int *argc, char ***argv, rd_comm **out, rd_status *st);
/* Returns whether such another launcher started this process, and not as the first of its host. The
 * first one prints for all. */
bool rd_comm_foreign_follower(void);
/* Collective. Ends the communicator and calls MPI_Finalize. NULL is fine. */
void rd_comm_free(rd_comm *c);
/* Sets how many seconds rd_comm_end may take, 300 at first; 0: no limit. */
void rd_comm_end_within(rd_comm *c, double seconds);
/* Collective. Does what rd_comm_free does, as the last call of a process whose work is done. If
 * MPI_Finalize does not return in time, one rank of each host prints that, and the process ends
 * with this exit code. NULL is fine. */
void rd_comm_end(rd_comm *c, int exit_code);
/* Ends the whole job with this exit code. Any rank and any thread may call it at any time. Prints
 * nothing. Does not return: if MPI_Abort does not end the process in 3 s, _exit does. */
void rd_comm_abort(rd_comm *c, int exit_code) __attribute__((noreturn));

/* Returns what is known of the ranks. Borrowed until rd_comm_free. */
const rd_world *rd_comm_world(const rd_comm *c);
/* Returns one line for the banner: how sums travel. Borrowed until rd_comm_free. */
const char *rd_comm_note(const rd_comm *c);
/* Returns "Open MPI 4.1.4". It works without MPI_Init. */
const char *rd_comm_library_version(void);

/* Collective. Replaces x[0, n) by its sum, maximum or minimum over all ranks. All ranks get the
 * same bytes, and equal inputs on an equal number of ranks give equal bytes in every run. n may be
 * 0, and above 2^31.
 *
 * Float sums follow the binary tree ((0 + 1) + (2 + 3)) + ... over the ranks. The ranks of one host
 * sum through shared memory. They use messages if the environment has RD_COMM_SHARED=0, or if a
 * host does not let its ranks share memory. Between hosts, and between ranks without shared memory,
 * the tree goes on over hosts. For tests, RD_COMM_HOSTS=k makes the ranks of one host behave like
 * those of k hosts. */
rd_code rd_comm_sum_f32(rd_comm *c, float *x, int64_t n, rd_status *st);
rd_code rd_comm_sum_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_sum_i64(rd_comm *c, int64_t *x, int64_t n, rd_status *st);
rd_code rd_comm_max_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
rd_code rd_comm_min_f64(rd_comm *c, double *x, int64_t n, rd_status *st);
/* Collective. Copies p[0, bytes) from rank root to all ranks. */
rd_code rd_comm_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st);
/* Collective. Waits until all ranks are here. */
rd_code rd_comm_barrier(rd_comm *c, rd_status *st);
/* Collective. Rank 0 receives the n bytes of every rank; n may differ between ranks. *out holds
 * them in rank order, and *lens their numbers, one per rank. Rank 0's caller frees both with
 * free(). The other ranks get NULL. */
rd_code rd_comm_gather(rd_comm *c, const void *p, int64_t n, char **out, int64_t **lens,
                       rd_status *st);
/* Collective. Every rank receives the record of every rank, in rank order: all[size * bytes]. */
rd_code rd_comm_allgather(rd_comm *c, const void *mine, void *all, int64_t bytes, rd_status *st);

/* Collective among the ranks of one host. Copies p[0, bytes) from local rank root to the others. */
rd_code rd_comm_local_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st);
/* Collective among the ranks of one host. Waits until all of them are here. */
rd_code rd_comm_local_barrier(rd_comm *c, rd_status *st);

/* Collective. Makes an arena: n zeros for this rank, aligned to 64 bytes, which the other ranks of
 * its host can reach. rd_comm_sum_f32 over any part of it sums in place, without a copy; the part
 * must be the same on every rank. If some host cannot share that much memory, all ranks get private
 * memory, and sums work as for other arrays. why then has the reason, else ""; why may be NULL. A
 * second arena is RD_EBUG. Borrowed until rd_comm_arena_free or rd_comm_free. */
rd_code rd_comm_arena_new(rd_comm *c, int64_t n, float **out, char why[200], rd_status *st);
/* Frees the arena. Not collective. Does nothing if there is none. */
void rd_comm_arena_free(rd_comm *c);

/* Collective among the ranks of one host. Maps `bytes` of zeros, aligned to a page, that all of
 * them share. What a rank writes before rd_comm_local_barrier, the others read after it. *out is
 * NULL on all of them if the host cannot share the memory, or if sums do not go through shared
 * memory (RD_COMM_SHARED=0). why then has the reason; it is "" on a rank that is alone on its host.
 * The caller frees the memory with rd_comm_unshare. */
rd_code rd_comm_shared(rd_comm *c, size_t bytes, void **out, char why[200], rd_status *st);
/* Unmaps memory of rd_comm_shared; bytes: the same number. Not collective. NULL is fine. */
void rd_comm_unshare(void *p, size_t bytes);

/* ---- flows: the sum of an array in parts, while the rest of the array is computed ---- */

/* The type that numbers have between hosts. */
typedef enum rd_wire { RD_WIRE_F32, RD_WIRE_BF16, RD_WIRE_F16 } rd_wire;
/* Returns "float32", "bfloat16" or "float16". */
const char *rd_wire_name(rd_wire w);

/* Who moves the data of a flow. */
typedef enum rd_flow_mode {
    RD_FLOW_LATE,  /* rd_flow_finish; nothing moves before it */
    RD_FLOW_CALLS, /* the caller, in rd_flow_poll */
    /* A helper thread, from rd_flow_ready to rd_flow_pause. No other thread may
     * call MPI in between. */
    RD_FLOW_THREAD,
    RD_FLOW_CORE /* the same thread, polling all the time; it needs a free core */
} rd_flow_mode;

typedef struct rd_flow rd_flow;
typedef struct rd_flow_part {
    int64_t from, n; /* first element in the array, number of elements; n > 0 */
    /* Times of the last round on this rank's clock. */
    int64_t begin_ns; /* this rank began with the part */
    int64_t end_ns;   /* every slice of the part was complete */
} rd_flow_part;
/* Times of the last round on this rank. */
typedef struct rd_flow_times {
    double total_s;     /* time in which at least one part was being sent */
    double exposed_s;   /* time in rd_flow_finish */
    int64_t wire_bytes; /* bytes that this rank sent to other hosts */
} rd_flow_times;

/* Collective. Makes a flow. It sums the given parts of x over all ranks, in rounds, one round per
 * step. x is the communicator's arena or a part of it. The parts are copied. One flow at a time.
 * The caller owns *out.
 *
 * The sums have the same bytes in every mode and for every cut into parts; with RD_WIRE_F32, those
 * of rd_comm_sum_f32. On one host RD_FLOW_LATE is the only mode, and wire is ignored. With a 16-bit
 * wire the sum of every host is rounded to it, and so is the result, to nearest, ties to even.
 * Additions are float32. */
rd_code rd_flow_new(rd_comm *c, float *x, const rd_flow_part *part, int n_parts, rd_wire wire,
                    rd_flow_mode mode, rd_flow **out, rd_status *st);
void rd_flow_free(rd_flow *f); /* not collective; NULL is fine */
/* Returns the mode in use. */
rd_flow_mode rd_flow_mode_of(const rd_flow *f);
/* Marks the first n parts as complete on this rank. Nobody may touch them before the end of
 * rd_flow_finish. n does not decrease within a round. Does not wait. */
void rd_flow_ready(rd_flow *f, int n);
/* Moves the sums on in the mode RD_FLOW_CALLS. Does not wait. rd_flow_finish reports a failure. */
void rd_flow_poll(rd_flow *f);
/* Stops the helper thread until the next round and waits until it has stopped. The caller's thread
 * may then call MPI again; rd_flow_finish continues where the thread stopped. Does nothing if no
 * thread runs. */
void rd_flow_pause(rd_flow *f);
/* Collective, once per round. Marks all parts as complete and waits until they are the sums. */
rd_code rd_flow_finish(rd_flow *f, rd_status *st);
/* Returns the parts as given, with their times. Borrowed until rd_flow_free. */
const rd_flow_part *rd_flow_parts(const rd_flow *f);
/* Returns the times of the last round. Borrowed until rd_flow_free. */
const rd_flow_times *rd_flow_last(const rd_flow *f);

/* Collective. Gives all ranks the status of the lowest rank that failed; st->rank names that rank.
 * Call it after each phase that can fail on some ranks only. */
rd_code rd_comm_agree(rd_comm *c, rd_status *st);

/* Collective. Compares a short text with that of rank 0. name: what the text is, for example the
 * program's version, or a hash of the config, of the list of parameters or of the data. If the text
 * of a rank differs, all ranks get RD_EDISAGREE. The message names the rank, its host, `name` and
 * both values. */
rd_code rd_comm_same(rd_comm *c, const char *name, const char *text, rd_status *st);

RD_C_END
#endif
