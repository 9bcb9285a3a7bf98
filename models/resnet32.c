/* resnet32.c -- see resnet_cifar.c. */
#include "resnet.h"

RD_RESNET_CIFAR(resnet32, 32, "residual network for CIFAR, 32 layers");
