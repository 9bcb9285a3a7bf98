/* meaning.h -- what gives the numbers of a checkpoint their meaning: config and classes. */
#ifndef RD_RUN_MEANING_H
#define RD_RUN_MEANING_H

#include "run.h"

/* Returns key -> value of the whole config. The caller owns it. */
json_t *meaning_config(const rd_run *r);

/* Returns the list of the class names; NULL: there are none. The caller owns it. */
json_t *meaning_classes(const rd_data_spec *spec);

/* Appends "KEY: OLD -> NEW, ..." for the entries that differ, at most `most` of them (0: all), and
 * returns their number. */
int meaning_difference(const json_t *was, const json_t *now, int most, rd_strbuf *out);

/* Appends "encoder_layers 2 -> 3, ...": at most `most` keys that may change a shape or the meaning
 * of the weights, and whose values differ from those of the manifest. */
void meaning_changed(const rd_run *r, const json_t *manifest, int most, rd_strbuf *out);

/* Returns whether a class has another name than in the checkpoint. Then *why receives both lists.
 * Only names that both sides have are compared. */
bool meaning_other_classes(const json_t *was, const rd_data_spec *spec, rd_strbuf *why);

/* Returns whether a changed key makes an epoch hold other samples, or in another order. */
bool meaning_other_samples(const rd_run *r, const json_t *manifest);

/* Prints a line for each key that has changed since the checkpoint and that matters in this mode. A
 * key that may change the meaning of the weights is a warning. */
void meaning_report(const rd_run *r, const json_t *manifest);

#endif
