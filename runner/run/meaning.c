/* meaning.c -- names what has changed since a checkpoint and gives its numbers another meaning.
 *
 * Weights fit another config if the shapes agree, but they may compute something else there: with
 * other classes, another normalization or another structure. So the manifest holds the config and
 * the class names. measure.c adds how the best figure was measured. */
#include "meaning.h"

#include <stdlib.h>
#include <string.h>

/* Keys without influence on any result, and keys that name a file outside of training. */
static const char *const technical[] = {"allow_shared_gpu",
                                        "bucket_mb",
                                        "check_replicas_every",
                                        "checkpoint",
                                        "checkpoint_keep",
                                        "cpu_binding",
                                        "cuda_graphs",
                                        "data_location",
                                        "data_threads",
                                        "eval_batch_size",
                                        "histogram_frequency",
                                        "image_frequency",
                                        "ids_in_memory",
                                        "infer_batch_size",
                                        "infer_batch_tokens",
                                        "init_from",
                                        "init_allow_missing",
                                        "lock_dir",
                                        "lora_from",
                                        "max_line_bytes",
                                        "max_new_tokens",
                                        "mode",
                                        "nbest",
                                        "num_gpus",
                                        "output_format",
                                        "print_samples",
                                        "read_retries",
                                        "record_sample_ids",
                                        "reset_optimizer",
                                        "sample_summaries",
                                        "sample_texts",
                                        "sample_tokens",
                                        "shuffle",
                                        "source_file_test",
                                        "stall_abort_s",
                                        "stall_warn_s",
                                        "target_file_test",
                                        "test_data",
                                        "test_labels",
                                        "threads",
                                        "token_cache",
                                        "top_k",
                                        "trace_ops",
                                        "trace_steps",
                                        "use_attention",
                                        "use_swap_memory",
                                        NULL};

/* Keys of the evaluation. Train mode reads none of them. */
static const char *const of_evaluation[] = {"bar_unk",
                                            "beam_width",
                                            "bpe_used",
                                            "coverage_penalty",
                                            "coverage_penalty_type",
                                            "decode_dtype",
                                            "decoder_type",
                                            "eval_bleu",
                                            "eval_data",
                                            "eval_epochs",
                                            "eval_frequency",
                                            "eval_labels",
                                            "eval_stride",
                                            "length_penalty",
                                            "length_penalty_const",
                                            "length_penalty_type",
                                            "max_eval_samples",
                                            "max_length_factor",
                                            "max_length_offset",
                                            "metric",
                                            "min_length",
                                            "multi_reference",
                                            "print_unk",
                                            "sampling_temperature",
                                            "sampling_top_k",
                                            "sampling_top_p",
                                            "second_metric",
                                            "source_file_eval",
                                            "target_file_eval",
                                            NULL};

/* Keys of data and models that act in training alone. */
static const char *const of_training[] = {"affine_center_offset",
                                          "affine_rotation",
                                          "affine_shear",
                                          "affine_shear_unit",
                                          "affine_shift",
                                          "affine_zoom",
                                          "augmentation",
                                          "batch_norm_momentum",
                                          "batch_norm_samples",
                                          "bpe_vocab_threshold",
                                          "bucket_multiple",
                                          "bucket_scaling",
                                          "bucket_src",
                                          "bucket_tgt",
                                          "bucket_width",
                                          "bucketing",
                                          "crop_pad",
                                          "crop_ratio_max",
                                          "crop_ratio_min",
                                          "crop_scale_max",
                                          "crop_scale_min",
                                          "decoder_dp_input_keep_prob",
                                          "decoder_dp_output_keep_prob",
                                          "dropout_attention",
                                          "dropout_conv",
                                          "dropout_dense",
                                          "dropout_embedding",
                                          "dropout_ff",
                                          "dropout_residual",
                                          "encoder_dp_input_keep_prob",
                                          "encoder_dp_output_keep_prob",
                                          "eval_fraction",
                                          "init_scale",
                                          "init_std",
                                          "initializer",
                                          "lora_dropout",
                                          "max_seq_len",
                                          "num_words",
                                          "shared_vocab",
                                          "source_file",
                                          "split_seed",
                                          "subword",
                                          "subword_size",
                                          "synthetic_samples",
                                          "target_file",
                                          "train_data",
                                          "train_labels",
                                          "weight_init",
                                          "word_min_count",
                                          "zero_gamma",
                                          NULL};

/* Locations of data, whose contents are compared otherwise. */
static const char *const locations[] = {
    "bpe_glossaries", "data_dir", "src_vocab_file", "subword_model", "synsets_file",
    "tgt_vocab_file", NULL};

static bool among(const char *const *list, const char *key)
{
    while (*list && strcmp(*list, key) != 0) list++;
    return *list != NULL;
}

/* Is it a key that only training reads, with any model (the trainer's own ones, except model and
 * dataset)? */
static bool of_trainer(const char *key)
{
    const rd_option_group *own[RD_MAX_GROUPS];
    const int n = rd_training_groups(own);
    if (strcmp(key, "model") == 0 || strcmp(key, "dataset") == 0) return false;
    for (int i = 0; i < n; i++)
        for (const rd_option *o = own[i]->options; o->key; o++)
            if (strcmp(key, o->key) == 0) return true;
    return false;
}

/* Can this key change without changing the shape or the meaning of the weights? It does not matter
 * whether the key changes what the next steps compute. */
static bool harmless(const char *key)
{
    return among(technical, key) || among(of_evaluation, key) || among(of_training, key) ||
           strcmp(key, "data_dir") == 0 || of_trainer(key);
}

json_t *meaning_config(const rd_run *r)
{
    json_t *effective = rd_config_effective(r->keys), *flat = json_object(), *row;
    const char *key;
    json_object_foreach(effective, key, row)
    {
        json_t *v = json_object_get(row, "value");
        /* shard changes where state is kept, and no byte of a checkpoint. */
        if (v && strcmp(key, "shard") != 0) (void)json_object_set(flat, key, v);
    }
    json_decref(effective);
    return flat;
}

json_t *meaning_classes(const rd_data_spec *spec)
{
    if (!spec->class_names || spec->n_classes <= 0) return NULL;
    json_t *list = json_array();
    for (int64_t k = 0; k < spec->n_classes; k++) {
        json_t *name = json_string(spec->class_names[k]);
        /* A name that is not UTF-8 cannot be kept. */
        (void)json_array_append_new(list, name ? name : json_string(""));
    }
    return list;
}

/* ---- differences ---- */

/* Does the value differ? NULL and null are no value. 1 and 1.0 are the same number. */
static bool differs(const json_t *a, const json_t *b)
{
    const bool none_a = !a || json_is_null(a), none_b = !b || json_is_null(b);
    if (none_a || none_b) return none_a != none_b;
    if (json_is_number(a) && json_is_number(b))
        return json_is_integer(a) && json_is_integer(b)
                   ? json_integer_value(a) != json_integer_value(b)
                   : json_number_value(a) != json_number_value(b);
    return !json_equal(a, b);
}

static void value_text(const json_t *v, char out[80])
{
    char *text = v && !json_is_null(v)
                     ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6))
                     : NULL;
    const size_t n = text ? strlen(text) : 0;
    (void)snprintf(out, 80, "%.70s%s", text ? text : "not set", n > 70 ? "..." : "");
    free(text);
}

static void append_change(const char *key, const char *colon, const json_t *was, const json_t *now,
                          rd_strbuf *out)
{
    char a[80], b[80];
    value_text(was, a);
    value_text(now, b);
    rd_strbuf_printf(out, "%s%s%s %s -> %s", out->n ? ", " : "", key, colon, a, b);
}

int meaning_difference(const json_t *was, const json_t *now, int most, rd_strbuf *out)
{
    json_t *all = json_copy((json_t *)(uintptr_t)was);
    const json_t *v;
    const char *key;
    int n = 0;
    (void)json_object_update_missing(all, (json_t *)(uintptr_t)now);
    json_object_foreach(all, key, v)
    {
        const json_t *a = json_object_get(was, key), *b = json_object_get(now, key);
        if (!differs(a, b)) continue;
        if (most == 0 || n < most) append_change(key, ":", a, b, out);
        n++;
    }
    json_decref(all);
    return n;
}

void meaning_changed(const rd_run *r, const json_t *manifest, int most, rd_strbuf *out)
{
    json_t *now = meaning_config(r);
    const json_t *old = json_object_get(manifest, "config"), *v;
    const char *key;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)old, key, v)
    {
        if (harmless(key) || !differs(v, json_object_get(now, key))) continue;
        append_change(key, "", v, json_object_get(now, key), out);
        if (++n == most) break;
    }
    json_decref(now);
}

bool meaning_other_samples(const rd_run *r, const json_t *manifest)
{
    static const char *const keys[] = {"bucket_src", "bucket_tgt", "max_seq_len", "sampling"};
    json_t *now = meaning_config(r);
    const json_t *old = json_object_get(manifest, "config");
    bool other = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *v = json_object_get(old, keys[i]);
        other |= v && differs(v, json_object_get(now, keys[i]));
    }
    json_decref(now);
    return other;
}

/* ---- classes ---- */

static const char *class_at(const json_t *was, size_t k)
{
    const char *name = json_string_value(json_array_get(was, k));
    return name ? name : "";
}

bool meaning_other_classes(const json_t *was, const rd_data_spec *spec, rd_strbuf *why)
{
    enum { SHOWN = 8 };
    const size_t n = json_array_size(was), now = spec->class_names ? (size_t)spec->n_classes : 0,
                 both = n < now ? n : now;
    size_t first = 0;
    while (first < both && (!class_at(was, first)[0] || !spec->class_names[first][0] ||
                            strcmp(class_at(was, first), spec->class_names[first]) == 0))
        first++;
    if (first == both && (both == 0 || n == now)) return false;
    if (first == both)
        rd_strbuf_printf(why, "it has %zu classes and the data %zu; classes there:", n, now);
    else
        rd_strbuf_printf(why, "class %zu is '%.60s' there and '%.60s' in the data; classes there:",
                         first, class_at(was, first), spec->class_names[first]);
    for (size_t k = 0; k < n && k < SHOWN; k++)
        rd_strbuf_printf(why, "%s %.60s", k ? "," : "", class_at(was, k));
    rd_strbuf_printf(why, "%s; in the data:", n > SHOWN ? ", ..." : "");
    for (size_t k = 0; k < now && k < SHOWN; k++)
        rd_strbuf_printf(why, "%s %.60s", k ? "," : "", spec->class_names[k]);
    if (now > SHOWN) rd_strbuf_puts(why, ", ...");
    return true;
}

/* ---- the report ---- */

/* Does a difference in this key matter in this mode? */
static bool matters(const rd_run *r, const char *key)
{
    const bool train = r->mode == RD_MODE_TRAIN || r->mode == RD_MODE_TRAIN_EVAL;
    if (among(technical, key) || strcmp(key, "seed") == 0 || strncmp(key, "bench_", 6) == 0)
        return false;
    if (train) return r->mode == RD_MODE_TRAIN_EVAL || !among(of_evaluation, key);
    if (strcmp(key, "eval_frequency") == 0 || strcmp(key, "eval_epochs") == 0) return false;
    if (among(of_evaluation, key)) return r->mode == RD_MODE_EVAL;
    return !harmless(key);
}

/* Reports evaluation data with other contents than those of the best figure. */
static void report_evaluation(const rd_run *r, const json_t *manifest)
{
    const char *was = json_string_value(json_object_get(json_object_get(manifest, "best_measure"),
                                                        "evaluation data"));
    if (r->mode != RD_MODE_EVAL || !was) return;
    const char *now = rd_dataset_def_of(r->eval_data)->fingerprint(rd_dataset_self(r->eval_data));
    if (strcmp(was, now) != 0)
        rd_info(r->log, "changed since the checkpoint: evaluation data: %s -> %s", was, now);
}

void meaning_report(const rd_run *r, const json_t *manifest)
{
    const json_t *old = json_object_get(manifest, "config");
    json_t *now = meaning_config(r), *all = now ? json_copy(now) : NULL, *v;
    const char *key;
    if (!json_is_object(old)) goto done;
    (void)json_object_update_missing(all, (json_t *)(uintptr_t)old);
    json_object_foreach(all, key, v)
    {
        const json_t *was = json_object_get(old, key), *is = json_object_get(now, key);
        char a[80], b[80];
        if (!differs(was, is) || !matters(r, key)) continue;
        /* An older program did not know the key. Train mode drops keys of the evaluation. */
        if (!was && strcmp(rd_config_where(r->keys, key), "default") == 0) continue;
        if (among(of_evaluation, key) && (!was || json_is_null(was))) continue;
        value_text(was, a);
        value_text(is, b);
        if (harmless(key) || among(locations, key))
            rd_info(r->log, "changed since the checkpoint: %s: %s -> %s", key, a, b);
        else
            rd_warn(r->log, "changed since the checkpoint: %s: %s -> %s", key, a, b);
    }
    report_evaluation(r, manifest);
    if (r->config.init_from &&
        differs(json_object_get(old, "init_from"), json_object_get(now, "init_from")))
        rd_warn(r->log,
                "init_from has no effect: the log folder has a checkpoint, and the training "
                "goes on from it; use another --logdir to begin with other weights");
done:
    json_decref(all);
    json_decref(now);
}
