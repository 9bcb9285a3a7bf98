/* supervise_line.c -- reads a launcher's command line as far as the supervisor needs it: the log
 * folder, the hosts and how they are reached. It also writes the line without some of its hosts.
 *
 * It knows only Open MPI's ways to name hosts: -H a:2,b:2 or --hostfile FILE, with or without -np
 * N. It passes everything else through unchanged, so any launcher can be supervised. */
#include "supervise_impl.h"
#include "rd/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool one_of(const char *s, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        if (strcmp(s, list[i]) == 0) return true;
    return false;
}

static bool is_mpirun(const char *word)
{
    static const char *const names[] = {"mpirun",         "mpiexec",         "orterun", "prterun",
                                        "mpirun.openmpi", "mpiexec.openmpi", NULL};
    return one_of(base_name(word), names);
}

/* Is argv[i] an option of one of these names, with its value behind '=' or in the next argument? */
static bool supervise_line_option(const launch_line *l, int i, const char *const *names, int *at,
                                  size_t *skip)
{
    const char *word = l->argv[i];
    for (int k = 0; names[k]; k++) {
        const size_t n = strlen(names[k]);
        if (strncmp(word, names[k], n) != 0 || (word[n] && word[n] != '=')) continue;
        if (!word[n] && i + 1 >= l->n) return false;
        *at = word[n] ? i : i + 1;
        *skip = word[n] ? n + 1 : 0;
        return true;
    }
    return false;
}

/* Returns the value of run_dist's flag in any spelling: --logdir=D, --logdir D, --logd=D. */
static const char *logdir_of(const launch_line *l, int i)
{
    const char *word = l->argv[i], *eq = strchr(word, '=');
    const size_t n = eq ? (size_t)(eq - word) : strlen(word);
    if (n < 4 || strncmp(word, "--logdir", n) != 0 || n > 8) return NULL;
    if (eq) return eq + 1;
    return i + 1 < l->n ? l->argv[i + 1] : NULL;
}

/* -mca NAME VALUE */
static void read_mca(launch_line *l, int i)
{
    static const char *const agents[] = {"plm_rsh_agent", "plm_ssh_agent", NULL};
    static const char *const args[] = {"plm_rsh_args", "plm_ssh_args", NULL};
    if (i + 2 >= l->n) return;
    if (one_of(l->argv[i + 1], agents)) l->agent = l->argv[i + 2];
    if (one_of(l->argv[i + 1], args)) l->agent_args = l->argv[i + 2];
}

static const char *first_set(const char *const *names)
{
    for (int i = 0; names[i]; i++) {
        const char *v = getenv(names[i]);
        if (v && v[0]) return v;
    }
    return NULL;
}

void launch_read(char *const *argv, int n, launch_line *out)
{
    static const char *const mca[] = {"-mca", "--mca", "-gmca", "--gmca", "--prtemca", NULL};
    static const char *const hosts[] = {"-H", "-host", "--host", NULL};
    static const char *const files[] = {"-hostfile", "--hostfile", "-machinefile", "--machinefile",
                                        NULL};
    static const char *const counts[] = {"-np", "--np", "-n", "--n", NULL};
    static const char *const agent_env[] = {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent",
                                            NULL};
    static const char *const args_env[] = {"OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args", NULL};
    int launcher = -1;
    *out = (launch_line){.argv = argv,
                         .n = n,
                         .hosts_at = -1,
                         .file_at = -1,
                         .np_at = -1,
                         .agent = first_set(agent_env),
                         .agent_args = first_set(args_env)};
    out->own_launcher = n > 0 && (is_mpirun(argv[0]) || strcmp(base_name(argv[0]), "srun") == 0);
    for (int i = 0; i < n; i++) {
        const char *dir = logdir_of(out, i);
        if (dir) out->logdir = dir;
        if (launcher < 0 && is_mpirun(argv[i])) launcher = i;
        if (launcher < 0 || i == launcher) continue;
        if (strcmp(argv[i], ":") == 0) out->several = true;
        if (one_of(argv[i], mca)) {
            read_mca(out, i);
            i += 2;
            continue;
        }
        /* The first of each counts: the program behind it may have options of these names. */
        if (out->hosts_at < 0 &&
            supervise_line_option(out, i, hosts, &out->hosts_at, &out->hosts_skip))
            i = out->hosts_at;
        else if (out->file_at < 0 &&
                 supervise_line_option(out, i, files, &out->file_at, &out->file_skip))
            i = out->file_at;
        else if (out->np_at < 0 &&
                 supervise_line_option(out, i, counts, &out->np_at, &out->np_skip))
            i = out->np_at;
    }
}

void launch_release(launch_line *l)
{
    free(l->host);
    l->host = NULL;
    l->n_hosts = 0;
}

/* ---- hosts ---- */

/* Is this the name or address of this host? Asks no name server, which may be down. */
static bool is_local(const char *name)
{
    struct utsname u;
    struct in_addr four;
    struct in6_addr six;
    struct ifaddrs *all = NULL;
    bool found = false;
    if (strcasecmp(name, "localhost") == 0) return true;
    if (uname(&u) == 0) {
        const size_t own = strcspn(u.nodename, "."), other = strcspn(name, ".");
        const bool whole = strcasecmp(name, u.nodename) == 0,
                   is_short = !u.nodename[own] || !name[other];
        if (whole || (is_short && own == other && strncasecmp(name, u.nodename, own) == 0 &&
                      inet_pton(AF_INET, name, &four) != 1))
            return true;
    }
    const bool is_four = inet_pton(AF_INET, name, &four) == 1,
               is_six = inet_pton(AF_INET6, name, &six) == 1;
    if ((!is_four && !is_six) || getifaddrs(&all) != 0) return false;
    for (const struct ifaddrs *a = all; a && !found; a = a->ifa_next) {
        if (!a->ifa_addr) continue;
        if (is_four && a->ifa_addr->sa_family == AF_INET)
            found = ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr.s_addr ==
                    four.s_addr;
        if (is_six && a->ifa_addr->sa_family == AF_INET6)
            found = memcmp(&((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr,
                           &six, sizeof six) == 0;
    }
    freeifaddrs(all);
    return found;
}

/* counted: naming a host again adds these slots. */
static rd_code supervise_line_add_host(launch_line *l, const char *name, size_t n, int64_t slots,
                                       rd_status *st)
{
    if (n == 0 || n >= sizeof l->host->name)
        return rd_fail(st, RD_EUSAGE, "'%.*s' is not the name of a host", (int)(n > 80 ? 80 : n),
                       name);
    for (int i = 0; i < l->n_hosts; i++)
        if (strncmp(l->host[i].name, name, n) == 0 && !l->host[i].name[n]) {
            l->host[i].slots = l->host[i].slots > 0 && slots > 0 ? l->host[i].slots + slots : 0;
            return RD_OK;
        }
    launch_host *more = realloc(l->host, ((size_t)l->n_hosts + 1) * sizeof *more);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for a list of hosts");
    l->host = more;
    launch_host *h = &l->host[l->n_hosts++];
    *h = (launch_host){.slots = slots};
    memcpy(h->name, name, n);
    h->local = is_local(h->name);
    return RD_OK;
}

/* a:2,b,b */
static rd_code read_list(launch_line *l, const char *list, rd_status *st)
{
    for (const char *p = list; *p;) {
        const size_t n = strcspn(p, ","), name = strcspn(p, ":,");
        int64_t slots = 1;
        if (name < n) {
            char *end;
            slots = strtoll(p + name + 1, &end, 10);
            if (end != p + n || slots <= 0)
                slots = 0; /* "a:*", or a text that mpirun will reject */
        }
        if (n > 0) RD_TRY(supervise_line_add_host(l, p, name, slots, st));
        p += n + (p[n] == ',');
    }
done:
    return st->code;
}

/* Returns the slots of a hostfile's line; 0: it does not say. */
static int64_t slots_of(const char *line, size_t n)
{
    for (size_t i = 0; i + 6 < n; i++)
        if (strncmp(line + i, "slots", 5) == 0 &&
            (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
            const char *p = line + i + 5;
            while (*p == ' ' || *p == '=') p++;
            return strtoll(p, NULL, 10);
        }
    return 0;
}

static rd_code read_hostfile(launch_line *l, const char *path, rd_status *st)
{
    char *text = NULL;
    size_t size = 0;
    RD_TRY(rd_file_read(path, RD_EUSAGE, &text, &size, st));
    for (const char *p = text; *p;) {
        const size_t whole = strcspn(p, "\n"), n = strcspn(p, "#\n"), lead = strspn(p, " \t\r");
        if (lead < n)
            RD_TRY(supervise_line_add_host(l, p + lead, strcspn(p + lead, " \t\r\n#:"),
                                           slots_of(p, n), st));
        p += whole + (p[whole] == '\n');
    }
done:
    free(text);
    return st->code;
}

rd_code launch_hosts(launch_line *l, rd_status *st)
{
    launch_release(l);
    if (l->several)
        return rd_fail(st, RD_EUSAGE,
                       "--drop_dead_hosts cannot divide the ranks of several programs, separated "
                       "by ':'; leave it out");
    if (l->hosts_at >= 0)
        RD_TRY(read_list(l, l->argv[l->hosts_at] + l->hosts_skip, st));
    else if (l->file_at >= 0)
        RD_TRY(read_hostfile(l, l->argv[l->file_at] + l->file_skip, st));
    if (l->n_hosts == 0)
        rd_fail(st, RD_EUSAGE,
                "--drop_dead_hosts needs an mpirun that names its hosts with -H or --hostfile; "
                "Slurm leaves out nodes that are down by itself");
done:
    return st->code;
}

bool launch_probe(const launch_line *l, const char *host, rd_strbuf *text, char ***words)
{
    static const char *const own[] = {"-o", "BatchMode=yes",        "-o", "ConnectTimeout=5",
                                      "-o", "ConnectionAttempts=1", NULL};
    const char *agent = l->agent ? l->agent : "ssh", *args = l->agent_args ? l->agent_args : "";
    const size_t first = strcspn(agent, " ");
    int n = 1;
    *words = NULL;
    rd_strbuf_reset(text);
    rd_strbuf_add(text, agent, strcspn(agent, ":"));
    if (!memmem(agent, first, "ssh", 3)) return false;
    for (int i = 0; own[i]; i++) /* in front: of two equal options, ssh takes the first */
        rd_strbuf_printf(text, " %s", own[i]);
    rd_strbuf_printf(text, " %s %s true", args, host);
    if (text->failed) return false;
    for (const char *p = text->s; *p; p++) n += *p == ' ';
    *words = calloc((size_t)n + 1, sizeof **words);
    if (!*words) return false;
    n = 0;
    char *rest = NULL;
    for (char *w = strtok_r(text->s, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        (*words)[n++] = w;
    return true;
}

/* ---- the line without its dead hosts ---- */

int64_t launch_fit(const launch_line *l, int64_t np)
{
    int64_t slots = 0, alive = 0;
    bool known = true;
    for (int i = 0; i < l->n_hosts; i++) {
        if (l->host[i].dead) continue;
        alive++;
        known &= l->host[i].slots > 0;
        slots += l->host[i].slots;
    }
    if (alive == l->n_hosts || np <= 0) return np;
    if (!known) slots = np * alive / l->n_hosts; /* as if all hosts were alike */
    return slots < 1 ? 1 : slots < np ? slots : np;
}

/* Is the host name[n] dead? */
static bool is_dead(const launch_line *l, const char *name, size_t n)
{
    for (int i = 0; i < l->n_hosts; i++)
        if (strncmp(l->host[i].name, name, n) == 0 && !l->host[i].name[n]) return l->host[i].dead;
    return false;
}

static void list_without(const launch_line *l, rd_strbuf *out)
{
    const char *word = l->argv[l->hosts_at];
    bool first = true;
    rd_strbuf_add(out, word, l->hosts_skip);
    for (const char *p = word + l->hosts_skip; *p;) {
        const size_t n = strcspn(p, ","), name = strcspn(p, ":,");
        if (n > 0 && !is_dead(l, p, name)) {
            if (!first) rd_strbuf_puts(out, ",");
            rd_strbuf_add(out, p, n);
            first = false;
        }
        p += n + (p[n] == ',');
    }
}

/* Writes a hostfile without the lines of dead hosts. */
static rd_code file_without(const launch_line *l, char path[4096], rd_status *st)
{
    const char *folder = getenv("TMPDIR");
    char *text = NULL;
    size_t size = 0;
    rd_strbuf left = {0};
    int fd = -1;
    RD_TRY(rd_file_read(l->argv[l->file_at] + l->file_skip, RD_EUSAGE, &text, &size, st));
    for (const char *p = text; *p;) {
        const size_t whole = strcspn(p, "\n"), lead = strspn(p, " \t\r");
        if (!is_dead(l, p + lead, strcspn(p + lead, " \t\r\n#:")))
            rd_strbuf_add(&left, p, whole + (p[whole] == '\n'));
        p += whole + (p[whole] == '\n');
    }
    snprintf(path, 4096, "%.3900s/run_dist_hosts.XXXXXX", folder && folder[0] ? folder : "/tmp");
    fd = mkstemp(path);
    if (fd < 0 || left.failed || write(fd, rd_strbuf_str(&left), left.n) != (ssize_t)left.n) {
        rd_fail(st, RD_EENV, "cannot write a hostfile '%s': %s; set TMPDIR to another folder", path,
                strerror(errno));
        if (fd < 0) path[0] = '\0';
    }
done:
    if (fd >= 0) (void)close(fd);
    rd_strbuf_release(&left);
    free(text);
    return st->code;
}

rd_code launch_without_dead(const launch_line *l, launch_words *out, rd_status *st)
{
    rd_strbuf hosts = {0}, np = {0};
    *out = (launch_words){.argv = calloc((size_t)l->n + 1, sizeof *out->argv)};
    if (!out->argv) rd_fail(st, RD_EENV, "out of memory for a command line");
    RD_TRY(st->code);
    memcpy(out->argv, l->argv, (size_t)l->n * sizeof *out->argv);
    for (int i = 0; i < l->n_hosts; i++) out->n_dead += l->host[i].dead;
    if (l->np_at >= 0) out->n_ranks = strtoll(l->argv[l->np_at] + l->np_skip, NULL, 10);
    if (out->n_dead == 0) goto done;
    if (l->hosts_at >= 0) {
        list_without(l, &hosts);
    } else {
        RD_TRY(file_without(l, out->file, st));
        rd_strbuf_add(&hosts, l->argv[l->file_at], l->file_skip);
        rd_strbuf_puts(&hosts, out->file);
    }
    out->n_ranks = launch_fit(l, out->n_ranks);
    if (l->np_at >= 0) {
        rd_strbuf_add(&np, l->argv[l->np_at], l->np_skip);
        rd_strbuf_printf(&np, "%" PRId64, out->n_ranks);
        out->argv[l->np_at] = out->np = strdup(rd_strbuf_str(&np));
    }
    out->argv[l->hosts_at >= 0 ? l->hosts_at : l->file_at] = out->hosts =
        strdup(rd_strbuf_str(&hosts));
    if (hosts.failed || np.failed || !out->hosts || (l->np_at >= 0 && !out->np))
        rd_fail(st, RD_EENV, "out of memory for a command line");
done:
    rd_strbuf_release(&hosts);
    rd_strbuf_release(&np);
    return st->code;
}

void launch_words_release(launch_words *w)
{
    if (w->file[0]) (void)unlink(w->file);
    free(w->argv);
    free(w->hosts);
    free(w->np);
    *w = (launch_words){0};
}
