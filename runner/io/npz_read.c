/* npz_read.c -- reads a whole NumPy archive and trusts none of its sizes.
 *
 * It follows only the central directory, as NumPy does. The sizes of all members together may be at
 * most `max_ratio` times the size of the file. A stored archive needs 1, a compressed archive of
 * real data less than 10, a zip bomb 1000 and more. libarchive checks the CRC-32 of a member at the
 * member's end. */
#include "npz_impl.h"
#include "rd/file.h"
#include "rd/input.h"
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { max_ratio = 20, data_align = 64 };

struct rd_npz {
    const rd_input *in; /* borrowed while it is read; NULL: in memory */
    rd_array *a;        /* [n], owned, and so is the data */
    int n, cap;
    rd_array **by_name; /* [n], owned; sorted by name */
};

void rd_npz_free(rd_npz *z)
{
    if (!z) return;
    for (int i = 0; i < z->n; i++) free((void *)(uintptr_t)z->a[i].data);
    free(z->a);
    free(z->by_name);
    free(z);
}

int rd_npz_n(const rd_npz *z)
{
    return z->n;
}

const rd_array *rd_npz_at(const rd_npz *z, int i)
{
    return i >= 0 && i < z->n ? &z->a[i] : NULL;
}

const rd_array *rd_npz_find(const rd_npz *z, const char *name)
{
    int lo = 0, hi = z->n;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2, c = strcmp(name, z->by_name[mid]->name);
        if (c == 0) return z->by_name[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(rd_array *const *)a)->name, (*(rd_array *const *)b)->name);
}

/* Builds the index by name. A name that is there twice is an error. */
static rd_code npz_index_names(rd_npz *z, rd_status *st)
{
    z->by_name = malloc(sizeof *z->by_name * (size_t)(z->n + 1));
    if (!z->by_name)
        return rd_fail(st, RD_EENV, "out of memory while reading an archive of %d arrays", z->n);
    for (int i = 0; i < z->n; i++) z->by_name[i] = &z->a[i];
    qsort(z->by_name, (size_t)z->n, sizeof *z->by_name, compare_names);
    for (int i = 1; i < z->n; i++)
        if (strcmp(z->by_name[i - 1]->name, z->by_name[i]->name) == 0)
            return rd_fail(st, RD_ECKPT, "the archive holds '%s' twice", z->by_name[i]->name);
    return st->code;
}

/* Reads exactly n bytes of the present member. */
static rd_code member_read(struct archive *zip, void *p, size_t n, rd_status *st)
{
    char *at = p;
    while (n > 0) {
        const la_ssize_t k = archive_read_data(zip, at, n);
        if (k < 0) return rd_fail(st, RD_ECKPT, "the archive is damaged: %s", rd_archive_text(zip));
        if (k == 0) return rd_fail(st, RD_ECKPT, "the archive's member ends early");
        at += k;
        n -= (size_t)k;
    }
    return st->code;
}

/* Reads one byte more. There must be none, and libarchive compares the CRC-32 only now. */
static rd_code member_end(struct archive *zip, rd_status *st)
{
    char extra;
    const la_ssize_t k = archive_read_data(zip, &extra, 1);
    if (k < 0) return rd_fail(st, RD_ECKPT, "the archive is damaged: %s", rd_archive_text(zip));
    if (k > 0) return rd_fail(st, RD_ECKPT, "the archive's member is longer than its size says");
    return st->code;
}

/* Reads the NPY header of the present member, which has `size` bytes. The rest must
 * be the array's data. */
static rd_code read_header(struct archive *zip, size_t size, rd_array *a, rd_status *st)
{
    unsigned char prefix[12];
    char *head = NULL;
    if (size < 12) return rd_fail(st, RD_ECKPT, "the member is too short for an array");
    RD_TRY(member_read(zip, prefix, 10, st));
    const size_t prefix_bytes = rd_npy_prefix(prefix);
    if (prefix_bytes == 0)
        return rd_fail(st, RD_ECKPT, "the member is not an NPY array of version 1, 2 or 3");
    size_t head_bytes = prefix[8] | (size_t)prefix[9] << 8;
    if (prefix_bytes == 12) {
        RD_TRY(member_read(zip, prefix + 10, 2, st));
        head_bytes |= (size_t)prefix[10] << 16 | (size_t)prefix[11] << 24;
    }
    if (head_bytes > RD_NPY_READ_MAX || head_bytes > size - prefix_bytes)
        return rd_fail(st, RD_ECKPT, "the array's header claims %zu bytes", head_bytes);
    head = malloc(head_bytes + 1);
    if (!head) return rd_fail(st, RD_EENV, "out of memory while reading an array's header");
    RD_TRY(member_read(zip, head, head_bytes, st));
    RD_TRY(rd_npy_parse(head, head_bytes, a, st));
    if (a->bytes != size - prefix_bytes - head_bytes)
        rd_fail(st, RD_ECKPT, "the array's shape needs %zu bytes, the member holds %zu", a->bytes,
                size - prefix_bytes - head_bytes);
done:
    free(head);
    return st->code;
}

static rd_code npz_read_member(rd_npz *z, struct archive *zip, const char *path, size_t size,
                               rd_status *st)
{
    if (z->n == z->cap) {
        const int cap = z->cap ? 2 * z->cap : 32;
        rd_array *more = realloc(z->a, sizeof *more * (size_t)cap);
        if (!more)
            return rd_fail(st, RD_EENV,
                           "out of memory while reading an archive of more than %d arrays", z->n);
        z->a = more;
        z->cap = cap;
    }
    rd_array *a = &z->a[z->n];
    memset(a, 0, sizeof *a);
    size_t n = strlen(path);
    const bool npy = n > 4 && strcmp(path + n - 4, ".npy") == 0;
    if (npy) n -= 4;
    if (n == 0 || n >= sizeof a->name)
        return rd_fail(st, RD_ECKPT, "the member's name has %zu bytes", n);
    memcpy(a->name, path, n);
    if (npy) {
        RD_TRY(read_header(zip, size, a, st));
    } else {
        memcpy(a->descr, "|u1", 4);
        a->n_dim = 1;
        a->dim[0] = (int64_t)size;
        a->bytes = size;
    }
    /* One byte of slack: members with text can be read as strings, and an empty
     * array still gets a block. */
    char *data = aligned_alloc(data_align, (a->bytes + data_align) / data_align * data_align);
    if (!data) return rd_fail(st, RD_EENV, "out of memory: %zu bytes for an array", a->bytes);
    rd_assert(z->n < z->cap);
    a->data = data;
    z->n++;
    for (size_t at = 0; at < a->bytes;) {
        const size_t k = a->bytes - at < RD_ARRAY_PART ? a->bytes - at : RD_ARRAY_PART;
        RD_TRY(member_read(zip, data + at, k, st));
        if (z->in) rd_arrays_at((double)rd_input_at(z->in));
        at += k;
    }
    data[a->bytes] = '\0';
    RD_TRY(member_end(zip, st));
done:
    return st->code;
}

/* Fails for a file that is not a zip archive. libarchive 3.6 also rejects an
 * archive without members. */
static rd_code npz_not_a_zip(struct archive *zip, rd_status *st)
{
    return rd_fail(st, RD_ECKPT, "not a whole zip archive (%s); it may be cut short",
                   rd_archive_text(zip));
}

static rd_code npz_read_members(rd_npz *z, struct archive *zip, size_t file_bytes, rd_status *st)
{
    /* The constant admits a tiny compressed file of zeros. */
    const uint64_t limit = (uint64_t)file_bytes * max_ratio + (1 << 20);
    uint64_t total = 0;
    rd_arrays_begin((double)file_bytes);
    for (;;) {
        struct archive_entry *e;
        const int rc = archive_read_next_header(zip, &e);
        if (rc == ARCHIVE_EOF) break;
        if (rc != ARCHIVE_OK) return npz_not_a_zip(zip, st);
        const char *path = archive_entry_pathname(e);
        if (!path) path = archive_entry_pathname_utf8(e);
        if (!path)
            return rd_fail(st, RD_ECKPT, "the archive has a member whose name cannot be read");
        if (archive_entry_filetype(e) == AE_IFDIR) continue;
        if (archive_entry_filetype(e) != AE_IFREG || !archive_entry_size_is_set(e) ||
            archive_entry_size(e) < 0)
            return rd_fail(st, RD_ECKPT, "member '%s' is not a plain file", path);
        const uint64_t size = (uint64_t)archive_entry_size(e);
        if (size > limit - total)
            return rd_fail(st, RD_ECKPT, "member '%s' claims %" PRIu64 " bytes in a file of %zu",
                           path, size, file_bytes);
        total += size;
        rd_assert(total <= limit);
        char name[256]; /* libarchive's string may move while data is read */
        snprintf(name, sizeof name, "%s", path);
        if (strlen(path) >= sizeof name)
            return rd_fail(st, RD_ECKPT, "the name of member '%s...' is too long", name);
        if (npz_read_member(z, zip, name, (size_t)size, st) != RD_OK) {
            rd_status_prefix(st, "member '%s'", name);
            return st->code;
        }
    }
    return npz_index_names(z, st);
}

static struct archive *npz_reader_new(void)
{
    struct archive *zip = archive_read_new();
    if (zip && archive_read_support_format_zip_seekable(zip) != ARCHIVE_OK) {
        (void)archive_read_free(zip);
        zip = NULL;
    }
    return zip;
}

rd_code rd_npz_new_mem(const void *p, size_t n, rd_npz **out, rd_status *st)
{
    *out = NULL;
    rd_npz *z = calloc(1, sizeof *z);
    struct archive *zip = npz_reader_new();
    if (!z || !zip) {
        rd_fail(st, RD_EENV, "out of memory while reading an archive");
    } else if (archive_read_open_memory(zip, p, n) != ARCHIVE_OK) {
        npz_not_a_zip(zip, st);
    } else if (npz_read_members(z, zip, n, st) == RD_OK) {
        *out = z;
        z = NULL;
    }
    (void)archive_read_free(zip);
    rd_npz_free(z);
    return st->code;
}

/* Fails because reading an archive ended with `why`. If the machine had a fault, the status is that
 * fault, and no older checkpoint is tried. libarchive only reports damage. */
static rd_code npz_failed(const char *path, const rd_input *in, struct archive *zip,
                          const rd_status *why, rd_status *st)
{
    if (rd_input_error(in))
        return rd_input_fails(st, RD_ECKPT, "read", path, rd_input_error(in), NULL);
    if (why->code == RD_ECKPT && zip && archive_errno(zip) == ENOMEM)
        return rd_fail(st, RD_EENV, "out of memory while reading '%s'", path);
    if (st->code == RD_OK) {
        *st = *why;
        rd_status_prefix(st, "'%s'", path);
    }
    return st->code;
}

rd_code rd_npz_new(const char *path, rd_npz **out, rd_status *st)
{
    rd_npz *z = NULL;
    struct archive *zip = NULL;
    rd_status own = {0};
    const char *kind;
    *out = NULL;
    /* A file that exists and cannot be opened is a fault of the machine. No older checkpoint is
     * tried then. */
    rd_input *in = rd_input_open(path, RD_MAYBE, &kind);
    if (!in) return rd_input_not_open(st, RD_ECKPT, path, kind, errno, NULL);
    const struct stat *sb = rd_input_stat(in);
    z = calloc(1, sizeof *z);
    zip = npz_reader_new();
    if (!z || !zip)
        rd_fail(&own, RD_EENV, "out of memory while reading an archive");
    else if (rd_input_archive(in, zip) != ARCHIVE_OK)
        npz_not_a_zip(zip, &own);
    else {
        z->in = in;
        if (npz_read_members(z, zip, (size_t)sb->st_size, &own) == RD_OK) {
            z->in = NULL;
            *out = z;
            z = NULL;
        }
    }
    if (own.code != RD_OK) npz_failed(path, in, zip, &own, st);
    (void)archive_read_free(zip);
    rd_npz_free(z);
    rd_input_close(in);
    return st->code;
}
