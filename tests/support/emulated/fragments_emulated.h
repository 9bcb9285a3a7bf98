/* fragments_emulated.h -- how the lanes of an emulated warp exchange fragments of matrices, for
 * runner/engine/gpu/mma_device.h. */
#ifndef RD_FRAGMENTS_EMULATED_H
#define RD_FRAGMENTS_EMULATED_H

typedef float rd_emulated_fragment[12];

extern "C" {
/* Gives twelve numbers to the other lanes of a warp, which all call it. Returns those of lanes 0 to
 * 31, until the lane's next call but one. */
const rd_emulated_fragment *rd_emulated_exchange(const rd_emulated_fragment own, const char *where);
}

#endif
