/* bench_config.c -- the defaults of bench mode: those of tf_cnn_benchmarks for a run that is
 * started by flags alone, the model's usual batch size, and the dataset that --data_dir and
 * --data_name mean. */
#include "bench.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static bool contains(const char *s, const char *piece)
{
    return s && strstr(s, piece) != NULL;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Returns the dataset for a name of tf_cnn_benchmarks, by the form of the path; NULL: none. */
static const char *dataset_of(const char *name, const char *path)
{
    const bool tar = strstr(path, ".tar") != NULL, many = strpbrk(path, "{*?[") != NULL;
    const rd_dataset_def *def = rd_dataset_find(name);
    if (def) return def->name;
    if (strcasecmp(name, "imagenet") == 0)
        return tar && many ? "webdataset" : tar ? "imagenet_tar" : "image_folder";
    if (strcasecmp(name, "cifar10") == 0 || strcasecmp(name, "cifar100") == 0) return "cifar";
    if (strcasecmp(name, "mnist") == 0) return ends_with(path, ".npz") ? "npz_images" : "idx";
    return NULL;
}

/* Puts a value unless the key has one. Takes ownership of v. */
static rd_code bench_config_put(rd_config *c, const char *key, json_t *v, const char *source,
                                rd_status *st)
{
    if (rd_config_has(c, key)) {
        json_decref(v);
        return RD_OK;
    }
    return rd_config_put(c, key, v, source, st);
}

/* Puts what tf_cnn_benchmarks does with images of this dataset. Archives and patterns are files of
 * a folder here. */
static rd_code put_data(rd_config *c, const char *dataset, const char *path, bool augment,
                        const char *source, rd_status *st)
{
    const bool cifar = strcmp(dataset, "cifar") == 0,
               digits = strcmp(dataset, "idx") == 0 || ends_with(path, ".npz");
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    RD_TRY(bench_config_put(c, "dataset", json_string(dataset), source, st));
    if (!cifar && (contains(file, ".tar") || ends_with(file, ".npz"))) {
        json_t *dir = slash ? json_stringn(path, slash > path ? (size_t)(slash - path) : 1)
                            : json_string(".");
        (void)bench_config_put(c, "train_data", json_string(file), source, st);
        (void)rd_config_put(c, "data_dir", dir, source,
                            /* last: path may be the value that this call frees */
                            st);
        RD_TRY(st->code);
    }
    if (strcmp(dataset, "webdataset") == 0)
        RD_TRY(bench_config_put(c, "n_classes", json_integer(1000), source, st));
    if (digits || !augment) return RD_OK;
    RD_TRY(bench_config_put(c, "augmentation", json_string(cifar ? "pad_crop_flip" : "crop_flip"),
                            source, st));
    RD_TRY(bench_config_put(c, "normalization", json_string("symmetric"), source, st));
done:
    return st->code;
}

/* Chooses the dataset. --data_name names the data of --data_dir; without --data_dir, the shape of
 * the synthetic images. */
static rd_code choose_data(const rd_cli *cli, rd_config *c, rd_strbuf *notices, rd_status *st)
{
    static const char *const guesses[] = {"imagenet", "cifar100", "cifar10", "mnist", NULL};
    const char *name = rd_cli_bench_value(cli, "data_name"),
               *dir = rd_cli_bench_value(cli, "data_dir");
    const bool given = name != NULL;
    if (!dir && name && !rd_config_has(c, "data_dir")) {
        for (int i = 0; bench_data_names[i]; i++)
            if (strcasecmp(bench_data_names[i], name) == 0) {
                rd_strbuf_printf(notices, "--data_name=%s is bench_data=%s\n", name, name);
                return bench_config_put(c, "bench_data", json_string(name), "--data_name", st);
            }
        return rd_fail(st, RD_EUSAGE,
                       "--data_name=%.64s: there are no synthetic images of that name; use "
                       "imagenet, cifar10, cifar100 or mnist, or give --data_dir",
                       name);
    }
    if (!dir) dir = json_string_value(rd_config_get(c, "data_dir"));
    if (!dir || (rd_config_has(c, "dataset") && !given)) return RD_OK;
    for (int i = 0; !name && guesses[i]; i++)
        if (strstr(dir, guesses[i])) name = guesses[i];
    if (!name && cli->config_file) return RD_OK; /* the model's own data */
    const char *dataset = name ? dataset_of(name, dir) : NULL;
    if (!name)
        return rd_fail(st, RD_EUSAGE,
                       "--data_dir=%.200s: the path does not tell which data it holds; give "
                       "--data_name=imagenet, cifar10, cifar100 or mnist, or the name of a dataset "
                       "(--help=dataset)",
                       dir);
    if (!dataset)
        return rd_fail(st, RD_EUSAGE,
                       "--data_name=%.64s is unknown; use imagenet, cifar10, cifar100, mnist, or "
                       "the name of a dataset (--help=dataset)",
                       name);
    if (given)
        rd_strbuf_printf(notices, "--data_name=%s is dataset=%s\n", name, dataset);
    else
        rd_strbuf_printf(notices, "dataset is %s, by '%s' in the path\n", dataset, name);
    if (given) rd_config_drop(c, "dataset");
    return put_data(c, dataset, dir, !cli->config_file, given ? "--data_name" : "--data_dir", st);
}

/* tf_cnn_benchmarks has other networks for CIFAR under some names: puts the one that --model and
 * the data mean, and returns it. */
static const rd_model_def *model_of_data(const rd_cli *cli, rd_config *c, const rd_model_def *def,
                                         rd_strbuf *notices, rd_status *st)
{
    const char *like = json_string_value(rd_config_get(c, "bench_data")),
               *data = json_string_value(rd_config_get(c, "dataset"));
    const bool cifar = data ? strcmp(data, "cifar") == 0
                            : like && strncasecmp(like, "cifar", 5) == 0;
    if (!def || !def->bench_cifar || !cifar || !rd_cli_bench_value(cli, "model")) return def;
    rd_strbuf_printf(notices, "model is %s: %s for images of CIFAR, as in tf_cnn_benchmarks\n",
                     def->bench_cifar, def->name);
    if (rd_config_put(c, "model", json_string(def->bench_cifar), "--model and the data", st) !=
        RD_OK)
        return def;
    return rd_model_find(def->bench_cifar);
}

/* Are the images like ImageNet's? */
static bool imagenet_of(const rd_config *c, const rd_model_def *def, bool synthetic)
{
    static const char *const sets[] = {"image_folder", "imagenet_tar", "webdataset", NULL};
    const char *of = json_string_value(rd_config_get(c, synthetic ? "bench_data" : "dataset"));
    if (!def || !def->unit) return false;
    if (synthetic && of) return strcasecmp(of, "imagenet") == 0;
    if (!of) of = def->default_dataset;
    for (int i = 0; of && sets[i]; i++)
        if (strcmp(sets[i], of) == 0) return true;
    return false;
}

/* Puts the images and classes that tf_cnn_benchmarks gives the model. It has 1001 classes for
 * synthetic images like ImageNet's; Horovod's benchmark has 1000. */
static rd_code put_images(rd_config *c, const rd_model_def *def, bool horovod, const char *source,
                          rd_status *st)
{
    const bool synthetic = json_is_true(rd_config_get(c, "bench_synthetic"));
    if (synthetic && def && def->bench_data)
        RD_TRY(bench_config_put(c, "bench_data", json_string(def->bench_data), source, st));
    if (!imagenet_of(c, def, synthetic)) return RD_OK;
    if (def->bench_size > 0)
        RD_TRY(bench_config_put(c, "image_size", json_integer((json_int_t)def->bench_size), source,
                                st));
    if (synthetic && !horovod)
        RD_TRY(bench_config_put(c, "n_classes", json_integer(1001), source, st));
done:
    return st->code;
}

rd_code bench_defaults(const rd_cli *cli, rd_config *c, rd_strbuf *notices, rd_status *st)
{
    static const char tf[] = "tf_cnn_benchmarks' default";
    const bool horovod = rd_cli_bench_value(cli, "num_iters") ||
                         rd_cli_bench_value(cli, "num_batches_per_iter");
    const char *size = rd_cli_bench_value(cli, "batch_size");
    const char *model = json_string_value(rd_config_get(c, "model"));
    const rd_model_def *def = model ? rd_model_find(model) : NULL;
    RD_TRY(choose_data(cli, c, notices, st));
    def = model_of_data(cli, c, def, notices, st);
    RD_TRY(st->code);
    model = json_string_value(rd_config_get(c, "model"));
    const int64_t n = def && def->usual_batch ? def->usual_batch : 32;
    if (!rd_config_has(c, "batch_size") && (!cli->config_file || size)) {
        rd_strbuf_printf(notices, "batch_size is %" PRId64 ", the usual one of %s\n", n,
                         model ? model : "it");
        RD_TRY(bench_config_put(c, "batch_size", json_integer((json_int_t)n),
                                "the model's usual one", st));
    }
    if (horovod)
        RD_TRY(bench_config_put(c, "bench_format", json_string("horovod"), "Horovod's flags", st));
    if (cli->config_file) goto done;
    RD_TRY(bench_config_put(c, "bench_format", json_string("tfcnn"), tf, st));
    if (!rd_config_has(c, "bench_epochs"))
        RD_TRY(bench_config_put(c, "bench_steps", json_integer(100), tf, st));
    RD_TRY(bench_config_put(c, "bench_warmup", json_integer(10), tf, st));
    RD_TRY(bench_config_put(
        c, "bench_synthetic",
        json_boolean(!rd_config_has(c, "dataset") && !rd_config_has(c, "data_dir")), tf, st));
    RD_TRY(bench_config_put(c, "optimizer", json_string("sgd"), tf, st));
    /* The learning rate of the first steps of tf_cnn_benchmarks, so that the loss stays as at the
     * start. */
    if (!rd_config_has(c, "piecewise_learning_rate_schedule"))
        RD_TRY(bench_config_put(c, "learning_rate", json_real(3e-5), "bench mode", st));
    RD_TRY(bench_config_put(c, "weight_decay", json_real(4e-5), tf, st));
    RD_TRY(put_images(c, def, horovod, tf, st));
done:
    if (notices->failed) rd_fail(st, RD_EENV, "out of memory for the command line");
    return st->code;
}
