/* near_cores.c -- see near_cores.h.
 *
 * A rank only ever loses cores here. So a wrong guess about the launcher costs speed, and never
 * takes the cores of others. */
#include "rd/near_cores.h"
#include "comm_impl.h"
#include "near_rules.h"
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool has_core(const rd_cpu_set *s, int i)
{
    return s->bits[i / 64] >> (i % 64) & 1;
}

static int count_cores(const rd_cpu_set *s)
{
    int n = 0;
    for (int i = 0; i < RD_CPU_WORDS; i++) n += __builtin_popcountll(s->bits[i]);
    return n;
}

bool rd_cpus_parse(const char *text, rd_cpu_set *out)
{
    const char *p = text;
    *out = (rd_cpu_set){.bits = {0}};
    while (isdigit((unsigned char)*p)) {
        char *end;
        long a = strtol(p, &end, 10), b = a;
        if (*end == '-' && isdigit((unsigned char)end[1])) b = strtol(end + 1, &end, 10);
        if (b < a || b >= 64 * RD_CPU_WORDS) return false;
        for (; a <= b; a++) out->bits[a / 64] |= (uint64_t)1 << (a % 64);
        p = *end == ',' && isdigit((unsigned char)end[1]) ? end + 1 : end;
        if (p == end) break;
    }
    return p != text && (*p == '\0' || *p == '\n');
}

/* Reads the first line of a file of a PCI device. */
static bool near_read(const char *sys, const char *pci, const char *file, char *line, int cap)
{
    char path[400], address[32];
    size_t n = 0;
    /* only the characters of an address, so that no other file is read */
    for (; pci[n] && n + 1 < sizeof address; n++) {
        if (!isxdigit((unsigned char)pci[n]) && pci[n] != ':' && pci[n] != '.') return false;
        address[n] = (char)tolower((unsigned char)pci[n]);
    }
    address[n] = '\0';
    if (n == 0) return false;
    (void)snprintf(path, sizeof path, "%.256s/bus/pci/devices/%s/%s", sys, address, file);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const bool got = fgets(line, cap, f) != NULL;
    fclose(f);
    return got;
}

int rd_near_node(const char *sys, const char *pci, rd_cpu_set *near)
{
    char text[8192];
    *near = (rd_cpu_set){.bits = {0}};
    if (!near_read(sys, pci, "numa_node", text, sizeof text)) return -1;
    const int node = atoi(text);
    if (!isdigit((unsigned char)text[0]) || node < 0) return -1;
    if (!near_read(sys, pci, "local_cpulist", text, sizeof text) || !rd_cpus_parse(text, near))
        return -1;
    return node;
}

rd_near rd_near_choose(const rd_cpu_set *mine, const rd_cpu_set *near, int node,
                       const rd_cpu_set *all, int n, bool launcher)
{
    bool some = false, others = false;
    if (node < 0) return RD_NEAR_SAME;
    for (int i = 0; i < 64 * RD_CPU_WORDS; i++) {
        if (!has_core(mine, i)) continue;
        some |= has_core(near, i);
        others |= !has_core(near, i);
    }
    if (!others) return RD_NEAR_SAME;
    if (!some) return RD_NEAR_FAR;
    for (int r = 0; r < n; r++) launcher |= memcmp(&all[r], mine, sizeof *mine) != 0;
    return launcher ? RD_NEAR_LAUNCHER : RD_NEAR_BOUND;
}

static const char *const variables[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
enum { VARIABLES = sizeof variables / sizeof *variables };

/* Returns the variable that places threads of OpenMP; -1: none does. */
static int places_threads(void)
{
    for (int i = 0; i < VARIABLES; i++) {
        const char *v = getenv(variables[i]);
        if (v && v[0] && strcasecmp(v, "false") != 0) return i;
    }
    return -1;
}

/* What ranks tell each other of their cores. */
typedef struct near_rank {
    rd_cpu_set cores;
    int host_index;
} near_rank;

/* Collective. *own gets the cores of the ranks of this rank's host, by local rank; the caller frees
 * it. *n: their number. *me: this rank among them. */
static rd_code near_gather(rd_comm *c, rd_cpu_set **own, int *n, int *me, rd_status *st)
{
    const rd_world *w = &c->w;
    near_rank mine = {.host_index = w->host_index}, *all = NULL;
    *n = *me = 0;
    all = calloc((size_t)w->size, sizeof *all);
    *own = calloc((size_t)w->size, sizeof **own);
    if (!all || !*own) rd_fail(st, RD_EENV, "out of memory for the cores of %d ranks", w->size);
    RD_TRY(rd_comm_agree(c, st));
    mine.cores = rd_cpus_mine();
    RD_TRY(rd_comm_allgather(c, &mine, all, (int64_t)sizeof mine, st));
    for (int r = 0; r < w->size; r++) {
        if (all[r].host_index != w->host_index) continue;
        if (r == w->rank) *me = *n;
        (*own)[(*n)++] = all[r].cores;
    }
done:
    free(all);
    return st->code;
}

/* Binds this rank to those of its cores that are near. */
static void near_bind(const rd_cpu_set *mine, const rd_cpu_set *near, rd_near_cores *out)
{
    rd_cpu_set both;
    for (int i = 0; i < RD_CPU_WORDS; i++) both.bits[i] = mine->bits[i] & near->bits[i];
    if (sched_setaffinity(0, sizeof both.bits, (const cpu_set_t *)both.bits) != 0) {
        out->result = RD_NEAR_FAILED;
        out->error = errno;
        return;
    }
    const rd_cpu_set now = rd_cpus_mine();
    out->n_after = count_cores(&now);
}

rd_code rd_comm_bind_near(rd_comm *c, const char *pci, rd_near_cores *all, rd_status *st)
{
    rd_world *w = &c->w;
    rd_near_cores out;
    rd_cpu_set near, *own = NULL;
    int n, me;
    const char *sys = getenv("RD_COMM_SYSFS"), *bound = getenv("OMPI_MCA_orte_bound_at_launch");
    memset(&out, 0, sizeof out);
    RD_TRY(near_gather(c, &own, &n, &me, st));
    out.node = rd_near_node(sys ? sys : "/sys", pci, &near);
    out.n_before = out.n_after = count_cores(&own[me]);
    out.result = rd_near_choose(&own[me], &near, out.node, own, n, bound && bound[0] == '1');
    out.variable = out.result == RD_NEAR_BOUND ? places_threads() : -1;
    if (out.variable >= 0)
        out.result = RD_NEAR_THREADS;
    else if (out.result == RD_NEAR_BOUND)
        near_bind(&own[me], &near, &out);
    RD_TRY(rd_comm_allgather(c, &out, all, (int64_t)sizeof out, st));
    free(own);
    RD_TRY(near_gather(c, &own, &n, &me, st));
    w->n_cpus = rd_cpus_whole(rd_cpus_share(own, n, me, rd_cpus_quota("")));
done:
    free(own);
    return st->code;
}

/* Returns the first rank with a result; -1: there is none. *k: the number of such ranks. */
static int first_with(const rd_near_cores *all, int n, rd_near result, int *k)
{
    int first = -1;
    *k = 0;
    for (int r = 0; r < n; r++) {
        if (all[r].result != result) continue;
        if (first < 0) first = r;
        ++*k;
    }
    return first;
}

bool rd_near_text(const rd_near_cores *all, int n, char out[320])
{
    int k, r;
    char ranks[48];
    out[0] = '\0';
    if ((r = first_with(all, n, RD_NEAR_FAILED, &k)) >= 0) {
        (void)snprintf(out, 320,
                       "rank %d cannot be bound to the cores of NUMA node %d, where its GPU is: %s",
                       r, all[r].node, strerror(all[r].error));
        return true;
    }
    if ((r = first_with(all, n, RD_NEAR_FAR, &k)) >= 0) {
        (void)snprintf(out, 320,
                       "rank %d has no core on NUMA node %d, where its GPU is (%d of %d ranks), so "
                       "its batches cross between nodes; mpirun --bind-to none lets run_dist bind "
                       "ranks",
                       r, all[r].node, k, n);
        return true;
    }
    if ((r = first_with(all, n, RD_NEAR_THREADS, &k)) >= 0) {
        (void)snprintf(out, 320,
                       "cores: ranks are not bound to their GPU's NUMA node, because %s places "
                       "threads",
                       variables[all[r].variable]);
    } else if ((r = first_with(all, n, RD_NEAR_LAUNCHER, &k)) >= 0) {
        (void)snprintf(out, 320,
                       "cores: ranks are not bound to their GPU's NUMA node, because the launcher "
                       "has bound them");
    } else if ((r = first_with(all, n, RD_NEAR_BOUND, &k)) >= 0) {
        (void)snprintf(ranks, sizeof ranks, "%d of %d ranks %s", k, n, k == 1 ? "is" : "are");
        (void)snprintf(out, 320,
                       "cores: %s bound to those of %s GPU's NUMA node (rank %d: node %d, %d of %d "
                       "cores)",
                       n == 1 ? "the rank is" : ranks, n == 1 ? "its" : "their", r, all[r].node,
                       all[r].n_after, all[r].n_before);
    }
    return false;
}
