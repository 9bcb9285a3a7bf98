/* image_walk.h -- finds the images below a folder. */
#ifndef RD_IMAGE_WALK_H
#define RD_IMAGE_WALK_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

/* Why a file of the data is skipped. */
typedef enum rd_skip {
    RD_SKIP_NAME,   /* it is not named .jpg, .jpeg or .png */
    RD_SKIP_PLACE,  /* it is an image in no class folder */
    RD_SKIP_LINK,   /* a member of an archive that is a link to nothing in it, or a device */
    RD_SKIP_HIDDEN, /* its name begins with a dot */
    RD_SKIP_LOOP,   /* a link that leads back to a folder above it */
    RD_SKIPS
} rd_skip;

/* Returns whether the name ends with .jpg, .jpeg or .png, in any case. */
bool rd_image_named(const char *name);

/* Names of the entries of one folder, sorted by their bytes. */
typedef struct rd_names {
    char **at; /* owned list of owned names */
    int64_t n, cap;
} rd_names;
void rd_names_release(rd_names *x); /* a struct of zeros is fine */
/* Appends a copy of the name. */
rd_code rd_names_add(rd_names *x, const char *name, rd_status *st);

/* Receives what is found. Paths are those below the root, borrowed for the call. */
typedef struct rd_image_walk {
    void *ctx;
    rd_code (*image)(void *ctx, const char *path, rd_status *st);
    void (*skip)(void *ctx, rd_skip why, const char *path);
} rd_image_walk;

/* Lists the folders and the files of root/sub; links to them count as what they lead to. Hidden
 * ones are skipped. sub "": the root itself. RD_EDATA: it is no folder, a link leads nowhere, or a
 * pipe or a device has the name of an image. RD_EENV: a fault of the machine. */
rd_code rd_image_list(const char *root, const char *sub, const rd_image_walk *w, rd_names *folders,
                      rd_names *files, rd_status *st);

/* Finds all images of root/sub and of the folders in it: first the files of a folder, then its
 * folders, by name. A link that leads back to a folder above it is skipped. RD_EDATA also for
 * folders that are nested more than a hundred deep. */
rd_code rd_image_walk_below(const char *root, const char *sub, const rd_image_walk *w,
                            rd_status *st);

RD_C_END
#endif
