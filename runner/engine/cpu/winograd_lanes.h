/* winograd_lanes.h -- the loops of cpu_winograd.c for one width of vectors.
 *
 * cpu_winograd.c includes this file once for each width, with LANES defined (8 or 16) and NAME(x),
 * which adds the width to a name. So the file has no include guard. */

typedef float NAME(vec) __attribute__((vector_size(LANES * 4)));
#define VEC NAME(vec)

static inline VEC NAME(load)(const float *x)
{
    VEC v;
    memcpy(&v, x, sizeof v);
    return v;
}
static inline void NAME(store)(float *x, VEC v)
{
    memcpy(x, &v, sizeof v);
}

/* V = B^T d B for one tile and one block of channels. */
static inline void NAME(transform_tile)(VEC d[4][4], float *out, int64_t step)
{
    VEC t[4][4];
    for (int j = 0; j < 4; j++) {
        t[0][j] = d[0][j] - d[2][j];
        t[1][j] = d[1][j] + d[2][j];
        t[2][j] = d[2][j] - d[1][j];
        t[3][j] = d[1][j] - d[3][j];
    }
    for (int i = 0; i < 4; i++) {
        NAME(store)(out + (4 * i + 0) * step, t[i][0] - t[i][2]);
        NAME(store)(out + (4 * i + 1) * step, t[i][1] + t[i][2]);
        NAME(store)(out + (4 * i + 2) * step, t[i][2] - t[i][1]);
        NAME(store)(out + (4 * i + 3) * step, t[i][1] - t[i][3]);
    }
}

/* Transforms tiles t0 .. t1 - 1 of all images into V [16][T][C]. */
static void NAME(in_tiles)(const cpu_winograd_job *j, int64_t t0, int64_t t1, float *V)
{
    const int64_t C = j->in_K * LANES, step = j->in_step, P = j->h * j->w;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t i = t / (j->th * j->tw), ty = t / j->tw % j->th, tx = t % j->tw;
        const int64_t row = 2 * ty - j->top, col = 2 * tx - j->left;
        const bool inside = row >= 0 && row + 4 <= j->h && col >= 0 && col + 4 <= j->w;
        for (int64_t k = 0; k < j->in_K; k++) {
            const float *x = j->x + (i * j->in_K + k) * P * LANES;
            VEC d[4][4];
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < 4; b++) {
                    const int64_t r = row + a, c = col + b;
                    if (inside || (r >= 0 && r < j->h && c >= 0 && c < j->w))
                        d[a][b] = NAME(load)(x + (r * j->w + c) * LANES);
                    else
                        d[a][b] = (VEC){0};
                }
            NAME(transform_tile)(d, V + (t - t0) * C + k * LANES, step);
        }
    }
}

/* Y = A^T M A (+ bias), then max(., 0) if relu. add: Y +=. */
static void NAME(out_tiles)(const cpu_winograd_job *j, int64_t t0, int64_t t1, const float *M)
{
    const int64_t C = j->out_K * LANES, step = j->out_step, P = j->oh * j->ow;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t i = t / (j->th * j->tw), ty = t / j->tw % j->th, tx = t % j->tw;
        for (int64_t k = 0; k < j->out_K; k++) {
            const float *m = M + (t - t0) * C + k * LANES;
            const VEC bias = j->bias ? NAME(load)(j->bias + k * LANES) : (VEC){0};
            VEC s[2][4];
            for (int b = 0; b < 4; b++) {
                const VEC m0 = NAME(load)(m + b * step), m1 = NAME(load)(m + (4 + b) * step),
                          m2 = NAME(load)(m + (8 + b) * step), m3 = NAME(load)(m + (12 + b) * step);
                s[0][b] = m0 + m1 + m2;
                s[1][b] = m1 - m2 - m3;
            }
            float *y = j->y + ((i * j->out_K + k) * P + 2 * ty * j->ow + 2 * tx) * LANES;
            for (int a = 0; a < 2 && 2 * ty + a < j->oh; a++)
                for (int b = 0; b < 2 && 2 * tx + b < j->ow; b++) {
                    VEC v = (b == 0 ? s[a][0] + s[a][1] + s[a][2] : s[a][1] - s[a][2] - s[a][3]) +
                            bias;
                    float *to = y + (a * j->ow + b) * LANES;
                    if (j->relu) v = (VEC)((NAME(mask))v & ~(NAME(mask))(v < 0.0f));
                    NAME(store)(to, j->add ? NAME(load)(to) + v : v);
                }
        }
    }
}

/* M = V U for n tiles; n is rounded up to a multiple of four or six. A panel of U is C by up to
 * three vectors. */
static void NAME(products)(const cpu_winograd_job *j, int64_t n, const float *V, float *M)
{
    const int64_t C = j->in_K * LANES, D = j->out_K * LANES, panel = C * BLOCKS * LANES;
    for (int64_t pos = 0; pos < 16; pos++)
        for (int64_t s = 0; s < j->n_strips; s++) {
            const int64_t b0 = rd_strip_start(j->out_K, s, j->n_strips),
                          b1 = s + 1 < j->n_strips ? rd_strip_start(j->out_K, s + 1, j->n_strips)
                                                   : j->out_K;
            const float *u = j->U + (pos * j->n_strips + s) * panel;
            const float *v = V + pos * j->in_step;
            float *m = M + pos * j->out_step + b0 * LANES;
            if (b1 - b0 == 3)
                for (int64_t t = 0; t < n; t += 4) NAME(tile3)(v + t * C, C, u, m + t * D, D);
            else if (b1 - b0 == 2)
                for (int64_t t = 0; t < n; t += 6) NAME(tile2)(v + t * C, C, u, m + t * D, D);
            else
                for (int64_t t = 0; t < n; t += 6) NAME(tile1)(v + t * C, C, u, m + t * D, D);
        }
}

static void NAME(chunks)(const cpu_winograd_job *j, int64_t slot)
{
    float *V = j->buffer + slot * j->slot, *M = V + 16 * j->in_step;
    for (int64_t c = slot; c * j->T < j->tiles; c += j->n_slots) {
        const int64_t t0 = c * j->T, t1 = j->tiles - t0 < j->T ? j->tiles : t0 + j->T;
        NAME(in_tiles)(j, t0, t1, V);
        NAME(products)(j, t1 - t0, V, M);
        NAME(out_tiles)(j, t0, t1, M);
    }
}

/* U = G g G^T for a vector of channels. */
static inline void NAME(transform_weights)(const VEC g[3][3], VEC u[4][4])
{
    VEC t[4][3];
    for (int s = 0; s < 3; s++) {
        t[0][s] = g[0][s];
        t[1][s] = 0.5f * (g[0][s] + g[1][s] + g[2][s]);
        t[2][s] = 0.5f * (g[0][s] - g[1][s] + g[2][s]);
        t[3][s] = g[2][s];
    }
    for (int i = 0; i < 4; i++) {
        u[i][0] = t[i][0];
        u[i][1] = 0.5f * (t[i][0] + t[i][1] + t[i][2]);
        u[i][2] = 0.5f * (t[i][0] - t[i][1] + t[i][2]);
        u[i][3] = t[i][2];
    }
}

/* Transforms the weights of input channels lo .. hi - 1 in the parameter's order (ci). W is
 * HWIO. Where channels pad a block, the caller has filled U with zeros. */
static void NAME(weights)(const weights_job *j, int64_t lo, int64_t hi)
{
    const int64_t panel = j->in_K * LANES * BLOCKS * LANES, all = j->n_strips * panel;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t o = 0; o < j->co; o += LANES) {
            const int64_t lanes = j->co - o < LANES ? j->co - o : LANES;
            VEC g[3][3], u[4][4];
            for (int r = 0; r < 3; r++)
                for (int s = 0; s < 3; s++) {
                    const float *w = j->W + ((r * 3 + s) * j->ci + i) * j->co + o;
                    VEC *to = j->flip ? &g[2 - r][2 - s] : &g[r][s];
                    *to = (VEC){0};
                    if (lanes == LANES)
                        *to = NAME(load)(w);
                    else
                        memcpy(to, w, (size_t)lanes * sizeof *w);
                }
            NAME(transform_weights)(g, u);
            if (!j->flip) {
                /* A vector of results for input i. */
                const int64_t block = o / LANES, s = rd_strip_of(j->out_K, block);
                float *to = j->U + s * panel +
                            (i * BLOCKS + block - rd_strip_start(j->out_K, s, j->n_strips)) * LANES;
                for (int p = 0; p < 16; p++) NAME(store)(to + p * all, u[p / 4][p % 4]);
            } else {
                /* Inputs o, o + 1, ... for the result i. */
                const int64_t block = i / LANES, s = rd_strip_of(j->out_K, block);
                float *to = j->U + s * panel +
                            (block - rd_strip_start(j->out_K, s, j->n_strips)) * LANES + i % LANES;
                for (int p = 0; p < 16; p++)
                    for (int64_t l = 0; l < lanes; l++)
                        to[p * all + (o + l) * BLOCKS * LANES] = u[p / 4][p % 4][l];
            }
        }
}

/* ---- the gradient of the weights ---- */
/* D = G dy G^T for tiles t0 .. t1 - 1. They are tiles t0 - first, ... of the chunk. */
static void NAME(result_tiles)(const gradient_job *g, int64_t t0, int64_t t1, int64_t first)
{
    const cpu_winograd_job *j = &g->x;
    const int64_t C = j->out_K * LANES, step = j->out_step, P = j->oh * j->ow;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t i = t / (j->th * j->tw), ty = t / j->tw % j->th, tx = t % j->tw;
        const bool two_rows = 2 * ty + 1 < j->oh, two_cols = 2 * tx + 1 < j->ow;
        for (int64_t k = 0; k < j->out_K; k++) {
            const float *d = g->dy + ((i * j->out_K + k) * P + 2 * ty * j->ow + 2 * tx) * LANES;
            const VEC zero = {0}, a = NAME(load)(d), b = two_cols ? NAME(load)(d + LANES) : zero,
                      c = two_rows ? NAME(load)(d + j->ow * LANES) : zero,
                      e = two_rows && two_cols ? NAME(load)(d + (j->ow + 1) * LANES) : zero;
            const VEC left[4] = {a, 0.5f * (a + c), 0.5f * (a - c), c},
                      right[4] = {b, 0.5f * (b + e), 0.5f * (b - e), e};
            float *out = g->D + (t - first) * C + k * LANES;
            for (int r = 0; r < 4; r++) {
                NAME(store)(out + (4 * r + 0) * step, left[r]);
                NAME(store)(out + (4 * r + 1) * step, 0.5f * (left[r] + right[r]));
                NAME(store)(out + (4 * r + 2) * step, 0.5f * (left[r] - right[r]));
                NAME(store)(out + (4 * r + 3) * step, right[r]);
            }
        }
    }
}

/* S += V^T D for units lo .. hi - 1, over n tiles of a chunk. A unit is one place by one strip. */
static void NAME(gradient_sums)(const gradient_job *g, int64_t n, int64_t lo, int64_t hi)
{
    const cpu_winograd_job *j = &g->x;
    const int64_t C = j->in_K * LANES, D = j->out_K * LANES;
    for (int64_t u = lo; u < hi; u++) {
        const int64_t pos = u / j->n_strips, s = u % j->n_strips;
        const int64_t b0 = rd_strip_start(j->out_K, s, j->n_strips),
                      b1 = s + 1 < j->n_strips ? rd_strip_start(j->out_K, s + 1, j->n_strips)
                                               : j->out_K;
        const float *v = g->V + pos * j->in_step, *d = g->D + pos * j->out_step + b0 * LANES;
        float *sum = g->S + u * C * BLOCKS * LANES;
        for (int64_t c = 0; c < C; c += 4, sum += 4 * BLOCKS * LANES)
            if (b1 - b0 == 3)
                NAME(sum3)(v + c, C, d, D, n, sum);
            else if (b1 - b0 == 2)
                NAME(sum2)(v + c, C, d, D, n, sum);
            else
                NAME(sum1)(v + c, C, d, D, n, sum);
        /* Place (1, 1) of D is a quarter of the sum of the tile's four pixels. */
        for (int64_t t = 0; t < n && g->bias && pos == 5; t++)
            for (int64_t l = 0; l < (b1 - b0) * LANES; l++)
                g->bias[b0 * LANES + l] += 4.0f * d[t * D + l];
    }
}

/* dW += A^T S A for input channels lo .. hi - 1. */
static void NAME(fold)(const gradient_job *g, int64_t lo, int64_t hi)
{
    const cpu_winograd_job *j = &g->x;
    const int64_t panel = j->in_K * LANES * BLOCKS * LANES;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t o = 0; o < g->co; o += LANES) {
            const int64_t lanes = g->co - o < LANES ? g->co - o : LANES,
                          s = rd_strip_of(j->out_K, o / LANES);
            const float *from =
                g->S + s * panel +
                (i * BLOCKS + o / LANES - rd_strip_start(j->out_K, s, j->n_strips)) * LANES;
            VEC t[3][4];
            for (int c = 0; c < 4; c++) {
                VEC m[4];
                for (int r = 0; r < 4; r++)
                    m[r] = NAME(load)(from + (4 * r + c) * j->n_strips * panel);
                t[0][c] = m[0] + m[1] + m[2];
                t[1][c] = m[1] - m[2];
                t[2][c] = m[1] + m[2] - m[3];
            }
            for (int r = 0; r < 3; r++) {
                const VEC w[3] = {t[r][0] + t[r][1] + t[r][2], t[r][1] - t[r][2],
                                  t[r][1] + t[r][2] - t[r][3]};
                for (int c = 0; c < 3; c++) {
                    float *to = g->dW + ((r * 3 + c) * g->ci + i) * g->co + o;
                    for (int64_t l = 0; l < lanes; l++) to[l] += w[c][l];
                }
            }
        }
}

#undef VEC
