/* rotary.c -- rotary positions of queries and keys (Su et al. 2021), after a norm of each head if
 * there are gains (Qwen 3). With h = head / 2, for each head z of a row at position p:
 *   z = x r gain,   r = 1 / sqrt(mean(x^2) + eps)     with gains, else z = x
 *   y_k = z_k cos - z_{k+h} sin,   y_{k+h} = z_{k+h} cos + z_k sin,   angle = p rate_k,   k < h
 * Backward turns by the negative angle. With g = dz gain and n = x r:
 *   dx = r (g - n mean(g n)),   dgain = sum dz n
 *
 * Angles, sines and cosines are doubles: a float32 angle of position 10,000 is off by up to 5e-4.
 * Each position that occurs is computed once. Without gains y overwrites x. */
#include "rotary.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static rd_code rotary_infer(rd_call *c, rd_status *st)
{
    const rd_rotary *a = c->attr;
    const rd_var *x = c->in[0];
    if (a->head < 1 || a->head > RD_ROTARY_WIDEST || a->head % 2 != 0 || a->n_heads < 0 ||
        a->n_kv_heads < 0 || (a->n_heads + a->n_kv_heads) * a->head > x->cols)
        return rd_fail(st, RD_EBUG,
                       "rotary: %" PRId64 " + %" PRId64 " heads of %" PRId64 " do not fit %" PRId64
                       " columns",
                       a->n_heads, a->n_kv_heads, a->head, x->cols);
    for (int i = 1; i < 3; i++)
        if (c->in[i] && (c->in[i]->rows * c->in[i]->cols != a->head || !(a->eps > 0.0f)))
            return rd_fail(st, RD_EBUG,
                           "rotary: a gain of %" PRId64 " numbers for heads of %" PRId64
                           ", with eps %g",
                           c->in[i]->rows * c->in[i]->cols, a->head, (double)a->eps);
    if (!c->in[1] != !c->in[2]) return rd_fail(st, RD_EBUG, "rotary: one gain of two");
    for (int64_t i = 0; i < x->rows; i++)
        if (a->position[i] < 0)
            return rd_fail(st, RD_EBUG, "rotary: row %" PRId64 " has position %" PRId64, i,
                           a->position[i]);
    c->out[0]->rows = x->rows;
    c->out[0]->cols = x->cols;
    c->out[0]->type = x->type;
    if (!c->in[1]) (void)rd_call_take_values(c, 0, false);
    return RD_OK;
}

typedef struct rotary_job {
    const rd_rotary *a;
    rd_position_set set;
    int64_t N, cols, half, chunk;
    float *table;
    const int32_t *row;
    const float *x, *gain[2], *dy;
    float *y; /* may be x; in backward dx, which may be dy */
    float *r;
    float *part; /* [chunks][2][head] */
    bool add;
} rotary_job;

static rotary_job rotary_job_of(const rd_call *c)
{
    const rd_rotary *a = c->attr;
    return (rotary_job){.a = a,
                        .N = c->in[0]->rows,
                        .cols = c->in[0]->cols,
                        .half = a->head / 2,
                        .chunk = rd_rotary_chunk(c->in[0]->rows),
                        .x = c->in[0]->v,
                        .gain = {c->in[1] ? c->in[1]->v : NULL, c->in[2] ? c->in[2]->v : NULL},
                        .y = c->out[0]->v};
}

static void rotary_table_part(void *ctx, int64_t lo, int64_t hi)
{
    const rotary_job *j = ctx;
    for (int64_t i = lo; i < hi; i++) {
        float *cosine = j->table + i * 2 * j->half, *sine = cosine + j->half;
        for (int64_t k = 0; k < j->half; k++) {
            const double angle = (double)j->set.position[i] * (j->a->rate ? j->a->rate[k] : 0.0);
            cosine[k] = (float)cos(angle);
            sine[k] = (float)sin(angle);
        }
    }
}

/* Turns a head by the angles of a row of the table. y may be z. */
static void rotary_turn(int64_t half, const float *table, float sign, const float *z, float *y)
{
    const float *c = table, *s = table + half;
#pragma omp simd
    for (int64_t k = 0; k < half; k++) {
        const float a = z[k], b = z[half + k], sine = sign * s[k];
        y[k] = a * c[k] - b * sine;
        y[half + k] = b * c[k] + a * sine;
    }
}

static void rotary_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const rotary_job *j = ctx;
    const int64_t head = j->a->head, heads = j->a->n_heads + j->a->n_kv_heads;
    for (int64_t i = lo; i < hi; i++) {
        const float *table = j->table + (int64_t)j->row[i] * head;
        const float *x = j->x + i * j->cols;
        float *y = j->y + i * j->cols;
        for (int64_t h = 0; h < heads; h++, x += head, y += head) {
            const float *gain = j->gain[h >= j->a->n_heads];
            if (!gain) {
                rotary_turn(j->half, table, 1.0f, x, y);
                continue;
            }
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < head; k++) sum += x[k] * x[k];
            const float r = 1.0f / sqrtf(sum / (float)head + j->a->eps);
            for (int64_t k = 0; k < head; k++) y[k] = x[k] * r * gain[k];
            if (j->r) j->r[i * heads + h] = r;
            rotary_turn(j->half, table, 1.0f, y, y);
        }
        if (y != x) memcpy(y, x, (size_t)(j->cols - heads * head) * sizeof *y);
    }
}

/* Computes dx of a head from dz, and adds to dgain. at: of the head in x and dx. */
static void rotary_norm_back(const rotary_job *j, int64_t at, float r, const float *gain,
                             const float *dz, float *restrict dgain)
{
    const int64_t head = j->a->head;
    const float *x = j->x + at;
    float *dx = j->y + at, sum = 0.0f;
    for (int64_t k = 0; k < head; k++) dgain[k] += dz[k] * (x[k] * r);
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < head; k++) sum += dz[k] * gain[k] * (x[k] * r);
    const float mean = sum / (float)head;
    for (int64_t k = 0; k < head; k++) {
        const float d = r * (dz[k] * gain[k] - x[k] * r * mean);
        dx[k] = j->add ? dx[k] + d : d;
    }
}

static void rotary_backward_row(const rotary_job *j, int64_t i, float *part)
{
    const int64_t head = j->a->head, heads = j->a->n_heads + j->a->n_kv_heads;
    const float *table = j->table + (int64_t)j->row[i] * head;
    float dz[RD_ROTARY_WIDEST];
    for (int64_t h = 0; h < heads; h++) {
        const int64_t at = i * j->cols + h * head;
        const bool key = h >= j->a->n_heads;
        rotary_turn(j->half, table, -1.0f, j->dy + at, dz);
        if (part)
            rotary_norm_back(j, at, j->r[i * heads + h], j->gain[key], dz, part + (key ? head : 0));
        else if (j->add)
            for (int64_t k = 0; k < head; k++) j->y[at + k] += dz[k];
        else
            memcpy(j->y + at, dz, (size_t)head * sizeof *dz);
    }
    for (int64_t k = i * j->cols + heads * head; k < (i + 1) * j->cols && j->y != j->dy; k++)
        j->y[k] = j->add ? j->y[k] + j->dy[k] : j->dy[k];
}

static void rotary_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const rotary_job *j = ctx;
    for (int64_t c = lo; c < hi; c++) {
        const int64_t end = (c + 1) * j->chunk < j->N ? (c + 1) * j->chunk : j->N;
        float *part = j->part ? j->part + c * 2 * j->a->head : NULL;
        if (part) memset(part, 0, (size_t)(2 * j->a->head) * sizeof *part);
        for (int64_t i = c * j->chunk; i < end; i++) rotary_backward_row(j, i, part);
    }
}

static rd_code rotary_forward(rd_call *c, rd_status *st)
{
    rotary_job j = rotary_job_of(c);
    const int64_t heads = j.a->n_heads + j.a->n_kv_heads;
    rd_rotary_saved *s;
    RD_TRY(rd_arena_zero(c->kept, sizeof *s, &s, st));
    RD_TRY(rd_position_set_of(c->kept, j.N, j.a->position, &j.set, st));
    RD_TRY(rd_arena_get(c->kept, (size_t)(j.set.n * j.a->head + 1) * sizeof *j.table, &j.table,
                        st));
    if (c->keep && j.gain[0])
        RD_TRY(rd_arena_get(c->kept, (size_t)(j.N * heads + 1) * sizeof *j.r, &j.r, st));
    j.row = j.set.row;
    *s = (rd_rotary_saved){j.table, j.row, j.r};
    c->saved = s;
    rd_parallel(c->be, j.set.n, 8, rotary_table_part, &j);
    rd_parallel(c->be, j.N, 8192 / (j.cols + 1) + 1, rotary_forward_part, &j);
done:
    return st->code;
}

static rd_code rotary_backward(rd_call *c, rd_status *st)
{
    const rd_rotary_saved *s = c->saved;
    rotary_job j = rotary_job_of(c);
    const int64_t chunks = (j.N + j.chunk - 1) / j.chunk, head = j.a->head;
    j.table = (float *)(uintptr_t)s->table;
    j.row = s->row;
    j.r = s->r;
    j.dy = c->out[0]->g;
    void *dx;
    RD_TRY(rd_rotary_gradient(c, &dx, &j.add, st));
    j.y = dx;
    for (int i = 1; i < 3; i++)
        if (c->in[i]) RD_TRY(rd_call_zero_grad(c, i, st));
    if (!j.y) return rd_fail(st, RD_EBUG, "rotary: the heads need no gradient");
    if (j.gain[0])
        RD_TRY(rd_arena_get(c->scratch, (size_t)(chunks * 2 * head + 1) * sizeof *j.part, &j.part,
                            st));
    rd_parallel(c->be, chunks, 1, rotary_backward_part, &j);
    for (int g = 0; g < 2 && j.part; g++) {
        float *to = c->in[1 + g]->g;
        for (int64_t n = 0; n < chunks && to; n++)
            for (int64_t k = 0; k < head; k++) to[k] += j.part[(2 * n + g) * head + k];
    }
done:
    return st->code;
}

RD_OP(rotary) = {
    .name = "rotary",
    .about = "rotary positions, norms of heads",
    .infer = rotary_infer,
    .kernel = {[RD_CPU] = {rotary_forward, rotary_backward}, [RD_GPU] = RD_GPU_KERNEL(rotary)},
    .narrow = RD_NARROW(0),
    .own_grads = true,
    .reads_out = RD_READS_NOTHING};

rd_var *rd_op_rotary(rd_tape *t, const rd_rotary *a, rd_var *x, rd_var *q_gain, rd_var *k_gain)
{
    rd_var *in[] = {x, q_gain, k_gain};
    return x ? rd_tape_apply(t, &rd_op_def_rotary, a, sizeof *a, in, 3, NULL, 1) : NULL;
}
