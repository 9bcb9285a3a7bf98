/* decode.c -- decodes evaluation samples, shared among the ranks.
 *
 * Which samples form a batch depends only on the data and the batch size, and one rank computes a
 * whole batch. So every number of ranks computes the same batches. Only the assignment of batches
 * to ranks differs. */
#include "decode.h"
#include "device.h"
#include "fault.h"
#include "signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Collective. Reads the shortlist of the two vocabularies. */
static rd_code decode_shortlist(rd_run *r, const rd_dataset *d, const rd_search_keys *k,
                                rd_status *st)
{
    rd_data_spec spec = {0};
    uint64_t mine = 0, first;
    char a[32], b[32];
    rd_dataset_def_of(d)->spec(rd_dataset_self(d), &spec);
    if (!spec.src_vocab || !spec.tgt_vocab)
        rd_fail(st, RD_EUSAGE, "shortlist_file needs data with vocabularies of words");
    else if (rd_shortlist_new(k->shortlist_file, spec.src_vocab, spec.tgt_vocab, k->shortlist_k,
                              &r->shortlist, st) == RD_OK)
        mine = rd_shortlist_hash(r->shortlist);
    RD_TRY(run_agree(r, st));
    first = mine;
    RD_TRY(rd_comm_bcast(r->comm, &first, sizeof first, 0, st));
    if (first != mine)
        rd_fail(st, RD_EDATA,
                "'%s' has other contents on rank %d than on rank 0; give all hosts "
                "the same file",
                k->shortlist_file, r->world->rank);
    RD_TRY(run_agree(r, st));
    rd_info(r->log, "shortlist: %s pairs of words from %s, %s of unknown words left out",
            rd_commas((double)rd_shortlist_pairs(r->shortlist), a), k->shortlist_file,
            rd_commas((double)rd_shortlist_unknown(r->shortlist), b));
done:
    return st->code;
}

rd_code decode_check(rd_run *r, rd_status *st)
{
    rd_search_keys keys = {0};
    if (!r->model->decode) return RD_OK;
    RD_TRY(rd_config_read(r->keys, &rd_group_search, r->mode, &keys, st));
    if (keys.decode_dtype != RD_DECODE_INT8) return RD_OK;
    const char *where = rd_config_where(r->keys, "decode_dtype");
    if (r->mode != RD_MODE_EVAL && r->mode != RD_MODE_INFER)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'decode_dtype' int8 works in infer and eval mode only; remove it here, "
                       "and add --set decode_dtype=int8 there",
                       where);
    if (!r->model->decodes_int8)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'decode_dtype' int8 works for Transformers, but the model is '%s'; use "
                       "float32",
                       where, r->model->name);
    if (run_gpu(r))
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'decode_dtype' int8 works on CPUs; use float32, or set \"device\": "
                       "\"cpu\"",
                       where);
done:
    return st->code;
}

rd_code decode_config(rd_run *r, const rd_dataset *d, rd_decode_config *out, rd_search_keys *keys,
                      rd_status *st)
{
    const bool infer = r->mode == RD_MODE_INFER;
    memset(out, 0, sizeof *out);
    memset(keys, 0, sizeof *keys);
    if (!r->model->decode) return RD_OK;
    /* All ranks have the same keys, and fail alike. */
    RD_TRY(rd_config_read(r->keys, &rd_group_search, r->mode, keys, st));
    if (!infer) keys->nbest = 1;
    if (keys->coverage_penalty > 0.0 && r->model->continues)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'coverage_penalty' is for translation: the model '%s' has no source; "
                       "remove it",
                       rd_config_where(r->keys, "coverage_penalty"), r->model->name);
    RD_TRY(rd_search_rules_of(keys, r->model->bars_unk, &out->search, st));
    if (!infer && keys->length_penalty_type == RD_LENGTH_OPENSEQ2SEQ)
        out->search.length_penalty = 0.0; /* as the original did */
    if (!keys->has_output_format && keys->nbest > 1) keys->output_format = RD_FORMAT_NBEST;
    out->search.sampling.seed = r->seed;
    out->search.unscored = !infer || keys->output_format == RD_FORMAT_TEXT;
    if (keys->shortlist_file && keys->shortlist_file[0] && !r->shortlist)
        RD_TRY(decode_shortlist(r, d, keys, st));
    out->shortlist = r->shortlist;
    out->int8 = keys->decode_dtype == RD_DECODE_INT8;
done:
    return st->code;
}

typedef struct keyed {
    int64_t id, length;
} keyed;

static int longer_first(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void decode_sort(const rd_dataset *d, int64_t *ids, int64_t n)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    if (!def->length) return; /* all samples have the same length */
    keyed *k = malloc((size_t)(n > 0 ? n : 1) * sizeof *k);
    if (!k) return; /* the order only saves time */
    for (int64_t i = 0; i < n; i++) k[i] = (keyed){ids[i], def->length(rd_dataset_self(d), ids[i])};
    qsort(k, (size_t)n, sizeof *k, longer_first);
    for (int64_t i = 0; i < n; i++) ids[i] = k[i].id;
    free(k);
}

int64_t decode_cut(const rd_dataset *d, const int64_t *ids, int64_t n, int64_t tokens,
                   int64_t *begin)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    int64_t k = 0, used = 0;
    begin[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t length = def->length ? def->length(rd_dataset_self(d), ids[i]) : 1;
        if (i > begin[k] && used + length > tokens) {
            begin[++k] = i;
            used = 0;
        }
        used += length;
    }
    begin[k + 1] = n;
    return n > 0 ? k + 1 : 0;
}

/* Returns the number of samples of batch k, and their ids in *ids. */
static int64_t batch_of(const decode_batches *all, int64_t k, const int64_t **ids)
{
    const int64_t left = all->n - k * all->size;
    if (all->begin) {
        *ids = k < all->n_batches ? all->ids + all->begin[k] : NULL;
        return k < all->n_batches ? all->begin[k + 1] - all->begin[k] : 0;
    }
    *ids = all->ids + k * all->size;
    return left < 0 ? 0 : left < all->size ? left : all->size;
}

rd_code decode_batch(rd_run *r, const rd_dataset *d, const decode_batches *all, int64_t k,
                     rd_batch *b, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    const int64_t *ids, *next, n = batch_of(all, k, &ids),
                               n_next = batch_of(all, k + r->world->size, &next);
    RD_TRY(run_phase(r, RD_PHASE_EVALUATE, r->progress.step, st));
    /* Only train_eval mode gets here. The other ranks learn of the request where they agree on how
     * this part ended. */
    if (signals_stop()) return rd_fail(st, RD_ESTOP, "stopped on request during an evaluation");
    RD_TRY(device_fresh_batch(r, st));
    RD_TRY(def->fetch(rd_dataset_self(d), ids, n, r->batch_arena, b, st));
    b->n_global = b->n;
    if (def->prepare && n_next > 0) def->prepare(rd_dataset_self(d), next, n_next, b->epoch);
done:
    return st->code;
}

/* Only batches of images are kept as graphs. Sentences rarely have the same lengths twice, and
 * their keys would replace those of the training. */
rd_code decode_forward(rd_run *r, const rd_batch *b, rd_loss_out *out, rd_status *st)
{
    const bool recurs = run_is_image(r);
    if (recurs)
        RD_TRY(device_recurs(r, rd_batch_shape(b) * 8 + 1,
                             /* stepper.c uses the even keys, and 1. */
                             st));
    (void)r->model->loss(r->model_self, r->tape, b, out, st);
    (void)rd_tape_check(r->tape, st);
    if (recurs) (void)device_recurred(r, st);
done:
    return st->code;
}

rd_code decode_one(rd_run *r, const rd_batch *b, const rd_decode_config *c, decode_fn *fn,
                   void *ctx, rd_status *st)
{
    rd_decoded *out = NULL;
    rd_tape *t = r->tape;
    const int64_t n_best = rd_search_n_best(&c->search);
    rd_tape_reset(t, false, false);
    RD_TRY(rd_arena_zero(rd_tape_arena(t), (size_t)(b->n * n_best + 1) * sizeof *out, &out, st));
    rd_decode_config own = *c;
    own.search.number = b->sample;
    (void)r->model->decode(r->model_self, t, b, &own, out, st);
    (void)rd_tape_check(t, st);
    if (r->mode == RD_MODE_INFER)
        RD_TRY(device_explain(r, "infer_batch_size", r->config.infer_batch_size, st));
    else
        RD_TRY(device_explain(r, "eval_batch_size", r->config.eval_batch_size, st));
    device_report_fallback(r);
    for (int64_t i = 0; i < b->n; i++) RD_TRY(fn(ctx, b, i, &out[i * n_best], st));
done:
    return st->code;
}

rd_code decode_share(rd_run *r, const rd_dataset *d, const decode_batches *all,
                     const rd_decode_config *c, decode_fn *fn, void *ctx, rd_status *st)
{
    const int64_t *ids;
    rd_assert(r->model->decode != NULL);
    for (int64_t k = r->world->rank; batch_of(all, k, &ids) > 0; k += r->world->size) {
        rd_batch b = {0};
        RD_TRY(decode_batch(r, d, all, k, &b, st));
        if (all->begins) RD_TRY(all->begins(ctx, &b, st));
        RD_TRY(decode_one(r, &b, c, fn, ctx, st));
    }
done:
    return st->code;
}
