/* layer_rows.cu -- the passes of layer_rows.h on a GPU: one kernel per pass, one thread per
 * element. */
#include "layer_rows.h"
#include "../../engine/gpu/kernel.h"
#include "../../engine/gpu/rounded_device.h"

static __global__ void between(rd_between r, rd_rounded_copy of_y, rd_rounded_copy of_next)
{
    const float scale_out = 1.0f / r.keep_out, scale_in = 1.0f / r.keep_in;
    for (RD_EACH(i, r.n * r.width)) {
        float y = r.h[i];
        if (r.bias) y += r.bias[i % r.width];
        if (r.mask_out) y = r.mask_out[i] ? y * scale_out : 0.0f;
        if (r.skip) y += r.skip[i];
        if (r.y) r.y[i] = y;
        rd_rounded_put(of_y, i, y);
        if (!r.next) continue;
        const float x = !r.mask_in ? y : r.mask_in[i] ? y * scale_in : 0.0f;
        r.next[i] = x;
        rd_rounded_put(of_next, i, x);
    }
}

static rd_code launch_between_layers(rd_backend *be, const rd_between *r, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    return RD_LAUNCH(g, st, between, rd_grid(r->n * r->width), RD_BLOCK, 0, *r,
                     rd_rounded_copy_of(g, r->y), rd_rounded_copy_of(g, r->next));
}

static __global__ void between_back(rd_between_back r, rd_rounded_copy of_dy)
{
    const float scale_out = 1.0f / r.keep_out, scale_in = 1.0f / r.keep_in;
    const int64_t later = r.dh_later ? r.n_later * r.width : 0;
    for (RD_EACH(i, r.n * r.width)) {
        float d = r.dnext[i];
        if (r.mask_in) d = r.mask_in[i] ? d * scale_in : 0.0f;
        if (r.dskip) d += r.dskip[i];
        if (r.dy) r.dy[i] = d;
        rd_rounded_put(of_dy, i, d);
        if (!r.dh) continue;
        if (r.mask_out) d = r.mask_out[i] ? d * scale_out : 0.0f;
        r.dh[i] = i < later ? d + r.dh_later[i] : d;
    }
}

static rd_code launch_between_layers_back(rd_backend *be, const rd_between_back *r, rd_status *st)
{
    rd_gpu *g = rd_gpu_of(be);
    return RD_LAUNCH(g, st, between_back, rd_grid(r->n * r->width), RD_BLOCK, 0, *r,
                     rd_rounded_copy_of(g, r->dy));
}

const rd_between_kernels rd_cuda_between = {launch_between_layers, launch_between_layers_back};
