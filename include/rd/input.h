/* input.h -- opens and reads files and folders, tries again after a fault that may pass, and tells
 * faults of the machine from faults of the data.
 *
 * A file server that restarts, a full table of open files or a lost packet ends a read with an
 * error that is gone a moment later. The functions wait and try again: 0.1 s, then twice as long
 * each time, at most 30 s. EINTR costs no try. After ESTALE the file is opened again by its name,
 * and the read goes on if size and time of change are the same as before. All functions may be
 * called by several threads. They return the system's error in errno. */
#ifndef RD_INPUT_H
#define RD_INPUT_H

#include "rd/log.h"
#include "rd/status.h"
#include <stdint.h>
#include <sys/types.h>

RD_C_BEGIN

struct stat;
struct archive;

/* Sets how often one call is tried again, for the whole process: 0 .. RD_MOST_RETRIES. */
enum { RD_USUAL_RETRIES = 9, RD_MOST_RETRIES = 20 };
void rd_retries_allow(int n);
/* Sets the log that warns of the first retry of a call. Borrowed; NULL: none. */
void rd_retries_log(rd_log *l);
/* Returns how often this process has tried again. */
int64_t rd_retries(void);

/* Returns whether the fault may pass by itself (EIO, ESTALE, EAGAIN, a lost connection). ENOENT is
 * none of them. */
bool rd_fault_passes(int err);
/* Returns RD_EENV for a fault of the machine: the disk, the network, memory, permissions, limits.
 * Returns `code` for what is wrong with the path itself: no such file, a folder, a loop of
 * links. */
rd_code rd_fault_code(int err, rd_code code);
/* Fails with "cannot <verb> '<path>': <the system's text>; <what to do>", and rd_fault_code(err,
 * code). remedy: what to do if the code is `code`; NULL: nothing is added. */
rd_code rd_input_fails_(rd_status *st, rd_code code, const char *where, const char *verb,
                        const char *path, int err, const char *remedy);
#define rd_input_fails(st, code, verb, path, err, remedy) \
    rd_failed_(rd_input_fails_((st), (code), RD_HERE, (verb), (path), (err), (remedy)))
/* Returns "; " and what the user can do about an error of a file, or "". */
const char *rd_fault_remedy(int err);

/* RD_LISTED: the path was there before, so ENOENT on a network file system is a fault that may
 * pass. RD_MAYBE: the path may be missing. */
typedef enum rd_presence { RD_MAYBE, RD_LISTED } rd_presence;

/* A file that is open to be read. */
typedef struct rd_input rd_input;
/* Opens a regular file, and never waits for another process. Returns NULL after a failure: *kind
 * says what the path names instead ("a pipe"), or is NULL, and errno is set. The caller owns the
 * result. */
rd_input *rd_input_open(const char *path, rd_presence presence, const char **kind);
/* Does the same, and accepts the pipe of a shell's <(command). */
rd_input *rd_input_open_or_pipe(const char *path, rd_presence presence, const char **kind);
/* Fails after one of these calls: "'x' is a pipe, not a regular file", or as rd_input_fails. */
#define rd_input_not_open(st, code, path, kind, err, remedy)                          \
    ((kind) ? rd_fail((st), (code), "'%s' is %s, not a regular file", (path), (kind)) \
            : rd_input_fails((st), (code), "open", (path), (err), (remedy)))
/* Reads from a descriptor that is open already, such as standard input. The result owns it. */
rd_input *rd_input_of(int fd, const char *name);
void rd_input_close(rd_input *in); /* NULL is fine */
/* Returns what stat said when the file was opened. Borrowed. */
const struct stat *rd_input_stat(const rd_input *in);
/* Reads n bytes, fewer only at the end of the file, or where a pipe has no more yet. Returns their
 * number, 0 at the end; -1: see errno. rd_input_read continues where the last one ended; only one
 * thread may call it. */
ssize_t rd_input_read(rd_input *in, void *p, size_t n);
ssize_t rd_input_pread(rd_input *in, void *p, size_t n, int64_t at);
/* Returns where the next rd_input_read begins; of a pipe, 0. */
int64_t rd_input_at(const rd_input *in);
/* Returns the error of the first read that failed for good; 0: none did. libarchive reports only
 * that something failed. */
int rd_input_error(const rd_input *in);
/* Makes `to`, whose formats are set, read the file. Returns libarchive's code. `in` must outlive
 * the use of `to`. */
int rd_input_archive(rd_input *in, struct archive *to);

/* Works as stat does. Returns 0 or -1. */
int rd_path_stat(const char *path, struct stat *out, rd_presence presence);
/* Sets *there to whether something is at the path. Fails after a fault of the machine: what cannot
 * be seen is not missing. */
rd_code rd_path_there(const char *path, bool *there, rd_status *st);

/* The entries of a folder, in no order, without "." and "..". */
typedef struct rd_folder_entry {
    char *name;
    unsigned char type; /* dirent's d_type */
} rd_folder_entry;
typedef struct rd_folder {
    rd_folder_entry *entry; /* owned */
    int64_t n, capacity;
} rd_folder;
/* Lists a folder, whole or not at all. Returns 0 or -1. */
int rd_folder_list(const char *path, rd_presence presence, rd_folder *out);
void rd_folder_release(rd_folder *f);

RD_C_END
#endif
