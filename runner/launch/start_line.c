/* start_line.c -- the line that starts the ranks.
 *
 * The names of Open MPI's settings changed from 4.1 to 5.0: 5.0 starts its daemons with PRRTE,
 * whose settings are --prtemca, and plm_rsh_* became plm_ssh_*. A setting that the user gives in
 * --mpirun_args is never repeated: two values of one setting are an error to mpirun.
 *
 * There is no kill delay in the line. The launcher asks for a stop by USR2, to which mpirun sets no
 * limit. A delay would also hold up the end of a run if a rank has failed. */
#include "launch_impl.h"

#include "rd/hostname.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* ---- words ---- */

static void words_add(start_words *w, const char *fmt, ...) RD_PRINTF(2, 3);
static void words_add(start_words *w, const char *fmt, ...)
{
    va_list ap;
    if (w->failed) return;
    if (w->n + 2 > w->cap) {
        char **more = realloc(w->at, (size_t)(w->cap + 64) * sizeof *more);
        if (!more) {
            w->failed = true;
            return;
        }
        w->at = more;
        w->cap += 64;
    }
    va_start(ap, fmt);
    if (vasprintf(&w->at[w->n], fmt, ap) < 0) {
        w->at[w->n] = NULL;
        w->failed = true;
    } else {
        w->at[++w->n] = NULL;
    }
    va_end(ap);
}

void start_words_free(start_words *w)
{
    doc_words_free(w->at, w->n);
    *w = (start_words){0};
}

/* What the user's own words say already. */
typedef struct own_words {
    char **at; /* [n]; owned */
    int n;
} own_words;

static bool own_has(const own_words *own, const char *name)
{
    for (int i = 0; i < own->n; i++)
        if (strcmp(own->at[i], name) == 0) return true;
    return false;
}

/* Is one of these options among the words, with one dash or two? names: separated by blanks. */
static bool own_option(const own_words *own, const char *names)
{
    for (int i = 0; i < own->n; i++) {
        const char *w = own->at[i];
        if (*w != '-') continue;
        w += w[1] == '-' ? 2 : 1;
        const size_t k = strcspn(w, "=");
        for (const char *s = names; *s; s += strspn(s, " ")) {
            const size_t m = strcspn(s, " ");
            if (m == k && strncmp(s, w, m) == 0) return true;
            s += m;
        }
    }
    return false;
}

static void words_setting(start_words *w, const own_words *own, const char *how, const char *name,
                          const char *value)
{
    if (own_has(own, name)) return;
    words_add(w, "%s", how);
    words_add(w, "%s", name);
    words_add(w, "%s", value);
}

/* ---- mpirun ---- */

/* The variables of this program and its libraries, which mpirun does not give to ranks on other
 * hosts by itself. */
static void words_variables(start_words *w, const own_words *own)
{
    static const char *const known[] = {"LD_LIBRARY_PATH", "OMP_NUM_THREADS", "COLUMNS"};
    static const char *const begins[] = {"RD_", "NCCL_"};
    for (char **e = environ; e && *e; e++) {
        const size_t n = strcspn(*e, "=");
        bool take = false;
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
            take |= strncmp(*e, begins[i], strlen(begins[i])) == 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            take |= strlen(known[i]) == n && strncmp(*e, known[i], n) == 0;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(n < 255 ? n : 255), *e);
        if (!take || n > 255 || own_has(own, name)) continue;
        words_add(w, "-x");
        words_add(w, "%s", name);
    }
}

/* The words for ssh: port and user. */
static void words_ssh(start_words *w, const own_words *own, const start_facts *f, const rd_cli *cli)
{
    const bool five = f->major >= 5;
    const doc_host *first = &f->hosts->at[0];
    const int port = first->port ? first->port : (int)cli->ssh_port;
    char args[128] = "";
    int n = 0;
    if (own_has(own, "plm_rsh_args") || own_has(own, "plm_ssh_args")) return;
    if (port) n = snprintf(args, sizeof args, "-p %d", port);
    if (first->user[0])
        snprintf(args + n, sizeof args - (size_t)n, "%s-l %s", n ? " " : "", first->user);
    if (args[0])
        words_setting(w, own, five ? "--prtemca" : "--mca", five ? "plm_ssh_args" : "plm_rsh_args",
                      args);
}

static void words_hosts(start_words *w, const own_words *own, const start_facts *f,
                        const rd_cli *cli)
{
    const char *launch = f->major >= 5 ? "--prtemca" : "--mca";
    rd_strbuf list = {0};
    if (!own_option(own, "H host hostfile machinefile default-hostfile")) {
        for (int i = 0; i < f->hosts->n; i++)
            rd_strbuf_printf(&list, "%s%s:%d", i ? "," : "", f->hosts->at[i].name,
                             f->hosts->at[i].slots);
        words_add(w, "--host");
        words_add(w, "%s", rd_strbuf_str(&list));
        w->failed |= list.failed;
        rd_strbuf_release(&list);
    }
    if (f->hosts->n < 2) return;
    words_ssh(w, own, f, cli);
    words_setting(w, own, launch, "oob_tcp_keepalive_time", "5");
    words_setting(w, own, launch, "oob_tcp_keepalive_intvl", "1");
    words_setting(w, own, launch, "oob_tcp_keepalive_probes", "3");
    if (f->network[0] && !own_has(own, "btl_tcp_if_include") &&
        !own_has(own, "btl_tcp_if_exclude")) {
        words_setting(w, own, "--mca", "btl_tcp_if_include", f->network);
        if (!own_has(own, "oob_tcp_if_exclude"))
            words_setting(w, own, launch, f->major >= 5 ? "if_include" : "oob_tcp_if_include",
                          f->network);
    }
    words_variables(w, own);
}

static void words_ports(start_words *w, const own_words *own, const start_facts *f, int64_t first)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%" PRId64 "-%" PRId64, first, first + 49);
    words_setting(w, own, f->major >= 5 ? "--prtemca" : "--mca", "oob_tcp_dynamic_ipv4_ports",
                  text);
    (void)snprintf(text, sizeof text, "%" PRId64, first + 50);
    words_setting(w, own, "--mca", "btl_tcp_port_min_v4", text);
    words_setting(w, own, "--mca", "btl_tcp_port_range_v4", "100");
}

static void line_of_mpirun(start_words *w, const own_words *own, const start_facts *f,
                           const rd_cli *cli)
{
    /* On this host alone mpirun takes a slot for each core. More ranks than that are allowed. */
    const bool over = f->hosts->n == 0 && !f->batch;
    words_add(w, "mpirun");
    if (f->root && !own_option(own, "allow-run-as-root")) words_add(w, "--allow-run-as-root");
    words_add(w, "-np");
    words_add(w, "%" PRId64, f->np);
    if (f->hosts->n > 0) words_hosts(w, own, f, cli);
    if (!own_option(own, "map-by npernode N ppr rankfile rf")) {
        words_add(w, "--map-by");
        words_add(w, "%s", over && f->major >= 5 ? "slot:OVERSUBSCRIBE" : "slot");
    }
    if (over && f->major < 5 && !own_option(own, "oversubscribe nooversubscribe"))
        words_add(w, "--oversubscribe");
    if (!own_option(own, "bind-to bind-to-none bind-to-core")) {
        words_add(w, "--bind-to");
        words_add(w, "none");
    }
    if (f->yield) words_setting(w, own, "--mca", "mpi_yield_when_idle", "1");
    if (cli->ports) words_ports(w, own, f, cli->ports);
    for (int i = 0; i < own->n; i++) words_add(w, "%s", own->at[i]);
}

static void line_of_srun(start_words *w, const start_facts *f)
{
    const char *cpus = getenv("SLURM_CPUS_PER_TASK");
    words_add(w, "srun");
    words_add(w, "--mpi=%s", f->mpi);
    words_add(w, "--ntasks=%" PRId64, f->np);
    if (cpus && *cpus) words_add(w, "--cpus-per-task=%s", cpus);
    /* A rank that stops on request ends with 75, which is no reason to kill the others. */
    words_add(w, "--kill-on-bad-exit=0");
    words_add(w, "--input=%s", f->input ? "0" : "none");
}

rd_code start_line(const start_facts *f, const rd_cli *cli, start_words *out, rd_status *st)
{
    own_words own = {0};
    *out = (start_words){0};
    if (f->way == START_SRUN && cli->mpirun_args)
        rd_fail(
            st, RD_EUSAGE,
            "--mpirun_args is for mpirun, but srun starts the ranks of this Slurm job; leave it "
            "out");
    RD_TRY(st->code);
    RD_TRY(doc_words(cli->mpirun_args ? cli->mpirun_args : "", &own.at, &own.n, st));
    if (f->way == START_SRUN)
        line_of_srun(out, f);
    else
        line_of_mpirun(out, &own, f, cli);
    words_add(out, "%s", f->program);
    for (int i = 0; i < cli->n_pass; i++) words_add(out, "%s", cli->pass[i]);
    if (out->failed) rd_fail(st, RD_EENV, "out of memory for the launcher's line");
done:
    doc_words_free(own.at, own.n);
    return st->code;
}

/* ---- hosts ---- */

/* mpirun gives one user and one port to all its ssh. */
static rd_code same_login(const doc_hosts *h, rd_status *st)
{
    for (int i = 1; i < h->n; i++)
        if (h->at[i].port != h->at[0].port || strcmp(h->at[i].user, h->at[0].user) != 0)
            return rd_fail(st, RD_EUSAGE,
                           "hosts %s and %s have different users or ports, but mpirun has one of "
                           "each for all hosts; put them into ~/.ssh/config (Host, User, Port)",
                           h->at[0].name, h->at[i].name);
    return RD_OK;
}

rd_code start_hosts(const rd_cli *cli, doc_hosts *out, int64_t *np, rd_status *st)
{
    *out = (doc_hosts){0};
    *np = cli->np;
    if (cli->hosts) RD_TRY(doc_hosts_parse(cli->hosts, out, st));
    if (cli->hostfile) RD_TRY(doc_hosts_read(cli->hostfile, out, st));
    if (out->n == 0) goto done;
    RD_TRY(same_login(out, st));
    if (!out->slots_given &&
        *np > out->n) { /* the first hosts get one more, if it does not divide */
        out->slots = 0;
        for (int i = 0; i < out->n; i++) {
            out->at[i].slots = (int)(*np / out->n + (i < *np % out->n));
            out->slots += out->at[i].slots;
        }
    }
    if (*np == 0) *np = out->slots;
    if (*np > out->slots)
        rd_fail(st, RD_EUSAGE,
                "--np=%" PRId64 " asks for more ranks than the %d slot%s of %s%.300s; write more "
                "slots, as %s:%" PRId64 ", or fewer ranks",
                *np, out->slots, out->slots == 1 ? "" : "s",
                cli->hosts ? "--hosts=" : "--hostfile=", cli->hosts ? cli->hosts : cli->hostfile,
                out->at[0].name, (*np + out->n - 1) / out->n);
done:
    return st->code;
}

int start_major(const char *version)
{
    int major = 0, minor = 0;
    if (sscanf(version, "Open MPI %d.%d", &major, &minor) < 1) return 0;
    return major > 4 || (major == 4 && minor >= 1) ? major : 0;
}
