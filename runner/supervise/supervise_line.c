/* supervise_line.c -- reads a launcher's command line as far as the supervisor needs it: the log
 * folder, the hosts and how they are reached. It also writes the line without some of its hosts.
 *
 * It knows only Open MPI's ways to name hosts: -H a:2,b:2 or --hostfile FILE, with or without -np
 * N. It passes everything else through unchanged, so any launcher can be supervised. */
#include "supervise_impl.h"
#include "rd/file.h"
#include "rd/hostname.h"

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
    /* "-n" may be another option of the program. mpirun itself refuses a number that is wrong. */
    if (out->np_at >= 0) {
        const char *np = argv[out->np_at] + out->np_skip;
        if (rd_host_count(np, strlen(np), RD_MOST_RANKS) == 0) out->np_at = -1;
    }
}

void launch_release(launch_line *l)
{
    free(l->host);
    l->host = NULL;
    l->n_hosts = 0;
    l->n_slots = 0;
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

/* Writes where ssh finds the host of an entry: "user@name" or "name". */
static void destination(const rd_host_entry *e, launch_host *h)
{
    (void)snprintf(h->name, sizeof h->name, "%.*s%s%.*s", (int)e->n_user, e->user ? e->user : "",
                   e->user ? "@" : "", (int)e->n_name, e->name);
}

/* Naming a host again adds its slots. slots 0: the line does not say. */
static rd_code supervise_line_add_host(launch_line *l, const rd_host_entry *e, int64_t slots,
                                       const char *where, rd_status *st)
{
    launch_host new = {.slots = slots};
    char name[RD_HOST_BYTES];
    destination(e, &new);
    if (slots > RD_MOST_RANKS - l->n_slots)
        return rd_fail(st, RD_EUSAGE, "%s: the hosts have more than %d slots; name fewer", where,
                       RD_MOST_RANKS);
    l->n_slots += slots;
    for (int i = 0; i < l->n_hosts; i++)
        if (strcmp(l->host[i].name, new.name) == 0) {
            l->host[i].slots = l->host[i].slots > 0 && slots > 0 ? l->host[i].slots + slots : 0;
            return RD_OK;
        }
    launch_host *more = realloc(l->host, ((size_t)l->n_hosts + 1) * sizeof *more);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for a list of hosts");
    (void)snprintf(name, sizeof name, "%.*s", (int)e->n_name, e->name);
    new.local = is_local(name);
    l->host = more;
    l->host[l->n_hosts++] = new;
    return RD_OK;
}

/* Reads a count of slots, 1 .. RD_MOST_RANKS. *slots 0: the launcher shall find out ("*", "auto",
 * "-1" of Open MPI 5). */
static rd_code read_slots(const char *s, size_t n, const char *where, int64_t *slots, rd_status *st)
{
    static const char *const any[] = {"*", "auto", "-1", NULL};
    *slots = 0;
    for (int i = 0; any[i]; i++)
        if (strlen(any[i]) == n && strncmp(s, any[i], n) == 0) return RD_OK;
    *slots = rd_host_count(s, n, RD_MOST_RANKS);
    if (*slots == 0)
        rd_fail(st, RD_EUSAGE, "%s: '%.*s' is not a number of slots, 1 .. %d", where,
                (int)(n < 80 ? n : 80), s, RD_MOST_RANKS);
    return st->code;
}

/* a:2,b,b */
static rd_code read_list(launch_line *l, const char *list, rd_status *st)
{
    static const char where[] = "mpirun's list of hosts";
    for (const char *p = list; *p;) {
        const size_t n = strcspn(p, ",");
        rd_host_entry e;
        int64_t slots = 1;
        if (n > 0) {
            RD_TRY(rd_host_entry_read(p, n, where, &e, st));
            if (e.slots) RD_TRY(read_slots(e.slots, e.n_slots, where, &slots, st));
            RD_TRY(supervise_line_add_host(l, &e, slots, where, st));
        }
        p += n + (p[n] == ',');
    }
done:
    return st->code;
}

/* Returns the length of the next word of a hostfile's line; '=' ends a word, too. */
static size_t hostfile_word(const char **p, const char *end)
{
    static const char blank[] = " \t\r";
    while (*p < end && strchr(blank, **p)) ++*p;
    size_t n = 0;
    while (*p + n < end && !strchr(blank, (*p)[n]) && (*p)[n] != '=') n++;
    return n;
}

/* Reads the words behind the name: slots=2, slots = 2, max_slots=4, and others, which are left to
 * the launcher. *slots 0: the line does not say. */
static rd_code read_words(const char *p, const char *end, const char *where, int64_t *slots,
                          rd_status *st)
{
    static const char *const counts[] = {"slots", "max_slots", "max-slots", NULL};
    int64_t most = 0;
    *slots = 0;
    for (size_t n; (n = hostfile_word(&p, end)) > 0 || p < end;) {
        char key[16] = "";
        if (n < sizeof key) memcpy(key, p, n);
        p += n;
        const char *value = p;
        size_t n_value = hostfile_word(&value, end);
        const bool count = one_of(key, counts), assigned = value < end && *value == '=';
        if (assigned) {
            value++;
            n_value = hostfile_word(&value, end);
        }
        if (count) RD_TRY(read_slots(value, n_value, where, key[0] == 's' ? slots : &most, st));
        if (count || assigned) p = value + n_value;
        if (p < end && *p == '=') p++; /* a value that contains '=' */
    }
    if (most > 0 && *slots > most)
        rd_fail(st, RD_EUSAGE, "%s: %" PRId64 " slots are more than max_slots=%" PRId64, where,
                *slots, most);
done:
    return st->code;
}

/* Finds the entry of a hostfile's line, which ends before p[n]. Returns the length of the entry;
 * 0: the line is blank. */
static size_t hostfile_entry(const char **p, size_t n)
{
    const char *end = *p + n;
    while (*p < end && strchr(" \t\r", **p)) ++*p;
    size_t k = 0;
    while (*p + k < end && !strchr(" \t\r", (*p)[k])) k++;
    return k;
}

static rd_code read_hostfile(launch_line *l, const char *path, rd_status *st)
{
    char *text = NULL, where[200];
    size_t size = 0;
    int number = 0;
    RD_TRY(rd_file_read(path, RD_EUSAGE, &text, &size, st));
    for (const char *p = text; *p;) {
        const size_t whole = strcspn(p, "\n"), n = strcspn(p, "#\n");
        const char *entry = p, *end = p + n;
        const size_t k = hostfile_entry(&entry, n);
        (void)snprintf(where, sizeof where, "%.150s:%d", path, ++number);
        if (k > 0) {
            rd_host_entry e;
            int64_t slots = 0;
            RD_TRY(rd_host_entry_read(entry, k, where, &e, st));
            RD_TRY(read_words(entry + k, end, where, &slots, st));
            if (e.slots) RD_TRY(read_slots(e.slots, e.n_slots, where, &slots, st));
            RD_TRY(supervise_line_add_host(l, &e, slots, where, st));
        }
        p += whole + (p[whole] == '\n');
    }
    if (strlen(text) != size)
        rd_fail(st, RD_EUSAGE, "%s: line %d has a NUL byte; it is not a hostfile", path, number);
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
    rd_host_entry e;
    rd_status unfit = {0};
    int n = 1;
    *words = NULL;
    rd_strbuf_reset(text);
    rd_strbuf_add(text, agent, strcspn(agent, ":"));
    if (!memmem(agent, first, "ssh", 3)) return false;
    if (rd_host_entry_read(host, strlen(host), "", &e, &unfit) != RD_OK) return false;
    for (int i = 0; own[i]; i++) /* in front: of two equal options, ssh takes the first */
        rd_strbuf_printf(text, " %s", own[i]);
    rd_strbuf_printf(text, " %s -- %s true", args, host); /* behind "--" nothing is an option */
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
        if (__builtin_add_overflow(slots, l->host[i].slots, &slots)) slots = INT64_MAX;
    }
    if (alive == l->n_hosts || np <= 0) return np;
    if (!known) /* as if all hosts were alike: np * alive / n_hosts, which could overflow */
        slots = np / l->n_hosts * alive + np % l->n_hosts * alive / l->n_hosts;
    return slots < 1 ? 1 : slots < np ? slots : np;
}

/* Is the host of this entry dead? */
static bool is_dead(const launch_line *l, const char *entry, size_t n)
{
    rd_status own = {0};
    rd_host_entry e;
    launch_host h;
    if (n == 0 || rd_host_entry_read(entry, n, "", &e, &own) != RD_OK) return false;
    destination(&e, &h);
    for (int i = 0; i < l->n_hosts; i++)
        if (strcmp(l->host[i].name, h.name) == 0) return l->host[i].dead;
    return false;
}

static void list_without(const launch_line *l, rd_strbuf *out)
{
    const char *word = l->argv[l->hosts_at];
    bool first = true;
    rd_strbuf_add(out, word, l->hosts_skip);
    for (const char *p = word + l->hosts_skip; *p;) {
        const size_t n = strcspn(p, ",");
        if (n > 0 && !is_dead(l, p, n)) {
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
        const size_t whole = strcspn(p, "\n");
        const char *entry = p;
        const size_t k = hostfile_entry(&entry, strcspn(p, "#\n"));
        if (!is_dead(l, entry, k)) rd_strbuf_add(&left, p, whole + (p[whole] == '\n'));
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
    if (l->np_at >= 0) {
        const char *count = l->argv[l->np_at] + l->np_skip;
        out->n_ranks = rd_host_count(count, strlen(count), RD_MOST_RANKS);
    }
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
