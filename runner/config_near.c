/* config_near.c -- a config that is not there: which one did the user mean? */
#include "rd/modes.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NAMES = 1000, PATH_BYTES = 4096 };

static int near_is_json(const struct dirent *e)
{
    const size_t n = strlen(e->d_name);
    return n > 5 && strncmp(e->d_name + n - 5, ".json", 5) == 0 &&
           strcmp(e->d_name, "schema.json") != 0;
}

/* Writes the path of the config in this folder whose name is nearest. Returns false if there is
 * none. folder: "" is the current one. */
static bool near_in_folder(const char *folder, const char *name, char out[2 * PATH_BYTES])
{
    struct dirent **entry = NULL;
    const char *known[MOST_NAMES];
    const int n = scandir(folder[0] ? folder : ".", &entry, near_is_json, alphasort);
    int k = 0;
    for (int i = 0; i < n && k < MOST_NAMES; i++) known[k++] = entry[i]->d_name;
    const char *nearest = k > 0 ? rd_nearest(name, known, k) : NULL;
    if (nearest)
        (void)snprintf(out, 2 * PATH_BYTES, "%s%s%s", folder, folder[0] ? "/" : "", nearest);
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
    return nearest != NULL;
}

/* Looks where the path leads, then in the current folder and its configs, then beside the
 * program. */
static bool near_config(const char *path, char out[2 * PATH_BYTES])
{
    char folder[PATH_BYTES] = "", name[PATH_BYTES];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t n = strlen(base);
    if (strlen(path) >= PATH_BYTES - 8) return false;
    if (slash) (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    (void)snprintf(name, sizeof name, "%s%s", base,
                   n > 5 && strcmp(base + n - 5, ".json") == 0 ? "" : ".json");
    if ((!slash || slash > path) && near_in_folder(folder, name, out)) return true;
    if (near_in_folder("", name, out) || near_in_folder("configs", name, out)) return true;
    return rd_configs_folder(folder) && near_in_folder(folder, name, out);
}

rd_code rd_config_is_there(const rd_cli *cli, rd_status *st)
{
    const char *path = cli->config_file;
    char near[2 * PATH_BYTES];
    if (!path || !path[0] || !strcmp(path, "-") || access(path, F_OK) == 0 || errno != ENOENT ||
        rd_installed_config(path, near))
        return RD_OK;
    if (near_config(path, near))
        return rd_fail(st, RD_EUSAGE,
                       "cannot open '%.300s': No such file or directory; did you mean '%.300s'?",
                       path, near);
    return rd_fail(st, RD_EUSAGE,
                   "cannot open '%.300s': No such file or directory; check the path, or begin with "
                   "--new_config=MODEL",
                   path);
}
