/* comm_self.c -- the "self" communicator, for one rank: the collectives do
 * not change their data. */
#include "comm_impl.h"
#include "host_cpus.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static rd_code self_reduce_f32(rd_comm *c, float *x, int64_t n, rd_status *st)
{
    (void)c, (void)x, (void)n;
    return st->code;
}

static rd_code self_reduce_f64(rd_comm *c, double *x, int64_t n, rd_status *st)
{
    (void)c, (void)x, (void)n;
    return st->code;
}

static rd_code self_reduce_i64(rd_comm *c, int64_t *x, int64_t n, rd_status *st)
{
    (void)c, (void)x, (void)n;
    return st->code;
}

static rd_code self_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st)
{
    (void)c, (void)p, (void)bytes, (void)root;
    return st->code;
}

static rd_code self_barrier(rd_comm *c, rd_status *st)
{
    (void)c;
    return st->code;
}

static rd_code self_gather(rd_comm *c, const void *p, int64_t n, char **out, int64_t **lens,
                           rd_status *st)
{
    (void)c;
    *out = malloc((size_t)n + 1);
    *lens = malloc(sizeof **lens);
    if (!*out || !*lens) {
        free(*out);
        free(*lens);
        *out = NULL;
        *lens = NULL;
        return rd_fail(st, RD_EENV, "out of memory gathering %" PRId64 " bytes", n);
    }
    if (n > 0) memcpy(*out, p, (size_t)n);
    (*out)[n] = '\0';
    **lens = n;
    return st->code;
}

static rd_code self_allgather(rd_comm *c, const void *mine, void *all, int64_t bytes, rd_status *st)
{
    (void)c;
    memcpy(all, mine, (size_t)bytes);
    return st->code;
}

static void self_abort(rd_comm *c, int exit_code)
{
    (void)c, (void)exit_code;
}
static void self_free(rd_comm *c)
{
    free(c);
}

static const rd_comm_vt self_vt = {.sum_f32 = self_reduce_f32,
                                   .sum_f64 = self_reduce_f64,
                                   .sum_i64 = self_reduce_i64,
                                   .max_f64 = self_reduce_f64,
                                   .min_f64 = self_reduce_f64,
                                   .bcast = self_bcast,
                                   .barrier = self_barrier,
                                   .gather = self_gather,
                                   .allgather = self_allgather,
                                   .local_bcast = self_bcast,
                                   .local_barrier = self_barrier,
                                   .abort = self_abort,
                                   .free = self_free};

rd_code rd_comm_self_new(rd_comm **out, rd_status *st)
{
    rd_comm *c = *out = calloc(1, sizeof *c);
    if (!c) return rd_fail(st, RD_EENV, "out of memory for a communicator");
    c->vt = &self_vt;
    c->w.size = c->w.local_size = c->w.n_hosts = 1;
    c->w.comm = "self";
    if (gethostname(c->w.host, sizeof c->w.host - 1) != 0)
        snprintf(c->w.host, sizeof c->w.host, "localhost");
    const rd_cpu_set mine = rd_cpus_mine();
    c->w.n_cpus = rd_cpus_whole(rd_cpus_share(&mine, 1, 0, rd_cpus_quota("")));
    snprintf(c->note, sizeof c->note, "one rank, nothing to sum");
    return RD_OK;
}
