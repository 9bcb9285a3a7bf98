/* resnet18.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet18, "resnet18", 18, "v1", "residual network for ImageNet, 18 layers");
