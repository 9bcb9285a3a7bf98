/* resnet50.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet50, "resnet50", 50, "v1",
          "residual network for ImageNet, 50 layers, v1 as in tf_cnn_benchmarks");
