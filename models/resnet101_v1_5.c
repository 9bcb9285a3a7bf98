/* resnet101_v1_5.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet101_v1_5, "resnet101_v1.5", 101, "v1.5",
          "residual network for ImageNet, 101 layers, stride on the 3x3");
