/* comm_mpi.h -- the parts of the "mpi" communicator, for files that build on them. */
#ifndef RD_COMM_MPI_H
#define RD_COMM_MPI_H

#include "comm_impl.h"
#include "host_arena.h"
#include "mpi_error.h"

/* Makes the communicator. launched: the ranks that the launcher counts, 0 where it does not say. */
rd_code rd_comm_mpi_new(int *argc, char ***argv, int launched, rd_comm **out, rd_status *st);
/* Returns the parts of an "mpi" communicator, all borrowed. *h and *a are NULL
 * where there is none. */
void rd_mpi_inside(rd_comm *c, MPI_Comm *world, rd_host **h, rd_host_arena **a);

#endif
