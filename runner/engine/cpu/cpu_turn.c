/* cpu_turn.c -- products with a transposed parameter, by a transposed copy; see cpu_turn.h. */
#include "cpu_turn.h"
#include "cpu_packed.h"
#include "rd/turn.h"

typedef struct turn_job {
    const float *w; /* [rows, cols] */
    float *to;      /* [cols, rows] */
    int64_t rows, cols;
} turn_job;

enum { STRIP = 16 };

/* Copies the strips of rows [lo, hi): each line of the copy is written once. */
static void turn_part(void *ctx, int64_t lo, int64_t hi)
{
    const turn_job *j = ctx;
    for (int64_t strip = lo; strip < hi; strip++) {
        const int64_t r0 = strip * STRIP, n = j->rows - r0 < STRIP ? j->rows - r0 : STRIP;
        const float *x[STRIP];
        int64_t c = 0;
        for (int64_t r = 0; r < n; r++) x[r] = j->w + (r0 + r) * j->cols;
        for (; n == STRIP && c + 8 <= j->cols; c += 8) {
            rd_turn8(x, c, j->to + c * j->rows + r0, j->rows);
            rd_turn8(x + 8, c, j->to + c * j->rows + r0 + 8, j->rows);
        }
        for (; c < j->cols; c++)
            for (int64_t r = 0; r < n; r++) j->to[c * j->rows + r0 + r] = x[r][c];
    }
}

bool rd_turn_pays(int64_t n, int64_t rows, int64_t cols)
{
    return n >= 1024 && cols >= rows;
}

rd_code rd_turn_mul(rd_cpu *b, int64_t rows, int64_t cols, const float *w, int64_t n,
                    const float *y, float *x, bool add, rd_status *st)
{
    RD_TRY(rd_cpu_buffer_reserve(&b->turned, (size_t)(rows * cols) * sizeof *w, st));
    turn_job j = {w, b->turned.p, rows, cols};
    rd_parallel(&b->base, (rows + STRIP - 1) / STRIP, 4, turn_part, &j);
    RD_TRY(rd_cpu_gemm(b, false, false, n, rows, cols, 1.0f, y, cols, j.to, rows, add ? 1.0f : 0.0f,
                       x, rows, st));
done:
    return st->code;
}
