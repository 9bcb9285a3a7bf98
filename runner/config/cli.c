/* cli.c -- reads the command line and checks what flags ask of each other and of the mode. The
 * table of flags is in cli_flags.c. */
#include "rd/cli.h"
#include "cli_impl.h"
#include "config_impl.h"
#include "rd/home_path.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- names ---- */

/* Is there --noflag? */
static bool can_be_off(const rd_flag *f)
{
    return f->type == RD_FLAG_BOOL || f->type == RD_FLAG_HELP;
}

/* Counts the flags whose name begins with word[0..n), only those that can be off if asked. An exact
 * name wins. *first: one of them. */
static int cli_matches(const char *word, size_t n, bool only_bool, const rd_flag **first)
{
    int found = 0;
    for (int i = 0; i < rd_n_flags; i++) {
        if (strncmp(rd_flags[i].name, word, n) != 0 || (only_bool && !can_be_off(&rd_flags[i])) ||
            (rd_flags[i].whole && rd_flags[i].name[n]))
            continue;
        if (!found++ || !rd_flags[i].name[n]) *first = &rd_flags[i];
        if (!rd_flags[i].name[n]) return 1;
    }
    return found;
}

static rd_code unknown_flag(const rd_cli *c, const char *arg, size_t dashes, const char *word,
                            size_t n, rd_status *st)
{
    char shown[RD_SHOWN_BYTES], name[RD_SHOWN_BYTES],
        near[160] = "--help lists the flags, and --set key=value is for keys of the config";
    const char *known[64 + 1];
    for (int i = 0; i < rd_n_flags; i++) known[i] = rd_flags[i].name;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    const char *nearest = rd_nearest(name, known, rd_n_flags);
    for (int i = 0; !nearest && i < rd_bench_flag_count(); i++) {
        known[rd_n_flags] = rd_bench_flag_name(i);
        nearest = rd_nearest(name, known + rd_n_flags, 1);
    }
    const char *key = nearest ? NULL : rd_cli_key_nearest(c, name);
    if (nearest) snprintf(near, sizeof near, "did you mean '--%s'?", nearest);
    if (key) snprintf(near, sizeof near, "did you mean the key of '--set %s=...'?", key);
    return rd_fail(st, RD_EUSAGE, "unknown flag '%s'; %s",
                   rd_shown_bytes(arg, dashes + n, shown, sizeof shown), near);
}

static rd_code ambiguous(const char *word, size_t n, bool only_bool, rd_status *st)
{
    char list[512] = "", shown[RD_SHOWN_BYTES];
    size_t used = 0;
    for (int i = 0; i < rd_n_flags; i++)
        if (!strncmp(rd_flags[i].name, word, n) && (!only_bool || can_be_off(&rd_flags[i])) &&
            !rd_flags[i].whole)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s--%s%s", used ? ", " : "",
                                     only_bool ? "no" : "", rd_flags[i].name);
    return rd_fail(st, RD_EUSAGE, "flag '--%s%s' is ambiguous: %s; write more of it",
                   only_bool ? "no" : "", rd_shown_bytes(word, n, shown, sizeof shown), list);
}

/* Finds the flag of word[0..n), the name behind the dashes. *negated: it was --noflag. *out is NULL
 * only after a failure. */
static rd_code find_flag(const rd_cli *c, const char *arg, const char *word, size_t n,
                         const rd_flag **out, bool *negated, rd_status *st)
{
    const size_t dashes = (size_t)(word - arg);
    *negated = false;
    *out = NULL;
    if (dashes == 1 && n == 1 && *word == 'h') {
        *out = rd_flag_named("help", 4);
        return RD_OK;
    }
    if (dashes != 2 || n == 0) return unknown_flag(c, arg, dashes, word, n, st);
    int found = cli_matches(word, n, false, out);
    if (found > 1) return ambiguous(word, n, false, st);
    if (found == 1) return RD_OK;
    if (n > 2 && !strncmp(word, "no", 2)) {
        found = cli_matches(word + 2, n - 2, true, out);
        if (found > 1) return ambiguous(word + 2, n - 2, true, st);
        *negated = true;
    }
    return found ? RD_OK : unknown_flag(c, arg, dashes, word, n, st);
}

/* ---- values ---- */

static rd_code wrong_value(const char *name, const char *help, const char *value, const char *must,
                           rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    return rd_fail(st, RD_EUSAGE, "flag '--%s' must be %s, not '%s'; meaning: %s", name, must,
                   rd_shown(value, shown), help);
}

static bool parse_bool(const char *s, bool *out)
{
    static const char *const words[] = {"true", "t", "1", "false", "f", "0"};
    for (int i = 0; i < 6; i++)
        if (!strcasecmp(s, words[i])) {
            *out = i < 3;
            return true;
        }
    return false;
}

static rd_code set_number(rd_cli *c, const rd_flag *f, const char *value, rd_status *st)
{
    char *end, must[128];
    const bool whole = f->type == RD_FLAG_INT;
    const bool blank = *value == '\0' || *value == ' ' || *value == '\t' ||
                       *value == '\n'; /* strtod would skip it */
    double x = 0.0;
    int64_t k = 0;
    if (whole)
        k = strtoll(value, &end, 10);
    else
        x = strtod(value, &end);
    /* Too many digits give the largest int64_t, which is out of every range. */
    const bool in_range = whole ? rd_int_within(k, f->min, f->max)
                                : isfinite(x) && x >= f->min && x <= f->max;
    if (blank || *end || !in_range) {
        if (whole)
            snprintf(must, sizeof must, "an integer, %.0f .. %.0f", f->min, f->max);
        else
            snprintf(must, sizeof must, "a number, %g or more", f->min);
        return wrong_value(f->name, f->help, value, must, st);
    }
    if (whole)
        *(int64_t *)(void *)((char *)c + f->at) = k;
    else
        *(double *)(void *)((char *)c + f->at) = x;
    return RD_OK;
}

/* Returns how the mode that other programs call so is typed here; NULL: unknown. */
static const char *mode_elsewhere(const char *value)
{
    static const struct {
        const char *theirs, *ours;
    } words[] = {
        {"translate", "infer"},
        {"decode", "infer"},
        {"generate", "infer"},
        {"sample", "infer"},
        {"predict", "infer"},
        {"inference", "infer"},
        {"test", "eval"},
        {"validate", "eval"},
        {"evaluate", "eval"},
        {"score", "eval"},
        {"interactive", "infer --input=-"},
        {"preprocess", "prepare"},
        {"resume", "train"},
        {"watch", "runs --watch"},
        {"benchmark", "bench"},
        {"list", "runs"},
        {"compare", "diff"},
        {"convert", "export"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(value, words[i].theirs)) return words[i].ours;
    return NULL;
}

static rd_code set_mode(rd_cli *c, const rd_flag *f, const char *value, rd_status *st)
{
    for (int i = 0; i < rd_n_mode_names; i++)
        if (!strcmp(rd_mode_names[i].name, value)) {
            c->mode = rd_mode_names[i].name;
            c->mode_bit = rd_mode_names[i].bit;
            return RD_OK;
        }
    char list[256] = "one of ";
    size_t n = strlen(list);
    for (int i = 0; i < rd_n_mode_names && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                              rd_mode_names[i].name);
    const char *known[16];
    for (int i = 0; i < rd_n_mode_names; i++) known[i] = rd_mode_names[i].name;
    const char *nearest = mode_elsewhere(value);
    char shown[RD_SHOWN_BYTES];
    if (!nearest) nearest = rd_nearest(value, known, rd_n_mode_names);
    if (!nearest)
        return rd_fail(st, RD_EUSAGE,
                       "flag '--%s' must be %s, not '%s'; --help=modes says what each does",
                       f->name, list, rd_shown(value, shown));
    return rd_fail(st, RD_EUSAGE, "flag '--mode' must be %s, not '%s'; did you mean --mode=%s?",
                   list, rd_shown(value, shown), nearest);
}

static rd_code add_set(rd_cli *c, const char *key, const char *value, rd_status *st)
{
    char *text = NULL;
    const char **more = realloc(c->set, (size_t)(c->n_set + 1) * sizeof *more);
    if (more) c->set = more;
    if (!more || asprintf(&text, "%s%s%s", key ? key : "", key ? "=" : "", value) < 0)
        return rd_fail(st, RD_EENV, "out of memory for the command line");
    c->set[c->n_set++] = text;
    return RD_OK;
}

static rd_code set_path(rd_cli *c, const rd_flag *f, const char *value, rd_status *st)
{
    char flag[80];
    snprintf(flag, sizeof flag, "--%s=", f->name);
    return rd_cli_path(c, flag, value, (const char **)(void *)((char *)c + f->at), st);
}

/* Appends a borrowed word to an owned list. */
static rd_code list_add(const char ***list, int *n, const char *word, rd_status *st)
{
    const char **more = realloc(*list, (size_t)(*n + 1) * sizeof *more);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for the command line");
    *list = more;
    more[(*n)++] = word;
    return RD_OK;
}

static rd_code set_value(rd_cli *c, const rd_flag *f, const char *value, rd_status *st)
{
    switch (f->type) {
    case RD_FLAG_BOOL: /* both are done by the caller */
    case RD_FLAG_HELP:
    case RD_FLAG_TEXT:
        *(const char **)(void *)((char *)c + f->at) = value;
        break;
    case RD_FLAG_PATH:
        RD_TRY(set_path(c, f, value, st));
        break;
    case RD_FLAG_INT:
    case RD_FLAG_REAL:
        RD_TRY(set_number(c, f, value, st));
        break;
    case RD_FLAG_MODE:
        RD_TRY(set_mode(c, f, value, st));
        break;
    case RD_FLAG_SET:
        RD_TRY(add_set(c, NULL, value, st));
        break;
    case RD_FLAG_KEY:
        RD_TRY(add_set(c, f->name, value, st));
        break;
    case RD_FLAG_SWEEP:
        RD_TRY(list_add(&c->sweep, &c->n_sweep, value, st));
        break;
    }
    if (f->given_at != 0) *(bool *)(void *)((char *)c + f->given_at) = true;
    c->given |= rd_flag_bit(f);
done:
    return st->code;
}

/* The text behind a flag: its value after '=', and the next word, which is the value if there is no
 * '='. */
typedef struct behind {
    const char *value, *next;
    bool negated, took_next;
} behind;

static rd_code take_truth(const char *name, const char *help, behind *b, bool *out, rd_status *st)
{
    *out = true;
    if (b->negated && b->value)
        return rd_fail(st, RD_EUSAGE, "flag '--no%s' takes no value; write --%s=false", name, name);
    if (b->value && !parse_bool(b->value, out))
        return wrong_value(name, help, b->value, "true or false", st);
    if (!b->value && !b->negated && b->next && parse_bool(b->next, out)) b->took_next = true;
    if (b->negated) *out = false;
    return RD_OK;
}

/* kind: what --help calls the value. */
static rd_code cli_take_text(const char *name, const char *kind, bool may_be_empty, behind *b,
                             const char **out, rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    *out = b->value;
    if (!b->value) {
        if (!b->next)
            return rd_fail(st, RD_EUSAGE, "flag '--%s' has no value; write --%s=%s", name, name,
                           kind);
        if (!strncmp(b->next, "--", 2))
            return rd_fail(st, RD_EUSAGE,
                           "flag '--%s' has no value: the next word is '%s'; write --%s=%s", name,
                           rd_shown(b->next, shown), name, kind);
        *out = b->next;
        b->took_next = true;
    }
    if (!**out && !may_be_empty)
        return rd_fail(st, RD_EUSAGE, "flag '--%s' has an empty value; write --%s=%s", name, name,
                       kind);
    return RD_OK;
}

/* --help, --help=WORD, or a truth value as for a bool. */
static rd_code take_help(const rd_flag *f, behind *b, rd_cli *c, rd_status *st)
{
    bool truth = false;
    if (b->value && !*b->value)
        return rd_fail(st, RD_EUSAGE, "flag '--help' has an empty value; write --help=keys");
    c->help_word = NULL;
    if (b->value && !b->negated && !parse_bool(b->value, &truth)) {
        c->help = true;
        c->help_word = b->value;
        return RD_OK;
    }
    return take_truth(f->name, f->help, b, &c->help, st);
}

static rd_code parse_bench(int flag_index, behind *b, rd_cli *c, rd_status *st)
{
    const char *name = rd_bench_flag_name(flag_index), *help = rd_bench_flag_help(flag_index),
               *value = NULL;
    const rd_bench_type type = rd_bench_flag_type(flag_index);
    bool truth = false;
    char *end = NULL;
    if (type == RD_BENCH_BOOL) {
        if (take_truth(name, help, b, &truth, st) != RD_OK) return st->code;
        value = truth ? "true" : "false";
    } else if (cli_take_text(name, rd_bench_flag_value(flag_index), type == RD_BENCH_TEXT, b,
                             &value, st) != RD_OK) {
        return st->code;
    }
    const bool blank = *value == ' ' || *value == '\t' || *value == '\n';
    if (type == RD_BENCH_INT) {
        errno = 0;
        (void)strtoll(value, &end, 10);
        if (blank || *end || errno) return wrong_value(name, help, value, "an integer", st);
    } else if (type == RD_BENCH_REAL) {
        const double x = strtod(value, &end);
        if (blank || *end || !isfinite(x)) return wrong_value(name, help, value, "a number", st);
    }
    for (int i = 0; i < c->n_bench; i++)
        if (c->bench[i].flag == flag_index) {
            c->bench[i].value = value;
            return RD_OK;
        }
    rd_cli_word *more = realloc(c->bench, (size_t)(c->n_bench + 1) * sizeof *more);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for the command line");
    c->bench = more;
    c->bench[c->n_bench++] = (rd_cli_word){.flag = flag_index, .value = value};
    return RD_OK;
}

/* Keeps a key that was typed as the flag arg[0..n). Its value may be the next word. */
static void keep_key(rd_cli *c, const rd_option *o, const char *arg, size_t n, behind *b)
{
    bool truth;
    const char *value = b->value;
    if (!value && !b->negated && b->next && strncmp(b->next, "--", 2) != 0 &&
        (o->type != RD_BOOL || parse_bool(b->next, &truth))) {
        value = b->next;
        b->took_next = true;
    }
    if (!value && o->type == RD_BOOL) value = b->negated ? "false" : "true";
    if (!c->key.o) c->key = (rd_cli_key){.o = o, .typed = arg, .n_typed = (int)n, .value = value};
}

/* Is it the beginning of one flag, or of several? */
static bool begins_flag(const char *word, size_t n)
{
    const rd_flag *f;
    return cli_matches(word, n, false, &f) > 0;
}

/* Fails with the flag in its right form: -np 4 of mpirun is --np=4 here. n: bytes of the name. */
static void one_dash(const char *arg, size_t n, const behind *b, rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    const bool apart = !b->value && b->next && b->next[0] != '-' &&
                       rd_flag_named(arg + 1, n)->value;
    const char *value = b->value ? b->value : apart ? b->next : NULL;
    rd_fail(st, RD_EUSAGE, "flags have two dashes here: --%.*s%s%s", (int)n, arg + 1,
            value ? "=" : "", value ? rd_shown(value, shown) : "");
}

/* Reads one flag and its value. *i moves past a value that is the next word. *of_launcher: the flag
 * is for the launcher alone; *of_sweep: it is no part of the command of a single run. */
static rd_code parse_one(int argc, char *const *argv, int *i, rd_cli *c, bool *of_launcher,
                         bool *of_sweep, rd_status *st)
{
    const char *arg = argv[*i];
    const char *word = arg + (arg[1] == '-' ? 2 : 1), *eq = strchr(word, '=');
    const size_t n = eq ? (size_t)(eq - word) : strlen(word);
    behind b = {.value = eq ? eq + 1 : NULL, .next = *i + 1 < argc ? argv[*i + 1] : NULL};
    const rd_flag *f = NULL;
    const int of_bench = word - arg == 2 && !rd_flag_named(word, n)
                             ? rd_bench_flag_find(word, n, &b.negated)
                             : -1;
    const size_t dashes = (size_t)(word - arg);
    const bool ours = of_bench >= 0 || rd_flag_named(word, n);
    if (!ours) RD_TRY(rd_cli_foreign(arg, dashes, n, st));
    const rd_option *key = !ours && (dashes == 1 || !begins_flag(word, n))
                               ? rd_cli_key_named(c, word, n, &b.negated)
                               : NULL;
    if (dashes == 1 && ours && rd_flag_named(word, n)) {
        one_dash(arg, n, &b, st);
    } else if (of_bench >= 0) {
        RD_TRY(parse_bench(of_bench, &b, c, st));
    } else if (key) {
        keep_key(c, key, arg, dashes + n, &b);
    } else if (find_flag(c, arg, word, n, &f, &b.negated, st) != RD_OK || !f) {
        return st->code;
    } else if (f->type == RD_FLAG_HELP) {
        RD_TRY(take_help(f, &b, c, st));
        c->given = c->help ? c->given | rd_flag_bit(f) : c->given & ~rd_flag_bit(f);
    } else if (f->type == RD_FLAG_BOOL) {
        bool *to = (bool *)(void *)((char *)c + f->at);
        RD_TRY(take_truth(f->name, f->help, &b, to, st));
        c->given = *to ? c->given | rd_flag_bit(f) : c->given & ~rd_flag_bit(f);
    } else {
        const char *value = NULL;
        bool off;
        RD_TRY(cli_take_text(f->name, f->value, false, &b, &value, st));
        key = f->name[n] ? rd_cli_key_named(c, word, n, &off) : NULL;
        /* --checkpoint=best is no --checkpoint_frequency: the word is also the name of a key. */
        if (set_value(c, f, value, st) != RD_OK && key) {
            *st = (rd_status){.rank = st->rank};
            c->key = (rd_cli_key){
                .o = key, .typed = arg, .n_typed = (int)(dashes + n), .value = value};
        }
        RD_TRY(st->code);
    }
    if (b.took_next) ++*i;
    *of_launcher = f && f->of_launcher;
    *of_sweep = f && (f->of_launcher || f->of_sweep);
done:
    return st->code;
}

/* Keeps argv[from .. to] for the ranks of the launcher. */
static rd_code pass_words(rd_cli *c, char *const *argv, int from, int to, rd_status *st)
{
    const char **more = realloc(c->pass, (size_t)(c->n_pass + to - from + 1) * sizeof *more);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for the command line");
    c->pass = more;
    for (int i = from; i <= to; i++) c->pass[c->n_pass++] = argv[i];
    return RD_OK;
}

rd_code rd_cli_parse(int argc, char *const *argv, rd_cli *out, rd_status *st)
{
    return rd_cli_parse_with_keys(argc, argv, NULL, 0, out, st);
}

rd_code rd_cli_parse_with_keys(int argc, char *const *argv, const rd_option_group *const *groups,
                               int n, rd_cli *out, rd_status *st)
{
    *out = (rd_cli){.argv = argv,
                    .argc = argc,
                    .groups = groups,
                    .n_groups = n,
                    .mode = "train",
                    .mode_bit = RD_MODE_TRAIN,
                    .inference_out = "stdout",
                    .max_steps = 300000,
                    .summary_frequency = 50,
                    .checkpoint_frequency = 7200,
                    .restart_delay = 1.0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--")) {
            out->launch = argv + i + 1;
            out->n_launch = argc - i - 1;
            if (!out->restarts_given)
                return rd_fail(st, RD_EUSAGE,
                               "'--' ends the flags, and what follows is a command for "
                               "--restarts=N; give that in front of it, "
                               "or leave '--' out");
            break;
        }
        const int from = i;
        bool of_launcher = false, of_sweep = false;
        if (argv[i][0] != '-' || !argv[i][1]) /* modes diff and show take log folders so */
            RD_TRY(list_add(&out->word, &out->n_word, argv[i], st));
        else
            RD_TRY(parse_one(argc, argv, &i, out, &of_launcher, &of_sweep, st));
        if (!of_launcher) RD_TRY(pass_words(out, argv, from, i, st));
        for (int k = from; k <= i && !of_sweep; k++)
            RD_TRY(list_add(&out->base, &out->n_base, argv[k], st));
    }
    if (out->n_word > 0 && !(out->mode_bit & (RD_MODE_DIFF | RD_MODE_SHOW | RD_MODE_REPORT)))
        (void)rd_cli_take_words(out, st);
done:
    return st->code;
}

static bool names_model(const rd_cli *c)
{
    for (int i = 0; i < c->n_set; i++)
        if (!strncmp(c->set[i], "model=", 6)) return true;
    return rd_cli_bench_value(c, "model") != NULL;
}

/* Returns whether this flag is given and has no effect in this mode. */
static bool idles(const rd_cli *c, const rd_flag *f)
{
    return f->modes && (c->given & rd_flag_bit(f)) && !(f->modes & (unsigned)c->mode_bit);
}

static rd_code check_modes(const rd_cli *c, rd_status *st)
{
    for (int i = 0; i < rd_n_flags; i++) {
        const rd_flag *f = &rd_flags[i];
        char in[256] = "";
        int n = 0, left = 0;
        if (!idles(c, f) || f->may_idle) continue;
        for (int k = 0; k < rd_n_mode_names; k++)
            left += (f->modes & (unsigned)rd_mode_names[k].bit) != 0;
        for (int k = 0; k < rd_n_mode_names; k++)
            if (f->modes & (unsigned)rd_mode_names[k].bit)
                strcat(strcat(in, n++ == 0    ? ""
                                  : left == n ? " and "
                                              : ", "),
                       rd_mode_names[k].name);
        return rd_fail(st, RD_EUSAGE,
                       "--%s is for --mode=%s, but the mode is %s; leave it out, or give %s mode",
                       f->name, in, c->mode, n > 1 ? "such a" : "that");
    }
    return RD_OK;
}

void rd_cli_idle(const rd_cli *c, rd_strbuf *out)
{
    int n = 0;
    for (int i = 0; i < rd_n_flags; i++)
        if (idles(c, &rd_flags[i]))
            rd_strbuf_printf(out, "%s--%s", n++ ? ", " : "", rd_flags[i].name);
    if (n) rd_strbuf_printf(out, ": without effect in mode %s\n", c->mode);
}

bool rd_cli_launches(const rd_cli *c)
{
    if (c->n_sweep > 0) return false; /* it starts the ranks of each run itself */
    return c->np > 0 || ((c->hosts || c->hostfile) && c->mode_bit != RD_MODE_DOCTOR);
}

/* Checks --restarts and the command behind "--". */
static rd_code check_restarts(const rd_cli *c, rd_status *st)
{
    static const char *const ours[] = {"restarts", "restart_delay", "drop_dead_hosts", "logdir",
                                       NULL};
    if (c->restarts_given && rd_cli_launches(c))
        return rd_fail(st, RD_EUSAGE,
                       "--restarts starts the command behind --; put --%s and all other flags "
                       "there: run_dist --restarts=5 -- run_dist --np=4 ...",
                       c->np      ? "np"
                       : c->hosts ? "hosts"
                                  : "hostfile");
    const char *odd = c->n_bench > 0 ? rd_bench_flag_name(c->bench[0].flag) : NULL;
    for (int i = 0; i < rd_n_flags && !odd; i++) {
        int k = 0;
        while (ours[k] && strcmp(ours[k], rd_flags[i].name)) k++;
        if (!ours[k] && (c->given & rd_flag_bit(&rd_flags[i]))) odd = rd_flags[i].name;
    }
    if (!odd && c->n_word > 0) odd = "config_file";
    if (!c->restarts_given && (c->restart_delay_given || c->drop_dead_hosts))
        return rd_fail(st, RD_EUSAGE, "--%s is for --restarts=N; give that too, or leave it out",
                       c->drop_dead_hosts ? "drop_dead_hosts" : "restart_delay");
    if (c->restarts_given && c->n_launch == 0)
        return rd_fail(st, RD_EUSAGE,
                       "--restarts=N needs the command to start: run_dist --restarts=5 -- mpirun "
                       "-np 4 run_dist "
                       "--config_file=FILE --logdir=DIR");
    if (c->restarts_given && odd)
        return rd_fail(st, RD_EUSAGE,
                       "--%s stands in front of --, where it has no effect; put it behind the "
                       "run_dist of the command",
                       odd);
    return RD_OK;
}

/* Checks the flags of sweeps. */
static rd_code check_sweep(const rd_cli *c, rd_status *st)
{
    const char *odd = c->sweep_jobs      ? "sweep_jobs"
                      : c->sweep_ranks   ? "sweep_ranks"
                      : c->sweep_halving ? "sweep_halving"
                      : c->sweep_slurm   ? "sweep_slurm"
                                         : NULL;
    if (odd && c->n_sweep == 0)
        return rd_fail(st, RD_EUSAGE, "--%s is for --sweep; give that too, or leave it out", odd);
    return RD_OK;
}

/* Checks which log folders the modes diff, show and report get. */
static rd_code check_folders(const rd_cli *c, rd_status *st)
{
    const bool diff = c->mode_bit == RD_MODE_DIFF;
    if (diff && c->n_word != 2)
        return rd_fail(
            st, RD_EUSAGE,
            "--mode=diff compares two log folders, but %d %s given: run_dist --mode=diff "
            "logs/a logs/b",
            c->n_word, c->n_word == 1 ? "is" : "are");
    if (c->mode_bit == RD_MODE_SHOW && c->n_word != 1 && (c->n_word > 1 || !c->logdir))
        return rd_fail(st, RD_EUSAGE,
                       "--mode=show shows one log folder, but %d are given: run_dist --mode=show "
                       "logs/a",
                       c->n_word);
    if (c->mode_bit == RD_MODE_REPORT && c->n_word > 0 && c->logdir)
        return rd_fail(st, RD_EUSAGE,
                       "--mode=report reads either --logdir or the folders named behind it; leave "
                       "one out");
    return RD_OK;
}

/* Checks the form of export mode. */
static rd_code check_export(const rd_cli *c, rd_status *st)
{
    static const char *const forms[] = {"npz", "safetensors", "onnx", "peft"};
    for (int i = 0; i < 4 && c->format; i++)
        if (!strcmp(c->format, forms[i])) return RD_OK;
    if (!c->format)
        return rd_fail(st, RD_EUSAGE,
                       "--mode=export needs --format=npz, safetensors, onnx or peft; "
                       "logs/EXPORT.md explains them");
    const char *nearest = rd_nearest(c->format, forms, 4);
    return rd_fail(st, RD_EUSAGE,
                   "--format=%.60s: --mode=export writes npz, safetensors, onnx or peft%s%s%s",
                   c->format, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                   nearest ? "'?" : "");
}

bool rd_cli_answers(const rd_cli *c)
{
    return c->help || c->version || c->print_schema || c->print_keys || c->print_topic ||
           c->print_man || c->events || c->new_config || c->list || c->completion;
}

rd_code rd_cli_check(const rd_cli *c, rd_status *st)
{
    if (rd_cli_answers(c)) return RD_OK;
    if (c->key.o) return rd_cli_check_keys(c, st);
    if (check_restarts(c, st) != RD_OK || c->restarts_given) return st->code;
    if (rd_cli_check_keys(c, st) != RD_OK) return st->code;
    if (!c->config_file && c->mode_bit == RD_MODE_BENCH && !names_model(c))
        return rd_fail(
            st, RD_EUSAGE,
            "nothing to measure: give --model=NAME or --config_file=FILE; --help explains");
    if (check_modes(c, st) != RD_OK || check_sweep(c, st) != RD_OK) return st->code;
    if (c->mode_bit & (RD_MODE_RUNS | RD_MODE_DIFF | RD_MODE_SHOW | RD_MODE_REPORT))
        return check_folders(c, st);
    const char *of_doctor = c->hosts         ? "hosts"
                            : c->hostfile    ? "hostfile"
                            : c->ssh_port    ? "ssh_port"
                            : c->mpirun_args ? "mpirun_args"
                                             : NULL;
    if (c->mode_bit == RD_MODE_DOCTOR && c->np && (c->hosts || c->hostfile))
        return rd_fail(st, RD_EUSAGE,
                       "--mode=doctor examines all slots of the hosts; leave --np out, or give "
                       "--mpirun_args=\"-np %" PRId64 "\"",
                       c->np);
    if (c->dry_run && !rd_cli_launches(c))
        return rd_fail(
            st, RD_EUSAGE,
            "--dry_run prints the line that starts the ranks; give --np=N or --hosts=LIST, "
            "too; --check examines a training without running it");
    if (of_doctor && !c->hosts && !c->hostfile && !(c->np && c->mpirun_args) && c->n_sweep == 0)
        return rd_fail(st, RD_EUSAGE,
                       "--%s needs the hosts: --hosts=name:slots,name:slots or --hostfile=FILE",
                       of_doctor);
    if (c->hosts && c->hostfile)
        return rd_fail(st, RD_EUSAGE, "--hosts and --hostfile both name the hosts; leave one out");
    if (c->check_steps > 0 && !c->check)
        return rd_fail(st, RD_EUSAGE, "--check_steps is for --check; give that too");
    if (c->mode_bit == RD_MODE_PLAN && !c->config_file && !(c->logdir && c->logdir[0]))
        return rd_fail(st, RD_EUSAGE,
                       "nothing to plan from: give --logdir=DIR of a run, or --config_file=FILE to "
                       "measure now");
    if (c->mode_bit == RD_MODE_AVERAGE && (c->last > 0) == (c->best > 0))
        return rd_fail(st, RD_EUSAGE,
                       "--mode=average needs either --last=N or --best=N, the number of "
                       "checkpoints");
    if (c->mode_bit == RD_MODE_AVERAGE && !(c->logdir && c->logdir[0]))
        return rd_fail(st, RD_EUSAGE,
                       "--logdir is missing; name the folder with the checkpoints to average");
    if (!c->config_file && !(c->logdir && c->logdir[0]) &&
        !(c->mode_bit & (RD_MODE_BENCH | RD_MODE_PLAN | RD_MODE_AVERAGE | RD_MODE_DOCTOR)))
        return rd_fail(st, RD_EUSAGE,
                       "no experiment: give --config_file=FILE, or the --logdir of a run; --help "
                       "explains");
    if (c->mode_bit == RD_MODE_EXPORT) return check_export(c, st);
    return RD_OK;
}

void rd_cli_release(rd_cli *c)
{
    for (int i = 0; i < c->n_set; i++) free((void *)(uintptr_t)c->set[i]);
    for (int i = 0; i < c->n_path; i++) free(c->path[i]);
    free(c->path);
    free((void *)c->word);
    free((void *)c->pass);
    free((void *)c->sweep);
    free((void *)c->base);
    c->pass = c->word = c->sweep = c->base = NULL;
    c->n_pass = c->n_word = c->n_sweep = c->n_base = 0;
    free(c->set);
    free(c->bench);
    c->set = NULL;
    c->path = NULL;
    c->bench = NULL;
    c->n_set = c->n_bench = c->n_path = 0;
}
