/* cifar.c -- CIFAR-10 and CIFAR-100 in their binary form.
 *
 * A record is a label (CIFAR-100: coarse, then fine) and 1,024 red, green and blue bytes each.
 * Records are read from the folder, or once from the .tar.gz, and kept as pixels of three bytes.
 * The names of the files say which of the two it is: data_batch_1.bin or train.bin. n_classes 20
 * selects the coarse labels of CIFAR-100. */
#include "../images_impl.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, MAX_FILES = 64, FILE_MAX = 1 << 29 };

/* One .bin file in memory. */
typedef struct cifar_file {
    int order; /* of its records: data_batch_1 comes before data_batch_2 */
    char name[256];
    uint8_t *p;
    size_t n;
} cifar_file;

typedef struct cifar_files {
    rd_images *m;
    const char *from; /* folder or archive */
    rd_tar *archive;  /* NULL: a folder */
    double read, all; /* bytes of the folder's files */
    int n;            /* number of files */
    int n_fine;       /* 10 or 100 classes; 0: not yet known */
    cifar_file file[MAX_FILES];
    char *names; /* text of the file with the names of the classes; owned */
} cifar_files;

static void cifar_release(cifar_files *x)
{
    for (int k = 0; k < x->n; k++) free(x->file[k].p);
    free(x->names);
}

/* What a file is, by its name. */
typedef struct role {
    int n_fine;
    int order; /* as in cifar_file; -1: names of classes */
} role;

static bool find_role(const cifar_files *x, const char *path, role *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const bool train = rd_images_train_like(x->m),
               coarse = x->m->config_classes - x->m->label_offset == 20;
    int k = 0, end = 0;
    *out = (role){0, 0};
    if (train && sscanf(name, "data_batch_%4d.bin%n", &k, &end) == 1 && end == (int)strlen(name))
        *out = (role){10, k};
    else if (strcmp(name, "test_batch.bin") == 0 && !train)
        *out = (role){10, 0};
    else if (strcmp(name, train ? "train.bin" : "test.bin") == 0)
        *out = (role){100, 0};
    else if (strcmp(name, "batches.meta.txt") == 0)
        *out = (role){10, -1};
    else if (strcmp(name, coarse ? "coarse_label_names.txt" : "fine_label_names.txt") == 0)
        *out = (role){100, -1};
    return out->n_fine > 0;
}

/* Adds a file of n bytes, or the names; *p is the memory for its bytes. */
static rd_code cifar_add_file(cifar_files *x, const role *r, const char *name, size_t n,
                              uint8_t **p, rd_status *st)
{
    if (x->n_fine && x->n_fine != r->n_fine)
        return rd_fail(
            st, RD_EDATA,
            "'%s' holds both CIFAR-10 and CIFAR-100; set data_dir to the folder or archive of one",
            x->from);
    if (n > FILE_MAX || x->n == MAX_FILES)
        return rd_fail(st, RD_EDATA,
                       "'%s': '%s' is too large (%zu bytes), or there are more than %d such files",
                       x->from, name, n, MAX_FILES);
    *p = malloc(n + 1);
    if (!*p) return rd_fail(st, RD_EENV, "out of memory for %zu bytes of '%s'", n, name);
    (*p)[n] = 0;
    x->n_fine = r->n_fine;
    if (r->order < 0) {
        free(x->names);
        x->names = (char *)*p;
        return RD_OK;
    }
    cifar_file *t = &x->file[x->n++];
    *t = (cifar_file){.order = r->order, .p = *p, .n = n};
    snprintf(t->name, sizeof t->name, "%s", name);
    return RD_OK;
}

static void cifar_show_archive(void *ctx)
{
    cifar_files *x = ctx;
    rd_images_read_part(x->m, rd_tar_share(x->archive), 1.0);
}

static rd_code read_archive(cifar_files *x, rd_status *st)
{
    rd_tar *t = x->archive;
    rd_tar_member e;
    rd_tar_on_part(t, cifar_show_archive, x);
    for (;;) {
        role r;
        uint8_t *p = NULL;
        RD_TRY(rd_tar_next(t, &e, st));
        if (!e.name) break;
        if (!find_role(x, e.name, &r)) continue;
        RD_TRY(cifar_add_file(x, &r, e.name, (size_t)e.bytes, &p, st));
        RD_TRY(rd_tar_read(t, &e, p, st));
    }
done:
    return st->code;
}

/* Reads n bytes of a file of the folder. */
static rd_code cifar_read_bytes(cifar_files *x, rd_stream *s, const char *path, uint8_t *p,
                                size_t n, rd_status *st)
{
    size_t got = 0;
    for (size_t at = 0; at < n; at += got) {
        const size_t k = n - at < RD_PART_BYTES ? n - at : RD_PART_BYTES;
        RD_TRY(rd_stream_read(s, p + at, k, &got, st));
        if (got < k) return rd_fail(st, RD_EDATA, "'%s' became shorter while it was read", path);
        x->read += (double)k;
        rd_images_read_part(x->m, x->read, x->all);
    }
done:
    return st->code;
}

static rd_code cifar_read_file(cifar_files *x, const char *name, const role *r, rd_status *st)
{
    char path[RD_PATH_BYTES];
    struct stat sb;
    rd_stream *s = NULL;
    uint8_t *p = NULL;
    const int k = snprintf(path, sizeof path, "%s/%s", x->from, name);
    if (k >= (int)sizeof path) return RD_OK;
    if (rd_path_stat(path, &sb, RD_MAYBE) != 0) /* the caller tries other names */
        return rd_fault_code(errno, RD_OK) == RD_OK
                   ? RD_OK
                   : rd_input_fails(st, RD_EDATA, "open", path, errno, NULL);
    RD_TRY(rd_stream_new(path, &s, st));
    RD_TRY(cifar_add_file(x, r, name, (size_t)sb.st_size, &p, st));
    (void)cifar_read_bytes(x, s, path, p, (size_t)sb.st_size, st);
done:
    rd_stream_free(s);
    return st->code;
}

/* Returns the bytes of a file of the folder; 0: it is not there. */
static double cifar_size(const cifar_files *x, const char *name)
{
    char path[RD_PATH_BYTES];
    struct stat sb;
    const int k = snprintf(path, sizeof path, "%s/%s", x->from, name);
    return k < (int)sizeof path && stat(path, &sb) == 0 ? (double)sb.st_size : 0.0;
}

static rd_code read_folder(cifar_files *x, rd_status *st)
{
    static const char *const fixed[] = {"test_batch.bin",
                                        "train.bin",
                                        "test.bin",
                                        "batches.meta.txt",
                                        "fine_label_names.txt",
                                        "coarse_label_names.txt"};
    enum { BATCHES = 10, FIXED = sizeof fixed / sizeof fixed[0] };
    role r;
    char name[BATCHES + FIXED][32];
    for (int k = 0; k < BATCHES + FIXED; k++) {
        if (k < BATCHES)
            snprintf(name[k], sizeof name[k], "data_batch_%d.bin", k);
        else
            snprintf(name[k], sizeof name[k], "%s", fixed[k - BATCHES]);
        if (find_role(x, name[k], &r)) x->all += cifar_size(x, name[k]);
    }
    for (int k = 0; k < BATCHES + FIXED; k++)
        if (find_role(x, name[k], &r)) RD_TRY(cifar_read_file(x, name[k], &r, st));
done:
    return st->code;
}

/* Finds the folder or archive below data_dir, or of the key of the split. */
static rd_code find_source(const rd_images *m, char out[RD_PATH_BYTES], bool *archive,
                           rd_status *st)
{
    static const char *const known[2][4] = {
        {"", "cifar-10-batches-bin", "cifar-10-binary.tar.gz", "cifar-10-binary.tar"},
        {"", "cifar-100-binary", "cifar-100-binary.tar.gz", "cifar-100-binary.tar"}};
    static const char *const first[2][2] = {{"test_batch.bin", "data_batch_1.bin"},
                                            {"test.bin", "train.bin"}};
    const int64_t own_classes = m->config_classes - m->label_offset;
    const bool hundred = own_classes == 100 || own_classes == 20;
    const char *given = rd_images_given(m);
    char base[RD_PATH_BYTES], probe[RD_PATH_BYTES + 64];
    struct stat sb;
    RD_TRY(rd_images_path(m, given ? given : "", base, st));
    if (rd_path_stat(base, &sb, RD_MAYBE) != 0)
        return errno == ENOENT
                   ? rd_fail(st, RD_EDATA, "there is no '%s'; check data_dir%s", base,
                             rd_images_fetcher(m))
                   : rd_input_fails(st, RD_EDATA, "open", base, errno, "check data_dir");
    *archive = !S_ISDIR(sb.st_mode);
    if (*archive) {
        memcpy(out, base, sizeof base);
        return RD_OK;
    }
    for (int which = 0; which < 2; which++) {
        const int set = which ^ hundred;
        if (m->config_classes > 0 && which == 1) break; /* n_classes decides */
        for (int k = 0; k < 4; k++) {
            if (snprintf(out, RD_PATH_BYTES, known[set][k][0] ? "%s/%s" : "%s%s", base,
                         known[set][k]) >= RD_PATH_BYTES)
                continue;
            *archive = k >= 2;
            snprintf(probe, sizeof probe, *archive ? "%s" : "%s/%s", out,
                     first[set][rd_images_train_like(m)]);
            bool there;
            RD_TRY(rd_path_there(probe, &there, st));
            if (there) return RD_OK;
        }
    }
    return rd_fail(st, RD_EDATA,
                   "'%s' has neither the files of CIFAR (data_batch_1.bin, test_batch.bin; "
                   "train.bin, test.bin), nor "
                   "cifar-10-batches-bin, cifar-10-binary.tar.gz or the like; check data_dir%s%s",
                   base, m->config_classes > 0 ? " and n_classes" : "", rd_images_fetcher(m));
done:
    return st->code;
}

static rd_code store_records(rd_images *m, const uint8_t *p, size_t n, const char *name, int n_fine,
                             bool coarse, int64_t first, rd_status *st)
{
    const size_t n_labels = n_fine == 100 ? 2 : 1, record = n_labels + 3 * PLANE;
    const int64_t n_classes = coarse ? 20 : n_fine;
    for (size_t i = 0; i < n / record; i++, p += record) {
        const int64_t at = first + (int64_t)i;
        uint8_t *out = rd_images_pixels(m, at);
        RD_TRY(rd_images_label(m, at, p[coarse ? 0 : n_labels - 1], n_classes, name, st));
        for (int k = 0; k < PLANE; k++, out += 3) {
            out[0] = p[n_labels + (size_t)k];
            out[1] = p[n_labels + PLANE + (size_t)k];
            out[2] = p[n_labels + 2 * PLANE + (size_t)k];
        }
    }
done:
    return st->code;
}

static int by_order(const void *a, const void *b)
{
    return ((const cifar_file *)a)->order - ((const cifar_file *)b)->order;
}

/* Adds the names of the classes, if their number is right. */
static rd_code add_names(rd_images *m, char *text, int64_t n_classes, rd_status *st)
{
    char *line[100], *at = text;
    int64_t n = 0;
    for (char *l; at && (l = strsep(&at, "\n"));) {
        size_t k = strlen(l);
        while (k > 0 && isspace((unsigned char)l[k - 1])) l[--k] = '\0';
        if (k == 0) continue;
        if (n == 100) return RD_OK;
        line[n++] = l;
    }
    if (n != n_classes) return RD_OK;
    m->head.n_classes = 0;
    for (int64_t i = 0; i < n; i++) RD_TRY(rd_images_add_class(m, line[i], st));
done:
    return st->code;
}

static rd_code store_files(rd_images *m, cifar_files *x, rd_status *st)
{
    if (x->n == 0)
        return rd_fail(st, RD_EDATA, "'%s' has no %s", x->from,
                       rd_images_train_like(m)
                           ? "data_batch_1.bin ... of CIFAR-10, nor train.bin of CIFAR-100"
                           : "test_batch.bin of CIFAR-10, nor test.bin of CIFAR-100");
    const size_t record = (x->n_fine == 100 ? 2 : 1) + 3 * PLANE;
    const bool coarse = x->n_fine == 100 && m->config_classes - m->label_offset == 20;
    int64_t n = 0;
    qsort(x->file, (size_t)x->n, sizeof *x->file, by_order);
    for (int k = 0; k < x->n; k++) {
        if (x->file[k].n == 0 || x->file[k].n % record != 0)
            return rd_fail(st, RD_EDATA,
                           "'%s': '%s' has %zu bytes, not a multiple of the %zu of a record; it is "
                           "cut short or not a CIFAR-%d file",
                           x->from, x->file[k].name, x->file[k].n, record, x->n_fine);
        n += (int64_t)(x->file[k].n / record);
    }
    RD_TRY(rd_images_reserve(m, n, SIDE, SIDE, 3, st));
    m->head.n_classes = coarse ? 20 : x->n_fine;
    if (x->names) RD_TRY(add_names(m, x->names, m->head.n_classes, st));
    n = 0;
    for (int k = 0; k < x->n; k++) {
        RD_TRY(store_records(m, x->file[k].p, x->file[k].n, x->file[k].name, x->n_fine, coarse, n,
                             st));
        n += (int64_t)(x->file[k].n / record);
    }
done:
    return st->code;
}

rd_code rd_cifar_load(rd_images *m, rd_tar *archive, const char *from, rd_status *st)
{
    cifar_files *x = calloc(1, sizeof *x);
    if (!x) return rd_fail(st, RD_EENV, "out of memory");
    x->m = m;
    x->from = from;
    x->archive = archive;
    RD_TRY(archive ? read_archive(x, st) : read_folder(x, st));
    RD_TRY(store_files(m, x, st));
done:
    cifar_release(x);
    free(x);
    return st->code;
}

static rd_code cifar_load(rd_images *m, rd_status *st)
{
    char from[RD_PATH_BYTES];
    bool archive = false;
    rd_tar *t = NULL;
    RD_TRY(find_source(m, from, &archive, st));
    if (archive) RD_TRY(rd_tar_new(from, &t, st));
    RD_TRY(rd_cifar_load(m, t, from, st));
done:
    rd_tar_free(t);
    return st->code;
}

static const rd_images_kind cifar = {
    .name = "cifar", .load = cifar_load, .fetcher = "; configs/get_cifar10 fetches CIFAR-10"};

RD_DATASET_IMAGES(
    cifar, "CIFAR-10 or CIFAR-100, binary form: the folder, or the .tar.gz as it comes", cifar);
