/* sweep_state.c -- sweep.json in the folder of a sweep: how its runs ended, and which of them
 * halving has left behind.
 *
 * The next start of the same command reads it, and starts no run again that has ended. A run whose
 * command or config is another one now counts as new. The file is only a memory: without it each
 * run is started, and finds in its own folder what is left to do. */
#include "sweep_impl.h"
#include "rd/checkpoint.h"
#include "rd/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void state_path(const char *root, char out[4200])
{
    (void)snprintf(out, 4200, "%.4000s/sweep.json", root);
}

void sweep_state_read(const char *root, const char *halving, sweep_list *l)
{
    char path[4200], hash[20], *text = NULL;
    size_t n = 0;
    rd_status own = {0};
    int same = 0;
    state_path(root, path);
    if (rd_file_read_limited(path, RD_EDATA, 64 << 20, "the state of a sweep", &text, &n, &own) !=
        RD_OK)
        return;
    json_t *all = json_loadb(text, n, 0, NULL), *runs = json_object_get(all, "runs");
    const char *rounds = json_string_value(json_object_get(all, "halving"));
    for (int i = 0; i < l->n; i++) {
        sweep_run *r = &l->at[i];
        const json_t *o = json_object_get(runs, r->name);
        const char *was = json_string_value(json_object_get(o, "command"));
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, r->hash);
        if (!was || strcmp(was, hash) != 0) continue;
        same++;
        r->out = json_is_true(json_object_get(o, "left_behind"));
        /* Someone may have removed the folder to begin anew. */
        if (rd_ckpt_newest_step(r->folder) < 0) continue;
        const json_t *code = json_object_get(o, "exit_code");
        const json_t *paused = json_object_get(o, "paused_at");
        if (json_is_integer(code)) r->code = (int)json_integer_value(code);
        if (json_is_integer(paused)) r->paused = (int64_t)json_integer_value(paused);
    }
    l->decided = (int)json_integer_value(json_object_get(all, "rounds"));
    if (!halving || !rounds || strcmp(rounds, halving) != 0 || same != l->n ||
        json_object_size(runs) != (size_t)l->n) {
        l->decided = 0;
        for (int i = 0; i < l->n; i++) l->at[i].out = false;
    }
    json_decref(all);
    free(text);
}

rd_code sweep_state_write(const char *root, const char *halving, const sweep_list *l, rd_status *st)
{
    char path[4200], hash[20];
    json_t *runs = json_object(), *all = json_pack("{s:i}", "version", 1);
    state_path(root, path);
    if (halving) {
        (void)json_object_set_new(all, "halving", json_string(halving));
        (void)json_object_set_new(all, "rounds", json_integer(l->decided));
    }
    for (int i = 0; i < l->n; i++) {
        const sweep_run *r = &l->at[i];
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, r->hash);
        json_t *o = json_pack("{s:s, s:O}", "command", hash, "set", r->set);
        if (r->code >= 0) (void)json_object_set_new(o, "exit_code", json_integer(r->code));
        if (r->paused >= 0)
            (void)json_object_set_new(o, "paused_at", json_integer((json_int_t)r->paused));
        if (r->out) (void)json_object_set_new(o, "left_behind", json_true());
        (void)json_object_set_new(runs, r->name, o);
    }
    (void)json_object_set_new(all, "runs", runs);
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    json_decref(all);
    if (!text) return rd_fail(st, RD_EENV, "out of memory for '%s'", path);
    (void)rd_file_write_atomic(path, text, strlen(text), st);
    free(text);
    return st->code;
}
