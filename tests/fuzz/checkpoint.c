/* checkpoint.c -- fuzz target: reads any bytes as the files of a log folder, loads the newest
 * checkpoint and opens metrics.jsonl.
 *
 * A line "@name" begins a file. "@>name" is a link to what its content says, "@/name" a folder.
 * "@name!K" has bit K flipped, "@name~K" only its first K bytes. A file NAME.npz is the archive
 * that its content describes, unless it begins with PK: lines "array type dim,dim", a blank line,
 * and the manifest. In it $A stands for the list of the arrays with the right checksums.
 *
 * The checkpoint must be the one that a second look at all files finds, its progress must be in
 * range, and its arrays must have their checksums. The order of an epoch must exist for each
 * progress. Opening metrics.jsonl twice must not change it. */
#include "../../runner/io/npz_impl.h"
#include "fuzz_files.h"
#include "rd/checkpoint.h"
#include "rd/data.h"
#include "rd/records.h"
#include "rd/strbuf.h"
#include <archive_entry.h>
#include <inttypes.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_FILES = 12, MOST_ARRAYS = 8, NAME = 80, ARRAY_BYTES = 512, ROOM = 1 << 16 };

/* ---- the folder ---- */

/* Appends a member. Returns false if libarchive refuses it. */
static bool add_member(struct archive *zip, const char *name, const void *head, size_t n_head,
                       const void *p, size_t n)
{
    struct archive_entry *e = archive_entry_new();
    must(e != NULL);
    archive_entry_set_pathname(e, name);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_size(e, (int64_t)(n_head + n));
    const bool ok = archive_write_header(zip, e) == ARCHIVE_OK;
    if (ok && n_head > 0) (void)archive_write_data(zip, head, n_head);
    if (ok && n > 0) (void)archive_write_data(zip, p, n);
    archive_entry_free(e);
    return ok;
}

/* Reads "name type dim,dim". The data are bytes that depend on the name. */
static bool read_array(const char *line, size_t n, rd_array *a, uint8_t data[ARRAY_BYTES])
{
    char text[NAME + 1], dims[NAME + 1] = "";
    (void)snprintf(text, sizeof text, "%.*s", n < NAME ? (int)n : NAME, line);
    *a = (rd_array){.data = data};
    if (sscanf(text, "%60s %7s %80s", a->name, a->descr, dims) < 2) return false;
    for (char *p = dims, *end; *p && a->n_dim < RD_NPY_MAX_DIM; p = end + (*end == ',')) {
        a->dim[a->n_dim++] = strtoll(p, &end, 10);
        if (end == p) return false;
    }
    if (!rd_npy_bytes(a, &a->bytes) || a->bytes > ARRAY_BYTES) return false;
    for (size_t i = 0; i < a->bytes; i++) data[i] = (uint8_t)(i + (uint8_t)a->name[0]);
    return true;
}

static void add_entry(rd_strbuf *list, const rd_array *a)
{
    json_t *shape = json_array();
    char hex[16];
    (void)snprintf(hex, sizeof hex, "%08" PRIx32, rd_crc32c_table(0, a->data, a->bytes));
    for (int d = 0; d < a->n_dim; d++) (void)json_array_append_new(shape, json_integer(a->dim[d]));
    json_t *entry = json_pack("{s:s, s:o, s:s, s:s}", "name", a->name, "shape", shape, "dtype",
                              a->descr, "crc32c", hex);
    char *text = entry ? json_dumps(entry, JSON_COMPACT) : NULL; /* NULL: no UTF-8 */
    if (text) rd_strbuf_printf(list, "%s%s", list->n ? "," : "", text);
    free(text);
    json_decref(entry);
}

/* Makes the archive that a text describes. Returns its size. */
static size_t make_archive(const char *p, size_t n, uint8_t *out)
{
    struct archive *zip = archive_write_new();
    rd_strbuf list = {0}, manifest = {0};
    size_t used = 0;
    const char *end = p + n;
    must(zip && archive_write_set_format_zip(zip) == ARCHIVE_OK &&
         archive_write_set_options(zip, "zip:compression=store") == ARCHIVE_OK &&
         archive_write_set_bytes_in_last_block(zip, 1) == ARCHIVE_OK &&
         archive_write_open_memory(zip, out, ROOM, &used) == ARCHIVE_OK);
    for (int k = 0; k < MOST_ARRAYS && p < end && *p != '\n'; k++) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        const size_t line = (size_t)((lf ? lf : end) - p);
        uint8_t data[ARRAY_BYTES];
        char head[RD_NPY_HEADER_MAX], name[sizeof(rd_array) + 8];
        rd_array a;
        if (read_array(p, line, &a, data)) {
            (void)snprintf(name, sizeof name, "%s.npy", a.name);
            if (add_member(zip, name, head, rd_npy_header(&a, head), data, a.bytes))
                add_entry(&list, &a);
        }
        p += line + (lf != NULL);
    }
    p += p < end && *p == '\n';
    for (; p < end; p++) {
        if (*p == '$' && end - p > 1 && p[1] == 'A') {
            rd_strbuf_add(&manifest, rd_strbuf_str(&list), list.n);
            p++;
        } else {
            rd_strbuf_add(&manifest, p, 1);
        }
        if (manifest.n > ROOM / 4) break;
    }
    (void)add_member(zip, "manifest.json", NULL, 0, rd_strbuf_str(&manifest), manifest.n);
    (void)archive_write_close(zip);
    (void)archive_write_free(zip);
    rd_strbuf_release(&list);
    rd_strbuf_release(&manifest);
    return used;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

/* Adds one entry of the folder. head: its name with what belongs to it. */
static void put_entry(const char *folder, const char *head, const char *p, size_t n)
{
    static uint8_t room[ROOM];
    char name[NAME + 1], path[NAME + FUZZ_PATH + 2];
    const char kind = *head == '>' || *head == '/' ? *head++ : '\0';
    const char *change = head + strcspn(head, "!~");
    (void)snprintf(name, sizeof name, "%.*s", (int)(change - head), head);
    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (kind == '/') {
        (void)mkdir(path, 0700);
        return;
    }
    if (kind == '>') {
        char to[NAME + 1];
        (void)snprintf(to, sizeof to, "%.*s", (int)(n < NAME ? strcspn(p, "\n/") : 1), p);
        (void)symlink(to, path);
        return;
    }
    if (ends_with(name, ".npz") && !(n >= 2 && memcmp(p, "PK", 2) == 0)) {
        n = make_archive(p, n, room);
    } else {
        n = n < ROOM ? n : ROOM;
        memcpy(room, p, n);
    }
    const size_t k = *change ? strtoul(change + 1, NULL, 10) : 0;
    if (*change == '~' && k < n) n = k;
    if (*change == '!' && n > 0) room[k / 8 % n] ^= (uint8_t)(1 << k % 8);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return; /* a folder or a link has the name */
    must(write(fd, room, n) == (ssize_t)n);
    (void)close(fd);
}

/* text ends with '\0'. */
static void fill_folder(const char *folder, const char *text, size_t size)
{
    const char *end = text + size;
    for (int k = 0; k < MOST_FILES && text < end && *text == '@'; k++) {
        char head[NAME + 1] = "";
        const char *lf = memchr(text, '\n', (size_t)(end - text)), *body = lf ? lf + 1 : end,
                   *next = body;
        const size_t n = (size_t)((lf ? lf : end) - text) - 1;
        while (next < end && !(*next == '@' && (next == body || next[-1] == '\n'))) next++;
        for (size_t i = 0; i < n && i < NAME; i++)
            head[i] = text[1 + i] && (text[1 + i] != '/' || i == 0) ? text[1 + i] : '_';
        put_entry(folder, head, body, (size_t)(next - body));
        text = next;
    }
}

/* ---- what must hold ---- */

static json_int_t number_of(const json_t *m, const char *key)
{
    const json_t *inner = json_object_get(m, "meta");
    return json_integer_value(json_object_get(json_is_object(inner) ? inner : m, key));
}

static void check_arrays(const rd_ckpt *c)
{
    const json_t *arrays = json_object_get(c->meta, "arrays");
    must(c->step >= 0 && (int)json_array_size(arrays) + 1 == rd_npz_n(c->npz));
    for (size_t i = 0; i < json_array_size(arrays); i++) {
        const json_t *e = json_array_get(arrays, i);
        const rd_array *a = rd_npz_find(c->npz, json_string_value(json_object_get(e, "name")));
        char hex[16];
        must(a != NULL);
        (void)snprintf(hex, sizeof hex, "%08" PRIx32, rd_crc32c_table(0, a->data, a->bytes));
        must(strcmp(hex, json_string_value(json_object_get(e, "crc32c"))) == 0);
    }
}

/* Makes the order of the epoch at which the run would go on. */
static void check_epoch(const rd_ckpt *c)
{
    static const char config[] = "{\"synthetic_samples\": 30000, \"image_size\": 1}";
    static rd_dataset *d;
    rd_status st = {0};
    if (!d) {
        rd_config *read = NULL;
        const rd_dataset_def *def = rd_dataset_find("synthetic_images");
        const rd_option_group *groups[] = {def->group, def->own};
        must(rd_config_new("c", config, sizeof config - 1, groups, 2, false, &read, &st) == RD_OK);
        const rd_dataset_args a = {.config = read, .mode = RD_MODE_TRAIN};
        must(rd_dataset_new("synthetic_images", &a, &d, &st) == RD_OK);
        rd_config_free(read);
    }
    for (int independent = 0; independent < 2; independent++) {
        const rd_order_rules rules = {.shuffle = true, .independent = independent, .size = 1};
        rd_order *o;
        must(rd_order_new(d, 1, number_of(c->meta, "epoch"), 2, &rules, &o, &st) == RD_OK);
        const int64_t n = rd_order_n_batches(o);
        const int64_t at = number_of(c->meta, "batch");
        int64_t m;
        const int64_t *ids = rd_order_batch(o, at < n ? at : n - 1, &m);
        for (int64_t i = 0; i < m; i++) must(ids[i] >= 0 && ids[i] < 30000);
        rd_order_free(o);
    }
}

/* Returns the step in a file's name; -1: it is not that of a checkpoint. */
static int64_t step_of(const char *name, const char *prefix)
{
    char again[NAME + 40];
    if (strncmp(name, prefix, strlen(prefix)) != 0) return -1;
    const int64_t step = strtoll(name + strlen(prefix), NULL, 10);
    (void)snprintf(again, sizeof again, "%s%" PRId64 ".npz", prefix, step);
    return step >= 0 && strcmp(name, again) == 0 ? step : -1;
}

typedef struct one_file {
    int64_t step;
    bool best;
} one_file;

static int newer_first(const void *a, const void *b)
{
    const one_file *x = a, *y = b;
    return x->step != y->step ? (x->step < y->step) - (x->step > y->step) : x->best - y->best;
}

/* Finds the newest whole checkpoint by a loop over all files. Returns the code that loading must
 * give; *path: the file, "" if there is none. */
static rd_code find_newest(const char *folder, bool models, char path[512])
{
    one_file file[MOST_FILES];
    int n = 0;
    rd_code code = RD_OK;
    DIR *d = opendir(folder);
    must(d != NULL);
    for (const struct dirent *e; (e = readdir(d)) && n < MOST_FILES;) {
        const int64_t model = models ? step_of(e->d_name, "model-") : -1,
                      best = step_of(e->d_name, "best-");
        if (model >= 0 || best >= 0) file[n++] = (one_file){model >= 0 ? model : best, model < 0};
    }
    (void)closedir(d);
    qsort(file, (size_t)n, sizeof *file, newer_first);
    for (int i = 0; i < n; i++) {
        rd_ckpt c;
        rd_status st = {0};
        (void)snprintf(path, 512, "%s/%s-%" PRId64 ".npz", folder, file[i].best ? "best" : "model",
                       file[i].step);
        code = rd_ckpt_load(path, &c, &st);
        rd_ckpt_release(&c);
        if (code == RD_OK) return RD_OK;
        must(st.msg[0] != '\0');
        if (code != RD_ECKPT || strstr(st.msg, "written by a newer run_dist")) return code;
    }
    path[0] = '\0';
    return code;
}

static int64_t load(const char *folder, const char *prefix)
{
    rd_ckpt c;
    rd_status st = {0};
    char warning[RD_MSG_BYTES], path[512];
    bool odd = strcmp(prefix, "best") == 0;
    rd_code want = find_newest(folder, !odd, path);
    (void)rd_ckpt_load_newest(folder, prefix, &c, warning, &st);
    must((st.code == RD_OK) == (st.msg[0] == '\0') && memchr(warning, '\0', sizeof warning));
    must((c.npz != NULL) == (st.code == RD_OK && path[0]));
    /* `checkpoint` may name a file that is gone. A folder of that name is refused. */
    char pointer[512];
    struct stat at;
    (void)snprintf(pointer, sizeof pointer, "%s/checkpoint", folder);
    const bool refused = !odd && lstat(pointer, &at) == 0 && !S_ISREG(at.st_mode);
    if (refused)
        must(st.code == RD_ECKPT && strstr(st.msg, "checkpoint"));
    else
        must(st.code == want || (want == RD_OK && !path[0] && st.code == RD_ECKPT && warning[0]));
    const int64_t step = c.npz ? c.step : -1;
    if (c.npz) {
        must(strcmp(c.path, path) == 0);
        check_arrays(&c);
        check_epoch(&c);
    }
    rd_ckpt_release(&c);
    return step;
}

/* ---- metrics.jsonl ---- */

static char *read_all(const char *path, size_t *n)
{
    char *text = NULL;
    rd_status st = {0};
    must(rd_file_read(path, RD_EENV, &text, n, &st) == RD_OK);
    return text;
}

static void check_lines(const char *text, size_t n, int64_t start)
{
    must(n == 0 || text[n - 1] == '\n');
    for (const char *p = text; p < text + n;) {
        const char *lf = memchr(p, '\n', (size_t)(text + n - p));
        json_t *o = json_loadb(p, (size_t)(lf - p), 0, NULL);
        const json_t *step = json_object_get(o, "step");
        must(json_is_object(o) && !(json_is_integer(step) && json_integer_value(step) > start));
        json_decref(o);
        p = lf + 1;
    }
}

static void open_metrics(const char *folder, int64_t start)
{
    char path[256];
    rd_status st = {0};
    rd_metrics *m = NULL;
    size_t n, n_again;
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    if (rd_metrics_new(path, start, &m, &st) != RD_OK) {
        must(!m && st.msg[0]);
        return;
    }
    char *text = read_all(path, &n);
    check_lines(text, n, start);
    must(rd_metrics_write(m, json_pack("{s:I}", "step", (json_int_t)start + 1), &st) == RD_OK);
    rd_metrics_free(m);
    must(rd_metrics_new(path, start, &m, &st) == RD_OK);
    rd_metrics_free(m);
    char *again = read_all(path, &n_again);
    must(n == n_again && memcmp(text, again, n) == 0);
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = fuzz_folder();
    char *text = malloc(size + 1);
    must(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    fill_folder(folder, text, size);
    free(text);
    const int64_t newest = rd_ckpt_newest_step(folder), step = load(folder, "model");
    must(newest >= -1);
    (void)load(folder, "best");
    const int n = fuzz_count(folder);
    open_metrics(folder, step < 0 ? 0 : step);
    must(fuzz_count(folder) <= n + 1); /* no temporary file is left */
    fuzz_empty(folder);
    return 0;
}
