/* predict_input.h -- the paths of the images that infer mode classifies. Rank 0 only. */
#ifndef RD_RUN_PREDICT_INPUT_H
#define RD_RUN_PREDICT_INPUT_H

#include "infer_pipe.h"
#include "rd/image_walk.h"
#include "rd/strbuf.h"

enum { PREDICT_CHUNK = 1024 }; /* largest number of images of a block */

typedef struct predict_input {
    rd_strbuf paths; /* paths that each end with '\0' */
    size_t at;       /* offset of the first one that was not handed out */
    int64_t n;       /* number of paths; piped: of those handed out */
    bool piped;      /* more paths come from standard input */
    infer_pipe pipe;
    int64_t skipped[RD_SKIPS]; /* files of a folder, by reason */
    char first[RD_SKIPS][160]; /* the first one of each */
} predict_input;

/* Opens what --input names: an image, a folder of images, a list with one path a line, or "-", such
 * a list from standard input. RD_EDATA: nothing of that is there, or a folder has no image. The
 * caller releases *in, also after a failure. */
rd_code predict_input_open(predict_input *in, const char *name, rd_status *st);

/* Hands out the next block of paths that each end with '\0', and waits for them if they come from a
 * pipe. A block of 0 bytes means that none came in time. *ended: it is the last one. Borrowed until
 * the next call. */
rd_code predict_input_next(predict_input *in, const char **paths, size_t *bytes, bool *ended,
                           rd_status *st);
void predict_input_release(predict_input *in);

#endif
