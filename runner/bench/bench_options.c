/* bench_options.c -- the keys of bench mode. */
#include "bench.h"

static const rd_option rows[] = {
    RD_OPT_INT(bench_config, bench_steps, bench_steps, "20", 1, 1e9,
               "number of counted steps in bench mode"),
    RD_OPT_REAL(bench_config, bench_epochs, bench_epochs, NULL, 1e-9, 1e6,
                "replaces bench_steps: passes over the data, rounded up to whole batches",
                RD_GIVEN(bench_config, has_epochs)),
    RD_OPT_INT(bench_config, bench_warmup, bench_warmup, "5", 0, 1e9,
               "number of steps before counting starts"),
    RD_OPT_INT(bench_config, bench_display, bench_display, "10", 1, 1e9,
               "steps between lines of format tfcnn; steps of one measurement of format horovod"),
    RD_OPT_ENUM(bench_config, bench_format, bench_format, "\"text\"", bench_style_names,
                "text: a summary. tfcnn, horovod: the output of those programs. json: one line for "
                "programs"),
    RD_OPT_BOOL(bench_config, bench_accuracy, bench_accuracy, "false",
                "format tfcnn: print top-1 and top-5 of the step beside its loss"),
    RD_OPT_BOOL(
        bench_config, bench_forward_only, bench_forward_only, "false",
        "measure the forward pass as in evaluation: no gradients, no sum over ranks, no update"),
    RD_OPT_BOOL(bench_config, bench_synthetic, bench_synthetic, "false",
                "random sentences, or one batch of random images, instead of the config's data"),
    RD_OPT_NAME(bench_config, bench_data, bench_data, NULL, bench_data_names,
                "shape of synthetic images, unless image_size, image_channels and n_classes set "
                "it; default: the model's own data"),
    RD_OPT_INT(bench_config, bench_min_len, bench_min_len, "40", 3, 100000,
               "length of the shortest synthetic sentence, both end tokens included"),
    RD_OPT_INT(bench_config, bench_max_len, bench_max_len, "40", 3, 100000,
               "length of the longest synthetic sentence, both end tokens included"),
    RD_OPT_INTS(bench_config, bench_lengths, bench_lengths, NULL, 3, 100000,
                "replaces bench_min_len and bench_max_len: lengths of source and target in turns, "
                "both end tokens included; each pair of lengths is equally likely"),
    RD_OPT_INT(bench_config, bench_vocab, bench_vocab, "16000", 5, 1 << 30,
               "size of both synthetic vocabularies"),
    RD_OPT_END};

const rd_option_group rd_group_bench = {
    "bench", "Bench mode: what is measured and how it is printed", rows, sizeof(bench_config)};
