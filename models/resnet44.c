/* resnet44.c -- see resnet_cifar.c. */
#include "resnet.h"

RD_RESNET_CIFAR(resnet44, 44, "residual network for CIFAR, 44 layers");
