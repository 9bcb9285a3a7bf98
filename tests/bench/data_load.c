/* data_load.c -- measures how fast a corpus is read and how much memory it needs.
 *
 *     mpirun -np 4 build/release/tests/bench/data_load --config_file=x.json [--split_data_per_rank]
 *
 * Opens the training data of the config as run_dist does. Prints megabytes of text per second, by
 * the clock and by the CPU time of rank 0, which is the useful number on a busy machine. Also
 * prints the memory of all ranks together, where a page that ranks share counts once. */
#include "rd/clock.h"
#include "rd/data.h"
#include "rd/file.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Returns N of a line "Name:   N kB". */
static int64_t proc_kb(const char *file, const char *name)
{
    char line[256];
    int64_t kb = 0;
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) kb = strtoll(line + strlen(name), NULL, 10);
    if (f) fclose(f);
    return kb;
}

static double bytes_of(const rd_config *c, const char *key)
{
    struct stat s;
    const json_t *j = rd_config_get(c, key);
    double bytes = 0.0;
    for (size_t i = 0; i < (json_is_array(j) ? json_array_size(j) : 1); i++) {
        const char *path = json_string_value(json_is_array(j) ? json_array_get(j, i) : j);
        if (path && stat(path, &s) == 0) bytes += (double)s.st_size;
    }
    return bytes;
}

static rd_code measure(rd_comm *comm, const char *path, bool shard, rd_status *st)
{
    const rd_world *w = rd_comm_world(comm);
    rd_config *c = NULL;
    rd_dataset *d = NULL;
    rd_order *p = NULL;
    char *text = NULL;
    size_t n;
    const rd_option_group *group = rd_dataset_find("parallel_text")->group;
    RD_TRY(rd_file_read(path, RD_EUSAGE, &text, &n, st));
    RD_TRY(rd_config_new(path, text, n, &group, 1, true, &c, st));
    const rd_dataset_args a = {
        .config = c, .mode = RD_MODE_TRAIN, .split = RD_SPLIT_TRAIN, .comm = comm, .shard = shard};
    RD_TRY(rd_comm_barrier(comm, st));
    const int64_t t0 = rd_now_ns();
    const clock_t c0 = clock();
    RD_TRY(rd_dataset_new("parallel_text", &a, &d, st));
    const double wall = (double)(rd_now_ns() - t0) * 1e-9,
                 cpu = (double)(clock() - c0) / CLOCKS_PER_SEC;
    RD_TRY(rd_order_new(d, 1, 0, 1024, &(rd_order_rules){.shuffle = true}, &p, st));
    int64_t kb[2] = {proc_kb("/proc/self/smaps_rollup", "Pss:"),
                     proc_kb("/proc/self/status", "VmHWM:")};
    const int64_t peak = kb[1];
    RD_TRY(rd_comm_sum_i64(comm, kb, 1, st));
    const double mb = (bytes_of(c, "source_file") + bytes_of(c, "target_file")) * 1e-6;
    if (w->rank == 0)
        printf("%" PRId64 " pairs, %.0f MB of files, %d ranks%s: %.2f s, %.0f MB/s; processor time "
               "of rank 0 %.2f s, "
               "%.0f MB/s; memory "
               "of all ranks %.0f MiB, peak of rank 0 %.0f MiB\n",
               rd_dataset_def_of(d)->count(rd_dataset_self(d)), mb, w->size, shard ? ", split" : "",
               wall, mb / wall, cpu, mb / cpu, (double)kb[0] / 1024, (double)peak / 1024);
done:
    rd_order_free(p);
    rd_dataset_free(d);
    rd_config_free(c);
    free(text);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    rd_comm *comm = NULL;
    const char *path = NULL;
    bool shard = false;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--config_file=", 14) == 0) path = argv[i] + 14;
        if (strcmp(argv[i], "--split_data_per_rank") == 0) shard = true;
    }
    if (!path) {
        fprintf(stderr, "usage: data_load --config_file=x.json [--split_data_per_rank]\n");
        return RD_EUSAGE;
    }
    if (rd_comm_start(&argc, &argv, &comm, &st) == RD_OK) (void)measure(comm, path, shard, &st);
    if (st.code != RD_OK) fprintf(stderr, "data_load: %s\n", st.msg);
    rd_comm_free(comm);
    return (int)st.code;
}
