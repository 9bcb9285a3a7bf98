/* npz_images.c -- Keras' layout: one .npz with x_train, y_train, x_test, y_test.
 *
 * Images are unsigned bytes of shape (n, h, w) or (n, h, w, channels), labels are integers of any
 * width. mnist.npz, fashion_mnist.npz and cifar10.npz have this layout. */
#include "../images_impl.h"
#include "rd/npz.h"
#include <inttypes.h>
#include <sys/stat.h>

enum { DEFAULT_CLASSES = 10 };

static int64_t integer_at(const rd_array *a, int64_t i)
{
    const char *p = a->data;
    union {
        int8_t i1;
        uint8_t u1;
        int16_t i2;
        uint16_t u2;
        int32_t i4;
        uint32_t u4;
        int64_t i8;
    } v;
    const size_t size = (size_t)(a->descr[2] - '0');
    memcpy(&v, p + (size_t)i * size, size);
    const bool is_signed = a->descr[1] == 'i';
    switch (size) {
    case 1:
        return is_signed ? v.i1 : v.u1;
    case 2:
        return is_signed ? v.i2 : v.u2;
    case 4:
        return is_signed ? v.i4 : (int64_t)v.u4;
    default:
        return v.i8;
    }
}

static const rd_array *npz_images_find(const rd_npz *z, const char *path, const char *name,
                                       rd_status *st)
{
    const rd_array *a = rd_npz_find(z, name);
    if (a) return a;
    rd_strbuf b = {0};
    for (int i = 0; i < rd_npz_n(z) && i < 8; i++)
        rd_strbuf_printf(&b, "%s%s", i ? ", " : "", rd_npz_at(z, i)->name);
    rd_fail(st, RD_EDATA, "'%s' has no array '%s'; it has: %s", path, name,
            b.n ? rd_strbuf_str(&b) : "nothing");
    rd_strbuf_release(&b);
    return NULL;
}

static rd_code npz_images_store(rd_images *m, const rd_npz *z, const char *path, rd_status *st)
{
    const bool train = rd_images_train_like(m);
    const rd_array *x = npz_images_find(z, path, train ? "x_train" : "x_test", st);
    const rd_array *y = x ? npz_images_find(z, path, train ? "y_train" : "y_test", st) : NULL;
    if (!x || !y) return st->code;
    if (strcmp(x->descr, "|u1") != 0 || (x->n_dim != 3 && x->n_dim != 4))
        return rd_fail(
            st, RD_EDATA,
            "'%s': '%s' has %d dimensions of type %s, but images are unsigned bytes (n, h, w) or "
            "(n, h, w, channels)",
            path, x->name, x->n_dim, x->descr);
    const int64_t c = x->n_dim == 4 ? x->dim[3] : 1;
    if ((y->descr[1] != 'i' && y->descr[1] != 'u') ||
        !(y->n_dim == 1 || (y->n_dim == 2 && y->dim[1] == 1)))
        return rd_fail(
            st, RD_EDATA,
            "'%s': '%s' has %d dimensions of type %s, but labels are integers, one per image", path,
            y->name, y->n_dim, y->descr);
    if (x->dim[0] != y->dim[0])
        return rd_fail(st, RD_EDATA, "'%s': %" PRId64 " images in '%s', %" PRId64 " labels in '%s'",
                       path, x->dim[0], x->name, y->dim[0], y->name);
    if (x->dim[0] < 1 || x->dim[1] < 1 || x->dim[2] < 1 || (c != 1 && c != 3))
        return rd_fail(st, RD_EDATA,
                       "'%s': %" PRId64 " images of %" PRId64 " x %" PRId64 " x %" PRId64, path,
                       x->dim[0], x->dim[1], x->dim[2], c);
    RD_TRY(rd_images_reserve(m, x->dim[0], x->dim[1], x->dim[2], c, st));
    memcpy(rd_images_pixels(m, 0), x->data, x->bytes);
    m->head.n_classes = m->config_classes > 0 ? m->config_classes - m->label_offset
                                              : DEFAULT_CLASSES;
    for (int64_t i = 0; i < x->dim[0]; i++)
        RD_TRY(rd_images_label(m, i, integer_at(y, i), m->head.n_classes, path, st));
done:
    return st->code;
}

static void npz_images_show(void *m, double done, double all)
{
    rd_images_read_part(m, done, all);
}

rd_code rd_npz_images_load(rd_images *m, const char *path, rd_status *st)
{
    rd_npz *z = NULL;
    rd_arrays_on_progress(npz_images_show, m);
    (void)rd_npz_new(path, &z, st);
    rd_arrays_on_progress(NULL, NULL);
    /* That reader takes any archive for a checkpoint. */
    if (st->code == RD_ECKPT) st->code = RD_EDATA;
    if (st->code == RD_OK) (void)npz_images_store(m, z, path, st);
    rd_npz_free(z);
    return st->code;
}

static rd_code npz_images_load(rd_images *m, rd_status *st)
{
    char path[RD_PATH_BYTES];
    const char *given = rd_images_given(m);
    struct stat sb;
    const bool file = !given && m->c.data_dir && stat(m->c.data_dir, &sb) == 0 &&
                      S_ISREG(sb.st_mode); /* data_dir is the .npz itself */
    RD_TRY(rd_images_path(m, given ? given : file ? "" : "mnist.npz", path, st));
    RD_TRY(rd_npz_images_load(m, path, st));
done:
    return st->code;
}

static const rd_images_kind npz_images = {
    .name = "npz_images",
    .load = npz_images_load,
    .fetcher = "; configs/get_mnist fetches MNIST for dataset idx, and Keras its own mnist.npz"};

RD_DATASET_IMAGES(npz_images,
                  "Keras' layout: an .npz with x_train, y_train, x_test, y_test, such as mnist.npz",
                  npz_images);
