/* gpu_choose.h -- which device a run takes, and what to say when it cannot have it. Decisions only: no GPU is touched,
 * and the file is in every build. Each rank describes what it found in one record, all ranks get the records of all
 * (rd_comm_allgather), and so all come to the same answer. */
#ifndef RD_GPU_CHOOSE_H
#define RD_GPU_CHOOSE_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef enum rd_device {
    RD_DEVICE_AUTO,
    RD_DEVICE_CPU,
    RD_DEVICE_CUDA
} rd_device;                             /* the key "device" */
const char *rd_device_name(rd_device d); /* "auto", "cpu", "cuda" */

/* What one rank found. Plain data: all bytes are set (memset first), for sending and comparing. */
typedef struct rd_gpu_seat {
    char host[64];
    int host_index, local_rank;
    int n_visible;           /* GPUs that this rank sees: rd_gpu_count */
    int index;               /* the one it takes: rd_gpu_choose_index */
    char name[96], uuid[48]; /* of that one */
    char why[400]; /* why it cannot take one: it sees none, or a library is not there; "": it can */
} rd_gpu_seat;

/* The node-local rank among the visible GPUs; -1 where there are none. More ranks than GPUs go round, which
 * rd_gpu_choose finds out by the uuids. A launcher that shows each rank one GPU of its own (CUDA_VISIBLE_DEVICES per
 * rank) leaves them index 0. */
int rd_gpu_choose_index(int local_rank, int n_visible);

typedef struct rd_gpu_choice {
    rd_device device; /* RD_DEVICE_CPU or RD_DEVICE_CUDA */
    bool shared;      /* two ranks have one GPU */
    char say
        [560]; /* for the banner: "2 x NVIDIA H100 80GB HBM3 on node07, one rank each"; "" when there is nothing to
                      say: a program without a GPU backend that is not asked for one */
} rd_gpu_choice;
/* seat[n]: one per rank, in rank order. compiled: the program has a GPU backend. auto takes GPUs where every rank can use
 * one, CPUs where none can. RD_EENV: cuda is asked for and not to be had; only some ranks can; two ranks on one
 * GPU (by uuid, on one host) without allow_shared, with a table of rank, host, GPU, uuid. */
rd_code rd_gpu_choose(rd_device asked, bool allow_shared, bool compiled, const rd_gpu_seat *seat,
                      int n, rd_gpu_choice *out, rd_status *st);

/* Does NCCL of that version (22809: 2.28.9) sum for these ranks? It refuses ranks that share a GPU before 2.30. False: why. */
bool rd_nccl_serves(bool shared, int version, char why[200]);

/* Before NCCL is loaded: what fixes the order in which it adds goes into the environment, where that does not have it already. out:
 * "NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_NVLS_ENABLE=0", as it is then. Returns whether it is otherwise. */
bool rd_nccl_settings(char out[160]);

/* A batch_size that would fit, after `asked` bytes could not be had with `used` in use and `left` free, in steps of
 * `batch` samples of which `fixed` bytes do not depend on the batch (weights, optimizer): from the bytes a sample
 * takes, with a tenth of the memory in reserve, rounded down to a multiple of 8 from 16 on. The step had not ended, so
 * it may still be too large. 0: not even one. */
int64_t rd_gpu_batch_that_fits(int64_t batch, uint64_t fixed, uint64_t used, uint64_t asked,
                               uint64_t left);

RD_C_END
#endif
