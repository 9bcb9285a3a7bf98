/* doctor_ranks.c -- the doctor inside a job that mpirun or srun started, after MPI has started.
 *
 * Rank 0 receives the facts of all ranks and applies the rules. Then all ranks try what a training
 * does: connections from host to host, sums with a known answer, the config, the data, the log
 * folder. A guard limits the time: if a step hangs, the guard names it and ends the job. */
#include "doctor_impl.h"
#include "rd/clock.h"
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct job_exam {
    rd_comm *comm;
    const rd_world *w;
    rd_guard *guard;
    doc_report report;  /* report of rank 0; those of other ranks are discarded */
    json_t *ranks;      /* rows for the table of ranks, on rank 0; owned */
    json_t *hosts;      /* facts of each host, by its first rank; on all ranks; owned */
    doc_server *server; /* server of the first rank of each host, NULL elsewhere; owned */
    bool leader;        /* this is the first rank of its host */
} job_exam;

/* Writes the cores that this rank may use as "0-3,8", and their number. */
static void cores_text(char out[512], int *n)
{
    cpu_set_t set;
    size_t at = 0;
    out[0] = '\0';
    *n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return;
    for (int a = 0; a < CPU_SETSIZE; a++) {
        if (!CPU_ISSET(a, &set)) continue;
        int b = a;
        while (b + 1 < CPU_SETSIZE && CPU_ISSET(b + 1, &set)) b++;
        if (at < 480)
            at += (size_t)snprintf(out + at, 512 - at, b > a ? "%s%d-%d" : "%s%d", at ? "," : "", a,
                                   b);
        *n += b - a + 1;
        a = b;
    }
}

/* Returns the facts of this rank, and of its host if it is the first rank there. */
static json_t *rank_facts(const job_exam *in, const rd_config *config, const char *versions)
{
    char cores[512];
    int n_cores;
    const double threads = config ? json_number_value(rd_config_get(config, "threads")) : 0.0;
    json_t *f = doc_facts(versions, doc_mca_new(NULL), in->leader);
    cores_text(cores, &n_cores);
    json_object_set_new(f, "rank", json_integer(in->w->rank));
    json_object_set_new(f, "local_rank", json_integer(in->w->local_rank));
    json_object_set_new(f, "host_index", json_integer(in->w->host_index));
    json_object_set_new(f, "ranks", json_integer(in->w->local_size));
    json_object_set_new(f, "pid", json_integer(getpid()));
    json_object_set_new(f, "cores", json_string(cores));
    json_object_set_new(f, "threads",
                        json_integer(threads > 0.0 ? (json_int_t)threads : in->w->n_cpus));
    json_object_set_new(f, "device", json_string(doc_text(f, "cpu")));
    if (in->leader && in->server) {
        json_object_set_new(f, "ports", json_pack("[i]", doc_server_port(in->server)));
    }
    return f;
}

/* Returns the facts of a rank that the table and --json show. */
static json_t *rank_row(const json_t *f)
{
    static const char *const keys[] = {"rank",    "host",    "local_rank", "pid",     "cores",
                                       "allowed", "threads", "device",     "program", "host_index"};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        json_object_set(o, keys[i], json_object_get(f, keys[i]));
    return o;
}

/* Gives rank 0 the facts of all ranks, and all ranks the facts of the hosts. Collective. */
static rd_code share_facts(job_exam *in, const rd_config *config, const char *versions,
                           rd_status *st)
{
    char token[33], *all = NULL, *text = NULL, *hosts = NULL;
    int64_t *lens = NULL, bytes = 0;
    doc_token(token);
    if (in->leader && in->w->n_hosts > 1) (void)doc_server_new(token, NULL, 0, &in->server, st);
    RD_TRY(rd_comm_agree(in->comm, st));
    json_t *mine = rank_facts(in, config, versions);
    json_object_set_new(mine, "token", json_string(token));
    /* All ranks read their clock at the same moment. */
    RD_TRY(rd_comm_barrier(in->comm, st));
    json_object_set_new(mine, "wall_s", json_real(rd_wall_s()));
    text = mine ? json_dumps(mine, JSON_COMPACT) : NULL;
    json_decref(mine);
    if (!text) rd_fail(st, RD_EENV, "out of memory for the facts of a rank");
    RD_TRY(rd_comm_agree(in->comm, st));
    RD_TRY(rd_comm_gather(in->comm, text, (int64_t)strlen(text), &all, &lens, st));
    in->hosts = json_array();
    in->ranks = json_array();
    if (in->w->rank == 0) {
        double first = 0.0;
        const char *at = all;
        for (int r = 0; r < in->w->size; at += lens[r++]) {
            json_t *f = json_loadb(at, (size_t)lens[r], 0, NULL);
            json_array_append_new(in->ranks, rank_row(f));
            if (r == 0) first = doc_number(f, "wall_s");
            json_object_set_new(f, "clock_ahead_s", json_real(doc_number(f, "wall_s") - first));
            json_object_set_new(f, "clock_error_s", json_real(0.5));
            if (doc_number(f, "local_rank") == 0.0) json_array_append(in->hosts, f);
            json_decref(f);
        }
        hosts = json_dumps(in->hosts, JSON_COMPACT);
        bytes = hosts ? (int64_t)strlen(hosts) : 0;
    }
    RD_TRY(rd_comm_bcast(in->comm, &bytes, sizeof bytes, 0, st));
    if (in->w->rank != 0) hosts = malloc((size_t)bytes + 1);
    if (!hosts) rd_fail(st, RD_EENV, "out of memory for the facts of %d hosts", in->w->n_hosts);
    RD_TRY(rd_comm_agree(in->comm, st));
    RD_TRY(rd_comm_bcast(in->comm, hosts, bytes, 0, st));
    if (in->w->rank != 0) {
        json_decref(in->hosts);
        in->hosts = json_loadb(hosts, (size_t)bytes, 0, NULL);
    }
done:
    free(all);
    free(lens);
    free(text);
    free(hosts);
    return st->code;
}

/* Gathers one JSON value from each host's first rank into an array on rank 0, in the order of
 * hosts. mine_stolen: this rank's value; the function takes ownership; NULL: none. Collective. */
static rd_code gather_json(job_exam *in, json_t *mine_stolen, json_t **out, rd_status *st)
{
    char *all = NULL, *text = mine_stolen ? json_dumps(mine_stolen, JSON_COMPACT) : NULL;
    int64_t *lens = NULL;
    json_decref(mine_stolen);
    *out = NULL;
    RD_TRY(rd_comm_gather(in->comm, text ? text : "", text ? (int64_t)strlen(text) : 0, &all, &lens,
                          st));
    if (in->w->rank == 0) {
        *out = json_array();
        const char *at = all;
        for (int r = 0; r < in->w->size; at += lens[r++])
            if (lens[r] > 0) json_array_append_new(*out, json_loadb(at, (size_t)lens[r], 0, NULL));
    }
done:
    free(all);
    free(lens);
    free(text);
    return st->code;
}

/* Sleeps. A rank that waited in MPI instead would take a core from a rank that measures. */
static void pause_s(double seconds)
{
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&pause, NULL);
}

/* Finds an address of host `to` that this host reaches. Prefers one that MPI would use. */
static bool find_reached(const json_t *calls, size_t to, uint32_t *addr, int *port)
{
    size_t k;
    json_t *t;
    bool found = false;
    json_array_foreach(calls, k, t)
    {
        if ((size_t)doc_number(t, "to") != to || (doc_way)doc_number(t, "way") != DOC_WAY_OPEN)
            continue;
        if (found && !json_is_true(json_object_get(t, "used"))) continue;
        found = doc_parse_ipv4(doc_text(t, "addr"), addr);
        *port = (int)doc_number(t, "port");
    }
    return found;
}

/* Tries connections between all hosts and measures links. In round k each host sends to the k-th
 * host after it, so a full-duplex link is used once in each direction. Collective. */
static rd_code measure_links(job_exam *in, rd_status *st)
{
    static const double stream_s = 0.15;
    const size_t n = json_array_size(in->hosts), rounds = n - 1 < 8 ? n - 1 : 8;
    const size_t me = (size_t)in->w->host_index;
    json_t *targets = in->leader ? doc_targets(in->hosts, me) : NULL, *calls = NULL,
           *results = NULL, *rates = NULL;
    double *gbit = calloc(n * n, sizeof *gbit);
    if (!gbit) rd_fail(st, RD_EENV, "out of memory for %zu links", n * n);
    RD_TRY(rd_comm_agree(in->comm, st));
    rd_guard_phase(in->guard, "the doctor has been waiting for connections between hosts", 12, 20);
    if (in->leader) calls = doc_calls_json(targets, 3.0);
    RD_TRY(gather_json(in, in->leader ? json_incref(calls) : NULL, &results, st));
    if (in->w->rank == 0) doc_check_ways(&in->report, in->hosts, results);
    for (size_t k = 1; k <= rounds; k++) {
        uint32_t addr;
        int port;
        const size_t to = (me + k) % n;
        if (!in->leader)
            pause_s(stream_s + 0.1);
        else if (find_reached(calls, to, &addr, &port))
            gbit[me * n + to] = doc_stream_gbit_per_s(addr, port, stream_s);
        RD_TRY(rd_comm_barrier(in->comm, st));
    }
    if (in->leader) {
        rates = json_array();
        for (size_t k = 0; k < n; k++) json_array_append_new(rates, json_real(gbit[me * n + k]));
    }
    json_decref(results);
    results = NULL;
    RD_TRY(gather_json(in, rates, &results, st));
    for (size_t i = 0; i < n && in->w->rank == 0; i++)
        for (size_t k = 0; k < n; k++)
            gbit[i * n + k] = json_number_value(json_array_get(json_array_get(results, i), k));
    if (in->w->rank == 0) doc_check_links(&in->report, in->hosts, gbit);
done:
    free(gbit);
    json_decref(targets);
    json_decref(calls);
    json_decref(results);
    return st->code;
}

/* ---- sums with a known answer ---- */

/* Returns element i of a rank's array. The numbers are small integers: their sums are exact in any
 * order. */
static float sum_term(int rank, int64_t i)
{
    return (float)((i % 251 + 1) * (rank % 16 + 1));
}

/* Returns element i of the sum over all ranks. */
static float expected_sum(int size, int64_t i)
{
    int64_t sum = 0;
    for (int r = 0; r < size; r++) sum += r % 16 + 1;
    return (float)((i % 251 + 1) * sum);
}

/* Times a sum of n elements. *seconds: the slowest rank's time, the best of some tries. *wrong: an
 * element whose sum is wrong on some rank, -1: none. Collective. */
static rd_code time_sum(job_exam *in, float *x, int64_t n, int times, double *seconds,
                        int64_t *wrong, rd_status *st)
{
    double best = INFINITY, bad = -1.0;
    for (int t = 0; t < times; t++) {
        for (int64_t i = 0; i < n; i++) x[i] = sum_term(in->w->rank, i);
        RD_TRY(rd_comm_barrier(in->comm, st));
        const int64_t from = rd_now_ns();
        RD_TRY(rd_comm_sum_f32(in->comm, x, n, st));
        double took = (double)(rd_now_ns() - from) * 1e-9;
        for (int64_t i = n - 1; i >= 0; i--)
            if (x[i] != expected_sum(in->w->size, i)) bad = (double)i;
        RD_TRY(rd_comm_max_f64(in->comm, &took, 1, st));
        if (took < best) best = took;
    }
    RD_TRY(rd_comm_max_f64(in->comm, &bad, 1, st));
    *seconds = best;
    *wrong = (int64_t)bad;
done:
    return st->code;
}

static rd_code measure_sums(job_exam *in, rd_status *st)
{
    const int64_t small = 1 << 18; /* 1 MiB */
    int64_t n = 1 << 24, wrong[2] = {-1, -1};
    double s[2] = {0}, one = 1.0, latency;
    const int np = in->w->size;
    /* Bus bandwidth, as in nccl-tests: an all-reduce moves 2 (np - 1) / np of its size over each
     * link. */
    const double factor = 2.0 * (np - 1) / np;
    float *x = NULL;
    if (np == 1) {
        doc_add(&in->report, DOC_OK, "allreduce", NULL, "one rank, nothing to sum");
        return st->code;
    }
    rd_guard_phase(in->guard, "the doctor has been waiting for sums over all ranks", 12, 20);
    if (sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) / in->w->local_size < ((int64_t)1 << 28))
        n = small;
    /* The smallest n of all ranks. */
    double most = -(double)n;
    RD_TRY(rd_comm_max_f64(in->comm, &most, 1, st));
    n = (int64_t)-most;
    x = malloc((size_t)n * sizeof *x);
    if (!x) rd_fail(st, RD_EENV, "out of memory for a sum of %" PRId64 " MiB", n >> 18);
    RD_TRY(rd_comm_agree(in->comm, st));
    for (int i = 0; i < 5; i++) RD_TRY(rd_comm_sum_f64(in->comm, &one, 1, st));
    const int64_t from = rd_now_ns();
    for (int i = 0; i < 20; i++) {
        one = 1.0;
        RD_TRY(rd_comm_sum_f64(in->comm, &one, 1, st));
    }
    latency = (double)(rd_now_ns() - from) / 20e3;
    RD_TRY(rd_comm_max_f64(in->comm, &latency, 1, st));
    RD_TRY(time_sum(in, x, small, 3, &s[0], &wrong[0], st));
    /* All ranks have the same s[0], so they choose the same n. */
    while (n > small && s[0] * (double)(n / small) > 1.5) n /= 2;
    RD_TRY(time_sum(in, x, n, 1, &s[1], &wrong[1], st));
    if (in->w->rank != 0) goto done;
    if (wrong[0] >= 0 || wrong[1] >= 0)
        doc_add(&in->report, DOC_FAIL, "allreduce",
                "look for faulty memory or network hardware, and for two builds of MPI",
                "a sum over the ranks is wrong at element %" PRId64 " of %" PRId64,
                wrong[0] >= 0 ? wrong[0] : wrong[1], wrong[0] >= 0 ? small : n);
    else
        doc_add(&in->report, DOC_OK, "allreduce", NULL,
                "8 bytes in %.0f us; 1 MiB in %.2f ms, %.3f GB/s bus bandwidth; %" PRId64
                " MiB in %.1f ms, %.3f GB/s",
                latency, s[0] * 1e3, (double)small * 4e-9 / s[0] * factor, n >> 18, s[1] * 1e3,
                (double)n * 4e-9 / s[1] * factor);
done:
    free(x);
    return st->code;
}

/* ---- the whole examination ---- */

/* Applies the rules to the facts, on rank 0. */
static void apply_rules(job_exam *in)
{
    doc_report *r = &in->report;
    size_t i;
    json_t *p;
    int last = 0;
    bool together = true;
    doc_check_program(r, in->hosts);
    json_array_foreach(in->ranks, i, p)
    {
        const int host = (int)doc_number(p, "host_index");
        together = together && host >= last;
        last = host;
        if (strcmp(doc_text(p, "program"), doc_text(json_array_get(in->ranks, 0), "program")) ==
                0 ||
            r->differ)
            continue;
        r->differ = true;
        doc_add(r, DOC_FAIL, "program", "install the same build on all hosts, at the same path",
                "the program file differs: rank %zu (%s) has '%s', rank 0 (%s) has '%s'", i,
                doc_text(p, "host"), doc_text(p, "program"),
                doc_text(json_array_get(in->ranks, 0), "host"),
                doc_text(json_array_get(in->ranks, 0), "program"));
    }
    doc_check_names(r, in->hosts);
    doc_add(r, together ? DOC_OK : DOC_WARN, "world", together ? NULL : "mpirun --map-by slot",
            "%d rank%s on %d host%s, as the launcher reported%s", in->w->size,
            in->w->size == 1 ? "" : "s", in->w->n_hosts, in->w->n_hosts == 1 ? "" : "s",
            together
                ? ""
                : "; ranks of a host are not neighbours, and sums take more steps between hosts");
    if (in->w->n_hosts > 1) {
        doc_check_interfaces(r, in->hosts);
        doc_check_addresses(r, in->hosts);
    }
    doc_check_space(r, in->hosts);
    doc_check_copy(r, in->hosts);
    doc_check_gpus(r, in->hosts);
    doc_check_cpus(r, in->hosts, in->ranks);
    if (in->w->n_hosts > 1) doc_check_clocks(r, in->hosts);
}

static rd_code examine_job(job_exam *in, const rd_cli *cli, rd_config *config,
                           const rd_status *unread, const rd_option_group *const *groups,
                           int n_groups, const char *versions, rd_status *st)
{
    const int64_t keep = config ? json_integer_value(rd_config_get(config, "checkpoint_keep")) : 5;
    rd_guard_phase(in->guard, "the doctor has been waiting for the facts of all ranks", 12, 20);
    RD_TRY(share_facts(in, config, versions, st));
    if (in->w->rank == 0) apply_rules(in);
    if (in->w->n_hosts > 1) RD_TRY(measure_links(in, st));
    RD_TRY(measure_sums(in, st));
    rd_guard_phase(in->guard, "the doctor has been reading config and data", 60, 600);
    if (unread->code != RD_OK)
        doc_add(&in->report, DOC_FAIL, "config",
                "correct the config; run_dist --print_config shows it with all its keys", "%s",
                unread->msg);
    if (config) doc_check_device(&in->report, in->comm, config);
    if (config) doc_check_config(&in->report, in->comm, config, groups, n_groups);
    if (cli->logdir && cli->logdir[0]) doc_check_logdir(&in->report, in->comm, cli->logdir, keep);
done:
    return st->code;
}

rd_code rd_doctor_ranks(rd_comm *comm, rd_guard *guard, const rd_cli *cli, rd_config *config,
                        const rd_status *unread, const rd_option_group *const *groups, int n_groups,
                        const char *versions, rd_status *st)
{
    const rd_world *w = rd_comm_world(comm);
    job_exam in = {.comm = comm, .w = w, .guard = guard, .leader = w->local_rank == 0};
    if (doc_report_init(&in.report, st) != RD_OK) goto done;
    (void)examine_job(&in, cli, config, unread, groups, n_groups, versions, st);
    if (w->rank == 0 && st->code == RD_OK) {
        if (cli->json) {
            (void)doc_print_json(&in.report, NULL, in.ranks, stdout, st);
        } else {
            doc_print_ranks(in.ranks, stdout);
            (void)puts("");
            doc_print_checks(&in.report, stdout);
            doc_print_verdict(&in.report, stdout);
        }
        (void)fflush(stdout);
        (void)doc_result(&in.report, st);
    }
    (void)rd_comm_agree(comm, st);
done:
    doc_server_free(in.server);
    json_decref(in.ranks);
    json_decref(in.hosts);
    doc_report_release(&in.report);
    return st->code;
}
