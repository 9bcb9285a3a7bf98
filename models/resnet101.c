/* resnet101.c -- see resnet.c. */
#include "resnet.h"

RD_RESNET(resnet101, "resnet101", 101, "v1",
          "residual network for ImageNet, 101 layers, v1 as in tf_cnn_benchmarks");
