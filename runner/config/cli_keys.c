/* cli_keys.c -- keys of the config that a user types as flags, as other programs have them. The
 * message says how this program sets the key. */
#include "cli_impl.h"
#include "config_impl.h"

#include <string.h>

enum { LONGEST_KEY = 64, MOST_KEYS = 512 };

/* Copies a name with '_' for '-'. Returns false if it is too long for a key. */
static bool key_name(const char *word, size_t n, char out[LONGEST_KEY])
{
    if (n >= LONGEST_KEY) return false;
    for (size_t i = 0; i < n; i++) out[i] = word[i] == '-' ? '_' : word[i];
    out[n] = '\0';
    return true;
}

static const rd_option *key_of(const rd_cli *c, const char *name)
{
    for (int i = 0; i < c->n_groups; i++)
        for (const rd_option *o = c->groups[i]->options; o->key; o++)
            if (!strcmp(o->key, name)) return o;
    return NULL;
}

const rd_option *rd_cli_key_named(const rd_cli *c, const char *word, size_t n, bool *negated)
{
    char name[LONGEST_KEY];
    if (n == 0 || !key_name(word, n, name)) return NULL;
    const char *other = rd_cli_foreign_key(name);
    const rd_option *o = key_of(c, other ? other : name);
    if (o || strncmp(name, "no", 2) != 0) return o;
    o = key_of(c, name + 2 + (name[2] == '_'));
    *negated = o && o->type == RD_BOOL;
    return *negated ? o : NULL;
}

rd_code rd_cli_foreign(const char *arg, size_t dashes, size_t n, rd_status *st)
{
    char name[LONGEST_KEY], typed[RD_SHOWN_BYTES];
    const char *say = key_name(arg + dashes, n, name) ? rd_cli_foreign_advice(name) : NULL;
    if (!say) return RD_OK;
    return rd_fail(st, RD_EUSAGE, "%s is a flag of another program; here: %s",
                   rd_shown_bytes(arg, dashes + n, typed, sizeof typed), say);
}

const char *rd_cli_key_nearest(const rd_cli *c, const char *word)
{
    const char *known[MOST_KEYS];
    int n = 0;
    for (int i = 0; i < c->n_groups; i++)
        for (const rd_option *o = c->groups[i]->options; o->key && n < MOST_KEYS; o++)
            known[n++] = o->key;
    return rd_nearest(word, known, n);
}

static rd_code explain_key(const rd_cli *c, rd_status *st)
{
    const rd_cli_key *k = &c->key;
    char typed[RD_SHOWN_BYTES], shown[RD_SHOWN_BYTES], name[LONGEST_KEY] = "";
    const char *key = k->o->key, *value = k->value ? rd_shown(k->value, shown) : "VALUE";
    bool negated;
    const int dashes = k->typed[1] == '-' ? 2 : 1;
    (void)key_name(k->typed + dashes, (size_t)(k->n_typed - dashes), name);
    (void)rd_shown_bytes(k->typed, (size_t)k->n_typed, typed, sizeof typed);
    if (c->mode_bit == RD_MODE_BENCH && rd_bench_flag_find(key, strlen(key), &negated) >= 0)
        return rd_fail(st, RD_EUSAGE, "%s is a flag of another program; here it is --%s=%s", typed,
                       key, value);
    return rd_fail(st, RD_EUSAGE, "%s is a %s; here it is --set %s=%s", typed,
                   rd_cli_foreign_key(name) ? "flag of another program"
                                            : "key of the config, not a flag",
                   key, value);
}

/* The key that a flag of bench mode stands for in other modes; NULL: none. */
static const char *key_elsewhere(const rd_cli *c, int flag)
{
    const char *key = rd_bench_flag_key(flag);
    if (key_of(c, rd_bench_flag_name(flag)) && (key || !rd_bench_flag_lacks(flag)))
        return rd_bench_flag_name(flag);
    return key && strncmp(key, "bench_", 6) != 0 ? key : NULL;
}

/* The flag of a training that does what a flag of bench mode does; NULL: none. */
static const char *flag_of_training(const rd_cli *c, int flag)
{
    static const char *const same[][2] = {{"num_batches", "max_steps"},
                                          {"display_every", "summary_frequency"}};
    if (!(c->mode_bit & (RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL))) return NULL;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!strcmp(same[i][0], rd_bench_flag_name(flag))) return same[i][1];
    return NULL;
}

rd_code rd_cli_check_keys(const rd_cli *c, rd_status *st)
{
    char shown[RD_SHOWN_BYTES];
    if (c->key.o) return explain_key(c, st);
    if (c->n_bench == 0 || c->mode_bit == RD_MODE_BENCH) return RD_OK;
    const int i = c->bench[0].flag;
    const char *flag = flag_of_training(c, i);
    if (flag)
        return rd_fail(st, RD_EUSAGE,
                       "--%s is for --mode=bench, but the mode is %s; here it is --%s=%s",
                       rd_bench_flag_name(i), c->mode, flag, rd_shown(c->bench[0].value, shown));
    const char *key = key_elsewhere(c, i);
    if (!key)
        return rd_fail(st, RD_EUSAGE, "--%s is for --mode=bench, but the mode is %s; leave it out",
                       rd_bench_flag_name(i), c->mode);
    if (!strcmp(key, "dataset")) /* a name of the other program may be several datasets here */
        return rd_fail(st, RD_EUSAGE,
                       "--%s is for --mode=bench, but the mode is %s; here the key is 'dataset', "
                       "and --help=dataset explains it",
                       rd_bench_flag_name(i), c->mode);
    return rd_fail(st, RD_EUSAGE,
                   "--%s is for --mode=bench, but the mode is %s; here it is --set %s=%s",
                   rd_bench_flag_name(i), c->mode, key,
                   rd_shown(rd_bench_flag_key_value(i, c->bench[0].value), shown));
}
