/* backend_kind.h -- the kinds of backends, and how a table names what a GPU alone has.
 *
 * What is done differently on a GPU is an entry of a table, never an `if`: rd_backend_vt for what the engine does,
 * rd_op.kernel for an op, a table of functions for what several ops share (runner/ops/shared). Such a table has one
 * entry for each kind; RD_GPU_ENTRY names the GPU's. */
#ifndef RD_BACKEND_KIND_H
#define RD_BACKEND_KIND_H

#include <stddef.h>

typedef enum rd_backend_kind { RD_CPU, RD_GPU, RD_BACKENDS /* number of kinds */ } rd_backend_kind;

/* The address x of what a .cu file defines. NULL in a program without GPU backend, where nobody looks it up. */
#ifdef RD_CUDA
#define RD_GPU_ENTRY(x) (x)
#else
#define RD_GPU_ENTRY(x) NULL
#endif

#endif
