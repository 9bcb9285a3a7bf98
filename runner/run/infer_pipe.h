/* infer_pipe.h -- lines from a pipe or a terminal, in blocks: they are answered as they arrive. */
#ifndef RD_RUN_INFER_PIPE_H
#define RD_RUN_INFER_PIPE_H

#include "rd/status.h"
#include <stdint.h>

typedef struct infer_pipe {
    char *buf; /* owned: bytes read and not yet translated */
    size_t n, cap;
    size_t seen, ready; /* bytes of buf searched for ends of lines; bytes in whole lines */
    int64_t n_ready;    /* number of whole lines among them, at most `lines` */
    int64_t lines;      /* largest number of lines of a block */
    char end;           /* what ends a line */
    bool may_nul;       /* if the first bytes hold a NUL, that ends lines */
    bool ended;         /* the other side has closed the pipe */
    int64_t most;       /* a longer line without its end is passed on, and is an error there */
    int pause_ms;       /* a pause of this length means that the writer waits for the answer */
} infer_pipe;

/* Waits for lines of standard input, at most some seconds, and returns the number of bytes of the
 * next block. A block ends where a file's would, or where the writer pauses. */
rd_code infer_pipe_wait(infer_pipe *p, size_t *bytes, rd_status *st);

/* Removes the first bytes of the buffer. */
void infer_pipe_drop(infer_pipe *p, size_t bytes);

#endif
