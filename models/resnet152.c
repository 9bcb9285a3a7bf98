/* resnet152.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet152, "resnet152", 152, "v1",
          "residual network for ImageNet, 152 layers, v1 as in tf_cnn_benchmarks");
