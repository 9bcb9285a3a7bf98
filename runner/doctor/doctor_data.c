/* doctor_data.c -- checks what a training reads and writes: config, data on every rank, log folder.
 *
 * Every step ends with an agreement. All ranks then know about a fault of one rank, and none of
 * them waits for it. */
#include "doctor_impl.h"
#include "rd/data.h"
#include "rd/file.h"
#include "rd/gpu.h"
#include "rd/gpu_choose.h"
#include "rd/model.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Returns the text of a key, "" if it has none. */
static const char *config_text(const rd_config *c, const char *key)
{
    const char *s = json_string_value(rd_config_get(c, key));
    return s ? s : "";
}

/* Reads one option group into a temporary struct, for its errors. g: NULL is allowed. */
static rd_code check_group(const rd_config *c, const rd_option_group *g, rd_status *st)
{
    void *own = g ? calloc(1, g->struct_bytes) : NULL;
    if (g && !own)
        rd_fail(st, RD_EENV, "out of memory for the config");
    else if (g)
        (void)rd_config_read(c, g, RD_MODE_TRAIN, own, st);
    free(own);
    return st->code;
}

/* Returns the dataset of the config, or else the default of its model. */
static const char *dataset_name(const rd_config *c)
{
    const rd_model_def *model = rd_model_find(config_text(c, "model"));
    const char *name = config_text(c, "dataset");
    return *name || !model ? name : model->default_dataset;
}

static rd_code check_groups(const rd_config *c, const rd_option_group *const *groups, int n_groups,
                            rd_status *st)
{
    const rd_model_def *model = rd_model_find(config_text(c, "model"));
    for (int i = 0; i < n_groups; i++) RD_TRY(check_group(c, groups[i], st));
    if (!model)
        return rd_fail(
            st, RD_EUSAGE,
            "%s: 'model' is '%s', which does not exist; run_dist --help=model lists them",
            rd_config_where(c, "model"), config_text(c, "model"));
    RD_TRY(check_group(c, model->group, st));
    RD_TRY(check_group(c, model->own, st));
done:
    return st->code;
}

void doc_check_config(doc_report *r, rd_comm *comm, rd_config *config,
                      const rd_option_group *const *groups, int n_groups)
{
    rd_status st = {0};
    rd_dataset *d = NULL;
    const rd_dataset_args a = {
        .config = config, .mode = RD_MODE_TRAIN, .split = RD_SPLIT_TRAIN, .comm = comm};
    (void)check_groups(config, groups, n_groups, &st);
    if (rd_comm_agree(comm, &st) != RD_OK) {
        doc_add(r, DOC_FAIL, "config",
                "correct the config; run_dist --print_config shows it with all its keys", "%s",
                st.msg);
        return;
    }
    doc_add(r, DOC_OK, "config", NULL, "model %s, dataset %s", config_text(config, "model"),
            dataset_name(config));
    (void)rd_dataset_new(dataset_name(config), &a, &d, &st);
    if (rd_comm_agree(comm, &st) != RD_OK) {
        doc_add(r, DOC_FAIL, "data", "put the data on every host, at the path in the config",
                "rank %d: %s", st.rank > 0 ? st.rank : 0, st.msg);
        rd_dataset_free(d);
        return;
    }
    const char *print = rd_dataset_def_of(d)->fingerprint(rd_dataset_self(d));
    if (rd_comm_same(comm, "data", print, &st) != RD_OK) {
        doc_add(r, DOC_FAIL, "data", "copy the same files to all hosts", "%s", st.msg);
        r->differ = true;
    } else {
        doc_add(r, DOC_OK, "data", NULL, "%" PRId64 " samples, the same on every rank (%.100s)",
                rd_dataset_def_of(d)->count(rd_dataset_self(d)), print);
    }
    rd_dataset_free(d);
}

/* ---- device ---- */

void doc_check_device(doc_report *r, rd_comm *comm, const rd_config *config)
{
    const rd_world *w = rd_comm_world(comm);
    const char *wanted = config_text(config, "device");
    const rd_device asked = strcmp(wanted, "cuda") == 0  ? RD_DEVICE_CUDA
                            : strcmp(wanted, "cpu") == 0 ? RD_DEVICE_CPU
                                                         : RD_DEVICE_AUTO;
    const json_t *share = rd_config_get(config, "allow_shared_gpu");
    const bool compiled = rd_gpu_compiled();
    rd_gpu_seat mine, *all = calloc((size_t)w->size, sizeof *all);
    rd_gpu_choice choice;
    rd_status st = {0};
    memset(&mine, 0, sizeof mine);
    (void)snprintf(mine.host, sizeof mine.host, "%s", w->host);
    mine.host_index = w->host_index;
    mine.local_rank = w->local_rank;
    if (!all) rd_fail(&st, RD_EENV, "out of memory for the GPUs of %d ranks", w->size);
    if (compiled && asked != RD_DEVICE_CPU && st.code == RD_OK)
        (void)rd_gpu_seat_look(false, -1, &mine, &st);
    if (rd_comm_agree(comm, &st) == RD_OK &&
        rd_comm_allgather(comm, &mine, all, (int64_t)sizeof mine, &st) == RD_OK)
        (void)rd_gpu_choose(asked, share && json_is_true(share), compiled, all, w->size, &choice,
                            &st);
    if (rd_comm_agree(comm, &st) != RD_OK)
        doc_add(r, DOC_FAIL, "device",
                "put the ranks where there are GPUs, or use CPUs (device cpu)", "%s", st.msg);
    else if (choice.device == RD_DEVICE_CUDA)
        doc_add(r, choice.hidden ? DOC_WARN : DOC_OK, "device",
                choice.hidden
                    ? "show every rank all GPUs (srun --gpus-per-node with --gpu-bind=none)"
                    : NULL,
                "%s%s", choice.text,
                choice.hidden ? "; each rank sees one GPU alone, so NCCL cannot use NVLink" : "");
    free(all);
}

/* ---- log folder ---- */

/* Finds the folder, or its nearest parent that exists. If a link on the way leads nowhere, out is
 * the link and target is where it points; else target is "". */
static void nearest_existing(const char *dir, char out[4096], char target[256])
{
    struct stat s;
    (void)snprintf(out, 4096, "%.4095s", dir);
    target[0] = '\0';
    while (stat(out, &s) != 0) {
        if (rd_link_dangles(out, target, 256)) return;
        target[0] = '\0';
        char *slash = strrchr(out, '/');
        if (!slash) {
            (void)snprintf(out, 4096, ".");
            return;
        }
        if (slash == out) {
            out[1] = '\0';
            return;
        }
        *slash = '\0';
    }
}

/* Creates a file and writes a few bytes to it. errno says why that failed. */
static bool test_write(const char *token)
{
    const char *kind;
    const int fd = rd_open_output(token, O_WRONLY | O_CREAT | O_EXCL, &kind);
    if (fd < 0) return false;
    const bool wrote = write(fd, "run_dist", 8) == 8 && fsync(fd) == 0;
    const int err = errno;
    (void)close(fd);
    errno = err;
    return wrote;
}

/* Returns the size of the largest checkpoint in a folder, 0: there is none. */
static double checkpoint_bytes(const char *dir)
{
    double most = 0.0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4400];
        struct stat s;
        if (strncmp(e->d_name, "model-", 6) != 0 || !strstr(e->d_name, ".npz")) continue;
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (stat(path, &s) == 0 && (double)s.st_size > most) most = (double)s.st_size;
    }
    if (d) closedir(d);
    return most;
}

/* Compares the free space with that of keep + 1 checkpoints, or with 1 GiB if there is none yet. */
static void check_log_space(doc_report *r, const char *dir, int64_t keep)
{
    struct statvfs v;
    const double one = checkpoint_bytes(dir), gib = 1073741824.0;
    if (statvfs(dir, &v) != 0) return;
    const double free_bytes = (double)v.f_bavail * (double)v.f_frsize;
    const double need = one > 0.0 ? one * (double)(keep + 1) : gib;
    if (free_bytes < need)
        doc_add(r, DOC_WARN, "space",
                "free some space, or keep fewer checkpoints: --set checkpoint_keep=2",
                one > 0.0 ? "%s has %.2f GiB free, %d checkpoints take %.2f GiB"
                          : "%s has %.2f GiB free; %d checkpoints may need %.0f GiB or more",
                dir, free_bytes / gib, (int)keep + 1, need / gib);
    else
        doc_add(r, DOC_OK, "space", NULL, "%s has %.1f GiB free", dir, free_bytes / gib);
}

void doc_check_logdir(doc_report *r, rd_comm *comm, const char *logdir, int64_t keep)
{
    const rd_world *w = rd_comm_world(comm);
    struct {
        char path[4200];
        int err;
    } token = {.err = 0};
    char dir[4096], target[256];
    rd_status st = {0};
    double seen = 0.0;
    if (w->rank == 0) {
        nearest_existing(logdir, dir, target);
        (void)snprintf(token.path, sizeof token.path, "%s/.doctor.%ld", dir, (long)getpid());
        if (target[0])
            token.err = ENOENT;
        else if (!test_write(token.path))
            token.err = errno ? errno : EIO;
    }
    if (rd_comm_bcast(comm, &token, sizeof token, 0, &st) != RD_OK) return;
    if (w->local_rank == 0 && !token.err) seen = access(token.path, F_OK) == 0 ? 1.0 : 0.0;
    if (rd_comm_sum_f64(comm, &seen, 1, &st) != RD_OK) return;
    if (w->rank != 0) return;
    (void)unlink(token.path);
    if (target[0]) {
        doc_add(r, DOC_FAIL, "logdir", "make that folder, or remove the link",
                "%.300s is a link to %.200s, which is not there (rank 0, %s)", dir, target,
                w->host);
        return;
    }
    if (token.err) {
        doc_add(r, DOC_FAIL, "logdir", "choose a folder that rank 0 may write to: --logdir=DIR",
                "rank 0 (%s) cannot write to %.300s: %s", w->host, dir, strerror(token.err));
        return;
    }
    doc_add(r, DOC_OK, "logdir", NULL, "rank 0 (%s) may write to %.300s%s", w->host, dir,
            w->n_hosts == 1           ? ""
            : (int)seen == w->n_hosts ? ", which all hosts see"
                                      : ", which other hosts do not see: a restart on another host "
                                        "would not find the checkpoints");
    check_log_space(r, dir, keep);
}
