/* checkpoint.h -- saves and loads checkpoints, and locks the log folder. Rank 0 only.
 *
 * A checkpoint is a file model-<step>.npz with a manifest and checksums. The file `checkpoint`
 * names the newest model file.
 *
 * Order of a save: check the space, write under a temporary name, fsync, rename, fsync the folder,
 * replace `checkpoint` in the same way, then remove all but the newest `keep`. A kill at any moment
 * leaves the previous checkpoint intact. */
#ifndef RD_CHECKPOINT_H
#define RD_CHECKPOINT_H
#include "rd/npz.h"
#include <jansson.h>
RD_C_BEGIN

/* Saves n arrays as <name_prefix>-<step>.npz in the folder dir. name_prefix: "model" for periodic
 * and final checkpoints, or "best", which `checkpoint` never names. The manifest holds the entries
 * of `meta` (a borrowed object: epoch, seed, np, config, ...) and those of this module, which win:
 * step, format_version, and arrays with the name, shape, type and CRC32C of each.
 *
 * keep <= 0 keeps all checkpoints. Else the newest `keep` stay: first the one just written,
 * and last those of later steps, which belong to a run that was continued from an earlier
 * step. No space or a full disk is RD_EENV: the previous checkpoint is intact, and no
 * temporary file is left. */
rd_code rd_ckpt_save(const char *dir, const char *name_prefix, int64_t step, const rd_array *a,
                     int n, const json_t *meta, int keep, rd_status *st);

typedef struct rd_ckpt {
    rd_npz *npz;  /* owned; the arrays */
    json_t *meta; /* owned; the manifest: the entries of `meta` and those of this module */
    int64_t step;
    char path[4096];
} rd_ckpt;
/* Loads the newest intact checkpoint of a log folder: the one with the largest step. For "model"
 * the "best" ones count, too; of the same step, "model" comes first. The file `checkpoint` does not
 * decide: a kill may have come between the two renames of a save. Checks the manifest, the range of
 * its progress and every CRC. A damaged one is reported in *warning (RD_MSG_BYTES long, may be ""),
 * and the next older one is tried. No checkpoint at all: RD_OK and out->npz is NULL. All damaged,
 * or the newest has a later format: RD_ECKPT. No permission or memory: RD_EENV. Removes temporary
 * files of dead processes, unless another process holds the folder's lock. The caller releases
 * *out. */
rd_code rd_ckpt_load_newest(const char *dir, const char *name_prefix, rd_ckpt *out, char *warning,
                            rd_status *st);
/* Loads this file. The caller releases *out. */
rd_code rd_ckpt_load(const char *path, rd_ckpt *out, rd_status *st);

/* A checkpoint that took part in an average. */
typedef struct rd_ckpt_parent {
    char name[64]; /* of the file */
    int64_t step;
    /* The evaluation of that step, if the manifest has one. */
    bool evaluated;
    char figure[32];
    double value;
    bool higher_is_better;
} rd_ckpt_parent;
/* Saves the mean of the weights of n checkpoints of the log folder as average-<step>.npz, with the
 * step of the newest of them. best: those with the best evaluations, also a best file; else the
 * last ones. Sums are in double, from the smallest step on. The manifest is that of the newest one
 * without the optimizer, and names the parents. *out: the n parents by step; the caller frees it.
 * path: of the new file.
 *
 * RD_ECKPT: there are fewer than n, one of those that count is damaged or renamed, or they are not
 * of one model. RD_ENUMERIC: a weight is not finite. */
rd_code rd_ckpt_average(const char *dir, int n, bool best, rd_ckpt_parent **out, char path[4096],
                        rd_status *st);

/* Returns whether the file is called model-<n>.npz or best-<n>.npz with another step than the one
 * of its manifest, which counts. *named: the step of the name; -1: it has another name. */
bool rd_ckpt_renamed(const rd_ckpt *c, int64_t *named);
void rd_ckpt_release(rd_ckpt *c); /* a struct of zeros is fine */
/* Returns the largest step of a checkpoint in the folder, by the names of the files and by what the
 * file `checkpoint` names; -1: none. Reads no checkpoint. For callers outside of a run. */
int64_t rd_ckpt_newest_step(const char *dir);
/* Returns the step in a file name "<prefix>-<step>.npz" with nothing before or after and no leading
 * zeros; else -1. */
int64_t rd_ckpt_step_of(const char *file_name, const char *prefix);
/* Lets the file `checkpoint` name <prefix>-<step>.npz, unless it does so already. */
rd_code rd_ckpt_point(const char *dir, const char *prefix, int64_t step, rd_status *st);
/* Gives <from>-<step>.npz the prefix `to`. Returns whether that was done. */
bool rd_ckpt_rename(const char *dir, const char *from, const char *to, int64_t step);
/* Removes <prefix>-<step>.npz. A negative step or a missing file is fine. A file that cannot be
 * removed stays. */
void rd_ckpt_remove(const char *dir, const char *prefix, int64_t step);

/* Locks the log folder: an fcntl lock on <dir>/.lock that ends with its process. It belongs to the
 * open file, so a process cannot get it twice. Held by another process: RD_EUSAGE, with its pid and
 * host. *fd stays open until the end; closing it releases the lock. The file that is locked is the
 * one that the folder holds then. A file system without locks: RD_OK with a text in *warning
 * (RD_MSG_BYTES long). */
rd_code rd_logdir_lock(const char *dir, int *fd, char *warning, rd_status *st);
/* Fails unless <dir>/.lock is still the file that rd_logdir_lock locked as fd: the folder may have
 * been moved, removed or made anew, or its .lock removed, and another run may write there.
 * RD_EUSAGE: another process holds the lock of what is there now. RD_EENV: no process does. Call it
 * before each save. A file system that does not answer is no failure here. */
rd_code rd_logdir_check(const char *dir, int fd, rd_status *st);
/* Writes the identity of <dir>/.lock, as this host sees it. Returns false if there is none. For
 * ranks that do not hold the lock. */
bool rd_logdir_mark(const char *dir, uint64_t mark[2]);
/* Returns whether another process holds the folder's lock. */
bool rd_logdir_in_use(const char *dir);

RD_C_END
#endif
