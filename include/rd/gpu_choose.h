/* gpu_choose.h -- which device a run uses, and what it reports if it cannot use the device.
 *
 * The functions only decide. They touch no GPU (except rd_gpu_seat_look), and the file is in every
 * build. Each rank describes what it found in one record. All ranks get the records of all ranks
 * (rd_comm_allgather), so all come to the same answer. */
#ifndef RD_GPU_CHOOSE_H
#define RD_GPU_CHOOSE_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

/* The values of the key "device". */
typedef enum rd_device { RD_DEVICE_AUTO, RD_DEVICE_CPU, RD_DEVICE_CUDA } rd_device;

/* Returns "auto", "cpu" or "cuda". */
const char *rd_device_name(rd_device d);

/* What one rank found. Ranks send and compare the bytes, so the caller sets all of them (memset
 * first). */
typedef struct rd_gpu_seat {
    char host[64];
    int host_index, local_rank;
    /* number of GPUs that this rank sees: rd_gpu_count */
    int n_visible;
    /* index of the GPU that the rank uses: rd_gpu_choose_index */
    int index;
    /* name and uuid of that GPU, and its address on the PCI bus; MIG instances of one GPU have one
     * address */
    char name[96], uuid[48], pci[16];
    /* why the rank cannot use a GPU: it sees none, or a library is missing; "": it can */
    char why[400];
} rd_gpu_seat;

/* Returns the index of the GPU for a node-local rank; -1 if n_visible is 0. If a host has more
 * ranks than GPUs, the indices start again at 0; rd_gpu_choose finds this out by the uuids. A
 * launcher may show each rank one GPU (CUDA_VISIBLE_DEVICES per rank); the index is then 0. */
int rd_gpu_choose_index(int local_rank, int n_visible);

/* Fills the seat of this rank, whose host, host_index and local_rank are set; the other bytes are
 * zero. images: cuDNN is needed. claimed: index of the GPU; -1: the local rank decides. A missing
 * GPU or library is no failure: why holds the reason. */
rd_code rd_gpu_seat_look(bool images, int claimed, rd_gpu_seat *s, rd_status *st);

typedef struct rd_gpu_choice {
    /* RD_DEVICE_CPU or RD_DEVICE_CUDA */
    rd_device device;
    /* two ranks use one GPU, or MIG instances of one */
    bool shared;
    /* the ranks of a host see one GPU each, and not the same one */
    bool hidden;
    /* text for the banner: "2 x NVIDIA H100 80GB HBM3 on node07, one rank each". It is "" if the
     * program has no GPU backend and the config does not ask for one. */
    char text[560];
} rd_gpu_choice;

/* Chooses the device for all ranks. seat[n]: one per rank, in rank order. compiled: the program has
 * a GPU backend. "auto" uses GPUs if every rank can use one, CPUs if no rank can.
 *
 * RD_EENV if the config asks for "cuda" and it is not available, or if only some ranks can use a
 * GPU. RD_EENV if two ranks use one GPU (by uuid) without allow_shared; the message
 * has a table of rank, host, GPU, uuid. */
rd_code rd_gpu_choose(rd_device asked, bool allow_shared, bool compiled, const rd_gpu_seat *seat,
                      int n, rd_gpu_choice *out, rd_status *st);

/* Returns whether NCCL of this version (22809 is 2.28.9) sums for these ranks. Before 2.30 NCCL
 * refuses ranks that share a GPU. If false, `why` gets the reason. */
bool rd_nccl_serves(bool shared, int version, char why[200]);

/* Sets the environment variables that fix the order in which NCCL adds, if the environment does not
 * have them already. The caller does this before NCCL is loaded. out: the variables as they are
 * then, "NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_NVLS_ENABLE=0". Returns whether they differ from
 * this text. */
bool rd_nccl_settings(char out[160]);

/* Returns a batch_size that would fit after an allocation of `asked` bytes failed, 0 if not even 1
 * fits.
 *
 * At that time `used` bytes were in use and `left` bytes were free. A step has `batch` samples, and
 * `fixed` bytes do not depend on the batch (weights, optimizer). The answer follows from the bytes
 * per sample, with a tenth of the memory in reserve. From 16 on it is rounded down to a multiple of
 * 8. The failed step had not ended, so the answer may still be too large. */
int64_t rd_gpu_batch_that_fits(int64_t batch, uint64_t fixed, uint64_t used, uint64_t asked,
                               uint64_t left);

RD_C_END
#endif
