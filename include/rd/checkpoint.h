/* checkpoint.h -- model-<step>.npz with manifest and checksums, the file `checkpoint` that names the newest. Rank 0
 * only.
 *
 * Order of a save: space check, write under a temporary name, fsync, rename, fsync of the folder, replace `checkpoint`
 * the same way, then remove all but the newest `keep`. A kill at any moment leaves the previous one whole. */
#ifndef RD_CHECKPOINT_H
#define RD_CHECKPOINT_H
#include "rd/npz.h"
#include <jansson.h>
RD_C_BEGIN

/* name_prefix: "model" (periodic, final) or "best", which `checkpoint` never names. The manifest holds the entries of
 * `meta` (borrowed; an object: epoch, seed, np, config, ...) and ours, which win: step, format_version, and arrays with
 * each one's name, shape, type, CRC32C. keep <= 0: all; else the newest, the one just written first, and those of later
 * steps (of a run that was taken up from an earlier one) last. No space, disk full: RD_EENV, the previous one is whole,
 * nothing is left behind. */
rd_code rd_ckpt_save(const char *dir, const char *name_prefix, int64_t step, const rd_array *a,
                     int n, const json_t *meta, int keep, rd_status *st);

typedef struct rd_ckpt {
    rd_npz *npz;  /* owned */
    json_t *meta; /* owned; the manifest: entries of meta beside ours */
    int64_t step;
    char path[4096];
} rd_ckpt;
/* Newest whole checkpoint of a log folder: the one `checkpoint` names, else by number; checks the manifest and every
 * CRC; a damaged one is reported through *warning (RD_MSG_BYTES long, may be "") and the next older one is tried. None
 * at all: RD_OK with out->npz NULL; all damaged, or the newest of a later format: RD_ECKPT; no permission or memory:
 * RD_EENV. Left-over temporary files of dead processes are removed, unless another process holds the folder's lock. */
rd_code rd_ckpt_load_newest(const char *dir, const char *name_prefix, rd_ckpt *out, char *warning,
                            rd_status *st);
rd_code rd_ckpt_load(const char *path, rd_ckpt *out, rd_status *st);
void rd_ckpt_release(rd_ckpt *c); /* an empty one (all zero) is fine */
/* From outside of a run: the step of the checkpoint that the file `checkpoint` names; -1: none. */
int64_t rd_ckpt_named_step(const char *dir);

/* The log folder's lock: an fcntl lock (of the open file: also one process gets it once) on <dir>/.lock that dies with
 * its process. Held by another: RD_EUSAGE, names pid and host. *fd: keep open until the end, close gives the lock back.
 * A file system without locks: RD_OK with a text in *warning (RD_MSG_BYTES long). */
rd_code rd_logdir_lock(const char *dir, int *fd, char *warning, rd_status *st);
bool rd_logdir_in_use(const char *dir); /* by another process */

RD_C_END
#endif
