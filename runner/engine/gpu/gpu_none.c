/* gpu_none.c -- the functions of gpu.h in a build without a GPU backend. Each one answers that
 * there is none.
 *
 * rd_gpu_count finds no GPU, so rd_gpu_new is the only function that a run can reach with a
 * failure. The others take a rd_gpu, which nobody can have here. They exist so that the program
 * links. */
#include "rd/backend.h"
#include "rd/gpu_parts.h"
#include <stdio.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

static rd_code no_gpu(rd_status *st)
{
    return rd_fail(st, RD_EENV, "this program has no GPU backend; build it with make CUDA=1");
}

bool rd_gpu_compiled(void)
{
    return false;
}

/* ---- devices ---- */
int rd_gpu_count(char why[256])
{
    (void)snprintf(why, 256, "this program has no GPU backend");
    return 0;
}
rd_code rd_gpu_need_libraries(bool convolutions, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_query(int index, rd_gpu_info *out, rd_status *st)
{
    memset(out, 0, sizeof *out);
    return no_gpu(st);
}
const char *rd_gpu_libraries(void)
{
    return "";
}
rd_code rd_gpu_new(int index, const rd_gpu_options *o, rd_gpu **out, rd_status *st)
{
    *out = NULL;
    return no_gpu(st);
}
void rd_gpu_free(rd_gpu *g) {}
const rd_gpu_info *rd_gpu_about(const rd_gpu *g)
{
    static const rd_gpu_info none;
    return &none;
}
const char *rd_gpu_describe(const rd_gpu *g)
{
    return "no GPU";
}
bool rd_gpu_uses_float16(const rd_gpu *g)
{
    return false;
}
rd_element rd_gpu_narrow(const rd_gpu *g)
{
    return RD_FLOAT32;
}
const char *rd_gpu_take_note(rd_gpu *g)
{
    return NULL;
}
void rd_gpu_count_rnn(rd_gpu *g, rd_gpu_rnn_counts *out)
{
    *out = (rd_gpu_rnn_counts){.why = ""};
}
rd_code rd_backend_gpu_new(rd_gpu *g, int n_threads, rd_backend **out, rd_status *st)
{
    *out = NULL;
    return no_gpu(st);
}

/* ---- memory ---- */
rd_code rd_gpu_memory_new(rd_gpu *g, size_t bytes, void *out, rd_status *st)
{
    return no_gpu(st);
}
void rd_gpu_memory_free(rd_gpu *g, void *p) {}
rd_code rd_gpu_upload(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_download(rd_gpu *g, void *host, const void *device, size_t bytes, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_copy(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_zero(rd_gpu *g, void *device, size_t bytes, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_wait(rd_gpu *g, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_host_new(rd_gpu *g, size_t bytes, void *out, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_host_wait(rd_gpu *g, const void *p, rd_status *st)
{
    return no_gpu(st);
}
void rd_gpu_host_free(rd_gpu *g, void *p) {}
rd_code rd_gpu_up_ahead(rd_gpu *g, const void *host, size_t bytes, rd_status *st)
{
    return no_gpu(st);
}
void rd_gpu_count_ahead(const rd_gpu *g, rd_gpu_ahead_counts *out)
{
    *out = (rd_gpu_ahead_counts){0};
}
uint64_t rd_gpu_in_use(const rd_gpu *g)
{
    return 0;
}
uint64_t rd_gpu_kept(const rd_gpu *g)
{
    return 0;
}
uint64_t rd_gpu_peak(const rd_gpu *g)
{
    return 0;
}
bool rd_gpu_short(const rd_gpu *g, const rd_status *st, uint64_t *asked, uint64_t *left)
{
    *asked = *left = 0;
    return false;
}
rd_code rd_gpu_hold(rd_gpu *g, const float *p, int64_t n, rd_status *st)
{
    return no_gpu(st);
}
void rd_gpu_weights_changed(rd_gpu *g) {}

/* ---- products and elements ---- */
rd_code rd_gpu_product(rd_gpu *g, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                       rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                       rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_cast(rd_gpu *g, int64_t n, const void *x, rd_element from, void *y, rd_element to,
                    bool add, rd_status *st)
{
    return no_gpu(st);
}

/* ---- sums over ranks ---- */
rd_code rd_gpu_nccl_about(rd_gpu *g, rd_gpu_nccl *out, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_group_id(rd_gpu *g, unsigned char id[RD_GPU_ID_BYTES], rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_group_new(rd_gpu *g, const rd_gpu_group_options *o, rd_gpu_group **out,
                         rd_status *st)
{
    *out = NULL;
    return no_gpu(st);
}
void rd_gpu_group_free(rd_gpu_group *q) {}
void rd_gpu_group_abort(rd_gpu_group *q) {}
rd_code rd_gpu_group_sum(rd_gpu_group *q, float *x, int64_t n, rd_gpu_wire wire, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_group_spread(rd_gpu_group *q, float *x, const rd_gpu_part *part, int n_parts,
                            rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_group_join(rd_gpu_group *q, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_group_wait(rd_gpu_group *q, double timeout_s, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_group_times(rd_gpu_group *q, rd_gpu_sum_time *out, int most, int *n, rd_status *st)
{
    *n = 0;
    return no_gpu(st);
}

/* ---- work that recurs, time ---- */
rd_code rd_gpu_recurs(rd_gpu *g, uint64_t key, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_recurred(rd_gpu *g, rd_status *st)
{
    return no_gpu(st);
}
void rd_gpu_count_graphs(const rd_gpu *g, rd_gpu_graph_counts *out)
{
    *out = (rd_gpu_graph_counts){0};
}
const char *rd_gpu_take_graph_note(rd_gpu *g)
{
    return NULL;
}
rd_code rd_gpu_mark(rd_gpu *g, int mark, rd_status *st)
{
    return no_gpu(st);
}
rd_code rd_gpu_between(rd_gpu *g, int from, int to, double *seconds, rd_status *st)
{
    *seconds = 0.0;
    return no_gpu(st);
}
