/* resnet50_v1_5.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet50_v1_5, "resnet50_v1.5", 50, "v1.5",
          "residual network for ImageNet, 50 layers, stride on the 3x3");
