/* webdataset.c -- WebDataset shards: plain tar files.
 *
 * The files of one sample follow each other and share a key: the path up to the first dot of its
 * last component. What follows the dot is the field. Two fields are read: the image (jpg, jpeg,
 * png) and cls, the class as a number in ASCII.
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
} sample;

typedef struct webdataset_walk {
    rd_images *m;
    sample s;
} webdataset_walk;

static void sample_clear(sample *s)
{
    rd_strbuf_reset(&s->key);
    rd_strbuf_reset(&s->name);
    free(s->copy);
    s->copy = NULL;
    s->any = s->has_image = s->has_label = false;
}

/* Completes the sample, if there is one, and adds it. */
static rd_code sample_end(webdataset_walk *w, const char *path, uint32_t shard, rd_status *st)
{
    sample *s = &w->s;
    if (!s->any) return RD_OK;
    if (s->key.failed || s->name.failed)
        RD_TRY(rd_fail(st, RD_EENV, "out of memory while reading '%s'", path));
    if (!s->has_image || !s->has_label)
        RD_TRY(rd_fail(st, RD_EDATA,
                       "'%s': the sample '%s' has no %s; all files of a sample must follow each "
                       "other in one shard",
                       path, rd_strbuf_str(&s->key),
                       s->has_image ? ".cls file, its class" : ".jpg file"));
    if (s->copy)
        RD_TRY(rd_images_add_bytes(w->m, s->copy, (size_t)s->bytes, s->label,
                                   rd_strbuf_str(&s->name), st));
    else
        RD_TRY(rd_images_add(w->m, shard, s->at, s->bytes, s->label, rd_strbuf_str(&s->name), st));
done:
    sample_clear(s);
    return st->code;
}

static rd_code read_class(webdataset_walk *w, rd_tar *t, const rd_tar_member *e, const char *path,
                          rd_status *st)
{
    char text[CLASS_BYTES + 1] = "", *end;
    const int64_t n_classes = w->m->config_classes - w->m->label_offset;
    if (e->bytes < CLASS_BYTES) RD_TRY(rd_tar_read(t, e, text, st));
    const long v = strtol(text, &end, 10);
    while (*end == '\n' || *end == '\r' || *end == ' ') end++;
    if (e->bytes == 0 || e->bytes >= CLASS_BYTES || end == text || *end)
        return rd_fail(st, RD_EDATA, "'%s': '%s' is not a class number but \"%.20s\"", path,
                       e->name, text);
    if (v < 0 || v >= n_classes)
        return rd_fail(st, RD_EDATA,
                       "'%s': label %ld of '%s' is out of range: there are %" PRId64
                       " classes; set n_classes",
                       path, v, e->name, n_classes);
    w->s.label = v;
    w->s.has_label = true;
done:
    return st->code;
}

static rd_code read_image(webdataset_walk *w, rd_tar *t, const rd_tar_member *e, rd_status *st)
{
    sample *s = &w->s;
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

static rd_code webdataset_read_member(webdataset_walk *w, rd_tar *t, const rd_tar_member *e,
                                      const char *path, uint32_t shard, rd_status *st)
{
    const char *slash = strrchr(e->name, '/'), *base = slash ? slash + 1 : e->name,
               *dot = strchr(base, '.');
    sample *s = &w->s;
    if (!dot || dot == base || strncmp(base, "._", 2) == 0) {
        w->m->head.n_ignored++;
        return RD_OK;
    }
    const size_t n_key = (size_t)(dot - e->name);
    if (s->any && !(s->key.n == n_key && memcmp(s->key.s, e->name, n_key) == 0))
        RD_TRY(sample_end(w, path, shard, st));
    if (!s->any) {
        rd_strbuf_add(&s->key, e->name, n_key);
        s->any = true;
    }
    if (strcasecmp(dot, ".cls") == 0) {
        if (s->has_label)
            return rd_fail(st, RD_EDATA, "'%s': the sample '%s' has two .cls files", path,
                           rd_strbuf_str(&s->key));
        RD_TRY(read_class(w, t, e, path, st));
    } else if (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
               strcasecmp(dot, ".png") == 0) {
        if (s->has_image)
            return rd_fail(st, RD_EDATA, "'%s': the sample '%s' has two images", path,
                           rd_strbuf_str(&s->key));
        RD_TRY(read_image(w, t, e, st));
    }
done:
    return st->code;
}

rd_code rd_webdataset_walk(rd_images *m, rd_tar *t, const char *path, uint32_t shard, rd_status *st)
{
    webdataset_walk w = {.m = m};
    rd_tar_member e;
    for (;;) {
        RD_TRY(rd_tar_next(t, &e, st));
        if (!e.name) break;
        RD_TRY(webdataset_read_member(&w, t, &e, path, shard, st));
    }
    RD_TRY(sample_end(&w, path, shard, st));
done:
    sample_clear(&w.s);
    rd_strbuf_release(&w.s.key);
    rd_strbuf_release(&w.s.name);
    m->head.n_ignored += rd_tar_ignored(t);
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

static rd_code webdataset_load(rd_images *m, rd_status *st)
{
    char pattern[RD_PATH_BYTES];
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
    RD_TRY(rd_braces(pattern, read_shard, m, st));
done:
    return st->code;
}

static const rd_images_kind webdataset = {
    .name = "webdataset", .load = webdataset_load, .side = SIDE};

RD_DATASET_IMAGES(webdataset, "WebDataset tar shards, with .jpg and .cls for each sample",
                  webdataset);
