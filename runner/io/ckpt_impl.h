/* ckpt_impl.h -- the names and steps of a log folder's checkpoints, and the holder
 * of the folder's lock. */
#ifndef RD_CKPT_IMPL_H
#define RD_CKPT_IMPL_H

#include "rd/checkpoint.h"

/* ---- ckpt_dir.c ---- */
typedef struct rd_ckpt_list {
    int64_t *step; /* owned; largest first */
    int n;
} rd_ckpt_list;
/* Lists all "<prefix>-<step>.npz" of a folder. A folder that does not exist has none. The caller
 * releases *out. */
rd_code rd_ckpt_list_new(const char *dir, const char *prefix, rd_ckpt_list *out, rd_status *st);
void rd_ckpt_list_release(rd_ckpt_list *l);
/* Writes the path of this checkpoint to out. A path that is too long is RD_EUSAGE. */
rd_code rd_ckpt_path(const char *dir, const char *prefix, int64_t step, char out[4096],
                     rd_status *st);
/* Returns whether the file `checkpoint` names checkpoints with this prefix. Only those with
 * "model", from which training continues. */
bool rd_ckpt_has_pointer(const char *prefix);
/* Returns the step that the file `checkpoint` names; -1: there is no such file, or it names no
 * checkpoint, which sets *odd, or it is no file, and *kind says what it is ("a pipe"). */
int64_t rd_ckpt_pointer_read(const char *dir, const char *prefix, bool *odd, const char **kind);
/* Removes all but the newest `keep`. The one just written counts as the newest of all.
 * Those with later steps belong to a run that was cut off and continued from an earlier
 * step; they are removed first. */
rd_code rd_ckpt_retain(const char *dir, const char *prefix, int64_t written, int keep,
                       rd_status *st);
/* Removes temporary files whose writer is dead. */
void rd_ckpt_remove_stale(const char *dir);

/* ---- logdir_lock.c ---- */
typedef enum rd_lock_owner { RD_LOCK_FREE, RD_LOCK_OURS, RD_LOCK_OTHER } rd_lock_owner;
/* Returns who holds the folder's lock. */
rd_lock_owner rd_logdir_lock_owner(const char *dir);

#endif
