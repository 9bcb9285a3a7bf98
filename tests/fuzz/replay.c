/* replay.c -- a main for fuzz targets without a fuzzer: runs them once on each input.
 *
 * Inputs are the files on the command line, and all files of the folders there, subfolders
 * included. A crash is a failure, and so is a run without input. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int complain(const char *path)
{
    fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
    return -1;
}

static int replay_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    if (!f) return complain(path);
    /* Exactly the file's size: the sanitizer sees a read past it. */
    uint8_t *data = malloc(size ? size : 1);
    const size_t n = data ? fread(data, 1, size, f) : 0;
    const int failed = !data || n != size || ferror(f);
    if (failed) (void)complain(path);
    (void)fclose(f);
    if (!failed) {
        fprintf(stderr, "%s\n", path); /* the last line before a crash is its input */
        (void)LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    return failed ? -1 : 1;
}

/* Runs the target on a file, or on all files of a folder. Returns the number of inputs, -1: an
 * error. */
static int replay(const char *path)
{
    struct stat s;
    if (stat(path, &s)) return complain(path);
    if (!S_ISDIR(s.st_mode)) return replay_file(path, (size_t)s.st_size);
    struct dirent **names = NULL;
    const int n = scandir(path, &names, NULL, alphasort);
    if (n < 0) return complain(path);
    int total = 0;
    for (int i = 0; i < n; i++) {
        char inner[4096];
        const char *name = names[i]->d_name;
        const int len = snprintf(inner, sizeof inner, "%s/%s", path, name);
        if (total >= 0 && strcmp(name, ".") && strcmp(name, "..")) {
            errno = ENAMETOOLONG;
            const int k = len < (int)sizeof inner ? replay(inner) : complain(path);
            total = k < 0 ? -1 : total + k;
        }
        free(names[i]);
    }
    free(names);
    return total;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        const int n = replay(argv[i]);
        if (n < 0) return 1;
        total += n;
    }
    if (total == 0) {
        fprintf(stderr, "replay: no input; usage: %s FILE_OR_FOLDER ...\n", argv[0]);
        return 1;
    }
    printf("replayed %d inputs\n", total);
    return 0;
}
