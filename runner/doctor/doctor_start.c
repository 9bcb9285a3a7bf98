/* doctor_start.c -- the cheap checks at the start of every run.
 *
 * Before MPI starts, a rank checks for settings that are known to make MPI hang. While MPI starts,
 * a thread limits the time. */
#include "doctor_impl.h"
#include "rd/clock.h"
#include "rd/printable.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Returns the number in the first of the variables that is set. names ends with NULL. */
static int env_number(const char *const *names, int otherwise)
{
    for (int i = 0; names[i]; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return otherwise;
}

/* Returns the number of ranks that the launcher started, 0: no launcher. */
static int launched_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        NULL};
    return env_number(names, 0);
}

/* Returns the number of ranks on this host, by mpirun's variable. */
static int local_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", NULL};
    return env_number(names, 1);
}

/* Returns this process's rank by the launcher's variables: in the job, or on its host. */
static int launcher_rank(bool of_host)
{
    static const char *const all[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                      "SLURM_PROCID", NULL};
    static const char *const here[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", NULL};
    return env_number(of_host ? here : all, 0);
}

bool rd_doctor_speaks_for_host(void)
{
    return launcher_rank(true) == 0;
}

/* Returns whether the job has several hosts, by the launcher's variables. */
static bool several_hosts(void)
{
    static const char *const nodes[] = {"SLURM_STEP_NUM_NODES", NULL};
    if (getenv("OMPI_COMM_WORLD_LOCAL_SIZE")) return launched_ranks() > local_ranks();
    return env_number(nodes, 1) > 1;
}

/* Adds a warning for each bridge that MPI would use, because no setting excludes it. */
static void warn_of_bridges(const json_t *hosts, rd_strbuf *warnings)
{
    const json_t *h = json_array_get(hosts, 0), *mca = json_object_get(h, "mca");
    char network[32];
    size_t k;
    json_t *net;
    doc_common_network(hosts, network);
    json_array_foreach(json_object_get(h, "nets"), k, net)
    {
        if (!doc_is_bridge(doc_text(net, "name")) || !doc_net_used(mca, net)) continue;
        rd_strbuf_printf(warnings,
                         "%s: MPI will also use %s (%s), a bridge whose address other hosts may "
                         "have too, which makes MPI hang; mpirun --mca btl_tcp_if_include %s "
                         "excludes it\n",
                         doc_text(h, "host"), doc_text(net, "name"), doc_text(net, "addr"),
                         network[0] ? network : "NETWORK/BITS");
    }
}

/* Adds a warning if MPI will end the ranks because of `btl`. MPI decides, since hardware that the
 * doctor does not know may help. */
static void warn_of_btl(const json_t *hosts, rd_strbuf *warnings)
{
    doc_report r = {0};
    rd_status own = {0};
    const json_t *c;
    if (doc_report_init(&r, &own) != RD_OK) return;
    doc_check_btl(&r, hosts);
    c = json_array_get(r.checks, 0);
    if (r.n[DOC_FAIL] > 0)
        rd_strbuf_printf(warnings, "%s; %s\n", doc_text(c, "text"), doc_text(c, "remedy"));
    doc_report_release(&r);
}

rd_code rd_doctor_before_mpi(rd_strbuf *warnings, rd_status *st)
{
    doc_report r = {0};
    size_t i;
    json_t *c;
    if (launched_ranks() < 2) return st->code;
    const bool several = several_hosts();
    char host[128] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    json_t *hosts = json_pack("[{s:s, s:s, s:s, s:i, s:o, s:o, s:b}]", "host", host, "listed", host,
                              "mpi", rd_comm_library_version(), "ranks", local_ranks(), "nets",
                              doc_interfaces(), "mca", doc_mca_new(NULL), "others", several);
    if (doc_report_init(&r, st) != RD_OK || !hosts) goto done;
    if (launcher_rank(false) == 0) warn_of_btl(hosts, warnings);
    if (several) doc_check_interfaces(&r, hosts);
    if (several && launcher_rank(true) == 0) warn_of_bridges(hosts, warnings);
    json_array_foreach(r.checks, i, c)
    {
        if (strcmp(doc_text(c, "level"), "failure") == 0)
            rd_fail(st, RD_EENV, "%.600s; %.300s", doc_text(c, "text"), doc_text(c, "remedy"));
    }
done:
    doc_report_release(&r);
    json_decref(hosts);
    return st->code;
}

/* ---- a time limit while MPI starts ---- */

struct rd_guard {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool end;               /* the thread shall end */
    bool warned;            /* the warning of this phase was printed */
    struct timespec from;   /* start of the phase, CLOCK_MONOTONIC */
    double warn_s, abort_s; /* limits of the phase in seconds */
    const char *phase;      /* text for the message; borrowed */
    char host[64];          /* name of this host */
};

/* Prints the warning, or the error of the last moment, with one write. */
static void print_guard_message(rd_guard *g, const char *phase, double after_s, bool last)
{
    char line[1024];
    const int n = snprintf(line, sizeof line,
                           "%s: [rank %d, %s] %s for %.0f s; a firewall between the hosts, an "
                           "interface that leads nowhere, or two hosts with one name cause that: "
                           "run_dist --mode=doctor --hosts=HOST:SLOTS,... on the launching host "
                           "finds out which\n",
                           last ? "run_dist: error" : "warning", launcher_rank(false), g->host,
                           phase, after_s);
    if (n > 0 &&
        write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
        return;
}

static void *guard_main(void *arg)
{
    rd_guard *g = arg;
    struct timespec until;
    (void)pthread_mutex_lock(&g->lock);
    while (!g->end) {
        const double next = !g->warned ? g->warn_s : g->abort_s;
        /* Without abort_s nothing is left to do in this phase. */
        if (g->warned && g->abort_s <= 0.0) {
            (void)pthread_cond_wait(&g->ended, &g->lock);
            continue;
        }
        until = g->from;
        until.tv_sec += (time_t)next;
        until.tv_nsec += (long)((next - (double)(time_t)next) * 1e9);
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (pthread_cond_timedwait(&g->ended, &g->lock, &until) != ETIMEDOUT || g->end) continue;
        const bool last = g->warned || (g->abort_s > 0.0 && g->abort_s <= g->warn_s);
        if (launcher_rank(false) == 0) print_guard_message(g, g->phase, next, last);
        if (last) {
            /* The first rank that ends makes the launcher end all. Rank 0 prints first. */
            if (launcher_rank(false) != 0) (void)usleep(300000);
            _exit(RD_EENV);
        }
        g->warned = true;
    }
    (void)pthread_mutex_unlock(&g->lock);
    return NULL;
}

static void crash_handler(int number)
{
    static const char text[] =
        "run_dist: error: MPI crashed while it connected the ranks; two hosts with one name or "
        "different builds of MPI cause that: run_dist --mode=doctor --hosts=HOST:SLOTS,... on the "
        "launching host finds out which\n";
    _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? 128 + number : RD_EENV);
}

/* Installs or removes a handler that explains a crash in MPI. An existing handler, such as a
 * sanitizer's, stays. */
static void set_crash_handler(bool on)
{
    struct sigaction old;
    if (sigaction(SIGSEGV, NULL, &old) != 0) return;
    if (on && old.sa_handler == SIG_DFL) (void)signal(SIGSEGV, crash_handler);
    if (!on && old.sa_handler == crash_handler) (void)signal(SIGSEGV, SIG_DFL);
}

rd_guard *rd_guard_new(double warn_s, double abort_s)
{
    if (launched_ranks() < 2) return NULL;
    pthread_condattr_t monotonic;
    rd_guard *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->warn_s = warn_s;
    g->abort_s = abort_s;
    (void)clock_gettime(CLOCK_MONOTONIC, &g->from);
    g->phase = "MPI has been connecting the ranks";
    char host[64] = "";
    (void)gethostname(host, sizeof host - 1);
    (void)rd_printable(host, strlen(host), false, g->host, sizeof g->host);
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&g->ended, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (pthread_create(&g->thread, NULL, guard_main, g) != 0) {
        (void)pthread_cond_destroy(&g->ended);
        (void)pthread_mutex_destroy(&g->lock);
        free(g);
        return NULL;
    }
    set_crash_handler(true);
    return g;
}

void rd_guard_phase(rd_guard *g, const char *what, double warn_s, double abort_s)
{
    if (!g) return;
    (void)pthread_mutex_lock(&g->lock);
    g->phase = what;
    g->warn_s = warn_s;
    g->abort_s = abort_s;
    g->warned = false;
    (void)clock_gettime(CLOCK_MONOTONIC, &g->from);
    (void)pthread_cond_signal(&g->ended);
    (void)pthread_mutex_unlock(&g->lock);
}

void rd_guard_connected(rd_guard *g)
{
    if (!g) return;
    set_crash_handler(false);
    rd_guard_phase(g, "the ranks have been reading the config and opening their devices", 60, 600);
}

void rd_guard_free(rd_guard *g)
{
    if (!g) return;
    (void)pthread_mutex_lock(&g->lock);
    g->end = true;
    (void)pthread_cond_signal(&g->ended);
    (void)pthread_mutex_unlock(&g->lock);
    (void)pthread_join(g->thread, NULL);
    (void)pthread_cond_destroy(&g->ended);
    (void)pthread_mutex_destroy(&g->lock);
    set_crash_handler(false);
    free(g);
}
