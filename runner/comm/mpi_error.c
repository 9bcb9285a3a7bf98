/* mpi_error.c -- results of MPI calls as a status; see mpi_error.h. */
#include "mpi_error.h"
#include <mpi.h>

rd_code rd_mpi_result(int rc, const char *call, const char *where, rd_status *st)
{
    if (rc == MPI_SUCCESS) return st->code;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    return rd_fail_(st, RD_EPEER, where,
                    "the ranks cannot reach each other: %.160s: %s; another rank may have ended, "
                    "see above",
                    call, text);
}
