/* home_path.h -- "~" at the beginning of a path. */
#ifndef RD_HOME_PATH_H
#define RD_HOME_PATH_H

#include "rd/status.h"

RD_C_BEGIN

/* Writes the path with the folder of HOME in place of "~" to *out, for "~" and "~/...". The caller
 * owns *out; NULL: the path does not begin with '~' and stays as it is. Shells expand a '~' only at
 * the begin of a word, so --logdir=~/x reaches the program.
 *
 * RD_EUSAGE: "~name/...", or HOME names no folder. at: where the path was written, for the
 * message. */
rd_code rd_home_path(const char *path, const char *at, char **out, rd_status *st);

RD_C_END
#endif
