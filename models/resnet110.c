/* resnet110.c -- see resnet_cifar.c. */
#include "resnet.h"

RD_RESNET_CIFAR(resnet110, 110, "residual network for CIFAR, 110 layers");
