/* signum.h -- the keys of optimizer signum, for signum.c and signum.cu. */
#ifndef RD_SIGNUM_H
#define RD_SIGNUM_H

typedef struct signum_keys {
    double momentum;
} signum_keys;

#endif
