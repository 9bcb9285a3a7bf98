/* ckpt_impl.h -- the checkpoints of a log folder as names and numbers, and who holds the folder's lock. */
#ifndef RD_CKPT_IMPL_H
#define RD_CKPT_IMPL_H

#include "rd/checkpoint.h"

/* ---- ckpt_dir.c ---- */
typedef struct rd_ckpt_list {
    int64_t *step; /* owned; largest first */
    int n;
} rd_ckpt_list;
/* All "<prefix>-<step>.npz" of a folder. A folder that is not there holds none. */
rd_code rd_ckpt_list_new(const char *dir, const char *prefix, rd_ckpt_list *out, rd_status *st);
void rd_ckpt_list_release(rd_ckpt_list *l);
/* "<prefix>-<step>.npz", nothing before or after, no leading zeros: the step; else -1. */
int64_t rd_ckpt_step_of(const char *file_name, const char *prefix);
rd_code rd_ckpt_path(const char *dir, const char *prefix, int64_t step, char out[4096],
                     rd_status *st);
/* Does this prefix have the file `checkpoint`? Only "model": what training goes on from. */
bool rd_ckpt_has_pointer(const char *prefix);
/* The step that the file `checkpoint` names; -1: no such file, or (*odd) it names no checkpoint. */
int64_t rd_ckpt_pointer_read(const char *dir, const char *prefix, bool *odd);
/* Removes all but the newest `keep`, counting the one just written as the newest of all: those with later steps belong
 * to a run that was cut off and taken up again from an earlier step, and go first. */
rd_code rd_ckpt_retain(const char *dir, const char *prefix, int64_t written, int keep,
                       rd_status *st);
/* Removes temporary files whose writer is dead. */
void rd_ckpt_remove_stale(const char *dir);

/* ---- logdir_lock.c ---- */
typedef enum rd_lock_owner { RD_LOCK_FREE, RD_LOCK_OURS, RD_LOCK_OTHER } rd_lock_owner;
rd_lock_owner rd_logdir_lock_owner(const char *dir);

#endif
