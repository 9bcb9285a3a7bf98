/* starts.c -- starts.jsonl of a log folder. A start has two lines, its begin and its end. One that
 * was killed has no end. Rank 0 writes, and holds the lock of the folder. */
#include "starts.h"
#include "world.h"
#include "rd/file.h"
#include "rd/input.h"
#include "rd/program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CONFIG_BYTES = 16 << 20, MOST_HOSTS = 1024 };

/* "2026-11-29T20:01:02Z" */
static void starts_date(double wall_s, char out[32])
{
    const time_t at = (time_t)wall_s;
    struct tm utc;
    out[0] = '\0';
    if (gmtime_r(&at, &utc)) (void)strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* A text that is not UTF-8 cannot be a JSON string: the other bytes become '?'. */
static json_t *starts_text(const char *s)
{
    json_t *v = json_string(s);
    char *copy = v ? NULL : strdup(s);
    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p > 0x7E) *p = '?';
    if (copy) v = json_string(copy);
    free(copy);
    return v ? v : json_string("");
}

/* Reads config.json, that of the start before. NULL: there is none that can be read. */
static json_t *starts_config(const char *logdir)
{
    char path[4200], *text = NULL;
    size_t n = 0;
    bool there = false;
    rd_status own = {0};
    (void)snprintf(path, sizeof path, "%.4000s/config.json", logdir);
    json_t *o = rd_path_there(path, &there, &own) == RD_OK && there &&
                        rd_file_read_limited(path, RD_EUSAGE, CONFIG_BYTES, "a config", &text, &n,
                                             &own) == RD_OK
                    ? json_loadb(text, n, 0, NULL)
                    : NULL;
    free(text);
    return o;
}

static bool starts_same(const json_t *a, const json_t *b)
{
    if (!a || json_is_null(a)) return !b || json_is_null(b);
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return b && json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b);
}

/* Returns {key: [old, new]} of the keys that differ from the start before. null: there is none. */
static json_t *starts_changed(const rd_run *r)
{
    json_t *was = starts_config(r->cli->logdir), *now = rd_config_effective(r->keys);
    json_t *out = json_is_object(was) ? json_object() : json_null(), *row;
    const char *key;
    if (now && r->dropped) (void)json_object_update(now, r->dropped);
    json_object_foreach(now, key, row)
    {
        const json_t *old = json_object_get(json_object_get(was, key), "value"),
                     *value = json_object_get(row, "value");
        if (!json_is_object(was) || !json_object_get(was, key) || starts_same(old, value)) continue;
        (void)json_object_set_new(
            out, key, json_pack("[O?, O?]", (json_t *)(uintptr_t)old, (json_t *)(uintptr_t)value));
    }
    json_decref(was);
    json_decref(now);
    return out;
}

/* Lists the hosts in the order of their ranks, each once. names: "a\0a\0b\0" of all ranks. */
static json_t *starts_hosts(const char *names, int64_t n)
{
    json_t *list = json_array();
    const char *before = "";
    for (const char *s = names; s && s < names + n; s += strlen(s) + 1) {
        if (strcmp(s, before) != 0 && json_array_size(list) < MOST_HOSTS)
            (void)json_array_append_new(list, starts_text(s));
        before = s;
    }
    return list;
}

/* Appends a line. Takes the object. */
static void starts_append(rd_run *r, json_t *o)
{
    char path[4200];
    rd_status own = {0};
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    (void)snprintf(path, sizeof path, "%.4000s/starts.jsonl", r->cli->logdir);
    const int fd = rd_open_record(path, O_RDWR | O_CREAT | O_APPEND, "choose another --logdir",
                                  &own);
    if (fd >= 0 && text) {
        /* A start that was killed may have left half a line. */
        char last = '\n';
        const off_t size = lseek(fd, 0, SEEK_END);
        if (size > 0 && pread(fd, &last, 1, size - 1) != 1) last = '\n';
        rd_strbuf line = {0};
        rd_strbuf_printf(&line, "%s%s\n", last == '\n' ? "" : "\n", text);
        if (line.failed || write(fd, line.s, line.n) != (ssize_t)line.n)
            rd_fail(&own, RD_EENV, "cannot write '%s': %s", path, strerror(errno));
        rd_strbuf_release(&line);
    }
    if (fd >= 0) (void)close(fd);
    free(text);
    if (own.code != RD_OK) rd_warn(r->log, "records are incomplete: %s", own.msg);
}

static void starts_begin_root(rd_run *r, const char *names, int64_t n)
{
    const rd_cli *c = r->cli;
    char date[32], id[64], cwd[4096];
    const double now = rd_wall_s();
    rd_strbuf versions = {0};
    if (!run_owns_logdir(r)) return;
    json_t *command = json_array();
    for (int i = 0; i < c->argc; i++) (void)json_array_append_new(command, starts_text(c->argv[i]));
    starts_date(now, date);
    rd_program_id(id);
    rd_versions(&versions);
    if (!getcwd(cwd, sizeof cwd)) cwd[0] = '\0';
    json_t *o = json_pack("{s:s, s:f, s:s, s:o, s:o, s:s, s:o, s:i, s:s, s:s, s:s, s:s, s:I, s:o}",
                          "event", "begin", "time", now, "date", date, "command", command, "folder",
                          starts_text(cwd), "mode", c->mode, "hosts", starts_hosts(names, n),
                          "ranks", r->world->size, "version", world_version(), "commit",
                          world_commit(), "libraries", rd_strbuf_str(&versions), "program", id,
                          "step", (json_int_t)r->progress.step, "changed", starts_changed(r));
    if (o && r->loaded[0]) (void)json_object_set_new(o, "checkpoint", starts_text(r->loaded));
    if (o && r->parent) (void)json_object_set(o, "parent", r->parent);
    rd_strbuf_release(&versions);
    starts_append(r, o);
    r->start_recorded = true;
}

rd_code starts_begin(rd_run *r, rd_status *st)
{
    char *all = NULL;
    int64_t *lens = NULL, n = 0;
    RD_TRY(rd_comm_gather(r->comm, r->world->host, (int64_t)strlen(r->world->host) + 1, &all, &lens,
                          st));
    for (int i = 0; lens && i < r->world->size; i++) n += lens[i];
    if (r->world->rank == 0) starts_begin_root(r, all, n);
done:
    free(all);
    free(lens);
    return st->code;
}

void starts_end(rd_run *r, const rd_status *st)
{
    char date[32];
    const double now = rd_wall_s();
    if (!r->start_recorded || !run_owns_logdir(r)) return;
    r->start_recorded = false;
    starts_date(now, date);
    json_t *o = json_pack("{s:s, s:f, s:s, s:I, s:i}", "event", "end", "time", now, "date", date,
                          "step", (json_int_t)r->progress.step, "exit_code", (int)st->code);
    if (o && st->code != RD_OK) (void)json_object_set_new(o, "message", starts_text(st->msg));
    starts_append(r, o);
}
