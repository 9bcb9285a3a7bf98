/* environment.h -- the environment variables that the program sets for the libraries it uses. */
#ifndef RD_ENVIRONMENT_H
#define RD_ENVIRONMENT_H

#include "rd/status.h"

RD_C_BEGIN

typedef enum rd_variable {
    RD_VAR_SPIN,            /* OpenMP: how long an idle thread spins */
    RD_VAR_UNUSED_WARNING,  /* Open MPI: no warning about networks that are not there */
    RD_VAR_NO_PEER_READ,    /* Open MPI: messages on a host do not read another process's memory */
    RD_VAR_TCP_FLAGS,       /* Open MPI: how TCP moves large messages */
    RD_VAR_YIELD,           /* Open MPI: an idle rank gives its core away */
    RD_VAR_DEVICE_ORDER,    /* CUDA: numbers of GPUs are those of nvidia-smi */
    RD_VAR_CUBLAS_BUFFERS,  /* cuBLAS: one size of work buffers */
    RD_VAR_NCCL_SHARED_GPU, /* NCCL: several ranks may use one GPU */
    RD_VAR_NCCL_ALGO,       /* NCCL: these three fix the order of its sums */
    RD_VAR_NCCL_PROTO,
    RD_VAR_NCCL_NVLS,
    RD_VARIABLES
} rd_variable;

/* Name of the variable in which --restarts hands the time of its first start to all starts, as
 * seconds since 1970. */
#define RD_JOB_START "RUN_DIST_JOB_START"

/* Sets the variable to the program's value, unless the user or the launcher has set it. Returns
 * whether the program's value is in effect now. Call it before the library reads the variable. Not
 * thread-safe, as setenv is not. */
bool rd_environment_default(rd_variable v);
/* Returns the variable's name, the program's value for it, and the reason in one sentence. */
const char *rd_environment_name(rd_variable v);
const char *rd_environment_value(rd_variable v);
const char *rd_environment_why(rd_variable v);

RD_C_END
#endif
