/* comm_impl.h -- the table of functions of a communicator, for the files of this folder. */
#ifndef RD_COMM_IMPL_H
#define RD_COMM_IMPL_H

#include "rd/comm.h"
#include <stdatomic.h>

/* arena_new, arena_free and share may be NULL; the other entries are not. Counts are > 0, because
 * comm.c handles empty calls. See comm.h for what the functions do. */
typedef struct rd_comm_vt {
    rd_code (*sum_f32)(rd_comm *c, float *x, int64_t n, rd_status *st);
    rd_code (*sum_f64)(rd_comm *c, double *x, int64_t n, rd_status *st);
    rd_code (*sum_i64)(rd_comm *c, int64_t *x, int64_t n, rd_status *st);
    rd_code (*max_f64)(rd_comm *c, double *x, int64_t n, rd_status *st);
    rd_code (*min_f64)(rd_comm *c, double *x, int64_t n, rd_status *st);
    rd_code (*bcast)(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st);
    rd_code (*barrier)(rd_comm *c, rd_status *st);
    rd_code (*gather)(rd_comm *c, const void *p, int64_t n, char **out, int64_t **lens,
                      rd_status *st);
    rd_code (*allgather)(rd_comm *c, const void *mine, void *all, int64_t bytes, rd_status *st);
    rd_code (*local_bcast)(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st);
    rd_code (*local_barrier)(rd_comm *c, rd_status *st);
    /* *out is NULL with RD_OK: some host cannot share the memory, see why. Both functions are NULL,
     * or none. */
    rd_code (*arena_new)(rd_comm *c, int64_t n, float **out, char why[200], rd_status *st);
    void (*arena_free)(rd_comm *c);
    /* Collective. Maps `bytes` of zeros that the ranks of a host share. The call itself uses the 8
     * bytes at mark_at. *out is NULL with RD_OK on all ranks of a host that cannot share them, see
     * why. The caller unmaps the memory. */
    rd_code (*share)(rd_comm *c, size_t bytes, size_t mark_at, void **out, char why[200],
                     rd_status *st);
    void (*abort)(rd_comm *c, int exit_code); /* may return */
    void (*free)(rd_comm *c);
} rd_comm_vt;

struct rd_comm {
    const rd_comm_vt *vt;
    rd_world w;
    char note[256];       /* see rd_comm_note */
    bool has_arena;       /* rd_comm_arena_new was called */
    bool threads;         /* any thread may call the library, one at a time */
    bool shares;          /* the ranks of a host may share memory */
    float *private_arena; /* owned; the arena, if vt->arena_new made none */
    double end_s;         /* see rd_comm_end_within */
    /* 1: a rank of this host has printed that MPI does not end. Mapped until the process ends.
     * NULL: the ranks of the host share no memory, or there is one rank. */
    atomic_int *end_said;
};

/* Makes the communicator of one rank. The caller owns *out. */
rd_code rd_comm_self_new(rd_comm **out, rd_status *st);
#endif
