/* turn.h -- the transposition of eight rows and columns in registers. */
#ifndef RD_TURN_H
#define RD_TURN_H

#include <stdint.h>

/* Transposes columns [c, c + 8) of eight rows: to[i ld + r] = x[r][c + i]. */
static inline void rd_turn8(const float *const x[8], int64_t c, float *__restrict to, int64_t ld)
{
    typedef float f8 __attribute__((vector_size(32)));
    typedef float loose8 __attribute__((vector_size(32), aligned(4), may_alias));
    f8 a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = *(const loose8 *)(x[i] + c);
    for (int i = 0; i < 8; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            a[i + k] = __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + k + 2] = __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14,
                                                   15);
        }
    for (int i = 0; i < 4; i++) {
        *(loose8 *)(to + i * ld) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10,
                                                           11);
        *(loose8 *)(to + (i + 4) * ld) = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13,
                                                                 14, 15);
    }
}

#endif
