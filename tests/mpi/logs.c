/* logs.c -- every rank says many things at once; logs.sh looks at what arrives. */
#include "rd/comm.h"
#include "rd/log.h"

#include <stdlib.h>
#include <string.h>

enum { LINES = 25 };

int main(int argc, char **argv)
{
    rd_status st = {.rank = -1};
    rd_comm *comm = NULL;
    rd_log *log = NULL;
    char pad[61];
    memset(pad, 'x', sizeof pad - 1);
    pad[sizeof pad - 1] = '\0';
    const char *tee = argc > 1 ? argv[1] : NULL;
    RD_TRY(rd_comm_start(&argc, &argv, &comm, &st));
    const rd_world *w = rd_comm_world(comm);
    RD_TRY(rd_log_new(w->rank, w->host, stdout, &log, &st));
    if (tee && w->rank == 0) RD_TRY(rd_log_tee(log, tee, &st));
    RD_TRY(rd_comm_barrier(comm, &st));
    for (int i = 0; i < LINES; i++) {
        rd_info(log, "info %d of rank %d %s end", i, w->rank, pad);
        rd_warn(log, "line %d of rank %d %.*s end", i, w->rank, (i * 7 + w->rank) % 60, pad);
    }
    if (w->rank == w->size - 1) {
        rd_status bad = {.rank = w->rank};
        rd_fail(&bad, RD_EDATA, "something of rank %d", w->rank);
        rd_error(log, &bad);
    }
    RD_TRY(rd_comm_barrier(comm, &st));
done:
    if (st.code != RD_OK) fprintf(stderr, "%s\n", st.msg);
    rd_log_free(log);
    rd_comm_free(comm);
    return (int)st.code;
}
