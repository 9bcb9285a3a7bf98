/* comm.c -- calls a communicator's table of functions, and builds agreements on its collectives. */
#include "comm_impl.h"
#include "rd/file.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void rd_comm_free(rd_comm *c)
{
    if (!c) return;
    rd_comm_arena_free(c);
    c->vt->free(c);
}

/* Ends the process in three seconds. */
static void *abort_timer(void *exit_code)
{
    const struct timespec three_s = {.tv_sec = 3};
    nanosleep(&three_s, NULL);
    _exit((int)(intptr_t)exit_code);
}

void rd_comm_abort(rd_comm *c, int exit_code)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT; /* one per process, as a process ends once */
    pthread_t timer;
    if (exit_code == 0) exit_code = RD_EBUG;
    while (atomic_flag_test_and_set(&begun)) pause(); /* another thread ends the job */
    rd_tmpfile_abandon();
    if (c && pthread_create(&timer, NULL, abort_timer, (void *)(intptr_t)exit_code) == 0)
        c->vt->abort(c, exit_code);
    _exit(exit_code);
}

const rd_world *rd_comm_world(const rd_comm *c)
{
    return &c->w;
}
const char *rd_comm_note(const rd_comm *c)
{
    return c->note;
}

rd_code rd_comm_sum_f32(rd_comm *c, float *x, int64_t n, rd_status *st)
{
    return n > 0 ? c->vt->sum_f32(c, x, n, st) : st->code;
}

rd_code rd_comm_sum_f64(rd_comm *c, double *x, int64_t n, rd_status *st)
{
    return n > 0 ? c->vt->sum_f64(c, x, n, st) : st->code;
}

rd_code rd_comm_sum_i64(rd_comm *c, int64_t *x, int64_t n, rd_status *st)
{
    return n > 0 ? c->vt->sum_i64(c, x, n, st) : st->code;
}

rd_code rd_comm_max_f64(rd_comm *c, double *x, int64_t n, rd_status *st)
{
    return n > 0 ? c->vt->max_f64(c, x, n, st) : st->code;
}

rd_code rd_comm_min_f64(rd_comm *c, double *x, int64_t n, rd_status *st)
{
    return n > 0 ? c->vt->min_f64(c, x, n, st) : st->code;
}

rd_code rd_comm_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st)
{
    rd_assert(root >= 0 && root < c->w.size);
    return bytes > 0 ? c->vt->bcast(c, p, bytes, root, st) : st->code;
}

rd_code rd_comm_barrier(rd_comm *c, rd_status *st)
{
    return c->vt->barrier(c, st);
}

rd_code rd_comm_gather(rd_comm *c, const void *p, int64_t n, char **out, int64_t **lens,
                       rd_status *st)
{
    *out = NULL;
    *lens = NULL;
    return c->vt->gather(c, p, n, out, lens, st);
}

rd_code rd_comm_allgather(rd_comm *c, const void *mine, void *all, int64_t bytes, rd_status *st)
{
    return bytes > 0 ? c->vt->allgather(c, mine, all, bytes, st) : st->code;
}

rd_code rd_comm_local_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st)
{
    rd_assert(root >= 0 && root < c->w.local_size);
    return bytes > 0 ? c->vt->local_bcast(c, p, bytes, root, st) : st->code;
}

rd_code rd_comm_local_barrier(rd_comm *c, rd_status *st)
{
    return c->vt->local_barrier(c, st);
}

rd_code rd_comm_arena_new(rd_comm *c, int64_t n, float **out, char why[200], rd_status *st)
{
    char reason[200] = "";
    *out = NULL;
    if (c->has_arena) return rd_fail(st, RD_EBUG, "a communicator cannot have a second arena");
    if (n < 0 || n > INT64_MAX / 16)
        return rd_fail(st, RD_EBUG, "an arena of %" PRId64 " numbers is not possible", n);
    if (c->vt->arena_new && n > 0) RD_TRY(c->vt->arena_new(c, n, out, reason, st));
    if (!*out) {
        const size_t bytes = ((size_t)n * sizeof(float) + 127) / 64 * 64;
        *out = c->private_arena = aligned_alloc(64, bytes);
        if (*out)
            memset(*out, 0, bytes);
        else
            rd_fail(st, RD_EENV, "out of memory for %.1f MiB", (double)bytes / 1048576);
        if (c->w.size > 1) RD_TRY(rd_comm_agree(c, st));
    }
    c->has_arena = st->code == RD_OK;
    if (why) memcpy(why, reason, sizeof reason);
done:
    if (st->code != RD_OK) {
        c->has_arena = true; /* this rank may have allocated it */
        rd_comm_arena_free(c);
        *out = NULL;
    }
    return st->code;
}

void rd_comm_arena_free(rd_comm *c)
{
    if (!c->has_arena) return;
    if (c->vt->arena_free) c->vt->arena_free(c);
    free(c->private_arena);
    c->private_arena = NULL;
    c->has_arena = false;
}

/* A status that the ranks agreed on before names its rank already and is the same everywhere. It
 * does not change. */
rd_code rd_comm_agree(rd_comm *c, rd_status *st)
{
    rd_status net = {0};
    double first = st->code == RD_OK ? c->w.size : c->w.rank;
    if (st->code != RD_OK && st->rank <= 0) st->rank = c->w.rank;
    if (rd_comm_min_f64(c, &first, 1, &net) == RD_OK && first < c->w.size)
        (void)rd_comm_bcast(c, st, (int64_t)sizeof *st, (int)first, &net);
    if (st->code == RD_OK && net.code != RD_OK) {
        *st = net;
        st->rank = c->w.rank;
    }
    return st->code;
}

rd_code rd_comm_same(rd_comm *c, const char *name, const char *text, rd_status *st)
{
    struct {
        int64_t n;
        char host[64];
    } head = {0};
    char *theirs = NULL;
    if (c->w.rank == 0) {
        head.n = (int64_t)strlen(text);
        snprintf(head.host, sizeof head.host, "%s", c->w.host);
    }
    RD_TRY(rd_comm_bcast(c, &head, (int64_t)sizeof head, 0, st));
    theirs = calloc(1, (size_t)head.n + 1);
    if (!theirs) rd_fail(st, RD_EENV, "out of memory comparing %s", name);
    /* The next collective needs all ranks. */
    if (rd_comm_agree(c, st) != RD_OK || !theirs) goto done;
    if (c->w.rank == 0) memcpy(theirs, text, (size_t)head.n);
    RD_TRY(rd_comm_bcast(c, theirs, head.n, 0, st));
    if (strcmp(theirs, text) != 0)
        rd_fail(
            st, RD_EDISAGREE,
            "%s differs: rank %d (%s) has '%.300s', rank 0 (%s) has '%.300s'; all ranks need the "
            "same program, config and data",
            name, c->w.rank, c->w.host, text, head.host, theirs);
    RD_TRY(rd_comm_agree(c, st));
done:
    free(theirs);
    return st->code;
}
