/* resnet20.c -- see resnet_cifar.c. */
#include "resnet.h"

RD_RESNET_CIFAR(resnet20, 20, "residual network for CIFAR, 20 layers");
