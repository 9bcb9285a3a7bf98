/* adadelta.h -- the keys of optimizer adadelta, for adadelta.c and adadelta.cu. */
#ifndef RD_ADADELTA_H
#define RD_ADADELTA_H

typedef struct adadelta_keys {
    double rho, epsilon;
} adadelta_keys;

#endif
