/* scratch_dir.h -- a folder for the files of a test, made before the group and removed after it.
 *
 * With RD_TEST_KEEP=FOLDER the test uses that folder and leaves its files there, for the check_*.py
 * scripts, which read them with other programs. */
#ifndef RD_TESTS_SCRATCH_DIR_H
#define RD_TESTS_SCRATCH_DIR_H

#include "test.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Global, because cmocka's set-up functions cannot return it in another way. */
static char dir[256];

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

/* Returns the path of a file in the folder, valid until the fourth call after this one. */
static inline const char *in_dir(const char *name)
{
    static char path[4][768];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

/* Removes the files in the folder. A folder in it makes the test fail. */
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
