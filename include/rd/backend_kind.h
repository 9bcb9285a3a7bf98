/* backend_kind.h -- the kinds of backends, and how a table names entries that only a GPU has.
 *
 * Code that differs on a GPU is an entry of a table, never an `if`. rd_backend_vt has the entries
 * of the engine, rd_op.kernel the entry of an op. runner/ops/shared has tables of functions that
 * several ops share. Such a table has one entry for each kind; RD_GPU_ENTRY names the entry of the
 * GPU. */
#ifndef RD_BACKEND_KIND_H
#define RD_BACKEND_KIND_H

#include <stddef.h>

/* RD_BACKENDS is the number of kinds. */
typedef enum rd_backend_kind { RD_CPU, RD_GPU, RD_BACKENDS } rd_backend_kind;

/* The address x of an object that a .cu file defines. NULL in a program without a GPU backend,
 * which never reads the entry. */
#ifdef RD_CUDA
#define RD_GPU_ENTRY(x) (x)
#else
#define RD_GPU_ENTRY(x) NULL
#endif

#endif
