/* mma_device.h -- products of 16-bit fragments with float32 sums, by the tensor cores of a warp.
 *
 * All 32 lanes of a warp call each function. With g = lane / 4 and t = lane % 4, a lane has these
 * elements of the matrices A [16, 16], B [16, 8] and C [16, 8] (CUDA's PTX manual, mma.m16n8k16):
 *
 *     a[0], a[1]   A[g][2 t, 2 t + 1], A[g + 8][..]         two numbers a word, the first one low
 *     a[2], a[3]   A[g][2 t + 8, 2 t + 9], A[g + 8][..]
 *     b[0], b[1]   B[2 t, 2 t + 1][g], B[2 t + 8, 2 t + 9][g]
 *     c[0..3]      C[g][2 t, 2 t + 1], C[g + 8][2 t, 2 t + 1]
 *
 * So C of one product, rounded to pairs, is A of the next: columns 16 k .. 16 k + 15 are the
 * fragments 2 k and 2 k + 1 of C. T is rd_bf16 or rd_f16. Compute capability 8.0 and later; kernels
 * for older GPUs stop with an error. As host code, lanes exchange their numbers. */
#ifndef RD_MMA_DEVICE_H
#define RD_MMA_DEVICE_H

#include "element_device.h"
#ifdef RD_EMULATED
#include "fragments_emulated.h"
#endif

/* C += A B. */
template <typename T>
static __device__ inline void rd_mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#ifdef RD_EMULATED
    float own[12];
    for (int i = 0; i < 4; i++) {
        own[2 * i] = rd_low_of<T>(a[i]);
        own[2 * i + 1] = rd_high_of<T>(a[i]);
    }
    for (int i = 0; i < 2; i++) {
        own[8 + 2 * i] = rd_low_of<T>(b[i]);
        own[9 + 2 * i] = rd_high_of<T>(b[i]);
    }
    const rd_emulated_fragment *of = rd_emulated_exchange(own, RD_EMULATED_HERE);
    const int lane = rd_emulated_lane(), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const int second = i / 2, col = 2 * t + i % 2;
        float sum = 0.0f;
        for (int k = 0; k < 4; k++) {
            const float *x = of[4 * g + k], *y = of[4 * col + k] + 8;
            sum += x[2 * second] * y[0] + x[2 * second + 1] * y[1];
            sum += x[2 * second + 4] * y[2] + x[2 * second + 5] * y[3];
        }
        c[i] += sum;
    }
#elif __CUDA_ARCH__ >= 800
    if constexpr (std::is_same<T, rd_bf16>::value)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

/* How four blocks of 8 x 8 numbers in shared memory become four words of each lane. */
enum rd_blocks_order {
    /* word i is block i: rows 0 .. 7 and 8 .. 15 of the left, then of the right eight columns */
    RD_BLOCKS_DOWN,
    /* the left and the right eight columns of rows 0 .. 7, then of rows 8 .. 15 */
    RD_BLOCKS_ACROSS
};

/* Loads 16 x 16 numbers. at: the first one, of rows `ld` numbers apart. All rows begin at multiples
 * of 16 bytes. turned: each block is transposed. */
static __device__ inline void rd_blocks_get(uint32_t w[4], const uint16_t *at, int ld,
                                            rd_blocks_order order, bool turned)
{
#ifdef RD_EMULATED
    const int lane = rd_emulated_lane(), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const bool down = order == RD_BLOCKS_DOWN;
        const uint16_t *block = at + 8 * (down ? i % 2 : i / 2) * ld + 8 * (down ? i / 2 : i % 2);
        const uint16_t *low = turned ? block + 2 * t * ld + g : block + g * ld + 2 * t;
        w[i] = (uint32_t)*low | (uint32_t)low[turned ? ld : 1] << 16;
    }
#elif __CUDA_ARCH__ >= 800
    const int lane = threadIdx.x % 32, i = lane / 8, down = order == RD_BLOCKS_DOWN;
    const uint16_t *row = at + (8 * (down ? i % 2 : i / 2) + lane % 8) * ld +
                          8 * (down ? i / 2 : i % 2);
    const uint32_t from = (uint32_t)__cvta_generic_to_shared(row);
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(from));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(from));
#else
    __trap();
#endif
}

/* Loads A from rows: A[i][k] = at[i ld + k]. */
static __device__ inline void rd_mma_a(uint32_t a[4], const uint16_t *at, int ld)
{
    rd_blocks_get(a, at, ld, RD_BLOCKS_DOWN, false);
}
/* Loads two B beside each other, columns 0 .. 7 in b[0, 1] and 8 .. 15 in b[2, 3], from the rows of
 * their transposed: B[k][n] = at[n ld + k]. */
static __device__ inline void rd_mma_b_turned(uint32_t b[4], const uint16_t *at, int ld)
{
    rd_blocks_get(b, at, ld, RD_BLOCKS_ACROSS, false);
}
/* The same from rows: B[k][n] = at[k ld + n]. */
static __device__ inline void rd_mma_b(uint32_t b[4], const uint16_t *at, int ld)
{
    rd_blocks_get(b, at, ld, RD_BLOCKS_DOWN, true);
}

#endif
