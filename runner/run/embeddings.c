/* embeddings.c -- gradients of embeddings. A step fills few of their rows.
 *
 * The backward pass of the ops marks the rows that it writes (rd_tape_touched). Summed over ranks
 * are the rows that any rank has marked (comm_rows.h). Afterwards a mark says that the row may hold
 * something on this rank, so that the zeroing before the next step can skip the other rows. The
 * update is that of a whole gradient: moments of unmarked rows decay.
 *
 * The config decides which tables are summed by rows. Small tables are not: they cost less than the
 * barriers. Between hosts a table is not, either, if a step is sure to mark most of its rows: a
 * whole table can be sent while backward runs, and rows cannot. */
#include "embeddings.h"
#include "device.h"

#include "rd/comm_rows.h"
#include <stdlib.h>
#include <string.h>

enum { LEAST_BYTES = 256 << 10, LEAST_ROWS = 10 /* rows per sample of a step, between hosts */ };

typedef struct embeddings_table {
    const rd_param *p;
    uint64_t *touched;  /* borrowed from the tape */
    rd_comm_rows *rows; /* owned */
} embeddings_table;

struct embeddings {
    rd_run *run;
    int n;
    embeddings_table *at; /* owned; ordered by offset in the arenas */
};

static bool by_rows(const rd_run *r, const rd_param *p)
{
    const run_sparse rule = r->config.sparse_embeddings;
    const double samples = (double)run_update_samples(r);
    if (!(p->flags & RD_PARAM_ROWS) || p->n_dim != 2 || rule == RUN_SPARSE_NEVER) return false;
    if (rule == RUN_SPARSE_ALWAYS) return true;
    return p->n >= (int64_t)(LEAST_BYTES / sizeof(float)) &&
           (r->world->n_hosts == 1 || (double)p->dim[0] >= LEAST_ROWS * samples);
}

static int embeddings_by_offset(const void *a, const void *b)
{
    const int64_t x = ((const embeddings_table *)a)->p->offset,
                  y = ((const embeddings_table *)b)->p->offset;
    return (x > y) - (x < y);
}

rd_code embeddings_new(rd_run *r, bool none, embeddings **out, rd_status *st)
{
    const int n_params = rd_params_n(r->params);
    embeddings *e = *out = calloc(1, sizeof *e);
    if (e) e->at = calloc((size_t)n_params + 1, sizeof *e->at);
    if (!e || !e->at) rd_fail(st, RD_EENV, "out of memory for the embeddings' rows");
    if (rd_comm_agree(r->comm, st) != RD_OK || !e || !e->at) return st->code;
    e->run = r;
    for (int i = 0; i < n_params && !none; i++) {
        const rd_param *p = rd_params_at(r->params, i);
        if (by_rows(r, p))
            e->at[e->n++] = (embeddings_table){.p = p, .touched = rd_tape_touched(r->tape, p)};
    }
    qsort(e->at, (size_t)e->n, sizeof *e->at, embeddings_by_offset);
    for (int i = 0; i < e->n; i++)
        RD_TRY(rd_comm_rows_new(r->comm, e->at[i].p->dim[0], e->at[i].p->dim[1],
                                r->config.allreduce_dtype, &e->at[i].rows, st));
done:
    return st->code;
}

void embeddings_free(embeddings *e)
{
    if (!e) return;
    for (int i = 0; i < e->n; i++) rd_comm_rows_free(e->at[i].rows);
    free(e->at);
    free(e);
}

int embeddings_n(const embeddings *e)
{
    return e->n;
}

const rd_param *embeddings_param(const embeddings *e, int i)
{
    return e->at[i].p;
}

/* On a GPU, zeroing everything is cheaper than searching for what is not zero. */
static void zero_on_gpu(embeddings *e, bool zero)
{
    /* A failure sticks, and the next call of the GPU reports it. */
    rd_status own = {0};
    rd_params_device_changed_grads(e->run->params);
    if (zero) return;
    (void)rd_gpu_zero(run_gpu(e->run), rd_params_device_grads(e->run->params),
                      (size_t)rd_params_grad_span(e->run->params) * sizeof(float), &own);
}

static void clear_marks(embeddings_table *t)
{
    memset(t->touched, 0, (size_t)rd_row_set_words(t->p->dim[0]) * sizeof *t->touched);
}

/* Zeroes the gradient of a parameter, and what lies behind it in its place. */
static void zero_one(const embeddings *e, const rd_param *p)
{
    float *g = rd_params_grads(e->run->params) + p->offset;
    int64_t done = 0;
    for (int i = 0; i < e->n; i++) {
        if (e->at[i].p != p) continue;
        rd_row_set_zero(g, p->dim[0], p->dim[1], e->at[i].touched);
        done = p->n;
    }
    memset(g + done, 0, (size_t)(rd_params_place(p) - done) * sizeof *g);
}

static void zero_on_cpu(const embeddings *e)
{
    const rd_params *ps = e->run->params;
    rd_tape_borrow_grads(e->run->tape);
    for (int i = 0; i < rd_params_n(ps); i++) {
        const rd_param *p = rd_params_at(ps, i);
        if (!(p->flags & RD_PARAM_FROZEN) && !rd_tape_borrows(e->run->tape, p)) zero_one(e, p);
    }
}

void embeddings_zero_grads(embeddings *e, bool keep_marks, bool zero)
{
    if (run_gpu(e->run))
        zero_on_gpu(e, zero);
    else
        zero_on_cpu(e);
    for (int i = 0; i < e->n && !keep_marks; i++) clear_marks(&e->at[i]);
}

rd_code embeddings_sum(embeddings *e, int i, embeddings_sent *sent, rd_status *st)
{
    const embeddings_table *t = &e->at[i];
    const int64_t before = rd_comm_rows_sent(t->rows);
    int64_t rows = 0;
    (void)rd_comm_sum_rows_f32(t->rows, rd_params_grads(e->run->params) + t->p->offset, t->touched,
                               &rows, st);
    *sent = (embeddings_sent){rows * t->p->dim[1] * (int64_t)sizeof(float),
                              rd_comm_rows_sent(t->rows) - before};
    return st->code;
}
