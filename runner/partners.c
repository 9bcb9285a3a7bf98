/* partners.c -- keys that are set and have no effect, because the key that they belong to is not
 * set so, or because the mode never reads them.
 *
 * Each rule has keys, their partner, and the words of the partner with which the keys count. A
 * config with such a key is refused in every mode that runs a model; rd_config_refuses has the
 * exceptions. Those are noted, one line for each rule, in the modes that read the keys. Keys that
 * another mode reads are only noted, since one file serves several modes, but refused with --set:
 * the user has just asked for what they do. */
#include "rd/model.h"
#include "rd/modes.h"

#include <string.h>
#include <strings.h>

enum { TRAINS = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL, DECODES = RD_MODE_INFER, MOST_KEYS = 7 };
enum {
    RUNS = TRAINS | DECODES | RD_MODE_EVAL,
    SCORES = DECODES | RD_MODE_EVAL | RD_MODE_TRAIN_EVAL
};

static const struct partner_rule {
    const char *key[MOST_KEYS]; /* ends with NULL */
    const char *partner[3];     /* one of them is enough; ends with NULL */
    const char *words[4];       /* ends with NULL; none: any value but null, false, 0 */
    unsigned modes;             /* that read the keys */
    const char *without;        /* NULL: none; else the rule does not hold without this key */
} rules[] = {
    {{"luong_scale"}, {"attention_type"}, {"luong"}, RUNS, NULL},
    {{"bahdanau_normalize"}, {"attention_type"}, {"bahdanau"}, RUNS, NULL},
    {{"num_groups"}, {"encoder_cell_type", "decoder_cell_type"}, {"glstm"}, RUNS, NULL},
    {{"beam_width"}, {"decoder_type"}, {"beam_search"}, SCORES, NULL},
    {{"length_penalty", "length_penalty_const"}, {"decoder_type"}, {"beam_search"}, DECODES, NULL},
    {{"sampling_temperature", "sampling_top_k", "sampling_top_p"},
     {"decoder_type"},
     {"sampling"},
     SCORES,
     NULL},
    {{"coverage_penalty", "coverage_penalty_type"},
     {"decoder_type"},
     {"beam_search"},
     DECODES,
     NULL},
    {{"coverage_penalty_type"}, {"coverage_penalty"}, {NULL}, DECODES, NULL},
    {{"shortlist_k"}, {"shortlist_file"}, {NULL}, SCORES, NULL},
    {{"bucket_width", "bucket_scaling", "bucket_multiple"},
     {"bucketing"},
     {"sockeye", "sockeye_3_word", "sockeye_3_max_word"},
     TRAINS,
     NULL},
    {{"proj_size"}, {"encoder_cell_type", "decoder_cell_type"}, {"lstm", "glstm"}, RUNS, NULL},
    {{"max_positions"}, {"positions"}, {"learned"}, RUNS, NULL},
    {{"rope_theta", "rope_scaling"}, {"pos"}, {"rope"}, RUNS, NULL},
    {{"rope_factor"}, {"rope_scaling"}, {"linear", "llama3"}, RUNS, NULL},
    {{"rope_low_freq_factor", "rope_high_freq_factor", "rope_original_len"},
     {"rope_scaling"},
     {"llama3"},
     RUNS,
     NULL},
    {{"document_positions"}, {"document_mask"}, {NULL}, RUNS, NULL},
    {{"lora_targets", "lora_alpha", "lora_dropout", "lora_rslora"},
     {"lora_rank"},
     {NULL},
     RUNS,
     NULL},
    {{"sample_tokens"}, {"sample_texts"}, {NULL}, RD_MODE_TRAIN_EVAL, NULL},
    {{"sample_summaries"}, {"print_samples"}, {NULL}, TRAINS, NULL},
    {{"split_seed"}, {"eval_fraction"}, {NULL}, RUNS, NULL},
    {{"plateau_patience", "plateau_min_delta", "plateau_cooldown", "plateau_min_lr",
      "plateau_monitor", "plateau_restore"},
     {"plateau_factor"},
     {NULL},
     RD_MODE_TRAIN_EVAL,
     NULL},
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

/* Has the key a value that is not its default, and that is not of the program itself? */
static bool is_changed(const rd_config *c, const char *key)
{
    const rd_option_group *groups[RD_MAX_GROUPS];
    const int n = rd_option_groups(groups);
    const json_t *v = rd_config_get(c, key);
    if (!rd_config_has(c, key) || rd_config_origin(c, key) == RD_ORIGIN_NONE) return false;
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
    for (int i = 0; i < 4 && words[i]; i++)
        if (s && !strcasecmp(s, words[i])) return true;
    return false;
}

/* Keys without effect, in words. */
typedef struct lost_keys {
    char first[64];
    rd_strbuf text; /* "x.json:3:5: 'a', 'b'" */
    int n;
} lost_keys;

static void lost_add(lost_keys *l, const rd_config *c, const char *key)
{
    if (l->n++ > 0) {
        rd_strbuf_printf(&l->text, ", '%s'", key);
        return;
    }
    (void)snprintf(l->first, sizeof l->first, "%s", key);
    rd_strbuf_printf(&l->text, "%s: '%s'", rd_config_where(c, key), key);
}

/* Writes what to do. else_: what makes the keys count, as "set a to b"; NULL: nothing does. */
static void lost_remedy(const rd_config *c, const lost_keys *l, const char *else_, rd_strbuf *out)
{
    const char *comma = else_ ? ", " : ", or ";
    if (rd_config_origin(c, l->first) == RD_ORIGIN_SET)
        rd_strbuf_puts(out, "leave it out");
    else if (l->n > 1)
        rd_strbuf_puts(out, "remove the keys");
    else
        rd_strbuf_printf(out, "remove the key%sgive --set %s=null", comma, l->first);
    if (else_) rd_strbuf_printf(out, ", or %s", else_);
}

/* What is judged, and where the notes go. */
typedef struct judge {
    const rd_config *c;
    rd_mode mode;
    rd_strbuf *notes;
} judge;

/* Refuses the keys of the list that are set, or notes them in the modes that read them. Both lists
 * end with NULL. remedy: what makes the keys count, as "set a to b"; NULL: nothing. */
static rd_code judge_keys(const judge *j, const char *const *keys, const char *const *partners,
                          unsigned modes, const char *why, const char *remedy, rd_status *st)
{
    lost_keys bad = {.n = 0}, noted = {.n = 0};
    rd_strbuf out = {0};
    for (int i = 0; keys[i]; i++)
        if (is_changed(j->c, keys[i]))
            lost_add(rd_config_refuses(j->c, keys[i], partners) ? &bad : &noted, j->c, keys[i]);
    if (bad.n > 0) {
        lost_remedy(j->c, &bad, remedy, &out);
        rd_fail(st, RD_EUSAGE, "%s ha%s no effect: %s; %s", rd_strbuf_str(&bad.text),
                bad.n == 1 ? "s" : "ve", why, rd_strbuf_str(&out));
    }
    if (noted.n > 0 && modes & (unsigned)j->mode)
        rd_strbuf_printf(j->notes, "%s ha%s no effect: %s\n", rd_strbuf_str(&noted.text),
                         noted.n == 1 ? "s" : "ve", why);
    rd_strbuf_release(&bad.text);
    rd_strbuf_release(&noted.text);
    rd_strbuf_release(&out);
    return st->code;
}

static void partner_value(const rd_config *c, const char *key, rd_strbuf *out)
{
    const json_t *v = rd_config_get(c, key);
    if (json_is_string(v))
        rd_strbuf_printf(out, "%s is %.64s", key, json_string_value(v));
    else if (json_is_true(v) || json_is_false(v))
        rd_strbuf_printf(out, "%s is %s", key, json_is_true(v) ? "true" : "false");
    else if (json_is_number(v))
        rd_strbuf_printf(out, "%s is %g", key, json_number_value(v));
    else
        rd_strbuf_printf(out, "%s is not set", key);
}

static rd_code judge_rule(const judge *j, const struct partner_rule *r, rd_status *st)
{
    const char *keys[MOST_KEYS + 1] = {NULL}, *partners[4] = {NULL};
    rd_strbuf why = {0}, remedy = {0};
    if (r->without && !rd_config_has(j->c, r->without)) return RD_OK; /* another default there */
    for (int i = 0; i < 3 && r->partner[i]; i++) {
        if (partner_counts(j->c, r->partner[i], r->words)) goto done;
        partners[i] = r->partner[i];
        rd_strbuf_puts(&why, i ? ", " : "");
        partner_value(j->c, r->partner[i], &why);
        rd_strbuf_printf(&remedy, "%s%s", i ? " or " : "set ", r->partner[i]);
    }
    for (int i = 0; i < MOST_KEYS && r->key[i]; i++) keys[i] = r->key[i];
    if (r->words[0]) {
        rd_strbuf_printf(&why, ", not %s", r->words[0]);
        rd_strbuf_printf(&remedy, " to %s", r->words[0]);
    }
    (void)judge_keys(j, keys, partners, r->modes, rd_strbuf_str(&why), rd_strbuf_str(&remedy), st);
done:
    rd_strbuf_release(&why);
    rd_strbuf_release(&remedy);
    return st->code;
}

/* Keys that only models of the other kind read. */
static rd_code judge_kind(const judge *j, rd_status *st)
{
    static const char *const
        of_text[] = {"metric", "second_metric", "multi_reference", "infer_batch_tokens", NULL},
        *const of_images[] = {"image_frequency", NULL}, *const model[] = {"model", NULL};
    const char *name = json_string_value(rd_config_get(j->c, "model"));
    const rd_model_def *m = rd_model_find(name ? name : "");
    if (!m) return RD_OK;
    return judge_keys(j, m->unit ? of_text : of_images, model, RUNS,
                      m->unit ? "it is for text, and the model reads images"
                              : "it is for images, and the model reads text",
                      NULL, st);
}

/* Decay is a policy of several keys, with a switch. Other policies read some of the keys, too. */
static rd_code judge_decay(const judge *j, rd_status *st)
{
    static const char *const keys[] = {"begin_decay_at",      "decay_steps",       "decay_rate",
                                       "use_staircase_decay", "min_learning_rate", NULL};
    static const char *const partners[] = {"use_decay", "lr_policy",
                                           "piecewise_learning_rate_schedule", NULL};
    const char *policy = json_string_value(rd_config_get(j->c, "lr_policy"));
    if ((policy && strcasecmp(policy, "decay") != 0) ||
        json_is_true(rd_config_get(j->c, "use_decay")) ||
        rd_config_has(j->c, "piecewise_learning_rate_schedule"))
        return RD_OK;
    return judge_keys(j, keys, partners, TRAINS, "use_decay is false", "set use_decay", st);
}

/* data_location only fills placeholders. One script may give it to several configs. */
static void note_location(const judge *j)
{
    static const char key[] = "data_location";
    const rd_option_group *groups[RD_MAX_GROUPS];
    const int n = rd_option_groups(groups);
    if (!is_changed(j->c, key)) return;
    for (int i = 0; i < n; i++)
        for (const rd_option *o = groups[i]->options; o->key; o++) {
            const json_t *v = rd_config_get(j->c, o->key);
            const size_t n_paths = json_is_array(v) ? json_array_size(v) : 1;
            for (size_t k = 0; k < n_paths; k++) {
                const char *s = json_string_value(json_is_array(v) ? json_array_get(v, k) : v);
                if (s && rd_config_placeholder(s)) return;
            }
        }
    rd_strbuf_printf(j->notes,
                     "%s: '%s' has no effect: no path has a placeholder such as [DATA_LOCATION]\n",
                     rd_config_where(j->c, key), key);
}

/* Notes the keys of a list that another mode or flag reads; refuses them if they are from --set. */
static rd_code judge_mode(const judge *j, const char *const *keys, const char *why, rd_status *st)
{
    lost_keys noted = {.n = 0};
    for (int i = 0; keys[i]; i++) {
        if (!is_changed(j->c, keys[i])) continue;
        if (rd_config_origin(j->c, keys[i]) == RD_ORIGIN_SET &&
            rd_config_refuses(j->c, keys[i], NULL))
            rd_fail(st, RD_EUSAGE, "--set: '%s' has no effect: %s; leave it out", keys[i], why);
        lost_add(&noted, j->c, keys[i]);
    }
    if (noted.n > 0)
        rd_strbuf_printf(j->notes, "%s ha%s no effect: %s\n", rd_strbuf_str(&noted.text),
                         noted.n == 1 ? "s" : "ve", why);
    rd_strbuf_release(&noted.text);
    return st->code;
}

rd_code rd_partner_notes(const rd_config *c, const rd_cli *cli, rd_strbuf *notes, rd_status *st)
{
    static const char *const of_evaluation[] = {"stop_patience", "checkpoint_keep_best", NULL},
                             *const of_trace[] = {"trace_steps", "trace_ops", NULL};
    const judge j = {c, cli->mode_bit, notes};
    if (!(cli->mode_bit & RUNS)) return RD_OK;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) RD_TRY(judge_rule(&j, &rules[i], st));
    RD_TRY(judge_decay(&j, st));
    if (cli->mode_bit & TRAINS && !cli->trace)
        RD_TRY(judge_mode(&j, of_trace, "--trace is not given", st));
    /* The plateau rule has its own note. */
    if (cli->mode_bit & RD_MODE_TRAIN)
        RD_TRY(judge_mode(&j, of_evaluation, "mode train does not evaluate; --mode=train_eval does",
                          st));
    RD_TRY(judge_kind(&j, st));
    note_location(&j);
done:
    return st->code;
}
