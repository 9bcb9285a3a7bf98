/* image_files.h -- image data for tests, made with a fixed seed: JPEG pictures, tar archives, IDX and CIFAR bytes, and
 * a dataset opened on them. A failure here ends the program. */
#ifndef RD_TESTS_IMAGE_FILES_H
#define RD_TESTS_IMAGE_FILES_H

#include "rd/data.h"
#include <stddef.h>

/* A new folder for the test's files, and its removal with all that is in it. out: 256 bytes. */
void files_begin(char *out);
void files_end(const char *dir);

/* The same as a set-up and a tear-down of cmocka: one folder for all tests of a program. files_at: a path in it; of the
 * last two calls both are valid. */
int files_set_up(void **state);
int files_tear_down(void **state);
const char *files_dir(void);
const char *files_at(const char *name);

void files_put(const char *path, const void *p, size_t n);
void files_put_gz(const char *path, const void *p, size_t n); /* compressed with gzip */
void files_mkdir(const char *path);
char *files_get(const char *path, size_t *n); /* the caller frees it */

/* A smooth picture, different for every seed, h x w x c bytes. */
void picture(int h, int w, int c, unsigned seed, uint8_t *out);
/* The same as a JPEG; the caller frees *out. c: 1 grey, 3 colour, 4 CMYK. */
size_t picture_jpeg(int h, int w, int c, unsigned seed, uint8_t **out);

/* A tar archive, written with libarchive; gzip by the end of its name, .gz. */
typedef struct tar_out tar_out;
tar_out *tar_out_new(const char *path);
void tar_out_put(tar_out *t, const char *name, const void *p, size_t n);
void tar_out_end(tar_out *t);

/* config: JSON with ' for ", and @ for the folder dir. */
rd_code images_open(const char *dataset, const char *dir, const char *config, rd_mode mode,
                    rd_split split, rd_comm *comm, rd_log *log, rd_dataset **d, rd_status *st);
/* All samples of a dataset in order, in batches of `batch`; each batch announced first. The caller frees *out. Checks
 * the fields. labels: room for all; NULL: not wanted. */
rd_code images_all(const rd_dataset *d, int64_t batch, int64_t epoch, float **out, int64_t *n,
                   int32_t *labels, rd_status *st);

#endif
