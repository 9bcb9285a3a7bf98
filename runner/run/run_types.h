/* run_types.h -- names of structs that headers of runner/run pass on as pointers. */
#ifndef RD_RUN_TYPES_H
#define RD_RUN_TYPES_H

typedef struct rd_run rd_run;       /* run.h */
typedef struct run_trace run_trace; /* trace.c */

#endif
