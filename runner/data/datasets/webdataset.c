/* webdataset.c -- WebDataset shards: plain tar files.
 *
 * The files of one sample follow each other and share a key: the path up to the first dot of its
 * last component. What follows the dot is the field. Two fields are read: the image (jpg, jpeg,
 * png) and cls, the class as a number in ASCII.
 *
 * Keys may have dots ("img.v2.0007.jpg"), where other programs would see one sample with the fields
 * "v2.0007.jpg" and so on. Files that share a key up to the first dot are one group. If the group
 * has an image and a class without further dots, it is one sample, and its other files are extra
 * fields ("0007.mask.png"). If it has neither, the key of a sample goes to the last dot.
 *
 * Opening the shards reads only headers and .cls files. Images are read in place, in any order. So
 * samples are shuffled over all shards, and every rank has the same number of steps for any number
 * of shards. */
#include "../images_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 224, CLASS_BYTES = 32 };

/* The sample being assembled. */
typedef struct sample {
    rd_strbuf key, name;
    bool any, has_image, has_label;
    int64_t at, bytes, label;
    uint8_t *copy; /* compressed shards: the bytes of the image; owned */
    rd_status bad; /* what is wrong with its class */
} sample;

typedef struct webdataset_walk {
    rd_images *m;
    const char *path;
    uint32_t shard;
    bool any;              /* a group has begun */
    rd_strbuf key;         /* its key, up to the first dot */
    sample s, dotted;      /* its sample without further dots; the current one with more dots */
    int64_t n_dotted;      /* number of samples with more dots */
    rd_images_head before; /* head before the first of them */
    rd_status half;        /* what the first incomplete one of them lacks */
} webdataset_walk;

static void sample_clear(sample *s)
{
    rd_strbuf_reset(&s->key);
    rd_strbuf_reset(&s->name);
    free(s->copy);
    s->copy = NULL;
    s->any = s->has_image = s->has_label = false;
    s->bad = (rd_status){0};
}

static void sample_release(sample *s)
{
    sample_clear(s);
    rd_strbuf_release(&s->key);
    rd_strbuf_release(&s->name);
}

static rd_code sample_lacks(const webdataset_walk *w, const sample *s, rd_status *st)
{
    if (s->bad.code != RD_OK) return rd_fail(st, s->bad.code, "%s", s->bad.msg);
    return rd_fail(st, RD_EDATA,
                   "'%s': the sample '%s' has no %s; all files of a sample must follow each "
                   "other in one shard",
                   w->path, rd_strbuf_str(&s->key),
                   s->has_image ? ".cls file, its class" : ".jpg file");
}

static rd_code sample_add(webdataset_walk *w, sample *s, rd_status *st)
{
    if (s->key.failed || s->name.failed)
        return rd_fail(st, RD_EENV, "out of memory while reading '%s'", w->path);
    if (s->copy)
        return rd_images_add_bytes(w->m, s->copy, (size_t)s->bytes, s->label,
                                   rd_strbuf_str(&s->name), st);
    return rd_images_add(w->m, w->shard, s->at, s->bytes, s->label, rd_strbuf_str(&s->name), st);
}

/* Completes the sample with more dots. */
static rd_code dotted_end(webdataset_walk *w, rd_status *st)
{
    sample *s = &w->dotted;
    if (!s->any) return RD_OK;
    if (s->has_image && s->has_label) {
        if (w->n_dotted++ == 0) w->before = w->m->head;
        RD_TRY(sample_add(w, s, st));
    } else if (w->half.code == RD_OK) {
        (void)sample_lacks(w, s, &w->half);
    }
done:
    sample_clear(s);
    return st->code;
}

/* Completes the group, if there is one, and adds its samples. */
static rd_code group_end(webdataset_walk *w, rd_status *st)
{
    sample *s = &w->s;
    if (!w->any) return RD_OK;
    RD_TRY(dotted_end(w, st));
    if (s->has_image && s->has_label) {
        if (w->n_dotted > 0) { /* they were extra fields */
            w->m->head.n = w->before.n;
            w->m->head.names = w->before.names;
            w->m->head.pixels = w->before.pixels;
        }
        RD_TRY(sample_add(w, s, st));
    } else if (s->has_image || s->has_label || s->bad.code != RD_OK) {
        RD_TRY(sample_lacks(w, s, st));
    } else if (w->half.code != RD_OK) {
        RD_TRY(rd_fail(st, w->half.code, "%s", w->half.msg));
    } else if (w->n_dotted == 0) {
        rd_strbuf_reset(&s->key);
        rd_strbuf_puts(&s->key, rd_strbuf_str(&w->key));
        RD_TRY(sample_lacks(w, s, st));
    }
done:
    sample_clear(s);
    rd_strbuf_reset(&w->key);
    w->any = false;
    w->n_dotted = 0;
    w->half = (rd_status){0};
    return st->code;
}

static rd_code read_class(webdataset_walk *w, sample *s, rd_tar *t, const rd_tar_member *e,
                          rd_status *st)
{
    char text[CLASS_BYTES + 1] = "", *end;
    const int64_t n_classes = w->m->config_classes - w->m->label_offset;
    if (e->bytes < CLASS_BYTES) RD_TRY(rd_tar_read(t, e, text, st));
    const long v = strtol(text, &end, 10);
    while (*end == '\n' || *end == '\r' || *end == ' ') end++;
    if (e->bytes == 0 || e->bytes >= CLASS_BYTES || end == text || *end)
        rd_fail(&s->bad, RD_EDATA, "'%s': '%s' is not a class number but \"%.20s\"", w->path,
                e->name, text);
    else if (v < 0 || v >= n_classes)
        rd_fail(&s->bad, RD_EDATA,
                "'%s': label %ld of '%s' is out of range: there are %" PRId64
                " classes; set n_classes",
                w->path, v, e->name, n_classes);
    s->label = v;
    s->has_label = s->bad.code == RD_OK;
done:
    return st->code;
}

static rd_code read_image(sample *s, rd_tar *t, const rd_tar_member *e, rd_status *st)
{
    s->at = e->at;
    s->bytes = e->bytes;
    rd_strbuf_reset(&s->name);
    rd_strbuf_puts(&s->name, e->name);
    if (e->at < 0) { /* compressed: the image is read now */
        if (e->bytes > RD_ENCODED_MAX)
            return rd_fail(st, RD_EDATA, "'%s' has %" PRId64 " bytes, more than the %d of an image",
                           e->name, e->bytes, RD_ENCODED_MAX);
        free(s->copy);
        s->copy = malloc((size_t)e->bytes + 1);
        if (!s->copy) return rd_fail(st, RD_EENV, "out of memory for '%s'", e->name);
        RD_TRY(rd_tar_read(t, e, s->copy, st));
    }
    s->has_image = true;
done:
    return st->code;
}

static bool same_key(const rd_strbuf *b, const char *name, size_t n)
{
    return b->n == n && memcmp(rd_strbuf_str(b), name, n) == 0;
}

static rd_code webdataset_read_member(webdataset_walk *w, rd_tar *t, const rd_tar_member *e,
                                      rd_status *st)
{
    const char *slash = strrchr(e->name, '/'), *base = slash ? slash + 1 : e->name,
               *dot = strchr(base, '.');
    if (!dot || dot == base || strncmp(base, "._", 2) == 0) {
        rd_images_skip(w->m, RD_SKIP_NAME, e->name, 1);
        return RD_OK;
    }
    const char *last = strrchr(base, '.');
    const size_t n_group = (size_t)(dot - e->name), n_key = (size_t)(last - e->name);
    const bool is_class = strcasecmp(last, ".cls") == 0, is_image = rd_image_named(e->name);
    if (w->any && !same_key(&w->key, e->name, n_group)) RD_TRY(group_end(w, st));
    if (!w->any) {
        rd_strbuf_add(&w->key, e->name, n_group);
        w->any = true;
    }
    if (!is_class && !is_image) return RD_OK;
    sample *s = last == dot ? &w->s : &w->dotted;
    if (s->any && !same_key(&s->key, e->name, n_key)) RD_TRY(dotted_end(w, st));
    if (!s->any) {
        rd_strbuf_add(&s->key, e->name, n_key);
        s->any = true;
    }
    if (is_class ? s->has_label || s->bad.code != RD_OK : s->has_image) {
        rd_fail(s == &w->s ? st : &w->half, RD_EDATA, "'%s': the sample '%s' has two %s", w->path,
                rd_strbuf_str(&s->key), is_class ? ".cls files" : "images");
        return st->code;
    }
    RD_TRY(is_class ? read_class(w, s, t, e, st) : read_image(s, t, e, st));
    if (s == &w->s && s->bad.code != RD_OK) return rd_fail(st, s->bad.code, "%s", s->bad.msg);
done:
    return st->code;
}

rd_code rd_webdataset_walk(rd_images *m, rd_tar *t, const char *path, uint32_t shard, rd_status *st)
{
    webdataset_walk w = {.m = m, .path = path, .shard = shard};
    rd_tar_member e;
    const char *first;
    for (;;) {
        RD_TRY(rd_tar_next(t, &e, st));
        if (!e.name) break;
        rd_images_read_part(m, shard + rd_tar_share(t), m->reading.all);
        RD_TRY(webdataset_read_member(&w, t, &e, st));
    }
    RD_TRY(group_end(&w, st));
done:
    sample_release(&w.s);
    sample_release(&w.dotted);
    rd_strbuf_release(&w.key);
    const int64_t n = rd_tar_ignored(t, &first);
    rd_images_skip(m, RD_SKIP_LINK, first, n);
    return st->code;
}

static rd_code read_shard(void *ctx, const char *path, rd_status *st)
{
    rd_images *m = ctx;
    rd_tar *t = NULL;
    uint32_t shard;
    RD_TRY(rd_images_add_shard(m, path, &shard, st));
    RD_TRY(rd_tar_new(path, &t, st));
    RD_TRY(rd_webdataset_walk(m, t, path, shard, st));
done:
    rd_tar_free(t);
    return st->code;
}

static rd_code count_shard(void *ctx, const char *path, rd_status *st)
{
    (void)path;
    (void)st;
    ++*(int64_t *)ctx;
    return RD_OK;
}

static rd_code webdataset_load(rd_images *m, rd_status *st)
{
    char pattern[RD_PATH_BYTES];
    int64_t n = 0;
    const char *given = rd_images_given(m);
    if (!given)
        return rd_fail(st, RD_EUSAGE,
                       "missing key '%s': the shards, as in \"train-{000000..001281}.tar\"; add it "
                       "to the config",
                       rd_images_train_like(m) ? "train_data" : "eval_data");
    if (m->config_classes == 0)
        return rd_fail(
            st, RD_EUSAGE,
            "missing key 'n_classes': shards do not give the number of classes; add it to "
            "the config");
    m->head.n_classes = m->config_classes - m->label_offset;
    RD_TRY(rd_images_path(m, given, pattern, st));
    RD_TRY(rd_braces(pattern, count_shard, &n, st));
    rd_images_read_part(m, 0.0, (double)n);
    RD_TRY(rd_braces(pattern, read_shard, m, st));
done:
    return st->code;
}

static const rd_images_kind webdataset = {
    .name = "webdataset",
    .load = webdataset_load,
    .side = SIDE,
    .fetcher = "; img2dataset and tar make shards, and configs/get_food fetches photographs for "
               "dataset image_folder"};

RD_DATASET_IMAGES(webdataset, "WebDataset tar shards, with .jpg and .cls for each sample",
                  webdataset);
