/* vgg.h -- the family of Simonyan and Zisserman 2014: each member is a file of three lines. */
#ifndef RD_VGG_H
#define RD_VGG_H

#include "image_model.h"

/* In vgg16.c. depth: 11, 16 or 19. */
rd_code rd_vgg_create(const rd_model_args *a, int64_t depth, void **self, rd_status *st);

#define RD_VGG(id, depth, what)                                                    \
    static rd_code id##_create(const rd_model_args *a, void **self, rd_status *st) \
    {                                                                              \
        return rd_vgg_create(a, (depth), self, st);                                \
    }                                                                              \
    RD_IMAGE_MODEL(id, #id, what, "image_folder")

#endif
