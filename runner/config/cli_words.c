/* cli_words.c -- words of the command line that belong to no flag.
 *
 * A word that ends in .json is the config. Anything else is a mistake. People type what other
 * programs take: Hydra's key=value, a mode as a command, the launcher behind the program. The
 * message names the right form. */
#include "cli_impl.h"
#include "config_impl.h"
#include "rd/home_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Is it the name of a config? The answer must not depend on the host: other hosts may lack the
 * file. */
static bool words_config(const char *word)
{
    static const char *const ends[] = {".json", ".jsonc", ".json5"};
    const size_t n = strlen(word);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        /* "key=x.json" is none, but "logs/lr=0.1/config.json", of a sweep, is one. */
        if (n > m && !strcasecmp(word + n - m, ends[i]) && strcspn(word, "/") <= strcspn(word, "="))
            return true;
    }
    return false;
}

/* The key that "key=value" means: without Hydra's prefix, without the sections in front of it, by
 * its own name or by another program's. */
static const char *words_key(const rd_cli *c, const char *word, size_t n)
{
    char name[64];
    bool negated;
    while (n > 0 && strchr("+~", *word)) word++, n--;
    const char *dot = memrchr(word, '.', n);
    if (dot) {
        n -= (size_t)(dot + 1 - word);
        word = dot + 1;
    }
    const rd_option *o = rd_cli_key_named(c, word, n, &negated);
    if (o) return o->key;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    return rd_cli_key_nearest(c, name);
}

/* "lr=0.1", "trainer.max_steps=100", "+learning_rate=1e-3,3e-3" */
static rd_code words_assignment(const rd_cli *c, const char *word, rd_status *st)
{
    char shown[RD_SHOWN_BYTES], value[RD_SHOWN_BYTES];
    const char *eq = strchr(word, '=');
    const size_t n = (size_t)(eq - word);
    const char *from = n > 0 && memrchr(word, '.', n) ? (char *)memrchr(word, '.', n) + 1 : word;
    while (from < eq && strchr("+~", *from)) from++;
    const rd_flag *f = from < eq ? rd_flag_named(from, (size_t)(eq - from)) : NULL;
    const char *key = f || n == 0 ? NULL : words_key(c, word, n);
    (void)rd_shown(word, shown);
    (void)rd_shown(eq + 1, value);
    if (strchr(eq + 1, ',') && (key || f) && !strpbrk(eq + 1, "[/"))
        return rd_fail(
            st, RD_EUSAGE,
            "'%s' belongs to no flag; a run has one value of each key: start one run for "
            "each, with --%s%s=VALUE and its own --logdir, and compare them with "
            "--mode=runs",
            shown, f ? "" : "set ", f ? f->name : key);
    if (key || f)
        return rd_fail(st, RD_EUSAGE, "'%s' belongs to no flag; here it is --%s%s=%s", shown,
                       f ? "" : "set ", f ? f->name : key, value);
    return rd_fail(st, RD_EUSAGE,
                   "'%s' belongs to no flag; keys of the config are set by --set key=value, and "
                   "--help=keys lists them",
                   shown);
}

static rd_code words_no_config(const rd_cli *c, const char *word, rd_status *st)
{
    static const char *const launchers[] = {"mpirun",   "mpiexec",    "srun",
                                            "torchrun", "horovodrun", "python",
                                            "python3",  "deepspeed",  "accelerate"};
    char shown[RD_SHOWN_BYTES];
    (void)rd_shown(word, shown);
    if (strchr(word, '=')) return words_assignment(c, word, st);
    for (int i = 0; i < rd_n_mode_names; i++)
        if (!strcasecmp(word, rd_mode_names[i].name))
            return rd_fail(st, RD_EUSAGE, "'%s' belongs to no flag; the mode is --mode=%s", shown,
                           rd_mode_names[i].name);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (!strcmp(word, launchers[i]))
            return rd_fail(
                st, RD_EUSAGE,
                "'%s' belongs to no flag; run_dist starts its ranks by --np=N, or mpirun "
                "stands in front: mpirun -np 4 run_dist ...",
                shown);
    if (word[0] && strcmp(word, "-") != 0)
        return rd_fail(st, RD_EUSAGE,
                       "'%s' belongs to no flag; a config as a word ends in .json or is one of "
                       "--list=configs, any other is --config_file=FILE, and --help lists the "
                       "flags",
                       shown);
    return rd_fail(st, RD_EUSAGE,
                   "'%s' belongs to no flag; a config is given as --config_file=FILE, and --help "
                   "lists the flags",
                   shown);
}

/* Takes over a text, which *out borrows. */
static rd_code cli_keep(rd_cli *c, char *text, const char **out, rd_status *st)
{
    char **more = text ? realloc(c->path, (size_t)(c->n_path + 1) * sizeof *more) : NULL;
    if (!more) {
        free(text);
        return rd_fail(st, RD_EENV, "out of memory for the command line");
    }
    c->path = more;
    *out = c->path[c->n_path++] = text;
    return RD_OK;
}

rd_code rd_cli_path(rd_cli *c, const char *flag, const char *value, const char **out, rd_status *st)
{
    char at[RD_SHOWN_BYTES + 80], shown[RD_SHOWN_BYTES], *path = NULL;
    snprintf(at, sizeof at, "%s%s", flag, rd_shown(value, shown));
    *out = value;
    if (rd_home_path(value, at, &path, st) == RD_OK && path) (void)cli_keep(c, path, out, st);
    return st->code;
}

/* Is it the name of a config beside the program, without its ".json"? All hosts have the same
 * installation. */
static bool words_installed(const char *word, char name[256])
{
    char folder[4096], path[8192];
    const size_t n = strlen(word);
    if (n == 0 || n > 200 || strpbrk(word, "/=") || word[0] == '-' || word[0] == '.' ||
        !strcmp(word, "schema"))
        return false;
    snprintf(name, 256, "%s.json", word);
    if (!rd_configs_folder(folder)) return false;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

rd_code rd_cli_take_words(rd_cli *c, rd_status *st)
{
    char first[RD_SHOWN_BYTES], second[RD_SHOWN_BYTES];
    char name[256] = "";
    for (int i = 0; i < c->n_word; i++)
        if (!words_config(c->word[i]) && !words_installed(c->word[i], name))
            return words_no_config(c, c->word[i], st);
    if (c->n_word > 1 || c->config_file)
        return rd_fail(
            st, RD_EUSAGE,
            "'%s' and '%s' are two configs, and a run has one; --set key=value changes a "
            "key, and \"base\": \"FILE\" in a config begins with another one",
            rd_shown(c->config_file ? c->config_file : c->word[0], first),
            rd_shown(c->word[c->config_file ? 0 : 1], second));
    if (name[0]) return cli_keep(c, strdup(name), &c->config_file, st);
    return rd_cli_path(c, "", c->word[0], &c->config_file, st);
}
