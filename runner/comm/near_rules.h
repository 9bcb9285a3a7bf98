/* near_rules.h -- the parts of near_cores.c, for its test. */
#ifndef RD_COMM_NEAR_RULES_H
#define RD_COMM_NEAR_RULES_H

#include "host_cpus.h"
#include "rd/near_cores.h"

/* Reads a list of cores like "0-3,8\n". False: it is none. */
bool rd_cpus_parse(const char *text, rd_cpu_set *out);
/* Finds the NUMA node of a PCI device and the cores near it. sys: "/sys". Returns -1 if the machine
 * has one node, or if nothing is known. */
int rd_near_node(const char *sys, const char *pci, rd_cpu_set *near);
/* Decides what becomes of a rank with the cores `mine`. all[n]: the cores of the ranks of its host.
 * launcher: the launcher says that it has bound the rank. */
rd_near rd_near_choose(const rd_cpu_set *mine, const rd_cpu_set *near, int node,
                       const rd_cpu_set *all, int n, bool launcher);

#endif
