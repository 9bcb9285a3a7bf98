/* rank_check.h -- the communicator and a check for tests that run on several ranks.
 *
 * A check that fails on one rank ends the whole job, because the other ranks would wait in the next
 * collective. */
#ifndef RD_TESTS_RANK_CHECK_H
#define RD_TESTS_RANK_CHECK_H

#include "rd/comm.h"
#include <stdio.h>

static rd_comm *comm;
static const rd_world *world; /* NULL: not known yet */

/* Ends the job if the condition is false. The caller has a variable rd_status st. */
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
