/* vgg19.c -- see vgg16.c. */
#include "vgg.h"

RD_VGG(vgg19, 19,
       "16 convolutions and 3 dense layers, Simonyan and Zisserman 2014, configuration E");
