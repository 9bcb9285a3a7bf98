/* device.h -- the device of the ranks, memory of batches, CUDA graphs, and the loss scale. */
#ifndef RD_RUN_DEVICE_H
#define RD_RUN_DEVICE_H

#include "run.h"

/* The GPU that the ops run on; NULL: the CPU. */
#define run_gpu(r) ((r)->gpu)

/* ---- choice ---- */

/* Collective, after the config is read. Chooses the same device on all ranks and adds a line for
 * the banner. RD_EENV: see rd_gpu_choose. */
rd_code device_choose(rd_run *r, rd_status *st);
/* Returns whether device_choose may wait for GPUs of other jobs. */
bool device_waits(const rd_run *r);

/* Opens the chosen device and makes r->backend. */
rd_code device_open(rd_run *r, int threads, rd_status *st);

/* Frees the backend. Everything in its memory must be gone. */
void device_close(rd_run *r);

/* Waits for the GPU and returns its failure, if any. */
rd_code device_check(const rd_run *r, rd_status *st);

/* Returns the type of product inputs: "float32", "TF32", "bfloat16" or "float16". */
const char *device_product(const rd_run *r);

/* ---- memory ---- */

/* Records how much GPU memory is in use before the first step. */
void device_measure_fixed(rd_run *r);

/* Returns the peak of the GPU's memory; 0: no GPU. */
double device_peak_bytes(const rd_run *r);

/* Adds a hint to the failure of a step that ran out of GPU memory: a batch size that may fit. key:
 * the config key that sets the batch size; batch: its value. */
rd_code device_explain(const rd_run *r, const char *key, int64_t batch, rd_status *st);
/* Adds a hint to a failure for which there was no memory for the optimizer's state: the key shard,
 * if it divides the state here. */
rd_code device_explain_state(const rd_run *r, rd_status *st);

/* ---- batches ---- */

/* Makes r->batch_arena. With a GPU there are two arenas in pinned memory, where enough of it is
 * available: the GPU reads one batch while the loader fills the other arena. */
rd_code device_open_batches(rd_run *r, rd_status *st);
void device_close_batches(rd_run *r);

/* Swaps the arenas, waits until the GPU has read the new one, and empties it. The batch before the
 * last is gone. */
rd_code device_fresh_batch(rd_run *r, rd_status *st);

/* Swaps the arenas and keeps their contents. */
void device_swap_batches(rd_run *r);

/* Starts the upload of a batch's large arrays, beside the work that is queued on the GPU. */
rd_code device_send_ahead(rd_run *r, const rd_batch *b, rd_status *st);

/* ---- work ---- */

/* Marks the begin and the end of work that recurs. A GPU may keep it as CUDA graphs under this key
 * (rd_gpu_recurs). device_recurred is called after failures, too. */
rd_code device_recurs(const rd_run *r, uint64_t key, rd_status *st);
rd_code device_recurred(const rd_run *r, rd_status *st);

/* Prints a line where the last pass used something other than what the config asked for. */
void device_report_fallback(const rd_run *r);

/* Prints how much was uploaded ahead and what CUDA graphs did so far, where there was any of it. */
void device_report_work(const rd_run *r);

/* ---- loss scale ---- */

/* Does the run adapt the loss scale? True for mixed precision on a GPU without bfloat16: gradients
 * have the range of float16, and the loss is scaled so that they fit. */
bool device_scales_loss(const rd_run *r);

/* Returns the loss scale of a run that begins. */
double device_first_scale(const rd_run *r);

/* Adapts the loss scale after a step, the same on all ranks. */
void device_adapt_scale(rd_run *r, bool finite);

#endif
