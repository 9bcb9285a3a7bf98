/* help_configs.c -- the experiments: which set a key, a list of all, and their files.
 *
 * The folder of experiments is beside the program: of the source tree (build/release/run_dist ->
 * configs), or of an installation (bin/run_dist -> share/run_dist/configs). What the current folder
 * has comes first. */
#include "help_impl.h"
#include "rd/file.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 4096, NAMED_MOST = 64 };

bool rd_configs_folder(char out[PATH_MAX_BYTES])
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

/* Is the file, or the archive in front of a '!', there? */
static bool configs_there(const char *path)
{
    const size_t n = strcspn(path, "!");
    char file[2 * PATH_MAX_BYTES];
    snprintf(file, sizeof file, "%.*s", (int)(n < sizeof file ? n : sizeof file - 1), path);
    return access(path, F_OK) == 0 || access(file, F_OK) == 0;
}

bool rd_installed_path(const char *path, char out[2 * PATH_MAX_BYTES])
{
    static const char before[] = "configs/";
    char folder[PATH_MAX_BYTES];
    if (strncmp(path, before, sizeof before - 1) != 0 || strlen(path) >= PATH_MAX_BYTES ||
        configs_there(path) || !rd_configs_folder(folder))
        return false;
    snprintf(out, 2 * PATH_MAX_BYTES, "%s/%s", folder, path + sizeof before - 1);
    return configs_there(out);
}

bool rd_installed_config(const char *path, char out[2 * PATH_MAX_BYTES])
{
    char below[PATH_MAX_BYTES];
    const size_t n = strlen(path);
    if (strchr(path, '/')) return rd_installed_path(path, out);
    if (n < 6 || n > 1000 || access(path, F_OK) == 0) return false;
    snprintf(below, sizeof below, "configs/%s", path);
    if (access(below, F_OK) != 0) return rd_installed_path(below, out);
    strcpy(out, below);
    return true;
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
    if (rd_configs_folder(folder)) n = scandir(folder, &entry, is_config, alphasort);
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

/* "model mnist_cnn, dataset idx", "model seq2seq, source_file data/train.en" */
static void list_config(const char *folder, const char *name, FILE *out)
{
    static const char *const data[] = {"dataset", "source_file", "data_dir"};
    char path[2 * PATH_MAX_BYTES], left[96], text[512], shown[RD_SHOWN_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *root = help_config_load(path);
    const char *model = json_string_value(json_object_get(root, "model"));
    snprintf(left, sizeof left, "  %.80s", rd_shown(name, shown));
    snprintf(text, sizeof text, "model %.100s", model ? rd_shown(model, shown) : "seq2seq");
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        const json_t *v = json_object_get(root, data[i]);
        if (json_is_array(v)) v = json_array_get(v, 0);
        if (!json_is_string(v)) continue;
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, ", %s %.200s", data[i],
                 rd_shown(json_string_value(v), shown));
        break;
    }
    rd_help_pair(out, left, root ? text : "not readable", 32);
    json_decref(root);
}

rd_code rd_help_list_configs(FILE *out, rd_status *st)
{
    char folder[PATH_MAX_BYTES];
    struct dirent **entry = NULL;
    const int n = rd_configs_folder(folder) ? scandir(folder, &entry, is_config, alphasort) : -1;
    if (n < 0) return rd_fail(st, RD_EENV, "no folder of experiments is beside the program");
    for (int i = 0; i < n; i++) {
        list_config(folder, entry[i]->d_name, out);
        free(entry[i]);
    }
    free(entry);
    fprintf(out, "\nin %s\n", folder);
    return RD_OK;
}
