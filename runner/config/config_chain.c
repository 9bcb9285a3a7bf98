/* config_chain.c -- a config and the configs that it is based on.
 *
 * "base": "other.json" in a.json takes all keys of other.json, before those of a.json. The path is
 * relative to the folder of a.json. other.json may have a base, too. Rank 0 reads the files and
 * sends them to the other ranks as one block of bytes: for each file, the innermost base first, its
 * path, its text, and the lengths of both. */
#include "config_impl.h"
#include "rd/cli.h"
#include "rd/file.h"
#include "rd/home_path.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHAIN_MOST = 32, CHAIN_BYTES = 64 << 20 };

/* The files so far, the outermost first. */
typedef struct chain {
    char *path[CHAIN_MOST], *real[CHAIN_MOST]; /* owned; real: without links, to find circles */
    char *text[CHAIN_MOST];                    /* owned */
    size_t bytes[CHAIN_MOST];
    int n;
} chain;

static void chain_release(chain *c)
{
    for (int i = 0; i < c->n; i++) {
        free(c->path[i]);
        free(c->real[i]);
        free(c->text[i]);
    }
    c->n = 0;
}

/* Returns "a.json -> b.json -> a.json". */
static const char *chain_circle(const chain *c, int from, rd_strbuf *out)
{
    char shown[RD_SHOWN_BYTES];
    for (int i = from; i < c->n; i++) rd_strbuf_printf(out, "%s -> ", rd_shown(c->path[i], shown));
    rd_strbuf_printf(out, "%s", rd_shown(c->path[from], shown));
    return rd_strbuf_str(out);
}

/* Reads a file and adds it. Takes over path. at: where the path is written; NULL: on the command
 * line. */
static rd_code chain_add(chain *c, char *path, const char *at, rd_status *st)
{
    rd_strbuf circle = {0};
    const int n = c->n;
    if (!path) return rd_fail(st, RD_EENV, "out of memory for the config");
    char *real = realpath(path, NULL);
    for (int i = 0; real && i < n; i++)
        if (c->real[i] && !strcmp(c->real[i], real)) {
            rd_fail(st, RD_EUSAGE, "%s: 'base' leads in a circle: %s; remove one of them", at,
                    chain_circle(c, i, &circle));
            break;
        }
    if (n == CHAIN_MOST)
        rd_fail(st, RD_EUSAGE, "%s: more than %d configs are based on each other", at, CHAIN_MOST);
    char *text = NULL;
    size_t bytes = 0;
    if (st->code == RD_OK &&
        rd_file_read_limited(path, RD_EUSAGE, CHAIN_BYTES, "a config", &text, &bytes, st) !=
            RD_OK &&
        at)
        rd_status_prefix(st, "%s: 'base'", at);
    rd_strbuf_release(&circle);
    if (st->code != RD_OK) {
        free(path);
        free(real);
        return st->code;
    }
    c->path[n] = path;
    c->real[n] = real;
    c->text[n] = text;
    c->bytes[n] = bytes;
    c->n++;
    return RD_OK;
}

/* Returns the path of a base that is named in the file `in`. The caller owns it; NULL: out of
 * memory, or a failure in *st. */
static char *chain_path(const char *in, const char *base, const char *at, rd_status *st)
{
    char *home = NULL, *path = NULL;
    const char *slash = strrchr(in, '/');
    if (rd_home_path(base, at, &home, st) != RD_OK || home) return home;
    const bool beside = slash && base[0] != '/' && strncmp(in, "/dev/", 5) != 0;
    return asprintf(&path, "%.*s%s", beside ? (int)(slash + 1 - in) : 0, in, base) < 0 ? NULL
                                                                                       : path;
}

/* May the text have the key "base"? Most configs have none, and are not parsed twice. */
static bool may_have_base(const char *text, size_t n)
{
    return memmem(text, n, "\"base\"", 6) || memmem(text, n, "\\u", 2);
}

/* Adds the base of the last file. *more: there was one. */
static rd_code chain_next(chain *c, bool *more, rd_status *st)
{
    const int i = c->n - 1;
    char name[RD_CONFIG_PATH_BYTES], at[RD_CONFIG_PATH_BYTES + 48];
    json_t *root = NULL;
    rd_places places = {0};
    *more = false;
    if (!may_have_base(c->text[i], c->bytes[i])) return RD_OK;
    rd_shown_bytes(c->path[i], strlen(c->path[i]), name, sizeof name);
    RD_TRY(rd_json_load(name, c->text[i], c->bytes[i], &root, &places, st));
    const json_t *base = json_object_get(root, "base");
    if (!base) goto done;
    for (int k = 0; k < places.n; k++)
        if (!strcmp(places.at[k].key, "base"))
            snprintf(at, sizeof at, "%s:%" PRId64 ":%" PRId64, name, places.at[k].value_line,
                     places.at[k].value_col);
    const char *word = json_string_value(base);
    if (!word || !*word) {
        rd_fail(st, RD_EUSAGE, "%s: 'base' must be a string, the path of another config", at);
        goto done;
    }
    *more = true;
    char *path = chain_path(c->path[i], word, at, st);
    RD_TRY(st->code);
    (void)chain_add(c, path, at, st);
done:
    json_decref(root);
    rd_places_release(&places);
    return st->code;
}

rd_code rd_config_files_read(const char *path, rd_strbuf *out, rd_status *st)
{
    chain c = {.n = 0};
    bool more = true;
    char found[8192];
    RD_TRY(chain_add(&c, strdup(rd_installed_config(path, found) ? found : path), NULL, st));
    while (more) RD_TRY(chain_next(&c, &more, st));
    for (int i = c.n - 1; i >= 0; i--) {
        const int64_t size[2] = {(int64_t)strlen(c.path[i]) + 1, (int64_t)c.bytes[i]};
        rd_strbuf_add(out, size, sizeof size);
        rd_strbuf_add(out, c.path[i], (size_t)size[0]);
        rd_strbuf_add(out, c.text[i], c.bytes[i]);
    }
    if (out->failed) rd_fail(st, RD_EENV, "out of memory for the config");
done:
    chain_release(&c);
    return st->code;
}

rd_code rd_config_new_of_files(const void *files, size_t n, const rd_option_group *const *groups,
                               int n_groups, bool allow_unknown,
                               bool (*is_flag)(const char *name, const char **key), rd_config **out,
                               rd_status *st)
{
    const char *p = files;
    rd_config *c = NULL;
    *out = NULL;
    for (size_t at = 0; at < n;) {
        int64_t size[2];
        memcpy(size, p + at, sizeof size);
        const char *path = p + at + sizeof size, *text = path + size[0];
        if (!c)
            RD_TRY(rd_config_new_with_flags(path, text, (size_t)size[1], groups, n_groups,
                                            allow_unknown, is_flag, &c, st));
        else
            RD_TRY(rd_config_add(c, path, text, (size_t)size[1], st));
        at += sizeof size + (size_t)size[0] + (size_t)size[1];
    }
    *out = c;
    return RD_OK;
done:
    rd_config_free(c);
    return st->code;
}
