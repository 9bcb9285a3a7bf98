/* sweep_command.c -- the command line of a run: the words of the sweep's own, without its flags,
 * and the run's keys and folder. */
#include "sweep_impl.h"
#include "rd/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void sweep_words_add(sweep_words *w, const char *fmt, ...)
{
    char *word = NULL;
    va_list ap;
    va_start(ap, fmt);
    const int length = vasprintf(&word, fmt, ap);
    va_end(ap);
    char **more = length < 0 ? NULL : realloc(w->at, (size_t)(w->n + 2) * sizeof *more);
    if (!more) {
        if (length >= 0) free(word);
        w->failed = true;
        return;
    }
    w->at = more;
    w->at[w->n++] = word;
    w->at[w->n] = NULL;
}

void sweep_words_release(sweep_words *w)
{
    for (int i = 0; i < w->n; i++) free(w->at[i]);
    free(w->at);
    *w = (sweep_words){0};
}

static void add_sets(const sweep_common *c, const sweep_run *run, sweep_words *out)
{
    const char *key;
    json_t *v;
    for (int i = 0; i < c->cli->n_base; i++) sweep_words_add(out, "%s", c->cli->base[i]);
    if (c->eval_every > 0) {
        sweep_words_add(out, "--set");
        sweep_words_add(out, "eval_frequency=%" PRIi64, c->eval_every);
    }
    json_object_foreach(run->set, key, v)
    {
        sweep_words_add(out, "--set");
        sweep_words_add(out, "%s=%s", key, json_string_value(v));
    }
    json_object_foreach(run->drop, key, v)
    {
        sweep_words_add(out, "--set");
        sweep_words_add(out, "%s=null", key);
    }
}

void sweep_command(const sweep_common *c, const sweep_run *run, int64_t stop_at, sweep_words *out)
{
    sweep_words_add(out, "%s", c->program);
    add_sets(c, run, out);
    sweep_words_add(out, "--logdir=%s", run->folder);
    if (stop_at > 0) sweep_words_add(out, "--stop_at_step=%" PRIi64, stop_at);
}

uint64_t sweep_command_hash(const sweep_common *c, const sweep_run *run, const rd_strbuf *files)
{
    uint64_t h = rd_fnv(RD_FNV_START, rd_strbuf_str(files), files->n);
    sweep_words words = {0};
    add_sets(c, run, &words);
    for (int i = 0; i < words.n; i++) h = rd_fnv(h, words.at[i], strlen(words.at[i]) + 1);
    sweep_words_release(&words);
    return h;
}

rd_code sweep_command_program(char out[4096], rd_status *st)
{
    const ssize_t n = readlink("/proc/self/exe", out, 4095);
    if (n <= 0)
        return rd_fail(st, RD_EENV, "cannot find the path of this program: %s", strerror(errno));
    out[n] = '\0';
    return RD_OK;
}
