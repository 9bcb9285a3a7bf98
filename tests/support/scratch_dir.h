/* scratch_dir.h -- the folder a test writes in: made before the group, empty and gone after it. With
 * RD_TEST_KEEP=FOLDER that folder is used and its files stay, for the check_*.py scripts that look at them with other
 * programs. */
#ifndef RD_TESTS_SCRATCH_DIR_H
#define RD_TESTS_SCRATCH_DIR_H

#include "test.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[256]; /* cmocka's set-up functions have no place of their own to leave it */

static inline int make_dir(void **state)
{
    const char *keep = getenv("RD_TEST_KEEP"), *tmp = getenv("TMPDIR");
    (void)state;
    if (keep)
        snprintf(dir, sizeof dir, "%s", keep);
    else
        snprintf(dir, sizeof dir, "%.200s/rd_test_XXXXXX", tmp ? tmp : "/tmp");
    return keep || mkdtemp(dir) ? 0 : -1;
}

/* The path of a file in it; good until the fourth call after this one. */
static inline const char *in_dir(const char *name)
{
    static char path[4][768];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

/* Removes the files in it; a folder in it makes the test fail. */
static inline void empty_dir(void)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
    closedir(d);
}

static inline int remove_dir(void **state)
{
    (void)state;
    if (getenv("RD_TEST_KEEP")) return 0;
    empty_dir();
    return rmdir(dir);
}

#endif
