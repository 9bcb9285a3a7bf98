/* images_config.c -- the keys that all image datasets read, and how they become numbers. Keys that
 * only one dataset reads are in its file. */
#include "images_impl.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define T rd_images_config
static const char *const augmentations[] = {
    [RD_AUGMENT_NONE] = "none",      [RD_AUGMENT_AFFINE] = "affine",
    [RD_AUGMENT_CROP] = "crop_flip", [RD_AUGMENT_PAD_CROP] = "pad_crop_flip",
    [RD_AUGMENT_FLIP] = "flip",      NULL};
static const char *const units[] = {[RD_DEGREES] = "degrees", [RD_RADIANS] = "radians", NULL};
static const char *const normalizations[] = {[RD_NORM_UNIT] = "unit",
                                             [RD_NORM_SYMMETRIC] = "symmetric",
                                             [RD_NORM_NONE] = "none",
                                             [RD_NORM_IMAGENET] = "imagenet",
                                             [RD_NORM_IMAGENET_MEAN] = "imagenet_mean",
                                             [RD_NORM_CIFAR10] = "cifar10",
                                             [RD_NORM_MNIST] = "mnist",
                                             [RD_NORM_CUSTOM] = "custom",
                                             NULL};

static const rd_option options[] = {
    RD_OPT_PATH(
        T, data_dir, data_dir, NULL,
        "folder of the data, or torchvision's root above it. cifar, npz_images: also the archive "
        "or .npz file itself"),
    RD_OPT_PATH(T, train_data, data[RD_SPLIT_TRAIN], NULL,
                "training data below data_dir, if it does not have its usual name: a file, a "
                "folder, or shards such as train-{000..012}.tar"),
    RD_OPT_PATH(T, eval_data, data[RD_SPLIT_EVAL], NULL,
                "evaluation data below data_dir, if it does not have its usual name"),
    RD_OPT_PATH(T, test_data, data[RD_SPLIT_TEST], NULL,
                "data of infer mode below data_dir. Without it: the evaluation data"),
    RD_OPT_PATH(T, data_location, data_location, NULL,
                "folder that replaces [..._DATA_LOCATION] in file names"),
    RD_OPT_INT(T, n_classes, n_classes, "0", 0, 1 << 24,
               "number of classes. 0: as the data says (idx and npz_images 10, synthetic_images "
               "1000). webdataset needs the number"),
    RD_OPT_INT(T, label_offset, label_offset, "0", 0, 1000,
               "added to every label. 1: class 0 is TensorFlow's background"),
    RD_OPT_INT(T, image_size, image_size, "0", 0, 16384,
               "height and width of the images that the model gets, in pixels. 0: the size in the "
               "data; 224 for JPEG and synthetic images"),
    RD_OPT_INT(T, image_width, image_width, "0", 0, 16384,
               "width of the images in pixels, if it differs from image_size. 0: image_size"),
    RD_OPT_INT(T, image_channels, image_channels, "0", 0, 3,
               "1: grey; 3: colour; 0: as the data has it, 3 for JPEG and synthetic images"),
    RD_OPT_ENUM(T, augmentation, augmentation, "\"none\"", augmentations,
                "change of the training images. affine: rotated, shifted, sheared and zoomed as in "
                "Keras; crop_flip: random resized crop, mirrored half of the time; pad_crop_flip: "
                "shifted by up to crop_pad pixels, mirrored half of the time; flip: mirrored half "
                "of the time"),
    RD_OPT_REAL(T, affine_rotation, affine_rotation, "8", 0, 360,
                "affine: largest angle, in degrees"),
    RD_OPT_REAL(T, affine_shift, affine_shift, "0.08", 0, 1,
                "affine: largest shift, as a share of the height and width"),
    RD_OPT_REAL(T, affine_shear, affine_shear, "0.3", 0, 360,
                "affine: largest shear angle, in affine_shear_unit"),
    RD_OPT_ENUM(T, affine_shear_unit, affine_shear_unit, "\"degrees\"", units,
                "affine: unit of affine_shear. Keras before version 2.2 took the number as "
                "radians"),
    RD_OPT_REAL(T, affine_zoom, affine_zoom, "0.08", 0, 0.99,
                "affine: height and width are scaled by 1 - affine_zoom .. 1 + affine_zoom"),
    RD_OPT_REAL(T, affine_center_offset, affine_center_offset, "0.5", -1, 1,
                "affine: the centre is half the size plus this. 0.5: Keras of 2018; -0.5: later "
                "versions"),
    RD_OPT_REAL(T, crop_scale_min, crop_scale_min, "0.08", 0.0001, 1,
                "crop_flip: smallest share of the area"),
    RD_OPT_REAL(T, crop_scale_max, crop_scale_max, "1", 0.0001, 1,
                "crop_flip: largest share of the area"),
    RD_OPT_REAL(T, crop_ratio_min, crop_ratio_min, "0.75", 0.01, 100,
                "crop_flip: smallest width / height"),
    RD_OPT_REAL(T, crop_ratio_max, crop_ratio_max, "1.3333333333333333", 0.01, 100,
                "crop_flip: largest width / height"),
    RD_OPT_INT(T, crop_pad, crop_pad, "4", 0, 1024,
               "pad_crop_flip: number of black pixels added on each side"),
    RD_OPT_INT(T, eval_resize, eval_resize, "0", 0, 65536,
               "outside training: length of the short side in pixels before the centre crop of "
               "image_size. 0: image_size * 256 / 224 for JPEG"),
    RD_OPT_ENUM(T, normalization, normalization, "\"unit\"", normalizations,
                "what the model gets for a pixel x in 0 .. 255. unit: x / 255; symmetric: x / "
                "127.5 - 1; none: x; imagenet, cifar10, mnist: (x / 255 - mean) / std of that "
                "data; imagenet_mean: x - (123.68, 116.78, 103.94); custom: (x / 255 - image_mean) "
                "/ image_std"),
    RD_OPT_STRING(
        T, image_mean, image_mean, NULL,
        "custom: mean of x / 255, one number or one for each channel, as in \"0.485 0.456 "
        "0.406\""),
    RD_OPT_STRING(T, image_std, image_std, NULL,
                  "custom: standard deviation of x / 255, one number or one for each channel"),
    RD_OPT_INT(T, data_threads, data_threads, "-1", -1, 256,
               "number of threads of a rank that decode and augment the next batch. 0: the "
               "training thread does it; -1: 1 if the rank has more than one core, else 0"),
    RD_OPT_REAL(T, max_bad_images, max_bad_images, "0.01", 0, 1,
                "largest share of images that cannot be decoded; a grey image replaces each. More "
                "is an error, also if most of the first images are bad. Three never are too many; "
                "0: each is an error, 1: none"),
    RD_OPT_INT(T, seed, seed, "0", 0, 9007199254740992.0, "also of augmentation"),
    RD_OPT_END};
#undef T

const rd_option_group rd_group_images = {"images",
                                         "Image datasets: where the data is, sizes, augmentation",
                                         options, sizeof(rd_images_config)};

/* Reads one number for all channels, or three numbers. */
static rd_code read_numbers(const rd_dataset_args *a, const char *key, const char *text,
                            double out[3], rd_status *st)
{
    int n = 0;
    const char *p = text ? text : "";
    for (;;) {
        while (*p == ' ' || *p == ',') p++;
        if (!*p) break;
        char *end;
        const double x = strtod(p, &end);
        if (end == p || n == 3 || !isfinite(x)) {
            n = -1;
            break;
        }
        out[n++] = x;
        p = end;
    }
    if (n == 1) out[1] = out[2] = out[0];
    if (n != 1 && n != 3)
        return rd_fail(st, RD_EUSAGE,
                       "%s: '%s' is \"%s\", but normalization \"custom\" needs one number or "
                       "three, as in \"0.485 0.456 0.406\"",
                       rd_config_where(a->config, key), key, text ? text : "");
    return RD_OK;
}

static rd_code set_normalization(const rd_dataset_args *a, const rd_images_config *c, rd_render *r,
                                 rd_status *st)
{
    static const struct {
        double unit, mean[3], std[3]; /* mean and std in multiples of `unit` */
    } known[] = {
        [RD_NORM_UNIT] = {255.0, {0, 0, 0}, {1, 1, 1}},
        [RD_NORM_SYMMETRIC] = {127.5, {1, 1, 1}, {1, 1, 1}},
        [RD_NORM_NONE] = {1.0, {0, 0, 0}, {1, 1, 1}},
        [RD_NORM_IMAGENET] = {255.0, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
        [RD_NORM_IMAGENET_MEAN] = {1.0, {123.68, 116.78, 103.94}, {1, 1, 1}},
        [RD_NORM_CIFAR10] = {255.0, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
        [RD_NORM_MNIST] = {255.0, {0.1307, 0.1307, 0.1307}, {0.3081, 0.3081, 0.3081}},
    };
    double mean[3], std[3], unit = 255.0;
    if (c->normalization != RD_NORM_CUSTOM) {
        memcpy(mean, known[c->normalization].mean, sizeof mean);
        memcpy(std, known[c->normalization].std, sizeof std);
        unit = known[c->normalization].unit;
    } else {
        RD_TRY(read_numbers(a, "image_mean", c->image_mean, mean, st));
        RD_TRY(read_numbers(a, "image_std", c->image_std, std, st));
    }
    for (int i = 0; i < 3; i++) {
        if (!(std[i] > 0.0))
            return rd_fail(st, RD_EUSAGE, "%s: 'image_std' must be above 0",
                           rd_config_where(a->config, "image_std"));
        r->mean[i] = (float)(mean[i] * unit);
        r->std[i] = (float)(std[i] * unit);
        /* As floats they must still be usable, for each pixel value. */
        const float most = (255.0f + fabsf(r->mean[i])) * (1.0f / r->std[i]);
        if (!isfinite(r->mean[i]) || !isnormal(r->std[i]) || !isfinite(most))
            return rd_fail(st, RD_EUSAGE,
                           "%s: 'image_mean' and 'image_std' must be numbers of float32, and "
                           "'image_std' not so small that a pixel becomes infinite",
                           rd_config_where(a->config, "image_std"));
    }
    r->std[3] = 1.0f;
done:
    return st->code;
}

static rd_code in_order(const rd_dataset_args *a, const char *low_key, double low,
                        const char *high_key, double high, rd_status *st)
{
    if (low <= high) return RD_OK;
    return rd_fail(st, RD_EUSAGE, "%s: '%s' is %g, above '%s', %g",
                   rd_config_where(a->config, low_key), low_key, low, high_key, high);
}

rd_code rd_images_config_read(const rd_dataset_args *a, rd_images_config *c, rd_render *r,
                              rd_status *st)
{
    const double degree = 3.14159265358979323846 / 180.0;
    RD_TRY(rd_config_read(a->config, &rd_group_images, a->mode, c, st));
    if (c->image_channels == 2)
        return rd_fail(st, RD_EUSAGE, "%s: 'image_channels' is 1 (grey) or 3 (colour)",
                       rd_config_where(a->config, "image_channels"));
    if (c->image_width > 0 && c->image_size == 0)
        return rd_fail(st, RD_EUSAGE, "%s: 'image_width' without 'image_size', the height; add it",
                       rd_config_where(a->config, "image_width"));
    RD_TRY(in_order(a, "crop_scale_min", c->crop_scale_min, "crop_scale_max", c->crop_scale_max,
                    st));
    RD_TRY(in_order(a, "crop_ratio_min", c->crop_ratio_min, "crop_ratio_max", c->crop_ratio_max,
                    st));
    *r = (rd_render){
        .augment = a->split == RD_SPLIT_TRAIN ? c->augmentation : RD_AUGMENT_NONE,
        .affine = {.rotation = c->affine_rotation * degree,
                   .shift = c->affine_shift,
                   .shear = c->affine_shear * (c->affine_shear_unit == RD_DEGREES ? degree : 1.0),
                   .zoom = c->affine_zoom,
                   .center_offset = c->affine_center_offset},
        .scale_min = c->crop_scale_min,
        .scale_max = c->crop_scale_max,
        .ratio_min = c->crop_ratio_min,
        .ratio_max = c->crop_ratio_max,
        .pad = c->crop_pad,
        .eval_resize = c->eval_resize,
        .seed = (uint64_t)c->seed};
    RD_TRY(set_normalization(a, c, r, st));
done:
    return st->code;
}
