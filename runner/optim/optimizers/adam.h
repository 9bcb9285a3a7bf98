/* adam.h -- the keys of optimizer adam, for adam.c and adam.cu. */
#ifndef RD_ADAM_H
#define RD_ADAM_H

typedef struct adam_keys {
    double beta1, beta2, epsilon;
} adam_keys;

#endif
