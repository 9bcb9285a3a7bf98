/* resnet56.c -- see resnet_cifar.c. */
#include "resnet.h"

RD_RESNET_CIFAR(resnet56, 56, "residual network for CIFAR, 56 layers");
