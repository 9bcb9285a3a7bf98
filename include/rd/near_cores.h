/* near_cores.h -- binds each rank to the cores that are near its GPU.
 *
 * Machines with several sockets have several NUMA nodes. A batch that is filled on one node and
 * uploaded to a GPU of another one crosses the link between them. The kernel knows the cores near a
 * PCI device: /sys/bus/pci/devices/ADDRESS/local_cpulist, and numa_node. */
#ifndef RD_NEAR_CORES_H
#define RD_NEAR_CORES_H

#include "rd/comm.h"
#include <stdbool.h>

RD_C_BEGIN

typedef enum rd_near {
    RD_NEAR_SAME,     /* nothing to do: all cores of the rank are near, or nothing is known */
    RD_NEAR_BOUND,    /* the rank is bound to those of its cores that are near */
    RD_NEAR_LAUNCHER, /* the launcher has bound the ranks, so they stay as they are */
    RD_NEAR_THREADS,  /* the environment places threads, so they stay as they are */
    RD_NEAR_FAR,      /* none of the rank's cores is near */
    RD_NEAR_FAILED    /* the system refused */
} rd_near;

/* What became of one rank. Ranks send the bytes, so the caller sets all of them (memset first). */
typedef struct rd_near_cores {
    rd_near result;
    int node;              /* the GPU's NUMA node; -1: not known */
    int n_before, n_after; /* number of cores of the rank */
    int error;             /* errno of RD_NEAR_FAILED */
    int variable; /* of RD_NEAR_THREADS: 0 OMP_PROC_BIND, 1 OMP_PLACES, 2 GOMP_CPU_AFFINITY */
} rd_near_cores;

/* Collective. Binds the calling thread, and the threads that it starts from now on, to the cores
 * near the PCI device with the address pci ("0000:3B:00.0"; "" is none). Then counts
 * rd_world.n_cpus again. all[size] gets the results of all ranks, by rank.
 *
 * The rank keeps its cores if the launcher has bound the ranks: Open MPI says so, or the ranks of a
 * host have different cores. It also keeps them if the environment places threads (OMP_PROC_BIND,
 * OMP_PLACES, GOMP_CPU_AFFINITY). For tests, RD_COMM_SYSFS is a folder that replaces /sys. */
rd_code rd_comm_bind_near(rd_comm *c, const char *pci, rd_near_cores *all, rd_status *st);

/* Writes the line for the log that tells what became of n ranks, "" if there is nothing to tell.
 * Returns whether the line is a warning. */
bool rd_near_text(const rd_near_cores *all, int n, char out[320]);

RD_C_END
#endif
