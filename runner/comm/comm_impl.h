/* comm_impl.h -- what the files of this folder share: the table of functions that a communicator is, and the parts of
 * "mpi": errors, processors, and the sums inside a host. */
#ifndef RD_COMM_IMPL_H
#define RD_COMM_IMPL_H

#include "rd/comm.h"

/* Every entry is there, but for arenas and shares. The counts are > 0: comm.c answers empty calls itself. */
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
    /* *out NULL with RD_OK: not to be had, see why. Either both are NULL or none. */
    rd_code (*arena_new)(rd_comm *c, int64_t n, float **out, char why[200], rd_status *st);
    void (*arena_free)(rd_comm *c);
    /* NULL: none. Collective. bytes of zeros that the ranks of a host share (8 of them, at mark_at, are used); *out NULL with
     * RD_OK on all ranks of a host where that cannot be, see why. The caller unmaps. */
    rd_code (*share)(rd_comm *c, size_t bytes, size_t mark_at, void **out, char why[200],
                     rd_status *st);
    void (*abort)(rd_comm *c, int exit_code); /* may return */
    void (*free)(rd_comm *c);
} rd_comm_vt;

struct rd_comm {
    const rd_comm_vt *vt;
    rd_world w;
    char note[256];
    bool has_arena;
    bool threads;         /* any one thread at a time may call the library */
    bool shares;          /* the ranks of a host may share memory */
    float *private_arena; /* owned; where the table has none to give */
};

rd_code rd_comm_self_new(rd_comm **out, rd_status *st);
#endif
