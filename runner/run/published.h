/* published.h -- weights in the folders of other programs (rd/weights_folder.h). */
#ifndef RD_RUN_PUBLISHED_H
#define RD_RUN_PUBLISHED_H

#include "run.h"

/* Finds out whether a path is such a folder, and whether the model reads it: else RD_EUSAGE. */
rd_code published_there(const rd_run *r, const char *path, bool *there, rd_status *st);

/* Copies the weights of a folder to the parameters. RD_ECKPT: an array is missing, has another
 * shape or is not used, and init_allow_missing is not set; inf or NaN. Rank 0 only. */
rd_code published_load(rd_run *r, const char *folder, rd_status *st);

#endif
