/* infer_sink.h -- where infer mode writes: standard output, a device or pipe, or a file that
 * appears whole. */
#ifndef RD_RUN_INFER_SINK_H
#define RD_RUN_INFER_SINK_H

#include "rd/file.h"
#include "rd/strbuf.h"

typedef struct infer_sink {
    rd_tmpfile file; /* valid when to_file */
    int fd;          /* valid otherwise */
    bool to_file;
    bool terminal;    /* a person reads it: what may not be shown is escaped */
    const char *name; /* NULL: standard output */
} infer_sink;

/* Opens the file of --inference_out. path NULL, "", "-" or "stdout": standard output. RD_EENV: a
 * folder, or what cannot be written. The caller releases *o, also after a failure. */
rd_code infer_sink_open(infer_sink *o, const char *path, rd_status *st);
rd_code infer_sink_write(infer_sink *o, const char *p, size_t n, rd_status *st);
/* Gives a file its name; does nothing for what is no file. */
rd_code infer_sink_commit(infer_sink *o, rd_status *st);
void infer_sink_release(infer_sink *o);

/* Appends a text of several lines as a terminal may show it. */
void infer_sink_shown(rd_strbuf *out, const char *text, size_t n);

#endif
