/* gpu_recurs.c -- gpu.h's functions for work that recurs; the graphs of the gpu do the work
 * (gpu_graph.h). */
#include "gpu_graph.h"

rd_code rd_gpu_recurs(rd_gpu *g, uint64_t key, rd_status *st)
{
    return rd_graphs_begin(rd_gpu_graphs(g), key, st);
}

rd_code rd_gpu_recurred(rd_gpu *g, rd_status *st)
{
    return rd_graphs_end(rd_gpu_graphs(g), st);
}

void rd_gpu_count_graphs(const rd_gpu *g, rd_gpu_graph_counts *out)
{
    rd_graphs_count(rd_gpu_graphs(g), out);
}

const char *rd_gpu_take_graph_note(rd_gpu *g)
{
    return rd_graphs_note(rd_gpu_graphs(g));
}
