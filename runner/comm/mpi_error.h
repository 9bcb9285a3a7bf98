/* mpi_error.h -- results of MPI calls as a status. */
#ifndef RD_MPI_ERROR_H
#define RD_MPI_ERROR_H

#include "rd/status.h"

/* Turns an MPI return code into a status. An error becomes RD_EPEER with the call, the library's
 * text and the advice to look for another rank's message. Returns st->code. */
rd_code rd_mpi_result(int rc, const char *call, const char *where, rd_status *st);
#define RD_MPI(call, st) rd_mpi_result((call), #call, RD_HERE, (st))

#endif
