/* resnet34.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet34, "resnet34", 34, "v1", "residual network for ImageNet, 34 layers");
