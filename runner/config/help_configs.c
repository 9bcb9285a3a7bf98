/* help_configs.c -- which experiments set a key. The folder of experiments is beside the program:
 * of the source tree (build/release/run_dist -> configs), or of an installation (bin/run_dist ->
 * share/run_dist/configs). */
#include "help_impl.h"
#include "rd/file.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 4096, NAMED_MOST = 64 };

/* The folder, from the program's own path; false: there is none. */
static bool find_folder(char out[PATH_MAX_BYTES])
{
    static const char *const from_program[] = {"/../share/run_dist/configs", "/../../configs"};
    char self[PATH_MAX_BYTES], path[2 * PATH_MAX_BYTES];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash) return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof from_program / sizeof *from_program; i++) {
        snprintf(path, sizeof path, "%s%s", self, from_program[i]);
        char *real = realpath(path, NULL);
        const bool fits = real && strlen(real) < PATH_MAX_BYTES;
        if (fits) strcpy(out, real);
        free(real);
        if (fits) return true;
    }
    return false;
}

static int is_config(const struct dirent *e)
{
    const size_t n = strlen(e->d_name);
    return n > 5 && !strcmp(e->d_name + n - 5, ".json") && strcmp(e->d_name, "schema.json") != 0;
}

/* NULL: not readable, or not JSON. */
static json_t *help_config_load(const char *path)
{
    enum { MOST = 1 << 20 };
    char *text = NULL;
    size_t bytes = 0;
    rd_status st = {0};
    if (rd_file_read_limited(path, RD_EUSAGE, MOST, "a config", &text, &bytes, &st) != RD_OK)
        return NULL;
    rd_json_relax(text, bytes);
    json_t *root = json_loadb(text, bytes, 0, NULL);
    free(text);
    return root;
}

void rd_help_configs(const char *key, int indent, FILE *out)
{
    char folder[PATH_MAX_BYTES], path[2 * PATH_MAX_BYTES];
    struct dirent **entry = NULL;
    int n = -1, found = 0;
    if (find_folder(folder)) n = scandir(folder, &entry, is_config, alphasort);
    if (n < 0) {
        fputs("no folder of experiments is beside the program\n", out);
        return;
    }
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        json_t *root = help_config_load(path);
        const json_t *v = json_object_get(root, key);
        char shown[RD_SHOWN_BYTES], file[RD_SHOWN_BYTES], real[32];
        if (v && found++ < NAMED_MOST)
            fprintf(out, "%*s%s: %s\n", found > 1 ? indent : 0, "",
                    rd_shown(entry[i]->d_name, file),
                    json_is_real(v) ? rd_shown_real(json_real_value(v), real)
                                    : rd_shown_json(v, shown));
        json_decref(root);
        free(entry[i]);
    }
    free(entry);
    if (!found) fputs("no experiment\n", out);
    fprintf(out, "%*s(in %s)\n", indent, "", folder);
}
