/* infer.c -- translates: one output line per input line, in order, for any number of ranks. Image
 * models have predict.c.
 *
 * The input is processed in chunks of lines. Sentences of similar length in a chunk form batches
 * (decode.c). Every rank decodes its batches, and rank 0 puts the lines back in order. A blank line
 * has nothing to translate, and its output is blank. Chunks and batches of a file depend on the
 * input alone, and so does the output. From a pipe or terminal a chunk also ends where the writer
 * pauses; with infer_batch_size 1 that cannot change the output.
 *
 * A language model continues its lines. A text ends before the first stop string, and the rest of
 * the batch goes on. If a chunk is one line, and no file is written, its text appears token by
 * token.
 *
 * A line for which the model computes numbers that are not finite has no translation. Its output is
 * blank, and the run ends with code 7. */
#include "continuation.h"
#include "decode.h"
#include "fault.h"
#include "infer_format.h"
#include "infer_pipe.h"
#include "infer_sink.h"
#include "progress.h"
#include "resume.h"
#include "run_modes.h"
#include "setup.h"
#include "world.h"
#include "rd/file.h"
#include "rd/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 8192 };

/* ---- one chunk ---- */

typedef struct line_head {
    int64_t id, bytes, words;
    bool odd; /* the sample's numbers were not finite */
} line_head;

/* Samples whose numbers were not finite. Rank 0 counts them. */
typedef struct infer_odd {
    int64_t n, first; /* first: its number, from 1 */
} infer_odd;

/* What the whole input needs. */
typedef struct infer_job {
    infer_sink sink;
    infer_odd odd;
    rd_decode_config decode;
    rd_output_format format;
    stop_strings stop;
    int64_t *ids, *begin; /* owned; [CHUNK + 1] scratch */
    int64_t words;        /* written so far; rank 0 */
    int64_t done;         /* lines before this chunk */
    progress progress;
    int64_t begin_ns;
} infer_job;

typedef struct collector {
    rd_run *run;
    infer_job *job;
    int64_t before;   /* number of lines of earlier blocks of a pipe */
    int64_t n, n_all; /* samples decoded by this rank; in the whole chunk */
    infer_text *best; /* owned; [n_best] */

    /* Texts of a language model: those of the batch, and one of a hypothesis. */
    continuation *texts, whole; /* owned; texts: [n_texts] */
    int64_t n_texts;
    rd_search_watch watch;
    bool shows;   /* the only text is written while it is made */
    size_t shown; /* number of bytes of the line written */
    rd_status write_status;
    rd_strbuf out; /* line_head, text, line_head, text ... */
    rd_strbuf text, line;
} collector;

/* Returns the number of source tokens of a sample, start and end token left out. */
static int64_t source_tokens(const rd_run *r, const rd_batch *b, int64_t i)
{
    const rd_field *f = rd_batch_field(b, "source");
    int64_t n = 0;
    if (!f || f->dtype != RD_I32) return 0;
    if (r->model->continues) return f->off[i + 1] - f->off[i];
    const int32_t *x = f->data;
    for (int64_t k = f->off[i]; k < f->off[i + 1]; k++) n += x[k] != RD_SOS && x[k] != RD_EOS;
    return n;
}

/* Appends the prompt to the line. */
static void infer_prompt(collector *c, const rd_batch *b, int64_t i)
{
    const rd_dataset *data = c->run->eval_data;
    const rd_field *f = rd_batch_field(b, "source");
    rd_dataset_def_of(data)->text(rd_dataset_self(data), 0, (const int32_t *)f->data + f->off[i],
                                  f->off[i + 1] - f->off[i], false, &c->line);
}

/* ---- texts of a language model ---- */

/* Writes a part of the line that this rank makes. */
static void infer_show(collector *c, const char *text, size_t n)
{
    infer_sink *sink = &c->job->sink;
    rd_strbuf out = {0};
    if (n == 0) return;
    if (sink->terminal) infer_sink_shown(&out, text, n);
    if (out.failed)
        rd_fail(&c->write_status, RD_EENV, "out of memory for decoded sentences");
    else
        (void)infer_sink_write(sink, sink->terminal ? rd_strbuf_str(&out) : text,
                               sink->terminal ? out.n : n, &c->write_status);
    c->shown += n;
    rd_strbuf_release(&out);
}

/* Begins the texts of a batch. */
static rd_code infer_begins(void *ctx, const rd_batch *b, rd_status *st)
{
    collector *c = ctx;
    const rd_field *f = rd_batch_field(b, "source");
    if (!f || f->dtype != RD_I32) return rd_fail(st, RD_EBUG, "a batch without prompts");
    if (b->n > c->n_texts) {
        continuation *more = realloc(c->texts, (size_t)b->n * sizeof *more);
        if (!more) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " texts", b->n);
        memset(more + c->n_texts, 0, (size_t)(b->n - c->n_texts) * sizeof *more);
        c->texts = more;
        c->n_texts = b->n;
    }
    for (int64_t i = 0; i < b->n; i++)
        continuation_begin(&c->texts[i], c->run->eval_data,
                           ((const int32_t *)f->data)[f->off[i + 1] - 1]);
    if (c->shows) {
        rd_strbuf_reset(&c->line);
        infer_prompt(c, b, 0);
        infer_show(c, rd_strbuf_str(&c->line), c->line.n);
    }
    return st->code;
}

/* Takes a token that the search has chosen. Returns whether the text ends. */
static bool infer_token(void *ctx, int64_t sentence, int32_t id)
{
    collector *c = ctx;
    continuation *t = &c->texts[sentence];
    const size_t before = continuation_sure(t, &c->job->stop);
    const bool ends = continuation_add(t, c->run->eval_data, &c->job->stop, id);
    if (!c->shows) return ends;
    const size_t sure = continuation_sure(t, &c->job->stop);
    if (sure > before) infer_show(c, t->text.s + before, sure - before);
    return ends || c->write_status.code != RD_OK;
}

/* Appends the text of a hypothesis, up to a stop string, to c->text. Returns the number of its
 * tokens that were used. */
static int64_t infer_continued(collector *c, const rd_batch *b, int64_t i, const rd_decoded *d)
{
    const rd_field *f = rd_batch_field(b, "source");
    continuation *t = &c->whole;
    continuation_begin(t, c->run->eval_data, ((const int32_t *)f->data)[f->off[i + 1] - 1]);
    for (int64_t k = 0; k < d->n; k++)
        if (continuation_add(t, c->run->eval_data, &c->job->stop, d->ids[k])) break;
    c->text.failed |= t->text.failed;
    rd_strbuf_add(&c->text, rd_strbuf_str(&t->text), t->text.n);
    return t->n;
}

static rd_code infer_collect(void *ctx, const rd_batch *b, int64_t i, const rd_decoded *d,
                             rd_status *st)
{
    collector *c = ctx;
    const rd_dataset *data = c->run->eval_data;
    const rd_dataset_def *def = rd_dataset_def_of(data);
    const int64_t n = rd_search_n_best(&c->job->decode.search);
    infer_line line = {.number = c->before + b->sample[i],
                       .n_source = source_tokens(c->run, b, i),
                       .best = c->best};
    line_head h = {.id = b->sample[i], .odd = !isfinite(d->score)};
    rd_strbuf_reset(&c->text);
    rd_strbuf_reset(&c->line);
    for (int64_t k = 0; k < n && (k == 0 || d[k].ids) && !(k > 0 && h.odd); k++) {
        const size_t from = c->text.n;
        int64_t tokens = h.odd ? 0 : d[k].n;
        if (tokens > 0 && c->run->model->continues)
            tokens = infer_continued(c, b, i, &d[k]);
        else if (tokens > 0)
            def->text(rd_dataset_self(data), 1, d[k].ids, tokens, false, &c->text);
        c->best[line.n++] = (infer_text){
            .bytes = c->text.n - from, .n_tokens = tokens, .score = d[k].score};
    }
    const char *at = rd_strbuf_str(&c->text);
    for (int k = 0; k < line.n; k++) {
        c->best[k].text = at;
        at += c->best[k].bytes;
    }
    if (c->run->model->continues && c->job->format == RD_FORMAT_TEXT) {
        /* Behind the prompt is what the model adds: texts may have several lines. */
        infer_prompt(c, b, i);
        rd_strbuf_add(&c->line, c->best[0].text, c->best[0].bytes);
    } else
        infer_format(c->job->format, &line, &c->line);
    h.words = infer_words(c->best[0].text, c->best[0].bytes);
    h.bytes = (int64_t)c->line.n;
    rd_strbuf_add(&c->out, &h, sizeof h);
    rd_strbuf_add(&c->out, rd_strbuf_str(&c->line), c->line.n);
    if (c->out.failed || c->text.failed || c->line.failed)
        return rd_fail(st, RD_EENV, "out of memory for decoded sentences");
    c->n++;
    const int64_t here = c->n * c->run->world->size;
    progress_at(&c->job->progress, c->job->done + (here < c->n_all ? here : c->n_all));
    return RD_OK;
}

/* Counts a sample without output, and warns of the first one. number: from 1. */
static void add_odd(rd_run *r, infer_odd *odd, int64_t number)
{
    if (odd->n++) return;
    odd->first = number;
    rd_live(r->log, NULL);
    rd_warn(r->log, "the model's numbers for line %" PRId64 " are not finite; its output is blank",
            number);
}

/* Rank 0: writes the lines of ids [first, first + n) in order, from the gathered bytes. */
static rd_code write_lines(collector *c, const char *all, int64_t bytes, int64_t first, int64_t n,
                           rd_status *st)
{
    infer_job *job = c->job;
    const char **at = calloc((size_t)n + 1, sizeof *at);
    rd_strbuf lines = {0};
    if (!at) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " lines", n);
    for (int64_t i = 0; i < bytes;) {
        line_head h;
        memcpy(&h, all + i, sizeof h);
        if (h.id >= first && h.id < first + n) at[h.id - first] = all + i;
        i += (int64_t)sizeof h + h.bytes;
    }
    for (int64_t k = 0; k < n; k++) {
        line_head h = {0};
        const infer_text nothing = {.text = ""};
        const infer_line blank = {.number = c->before + first + k, .n = 1, .best = &nothing};
        if (at[k]) memcpy(&h, at[k], sizeof h);
        /* The part that is shown already is that of the only line. */
        const size_t skip = c->shown < (size_t)h.bytes ? c->shown : (size_t)h.bytes;
        if (!at[k])
            infer_format(job->format, &blank, &lines);
        else if (job->sink.terminal)
            infer_sink_shown(&lines, at[k] + sizeof h + skip, (size_t)h.bytes - skip);
        else
            rd_strbuf_add(&lines, at[k] + sizeof h + skip, (size_t)h.bytes - skip);
        if (h.odd) add_odd(c->run, &job->odd, c->before + first + k + 1);
        job->words += h.words;
        rd_strbuf_puts(&lines, "\n");
    }
    if (lines.failed)
        rd_fail(st, RD_EENV, "out of memory for %" PRId64 " lines", n);
    else
        (void)infer_sink_write(&job->sink, lines.s, lines.n, st);
    rd_strbuf_release(&lines);
    free(at);
    return st->code;
}

/* Translates the samples [first, first + n). before: number of lines of earlier blocks of a
 * pipe. */
static rd_code translate_chunk(rd_run *r, infer_job *job, int64_t first, int64_t n, int64_t before,
                               rd_status *st)
{
    collector c = {.run = r, .job = job, .before = before};
    char *all = NULL;
    int64_t *lens = NULL, bytes = 0;
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    decode_batches batches = {.ids = job->ids, .size = r->config.infer_batch_size};
    for (int64_t i = 0; i < n; i++)
        if (!def->blank || !def->blank(rd_dataset_self(r->eval_data), first + i))
            job->ids[batches.n++] = first + i;
    decode_sort(r->eval_data, job->ids, batches.n);
    if (r->config.infer_batch_tokens > 0) {
        batches.n_batches = decode_cut(r->eval_data, job->ids, batches.n,
                                       r->config.infer_batch_tokens, job->begin);
        batches.begin = job->begin;
    }
    c.n_all = batches.n;
    if (r->model->continues) {
        batches.begins = infer_begins;
        c.watch = (rd_search_watch){infer_token, &c};
        c.shows = n == 1 && r->world->rank == 0 && !job->sink.to_file &&
                  job->decode.search.beam_width <= 1 && job->format == RD_FORMAT_TEXT;
        job->decode.search.watch = c.shows || job->stop.n > 0 ? &c.watch : NULL;
    }
    job->decode.search.sampling.before = before;
    c.best = malloc((size_t)rd_search_n_best(&job->decode.search) * sizeof *c.best);
    if (!c.best)
        rd_fail(st, RD_EENV, "out of memory for decoded sentences");
    else
        (void)decode_share(r, r->eval_data, &batches, &job->decode, infer_collect, &c, st);
    job->decode.search.watch = NULL;
    if (st->code == RD_OK && c.write_status.code != RD_OK) *st = c.write_status;
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_gather(r->comm, c.out.s, (int64_t)c.out.n, &all, &lens, st));
    if (r->world->rank == 0) {
        for (int i = 0; i < r->world->size; i++) bytes += lens[i];
        (void)write_lines(&c, all, bytes, first, n, st);
    }
    (void)run_agree(r, st);
done:
    free(all);
    free(lens);
    free(c.best);
    for (int64_t i = 0; i < c.n_texts; i++) continuation_release(&c.texts[i]);
    free(c.texts);
    continuation_release(&c.whole);
    rd_strbuf_release(&c.out);
    rd_strbuf_release(&c.text);
    rd_strbuf_release(&c.line);
    return st->code;
}

/* Translates all samples of the dataset. */
static rd_code translate_all(rd_run *r, infer_job *job, int64_t n, rd_status *st)
{
    progress_start(&job->progress, r, "translation", "line", n);
    for (int64_t first = 0; first < n; first += CHUNK) {
        job->done = first;
        RD_TRY(translate_chunk(r, job, first, n - first < CHUNK ? n - first : CHUNK, 0, st));
    }
done:
    progress_end(&job->progress);
    return st->code;
}

/* ---- a pipe or a terminal: lines are answered as they arrive ---- */

/* Gives the text that rank 0 has read to all ranks. *text is owned by the caller on the other
 * ranks. Collective. */
static rd_code pipe_spread(rd_run *r, infer_pipe *p, int64_t *bytes, bool *ended, char **text,
                           rd_status *st)
{
    int64_t now[2] = {0, 0};
    size_t n = 0;
    if (r->world->rank == 0) {
        (void)infer_pipe_wait(p, &n, st);
        now[0] = (int64_t)n;
        now[1] = p->ended && n == p->n;
        *text = p->buf;
    }
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_bcast(r->comm, now, sizeof now, 0, st));
    *bytes = now[0];
    *ended = now[1] != 0;
    if (r->world->rank != 0 && !(*text = malloc((size_t)*bytes + 1)))
        rd_fail(st, RD_EENV, "out of memory for %" PRId64 " bytes of input", *bytes);
    RD_TRY(run_agree(r, st));
    if (*bytes > 0) RD_TRY(rd_comm_bcast(r->comm, *text, *bytes, 0, st));
done:
    return st->code;
}

static rd_code translate_pipe(rd_run *r, infer_job *job, int64_t *n, rd_status *st)
{
    enum { PAUSE_MS = 100 };
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    void *self = rd_dataset_self(r->eval_data);
    /* With batches of one line the output does not depend on which lines come together. */
    infer_pipe p = {.lines = CHUNK,
                    .end = '\n',
                    .most = (int64_t)json_number_value(rd_config_get(r->keys, "max_line_bytes")),
                    .pause_ms = r->config.infer_batch_size == 1 || isatty(STDIN_FILENO) ? 0
                                                                                        : PAUSE_MS};
    bool ended = false;
    *n = 0;
    while (!ended) {
        int64_t bytes = 0;
        char *text = NULL;
        /* A silent writer is no hang. */
        RD_TRY(run_phase(r, RD_PHASE_EVALUATE, r->progress.step, st));
        (void)pipe_spread(r, &p, &bytes, &ended, &text, st);
        if (st->code == RD_OK && bytes > 0) (void)def->feed(self, text, (size_t)bytes, *n, st);
        if (r->world->rank != 0)
            free(text);
        else if (st->code == RD_OK)
            infer_pipe_drop(&p, (size_t)bytes);
        RD_TRY(run_agree(r, st));
        const int64_t lines = bytes > 0 ? def->count(self) : 0;
        for (int64_t first = 0; first < lines; first += CHUNK)
            RD_TRY(translate_chunk(r, job, first, lines - first < CHUNK ? lines - first : CHUNK, *n,
                                   st));
        *n += lines;
    }
done:
    free(p.buf);
    return st->code;
}

/* Collective. Fails if samples had no output because their numbers were not finite. */
static rd_code check_odd(rd_run *r, infer_odd *odd, int64_t n, rd_status *st)
{
    RD_TRY(rd_comm_bcast(r->comm, odd, sizeof *odd, 0, st));
    if (odd->n == 0) return RD_OK;
    r->agreed = true;
    rd_fail(st, RD_ENUMERIC,
            "the model's numbers were not finite for %" PRId64 " of %" PRId64
            " lines, first for line %" PRId64
            "; their output is blank; use an earlier checkpoint (--set checkpoint=FILE)",
            odd->n, n, odd->first);
done:
    return st->code;
}

static rd_code translate(rd_run *r, bool piped, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(r->eval_data);
    int64_t n = def->count(rd_dataset_self(r->eval_data));
    infer_job job = {.begin_ns = rd_now_ns()};
    rd_search_keys keys;
    char a[32], b[32], words[80] = "";
    RD_TRY(decode_config(r, r->eval_data, &job.decode, &keys, st));
    job.format = keys.output_format;
    job.ids = malloc((CHUNK + 1) * sizeof *job.ids);
    job.begin = malloc((CHUNK + 1) * sizeof *job.begin);
    if (!job.ids || !job.begin) rd_fail(st, RD_EENV, "out of memory");
    if (st->code == RD_OK && r->model->continues)
        (void)stop_strings_new(rd_config_get(r->keys, "stop_strings"), &job.stop, st);
    if (st->code == RD_OK && r->world->rank == 0)
        (void)infer_sink_open(&job.sink, r->cli->inference_out, st);
    RD_TRY(run_agree(r, st));
    if (!job.ids || !job.begin) goto done; /* all ranks agree on that failure */
    RD_TRY(piped ? translate_pipe(r, &job, &n, st) : translate_all(r, &job, n, st));
    if (r->world->rank == 0) (void)infer_sink_commit(&job.sink, st);
    RD_TRY(run_agree(r, st));
    const double seconds = (double)(rd_now_ns() - job.begin_ns) * 1e-9;
    if (!piped)
        (void)snprintf(words, sizeof words, ", %s words, %s words/s",
                       rd_commas((double)job.words, a),
                       rd_commas((double)job.words / (seconds > 1e-9 ? seconds : 1e-9), b));
    rd_info(r->log, "%s line%s in %.1f s%s%s%s", rd_commas((double)n, a), RD_S(n), seconds, words,
            job.sink.name ? ", written to " : "", job.sink.name ? job.sink.name : "");
    RD_TRY(check_odd(r, &job.odd, n, st));
done:
    infer_sink_release(&job.sink);
    stop_strings_release(&job.stop);
    free(job.ids);
    free(job.begin);
    return st->code;
}

/* Returns whether the text comes from a pipe, a socket or a terminal: lines are then answered as
 * they arrive. Standard input that is a file is read like any file. Collective. */
static rd_code is_piped(rd_run *r, bool *piped, rd_status *st)
{
    const char *from = json_string_value(rd_config_get(r->keys, "source_file_test"));
    int32_t live = 0;
    struct stat in;
    if (r->world->rank == 0 && r->model->decode && from && strcmp(from, "-") == 0 &&
        fstat(STDIN_FILENO, &in) == 0)
        live = S_ISFIFO(in.st_mode) || S_ISSOCK(in.st_mode) || S_ISCHR(in.st_mode);
    RD_TRY(rd_comm_bcast(r->comm, &live, sizeof live, 0, st));
    *piped = live != 0;
done:
    return st->code;
}

rd_code run_infer(rd_run *r, rd_status *st)
{
    rd_data_spec spec = {0};
    bool piped = false;
    if (r->model->unit && !r->model->decode) return run_predict(r, st);
    RD_TRY(is_piped(r, &piped, st));
    /* An empty file still gives the reader its vocabularies. */
    if (piped)
        (void)rd_config_put(r->keys, "source_file_test", json_string("/dev/null"), "--input", st);
    RD_TRY(st->code);
    RD_TRY(run_check_weights_source(r, st));
    RD_TRY(setup_data(r, RD_SPLIT_TEST, &r->eval_data, st));
    rd_dataset_def_of(r->eval_data)->spec(rd_dataset_self(r->eval_data), &spec);
    RD_TRY(setup_model(r, &spec, false, st));
    if ((!r->model->decode || !rd_dataset_def_of(r->eval_data)->text))
        rd_fail(st, RD_EUSAGE,
                "the model '%s' produces no output for a sample; --mode=eval computes its loss",
                r->model->name);
    if (piped && !rd_dataset_def_of(r->eval_data)->feed)
        rd_fail(st, RD_EUSAGE, "this dataset cannot read a pipe; give a file with --input");
    RD_TRY(run_agree(r, st));
    RD_TRY(world_check(r, st));
    RD_TRY(run_load_required(r, st));
    if (piped && r->world->rank == 0 && isatty(STDIN_FILENO))
        rd_info(r->log,
                r->model->continues
                    ? "one prompt per line; end with Ctrl-D"
                    : "one sentence per line, tokens separated by single spaces; end with Ctrl-D");
    RD_TRY(translate(r, piped, st));
done:
    return st->code;
}
