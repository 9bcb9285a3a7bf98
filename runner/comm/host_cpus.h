/* host_cpus.h -- the cores that this rank may use: its affinity, its share of the
 * host, its control group. */
#ifndef RD_HOST_CPUS_H
#define RD_HOST_CPUS_H

#include <stdbool.h>
#include <stdint.h>

/* A set of cores, one bit for each of 8192. */
enum { RD_CPU_WORDS = 128 };
typedef struct rd_cpu_set {
    uint64_t bits[RD_CPU_WORDS];
} rd_cpu_set;

/* Returns the cores in this process's affinity mask. */
rd_cpu_set rd_cpus_mine(void);
/* Returns how many cores rank `me` may use alone. all: the sets of the host's n ranks. A core that
 * k ranks may use counts 1/k for each of them. The quota of the control group, which the ranks
 * share, is a second limit. Below 1: the host has more ranks than cores. */
double rd_cpus_share(const rd_cpu_set *all, int n, int me, double quota);
/* Returns the cores that the control group (version 2 or 1) allows this process; 0: no limit. root:
 * "", or in tests a folder that replaces / in /sys/fs/cgroup and /proc/self/cgroup. */
double rd_cpus_quota(const char *root);
/* Returns the share as a whole number of threads, at least 1. */
int rd_cpus_whole(double share);

#endif
