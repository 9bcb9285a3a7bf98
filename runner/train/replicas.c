/* replicas.c -- all ranks must hold the same weights. A bit that differs is a broken machine or a bug: it is not to be saved, and the
 * rank and the array are named. */
#include "run_impl.h"

#include <inttypes.h>
#include <stdlib.h>

/* Is the checksum of rank i that of most ranks? With two ranks nobody knows, and rank 0 counts. */
static bool is_of_most(const uint32_t *sum, int n, int i)
{
    int same = 0;
    for (int k = 0; k < n; k++) same += sum[k] == sum[i];
    return 2 * same > n || (2 * same == n && sum[i] == sum[0]);
}

/* The first array whose checksums differ, by name. */
static rd_code name_array(rd_run *r, int *odd, const char **name, rd_status *st)
{
    const int n = rd_params_n(r->params), size = r->world->size;
    uint32_t *mine = malloc(((size_t)n + 1) * sizeof *mine), *one = malloc((size_t)size * sizeof *one);
    uint32_t *all = malloc(((size_t)n + 1) * (size_t)size * sizeof *all);
    *name = "?";
    if (!mine || !one || !all) rd_fail(st, RD_EENV, "out of memory for the checksums of %d arrays", n);
    RD_TRY(run_agree(r, st));
    for (int k = 0; k < n; k++) {
        const rd_param *p = rd_params_at(r->params, k);
        mine[k] = rd_crc32c(0, rd_params_values(r->params) + p->offset, (size_t)p->n * sizeof(float));
    }
    RD_TRY(rd_comm_allgather(r->comm, mine, all, (int64_t)n * (int64_t)sizeof *mine, st));
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < size; i++) one[i] = all[(size_t)i * (size_t)n + (size_t)k];
        int bad = 0;
        while (bad < size && is_of_most(one, size, bad)) bad++;
        if (bad == size) continue;
        *odd = bad;
        *name = rd_params_at(r->params, k)->name;
        break;
    }
done:
    free(mine);
    free(one);
    free(all);
    return st->code;
}

rd_code run_check_replicas(rd_run *r, rd_status *st)
{
    const uint32_t mine = rd_crc32c(0, rd_params_values(r->params), (size_t)rd_params_span(r->params) * sizeof(float));
    const int size = r->world->size;
    const char *name;
    int odd = -1;
    if (size == 1) return st->code;
    uint32_t *all = malloc((size_t)size * sizeof *all);
    if (!all) return rd_fail(st, RD_EENV, "out of memory");
    RD_TRY(rd_comm_allgather(r->comm, &mine, all, sizeof mine, st));
    for (int i = 0; i < size && odd < 0; i++)
        if (!is_of_most(all, size, i)) odd = i;
    if (odd < 0) goto done;
    RD_TRY(name_array(r, &odd, &name, st));
    r->agreed = true;
    rd_fail(st, RD_ENUMERIC,
            "after step %" PRId64 " rank %d holds other weights than %s, first in '%s'; nothing was saved since, start again to go on from "
            "the last checkpoint, and suspect that rank's machine",
            r->at.step, odd, size == 2 ? "rank 0" : "most ranks", name);
done:
    free(all);
    return st->code;
}
