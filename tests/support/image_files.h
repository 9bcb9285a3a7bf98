/* image_files.h -- makes image data for tests: pictures, JPEGs, tar archives, files, and datasets
 * of them.
 *
 * Each picture has a fixed seed. A failure here ends the program. */
#ifndef RD_TESTS_IMAGE_FILES_H
#define RD_TESTS_IMAGE_FILES_H

#include "rd/data.h"
#include <stddef.h>

/* Make a new folder for the test's files, and remove it with all its files. out: 256 bytes. */
void files_begin(char *out);
void files_end(const char *dir);

/* The same as functions for cmocka: one folder for all tests of a program. files_at returns a path
 * in it, valid until the second call after this one. */
int files_set_up(void **state);
int files_tear_down(void **state);
const char *files_dir(void);
const char *files_at(const char *name);

/* Write a file; files_put_gz compresses it with gzip. */
void files_put(const char *path, const void *p, size_t n);
void files_put_gz(const char *path, const void *p, size_t n);
void files_mkdir(const char *path);

/* Reads a file of *n bytes. The caller frees the result. */
char *files_get(const char *path, size_t *n);

/* Makes a smooth picture of h x w x c bytes, different for every seed. */
void picture(int h, int w, int c, unsigned seed, uint8_t *out);

/* Makes the same picture as a JPEG and returns its size. The caller frees *out. c: 1 grey, 3
 * colour, 4 CMYK. */
size_t picture_jpeg(int h, int w, int c, unsigned seed, uint8_t **out);

/* A tar archive that libarchive writes. If its name ends in .gz, it is compressed with gzip. */
typedef struct tar_out tar_out;
tar_out *tar_out_new(const char *path);
void tar_out_put(tar_out *t, const char *name, const void *p, size_t n);
void tar_out_end(tar_out *t);

/* Opens a dataset. config: JSON with ' instead of ", and @ for the folder dir. */
rd_code images_open(const char *dataset, const char *dir, const char *config, rd_mode mode,
                    rd_split split, rd_comm *comm, rd_log *log, rd_dataset **d, rd_status *st);

/* Reads all samples of a dataset in order, in batches of `batch`, and announces each batch first.
 * Checks the fields. The caller frees *out. labels: array for all labels, NULL: not wanted. */
rd_code images_all(const rd_dataset *d, int64_t batch, int64_t epoch, float **out, int64_t *n,
                   int32_t *labels, rd_status *st);

#endif
