/* partners.c -- keys that are set and have no effect, because the key that they belong to is not
 * set so, or because the mode or the kind of model never reads them.
 *
 * Each rule has keys, their partner, and the words of the partner with which the keys count. Keys
 * of --set are refused: the user has just asked for what they do. Keys of a file get one note for
 * each rule, and no failure: OpenSeq2Seq's configs carry such keys, and one file serves several
 * modes. */
#include "rd/model.h"
#include "rd/modes.h"

#include <string.h>
#include <strings.h>

enum { TRAINS = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL, DECODES = RD_MODE_INFER, MOST_KEYS = 7 };
enum { RUNS = TRAINS | DECODES | RD_MODE_EVAL };

static const struct partner_rule {
    const char *key[MOST_KEYS]; /* ends with NULL */
    const char *partner[3];     /* one of them is enough; ends with NULL */
    const char *words[3];       /* ends with NULL; none: any value but null, false, 0 */
    unsigned modes;
    const char *without; /* NULL: none; else the rule does not hold without this key */
} rules[] = {
    {{"luong_scale"}, {"attention_type"}, {"luong"}, RUNS, NULL},
    {{"bahdanau_normalize"}, {"attention_type"}, {"bahdanau"}, RUNS, NULL},
    {{"num_groups"}, {"encoder_cell_type", "decoder_cell_type"}, {"glstm"}, RUNS, NULL},
    {{"length_penalty"}, {"decoder_type"}, {"beam_search"}, DECODES, NULL},
    {{"sampling_temperature", "sampling_top_k", "sampling_top_p"},
     {"decoder_type"},
     {"sampling"},
     DECODES | RD_MODE_EVAL | RD_MODE_TRAIN_EVAL,
     NULL},
    {{"shortlist_k"},
     {"shortlist_file"},
     {NULL},
     DECODES | RD_MODE_EVAL | RD_MODE_TRAIN_EVAL,
     NULL},
    {{"proj_size"}, {"encoder_cell_type", "decoder_cell_type"}, {"lstm", "glstm"}, RUNS, NULL},
    {{"max_positions"}, {"positions"}, {"learned"}, RUNS, NULL},
    {{"label_smoothing_form"}, {"label_smoothing"}, {NULL}, TRAINS, NULL},
    {{"subword_size"}, {"subword"}, {NULL}, RUNS, "src_vocab_file"},
    {{"warmup_start"}, {"warmup_steps", "warmup_epochs"}, {NULL}, TRAINS, NULL},
    {{"warmup_init_lr"}, {"inv_sqrt_form"}, {"fairseq"}, TRAINS, NULL},
    {{"min_epochs", "min_steps", "min_samples", "stop_min_delta"},
     {"stop_patience"},
     {NULL},
     RD_MODE_TRAIN_EVAL,
     NULL},
    {{"max_hours_from"}, {"max_hours"}, {NULL}, TRAINS, NULL},
    {{"tf32", "cuda_graphs", "cudnn_rnn", "cpu_binding", "allow_shared_gpu"},
     {"device"},
     {"auto", "cuda"},
     RUNS,
     NULL},
    {{"weight_decay_all"}, {"weight_decay"}, {NULL}, TRAINS, NULL},
    {{"init_allow_missing"}, {"init_from"}, {NULL}, TRAINS, NULL},
    {{"affine_rotation", "affine_shift", "affine_shear", "affine_shear_unit", "affine_zoom",
      "affine_center_offset"},
     {"augmentation"},
     {"affine"},
     TRAINS,
     NULL},
    {{"crop_scale_min", "crop_scale_max", "crop_ratio_min", "crop_ratio_max"},
     {"augmentation"},
     {"crop_flip"},
     TRAINS,
     NULL},
    {{"crop_pad"}, {"augmentation"}, {"pad_crop_flip"}, TRAINS, NULL},
    {{"image_mean", "image_std"}, {"normalization"}, {"custom"}, RUNS, NULL},
};

/* Has the key a value that is not its default? */
static bool is_changed(const rd_config *c, const char *key)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    const int n = rd_option_groups(groups);
    const json_t *v = rd_config_get(c, key);
    if (!rd_config_has(c, key)) return false;
    for (int i = 0; i < n; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            if (strcmp(o->key, key) != 0) continue;
            json_t *def = o->def ? json_loads(o->def, JSON_DECODE_ANY, NULL) : NULL;
            const bool same = def && (json_is_number(def) && json_is_number(v)
                                          ? json_number_value(def) == json_number_value(v)
                                          : json_equal(def, v));
            json_decref(def);
            return !same;
        }
    return false;
}

static bool partner_counts(const rd_config *c, const char *partner, const char *const *words)
{
    const json_t *v = rd_config_get(c, partner);
    const char *s = json_string_value(v);
    if (!words[0]) return s ? *s != '\0' : json_is_true(v) || json_number_value(v) != 0.0;
    for (int i = 0; i < 3 && words[i]; i++)
        if (s && !strcasecmp(s, words[i])) return true;
    return false;
}

/* Begins a note with the place of the key, or adds the key to the note. */
static void partner_key(const rd_config *c, const char *key, int *n, rd_strbuf *notes)
{
    if ((*n)++ == 0)
        rd_strbuf_printf(notes, "%s: '%s'", rd_config_where(c, key), key);
    else
        rd_strbuf_printf(notes, ", '%s'", key);
}

static void partner_value(const rd_config *c, const char *key, rd_strbuf *notes)
{
    const json_t *v = rd_config_get(c, key);
    if (json_is_string(v))
        rd_strbuf_printf(notes, "%s is %.64s", key, json_string_value(v));
    else if (json_is_true(v) || json_is_false(v))
        rd_strbuf_printf(notes, "%s is %s", key, json_is_true(v) ? "true" : "false");
    else if (json_is_number(v))
        rd_strbuf_printf(notes, "%s is %g", key, json_number_value(v));
    else
        rd_strbuf_printf(notes, "%s is not set", key);
}

static void note_rule(const rd_config *c, const struct partner_rule *r, rd_strbuf *notes)
{
    int n = 0;
    if (r->without && !rd_config_has(c, r->without)) return; /* the partner's default differs */
    for (int i = 0; i < 3 && r->partner[i]; i++)
        if (partner_counts(c, r->partner[i], r->words)) return;
    for (int i = 0; i < MOST_KEYS && r->key[i]; i++)
        if (is_changed(c, r->key[i])) partner_key(c, r->key[i], &n, notes);
    if (n == 0) return;
    rd_strbuf_printf(notes, " %s no effect: ", n == 1 ? "has" : "have");
    for (int i = 0; i < 3 && r->partner[i]; i++) {
        if (i) rd_strbuf_puts(notes, ", ");
        partner_value(c, r->partner[i], notes);
    }
    if (r->words[0]) rd_strbuf_printf(notes, ", not %s", r->words[0]);
    rd_strbuf_puts(notes, "\n");
}

/* Notes the keys of a list (ended by NULL) that are set, with the reason. */
static void note_keys(const rd_config *c, const char *const *keys, const char *why,
                      rd_strbuf *notes)
{
    int n = 0;
    for (int i = 0; keys[i]; i++)
        if (is_changed(c, keys[i])) partner_key(c, keys[i], &n, notes);
    if (n > 0) rd_strbuf_printf(notes, " %s no effect: %s\n", n == 1 ? "has" : "have", why);
}

/* Keys that only evaluations read, in a training without evaluations. The plateau rule has its own
 * note. */
static void note_mode(const rd_config *c, rd_strbuf *notes)
{
    static const char *const keys[] = {"stop_patience", "checkpoint_keep_best", NULL};
    note_keys(c, keys, "mode train does not evaluate; --mode=train_eval does", notes);
}

/* Keys that only models of the other kind read. */
static void note_kind(const rd_config *c, rd_strbuf *notes)
{
    static const char *const of_text[] = {"metric", "second_metric", "multi_reference",
                                          "infer_batch_tokens", NULL},
                             *const of_images[] = {"image_frequency", NULL};
    const char *name = json_string_value(rd_config_get(c, "model"));
    const rd_model_def *m = rd_model_find(name ? name : "");
    if (m && m->unit) note_keys(c, of_text, "it is for text, and the model reads images", notes);
    if (m && !m->unit) note_keys(c, of_images, "it is for images, and the model reads text", notes);
}

/* Fails with the first note that begins with "--set: ". */
static rd_code refuse_set(const char *notes, rd_status *st)
{
    static const char set[] = "--set: ";
    for (const char *s = notes; *s; s += strcspn(s, "\n"), s += *s == '\n')
        if (!strncmp(s, set, sizeof set - 1))
            return rd_fail(st, RD_EUSAGE,
                           "%.*s; leave it out, or give what it needs; --allow_unknown_keys lets "
                           "it pass",
                           (int)strcspn(s, "\n"), s);
    return RD_OK;
}

/* Decay is a policy of several keys, with a switch. Other policies read some of the keys, too. */
static void note_decay(const rd_config *c, rd_strbuf *notes)
{
    static const char *const keys[] = {"begin_decay_at", "decay_steps", "decay_rate",
                                       "use_staircase_decay", "min_learning_rate"};
    const char *policy = json_string_value(rd_config_get(c, "lr_policy"));
    int n = 0;
    if ((policy && strcasecmp(policy, "decay") != 0) ||
        json_is_true(rd_config_get(c, "use_decay")) ||
        rd_config_has(c, "piecewise_learning_rate_schedule"))
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (rd_config_has(c, keys[i])) partner_key(c, keys[i], &n, notes);
    if (n > 0)
        rd_strbuf_printf(notes, " %s no effect: use_decay is false\n", n == 1 ? "has" : "have");
}

static void note_trace(const rd_config *c, const rd_cli *cli, rd_strbuf *notes)
{
    int n = 0;
    if (cli->trace) return;
    if (is_changed(c, "trace_steps")) partner_key(c, "trace_steps", &n, notes);
    if (is_changed(c, "trace_ops")) partner_key(c, "trace_ops", &n, notes);
    if (n > 0)
        rd_strbuf_printf(notes, " %s no effect: --trace is not given\n", n == 1 ? "has" : "have");
}

/* data_location only fills placeholders. */
static void note_location(const rd_config *c, rd_strbuf *notes)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    const int n = rd_option_groups(groups);
    int at = 0;
    if (!is_changed(c, "data_location")) return;
    for (int i = 0; i < n; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            const char *s = json_string_value(rd_config_get(c, o->key));
            if (s && rd_config_placeholder(s)) return;
        }
    partner_key(c, "data_location", &at, notes);
    rd_strbuf_puts(notes, " has no effect: no path has a placeholder such as [DATA_LOCATION]\n");
}

rd_code rd_partner_notes(const rd_config *c, const rd_cli *cli, rd_strbuf *notes, rd_status *st)
{
    const size_t before = notes->n;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].modes & (unsigned)cli->mode_bit) note_rule(c, &rules[i], notes);
    if (cli->mode_bit & TRAINS) {
        note_decay(c, notes);
        note_trace(c, cli, notes);
    }
    if (cli->mode_bit & RD_MODE_TRAIN) note_mode(c, notes);
    if (cli->mode_bit & RUNS) note_kind(c, notes);
    if (!cli->allow_unknown_keys) (void)refuse_set(rd_strbuf_str(notes) + before, st);
    /* One script may give data_location to several configs. */
    if (cli->mode_bit & RUNS) note_location(c, notes);
    return st->code;
}
