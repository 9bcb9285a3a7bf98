/* npz_write.c -- writes a NumPy archive through libarchive: a zip file whose members are stored,
 * not compressed.
 *
 * Equal arrays give equal bytes: time 0, which the zip format clamps to 1980 in every time zone,
 * and user and group 0. libarchive gets the size before each member, so it writes 64-bit records
 * only if a member or the archive needs them. The data is read once, in pieces that stay in the
 * CPU's cache between this file's CRC32C and zip's CRC-32. */
#include "npz_impl.h"
#include <archive_entry.h>
#include <stdio.h>
#include <string.h>

/* A piece fits into the second-level cache of any CPU of the last ten years. */
static const size_t piece_bytes = (size_t)256 << 10;

const char *rd_archive_text(struct archive *a)
{
    const char *s = archive_error_string(a);
    return s ? s : "unknown reason";
}

static la_ssize_t on_write(struct archive *a, void *ctx, const void *p, size_t n)
{
    rd_npz_out *o = ctx;
    if (!o->st) return (la_ssize_t)n; /* released without commit: the rest is dropped */
    if (rd_tmpfile_write(&o->file, p, n, o->st) == RD_OK) return (la_ssize_t)n;
    archive_set_error(a, -1, "write failed"); /* o->st has the real message */
    return -1;
}

static rd_code zip_failed(rd_npz_out *o, rd_status *st)
{
    return rd_fail(st, RD_EENV, "cannot write '%s': libarchive: %s", o->file.path,
                   rd_archive_text(o->zip));
}

rd_code rd_npz_out_open(rd_npz_out *o, const char *path, rd_status *st)
{
    o->st = st;
    RD_TRY(rd_tmpfile_open(&o->file, path, st));
    o->zip = archive_write_new();
    if (!o->zip) return rd_fail(st, RD_EENV, "out of memory while opening '%s'", path);
    if (archive_write_set_format_zip(o->zip) != ARCHIVE_OK ||
        archive_write_set_options(o->zip, "zip:compression=store") != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(o->zip, 1 << 20) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(o->zip, 1) != ARCHIVE_OK ||
        archive_write_open(o->zip, o, NULL, on_write, NULL) != ARCHIVE_OK)
        zip_failed(o, st);
done:
    return st->code;
}

static rd_code member_begin(rd_npz_out *o, const char *name, const char *ending, size_t bytes,
                            rd_status *st)
{
    char full[256];
    for (const char *p = name; *p; p++)
        if (*p < 0x21 || *p > 0x7E)
            return rd_fail(st, RD_EBUG, "array name '%s' is not plain ASCII", name);
    if (!name[0] || name[0] == '/' || strstr(name, ".."))
        return rd_fail(st, RD_EBUG, "array name '%s' is not a relative path", name);
    snprintf(full, sizeof full, "%s%s", name, ending);

    struct archive_entry *e = archive_entry_new();
    if (!e) return rd_fail(st, RD_EENV, "out of memory while writing '%s'", o->file.path);
    archive_entry_set_pathname(e, full);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    archive_entry_set_size(e, (int64_t)bytes);
    archive_entry_set_mtime(e, 0, 0);
    archive_entry_set_uid(e, 0);
    archive_entry_set_gid(e, 0);
    if (archive_write_header(o->zip, e) != ARCHIVE_OK) zip_failed(o, st);
    archive_entry_free(e);
    return st->code;
}

static rd_code member_data(rd_npz_out *o, const void *p, size_t n, uint32_t *crc, rd_status *st)
{
    const char *at = p;
    for (size_t left = n; left > 0;) {
        const size_t k = left < piece_bytes ? left : piece_bytes;
        if (crc) *crc = rd_crc32c(*crc, at, k);
        if (archive_write_data(o->zip, at, k) != (la_ssize_t)k) return zip_failed(o, st);
        at += k;
        left -= k;
        rd_arrays_add(k);
    }
    return st->code;
}

static rd_code array_data(rd_npz_out *o, const rd_array *a, uint32_t *crc, rd_status *st)
{
    if (!a->read) return member_data(o, a->data, a->bytes, crc, st);
    for (size_t at = 0, n = 0; at < a->bytes; at += n) {
        const void *p;
        RD_TRY(a->read(a->ctx, at, &p, &n, st));
        rd_assert(n > 0 && n <= a->bytes - at);
        RD_TRY(member_data(o, p, n, crc, st));
    }
done:
    return st->code;
}

rd_code rd_npz_out_array(rd_npz_out *o, const rd_array *a, uint32_t *crc32c, rd_status *st)
{
    char head[RD_NPY_HEADER_MAX];
    size_t bytes;
    o->st = st;
    if (!memchr(a->descr, '\0', sizeof a->descr) || !memchr(a->name, '\0', sizeof a->name) ||
        !rd_npy_bytes(a, &bytes) || bytes != a->bytes)
        return rd_fail(st, RD_EBUG, "array '%.199s': its type, shape and %zu bytes do not match",
                       a->name, a->bytes);
    const size_t head_bytes = rd_npy_header(a, head);
    rd_assert(head_bytes <= sizeof head && head_bytes % 64 == 0);
    if (crc32c) *crc32c = 0;
    RD_TRY(member_begin(o, a->name, ".npy", head_bytes + bytes, st));
    RD_TRY(member_data(o, head, head_bytes, NULL, st));
    RD_TRY(array_data(o, a, crc32c, st));
    if (archive_write_finish_entry(o->zip) != ARCHIVE_OK) zip_failed(o, st);
done:
    return st->code;
}

rd_code rd_npz_out_text(rd_npz_out *o, const char *name, const char *text, rd_status *st)
{
    const size_t n = strlen(text);
    o->st = st;
    RD_TRY(member_begin(o, name, "", n, st));
    RD_TRY(member_data(o, text, n, NULL, st));
    if (archive_write_finish_entry(o->zip) != ARCHIVE_OK) zip_failed(o, st);
done:
    return st->code;
}

rd_code rd_npz_out_commit(rd_npz_out *o, rd_status *st)
{
    rd_assert(o->zip);
    o->st = st;
    if (archive_write_close(o->zip) != ARCHIVE_OK) return zip_failed(o, st);
    return rd_tmpfile_commit(&o->file, st);
}

void rd_npz_out_release(rd_npz_out *o)
{
    o->st = NULL;
    /* Closes an open archive. archive_write_fail would prevent that, but it leaks a block. */
    (void)archive_write_free(o->zip);
    o->zip = NULL;
    rd_tmpfile_release(&o->file);
}

rd_code rd_npz_write(const char *path, const rd_array *a, int n, const char *manifest,
                     rd_status *st)
{
    rd_npz_out o = {0};
    double all = 0.0;
    RD_TRY(rd_npz_out_open(&o, path, st));
    for (int i = 0; i < n; i++) all += (double)a[i].bytes;
    rd_arrays_begin(all);
    for (int i = 0; i < n; i++) RD_TRY(rd_npz_out_array(&o, &a[i], NULL, st));
    if (manifest) RD_TRY(rd_npz_out_text(&o, "manifest.json", manifest, st));
    RD_TRY(rd_npz_out_commit(&o, st));
done:
    rd_npz_out_release(&o);
    return st->code;
}
