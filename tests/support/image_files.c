/* image_files.c -- makes image data for tests; see image_files.h.
 *
 * Programs without cmocka use this file, too, so it checks with NEED instead of assertions. */
#include "image_files.h"
#include "rd/file.h"
#include "rd/strbuf.h"
#include <archive.h>
#include <archive_entry.h>
#include <ftw.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>

#define NEED(cond)                            \
    do {                                      \
        if (!(cond)) failed(__LINE__, #cond); \
    } while (0)

static void failed(int line, const char *what)
{
    fprintf(stderr, "tests/support/image_files.c:%d: not true: %s\n", line, what);
    abort();
}

void files_begin(char *out)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, 256, "%.200s/rd_test_XXXXXX", tmp ? tmp : "/tmp");
    NEED(mkdtemp(out));
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f)
{
    (void)s;
    (void)kind;
    (void)f;
    return remove(path);
}

void files_end(const char *dir)
{
    NEED(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

/* Global, because a set-up function of cmocka cannot return it in another way. */
static char folder[256];

int files_set_up(void **state)
{
    (void)state;
    files_begin(folder);
    return 0;
}

int files_tear_down(void **state)
{
    (void)state;
    files_end(folder);
    return 0;
}

const char *files_dir(void)
{
    return folder;
}

const char *files_at(const char *name)
{
    static char path[2][1024];
    static int k;
    k = !k;
    snprintf(path[k], sizeof path[k], "%s/%s", folder, name);
    return path[k];
}

void files_put(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    NEED(f);
    NEED(fwrite(p, 1, n, f) == n);
    NEED(fclose(f) == 0);
}

void files_put_gz(const char *path, const void *p, size_t n)
{
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    NEED(archive_write_set_format_raw(a) == ARCHIVE_OK);
    NEED(archive_write_add_filter_gzip(a) == ARCHIVE_OK);
    NEED(archive_write_open_filename(a, path) == ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_pathname(e, "data");
    NEED(archive_write_header(a, e) == ARCHIVE_OK);
    NEED(archive_write_data(a, p, n) == (la_ssize_t)n);
    NEED(archive_write_close(a) == ARCHIVE_OK);
    archive_entry_free(e);
    archive_write_free(a);
}

void files_mkdir(const char *path)
{
    NEED(mkdir(path, 0777) == 0);
}

char *files_get(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    NEED(f);
    NEED(fseek(f, 0, SEEK_END) == 0);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    NEED(p);
    NEED(fread(p, 1, *n, f) == *n);
    fclose(f);
    return p;
}

void picture(int h, int w, int c, unsigned seed, uint8_t *out)
{
    const double a = 0.05 + 0.02 * (seed % 7), b = 0.04 + 0.03 * (seed % 5);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < c; k++)
                *out++ = (uint8_t)(127.5 + 120.0 * sin(a * y + b * x * (k + 1) + seed));
}

size_t picture_jpeg(int h, int w, int c, unsigned seed, uint8_t **out)
{
    static const int formats[] = {0, TJPF_GRAY, 0, TJPF_RGB, TJPF_CMYK};
    uint8_t *px = malloc((size_t)h * (size_t)w * (size_t)c);
    unsigned char *jpeg = NULL;
    unsigned long n = 0;
    tjhandle t = tjInitCompress();
    NEED(px);
    NEED(t);
    picture(h, w, c, seed, px);
    NEED(tjCompress2(t, px, w, 0, h, formats[c], &jpeg, &n, c == 1 ? TJSAMP_GRAY : TJSAMP_420, 85,
                     0) == 0);
    tjDestroy(t);
    free(px);
    *out = malloc(n);
    NEED(*out);
    memcpy(*out, jpeg, n);
    tjFree(jpeg);
    return n;
}

struct tar_out {
    struct archive *a;
};

tar_out *tar_out_new(const char *path)
{
    tar_out *t = malloc(sizeof *t);
    const size_t n = strlen(path);
    NEED(t);
    t->a = archive_write_new();
    NEED(archive_write_set_format_ustar(t->a) == ARCHIVE_OK);
    if (n > 3 && strcmp(path + n - 3, ".gz") == 0)
        NEED(archive_write_add_filter_gzip(t->a) == ARCHIVE_OK);
    NEED(archive_write_open_filename(t->a, path) == ARCHIVE_OK);
    return t;
}

void tar_out_put(tar_out *t, const char *name, const void *p, size_t n)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    archive_entry_set_size(e, (la_int64_t)n);
    NEED(archive_write_header(t->a, e) == ARCHIVE_OK);
    if (n > 0) NEED(archive_write_data(t->a, p, n) == (la_ssize_t)n);
    archive_entry_free(e);
}

void tar_out_end(tar_out *t)
{
    NEED(archive_write_close(t->a) == ARCHIVE_OK);
    NEED(archive_write_free(t->a) == ARCHIVE_OK);
    free(t);
}

/* The group of all image datasets, and the groups that one of them alone reads. */
static int image_groups(const rd_option_group *out[32])
{
    int n = 0, n_defs = 0;
    const rd_dataset_def *const *defs = rd_dataset_defs(&n_defs);
    out[n++] = rd_dataset_find("idx")->group;
    for (int i = 0; i < n_defs && n < 32; i++)
        if (defs[i]->group == out[0] && defs[i]->own) out[n++] = defs[i]->own;
    return n;
}

rd_code images_open(const char *dataset, const char *dir, const char *config, rd_mode mode,
                    rd_split split, rd_comm *comm, rd_log *log, rd_dataset **d, rd_status *st)
{
    rd_strbuf b = {0};
    rd_config *c = NULL;
    const rd_option_group *groups[32];
    const int n = image_groups(groups);
    *d = NULL;
    for (const char *p = config; *p; p++) {
        if (*p == '@')
            rd_strbuf_puts(&b, dir);
        else
            rd_strbuf_add(&b, *p == '\'' ? "\"" : p, 1);
    }
    if (rd_config_new("test.json", rd_strbuf_str(&b), b.n, groups, n, false, &c, st) == RD_OK) {
        const rd_dataset_args a = {
            .config = c, .mode = mode, .split = split, .comm = comm, .log = log};
        (void)rd_dataset_new(dataset, &a, d, st);
    }
    rd_config_free(c); /* the dataset must not need it any longer */
    rd_strbuf_release(&b);
    return st->code;
}

rd_code images_all(const rd_dataset *d, int64_t batch, int64_t epoch, float **out, int64_t *n,
                   int32_t *labels, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    void *self = rd_dataset_self(d);
    rd_data_spec spec;
    rd_arena *a = NULL;
    def->spec(self, &spec);
    *n = def->count(self);
    const int64_t each = spec.image_h * spec.image_w * spec.image_c;
    int64_t *ids = malloc((size_t)(*n + batch) * sizeof *ids);
    *out = malloc((size_t)(*n * each + 1) * sizeof **out);
    NEED(ids);
    NEED(*out);
    NEED(rd_arena_new(1 << 20, &a, st) == RD_OK);
    for (int64_t i = 0; i < *n + batch; i++) ids[i] = i;
    for (int64_t at = 0; at < *n && st->code == RD_OK; at += batch) {
        const int64_t m = *n - at < batch ? *n - at : batch, left = *n - at - m;
        rd_batch b = {.epoch = epoch};
        if (def->fetch(self, ids + at, m, a, &b, st) != RD_OK) break;
        if (left > 0) def->prepare(self, ids + at + m, left < batch ? left : batch, epoch);
        const rd_field *x = rd_batch_field(&b, "image"), *y = rd_batch_field(&b, "label");
        NEED(x);
        NEED(y);
        NEED(b.n == m);
        NEED(b.epoch == epoch);
        NEED(x->dtype == RD_F32);
        NEED(y->dtype == RD_I32);
        NEED(x->n_dim == 3);
        NEED(x->dim[0] * x->dim[1] * x->dim[2] == each);
        for (int64_t i = 0; i <= m; i++) {
            NEED(x->off[i] == i * each);
            NEED(y->off[i] == i);
        }
        for (int64_t i = 0; i < m; i++) {
            NEED(b.sample[i] == at + i);
            NEED(((const int32_t *)y->data)[i] >= 0 &&
                 ((const int32_t *)y->data)[i] <= spec.n_classes - 1);
            if (labels) labels[at + i] = ((const int32_t *)y->data)[i];
        }
        memcpy(*out + at * each, x->data, (size_t)(m * each) * sizeof(float));
        rd_arena_reset(a);
    }
    rd_arena_free(a);
    free(ids);
    if (st->code != RD_OK) {
        free(*out);
        *out = NULL;
    }
    return st->code;
}
