/* doctor_rules.c -- rules over the facts of all hosts, one function per check. */
#include "doctor_impl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double mib = 1048576.0, gib = 1073741824.0;

/* Writes a size as "1.5 GiB" or "64 MiB" and returns out. */
static const char *bytes_text(double b, char out[32])
{
    (void)snprintf(out, 32, b >= gib ? "%.1f GiB" : "%.0f MiB", b >= gib ? b / gib : b / mib);
    return out;
}

/* Returns the number of ranks of a host, at least 1. */
static int ranks_of(const json_t *host)
{
    const int n = (int)doc_number(host, "ranks");
    return n > 0 ? n : 1;
}

/* ---- one program ---- */

static const char *const program_remedy = "install the same build on all hosts, at the same path";

/* Returns whether a fact is the same on all hosts. If not, adds one failure, which names two hosts
 * and their values. */
static bool check_same_fact(doc_report *r, const json_t *hosts, const char *key, const char *what)
{
    const json_t *first = json_array_get(hosts, 0);
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        if (strcmp(doc_text(h, key), doc_text(first, key)) == 0) continue;
        doc_add(r, DOC_FAIL, "program", program_remedy,
                "%s differs: %s has '%.200s', %s has '%.200s'", what, doc_text(h, "listed"),
                doc_text(h, key), doc_text(first, "listed"), doc_text(first, key));
        r->differ = true;
        return false;
    }
    return true;
}

/* Compares the versions line by line, so that the failure names the library that differs. */
static bool check_versions(doc_report *r, const json_t *hosts)
{
    const json_t *first = json_array_get(hosts, 0);
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        const char *a = doc_text(h, "versions"), *b = doc_text(first, "versions");
        while (*a || *b) {
            const int n = (int)strcspn(a, "\n"), m = (int)strcspn(b, "\n");
            if (n != m || strncmp(a, b, (size_t)n) != 0) {
                doc_add(r, DOC_FAIL, "program", program_remedy,
                        "the version of program or libraries differs: %s has '%.*s', %s has '%.*s'",
                        doc_text(h, "listed"), n, a, doc_text(first, "listed"), m, b);
                r->differ = true;
                return false;
            }
            a += n + (a[n] == '\n');
            b += m + (b[m] == '\n');
        }
    }
    return true;
}

/* Lists the hosts whose program has another path than that of the first host. */
static void other_paths(const json_t *hosts, rd_strbuf *out)
{
    const char *path = doc_text(json_array_get(hosts, 0), "path");
    size_t i;
    json_t *h;
    rd_strbuf_puts(out, path);
    json_array_foreach(hosts, i, h)
    {
        if (strcmp(doc_text(h, "path"), path) != 0)
            rd_strbuf_printf(out, ", on %s %s", doc_text(h, "listed"), doc_text(h, "path"));
    }
}

/* Lists the libraries in one line: what --version prints below the program, and those of CUDA. */
static void libraries_line(const json_t *host, rd_strbuf *out)
{
    const char *s = doc_text(host, "versions"), *cuda = doc_text(host, "cuda");
    for (s += strcspn(s, "\n"), s += *s == '\n'; *s; s += strcspn(s, "\n"), s += *s == '\n')
        if (strncmp(s, "backends:", 9) != 0)
            rd_strbuf_printf(out, "%s%.*s", out->n ? ", " : "", (int)strcspn(s, "\n"), s);
    if (*cuda) rd_strbuf_printf(out, "%s%s", out->n ? ", " : "", cuda);
}

void doc_check_program(doc_report *r, const json_t *hosts)
{
    const json_t *first = json_array_get(hosts, 0);
    const char *versions = doc_text(first, "versions");
    rd_strbuf path = {0}, libraries = {0};
    if (!check_same_fact(r, hosts, "mpi", "the MPI library") || !check_versions(r, hosts) ||
        !check_same_fact(r, hosts, "cuda", "the version of CUDA's libraries") ||
        !check_same_fact(r, hosts, "program", "the program file"))
        return;
    other_paths(hosts, &path);
    libraries_line(first, &libraries);
    doc_add(r, DOC_OK, "program", NULL, "%s%s%.*s; %s; the same everywhere", rd_strbuf_str(&path),
            path.n ? ": " : "", (int)strcspn(versions, "\n"), versions, doc_text(first, "program"));
    doc_add(r, DOC_OK, "libraries", NULL, "%s; the same everywhere",
            libraries.n ? rd_strbuf_str(&libraries) : doc_text(first, "mpi"));
    rd_strbuf_release(&path);
    rd_strbuf_release(&libraries);
}

/* ---- names ---- */

void doc_check_names(doc_report *r, const json_t *hosts)
{
    const int before = r->n[DOC_FAIL] + r->n[DOC_WARN];
    size_t i, k;
    json_t *a, *b;
    json_array_foreach(hosts, i, a)
    {
        json_array_foreach(hosts, k, b)
        {
            if (k >= i) break;
            const bool one = strcmp(doc_text(a, "machine"), doc_text(b, "machine")) == 0;
            if (strcmp(doc_text(a, "host"), doc_text(b, "host")) != 0) continue;
            if (!one)
                doc_add(r, DOC_FAIL, "names",
                        "give each host its own name (hostnamectl; docker run --hostname NAME)",
                        "%s and %s both call themselves '%s'; MPI takes them for one machine, and "
                        "crashes or hangs",
                        doc_text(b, "listed"), doc_text(a, "listed"), doc_text(a, "host"));
            else if (strcmp(doc_text(a, "listed"), doc_text(b, "listed")) != 0)
                doc_add(r, DOC_WARN, "names", "list each machine once, with all its slots",
                        "%s and %s are one machine, '%s'", doc_text(b, "listed"),
                        doc_text(a, "listed"), doc_text(a, "host"));
        }
    }
    if (r->n[DOC_FAIL] + r->n[DOC_WARN] > before) return;
    if (json_array_size(hosts) > 1)
        doc_add(r, DOC_OK, "names", NULL, "%zu hosts, each with its own name",
                json_array_size(hosts));
    else
        doc_add(r, DOC_OK, "names", NULL, "one host, '%s'",
                doc_text(json_array_get(hosts, 0), "host"));
}

/* ---- memory and space ---- */

/* Checks /dev/shm, which holds MPI's own segments and the sums of gradients. A container has 64 MB
 * there by default. */
static void check_shm(doc_report *r, const json_t *hosts)
{
    static const char *const remedy = "start the container with --shm-size=1g or --ipc=host; "
                                      "elsewhere: mount -o remount,size=1g /dev/shm";
    const int before = r->n[DOC_FAIL] + r->n[DOC_WARN];
    double least = INFINITY;
    char text[32], total[32];
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        const double free_bytes = doc_number(h, "shm_free"), each = free_bytes / ranks_of(h);
        least = fmin(least, free_bytes);
        if (each >= 64 * mib) continue;
        doc_add(r, each < 8 * mib ? DOC_FAIL : DOC_WARN, "shm", remedy,
                "/dev/shm of %s has %s free of %s, for %d rank%s; %s", doc_text(h, "listed"),
                bytes_text(free_bytes, text), bytes_text(doc_number(h, "shm_total"), total),
                ranks_of(h), ranks_of(h) == 1 ? "" : "s",
                each < 8 * mib
                    ? "that is too little for MPI itself to start"
                    : "the sums of large models will not fit, and slower methods will be used");
    }
    if (r->n[DOC_FAIL] + r->n[DOC_WARN] == before)
        doc_add(r, DOC_OK, "shm", NULL, "/dev/shm has %s free%s", bytes_text(least, text),
                json_array_size(hosts) > 1 ? " or more" : "");
}

static void check_memory(doc_report *r, const json_t *hosts)
{
    const int before = r->n[DOC_WARN];
    double least = INFINITY;
    char text[32];
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        const double each = doc_number(h, "memory") / ranks_of(h);
        least = fmin(least, each);
        if (each < 512 * mib)
            doc_add(r, DOC_WARN, "memory",
                    "raise the container's limit (docker run --memory), or use fewer slots",
                    "%s allows %s per rank", doc_text(h, "listed"), bytes_text(each, text));
    }
    if (r->n[DOC_WARN] == before)
        doc_add(r, DOC_OK, "memory", NULL, "%s per rank%s", bytes_text(least, text),
                json_array_size(hosts) > 1 ? " or more" : "");
}

static void check_memlock(doc_report *r, const json_t *hosts)
{
    const json_t *first = json_array_get(hosts, 0);
    double least = INFINITY;
    char text[32];
    bool gpus = false;
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        const double b = doc_number(h, "memlock");
        gpus = gpus || json_array_size(json_object_get(h, "gpus")) > 0;
        if (b < 0.0 || b >= least) continue;
        least = b;
        first = h;
    }
    if (!isfinite(least))
        doc_add(r, DOC_OK, "memlock", NULL, "no limit on locked memory");
    else
        doc_add(r, gpus && least < 64 * mib ? DOC_WARN : DOC_OK, "memlock",
                gpus && least < 64 * mib
                    ? "docker run --ulimit memlock=-1; elsewhere /etc/security/limits.conf"
                    : NULL,
                "%s of locked memory on %s%s", bytes_text(least, text), doc_text(first, "listed"),
                gpus ? "" : "; only GPUs and InfiniBand would need more");
}

static void check_tmpdir(doc_report *r, const json_t *hosts)
{
    const int before = r->n[DOC_WARN];
    char text[32];
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        const char *dir = doc_text(h, "tmpdir");
        if (strlen(dir) > 70)
            doc_add(r, DOC_WARN, "tmpdir", "export TMPDIR=/tmp before mpirun",
                    "TMPDIR of %s has %zu characters (%.80s...): MPI puts sockets below it, and a "
                    "socket's path has at most 107",
                    doc_text(h, "listed"), strlen(dir), dir);
        else if (doc_number(h, "tmp_free") < 50 * mib)
            doc_add(r, DOC_WARN, "tmpdir", "free some space, or set TMPDIR to another folder",
                    "%s of %s has %s free, where MPI keeps its session", dir, doc_text(h, "listed"),
                    bytes_text(doc_number(h, "tmp_free"), text));
    }
    if (r->n[DOC_WARN] == before)
        doc_add(r, DOC_OK, "tmpdir", NULL, "%s", doc_text(json_array_get(hosts, 0), "tmpdir"));
}

void doc_check_space(doc_report *r, const json_t *hosts)
{
    check_shm(r, hosts);
    check_memory(r, hosts);
    check_memlock(r, hosts);
    check_tmpdir(r, hosts);
}

/* ---- devices ---- */

/* Returns whether the program, whose --version is in the facts, has a backend for GPUs. */
static bool uses_gpus(const json_t *host)
{
    const char *backends = strstr(doc_text(host, "versions"), "backends: ");
    return backends && strstr(backends, "cuda");
}

void doc_check_gpus(doc_report *r, const json_t *hosts)
{
    size_t i, n = 0;
    json_t *h;
    rd_strbuf list = {0};
    const bool used = uses_gpus(json_array_get(hosts, 0));
    json_array_foreach(hosts, i, h)
    {
        const json_t *gpus = json_object_get(h, "gpus");
        const size_t here = json_array_size(gpus);
        size_t k;
        json_t *g;
        json_array_foreach(gpus, k, g)
        {
            n++;
            rd_strbuf_printf(&list, "; %s: %s, %s, %.0f MiB", doc_text(h, "listed"),
                             doc_text(g, "name"), doc_text(g, "uuid"),
                             doc_number(g, "memory") / mib);
        }
        if (used && here > 0 && (size_t)ranks_of(h) > here)
            doc_add(r, DOC_WARN, "gpus",
                    "use fewer ranks per host, or share GPUs (allow_shared_gpu), or use CPUs "
                    "(device cpu)",
                    "%d ranks of %s have %zu GPU%s: a training refuses that", ranks_of(h),
                    doc_text(h, "listed"), here, here == 1 ? "" : "s");
    }
    if (n > 0)
        doc_add(r, DOC_OK, "gpus", NULL, "%zu GPU%s, %s%.1500s", n, n == 1 ? "" : "s",
                used ? "one for each rank, by the rank's number on the host"
                     : "not used: this program computes on CPUs",
                rd_strbuf_str(&list));
    else
        doc_add(r, DOC_OK, "gpus", NULL, "none; %s",
                used ? "ranks compute on CPUs" : "this program computes on CPUs");
    rd_strbuf_release(&list);
}

void doc_check_copy(doc_report *r, const json_t *hosts)
{
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        if (json_is_true(json_object_get(h, "copy"))) continue;
        doc_add(r, DOC_OK, "copy", NULL,
                "process_vm_readv is not permitted on %s; MPI copies twice between ranks instead "
                "(docker run --cap-add SYS_PTRACE allows it)",
                doc_text(h, "listed"));
        return;
    }
    doc_add(r, DOC_OK, "copy", NULL, "ranks of a host may read each other's memory");
}

void doc_check_left(doc_report *r, const json_t *hosts)
{
    const int before = r->n[DOC_WARN];
    size_t i, k;
    json_t *h, *d;
    json_array_foreach(hosts, i, h)
    {
        json_array_foreach(json_object_get(h, "daemons"), k, d)
        {
            doc_add(r, DOC_WARN, "left", "if no job of yours runs there: kill it",
                    "%s of %s, pid %.0f, has been running for %.0f min: another job of "
                    "yours, or left behind by a job",
                    doc_text(d, "name"), doc_text(h, "listed"), doc_number(d, "pid"),
                    doc_number(d, "age_s") / 60.0);
        }
    }
    if (r->n[DOC_WARN] == before) doc_add(r, DOC_OK, "left", NULL, "no daemon of an earlier job");
}

/* ---- CPUs ---- */

enum { MAX_CPUS = 8192 };

/* Reads a list like "0-3,8": sets those elements of set and returns their number. */
static int add_cores(const char *list, unsigned char *set)
{
    int n = 0;
    for (const char *s = list; *s >= '0' && *s <= '9';) {
        char *end;
        const long a = strtol(s, &end, 10);
        const long b = *end == '-' ? strtol(end + 1, &end, 10) : a;
        for (long c = a; c <= b && c >= 0 && c < MAX_CPUS; c++) {
            set[c] = 1;
            n++;
        }
        s = *end == ',' ? end + 1 : "";
    }
    return n;
}

void doc_check_cpus(doc_report *r, const json_t *hosts, const json_t *ranks)
{
    const int before = r->n[DOC_WARN];
    size_t i, k;
    json_t *h, *p;
    unsigned char *set = calloc(1, MAX_CPUS);
    if (!set) return;
    json_array_foreach(hosts, i, h)
    {
        const int n = ranks_of(h), cpus = (int)doc_number(h, "processors");
        int together = 0, bound = 0;
        memset(set, 0, MAX_CPUS);
        json_array_foreach(ranks, k, p)
        {
            if ((size_t)doc_number(p, "host_index") != i) continue;
            if (add_cores(doc_text(p, "cores"), set) == 1) bound++;
        }
        for (int c = 0; c < MAX_CPUS; c++) together += set[c];
        if (together < n && together < cpus)
            doc_add(
                r, DOC_WARN, "binding", "mpirun --bind-to none",
                "%d ranks of %s share %d CPU%s, while the host has %d: two jobs, or two launchers, "
                "were bound to the same CPUs",
                n, doc_text(h, "listed"), together, together == 1 ? "" : "s", cpus);
        else if (together < n)
            doc_add(r, DOC_WARN, "cpus", "use at most as many slots as CPUs",
                    "%d ranks share %d CPU%s of %s", n, together, together == 1 ? "" : "s",
                    doc_text(h, "listed"));
        else if (bound > 0 && cpus >= 2 * n) {
            char remedy[128];
            (void)snprintf(remedy, sizeof remedy, "mpirun --bind-to none, or --map-by slot:PE=%d",
                           cpus / n);
            doc_add(r, DOC_WARN, "binding", remedy,
                    "each rank of %s is bound to one CPU, and so are all its threads: %d of %d %s "
                    "used",
                    doc_text(h, "listed"), bound, cpus, bound == 1 ? "is" : "are");
        }
    }
    if (r->n[DOC_WARN] == before)
        doc_add(r, DOC_OK, "cpus", NULL,
                "no rank shares its CPUs with another, and none is bound too tightly");
    free(set);
}

/* ---- clocks and links ---- */

void doc_check_clocks(doc_report *r, const json_t *hosts)
{
    size_t i;
    json_t *h, *worst = NULL;
    double most = 0.0;
    json_array_foreach(hosts, i, h)
    {
        /* The time of the request itself is no difference of clocks. */
        const double ahead = fmax(0.0, fabs(doc_number(h, "clock_ahead_s")) -
                                           doc_number(h, "clock_error_s"));
        if (ahead <= most) continue;
        most = ahead;
        worst = h;
    }
    if (most > 1.0)
        doc_add(r, most > 60.0 ? DOC_FAIL : DOC_WARN, "clocks",
                "let all hosts keep time by NTP (chrony, systemd-timesyncd)",
                "the clock of %s is %.1f s %s that of %s; event files and logs will be wrong",
                doc_text(worst, "listed"), most,
                doc_number(worst, "clock_ahead_s") > 0.0 ? "ahead of" : "behind",
                doc_text(json_array_get(hosts, 0), "listed"));
    else
        doc_add(r, DOC_OK, "clocks", NULL, "at most %.1f s apart", fmax(0.1, most));
}

void doc_check_links(doc_report *r, const json_t *hosts, const double *gbit_per_s)
{
    const size_t n = json_array_size(hosts);
    size_t slow = 0, fast = 0, any = 0;
    if (n < 2) return;
    for (size_t i = 0; i < n * n; i++) {
        if (gbit_per_s[i] <= 0.0) continue;
        if (!any || gbit_per_s[i] < gbit_per_s[slow]) slow = i;
        if (!any || gbit_per_s[i] > gbit_per_s[fast]) fast = i;
        any = 1;
    }
    if (!any) {
        doc_add(r, DOC_WARN, "links", "see the checks above",
                "the links between hosts could not be measured");
        return;
    }
    const double least = gbit_per_s[slow], most = gbit_per_s[fast];
    /* The nominal rate of such a link, and 30 % more for a short burst. */
    const char *level = least < 0.13  ? "the level of 100 Mbit/s Ethernet"
                        : least < 1.3 ? "the level of 1 Gbit/s Ethernet"
                                      : "";
    const char *from = doc_text(json_array_get(hosts, slow / n), "listed"),
               *to = doc_text(json_array_get(hosts, slow % n), "listed");
    if (*level)
        doc_add(
            r, DOC_WARN, "links", "use a faster network, fewer hosts, or a larger batch per rank",
            "%s -> %s carries %.2f Gbit/s, %s: the sum of 100 MB of gradients takes about %.1f s",
            from, to, least, level, 1.6 / least * (double)(n - 1) / (double)n);
    else if (least < 0.5 * most && n > 2)
        doc_add(r, DOC_WARN, "links", "check that host's cable, switch port and interface",
                "%s -> %s is the slowest link, %.2f Gbit/s; the fastest carries %.2f", from, to,
                least, most);
    else
        doc_add(r, DOC_OK, "links", NULL, "slowest link %s -> %s, %.2f Gbit/s", from, to, least);
}
