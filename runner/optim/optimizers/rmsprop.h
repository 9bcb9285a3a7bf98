/* rmsprop.h -- the keys of optimizer rmsprop, for rmsprop.c and rmsprop.cu. */
#ifndef RD_RMSPROP_H
#define RD_RMSPROP_H

typedef struct rmsprop_keys {
    double decay, momentum, epsilon;
} rmsprop_keys;

#endif
