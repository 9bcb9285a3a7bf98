/* rank_check.h -- for tests that run on several ranks: the communicator, and a check that ends the job. A check that fails on one rank
 * has to, for the others would wait in the next collective. */
#ifndef RD_TESTS_RANK_CHECK_H
#define RD_TESTS_RANK_CHECK_H

#include "rd/comm.h"
#include <stdio.h>

static rd_comm *comm;
static const rd_world *world; /* NULL: not known yet */

/* There is a status st where it is used. */
#define CHECK(cond)                               \
    do {                                          \
        if (!(cond)) failed(RD_HERE, #cond, &st); \
    } while (0)

static void failed(const char *where, const char *what, const rd_status *st)
{
    fprintf(stderr, "%s: rank %d: not true: %s; status %d '%s'\n", where, world ? world->rank : -1,
            what, (int)st->code, st->msg);
    fflush(stderr);
    rd_comm_abort(comm, 1);
}

#endif
