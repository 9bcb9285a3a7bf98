/* images.c -- the images of one split: what a dataset file fills, how the ranks of a host share it,
 * and the functions of rd_dataset_def that all image datasets have in common.
 *
 * Local rank 0 reads. The other ranks map its memory; a rank that cannot map it reads the data
 * itself. */
#include "images_impl.h"
#include "rd/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const split_name[3] = {"training", "evaluation", "test"};

/* ---- for the dataset files ---- */

const char *rd_images_given(const rd_images *m)
{
    const char *s = m->c.data[m->split];
    if ((!s || !s[0]) && m->split == RD_SPLIT_TEST) s = m->c.data[RD_SPLIT_EVAL];
    return s && s[0] ? s : NULL;
}

const char *rd_images_labels_given(const rd_images *m, const char *const labels[3])
{
    const char *s = labels[m->split];
    const bool own_data = m->split == RD_SPLIT_TEST && m->c.data[RD_SPLIT_TEST] &&
                          m->c.data[RD_SPLIT_TEST][0];
    if ((!s || !s[0]) && m->split == RD_SPLIT_TEST && !own_data) s = labels[RD_SPLIT_EVAL];
    return s && s[0] ? s : NULL;
}

bool rd_images_train_like(const rd_images *m)
{
    return m->split == RD_SPLIT_TRAIN;
}

const char *rd_images_fetcher(const rd_images *m)
{
    return m->kind->fetcher ? m->kind->fetcher : "";
}

rd_code rd_images_path(const rd_images *m, const char *name, char out[RD_PATH_BYTES], rd_status *st)
{
    const char *dir = m->c.data_dir;
    int n;
    if (name[0] == '/') {
        n = snprintf(out, RD_PATH_BYTES, "%s", name);
    } else {
        if (!dir || !dir[0])
            return rd_fail(
                st, RD_EUSAGE,
                "%s key 'data_dir': the folder of the images; give it in the config, or by "
                "--set data_dir=FOLDER",
                dir ? "empty" : "missing");
        n = snprintf(out, RD_PATH_BYTES, name[0] ? "%s/%s" : "%s%s", dir, name);
    }
    if (n < 0 || n >= RD_PATH_BYTES)
        return rd_fail(st, RD_EDATA, "the path is too long: '%.200s...'", name);
    if (rd_config_placeholder(out))
        return rd_fail(
            st, RD_EDATA,
            "'%s' names no folder yet; give the folder with --set data_location=FOLDER%s", out,
            rd_images_fetcher(m));
    return RD_OK;
}

rd_code rd_images_reserve(rd_images *m, int64_t n, int64_t h, int64_t w, int64_t c, rd_status *st)
{
    int64_t bytes;
    if (n < 0 || h < 1 || w < 1 || c < 1 || n >= INT32_MAX ||
        __builtin_mul_overflow(h, w, &bytes) || __builtin_mul_overflow(bytes, c, &bytes) ||
        __builtin_mul_overflow(bytes, n, &bytes) || bytes > INT64_MAX / 2)
        return rd_fail(st, RD_EDATA,
                       "%" PRId64 " images of %" PRId64 " x %" PRId64 " x %" PRId64
                       " cannot fit into memory",
                       n, h, w, c);
    m->head.n = n;
    m->head.h = h;
    m->head.w = w;
    m->head.c = c;
    if (m->kind->make) bytes = 0;
    m->head.pixels = (size_t)bytes;
    RD_TRY(rd_block_trim(&m->block[RD_BLOCK_LABELS], (size_t)n * sizeof(int32_t), st));
    if (bytes > 0) RD_TRY(rd_block_trim(&m->block[RD_BLOCK_PIXELS], (size_t)bytes, st));
done:
    return st->code;
}

uint8_t *rd_images_pixels(rd_images *m, int64_t i)
{
    return (uint8_t *)m->block[RD_BLOCK_PIXELS].p + i * m->head.h * m->head.w * m->head.c;
}

rd_code rd_images_label(rd_images *m, int64_t i, int64_t label, int64_t n_classes, const char *from,
                        rd_status *st)
{
    if (label < 0 || label >= n_classes)
        return rd_fail(st, RD_EDATA,
                       "'%s': label %" PRId64 " of sample %" PRId64
                       " is out of range: there are %" PRId64
                       " classes; the file may be damaged, or set n_classes",
                       from, label, i, n_classes);
    ((int32_t *)(void *)m->block[RD_BLOCK_LABELS].p)[i] = (int32_t)label;
    return RD_OK;
}

/* Appends n bytes to a block that has *used bytes. */
static rd_code images_append(rd_block *b, size_t *used, const void *p, size_t n, rd_status *st)
{
    RD_TRY(rd_block_grow(b, *used + n, st));
    if (n > 0) memcpy(b->p + *used, p, n);
    *used += n;
done:
    return st->code;
}

rd_code rd_images_add_class(rd_images *m, const char *name, rd_status *st)
{
    RD_TRY(images_append(&m->block[RD_BLOCK_CLASSES], &m->head.classes, name, strlen(name) + 1,
                         st));
    m->head.n_classes++;
done:
    return st->code;
}

rd_code rd_images_add_shard(rd_images *m, const char *path, uint32_t *index, rd_status *st)
{
    if (m->head.n_shards >= (int64_t)RD_IN_MEMORY) return rd_fail(st, RD_EDATA, "too many shards");
    *index = (uint32_t)m->head.n_shards;
    RD_TRY(images_append(&m->block[RD_BLOCK_SHARDS], &m->head.shards, path, strlen(path) + 1, st));
    m->head.n_shards++;
done:
    return st->code;
}

rd_code rd_images_add(rd_images *m, uint32_t shard, int64_t at, int64_t bytes, int64_t label,
                      const char *name, rd_status *st)
{
    if (bytes > RD_ENCODED_MAX)
        return rd_fail(st, RD_EDATA, "'%s' has %" PRId64 " bytes, more than the %d of an image",
                       name, bytes, RD_ENCODED_MAX);
    if (m->head.names > UINT32_MAX || m->head.n >= INT32_MAX - 1 || label < 0 ||
        label > INT32_MAX / 2)
        return rd_fail(st, RD_EDATA, "'%s': too many images, or label %" PRId64 " is out of range",
                       name, label);
    const rd_sample e = {at, (uint32_t)bytes, shard, (uint32_t)m->head.names, (int32_t)label};
    size_t used = (size_t)m->head.n * sizeof e;
    RD_TRY(images_append(&m->block[RD_BLOCK_NAMES], &m->head.names, name, strlen(name) + 1, st));
    RD_TRY(images_append(&m->block[RD_BLOCK_SAMPLES], &used, &e, sizeof e, st));
    m->head.n++;
    if (m->reading.begin_ns && m->head.n % 64 == 0)
        rd_images_read_part(m, m->reading.done, m->reading.all);
done:
    return st->code;
}

rd_code rd_images_add_bytes(rd_images *m, const void *p, size_t n, int64_t label, const char *name,
                            rd_status *st)
{
    const int64_t at = (int64_t)m->head.pixels;
    RD_TRY(images_append(&m->block[RD_BLOCK_PIXELS], &m->head.pixels, p, n, st));
    RD_TRY(rd_images_add(m, RD_IN_MEMORY, at, (int64_t)n, label, name, st));
done:
    return st->code;
}

void rd_images_skip(rd_images *m, rd_skip why, const char *name, int64_t n)
{
    if (n > 0 && m->head.n_skipped[why] == 0)
        snprintf(m->head.skipped[why], RD_SKIPPED_BYTES, "%s", name);
    m->head.n_skipped[why] += n;
}

void rd_images_read_part(rd_images *m, double done, double all)
{
    enum { LIVE_MS = 500, FIRST_MS = 10000, NEXT_MS = 30000 };
    static const int64_t ms = 1000000;
    rd_images_reading *r = &m->reading;
    const int64_t now = rd_now_ns();
    char n[32], eta[32], left[64] = "", found[64] = "reading";
    if (!m->log || m->rank != 0 || m->fed) return;
    if (r->begin_ns == 0)
        *r = (rd_images_reading){now, now + LIVE_MS * ms, now + FIRST_MS * ms, 0.0, 0.0, false};
    r->done = done;
    r->all = all;
    if (now < r->live_ns && now < r->line_ns) return;
    r->live_ns = now + LIVE_MS * ms;
    if (done > 0.0 && all >= done)
        (void)snprintf(left, sizeof left, ", %.0f %%, eta %s", 100.0 * done / all,
                       rd_duration_text((double)(now - r->begin_ns) * 1e-9 * (all - done) / done,
                                        eta));
    if (m->head.n > 0)
        (void)snprintf(found, sizeof found, "%s image%s found", rd_commas((double)m->head.n, n),
                       RD_S(m->head.n));
    if (now >= r->line_ns) {
        r->line_ns = now + NEXT_MS * ms;
        rd_live(m->log, NULL);
        rd_info(m->log, "%s data: %s%s", split_name[m->split], found, left);
        return;
    }
    rd_live(m->log, "%s data: %s%s", split_name[m->split], found, left);
    r->shown = true;
}

static int by_label_and_name(const void *a, const void *b, void *names)
{
    const rd_sample *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return strcmp((const char *)names + x->name, (const char *)names + y->name);
}

rd_code rd_images_sort(rd_images *m, rd_status *st)
{
    if (m->head.n > 1)
        qsort_r(m->block[RD_BLOCK_SAMPLES].p, (size_t)m->head.n, sizeof(rd_sample),
                by_label_and_name, m->block[RD_BLOCK_NAMES].p);
    return st->code;
}

/* ---- loading and sharing ---- */

static const char *count_text(char buf[64], int64_t n, const char *what)
{
    snprintf(buf, 64, "%" PRId64 " %s%s", n, what,
             n == 1                       ? ""
             : strcmp(what, "class") == 0 ? "es"
                                          : "s");
    return buf;
}

static rd_code check_loaded(rd_images *m, rd_status *st)
{
    rd_images_head *h = &m->head;
    if (h->n == 0)
        return rd_fail(st, RD_EDATA, "no image in the %s data of '%s'%s", split_name[m->split],
                       m->c.data_dir ? m->c.data_dir : "", rd_images_fetcher(m));
    h->n_named = h->classes > 0 ? h->n_classes : 0;
    if (h->n_classes + m->label_offset > m->config_classes && m->config_classes > 0)
        return rd_fail(st, RD_EDATA,
                       "the data has %" PRId64 " classes%s, but n_classes is %" PRId64
                       "; remove the key or raise it",
                       h->n_classes, m->label_offset ? ", label_offset not counted" : "",
                       m->config_classes);
    uint64_t hash = rd_hash(1, m->block[RD_BLOCK_CLASSES].p, h->classes);
    if (h->h == 0) {
        RD_TRY(rd_block_trim(&m->block[RD_BLOCK_LABELS], (size_t)h->n * sizeof(int32_t), st));
        int32_t *label = (int32_t *)(void *)m->block[RD_BLOCK_LABELS].p;
        for (int64_t i = 0; i < h->n; i++) {
            const rd_sample *e = rd_images_sample(m, i);
            const char *name = m->block[RD_BLOCK_NAMES].p + e->name;
            if (e->label >= h->n_classes)
                return rd_fail(st, RD_EDATA,
                               "label %d of '%s' is out of range: there are %" PRId64
                               " classes; set n_classes",
                               e->label, name, h->n_classes);
            label[i] = e->label;
            hash = rd_hash(hash ^ (uint64_t)e->bytes, name, strlen(name));
        }
    } else if (h->pixels > 0) {
        hash = rd_hash(hash, m->block[RD_BLOCK_PIXELS].p, h->pixels);
    }
    hash = rd_hash(hash, m->block[RD_BLOCK_LABELS].p, (size_t)h->n * sizeof(int32_t));
    h->hash = hash;
    if (m->config_classes > 0) h->n_classes = m->config_classes - m->label_offset;
done:
    return st->code;
}

/* Takes the classes of another dataset. Its images come later, by their paths. */
static rd_code images_like(rd_images *m, const rd_data_spec *like, rd_status *st)
{
    uint32_t root;
    RD_TRY(rd_images_add_shard(m, "", &root, st));
    for (int64_t k = m->label_offset; k < like->n_classes && like->class_names; k++)
        RD_TRY(rd_images_add_class(m, like->class_names[k], st));
    m->head.n_named = m->head.n_classes;
    m->head.n_classes = like->n_classes - m->label_offset;
    m->head.hash = rd_hash(1, m->block[RD_BLOCK_CLASSES].p, m->head.classes);
done:
    return st->code;
}

/* Adds the kept names as those of the data. */
static rd_code images_take_list(rd_images *m, const json_t *names, rd_status *st)
{
    m->head.n_classes = 0;
    for (size_t k = (size_t)m->label_offset; k < json_array_size(names); k++)
        RD_TRY(rd_images_add_class(m, json_string_value(json_array_get(names, k)), st));
done:
    return st->code;
}

/* Takes the names of the classes from data.json, if the data has none and their number is right. */
static rd_code images_take_names(rd_images *m, rd_status *st)
{
    const json_t *names = json_object_get(m->kept, "classes");
    const int64_t n = (int64_t)json_array_size(names) - m->label_offset;
    if (n < 1 || m->head.classes > 0 || n != m->head.n_classes) return RD_OK;
    return images_take_list(m, names, st);
}

/* Takes all from data.json: there are no images. */
static rd_code images_take_all(rd_images *m, rd_status *st)
{
    const json_t *names = json_object_get(m->kept, "classes");
    m->head = (rd_images_head){0};
    m->render.h = json_integer_value(json_object_get(m->kept, "height"));
    m->render.w = json_integer_value(json_object_get(m->kept, "width"));
    m->render.c = json_integer_value(json_object_get(m->kept, "channels"));
    if ((int64_t)json_array_size(names) > m->label_offset) RD_TRY(images_take_list(m, names, st));
    m->head.n_named = m->head.n_classes;
    m->head.n_classes = json_integer_value(json_object_get(m->kept, "n_classes")) - m->label_offset;
done:
    return st->code;
}

static rd_code images_load(rd_images *m, bool shared, rd_status *st)
{
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) {
        rd_block_free(&m->block[k]);
        rd_block_init(&m->block[k], shared);
    }
    m->head = (rd_images_head){0};
    if (m->kind->load(m, st) != RD_OK) rd_status_no_file(st, rd_images_fetcher(m));
    if (m->reading.shown) rd_live(m->log, NULL);
    m->reading = (rd_images_reading){0};
    RD_TRY(st->code);
    RD_TRY(images_take_names(m, st));
    RD_TRY(check_loaded(m, st));
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) { /* give back what growing reserved in advance */
        const size_t used[RD_IMAGE_BLOCKS] = {m->head.h ? 0 : (size_t)m->head.n * sizeof(rd_sample),
                                              (size_t)m->head.n * sizeof(int32_t),
                                              m->head.pixels,
                                              m->head.names,
                                              m->head.classes,
                                              m->head.shards};
        if (m->block[k].p) RD_TRY(rd_block_trim(&m->block[k], used[k], st));
    }
done:
    return st->code;
}

/* Loads on local rank 0 and shares the result with the ranks of the host. Collective. */
static rd_code load_on_host(rd_images *m, rd_comm *comm, rd_status *st)
{
    bool have = true;
    const bool shared = rd_local_size_of(comm) > 1;
    if (rd_local_rank_of(comm) == 0) (void)images_load(m, shared, st);
    RD_TRY(rd_agree(comm, st));
    if (!shared) return RD_OK;
    RD_TRY(rd_comm_local_bcast(comm, &m->head, sizeof m->head, 0, st));
    RD_TRY(rd_block_share(comm, m->block, RD_IMAGE_BLOCKS, &have, st));
    if (!have) (void)images_load(m, false, st);
done:
    return rd_agree(comm, st);
}

/* Makes a list of n strings that are stored one after the other in a block. */
static rd_code list_strings(const rd_block *b, int64_t n, const char ***out, rd_status *st)
{
    *out = NULL;
    if (n == 0) return RD_OK;
    const char **s = malloc((size_t)n * sizeof *s), *p = b->p;
    if (!s) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " names", n);
    for (int64_t i = 0; i < n; i++, p += strlen(p) + 1) s[i] = p;
    *out = s;
    return RD_OK;
}

/* Fills class_names, by the class number that the model sees. */
static rd_code name_classes(rd_images *m, rd_status *st)
{
    const int64_t n = m->head.n_classes + m->label_offset;
    const char **known = NULL;
    RD_TRY(list_strings(&m->block[RD_BLOCK_CLASSES], m->head.n_named, &known, st));
    m->class_names = malloc((size_t)(n + 1) * sizeof *m->class_names);
    if (!m->class_names)
        RD_TRY(rd_fail(st, RD_EENV, "out of memory for %" PRId64 " names of classes", n));
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i - m->label_offset;
        m->class_names[i] = known && k >= 0 && k < m->head.n_named ? known[k] : "";
    }
done:
    free(known);
    return st->code;
}

/* Chooses the same for images that come by their paths. Their middle is cut out where that of
 * encoded training data was. */
static void choose_size_like(rd_images *m, const rd_data_spec *like)
{
    rd_render *r = &m->render;
    const int64_t side = m->c.image_size;
    const bool encoded = m->kind->side > 0 && !m->kind->make;
    r->h = side > 0 ? side : like->image_h;
    r->w = m->c.image_width > 0 ? m->c.image_width : side > 0 ? side : like->image_w;
    r->c = m->c.image_channels > 0 ? m->c.image_channels : like->image_c;
    const int64_t least = r->h < r->w ? r->h : r->w;
    if (r->eval_resize < least) r->eval_resize = encoded ? (least * 256 + 112) / 224 : 0;
}

/* Chooses height, width and channels of the result. */
static rd_code choose_size(rd_images *m, rd_status *st)
{
    rd_render *r = &m->render;
    const rd_images_head *h = &m->head;
    const int64_t side = m->c.image_size;
    r->h = side > 0 ? side : h->h > 0 ? h->h : m->kind->side;
    r->w = m->c.image_width > 0 ? m->c.image_width
           : side > 0           ? side
           : h->w > 0           ? h->w
                                : m->kind->side;
    r->c = m->c.image_channels > 0 ? m->c.image_channels : h->c > 0 ? h->c : 3;
    if (h->c > 0 && r->c != h->c)
        return rd_fail(st, RD_EUSAGE,
                       "'image_channels' is %" PRId64 ", but the images of '%s' have %" PRId64
                       "; remove the key",
                       r->c, m->kind->name, h->c);
    if (h->h == 0 && r->eval_resize == 0)
        r->eval_resize = ((r->h < r->w ? r->h : r->w) * 256 + 112) / 224;
    if (r->eval_resize > 0 && r->eval_resize < (r->h < r->w ? r->h : r->w))
        return rd_fail(st, RD_EUSAGE,
                       "'eval_resize' is %" PRId64 ", less than the image size of %" PRId64,
                       r->eval_resize, r->h < r->w ? r->h : r->w);
    return RD_OK;
}

static int auto_threads(const rd_images *m, rd_comm *comm)
{
    if (m->c.data_threads >= 0) return (int)m->c.data_threads;
    return comm && rd_comm_world(comm)->n_cpus > 1 ? 1 : 0;
}

static void images_report(const rd_images *m, rd_comm *comm, int n_threads)
{
    char a[64], b[64];
    const rd_render *r = &m->render;
    if (!m->log || m->fed || rd_rank_of(comm) != 0) return;
    rd_info(m->log, "%s data: %s of %s, %" PRId64 " x %" PRId64 " x %" PRId64 "%s%s; %s",
            split_name[m->split], count_text(a, m->head.n, "image"),
            count_text(b, m->head.n_classes + m->label_offset, "class"), r->h, r->w, r->c,
            r->augment != RD_AUGMENT_NONE ? ", augmentation " : "",
            r->augment != RD_AUGMENT_NONE
                ? rd_option_word(&rd_group_images, "augmentation", (int)r->augment)
                : "",
            n_threads > 0 ? count_text((char[64]){0}, n_threads, "thread") : "no loader threads");
    static const char *const why[RD_SKIPS] = {
        [RD_SKIP_NAME] = "not .jpg, .jpeg or .png",
        [RD_SKIP_PLACE] = "in no class folder",
        [RD_SKIP_LINK] = "a link or a device, not a file",
        [RD_SKIP_HIDDEN] = "hidden",
        [RD_SKIP_LOOP] = "a link that leads back to a folder above it",
    };
    for (int k = 0; k < RD_SKIPS; k++)
        if (m->head.n_skipped[k] > 0)
            (k == RD_SKIP_HIDDEN ? rd_info : rd_warn)(
                m->log, "%s data: %s skipped: %s%s '%s'", split_name[m->split],
                count_text(a, m->head.n_skipped[k], k == RD_SKIP_LINK ? "member" : "file"), why[k],
                m->head.n_skipped[k] > 1 ? "; the first is" : ":", m->head.skipped[k]);
}

static rd_code read_own(rd_images *m, const rd_option_group *own, const rd_dataset_args *a,
                        rd_status *st)
{
    m->own = calloc(1, own->struct_bytes);
    if (!m->own) return rd_fail(st, RD_EENV, "out of memory");
    return rd_config_read(a->config, own, a->mode, m->own, st);
}

rd_code rd_images_open(const rd_images_kind *k, const rd_option_group *own,
                       const rd_dataset_args *a, void **self, rd_status *st)
{
    rd_images *m = calloc(1, sizeof *m);
    *self = NULL;
    if (m) {
        m->kind = k;
        m->mode = a->mode;
        m->split = a->split;
        m->log = a->log;
        m->rank = rd_rank_of(a->comm);
        m->size = a->shard ? rd_size_of(a->comm) : 1;
        m->n_ranks = rd_size_of(a->comm);
        for (int i = 0; i < RD_IMAGE_BLOCKS; i++) rd_block_init(&m->block[i], false);
        if (rd_images_config_read(a, &m->c, &m->render, st) == RD_OK && own)
            (void)read_own(m, own, a, st);
        m->config_classes = m->c.n_classes;
        m->max_bad = m->c.max_bad_images;
        m->label_offset = m->c.label_offset;
        if (st->code == RD_OK && m->config_classes > 0 && m->config_classes <= m->label_offset)
            rd_fail(st, RD_EUSAGE,
                    "%s: 'n_classes' includes the classes below label_offset and must be larger",
                    rd_config_where(a->config, "n_classes"));
    } else {
        rd_fail(st, RD_EENV, "out of memory");
    }
    RD_TRY(rd_agree(a->comm, st));
    if (!m) /* Never happens: all ranks share the failure. */
        return rd_fail(st, RD_EBUG, "ranks agree without a dataset");
    m->fed = a->like != NULL;
    if (!a->like && a->split != RD_SPLIT_TRAIN && a->mode != RD_MODE_TRAIN_EVAL)
        RD_TRY(rd_images_kept(a, &m->kept, st));
    const bool no_images = a->mode == RD_MODE_EXPORT && m->kept;
    if (a->like)
        (void)images_like(m, a->like, st);
    else if (no_images)
        (void)images_take_all(m, st);
    else
        RD_TRY(load_on_host(m, a->comm, st));
    if (a->like) choose_size_like(m, a->like);
    if (st->code == RD_OK && (a->like || no_images || choose_size(m, st) == RD_OK) &&
        list_strings(&m->block[RD_BLOCK_SHARDS], m->head.n_shards, &m->shards, st) == RD_OK &&
        m->head.n_named > 0)
        (void)name_classes(m, st);
    if (st->code == RD_OK) (void)rd_shard_files_new(m->shards, m->head.n_shards, &m->files, st);
    m->n_threads = no_images ? 0 : auto_threads(m, a->comm);
    if (st->code == RD_OK) (void)rd_workers_new(m, m->n_threads, &m->workers, st);
    snprintf(m->fingerprint, sizeof m->fingerprint,
             "%s %" PRId64 " images, %" PRId64 " classes, %016" PRIx64, k->name, m->head.n,
             m->head.n_classes + m->label_offset, m->head.hash);
    RD_TRY(rd_agree(a->comm, st));
    if (!no_images) images_report(m, a->comm, m->n_threads);
    if (m->fed) {
        m->log = NULL; /* each row of the output says what is wrong with its image */
        m->max_bad = 1.0;
    }
    memset(&m->c, 0, sizeof m->c); /* its strings belong to the config, which may be freed */
    *self = m;
    return RD_OK;
done:
    rd_images_close(m);
    return st->code;
}

void rd_images_close(void *self)
{
    rd_images *m = self;
    if (!m) return;
    rd_workers_free(m->workers); /* first: the threads read all the rest */
    rd_shard_files_free(m->files);
    for (int k = 0; k < RD_IMAGE_BLOCKS; k++) rd_block_free(&m->block[k]);
    free(m->class_names);
    free(m->shards);
    free(m->own);
    free(m->result);
    json_decref(m->kept);
    free(m);
}

/* ---- the functions of rd_dataset_def ---- */

int64_t rd_images_count(void *self)
{
    return ((const rd_images *)self)->head.n;
}

int rd_images_n_buckets(void *self)
{
    (void)self;
    return 1;
}

int rd_images_bucket(void *self, int64_t i)
{
    (void)self;
    (void)i;
    return 0;
}

bool rd_images_here(void *self, int64_t i)
{
    const rd_images *m = self;
    return i % m->size == m->rank % m->size;
}

rd_code rd_images_fetch(void *self, const int64_t *ids, int64_t n, rd_arena *a, rd_batch *out,
                        rd_status *st)
{
    const rd_images *m = self;
    const rd_render *r = &m->render;
    const int64_t each = r->h * r->w * r->c;
    const int32_t *label = (const int32_t *)(const void *)m->block[RD_BLOCK_LABELS].p;
    int64_t *sample, *off, *one;
    int32_t *labels;
    float *x;
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *sample, &sample, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *off, &off, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *one, &one, st));
    RD_TRY(rd_arena_get(a, (size_t)(n + 1) * sizeof *labels, &labels, st));
    RD_TRY(rd_arena_get(a, (size_t)(n * each) * sizeof *x, &x, st));
    for (int64_t k = 0; k < n; k++) {
        if (ids[k] < 0 || ids[k] >= m->head.n)
            return rd_fail(st, RD_EBUG, "sample %" PRId64 " of %" PRId64, ids[k], m->head.n);
        sample[k] = ids[k];
        labels[k] = label[ids[k]] + (int32_t)m->label_offset;
    }
    for (int64_t k = 0; k <= n; k++) {
        off[k] = k * each;
        one[k] = k;
    }
    RD_TRY(rd_workers_fetch(m->workers, ids, n, out->epoch, x, st));
    out->n = n;
    out->sample = sample;
    out->n_fields = 2;
    out->field[0] = (rd_field){.name = "image",
                               .dtype = RD_F32,
                               .data = x,
                               .off = off,
                               .n_dim = 3,
                               .dim = {r->h, r->w, r->c}};
    out->field[1] = (rd_field){
        .name = "label", .dtype = RD_I32, .data = labels, .off = one, .n_dim = 1, .dim = {1}};
done:
    return st->code;
}

void rd_images_prepare(void *self, const int64_t *ids, int64_t n, int64_t epoch)
{
    const rd_images *m = self;
    for (int64_t k = 0; k < n; k++)
        if (ids[k] < 0 || ids[k] >= m->head.n) return; /* fetch reports it */
    rd_workers_prepare(m->workers, ids, n, epoch);
}

void rd_images_spec(void *self, rd_data_spec *out)
{
    const rd_images *m = self;
    const rd_render *r = &m->render;
    *out = (rd_data_spec){.n_classes = m->head.n_classes + m->label_offset,
                          .image_h = r->h,
                          .image_w = r->w,
                          .image_c = r->c,
                          .class_names = m->class_names};
    for (int64_t c = 0; c < r->c; c++) {
        out->pixel_mean[c] = r->mean[c];
        out->pixel_std[c] = r->std[c];
    }
}

const char *rd_images_fingerprint(void *self)
{
    return ((const rd_images *)self)->fingerprint;
}

void rd_images_text(void *self, int side, const int32_t *ids, int64_t n, bool specials,
                    rd_strbuf *b)
{
    const rd_images *m = self;
    const int64_t n_classes = m->head.n_classes + m->label_offset;
    (void)specials;
    for (int64_t k = 0; k < n; k++) {
        if (k > 0) rd_strbuf_puts(b, " ");
        if (side == 0) {
            rd_images_name_add(m, ids[k], b);
        } else if (m->class_names && ids[k] >= 0 && ids[k] < n_classes &&
                   m->class_names[ids[k]][0]) {
            rd_strbuf_puts(b, m->class_names[ids[k]]);
        } else {
            rd_strbuf_printf(b, "%d", ids[k]);
        }
    }
}

rd_code rd_images_feed(void *self, const char *text, size_t n, int64_t lines_before, rd_status *st)
{
    static const int blocks[] = {RD_BLOCK_SAMPLES, RD_BLOCK_LABELS, RD_BLOCK_NAMES};
    rd_images *m = self;
    (void)lines_before;
    if (!m->fed) return rd_fail(st, RD_EBUG, "'%s' takes no paths of images", m->kind->name);
    rd_workers_free(m->workers); /* its threads read the samples */
    m->workers = NULL;
    free(m->result);
    m->result = NULL;
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
        rd_block_free(&m->block[blocks[k]]);
        rd_block_init(&m->block[blocks[k]], false);
    }
    m->head.n = 0;
    m->head.names = 0;
    for (const char *p = text; p < text + n; p += strlen(p) + 1)
        RD_TRY(rd_images_add(m, RD_IN_FILE, 0, 0, 0, p, st));
    const size_t labels = (size_t)m->head.n * sizeof(int32_t);
    RD_TRY(rd_block_trim(&m->block[RD_BLOCK_LABELS], labels, st));
    if (labels > 0) memset(m->block[RD_BLOCK_LABELS].p, 0, labels);
    m->result = calloc((size_t)m->head.n + 1, sizeof *m->result);
    if (!m->result) return rd_fail(st, RD_EENV, "out of memory for %" PRId64 " images", m->head.n);
    RD_TRY(rd_workers_new(m, m->n_threads, &m->workers, st));
done:
    return st->code;
}

const char *rd_images_trouble(void *self, int64_t i, bool *unusable)
{
    const rd_images *m = self;
    *unusable = false;
    if (!m->result || i < 0 || i >= m->head.n || m->result[i].answer == RD_DECODE_OK) return NULL;
    *unusable = m->result[i].answer == RD_DECODE_NONE;
    return m->result[i].why[0] ? m->result[i].why : "damaged";
}
