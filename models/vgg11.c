/* vgg11.c -- see vgg16.c. */
#include "vgg.h"

RD_VGG(vgg11, 11,
       "8 convolutions and 3 dense layers, Simonyan and Zisserman 2014, configuration A");
