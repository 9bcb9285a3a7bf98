/* host_cpus.c -- how many cores one rank may use.
 *
 * These are its own cores if the launcher bound it, and its share of the cores that it
 * has in common with other ranks. The quota of the control group, which containers
 * set, is an upper limit. */
#include "host_cpus.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

rd_cpu_set rd_cpus_mine(void)
{
    rd_cpu_set s = {0};
    if (sched_getaffinity(0, sizeof s.bits, (cpu_set_t *)s.bits) != 0) {
        const long n = sysconf(_SC_NPROCESSORS_ONLN);
        for (long i = 0; i < n && i < 64 * RD_CPU_WORDS; i++)
            s.bits[i / 64] |= (uint64_t)1 << (i % 64);
    }
    return s;
}

double rd_cpus_share(const rd_cpu_set *all, int n, int me, double quota)
{
    double share = 0.0;
    for (int i = 0; i < 64 * RD_CPU_WORDS; i++) {
        if (!(all[me].bits[i / 64] >> (i % 64) & 1)) continue;
        int users = 0;
        for (int r = 0; r < n; r++) users += (int)(all[r].bits[i / 64] >> (i % 64) & 1);
        share += 1.0 / users;
    }
    if (quota > 0.0 && quota / n < share) share = quota / n;
    return share;
}

int rd_cpus_whole(double share)
{
    return share < 1.0 ? 1 : (int)(share + 1e-6);
}

static bool read_line(const char *path, char *line, int cap)
{
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const bool got = fgets(line, cap, f) != NULL;
    fclose(f);
    return got;
}

/* Returns quota / period from cpu.max, which holds "max 100000" or "250000 100000"; 0: no limit. */
static double quota_v2(const char *dir)
{
    char path[4400], line[128];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2 ||
        period <= 0)
        return 0;
    return quota / period;
}

static double quota_v1(const char *dir)
{
    char path[4400], line[128];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, line, sizeof line)) return 0;
    const double quota = atof(line);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (quota <= 0 || !read_line(path, line, sizeof line)) return 0;
    const double period = atof(line);
    return period > 0 ? quota / period : 0;
}

/* Returns the smallest quota of the group and the groups above it. In a container the path of the
 * group may be that of the host, which is not visible. The walk then ends at the mount, which is
 * the container's own group. */
static double smallest_quota(const char *mount, const char *group, double (*quota)(const char *))
{
    char dir[4300];
    double least = 0;
    snprintf(dir, sizeof dir, "%.128s%.4096s", mount, group);
    const size_t base = strlen(mount);
    for (;;) {
        const double q = quota(dir);
        if (q > 0 && (least == 0 || q < least)) least = q;
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= base || !slash || (size_t)(slash - dir) < base) break;
        *slash = '\0';
    }
    return least;
}

/* Returns whether a list like "cpu,cpuacct" contains "cpu". */
static bool names_cpu(const char *controllers)
{
    for (const char *p = controllers; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, "cpu", 3) == 0 && (p[3] == ',' || p[3] == '\0')) return true;
    return false;
}

double rd_cpus_quota(const char *root)
{
    char path[512], line[4200];
    double least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    /* Version 2 has "0::/a/b", version 1 has "4:cpu,cpuacct:/a/b". */
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        controllers++;
        char mount[512];
        double q = 0;
        if (controllers[0] == '\0') {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            q = smallest_quota(mount, strcmp(group, "/") == 0 ? "" : group, quota_v2);
        } else if (names_cpu(controllers)) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
            q = smallest_quota(mount, strcmp(group, "/") == 0 ? "" : group, quota_v1);
        }
        if (q > 0 && (least == 0 || q < least)) least = q;
    }
    fclose(f);
    return least;
}
