/* fake_graph.cc -- CUDA graphs of the fake runtime. A graph that can be started has its own copy of
 * the nodes, so arguments that nobody sets in it stay as they were. */
#include "fake_runtime.h"
#include <string.h>

using namespace fake;

namespace fake
{
bool end_capture(cudaStream_t s, std::vector<work> *out);
}

namespace
{

enum class kind { kernel, copy, zero, child };
struct node {
    kind is;
    const void *function; /* of a kernel */
    std::vector<work> parts;
};

} // namespace

struct CUgraph_st {
    std::vector<node> nodes;
};
struct CUgraphExec_st {
    std::vector<node> nodes;
};

namespace
{

/* Handles of nodes are their numbers, from 1 on. */
size_t number_of(cudaGraphNode_t n)
{
    return (size_t)(uintptr_t)n;
}

/* Adds a node at the end of the chain. */
cudaError_t add(const char *call, cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *after,
                size_t n, node k)
{
    const size_t last = g->nodes.size();
    if (last ? n != 1 || number_of(*after) != last : n != 0)
        mistake(call, "node %zu does not follow the node before it", last + 1);
    g->nodes.push_back(std::move(k));
    *out = (cudaGraphNode_t)(uintptr_t)(last + 1);
    return cudaSuccess;
}

node kernel_node(const char *call, const cudaKernelNodeParams *p)
{
    return {
        kind::kernel,
        p->func,
        {kernel_work(call, p->func, p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes)}};
}

node copy_node(const char *call, void *to, const void *from, size_t bytes, cudaMemcpyKind k)
{
    if (k != cudaMemcpyDeviceToDevice) mistake(call, "a node copies on the device only");
    need_device(call, "target", to, bytes);
    need_device(call, "source", from, bytes);
    return {kind::copy, nullptr, {[=] {
                counts.copies++;
                counts.device_bytes += (int64_t)bytes;
                count_in_graph();
                memmove(to, from, bytes);
                return true;
            }}};
}

node zero_node(const char *call, const cudaMemsetParams *p)
{
    void *at = p->dst;
    const size_t bytes = p->width;
    const int value = (int)p->value;
    if (p->elementSize != 1 || p->height != 1) mistake(call, "one row of bytes");
    need_device(call, "target", at, bytes);
    return {kind::zero, nullptr, {[=] {
                counts.copies++;
                count_in_graph();
                memset(at, value, bytes);
                return true;
            }}};
}

cudaError_t set(const char *call, cudaGraphExec_t e, cudaGraphNode_t n, node k)
{
    const size_t i = number_of(n);
    if (i < 1 || i > e->nodes.size()) mistake(call, "node %zu of %zu", i, e->nodes.size());
    if (e->nodes[i - 1].is != k.is || e->nodes[i - 1].function != k.function)
        mistake(call, "node %zu is of another kind, or another kernel", i);
    e->nodes[i - 1] = std::move(k);
    return cudaSuccess;
}

} // namespace

extern "C" {

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    std::vector<work> parts;
    const bool fail = fails(__func__), valid = end_capture(s, &parts);
    *out = nullptr;
    if (fail) return set_last(cudaErrorUnknown);
    if (!valid) return set_last(cudaErrorStreamCaptureInvalidated);
    *out = new CUgraph_st;
    if (!parts.empty()) (*out)->nodes.push_back({kind::child, nullptr, parts});
    count_object(1);
    return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned)
{
    *g = nullptr;
    FAKE_CALL();
    if (!number_of_environment("RD_EMULATED_GRAPHS", 1)) return set_last(cudaErrorUnknown);
    *g = new CUgraph_st;
    count_object(1);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    const bool fail = fails(__func__);
    delete g;
    count_object(-1);
    return set_last(fail ? cudaErrorUnknown : device_failure());
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *out, cudaGraph_t g,
                                   const cudaGraphNode_t *after, size_t n,
                                   const struct cudaKernelNodeParams *p)
{
    FAKE_CALL();
    return add(__func__, out, g, after, n, kernel_node(__func__, p));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *out, cudaGraph_t g,
                                     const cudaGraphNode_t *after, size_t n, void *to,
                                     const void *from, size_t bytes, cudaMemcpyKind k)
{
    FAKE_CALL();
    return add(__func__, out, g, after, n, copy_node(__func__, to, from, bytes, k));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *out, cudaGraph_t g,
                                   const cudaGraphNode_t *after, size_t n,
                                   const struct cudaMemsetParams *p)
{
    FAKE_CALL();
    return add(__func__, out, g, after, n, zero_node(__func__, p));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *out, cudaGraph_t g,
                                       const cudaGraphNode_t *after, size_t n, cudaGraph_t child)
{
    FAKE_CALL();
    node all = {kind::child, nullptr, {}};
    for (const node &k : child->nodes)
        all.parts.insert(all.parts.end(), k.parts.begin(), k.parts.end());
    if (all.parts.empty()) mistake(__func__, "the child is empty");
    return add(__func__, out, g, after, n, std::move(all));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
{
    *out = nullptr;
    FAKE_CALL_OUTSIDE();
    *out = new CUgraphExec_st{g->nodes};
    count_object(1);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    const bool fail = fails(__func__);
    delete e;
    count_object(-1);
    return set_last(fail ? cudaErrorUnknown : device_failure());
}

cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t)
{
    FAKE_CALL_OUTSIDE();
    return e ? cudaSuccess : set_last(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    FAKE_CALL_OUTSIDE();
    counts.graphs++;
    for (const node &n : e->nodes)
        for (const work &w : n.parts)
            queue(
                s,
                [w] {
                    in_graph++;
                    const bool over = w();
                    in_graph--;
                    return over;
                },
                __func__);
    return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t e, cudaGraphNode_t n,
                                             const struct cudaKernelNodeParams *p)
{
    FAKE_CALL();
    return set(__func__, e, n, kernel_node(__func__, p));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t e, cudaGraphNode_t n, void *to,
                                               const void *from, size_t bytes, cudaMemcpyKind k)
{
    FAKE_CALL();
    return set(__func__, e, n, copy_node(__func__, to, from, bytes, k));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t e, cudaGraphNode_t n,
                                             const struct cudaMemsetParams *p)
{
    FAKE_CALL();
    return set(__func__, e, n, zero_node(__func__, p));
}

} // extern "C"
