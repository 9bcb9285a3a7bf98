/* home_path.c -- "~" at the beginning of a path. */
#include "rd/home_path.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rd_code rd_home_path(const char *path, const char *at, char **out, rd_status *st)
{
    const char *home = getenv("HOME");
    *out = NULL;
    if (path[0] != '~') return RD_OK;
    if (path[1] && path[1] != '/')
        return rd_fail(st, RD_EUSAGE,
                       "%s: the home folder of another user is not known here; write the whole "
                       "path, or ./ in front of a name that begins with ~",
                       at);
    if (!home || home[0] != '/')
        return rd_fail(st, RD_EUSAGE,
                       "%s: the environment variable HOME names no folder; write the whole path",
                       at);
    size_t n = strlen(home);
    while (n > 1 && home[n - 1] == '/') n--;
    if (asprintf(out, "%.*s%s", (int)n, home, path + 1) < 0) {
        *out = NULL;
        return rd_fail(st, RD_EENV, "out of memory for a path");
    }
    return RD_OK;
}
