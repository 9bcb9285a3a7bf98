/* doctor_facts.c -- collects what rules need to know about this host, as one JSON object.
 *
 * Facts that cannot be found are left out. */
#include "doctor_impl.h"
#include "rd/clock.h"
#include "rd/file.h"
#include "rd/gpu.h"
#include "rd/program.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Reads the first line of a file into out and returns it, "" if there is none. */
static const char *first_line(const char *path, char *out, int cap)
{
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    if (f && fgets(out, cap, f)) out[strcspn(out, "\n")] = '\0';
    if (f) fclose(f);
    return out;
}

json_t *doc_interfaces(void)
{
    struct ifaddrs *all = NULL;
    json_t *nets = json_array();
    if (getifaddrs(&all) != 0) return nets;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct sockaddr_in a, m;
        char text[16];
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !i->ifa_netmask) continue;
        memcpy(&a, i->ifa_addr, sizeof a);
        memcpy(&m, i->ifa_netmask, sizeof m);
        doc_format_ipv4(ntohl(a.sin_addr.s_addr), text);
        json_array_append_new(nets,
                              json_pack("{s:s, s:s, s:i, s:b, s:b}", "name", i->ifa_name, "addr",
                                        text, "prefix", __builtin_popcount(m.sin_addr.s_addr), "up",
                                        (i->ifa_flags & IFF_UP) != 0, "loopback",
                                        (i->ifa_flags & IFF_LOOPBACK) != 0));
    }
    freeifaddrs(all);
    return nets;
}

/* Finds the model of the CPU: "model name" in /proc/cpuinfo. Kernels without that line give
 * "CPU". */
static void cpu_model(char out[128])
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    (void)snprintf(out, 128, "CPU");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(out, 128, "%.127s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (f) fclose(f);
}

/* Returns the memory limit in bytes: that of the control group (version 2 or 1) or the machine's
 * memory, whichever is less. In a container the group's path may be that of the outside, which does
 * not exist here. The function therefore also reads the top of the tree. */
static double memory_bytes(void)
{
    char line[4200], path[4400], text[64];
    double least = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const char *at = strrchr(line, ':');
        if (!at) continue;
        const bool two = strncmp(line, "0::", 3) == 0, one = strstr(line, ":memory:") != NULL;
        for (int top = 0; top < 2 && (one || two); top++) {
            (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s%s/%s", one ? "memory" : "",
                           top ? "" : at + 1, one ? "memory.limit_in_bytes" : "memory.max");
            const double v = isdigit((unsigned char)first_line(path, text, sizeof text)[0])
                                 ? atof(text)
                                 : 0.0;
            if (v > 0.0 && v < least) least = v;
        }
    }
    if (f) fclose(f);
    return least;
}

/* Finds an executable in PATH. Returns false if there is none. */
static bool find_in_path(const char *name, char *out, size_t cap)
{
    const char *path = getenv("PATH");
    for (const char *s = path ? path : ""; *s;) {
        const size_t n = strcspn(s, ":");
        (void)snprintf(out, cap, "%.*s/%s", (int)n, s, name);
        if (access(out, X_OK) == 0) return true;
        s += n + (s[n] == ':');
    }
    out[0] = '\0';
    return false;
}

/* Lists the GPUs of NVIDIA's driver without its library: [{name, uuid, memory in bytes}]. full:
 * asks nvidia-smi, which knows the memory. Otherwise, or without nvidia-smi, name and UUID come
 * from /proc, and memory is 0. */
static json_t *list_gpus(bool full)
{
    json_t *all = json_array();
    char line[512], tool[4200];
    FILE *p = NULL;
    if (full && access("/dev/nvidiactl", F_OK) == 0 &&
        find_in_path("nvidia-smi", tool, sizeof tool))
        p = popen("timeout 5 nvidia-smi --query-gpu=name,uuid,memory.total "
                  "--format=csv,noheader,nounits 2>/dev/null",
                  "re");
    while (p && fgets(line, sizeof line, p)) {
        char name[128] = "", uuid[128] = "";
        double mib = 0.0;
        if (sscanf(line, "%127[^,], %127[^,], %lf", name, uuid, &mib) >= 2)
            json_array_append_new(all, json_pack("{s:s, s:s, s:f}", "name", name, "uuid", uuid,
                                                 "memory", mib * 1048576.0));
    }
    if (p) (void)pclose(p);
    if (json_array_size(all) > 0) return all;
    DIR *d = opendir("/proc/driver/nvidia/gpus");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4400], name[128] = "GPU", uuid[128] = "";
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", e->d_name);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f)) {
            (void)sscanf(line, "Model: %127[^\n]", name);
            (void)sscanf(line, "GPU UUID: %127s", uuid);
        }
        if (f) fclose(f);
        json_array_append_new(all, json_pack("{s:s, s:s, s:f}", "name", name, "uuid", uuid,
                                             "memory", 0.0));
    }
    if (d) closedir(d);
    return all;
}

/* Lists the daemons of mpirun that run on this host for this user: [{name, pid, age_s}]. */
static json_t *list_daemons(void)
{
    json_t *left = json_array();
    DIR *d = opendir("/proc");
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], text[1024];
        struct stat s;
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        (void)snprintf(path, sizeof path, "/proc/%s/comm", e->d_name);
        if (strcmp(first_line(path, text, sizeof text), "orted") != 0 && strcmp(text, "prted") != 0)
            continue;
        if (stat(path, &s) != 0 || s.st_uid != getuid()) continue;
        char name[32];
        (void)snprintf(name, sizeof name, "%.31s", text);
        (void)snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        (void)first_line(path, text, sizeof text);
        const char *at = strrchr(text, ')');
        unsigned long long ticks = 0;
        for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
        if (at) ticks = strtoull(at, NULL, 10);
        const double age = (double)now.tv_sec - (double)ticks / (double)sysconf(_SC_CLK_TCK);
        json_array_append_new(left, json_pack("{s:s, s:i, s:f}", "name", name, "pid",
                                              atoi(e->d_name), "age_s", age));
    }
    if (d) closedir(d);
    return left;
}

/* Resolves the host's name to an address, "" if there is none. Prefers one outside 127.0.0.0/8:
 * other hosts may get the address from here, and 127.0.0.1 would lead them to themselves. */
static void resolve_host_name(const char *host, char out[16])
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    out[0] = '\0';
    if (getaddrinfo(host, NULL, &hints, &found) != 0) return;
    for (const struct addrinfo *i = found; i; i = i->ai_next) {
        struct sockaddr_in a;
        memcpy(&a, i->ai_addr, sizeof a);
        doc_format_ipv4(ntohl(a.sin_addr.s_addr), out);
        if (strncmp(out, "127.", 4) != 0) break;
    }
    freeaddrinfo(found);
}

/* Identifies the machine. Two processes get the same text only if they share the kernel and the
 * network. */
static void machine_id(char out[160])
{
    char boot[64], net[64] = "";
    const ssize_t n = readlink("/proc/self/ns/net", net, sizeof net - 1);
    if (n >= 0) net[n] = '\0';
    (void)snprintf(out, 160, "%s %s",
                   first_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot), net);
}

/* Returns whether process_vm_readv is permitted. */
static bool can_read_memory(void)
{
    char from = 1, to = 0;
    const struct iovec a = {&to, 1}, b = {&from, 1};
    return process_vm_readv(getpid(), &a, 1, &b, 1, 0) == 1;
}

json_t *doc_facts(const char *versions, json_t *mca, bool full)
{
    char host[128] = "localhost", cpu[128], id[64], machine[160], own[16], daemon[4200];
    char path[4096];
    struct statvfs shm = {0}, tmp = {0};
    struct rlimit lock = {0};
    cpu_set_t set;
    const char *tmpdir = getenv("TMPDIR");
    if (!tmpdir || !*tmpdir) tmpdir = "/tmp";
    (void)gethostname(host, sizeof host - 1);
    cpu_model(cpu);
    rd_program_id(id);
    machine_id(machine);
    resolve_host_name(host, own);
    (void)statvfs("/dev/shm", &shm);
    (void)statvfs(tmpdir, &tmp);
    (void)getrlimit(RLIMIT_MEMLOCK, &lock);
    if (!find_in_path("orted", daemon, sizeof daemon))
        (void)find_in_path("prted", daemon, sizeof daemon);
    const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "host", host, "listed",
                          host, "machine", machine, "resolves", own, "versions", versions,
                          "program", id, "mpi", rd_comm_library_version(), "daemon", daemon, "cpu",
                          cpu);
    if (!o) {
        json_decref(mca);
        return NULL;
    }
    const ssize_t n_path = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n_path > 0 ? n_path : 0] = '\0';
    json_object_set_new(o, "path", json_string(path));
    json_object_set_new(o, "cuda", json_string(full ? rd_gpu_libraries() : ""));
    json_object_set_new(o, "processors", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(o, "allowed", json_integer(allowed));
    json_object_set_new(o, "memory", json_real(memory_bytes()));
    json_object_set_new(o, "memlock",
                        json_real(lock.rlim_cur == RLIM_INFINITY ? -1.0 : (double)lock.rlim_cur));
    json_object_set_new(o, "shm_total", json_real((double)shm.f_blocks * (double)shm.f_frsize));
    json_object_set_new(o, "shm_free", json_real((double)shm.f_bavail * (double)shm.f_frsize));
    json_object_set_new(o, "tmpdir", json_string(tmpdir));
    json_object_set_new(o, "tmp_free", json_real((double)tmp.f_bavail * (double)tmp.f_frsize));
    json_object_set_new(o, "copy", json_boolean(can_read_memory()));
    json_object_set_new(o, "nets", doc_interfaces());
    json_object_set_new(o, "gpus", list_gpus(full));
    json_object_set_new(o, "daemons", list_daemons());
    json_object_set_new(o, "wall_s", json_real(rd_wall_s()));
    json_object_set_new(o, "mca", mca ? mca : json_object());
    return o;
}
