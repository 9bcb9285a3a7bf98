/* config_file.c -- from --config_file to an rd_config on every rank. Only rank 0 reads the file, so
 * only its host needs it. All ranks parse the same bytes. */
#include "rd/modes.h"
#include "bench/bench.h"
#include "weights_keys.h"
#include "rd/file.h"
#include "rd/input.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The flag --beam_width selects beam search, too. The key does not, and rd_partner_notes refuses it
 * without beam search. */
static rd_code beam_search(rd_config *c, const rd_cli *cli, char note[256], rd_status *st)
{
    const int type = rd_config_choice(c, "decoder_type");
    const double width = json_number_value(rd_config_get(c, "beam_width"));
    if (!cli->beam_width_given || type < 0 || type == RD_DECODER_BEAM_SEARCH || width <= 1.0 ||
        strcmp(rd_config_where(c, "decoder_type"), "--set") == 0)
        return RD_OK;
    (void)snprintf(note, 256, "decoder_type is beam_search, from --beam_width");
    return rd_config_put(c, "decoder_type", json_string("beam_search"), "--beam_width", st);
}

/* A schedule that gives every rate also gives the first one. */
static rd_code first_rate(rd_config *c, rd_status *st)
{
    static const char *const key = "piecewise_learning_rate_schedule";
    double rate;
    if (rd_config_has(c, "learning_rate") ||
        !rd_schedule_first_rate(json_string_value(rd_config_get(c, key)), &rate))
        return RD_OK;
    return rd_config_put(c, "learning_rate", json_real(rate), key, st);
}

/* Is there no config file? Bench mode needs none where the flags of other programs give everything,
 * and plan mode none where a log folder is given. Average mode reads none. */
static bool by_flags(const rd_cli *cli)
{
    return (cli->mode_bit & (RD_MODE_BENCH | RD_MODE_PLAN | RD_MODE_AVERAGE)) &&
           (!cli->config_file || !cli->config_file[0]);
}

/* The names of a kind, for a message. */
typedef struct name_list {
    const char *known[RD_MAX_OWNERS];
    int n;
} name_list;

static rd_code name_unknown(const rd_config *c, const char *key, const name_list *l, rd_status *st)
{
    const char *name = json_string_value(rd_config_get(c, key));
    const char *nearest = rd_nearest(name, l->known, l->n);
    rd_strbuf list = {0};
    for (int i = 0; i < l->n; i++) rd_strbuf_printf(&list, "%s%s", i ? ", " : "", l->known[i]);
    rd_fail(st, RD_EUSAGE, "%s: '%s' is '%.64s', which does not exist; one of %s%s%s%s",
            rd_config_where(c, key), key, name, rd_strbuf_str(&list),
            nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    rd_strbuf_release(&list);
    return st->code;
}

/* Writes the name as its owner spells it, because programs compare the names of a log folder. */
static rd_code name_spelled(rd_config *c, const char *key, const char *name, rd_status *st)
{
    char where[512];
    if (strcmp(json_string_value(rd_config_get(c, key)), name) == 0) return RD_OK;
    (void)snprintf(where, sizeof where, "%s", rd_config_where(c, key));
    return rd_config_put(c, key, json_string(name), where, st);
}

/* Looks up the names of model and dataset. The option tables hold the names of all other parts. */
static rd_code known_names(rd_config *c, rd_status *st)
{
    const char *model = json_string_value(rd_config_get(c, "model")),
               *data = json_string_value(rd_config_get(c, "dataset"));
    name_list l = {.n = 0};
    const rd_model_def *m = model ? rd_model_find(model) : NULL;
    const rd_dataset_def *d = data && data[0] ? rd_dataset_find(data) : NULL;
    if (model && !m) {
        const rd_model_def *const *defs = rd_model_defs(&l.n);
        for (int i = 0; i < l.n; i++) l.known[i] = defs[i]->name;
        return name_unknown(c, "model", &l, st);
    }
    if (data && data[0] && !d) {
        const rd_dataset_def *const *defs = rd_dataset_defs(&l.n);
        for (int i = 0; i < l.n; i++) l.known[i] = defs[i]->name;
        return name_unknown(c, "dataset", &l, st);
    }
    if (m) RD_TRY(name_spelled(c, "model", m->name, st));
    if (d) RD_TRY(name_spelled(c, "dataset", d->name, st));
done:
    return st->code;
}

/* Is one of these keys, separated by spaces, in the config? */
static bool any_set(const rd_config *c, const char *keys)
{
    char name[64];
    for (const char *s = keys; s && *s; s += strspn(s, " ")) {
        const size_t n = strcspn(s, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, s);
        if (rd_config_has(c, name)) return true;
        s += n;
    }
    return false;
}

/* Puts the values that the model gives to keys. All conditions are those of the config as the user
 * wrote it. */
static rd_code model_keys(rd_config *c, rd_status *st)
{
    enum { MOST = 64 };
    const char *name = json_string_value(rd_config_get(c, "model"));
    const rd_model_def *m = name ? rd_model_find(name) : NULL;
    bool use[MOST] = {false};
    char source[96];
    if (!m || !m->keys) return RD_OK;
    (void)snprintf(source, sizeof source, "model %.80s", m->name);
    for (int i = 0; i < MOST && m->keys[i].key; i++)
        use[i] = !rd_config_has(c, m->keys[i].key) && !any_set(c, m->keys[i].unless);
    for (int i = 0; i < MOST && m->keys[i].key; i++) {
        json_t *v = use[i] ? json_loads(m->keys[i].value, JSON_DECODE_ANY, NULL) : NULL;
        if (use[i] && !v)
            return rd_fail(st, RD_EBUG, "model %s: the value of '%s' is not JSON", m->name,
                           m->keys[i].key);
        if (v) RD_TRY(rd_config_put(c, m->keys[i].key, v, source, st));
    }
done:
    return st->code;
}

static rd_code bench_flags(rd_config *c, const rd_cli *cli, rd_strbuf *notices, rd_status *st)
{
    RD_TRY(rd_cli_bench_put(cli, c, notices, st));
    RD_TRY(known_names(c, st));
    RD_TRY(bench_defaults(cli, c, notices, st));
done:
    return st->code;
}

/* Refuses keys that only other models, datasets, optimizers, metrics or policies read. */
static rd_code check_owners(const rd_config *c, rd_strbuf *notices, rd_status *st)
{
    rd_option_owner owners[RD_MAX_OWNERS];
    return rd_config_check_owners(c, owners, rd_option_owners(c, owners), notices, st);
}

/* Does the model classify images? Then --input is no text. */
static bool classifies(const rd_config *c)
{
    const char *name = json_string_value(rd_config_get(c, "model"));
    const rd_model_def *m = name ? rd_model_find(name) : NULL;
    return m && m->unit && !m->decode;
}

/* Names all keys that are missing, before the parts of the run read theirs one after the other. */
static rd_code all_required(const rd_config *c, const rd_cli *cli, rd_status *st)
{
    static const char *const also[] = {"source_file",
                                       "target_file",
                                       "encoder_use_skip_connections",
                                       "decoder_use_skip_connections",
                                       "data_dir",
                                       NULL};
    const rd_option_group *read[RD_MAX_GROUPS];
    const unsigned runs = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_EVAL | RD_MODE_INFER |
                          RD_MODE_EXPORT;
    if (!(cli->mode_bit & runs) || cli->print_config) return RD_OK;
    const int n_read = rd_option_groups_read(c, read);
    return rd_config_check_required(c, read, n_read, cli->mode_bit, also, st);
}

/* Returns the config's file: that of --config_file, or the record of the log folder. *record: it is
 * that one. */
static const char *config_path(const rd_cli *cli, char in_folder[4200], bool *record)
{
    *record = !(cli->config_file && cli->config_file[0]) && cli->logdir && cli->logdir[0];
    if (!*record) return cli->config_file;
    (void)snprintf(in_folder, 4200, "%.4000s/config.json", cli->logdir);
    return in_folder;
}

/* Reads the files of the config. Rank 0 only. */
static rd_code config_root(const rd_cli *cli, rd_strbuf *read, rd_status *st)
{
    char in_folder[4200];
    bool record, there;
    const char *path = config_path(cli, in_folder, &record);
    if (!path || !path[0])
        return rd_fail(st, RD_EUSAGE,
                       "--config_file is missing; give the experiment's JSON file, for example "
                       "--config_file=configs/g2p_cmudict.json, or see --help");
    if (record) {
        RD_TRY(rd_path_there(path, &there, st));
        if (!there)
            return rd_fail(st, RD_EUSAGE,
                           "'%s' is not there, and --config_file is not given; name the log folder "
                           "of a run, or give --config_file=FILE",
                           path);
    }
    if (!record) RD_TRY(rd_config_is_there(cli, st));
    (void)rd_config_files_read(path, read, st);
done:
    return st->code;
}

/* Does a set of keys choose a part of the kind? */
static bool chooses(const json_t *set, const char *kind)
{
    return json_object_get(set, kind) ||
           (!strcmp(kind, "lr_policy") && json_object_get(set, "piecewise_learning_rate_schedule"));
}

rd_code rd_run_config_replaced(const rd_cli *cli, const json_t *set, json_t *found, rd_status *st)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    rd_option_owner owners[RD_MAX_OWNERS];
    rd_config *c = NULL;
    rd_strbuf read = {0};
    int n = rd_option_owners(NULL, owners);
    bool any = false;
    for (int i = 0; i < n; i++) any |= chooses(set, owners[i].kind);
    if (!any) return RD_OK;
    RD_TRY(config_root(cli, &read, st));
    RD_TRY(rd_config_new_of_files(read.s, read.n, groups, rd_option_groups(groups),
                                  cli->allow_unknown_keys, rd_cli_is_flag, &c, st));
    for (int i = 0; i < cli->n_set; i++) RD_TRY(rd_config_set(c, cli->set[i], st));
    n = rd_option_owners(c, owners);
    for (int i = 0; i < n; i++)
        if (owners[i].chosen && chooses(set, owners[i].kind))
            RD_TRY(rd_config_replaced(c, owners, n, owners[i].kind, found, st));
done:
    rd_strbuf_release(&read);
    rd_config_free(c);
    return st->code;
}

enum { MAX_NAMED = 100 };

static void warn_unknown(const rd_config *c, rd_log *log)
{
    int n = 0;
    for (; rd_config_unknown(c, n); n++)
        if (n < MAX_NAMED)
            rd_warn(log, "%s: unknown key '%s' is ignored",
                    rd_config_where(c, rd_config_unknown(c, n)), rd_config_unknown(c, n));
    if (n > MAX_NAMED)
        rd_warn(log, "%d more unknown key%s ignored", n - MAX_NAMED,
                n == MAX_NAMED + 1 ? " is" : "s are");
}

rd_code rd_run_config_read(rd_comm *comm, rd_log *log, const rd_cli *cli, rd_config **out,
                           rd_status *st)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    const int n_groups = rd_option_groups(groups);
    const bool root = rd_comm_world(comm)->rank == 0;
    char *sent = NULL; /* the files, on the other ranks */
    const char *files = NULL;
    int64_t bytes = 0;
    char note[256] = "", found[8192];
    rd_strbuf notices = {0}, read = {0};
    *out = NULL;
    if (root && !by_flags(cli)) (void)config_root(cli, &read, st);
    RD_TRY(rd_comm_agree(comm, st));
    bytes = (int64_t)read.n;
    RD_TRY(rd_comm_bcast(comm, &bytes, sizeof bytes, 0, st));
    if (!root) {
        sent = malloc((size_t)bytes + 1);
        if (!sent) rd_fail(st, RD_EENV, "out of memory for the config (%" PRId64 " bytes)", bytes);
    }
    RD_TRY(rd_comm_agree(comm, st));
    RD_TRY(rd_comm_bcast(comm, root ? read.s : sent, bytes, 0, st));
    files = root ? read.s : sent;
    if ((by_flags(cli)
             ? rd_config_new_with_flags("flags", "{}", 2, groups, n_groups, cli->allow_unknown_keys,
                                        rd_cli_is_flag, out, st)
             : rd_config_new_of_files(files, (size_t)bytes, groups, n_groups,
                                      cli->allow_unknown_keys, rd_cli_is_flag, out, st)) == RD_OK) {
        for (int i = 0; i < cli->n_set && st->code == RD_OK; i++)
            (void)rd_config_set(*out, cli->set[i], st);
        if (st->code == RD_OK && cli->lr_given)
            (void)rd_config_put(*out, "learning_rate", json_real(cli->lr), "--lr", st);
        if (st->code == RD_OK && cli->seed_given)
            (void)rd_config_put(*out, "seed", json_integer((json_int_t)cli->seed), "--seed", st);
        if (st->code == RD_OK && cli->input && cli->input[0] && !classifies(*out))
            (void)rd_config_put(*out, "source_file_test", json_string(cli->input), "--input", st);
        if (st->code == RD_OK && cli->mode_bit == RD_MODE_BENCH)
            (void)bench_flags(*out, cli, &notices, st);
        if (st->code == RD_OK) (void)known_names(*out, st);
        if (st->code == RD_OK) (void)first_rate(*out, st);
    }
    RD_TRY(rd_comm_agree(comm, st));
    if (weights_keys_put(*out, comm, cli, &notices, st) == RD_OK) {
        (void)model_keys(*out, st);
        if (st->code == RD_OK) (void)beam_search(*out, cli, note, st);
        if (st->code == RD_OK) (void)check_owners(*out, &notices, st);
        if (st->code == RD_OK) (void)rd_partner_notes(*out, cli, &notices, st);
    }
    RD_TRY(rd_comm_agree(comm, st));
    for (const char *s = rd_strbuf_str(&notices); *s; s += strcspn(s, "\n"), s += *s == '\n')
        rd_info(log, "%.*s", (int)strcspn(s, "\n"), s);
    if (note[0]) rd_info(log, "%s", note);
    if (root && cli->config_file && !by_flags(cli) && rd_installed_config(cli->config_file, found))
        rd_info(log, "config %.300s: %s", cli->config_file, found);
    if (cli->lr_given) rd_info(log, "learning_rate is %g, from --lr", cli->lr);
    if (root) warn_unknown(*out, log); /* an unknown key may be a missing one, misspelt */
    (void)all_required(*out, cli, st);
done:
    rd_strbuf_release(&notices);
    rd_strbuf_release(&read);
    free(sent);
    if (st->code != RD_OK) {
        rd_config_free(*out);
        *out = NULL;
    }
    return st->code;
}
