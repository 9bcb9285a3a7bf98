/* resnet152_v1_5.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet152_v1_5, "resnet152_v1.5", 152, "v1.5",
          "residual network for ImageNet, 152 layers, stride on the 3x3");
