/* resnet.h -- the family of He et al. 2015. Members that users know by a name of their own are files of three lines. */
#ifndef RD_RESNET_H
#define RD_RESNET_H

#include "image_model.h"

/* In resnet.c: the networks for ImageNet. depth: 18, 34, 50, 101 or 152; version "v1" or "v1.5". NULL, 0: the config
 * says it. */
rd_code rd_resnet_create(const rd_model_args *a, int64_t depth, const char *version, void **self,
                         rd_status *st);
/* In resnet_cifar.c: those for small images. depth: 6 n + 2; 0: the config says it. */
rd_code rd_resnet_cifar_create(const rd_model_args *a, int64_t depth, void **self, rd_status *st);

/* RD_EUSAGE where the config has a depth that the model's name contradicts. */
rd_code rd_resnet_check_depth(const rd_config *c, int64_t depth, const char *family, rd_status *st);

#define RD_RESNET(id, text, depth, version, what)                                  \
    static rd_code id##_create(const rd_model_args *a, void **self, rd_status *st) \
    {                                                                              \
        return rd_resnet_create(a, (depth), (version), self, st);                  \
    }                                                                              \
    RD_IMAGE_MODEL(id, text, what, "image_folder")

#define RD_RESNET_CIFAR(id, depth, what)                                           \
    static rd_code id##_create(const rd_model_args *a, void **self, rd_status *st) \
    {                                                                              \
        return rd_resnet_cifar_create(a, (depth), self, st);                       \
    }                                                                              \
    RD_IMAGE_MODEL(id, #id, what, "cifar")

#endif
