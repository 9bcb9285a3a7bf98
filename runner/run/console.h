/* console.h -- lines for the user: one per summary, and a live line on a terminal. */
#ifndef RD_RUN_CONSOLE_H
#define RD_RUN_CONSOLE_H

#include "recorder.h"

/* Prints the line of a summary. */
void console_step(rd_run *r, const step_record *s);

/* Does a terminal show this output, so that a live line makes sense? */
bool console_watched(const rd_run *r);
void console_live(rd_run *r, const step_record *s);

/* The texts of one sample. */
typedef struct console_texts {
    rd_strbuf source, target, predicted;
} console_texts;
void console_texts_release(console_texts *t);
/* Keeps the texts of sample i of a batch, and the n ids that a model predicted for it. */
void console_keep(console_texts *t, const rd_dataset *d, const rd_batch *b, int64_t i,
                  const int32_t *predicted, int64_t n);
/* Prints the texts. split: "Train" or "Eval". Nothing is printed where nothing was kept. */
void console_sample(rd_run *r, const char *split, const console_texts *t);

/* Returns a NaN without its sign, so that no "-nan" is printed; other numbers unchanged. */
double console_real(double v);

#endif
