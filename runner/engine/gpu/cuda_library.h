/* cuda_library.h -- libraries that are looked for when they are first needed, so that one program also runs where they
 * are not. */
#ifndef RD_GPU_LIBRARY_H
#define RD_GPU_LIBRARY_H

#include "rd/status.h"

typedef struct rd_symbol {
    const char *name;
    size_t at; /* of the function pointer in the library's table */
} rd_symbol;

typedef struct rd_library {
    const char *title;    /* "cuDNN" */
    const char *names[4]; /* file names, the first choice first */
    const char *package;  /* what to install, for the message */
    const rd_symbol *symbol;
    int n_symbol;
    void *table;   /* a struct of function pointers, filled in */
    void *handle;  /* NULL: not loaded; never closed */
    char why[320]; /* the last failure, in the loader's words */
} rd_library;

/* A table of functions, typed by the library's own header, and its entries:
 *     #define CALLS(X) X(ncclGetVersion) X(ncclAllReduce)
 *     static struct { CALLS(RD_FIELD) } nccl;
 *     #define ENTRY(f) RD_ENTRY_OF(nccl, f)
 *     static const rd_symbol symbols[] = {CALLS(ENTRY)}; */
#define RD_FIELD(f) __typeof__(f) *f;
#define RD_ENTRY_OF(table, f) {#f, offsetof(__typeof__(table), f)},

/* Loads the library at the first call; RD_EENV with its name, where it was looked for and how to install it. */
rd_code rd_library_load(rd_library *l, rd_status *st);

#endif
