/* evaluate.c -- loss and score on evaluation data, on all ranks and samples, partial batches
 * included.
 *
 * The figures are the same for every number of ranks: one rank computes a whole batch (decode.c),
 * rank 0 adds the losses in the order of the batches, and scores are integer counts. The loss is
 * over all samples. With multi_reference, only one sample of each source is decoded. Its targets
 * count together if the metric can do that, else the target with the best score counts. */
#include "evaluate.h"
#include "console.h"
#include "decode.h"
#include "device.h"
#include "progress.h"
#include "resume.h"
#include "run_modes.h"
#include "setup.h"
#include "world.h"
#include "rd/checkpoint.h"
#include "rd/file.h"
#include "rd/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct batch_sums {
    int64_t batch;
    double loss, weight, nll, targets, correct, bytes;
} batch_sums;

/* ---- teacher-forced loss ---- */

/* Keeps the first mistakes. */
static void keep_mistakes(rd_run *r, const rd_batch *b, const rd_loss_out *out, eval_result *v)
{
    const int64_t n_classes = r->spec.n_classes;
    const rd_field *f = rd_batch_field(b, "label");
    if (!f || f->dtype != RD_I32 || !out->argmax) return;
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t label = ((const int32_t *)f->data)[f->off ? f->off[i] : i],
                      got = out->argmax[i];
        if (label < 0 || label >= n_classes || got < 0 || got >= n_classes) continue;
        if (label != got) gallery_add(&v->mistakes, &r->spec, b, i, out);
    }
}

/* Are the texts of a sample printed below the evaluation? Mode eval writes figures alone. */
static bool keeps_texts(const rd_run *r)
{
    return r->world->rank == 0 && r->mode == RD_MODE_TRAIN_EVAL && r->config.print_samples;
}

/* Returns whether the data are questions with answers. Each answer is then a batch. */
static bool evaluates_choices(const rd_run *r)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    rd_choice c;
    return def->choice && def->choice(rd_dataset_self(r->eval_data), 0, &c);
}

static int64_t loss_batch(const rd_run *r)
{
    return evaluates_choices(r) ? 1 : r->config.eval_batch_size;
}

static rd_code loss_share(rd_run *r, const int64_t *ids, int64_t n, batch_sums *mine,
                          int64_t *n_mine, eval_result *v, rd_status *st)
{
    progress p;
    *n_mine = 0;
    const decode_batches all = {.ids = ids, .n = n, .size = loss_batch(r)};
    progress_start(&p, r, "evaluation", run_is_image(r) ? "image" : "sentence", n);
    for (int64_t k = r->world->rank; k * all.size < n; k += r->world->size) {
        rd_batch b = {0};
        rd_loss_out out = {0};
        RD_TRY(decode_batch(r, r->eval_data, &all, k, &b, st));
        rd_tape_reset(r->tape, false, false);
        (void)decode_forward(r, &b, &out, st);
        RD_TRY(device_explain(r, "eval_batch_size", r->config.eval_batch_size, st));
        device_report_fallback(r);
        mine[(*n_mine)++] = (batch_sums){
            k, out.loss_sum, out.weight, out.nll_sum, out.n_targets, out.n_correct, out.n_bytes};
        progress_mine(&p, *n_mine * all.size);
        if (k == 0 && keeps_texts(r))
            console_keep(&v->texts, r->eval_data, &b, out.shown, out.predicted, out.n_predicted);
        if (!v->classes) continue;
        class_counts_add(&v->by_class, &b, &out);
        keep_mistakes(r, &b, &out, v);
        if (r->mode == RD_MODE_EVAL) RD_TRY(predictions_add(&v->each, r, &b, &out, st));
    }
done:
    progress_end(&p);
    return st->code;
}

static int by_batch(const void *a, const void *b)
{
    const batch_sums *x = a, *y = b;
    return x->batch < y->batch ? -1 : x->batch > y->batch;
}

/* An answer and its loss. */
typedef struct scored_answer {
    int64_t id, question;
    bool right;
    double nll, mean;
} scored_answer;

static int by_answer(const void *a, const void *b)
{
    const scored_answer *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Counts the questions whose right answer has the lowest loss; of equal ones the first counts. A
 * question that max_eval_samples has cut is left out. b: [n], of sample ids[k] each. */
static rd_code count_choices(rd_run *r, const int64_t *ids, int64_t n, const batch_sums *b,
                             eval_result *out, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    void *self = rd_dataset_self(r->eval_data);
    const int64_t count = def->count(self);
    int64_t right[2] = {0};
    scored_answer *a = malloc((size_t)(n + 1) * sizeof *a);
    rd_choice c;
    if (!a) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " answers", n);
    for (int64_t k = 0; k < n; k++) {
        (void)def->choice(self, ids[k], &c);
        a[k] = (scored_answer){ids[k], c.question, c.right, b[k].nll, b[k].nll / b[k].targets};
    }
    qsort(a, (size_t)n, sizeof *a, by_answer);
    for (int64_t from = 0, end; from < n; from = end) {
        int64_t sum = from, mean = from;
        for (end = from + 1; end < n && a[end].question == a[from].question; end++) {
            if (a[end].nll < a[sum].nll) sum = end;
            if (a[end].mean < a[mean].mean) mean = end;
        }
        if (end == n && n < count && def->choice(self, n, &c) && c.question == a[from].question)
            break;
        out->n_questions++;
        right[0] += a[sum].right;
        right[1] += a[mean].right;
    }
    if (out->n_questions > 0) {
        out->choice_accuracy = (double)right[0] / (double)out->n_questions;
        out->choice_accuracy_norm = (double)right[1] / (double)out->n_questions;
    }
    free(a);
    return RD_OK;
}

static rd_code loss_all(rd_run *r, const int64_t *ids, int64_t n, eval_result *out, rd_status *st)
{
    const int64_t size = loss_batch(r), n_batches = (n + size - 1) / size;
    batch_sums total = {0}, *mine = malloc((size_t)(n_batches + 1) * sizeof *mine);
    int64_t n_mine = 0, bad = 0, *lens = NULL;
    char *all = NULL;
    if (!mine)
        rd_fail(st, RD_EENV, "out of memory for the sums of %" PRId64 " batches", n_batches);
    else
        (void)loss_share(r, ids, n, mine, &n_mine, out, st);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_gather(r->comm, mine, n_mine * (int64_t)sizeof *mine, &all, &lens, st));
    if (r->world->rank == 0) {
        batch_sums *b = (batch_sums *)(void *)all;
        qsort(b, (size_t)n_batches, sizeof *b, by_batch);
        for (int64_t i = 0; i < n_batches; i++) {
            total.loss += b[i].loss;
            total.weight += b[i].weight;
            total.nll += b[i].nll;
            total.targets += b[i].targets;
            total.correct += b[i].correct;
            total.bytes += b[i].bytes;
            bad += !isfinite(b[i].loss);
        }
        if (evaluates_choices(r)) (void)count_choices(r, ids, n, b, out, st);
    }
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_bcast(r->comm, &total, sizeof total, 0, st));
    RD_TRY(rd_comm_bcast(r->comm, &bad, sizeof bad, 0, st));
    out->n_batches = n_batches;
    out->n_bad = bad;
    out->loss = total.weight > 0.0 ? total.loss / total.weight : NAN;
    out->nll_per_token = total.targets > 0.0 ? total.nll / total.targets : NAN;
    out->perplexity = exp(out->nll_per_token);
    out->accuracy = total.targets > 0.0 ? total.correct / total.targets : NAN;
    out->n_targets = (int64_t)total.targets;
    out->bits_per_byte = total.bytes > 0.0 ? total.nll / log(2.0) / total.bytes : NAN;
done:
    free(all);
    free(lens);
    free(mine);
    return st->code;
}

/* ---- score of decoded sentences ---- */

/* Samples with the same source, as chains: next[i] is the next sample of i's group, or -1. */
typedef struct groups {
    int64_t *next; /* owned; [n] */
} groups;

typedef struct source_key {
    uint64_t hash;
    int64_t length, id;
} source_key;

static int by_source(const void *a, const void *b)
{
    const source_key *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Reduces ids to one id per source, and links the other ids to it. */
static rd_code group_sources(rd_run *r, int64_t *ids, int64_t *n, groups *g, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    source_key *key = malloc((size_t)(*n + 1) * sizeof *key);
    int64_t kept = 0;
    if (!key) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " samples", *n);
    for (int64_t i = 0; i < *n; i++) {
        rd_batch b = {0};
        RD_TRY(device_fresh_batch(r, st));
        RD_TRY(def->fetch(rd_dataset_self(r->eval_data), &ids[i], 1, r->batch_arena, &b, st));
        const rd_field *f = rd_batch_field(&b, "source");
        if (!f || f->dtype != RD_I32) {
            rd_fail(st, RD_EUSAGE, "multi_reference needs a dataset with source sentences");
            goto done;
        }
        const int32_t *x = f->data;
        uint64_t h = RD_FNV_START;
        for (int64_t k = f->off[0]; k < f->off[1]; k++) h = rd_fnv_mix(h, (uint32_t)x[k], 29);
        key[i] = (source_key){h, f->off[1] - f->off[0], ids[i]};
    }
    qsort(key, (size_t)*n, sizeof *key, by_source);
    for (int64_t i = 0; i < *n; i++) {
        g->next[key[i].id] = -1;
        if (i > 0 && key[i].hash == key[i - 1].hash && key[i].length == key[i - 1].length)
            g->next[key[i - 1].id] = key[i].id;
        else
            ids[kept++] = key[i].id;
    }
    *n = kept;
done:
    free(key);
    return st->code;
}

typedef struct scorer {
    rd_run *run;
    groups groups;
    rd_arena *arena;
    rd_data_spec spec;
    rd_strbuf text; /* of the sentence that is scored */
    bool bpe, print_unk;
    const rd_metric_def *metric[2];
    int n_metrics;
    progress progress;
    int64_t n_here;       /* sentences that this rank has decoded */
    console_texts *texts; /* of the first of them; borrowed; NULL: not wanted */
    int64_t counts[2][RD_METRIC_COUNTS];
} scorer;

static rd_code reference(scorer *s, int64_t id, rd_tokens *out, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(s->run->eval_data);
    void *self = rd_dataset_self(s->run->eval_data);
    size_t n = 0;
    const char *text = def->reference ? def->reference(self, id, &n) : NULL;
    if (text) return rd_tokens_split(text, n, s->bpe && !s->spec.joins, s->arena, out, st);
    rd_batch b = {0};
    RD_TRY(def->fetch(self, &id, 1, s->arena, &b, st));
    const rd_field *f = rd_batch_field(&b, "target");
    if (!f) return rd_fail(st, RD_EDATA, "sample %" PRId64 " has no target to score against", id);
    RD_TRY(rd_vocab_tokens(s->spec.tgt_vocab, (const int32_t *)f->data + f->off[0],
                           f->off[1] - f->off[0], s->print_unk, s->bpe, s->arena, out, st));
done:
    return st->code;
}

/* Counts a sentence with all its references at once. */
static rd_code score_refs(scorer *s, const rd_metric_def *m, int64_t id, const rd_tokens *hyp,
                          int64_t counts[RD_METRIC_COUNTS], rd_status *st)
{
    rd_tokens *refs;
    int64_t n = 0;
    for (int64_t i = id; i >= 0; i = s->groups.next[i]) n++;
    RD_TRY(rd_arena_get(s->arena, (size_t)n * sizeof *refs, &refs, st));
    n = 0;
    for (int64_t i = id; i >= 0; i = s->groups.next[i]) RD_TRY(reference(s, i, &refs[n++], st));
    m->add_refs(counts, hyp, refs, n);
done:
    return st->code;
}

/* Counts a sentence with the one of its references that scores best. */
static rd_code score_best(scorer *s, const rd_metric_def *m, int64_t id, const rd_tokens *hyp,
                          int64_t best[RD_METRIC_COUNTS], rd_status *st)
{
    double best_value = 0.0;
    for (int64_t i = id; i >= 0; i = s->groups.next ? s->groups.next[i] : -1) {
        int64_t counts[RD_METRIC_COUNTS] = {0};
        rd_figure f[RD_METRIC_FIGURES];
        rd_tokens ref = {0};
        RD_TRY(reference(s, i, &ref, st));
        m->add(counts, hyp, &ref);
        if (!s->groups.next || s->groups.next[id] < 0) {
            memcpy(best, counts, sizeof counts);
            break;
        }
        (void)m->figures(counts, f);
        if (i == id ||
            (f[0].higher_is_better ? f[0].value > best_value : f[0].value < best_value)) {
            memcpy(best, counts, sizeof counts);
            best_value = f[0].value;
        }
    }
done:
    return st->code;
}

/* Splits the output of a sample into words. Subwords are joined first, as in infer mode. */
static rd_code hypothesis(scorer *s, const rd_decoded *d, rd_tokens *out, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(s->run->eval_data);
    if (!s->spec.joins)
        return rd_vocab_tokens(s->spec.tgt_vocab, d->ids, d->n, s->print_unk, s->bpe, s->arena, out,
                               st);
    rd_strbuf_reset(&s->text);
    def->text(rd_dataset_self(s->run->eval_data), 1, d->ids, d->n, false, &s->text);
    if (s->text.failed) return rd_fail(st, RD_EENV, "out of memory for decoded sentences");
    return rd_tokens_split(rd_strbuf_str(&s->text), s->text.n, false, s->arena, out, st);
}

static rd_code score_sample(scorer *s, int64_t id, const rd_decoded *d, rd_status *st)
{
    rd_tokens hyp = {0};
    rd_arena_reset(s->arena);
    RD_TRY(hypothesis(s, d, &hyp, st));
    for (int k = 0; k < s->n_metrics; k++) {
        int64_t counts[RD_METRIC_COUNTS] = {0};
        if (s->groups.next && s->metric[k]->add_refs)
            RD_TRY(score_refs(s, s->metric[k], id, &hyp, counts, st));
        else
            RD_TRY(score_best(s, s->metric[k], id, &hyp, counts, st));
        for (int i = 0; i < RD_METRIC_COUNTS; i++) s->counts[k][i] += counts[i];
    }
done:
    return st->code;
}

static rd_code evaluate_score(void *ctx, const rd_batch *b, int64_t i, const rd_decoded *d,
                              rd_status *st)
{
    scorer *s = ctx;
    progress_mine(&s->progress, ++s->n_here);
    if (s->texts && s->n_here == 1) console_keep(s->texts, s->run->eval_data, b, i, d->ids, d->n);
    return score_sample(s, b->sample[i], d, st);
}

/* Removes the samples without a word to translate from ids. Their output is empty, as in infer
 * mode; rank 0 scores it. */
static rd_code score_blank(scorer *s, int64_t *ids, int64_t *n, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(s->run->eval_data);
    int64_t kept = 0;
    const rd_decoded nothing = {0};
    for (int64_t i = 0; i < *n; i++) {
        if (!def->blank || !def->blank(rd_dataset_self(s->run->eval_data), ids[i]))
            ids[kept++] = ids[i];
        else if (s->run->world->rank == 0)
            RD_TRY(score_sample(s, ids[i], &nothing, st));
    }
    *n = kept;
done:
    return st->code;
}

static rd_code score_all(rd_run *r, int64_t *ids, int64_t n, eval_result *out, rd_status *st)
{
    scorer s = {.run = r,
                .metric = {r->metric, r->second_metric},
                .n_metrics = r->second_metric ? 2 : 1,
                .texts = keeps_texts(r) ? &out->texts : NULL,
                .bpe = run_flag(r, "bpe_used", false),
                .print_unk = run_flag(r, "print_unk", false)};
    rd_decode_config c;
    rd_search_keys keys;
    rd_dataset_def_of(r->eval_data)->spec(rd_dataset_self(r->eval_data), &s.spec);
    RD_TRY(decode_config(r, r->eval_data, &c, &keys, st));
    if (rd_arena_new((size_t)1 << 16, &s.arena, st) == RD_OK && r->config.multi_reference) {
        const int64_t count = rd_dataset_def_of(r->eval_data)->count(rd_dataset_self(r->eval_data));
        s.groups.next = malloc((size_t)(count + 1) * sizeof *s.groups.next);
        if (!s.groups.next)
            rd_fail(st, RD_EENV, "out of memory for %" PRId64 " samples", count);
        else
            (void)group_sources(r, ids, &n, &s.groups, st);
        decode_sort(r->eval_data, ids, n);
    }
    if (st->code == RD_OK) (void)score_blank(&s, ids, &n, st);
    progress_start(&s.progress, r, "decoding", "sentence", n);
    if (st->code == RD_OK)
        (void)decode_share(r, r->eval_data,
                           &(decode_batches){.ids = ids, .n = n, .size = r->config.eval_batch_size},
                           &c, evaluate_score, &s, st);
    progress_end(&s.progress);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_sum_i64(r->comm, s.counts[0], RD_METRIC_COUNTS, st));
    RD_TRY(rd_comm_sum_i64(r->comm, s.counts[1], RD_METRIC_COUNTS, st));
    memcpy(out->counts, s.counts[0], sizeof out->counts);
    out->n_figures = r->metric->figures(out->counts, out->figure);
    r->metric->line(out->counts, out->line, sizeof out->line);
    if (r->second_metric) {
        out->n_figures += r->second_metric->figures(s.counts[1], out->figure + out->n_figures);
        r->second_metric->line(s.counts[1], out->second_line, sizeof out->second_line);
    }
    out->scored = true;
done:
    free(s.groups.next);
    rd_strbuf_release(&s.text);
    rd_arena_free(s.arena);
    return st->code;
}

/* ---- classes ---- */

static rd_code start_classes(rd_run *r, eval_result *v, rd_status *st)
{
    class_counts *k = &v->by_class;
    v->classes = run_is_image(r);
    if (!v->classes) return RD_OK;
    k->n_classes = r->spec.n_classes;
    k->pictures = r->config.image_frequency != 0;
    k->at = calloc((size_t)class_counts_n(k) + 1, sizeof *k->at);
    if (!k->at)
        return rd_fail(st, RD_EENV, "out of memory for the counts of %" PRId64 " classes",
                       k->n_classes);
    if (k->pictures) RD_TRY(gallery_start(&v->mistakes, &r->spec, PICTURES, st));
done:
    return st->code;
}

static rd_code join_classes(rd_run *r, eval_result *v, rd_status *st)
{
    class_counts *k = &v->by_class;
    RD_TRY(rd_comm_sum_i64(r->comm, k->at, class_counts_n(k), st));
    k->n_samples = v->n_targets;
    if (v->mistakes.pixels) RD_TRY(gallery_gather(r, &v->mistakes, st));
    if (r->mode == RD_MODE_EVAL) RD_TRY(predictions_gather(&v->each, r, st));
done:
    return st->code;
}

void eval_result_release(eval_result *v)
{
    gallery_release(&v->mistakes);
    predictions_release(&v->each);
    console_texts_release(&v->texts);
    free(v->by_class.at);
    v->by_class.at = NULL;
}

rd_figure eval_main_figure(const eval_result *v)
{
    rd_figure f;
    if (v->scored && v->n_figures > 0) return v->figure[0];
    if (v->classes && class_deciding_figure(&v->by_class, &f)) return f;
    return (rd_figure){"loss", v->loss, false};
}

rd_figure eval_best_figure(const rd_run *r, const eval_result *v)
{
    if (r->config.best_monitor == RUN_MONITOR_LOSS) return (rd_figure){"loss", v->loss, false};
    return eval_main_figure(v);
}

bool eval_is_finite(const eval_result *v, char what[160])
{
    const rd_figure main = eval_main_figure(v),
                    f[] = {{"loss", v->loss, false},
                           {"loss per token", v->nll_per_token, false},
                           {"perplexity", v->classes ? 0.0 : v->perplexity, false},
                           main};
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        if (!isfinite(f[i].value)) {
            (void)snprintf(what, 160,
                           "%.64s %g; the loss of %" PRId64 " of %" PRId64 " batches is not",
                           f[i].name, console_real(f[i].value), v->n_bad, v->n_batches);
            return false;
        }
    return true;
}

rd_code run_evaluate(rd_run *r, eval_result *out, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    const int64_t begin_ns = rd_now_ns();
    int64_t n = def->count(rd_dataset_self(r->eval_data)), *ids = NULL;
    memset(out, 0, sizeof *out);
    if (r->config.max_eval_samples > 0 && n > r->config.max_eval_samples)
        n = r->config.max_eval_samples;
    ids = malloc((size_t)(n + 1) * sizeof *ids);
    if (!ids)
        rd_fail(st, RD_EENV, "out of memory for %" PRId64 " samples", n);
    else if (n == 0)
        rd_fail(st, RD_EDATA, "there is nothing to evaluate: %s holds no %s",
                run_is_image(r) ? "the evaluation data" : "source_file_eval",
                run_is_image(r) ? "image" : "sentence");
    for (int64_t i = 0; ids && i < n; i++) ids[i] = i;
    if (st->code == RD_OK) (void)start_classes(r, out, st);
    RD_TRY(run_agree(r, st));
    out->n_samples = n;
    decode_sort(r->eval_data, ids, n);
    RD_TRY(loss_all(r, ids, n, out, st));
    if (out->classes) RD_TRY(join_classes(r, out, st));
    if (run_scores(r)) RD_TRY(score_all(r, ids, n, out, st));
    out->seconds = (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    free(ids);
    return st->code;
}

/* ---- console and records ---- */

rd_code eval_records_open(rd_run *r, eval_records *e, rd_status *st)
{
    char dir[4200], path[4300], warning[RD_MSG_BYTES] = "";
    e->lock = -1;
    if (!r->cli->logdir || !r->cli->logdir[0]) return RD_OK;
    (void)snprintf(dir, sizeof dir, "%.4000s/eval", r->cli->logdir);
    (void)snprintf(path, sizeof path, "%.4200s/metrics.jsonl", dir);
    RD_TRY(rd_mkdirs(r->cli->logdir, st));
    RD_TRY(rd_mkdir_inside(dir, st));
    RD_TRY(rd_logdir_lock(dir, &e->lock, warning, st));
    if (warning[0]) rd_warn(r->log, "%s", warning);
    /* The evaluation of an older checkpoint keeps the lines of newer steps. A resumed run writes
     * its lines again. */
    const bool due = r->progress.eval_due || r->progress.eval_at_end;
    const int64_t last = due ? r->progress.step - 1 : r->progress.step;
    RD_TRY(rd_metrics_new(path, r->mode == RD_MODE_TRAIN_EVAL ? last : INT64_MAX, &e->metrics, st));
    RD_TRY(rd_events_new(dir, r->progress.step, &e->events, st));
done:
    return st->code;
}

void eval_records_close(eval_records *e)
{
    rd_events_free(e->events);
    rd_metrics_free(e->metrics);
    if (e->lock >= 0) (void)close(e->lock);
    *e = (eval_records){.lock = -1};
}

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* The best evaluation so far is marked at the end of its line, and green on a terminal. */
static void evaluate_report(rd_run *r, const eval_result *v)
{
    char count[32], classes[512], bits[48] = "";
    const char *mark = v->best ? "  best" : "";
    void (*const say)(rd_log * l, const char *fmt, ...) = v->best ? rd_good : rd_info;
    rd_live(r->log, NULL);
    if (isfinite(v->bits_per_byte))
        (void)snprintf(bits, sizeof bits, "  bits/byte %.4f", v->bits_per_byte);
    if (v->classes) {
        class_lines(&v->by_class, RD_CLASS_EVALUATION, "  ", classes, sizeof classes);
        say(r->log, "evaluation at step %" PRId64 ": loss %.6f%s  (%.1f s)%s", r->progress.step,
            console_real(v->loss), classes, v->seconds, mark);
        return;
    }
    say(r->log,
        "evaluation at step %" PRId64
        ": loss %.6f  per token %.6f  ppl %.4f%s  accuracy %.4f  (%s %s%s, %.1f s)%s",
        r->progress.step, console_real(v->loss), console_real(v->nll_per_token),
        console_real(v->perplexity), bits, console_real(v->accuracy),
        rd_commas((double)(r->model->continues ? v->n_targets : v->n_samples), count),
        r->model->continues ? "token" : "sentence",
        RD_S(r->model->continues ? v->n_targets : v->n_samples), v->seconds, mark);
    if (v->n_questions > 0)
        rd_info(r->log,
                "multiple choice: accuracy %.4f, by the mean loss of a token %.4f  (%s question%s)",
                v->choice_accuracy, v->choice_accuracy_norm,
                rd_commas((double)v->n_questions, count), RD_S(v->n_questions));
    if (v->scored) rd_info(r->log, "%s", v->line);
    if (v->second_line[0]) rd_info(r->log, "%s", v->second_line);
    console_sample(r, "Eval", &v->texts);
}

static void add_figures(json_t *o, const rd_figure *f, int n)
{
    for (int i = 0; i < n; i++) (void)json_object_set_new(o, f[i].name, real_or_null(f[i].value));
}

static json_t *as_json(const rd_run *r, const eval_result *v)
{
    rd_figure f[CLASS_FIGURES];
    json_t *o = json_object();
    (void)json_object_set_new(o, "step", json_integer((json_int_t)r->progress.step));
    (void)json_object_set_new(o, "loss", real_or_null(v->loss));
    if (!v->classes) {
        (void)json_object_set_new(o, "loss_per_token", real_or_null(v->nll_per_token));
        (void)json_object_set_new(o, "perplexity", real_or_null(v->perplexity));
    }
    if (isfinite(v->bits_per_byte))
        (void)json_object_set_new(o, "bits_per_byte", json_real(v->bits_per_byte));
    if (!v->classes) (void)json_object_set_new(o, "accuracy", real_or_null(v->accuracy));
    if (v->n_questions > 0) {
        (void)json_object_set_new(o, "choice_accuracy", json_real(v->choice_accuracy));
        (void)json_object_set_new(o, "choice_accuracy_norm", json_real(v->choice_accuracy_norm));
        (void)json_object_set_new(o, "questions", json_integer((json_int_t)v->n_questions));
    }
    add_figures(o, f, v->classes ? class_figures(&v->by_class, f) : 0);
    (void)json_object_set_new(o, "samples", json_integer((json_int_t)v->n_samples));
    (void)json_object_set_new(o, "targets", json_integer((json_int_t)v->n_targets));
    add_figures(o, v->figure, v->n_figures);
    if (v->scored) (void)json_object_set_new(o, "score_line", json_string(v->line));
    if (v->second_line[0])
        (void)json_object_set_new(o, "second_score_line", json_string(v->second_line));
    (void)json_object_set_new(o, "eval_s", json_real(v->seconds));
    if (!v->training) return o;
    (void)json_object_set_new(o, "epoch", json_real(v->epoch));
    (void)json_object_set_new(o, "updates", json_integer((json_int_t)r->progress.updates));
    (void)json_object_set_new(o, "train_samples",
                              json_integer((json_int_t)r->progress.all_samples));
    (void)json_object_set_new(o, "learning_rate", json_real(v->learning_rate));
    (void)json_object_set_new(o, "best", json_boolean(v->best));
    (void)json_object_set_new(o, "not_improved",
                              json_integer((json_int_t)r->progress.patience.wait));
    return o;
}

/* Writes each figure once: one that is another form of a figure is left out. */
static void write_figures(const rd_run *r, rd_events *e, const rd_figure *f, int n, rd_status *st)
{
    const rd_metric_def *const metric[] = {r->metric, r->second_metric};
    for (int i = 0; i < n; i++) {
        char tag[64];
        bool repeats = false;
        for (int k = 0; k < 2; k++)
            repeats |= metric[k] && metric[k]->repeats && !strcmp(metric[k]->repeats, f[i].name);
        if (repeats) continue;
        (void)snprintf(tag, sizeof tag, "metrics/%.50s", f[i].name);
        (void)rd_events_scalar(e, r->progress.step, tag, f[i].value, st);
    }
}

static void write_events(const rd_run *r, eval_records *e, const eval_result *v, rd_status *st)
{
    const int64_t step = r->progress.step;
    (void)rd_events_scalar(e->events, step, "loss", v->loss, st);
    if (v->classes) {
        rd_figure f[CLASS_FIGURES];
        write_figures(r, e->events, f, class_figures(&v->by_class, f), st);
        gallery_write(e->events, step, "mistakes", &v->mistakes, r->eval_data, st);
        class_draw(&v->by_class, r->eval_data, e->events, step, st);
    } else {
        (void)rd_events_scalar(e->events, step, "metrics/accuracy", v->accuracy, st);
        (void)rd_events_scalar(e->events, step, "metrics/loss_per_token", v->nll_per_token, st);
        (void)rd_events_scalar(e->events, step, "metrics/perplexity", v->perplexity, st);
        if (isfinite(v->bits_per_byte))
            (void)rd_events_scalar(e->events, step, "metrics/bits_per_byte", v->bits_per_byte, st);
    }
    if (v->n_questions > 0) {
        (void)rd_events_scalar(e->events, step, "metrics/choice_accuracy", v->choice_accuracy, st);
        (void)rd_events_scalar(e->events, step, "metrics/choice_accuracy_norm",
                               v->choice_accuracy_norm, st);
    }
    write_figures(r, e->events, v->figure, v->n_figures, st);
    (void)rd_events_flush(e->events, st);
}

rd_code eval_report(rd_run *r, eval_records *e, const eval_result *v, rd_status *st)
{
    evaluate_report(r, v);
    if (!e->events) return RD_OK;
    RD_TRY(rd_metrics_write(e->metrics, as_json(r, v), st));
    write_events(r, e, v, st);
done:
    return st->code;
}

/* Reports an image model's classes and images. */
static rd_code report_classes(rd_run *r, const eval_records *e, const eval_result *v, rd_status *st)
{
    char dir[4200];
    rd_status own = {0};
    if (predictions_print(&v->each, r, &own) != RD_OK && st->code == RD_OK) *st = own;
    if (!e->events || st->code != RD_OK) return st->code;
    (void)snprintf(dir, sizeof dir, "%.4000s/eval", r->cli->logdir);
    RD_TRY(predictions_write(&v->each, r, dir, st));
    rd_info(r->log, "in full: %s/predictions.tsv, classes.tsv, confusion.tsv, confusion.png", dir);
done:
    return st->code;
}

rd_code run_eval(rd_run *r, rd_status *st)
{
    eval_records e = {.lock = -1};
    eval_result v = {0};
    rd_data_spec spec = {0};
    char what[160];
    RD_TRY(run_check_weights_source(r, st));
    RD_TRY(setup_data(r, RD_SPLIT_EVAL, &r->eval_data, st));
    rd_dataset_def_of(r->eval_data)->spec(rd_dataset_self(r->eval_data), &spec);
    RD_TRY(setup_model(r, &spec, false, st));
    RD_TRY(world_check(r, st));
    RD_TRY(run_load_required(r, st));
    world_banner(r, 0, 0, 0);
    RD_TRY(run_evaluate(r, &v, st));
    device_report_work(r);
    if (r->world->rank == 0) {
        /* The figures stay on the console where the folder cannot be written or is in use. */
        (void)eval_records_open(r, &e, st);
        (void)eval_report(r, &e, &v, st);
        if (v.classes) (void)report_classes(r, &e, &v, st);
    }
    RD_TRY(run_agree(r, st));
    if (!eval_is_finite(&v, what)) {
        r->agreed = true; /* all ranks hold the same figures */
        rd_fail(st, RD_ENUMERIC,
                "the evaluation of step %" PRId64 " is not finite: %s; use an earlier checkpoint "
                "(--set checkpoint=FILE)",
                r->progress.step, what);
    }
done:
    eval_result_release(&v);
    eval_records_close(&e);
    return st->code;
}
