/* gpu_locks.h -- GPUs of a host that a job has for itself among the jobs that share a folder of
 * locks. */
#ifndef RD_RUN_GPU_LOCKS_H
#define RD_RUN_GPU_LOCKS_H

#include "rd/status.h"

enum { GPU_LOCKS_MOST = 64, GPU_LOCKS_NAME = 48 };

/* A struct of zeros holds none. */
typedef struct gpu_locks {
    int fd[GPU_LOCKS_MOST]; /* open files, each with a lock */
    int n;
    char holder[96]; /* after a failed try: who holds the first GPU that is not free, or "" */
} gpu_locks;

/* Locks `wanted` of n GPUs, the first free ones, or none. name: of each GPU, such as its UUID.
 * Writes their indices. Returns whether it has them. A folder that cannot be written is RD_EENV.
 * The locks end with the process, or with gpu_locks_release. */
bool gpu_locks_try(gpu_locks *l, const char *dir, int n, const char name[][GPU_LOCKS_NAME],
                   int wanted, int *index, rd_status *st);
void gpu_locks_release(gpu_locks *l);

#endif
