/* tree_sum.h -- sums along a fixed binary tree, so that the same terms give the same bytes.
 *
 * The tree splits k terms at the largest power of two below k: ((0 + 1) + (2 + 3)) + 4. The result
 * does not depend on how a power of two of ranks shares a power of two of terms. */
#ifndef RD_TREE_SUM_H
#define RD_TREE_SUM_H

#include <stddef.h>
#include <stdint.h>

/* Returns how many of n terms the left branch of the tree has; n > 1. */
int rd_tree_split(int n);
/* Sums k arrays and writes the sum to each of them:
 * x[r][at .. at + n) = sum over i < k of x[i][at .. at + n), for every r < k; k > 1. */
void rd_tree_sum_all(float *const *x, int k, size_t at, size_t n);
/* dst[n] = sum over r < k of src[r][n]. dst may be one of the sources. */
void rd_tree_sum_f32(void *dst, const void *const *src, int k, size_t n);
void rd_tree_sum_f64(void *dst, const void *const *src, int k, size_t n);
/* Returns the sum of x[r * stride] for lo <= r < hi. */
double rd_tree_sum_strided(const double *x, int64_t stride, int lo, int hi);

#endif
