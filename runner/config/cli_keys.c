/* cli_keys.c -- keys of the config that a user types as flags, as other programs have them. The
 * message says how this program sets the key. */
#include "cli_impl.h"
#include "config_impl.h"

#include <string.h>

/* Flags of OpenSeq2Seq and of Horovod's examples whose key has another name here. */
static const char *const other_names[][2] = {
    {"base_lr", "learning_rate"},
    {"batches_per_allreduce", "iter_size"},
    {"epochs", "num_epochs"},
    {"max_eval_checkpoints", "checkpoint_keep"},
    {"test_batch_size", "eval_batch_size"},
    {"val_batch_size", "eval_batch_size"},
    {"wd", "weight_decay"},
};

enum { LONGEST_KEY = 64, MOST_KEYS = 512 };

/* Returns the key of another program's flag; NULL: none. */
static const char *other_key(const char *name)
{
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (!strcmp(other_names[i][0], name)) return other_names[i][1];
    return NULL;
}

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
    const char *other = other_key(name);
    const rd_option *o = key_of(c, other ? other : name);
    if (o || strncmp(name, "no", 2) != 0) return o;
    o = key_of(c, name + 2 + (name[2] == '_'));
    *negated = o && o->type == RD_BOOL;
    return *negated ? o : NULL;
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
    (void)key_name(k->typed, (size_t)k->n_typed, name);
    (void)rd_shown_bytes(k->typed, (size_t)k->n_typed, typed, sizeof typed);
    if (c->mode_bit == RD_MODE_BENCH && rd_bench_flag_find(key, strlen(key), &negated) >= 0)
        return rd_fail(st, RD_EUSAGE, "--%s is a flag of another program; here it is --%s=%s",
                       typed, key, value);
    return rd_fail(st, RD_EUSAGE, "--%s is a %s; here it is --set %s=%s", typed,
                   other_key(name) ? "flag of another program" : "key of the config, not a flag",
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
