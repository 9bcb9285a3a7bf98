/* file.h -- whole files: read, and replace atomically. */
#ifndef RD_FILE_H
#define RD_FILE_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

/* Reads a whole file, plain or compressed with gzip (found by content; its checksum is verified). "-" and /dev/stdin
 * are standard input, which may be a pipe. An empty file is no failure: *n is 0. The caller frees *out with free();
 * it ends with one extra '\0' that *n does not count. Codes: `code` is used for what is wrong with the file
 * (missing, a folder, not readable, truncated .gz); RD_EENV for memory. Messages name the path and the system's
 * reason. */
rd_code rd_file_read(const char *path, rd_code code, char **out, size_t *n, rd_status *st);

/* A file that appears whole or not at all: written as "<path>.tmp.<pid>", fsync, rename, fsync of the folder. */
typedef struct rd_tmpfile {
    int fd;     /* open for writing; 0 in an empty struct */
    int listed; /* for rd_tmpfile_abandon */
    char path[4096], tmp[4200];
} rd_tmpfile;
rd_code rd_tmpfile_open(rd_tmpfile *f, const char *path, rd_status *st);
rd_code rd_tmpfile_write(rd_tmpfile *f, const void *p, size_t n,
                         rd_status *st); /* all bytes, EINTR handled */
rd_code rd_tmpfile_commit(rd_tmpfile *f, rd_status *st);
void rd_tmpfile_release(
    rd_tmpfile *f); /* unlinks what was not committed; an empty struct is fine */
/* Before an _exit in the middle of things: unlinks every file that is open and not committed, of all threads. A thread that
 * opens or commits one afterwards waits for the end of the process. Allowed in a signal handler. */
void rd_tmpfile_abandon(void);
rd_code rd_file_write_atomic(const char *path, const void *p, size_t n, rd_status *st);

rd_code rd_mkdirs(const char *path, rd_status *st); /* like mkdir -p; RD_EENV */
/* Is path a symbolic link to something that is not there? target: what it leads to, as far as there is room. */
bool rd_link_dangles(const char *path, char *target, size_t room);

/* CRC32C (Castagnoli), as event files and checkpoints use it. rd_crc32c(0, "123456789", 9) == 0xE3069283. Continues
 * from a previous value; uses the processor's instruction where there is one. */
uint32_t rd_crc32c(uint32_t crc, const void *p, size_t n);
uint32_t rd_crc32c_table(uint32_t crc, const void *p,
                         size_t n); /* the same without that instruction */

RD_C_END
#endif
