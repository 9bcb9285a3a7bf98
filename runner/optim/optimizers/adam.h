/* adam.h -- the keys of optimizers adam and adamw, for their .c and .cu files. */
#ifndef RD_ADAM_H
#define RD_ADAM_H

typedef struct adam_keys {
    double beta1, beta2, epsilon;
} adam_keys;

/* Which parameters adamw does not decay. */
typedef enum adamw_exclude { ADAMW_EXCLUDE_1D, ADAMW_EXCLUDE_NONE } adamw_exclude;

typedef struct adamw_keys {
    double beta1, beta2, epsilon;
    adamw_exclude decay_exclude;
} adamw_keys;

/* The rows of the keys that both have. T: the struct that they fill. */
#define RD_ADAM_ROWS(T)                                                                      \
    RD_OPT_REAL(T, adam_beta1, beta1, "0.9", 0.0, 0.999999,                                  \
                "adam, adamw: decay of the first moment"),                                   \
        RD_OPT_REAL(T, adam_beta2, beta2, "0.999", 0.0, 0.999999,                            \
                    "adam, adamw: decay of the second moment"),                              \
        RD_OPT_REAL(T, adam_epsilon, epsilon, "1e-8", 1e-30, 1e6,                            \
                    "adam: added to the root, outside the bias correction. adamw: added to " \
                    "the root of the corrected moment, as in PyTorch")

#endif
