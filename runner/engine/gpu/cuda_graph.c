/* cuda_graph.c -- makes CUDA graphs from the tasks that engine/gpu/gpu_graph.c records.
 *
 * The graph is a chain, built node by node, so the file knows the node of each task and can set its
 * arguments. Kernels, copies and zeroing have nodes of these kinds. Work that a library starts (a
 * product, a convolution) is captured alone and becomes a child graph, which never changes. Nothing
 * else happens during a capture. */
#include "cuda_impl.h"
#include <stdlib.h>

struct rd_gpu_graph {
    cudaGraph_t graph; /* its nodes are those that exec was made from */
    cudaGraphExec_t exec;
    cudaGraphNode_t *node; /* by task */
    unsigned char *upload; /* device memory of the upload */
};

/* A failure concerns this graph alone: nothing sticks. */
#define TRY_GRAPH(call) RD_TRY(rd_cuda_result(NULL, (call), #call, RD_HERE, st))

static struct cudaKernelNodeParams kernel_node(const rd_kernel_call *c, void **param)
{
    rd_kernel_params(c, param);
    return (struct cudaKernelNodeParams){.func = (void *)(uintptr_t)c->function,
                                         .gridDim = {c->grid[0], c->grid[1], c->grid[2]},
                                         .blockDim = {c->block[0], c->block[1], c->block[2]},
                                         .sharedMemBytes = c->shared,
                                         .kernelParams = param};
}

static struct cudaMemsetParams zero_node(const rd_gpu_move *m)
{
    return (struct cudaMemsetParams){
        .dst = m->to, .value = 0, .elementSize = 1, .width = m->bytes, .height = 1};
}

/* Captures the work that a library starts. The caller destroys *out. */
static rd_code capture_task(rd_gpu *g, const rd_gpu_task *t, const void *args, cudaGraph_t *out,
                            rd_status *st)
{
    const rd_status failure = g->failure;
    *out = NULL;
    TRY_GRAPH(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    (void)t->run(g, args, st);
    /* the gpu works on without this graph */
    g->failure = failure;
    const cudaError_t e = cudaStreamEndCapture(g->stream, out);
    RD_TRY(st->code);
    TRY_GRAPH(e);
done:
    (void)cudaGetLastError();
    return st->code;
}

static rd_code cuda_graph_add(rd_gpu *g, rd_gpu_graph *q, const rd_gpu_tasks *list, int i,
                              rd_status *st)
{
    const rd_gpu_task *t = &list->task[i];
    const void *args = rd_gpu_args(list, i);
    const cudaGraphNode_t *before = i > 0 ? &q->node[i - 1] : NULL;
    const size_t n = i > 0 ? 1 : 0;
    cudaGraph_t child = NULL;
    if (t->run == rd_gpu_run_kernel) {
        void *param[RD_MOST_PARAMS];
        const struct cudaKernelNodeParams p = kernel_node(args, param);
        TRY_GRAPH(cudaGraphAddKernelNode(&q->node[i], q->graph, before, n, &p));
    } else if (!t->run) {
        const rd_gpu_post *p = args;
        TRY_GRAPH(cudaGraphAddMemcpyNode1D(&q->node[i], q->graph, before, n, p->to,
                                           q->upload + p->from, p->bytes,
                                           cudaMemcpyDeviceToDevice));
    } else if (t->run == rd_gpu_run_copy) {
        const rd_gpu_move *m = args;
        TRY_GRAPH(cudaGraphAddMemcpyNode1D(&q->node[i], q->graph, before, n, m->to, m->from,
                                           m->bytes, cudaMemcpyDeviceToDevice));
    } else if (t->run == rd_gpu_run_zero) {
        const struct cudaMemsetParams p = zero_node(args);
        TRY_GRAPH(cudaGraphAddMemsetNode(&q->node[i], q->graph, before, n, &p));
    } else {
        RD_TRY(capture_task(g, t, args, &child, st));
        TRY_GRAPH(cudaGraphAddChildGraphNode(&q->node[i], q->graph, before, n, child));
    }
done:
    if (child) (void)cudaGraphDestroy(child);
    return st->code;
}

static void cuda_graph_drop(rd_gpu *g, rd_gpu_graph *q)
{
    if (!g->lost) (void)cudaStreamSynchronize(g->stream);
    if (q->exec) (void)cudaGraphExecDestroy(q->exec);
    if (q->graph) (void)cudaGraphDestroy(q->graph);
    (void)cudaGetLastError();
    rd_gpu_memory_free(g, q->upload);
    free(q->node);
    free(q);
}

static uint64_t free_now(void)
{
    size_t left = 0, total = 0;
    (void)cudaMemGetInfo(&left, &total);
    return left;
}

static rd_code cuda_graph_make(rd_gpu *g, const rd_gpu_tasks *list, size_t upload,
                               rd_gpu_graph **out, uint64_t *bytes, rd_status *st)
{
    rd_gpu_graph *q = *out = calloc(1, sizeof *q);
    const uint64_t before = free_now();
    if (q) q->node = calloc((size_t)list->n, sizeof *q->node);
    if (!q || !q->node) {
        rd_fail(st, RD_EENV, "out of memory for a graph");
        goto done;
    }
    RD_TRY(rd_gpu_memory_keep(g, upload, &q->upload, st));
    TRY_GRAPH(cudaGraphCreate(&q->graph, 0));
    for (int i = 0; i < list->n; i++) RD_TRY(cuda_graph_add(g, q, list, i, st));
    TRY_GRAPH(cudaGraphInstantiate(&q->exec, q->graph, 0));
    TRY_GRAPH(cudaGraphUpload(q->exec, g->stream));
    const uint64_t after = free_now();
    *bytes = before > after ? before - after : 0;
done:
    if (st->code != RD_OK && q) {
        cuda_graph_drop(g, q);
        *out = NULL;
    }
    return st->code;
}

static rd_code set(rd_gpu *g, rd_gpu_graph *q, int i, const rd_gpu_task *t, const void *args,
                   rd_status *st)
{
    (void)g;
    if (t->run == rd_gpu_run_kernel) {
        void *param[RD_MOST_PARAMS];
        const struct cudaKernelNodeParams p = kernel_node(args, param);
        TRY_GRAPH(cudaGraphExecKernelNodeSetParams(q->exec, q->node[i], &p));
    } else if (!t->run) {
        const rd_gpu_post *p = args;
        TRY_GRAPH(cudaGraphExecMemcpyNodeSetParams1D(
            q->exec, q->node[i], p->to, q->upload + p->from, p->bytes, cudaMemcpyDeviceToDevice));
    } else if (t->run == rd_gpu_run_copy) {
        const rd_gpu_move *m = args;
        TRY_GRAPH(cudaGraphExecMemcpyNodeSetParams1D(q->exec, q->node[i], m->to, m->from, m->bytes,
                                                     cudaMemcpyDeviceToDevice));
    } else if (t->run == rd_gpu_run_zero) {
        const struct cudaMemsetParams p = zero_node(args);
        TRY_GRAPH(cudaGraphExecMemsetNodeSetParams(q->exec, q->node[i], &p));
    } else {
        rd_fail(st, RD_EBUG, "what a library started cannot be changed in a graph");
    }
done:
    return st->code;
}

static rd_code cuda_graph_start(rd_gpu *g, rd_gpu_graph *q, const void *upload, size_t bytes,
                                rd_status *st)
{
    RD_TRY(rd_gpu_up_now(g, q->upload, upload, bytes, st));
    g->last_kernel = "cudaGraphLaunch";
    TRY_CUDA(g, cudaGraphLaunch(q->exec, g->stream));
done:
    return st->code;
}

const rd_graph_maker rd_cuda_graph_maker = {cuda_graph_make, set, cuda_graph_start, cuda_graph_drop,
                                            rd_gpu_up_now};
