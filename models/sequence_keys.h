/* sequence_keys.h -- rows of option tables that the models of sentence pairs share. The same key
 * has the same row in each of them. T: the struct of the model; its fields have the names of the
 * keys. */
#ifndef RD_SEQUENCE_KEYS_H
#define RD_SEQUENCE_KEYS_H

#include "rd/model.h"

/* Whether the loss is a mean over words. */
#define RD_AVERAGE_ROW(T)                                                                        \
    RD_OPT_BOOL(T, average_across_timesteps, average_across_timesteps, "false",                  \
                "the loss is the mean over target tokens instead of the mean over sentences of " \
                "sums over time")
#define RD_PAD_ROW(T)                                                 \
    RD_OPT_BOOL(T, pad_vocabs_to_eight, pad_vocabs_to_eight, "false", \
                "rounds both vocabulary sizes up to a multiple of 8")

#endif
