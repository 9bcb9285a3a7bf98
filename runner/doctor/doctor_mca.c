/* doctor_mca.c -- finds the settings that Open MPI will run with.
 *
 * Later sources take precedence, as in Open MPI itself: the machine's file, the user's file, the
 * environment, the words of mpirun's line. (In a rank, mpirun --mca arrives as environment.) */
#include "doctor_impl.h"
#include "rd/file.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The settings that rules or lines need; all others are ignored. */
static const char *const known_settings[] = {"btl",
                                             "pml",
                                             "mtl",
                                             "btl_tcp_if_include",
                                             "btl_tcp_if_exclude",
                                             "oob_tcp_if_include",
                                             "oob_tcp_if_exclude",
                                             "btl_tcp_port_min_v4",
                                             "btl_tcp_port_range_v4",
                                             "oob_tcp_dynamic_ipv4_ports",
                                             "plm_rsh_args",
                                             "plm_rsh_agent",
                                             "btl_vader_single_copy_mechanism",
                                             "hwloc_base_binding_policy",
                                             "rmaps_base_mapping_policy",
                                             "mpi_yield_when_idle",
                                             NULL};

static bool is_known_setting(const char *name)
{
    for (int i = 0; known_settings[i]; i++)
        if (strcmp(known_settings[i], name) == 0) return true;
    return false;
}

static void store_setting(json_t *mca, const char *name, const char *value, const char *source)
{
    if (!is_known_setting(name)) return;
    json_object_set_new(mca, name, json_pack("{s:s, s:s}", "value", value, "source", source));
}

/* Removes white space, and quotes around the whole, in place. */
static char *trim_value(char *s)
{
    while (isspace((unsigned char)*s)) s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1])) s[--n] = '\0';
    if (n > 1 && s[0] == '"' && s[n - 1] == '"') {
        s[n - 1] = '\0';
        s++;
    }
    return s;
}

/* Reads lines "name = value". A file that does not exist has none. */
static void read_settings_file(json_t *mca, const char *path)
{
    char line[4096];
    const char *kind;
    const int fd = rd_open_input(path, NULL, &kind);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!f && fd >= 0) (void)close(fd);
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *key = line, *eq;
        line[strcspn(line, "#\n")] = '\0';
        eq = strchr(line, '=');
        if (!eq) continue;
        *eq = '\0';
        key = trim_value(key);
        store_setting(mca, key, trim_value(eq + 1), path);
    }
    fclose(f);
}

/* Reads "--mca name value", with one dash or two. */
static void read_settings_args(json_t *mca, const char *args)
{
    rd_status own = {0};
    char **w = NULL;
    int n = 0;
    if (doc_words(args, &w, &n, &own) == RD_OK)
        for (int i = 0; i + 2 < n; i++) {
            const char *s = w[i] + (w[i][0] == '-') + (w[i][0] == '-' && w[i][1] == '-');
            if (s != w[i] && (strcmp(s, "mca") == 0 || strcmp(s, "gmca") == 0))
                store_setting(mca, w[i + 1], w[i + 2], "mpirun's line");
        }
    doc_words_free(w, n);
}

json_t *doc_mca_environment(void)
{
    char name[128];
    json_t *mca = json_object();
    for (int i = 0; mca && known_settings[i]; i++) {
        (void)snprintf(name, sizeof name, "OMPI_MCA_%s", known_settings[i]);
        if (getenv(name)) store_setting(mca, known_settings[i], getenv(name), "environment");
    }
    return mca;
}

json_t *doc_mca_new(const char *args)
{
    return doc_mca_with(NULL, args);
}

json_t *doc_mca_with(const json_t *environment, const char *args)
{
    static const char *const folders[] = {"OPAL_PREFIX", "MPI_HOME"};
    char path[4200];
    json_t *mca = json_object();
    if (!mca) return NULL;
    read_settings_file(mca, "/etc/openmpi/openmpi-mca-params.conf");
    for (int i = 0; i < 2; i++)
        if (getenv(folders[i])) {
            (void)snprintf(path, sizeof path, "%.4096s/etc/openmpi-mca-params.conf",
                           getenv(folders[i]));
            read_settings_file(mca, path);
        }
    if (getenv("HOME")) {
        (void)snprintf(path, sizeof path, "%.4096s/.openmpi/mca-params.conf", getenv("HOME"));
        read_settings_file(mca, path);
    }
    json_t *own = doc_mca_environment();
    (void)json_object_update(mca, own);
    (void)json_object_update(mca, (json_t *)(uintptr_t)environment);
    json_decref(own);
    if (args) read_settings_args(mca, args);
    return mca;
}

const char *doc_mca(const json_t *mca, const char *name)
{
    return json_string_value(json_object_get(json_object_get(mca, name), "value"));
}

const char *doc_mca_source(const json_t *mca, const char *name)
{
    return doc_text(json_object_get(mca, name), "source");
}

/* Returns the number at s, cut to -1 .. 65536. Neither bound is a port. *end: behind it. */
static int mca_number(const char *s, char **end)
{
    const long n = strtol(s, end, 10);
    return n < 0 ? -1 : n > 65536 ? 65536 : (int)n;
}

bool doc_mca_ports(const json_t *mca, const char *which, int *first, int *last)
{
    char *end;
    /* "46000-46049", or a list of ranges. The first range counts. */
    if (strcmp(which, "oob_tcp") == 0) {
        const char *s = doc_mca(mca, "oob_tcp_dynamic_ipv4_ports");
        *first = *last = s ? mca_number(s, &end) : 0;
        if (s && *end == '-' && isdigit((unsigned char)end[1])) *last = mca_number(end + 1, &end);
        return *first > 0 && *last >= *first && *last < 65536;
    }
    const char *least = doc_mca(mca, "btl_tcp_port_min_v4"),
               *range = doc_mca(mca, "btl_tcp_port_range_v4");
    *first = least ? mca_number(least, &end) : 0;
    *last = *first + (range ? mca_number(range, &end) : 64511) - 1;
    if (*last > 65535) *last = 65535;
    /* 1024 is Open MPI's own value for "any port". */
    return *first > 1024 && *last >= *first;
}

rd_code doc_words(const char *text, char ***words, int *n, rd_status *st)
{
    const size_t cap = strlen(text) / 2 + 2;
    *n = 0;
    *words = calloc(cap, sizeof **words);
    if (!*words) return rd_fail(st, RD_EENV, "out of memory for the words of a line");
    for (const char *s = text;;) {
        while (isspace((unsigned char)*s)) s++;
        if (!*s) return RD_OK;
        char *w = malloc(strlen(s) + 1), quote = '\0';
        size_t m = 0;
        if (!w) return rd_fail(st, RD_EENV, "out of memory for the words of a line");
        for (; *s && (quote || !isspace((unsigned char)*s)); s++) {
            if (quote ? *s == quote : *s == '"' || *s == '\'')
                quote = quote ? '\0' : *s;
            else
                w[m++] = *s;
        }
        w[m] = '\0';
        (*words)[(*n)++] = w;
        if (quote) return rd_fail(st, RD_EUSAGE, "a quote has no end: %.200s", text);
    }
}

void doc_words_free(char **words, int n)
{
    for (int i = 0; i < n; i++) free(words[i]);
    free(words);
}
