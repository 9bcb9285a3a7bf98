/* environment.c -- the environment variables that the program sets for its
 * libraries, in one table. */
#include "rd/environment.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *value, *why;
} variables[RD_VARIABLES] = {
    /* The toy config on shared cores took 3.7 s a step with the default of several milliseconds,
     * and 0.4 s with this value. */
    [RD_VAR_SPIN] = {"GOMP_SPINCOUNT", "10000",
                     "On shared cores a thread that spins for long takes the core from the thread "
                     "it waits for."},
    [RD_VAR_UNUSED_WARNING] = {"OMPI_MCA_btl_base_warn_component_unused", "0",
                               "Most machines have no InfiniBand; Open MPI warns about it."},
    [RD_VAR_NO_PEER_READ] = {"OMPI_MCA_btl_vader_single_copy_mechanism", "none",
                             "A sandbox or a hardened kernel forbids reading another process's "
                             "memory; Open MPI then prints an error for each message."},
    /* With "put" the receiver asks for each piece. Its requests queue behind the data, and the link
     * idles: 2 x 32 MiB over 1 Gbit/s take 365 ms, and 281 ms with "send in place" alone
     * (tests/bench/links). */
    [RD_VAR_TCP_FLAGS] = {"OMPI_MCA_btl_tcp_flags", "0x9",
                          "Over TCP the method \"put\" leaves the link idle between pieces."},
    [RD_VAR_YIELD] = {"OMPI_MCA_mpi_yield_when_idle", "1",
                      "With more ranks than cores, a rank that waits would take another's core."},
    [RD_VAR_DEVICE_ORDER] =
        {"CUDA_DEVICE_ORDER", "PCI_BUS_ID",
         "By default the fastest GPU is GPU 0, which need not be nvidia-smi's."},
    [RD_VAR_CUBLAS_BUFFERS] =
        {"CUBLAS_WORKSPACE_CONFIG", ":4096:2",
         "With buffers of two sizes cuBLAS chooses kernels by what is in use, "
         "so sums differ from run to run."},
    [RD_VAR_NCCL_SHARED_GPU] = {"NCCL_MULTI_RANK_GPU_ENABLE", "1",
                                "Without it NCCL refuses ranks that share a GPU."},
    [RD_VAR_NCCL_ALGO] = {"NCCL_ALGO", "Ring",
                          "One algorithm gives one order of sums in every run."},
    [RD_VAR_NCCL_PROTO] = {"NCCL_PROTO", "Simple",
                           "One protocol gives one order of sums in every run."},
    [RD_VAR_NCCL_NVLS] = {"NCCL_NVLS_ENABLE", "0",
                          "Sums inside the NVLink switch have another order."},
};

bool rd_environment_default(rd_variable v)
{
    (void)setenv(variables[v].name, variables[v].value, 0);
    const char *now = getenv(variables[v].name);
    return now && strcmp(now, variables[v].value) == 0;
}

const char *rd_environment_name(rd_variable v)
{
    return variables[v].name;
}

const char *rd_environment_value(rd_variable v)
{
    return variables[v].value;
}

const char *rd_environment_why(rd_variable v)
{
    return variables[v].why;
}
