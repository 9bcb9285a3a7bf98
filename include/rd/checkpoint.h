/* checkpoint.h -- model-<step>.npz with manifest and checksums, the file `checkpoint` that names the newest. Rank 0 only.
 *
 * Order of a save: space check, write under a temporary name, fsync, rename, fsync of the folder, replace `checkpoint` the same
 * way, then remove all but the newest `keep`. A kill at any moment leaves the previous one whole. */
#ifndef RD_CHECKPOINT_H
#define RD_CHECKPOINT_H
#include "rd/npz.h"
#include <jansson.h>
RD_C_BEGIN

/* name_prefix: "model" (periodic, final) or "best". The manifest holds `meta` (borrowed; step, epoch, seed, np, config, ...),
 * format version, and per array name, shape, type, CRC32C. keep <= 0: all. */
rd_code rd_ckpt_save(const char *dir, const char *name_prefix, int64_t step, const rd_array *a, int n, const json_t *meta,
                     int keep, rd_status *st);

typedef struct rd_ckpt {
    rd_npz *npz;          /* owned */
    json_t *meta;         /* owned; the manifest */
    int64_t step;
    char path[4096];
} rd_ckpt;
/* Newest whole checkpoint of a log folder: the one `checkpoint` names, else by number; checks the manifest and every CRC; a
 * damaged one is reported through *warning (RD_MSG_BYTES long, may be "") and the next older one is tried. None at all: RD_OK
 * with out->npz NULL; all damaged: RD_ECKPT. Left-over temporary files of dead processes are removed. */
rd_code rd_ckpt_load_newest(const char *dir, const char *name_prefix, rd_ckpt *out, char *warning, rd_status *st);
rd_code rd_ckpt_load(const char *path, rd_ckpt *out, rd_status *st);
void rd_ckpt_release(rd_ckpt *c);

/* The log folder's lock: an fcntl lock on <dir>/.lock that dies with its process. Held by another: RD_EUSAGE, names pid and
 * host. *fd: keep open until the end. A file system without locks: RD_OK with a warning text. */
rd_code rd_logdir_lock(const char *dir, int *fd, char *warning, rd_status *st);

RD_C_END
#endif
