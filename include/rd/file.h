/* file.h -- opens files, reads whole files, replaces files atomically, makes folders, and computes
 * CRC32C. */
#ifndef RD_FILE_H
#define RD_FILE_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

/* Opens /dev/null as each of the descriptors 0, 1 and 2 that is closed. Else the next file that the
 * program opens gets that number, and takes what is printed. Reading and writing still fail. main
 * calls it first. */
void rd_open_standard(void);

/* Makes a pipe like pipe2(2) with O_CLOEXEC. Its ends are never 0, 1 or 2: dup2 to the same number
 * would keep O_CLOEXEC. */
int rd_pipe(int ends[2]);

/* Returns what a file of this st_mode is ("a pipe"); NULL: a regular file. */
const char *rd_file_kind(unsigned mode);
/* Opens a regular file to read. Never waits for another process, as open(2) does for a pipe that
 * has a name. *size: its bytes; NULL is fine. Returns the descriptor, or -1: *kind says what the
 * path names instead ("a pipe", "a folder"), or is NULL, and errno is set. */
int rd_open_input(const char *path, int64_t *size, const char **kind);
/* Does the same, and accepts the pipe of a shell's <(command); *size is then -1. */
int rd_open_input_or_pipe(const char *path, int64_t *size, const char **kind);
/* Opens a regular file to write. flags: O_WRONLY or O_RDWR, and O_CREAT, O_EXCL, O_APPEND, O_TRUNC.
 * Never waits, and follows no symbolic link: *kind is then "a symbolic link". Parts of the path
 * before the last one may be links. Returns like rd_open_input. */
int rd_open_output(const char *path, int flags, const char **kind);
/* Does the same. Returns -1 after a failure: RD_EENV, "cannot write '<path>': <reason>; <remedy>".
 */
int rd_open_record(const char *path, int flags, const char *remedy, rd_status *st);

/* Reads a whole file, plain or compressed with gzip. The first bytes show which it is; gzip's
 * checksums are verified. "-" and /dev/stdin are standard input, which may be a pipe. Other names
 * are of regular files, or of the pipe of a shell's <(command). An empty file is not a failure: *n
 * is 0. The caller frees *out with free(). One extra '\0' follows the n bytes.
 * `code` is the code for what is wrong with the file: missing, a folder, not readable, a truncated
 * .gz. Out of memory is RD_EENV. Messages name the path and the system's reason. */
rd_code rd_file_read(const char *path, rd_code code, char **out, size_t *n, rd_status *st);
/* Does the same for a file of at most `max` bytes, also after decompression. what: "a config", for
 * the message. */
rd_code rd_file_read_limited(const char *path, rd_code code, size_t max, const char *what,
                             char **out, size_t *n, rd_status *st);

/* A file that appears whole or not at all: write "<path>.tmp.<pid>", fsync,
 * rename, fsync the folder. */
typedef struct rd_tmpfile {
    int fd;     /* open for writing; 0 in an empty struct */
    int listed; /* 1 + its place in the list that rd_tmpfile_abandon reads; 0: not in the list */
    char path[4096], tmp[4200];
} rd_tmpfile;
/* Opens the temporary file. path is where the file appears after the commit. */
rd_code rd_tmpfile_open(rd_tmpfile *f, const char *path, rd_status *st);
/* Writes all n bytes. Continues after EINTR. */
rd_code rd_tmpfile_write(rd_tmpfile *f, const void *p, size_t n, rd_status *st);
/* Syncs and closes the file, gives it its final name, and syncs the folder. */
rd_code rd_tmpfile_commit(rd_tmpfile *f, rd_status *st);
/* Unlinks a file that was not committed. An empty struct is fine. */
void rd_tmpfile_release(rd_tmpfile *f);
/* Unlinks every file of all threads that is open and not committed, before a sudden _exit. A thread
 * that opens or commits a file afterwards waits for the end of the process. Signal handlers may
 * call it. */
void rd_tmpfile_abandon(void);
/* Writes a whole file in one call, through rd_tmpfile. */
rd_code rd_file_write_atomic(const char *path, const void *p, size_t n, rd_status *st);

/* Makes a folder and its parents, like mkdir -p. Failures are RD_EENV. */
rd_code rd_mkdirs(const char *path, rd_status *st);
/* Makes a folder in one that exists. Does not accept a symbolic link in its place. */
rd_code rd_mkdir_inside(const char *path, rd_status *st);
/* Returns whether path is a symbolic link to something that does not exist. Writes the link's
 * target to `target`, cut to `capacity` bytes. */
bool rd_link_dangles(const char *path, char *target, size_t capacity);

/* Returns the CRC32C (Castagnoli) of n bytes, as event files and checkpoints use it. crc: 0, or the
 * result for the bytes before. rd_crc32c(0, "123456789", 9) == 0xE3069283. Uses the CPU's
 * instruction if there is one. */
uint32_t rd_crc32c(uint32_t crc, const void *p, size_t n);
/* Returns the same value without that instruction. */
uint32_t rd_crc32c_table(uint32_t crc, const void *p, size_t n);

RD_C_END
#endif
