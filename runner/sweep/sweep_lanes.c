/* sweep_lanes.c -- places for runs: the cores of this host, its GPUs, the hosts of --hosts or
 * --hostfile, the nodes of a Slurm allocation.
 *
 * On this host each place has its own cores, so runs do not disturb each other, and each run
 * sees only its cores as its share. On several hosts a run gets whole slots, on one host where they
 * fit. */
#include "sweep_impl.h"
#include "../comm/host_cpus.h"
#include "../doctor/doctor_impl.h"
#include "rd/backend_kind.h"
#include "rd/gpu.h"
#include "rd/gpu_choose.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static rd_code lanes_memory(rd_status *st)
{
    return rd_fail(st, RD_EENV, "out of memory for the places of the runs");
}

/* Returns the positive number in an environment variable; else 0. */
static int lanes_env(const char *name)
{
    const char *s = getenv(name);
    const long n = s ? strtol(s, NULL, 10) : 0;
    return n > 0 && n < 1000000 ? (int)n : 0;
}

static sweep_lane *lane_add(sweep_lanes *l, rd_status *st)
{
    sweep_lane *more = realloc(l->at, (size_t)(l->n + 1) * sizeof *more);
    if (!more) {
        lanes_memory(st);
        return NULL;
    }
    l->at = more;
    l->at[l->n] = (sweep_lane){.busy = -1};
    return &l->at[l->n++];
}

/* ---- this host ---- */

/* Makes the mpirun line of one lane. */
static rd_code lane_mpirun(const rd_cli *cli, const doc_hosts *h, sweep_lane *lane, rd_status *st)
{
    int n;
    return doc_line(h, (int)cli->ssh_port, cli->mpirun_args, "", geteuid() == 0, &lane->launcher,
                    &n, st);
}

/* Gives lane k of n its cores of the first `total` ones. More lanes than cores share all. */
static void lane_cores(sweep_lane *lane, const cpu_set_t *mine, int total, int k, int n)
{
    const int from = (int)((int64_t)k * total / n), to = (int)((int64_t)(k + 1) * total / n);
    int seen = 0;
    CPU_ZERO(&lane->cores);
    lane->pinned = n <= total;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, mine)) continue;
        if (seen >= from && seen < to) CPU_SET(i, &lane->cores);
        seen++;
    }
}

/* Writes the GPUs of lane k: `each` of them. Names of CUDA_VISIBLE_DEVICES may be any. */
static void lane_gpus(sweep_lane *lane, int n_gpus, int k, int each)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    size_t used = 0;
    for (int i = 0; i < each; i++) {
        const int want = (k * each + i) % n_gpus;
        char name[64];
        const char *s = visible && visible[0] ? visible : NULL;
        for (int j = 0; s && j < want; j++) s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL;
        if (s)
            (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(s, ","), s);
        else
            (void)snprintf(name, sizeof name, "%d", want);
        if (used + strlen(name) + 2 > sizeof lane->gpus) return;
        used += (size_t)snprintf(lane->gpus + used, sizeof lane->gpus - used, "%s%s", i ? "," : "",
                                 name);
    }
}

static rd_code lanes_here(const rd_cli *cli, const rd_config *c, int n_runs, sweep_lanes *out,
                          rd_status *st)
{
    char why[256];
    cpu_set_t mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_SET(0, &mine);
    const double quota = rd_cpus_quota("");
    int cores = CPU_COUNT(&mine);
    if (quota > 0.0 && quota < cores) cores = rd_cpus_whole(quota);
    const int gpus = rd_config_choice(c, "device") == RD_DEVICE_CPU ? 0 : rd_gpu_count(why);
    const int units = gpus > 0 ? gpus : cores,
              fit = units / out->ranks > 1 ? units / out->ranks : 1;
    int n = cli->sweep_jobs > 0 ? (int)cli->sweep_jobs : fit;
    n = n < n_runs ? n : n_runs > 0 ? n_runs : 1;
    for (int k = 0; k < n && st->code == RD_OK; k++) {
        sweep_lane *lane = lane_add(out, st);
        if (!lane) break;
        lane_cores(lane, &mine, cores, k, n);
        if (gpus > 0) lane_gpus(lane, gpus, k, out->ranks < gpus ? out->ranks : gpus);
        doc_host one = {.name = "localhost", .slots = out->ranks};
        const doc_hosts h = {.at = &one, .n = 1, .slots = out->ranks};
        if (out->ranks > 1) (void)lane_mpirun(cli, &h, lane, st);
    }
    (void)snprintf(out->about, sizeof out->about, "%d at a time on %d core%s%s", n, cores,
                   RD_S(cores), n > cores ? ", which they share" : "");
    if (gpus > 0)
        (void)snprintf(out->about, sizeof out->about, "%d at a time on %d GPU%s", n, gpus,
                       RD_S(gpus));
    return st->code;
}

/* ---- several hosts ---- */

/* Takes `want` slots: of the first host that has them all, else of several. Returns false if there
 * are too few. */
static bool take_slots(doc_hosts *left, int want, doc_hosts *out)
{
    int total = 0, from = 0;
    for (int i = 0; i < left->n; i++) total += left->at[i].slots;
    if (total < want) return false;
    while (from < left->n && left->at[from].slots < want) from++;
    out->n = out->slots = 0;
    for (int i = from < left->n ? from : 0; i < left->n && want > 0; i++) {
        const int k = left->at[i].slots < want ? left->at[i].slots : want;
        if (k == 0) continue;
        out->at[out->n] = left->at[i];
        out->at[out->n++].slots = k;
        out->slots += k;
        left->at[i].slots -= k;
        want -= k;
    }
    return true;
}

static rd_code lanes_hosts(const rd_cli *cli, int n_runs, sweep_lanes *out, rd_status *st)
{
    doc_hosts all = {0}, part = {0};
    RD_TRY(cli->hosts ? doc_hosts_parse(cli->hosts, &all, st)
                      : doc_hosts_read(cli->hostfile, &all, st));
    part.at = calloc((size_t)all.n + 1, sizeof *part.at);
    if (!part.at) lanes_memory(st);
    RD_TRY(st->code);
    const int slots = all.slots, n_hosts = all.n;
    int most = cli->sweep_jobs > 0 ? (int)cli->sweep_jobs : n_runs;
    most = most < n_runs ? most : n_runs;
    while (out->n < most && take_slots(&all, out->ranks, &part)) {
        sweep_lane *lane = lane_add(out, st);
        if (!lane) break;
        RD_TRY(lane_mpirun(cli, &part, lane, st));
    }
    if (out->n == 0 && n_runs > 0)
        rd_fail(st, RD_EUSAGE,
                "the hosts have %d slots, and a run has %d ranks; name more hosts, or give fewer "
                "--sweep_ranks",
                slots, out->ranks);
    (void)snprintf(out->about, sizeof out->about, "%d at a time on %d host%s", out->n, n_hosts,
                   RD_S(n_hosts));
done:
    free(part.at);
    doc_hosts_release(&all);
    return st->code;
}

/* ---- Slurm ---- */

static rd_code lanes_slurm(const rd_cli *cli, int n_runs, int nodes, sweep_lanes *out,
                           rd_status *st)
{
    const char *mpi = getenv("RUN_DIST_MPI");
    const int tasks = lanes_env("SLURM_NTASKS") > nodes ? lanes_env("SLURM_NTASKS") : nodes,
              each = lanes_env("SLURM_CPUS_PER_TASK");
    int n = cli->sweep_jobs > 0 ? (int)cli->sweep_jobs : tasks / out->ranks;
    if (tasks < out->ranks)
        return rd_fail(st, RD_EUSAGE,
                       "the allocation has %d tasks, and a run has %d ranks; ask Slurm for more "
                       "(--ntasks), or give fewer --sweep_ranks",
                       tasks, out->ranks);
    n = n < n_runs ? n : n_runs;
    for (int k = 0; k < n; k++) {
        sweep_lane *lane = lane_add(out, st);
        sweep_words w = {0};
        if (!lane) break;
        sweep_words_add(&w, "srun");
        sweep_words_add(&w, "--exact");
        sweep_words_add(&w, "--mpi=%s", mpi && mpi[0] ? mpi : "pmix");
        sweep_words_add(&w, "--kill-on-bad-exit=0");
        sweep_words_add(&w, "--ntasks=%d", out->ranks);
        if (each > 0) sweep_words_add(&w, "--cpus-per-task=%d", each);
        if (w.failed) lanes_memory(st);
        lane->launcher = w.at;
    }
    (void)snprintf(out->about, sizeof out->about, "%d at a time on %d nodes of Slurm", n, nodes);
    return st->code;
}

rd_code sweep_lanes_make(const rd_cli *cli, const rd_config *c, int n_runs, sweep_lanes *out,
                         rd_status *st)
{
    const int ranks = out->ranks, nodes = lanes_env("SLURM_JOB_NUM_NODES");
    *out = (sweep_lanes){.ranks = ranks > 0 ? ranks : 1};
    if (cli->hosts || cli->hostfile) return lanes_hosts(cli, n_runs, out, st);
    if (getenv("SLURM_JOB_ID") && nodes > 1) return lanes_slurm(cli, n_runs, nodes, out, st);
    return lanes_here(cli, c, n_runs, out, st);
}

void sweep_lanes_release(sweep_lanes *l)
{
    for (int i = 0; i < l->n; i++) {
        for (char **w = l->at[i].launcher; w && *w; w++) free(*w);
        free(l->at[i].launcher);
    }
    free(l->at);
    *l = (sweep_lanes){.ranks = l->ranks};
}

/* ---- the launcher of the sweep itself ---- */

/* Does a launcher set this variable for its processes alone? What the user sets stays. */
static bool of_launcher(const char *name)
{
    static const char *const prefix[] = {"OMPI_COMM_",
                                         "OMPI_UNIVERSE",
                                         "OMPI_FILE_",
                                         "OMPI_APP_",
                                         "OMPI_ARGV",
                                         "OMPI_COMMAND",
                                         "OMPI_FIRST_",
                                         "OMPI_NUM_",
                                         "OMPI_REACHABLE",
                                         "OMPI_MCA_ess",
                                         "OMPI_MCA_orte_",
                                         "OMPI_MCA_pmix",
                                         "OMPI_MCA_initial_wdir",
                                         "OMPI_MCA_hwloc",
                                         "PMIX_",
                                         "PMI_",
                                         "PRTE_",
                                         NULL};
    for (int i = 0; prefix[i]; i++)
        if (!strncmp(name, prefix[i], strlen(prefix[i]))) return true;
    return false;
}

rd_code sweep_lanes_leave_job(int *ranks, rd_status *st)
{
    const int size = lanes_env("OMPI_COMM_WORLD_SIZE");
    cpu_set_t all;
    *ranks = size;
    if (!size && getenv("SLURM_STEP_ID") && lanes_env("SLURM_STEP_NUM_TASKS") > 0 &&
        getenv("SLURM_PROCID") && getenv("PMIX_RANK"))
        return rd_fail(st, RD_EUSAGE,
                       "--sweep starts srun for each run, so srun must not start it: leave srun "
                       "out, inside the allocation");
    if (!size) return RD_OK;
    if (lanes_env("OMPI_COMM_WORLD_LOCAL_SIZE") != size)
        return rd_fail(st, RD_EUSAGE,
                       "--sweep starts mpirun for each run, and cannot learn the hosts of this "
                       "one; leave mpirun out: run_dist --sweep ... --hosts=a:2,b:2 "
                       "--sweep_ranks=%d",
                       size);
    for (int i = 0; environ[i];) {
        char name[128];
        const size_t n = strcspn(environ[i], "=");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, environ[i]);
        if (n < sizeof name && of_launcher(name) && unsetenv(name) == 0) continue;
        i++;
    }
    /* mpirun has bound this process to one core. Its own cores are those of the job. */
    if (sched_getaffinity(getppid(), sizeof all, &all) == 0)
        (void)sched_setaffinity(0, sizeof all, &all);
    return RD_OK;
}
