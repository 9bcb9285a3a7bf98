/* gpu_group.c -- decides how the gradients of GPUs are summed: by NCCL, or in the hosts' memory.
 * All ranks decide from the facts of all ranks, so all take the same way. */
#include "gpu_group.h"
#include "device.h"

#include <stdlib.h>
#include <string.h>

typedef struct gpu_group_offer { /* one rank's facts; plain data */
    rd_gpu_nccl nccl;
    rd_status failure; /* RD_OK: the rank has NCCL */
    int sm;            /* 90: compute capability 9.0 */
    bool off;          /* RD_COMM_NCCL=0 */
} gpu_group_offer;

static void own_offer(const rd_run *r, gpu_group_offer *out)
{
    const rd_gpu_info *about = rd_gpu_about(r->gpu);
    const char *env = getenv("RD_COMM_NCCL");
    memset(out, 0, sizeof *out);
    out->failure.rank = -1;
    out->sm = about->major * 10 + about->minor;
    out->off = env && strcmp(env, "0") == 0;
    if (!out->off) (void)rd_gpu_nccl_about(r->gpu, &out->nccl, &out->failure);
}

/* Collective. Gathers the facts of all ranks, by rank. The caller frees *out. */
static rd_code gpu_group_gather(const rd_run *r, gpu_group_offer **out, rd_status *st)
{
    gpu_group_offer mine;
    own_offer(r, &mine);
    *out = calloc((size_t)r->world->size, sizeof **out);
    if (!*out)
        rd_fail(st, RD_EENV, "out of memory for the NCCL versions of %d ranks", r->world->size);
    RD_TRY(rd_comm_agree(r->comm, st));
    RD_TRY(rd_comm_allgather(r->comm, &mine, *out, (int64_t)sizeof mine, st));
done:
    return st->code;
}

static void warn_of_mixed_gpus(const rd_run *r, const gpu_group_offer *all)
{
    for (int i = 1; i < r->world->size && r->world->rank == 0; i++) {
        if (all[i].sm == all[0].sm) continue;
        rd_warn(
            r->log,
            "GPUs of several kinds (rank 0: sm_%d, rank %d: sm_%d), which round differently: the "
            "same command gives the same bytes only where each rank gets the same kind again",
            all[0].sm, i, all[i].sm);
        return;
    }
}

/* Can NCCL sum? False: why holds the reason. *warn: the user expected NCCL. */
static bool by_nccl(const rd_run *r, const gpu_group_offer *all, char why[200], bool *warn)
{
    const int n = r->world->size;
    *warn = false;
    if (run_any(r)) {
        (void)snprintf(
            why, 200,
            "deterministic any adds gradients in the same order for every number of ranks");
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!all[i].off) continue;
        (void)snprintf(why, 200, "RD_COMM_NCCL=0 on rank %d", i);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (all[i].failure.code == RD_OK) continue;
        (void)snprintf(why, 200, "rank %d has no NCCL: %.160s", i, all[i].failure.msg);
        *warn = true;
        return false;
    }
    return rd_nccl_serves(r->device.shared, all[0].nccl.version, why);
}

/* Collective. Checks what changes the bytes of a run apart from the kind of GPU. NCCL, the last in
 * the list, may be missing on some ranks. */
static rd_code same_libraries(const rd_run *r, rd_status *st)
{
    char text[256];
    const char *all = rd_gpu_libraries(), *nccl = strstr(all, ", NCCL");
    (void)snprintf(text, sizeof text, "%.*s, %s", (int)(nccl ? nccl - all : 200), all,
                   device_product(r));
    return rd_comm_same(r->comm, "GPU libraries and type of products", text, st);
}

static rd_code same_nccl(const rd_run *r, const rd_gpu_nccl *mine, rd_status *st)
{
    char text[256];
    (void)snprintf(text, sizeof text, "%d, %.200s", mine->version, mine->settings);
    if (mine->overridden && r->world->rank == 0)
        rd_warn(r->log,
                "the environment has %s, which sets the order in which NCCL adds, and so the bytes "
                "of a run; by default ranks add in a ring, with one protocol",
                mine->settings);
    return rd_comm_same(r->comm, "NCCL and its settings", text, st);
}

/* Collective. Has a rank failed? Then why names the lowest one, and no rank fails. */
static bool any_failed(const rd_run *r, const rd_status *mine, char why[200])
{
    rd_status all = *mine;
    if (rd_comm_agree(r->comm, &all) == RD_OK) return false;
    (void)snprintf(why, 200, "rank %d has no NCCL: %.160s", all.rank, all.msg);
    return true;
}

/* Collective. Makes the group. *out NULL: a rank cannot; why holds the reason. */
static rd_code make_group(const rd_run *r, rd_gpu_group **out, char why[200], rd_status *st)
{
    enum { PATIENCE_S = 120 };
    rd_gpu_group_options o = {.rank = r->world->rank,
                              .size = r->world->size,
                              .open_s = PATIENCE_S,
                              .sum_s = r->config.stall_abort_s,
                              .shared = r->device.shared};
    rd_status own = {.rank = -1};
    if (o.rank == 0) (void)rd_gpu_group_id(r->gpu, o.id, &own);
    if (any_failed(r, &own, why)) return st->code;
    RD_TRY(rd_comm_bcast(r->comm, o.id, sizeof o.id, 0, st));
    (void)rd_gpu_group_new(r->gpu, &o, out, &own);
    if (any_failed(r, &own, why)) {
        rd_gpu_group_abort(*out);
        *out = NULL;
    }
done:
    return st->code;
}

rd_code gpu_group_open(rd_run *r, rd_gpu_group **out, char why[200], rd_status *st)
{
    gpu_group_offer *all = NULL;
    bool warn = false;
    *out = NULL;
    why[0] = '\0';
    if (!run_gpu(r) || r->world->size == 1) return st->code;
    RD_TRY(same_libraries(r, st));
    RD_TRY(gpu_group_gather(r, &all, st));
    warn_of_mixed_gpus(r, all);
    if (by_nccl(r, all, why, &warn)) {
        warn = true;
        RD_TRY(same_nccl(r, &all[r->world->rank].nccl, st));
        RD_TRY(make_group(r, out, why, st));
    }
    if (*out && r->device.hidden && r->world->rank == 0)
        rd_warn(r->log,
                "each rank sees one GPU of its host alone, so NCCL cannot use NVLink between "
                "them: show every rank all GPUs (srun --gpus-per-node with --gpu-bind=none, "
                "not --gpus-per-task; no CUDA_VISIBLE_DEVICES of one GPU)");
    if (!*out && warn && r->world->rank == 0)
        rd_warn(r->log, "gradients go through the hosts' memory, which is slower: %s", why);
done:
    free(all);
    return st->code;
}
