/* cuda_library.h -- loads libraries when they are first needed, so the program also runs without
 * them. */
#ifndef RD_GPU_LIBRARY_H
#define RD_GPU_LIBRARY_H

#include "rd/status.h"

typedef struct rd_symbol {
    const char *name;
    size_t at; /* offset of the function pointer in the library's table */
} rd_symbol;

typedef struct rd_library {
    const char *title;    /* "cuDNN" */
    const char *names[4]; /* file names, the first choice first */
    const char *package;  /* the package to install, for the message */
    const rd_symbol *symbol;
    int n_symbol;
    void *table;   /* a struct of function pointers, which rd_library_load fills in */
    void *handle;  /* NULL: not loaded; never closed */
    char why[320]; /* the last failure, in the loader's words */
} rd_library;

/* Declare a table of functions, with the types of the library's own header, and its entries:
 *
 *     #define CALLS(X) X(ncclGetVersion) X(ncclAllReduce)
 *     static struct { CALLS(RD_FIELD) } nccl;
 *     #define ENTRY(f) RD_ENTRY_OF(nccl, f)
 *     static const rd_symbol symbols[] = {CALLS(ENTRY)}; */
#define RD_FIELD(f) __typeof__(f) *f;
#define RD_ENTRY_OF(table, f) {#f, offsetof(__typeof__(table), f)},

/* Loads the library at the first call. RD_EENV names the library, the places that were searched,
 * and how to install it. */
rd_code rd_library_load(rd_library *l, rd_status *st);

#endif
