/* measure.c -- describes how a run measures its best figure.
 *
 * Figures can be compared only if they come from the same evaluation. The manifest holds this
 * description beside the best figure. A run that measures otherwise begins a new comparison. */
#include "measure.h"
#include "evaluate.h"
#include "meaning.h"

#include <stdlib.h>

/* Keys that change the figure of the same weights and the same evaluation data. */
static const char *const of_figure[] = {"average_across_timesteps",
                                        "eval_resize",
                                        "eval_stride",
                                        "image_channels",
                                        "image_mean",
                                        "image_size",
                                        "image_std",
                                        "image_width",
                                        "label_smoothing",
                                        "label_smoothing_form",
                                        "max_eval_samples",
                                        "normalization",
                                        "seq_len",
                                        "softmax_temperature",
                                        "z_loss",
                                        NULL};
static const char *const of_decoding[] = {"beam_width",     "bpe_used", "decoder_type",
                                          "length_penalty", "metric",   "multi_reference",
                                          "print_unk",      NULL};
/* Keys of decoding that older manifests lack: they count where the config has them. */
static const char *const of_search[] = {"bar_unk",
                                        "coverage_penalty",
                                        "coverage_penalty_type",
                                        "decode_dtype",
                                        "length_penalty_const",
                                        "length_penalty_type",
                                        "max_length_factor",
                                        "max_length_offset",
                                        "min_length",
                                        "sampling_temperature",
                                        "sampling_top_k",
                                        "sampling_top_p",
                                        "shortlist_file",
                                        "shortlist_k",
                                        NULL};

/* Returns the figure that decides in this run. Its value means nothing. */
static rd_figure deciding_figure(const rd_run *r)
{
    eval_result v = {.classes = run_is_image(r)};
    if (v.classes) {
        v.by_class.n_classes = r->spec.n_classes;
        v.by_class.at = calloc((size_t)class_counts_n(&v.by_class) + 1, sizeof *v.by_class.at);
        v.classes = v.by_class.at != NULL;
    }
    v.scored = run_scores(r);
    if (v.scored) v.n_figures = r->metric->figures(v.counts, v.figure);
    const rd_figure f = eval_best_figure(r, &v);
    free(v.by_class.at);
    return f;
}

static void copy_keys(const json_t *config, const char *const *list, json_t *out)
{
    for (; *list; list++) {
        json_t *v = json_object_get(config, *list);
        if (v && !json_is_null(v)) (void)json_object_set(out, *list, v);
    }
}

json_t *measure_of_best(const rd_run *r)
{
    const rd_figure f = deciding_figure(r);
    const char *data = rd_dataset_def_of(r->eval_data)->fingerprint(rd_dataset_self(r->eval_data));
    json_t *m = json_pack("{s:s, s:b, s:s}", "figure", f.name, "higher_is_better",
                          (int)f.higher_is_better, "evaluation data", data),
           *config = meaning_config(r);
    if (m) copy_keys(config, of_figure, m);
    if (m && run_real(r, "ema", 0.0) > 0.0) (void)json_object_set_new(m, "ema", json_true());
    if (m && run_scores(r)) {
        (void)json_object_set_new(m, "length_penalty",
                                  json_real(0.0)); /* unless the config has it */
        copy_keys(config, of_decoding, m);
        for (int i = 0; of_search[i]; i++)
            if (rd_config_has(r->keys, of_search[i]))
                (void)json_object_set(m, of_search[i], json_object_get(config, of_search[i]));
    }
    json_decref(config);
    return m;
}
