/* tree_sum.c -- sums along a fixed binary tree; see tree_sum.h. */
#include "tree_sum.h"
#include "rd/status.h"
#include <string.h>

enum {
    BLOCK_BYTES =
        8192, /* A block's partial sums stay in the first cache. Memory is read in long runs. */
    MAX_LEVELS = 16, /* levels of a tree over 2^15 terms, and one */
};

/* Sums one block of x[lo .. hi), n elements each, starting at element `at`. acc has one block for
 * each level of the tree. Returns a pointer to the sum: acc[0], or the only term. */
#define TREE(name, T)                                                                     \
    static const T *name(const void *const *x, int lo, int hi, size_t at, size_t n,       \
                         T(*acc)[BLOCK_BYTES / sizeof(T)])                                \
    {                                                                                     \
        if (hi - lo == 1) return (const T *)x[lo] + at;                                   \
        if (hi - lo == 4) { /* in registers */                                            \
            const T *p = (const T *)x[lo] + at, *q = (const T *)x[lo + 1] + at,           \
                    *r = (const T *)x[lo + 2] + at, *s = (const T *)x[lo + 3] + at;       \
            for (size_t i = 0; i < n; i++) acc[0][i] = (p[i] + q[i]) + (r[i] + s[i]);     \
            return acc[0];                                                                \
        }                                                                                 \
        const int mid = lo + rd_tree_split(hi - lo);                                      \
        const T *a = name(x, lo, mid, at, n, acc), *b = name(x, mid, hi, at, n, acc + 1); \
        for (size_t i = 0; i < n; i++) acc[0][i] = a[i] + b[i];                           \
        return acc[0];                                                                    \
    }
TREE(tree_f32, float)
TREE(tree_f64, double)

int rd_tree_split(int n)
{
    int half = 1;
    while (2 * half < n) half *= 2;
    return half;
}

void rd_tree_sum_f32(void *dst, const void *const *src, int k, size_t n)
{
    float acc[MAX_LEVELS][BLOCK_BYTES / sizeof(float)];
    rd_assert(k >= 1 && k <= 1 << (MAX_LEVELS - 1));
    const size_t block = BLOCK_BYTES / sizeof(float);
    for (size_t at = 0; at < n; at += block) {
        const size_t m = n - at < block ? n - at : block;
        memcpy((float *)dst + at, tree_f32(src, 0, k, at, m, acc), m * sizeof(float));
    }
}

void rd_tree_sum_f64(void *dst, const void *const *src, int k, size_t n)
{
    double acc[MAX_LEVELS][BLOCK_BYTES / sizeof(double)];
    rd_assert(k >= 1 && k <= 1 << (MAX_LEVELS - 1));
    const size_t block = BLOCK_BYTES / sizeof(double);
    for (size_t at = 0; at < n; at += block) {
        const size_t m = n - at < block ? n - at : block;
        memcpy((double *)dst + at, tree_f64(src, 0, k, at, m, acc), m * sizeof(double));
    }
}

double rd_tree_sum_strided(const double *x, int64_t stride, int lo, int hi)
{
    rd_assert(lo < hi);
    if (hi - lo == 1) return x[lo * stride];
    const int mid = lo + rd_tree_split(hi - lo);
    return rd_tree_sum_strided(x, stride, lo, mid) + rd_tree_sum_strided(x, stride, mid, hi);
}

void rd_tree_sum_all(float *const *x, int k, size_t at, size_t n)
{
    float acc[MAX_LEVELS][BLOCK_BYTES / sizeof(float)];
    rd_assert(k >= 1 && k <= 1 << (MAX_LEVELS - 1));
    const size_t block = BLOCK_BYTES / sizeof(float);
    for (size_t i = at; i < at + n; i += block) {
        const size_t m = at + n - i < block ? at + n - i : block;
        const float *sum = tree_f32((const void *const *)x, 0, k, i, m, acc);
        for (int r = 0; r < k; r++) memcpy(x[r] + i, sum, m * sizeof(float));
    }
}
