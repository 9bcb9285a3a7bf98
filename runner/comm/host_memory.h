/* host_memory.h -- memory that the ranks of one host share. */
#ifndef RD_HOST_MEMORY_H
#define RD_HOST_MEMORY_H

#include "rd/status.h"
#include <mpi.h>
#include <stddef.h>

/* Collective on local, the ranks of one host. Maps `bytes` of zeros that all of them share and
 * stores the address in *map. The call itself uses the 8 bytes at mark_at. Returns 0, or an errno
 * of this rank alone. The caller unmaps the memory. */
int rd_host_memory_new(MPI_Comm local, size_t bytes, size_t mark_at, unsigned char **map,
                       rd_status *st);
/* Writes to why what the errno means and what the user can change. */
void rd_host_memory_why(int err, size_t bytes, char why[200]);

#endif
