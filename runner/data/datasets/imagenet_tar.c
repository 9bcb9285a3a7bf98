/* imagenet_tar.c -- ImageNet as it is distributed: ILSVRC2012_img_train.tar, a tar of one tar per
 * class, and ILSVRC2012_img_val.tar, a flat tar whose labels are in a text file. Both are read in
 * place.
 *
 * The class is the rank of the WordNet id (the name of the inner tar) among the sorted ids. A line
 * of the validation labels has one of three forms:
 * - a WordNet id; the lines are in the order of the file names
 *   (imagenet_2012_validation_synset_labels.txt)
 * - an ILSVRC id, 1 to 1000; these are in another order and need synsets_file
 * - the name of the image, then the class */
#include "../images_impl.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIDE = 224, MAX_IDS = 1 << 20, ID_BYTES = 64, INNER_MAX = 1 << 30 };

typedef struct imagenet_tar_keys {
    const char *labels[3]; /* [rd_split] */
    const char *synsets_file;
} imagenet_tar_keys;

/* A sorted list of WordNet ids. */
typedef struct ids {
    char (*at)[ID_BYTES];
    int64_t n, cap;
} ids;

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static rd_code ids_add(ids *x, const char *id, size_t n, rd_status *st)
{
    if (n == 0 || n >= ID_BYTES || x->n >= MAX_IDS)
        return rd_fail(st, RD_EDATA, "'%.*s' is not a WordNet id, or there are more than %d",
                       (int)(n < 80 ? n : 80), id, MAX_IDS);
    if (x->n == x->cap) {
        const int64_t cap = x->cap * 2 + 1024;
        void *more = realloc(x->at, (size_t)cap * ID_BYTES);
        if (!more) return rd_fail(st, RD_EENV, "out of memory");
        x->at = more;
        x->cap = cap;
    }
    memset(x->at[x->n], 0, ID_BYTES);
    memcpy(x->at[x->n++], id, n);
    return RD_OK;
}

static void ids_sort(ids *x)
{
    int64_t k = 0;
    if (x->n > 1) qsort(x->at, (size_t)x->n, ID_BYTES, by_text);
    for (int64_t i = 0; i < x->n; i++)
        if (k == 0 || strcmp(x->at[k - 1], x->at[i]) != 0) memmove(x->at[k++], x->at[i], ID_BYTES);
    x->n = k;
}

static int64_t ids_find(const ids *x, const char *id, size_t n)
{
    char key[ID_BYTES] = "";
    if (n >= ID_BYTES || x->n == 0) return -1;
    memcpy(key, id, n);
    const char *p = bsearch(key, x->at, (size_t)x->n, ID_BYTES, by_text);
    return p ? (p - x->at[0]) / ID_BYTES : -1;
}

static rd_code add_classes(rd_images *m, const ids *x, rd_status *st)
{
    for (int64_t i = 0; i < x->n; i++) RD_TRY(rd_images_add_class(m, x->at[i], st));
done:
    return st->code;
}

/* Finds the id in "path/n01440764.tar" and returns its length; 0: not an inner tar. */
static size_t inner_id(const char *name, const char **id)
{
    const char *slash = strrchr(name, '/');
    *id = slash ? slash + 1 : name;
    const char *dot = strchr(*id, '.');
    return dot && strncmp(dot, ".tar", 4) == 0 && (dot[4] == '\0' || dot[4] == '.') &&
                   (*id)[0] != '.'
               ? (size_t)(dot - *id)
               : 0;
}

/* Reads the ids of a tar of tars from its headers. */
static rd_code read_ids(const char *path, ids *out, rd_status *st)
{
    rd_tar *t = NULL;
    rd_tar_member e;
    const char *id;
    RD_TRY(rd_tar_new(path, &t, st));
    for (;;) {
        RD_TRY(rd_tar_next(t, &e, st));
        if (!e.name) break;
        const size_t n = inner_id(e.name, &id);
        if (n > 0) RD_TRY(ids_add(out, id, n, st));
    }
    const int64_t before = out->n;
    ids_sort(out);
    if (out->n < before) RD_TRY(rd_fail(st, RD_EDATA, "'%s' has two archives for one class", path));
    if (out->n == 0)
        RD_TRY(rd_fail(st, RD_EDATA, "'%s' contains no archives; it needs one for each class",
                       path));
done:
    rd_tar_free(t);
    return st->code;
}

static void skip_links(rd_images *m, const rd_tar *t)
{
    const char *first;
    const int64_t n = rd_tar_ignored(t, &first);
    rd_images_skip(m, RD_SKIP_LINK, first, n);
}

static rd_code add_one(rd_images *m, rd_tar *t, const rd_tar_member *e, uint32_t shard,
                       int64_t label, const char *name, rd_status *st)
{
    uint8_t *copy = NULL;
    if (e->at >= 0) return rd_images_add(m, shard, e->at, e->bytes, label, name, st);
    if (e->bytes > RD_ENCODED_MAX)
        return rd_fail(st, RD_EDATA, "'%s' has %" PRId64 " bytes, more than the %d of an image",
                       name, e->bytes, RD_ENCODED_MAX);
    copy = malloc((size_t)e->bytes + 1);
    if (!copy) return rd_fail(st, RD_EENV, "out of memory for '%s'", name);
    RD_TRY(rd_tar_read(t, e, copy, st));
    RD_TRY(rd_images_add_bytes(m, copy, (size_t)e->bytes, label, name, st));
done:
    free(copy);
    return st->code;
}

/* Adds the images of one class. in_memory: the bytes of t, if they are in memory that will be
 * freed. */
static rd_code walk_class(rd_images *m, rd_tar *t, const uint8_t *in_memory, uint32_t shard,
                          const char *id, int64_t label, rd_status *st)
{
    rd_tar_member e;
    rd_strbuf name = {0};
    const int64_t before = m->head.n;
    for (;;) {
        RD_TRY(rd_tar_next(t, &e, st));
        if (!e.name) break;
        if (!rd_image_named(e.name)) {
            rd_images_skip(m, RD_SKIP_NAME, e.name, 1);
            continue;
        }
        rd_strbuf_reset(&name);
        rd_strbuf_printf(&name, "%s/%s", id, e.name);
        if (name.failed) RD_TRY(rd_fail(st, RD_EENV, "out of memory"));
        if (in_memory && e.at >= 0)
            RD_TRY(rd_images_add_bytes(m, in_memory + e.at, (size_t)e.bytes, label,
                                       rd_strbuf_str(&name), st));
        else
            RD_TRY(add_one(m, t, &e, shard, label, rd_strbuf_str(&name), st));
    }
    skip_links(m, t);
    if (m->head.n == before)
        RD_TRY(rd_fail(st, RD_EDATA, "the archive of class '%s' contains no image", id));
done:
    rd_strbuf_release(&name);
    return st->code;
}

static rd_code walk_member(rd_images *m, rd_tar *outer, const rd_tar_member *e, uint32_t shard,
                           const ids *classes, rd_status *st)
{
    const char *id;
    rd_tar *t = NULL;
    uint8_t *copy = NULL;
    char text[ID_BYTES];
    const size_t n = inner_id(e->name, &id);
    if (n == 0) {
        rd_images_skip(m, RD_SKIP_NAME, e->name, 1);
        return RD_OK;
    }
    const int64_t label = ids_find(classes, id, n);
    snprintf(text, sizeof text, "%.*s", (int)n, id);
    if (e->at >= 0) {
        RD_TRY(rd_tar_new_inner(outer, e, &t, st));
        RD_TRY(walk_class(m, t, NULL, shard, text, label, st));
    } else { /* the outer archive is compressed */
        if (e->bytes > INNER_MAX)
            RD_TRY(rd_fail(st, RD_EDATA,
                           "'%s' has %" PRId64
                           " bytes in a compressed archive; decompress that one first",
                           e->name, e->bytes));
        copy = malloc((size_t)e->bytes + 1);
        if (!copy)
            RD_TRY(rd_fail(st, RD_EENV, "out of memory for %" PRId64 " bytes of '%s'", e->bytes,
                           e->name));
        RD_TRY(rd_tar_read(outer, e, copy, st));
        RD_TRY(rd_tar_new_mem(text, copy, (size_t)e->bytes, &t, st));
        RD_TRY(walk_class(m, t, copy, shard, text, label, st));
    }
done:
    rd_tar_free(t);
    free(copy);
    return st->code;
}

static rd_code load_nested(rd_images *m, const char *path, rd_status *st)
{
    rd_tar *t = NULL;
    rd_tar_member e;
    ids classes = {0};
    uint32_t shard;
    RD_TRY(rd_images_add_shard(m, path, &shard, st));
    RD_TRY(read_ids(path, &classes, st));
    RD_TRY(add_classes(m, &classes, st));
    RD_TRY(rd_tar_new(path, &t, st));
    for (;;) {
        RD_TRY(rd_tar_next(t, &e, st));
        if (!e.name) break;
        rd_images_read_part(m, rd_tar_share(t), 1.0);
        RD_TRY(walk_member(m, t, &e, shard, &classes, st));
    }
    skip_links(m, t);
    RD_TRY(rd_images_sort(m, st));
done:
    rd_tar_free(t);
    free(classes.at);
    return st->code;
}

/* ---- the flat archive and its labels ---- */

typedef struct word {
    const char *p;
    size_t n;
} word;

/* Finds the first two words of a line and returns the number of words, at most 3. */
static int words_of(const char *line, size_t n, word out[2])
{
    int k = 0;
    for (size_t i = 0; i < n && k < 3;) {
        while (i < n && (isspace((unsigned char)line[i]) || line[i] == ',')) i++;
        const size_t from = i;
        while (i < n && !isspace((unsigned char)line[i]) && line[i] != ',') i++;
        if (i > from) {
            if (k < 2) out[k] = (word){line + from, i - from};
            k++;
        }
    }
    return k;
}

static bool is_number(const word *w, int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (!isdigit((unsigned char)w->p[i]) || i > 8) return false;
        *out = *out * 10 + (w->p[i] - '0');
    }
    return w->n > 0;
}

/* Calls f for each line of a file. */
typedef rd_code (*line_fn)(void *ctx, int64_t number, const char *line, size_t n, rd_status *st);
static rd_code each_line(const char *path, line_fn f, void *ctx, rd_status *st)
{
    rd_lines *l = NULL;
    const char *line;
    size_t n;
    RD_TRY(rd_lines_new(path, (rd_lines_opts){.max_line_bytes = 4096}, &l, st));
    for (;;) {
        RD_TRY(rd_lines_next(l, &line, &n, st));
        if (!line) break;
        RD_TRY(f(ctx, rd_lines_number(l), line, n, st));
    }
done:
    rd_lines_free(l);
    return st->code;
}

typedef struct labels {
    char path[RD_PATH_BYTES];
    ids by_number; /* WordNet id of ILSVRC id k at k - 1, not sorted; "-": not given */
    ids classes;   /* sorted */
    bool collect;  /* first pass: the labels define the classes */
    int64_t n, cap;
    int32_t *label; /* [n] */
    struct {
        char name[ID_BYTES];
        int32_t label;
    } * named; /* [n] lines "name class", in the end sorted by name */
    bool by_name;
} labels;

static rd_code add_synset(void *ctx, int64_t number, const char *line, size_t n, rd_status *st)
{
    labels *x = ctx;
    word w[2];
    int64_t k = number;
    const int n_words = words_of(line, n, w);
    if (n_words == 0) return RD_OK;
    const word *id = &w[0];
    if (n_words > 1 && is_number(&w[0], &k))
        id = &w[1];
    else if (n_words > 1 && !is_number(&w[1], &k))
        k = number;
    if (k < 1 || k > MAX_IDS || id->n >= ID_BYTES)
        return rd_fail(st, RD_EDATA, "line %" PRId64 ": not an ILSVRC id and a WordNet id", number);
    while (x->by_number.n < k) RD_TRY(ids_add(&x->by_number, "-", 1, st));
    memset(x->by_number.at[k - 1], 0, ID_BYTES);
    memcpy(x->by_number.at[k - 1], id->p, id->n);
done:
    return st->code;
}

/* Finds the class of a word: a WordNet id, an ILSVRC id, or, behind a file name, the number of the
 * class itself. */
static rd_code class_of(labels *x, const word *w, bool behind_name, int64_t number, int32_t *out,
                        rd_status *st)
{
    int64_t k, class;
    word id = *w;
    if (is_number(w, &k)) {
        if (behind_name) {
            *out = (int32_t)k;
            return RD_OK;
        }
        if (x->by_number.n == 0)
            return rd_fail(st, RD_EDATA,
                           "'%s' has ILSVRC ids, which are in another order than WordNet ids; give "
                           "the file that maps them with synsets_file",
                           x->path);
        if (k < 1 || k > x->by_number.n || x->by_number.at[k - 1][0] == '-')
            return rd_fail(st, RD_EDATA,
                           "'%s', line %" PRId64 ": ILSVRC id %" PRId64 " is not in synsets_file",
                           x->path, number, k);
        id = (word){x->by_number.at[k - 1], strlen(x->by_number.at[k - 1])};
    }
    if (x->collect) {
        *out = 0;
        return ids_add(&x->classes, id.p, id.n, st);
    }
    class = ids_find(&x->classes, id.p, id.n);
    if (class < 0)
        return rd_fail(st, RD_EDATA,
                       "'%s', line %" PRId64 ": no class '%.*s' in the training archive", x->path,
                       number, (int)id.n, id.p);
    *out = (int32_t) class;
    return RD_OK;
}

static rd_code add_label(void *ctx, int64_t number, const char *line, size_t n, rd_status *st)
{
    labels *x = ctx;
    word w[2];
    int32_t label;
    const int n_words = words_of(line, n, w);
    if (n_words == 0) return RD_OK;
    const bool named = n_words > 1;
    if (n_words > 2 || (x->n > 0 && named != x->by_name) || (named && w[0].n >= ID_BYTES))
        return rd_fail(st, RD_EDATA,
                       "'%s', line %" PRId64
                       ": a line has a class, or the name of an image and its class",
                       x->path, number);
    RD_TRY(class_of(x, &w[named], named, number, &label, st));
    x->by_name = named;
    if (x->n == x->cap) {
        const int64_t cap = x->cap * 2 + 4096;
        int32_t *a = realloc(x->label, (size_t)cap * sizeof *a);
        if (a) x->label = a;
        void *b = a ? realloc(x->named, (size_t)cap * sizeof *x->named) : NULL;
        if (!b) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " labels", cap);
        x->named = b;
        x->cap = cap;
    }
    memset(x->named[x->n].name, 0, ID_BYTES);
    if (named) memcpy(x->named[x->n].name, w[0].p, w[0].n);
    x->named[x->n].label = label;
    x->label[x->n++] = label;
done:
    return st->code;
}

static rd_code imagenet_tar_read_labels(rd_images *m, labels *x, rd_status *st)
{
    char train[RD_PATH_BYTES], synsets[RD_PATH_BYTES];
    const imagenet_tar_keys *keys = m->own;
    const char *given = m->c.data[RD_SPLIT_TRAIN], *file = rd_images_labels_given(m, keys->labels);
    if (!file)
        return rd_fail(
            st, RD_EUSAGE,
            "missing key 'eval_labels': the classes of the validation images, one image a "
            "line; add it to the config");
    RD_TRY(rd_images_path(m, file, x->path, st));
    if (keys->synsets_file && keys->synsets_file[0]) {
        RD_TRY(rd_images_path(m, keys->synsets_file, synsets, st));
        if (each_line(synsets, add_synset, x, st) != RD_OK) rd_status_prefix(st, "synsets_file");
        RD_TRY(st->code);
    }
    RD_TRY(rd_images_path(m, given && given[0] ? given : "ILSVRC2012_img_train.tar", train, st));
    bool there;
    RD_TRY(rd_path_there(train, &there, st));
    if (there) {
        RD_TRY(read_ids(train, &x->classes, st));
    } else { /* all classes occur among the labels */
        x->collect = true;
        RD_TRY(each_line(x->path, add_label, x, st));
        ids_sort(&x->classes);
        x->collect = false;
        x->n = 0;
    }
    RD_TRY(each_line(x->path, add_label, x, st));
    if (x->classes.n == 0) { /* file names with class numbers: n_classes is their number */
        if (m->config_classes == 0)
            RD_TRY(rd_fail(st, RD_EUSAGE,
                           "missing key 'n_classes': '%s' has numbers of classes and there is no "
                           "training archive",
                           x->path));
        m->head.n_classes = m->config_classes - m->label_offset;
    }
    if (x->by_name)
        qsort(x->named, (size_t)x->n, sizeof *x->named,
              by_text); /* by_text: the name comes first */
done:
    return st->code;
}

static int32_t *label_of_name(const labels *x, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char key[ID_BYTES] = "";
    if (strlen(name) >= ID_BYTES) return NULL;
    strcpy(key, name);
    char *p = x->n > 0 ? bsearch(key, x->named, (size_t)x->n, sizeof *x->named, by_text) : NULL;
    return p ? &x->named[(size_t)(p - x->named[0].name) / sizeof *x->named].label : NULL;
}

static rd_code give_labels(rd_images *m, const labels *x, rd_status *st)
{
    rd_sample *e = (rd_sample *)(void *)m->block[RD_BLOCK_SAMPLES].p;
    const char *names = m->block[RD_BLOCK_NAMES].p;
    RD_TRY(rd_images_sort(m, st)); /* by name: all labels are still 0 */
    if (!x->by_name && x->n != m->head.n)
        return rd_fail(st, RD_EDATA, "%" PRId64 " labels for %" PRId64 " validation images", x->n,
                       m->head.n);
    for (int64_t i = 0; i < m->head.n; i++) {
        const int32_t *label = x->by_name ? label_of_name(x, names + e[i].name) : &x->label[i];
        if (!label)
            return rd_fail(st, RD_EDATA, "no label for the validation image '%s'",
                           names + e[i].name);
        e[i].label = *label;
    }
done:
    return st->code;
}

static rd_code load_flat(rd_images *m, const char *path, rd_status *st)
{
    rd_tar *t = NULL;
    rd_tar_member e;
    labels x = {0};
    uint32_t shard;
    RD_TRY(rd_images_add_shard(m, path, &shard, st));
    RD_TRY(rd_tar_new(path, &t, st));
    for (;;) {
        RD_TRY(rd_tar_next(t, &e, st));
        if (!e.name) break;
        rd_images_read_part(m, rd_tar_share(t), 1.0);
        if (rd_image_named(e.name))
            RD_TRY(add_one(m, t, &e, shard, 0, e.name, st));
        else
            rd_images_skip(m, RD_SKIP_NAME, e.name, 1);
    }
    skip_links(m, t);
    RD_TRY(imagenet_tar_read_labels(m, &x, st));
    RD_TRY(add_classes(m, &x.classes, st));
    RD_TRY(give_labels(m, &x, st));
done:
    rd_tar_free(t);
    free(x.by_number.at);
    free(x.classes.at);
    free(x.label);
    free(x.named);
    return st->code;
}

/* Is it a tar of tars? Its first member decides. */
static rd_code is_nested(const char *path, bool *nested, rd_status *st)
{
    rd_tar *t = NULL;
    rd_tar_member e;
    const char *id;
    RD_TRY(rd_tar_new(path, &t, st));
    RD_TRY(rd_tar_next(t, &e, st));
    *nested = e.name && inner_id(e.name, &id) > 0;
done:
    rd_tar_free(t);
    return st->code;
}

static rd_code imagenet_tar_load(rd_images *m, rd_status *st)
{
    char path[RD_PATH_BYTES];
    bool nested = false;
    const char *given = rd_images_given(m);
    const char *usual = rd_images_train_like(m) ? "ILSVRC2012_img_train.tar"
                                                : "ILSVRC2012_img_val.tar";
    RD_TRY(rd_images_path(m, given ? given : usual, path, st));
    RD_TRY(is_nested(path, &nested, st));
    if (!nested && rd_images_train_like(m))
        return rd_fail(st, RD_EDATA, "'%s' is not a tar of one tar for each class", path);
    RD_TRY(nested ? load_nested(m, path, st) : load_flat(m, path, st));
done:
    return st->code;
}

static const rd_option imagenet_tar_rows[] = {
    RD_OPT_LABELS(imagenet_tar_keys),
    RD_OPT_PATH(imagenet_tar_keys, synsets_file, synsets_file, NULL,
                "imagenet_tar: WordNet id of each ILSVRC id, one class a line (\"n02119789 1 "
                "kit_fox\", or line k for id k)"),
    RD_OPT_END};
static const rd_option_group imagenet_tar_group = {"imagenet_tar",
                                                   "dataset imagenet_tar: label files",
                                                   imagenet_tar_rows, sizeof(imagenet_tar_keys)};

static const rd_images_kind imagenet_tar = {
    .name = "imagenet_tar",
    .load = imagenet_tar_load,
    .side = SIDE,
    .fetcher = "; image-net.org gives ImageNet to people who register"};

RD_DATASET_IMAGES_OWN(
    imagenet_tar,
    "ImageNet as it is distributed: a tar of tars for training, a flat tar for validation",
    imagenet_tar, &imagenet_tar_group);
