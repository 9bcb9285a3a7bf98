/* gpu_emulated.cc -- devices and memory of gpu.h, for tests on a machine without a GPU.
 *
 * All work is done at once, in the caller's thread. The exceptions are arrays that are uploaded
 * ahead of their turn (copies_emulated.cc). Device memory: memory_emulated.cc.
 *
 * Environment:
 *     RD_EMULATED_GPUS=n       number of GPUs, default 1
 *     RD_EMULATED_MEMORY=bytes memory of each GPU, default 8 GiB
 *     RD_EMULATED_SM=75        compute capability, default 90; below 80: float16 and no bfloat16
 *     RD_EMULATED_CUBLAS=0     as if cuBLAS were not installed
 *     RD_EMULATED_COUNT=1      prints at the end what was launched
 *
 * A graph has its own copy of the arguments of its tasks, and runs with this copy. If an argument
 * changes in the list and is not set in the graph, the result is wrong. */
#include "../../../runner/engine/gpu/dnn_rnn.h"
#include "../../../runner/engine/gpu/gpu_rnn.h"
#include "device_emulated.h"
#include "rd/rounded.h"
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

namespace
{

enum {
    MARKS = 16,
    PAGE = 4096,
    /* bytes; smaller arrays are copied at once, as into a ring */
    DIRECT = 64 << 10
};
const uint64_t GIB = (uint64_t)1 << 30;
const char *const short_here = "gpu_emulated.cc:rd_gpu_memory_new";

void out_of_order(const char *what)
{
    fprintf(stderr, "emulated GPU: %s\n", what);
    abort();
}

uint64_t number_of_environment(const char *name, uint64_t otherwise)
{
    const char *e = getenv(name);
    return e && *e ? strtoull(e, nullptr, 10) : otherwise;
}

size_t range_bytes_wanted()
{
    return number_of_environment("RD_EMULATED_GPUS", 1) *
               number_of_environment("RD_EMULATED_MEMORY", 8 * GIB) * 2 +
           16 * GIB;
}

uint64_t works[RD_EMULATED_WORKS];

void say_works()
{
    fprintf(stderr,
            "emulated GPU: kernels %llu, products %llu, convolutions %llu, copies %llu, recurrent "
            "%llu, graphs %llu with %llu of these\n",
            (unsigned long long)works[0], (unsigned long long)works[1],
            (unsigned long long)works[2], (unsigned long long)works[3],
            (unsigned long long)works[4], (unsigned long long)works[5],
            (unsigned long long)works[6]);
}

} // namespace

/* Parameters as they were when a product first needed them after a change. A GPU keeps converted
 * copies, so it would not see a change without rd_gpu_weights_changed. */
/* The weights at w in another form. current: made since the last change. */
struct form {
    form *next;
    const float *w;
    int number;
    size_t bytes;
    void *at;
    bool current;
};

struct held {
    held *next;
    const float *p;
    int64_t n;
    float *copy;
    bool fresh;
    form *forms;
};

/* an array of rounded.h */
struct rounded {
    const float *x;
    int64_t n;
    uint16_t *copy;
};
enum { MOST_ROUNDED = 256 };

/* pinned memory of rd_gpu_host_new */
struct locked {
    locked *next;
    char *at;
    size_t bytes;
    /* a GPU may read from it, until rd_gpu_host_wait */
    bool read;
};

struct rd_gpu {
    rd_gpu_info info;
    rd_gpu_options options;
    bool float16;
    uint64_t in_use, peak, kept;
    uint64_t asked, left; /* when memory was short */
    double mark[MARKS];
    char text[256];
    held *held_first;
    rounded round[MOST_ROUNDED];
    int n_rounded;
    rd_gpu_rnn *rnn;
    void *dnn;
    rd_status failure; /* sticks */
    rd_graphs *graphs; /* nullptr: the options exclude graphs */
    locked *locked_first;
    rd_emulated_copies *copies;
    rd_ahead *ahead;
};

static rd_gpu *opened; /* opened last */
static int hanging;    /* number of groups with a sum that never ends */

static void waits(const char *call)
{
    if (!hanging) return;
    fprintf(stderr, "emulated GPU: %s waits for a sum over ranks that never ends\n", call);
    abort();
}

/* Frees the held ranges that begin there; from nullptr: all. */
static void release_held(rd_gpu *g, const char *from, size_t bytes)
{
    for (held **at = &g->held_first; *at;) {
        held *h = *at;
        if (from && ((const char *)h->p < from || (const char *)h->p >= from + bytes)) {
            at = &h->next;
            continue;
        }
        *at = h->next;
        while (h->forms) {
            form *f = h->forms;
            h->forms = f->next;
            rd_gpu_memory_free(g, f->at);
            delete f;
        }
        free(h->copy);
        free(h);
    }
}

extern "C" {

void rd_emulated_count(enum rd_emulated_work what)
{
    static const bool wanted = number_of_environment("RD_EMULATED_COUNT", 0) != 0 &&
                               atexit(say_works) == 0;
    if (wanted) works[what]++;
}

void rd_emulated_hang(int by)
{
    hanging += by;
}

rd_code rd_emulated_stuck(rd_gpu *g, rd_status *st)
{
    if (g->failure.code != RD_OK && st->code == RD_OK) *st = g->failure;
    return g->failure.code != RD_OK ? st->code : RD_OK;
}

rd_code rd_emulated_stick(rd_gpu *g, rd_status *st)
{
    if (g->failure.code == RD_OK) g->failure = *st;
    return st->code;
}

rd_graphs *rd_gpu_graphs(const rd_gpu *g)
{
    return g->graphs;
}
rd_code rd_emulated_flush(rd_gpu *g, rd_status *st)
{
    return rd_graphs_flush(g->graphs, st);
}

rd_code rd_gpu_launch(rd_gpu *g, const rd_kernel_call *c, size_t bytes, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    return rd_graphs_task(g->graphs, g, rd_emulated_run, c, bytes, offsetof(rd_kernel_call, grid),
                          st);
}

/* A launch here contains all that is needed to run it. */
void rd_emulated_kernel(const void *, const char *, void (*)(const void *, void *const *),
                        const size_t *, size_t)
{
}

rd_code rd_emulated_task(rd_gpu *g, rd_gpu_run *run, const void *args, size_t bytes, rd_status *st)
{
    return rd_graphs_task(g->graphs, g, run, args, bytes, bytes, st);
}

bool rd_emulated_mixed(const rd_gpu *g)
{
    return g->options.mixed;
}
void **rd_emulated_dnn_of(rd_gpu *g)
{
    return &g->dnn;
}
rd_gpu_rnn **rd_gpu_rnn_of(rd_gpu *g)
{
    return &g->rnn;
}
const rd_gpu_options *rd_gpu_options_of(const rd_gpu *g)
{
    return &g->options;
}

float rd_emulated_round(const rd_gpu *g, float x)
{
    return rd_gpu_uses_float16(g) ? rd_emulated_float16(x) : rd_emulated_bfloat16(x);
}

/* ---- tasks and graphs ---- */
/* a copy; from = nullptr: zeros */
struct copy {
    void *to;
    const void *from;
    uint64_t bytes;
};

static rd_code run_copy(rd_gpu *g, const void *args, rd_status *)
{
    const copy *c = (const copy *)args;
    if (c->from) rd_emulated_copies_read(g->copies, c->from, c->bytes);
    rd_emulated_count(RD_EMULATED_COPY);
    rd_emulated_access access;
    if (c->from)
        memmove(c->to, c->from, c->bytes);
    else
        memset(c->to, 0, c->bytes);
    return RD_OK;
}

static rd_code up_now(rd_gpu *, void *device, const void *host, size_t bytes, rd_status *)
{
    rd_emulated_count(RD_EMULATED_COPY);
    rd_emulated_access access;
    memcpy(device, host, bytes);
    return RD_OK;
}

} // extern "C"

struct rd_gpu_graph {
    rd_gpu_tasks tasks; /* owned copies */
    char *upload;       /* device memory */
};

static rd_code make_graph(rd_gpu *g, const rd_gpu_tasks *t, size_t upload, rd_gpu_graph **out,
                          uint64_t *bytes, rd_status *st)
{
    *out = nullptr;
    *bytes = upload;
    if (number_of_environment("RD_EMULATED_GRAPHS", 1) == 0)
        return rd_fail(st, RD_EENV, "RD_EMULATED_GRAPHS is 0");
    void *at;
    if (rd_gpu_memory_new(g, upload, &at, st) != RD_OK) return st->code;
    rd_gpu_graph *q = new rd_gpu_graph{*t, (char *)at};
    q->tasks.task = (rd_gpu_task *)malloc((size_t)t->n * sizeof *t->task);
    q->tasks.args = (unsigned char *)aligned_alloc(16, t->used);
    if (!q->tasks.task || !q->tasks.args) abort();
    memcpy(q->tasks.task, t->task, (size_t)t->n * sizeof *t->task);
    memcpy(q->tasks.args, t->args, t->used);
    *out = q;
    return RD_OK;
}

static rd_code set_graph(rd_gpu *, rd_gpu_graph *q, int i, const rd_gpu_task *task,
                         const void *args, rd_status *st)
{
    const rd_gpu_task *own = &q->tasks.task[i];
    unsigned char *to = q->tasks.args + own->at;
    if (own->run != task->run || own->bytes != task->bytes || memcmp(to, args, own->fixed) != 0)
        return rd_fail(st, RD_EBUG, "task %d of a graph is set to what it cannot be", i);
    memcpy(to, args, own->bytes);
    return RD_OK;
}

static rd_code start_graph(rd_gpu *g, rd_gpu_graph *q, const void *upload, size_t bytes,
                           rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    rd_emulated_count(RD_EMULATED_GRAPH);
    if (bytes && up_now(g, q->upload, upload, bytes, st) != RD_OK) return st->code;
    for (int i = 0; i < q->tasks.n; i++) {
        const void *args = rd_gpu_args(&q->tasks, i);
        rd_emulated_count(RD_EMULATED_IN_GRAPH);
        if (!q->tasks.task[i].run) {
            const rd_gpu_post *p = (const rd_gpu_post *)args;
            const copy c = {p->to, q->upload + p->from, p->bytes};
            if (run_copy(g, &c, st) != RD_OK) return st->code;
        } else if (q->tasks.task[i].run(g, args, st) != RD_OK) {
            return st->code;
        }
    }
    return RD_OK;
}

static void drop_graph(rd_gpu *g, rd_gpu_graph *q)
{
    rd_gpu_memory_free(g, q->upload);
    free(q->tasks.task);
    free(q->tasks.args);
    delete q;
}

static const rd_graph_maker maker = {make_graph, set_graph, start_graph, drop_graph, up_now};

/* ---- pinned memory, and arrays that are uploaded ahead of their turn ---- */
static locked *locked_of(const rd_gpu *g, const char *p)
{
    locked *l = g->locked_first;
    while (l && (p < l->at || p >= l->at + l->bytes)) l = l->next;
    return l;
}

/* Locks the whole pages of the array. */
static void lock(locked *l, const char *from, size_t bytes)
{
    char *first = l->at + (size_t)(from - l->at + PAGE - 1) / PAGE * PAGE,
         *end = l->at + (size_t)(from + bytes - l->at) / PAGE * PAGE;
    if (first < end && mprotect(first, (size_t)(end - first), PROT_READ) != 0)
        out_of_order("the kernel refuses to protect memory");
    l->read = true;
}

static void *ahead_get(rd_gpu *g, size_t bytes)
{
    rd_status own = {};
    void *p;
    if (rd_gpu_memory_new(g, bytes, &p, &own) != RD_OK) return nullptr;
    g->kept += rd_emulated_taken(g, p);
    return p;
}

static void ahead_put(rd_gpu *g, void *p)
{
    rd_emulated_copies_finish(g->copies, nullptr, 0);
    g->kept -= rd_emulated_taken(g, p);
    rd_gpu_memory_free(g, p);
}

static rd_code ahead_up(rd_gpu *g, void *to, const void *host, size_t bytes, rd_status *)
{
    lock(locked_of(g, (const char *)host), (const char *)host, bytes);
    rd_emulated_copies_up(g->copies, to, host, bytes);
    return RD_OK;
}

static rd_code ahead_copy(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st)
{
    const copy c = {to, from, bytes};
    return run_copy(g, &c, st);
}

static rd_code ahead_record(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *)
{
    rd_emulated_copies_record(g->copies, stream, event);
    return RD_OK;
}

static rd_code ahead_wait(rd_gpu *g, rd_gpu_queue stream, int event, rd_status *)
{
    rd_emulated_copies_wait(g->copies, stream, event);
    return RD_OK;
}

static const rd_ahead_device ahead_device = {ahead_get,  ahead_put,    ahead_up,
                                             ahead_copy, ahead_record, ahead_wait};

extern "C" {

/* ---- devices ---- */
int rd_gpu_count(char why[256])
{
    const int n = (int)number_of_environment("RD_EMULATED_GPUS", 1);
    snprintf(why, 256, "%s", n ? "" : "RD_EMULATED_GPUS is 0");
    return n;
}

rd_code rd_gpu_need_libraries(bool convolutions, rd_status *st)
{
    if (number_of_environment("RD_EMULATED_CUBLAS", 1) == 0)
        return rd_fail(st, RD_EENV, "cuBLAS is needed and RD_EMULATED_CUBLAS is 0");
    if (convolutions && rd_gpu_dnn_version() == 0)
        return rd_fail(st, RD_EENV, "cuDNN is needed and RD_EMULATED_CUDNN is 0");
    return st->code;
}

rd_code rd_gpu_query(int index, rd_gpu_info *out, rd_status *st)
{
    char why[256];
    const int n = rd_gpu_count(why), sm = (int)number_of_environment("RD_EMULATED_SM", 90);
    if (index < 0 || index >= n)
        return rd_fail(st, RD_EENV, "there is no GPU %d; this process sees %d", index, n);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulated GPU");
    snprintf(out->uuid, sizeof out->uuid, "GPU-00000000-0000-0000-0000-%012d", index);
    out->major = sm / 10;
    out->minor = sm % 10;
    out->n_sm = 4;
    out->memory = out->free_memory = number_of_environment("RD_EMULATED_MEMORY", 8 * GIB);
    return RD_OK;
}

const char *rd_gpu_libraries(void)
{
    return "emulated";
}

rd_code rd_gpu_new(int index, const rd_gpu_options *o, rd_gpu **out, rd_status *st)
{
    *out = nullptr;
    rd_gpu *g = (rd_gpu *)calloc(1, sizeof *g);
    if (!g || !rd_emulated_range(range_bytes_wanted())) {
        free(g);
        return rd_fail(st, RD_EENV, "out of memory for the emulated GPU");
    }
    if (rd_gpu_query(index, &g->info, st) != RD_OK) {
        free(g);
        return st->code;
    }
    rd_emulated_watch_faults();
    rd_gpu_rnn_begin();
    g->options = *o;
    g->float16 = number_of_environment("RD_CUDA_FLOAT16", 0) != 0;
    g->copies = rd_emulated_copies_new();
    if (rd_ahead_new(g, &ahead_device, &g->ahead, st) != RD_OK ||
        (o->graphs && rd_graphs_new(g, &maker, &g->graphs, st) != RD_OK)) {
        rd_gpu_free(g);
        return st->code;
    }
    snprintf(g->text, sizeof g->text, "%s (GPU %d, sm_%d%d, %.1f GiB), %s, %s", g->info.name, index,
             g->info.major, g->info.minor, (double)g->info.memory / (double)GIB, rd_gpu_libraries(),
             !o->mixed                ? "float32"
             : rd_gpu_uses_float16(g) ? "mixed (float16)"
                                      : "mixed (bfloat16)");
    *out = opened = g;
    return RD_OK;
}

void rd_gpu_free(rd_gpu *g)
{
    if (!g) return;
    rd_graphs_free(g->graphs);
    g->graphs = nullptr;
    rd_ahead_free(g->ahead);
    release_held(g, nullptr, 0);
    if (g->in_use)
        fprintf(stderr, "emulated GPU: %llu bytes of device memory were not given back\n",
                (unsigned long long)g->in_use);
    rd_gpu_rnn_free(g);
    free(g->dnn);
    if (g->locked_first) fprintf(stderr, "emulated GPU: pinned memory was not given back\n");
    if (opened == g) opened = nullptr;
    rd_emulated_copies_free(g->copies);
    free(g);
}

const rd_gpu_info *rd_gpu_about(const rd_gpu *g)
{
    return &g->info;
}
const char *rd_gpu_describe(const rd_gpu *g)
{
    return g->text;
}
bool rd_gpu_uses_float16(const rd_gpu *g)
{
    return g->options.mixed && (g->info.major < 8 || g->float16);
}
rd_element rd_gpu_narrow(const rd_gpu *g)
{
    return !g->options.mixed ? RD_FLOAT32 : rd_gpu_uses_float16(g) ? RD_FLOAT16 : RD_BFLOAT16;
}

/* ---- memory ---- */
/* Pinned memory: memory of an array that is being uploaded cannot be written until
 * rd_gpu_host_wait, because a GPU may not have read it. */
rd_code rd_gpu_host_new(rd_gpu *g, size_t bytes, void *out, rd_status *st)
{
    void *none = nullptr;
    memcpy(out, &none, sizeof none);
    if (number_of_environment("RD_EMULATED_PAGE_LOCKED", 1) == 0)
        return rd_fail(st, RD_EENV, "no pinned memory");
    bytes = (bytes + PAGE) / PAGE * PAGE;
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    locked *l = p == MAP_FAILED ? nullptr : (locked *)calloc(1, sizeof *l);
    if (!l) return rd_fail(st, RD_EENV, "out of memory: %zu bytes", bytes);
    *l = {g->locked_first, (char *)p, bytes, false};
    g->locked_first = l;
    memcpy(out, &p, sizeof p);
    return RD_OK;
}

static void unlock(locked *l)
{
    if (l->read && mprotect(l->at, l->bytes, PROT_READ | PROT_WRITE) != 0)
        out_of_order("the kernel refuses to protect memory");
    l->read = false;
}

bool rd_emulated_is_read(const void *p)
{
    const locked *l = opened ? locked_of(opened, (const char *)p) : nullptr;
    return l && l->read;
}

rd_code rd_gpu_host_wait(rd_gpu *g, const void *p, rd_status *st)
{
    locked *l = locked_of(g, (const char *)p);
    waits(__func__);
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (l) {
        rd_emulated_copies_finish(g->copies, l->at, l->bytes);
        rd_ahead_forget(g->ahead, l->at, l->bytes);
        unlock(l);
    }
    return RD_OK;
}

void rd_gpu_host_free(rd_gpu *g, void *p)
{
    if (p) waits(__func__);
    for (locked **at = &g->locked_first; *at; at = &(*at)->next) {
        locked *l = *at;
        if (l->at != (char *)p) continue;
        *at = l->next;
        rd_emulated_copies_finish(g->copies, l->at, l->bytes);
        rd_ahead_forget(g->ahead, l->at, l->bytes);
        munmap(l->at, l->bytes);
        free(l);
        return;
    }
    if (p) out_of_order("pinned memory that is given back was not given by this GPU");
}

rd_code rd_gpu_memory_new(rd_gpu *g, size_t bytes, void *out, rd_status *st)
{
    void *none = nullptr;
    memcpy(out, &none, sizeof none);
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    const size_t need = rd_emulated_padded(bytes);
    if (bytes > g->info.memory || g->in_use + need > g->info.memory) {
        g->asked = bytes;
        g->left = g->info.memory - g->in_use;
        return rd_fail_(
            st, RD_EENV, short_here,
            "out of GPU memory: %.1f MiB asked for, %.1f MiB in use, %.1f of %.1f MiB free",
            (double)bytes / 1048576, (double)g->in_use / 1048576,
            (double)(g->info.memory - g->in_use) / 1048576, (double)g->info.memory / 1048576);
    }
    void *p = rd_emulated_take(g, bytes);
    if (!p) return rd_fail(st, RD_EENV, "out of memory for the emulated GPU");
    g->in_use += need;
    if (g->in_use > g->peak) g->peak = g->in_use;
    memcpy(out, &p, sizeof p);
    return RD_OK;
}

void rd_gpu_memory_free(rd_gpu *g, void *at)
{
    if (!at) return;
    waits(__func__);
    rd_status own = {};
    (void)rd_emulated_flush(g, &own);
    const size_t bytes = rd_emulated_taken(g, at);
    if (bytes == 0) out_of_order("what is given back was not given by this GPU");
    release_held(g, (const char *)at, bytes);
    rd_emulated_copies_forget(g->copies, at, bytes);
    rd_emulated_give_back(at);
    g->in_use -= bytes;
}

static rd_code outside(rd_gpu *g, const char *call, const void *p, size_t bytes, rd_status *st)
{
    rd_fail(st, RD_EBUG, "%s: %zu bytes at %p are no memory of the device", call, bytes, p);
    return rd_emulated_stick(g, st);
}

rd_code rd_gpu_upload(rd_gpu *g, void *device, const void *host, size_t bytes, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK || bytes == 0) return st->code;
    if (!rd_emulated_is_device(device, bytes)) return outside(g, __func__, device, bytes, st);
    if (rd_emulated_is_device(host, 0))
        return rd_fail(st, RD_EBUG, "%s: the source is memory of the device", __func__);
    if (rd_graphs_up(g->graphs, device, host, bytes, st) ||
        rd_ahead_take(g->ahead, device, host, bytes, st))
        return st->code;
    locked *l = bytes > DIRECT ? locked_of(g, (const char *)host) : nullptr;
    if (l) {
        lock(l, (const char *)host, bytes);
        rd_ahead_late(g->ahead);
    }
    return up_now(g, device, host, bytes, st);
}

rd_code rd_gpu_up_ahead(rd_gpu *g, const void *host, size_t bytes, rd_status *st)
{
    locked *l = bytes > DIRECT ? locked_of(g, (const char *)host) : nullptr;
    if (rd_emulated_stuck(g, st) != RD_OK || !l) return st->code;
    if ((const char *)host + bytes > l->at + l->bytes)
        return rd_fail(st, RD_EBUG, "%s: the array ends outside of its memory", __func__);
    return rd_ahead_send(g->ahead, host, bytes, st);
}

void rd_gpu_count_ahead(const rd_gpu *g, rd_gpu_ahead_counts *out)
{
    rd_ahead_count(g->ahead, out);
}

rd_code rd_gpu_download(rd_gpu *g, void *host, const void *device, size_t bytes, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK || bytes == 0) return st->code;
    if (!rd_emulated_is_device(device, bytes)) return outside(g, __func__, device, bytes, st);
    if (rd_emulated_is_device(host, 0))
        return rd_fail(st, RD_EBUG, "%s: the target is memory of the device", __func__);
    if (rd_emulated_flush(g, st) != RD_OK) return st->code;
    waits(__func__);
    rd_emulated_count(RD_EMULATED_COPY);
    rd_emulated_access access;
    memcpy(host, device, bytes);
    return RD_OK;
}

rd_code rd_gpu_copy(rd_gpu *g, void *to, const void *from, size_t bytes, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK || bytes == 0) return st->code;
    if (!rd_emulated_is_device(to, bytes)) return outside(g, __func__, to, bytes, st);
    if (!rd_emulated_is_device(from, bytes)) return outside(g, __func__, from, bytes, st);
    const copy c = {to, from, bytes};
    return rd_graphs_task(g->graphs, g, run_copy, &c, sizeof c, 0, st);
}

rd_code rd_gpu_zero(rd_gpu *g, void *device, size_t bytes, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK || bytes == 0) return st->code;
    if (!rd_emulated_is_device(device, bytes)) return outside(g, __func__, device, bytes, st);
    const copy c = {device, nullptr, bytes};
    return rd_graphs_task(g->graphs, g, run_copy, &c, sizeof c, 0, st);
}

rd_code rd_gpu_wait(rd_gpu *g, rd_status *st)
{
    waits(__func__);
    if (rd_emulated_stuck(g, st) != RD_OK || rd_emulated_flush(g, st) != RD_OK) return st->code;
    rd_emulated_copies_finish(g->copies, nullptr, 0);
    return RD_OK;
}

uint64_t rd_gpu_in_use(const rd_gpu *g)
{
    return g->in_use;
}
uint64_t rd_gpu_kept(const rd_gpu *g)
{
    return g->kept;
}
uint64_t rd_gpu_peak(const rd_gpu *g)
{
    return g->peak;
}

bool rd_gpu_short(const rd_gpu *g, const rd_status *st, uint64_t *asked, uint64_t *left)
{
    *asked = g->asked;
    *left = g->left;
    return st->code == RD_EENV && strcmp(st->where, short_here) == 0;
}

rd_code rd_gpu_hold(rd_gpu *g, const float *p, int64_t n, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK || n == 0) return st->code;
    if (!rd_emulated_is_device(p, (size_t)n * sizeof *p))
        return outside(g, __func__, p, (size_t)n * sizeof *p, st);
    held *h = (held *)calloc(1, sizeof *h);
    if (h) *h = {g->held_first, p, n, (float *)malloc((size_t)n * sizeof *p), false, nullptr};
    if (!h || !h->copy) {
        free(h);
        return rd_fail(st, RD_EENV, "out of memory for copies of the weights");
    }
    g->held_first = h;
    return RD_OK;
}

void rd_gpu_weights_changed(rd_gpu *g)
{
    for (held *h = g->held_first; h; h = h->next) {
        h->fresh = false;
        for (form *f = h->forms; f; f = f->next) f->current = false;
    }
}

rd_code rd_gpu_hold_copy(rd_gpu *g, const float *w, int number, size_t bytes, void *out,
                         bool *current, rd_status *st)
{
    void *none = nullptr;
    held *h = g->held_first;
    *current = false;
    memcpy(out, &none, sizeof none);
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    while (h && (w < h->p || w >= h->p + h->n)) h = h->next;
    if (!h) return RD_OK;
    {
        rd_emulated_access access;
        if (!rd_emulated_current(g, w, (int64_t)(bytes / 2))) {
            rd_fail(st, RD_EBUG, "%s: weights changed, and nobody called rd_gpu_weights_changed",
                    __func__);
            return rd_emulated_stick(g, st);
        }
    }
    form *f = h->forms;
    while (f && (f->w != w || f->number != number || f->bytes != bytes)) f = f->next;
    if (!f) {
        void *at;
        if (rd_gpu_memory_new(g, bytes, &at, st) != RD_OK) return st->code;
        f = h->forms = new (std::nothrow) form{h->forms, w, number, bytes, at, false};
        if (!f) return rd_fail(st, RD_EENV, "out of memory for copies of the weights");
    }
    *current = f->current;
    f->current = true;
    memcpy(out, &f->at, sizeof f->at);
    return RD_OK;
}

bool rd_emulated_current(rd_gpu *g, const float *p, int64_t n)
{
    for (held *h = g->held_first; h; h = h->next) {
        if (p < h->p || p >= h->p + h->n) continue;
        if (!h->fresh) memcpy(h->copy, h->p, (size_t)h->n * sizeof *p);
        h->fresh = true;
        if (n > h->p + h->n - p) n = h->p + h->n - p;
        if (memcmp(h->copy + (p - h->p), p, (size_t)n * sizeof *p) != 0) return false;
    }
    return true;
}

/* ---- rounded.h ---- */
rd_code rd_gpu_rounded_begin(rd_gpu *g, const float *x, int64_t n, void *copy, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (g->n_rounded == MOST_ROUNDED) return rd_fail(st, RD_EBUG, "too many rounded arrays");
    g->round[g->n_rounded++] = {x, n, (uint16_t *)copy};
    return RD_OK;
}

void rd_gpu_rounded_end(rd_gpu *g)
{
    g->n_rounded = 0;
}

void *rd_gpu_rounded_of(const rd_gpu *g, const float *x)
{
    for (int i = g->n_rounded - 1; i >= 0; i--) {
        const rounded *r = &g->round[i];
        if (x >= r->x && x < r->x + r->n) return r->copy + (x - r->x);
    }
    return nullptr;
}

/* ---- time ---- */
rd_code rd_gpu_mark(rd_gpu *g, int mark, rd_status *st)
{
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (rd_emulated_flush(g, st) != RD_OK) return st->code;
    if (mark < 0 || mark >= MARKS) return rd_fail(st, RD_EBUG, "there is no mark %d", mark);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    g->mark[mark] = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return RD_OK;
}

rd_code rd_gpu_between(rd_gpu *g, int from, int to, double *seconds, rd_status *st)
{
    *seconds = 0.0;
    if (rd_emulated_stuck(g, st) != RD_OK) return st->code;
    if (from < 0 || from >= MARKS || to < 0 || to >= MARKS || g->mark[from] == 0.0 ||
        g->mark[to] == 0.0)
        return rd_fail(st, RD_EBUG, "marks %d and %d were not set", from, to);
    *seconds = g->mark[to] - g->mark[from];
    return RD_OK;
}

} // extern "C"
