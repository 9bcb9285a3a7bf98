/* gpu_choose.c -- see gpu_choose.h. */
#include "rd/gpu_choose.h"
#include "rd/environment.h"
#include "rd/printable.h"
#include "rd/strbuf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* rows of the table: a message has RD_MSG_BYTES bytes */
    MOST_ROWS = 6
};

const char *rd_device_name(rd_device d)
{
    static const char *const name[] = {"auto", "cpu", "cuda"};
    return name[d];
}

int rd_gpu_choose_index(int local_rank, int n_visible)
{
    return n_visible > 0 ? local_rank % n_visible : -1;
}

/* A UUID belongs to one GPU. Host names are not compared: two containers on one machine have
 * different ones. */
static bool same_gpu(const rd_gpu_seat *a, const rd_gpu_seat *b)
{
    return strcmp(a->uuid, b->uuid) == 0;
}

/* Returns the first rank that has the GPU of rank r. */
static int owner_of(const rd_gpu_seat *seat, int r)
{
    int first = 0;
    while (!same_gpu(&seat[first], &seat[r])) first++;
    return first;
}

static int ranks_on(const rd_gpu_seat *seat, int n, int owner)
{
    int k = 0;
    for (int r = owner; r < n; r++) k += same_gpu(&seat[r], &seat[owner]);
    return k;
}

/* Returns the number of GPUs that the ranks of one host have. */
static int gpus_of(const rd_gpu_seat *seat, int n, int host_index)
{
    int k = 0;
    for (int r = 0; r < n; r++) k += seat[r].host_index == host_index && owner_of(seat, r) == r;
    return k;
}

/* Returns out with a name of another rank, for a message of several lines. */
static const char *gpu_choose_shown(const char *name, char out[48])
{
    return rd_printable(name, strlen(name), false, out, 48);
}

/* Reports the ranks of the first host that has too many ranks, GPU by GPU. clash: a rank whose GPU
 * a lower rank has. */
static rd_code gpu_choose_refuse(const rd_gpu_seat *seat, int n, int clash, rd_status *st)
{
    rd_strbuf b = {0};
    bool hosts = false; /* ranks of several hosts have one GPU */
    const int host = seat[owner_of(seat, clash)].host_index, gpus = gpus_of(seat, n, host);
    int rows = 0, ranks = 0;
    char host_name[48], uuid[48];
    for (int owner = 0; owner < n; owner++) {
        if (seat[owner].host_index != host || owner_of(seat, owner) != owner ||
            ranks_on(seat, n, owner) == 1)
            continue;
        for (int r = owner; r < n; r++) {
            if (!same_gpu(&seat[r], &seat[owner])) continue;
            hosts |= seat[r].host_index != host;
            ranks++;
            if (rows == MOST_ROWS) continue;
            rows++;
            rd_strbuf_printf(&b, "\n  rank %-4d %.24s  GPU %d  %.47s", r,
                             gpu_choose_shown(seat[r].host, host_name), seat[r].index,
                             gpu_choose_shown(seat[r].uuid, uuid));
        }
    }
    if (ranks > rows) rd_strbuf_printf(&b, "\n  and %d ranks more", ranks - rows);
    if (hosts)
        rd_fail_lines(
            st, RD_EENV,
            "two ranks on one GPU, which several hosts have, as containers on one machine "
            "do:%s\nshow each of them other GPUs (CUDA_VISIBLE_DEVICES; docker run --gpus "
            "device=0); \"allow_shared_gpu\": true lets them share, \"device\": \"cpu\" does "
            "without",
            rd_strbuf_str(&b));
    else
        rd_fail_lines(
            st, RD_EENV,
            "two ranks on one GPU:%s\nstart at most %d rank%s on '%.24s', or show the ranks "
            "more GPUs (CUDA_VISIBLE_DEVICES%s; srun --gpus-per-node); \"allow_shared_gpu\": "
            "true lets them share, \"device\": \"cpu\" does without",
            rd_strbuf_str(&b), gpus, gpus == 1 ? "" : "s",
            gpu_choose_shown(seat[clash].host, host_name),
            strncmp(seat[clash].uuid, "MIG-", 4) == 0
                ? "=MIG-... of each rank, since a process sees one MIG instance"
                : "");
    rd_strbuf_release(&b);
    return st->code;
}

static bool one_host(const rd_gpu_seat *seat, int n)
{
    for (int r = 1; r < n; r++)
        if (seat[r].host_index != seat[0].host_index) return false;
    return true;
}

/* Writes the text for the banner: "2 x NVIDIA H100 80GB HBM3 on node07, one rank each". */
static void describe_gpus(const rd_gpu_seat *seat, int n, rd_gpu_choice *out)
{
    int gpus = 0, hosts = 0, most = 0;
    bool same_name = true;
    for (int r = 0; r < n; r++) {
        bool new_host = true;
        for (int s = 0; s < r && new_host; s++) new_host = seat[s].host_index != seat[r].host_index;
        hosts += new_host;
        same_name &= strcmp(seat[r].name, seat[0].name) == 0;
        if (owner_of(seat, r) != r) continue;
        const int here = ranks_on(seat, n, r);
        most = here > most ? here : most;
        gpus++;
    }
    char where[96], ranks[64] = "";
    if (one_host(seat, n))
        snprintf(where, sizeof where, "%s", seat[0].host);
    else
        snprintf(where, sizeof where, "%d hosts", hosts);
    if (most > 1)
        snprintf(ranks, sizeof ranks, ", up to %d ranks on each", most);
    else if (n > 1)
        snprintf(ranks, sizeof ranks, ", one rank each");
    char count[32] = "";
    if (gpus > 1) snprintf(count, sizeof count, "%d x ", gpus);
    snprintf(out->text, sizeof out->text, "%s%s%s on %s%s", count, seat[0].name,
             same_name ? "" : " and others", where, ranks);
}

static bool same_place(const rd_gpu_seat *a, const rd_gpu_seat *b)
{
    return a->host_index == b->host_index && a->pci[0] && strcmp(a->pci, b->pci) == 0;
}

/* Do ranks use MIG instances of one GPU? NCCL takes them for one GPU. */
static bool shares_instances(const rd_gpu_seat *seat, int n)
{
    for (int r = 1; r < n; r++)
        for (int s = 0; s < r; s++)
            if (same_place(&seat[s], &seat[r])) return true;
    return false;
}

/* Do the ranks of a host see one GPU each, and not the same one? */
static bool hides_gpus(const rd_gpu_seat *seat, int n)
{
    bool several = false;
    for (int r = 0; r < n; r++) {
        if (seat[r].n_visible != 1) return false;
        for (int s = 0; s < r; s++)
            several |= seat[s].host_index == seat[r].host_index && !same_gpu(&seat[s], &seat[r]) &&
                       !same_place(&seat[s], &seat[r]);
    }
    return several;
}

rd_code rd_gpu_choose(rd_device asked, bool allow_shared, bool compiled, const rd_gpu_seat *seat,
                      int n, rd_gpu_choice *out, rd_status *st)
{
    int with = 0, without = -1, has = -1;
    *out = (rd_gpu_choice){.device = RD_DEVICE_CPU};
    if (asked == RD_DEVICE_CPU || (asked == RD_DEVICE_AUTO && !compiled)) return st->code;
    if (!compiled)
        return rd_fail(st, RD_EENV,
                       "\"device\" is \"cuda\", and this program has no GPU backend; build it with "
                       "`make CUDA=1` (it needs the CUDA Toolkit), or set \"device\": \"cpu\"");
    for (int r = n - 1; r >= 0; r--) {
        const bool one = seat[r].n_visible > 0 && !seat[r].why[0];
        with += one;
        if (one)
            has = r;
        else
            without = r;
    }
    if (with == 0 && asked == RD_DEVICE_AUTO) {
        if (seat[0].n_visible > 0)
            snprintf(out->text, sizeof out->text, "the CPU, because %s cannot be used: %.400s",
                     seat[0].name, seat[0].why);
        else
            snprintf(out->text, sizeof out->text, "the CPU, because no GPU can be used: %.400s",
                     seat[0].why);
        return st->code;
    }
    if (with == 0 && seat[without].n_visible > 0)
        return rd_fail(st, RD_EENV, "\"device\" is \"cuda\", and %s cannot be used: %s",
                       seat[without].name, seat[without].why);
    if (with == 0)
        return rd_fail(st, RD_EENV,
                       "\"device\" is \"cuda\", and there is no GPU that can be used: %s",
                       seat[without].why);
    if (with < n)
        return rd_fail(st, RD_EENV,
                       "rank %d on '%s' %s (%s), while rank %d on '%s' has one: %d of %d ranks "
                       "with a GPU; put all ranks where there are GPUs, or set \"device\": \"cpu\"",
                       without, seat[without].host,
                       seat[without].n_visible ? "cannot use its GPU" : "has no GPU",
                       seat[without].why, has, seat[has].host, with, n);
    for (int r = 0; r < n; r++) {
        if (owner_of(seat, r) == r) continue;
        if (!allow_shared) return gpu_choose_refuse(seat, n, r, st);
        out->shared = true;
    }
    out->shared |= shares_instances(seat, n);
    out->hidden = hides_gpus(seat, n);
    out->device = RD_DEVICE_CUDA;
    describe_gpus(seat, n, out);
    return st->code;
}

bool rd_nccl_serves(bool shared, int version, char why[200])
{
    enum { SHARES = 23000 };
    if (!shared || version >= SHARES) return true;
    snprintf(why, 200, "ranks share a GPU, which NCCL allows from 2.30 on; here is %d.%d",
             version / 10000, version % 10000 / 100);
    return false;
}

bool rd_nccl_settings(char out[160])
{
    static const rd_variable set[] = {RD_VAR_NCCL_ALGO, RD_VAR_NCCL_PROTO, RD_VAR_NCCL_NVLS};
    bool other = false;
    size_t n = 0;
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        other |= !rd_environment_default(set[i]);
        const char *name = rd_environment_name(set[i]), *v = getenv(name);
        n += (size_t)snprintf(out + n, 160 - n, "%s%s=%.24s", i ? " " : "", name, v ? v : "");
    }
    return other;
}

int64_t rd_gpu_batch_that_fits(int64_t batch, uint64_t fixed, uint64_t used, uint64_t asked,
                               uint64_t left)
{
    /* the step needs at least this */
    const double need = (double)used + (double)asked - (double)fixed;
    const double usable = 0.9 * ((double)used + (double)left) - (double)fixed;
    if (batch < 1 || need <= 0.0 || usable <= 0.0) return 0;
    int64_t fits = (int64_t)((double)batch * usable / need);
    /* free memory is in pieces, so a smaller batch is needed even if the bytes suffice */
    if (fits >= batch) fits = batch - 1;
    return fits >= 16 ? fits / 8 * 8 : fits;
}
